#!/bin/bash
# What the daemon does about too much: clients that stall, strangers, crowds, who wants more than there is.
# shellcheck disable=SC2119
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/daemon.sh"

limited() {
	local begun=$EPOCHREALTIME

	d --slots=64 --chunk-size=4M src/big "$(url slow/b)"
	rc_is 0
	same src/big mod/b
	[ $(((${EPOCHREALTIME/./} - ${begun/./}) / 1000)) -gt 4300 ] || fail '100M at 20M a second took under 4.3 s'
	rm mod/b
}

# It says nothing, or half of it, or stops after a step: its place is free again in time.
stalls() {
	local step begun=$SECONDS

	for step in tls hello module start; do
		hold 1 "$step"
		all_gone 9
	done
	drop_holders
	exec 7<>"/dev/tcp/127.0.0.1/$dport"
	await 5 at_least 1 || fail 'no child'
	all_gone 6
	exec 7>&-
	exec 7<>"/dev/tcp/127.0.0.1/$dport"
	printf '\x16\x03\x01\x02\x00\x01\x00\x01' >&7
	await 5 at_least 1
	all_gone 6
	exec 7>&-
	exec 7<>"/dev/tcp/127.0.0.1/$dport"
	head -c 20000 src/f >&7 2>/dev/null
	all_gone 6
	exec 7>&-
	[ $((SECONDS - begun)) -lt 50 ] || fail 'it took too long'
	d src/f "$(url mod/after)"
	rc_is 0
	rm -f mod/after
}

# The same in what comes then: a way to the control connection, links, data. Side by side, since some have long.
late_stalls() {
	local step

	stop_daemon
	start_daemon 'idle-seconds = 10'
	for step in ready switch caps data; do hold 1 "$step"; done
	await 5 at_least 4 || fail 'they do not stay'
	all_gone 100
	logged 'nothing moved for 10 s' 'did not say in time which links it has' 'no SWITCH from the peer within 20 s'
	drop_holders
	d src/f "$(url mod/after)"
	rc_is 0
	rm -f mod/after mod/.f.*
	stop_daemon
	start_daemon
}

# More memory than was agreed on is not to be had.
large_ring() {
	RCP_TEST_STALL='never, with a large ring' timeout 60 "$RCP_HOOKS" --key=alice.key --retries=0 --chunk-size=16M src/f "$(url mod/)" </dev/null >out 2>err
	rc=$?
	rc_is 3
	err_has "a link that can't be"
	absent mod/f
}

# stranger N FROM SECONDS: N connections that say nothing; how each ended is in "strangers"
strangers() {
	cat >strangers.py <<-END
		import resource, select, socket, sys, time
		n, source, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
		soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
		resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
		all = {}
		for i in range(n):
		    s = socket.socket()
		    s.bind((source, 0))
		    s.connect(('127.0.0.1', $dport))
		    s.setblocking(False)
		    all[s.fileno()] = s
		open('strangers.up', 'w').close()
		ends, until = {}, time.monotonic() + seconds
		poll = select.poll()
		for fd in all:
		    poll.register(fd, select.POLLIN)
		while all and time.monotonic() < until:
		    for fd, event in poll.poll(200):
		        try:
		            said = all[fd].recv(100)
		        except OSError as e:
		            said = str(e.errno).encode()
		        poll.unregister(fd)
		        ends[said.hex()] = ends.get(said.hex(), 0) + 1
		        all.pop(fd).close()
		with open('strangers', 'w') as f:
		    for said in ends:
		        print(ends[said], said, file=f)
	END
	rm -f strangers strangers.up
	python3 strangers.py "$@" &
	stranger=$!
	pids+=("$stranger")
	await 30 test -f strangers.up || fail 'the strangers do not get in'
}
stranger=''
no_strangers() {
	kill "$stranger" 2>/dev/null
	wait "$stranger" 2>/dev/null
	all_gone 20
}

# Who has no key keeps nobody out who has one, whether they come from one place or from two.
fair() {
	local from

	stop_daemon
	handshake=30 start_daemon
	for from in 127.0.0.2 127.0.0.1; do
		strangers 130 "$from" 60
		await 5 at_least 64 || fail 'not as many as may be looked at'
		[ "$(children | wc -l)" -le 70 ] || fail "$(children | wc -l) children for strangers"
		d src/f "$(url mod/fair)"
		rc_is 0
		same src/f mod/fair
		rm -f mod/fair
		no_strangers
	done
}

# More than can wait: an alert tells them, and rcp its user.
turned_away() {
	local before

	stop_daemon
	handshake=30 start_daemon
	before=$(descriptors)
	strangers 2000 127.0.0.1 10
	await 30 is_gone "$stranger" || fail 'the strangers stay'
	wait "$stranger"
	grep -q '^[1-9][0-9]* 15030300020250$' strangers || { fail 'nobody was told'; note "$(cat strangers)"; }
	! grep -qv ' 15030300020250$\| $\| 313034$' strangers || { fail 'ended in another way'; note "$(cat strangers)"; }
	all_gone 40
	is 'descriptors' "$(descriptors)" "$before"
	small
	logged 'too many at once'
	d "$(url)"
	rc_is 0
	stop_daemon
	start_daemon
}

busy() {
	local other

	cat >alert.py <<-END
		import socket
		s = socket.socket()
		s.bind(('127.0.0.1', 0))
		s.listen(1)
		open('alert.port', 'w').write(str(s.getsockname()[1]))
		c = s.accept()[0]
		c.recv(4096)
		c.sendall(bytes.fromhex('15030300020250'))
		c.close()
	END
	rm -f alert.port
	python3 alert.py &
	other=$!
	pids+=("$other")
	await 10 test -s alert.port
	rcp --key=alice.key "rcp://127.0.0.1:$(cat alert.port)/"
	rc_is 3
	own_lines 1
	err_has 'is busy' 'it has not looked at the key' 'try again later'
	err_lacks 'same key'
	wait "$other"
}

# A place is free for who comes as soon as the one before has its answer.
one_by_one() {
	local i

	for i in 1 2 3 4 5 6; do
		rcp --key=bob.key src/tree/s1 "$(url "other/n$i")"
		rc_is 0
	done
	rm -f other/n?
}

too_many() {
	stop_daemon
	handshake=30 start_daemon 'max-connections = 2'
	hold 2 module
	d src/f "$(url mod/)"
	rc_is 3
	own_lines 1
	err_has 'has as many connections as it may have' 'try again later'
	drop_holders
	all_gone
	d src/f "$(url mod/many)"
	rc_is 0
	rm mod/many
	stop_daemon
	start_daemon
	rcp_start --key=bob.key --json --bwlimit=3M src/big "$(url other/slow)"
	await 30 moved 1000000 || fail 'nothing moves'
	rcp --key=bob.key src/f "$(url other/f)"
	rc_is 3
	own_lines 1
	err_has 'module other has as many connections as it may have (1)'
	rcp --key=bob.key "$(url ro/f)" dst/
	rc_is 0
	kill -9 "${copy:?}"
	wait "$copy" 2>/dev/null
	all_gone 20
	rm -f other/slow other/.slow.*
}

descriptors() { find "/proc/$daemon/fd" -type l | wc -l; }
small() { [ "$(awk '/^VmRSS/ {print $2}' "/proc/$daemon/status")" -lt 32768 ] || [ -n "${E2E_SANITIZED:-}" ] || fail 'it has grown'; }
# Served or refused, each of them, and nothing stays behind.
crowd() {
	local i many=500 ok=0 no=0 all=() before

	[ -z "${E2E_SANITIZED:-}" ] || many=100

	stop_daemon
	handshake=60 start_daemon 'max-connections = 30'
	before=$(descriptors)
	for ((i = 1; i <= many; i++)); do
		timeout 100 "$RCP" --key=alice.key "$(url)" </dev/null >"crowd.$i" 2>&1 &
		all+=($!)
	done
	for i in "${!all[@]}"; do
		wait "${all[i]}"
		case $? in
		0) ok=$((ok + 1)) ;;
		3) no=$((no + 1)); [ "$(wc -l <"crowd.$((i + 1))")" = 1 ] || fail "refused with: $(cat "crowd.$((i + 1))")" ;;
		*) fail "neither served nor refused: $(cat "crowd.$((i + 1))")" ;;
		esac
	done
	note "$ok served, $no refused"
	is 'all' "$((ok + no))" "$many"
	[ "$ok" -gt 20 ] || fail 'hardly any was served'
	all_gone 20
	is 'descriptors' "$(descriptors)" "$before"
	small
	rm -f crowd.*
	stop_daemon
	start_daemon
}

# A child that was taken over writes no more than its lines into the log, and no line of another's.
chatter() {
	printf '#!/bin/sh\nexec env RCP_TEST_CHATTER=200 "%s" "$@"\n' "$RCP_HOOKS" >bin/chatty
	chmod +x bin/chatty
	stop_daemon
	daemon_program=$dir/bin/chatty start_daemon
	d src/f "$(url mod/c)"
	rc_is 0
	all_gone
	logged ': line 16\n\x1b[31mrcp --daemon: forged'
	is 'lines' "$(grep -c ': line ' log)" 16
	! grep -q '^rcp --daemon: forged' log || fail 'a line was forged'
	! grep -q $'\033' log || fail 'an escape in the log'
	rm mod/c
	stop_daemon
	start_daemon
}

t 'no faster than the module allows' limited
t 'a child that says too much' chatter
t 'clients that stall' stalls
t 'clients that stall late' late_stalls
t 'a ring larger than agreed' large_ring
t 'strangers keep nobody out' fair
t 'more strangers than can wait' turned_away
t 'what rcp says of a daemon that is busy' busy
t 'one place, one after the other' one_by_one
t 'connections over the limit' too_many
t '500 connections at once' crowd
stop_daemon
end
