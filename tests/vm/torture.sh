#!/usr/bin/env bash
# In hosta, hostb behind a real ssh: tests/torture over RDMA, a few seeds unless arguments say more. TAP.
# usage: torture.sh RCP [trees|kills OPTION...]
set -u
RCP=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")/../torture" && pwd)
export RCP TORTURE_DIR=/run/tmp/torture-a TORTURE_HOST=hostb TORTURE_REMOTE=1 PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null || { echo '1..0 # SKIP python3 is not installed'; exit 0; }
mkdir -p "$TORTURE_DIR"
# What crashes leaves its core in $RCP_LAB_OUT.
ulimit -c unlimited
echo /run/out/core.%e.%p >/proc/sys/kernel/core_pattern
# One login for all: under emulation each costs seconds.
printf 'Host hostb\n ControlMaster auto\n ControlPath /run/tmp/mux\n ControlPersist 600\n' >>/root/.ssh/config
ssh hostb true || { echo 'Bail out! no login to hostb'; exit 1; }

torture() { python3 "$here/torture.py" "$@" --transport rdma </dev/null; }

if [ $# != 0 ]; then
	torture "$@"
	exit
fi
bad=0
export TORTURE_COUNT=$TORTURE_DIR/count
torture trees --seeds 2-3 --ways up,down --users root || bad=1
torture kills --points 5 || bad=1
echo "1..$(<"$TORTURE_COUNT")"
exit $bad
