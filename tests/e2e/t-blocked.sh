#!/bin/bash
# Where TCP between the hosts is blocked, all goes through ssh, and the summary says why.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
own_net
begin
start_sshd
data src/big 67108871
mkdir src/tree src/tree/empty
for i in 1 2 3 4 5 6 7 8 9; do data "src/tree/$i" $((i * 7001)); done

only_ssh="iif lo tcp dport $port accept; iif lo tcp sport $port accept"

reject='tcp flags & (syn | ack) == syn reject with tcp reset'

# by_ssh REASON ARG...: the copy works, went through ssh, and says why
by_ssh() {
	local reason=$1

	shift
	rcp --json "$@"
	filter
	rc_is 0
	sum_is .transport ssh
	sum_is .status ok
	is 'the reason' "$(summary "(.fallback_reason | contains(\"$reason\"))")" true ||
		note "$(summary .fallback_reason)"
	is 'the same in the transport event' "$(event transport .fallback_reason)" "$(summary .fallback_reason)"
	clean dst
}

dropped() {
	filter "$only_ssh" 'meta l4proto tcp drop'
	by_ssh 'no TCP' "$@"
}

rejected() {
	filter "$only_ssh" "$reject"
	by_ssh 'no TCP' "$@"
}

up() { "$@" src/big "box:$dir/dst/" && same src/big dst/big; }
down() { "$@" "box:$dir/src/big" dst/ && same src/big dst/big; }
up6() { has_ipv6 || skip 'no IPv6 on loopback'; "$@" src/big "box6:$dir/dst/" && same src/big dst/big; }
tree_up() { "$@" -r src/tree "box:$dir/dst/" && same_tree src/tree dst/tree; }
tree_down() { "$@" -r "box:$dir/src/tree" dst/ && same_tree src/tree dst/tree; }

refused() {
	filter "$only_ssh" "$1"
	rcp --transport=tcp src/big "box:$dir/dst/"
	filter
	rc_is 3
	err_lines 1
	err_has box 'open a TCP port to that host' '--transport=auto'
	absent dst/big
}

# A server that may not listen: its firewall is not the only thing that can close a port.
no_listen() {
	[ -z "${E2E_SANITIZED:-}" ] || { skip 'a sanitizer must be loaded first'; return; }
	echo "E2E_FAIL=listen LD_PRELOAD='$E2E_PRELOAD'; export E2E_FAIL LD_PRELOAD" >rc
	by_ssh 'opened no TCP port' src/big "box:$dir/dst/" && same src/big dst/big
}

verbose() {
	filter "$only_ssh" "$reject"
	rcp -v src/big "box:$dir/dst/"
	filter
	rc_is 0
	err_has 'transport ssh' 'no TCP' 'no RDMA'
}

t 'packets dropped, up' up dropped
t 'packets dropped, down, a tree' tree_down dropped
t 'packets dropped, IPv6' up6 dropped
t 'connections rejected, up' up rejected
t 'connections rejected, down' down rejected
t 'connections rejected, up, a tree' tree_up rejected
t 'no port there' no_listen
t '-v tells why' verbose
t '--transport=tcp fails, dropped' refused 'meta l4proto tcp drop'
t '--transport=tcp fails, rejected' refused "$reject"
end
