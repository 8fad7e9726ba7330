#!/bin/bash
# The network goes in the middle of a copy: both ends end, each by itself; or it comes back in time.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
own_net
begin
start_sshd
write_watched
data src/f 41943049
slow=--bwlimit=6M
beyond=1000000

start() {
	local way=$1

	shift
	echo old >dst/f
	if [ "$way" = up ]; then
		from=src/f to=box:$dir/dst/f
	else
		from=box:$dir/src/f to=dst/f
	fi
	start_watched "$slow" "$@" "$from" "$to"
}

finished() {
	same src/f dst/f
	clean dst
}

# lost DIRECTION ARG...: not a packet passes any more
lost() {
	start "$@" || return
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

# gap DIRECTION ARG...: five seconds without a network are no reason to give up
gap() {
	start "$@" || return
	filter 'meta l4proto tcp drop'
	! await 5 is_gone "$copy" || fail 'given up after less than 5 s'
	filter
	reap 60 "$copy" || fail 'no end'
	rc_is 0
	sum_is .retries 0
	finished
}

# The data connection alone is reset: another one, or another way, carries the rest.
reset() {
	local ports

	start "$1" || return
	ports=$(event transport .detail | sed -n 's/^[^ ]*:\([0-9]*\) [a-z]* [^ ]*:\([0-9]*\),.*/\1 \2/p')
	[ -n "$ports" ] || { fail "no ports in $(event transport .detail)"; return; }
	filter "tcp sport ${ports% *} tcp dport ${ports#* } reject with tcp reset" \
		"tcp sport ${ports#* } tcp dport ${ports% *} reject with tcp reset"
	reap 60 "$copy" || fail 'no end'
	filter
	rc_is 0
	is 'reconnected' "$(summary '.retries > 0')" true
	finished
}

for way in up down; do
	t "all packets dropped, $way, tcp" lost $way
	t "all packets dropped, $way, ssh" lost $way --transport=ssh
	t "a gap of 5 s, $way, tcp" gap $way
	t "the data connection is reset, $way" reset $way
done
t 'a gap of 5 s, up, ssh' gap up --transport=ssh
end
