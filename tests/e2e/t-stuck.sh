#!/bin/bash
# Children of the daemon, and a restricted login's server, that hang or are at work for long: none keeps its place for ever,
# and none is ended for working.
# shellcheck disable=SC2119
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/daemon.sh"
[ -z "${E2E_SANITIZED:-}" ] || skip_all 'a sanitizer wants to be loaded first'
head -c 52428800 src/big >src/half

# failing WHAT [VARIABLE...]: a daemon with test hooks, in whose children WHAT goes wrong
failing() {
	printf '#!/bin/sh\nexec env LD_PRELOAD="%s" E2E_FAIL="%s" %s "%s" "$@"\n' "$E2E_PRELOAD" "$1" "${*:2}" "$RCP_HOOKS" >bin/failing
	chmod +x bin/failing
	stop_daemon
	daemon_program=$dir/bin/failing start_daemon 'idle-seconds = 10'
}

# All that is to be written has come, and is read back.
in_part() { [ "$(stat -c %s "mod/.$1.rcp-part" 2>/dev/null)" = "$2" ] && moved $(($2 - 1)); }

# A worker does not come back from a call. Its client goes: the child goes, too.
client_gone() {
	failing 'hang .rcp-part' RCP_TEST_LAST_MS=9500 # after the 8 s in which its line for the log is said
	d_start --json --verify --retries=0 src/half "$(url mod/h)"
	await 30 in_part h 52428800 || fail 'it does not get so far'
	kill -9 "$copy"
	wait "$copy" 2>/dev/null
	all_gone 16
	logged 'its work did not end with its connection: ended'
	rm -f mod/.h.*
}

# The client stays, and nothing moves: idle-seconds ends it, and the worker's call does not keep it.
nothing_moves() {
	d_start --json --verify --retries=0 src/half "$(url mod/h)"
	reap 40 "$copy"
	rc_is 6
	err_has 'nothing moved for 10 s'
	all_gone 16
	logged 'nothing moved for 10 s'
	rm -f mod/.h.*
}

# To read back for longer than idle-seconds is no standing still; nor is the check of what an earlier run left. And when
# nobody wants it any more it ends: long before the file does.
slow_but_moving() {
	local begun

	failing 'slow .rcp-part'
	d_start --json --verify --retries=0 src/big "$(url mod/s)"
	await 30 in_part s 104857600 || fail 'it does not get so far'
	kill -9 "$copy"
	wait "$copy" 2>/dev/null
	all_gone 5
	exists mod/.s.rcp-part mod/.s.rcp-journal
	begun=$SECONDS
	d --json --verify --retries=0 src/big "$(url mod/s)"
	rc_is 0
	same src/big mod/s
	[ "$(summary .resumed_bytes)" = 104857600 ] || fail "resumed: $(summary .resumed_bytes)"
	[ $((SECONDS - begun)) -gt 20 ] || fail 'it was not slow'
	rm mod/s
}

# A child that does nothing at all, and ends by no signal but the last.
stands_still() {
	local child

	printf '#!/bin/sh\nexec env RCP_TEST_SILENT_MS=8000 "%s" "$@"\n' "$RCP_HOOKS" >bin/failing
	stop_daemon
	daemon_program=$dir/bin/failing start_daemon
	rcp_start --key=bob.key --json --retries=0 --bwlimit=1M src/big "$(url other/o)"
	await 30 moved 1000000 || fail 'nothing moves'
	child=$(children | tail -n 1)
	kill -STOP "$child"
	all_gone 20
	logged 'took too long, ended'
	reap 20 "$copy"
	rcp --key=bob.key src/f "$(url other/f)"
	rc_is 0
	rm -f other/f other/.o.*
	# One that lives and is slow stays for longer than that.
	rcp_start --key=bob.key --json --retries=0 --bwlimit=8M src/big "$(url other/o)"
	reap 40 "$copy"
	rc_is 0
	same src/big other/o
	rm -f other/o
}

# Whatever it does: max-seconds is all that a connection has. A rerun goes on.
time_is_over() {
	stop_daemon
	start_daemon 'max-seconds = 10'
	d_start --json --retries=0 --bwlimit=6M src/big "$(url mod/m)"
	reap 25 "$copy"
	rc_is 6
	err_has 'its time is over (max-seconds of the daemon)'
	logged 'its time is over (max-seconds)'
	d --json src/big "$(url mod/m)"
	rc_is 0
	same src/big mod/m
	[ "$(summary .resumed_bytes)" -gt 20000000 ] || fail 'nothing was resumed'
	rm mod/m
	stop_daemon
	start_daemon
}

# A child that was taken over while it lists has no longer than one that hangs, whatever it says.
lists_for_ever() {
	printf '#!/bin/sh\nexec env RCP_TEST_SILENT_MS=2000 RCP_TEST_TAKEN=1 "%s" "$@"\n' "$RCP_HOOKS" >bin/taken
	chmod +x bin/taken
	stop_daemon
	daemon_program=$dir/bin/taken start_daemon
	d_start --retries=0 "$(url)"
	await 10 some_child || fail 'no child'
	all_gone 12
	logged 'took too long, ended'
	reap 20 "$copy"
	stop_daemon
	start_daemon
}
some_child() { [ -n "$(children)" ]; }

# The same hang behind ssh, where --restrict holds the login: ssh ends, and nobody else would end the server.
restricted() {
	printf '#!/bin/sh\nexec 3<&0\nLD_PRELOAD="%s" E2E_FAIL="hang .rcp-part" RCP_TEST_LAST_MS=3000 "%s" --server --restrict="%s" <&3 &\necho $! >"%s"\nwait\n' \
		"$E2E_PRELOAD" "$RCP_HOOKS" "$dir/mod" "$dir/server.pid" >bin/held
	chmod +x bin/held
	rm -f server.pid
	rcp_start --json --verify --retries=0 -S "$dir/bin/held" src/half box:h
	await 30 in_part h 52428800 || fail 'it does not get so far'
	server=$(<server.pid)
	pids+=("$server")
	kill -9 "$copy"
	wait "$copy" 2>/dev/null
	await 15 is_gone "$server" || fail 'the server stays'
	rm -f mod/.h.*
}

t 'a worker that hangs; its client goes' client_gone
t 'a worker that hangs, and idle-seconds' nothing_moves
t 'a worker that is slow' slow_but_moving
t 'a child that stands still' stands_still
t 'max-seconds' time_is_over
t 'a list without an end' lists_for_ever
t 'a worker that hangs, restricted' restricted
stop_daemon
end
