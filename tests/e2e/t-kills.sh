#!/bin/bash
# The sudden end of any process of a copy, and signals: the other end notices, says so, leaves the old
# file alone and only partial files behind; the same command again finishes the job.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
write_watched
data src/f 41943049
beyond=1000000

# begin_copy DIRECTION ARG...: over an old file
begin_copy() {
	over_old "$1" --retries=0 "${@:2}" || return
	# What the source has counted may still be on its way.
	await 20 arrived || fail 'nothing arrives'
}
arrived() { head -q -c 65536 dst/.f.rcp-part | tr -d '\0' | head -c 1 | grep -q .; } 2>/dev/null

untouched() {
	old dst/f
	only_partials dst
}

again() {
	rcp --json "$@" "$from" "$to"
	rc_is 0
	same src/f dst/f
	clean dst
}

# killed WHO DIRECTION ARG...
killed() {
	local who=$1 way=$2 victim

	shift 2
	begin_copy "$way" "$@" || return
	case $who in
	initiator) victim=$copy ;;
	server) victim=$server ;;
	ssh) victim=$ssh ;;
	sshd) victim=$session ;;
	esac
	kill -9 "$victim"
	if [ "$who" = initiator ]; then
		reap 15 "$copy"
		rc_is 137
	else
		reap 15 "$copy" || fail 'the initiator did not end within 15 s'
		rc_is 6
		own_lines 2 # and that a rerun goes on
		err_has 'rcp: box: ' 'run the same command again'
		sum_is .status link
		sum_is .resumable true
	fi
	await 15 server_ended || fail 'the server did not end within 15 s'
	[ "$who" = server ] || server_rc_is 6
	await 15 is_gone "$ssh" || fail 'ssh did not end within 15 s'
	untouched
	again "$@"
}

# signalled SIGNAL STATUS WORD DIRECTION ARG...
signalled() {
	local signal=$1 status=$2 word=$3 way=$4

	shift 4
	begin_copy "$way" "$@" || return
	kill -"$signal" -- "-$copy" # with ssh, as a terminal does
	reap 15 "$copy" || fail 'no end within 15 s'
	rc_is "$status"
	sum_is .status "$word"
	sum_is .exit_code "$status"
	sum_is .resumable true
	own_lines 1
	err_has 'interrupted; run the same command again to go on with what was kept'
	await 15 server_ended || fail 'the server did not end within 15 s'
	await 5 is_gone "$ssh" || fail 'ssh stays'
	untouched
	[ -n "$(leftovers dst)" ] || fail 'nothing was kept'
	again "$@"
	is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
	sum_is .crc32 "$(crc32_of src/f)"
}

# changed_between DIRECTION [MTIME_KEPT]: another version of the source, its size and perhaps its time of modification
# as before. Nothing of the old one may be in the copy.
changed_between() {
	begin_copy "$1" || return
	kill -INT "$copy"
	reap 15 "$copy"
	rc_is 130
	cp -p src/f keep
	printf other | dd of=src/f bs=1 seek=100 conv=notrunc status=none
	[ -z "${2:-}" ] || touch -r keep src/f
	again
	sum_is .resumed_bytes 0
	mv keep src/f
}

start_over() {
	begin_copy up || return
	kill -INT "$copy"
	reap 15 "$copy"
	again --no-resume
	sum_is .resumed_bytes 0
}

keep_nothing() {
	begin_copy up --no-resume || return
	kill -INT "$copy"
	reap 15 "$copy"
	rc_is 130
	sum_is .resumable false
	err_lacks 'again'
	await 15 server_ended
	clean dst
}

impatient() {
	begin_copy up || return
	kill -STOP "$server" # so that it can't end in good order
	interrupt() { ! kill -INT "$copy" 2>/dev/null || is_gone "$copy"; }
	await 5 interrupt
	reap 1 "$copy" || fail 'a second ^C was not enough'
	rc_is 130
	kill -CONT "$server"
	await 15 server_ended || fail 'the server did not end within 15 s'
	untouched
}

# server_signalled SIGNAL DIRECTION: to the server alone. One that receives notes what it has, which a kill -9 at this moment would cost.
server_signalled() {
	begin_copy "$2" || return
	kill "-$1" "$server"
	reap 15 "$copy" || fail 'the initiator did not end within 15 s'
	rc_is 6
	own_lines 2
	err_has 'ended there by a signal' 'run the same command again'
	sum_is .resumable true
	await 15 server_ended || fail 'the server did not end within 15 s'
	server_rc_is 6
	untouched
	again
	is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
}

# And within the run it goes on by itself.
server_signalled_retry() {
	over_old up --retries=2 || return
	await 20 arrived || fail 'nothing arrives'
	kill -TERM "$server"
	reap 60 "$copy" || fail 'no end within 60 s'
	rc_is 0
	sum_is .retries 1
	is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
	same src/f dst/f
	clean dst
}

# Asleep; with -v that is within the copy, where it has a handler for SIGTERM.
stuck() {
	[ "$(cut -d ' ' -f 3 "/proc/$copy/stat")" = S ] || return 1
	[ "$1" != -v ] || (( 0x$(sed -n 's/^SigCgt:\t//p' "/proc/$copy/status") & 1 << 14 ))
}

# Nobody reads what it has to say: that holds no signal up, and the last words of a copy that is over are no place to abort at.
unread() {
	mkfifo full
	exec 9<>full
	head -c 65536 /dev/zero >&9
	echo old >dst/f
	set -m
	"$RCP" "${@:3}" src/f dst/ </dev/null >&9 2>&9 &
	copy=$!
	set +m
	pids+=("$copy")
	[ "$3" != --stats ] || await 20 cmp -s src/f dst/f || fail 'it does not copy'
	[ "$3" = --stats ] || await 20 stuck "$3" || fail 'it does not wait'
	kill "-$1" "$copy"
	reap 5 "$copy" || fail 'it does not end'
	rc_is "$2"
	exec 9>&-
	rm full
}

# A server that hangs is as good as dead.
hanging() {
	begin_copy "$1" || return
	kill -STOP "$server"
	reap 15 "$copy" || fail 'no end within 15 s'
	rc_is 6
	err_has 'no word from the peer for 8 s'
	kill -CONT "$server"
	await 15 server_ended || fail 'the server did not end within 15 s'
	untouched
}

# Beyond 256 MiB a kill -9 costs at most what came since the last checkpoint.
far_on() {
	data src/large 419430400
	start_watched --bwlimit=70M --retries=0 src/large "box:$dir/dst/" || return
	beyond=300000000
	await 60 moved 300000000
	beyond=1000000
	kill -STOP "$copy" # nothing more comes, until the checkpoint is on disk
	await 20 test -s dst/.large.rcp-journal || fail 'no checkpoint'
	kill -9 "$server"
	kill -CONT "$copy"
	reap 15 "$copy"
	rc_is 6
	rcp --json src/large "box:$dir/dst/"
	rc_is 0
	same src/large dst/large
	is 'at least 128 MiB resumed' "$(summary '.resumed_bytes > 134217728')" true
	rm -f src/large
	clean dst
}

# Many small files and one big one: what was done is done.
tree() {
	mkdir -p src/tree
	for i in {1..300}; do echo "$i" >"src/tree/$i"; done
	ln -f src/f src/tree/zz
	start_watched --bwlimit=6M --retries=0 -r src/tree "box:$dir/dst/" || return
	kill -9 "$server"
	reap 15 "$copy"
	rc_is 6
	only_partials dst
	rcp --json -r src/tree "box:$dir/dst/"
	rc_is 0
	same_tree src/tree dst/tree
	clean dst
}

# Without -p the files at the target have times of their own, and a rerun knows them all the same.
plain_tree() {
	local way=$1 from=src/tree to=dst/

	rm -rf src/tree
	mkdir src/tree
	for i in {1..10}; do data "src/tree/$i" 400000; done
	cp src/f src/tree/zz
	[ "$way" != up ] || to="box:$dir/dst/"
	[ "$way" != down ] || from="box:$dir/src/tree"
	beyond=2500000 # more than a second of it
	start_watched --bwlimit=1M --retries=0 -r "$from" "$to" || return
	beyond=1000000
	kill -INT "$copy"
	reap 15 "$copy"
	rc_is 130
	await 15 server_ended
	only_partials dst
	echo mine >dst/tree/1
	rcp --json -r "$from" "$to"
	rc_is 0
	same_tree src/tree dst/tree
	is 'lists left' "$(find dst -name '*.rcp-done')" ''
	is 'some are known' "$(summary '.skipped > 0 and .skipped < 10 and .files + .skipped == 11')" true
	clean dst
	rcp --json -r "$from" "$to"
	sum_is .files 11 # nothing is left to know them by
	rm -r src/tree
}

for who in initiator server ssh sshd; do
	t "kill -9 of $who, up, tcp" killed $who up
	t "kill -9 of $who, down, tcp" killed $who down
done
t 'kill -9 of initiator, up, ssh' killed initiator up --transport=ssh
t 'kill -9 of server, down, ssh' killed server down --transport=ssh
t 'kill -9 of ssh, down, ssh' killed ssh down --transport=ssh
t 'kill -9 of sshd, up, ssh' killed sshd up --transport=ssh
t 'SIGINT up, tcp' signalled INT 130 interrupted up
t 'SIGTERM down, tcp' signalled TERM 143 terminated down
t 'SIGHUP up, ssh' signalled HUP 143 terminated up --transport=ssh
t 'SIGINT down, ssh' signalled INT 130 interrupted down --transport=ssh
# Within one process, while its sink holds what the source has given it: each time somewhere else.
signalled_here() {
	local delay

	going() { [ -n "$(event transport .transport)" ]; }
	head -c 300000000 /dev/zero >src/large
	for delay in 0 0.05 0.1 0.15 0.2 0.25; do
		echo old >dst/large
		rcp_start --json src/large dst/
		await 10 going || fail 'it does not begin' # nobody hears a signal before
		sleep "$delay" # wherever it is then
		kill "-$1" "$copy"
		reap 10 "$copy" || fail 'it does not end'
		[ "$rc" = 0 ] || rc_is "$2" # or it was faster
		sum_is .exit_code "$rc"
		cmp -s src/large dst/large || old dst/large # the signal may come when the file is in place
		[ "$rc" != 0 ] || same src/large dst/large
	done
	rcp --json src/large dst/
	rc_is 0
	same src/large dst/large
	clean dst
	rm src/large dst/large
}

t 'SIGINT, local' signalled_here INT 130
t 'SIGTERM, local' signalled_here TERM 143
t 'the source changed in between, up' changed_between up
t 'the source changed in between, down' changed_between down
t 'the source changed in between, its mtime put back' changed_between up mtime-kept
t 'a rerun with --no-resume' start_over
t 'SIGINT with --no-resume' keep_nothing
t 'SIGINT twice' impatient
t 'SIGTERM to the server, up' server_signalled TERM up
t 'SIGHUP to the server, down' server_signalled HUP down
t 'SIGTERM to the server, with a retry' server_signalled_retry
for how in --stats --json -v; do
	t "SIGTERM, and $how that nobody reads" unread TERM 143 $how
	t "SIGINT, and $how that nobody reads" unread INT 130 $how
done
t 'a server that hangs, up' hanging up
t 'a server that hangs, down' hanging down
t 'kill -9 after more than 256 MiB' far_on
t 'kill -9 in a tree' tree
t 'a plain -r goes on, up' plain_tree up
t 'a plain -r goes on, down' plain_tree down
end
