#!/bin/bash
# The network goes in the middle of a copy: both ends end, each by itself; or it comes back in time.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
own_net
begin
start_sshd
write_watched
data src/f 41943049
beyond=1000000

finished() {
	same src/f dst/f
	clean dst
}

# lost DIRECTION ARG...: not a packet passes any more
lost() {
	over_old "$@" --retries=0 || return
	filter 'meta l4proto tcp drop'
	reap 15 "$copy" || fail 'the initiator did not end within 15 s'
	rc_is 6
	sum_is .status link
	own_lines 2
	err_has 'rcp: box: ' 'run the same command again'
	await 15 server_ended || fail 'the server did not end within 15 s'
	server_rc_is 6
	await 5 is_gone "$ssh" || fail 'ssh stays'
	old dst/f
	only_partials dst
	filter
	rcp --json "$from" "$to"
	rc_is 0
	finished
	is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
}

# gap DIRECTION ARG...: three seconds without a network are no reason to give up
gap() {
	over_old "$@" || return
	filter 'meta l4proto tcp drop'
	! await 3 is_gone "$copy" || fail 'given up after less than 3 s'
	filter
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	sum_is .retries 0
	finished
}

# back DIRECTION ARG...: a network that was given up comes back before the retries are used up
back() {
	over_old "$@" || return
	filter 'meta l4proto tcp drop'
	await 20 grep -q 'connecting again in 1 s, try 1 of 3' err || fail 'not given up within 20 s'
	! await 3 is_gone "$copy" || fail 'no more tries'
	filter
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	is 'retries' "$(summary '.retries > 0')" true
	is 'bytes resumed' "$(summary '.resumed_bytes > 0')" true
	finished
}

# The data connection alone is lost: another one carries the rest. reset: the sender is told, the other end
# is not. stuck: nobody is told, only the connection's own deadline shows it.
alone() {
	local ports here there

	over_old "$2" || return
	ports=$(event transport .detail | sed -n 's/^[^ ]*:\([0-9]*\) [a-z]* [^ ]*:\([0-9]*\),.*/\1 \2/p')
	[ -n "$ports" ] || { fail "no ports in $(event transport .detail)"; return; }
	here="tcp sport ${ports% *} tcp dport ${ports#* }" there="tcp sport ${ports#* } tcp dport ${ports% *}"
	case $1 in
	reset) filter "tcp flags & rst != rst $here reject with tcp reset" ;;
	stuck) filter "$here drop" "$there drop" ;;
	esac
	reap 60 "$copy" || fail 'no end'
	filter
	rc_is 0
	sum_is .retries 1
	sum_is .transport tcp
	finished
}

t 'all packets dropped, up, tcp' lost up
t 'all packets dropped, down, ssh' lost down --transport=ssh
t 'all packets dropped for a while, up' back up
t 'a gap of 3 s, down, tcp' gap down
t 'a gap of 3 s, up, ssh' gap up --transport=ssh
t 'the data connection is reset, up' alone reset up
t 'the data connection is reset, down' alone reset down
t 'the data connection is stuck, up' alone stuck up
if full; then
	t 'all packets dropped, down, tcp' lost down
	t 'all packets dropped, up, ssh' lost up --transport=ssh
	t 'all packets dropped for a while, down' back down
	t 'a gap of 3 s, up, tcp' gap up
	t 'a gap of 3 s, down, ssh' gap down --transport=ssh
	t 'the data connection is stuck, down' alone stuck down
fi
end
