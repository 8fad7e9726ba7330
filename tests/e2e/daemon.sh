# shellcheck shell=bash disable=SC2154,SC2119,SC2120
# A daemon of our own for t-daemon.sh and t-crowd.sh, which source this after lib.sh: data, modules, keys.
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

	# One file, where the kernel has it: to look at each process takes seconds on a busy machine.
	if [ -r "/proc/$daemon/task/$daemon/children" ]; then
		tr ' ' '\n' <"/proc/$daemon/task/$daemon/children" | grep .
		return 0
	fi
	for f in /proc/[0-9]*/stat; do
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

# ---- clients that hold a place ----

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

# A copy that an editor left, which must not count.
echo 'alice not a key' >keys/alice.key~
for k in alice bob; do "$RCP" --keygen $k $k.key && cp $k.key keys/ || bail 'no key'; done
start_daemon

