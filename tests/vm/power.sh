#!/usr/bin/env bash
# power.sh [-n CUTS] [-s SEED] [-k KERNEL] RCP FS: copies into a disk whose power is cut at random moments, then looks. TAP.
#   FS is ext4 or xfs; -n 10 -s 1 -k 6.12 unless told. tests/vm/power.sh -n 10 build/src/rcp xfs
#
# A guest copies into FS on /dev/vda. QEMU is killed (SIGKILL) at a moment from SEED, and a new guest boots with that disk: it
# mounts it, looks at every file, runs the same command again, looks once more, and starts the next copy. See power-guest.sh.
#
# What is lost: the guest's memory, with all that its page cache had not written. And by volatile-disk, which is the disk, what
# was written and not flushed, page by page, some or all of it: an image file alone would keep every write that QEMU
# has seen, since the host goes on. So this shows both what is not written in time, and what is not flushed in time.
# It does not show torn pages, disks that lie about flushes, nor more than the moments it tries.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cuts=10 seed=1 kernel=6.12
while getopts n:s:k: o; do
	case $o in
	n) cuts=$OPTARG ;;
	s) seed=$OPTARG ;;
	k) kernel=$OPTARG ;;
	*) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# = 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
rcp=$(realpath "$1") fs=$2
cases=0 failures=0 disk_pid='' guest_pid='' qemu_pid='' dir=
PATH+=:/usr/sbin:/sbin

cleanup() {
	local status=$? pid
	trap - EXIT
	for pid in $qemu_pid $guest_pid $disk_pid; do kill "$pid" 2>/dev/null; done
	wait
	rm -rf "$dir"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

ok() {
	cases=$((cases + 1))
	if [ "$2" = 0 ]; then echo "ok $cases - $1"; else failures=$((failures + 1)); echo "not ok $cases - $1"; fi
}

for tool in python3 mkfs.ext4 "mkfs.$fs"; do
	command -v "$tool" >/dev/null || { echo "1..0 # SKIP no $tool"; exit 77; }
done
below() { seed=$(((seed * 1103515245 + 12345) % 2147483648)); drawn=$((seed / 8 % $1)); }

# Two versions of a tree: the same names and sizes, other content, times and modes.
sources() {
	local version i size
	for version in 1 2; do
		mkdir -p "$dir/s/$version/tree/d/e"
		for ((i = 0; i < 170; i++)); do
			size=$((i * 331 + 1))
			[ $i -lt 160 ] || size=$((i * 14001))
			[ $i -lt 169 ] || size=$((44 << 20))
			case $((i % 3)) in 0) sub=. ;; 1) sub=d ;; *) sub=d/e ;; esac
			head -c "$size" /dev/urandom >"$dir/s/$version/tree/$sub/f$i"
			touch -d "@$((version * 500000000 + i))" "$dir/s/$version/tree/$sub/f$i" # mkfs.ext4 -d knows seconds only
		done
		chmod -R "u=rwX,g=rX" "$dir/s/$version/tree"
		find "$dir/s/$version/tree" -type f -exec chmod $((version == 1 ? 640 : 604)) {} +
		(cd "$dir/s/$version/tree" && find . -type f -printf '%P %s %T@ %m\n' | sort >"$dir/stat" &&
			find . -type f -printf '%P\0' | sort -z | xargs -0 md5sum | awk '{ print $2, $1 }' | sort | join "$dir/stat" - >../list)
	done
	truncate -s 180M "$dir/sources.img"
	mkfs.ext4 -q -d "$dir/s" "$dir/sources.img" && rm -r "$dir/s"
}

disk() {
	truncate -s 320M "$dir/disk.img"
	"mkfs.$fs" -q "$dir/disk.img"
}

# boot CUT NEXT ARG...: a guest with a fresh cache in front of the disk.
boot() {
	"$here/volatile-disk" "$dir/disk.img" "$dir/socket" "$seed" "$dir/report" &
	disk_pid=$!
	local i
	for ((i = 0; i < 100; i++)); do [ -S "$dir/socket" ] && break; sleep 0.1; done
	rm -f "$dir/qemu"
	RCP_LAB_OUT=$dir/out "$here/run" -k "$kernel" -f none -m 768 -t 300 -d "nbd+unix:///?socket=$dir/socket" -d "$dir/sources.img" \
		-p "$dir/qemu" -- "$here/power-guest.sh" "$rcp" "$fs" "$@" >"$dir/said" 2>"$dir/lab" &
	guest_pid=$!
}

# What the guest had to say about the cut before.
tell() {
	local line
	while IFS= read -r line; do
		case $line in
		"ok "*) ok "${line#* - }" 0 ;;
		"not ok "*) ok "${line#* - }" 1 ;;
		*) echo "$line" ;;
		esac
	done <"$dir/said"
}

# Copy $1 is under way (logged in, where it must): 1 where the guest ends instead, or that takes over 250 s.
started() {
	local i
	for ((i = 0; i < 2500; i++)); do
		grep -qs '"event":"transport"' "$dir/out/said-$1" && return 0
		kill -0 "$guest_pid" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

over() {
	wait "$guest_pid" 2>/dev/null
	local status=$?
	guest_pid='' qemu_pid=''
	wait "$disk_pid" 2>/dev/null
	disk_pid=''
	return $status
}

# Ways of copying: each in turn.
ways=(
	"6 "
	"15 --bwlimit=8M"
	"9 --ssh"
	"15 --fsync --bwlimit=8M"
	"15 --ssh --bwlimit=8M"
	"9 --ssh --fsync"
)

main() {
	local n way wait args status
	dir=$(mktemp -d "${TMPDIR:-/tmp}/rcp-power.XXXXXX") || exit 1
	mkdir "$dir/out"
	if ! sources || ! disk; then echo "Bail out! no disk images"; exit 1; fi
	below 6
	way=$drawn
	for ((n = 1; n <= cuts; n++)); do
		read -r wait args <<<"${ways[(way + n) % 6]}"
		# shellcheck disable=SC2086
		boot $((n - 1)) 1 $args
		started $n
		status=$?
		[ $n = 1 ] || tell
		if [ $status != 0 ]; then
			sed 's/^/# /' "$dir/lab" "$dir/said" | tail -n 40
			ok "$fs: a copy to cut into" 1
			break
		fi
		below $((wait * 1000 - 200))
		sleep "$(printf '%d.%03d' $(((drawn + 200) / 1000)) $(((drawn + 200) % 1000)))"
		qemu_pid=$(cat "$dir/qemu")
		kill -9 "$qemu_pid"
		over
		echo "# $fs cut $n: ${args:-local}, $((drawn + 200)) ms after its start; $(cat "$dir/report")"
	done
	if [ $status = 0 ]; then
		boot "$cuts" 0
		over
		status=$?
		tell
		[ $status = 0 ] || sed 's/^/# /' "$dir/lab"
		ok "$fs: the last guest ends well" $status
	fi
	echo "1..$cases"
	[ $failures = 0 ]
}

main
