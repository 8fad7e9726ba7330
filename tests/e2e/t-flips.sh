#!/bin/bash
# Bits that flip in the sink's memory, sealed (tcp) and not: found, sent again, counted; and where it never ends well, status 4.
# The sink is rcp-hooks, which flips the bits of payloads as RCP_TEST_FLIP says.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
[ -x "$RCP_HOOKS" ] || skip_all 'rcp-hooks was not built'
begin
start_sshd
data src/big 20971527
mkdir src/small
for i in {1..400}; do data "src/small/$i" $((i * 37)); done
ln -s "$RCP_HOOKS" bin/rcp-hooks

# copy FLIP UP|DOWN ARG... SOURCE TARGET
copy() {
	local flip=$1 way=$2

	shift 2
	case $way in
	up)
		echo "RCP_TEST_FLIP=$flip; export RCP_TEST_FLIP" >rc
		rcp --json --rcp-path=rcp-hooks "$@"
		;;
	*)
		program=$RCP_HOOKS
		RCP_TEST_FLIP=$flip rcp --json "$@"
		program=
		;;
	esac
}

now_and_then() {
	copy 7 "$@"
	rc_is 0
	sum_is .status ok
	is 'chunks sent again' "$(summary '.resent_chunks > 0')" true
	clean dst
}

big_now_and_then() {
	now_and_then "$@"
	same src/big dst/big
	sum_is .resent_chunks 3 # of 20, and one that was sent again
	sum_is .crc32 "$(crc32_of src/big)"
}

small_now_and_then() {
	copy 1000000 "$1" --chunk-size=4K "${@:2}" # never
	rc_is 0
	sum_is .resent_chunks 0
	rm -rf dst/small
	copy 41 "$1" --chunk-size=4K "${@:2}"
	rc_is 0
	is 'files sent again' "$(summary '.resent_chunks > 0')" true
	same_tree src/small dst/small
	clean dst
}

always() {
	echo old >dst/big
	copy all "$@"
	rc_is 4
	case "$*" in
	*ssh* | 'local '* | *never*) own_lines 2; err_has 'wrong CRC' ;;
	*) own_lines 3; err_has 'a sealed chunk came damaged or forged: it is sent again' 'came damaged or forged 4 times' ;;
	esac
	err_has big 'check cables, NICs and memory'
	sum_is .status integrity
	sum_is .exit_code 4
	sum_is .failed 1
	old dst/big
	only_partials dst
	# with good memory again, it is finished
	case $1 in up) rm rc ;; esac
	rcp --json "${@:2}"
	rc_is 0
	same src/big dst/big
	clean dst
}

small_always() {
	mkdir dst/small
	echo old >dst/small/7
	copy all "$@"
	rc_is 4
	sum_is .status integrity
	sum_is .failed 400
	sum_is .files 0
	old dst/small/7
	is 'files that came' "$(find dst/small -type f | wc -l)" 1
	clean dst
}

t 'every 7th chunk, up, tcp' big_now_and_then up --transport=tcp src/big "box:$dir/dst/"
t 'every 7th chunk, down, tcp' big_now_and_then down --transport=tcp "box:$dir/src/big" dst/
t 'every 7th chunk, up, not sealed' big_now_and_then up --encrypt=never src/big "box:$dir/dst/"
t 'every 7th chunk, down, not sealed' big_now_and_then down --encrypt=never "box:$dir/src/big" dst/
t 'every 7th chunk, up, ssh' big_now_and_then up --transport=ssh src/big "box:$dir/dst/"
t 'every 7th chunk, down, ssh' big_now_and_then down --transport=ssh "box:$dir/src/big" dst/
t 'every 7th chunk, local' big_now_and_then local src/big dst/
t 'every 7th chunk, staged' big_now_and_then up --source=staged src/big "box:$dir/dst/"
t 'every 41st bundle, up' small_now_and_then up -r src/small "box:$dir/dst/"
t 'every 41st bundle, down' small_now_and_then down -r "box:$dir/src/small" dst/
t 'every chunk, up' always up src/big "box:$dir/dst/"
t 'every chunk, down' always down "box:$dir/src/big" dst/
t 'every chunk, up, not sealed' always up --encrypt=never src/big "box:$dir/dst/"
t 'every chunk, up, ssh' always up --transport=ssh src/big "box:$dir/dst/"
t 'every chunk, local' always local src/big dst/
t 'every bundle, up' small_always up -r src/small "box:$dir/dst/"
t 'every bundle, down' small_always down -r "box:$dir/src/small" dst/
end
