#!/bin/bash
# `rcp --server --restrict` as the forced command of a key in authorized_keys: no way out of its directory, one direction
# where it says so, whatever the client asks for. And what a server without it gives up by itself.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
force_command=
start_sshd
write_watched
data src/f 200000
data src/big 52428800
mkdir -p src/tree/sub data/sub outside
for i in {1..30}; do echo "small $i" >"src/tree/s$i"; done
cp src/f src/tree/sub/f
ln -s sub/f src/tree/link
cp src/f data/f
cp src/f data/sub/g
echo 'the secret' >outside/secret

# key NAME COMMAND: one that can be used for that alone
key() {
	ssh-keygen -q -t ed25519 -N '' -f "$1.key" -C ''
	printf 'restrict,command="%s" %s\n' "$2" "$(cat "$1.key.pub")" >>authorized_keys
	sed "s|IdentityFile .*|IdentityFile $dir/$1.key|" ssh_config >"$1.conf"
}
key both "$dir/bin/watched --server --restrict=$dir/data"
key ro "$RCP --server --restrict=$dir/data,ro"
key wo "$RCP --server --restrict=$dir/data,wo"
key none "$RCP --server --restrict=$dir/nowhere"
key plain "$dir/bin/watched --server"

# as NAME ARG...: rcp with that key
as() { rcp -F "$dir/$1.conf" "${@:2}"; }

both_ways() {
	as both --json src/f box:up
	rc_is 0
	same src/f data/up
	sum_is .transport tcp
	as both box:up box:/sub/g dst/
	rc_is 0
	same src/f dst/up
	same src/f dst/g
	as both src/f box:/sub
	rc_is 0
	same src/f data/sub/f
	as both -a src/tree box:
	rc_is 0
	same_tree src/tree data/tree
	is 'link' "$(readlink data/tree/link)" sub/f
	as both 'box:tree/s1*' dst/
	rc_is 0
	exists dst/s1 dst/s19
	as both -r box: dst/whole
	rc_is 0
	same_tree data dst/whole
	as both --transport=ssh src/f box:sub/
	rc_is 0
	clean data
	rm -r data/up data/tree data/sub/f
}

reading() {
	as ro box:f dst/
	rc_is 0
	same src/f dst/f
	as ro -r box:sub dst/
	rc_is 0
	same src/f dst/sub/g
	as ro --json src/f box:new
	rc_is 3
	own_lines 1
	err_has 'rcp: box: ' 'this login may only be read from' '--restrict=...,ro' 'authorized_keys'
	err_lacks "$dir/data"
	sum_is .status connect
	as ro src/f box:f
	rc_is 3
	as ro --dry-run src/f box:new
	rc_is 3
	is 'files' "$(find data -type f | sort | xargs)" 'data/f data/sub/g'
	same src/f data/f
}

writing() {
	as wo src/f box:new
	rc_is 0
	same src/f data/new
	as wo box:f dst/
	rc_is 3
	own_lines 1
	err_has 'this login may only be written to' '--restrict=...,wo'
	absent dst/f
	rm data/new
}

# way_out KEY PATH ARG...: nothing of outside comes from there
way_out() {
	as "$1" "${@:3}" "box:$2" dst/
	[ "$rc" != 0 ] || fail "status 0 for $2"
	! grep -rqs 'the secret\|root:' dst || fail "$2 was read"
}

no_way_to_read() {
	ln -sfn ../outside data/up
	ln -sfn ../outside/secret data/end
	ln -sfn "$dir/outside/secret" data/abs
	way_out ro ../outside/secret
	way_out ro sub/../../outside/secret
	way_out ro "$dir/outside/secret"
	way_out ro /etc/passwd
	way_out both /proc/self/environ
	way_out ro \~root/.profile
	way_out ro \~/../../etc/passwd
	way_out ro up/secret
	way_out ro end
	way_out ro abs
	way_out ro up -r
	way_out ro 'up/*'
	way_out ro '../out*/*'
	printf '../outside/secret\n' >names
	way_out ro '' --files-from=names
	printf 'up/secret\n' >names
	way_out ro '' --files-from=names
	way_out ro . -r
	err_has 'leads out of the directory that this login is held to'
	same src/f dst/f # the others came
	rm -f data/up data/end data/abs
}

no_way_to_write() {
	local at

	ln -sfn ../outside data/up
	ln -sfn ../outside/new data/end
	ln -sfn "$dir/outside" data/abs
	for at in up/new up abs/new end ../outside/new "$dir/outside/new" sub/../../outside/new; do
		as both src/f "box:$at"
		[ "$rc" != 0 ] || fail "status 0 for $at"
	done
	is 'outside' "$(ls outside)" secret
	rm -f data/up data/end data/abs
}

# What the client wants to run is nothing to the one who forces a command.
words_ignored() {
	as ro --rcp-path="$RCP --server --restrict=/ #" box:outside/secret dst/
	[ "$rc" != 0 ] || fail 'its own --restrict counted'
	as ro --rcp-path="touch $dir/pwned;" box:f dst/
	rc_is 0
	as ro -o SetEnv=HOME=/ box:f dst/
	rc_is 0
	absent pwned dst/secret
}

special_modes() {
	cp src/f src/suid
	chmod 4755 src/suid
	as both -p src/suid box:
	rc_is 0
	mode_is data/suid 755
	err_has 'mode'
	err_lines 1
	rm data/suid src/suid
}

of_server() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$server/status"; }
landlock() { [[ $(cat /sys/kernel/security/lsm 2>/dev/null) == *landlock* ]]; }

# start_as NAME ARG...: under way, with the server's number
start_as() {
	rm -f server.pid
	rcp_start --json --bwlimit=10M -F "$dir/$1.conf" "${@:2}"
	await 30 moved 1000000 || fail 'nothing moves'
	server=$(<server.pid)
	pids+=("$server")
}

given_up() {
	start_as both src/big box:
	is 'no new privileges' "$(of_server NoNewPrivs)" 1
	is 'threads that could get some' "$(cat "/proc/$server/task/"*/status | awk '/^NoNewPrivs/ && $2 != 1' | wc -l)" 0
	is 'where it is' "$(readlink "/proc/$server/cwd")" "$dir/data"
	! is_root || is 'owner of its /proc files' "$(stat -c %u "/proc/$server/environ")" 0
	kill -INT "$copy"
	reap 20 "$copy"
	rc_is 130
	await 10 is_gone "$server" || fail 'the server stays'
	rm -f data/.big.*
}

# Without --restrict a sink still writes nowhere but below its target.
sink_by_itself() {
	ln -sfn "$dir/data" "$dir/way"
	start_as plain src/big "box:$dir/way/"
	landlock && is 'no new privileges' "$(of_server NoNewPrivs)" 1
	reap 60 "$copy"
	rc_is 0
	same src/big data/big
	rm data/big way
}

# As for a module of the daemon's (t-daemon.sh, evil daemon): its directory is not the client's to change, nor are partial
# files to be had.
like_a_module() {
	local before

	chmod 750 data
	chmod 700 src/tree
	before=$(stat -c '%a %u %g' data)
	as both -a src/tree/. box:
	rc_is 0
	is "the directory's own" "$(stat -c '%a %u %g' data)" "$before"
	chmod 755 src/tree
	mkdir data/part
	echo 'the secret' >data/part/.x.rcp-part
	echo mine >data/part/y
	ln -s .x.rcp-part data/part/link
	as ro -r box:part dst/
	rc_is 1
	err_has "leads to one of rcp's own partial files"
	is 'files' "$(find dst -type f)" dst/part/y
	as ro box:part/.x.rcp-part dst/
	rc_is 1
	err_has "rcp's own partial files"
	! grep -rqs 'the secret' dst || fail 'it was given away'
	rm -rf data/part data/s[0-9]* data/link data/sub/f
}

refused_by_itself() {
	as none box:f dst/
	rc_is 3
	own_lines 1
	err_has "$dir/nowhere" 'No such file or directory'
}

on_the_command_line() {
	rcp --restrict=/tmp src/f dst/
	rc_is 2
	err_has '--restrict' 'rcp --server --restrict=DIR'
	rcp --server --restrict=data
	rc_is 2
	err_has '--restrict' 'begins with /'
}

t 'both ways, every way of naming' both_ways
t 'ro: down, and not up' reading
t 'wo: up, and not down' writing
t 'nothing outside can be read' no_way_to_read
t 'nothing outside can be written' no_way_to_write
t "the client's own command counts for nothing" words_ignored
t 'setuid bits are dropped, and it is said once' special_modes
t 'what the server gives up' given_up
t 'what one without --restrict gives up' sink_by_itself
t 'its directory, and partial files' like_a_module
t 'a directory that is not there' refused_by_itself
t '--restrict where it can not be' on_the_command_line
end
