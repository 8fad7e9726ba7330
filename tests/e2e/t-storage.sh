#!/bin/bash
# Disks that fill up, limits, read and write errors, targets that go away, two copies into one file: each has its true
# status and message, the old target stays, the other files come, and a rerun finishes once the cause is gone.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
write_watched
umask 022
mkdir src/d src/small
for n in 1 2 3; do data "src/d/$n" $((n * 70000)); done
data src/big 12000007
data src/mid 4000007
data src/all 4000000
split -b 20000 -a 3 --numeric-suffixes=100 src/all src/small/
(cd src/small && md5sum -- *) >small.sums

# What goes before a source and a target.
way() {
	case $1 in
	up) S='' T="box:$dir/" ;;
	down) S="box:$dir/" T='' ;;
	local) S='' T='' ;;
	esac
}

# With E2E_FAIL and E2E_FROM in the process that is the source (or the sink): failing SIDE WAY WHAT [FROM]
failing() {
	[ -z "${E2E_SANITIZED:-}" ] || { skip 'a sanitizer must be loaded first'; return 1; }
	printf '#!/bin/sh\nexec env E2E_FAIL="%s" E2E_FROM=%s LD_PRELOAD="%s" "%s" "$@"\n' \
		"$3" "${4:-0}" "$E2E_PRELOAD" "$RCP" >bin/failing
	chmod +x bin/failing
	case $1-$2 in
	source-down | sink-up) at=(--rcp-path=failing) program='' ;;
	*) at=() program=$dir/bin/failing ;;
	esac
}

moving() { grep -qE '"event":"progress","bytes":[1-9]' "$1"; }

# The summary's errors, one a line: code, call, last part of the name, reason.
errors() { jq -r 'select(.event == "summary") | .errors[] | "\(.code) \(.call) \(.object | sub(".*/"; "")): \(.reason)"' out | sort; }
# errors_are LINE...: these and no others
errors_are() { is 'what failed' "$(errors)" "$(printf '%s\n' "$@" | sort)"; }

# ---- full disks ----

# disk KIND SIZE: a small one on dst
disk() {
	is_root || { skip 'only root can mount a small disk'; return 1; }
	case $1 in
	tmpfs) mount -t tmpfs -o size="$2" rcp-e2e dst 2>/dev/null || { skip 'no tmpfs can be mounted'; return 1; } ;;
	ext4)
		have mkfs.ext4 || { skip 'mkfs.ext4 is not installed'; return 1; }
		rm -f image
		truncate -s "$2" image
		mkfs.ext4 -q -m 0 -E lazy_itable_init=0 image && mount -o loop image dst 2>/dev/null ||
			{ skip 'no loop device can be mounted'; return 1; }
		rmdir dst/lost+found
		;;
	esac
	mounts+=("$dir/dst")
}
fill() { cat /dev/zero >dst/filler 2>/dev/null; }

# Full while a tree of small files comes.
tree_fills() {
	disk "$1" "$2" || return
	way "$3"
	mkdir dst/small
	for n in {100..299}; do echo old >dst/small/"$n"; done
	[ "$1" != ext4 ] || head -c 10M /dev/zero >dst/filler
	rcp --json -r "${S}src/small" "${S}src/d/1" "${T}dst/"
	rc_is 5
	err_has 'No space left on device (free space there, then run the same command again)' 'run the same command again to go on'
	sum_is .status io
	sum_is .resumable true
	is 'all accounted for' "$(summary '.files + .failed')" 201
	is 'each failed one is named' "$(summary '.errors | length')" "$(summary .failed)"
	is 'reasons' "$(summary '[.errors[].reason | sub("no room for .*"; "No space left on device")] | unique | join(",")')" 'No space left on device'
	(cd dst/small && md5sum -- *) | grep -v "^$(echo old | md5sum | cut -c 1-32)" | grep -vxFf small.sums >wrong
	is 'neither old nor new' "$(cat wrong)" ''
	is 'nothing but the list is left' "$(leftovers dst | tr ' ' '\n' | grep -v 'rcp-done$')" ''
	local files
	files=$(summary .files)
	[ "$1" != tmpfs ] || mount -o remount,size=64m dst
	[ "$1" != ext4 ] || rm dst/filler
	rcp --json -r "${S}src/small" "${S}src/d/1" "${T}dst/"
	rc_is 0
	is 'what was done is left out' "$(summary .skipped)" "$files"
	same_tree src/small dst/small
	clean dst
	umount dst
}

# Full before it begins: all other files come.
disk_full() {
	disk ext4 16M || return
	way "$1"
	head -c 6M /dev/zero >dst/filler
	echo old >dst/big
	rcp --json "${S}src/d/1" "${S}src/big" "${S}src/d/2" "${T}dst/"
	rc_is 5
	errors_are '5 fstatvfs big: no room for 11.4 MiB more (12000007 bytes)'
	err_has 'No space left on device (free space there, then run the same command again)'
	sum_is .resumable true
	old dst/big
	same src/d/1 dst/1
	same src/d/2 dst/2
	clean dst
	rm dst/filler
	rcp --json "src/big" "dst/"
	rc_is 0
	same src/big dst/big
	umount dst
}

# Full once it is half there; with room again it goes on from there.
disk_fills() {
	disk tmpfs 16m || return
	way "$1"
	shift
	echo old >dst/big
	rcp_start --json --bwlimit=3M "$@" "${S}src/big" "${T}dst/"
	await 60 moved 3000000 || fail 'the copy does not get going'
	fill
	reap 30 "$copy"
	rc_is 5
	err_has big 'No space left on device' 'no room for' 'run the same command again'
	sum_is .resumable true
	old dst/big
	only_partials dst
	rm dst/filler
	rcp --json "src/big" "dst/"
	rc_is 0
	same src/big dst/big
	is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
	clean dst
	umount dst
}

# The file system has its largest file, or the user: mapped to pwrite where there is no fallocate.
too_large() {
	way "$1"
	printf '#!/bin/sh\nulimit -f 4000\nexec "%s" "$@"\n' "$RCP" >bin/limited # 4000 * 512 or 1024 bytes
	chmod +x bin/limited
	echo old >dst/big
	[ "$1" = up ] || program=$dir/bin/limited
	rcp --json --rcp-path=limited "${S}src/d/1" "${S}src/big" "${S}src/d/2" "${T}dst/"
	program=
	rc_is 5
	errors | grep -qE '^5 (fallocate|pwrite) big: a file of 11.4 MiB \(12000007 bytes\) is too large here$' || fail "errors: $(errors)"
	err_has 'File too large (see ulimit -f and the file system'
	old dst/big
	same src/d/1 dst/1
	same src/d/2 dst/2
	only_partials dst
	rcp --json "src/big" "dst/"
	rc_is 0
	same src/big dst/big
	clean dst
}

# ---- disks that fail ----

read_error() {
	local file=$2

	way "$1"
	shift 2
	failing source "${mode:-up}" "pread src/$file" "${from:-0}" || return
	mkdir -p "dst/$(dirname "$file")"
	echo old >"dst/$(basename "$file")"
	rcp --json "${at[@]}" "$@" "${S}src/d/1" "${S}src/$file" "${S}src/d/3" "${T}dst/"
	program=
	rc_is 5
	errors_are "5 pread $(basename "$file"): Input/output error"
	own_lines 2
	old "dst/$(basename "$file")"
	same src/d/1 dst/1
	same src/d/3 dst/3
	only_partials dst
	rcp --json "src/$file" "dst/"
	rc_is 0
	same "src/$file" "dst/$(basename "$file")"
	clean dst
}

# What came is not what was put down.
wrong_write() {
	local file=$2

	way "$1"
	failing sink "$1" "flip .$(basename "$file").rcp-part" "${3:-0}" || return
	echo old >"dst/$(basename "$file")"
	rcp --json --verify "${at[@]}" "${S}src/d/1" "${S}src/$file" "${S}src/d/3" "${T}dst/"
	program=
	rc_is 4
	errors | grep -qE "^4 verify $(basename "$file"): what was read back differs from what was written, in the [0-9]+ bytes at [0-9]+$" ||
		fail "errors: $(errors)"
	err_has 'check the disk and its cables, and dmesg'
	sum_is .status integrity
	old "dst/$(basename "$file")"
	same src/d/1 dst/1
	same src/d/3 dst/3
	only_partials dst
	rcp --json --verify "src/$file" "dst/"
	rc_is 0
	same "src/$file" "dst/$(basename "$file")"
	clean dst
}

no_sync() {
	local file=$2

	way "$1"
	failing sink "$1" "$3 .$(basename "$file").rcp-" || return
	echo old >"dst/$(basename "$file")"
	rcp --json --fsync "${at[@]}" "${S}src/d/1" "${S}src/$file" "${S}src/d/3" "${T}dst/"
	program=
	rc_is 5
	errors_are "5 $3 $(basename "$file"): Input/output error"
	old "dst/$(basename "$file")"
	same src/d/1 dst/1
	same src/d/3 dst/3
	sum_is .files 2
	only_partials dst
	rcp --json --fsync "src/$file" "dst/"
	rc_is 0
	same "src/$file" "dst/$(basename "$file")"
	clean dst
}

# ---- the target goes away while the copy runs ----

# moved_away HOW WAY: nothing is written where the target's name leads then
moved_away() {
	local how=$1

	way "$2"
	rm -rf elsewhere away && mkdir elsewhere
	echo precious >elsewhere/mid
	rcp_start --json --bwlimit=1500K "${S}src/mid" "${S}src/d/1" "${T}dst/"
	await 60 moving out || fail 'the copy does not get going'
	case $how in
	removed) rm -rf dst ;;
	'a file') rm -rf dst && echo file >dst ;;
	renamed) mv dst away ;;
	'a link') mv dst away && ln -s elsewhere dst ;;
	esac
	reap 60 "$copy" || fail 'no end'
	case $how in
	removed | 'a file')
		rc_is 1
		errors >failed # 1 may have been done before
		is 'what failed' "$(grep -v ' 1: its directory was removed while the copy ran$' failed)" \
			'1 rename mid: its directory was removed while the copy ran'
		[ "$how" = removed ] || is 'the file' "$(cat dst)" file
		;;
	*) # the directory that was named is still the one that it was then
		rc_is 0
		same src/mid away/mid
		same src/d/1 away/1
		clean away
		;;
	esac
	is 'what is elsewhere' "$(ls -A elsewhere) $(cat elsewhere/mid)" 'mid precious'
	rm -rf dst away
	mkdir dst
}

# A directory of the tree becomes a link that leads out.
tree_led_out() {
	way "$1"
	rm -rf src/tree elsewhere away
	mkdir -p elsewhere src/tree/sub
	cp src/mid src/tree/
	for n in {1..80}; do cp src/d/1 src/tree/sub/"$n"; done
	rcp_start --json -r --bwlimit=4M "${S}src/tree" "${T}dst/"
	await 60 moving out || fail 'the copy does not get going'
	mv dst/tree away && ln -s ../elsewhere dst/tree
	reap 60 "$copy" || fail 'no end'
	rc_is 1
	err_has 'leads out of the target directory' "name its real place"
	# or, in the moment before the link is there; or what was moved is no longer beneath what Landlock lets it write to:
	is 'reasons' "$(summary '[.errors[].reason | sub(", and what is in it is left out$"; "")] | unique
		- ["No such file or directory", "Permission denied", "it can'"'"'t be made"] | join(",")')" 'leads out of the target directory'
	is 'what is elsewhere' "$(ls -A elsewhere)" ''
	rm dst/tree
	rcp --json -r src/tree dst/
	rc_is 0
	same_tree src/tree dst/tree
	clean dst
}

# ---- what the target can't keep ----

# Two kinds of loss, 30 files: each is copied, each kind is told once, each file is in JSON.
not_kept() {
	is_root && have setpriv || { skip 'only root can give files away'; return; }
	have setfattr || { skip 'setfattr is not installed'; return; }
	way "$1"
	rm -rf src/kept
	mkdir src/kept
	for n in {1..30}; do data "src/kept/$n" $((n * 5000)); done
	chown 12345 src/kept/{1..20}
	setfattr -n user.rcp -v x src/kept/{21..30} 2>/dev/null || { skip 'no user xattrs here'; return; }
	mount -t ramfs rcp-e2e dst 2>/dev/null || { skip 'no ramfs can be mounted'; return; }
	mounts+=("$dir/dst")
	printf '#!/bin/sh\nexec setpriv --bounding-set=-chown "%s" "$@"\n' "$RCP" >bin/no-chown
	chmod +x bin/no-chown
	[ "$1" = up ] || program=$dir/bin/no-chown
	rcp --json -a --rcp-path=no-chown "${S}src/kept" "${T}dst/"
	program=
	rc_is 0
	sum_is .files 30
	sum_is .warnings 30
	own_lines 2
	err_has 'and 19 more: copied, but the target could not keep its owner' \
		'and 9 more: copied, but the target could not keep its xattrs'
	is 'warnings in JSON' "$(jq -r 'select(.event == "error") | [.severity, .reason] | join(" ")' out | sort | uniq -c | sed 's/^ *//')" \
		"$(printf '%s\n' '20 warning copied, but the target could not keep its owner' '10 warning copied, but the target could not keep its xattrs')"
	same_tree src/kept dst/kept
	clean dst
	umount dst
}

# ---- two copies, many faults ----

two_copies() {
	way "$1"
	echo old >dst/mid
	rcp_start --json --bwlimit=1M "${S}src/mid" "${T}dst/"
	await 60 moving out || fail 'the copy does not get going'
	mv out first
	rcp --json src/d/1 src/mid dst/
	rc_is 5
	errors_are '5 flock mid: another rcp is writing this file'
	err_has 'let it finish or end it, then run the same command again'
	same src/d/1 dst/1
	old dst/mid
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	same src/mid dst/mid
	clean dst
}

# One of each kind, and the rest comes.
five_faults() {
	is_root && ! have setpriv && { skip 'setpriv is not installed'; return; }
	way "$1"
	rm -rf src/five
	mkdir -p src/five/{shut,dir,ok}
	for n in {1..20}; do data "src/five/ok/$n" $((n * 9000)); done
	echo x >src/five/secret
	echo x >src/five/shut/x
	mkdir -p src/five/dir/in/deep src/five/dir.d
	echo x | tee src/five/dir/{x,in/y,in/deep/z} >src/five/dir.d/x
	echo x >src/five/file
	echo x >src/five/last
	ln -s nowhere src/five/dangling
	chmod 0 src/five/secret src/five/shut
	mkdir -p dst/five/file/full
	echo old >dst/five/dir
	if is_root; then
		printf '#!/bin/sh\nexec setpriv --bounding-set=-dac_override,-dac_read_search "%s" "$@"\n' "$RCP"
	else
		printf '#!/bin/sh\nexec "%s" "$@"\n' "$RCP"
	fi >bin/powerless
	chmod +x bin/powerless
	program=$dir/bin/powerless
	rcp --json -r --rcp-path=powerless "${S}src/five" "${T}dst/"
	program=
	chmod 700 src/five/secret src/five/shut
	rc_is 1
	sum_is .status partial
	errors >failed
	for fault in '1 open secret: Permission denied' '1 open directory shut: Permission denied' \
		'1 stat dangling: No such file or directory' \
		"1 mkdir dir: a file has this name, and a directory can't replace it, and what is in it is left out" \
		"1 rename file: a directory has this name, and a file can't replace it"; do
		grep -qxF "$fault" failed || fail "no error: $fault; but: $(cat failed)"
	done
	# What is in the directory is told with it, and counted: x, in, in/y, in/deep, in/deep/z, dangling.
	is 'errors told' "$(wc -l <failed)" 5
	sum_is .failed 10
	sum_is '.errors | length' 5
	is 'files told as failed' "$(jq -r 'select(.event == "file" and .status == "failed") | .name' out | grep -c /dir/)" 3
	same_tree src/five/ok dst/five/ok
	same_tree src/five/dir.d dst/five/dir.d
	same src/five/last dst/five/last
	old dst/five/dir
	exists dst/five/file/full
	clean dst
	rm -r src/five/dangling dst/five/file dst/five/dir
	rcp --json -r src/five dst/
	rc_is 0
	same_tree src/five dst/five
}

# ---- a source that changes, all ways at once: most of it is waiting ----

change() {
	case $1 in
	truncated) truncate -s 100 "$2" ;;
	grown) echo more >>"$2" ;;
	rewritten) head -c 4000007 /dev/zero >other && cat other >"$2" ;;
	touched) printf x | dd of="$2" bs=1 seek=3999999 conv=notrunc status=none ;;
	replaced) cp src/mid other && mv other "$2" ;;
	removed) rm "$2" ;;
	esac
}

# changes WAY ARG...
changes() {
	local how hows=(truncated grown rewritten touched replaced removed)
	declare -A copies

	way "$1"
	shift
	for how in "${hows[@]}"; do
		cp src/mid "src/$how"
		mkdir "dst/$how"
		echo old >"dst/$how/$how"
		"$RCP" -F ssh_config --json --bwlimit=700K "$@" "${S}src/$how" "${S}src/d/1" "${T}dst/$how/" \
			</dev/null >"out.$how" 2>"err.$how" &
		copies[$how]=$!
		pids+=($!)
	done
	for how in "${hows[@]}"; do
		await 60 moving "out.$how" || fail "$how: the copy does not get going"
		change "$how" "src/$how"
	done
	for how in "${hows[@]}"; do
		reap 60 "${copies[$how]}" || fail "$how: no end"
		mv "err.$how" err
		mv "out.$how" out
		same src/d/1 "dst/$how/1"
		clean "dst/$how"
		case $how in
		replaced | removed) # the open file is still the one that was named
			rc_is 0
			same src/mid "dst/$how/$how"
			continue
			;;
		truncated) # told by who sees it first
			errors | grep -qxE '1 (pread|mmap|fstat) truncated: (truncated while it was copied: it (ends at byte|has) 100( bytes)?, and had 4000007( bytes)?|file changed while it was copied)' ||
				fail "$how: $(errors)"
			;;
		*) errors_are "1 fstat $how: file changed while it was copied" ;;
		esac
		rc_is 1
		own_lines 1
		err_has 'copy it again when nobody writes to it'
		old "dst/$how/$how"
	done
}

for side in up down local; do
	mode=$side
	t "$side: tmpfs, full during small files" tree_fills tmpfs 3m $side
	t "$side: tmpfs, full during a big file" disk_fills $side
	t "$side: a limit on file size" too_large $side
	[ $side = down ] || t "$side: read error, small" read_error $side small/150
	from=2000000
	[ $side = up ] || t "$side: read error, big, staged" read_error $side mid --source=staged
	from=
	[ $side = down ] || t "$side: a wrong write, small" wrong_write $side small/150
	[ $side = up ] || t "$side: a wrong write, big" wrong_write $side mid 2000000
	[ $side = up ] || t "$side: fsync fails, small" no_sync $side small/150 fsync
	[ $side = down ] || t "$side: fsync fails, big" no_sync $side mid fsync
	t "$side: the target is removed" moved_away removed $side
	t "$side: five faults" five_faults $side
	t "$side: owners and xattrs that can't be kept" not_kept $side
done
for how in 'a file' renamed 'a link'; do t "local: the target becomes $how" moved_away "$how" local; done
t 'up: the target becomes a link' moved_away 'a link' up
t 'up: a directory of the target leads out' tree_led_out up
t 'two copies into one file, up and local' two_copies up
t 'two copies into one file, local' two_copies local
t 'up, ssh: tmpfs, full during a big file' disk_fills up --transport=ssh
t 'up: ext4, full' disk_full up
t 'local: ext4, full' disk_full local
t 'local: ext4, full during small files' tree_fills ext4 16M local
t 'up: the source changes' changes up --source=staged
t 'down: the source changes' changes down --source=mapped --encrypt=never
t 'down: the source changes, sealed' changes down
t 'local: the source changes' changes local
from=2000000 mode=local
t 'local: read error, big, direct' read_error local mid --source=direct
end
