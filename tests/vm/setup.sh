#!/usr/bin/env bash
# In one guest with RDMA: faults of the set-up. Each has its own message with the fix, falls back to TCP, and with
# --transport=rdma ends with 3. TAP.
# usage: setup.sh RCP FABRIC
# shellcheck source-path=SCRIPTDIR source=lib-guest.sh
. "$(dirname "$0")/lib-guest.sh"
# A copy: another user may have no way into the directory of the build.
cp "$1" /run/tmp/rcp && chmod 755 /run/tmp/rcp || exit 1
RCP=/run/tmp/rcp fabric=$2
file=/run/tmp/f
head -c 3000000 /dev/urandom >$file
# ssh's place is taken by the server itself: what is tried here happens on this side.
printf '#!/bin/sh\nexec %s --server\n' "$RCP" >/run/tmp/ssh
chmod 755 /run/tmp/ssh
chmod 1777 /run/tmp
to() { rm -f "/run/tmp/out/$1"; echo "10.9.0.2:/run/tmp/out/$1"; }
mkdir -m 1777 /run/tmp/out
same() { cmp $file "/run/tmp/out/$1"; }

# fault NAME TEXT ARG...: falls back to TCP telling TEXT; forced to RDMA it ends with 3 telling TEXT.
fault() {
	local name=$1 text=$2
	shift 2
	copy 0 -v -S /run/tmp/ssh "$@" $file "$(to a)" && [ "$(field transport)" = tcp ] && expect "$text" && same a
	ok "$name: falls back and tells" $? $said
	copy 3 -S /run/tmp/ssh --transport=rdma "$@" $file "$(to b)" && expect "$text" && [ ! -e /run/tmp/out/b ]
	ok "$name: --transport=rdma ends with 3" $? $said
}

copy 0 -S /run/tmp/ssh --transport=rdma $file "$(to a)" && same a
ok "RDMA works here" $? $said
fault "wrong --device" "nosuch0" --device=nosuch0
fault "wrong --rdma-addr" "192.0.2.1" --rdma-addr=192.0.2.1
[ "$fabric" = siw ] || fault "wrong --gid-index" "--gid-index" --gid-index=200
copy 0 -S /run/tmp/ssh --transport=rdma --device="${fabric}1" $file "$(to a)" && same a && expect "${fabric}1"
ok "--device chooses the device" $? $said

# A user without rights: RLIMIT_MEMLOCK counts, and /dev/infiniband may be closed to him.
as_user="$RCP"
printf '#!/bin/sh\nulimit -l 64\nexec setpriv --reuid 65534 --regid 65534 --clear-groups %s "$@"\n' "$as_user" >/run/tmp/rcp-64
printf '#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups %s "$@"\n' "$as_user" >/run/tmp/rcp-user
chmod 755 /run/tmp/rcp-64 /run/tmp/rcp-user
chmod 644 $file
RCP=/run/tmp/rcp-64
fault "ulimit -l 64" "ulimit -l"
RCP=/run/tmp/rcp-user
chmod 600 /dev/infiniband/uverbs*
fault "no permission on /dev/infiniband/uverbs*" "/dev/infiniband"
chmod 666 /dev/infiniband/uverbs*
chmod 600 /dev/infiniband/rdma_cm
fault "no permission on /dev/infiniband/rdma_cm" "/dev/infiniband/rdma_cm"
chmod 666 /dev/infiniband/rdma_cm
RCP=$as_user

ip addr flush dev va
ip addr flush dev vb
ip addr add 10.9.0.2/24 dev lo
fault "devices without an address" "address"
ip link set va down
ip link set vb down
fault "no active port" "not active"
finish
