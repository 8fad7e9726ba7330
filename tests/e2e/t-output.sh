#!/bin/bash
# What a user and a script are told: -q, -v, --stats, --progress, --json, --dry-run; and the options that
# leave files alone.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
data src/f 300000
data src/g 100
mkdir -p src/d/e
echo a >src/d/a
data src/d/e/b 200000

silent() {
	rcp "$@"
	rc_is 0
	out_empty
	[ ! -s err ] || { fail 'standard error is not empty'; show err; }
	same src/f dst/f
}

verbose() {
	rcp -v src/f "box:$dir/dst/"
	rc_is 0
	out_empty
	err_has 'transport tcp' 'no RDMA' 'box: rcp ' 'f: copied, 293'
	rcp -vv src/f "box:$dir/dst/"
	err_has 'trying tcp'
	rcp -v -q src/f "box:$dir/dst/"
	[ ! -s err ] || { fail '-q is not quiet with -v'; show err; }
}

stats() {
	rcp --stats src/f "box:$dir/dst/"
	rc_is 0
	out_empty
	err_has '1 copied, 0 skipped, 0 failed' '300000 bytes' tcp "$(crc32_of src/f)" 'zero copy' staged resumed
}

plain() {
	rcp --progress=plain src/f "box:$dir/dst/"
	rc_is 0
	out_empty
	err_has '1 file, ' ', tcp'
	rcp --progress=bar src/f "box:$dir/dst/"
	rc_is 0
	! grep -q $'\r' err || fail 'a bar in a file'
}

bar() {
	have script || { skip 'script(1) is not installed'; return; }
	printf '%q ' "$RCP" -F "$dir/ssh_config" src/f "box:$dir/dst/" >line
	timeout 60 script -qec "$(<line)" /dev/null </dev/null >out 2>err
	rc=$?
	rc_is 0
	grep -q 'f .*100%.*tcp' out || { fail 'no bar'; show out; }
}

summary_keys='status exit_code files bytes skipped failed seconds bytes_per_second transport fabric
	fallback_reason encrypted sealed sealed_bytes zero_copy_bytes staged_bytes resumed_bytes resent_chunks retries crc32 bottleneck
	resumable errors errors_omitted warnings'

json_of() {
	local key

	rcp --json "$@"
	rc_is 0
	[ ! -s err ] || { fail 'standard error is not empty'; show err; }
	is 'each line is one object' "$(jq -s 'all(type == "object")' out)" true
	is 'lines' "$(wc -l <out)" "$(jq -s length out)"
	is 'the first event' "$(head -n 1 out | jq -r .event)" start
	is 'the last event' "$(tail -n 1 out | jq -r .event)" summary
	for key in $summary_keys; do
		is "key $key" "$(event summary "has(\"$key\")")" true
	done
	for key in version sources target dry_run; do is "start has $key" "$(event start "has(\"$key\")")" true; done
	for key in transport fabric detail fallback_reason encrypted sealed host remote_software; do
		is "transport has $key" "$(event transport "has(\"$key\")")" true
	done
	for key in name bytes status; do is "file has $key" "$(event file "has(\"$key\")")" true; done
	is 'names of files' "$(jq -r 'select(.event == "file") | .name | sub(".*/"; "")' out | sort | tr '\n' ' ')" 'a b f g '
	sum_is .files 4
	sum_is .bytes 500102
	sum_is .crc32 null
	sum_is .status ok
	sum_is .exit_code 0
	sum_is '.errors | length' 0
	same src/f dst/f
	same_tree src/d dst/d
}

json_progress() {
	local key

	data src/slow 9000000
	rcp --json --bwlimit=3M src/slow "box:$dir/dst/"
	rc_is 0
	is 'progress once a second' "$(jq -s 'map(select(.event == "progress")) | length >= 2 and length <= 5' out)" true
	for key in bytes total_bytes files total_files total_final seconds bytes_per_second name name_bytes name_total transport; do
		is "progress has $key" "$(event progress "has(\"$key\")")" true
	done
	is 'the limit is kept' "$(summary '.bytes_per_second < 4000000')" true
	is 'the limit is used' "$(summary '.bytes_per_second > 1500000')" true
	rcp --json -l 24000 "box:$dir/src/slow" dst/slow2
	rc_is 0
	is '-l is kept' "$(summary '.bytes_per_second < 4000000')" true
}

json_error() {
	rcp --json src/gone "box:$dir/dst/"
	rc_is 1
	is 'error' "$(jq -c 'select(.event == "error") | [.severity, .code, .object, .errno]' out)" '["error",1,"src/gone",2]'
	sum_is .errors[0].object src/gone
	sum_is .status partial
	rcp --json src/f
	rc_is 2
	rcp --json --no-such-option src/f dst/
	rc_is 2
	out_empty
}

# Nothing reads the events any more: the copy is done, and the failure told.
json_closed() {
	"$RCP" -F ssh_config --json src/f "box:$dir/dst/" </dev/null 2>err >/dev/full
	rc=$?
	rc_is 5
	err_has 'standard output' 'No space left on device'
	same src/f dst/f
}

dry() {
	rcp --dry-run -r src/f src/d "$1"
	rc_is 0
	is 'lines' "$(wc -l <out)" 3
	is 'verbs' "$(cut -f 1 out | sort -u)" 'would copy'
	is 'what is there now' "$(ls -A dst)" ''
	rcp --dry-run --json -r src/f src/d "$1"
	rc_is 0
	sum_is .files 3
	is 'what is there now' "$(ls -A dst)" ''
	echo old >dst/f
	rcp --dry-run --skip-existing src/f src/g "$1"
	rc_is 0
	is 'verbs' "$(cut -f 1 out | sort | tr '\n' ' ')" 'skipped would copy '
	old dst/f
	rcp --dry-run src/gone "$1"
	rc_is 1
	mkdir src/special
	ln -s nowhere src/special/link
	mkfifo src/special/fifo
	ln src/f src/special/hard
	ln src/f src/special/hard2
	rcp --dry-run -a src/special "$1"
	rc_is 0
	is 'what has no data' "$(cut -f 1,2 out | sort | uniq -c | tr -s ' \t\n' ' ')" ' 3 would copy 0 B 1 would copy 293.0 KiB '
	rm -r src/special
}

update() {
	rcp -p src/f src/g "$1"
	rc_is 0
	rcp --json -p --update src/f src/g "$1"
	rc_is 0
	sum_is .skipped 2
	sum_is .files 0
	is 'statuses' "$(jq -r 'select(.event == "file") | .status' out | sort -u)" skipped
	touch -d '2 minutes ago' src/f
	rcp --json -p --update src/f src/g "$1"
	sum_is .files 1
	sum_is .skipped 1
	is 'times' "$(stat -c %y dst/f)" "$(stat -c %y src/f)"
	echo more >>src/g
	rcp --json -p --update src/f src/g "$1"
	sum_is .files 1
	same src/g dst/g
	truncate -s 100 src/g
}

skip_existing() {
	echo old >dst/f
	rcp --json --skip-existing src/f src/g "$1"
	rc_is 0
	sum_is .skipped 1
	sum_is .files 1
	old dst/f
	same src/g dst/g
}

trusted() {
	rcp --json --verify --fsync -r src/f src/d "$1"
	rc_is 0
	same src/f dst/f
	same_tree src/d dst/d
	clean dst
}

usage() {
	for args in '' 'src/f' '--transport=pigeon src/f dst/' '--chunk-size=5000 src/f dst/' '--slots=0 src/f dst/' \
		'--bwlimit=x src/f dst/' '--no-such-option src/f dst/' '--files-from=/no/such src/f dst/'; do
		# shellcheck disable=SC2086
		rcp $args
		rc_is 2
		own_lines 1
		out_empty
	done
}

rdma_only() {
	[ ! -e /sys/class/infiniband ] || [ -z "$(ls /sys/class/infiniband)" ] || { skip 'there is an RDMA device'; return; }
	rcp --json --transport=rdma src/f "box:$dir/dst/"
	rc_is 3
	own_lines 1
	err_has 'no RDMA connection'
	sum_is .status connect
	absent dst/f
	for o in --device=nope_0 --gid-index=77 --rdma-addr=192.0.2.1; do
		rcp --json "$o" src/f "box:$dir/dst/"
		rc_is 0
		sum_is .transport tcp
		is 'a reason' "$(summary '.fallback_reason != null')" true
	done
}

t '-q, up' silent -q src/f "box:$dir/dst/"
t '-q, down' silent -q "box:$dir/src/f" dst/
t 'no -q, no terminal' silent src/f "box:$dir/dst/"
t '-v' verbose
t '--stats' stats
t '--progress=plain' plain
t 'a bar on a terminal' bar
t '--json, up' json_of -r src/f src/g src/d "box:$dir/dst/"
t '--json, down' json_of -r "box:$dir/src/f" "box:$dir/src/g" "box:$dir/src/d" dst/
t '--json, ssh' json_of --transport=ssh -r src/f src/g src/d "box:$dir/dst/"
t '--json progress, --bwlimit, -l' json_progress
t '--json errors' json_error
t '--json to a full device' json_closed
t '--dry-run, up' dry "box:$dir/dst/"
t '--dry-run, local' dry dst/
t '--update, up' update "box:$dir/dst/"
t '--update, local' update dst/
t '--skip-existing, up' skip_existing "box:$dir/dst/"
t '--verify --fsync' trusted "box:$dir/dst/"
t 'usage' usage
t '--transport=rdma where there is none' rdma_only
end
