#!/usr/bin/env bash
# The guest's half of power.sh: after a cut what it left is looked at and the copy run again, then the next copy starts,
# into which the host cuts.
# usage: power-guest.sh RCP FS CUT NEXT ARG...
#   CUT   the number of the cut that was; 0: none yet     NEXT  1: start another copy, with ARGs, and wait for the cut
# /dev/vda: the disk that the power is cut of; /dev/vdb: two versions of a tree, and what is in each (1/tree, 1/list).
# In /run/out: before-N (the target when copy N began), said-N (copy N's JSON), args-N, and TAP on stdout.
# shellcheck source-path=SCRIPTDIR source=lib-guest.sh
. "$(dirname "$0")/lib-guest.sh"
RCP=$(realpath "$1") fs=$2 cut=$3 next=$4
shift 4
out=/run/out target=/run/tmp/disk sources=/run/tmp/sources

# Small delays between a change and the log, long ones between a write and the disk: what hurts most is names whose data is late.
mount_all() {
	local options=noatime
	[ "$fs" != ext4 ] || options+=,commit=1
	mkdir -p $target $sources
	mount -t ext4 -o ro /dev/vdb $sources
	mount -t "$fs" -o "$options" /dev/vda $target
	[ "$fs" != xfs ] || echo 100 >/proc/sys/fs/xfs/xfssyncd_centisecs
}

# list DIR: name, size, mtime, mode and MD5 of each file that has its final name.
list() {
	[ -d "$1" ] || return 0
	(
		cd "$1" || exit 1
		find . -type f ! -name '.*.rcp-*' -printf '%P %s %T@ %m\n' | sort >/run/tmp/stat
		find . -type f ! -name '.*.rcp-*' -printf '%P\0' | sort -z | xargs -0r md5sum | awk '{ print $2, $1 }' | sort >/run/tmp/sums
		join /run/tmp/stat /run/tmp/sums
	)
}

# sort_out: each final name is what it was before or what it should become, and nothing else. Sets $wrong $new $old $absent.
sort_out() {
	list $target/tree >/run/tmp/now
	awk -v before="$out/before-$cut" -v want="$sources/$1/list" '
		BEGIN {
			while ((getline line < before) > 0) { split(line, a, " "); was[a[1]] = line }
			while ((getline line < want) > 0) { split(line, a, " "); new[a[1]] = line }
		}
		{
			seen[$1] = 1
			if ($0 == new[$1]) n++
			else if ($0 == was[$1]) o++
			else { w++; print "# wrong: " $0; print "# want:  " new[$1] }
		}
		END {
			for (f in new) if (!(f in seen)) {
				if (f in was) { w++; print "# gone: " f } else absent++
			}
			print n + 0, o + 0, absent + 0, w + 0
		}' /run/tmp/now >/run/tmp/sorted
	grep '^#' /run/tmp/sorted | head -20
	read -r new old absent wrong < <(grep -v '^#' /run/tmp/sorted)
}

# What copy N said to be copied.
reported() { sed -nE 's/.*"event":"file","name":"[^"]*\btree\/([^"]*)".*"status":"copied".*/\1/p' "$out/said-$cut"; }

after_cut() {
	local version=$((cut % 2 + 1)) args lost partials
	mapfile -t args <"$out/args-$cut"
	# /dev/vda is mounted: the file system's own journal was replayed.
	partials="$(find $target -name '.*.rcp-part' | wc -l) partial files, $(find $target -name '.*.rcp-journal' | wc -l) journals"
	sort_out $version
	reported | sort >/run/tmp/reported
	lost=$(comm -23 /run/tmp/reported <(sort "$sources/$version/list" | comm -12 - <(sort /run/tmp/now) | cut -d' ' -f1 | sort) | wc -l)
	ok "$fs cut $cut: each name holds the old file or the new, whole" "$wrong"
	case " ${args[*]} " in
	*" --fsync "*) ok "$fs cut $cut: --fsync: what was reported is there" "$lost" ;;
	esac
	deadline=120 copy 0 "${args[@]}"
	ok "$fs cut $cut: the same command again ends well" $? $said
	local bad
	bad=$(grep -c 'not what its journal said' $said)
	ok "$fs cut $cut: all that the journal claimed was on the disk" "$bad" $said
	list $target/tree | cmp - "$sources/$version/list" >/run/tmp/cmp 2>&1
	ok "$fs cut $cut: and all is there, with its times and modes" $? /run/tmp/cmp
	[ -z "$(find $target -name '.*.rcp-*')" ]
	ok "$fs cut $cut: no partial file is left" $?
	echo "# $fs cut $cut: ${args[*]:0:${#args[@]}-2}: $new new, $old old, $absent absent, $wrong wrong;" \
		"$(wc -l </run/tmp/reported) reported, $lost of them lost; resumed $(number resumed_bytes), wrong claims $bad;" \
		"left: $partials, started over $(grep -c 'started over' $said)"
}

# Half of the names are there with their old content, the others are new, and all of that is on the disk.
start() {
	local version=$(((cut + 1) % 2 + 1)) n=$((cut + 1)) args
	if [ ! -d $target/tree ]; then cp -a "$sources/$((3 - version))/tree" $target/; fi
	find $target/tree -type f | sort | awk 'NR % 2' | xargs rm -f
	sync
	list $target/tree >"$out/before-$n"
	args=(-a --update "$@" "$sources/$version/tree" "${to:-$target/}")
	printf '%s\n' "${args[@]}" >"$out/args-$n"
	timeout -k 5 100 "$RCP" --json "${args[@]}" >"$out/said-$n" 2>"$out/errors-$n"
	sleep 60
	echo "no cut came"
	exit 1
}

to=
if [ "${1:-}" = --ssh ]; then
	shift
	to=hostb:$target/
	set -- "$@" --rcp-path="$RCP"
fi
mount_all
cases=0
[ "$cut" = 0 ] || after_cut
# A copy's wrong content must not become the next one's old one.
[ "$failures" = 0 ] || exit 1
[ "$next" = 0 ] || start "$@"
exit 0
