#!/bin/bash
# Every size where something begins or ends, both ways, over TCP and through ssh, and within the host.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd

sizes=(0 1 4095 4096 4097 1048575 1048576 1048577 67108871)
declare -A crc
for n in "${sizes[@]}"; do
	data "src/$n" "$n"
	crc[$n]=$(crc32_of "src/$n")
done

# arrived HOW BYTES: what the summary and the file say after one copy
arrived() {
	rc_is 0
	same "src/$2" "dst/$2"
	mode_is "dst/$2" 644
	clean dst
	sum_is .status ok
	sum_is .transport "$1"
	sum_is .files 1
	sum_is .bytes "$2"
	sum_is .failed 0
	sum_is .crc32 "${crc[$2]}"
	is 'bytes read, mapped or staged' "$(summary "(.zero_copy_bytes + .staged_bytes) >= $2")" true
}

up() {
	rcp --json --transport="$1" "${@:3}" "src/$2" "box:$dir/dst/"
	arrived "$1" "$2"
}

down() {
	rcp --json --transport="$1" "${@:3}" "box:$dir/src/$2" dst/
	arrived "$1" "$2"
}

within() {
	rcp --json "src/$1" dst/
	arrived local "$1"
}

all() {
	rcp --json "$@"
	rc_is 0
	same_tree src dst
	clean dst
	sum_is .files ${#sizes[@]}
}

umask 022
chmod 644 src/*
for n in "${sizes[@]}"; do
	for how in tcp ssh; do
		t "$n bytes up, $how" up $how "$n"
		t "$n bytes down, $how" down $how "$n"
	done
	t "$n bytes up, tcp, not sealed" up tcp "$n" --encrypt=never
	t "$n bytes down, tcp, not sealed" down tcp "$n" --encrypt=never
	t "$n bytes, local" within "$n"
done
for engine in mapped staged direct; do
	t "all at once up, --source=$engine" all --source=$engine src/* "box:$dir/dst"
	t "all at once up, --source=$engine, not sealed" all --source=$engine --encrypt=never src/* "box:$dir/dst"
	t "all at once down, --source=$engine" all --source=$engine "box:$dir/src/*" dst
	t "all at once down, --source=$engine, not sealed" all --source=$engine --encrypt=never "box:$dir/src/*" dst
	t "all at once, local, --source=$engine" all --source=$engine src/* dst
done
t "all at once, 4 KiB chunks, 3 slots" all --chunk-size=4K --slots=3 src/* "box:$dir/dst"
t "all at once, 16 MiB chunks" all --chunk-size=16M --slots=4 "box:$dir/src/*" dst
t "all at once, one slot, one thread" all --slots=1 --threads=1 src/* "box:$dir/dst"
t "all at once, three streams" all --streams=3 src/* "box:$dir/dst"
end
