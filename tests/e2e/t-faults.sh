#!/bin/bash
# One file's fault is that file's alone: the others are copied, the message names it, the call, the reason.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
umask 022
mkdir src/d
for n in 1 2 3; do data "src/d/$n" $((n * 70000)); done
data src/big 12000007

# Without the right to read what it may not, also as root.
powerless() {
	if is_root; then
		have setpriv || return
		echo "#!/bin/sh
exec setpriv --bounding-set=-dac_override,-dac_read_search,-fowner '$RCP' \"\$@\""
	else
		echo "#!/bin/sh
exec '$RCP' \"\$@\""
	fi >bin/powerless
	chmod +x bin/powerless
}
powerless

need_powerless() { [ -x bin/powerless ] || { skip 'setpriv is not installed'; return 1; }; }

# others REASON...: exit status 1, one line with these, 1 and 3 copied, not 2
others() {
	rc_is 1
	own_lines 1
	err_has d/2 "$@"
	same src/d/1 dst/1
	same src/d/3 dst/3
	absent dst/2
	clean dst
	sum_is .files 2
	sum_is .failed 1
	sum_is .status partial
	is 'the error event' "$(jq -r 'select(.event == "error") | .object | test("d/2$")' out)" true
	is 'the failed file' "$(jq -r 'select(.event == "error") | .code' out)" 1
}

unreadable() {
	need_powerless || return
	chmod 0 src/d/2
	if [ "$1" = down ]; then
		rcp --json --rcp-path=powerless "box:$dir/src/d/*" dst/
	elif [ "$1" = up ]; then
		program=$dir/bin/powerless
		rcp --json src/d/1 src/d/2 src/d/3 "box:$dir/dst/"
	else
		program=$dir/bin/powerless
		rcp --json src/d/1 src/d/2 src/d/3 dst/
	fi
	program=
	chmod 644 src/d/2
	others 'open' 'Permission denied'
}

unreadable_dir() {
	need_powerless || return
	mkdir -p src/t/shut src/t/open
	echo a >src/t/open/a
	echo b >src/t/shut/b
	chmod 0 src/t/shut
	[ "$1" = down ] || program=$dir/bin/powerless
	case $1 in
	up) rcp --json -r src/t "box:$dir/dst/" ;;
	down) rcp --json -r --rcp-path=powerless "box:$dir/src/t" dst/ ;;
	local) rcp --json -r src/t dst/ ;;
	esac
	program=
	chmod 755 src/t/shut
	rc_is 1
	own_lines 1
	err_has src/t/shut 'Permission denied'
	same src/t/open/a dst/t/open/a
}

unwritable() {
	need_powerless || return
	mkdir dst/shut
	chmod 555 dst/shut
	if [ "$1" = up ]; then
		rcp --json --rcp-path=powerless src/d/1 "box:$dir/dst/shut/"
	else
		program=$dir/bin/powerless
		[ "$1" = down ] || rcp --json src/d/1 dst/shut/
		[ "$1" = local ] || rcp --json "box:$dir/src/d/1" dst/shut/
		program=
	fi
	rc_is 1
	own_lines 1
	err_has shut/1 'Permission denied'
	sum_is .failed 1
	absent dst/shut/1
}

# A directory where a file is to go, and the other way round; the rest of the tree comes.
conflict() {
	mkdir -p dst/d/2/full
	rcp --json -r src/d "$1"
	rc_is 1
	own_lines 1
	err_has d/2 'directory'
	same src/d/1 dst/d/1
	same src/d/3 dst/d/3
	exists dst/d/2/full
	rm -rf dst/d
	mkdir dst/d
	mkdir -p src/e/2 && echo x >src/e/2/x && echo y >src/e/y
	mkdir dst/e && echo old >dst/e/2
	rcp --json -r src/e "$1"
	rc_is 1
	err_has e/2
	same src/e/y dst/e/y
	is 'what was there' "$(cat dst/e/2)" old
	clean dst
}

# ---- a full disk ----

small_disk() {
	is_root || { skip 'only root can mount a small disk'; return 1; }
	mount -t tmpfs -o size="$1" rcp-e2e dst 2>/dev/null || { skip 'no tmpfs can be mounted'; return 1; }
	mounts+=("$dir/dst")
}

disk_full() {
	small_disk 6m || return
	echo old >dst/big
	if [ "$1" = up ]; then
		rcp --json src/d/1 src/big src/d/2 "box:$dir/dst/"
	else
		rcp --json "box:$dir/src/d/1" "box:$dir/src/big" "box:$dir/src/d/2" dst/
	fi
	rc_is 5
	err_has big 'No space left on device' 'no room for' 'run the same command again'
	own_lines 2
	sum_is .status io
	sum_is .exit_code 5
	sum_is .resumable true
	old dst/big
	same src/d/1 dst/1
	same src/d/2 dst/2
	mount -o remount,size=64m dst
	rcp --json src/big "box:$dir/dst/"
	rc_is 0
	same src/big dst/big
	clean dst
	umount dst
}

# ---- a source that changes while it is read ----

# changed HOW DIRECTION ARG...
changed() {
	local how=$1 way=$2

	shift 2
	cp src/big src/moving
	echo old >dst/moving
	beyond=1000000
	if [ "$way" = local ]; then
		rcp_start --json --bwlimit=3M "$@" src/moving src/d/1 dst/
		await 60 moved "$beyond" || fail 'the copy does not get going'
	elif [ "$way" = up ]; then
		start_watched --bwlimit=3M "$@" src/moving src/d/1 "box:$dir/dst/" || return
	else
		start_watched --bwlimit=3M "$@" "box:$dir/src/moving" "box:$dir/src/d/1" dst/ || return
	fi
	case $how in
	truncated) truncate -s 100 src/moving ;;
	grown) echo more >>src/moving ;;
	rewritten) head -c 12000007 /dev/zero >src/other && cat src/other >src/moving ;;
	touched) printf x | dd of=src/moving bs=1 seek=11999999 conv=notrunc status=none ;;
	replaced) cp src/big src/other && mv src/other src/moving ;;
	removed) rm src/moving ;;
	esac
	reap 60 "$copy" || fail 'no end'
	same src/d/1 dst/1
	case $how in
	replaced | removed)
		# the open file is still the one that was named
		rc_is 0
		same src/big dst/moving
		;;
	*)
		rc_is 1
		own_lines 1
		err_has moving 'while it was copied'
		sum_is .failed 1
		sum_is .files 1
		old dst/moving
		;;
	esac
	clean dst
}

# The kernel's own files have bytes and no size: nothing that looks like a copy may come of them.
sizeless() {
	local from=/proc/version to=dst/

	[ "$1" != up ] || to="box:$dir/dst/"
	[ "$1" != down ] || from="box:$from"
	: >src/empty
	echo old >dst/version
	rcp --json "$from" "$to"
	rc_is 1
	own_lines 1
	err_has '/proc/version: pread: has content, but tells a size of 0'
	old dst/version
	from=${from%/proc/version}/sys/kernel/mm/transparent_hugepage/enabled
	if [ -e /sys/kernel/mm/transparent_hugepage/enabled ]; then
		rcp "$from" "$to"
		rc_is 1
		err_has 'bytes, but tells a size of 4096'
		absent dst/enabled
	fi
	[ "$1" = down ] || rcp src/empty "$to"
	[ "$1" = down ] || rc_is 0
	clean dst
}

for way in up down local; do
	t "a file without a size, $way" sizeless $way
done
for way in up down local; do
	t "unreadable, $way" unreadable $way
done
for way in up down local; do
	t "an unreadable directory, $way" unreadable_dir $way
	t "an unwritable directory, $way" unwritable $way
done
t 'directory and file in conflict, up' conflict "box:$dir/dst/"
t 'directory and file in conflict, local' conflict dst/
t 'a full disk, up' disk_full up
t 'a full disk, down' disk_full down
write_watched
for how in truncated grown rewritten touched replaced removed; do
	t "the source is $how, up" changed $how up
done
t 'the source is truncated, down' changed truncated down
t 'the source is truncated, down, ssh' changed truncated down --transport=ssh
t 'the source is truncated, local' changed truncated local
t 'the source is rewritten, local' changed rewritten local
t 'the source is rewritten, down, ssh' changed rewritten down --transport=ssh
t 'the source is truncated, up, staged' changed truncated up --source=staged
t 'the source is touched, up, staged' changed touched up --source=staged
t 'the source is truncated, up, direct' changed truncated up --source=direct
end
