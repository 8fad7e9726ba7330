#!/usr/bin/env bash
# In hosta, the daemon in hostb: copies over RDMA and TCP, sealed and not, and what of them the wire between the two shows. TAP.
# usage: daemon.sh RCP rxe|siw
# shellcheck source-path=SCRIPTDIR source=lib-guest.sh
. "$(dirname "$0")/lib-guest.sh"
RCP=$(realpath "$1") fabric=$2
[ "$fabric" = rxe ] && name=roce-v2 || name=iwarp
command -v python3 >/dev/null || { echo '1..0 # SKIP python3 is not installed'; exit 0; }
cd /run/tmp || exit 1
mkdir -p keys from to
chmod 700 keys
"$RCP" --keygen alice keys/alice >/dev/null || { echo 'Bail out! no key'; exit 1; }
printf '%s\n' 'keys = /run/tmp/keys' '[m]' 'path = /run/tmp/mod' 'writable = yes' 'keys = *' 'user = nobody' >conf
echo "$RCP" >program
if ! tar c keys conf program | ssh hostb 'cd /run/tmp && mkdir mod && chown nobody mod && tar x &&
	{ setsid $(cat program) --daemon --config conf >/dev/null 2>daemon.log & } && echo $! >pid &&
	for i in $(seq 100); do grep -q . daemon.log && exit; sleep 0.1; done; exit 1'; then
	echo 'Bail out! no daemon'
	exit 1
fi
# Text that is found again in any packet that carries a part of it.
yes 'the quick brown rcp jumps over the lazy wire' | head -c 4M >from/text
head -c 5M /dev/urandom >from/noise

# What goes over any device, until it is told to end; then whether the text was there.
cat >capture.py <<'END'
import select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 24) # SO_RCVBUFFORCE
print('ready', flush=True)
seen = packets = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    if select.select([s], [], [], 0.2)[0]:
        data = s.recv(70000)
        packets += 1
        seen += b'brown rcp jumps over' in data
print('packets %d text %d' % (packets, seen))
END

# watched COMMAND...: its status; the capture's last line is in ./seen
watched() {
	local rc=0
	mkfifo stop
	python3 capture.py <stop >seen 2>&1 &
	local capture=$!
	exec 8>stop
	for _ in {1..100}; do grep -q ready seen && break; sleep 0.1; done
	"$@" || rc=$?
	exec 8>&-
	wait $capture
	rm -f stop
	cat seen >>$said
	return $rc
}
shown() { grep -qE 'text [1-9]' seen; }
hidden() { grep -qE 'packets [1-9][0-9]+ text 0$' seen; }
rdma() { [ "$(field transport)" = rdma ] && [ "$(field fabric)" = "$name" ]; }
# shellcheck disable=SC2029 # $1 is ours
same() { ssh hostb cat "/run/tmp/$1" | cmp - "from/${1##*/}" >>$said; }
d() { copy 0 --key=keys/alice "$@"; }

watched d --transport=rdma from/text rcp://hostb/m/ && rdma && same mod/text
ok "up over RDMA" $? $said
shown; ok "  its text is on the wire" $? $said
ssh hostb rm -f /run/tmp/mod/text
watched d --transport=rdma --encrypt=always from/text rcp://hostb/m/ && rdma && same mod/text &&
	[ "$(number sealed_bytes)" = 4194304 ]
ok "up over RDMA, sealed" $? $said
hidden; ok "  its text is not" $? $said
watched d --transport=rdma --encrypt=always rcp://hostb/m/text to/ && rdma && cmp from/text to/text
ok "down over RDMA, sealed" $? $said
hidden; ok "  its text is not" $? $said
watched d --transport=tcp rcp://hostb/m/text to/tcp && cmp from/text to/tcp && [ "$(field encrypted)" != null ]
ok "down over TCP, sealed unless told" $? $said
hidden; ok "  its text is not on the wire" $? $said
watched d --transport=tcp --encrypt=never rcp://hostb/m/text to/plain && cmp from/text to/plain
ok "down over TCP, not sealed" $? $said
shown; ok "  its text is" $? $said
d -r --transport=rdma from/. rcp://hostb/m/tree && rdma && same mod/tree/text && same mod/tree/noise
ok "a tree over RDMA" $? $said
copy 1 --key=keys/alice --transport=rdma from/noise rcp://hostb/m/no/such/noise
ok "what can't be written is told" $? $said
ssh hostb 'cd /run/tmp && kill "$(cat pid)" && for i in $(seq 100); do grep -q ": ended" daemon.log && break; sleep 0.1; done
	cat daemon.log; grep -q ": ended" daemon.log' >$said 2>&1
ok "the daemon ends by SIGTERM" $? $said
grep -q 'alice' $said; ok "  and its log tells who copied" $? $said
finish
