#!/usr/bin/env bash
# Every call of verbs and rdma_cm fails in turn, at either end, the first time and always, in a whole
# copy: it ends well, another way where it must, and says why.
# usage: t-calls.sh up|down

# shellcheck source=tests/fake/fabric.sh
. "${FABRIC_LIB:?tests/fake/fabric.sh}"

way=${1:?up or down}
calls=(ibv_get_device_list ibv_open_device ibv_query_device ibv_query_port ibv_alloc_pd ibv_reg_mr
	ibv_create_comp_channel ibv_create_cq ibv_req_notify_cq ibv_poll_cq ibv_create_qp rdma_create_qp
	ibv_modify_qp ibv_query_qp ibv_post_send ibv_post_recv rdma_create_event_channel rdma_create_id
	rdma_bind_addr rdma_listen rdma_resolve_addr rdma_resolve_route rdma_connect rdma_accept
	rdma_migrate_id rdma_set_option)
often=(ibv_reg_mr ibv_post_send ibv_post_recv ibv_poll_cq ibv_req_notify_cq)

# survives END RULE
survives() {
	local told

	here='roce2 rto=300' there='roce2 rto=300' here_faults='' there_faults=''
	if [ "$1" = here ]; then here_faults=$2; else there_faults=$2; fi
	if [ "$way" = up ]; then copy src/f "box:$dir/dst/f"; else copy "box:$dir/src/f" dst/f; fi
	rc_is 0
	there_rc_is 0
	same src/f dst/f
	clean dst
	load_sums
	is 'errors told' "$(summary '.errors | length')" 0
	# What made it go by TCP is told: the reason, or that a link was lost.
	[ "${sums[transport]}" = rdma ] && return
	is 'summary .transport' "${sums[transport]}" tcp
	told=${sums[fallback_reason]}
	[ "$told" != null ] || grep -q 'link lost' err || fail 'by TCP, and no reason told'
}

begin_fabric
data src/f 3456789
for call in "${calls[@]}"; do
	for where in here there; do t "$way: $call, $where" survives $where "call:$call 1+ EIO"; done
done
for call in "${often[@]}"; do
	for n in 2 4 9; do
		for where in here there; do t "$way: $call $n, $where" survives $where "call:$call $n ENOMEM"; done
	done
done
end
