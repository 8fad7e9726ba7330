#!/bin/bash
# The daemon and rcp://: copies through it, keys, modules and no way out of them, limits, stalls, signals.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null && command -v openssl >/dev/null && command -v python3 >/dev/null ||
	skip_all 'jq, openssl or python3 is not installed'
[ -x "$RCP_HOOKS" ] || skip_all 'rcp-hooks was not built'
begin
chmod 755 "$dir"
: >ssh_config
data src/f 20971527
data src/big 104857600
mkdir -p src/tree/sub
for i in {1..60}; do echo "small $i" >"src/tree/s$i"; done
cp src/f src/tree/sub/f
ln -s sub/f src/tree/link
: >src/tree/empty
mkdir outside mod ro keys
echo 'the secret' >outside/secret
cp src/f ro/f
cp -a src/tree ro/tree
mkdir other && echo 'of another module' >other/o

# As whom the modules are served: another one than we are, where that can be.
user=
if is_root; then
	user=root
	if id nobody >/dev/null 2>&1 && have setpriv && setpriv --reuid=nobody --clear-groups test -x "$dir/mod"; then
		user=nobody
		chown nobody mod other
	fi
fi
as() { [ -z "$user" ] || echo "user = $user"; }

# goes_on NAME: what was cut off on its way to mod/NAME, run again
goes_on() {
	d --json src/big "$(url "mod/$1")"
	rc_is 0
	same src/big "mod/$1"
	[ "$(summary .resumed_bytes)" -gt 0 ] || fail 'nothing was resumed'
	clean mod
	rm "mod/$1"
}

# ---- a daemon of our own ----

daemon='' dport=''

# write_conf [LINE...]: the usual modules, and what is said before them
write_conf() {
	cat >conf <<-END
		# for t-daemon.sh
		listen = 127.0.0.1
		port = $dport
		keys = $dir/keys
		handshake-seconds = ${handshake:-2}
		$(printf '%s\n' "$@")

		[mod]
		path = $dir/mod
		writable = yes
		keys = alice, bob
		comment = to be written
		$(as)
		[ro]
		path = $dir/ro
		keys = *
		$(as)
		[other]
		path = $dir/other
		writable = yes
		keys = bob
		max-connections = 1
		$(as)
		[strict]
		path = $dir/mod
		writable = yes
		encrypt = always
		keys = alice
		$(as)
		[slow]
		path = $dir/mod
		writable = yes
		bwlimit = 20M
		keys = alice
		$(as)
	END
}

said() { grep -qF -- "$1" "$dir/log"; }
# logged TEXT...: now or soon
logged() {
	local text

	for text; do await 5 said "$text" || { fail "the log lacks: $text"; show log; }; done
}
up_or_gone() { said 'serving' || is_gone "$daemon"; }

start_daemon() {
	local try

	for try in 1 2 3 4 5 6 7 8; do
		[ -n "$dport" ] || dport=$((20000 + (RANDOM * 7 + $$ + try) % 12000))
		write_conf "$@"
		: >log
		# A sanitizer's report goes to the log: a child in its jail opens no file for it.
		ASAN_OPTIONS=$(to_stderr ASAN_OPTIONS) UBSAN_OPTIONS=$(to_stderr UBSAN_OPTIONS) TSAN_OPTIONS=$(to_stderr TSAN_OPTIONS) \
			"${daemon_program:-$RCP}" --daemon --config=conf </dev/null >/dev/null 2>>log &
		daemon=$!
		disown "$daemon"
		pids+=("$daemon")
		await 10 up_or_gone || bail 'the daemon does not start'
		is_gone "$daemon" || return 0
		grep -q 'in use' log || bail "the daemon: $(tail -n 2 log)"
		dport=
	done
	bail 'no port for the daemon'
}

to_stderr() { local v=${!1:-}; echo "${v%:log_path=*}"; }
sanitizers_words='\(ERROR\|WARNING\): .*Sanitizer\|runtime error:'

stop_daemon() {
	kill -TERM "$daemon" 2>/dev/null
	await 15 is_gone "$daemon" || { fail 'the daemon does not end'; kill -9 "$daemon"; }
	! grep -q "$sanitizers_words" log || { fail 'a sanitizer has found something'; grep -A 40 "$sanitizers_words" log | sed 's/^/#     /'; }
}

children() {
	local f line

	for f in /proc/[0-9]*/stat; do # no process for each: there may be hundreds
		read -r line 2>/dev/null <"$f" || continue
		[[ $line =~ ^([0-9]+)\ \(.*\)\ [^Z]\ $daemon\  ]] && echo "${BASH_REMATCH[1]}"
	done 2>/dev/null
	return 0
}
no_children() { [ -z "$(children)" ]; }
all_gone() { await "${1:-10}" no_children || fail "children that stay: $(children | tr '\n' ' ')"; }

url() { echo "rcp://127.0.0.1:$dport/${1:-}"; }
# d ARG...: rcp as alice
d() { rcp --key=alice.key "$@"; }
d_start() { rcp_start --key=alice.key "$@"; }

for k in alice bob; do "$RCP" --keygen $k $k.key && cp $k.key keys/ || bail 'no key'; done
start_daemon

# ---- copies ----

copies() {
	d --json src/f "$(url mod/up)"
	rc_is 0
	same src/f mod/up
	sum_is .transport tcp
	sum_is .encrypted aes-256-gcm
	[ -z "$user" ] || is 'owner' "$(stat -c %U mod/up)" "$user"
	clean mod
	d --json "$(url ro/f)" dst/
	rc_is 0
	same src/f dst/f
	logged "key alice, module mod, put up: 1 files, 20971527 bytes" ' tcp: ok' "module ro, get f: 1 files, 20971527 bytes"
	rm mod/up
}

trees() {
	d -r src/tree "$(url mod/)"
	rc_is 0
	same_tree src/tree mod/tree
	d -a src/tree "$(url mod/arch)"
	is 'link' "$(readlink mod/arch/link)" sub/f
	d -a "$(url ro/tree)" dst/
	rc_is 0
	same_tree src/tree dst/tree
	is 'link' "$(readlink dst/tree/link)" sub/f
	d -r "$(url ro)" dst/
	rc_is 0
	same_tree ro dst/ro
	clean dst
	d -r "$(url ro/.)" dst/all/
	rc_is 0
	same_tree ro dst/all
	rm -r dst/all
	mkdir dst/all
	d -r "$(url ro/tree/.)" dst/all
	rc_is 0
	same_tree src/tree dst/all
	d "$(url 'ro/tree/s1*')" dst/
	rc_is 0
	exists dst/s1 dst/s10 dst/s19
	absent dst/s2
	printf 'tree/s1\ntree/sub/f\n' >names
	d --files-from=names "$(url ro)" dst/some
	rc_is 0
	same src/f dst/some/tree/sub/f
	printf 'tree/s2\ntree/sub/f\n' >names
	d --files-from=names src "$(url mod/listed)"
	rc_is 0
	same src/f mod/listed/tree/sub/f
	rm -r mod/listed
	rm -r mod/tree mod/arch
}

by_pipe() {
	d --json --transport=ssh src/f "$(url mod/p)"
	rc_is 0
	same src/f mod/p
	sum_is .encrypted tls
	rm mod/p
}

sealed() {
	d --json --encrypt=never --transport=tcp src/f "$(url strict/s)"
	rc_is 0
	sum_is .encrypted aes-256-gcm
	d --json --encrypt=never --transport=tcp src/f "$(url mod/s)"
	rc_is 0
	sum_is .encrypted null
	rm mod/s
}

limited() {
	local begun=$EPOCHREALTIME

	d src/big "$(url slow/b)"
	rc_is 0
	same src/big mod/b
	[ $(((${EPOCHREALTIME/./} - ${begun/./}) / 1000)) -gt 2500 ] || fail '100M at 20M a second took under 2.5 s'
	rm mod/b
}

two_at_once() {
	local first second

	d_start src/big "$(url mod/one)"
	first=$copy
	rcp_start --key=bob.key src/big "$(url other/two)"
	second=$copy
	reap 60 "$first" && rc_is 0
	reap 60 "$second" && rc_is 0
	same src/big mod/one
	same src/big other/two
	rm mod/one other/two
}

resumed() {
	d_start --json --bwlimit=40M src/big "$(url mod/r)"
	await 30 moved 30000000 || fail 'nothing moves'
	kill -9 "$copy"
	wait "$copy" 2>/dev/null
	all_gone 20
	absent mod/r
	goes_on r
}

retried() {
	d_start --json --bwlimit=15M src/big "$(url mod/r)"
	await 30 moved 30000000 && await 10 test -s mod/.r.rcp-journal || fail 'nothing moves'
	kill -9 "$(children | tail -n 1)"
	reap 60 "$copy"
	rc_is 0
	same src/big mod/r
	sum_is .retries 1
	[ "$(summary .resumed_bytes)" -gt 0 ] || fail 'nothing was resumed'
	logged 'was ended by signal 9'
	rm mod/r
}

# ---- keys ----

listed() {
	d "$(url)"
	rc_is 0
	is 'list' "$(cat out)" "$(printf '%s\t%s\t%s\n' mod writable 'to be written' ro read-only '' strict writable '' slow writable '')"
	rcp --key=bob.key "rcp://bob@127.0.0.1:$dport"
	rc_is 0
	is 'modules' "$(cut -f 1 out | tr '\n' ' ')" 'mod ro other '
}

keys() {
	local f

	"$RCP" --keygen alice wrong.key
	"$RCP" --keygen mallory unknown.key
	for f in wrong unknown; do
		rcp "--key=$f.key" src/f "$(url mod/)"
		rc_is 3
		own_lines 1
		err_has '127.0.0.1' 'do not hold the same key' '--key'
	done
	HOME=$dir/home rcp src/f "$(url mod/)"
	rc_is 2
	err_has '/.config/rcp/key' '--key' 'rcp --keygen'
	mkdir -p home/.config/rcp && cp -p alice.key home/.config/rcp/key
	HOME=$dir/home rcp "$(url)"
	rc_is 0
	rcp --key=alice.key "rcp://bob@127.0.0.1:$dport/"
	rc_is 2
	err_has 'has no key bob'
	cp alice.key open.key && chmod 640 open.key
	rcp --key=open.key "$(url)"
	rc_is 2
	err_has "its mode 0640 lets others at them" "chmod 600 'open.key'"
	echo 'alice 12' >short.key && chmod 600 short.key
	rcp --key=short.key "$(url)"
	rc_is 2
	err_has 'short.key:1: the key is not 64 hexadecimal digits'
	absent mod/f
	logged 'no key proved'
}

generated() {
	mode_is alice.key 600
	rcp --keygen carol alice.key
	rc_is 5
	err_has 'is there already'
	rcp --keygen 'no name' x.key
	rc_is 2
	absent x.key
	rcp --keygen carol
	rc_is 0
	[[ $(cat out) =~ ^carol\ [0-9a-f]{64}$ ]] || fail 'no key on standard output'
	(umask 0; "$RCP" --keygen dave dave.key)
	mode_is dave.key 600
}

# ---- modules, and nothing else ----

refused() {
	d src/f "$(url nope/)"
	rc_is 3
	own_lines 1
	err_has 'there is no module nope for this key'
	d src/f "$(url other/)"
	rc_is 3
	err_has 'there is no module other for this key'
	d src/f "$(url ro/new)"
	rc_is 3
	own_lines 1
	err_has 'module ro is read-only'
	absent ro/new other/f
	d src/f "$(url '')"
	rc_is 2
	d --dry-run src/f "$(url ro/new)"
	rc_is 3
}

way_out() {
	d "${@:2}" "$(url "$1")" dst/
	[ "$rc" != 0 ] || fail "status 0 for $1"
	! grep -rqs 'secret\|root:' dst || fail "$1 was read"
}

no_way_to_read() {
	ln -sfn ../outside ro/up
	ln -sfn ../outside/secret ro/end
	ln -sfn "$dir/outside" ro/abs
	ln -sfn /etc/passwd ro/passwd
	ln -sfn ../../ro/tree ro/tree/around
	way_out ro/../outside/secret
	way_out ../outside/secret
	way_out ro/tree/../../outside/secret
	way_out ro//etc/passwd
	way_out ro//proc/self/environ
	way_out 'ro/~root/.profile'
	way_out ro/up/secret
	way_out ro/end
	way_out ro/abs/secret
	way_out ro/abs -r
	way_out ro/passwd
	way_out 'ro/up/*'
	way_out 'ro/../out*/*'
	way_out ro/up -r
	way_out ro/up/ -a
	way_out ro/../other/o
	printf '../outside/secret\n' >names
	way_out ro --files-from=names
	printf 'up/secret\n' >names
	way_out ro --files-from=names
	way_out ro -r
	err_has 'leads out of the module'
	same src/f dst/ro/f # the others came
	rm -r dst && mkdir dst
	d -a "$(url ro)" dst/
	rc_is 0
	is 'link' "$(readlink dst/ro/end)" ../outside/secret
	rm -f ro/up ro/end ro/abs ro/passwd ro/tree/around
}

no_way_to_write() {
	local at

	ln -sfn ../outside mod/up
	ln -sfn ../outside/new mod/end
	ln -sfn "$dir/outside" mod/abs
	chmod 777 outside
	for at in mod/up/new mod/up mod/abs/new mod/../outside/new ../outside/new mod//tmp/rcp-new mod/../other/new; do
		d src/tree/s1 "$(url "$at")"
		[ "$rc" != 0 ] || fail "status 0 for $at"
	done
	d src/tree/s1 "$(url mod/end)" # replaces the link itself
	mkdir -p src/evil/up
	echo bad >src/evil/up/new
	mkdir mod/evil
	chmod 777 mod/evil
	ln -sfn ../../outside mod/evil/up
	d -r src/evil "$(url mod/)"
	is 'outside' "$(ls outside)" secret
	absent other/new
	chmod 755 outside
	rm -rf mod/* src/evil
}

# A link that comes and goes while the tree is read.
swapped() {
	local i flipper

	mkdir -p ro/swap/d other/real
	for i in {1..40}; do echo inside >"ro/swap/d/secret$i"; echo 'the secret' >"outside/secret$i"; done
	while :; do
		mv -T ro/swap/d ro/swap/e && ln -s ../../outside ro/swap/d
		rm -f ro/swap/d && mv -T ro/swap/e ro/swap/d
	done 2>/dev/null &
	flipper=$!
	disown "$flipper"
	pids+=("$flipper")
	for i in {1..12}; do
		rm -rf dst && mkdir dst
		d -r "$(url ro/swap)" dst/
		! grep -rqs 'the secret' dst || fail 'the link was followed'
	done
	kill -9 "$flipper"
	await 5 is_gone "$flipper"
	rm -rf ro/swap outside/secret?*
}

# ---- what a child is ----

humble() {
	local child status uid

	uid=$(id -u ${user:+"$user"})
	d_start --bwlimit=20M --json src/big "$(url mod/h)"
	await 30 moved 10000000 || fail 'nothing moves'
	child=$(children | tail -n 1)
	status=$(cat "/proc/$child/status")
	if [ -n "$user" ]; then
		is 'uids' "$(awk '/^Uid/ {print $2, $3, $4, $5}' <<<"$status")" "$uid $uid $uid $uid"
		is 'groups' "$(awk '/^Groups/ {$1 = ""; print}' <<<"$status" | xargs)" "$(id -g "$user")"
	fi
	is 'no new privileges' "$(awk '/^NoNewPrivs/ {print $2}' <<<"$status")" 1
	[ "$user" != nobody ] || is 'capabilities' "$(awk '/^CapPrm/ {print $2}' <<<"$status")" 0000000000000000
	is 'owner of its /proc files: not to be looked at' "$(stat -c %u "/proc/$child/environ")" 0
	kill -INT "$copy"
	reap 20 "$copy"
	rc_is 130
	all_gone
	logged 'module mod, put h'
	rm -f mod/.h.*
}

# ---- limits ----

# hold N WORD: clients that say no more after WORD; each has a place
holders=()
hold() {
	local i

	for ((i = 0; i < $1; i++)); do
		RCP_TEST_STALL=$2 "$RCP_HOOKS" --key=alice.key --retries=0 src/f "$(url mod/)" </dev/null >/dev/null 2>>holders &
		holders+=($!)
		pids+=($!)
	done
	await 5 at_least "$1" || fail 'the clients do not get in'
}
at_least() { [ "$(children | wc -l)" -ge "$1" ]; }
drop_holders() {
	local p

	for p in ${holders[@]+"${holders[@]}"}; do
		! ours "$p" || kill -9 "$p" 2>/dev/null # it may have ended by itself
		wait "$p" 2>/dev/null
	done
	holders=()
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

too_many() {
	stop_daemon
	start_daemon 'max-connections = 2'
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
	rcp_start --key=bob.key --json --bwlimit=20M src/big "$(url other/slow)"
	await 30 moved 5000000 || fail 'nothing moves'
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
# Served or refused, each of them, and nothing stays behind.
crowd() {
	local i p ok=0 no=0 least=20 all=() before after

	stop_daemon
	handshake=60 start_daemon 'max-connections = 30'
	before=$(descriptors)
	for i in {1..200}; do
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
	is 'all' "$((ok + no))" 200
	# A sanitizer makes 400 processes so slow that many meet the daemon's deadline.
	[ -z "${E2E_SANITIZED:-}" ] || least=2
	[ "$ok" -gt "$least" ] || fail 'hardly any was served'
	all_gone 20
	after=$(descriptors)
	is 'descriptors' "$after" "$before"
	[ "$(awk '/^VmRSS/ {print $2}' "/proc/$daemon/status")" -lt 65536 ] || [ -n "${E2E_SANITIZED:-}" ] || fail 'it has grown'
	rm -f crowd.*
	stop_daemon
	start_daemon
}

# ---- signals ----

reloaded() {
	mkdir -p fresh
	[ -z "$user" ] || chown "$user" fresh
	printf '[fresh]\npath = %s\nwritable = yes\nkeys = alice\n%s\n' "$dir/fresh" "$(as)" >>conf
	d_start --json --bwlimit=40M src/big "$(url mod/during)"
	await 30 moved 10000000 || fail 'nothing moves'
	rm keys/bob.key
	sed -i 's/alice, bob/alice/; s/^keys = bob/keys = alice/' conf
	kill -HUP "$daemon"
	logged 'configuration read again: 6 modules, 1 keys'
	d src/f "$(url fresh/)"
	rc_is 0
	same src/f fresh/f
	rcp --key=bob.key "$(url)"
	rc_is 3
	echo 'colour = blue' >>conf
	kill -HUP "$daemon"
	logged 'the old one stays' "conf:$(wc -l <conf): unknown setting 'colour'"
	d src/f "$(url fresh/again)"
	rc_is 0
	reap 60 "$copy"
	rc_is 0
	same src/big mod/during
	rm -rf mod/during fresh
	cp bob.key keys/
	stop_daemon
	start_daemon
}

terminated() {
	d_start --json --retries=0 --bwlimit=40M src/big "$(url mod/t)"
	await 30 moved 30000000 || fail 'nothing moves'
	stop_daemon
	reap 20 "$copy"
	rc_is 6
	err_has 'the daemon was ended'
	logged 'module mod, put t' 'failed' 'ended'
	absent mod/t
	exists mod/.t.rcp-part
	start_daemon
	goes_on t
}

restarted() {
	d_start --json --retries=5 --bwlimit=40M src/big "$(url mod/t)"
	await 30 moved 30000000 || fail 'nothing moves'
	stop_daemon
	start_daemon
	reap 60 "$copy"
	rc_is 0
	same src/big mod/t
	rm mod/t
}

# ---- its start ----

# wrong_conf TEXT WHAT...
wrong_conf() {
	printf '%b' "$1" >bad
	rcp --daemon --config=bad
	rc_is 2
	err_has "${@:2}"
}

configured() {
	local top mod

	top="keys = $dir/keys\n"
	mod="[m]\npath = $dir/ro\nkeys = *\n$(as)\n"

	wrong_conf '' 'bad:' 'no keys'
	wrong_conf "$top" 'no module'
	wrong_conf "$top$mod$mod" 'bad:' 'module m is there twice'
	wrong_conf "${top}port = 0\n$mod" 'bad:2: port' 'a number from 1 to 65535'
	wrong_conf "${top}[m]\npath = relative\n" 'bad:3' 'begins with /'
	wrong_conf "${top}[m]\npath = /nonexistent-rcp\nkeys = *\n$(as)\n" 'bad:2' 'no directory'
	wrong_conf "${top}[m]\npath = $dir/ro\nkeys = zoe\n$(as)\n" 'there is no key zoe'
	! is_root || wrong_conf "${top}[m]\npath = $dir/ro\nkeys = *\n" 'no user'
	chmod 644 keys/bob.key
	wrong_conf "$top$mod" 'keys/bob.key' 'its mode 0644 lets others at them'
	chmod 600 keys/bob.key
}

port_taken() {
	printf 'keys = %s\nlisten = 127.0.0.1\nport = %s\n[m]\npath = %s\nkeys = *\n%s\n' "$dir/keys" "$dport" "$dir/ro" "$(as)" >bad
	rcp --daemon --config=bad
	rc_is 3
	err_has 'in use' "127.0.0.1:$dport"
}

# As systemd does it: a socket at descriptor 3, and a socket to be told at.
activated() {
	cat >activate.py <<-END
		import os, socket, sys
		s = socket.socket()
		s.bind(('127.0.0.1', 0))
		s.listen(16)
		open('activated.port', 'w').write(str(s.getsockname()[1]))
		os.dup2(s.fileno(), 3)
		os.set_inheritable(3, True)
		os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', NOTIFY_SOCKET='$dir/told')
		os.execv(sys.argv[1], [sys.argv[1], '--daemon', '--config=conf'])
	END
	cat >listen.py <<-END
		import socket
		s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
		s.bind('$dir/told')
		s.settimeout(30)
		for i in range(3):
		    open('told.log', 'ab').write(s.recv(200) + b'\n')
	END
	local listener mine

	: >told.log
	python3 listen.py &
	listener=$!
	pids+=("$listener")
	await 10 test -S told
	python3 activate.py "$RCP" </dev/null >/dev/null 2>activated.log &
	mine=$!
	disown "$mine"
	pids+=("$mine")
	await 10 grep -q READY=1 told.log || fail 'systemd is not told'
	rcp --key=alice.key "rcp://127.0.0.1:$(cat activated.port)/"
	rc_is 0
	kill -TERM "$mine"
	await 10 is_gone "$mine" || fail 'it does not end'
	await 5 grep -q STOPPING=1 told.log || fail 'systemd is not told of the end'
	kill "$listener" 2>/dev/null
	wait "$listener" 2>/dev/null
	return 0
}

t 'a file up and down' copies
t 'trees, patterns, lists of names' trees
t 'through the connection to the daemon alone' by_pipe
t 'sealed, where the module wants it' sealed
t 'no faster than the module allows' limited
t 'two modules at once' two_at_once
t 'a client killed; run again' resumed
t 'a child killed; the client goes on' retried
t 'modules listed, each key its own' listed
t 'wrong, unknown, no and open keys' keys
t 'keys made' generated
t 'no such module, and a read-only one' refused
t 'nothing outside can be read' no_way_to_read
t 'nothing outside can be written' no_way_to_write
t 'a link swapped in while a tree is read' swapped
t 'a child has no privileges' humble
t 'clients that stall' stalls
t 'connections over the limit' too_many
t '200 connections at once' crowd
t 'SIGHUP: a good and a bad configuration' reloaded
t 'SIGTERM in the middle of a copy; run again' terminated
t 'the daemon started again under a copy' restarted
t 'configurations that can not be' configured
t 'a port that is taken' port_taken
t 'socket activation and notification' activated
stop_daemon
end
