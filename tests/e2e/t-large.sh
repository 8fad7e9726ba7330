#!/bin/bash
# Files beyond 2^32 bytes, and what a copy costs in memory.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd

# ---- 5 GiB, most of it holes: bytes where offsets of 32 bits would be mixed up ----

marks=(0 1048575 2147483647 4294967290 4294967296 4295000000 5368709110)
size=5368709123
truncate -s $size src/5g
for at in "${marks[@]}"; do
	printf 'at %-10d' "$at" | head -c $((size - at < 13 ? size - at : 13)) |
		dd of=src/5g bs=1 seek="$at" conv=notrunc status=none
done

# All that is no hole, instead of ten thousand million bytes.
same_marks() {
	local at

	for at in "${marks[@]}"; do
		cmp -i $((at < 1000000 ? 0 : at - 1000000)) -n 3000000 -- src/5g "$1" >why 2>&1 || fail "$(<why)"
	done
	is 'size' "$(stat -c %s "$1")" "$size"
	[ "$(stat -c %b "$1")" -lt 100000 ] || fail 'the holes are filled'
}

five() {
	rcp --json "$@"
	rc_is 0
	sum_is .bytes "$size"
	same_marks dst/5g
	clean dst
}

# ---- memory, and more than 4 GiB of data where there is room for it in memory ----

ring_kib=$((32 * 1024)) room_kib=$((40 * 1024))
free_gib=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1048576))
dense=0
if [ -w /dev/shm ] && [ "$free_gib" -ge 8 ]; then
	shm=$(mktemp -d /dev/shm/rcp-e2e.XXXXXX) && dirs+=("$shm")
	dense=$((free_gib >= 16 ? 4300 : 2048))
	# no two chunks are alike: 1048583 and 1048576 have nothing in common
	data "$shm/f" 1048583
	for ((i = 0; i < dense; i++)); do cat "$shm/f"; done | head -c $((dense * 1048576)) >"$shm/dense" || dense=0
fi

peak_ends() {
	for end in server initiator; do
		printf '#!/bin/sh\nexec "%s" "%s" "%s" "$@"\n' "$E2E_PEAK" "$dir/$end.kib" "$RCP" >"bin/peak-$end"
		chmod +x "bin/peak-$end"
	done
}

# As much as the ring, and 40 MiB, at each end.
memory_is() {
	local end kib

	for end in server initiator; do
		kib=$(cat "$end.kib")
		note "the $end had $kib KiB"
		[ "$kib" -le $((ring_kib + room_kib)) ] || fail "that is more than the ring of $ring_kib and $room_kib"
	done
}

memory() {
	[ -z "${E2E_SANITIZED:-}" ] || { skip 'a sanitizer takes memory of its own'; return; }
	[ "$dense" != 0 ] || { skip "$free_gib GiB of memory is too little for 2 GiB in /dev/shm twice"; return; }
	rm -f server.kib initiator.kib "$shm/copy"
	program=$dir/bin/peak-initiator
	rcp --json --rcp-path=peak-server "$@"
	program=
	rc_is 0
	sum_is .bytes $((dense * 1048576))
	memory_is
	same "$shm/dense" "$shm/copy"
	rm -f "$shm/copy"
}

# ---- memory does not grow with the number of files ----

many=20000
mkdir src/many
for ((i = 0; i < many; i += 200)); do
	mkdir "src/many/$i"
	(cd "src/many/$i" && head -c 800000 /dev/urandom | split -b 4000 -a 3 -d)
done

many_files() {
	[ -z "${E2E_SANITIZED:-}" ] || { skip 'a sanitizer takes memory of its own'; return; }
	rm -f server.kib initiator.kib
	program=$dir/bin/peak-initiator
	rcp --json --rcp-path=peak-server -a "$@"
	program=
	rc_is 0
	sum_is .files "$many"
	sum_is .bytes $((many * 4000))
	memory_is
	same_tree src/many dst/many
	clean dst
	# And again: nothing is sent.
	rcp --json -a --update "$@"
	rc_is 0
	sum_is .skipped "$many"
	sum_is .files 0
	sum_is .bytes 0
	sum_is .staged_bytes 0
	sum_is .zero_copy_bytes 0
	# One that differs is all that goes.
	head -c 4000 /dev/urandom >src/many/200/x007
	rcp --json -a --update "$@"
	rc_is 0
	sum_is .files 1
	sum_is .bytes 4000
	sum_is .skipped $((many - 1))
	same_tree src/many dst/many
}

peak_ends
t "$many files up" many_files src/many "box:$dir/dst/"
t "$many files down" many_files "box:$dir/src/many" dst/
t '5 GiB up, tcp' five src/5g "box:$dir/dst/"
t '5 GiB down, tcp, staged' five --source=staged "box:$dir/src/5g" dst/
t '5 GiB down, ssh, -a' five --transport=ssh -a "box:$dir/src/5g" dst/
t '5 GiB, local' five src/5g dst/
t "memory, $dense MiB up, sealed" memory "${shm:-.}/dense" "box:${shm:-.}/copy"
t "memory, $dense MiB up, mapped" memory --source=mapped --encrypt=never "${shm:-.}/dense" "box:${shm:-.}/copy"
t "memory, $dense MiB down, staged" memory --source=staged "box:${shm:-.}/dense" "${shm:-.}/copy"
end
