#!/usr/bin/env bash
# In one guest with RDMA: a bad block under the source, a target's disk that dies, a quota, a target without xattrs and
# ACLs, a clock that is set while a copy runs. Each has its true status and message, the other files come, the old target
# stays, and a rerun finishes once the cause is gone. TAP.
# usage: storage.sh RCP
# shellcheck source-path=SCRIPTDIR source=lib-guest.sh
. "$(dirname "$0")/lib-guest.sh"
RCP=$(realpath "$1")
server="$RCP --server"
# ssh's place is taken by the server itself, as the user and with the limits of $server.
# shellcheck disable=SC2016
printf '#!/bin/sh\nexec $(cat /run/tmp/server)\n' >/run/tmp/ssh
chmod 755 /run/tmp/ssh
chmod 1777 /run/tmp
serve() { echo "$*" >/run/tmp/server; }
serve "$server"
cd /run/tmp || exit 1
mkdir from to
head -c 8M /dev/urandom >file
head -c 100000 /dev/urandom >small

old() { [ "$(cat "$1")" = old ] || { echo "$1 is not the old file" >>$said; return 1; }; }
only_parts() {
	local left
	left=$(find "$1" -name '.*' -type f ! -name '.*.rcp-part' ! -name '.*.rcp-journal' ! -name '.*.rcp-done')
	[ -z "$left" ] || { echo "left: $left" >>$said; return 1; }
}
clean() {
	local left
	left=$(find "$1" -name '.*.rcp-*')
	[ -z "$left" ] || { echo "left: $left" >>$said; return 1; }
}
start_over() { rm -rf to; mkdir to; echo old >to/file; }

# ---- a disk whose sectors can be made bad ----

# disk NAME MiB: an ext4 on a loop device behind the device mapper, mounted on NAME
sectors=()
disk() {
	local loop
	truncate -s "$2M" "$1.img"
	loop=$(losetup -f --show "$1.img") || return
	sectors[0]=$(($2 * 2048))
	echo "0 ${sectors[0]} linear $loop 0" >"$1.good"
	dmsetup create "$1" "$1.good" && mkfs.ext4 -q -E lazy_itable_init=0 "/dev/mapper/$1" && mkdir -p "$1" &&
		mount "/dev/mapper/$1" "$1"
}
# table NAME FILE: from now on
table() { dmsetup suspend --noflush --nolockfs "$1" && dmsetup load "$1" "$2" && dmsetup resume "$1"; }
# bad_block NAME FILE OFFSET: the block of the file at this offset can't be read any more
bad_block() {
	local first loop
	loop=$(cut -d' ' -f4 "$1.good")
	# "   0:        0..    5119:      34816..     39935:   5120:": the extent that holds it
	first=$(filefrag -v -b512 "$2" | awk -v at=$(($3 / 512)) 'gsub(/[.:]+/, " ") && $1 ~ /^[0-9]+$/ && $2 <= at && at <= $3 { print $4 + at - $2 }')
	[ "$first" ] || return
	first=$((first / 8 * 8))
	printf '%s\n' "0 $first linear $loop 0" "$first 8 error" \
		"$((first + 8)) $((sectors[0] - first - 8)) linear $loop $((first + 8))" >"$1.bad"
	table "$1" "$1.bad"
}
# Of one file: what else is cached comes from the host, slowly.
uncached() { dd if="$1" iflag=nocache count=0 status=none; }

disk source 64 && cp file small source/ && cp small source/small2 && sync && bad_block source source/file 5000000
ok "a bad block under the source" $? $said

# unreadable NAME ARG...
unreadable() {
	local name=$1
	shift
	start_over
	uncached source/file
	copy 5 --retries=0 -S /run/tmp/ssh "$@" && expect '"call":"pread"' 'file: pread: Input/output error' &&
		[ "$(number failed)" = 1 ] && [ "$(number files)" = 2 ] && cmp small to/small && cmp small to/small2 && old to/file && only_parts to
	ok "a bad block, $name" $? $said
}
unreadable "local" source/{small,file,small2} to/
unreadable "rdma, up" --transport=rdma source/{small,file,small2} 10.9.0.2:/run/tmp/to/
unreadable "rdma, up, mapped" --transport=rdma --source=mapped source/{small,file,small2} 10.9.0.2:/run/tmp/to/
unreadable "tcp, mapped, up" --transport=tcp --encrypt=never --source=mapped source/{small,file,small2} 10.9.0.2:/run/tmp/to/
unreadable "tcp, mapped, down" --transport=tcp --encrypt=never 10.9.0.2:/run/tmp/source/{small,file,small2} to/
table source source.good
copy 0 -S /run/tmp/ssh 10.9.0.2:/run/tmp/source/{small,file,small2} to/ && cmp file to/file && clean to
ok "  with a good disk a rerun finishes" $? $said

# ---- the target's disk dies ----

dies() {
	echo old >target/file
	sync
	printf '0 %s error\n' "${sectors[0]}" >target.bad
	"$RCP" --json --fsync --bwlimit=2M small file target/ >$json 2>$said &
	local copier=$! i rc=0
	for ((i = 0; i < 300; i++)); do
		grep -qE '"event":"progress","bytes":[1-9]' $json && break
		sleep 0.1
	done
	table target target.bad
	for ((i = 0; i < 600; i++)); do kill -0 $copier 2>/dev/null || break; sleep 0.1; done
	kill -9 $copier 2>/dev/null
	wait $copier || rc=$?
	echo "status $rc, wanted 5" >>$said
	[ $rc = 5 ] && expect 'file: ' '"status":"io"'
}
disk target 64 && dies
ok "the target's disk dies: status 5" $? $said
umount target
table target target.good
e2fsck -fy /dev/mapper/target >e2fsck.log 2>&1
mount /dev/mapper/target target && old target/file && only_parts target
ok "  the old target stays" $? $said
copy 0 --fsync small file target/ && cmp file target/file && cmp small target/small && clean target
ok "  with a good disk a rerun finishes" $? $said

# ---- a quota ----

# quota BYTES: of the user 65534 on the disk `quota`, by quotactl(Q_SETQUOTA)
quota() {
	# shellcheck disable=SC2016
	perl -e 'my ($dev, $kib) = @ARGV; my $q = pack("Q8LL", $kib, $kib, 0, 0, 0, 0, 0, 0, 1, 0);
		exit(syscall(179, 0x80000800, $dev, 65534, $q) ? 1 : 0)' "$(findmnt -no SOURCE quota)" $(($1 / 1024))
}
truncate -s 64M quota.img
mkfs.ext4 -q -O quota -E quotatype=usrquota quota.img && mkdir quota && mount -o loop,usrquota quota.img quota && chmod 777 quota &&
	quota 4194304
have_quota=$?
over_quota() {
	local name=$1
	shift
	rm -f quota/file quota/small quota/.*.rcp-*
	setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'echo old >quota/file'
	chmod 644 file small
	copy 5 -S /run/tmp/ssh "$@" && expect '(8388608 bytes): Disk quota exceeded' 'no room for' 'have it raised' &&
		old quota/file && cmp small quota/small && only_parts quota
	ok "over the quota, $name" $? $said
	quota 67108864
	copy 0 -S /run/tmp/ssh "$@" && cmp file quota/file && clean quota
	ok "  with a larger one a rerun finishes" $? $said
	quota 4194304
}
if [ $have_quota = 0 ]; then
	as_user="setpriv --reuid 65534 --regid 65534 --clear-groups"
	serve "$as_user $server"
	over_quota "up" --transport=tcp small file 10.9.0.2:/run/tmp/quota/
	serve "$server"
else
	skip "over the quota" "no quota on ext4 here"
fi

# ---- the clock is set ----

uptime_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }
# steps NAME ARG...: 8 MiB at 2 MiB/s are 4 s, whatever the clock says
steps() {
	local name=$1 started i rc=0 ms seen
	shift
	start_over
	started=$(uptime_ms)
	"$RCP" --json --bwlimit=2M -S /run/tmp/ssh "$@" >$json 2>$said &
	local copier=$!
	for ((i = 0; i < 300; i++)); do
		grep -qE '"event":"progress","bytes":[1-9]' $json && break
		sleep 0.1
	done
	date -s '-1 day' >/dev/null
	seen=$(grep -c '"event":"progress"' $json)
	for ((i = 0; i < 100; i++)); do
		[ "$(grep -c '"event":"progress"' $json)" -le "$seen" ] || break
		sleep 0.1
	done
	date -s '+2 days' >/dev/null
	for ((i = 0; i < 300; i++)); do kill -0 $copier 2>/dev/null || break; sleep 0.1; done
	kill -9 $copier 2>/dev/null
	wait $copier || rc=$?
	ms=$(($(uptime_ms) - started))
	date -s '-1 day' >/dev/null
	echo "status $rc, wanted 0, after $ms ms, which said $(field seconds) s, $(field bytes_per_second) bytes/s" >>$said
	local said_ms rate
	said_ms=$(field seconds | tr -d .) rate=$(field bytes_per_second)
	[ $rc = 0 ] && cmp file to/file && [ "$ms" -ge 3500 ] && [ "$ms" -lt 30000 ] && [ "$((10#$said_ms))" -ge 3500 ] &&
		[ "$((10#$said_ms))" -le "$ms" ] && [ "${rate%.*}" -gt 500000 ] && [ "${rate%.*}" -lt 2400000 ] && [ "$(number retries)" = 0 ]
	ok "the clock steps by a day, $name" $? $said
}
steps "local" file to/
steps "rdma" --transport=rdma file 10.9.0.2:/run/tmp/to/
steps "tcp" --transport=tcp 10.9.0.2:/run/tmp/file to/
finish
