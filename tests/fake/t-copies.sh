#!/usr/bin/env bash
# Whole copies over software verbs, both ways, over every kind of NIC: right bytes, by RDMA, and over the
# fabric that it says. Where no RDMA can be: over TCP, and the reason told.

# shellcheck source=tests/fake/fabric.sh
. "${FABRIC_LIB:?tests/fake/fabric.sh}"

begin_fabric
data src/f 9876543

# both NAME NICS FABRIC OPTION...
both() {
	local name=$1 nics=$2 fabric=$3 way

	shift 3
	here=$nics there=$nics
	for way in up down; do t "$name, $way" whole "$way" "$fabric" "$@"; done
}

both 'RoCE v2' roce2 roce-v2
both 'RoCE v2 without rdma_cm' roce2 roce-v2 --connect=oob
both 'RoCE v2 without a GUID' 'roce2 guid=0' roce-v2
both 'RoCE v1' roce1 roce-v1
both 'RoCE v1 without rdma_cm' roce1 roce-v1 --connect=oob
both 'InfiniBand by LID' ib infiniband --connect=oob
both 'InfiniBand by LID, without a GUID' 'ib guid=0' infiniband --connect=oob
both 'InfiniBand with IPoIB' 'ib addr=1' infiniband
both 'InfiniBand, a partition' 'ib pkeys=ffff/8001' infiniband --connect=oob --pkey=0x8001
both 'iWARP' iwarp iwarp
both 'iWARP with immediate data' 'iwarp imm=1' iwarp
both 'VPI, by rdma_cm' 'ib,roce2' roce-v2
both 'VPI, IPoIB' 'ib addr=1,roce2 state2=down' infiniband
both 'VPI, by LID' 'ib,roce2' infiniband --connect=oob --device=fake0:1
both 'VPI, the Ethernet port without rdma_cm' 'ib,roce2' roce-v2 --connect=oob --device=fake0:2
both 'two NICs on one subnet' 'roce2 net=1; roce2 net=1' roce-v2
both 'two NICs, the second' 'roce2 net=1; roce2 net=1' roce-v2 --device=fake1
both 'two NICs, iWARP' 'roce2; iwarp net=3' iwarp --device=fake1
both 'one element a request' 'roce2 sge=1' roce-v2
both 'one element, and no inline' 'roce2 sge=1 inline=0 cqe=64' roce-v2
both 'iWARP, one element' 'iwarp sge=1' iwarp
both 'small limits' 'roce2 msg=8388608 inline=0 cqe=64' roce-v2 --chunk-size=16M
# Only one of them has the small messages.
one_small() {
	here=$2 there=$3
	whole "$1" roce-v2 --chunk-size=16M
}
for way in up down; do
	t "small messages here, $way" one_small "$way" 'roce2 msg=8388608' roce2
	t "small messages there, $way" one_small "$way" roce2 'roce2 msg=8388608'
done
both 'a registration limit' 'roce2 memlock=16777216' roce-v2

# falls NAME HERE THERE REASON OPTION...: by TCP, and why; with --transport=rdma that is the error.
fallen() {
	local reason=$1

	shift
	copy "$@" src/f "box:$dir/dst/f"
	rc_is 0
	there_rc_is 0
	same src/f dst/f
	clean dst
	sum_is .transport tcp
	sum_is .fabric null
	[[ ${sums[fallback_reason]} == *"$reason"* ]] ||
		fail "the reason is: ${sums[fallback_reason]}, not: $reason"
	rm -f dst/f
	copy --transport=rdma "$@" src/f "box:$dir/dst/f"
	rc_is 3
	there_rc_is 3
	err_has "$reason"
	own_lines 1
	absent dst/f
	clean dst
}
falls() {
	here=$2 there=$3
	t "no RDMA: $1" fallen "${@:4}"
}
falls 'no modules here' '' roce2 'the kernel has no RDMA support'
falls 'no modules there' roce2 '' 'the kernel has no RDMA support'
falls 'no fabric in common' iwarp roce2 'no RDMA port here shares a fabric'
falls 'other subnets' 'roce2 net=1' 'roce2 net=2' 'Network is unreachable'
falls 'the port is down' 'roce2 state=down' roce2 'the port is not active but PORT_DOWN'
falls 'no subnet manager' ib 'ib lid=0 state=init' 'the port is not active but PORT_INIT'
falls 'no address and no LID' ib 'ib lid=0' 'the port has no LID and no IPoIB address' --connect=oob
falls 'InfiniBand without IPoIB' ib ib 'no RDMA port has an IP address to listen on'
falls 'a partition that is not there' 'ib pkeys=ffff/8001' ib 'the port has no partition key 0x8001' \
	--connect=oob --pkey=0x8001
falls 'limited members of a partition' 'ib pkeys=7fff rto=300' 'ib pkeys=7fff rto=300' \
	'retries exceeded' --connect=oob
falls 'iWARP out of band' iwarp iwarp 'no RDMA port here shares a fabric' --connect=oob
falls 'no such device' roce2 roce2 'there is no such RDMA device' --device=fake9

end
