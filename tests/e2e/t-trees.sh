#!/bin/bash
# Trees: -r and -a, modes and times, links, directories that are empty, deep or not writable.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
umask 022

# name, type, mode, mtime in ns (not of links), link target
list() { (cd "$1" && find . -mindepth 1 -printf "%P %y %m ${2:-} %l\n" | sort); }
alike() { is "what is in $2" "$(list "$2" "${3:-}")" "$(list "$1" "${3:-}")"; }

mkdir -p src/t/empty src/t/a/b/c src/t/ro/sub
data src/t/a/big 3000001
data src/t/a/b/c/one 1
data src/t/ro/f 5000
: >src/t/zero
echo x >src/t/exec
chmod 755 src/t/exec
chmod 640 src/t/zero
chmod 4711 src/t/a/big
chmod 711 src/t/a/b
touch -d '2001-02-03 04:05:06.789012345' src/t/zero src/t/a/b/c/one src/t/a/b
touch -d '1969-12-31 23:00:00.5' src/t/exec
chmod 555 src/t/ro src/t/ro/sub

# ---- plain -r ----

recursive() {
	rcp -r "$@"
	rc_is 0
	same_tree src/t dst/t
	clean dst
	exists dst/t/empty
}

# Without -p: as scp, the source's mode less the umask, no set-id bits; times are new.
modes() {
	umask 027
	rcp -r src/t dst/
	rc_is 0
	umask 022
	mode_is dst/t/exec 750
	mode_is dst/t/zero 640
	mode_is dst/t/a/big 710
	mode_is dst/t/a/b 710
	mode_is dst/t/ro 550
	[ dst/t/zero -nt src ] || fail 'an old time'
}

# The umask that counts is the target's.
remote_umask() {
	echo 'umask 077' >rc
	rcp src/t/exec src/t/zero "box:$dir/dst/"
	rc_is 0
	mode_is dst/exec 700
	mode_is dst/zero 600
}

preserve() {
	touch -a -d '2021-01-01 01:02:03.000000004' src/t/zero
	rcp -p -r "$@"
	rc_is 0
	is 'time of access' "$(stat -c %x dst/t/zero)" '2021-01-01 01:02:03.000000004 +0000'
	same_tree src/t dst/t
	alike src/t dst/t %T@
}

no_recursion() {
	rcp src/t src/t/exec "$1"
	rc_is 1
	err_lines 1
	err_has src/t -r
	same src/t/exec dst/exec
	absent dst/t
}
no_recursion_down() {
	rcp "box:$dir/src/t" "box:$dir/src/t/exec" dst/
	rc_is 1
	err_lines 1
	err_has src/t -r
	same src/t/exec dst/exec
}

# ---- links ----

mkdir -p src/l/d
echo target >src/l/file
echo inner >src/l/d/inner
ln -s file src/l/to-file
ln -s d src/l/to-dir
ln -s nowhere src/l/dangling
ln src/l/file src/l/hard
ln src/l/file src/l/d/hard2
mkfifo src/l/fifo

followed() {
	rcp -r "$@"
	rc_is 1 # the dangling one, and the FIFO
	err_has dangling fifo
	[ -f dst/l/to-file ] && [ ! -L dst/l/to-file ] || fail 'to-file is no file'
	[ -d dst/l/to-dir ] && [ ! -L dst/l/to-dir ] || fail 'to-dir is no directory'
	same src/l/file dst/l/to-file
	same src/l/d/inner dst/l/to-dir/inner
	absent dst/l/dangling dst/l/fifo
	is 'links of hard' "$(stat -c %h dst/l/hard)" 1
}

archive() {
	rcp -a "$@"
	rc_is 0
	alike src/l dst/l %T@
	is 'to-file' "$(readlink dst/l/to-file)" file
	is 'dangling' "$(readlink dst/l/dangling)" nowhere
	[ dst/l/file -ef dst/l/hard ] && [ dst/l/file -ef dst/l/d/hard2 ] || fail 'hard links are files of their own'
	[ -p dst/l/fifo ] || fail 'no FIFO'
	clean dst
}

# Again, over what is there: nothing is sent, and what was changed but the content is kept up with.
archive_again() {
	rcp -a "$@"
	chmod 640 src/l/file
	! is_root || chown 12:34 src/l/d/inner
	rcp --json -a "$@"
	rc_is 0
	sum_is .bytes 0
	sum_is .skipped 2 # the others are links
	alike src/l dst/l %T@
	is 'the mode' "$(stat -c %a dst/l/file)" 640
	! is_root || is 'the owner' "$(stat -c %u:%g dst/l/d/inner)" 12:34
	rcp --json -a --no-resume "$@"
	sum_is .skipped 0
	sum_is .files 2
	chmod 644 src/l/file
	! is_root || chown 0:0 src/l/d/inner
	[ dst/l/file -ef dst/l/hard ] || fail 'hard links are files of their own'
	clean dst
}

# A tree with hard links under a new name; something else has the old one at the target.
renamed_links() {
	mkdir -p dst/l/d
	echo other | tee dst/l/file dst/l/d/hard2 >dst/l/hard
	rcp -a "${@:1:1}" "${2}new"
	rc_is 0
	alike src/l dst/new %T@
	[ dst/new/file -ef dst/new/hard ] && [ dst/new/file -ef dst/new/d/hard2 ] || fail 'hard links are files of their own'
	is 'what was there' "$(cat dst/l/file dst/l/hard | sort -u)" other
}

# A first name that is left alone has no second name.
skipped_links() {
	mkdir dst/l
	echo other | tee dst/l/file >dst/l/hard
	mkdir dst/l/d
	echo other >dst/l/d/hard2
	rm dst/l/hard
	rcp --json -a --skip-existing "$@"
	is 'no link to another content' "$(cat dst/l/hard 2>/dev/null)" ''
}

# Nothing that is there gives way, whatever kind it is of.
skipped_all() {
	echo mine | tee dst/file dst/hard dst/link >dst/fifo
	rm -rf src/kinds
	mkdir src/kinds
	echo its >src/kinds/file
	ln src/kinds/file src/kinds/hard
	ln -s file src/kinds/link
	mkfifo src/kinds/fifo
	rcp --json -a --skip-existing "${1%l}kinds/." "$2"
	rc_is 0
	is 'skipped' "$(summary .skipped)" 4
	is 'what was there' "$(cat dst/file dst/hard dst/link dst/fifo | sort | uniq -c | tr -s ' ')" ' 4 mine'
	rm dst/hard dst/link dst/fifo
	rcp --json -a --skip-existing "${1%l}kinds/." "$2"
	[ -L dst/link ] || fail 'no link comes'
	is_root && { [ -p dst/fifo ] || fail 'no FIFO comes'; }
}

# Two files of the source that were one at the target: each gets its own mode, and a rerun then has nothing to do.
split_links() {
	rm -rf src/kinds
	mkdir src/kinds
	echo secret >src/kinds/a
	ln src/kinds/a src/kinds/b
	rcp -a "${1%l}kinds/." "$2"
	[ dst/a -ef dst/b ] || fail 'hard links are files of their own'
	cp -p src/kinds/a src/kinds/c
	mv -f src/kinds/c src/kinds/b
	chmod 600 src/kinds/a
	chmod 644 src/kinds/b
	rcp -a "${1%l}kinds/." "$2"
	rc_is 0
	alike src/kinds dst %T@
	[ ! dst/a -ef dst/b ] || fail 'they are one still'
	rcp --json -a "${1%l}kinds/." "$2"
	sum_is .skipped 2
	sum_is .files 0
}

# -a and -r of one file, again and again.
one_file_again() {
	local opt
	for opt in -a -r -a; do
		rcp "$opt" "${1%l}t/zero" "${2}name"
		rc_is 0
		same src/t/zero dst/name
	done
	rcp -r "${1%l}t" "${2}name"
	rc_is 1
	err_has 'a file has this name'
	same src/t/zero dst/name
}

# The mode of what is replaced stays without -p; --files-from makes its target.
kept_mode() {
	echo old >dst/zero
	chmod 600 dst/zero
	rcp src/t/zero src/t/exec "$1"
	rc_is 0
	mode_is dst/zero 600
	mode_is dst/exec 755
	rcp -p src/t/zero "$1"
	mode_is dst/zero 640
	printf 'a/b/c/one\n' >list
	rcp --files-from=list src/t "${1}made"
	rc_is 0
	same src/t/a/b/c/one dst/made/a/b/c/one
}

loops() {
	mkdir -p src/loop/in
	echo x >src/loop/x
	ln -sfn .. src/loop/in/up
	ln -sfn self src/loop/self
	rcp -r src/loop "$1"
	rc_is 1
	err_has up self
	same src/loop/x dst/loop/x
	rcp -a src/loop "$1"
	rc_is 0
	is 'up' "$(readlink dst/loop/in/up)" ..
}

# The first name can't be replaced, so the second one must not become a link to what has the name.
link_to_failed() {
	mkdir -p src/pair dst/pair
	echo new >src/pair/a
	ln -f src/pair/a src/pair/b
	ln -f src/pair/a src/pair/c
	mkfifo dst/pair/a
	echo old >dst/pair/b
	rcp -a src/pair "box:$dir/dst/"
	rc_is 1
	err_has 'pair/a' 'no hard link to pair/a, which was not copied'
	[ -p dst/pair/a ] || fail 'the FIFO went'
	old dst/pair/b
	absent dst/pair/c
	clean dst
}

# A symlink in an earlier version, a directory now: what it led to is not written into.
link_then_dir() {
	mkdir -p src/way/d
	echo right >src/way/d/f
	ln -sfn d src/way/l
	rcp -a "$@"
	rc_is 0
	[ -L dst/way/l ] || fail 'no link'
	rm src/way/l
	mkdir src/way/l
	echo other >src/way/l/f
	rcp -a "$@"
	rc_is 0
	same_tree src/way dst/way
	[ ! -L dst/way/l ] || fail 'still a link'
	rm -r src/way
}

# Names on the list go through a symlink at the target, as they do at the source.
link_on_the_way() {
	mkdir -p src/listed/d
	echo x >src/listed/d/f
	ln -sfn d src/listed/l
	rcp -a src/listed/d src/listed/l "box:$dir/dst/"
	rc_is 0
	echo l/f >list
	rcp -a --files-from=list src/listed "box:$dir/dst/"
	rc_is 0
	[ -L dst/l ] || fail 'the link went'
	same src/listed/d/f dst/d/f
}

# What a copy that was cut off left is not copied as if it were a file, and does nobody harm.
own_names() {
	mkdir -p src/own
	echo file >src/own/f
	echo part >src/own/.f.rcp-part
	rcp -r "$@"
	rc_is 1
	err_lines 1
	err_has '.f.rcp-part' "rcp's own partial files"
	same src/own/f dst/own/f
	clean dst
}

# A symlink at the target is replaced by the file, not written through.
link_target() {
	echo precious >dst/precious
	ln -s precious dst/exec
	rcp src/t/exec "box:$dir/dst/"
	rc_is 0
	is 'what the link led to' "$(cat dst/precious)" precious
	same src/t/exec dst/exec
}

# ---- many, deep ----

mkdir src/many
(cd src/many && for i in {1..20}; do
	mkdir "d$i"
	for j in {1..100}; do echo "$i $j" >"d$i/f$j"; done
done)

many() {
	rcp --json -r "$@"
	rc_is 0
	same_tree src/many dst/many
	clean dst
	sum_is .files 2000
	is 'file events' "$(jq -r 'select(.event == "file") | .name' out | wc -l)" 2000
}

deep() {
	local i d=src/deep

	if [ ! -d src/deep ]; then
		mkdir src/deep
		(cd src/deep && for i in {1..100}; do
			mkdir "directory-number-$i-of-a-deep-tree" && cd "directory-number-$i-of-a-deep-tree" || exit
			echo "$i" >f
		done)
	fi
	rcp --json -r "$@"
	rc_is 0
	sum_is .files 100
	is 'depth' "$(find dst/deep -type d | wc -l)" 101
	is 'content' "$(cd dst/deep && find . -name f -execdir cat f \; | sort -n | tr '\n' ' ')" "$(seq -s ' ' 100) "
}

# What has no place in a path is left out, by name; all else comes.
too_deep() {
	if [ ! -d src/abyss ]; then
		mkdir src/abyss
		(cd src/abyss && for i in {1..150}; do
			mkdir "directory-number-$i-of-a-deep-tree" && cd "directory-number-$i-of-a-deep-tree" || exit
			echo "$i" >f
		done)
	fi
	rcp --json -r "$@"
	rc_is 1
	# In the last directory that fits, the next one is too long, and the file may be.
	is 'one or two are too long' "$(summary '.errors | length < 3 and all(.reason | contains("over 4095 bytes"))')" true
	err_has 'over 4095 bytes' 'start the copy in a directory nearer to it'
	is 'over 100 files came' "$(summary '.files > 100')" true
	clean dst
}

sparse() {
	truncate -s 300M src/sparse
	printf x | dd of=src/sparse bs=1 seek=150000000 conv=notrunc status=none
	rcp --json -a "$@"
	rc_is 0
	same src/sparse dst/sparse
	[ "$(stat -c %b dst/sparse)" -lt 20000 ] || fail 'the holes are filled'
	sum_is .crc32 "$(crc32_of src/sparse)"
}

excluded() {
	rcp -r --exclude='*.o' --exclude=/skip "$@"
	rc_is 0
	is 'what came' "$(cd dst/x && find . -type f | sort | tr '\n' ' ')" './a.c ./d/b.c ./d/skip '
}

listed() {
	printf '%s\n' a.c d/b.c >list
	rcp --files-from=list "$@"
	rc_is 0
	is 'what came' "$(cd dst && find . -type f | sort | tr '\n' ' ')" './a.c ./d/b.c '
	printf 'a.c\0d/new\nline\0' >list
	rcp -0 --files-from=list "$@"
	rc_is 0
	exists $'dst/d/new\nline'
	printf '%s\n' gone a.c >list
	rcp --files-from=list "$@"
	rc_is 1
	err_lines 1
	err_has gone
}

mkdir -p src/x/d
touch src/x/a.c src/x/a.o src/x/skip src/x/d/b.c src/x/d/b.o src/x/d/skip $'src/x/d/new\nline'

for side in up down local; do
	case $side in
	up) S='' T="box:$dir/" ;;
	down) S="box:$dir/" T='' ;;
	local) S='' T='' ;;
	esac
	t "$side: -r" recursive "${S}src/t" "${T}dst/"
	t "$side: -r -p" preserve "${S}src/t" "${T}dst/"
	t "$side: -r follows links" followed "${S}src/l" "${T}dst/"
	t "$side: -a keeps links" archive "${S}src/l" "${T}dst/"
	t "$side: -a again" archive_again "${S}src/l" "${T}dst/"
	t "$side: -a, a new name" renamed_links "${S}src/l" "${T}dst/"
	t "$side: -a, links to what is left alone" skipped_links "${S}src/l" "${T}dst/"
	t "$side: -a --skip-existing, every kind" skipped_all "${S}src/l" "${T}dst/"
	t "$side: -a, links that are none any more" split_links "${S}src/l" "${T}dst/"
	t "$side: -a and -r, one file again" one_file_again "${S}src/l" "${T}dst/"
	t "$side: 2000 small files" many "${S}src/many" "${T}dst/"
	t "$side: deep" deep "${S}src/deep" "${T}dst/"
	t "$side: too deep" too_deep "${S}src/abyss" "${T}dst/"
	t "$side: sparse" sparse "${S}src/sparse" "${T}dst/"
	t "$side: -a, a directory where a link was" link_then_dir "${S}src/way" "${T}dst/"
	t "$side: names of rcp's own" own_names "${S}src/own" "${T}dst/"
	t "$side: --files-from" listed "${S}src/x" "${T}dst/"
done
rm -f $'src/x/d/new\nline'
t 'up: a hard link to what failed' link_to_failed
t 'up: --files-from through a link' link_on_the_way
t 'up: --exclude' excluded src/x "box:$dir/dst/"
t 'down: --exclude' excluded "box:$dir/src/x" dst/
t 'what is there keeps its mode, up' kept_mode "box:$dir/dst/"
t 'what is there keeps its mode, local' kept_mode dst/
t 'modes and umask' modes
t 'the umask of the other host' remote_umask
t 'a directory without -r, up' no_recursion "box:$dir/dst/"
t 'a directory without -r, down' no_recursion_down
t 'a directory without -r, local' no_recursion dst/
t 'loops of links' loops dst/
t 'a link at the target' link_target
t '2000 small files, ssh' many --transport=ssh src/many "box:$dir/dst/"
end
