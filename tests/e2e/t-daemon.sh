#!/bin/bash
# The daemon and rcp://: copies through it, keys, modules and no way out of them, signals. t-crowd.sh has its limits.
# shellcheck disable=SC2119
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/daemon.sh"

# goes_on NAME: what was cut off on its way to mod/NAME, run again
goes_on() {
	d --json src/big "$(url "mod/$1")"
	rc_is 0
	same src/big "mod/$1"
	[ "$(summary .resumed_bytes)" -gt 0 ] || fail 'nothing was resumed'
	clean mod
	rm "mod/$1"
}

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
	d --json "$(url)"
	rc_is 0
	is 'events' "$(jq -r .event out | xargs)" 'start module module module module summary'
	is 'module' "$(event module '"\(.name) \(.writable)"')" 'slow true'
	is 'comment' "$(jq -r 'select(.name == "mod") | .comment' out)" 'to be written'
	sum_is .exit_code 0
	rcp --json --key=alice.key "rcp://127.0.0.1:1/"
	rc_is 3
	is 'events' "$(jq -r .event out | xargs)" 'start error summary'
	sum_is .status connect
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

# The same while one is written: what is put stays in the module.
swapped_to_write() {
	local i flipper

	mkdir -p src/swap/d mod/swap/d other/real
	[ -z "$user" ] || chown -R "$user" mod/swap
	chmod 777 outside
	for i in {1..40}; do echo put >"src/swap/d/f$i"; done
	while :; do
		mv -T mod/swap/d mod/swap/e && ln -s ../../outside mod/swap/d
		rm -f mod/swap/d && mv -T mod/swap/e mod/swap/d
	done 2>/dev/null &
	flipper=$!
	disown "$flipper"
	pids+=("$flipper")
	for i in {1..12}; do
		d -r src/swap "$(url mod)"
		is 'outside' "$(ls -A outside)" secret
	done
	kill -9 "$flipper"
	await 5 is_gone "$flipper"
	chmod 755 outside
	rm -rf mod/swap src/swap
}

# setuid and setgid bits never come into a module, and that is said.
special_modes() {
	local i

	mkdir src/modes
	for i in 1 2 3; do cp src/tree/s1 "src/modes/f$i" && chmod 6755 "src/modes/f$i"; done
	d --json -rp src/modes "$(url mod/)"
	rc_is 0
	mode_is mod/modes/f1 755
	is 'warnings' "$(summary .warnings)" 3
	is 'severity' "$(event error .severity)" warning
	err_lines 1
	err_has 'could not keep its mode'
	rm -rf mod/modes src/modes
}

# The log says what was wrong with a copy that came to its end.
partly() {
	mkdir -p mod/tree/s7/in
	[ -z "$user" ] || chown -R "$user" mod/tree
	d -r src/tree "$(url mod/)"
	rc_is 1
	logged 'failed (1 files), first ' 'tree/s7: rename: a directory has this name'
	rm -r mod/tree
}

# What another client has not finished is not to be had: not listed, not by name, not by a link to it.
others_state() {
	local n

	mkdir -p mod/d
	for n in .x.rcp-part .x.rcp-journal .x.rcp-make .0123abcd.rcp-done d/.y.rcp-new d/.y.rcp-part; do echo 'the secret' >"mod/$n"; done
	echo mine >mod/d/.mine.rcp
	ln -s .x.rcp-part mod/link
	ln -s d/.y.rcp-part mod/deep
	[ -z "$user" ] || chown -hR "$user" mod
	d -r "$(url mod)" dst/
	rc_is 1
	err_has './link' './deep' "leads to one of rcp's own partial files"
	err_lacks .rcp-
	is 'files' "$(cd dst && find . -type f)" ./mod/d/.mine.rcp
	for n in .x.rcp-part d/.y.rcp-part .0123abcd.rcp-done d/../.x.rcp-part ./.x.rcp-journal/ .x.rcp-part/x .none.rcp-part 'd/*' '.[x]*' '*/.y.rcp-p*'; do
		rm -rf dst && mkdir dst
		d "$(url "mod/$n")" dst/
		[ "$n" = 'd/*' ] || [ "$rc" = 1 ] || fail "status $rc for $n"
		! grep -rqs 'the secret' dst || fail "$n was given away"
		[[ $n != *'*'* ]] || err_lacks .y.rcp-part:
	done
	d "$(url 'mod/.*')" dst/
	err_lacks .rcp-part:
	d "$(url mod/.none.rcp-part)" dst/
	err_has "rcp's own partial files"
	for n in .x.rcp-part d/.y.rcp-part link; do
		echo "$n" >names
		d --files-from=names "$(url mod)" dst/
		rc_is 1
		! grep -rqs 'the secret' dst || fail "$n was given away by a list"
		[ "$n" = link ] || err_has 'names like this are kept'
	done
	d -a "$(url mod/link)" dst/ # as what it is
	rc_is 0
	is 'link' "$(readlink dst/link)" .x.rcp-part
	rm -r mod/d mod/.x.* mod/.0* mod/link mod/deep
}

# The module's own directory is the administrator's, whatever -p and -a would make of it. What is in it is the client's.
own_root() {
	local before flag at

	mkdir src/root src/root/in
	chmod 700 src/root && chmod 705 src/root/in
	touch -d 2001-02-03 src/root
	ln -sfn . mod/self
	chmod 750 mod
	before=$(stat -c '%a %u %g' mod)
	for flag in -rp -a -r; do
		for at in mod/ mod/. mod/self/; do
			d "$flag" src/root/. "$(url "$at")"
			rc_is 0
			is "the module's directory after $flag to $at" "$(stat -c '%a %u %g' mod)" "$before"
			[ "$(stat -c %y mod)" != "$(stat -c %y src/root)" ] || fail "its time was set by $flag to $at"
			[ "$flag" = -r ] || mode_is mod/in 705
			rm -r mod/in
		done
	done
	mkdir src/self && chmod 711 src/self
	d -rp src/self "$(url mod/)" # through the link
	is "the module's directory, by a link in it" "$(stat -c '%a %u %g' mod)" "$before"
	chmod 350 mod # to make it writable is not the client's, either
	d -rp src/self "$(url mod/)"
	mode_is mod 350
	chmod 755 mod
	rm -r mod/self src/root src/self
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

# A module that root serves is still no way to devices, nor to programs with capabilities.
rooted() {
	local before=$user

	is_root && have setcap && have getcap || { skip 'it takes root and setcap'; return; }
	mkdir src/rooted && cp src/tree/s1 src/rooted/capped
	mknod src/rooted/null c 1 3 && setcap cap_net_raw+ep src/rooted/capped || { skip 'no devices or capabilities here'; rm -r src/rooted; return; }
	chmod 4755 src/rooted/capped && setcap cap_net_raw+ep src/rooted/capped
	stop_daemon
	user=root
	start_daemon
	d -a src/rooted "$(url mod/)"
	rc_is 1
	err_has 'null' 'no device is made in the module' 'capped'
	absent mod/rooted/null
	same src/tree/s1 mod/rooted/capped
	is 'capabilities of the source' "$(getcap src/rooted/capped | wc -l)" 1
	is 'capabilities' "$(getcap mod/rooted/capped)" ''
	mode_is mod/rooted/capped 755
	d_start --bwlimit=20M --json src/big "$(url mod/h)"
	await 30 moved 10000000 || fail 'nothing moves'
	is 'capabilities beyond those over files' "$((16#$(awk '/^CapEff/ {print $2}' "/proc/$(children | tail -n 1)/status") & ~16#401f))" 0
	kill -INT "$copy"
	reap 20 "$copy"
	all_gone
	rm -rf mod/rooted mod/.h.* src/rooted
	user=$before
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
	printf %b "$top$mod" >bad && chmod 646 bad
	rcp --daemon --config=bad
	rc_is 2
	err_has 'bad: others can write it' "chmod go-w 'bad'"
	rm bad
	cp alice.key keys/other.key # the same name a second time
	wrong_conf "$top$mod" 'keys/other.key:1: key alice is there twice' 'keys/alice.key:1'
	rm keys/other.key
}

port_taken() {
	printf 'keys = %s\nlisten = 127.0.0.1\nport = %s\n[m]\npath = %s\nkeys = *\n%s\n' "$dir/keys" "$dport" "$dir/ro" "$(as)" >bad
	rcp --daemon --config=bad
	rc_is 3
	err_has 'in use' "127.0.0.1:$dport"
}

# What systemd takes away must not be missed: children become other users, and are ended by the daemon.
hardened() {
	local caps

	is_root && have setpriv || { skip 'it takes root and setpriv'; return; }
	caps=$(sed -n 's/^CapabilityBoundingSet=//p' "$(dirname "$0")/../../systemd/rcpd.service.in" | tr '[:upper:]' '[:lower:]' | sed 's/cap_/+/g; s/ /,/g')
	[ -n "$caps" ] || fail 'the unit has no capabilities'
	# shellcheck disable=SC2016
	printf '#!/bin/sh\nexec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,%s "%s" "$@"\n' "$caps" "$RCP" >bin/hardened
	chmod +x bin/hardened
	stop_daemon
	chmod 700 mod
	daemon_program=$dir/bin/hardened start_daemon
	is 'capabilities' "$(awk '/^CapBnd/ {print $2}' "/proc/$daemon/status")" "$(awk '/^CapPrm/ {print $2}' "/proc/$daemon/status")"
	[ "$(awk '/^CapBnd/ {print $2}' "/proc/$daemon/status")" != "$(awk '/^CapBnd/ {print $2}' "/proc/$$/status")" ] || fail 'nothing was taken away'
	d src/f "$(url mod/hard)"
	rc_is 0
	same src/f mod/hard
	[ -z "$user" ] || is 'owner' "$(stat -c %U mod/hard)" "$user"
	d_start --json --retries=0 --bwlimit=10M src/big "$(url mod/t)"
	await 30 moved 1000000 || fail 'nothing moves'
	stop_daemon
	reap 20 "$copy"
	rc_is 6
	err_has 'the daemon was ended'
	rm -f mod/hard mod/.t.*
	chmod 755 mod
	start_daemon
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
t 'a link swapped in while a tree is written' swapped_to_write
t 'setuid bits are dropped, and it is said' special_modes
t 'why files failed is in the log' partly
t "the module's own directory" own_root
t "what other clients have not finished" others_state
t 'a child has no privileges' humble
t "a module of root's" rooted
t 'SIGHUP: a good and a bad configuration' reloaded
t 'SIGTERM in the middle of a copy; run again' terminated
t 'the daemon started again under a copy' restarted
t 'configurations that can not be' configured
t 'a port that is taken' port_taken
t 'with the capabilities that rcpd.service leaves' hardened
t 'socket activation and notification' activated
stop_daemon
end
