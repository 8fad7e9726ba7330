#!/bin/bash
# Sealed data: what is sealed, who wants it and who can't; and someone on the way (proxy.py) who reads, flips,
# replays, reorders, drops and cuts what the data connections carry.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl python3
[ -x "$RCP_HOOKS" ] || skip_all 'rcp-hooks was not built'
here=$(cd "$(dirname "$0")" && pwd)
begin
start_sshd
ln -s "$RCP_HOOKS" bin/rcp-hooks
marker='a text that is in the file and nowhere else'
data src/f 20971527
cat src/f <(for i in {1..20000}; do printf '%s %06d\n' "$marker" "$i"; done) >src/big
mkdir -p src/tree/sub
for i in {1..60}; do echo "$marker, small, $i" >"src/tree/s$i"; done
cp src/f src/tree/sub/big
data src/tree/sub/other 300001
: >src/tree/empty

# An rcp of before sealing, and one that demands it.
printf '#!/bin/sh\nRCP_TEST_NO_SEAL=1 exec rcp-hooks "$@"\n' >bin/old
printf '#!/bin/sh\nexec rcp "$@" --encrypt=always\n' >bin/strict
chmod +x bin/old bin/strict

ways() {
	case $1 in
	up) from=src/$2 to=box:$dir/dst/ ;;
	*) from=box:$dir/src/$2 to=dst/ ;;
	esac
}

# ---- what is sealed ----

# said ENCRYPTED SEALED: in the summary and in the transport event
said() {
	sum_is .encrypted "$1"
	sum_is .sealed "$2"
	is 'transport encrypted' "$(event transport .encrypted)" "$1"
	is 'transport sealed' "$(event transport .sealed)" "$2"
}

# sealed MODE WAY TRANSPORT WORD ARG...
sealed() {
	local mode=$1 way=$2 transport=$3 word=$4

	ways "$way" big
	rcp --json "--encrypt=$mode" "--transport=$transport" "${@:5}" "$from" "$to"
	rc_is 0
	same src/big dst/big
	clean dst
	sum_is .transport "$transport"
	if [ "$word" = aes-256-gcm ]; then
		said "$word" true
		is 'bytes sealed' "${sums[sealed_bytes]}" "$(stat -c %s src/big)"
		sum_is .zero_copy_bytes 0
	else
		said "$word" false
		sum_is .sealed_bytes 0
	fi
	sum_is .crc32 "$(crc32_of src/big)"
}

tree() {
	ways "$1" tree
	rcp --json -r "${@:2}" "$from" "$to"
	rc_is 0
	same_tree src/tree dst/tree
	clean dst
	said aes-256-gcm true
	is 'bytes sealed' "$([ "${sums[sealed_bytes]}" -ge "$(cat src/tree/s* src/tree/sub/* | wc -c)" ] && echo all)" all
}

told() {
	rcp -v src/f "box:$dir/dst/"
	rc_is 0
	err_has '; sealed with aes-256-gcm'
	rcp -v --transport=tcp --encrypt=never src/f "box:$dir/dst/"
	err_has '; not encrypted'
	rcp -v --transport=ssh src/f "box:$dir/dst/"
	err_has '; inside ssh'
	rcp -v --source=mapped src/f "box:$dir/dst/"
	rc_is 0
	err_has 'source: staged, since what is sealed can'
	rcp --stats src/f "box:$dir/dst/"
	err_has 'tcp, sealed with aes-256-gcm' '(20971527 bytes)'
	rcp --json --encrypt=always src/f dst/g
	rc_is 0
	same src/f dst/g
	said null false
}

# ---- who wants it, and who can't ----

demanded() {
	ways "$1" f
	rcp --json --rcp-path=strict --encrypt=never --transport=tcp "$from" "$to"
	rc_is 0
	same src/f dst/f
	said aes-256-gcm true
}

# refused WHO ARG...
refused() {
	echo old >dst/f
	rcp "${@:2}" src/f "box:$dir/dst/"
	rc_is 3
	own_lines 1
	err_has "$1" "can't seal the data" 'install the same version at both ends'
	old dst/f
	clean dst
}

too_old() {
	refused 'rcp: box: the other end' --rcp-path=old
	err_has '--encrypt=auto does on TCP' 'go without: --encrypt=never'
	refused 'rcp: box: the other end' --rcp-path=old --encrypt=always
	err_has '--encrypt=always demands'
	rcp --rcp-path=old --encrypt=never src/f "box:$dir/dst/"
	rc_is 0
	rcp --rcp-path=old --transport=ssh src/f "box:$dir/dst/"
	rc_is 0
	# the other way round
	program=$RCP_HOOKS
	export RCP_TEST_NO_SEAL=1
	refused 'rcp: box: this rcp'
	refused 'rcp: box: this rcp' --rcp-path=strict --encrypt=never
	rcp --encrypt=never src/f "box:$dir/dst/"
	rc_is 0
	unset RCP_TEST_NO_SEAL
	program=
	same src/f dst/f
}

# ---- someone on the way ----

between() {
	[ -z "${E2E_SANITIZED:-}" ] || { skip 'a sanitizer must be loaded first'; return; }
	"$@"
}

# proxied WAY DEED FRAME ARG...
proxied() {
	local way=$1 deed=$2 at=$3 proxy

	shift 3
	rm -f proxy.*
	python3 "$here/proxy.py" "$dir" "$way" "$deed" "$at" </dev/null 2>proxy.err &
	proxy=$!
	disown "$proxy"
	pids+=("$proxy")
	await 10 test -s proxy.port || { fail "no proxy: $(tail -n 2 proxy.err)"; return; }
	# Preloaded by env, so that neither timeout nor the shell is.
	LD_PRELOAD=$E2E_PRELOAD E2E_PROXY=$(<proxy.port) E2E_PROXY_TO=$dir/proxy.to rcp --json "$@"
	kill -9 "$proxy"
	[ "$deed" = nothing ] || exists proxy.done
	[ -s proxy.nonces ] || fail 'the data did not go by way of the proxy'
	[ ! -s proxy.err ] || fail "$(tail -n 3 proxy.err)"
}

once_each() {
	is "nonces used twice" "$(sort proxy.nonces | uniq -d | wc -l)" 0
	[ "$(wc -l <proxy.nonces)" -ge "$1" ] || fail "only $(wc -l <proxy.nonces) chunks were seen"
}

seen() { grep -acF "$marker" proxy.wire; }

captured() {
	ways "$1" big
	proxied "$1" nothing 0 --encrypt=auto "$from" "$to"
	rc_is 0
	same src/big dst/big
	once_each 21
	is 'lines of the file on the wire' "$(seen)" 0
	rm dst/big
	proxied "$1" nothing 0 --encrypt=never --transport=tcp "$from" "$to"
	rc_is 0
	same src/big dst/big
	# but for those that the control connection's bytes fell into
	is 'lines of the file on the wire' "$([ "$(seen)" -ge 19900 ] && echo all)" all
	rm dst/big
	ways "$1" tree
	proxied "$1" nothing 0 -r "$from" "$to"
	rc_is 0
	same_tree src/tree dst/tree
	is 'lines of small files on the wire' "$(seen)" 0
}

# mended WAY DEED RESENT ARG...: the file is whole, and was never anything but old or whole
mended() {
	ways "$1" f
	echo old >dst/f
	proxied "$1" "$2" 5 "${@:4}" "$from" "$to"
	rc_is 0
	same src/f dst/f
	clean dst
	once_each 21
	is "chunks sent again" "$(summary ".resent_chunks $3")" true
}

# broken WAY DEED TEXT ARG...: status 4, the old file; and the next copy goes on
broken() {
	ways "$1" f
	echo old >dst/f
	proxied "$1" "$2" 5 "${@:4}" "$from" "$to"
	rc_is 4
	sum_is .status integrity
	sum_is .exit_code 4
	err_has "$3"
	# A forged credit does not touch the sink, which may have had all by then.
	[ "$2" = credit ] && cmp -s src/f dst/f || old dst/f
	only_partials dst
	once_each 1
	rcp --json "$from" "$to"
	rc_is 0
	same src/f dst/f
	clean dst
}

cut_once() {
	ways "$1" f
	echo old >dst/f
	proxied "$1" cut 5 "${@:2}" "$from" "$to"
	rc_is 0
	same src/f dst/f
	clean dst
	once_each 21
	sum_is .retries 1
	said aes-256-gcm true
	is 'links' "$(cut -d' ' -f2 proxy.nonces | sort -u | wc -l)" 2
}

tree_flipped() {
	ways "$1" tree
	proxied "$1" "$2" 0 -r --chunk-size=4K "$from" "$to"
	rc_is "$3"
	once_each 1
	[ "$3" != 0 ] || same_tree src/tree dst/tree
	clean dst
}

# Cut off and run again: sealed with other keys, and nothing of it twice.
resumed() {
	ways "$1" f
	echo old >dst/f
	write_watched
	beyond=2000000 start_watched --bwlimit=4M "$from" "$to" || return
	kill -9 "$copy"
	reap 10 "$copy"
	await 15 server_ended || fail 'the server stays'
	rcp --json "$from" "$to"
	rc_is 0
	same src/f dst/f
	clean dst
	said aes-256-gcm true
	[ "$1" = up ] || return 0
	is 'bytes' "$((sums[resumed_bytes] + sums[sealed_bytes]))" 20971527
}

retried() {
	ways "$1" f
	write_watched
	beyond=2000000 start_watched --bwlimit=4M "$from" "$to" || return
	kill -9 "$server"
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	same src/f dst/f
	clean dst
	sum_is .retries 1
	said aes-256-gcm true
}

for way in up down; do
	t "auto seals tcp, $way" sealed auto "$way" tcp aes-256-gcm
	t "always seals tcp, $way" sealed always "$way" tcp aes-256-gcm
	t "never, $way" sealed never "$way" tcp null
	t "auto by ssh, $way" sealed auto "$way" ssh ssh
	t "always by ssh, $way" sealed always "$way" ssh ssh
	t "three streams, small chunks, few slots, $way" sealed auto "$way" tcp aes-256-gcm --streams=3 --chunk-size=64K --slots=2
	t "direct, $way" sealed auto "$way" tcp aes-256-gcm --source=direct
	t "a tree with bundles, $way" tree "$way"
	t "a tree with small chunks, $way" tree "$way" --chunk-size=4K
	t "the other end demands it, $way" demanded "$way"
	t "cut off and run again, $way" resumed "$way"
	t "a lost connection, $way" retried "$way"
done
t 'what -v and --stats say' told
t 'an end that can not' too_old
for way in up down; do
	t "a capture has the file unless it is sealed, $way" between captured "$way"
	t "a flipped bit, $way" between mended "$way" flip '== 1'
	t "a flipped bit of a header, $way" between mended "$way" flip-header '== 1'
	t "a forged offset, $way" between mended "$way" forge-offset '> 0'
	t "a forged CRC, $way" between mended "$way" forge-crc '== 1'
	t "a lost chunk, $way" between mended "$way" drop '> 0'
	t "two chunks in the other order, $way" between mended "$way" reorder '== 0' --streams=2
	t "all bits flip, $way" between broken "$way" flip-all 'came damaged or forged 4 times'
	t "all headers forged, $way" between broken "$way" forge-entry-all 'never arrived whole, sent 4 times'
	t "an unsealed chunk, $way" between broken "$way" unseal 'a chunk came that is not sealed'
	t "a replayed chunk, $way" between broken "$way" replay 'a sealed chunk came a second time'
	t "a chunk twice, $way" between broken "$way" twice 'bytes were lost or changed on the way'
	t "bytes too few, $way" between broken "$way" drop-bytes 'bytes were lost or changed on the way'
	t "bytes too many, $way" between broken "$way" add-bytes 'bytes were lost or changed on the way'
	t "a flipped slot, $way" between broken "$way" flip-prefix 'bytes were lost or changed on the way'
	t "a forged credit, $way" between broken "$way" credit 'bytes were lost or changed on the way'
	t "cut in a chunk, $way" between cut_once "$way"
	t "a bundle's bit, $way" between tree_flipped "$way" flip 0
	t "all bundles' bits, $way" between tree_flipped "$way" flip-all 4
done
end
