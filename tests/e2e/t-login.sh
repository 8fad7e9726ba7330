#!/bin/bash
# What can be wrong before a copy starts: ssh, the login, the remote rcp. Each ends with status 3 and one
# line that names what to install or set; a remote shell that talks is no reason to fail.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd
data src/f 200000

# refused TEXT... -- ARG...: status 3, one line of rcp's with these texts, no file
refused() {
	local texts=()

	while [ "$1" != -- ]; do texts+=("$1"); shift; done
	shift
	rcp --json "$@" src/f "box:$dir/dst/"
	rc_is 3
	own_lines 1
	err_has 'rcp: box: ' "${texts[@]}"
	sum_is .status connect
	sum_is .exit_code 3
	sum_is .resumable false
	is 'errors' "$(summary '.errors | length')" 1
	is 'a fix' "$(summary '.errors[0].fix != ""')" true
	absent dst/f
	clean dst
}

missing() {
	echo "PATH=$dir/empty" >rc
	refused 'rcp is not installed there' 'install rcp on box' '--rcp-path' --
}

# A program by that name that is none of ours.
script() {
	printf '#!/bin/sh\n%s\n' "$1" >bin/other
	chmod +x bin/other
}

other() {
	script "$1"
	shift
	refused "$@" -- --rcp-path=other
}

# A HELLO as rcp-protocol(7) has it, of a version that is none of ours.
# shellcheck disable=SC2059
wrong_version() {
	local software='rcp 9.9.9'

	# shellcheck disable=SC2059 # the format is the frame
	{
		printf '\0rcp-1\r\n'
		printf "\\0\\0\\0\\x$(printf %x $((18 + ${#software})))\\0\\1\\0\\0"  # length, HELLO
		printf 'rcp1\0\143\0\143\0\0\0\0\0\0\0\0\0'"\\x$(printf %x ${#software})$software"
	} >bin/hello
	script "cat '$dir/bin/hello'; exec cat >/dev/null"
	refused 'rcp 9.9.9 there speaks protocol versions 99 to 99' 'install the same version' \
		'--rcp-path' -- --rcp-path=other
}

garbage_behind_marker() {
	script "printf '\\0rcp-1\\r\\nthis is not what it should be, and there is a lot of it'; exec cat >/dev/null"
	rcp --rcp-path=other src/f "box:$dir/dst/"
	rc_is 3
	own_lines 1
	err_has box
	absent dst/f
}

never_answers() {
	: >logins
	script 'exec sleep 60'
	rcp_start --json --rcp-path=other src/f "box:$dir/dst/"
	await 10 test -s logins || fail 'no login'
	kill -TERM "$copy"
	reap 10 "$copy"
	rc_is 143
}

talks() {
	echo 'echo Welcome; echo to the machine >&2; printf "no newline"' >rc
	rcp "$@"
	rc_is 0
	same src/f dst/f
	err_has Welcome 'to the machine'
}

talks_and_missing() {
	echo "echo Welcome; PATH=$dir/empty" >rc
	refused 'rcp is not installed there' --
}

quiet_banner() {
	echo 'echo Welcome' >rc
	rcp -q src/f "box:$dir/dst/"
	rc_is 0
	same src/f dst/f
}

odd_path() {
	mkdir -p "bin/a b'c"
	ln -sf "$RCP" "bin/a b'c/rcp \$(x)"
	rcp --rcp-path="$dir/bin/a b'c/rcp \$(x)" src/f "box:$dir/dst/"
	rc_is 0
	same src/f dst/f
}

unknown_host_key() {
	echo "box $(cut -d' ' -f1,2 key.pub)" >other_hosts
	refused 'Host key verification failed' "ssh box true" -- -o "UserKnownHostsFile=$dir/other_hosts"
	: >other_hosts
	refused 'Host key verification failed' -- -o "UserKnownHostsFile=$dir/other_hosts"
}

wrong_key() {
	ssh-keygen -q -t ed25519 -N '' -f stranger -C ''
	refused 'Permission denied' -- -i "$dir/stranger" -o IdentitiesOnly=yes -F /dev/null \
		-o "HostName=127.0.0.1" -o "Port=$port" -o "UserKnownHostsFile=$dir/known_hosts" \
		-o HostKeyAlias=box -o BatchMode=yes -o "User=$(id -un)"
}

closed_port() {
	refused 'Connection refused' 'ssh box true' -- -P 1
}

no_such_host() {
	rcp -o HostName=no-such-host.invalid src/f "box:$dir/dst/"
	rc_is 3
	own_lines 1
	err_has 'rcp: box: ' 'no-such-host.invalid'
}

no_ssh() {
	rcp -S /no/such/ssh src/f "box:$dir/dst/"
	rc_is 3
	err_lines 1
	err_has '/no/such/ssh' 'No such file or directory' 'install the OpenSSH client'
}

not_executable() {
	echo x >bin/plain
	chmod 644 bin/plain
	refused "can't be run there" '--rcp-path' -- --rcp-path="$dir/bin/plain"
}

jump() {
	# the way to "inner" leads through box
	cat >>ssh_config <<-END
		Host inner
			HostName 127.0.0.1
	END
	# shellcheck disable=SC2016
	echo 'case $SSH_ORIGINAL_COMMAND in "") exec cat;; esac' >rc
	rcp -J box src/f "inner:$dir/dst/"
	rc_is 0
	same src/f dst/f
}

server_by_hand() {
	local status

	"$RCP" --server </dev/null >out 2>err
	status=$?
	[ "$status" != 0 ] || fail 'a server on /dev/null succeeds'
	err_lines 1
	err_has 'rcp --server: '
	printf 'GET / HTTP/1.0\r\n\r\n' | "$RCP" --server 2>err | cat >out
	err_lacks Assert
}

t 'no rcp there' missing
t 'a wrong --rcp-path' refused '/no/such/rcp is not installed there' '--rcp-path=/path/to/rcp' -- --rcp-path=/no/such/rcp
t 'an --rcp-path that is not executable' not_executable
t 'an --rcp-path with blanks, quotes and more' odd_path
t 'a program that prints and ends' other 'echo usage: other file...; exit 0' 'usage: other file' '--rcp-path'
t 'a program that fails' other 'echo no such option >&2; exit 2' 'status 2: no such option'
t 'a program that ends without a word' other 'exit 0' 'before rcp answered'
t 'a program that prints without end' other 'exec yes' 'no rcp answered' '--rcp-path'
t 'another version' wrong_version
t 'garbage behind the marker' garbage_behind_marker
t 'a program that never answers is left by SIGTERM' never_answers
t 'a shell that talks, up' talks src/f "box:$dir/dst/"
t 'a shell that talks, down' talks "box:$dir/src/f" dst/
t 'a shell that talks, ssh' talks --transport=ssh src/f "box:$dir/dst/"
t 'a shell that talks, and no rcp there' talks_and_missing
t 'a shell that talks, -q' quiet_banner
t "another host's key, and none" unknown_host_key
t 'a wrong key' wrong_key
t 'ssh refused' closed_port
t 'no such host' no_such_host
t 'no ssh here' no_ssh
t '-J' jump
t '--server by hand' server_by_hand
end
