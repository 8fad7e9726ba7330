#!/usr/bin/env bash
# In a lab guest: verbs links over its first device in every way there is, hostile ends, faults and
# set-up errors among them. TAP.
# usage: verbs-lab.sh VERBS-PAIR CONTRACT
set -u
pair=$1 contract=$2
kernel=$(uname -r)
fabric=$LAB_FABRIC
dev=${fabric}0
same=(--from="$dev" --to="$dev")
few=(--chunks=60 --bytes=131072 --slots=8)
n=0
said=/run/tmp/said

# result STATUS NAME
result() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		tail -n 20 "$said" | sed 's/^/# /'
	fi
}
# good OPTION...: it ends well. siw sometimes loses the wake-up for the first message of a connection.
good() {
	local try status
	for try in 1 2 3; do
		status=0
		timeout 120 "$pair" "$@" >"$said" 2>&1 || status=$?
		if [ $status = 0 ] || [ "$fabric" != siw ] || ! grep -q 'no word from the peer that connected' "$said"; then
			break
		fi
		echo "# try $try: a lost wake-up"
	done
	result $status "$*"
}
# says TEXT COMMAND...: it fails within 60 s and says so.
says() {
	local text=$1 status=0
	shift
	timeout 60 "$@" >"$said" 2>&1 || status=$?
	[ $status != 0 ] && [ $status != 124 ] && grep -qF -- "$text" "$said"
	result $? "says \"$text\""
}

# grown FILE BY: returns when the counter in FILE has grown by so much, within 60 s.
grown() {
	local first i

	first=$(cat "$1")
	for ((i = 0; i < 600; i++)); do
		[ "$(cat "$1")" -lt $((first + $2)) ] || return 0
		sleep 0.1
	done
	return 1
}

# ---- bytes, both ways to start, both ways to send ----
for role in '' --sink-initiates; do
	for way in '' --pair; do
		# shellcheck disable=SC2086 # empty is no option
		good "${same[@]}" "${few[@]}" $role $way --varying --hold
	done
done
good "${same[@]}" "${few[@]}" --ipv6
good "${same[@]}" --slots=1 --chunks=40 --bytes=65536
good "${same[@]}" --slots=64 --sink-slots=4 --chunks=60 --bytes=65536
good "${same[@]}" --slots=4 --sink-slots=64 --chunks=60 --bytes=65536
good "${same[@]}" --bytes=4096 --chunks=3000 --slots=64 --varying --hold
good "${same[@]}" --bytes=4096 --chunks=3000 --slots=3
# Registering a file's mapping is for newer kernels.
case $kernel in 6.1.*) ;; *) good "${same[@]}" "${few[@]}" --mapped --pair ;; esac
good "${same[@]}" "${few[@]}" --close-early
good "${same[@]}" --chunks=32 --close-early
if [ "$fabric" = rxe ]; then
	good "${same[@]}" "${few[@]}" --oob --varying --hold
	good "${same[@]}" "${few[@]}" --oob --sink-initiates --pair
	good "${same[@]}" "${few[@]}" --oob --close-early
	good "${same[@]}" "${few[@]}" --oob --kill=sink
fi

# ---- ends that die, lie or are not who they should be ----
for role in '' --sink-initiates; do
	for end in source sink; do
		# shellcheck disable=SC2086
		good "${same[@]}" "${few[@]}" $role --kill=$end
	done
	# shellcheck disable=SC2086
	good "${same[@]}" "${few[@]}" $role --bad-proof
done
for evil in chunk-range chunk-generation chunk-long chunk-huge chunk-short credit hello junk nothing \
	credit-range credit-twice credit-all chunk; do
	good "${same[@]}" "${few[@]}" --hold --evil=$evil
done
if [ "$fabric" = rxe ]; then
	for evil in imm-range imm-generation imm-short imm-empty; do
		good "${same[@]}" "${few[@]}" --hold --evil=$evil
	done
fi

# ---- the contract ----
for try in 1 2 3; do
	status=0
	"$contract" 'verbs*' >"$said" 2>&1 || status=$?
	if [ $status = 0 ] || [ "$fabric" != siw ]; then break; fi
	grep -E 'ERROR|FAILED' "$said" | sed "s/^/# try $try: /"
done
result "$status" "contract"

# ---- set-up ----
says 'there is no such RDMA device (--device: choose from: ' "$pair" --from=nosuch --to="$dev"
says 'it has no port 9' "$pair" --from="$dev:9" --to="$dev"
says 'no usable RDMA port has this address' "$pair" "${same[@]}" --addr=192.0.2.1
case $fabric in
rxe) says 'there is no GID 77 (choose from: 0' "$pair" "${same[@]}" --gid-index=77 ;;
siw) says 'iWARP has no GIDs' "$pair" "${same[@]}" --gid-index=1 ;;
esac
# A copy: another user may have no way into the directory of the build.
cp "$pair" /run/tmp/verbs-pair && chmod 755 /run/tmp/verbs-pair && pair=/run/tmp/verbs-pair
nobody=(setpriv --reuid=65534 --clear-groups --bounding-set=-all --inh-caps=-all)
chmod 600 /dev/infiniband/*
says 'Permission denied (give the user read and write access to /dev/infiniband/uverbs' "${nobody[@]}" "$pair"
chmod 666 /dev/infiniband/uverbs*
says 'read and write access to /dev/infiniband/rdma_cm' "${nobody[@]}" "$pair" "${same[@]}"
chmod 666 /dev/infiniband/*
limited() { (ulimit -l "$1" && shift && exec "${nobody[@]}" "$pair" "$@"); }
limited 9000 "${same[@]}" --chunks=8 >"$said" 2>&1 && grep -q '4 slots of 32 for want of memory' "$said"
result $? "a ring of what memlock allows"
limited 64 "${same[@]}" --chunks=8 >"$said" 2>&1
grep -q 'locked memory limit is 64 KiB: raise it' "$said"
result $? "no ring under a memlock of 64 KiB"

# ---- faults of the network ----
ip neigh add 10.9.0.77 lladdr 02:00:00:00:00:01 dev va nud permanent
says 'no answer to the connection request within 3000 ms' timeout 20 "$pair" "${same[@]}" --remote=10.9.0.77
says "RDMA address answers to \`ping\`" timeout 20 "$pair" "${same[@]}" --remote=10.9.0.78
if [ "$fabric" = siw ]; then
	modprobe sch_netem
	(grown /sys/class/net/lo/statistics/tx_bytes 10000000 && tc qdisc add dev lo root netem loss 100%) &
	timeout 60 "$pair" "${same[@]}" --chunks=20000 --no-check --close-after=9000 >"$said" 2>&1
	result $? "a close on a path that is dead"
	tc qdisc del dev lo root
fi
# Not on siw: with a connection open its own driver dies of it on 6.1 (siw_netdev_down).
if [ "$fabric" = rxe ]; then
	(grown "/sys/class/infiniband/$dev/ports/1/hw_counters/sent_pkts" 2000 && ip link set va down) &
	# The kernel tells of the port or of the connections' end first, as it comes.
	says 'down: ' timeout 60 "$pair" "${same[@]}" --chunks=20000 --no-check
	grep -qE 'port (error|is no longer active)|the peer closed the connection' "$said"
	result $? "  and why"
	wait
else
	ip link set va down
fi
says 'the port is not active but down' "$pair" "${same[@]}"
ip link set va up
ip addr flush dev va
case $fabric in
rxe) says 'no RDMA port has an IP address to listen on' "$pair" "${same[@]}" ;;
siw) says 'the port has no IP address (give its netdev an IP address' "$pair" "${same[@]}" ;;
esac
echo "1..$n"
