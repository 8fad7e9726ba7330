#!/usr/bin/env bash
# In hosta, hostb behind a real ssh: copies both ways over the fabric of this guest. TAP.
# usage: copy.sh RCP KERNEL FABRIC
# shellcheck source-path=SCRIPTDIR source=lib-guest.sh
. "$(dirname "$0")/lib-guest.sh"
RCP=$(realpath "$1") kernel=$2 fabric=$3
MiB=1048576
sizes=(0 1 4095 4096 4097 $((MiB - 1)) "$MiB" $((MiB + 1)) $((64 * MiB + 7)))
case $fabric in
rxe) transport=rdma name=roce-v2 ;;
siw) transport=rdma name=iwarp ;;
none) transport=tcp name= ;;
esac
here=/run/tmp/src back=/run/tmp/back
mkdir -p $here $back
for size in "${sizes[@]}"; do head -c "$size" /dev/urandom >"$here/f$size"; done
# One login for all of them: under emulation each costs seconds.
printf 'Host hostb\n ControlMaster auto\n ControlPath /run/tmp/mux\n ControlPersist 300\n' >>/root/.ssh/config
remote=(--rcp-path="$RCP" -S ssh)

# The summary says which way it went; whole chunks were sent as this kernel allows.
way() {
	[ "$(field transport)" = "$transport" ] || return 1
	[ "$transport" = tcp ] || [ "$(field fabric)" = "$name" ] || return 1
}
carried() {
	local full=$((66 * MiB)) # the whole chunks of the sizes above
	[ "$transport" = rdma ] || return 0
	case $kernel in
	6.12) [ "$(number zero_copy_bytes)" -ge $full ] ;;
	6.1) [ "$(number zero_copy_bytes)" = 0 ] && [ "$(number staged_bytes)" -ge $full ] ;;
	esac
}

# All of the large file by sealed chunks, from buffers.
sealed() {
	[ "$(field transport)" = rdma ] && [ "$(field encrypted)" = aes-256-gcm ] &&
		[ "$(number sealed_bytes)" -ge $((64 * MiB + 7)) ] && [ "$(number zero_copy_bytes)" = 0 ]
}

ssh hostb mkdir -p /run/tmp/dst
copy 0 -v "${remote[@]}" $here/f* hostb:/run/tmp/dst
ok "upload of every size" $? $said
way; ok "  over ${name:-tcp}" $? $said
carried; ok "  whole chunks: zero copy on 6.12, staged on 6.1" $? $said
[ "$(cd $here && md5sum f* | md5sum)" = "$(ssh hostb 'cd /run/tmp/dst && md5sum f* | md5sum')" ]
ok "  and identical" $?

copy 0 -v "${remote[@]}" 'hostb:/run/tmp/dst/f*' $back
ok "download of every size" $? $said
way; ok "  over ${name:-tcp}" $? $said
carried; ok "  whole chunks: zero copy on 6.12, staged on 6.1" $? $said
diff -r $here $back; ok "  and identical" $?

copy 0 "${remote[@]}" $here/f4097 hostb:one && ssh hostb cmp /run/tmp/dst/f4097 one
ok "one small file to a name relative to home" $? $said
copy 0 "${remote[@]}" $here/f$((MiB + 1)) '[fd09:1::2]:/run/tmp/v6' && ssh hostb cmp /run/tmp/dst/f$((MiB + 1)) /run/tmp/v6
ok "IPv6 in brackets" $? $said

if [ "$fabric" = none ]; then
	expect 'no RDMA' 'modprobe'
	ok "without RDMA the reason is told" $? $said
else
	copy 0 --transport=tcp "${remote[@]}" $here/f$((MiB + 1)) hostb:tcp && [ "$(field transport)" = tcp ]
	ok "--transport=tcp goes over TCP" $? $said
	copy 0 --source=staged "${remote[@]}" $here/f$((64 * MiB + 7)) hostb:staged &&
		[ "$(number zero_copy_bytes)" = 0 ] && ssh hostb cmp /run/tmp/dst/f$((64 * MiB + 7)) staged
	ok "--source=staged" $? $said
	always=(--encrypt=always --transport=rdma "${remote[@]}")
	copy 0 "${always[@]}" $here/f$((64 * MiB + 7)) hostb:sealed && sealed &&
		ssh hostb cmp /run/tmp/dst/f$((64 * MiB + 7)) sealed
	ok "--encrypt=always" $? $said
	copy 0 "${always[@]}" hostb:sealed $back/sealed && sealed && cmp $here/f$((64 * MiB + 7)) $back/sealed
	ok "--encrypt=always, download" $? $said
	if [ "$fabric" = rxe ]; then
		copy 0 --connect=oob --transport=rdma "${remote[@]}" $here/f$((64 * MiB + 7)) hostb:oob &&
			[ "$(field fabric)" = roce-v2 ] && ssh hostb cmp /run/tmp/dst/f$((64 * MiB + 7)) oob
		ok "--connect=oob" $? $said
		copy 0 --connect=oob --transport=rdma "${remote[@]}" hostb:oob $back/oob && cmp $here/f$((64 * MiB + 7)) $back/oob
		ok "--connect=oob, download" $? $said
	else
		copy 3 --connect=oob --transport=rdma "${remote[@]}" $here/f1 hostb:oob
		ok "--connect=oob is refused on iWARP" $? $said
	fi
fi

# TCP blocked at hostb, ssh open: RDMA's control connection, or all of it, goes through ssh.
ssh hostb "nft add table inet t && nft 'add chain inet t i { type filter hook input priority 0; }' &&
	nft 'add rule inet t i tcp dport != 22 tcp flags & (syn|ack) == syn drop'"
copy 0 -v --transport=auto "${remote[@]}" $here/f$((MiB + 1)) hostb:blocked && ssh hostb cmp /run/tmp/dst/f$((MiB + 1)) blocked
ok "with TCP blocked it still copies" $? $said
if [ "$fabric" = none ]; then
	[ "$(field transport)" = ssh ] && expect 'no TCP'
	ok "  through ssh, and says why" $? $said
elif [ "$fabric" = rxe ]; then # iWARP is TCP
	# Its key then comes from the secret that went through ssh.
	copy 0 --encrypt=always --transport=rdma "${remote[@]}" $here/f$((64 * MiB + 7)) hostb:sealed2 && sealed &&
		ssh hostb cmp /run/tmp/dst/f$((64 * MiB + 7)) sealed2
	ok "  also sealed" $? $said
fi
copy 3 --transport=tcp "${remote[@]}" $here/f1 hostb:never
ok "  and --transport=tcp says that it can't" $? $said
ssh hostb nft delete table inet t
finish
