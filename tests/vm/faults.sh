#!/usr/bin/env bash
# In hosta, hostb behind a real ssh: peers, ssh and the network are lost while a copy runs over RDMA. Each ends with a
# true status and a message within 15 s, leaves the old target alone, and a rerun finishes the job. TAP.
# usage: faults.sh RCP FABRIC
# shellcheck source-path=SCRIPTDIR source=lib-guest.sh
. "$(dirname "$0")/lib-guest.sh"
RCP=$(realpath "$1") fabric=$2
file=/run/tmp/f
head -c 48M /dev/urandom >$file
sum=$(md5sum <$file)
printf 'Host hostb\n ControlMaster auto\n ControlPath /run/tmp/mux\n ControlPersist 600\n' >>/root/.ssh/config
remote=(--rcp-path="$RCP" -S ssh --transport=rdma --retries=0)

# start UP|DOWN: a slow copy over RDMA in the background ($copier), with an old target; returns when chunks have arrived.
start() {
	local i
	if [ "$1" = up ]; then
		ssh hostb 'rm -rf /run/tmp/d; mkdir /run/tmp/d; echo old >/run/tmp/d/f'
		"$RCP" --json --bwlimit=3M "${remote[@]}" $file hostb:/run/tmp/d/f >"$json" 2>"$said" &
	else
		rm -rf /run/tmp/d; mkdir /run/tmp/d; echo old >/run/tmp/d/f
		ssh hostb "[ -e /run/tmp/src ]" || ssh hostb 'cat >/run/tmp/src' <$file
		"$RCP" --json --bwlimit=3M "${remote[@]}" hostb:/run/tmp/src /run/tmp/d/f >"$json" 2>"$said" &
	fi
	copier=$!
	for ((i = 0; i < 300; i++)); do
		grep -qE '"event":"progress","bytes":[0-9]{7}' "$json" && return 0
		kill -0 "$copier" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

# ended STATUS: the copier ends by itself within 15 s of guest time, with this status.
ended() {
	local i got=0
	for ((i = 0; i < 150; i++)); do
		kill -0 "$copier" 2>/dev/null || break
		sleep 0.1
	done
	if kill -0 "$copier" 2>/dev/null; then
		echo "still running after 15 s" >>"$said"
		cat /proc/"$copier"/task/*/stack >>"$said" 2>/dev/null
		kill -9 "$copier"
		wait "$copier" 2>/dev/null
		return 1
	fi
	wait "$copier" || got=$?
	echo "status $got, wanted $1" >>"$said"
	[ "$got" = "$1" ]
}

server_gone() {
	local i
	for ((i = 0; i < 150; i++)); do
		ssh hostb 'pgrep -f "[r]cp --server" >/dev/null' || return 0
		sleep 0.1
	done
	echo "the server still runs" >>"$said"
	return 1
}
old_kept() {
	if [ "$1" = up ]; then [ "$(ssh hostb cat /run/tmp/d/f)" = old ]; else [ "$(cat /run/tmp/d/f)" = old ]; fi
}
only_parts() {
	local left
	if [ "$1" = up ]; then left=$(ssh hostb ls -A /run/tmp/d); else left=$(ls -A /run/tmp/d); fi
	! grep -qvxE 'f|\.f\.rcp-(part|journal)' <<<"$left"
}
rerun() {
	if [ "$1" = up ]; then
		copy 0 "${remote[@]}" $file hostb:/run/tmp/d/f && [ "$(ssh hostb 'md5sum </run/tmp/d/f')" = "$sum" ] &&
			[ "$(ssh hostb ls -A /run/tmp/d)" = f ]
	else
		copy 0 "${remote[@]}" hostb:/run/tmp/src /run/tmp/d/f && [ "$(md5sum </run/tmp/d/f)" = "$sum" ] && [ "$(ls -A /run/tmp/d)" = f ]
	fi
}

# fault NAME UP|DOWN STATUS COMMAND: what happens when COMMAND strikes.
fault() {
	local name=$1 way=$2 status=$3 rc=0
	shift 3
	start "$way" || rc=1
	{ "$@" || rc=1; ended "$status" || rc=1; } 2>/dev/null # bash would say who was killed
	ok "$name, $way: ends with $status in time" $rc $said
	server_gone && old_kept "$way" && only_parts "$way"
	ok "$name, $way: the server ends, the old target stays, only a partial file is left" $? $said
	rerun "$way"
	ok "$name, $way: a rerun finishes" $? $said
}
kill_server() { ssh hostb 'pkill -9 -f "[r]cp --server"'; }
kill_self() { kill -9 "$copier"; }

fault "kill -9 of the server" up 6 kill_server
fault "kill -9 of the server" down 6 kill_server
fault "kill -9 of the initiator" up 137 kill_self
fault "kill -9 of the initiator" down 137 kill_self

# The network goes: both hosts drop all that comes, for 40 s. (Not at the sender: QEMU holds what a downed link was sent, and
# the kernel waits for that when it destroys a queue pair; a drop on the way out fails rxe's send, and its CM stays broken.)
cut_off() {
	local i cut='cd /; printf "%s\n" "table inet cut {" "chain i { type filter hook input priority 0; policy drop; iif lo accept; }" "}" >/run/tmp/cut
		nohup setsid sh -c "while kill -0 $$; do sleep 0.05; done; nft -f /run/tmp/cut; sleep 40; nft delete table inet cut" >/dev/null 2>&1 </dev/null &'
	ssh hostb bash <<<"$cut" # once that shell is gone, so that its end still comes here
	bash <<<"$cut"
	for ((i = 0; i < 100; i++)); do nft list table inet cut >/dev/null 2>&1 && break; sleep 0.1; done
}
start up
cut_off
ended 6
ok "the network is lost: ends with 6 in time" $? $said
# Back is back when both address families answer.
for address in 10.9.1.2 fd09:1::2; do
	for ((i = 0; i < 300; i++)); do timeout 3 bash -c "exec 3<>/dev/tcp/$address/22" 2>/dev/null && break; sleep 0.2; done
done
rm -f /run/tmp/mux
server_gone && old_kept up && only_parts up
ok "the network is lost: the server ends, too" $? $said
rerun up
ok "the network is back: a rerun finishes" $? $said
[ "$fabric" ] && finish
