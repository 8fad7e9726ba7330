#!/usr/bin/env bash
# The part of `tools/demo --rdma` that runs in the first of two guests; the second is hostb.
set -eu
rcp=$1
printf 'Host hostb\n ControlMaster auto\n ControlPath /run/tmp/mux\n ControlPersist 60\n' >>/root/.ssh/config
show() { printf '\n$ %s\n' "$*"; "$@"; }
show rdma link
head -c 64M /dev/urandom >/run/tmp/big.img
show "$rcp" -v --stats --rcp-path="$rcp" /run/tmp/big.img hostb:/run/tmp/
show "$rcp" -v --stats --rcp-path="$rcp" hostb:/run/tmp/big.img /run/tmp/back.img
show cmp /run/tmp/big.img /run/tmp/back.img
