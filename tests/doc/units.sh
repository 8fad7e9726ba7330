#!/bin/sh
# systemd's own look at rcpd.service and rcpd.socket. units.sh SERVICE.in SOCKET
command -v systemd-analyze >/dev/null || { echo 'systemd-analyze is not installed'; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# The program and the pages are not installed where this runs.
sed 's|@bindir@/rcp|/bin/true|; /^Documentation=/d' "$1" >"$dir/rcpd.service"
sed '/^Documentation=/d' "$2" >"$dir/rcpd.socket"
cd "$dir" || exit 1
said=$(systemd-analyze verify ./rcpd.service ./rcpd.socket 2>&1) || { echo "verify: $said"; exit 1; }
# Of other units, which this host may lack, nothing counts.
if printf '%s\n' "$said" | grep '^rcpd\|rcpd\.[a-z]*:[0-9]'; then exit 1; fi
# Exposure from 0 to 10; --threshold is in tenths. Older ones can't do it without systemd running.
systemd-analyze security --help 2>/dev/null | grep -q -- --offline || exit 0
systemd-analyze security --offline=true --threshold=35 ./rcpd.service >said 2>&1 || { tail -n 3 said; exit 1; }
