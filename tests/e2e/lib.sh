# shellcheck shell=bash
# The fixture of the end-to-end tests: a throw-away sshd on loopback, a home directory for its logins,
# rcp runs with a deadline, assertions, TAP. Sourced by each t-*.sh, never run.
#
# Everything is below $dir, which goes at the end, as do all processes in $pids: each was started
# here and is ended by its number. What is waited for has a deadline.
#
# From meson: RCP (the program), RCP_HOOKS (it, with bit flips for tests), E2E_PEAK, E2E_PRELOAD,
# E2E_DIR (where to put $dir), E2E_SANITIZED (the sanitizers rcp was built with), E2E_SUPPRESSIONS (their folder).

set -u
export LC_ALL=C
# What nohup ignores would be ignored by all that is started here, and bash can't undo it.
[ -n "${E2E_SIGNALS:-}" ] || exec env --default-signal E2E_SIGNALS=1 "$0" "$@"
: "${RCP:?the rcp to test}"
export RCP RCP_HOOKS=${RCP_HOOKS:-}

dir=
pids=()      # ended at exit
mounts=()    # undone at exit
dirs=()      # removed at exit, with $dir
cases=0 bad=0
rc=          # of the last rcp
declare -A sums # its summary, see load_sums
sshd_pid='' port=''
server='' session='' ssh='' copy='' # numbers of the ends and what joins them, by start_watched

# ---- life ----

# Is it (still) a process of this script's? Its number may be another's by now: a child of ours, or one that has
# $dir in its words or its environment, as what a login runs has.
ours() {
	grep -qs "^PPid:[[:space:]]*$$\$" "/proc/$1/status" ||
		grep -qsF -- "$dir" "/proc/$1/cmdline" "/proc/$1/environ"
}

finish() {
	local status=$? pid m

	[ "$BASHPID" = $$ ] || exit # a child that has not become another program yet
	trap - EXIT INT TERM HUP
	# Logins first: their numbers are in a file that is about to go.
	if [ -n "$dir" ] && [ -f "$dir/logins" ]; then
		while read -r pid _; do ! ours "$pid" || kill -9 "$pid" 2>/dev/null; done <"$dir/logins"
	fi
	for pid in ${pids[@]+"${pids[@]}"}; do ! ours "$pid" || kill -9 "$pid"; done 2>/dev/null
	wait
	for m in ${mounts[@]+"${mounts[@]}"}; do umount -l "$m" 2>/dev/null; done
	rm -rf ${dirs[@]+"${dirs[@]}"}
	[ -z "$dir" ] || { chmod -R u+rwX "$dir" 2>/dev/null; rm -rf "$dir"; }
	exit "$status"
}

bail() {
	printf 'Bail out! %s\n' "$*"
	exit 1
}

# The whole script can't run here.
skip_all() {
	printf '1..0 # SKIP %s\n' "$*"
	exit 0
}

begin() {
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	dir=$(mktemp -d "${E2E_DIR:-${TMPDIR:-/tmp}}/rcp-e2e.XXXXXX") || bail 'no directory to work in'
	mkdir "$dir/home" "$dir/bin" "$dir/src" "$dir/dst"
	mkfifo "$dir/never" # to wait for nothing, for a while
	ln -s "$RCP" "$dir/bin/rcp"
	: >"$dir/logins"
	cd "$dir" || bail "no way into $dir"
	report_to_files
}

end() {
	reported '(at the end)' || bad=$((bad + 1))
	printf '1..%d\n' "$cases"
	[ "$bad" = 0 ]
	exit
}

# ---- sanitizers ----

# What a sanitizer or valgrind finds goes to files: a server's standard error may be lost on its way through ssh, or be
# thrown away. Each process that has something to report ends with 99, which no case takes for good.
report_to_files() {
	local common=exitcode=99:halt_on_error=1:abort_on_error=0:print_stacktrace=1

	[ -n "${E2E_SANITIZED:-}" ] || return 0
	mkdir -m 1777 "$dir/reports"
	export ASAN_OPTIONS=$common:detect_stack_use_after_return=1:strict_string_checks=1:log_path=$dir/reports/sanitizer
	export UBSAN_OPTIONS=$common:log_path=$dir/reports/sanitizer
	export TSAN_OPTIONS=$common:second_deadlock_stack=1:suppressions=$E2E_SUPPRESSIONS/tsan.supp:log_path=$dir/reports/sanitizer
	E2E_REPORTS=$dir/reports
	export E2E_REPORTS
}

# reported NAME: tells what was found since the last time, and is false then. $no_report: lines that say nothing.
reported() {
	local f rc=0

	[ -n "${E2E_REPORTS:-}" ] || return 0
	for f in "$E2E_REPORTS"/*; do
		grep -qsvE "${no_report:-^\$}" "$f" || continue
		note "$1: a report in ${f##*/}:"
		head -n 60 "$f" | cut -c 1-200 | sed 's/^/#     /'
		rm -f "$f"
		rc=1
	done
	return $rc
}

# ---- waiting ----

# await SECONDS COMMAND...: until it succeeds; 1 where it doesn't in time.
await() {
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		read -r -t 0.05 <>"$dir/never" || :
	done
}

is_gone() { ! kill -0 "$1" 2>/dev/null || [[ $(</proc/"$1"/stat) =~ ')'\ Z ]] 2>/dev/null; }

# The status of a child of ours, in $rc; 999 where it doesn't end in time.
reap() {
	rc=999
	await "$1" is_gone "$2" || { kill -9 "$2"; wait "$2" 2>/dev/null; return 1; }
	wait "$2" 2>/dev/null
	rc=$?
}

# ---- sshd ----

# E2E_FULL=1: also the combinations that take long and show little that the others don't.
full() { [ -n "${E2E_FULL:-}" ]; }
have() { command -v "$1" >/dev/null 2>&1; }
has_ipv6() { grep -q '^0\{31\}1 ' /proc/net/if_inet6 2>/dev/null; }
is_root() { [ "$(id -u)" = 0 ]; }

find_sshd() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin command -v sshd
}

need() {
	local tool

	for tool; do have "$tool" || skip_all "$tool is not installed"; done
	find_sshd >/dev/null || skip_all 'sshd is not installed'
}

write_login() {
	cat >"$dir/login" <<-END
		#!/bin/sh
		# What each login runs: a home and a PATH of our own, then what was asked for.
		HOME='$dir/home' PATH='$dir/bin':\$PATH
		export HOME PATH
		$(for v in ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS E2E_REPORTS; do [ -z "${!v:-}" ] || echo "export $v='${!v}'"; done)
		cd
		echo "\$\$ \$PPID" >>'$dir/logins'
		[ ! -f '$dir/rc' ] || . '$dir/rc'
		eval "exec \$SSH_ORIGINAL_COMMAND"
	END
	chmod +x "$dir/login"
}

# SHLVL: a shell that is not the first reads none of the user's files, which may print things.
write_sshd_config() {
	local force="ForceCommand '$dir/login'"

	cat <<-END
		Port $port
		$(for a in ${listen_on:-127.0.0.1 $(has_ipv6 && echo ::1)}; do echo "ListenAddress $a"; done)
		HostKey $dir/host_key
		PidFile none
		AuthorizedKeysFile $dir/authorized_keys
		StrictModes no
		UsePAM no
		SetEnv SHLVL=1
		PermitRootLogin yes
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		MaxStartups 100
		PrintMotd no
		UseDNS no
		${force_command-$force}
	END
}

# box: our host; box6: the same by IPv6. Nothing of the user's own configuration is read.
write_ssh_config() {
	cat <<-END
		Host box
			HostName ${reach:-127.0.0.1}
		Host box6
			HostName ::1
		Host *
			Port $port
			User $(id -un)
			IdentityFile $dir/key
			IdentitiesOnly yes
			UserKnownHostsFile $dir/known_hosts
			GlobalKnownHostsFile /dev/null
			HostKeyAlias box
			StrictHostKeyChecking yes
			BatchMode yes
			ControlPath none
			KexAlgorithms curve25519-sha256
			LogLevel ERROR
	END
}

sshd_answers() { grep -q 'Server listening' "$dir/sshd.log" || is_gone "$sshd_pid"; }

start_sshd() {
	local sshd try

	sshd=$(find_sshd)
	! is_root || mkdir -p /run/sshd # Debian's sshd wants it, and its service makes it
	ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key" -C '' && ssh-keygen -q -t ed25519 -N '' -f "$dir/key" -C '' ||
		bail 'ssh-keygen failed'
	cp "$dir/key.pub" "$dir/authorized_keys"
	echo "box $(cat "$dir/host_key.pub")" >"$dir/known_hosts"
	write_login
	for try in 1 2 3 4 5 6 7 8; do
		port=$((20000 + (RANDOM * 7 + $$ + try) % 12000))
		write_sshd_config >"$dir/sshd_config"
		: >"$dir/sshd.log"
		"$sshd" -D -f "$dir/sshd_config" -E "$dir/sshd.log" </dev/null &
		sshd_pid=$!
		disown "$sshd_pid" # bash would tell of its end
		pids+=("$sshd_pid")
		await 10 sshd_answers || bail "sshd does not start: $(tail -n 3 "$dir/sshd.log")"
		is_gone "$sshd_pid" || break
		grep -q 'Address already in use' "$dir/sshd.log" || bail "sshd: $(tail -n 3 "$dir/sshd.log")"
	done
	write_ssh_config >"$dir/ssh_config"
	ssh -F "$dir/ssh_config" box true 2>"$dir/ssh.err" ||
		bail "no login to the throw-away sshd: $(tail -n 2 "$dir/ssh.err") $(tail -n 3 "$dir/sshd.log")"
}

# ---- a network of our own ----

# The whole script in a network namespace, where packets can be dropped. Skips where that can't be.
own_net() {
	[ -z "${E2E_OWN_NET:-}" ] || { ip link set lo up; return; }
	is_root || skip_all 'packets can only be dropped by root'
	have unshare && have ip && have nft || skip_all 'unshare, ip or nft is not installed'
	unshare -n nft add table inet e2e 2>/dev/null || skip_all 'no network namespace with nftables here'
	exec env E2E_OWN_NET=1 unshare -n "$0"
}

# filter RULE...: what becomes of packets on their way in; none: all pass.
filter() {
	{
		echo 'flush ruleset'
		[ $# = 0 ] || printf 'table inet e2e {\n chain in {\n type filter hook input priority 0;\n'
		[ $# = 0 ] || { printf '%s\n' "$@"; printf '}\n}\n'; }
	} | nft -f - || bail 'nft refused'
}

# ---- both ends, watched ----

# The server's own number, status and words, for tests that end it or wait for it: --rcp-path=watched
write_watched() {
	cat >"$dir/bin/watched" <<-END
		#!/bin/sh
		# dash gives a job in the background no standard input, so it gets it by another number.
		exec 3<&0
		'$RCP' "\$@" <&3 3<&- 2>>'$dir/server.err' &
		echo \$! >'$dir/server.pid'
		echo \$PPID >'$dir/session.pid'
		exec 3<&-
		wait \$!
		status=\$?
		echo "\$status" >'$dir/server.rc'
		exit "\$status"
	END
	# -S: which ssh it is
	cat >"$dir/bin/ssh-watched" <<-END
		#!/bin/sh
		echo \$\$ >'$dir/ssh.pid'
		exec ssh "\$@"
	END
	chmod +x "$dir/bin/watched" "$dir/bin/ssh-watched"
}

# start_watched ARG...: both ends known; returns once more than $beyond bytes were moved.
start_watched() {
	rm -f server.pid server.rc server.err session.pid ssh.pid
	rcp_start --json --rcp-path=watched -S "$dir/bin/ssh-watched" "$@"
	await 60 moved "${beyond:-0}" || { fail 'the copy does not get going'; return 1; }
	server=$(<server.pid) session=$(<session.pid) ssh=$(<ssh.pid)
	pids+=("$server")
}

# over_old up|down ARG...: src/f onto an old dst/f, slowly; what was copied whereto is in $from and $to.
over_old() {
	local way=$1

	shift
	echo old >dst/f
	if [ "$way" = up ]; then
		from=src/f to=box:$dir/dst/f
	else
		from=box:$dir/src/f to=dst/f
	fi
	start_watched --bwlimit=6M "$@" "$from" "$to"
}

server_rc_is() { await 5 test -s server.rc; is "the server's status" "$(cat server.rc 2>/dev/null)" "$1"; }
server_ended() { [ -s server.rc ] || is_gone "$server"; }

# ---- running rcp ----

# rcp ARG...: its status in $rc, its output in $dir/out and $dir/err.
rcp() {
	printf '%q ' rcp "$@" >"$dir/cmd"
	sums=()
	timeout -k 5 "${limit:-100}" "${program:-$RCP}" -F "$dir/ssh_config" "$@" </dev/null >"$dir/out" 2>"$dir/err"
	rc=$?
}

# The same in the background, as a terminal starts it: a process group of its own, SIGINT not ignored.
# Its number is in $copy.
rcp_start() {
	printf '%q ' rcp "$@" >"$dir/cmd"
	: >"$dir/out"
	sums=()
	set -m
	"${program:-$RCP}" -F "$dir/ssh_config" "$@" </dev/null >"$dir/out" 2>"$dir/err" &
	copy=$!
	set +m
	pids+=("$copy")
}

# jq's answer about the last event of a kind.
event() { jq -r "select(.event == \"$1\") | $2" "$dir/out" 2>/dev/null | tail -n 1; }
summary() { event summary "$1"; }

# sums[KEY]: the summary's plain values, by one jq for all of them.
load_sums() {
	local key value

	sums=([loaded]=1)
	while IFS=$'\t' read -r key value; do sums[$key]=$value; done < <(jq -r 'select(.event == "summary") |
		to_entries[] | select(.value | type | . != "array") | "\(.key)\t\(.value)"' "$dir/out" 2>/dev/null)
}
# Asked many times a second: no process for it.
moved() {
	local lines i

	mapfile -t lines <"$dir/out"
	for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
		[[ ${lines[i]} =~ '"event":"progress","bytes":'([0-9]+) ]] || continue
		[ "${BASH_REMATCH[1]}" -gt "$1" ]
		return
	done
	return 1
}

# ---- assertions: a failed one is told and the case goes on ----

note() { printf '#   %s\n' "$*"; }
fail() { failed=1; note "$*"; }
show() { tail -n 8 "$dir/$1" | cut -c 1-600 | tr -c '[:print:]\n' '?' | sed "s/^/#     $1: /"; }

rc_is() { [ "$rc" = "$1" ] || fail "exit status $rc, not $1"; }
err_has() {
	local text
	for text; do grep -qF -- "$text" "$dir/err" || { fail "standard error lacks: $text"; show err; }; done
}
err_lacks() { ! grep -qF -- "$1" "$dir/err" || fail "standard error has: $1"; }
err_lines() { [ "$(wc -l <"$dir/err")" = "$1" ] || { fail "standard error has $(wc -l <"$dir/err") lines, not $1"; show err; }; }
# of rcp's own; ssh may have said something, too
own_lines() {
	[ "$(grep -c '^rcp' "$dir/err")" = "$1" ] || { fail "standard error has $(grep -c '^rcp' "$dir/err") lines of rcp, not $1"; show err; }
}
out_empty() { [ ! -s "$dir/out" ] || fail 'standard output is not empty'; }
is() { [ "$2" = "$3" ] || fail "$1 is $(printf %q "${2:0:300}"), not $(printf %q "${3:0:300}")"; }
old() { cmp -s "$1" <(echo old) || fail "$1 is not the old file"; }
sum_is() {
	[ -n "${sums[loaded]:-}" ] || load_sums
	if [[ $1 =~ ^\.[a-z_0-9]+$ ]]; then
		is "summary $1" "${sums[${1#.}]:-}" "$2"
	else
		is "summary $1" "$(summary "$1")" "$2"
	fi
}
same() { cmp -- "$1" "$2" >"$dir/cmp" 2>&1 || fail "$(cat "$dir/cmp")"; }
same_tree() { diff -r -- "$1" "$2" >"$dir/diff" 2>&1 || { fail "trees differ"; sed 's/^/#     /' "$dir/diff" | head -n 10; }; }
exists() { local f; for f; do [ -e "$f" ] || [ -L "$f" ] || fail "missing: $f"; done; }
absent() { local f; for f; do [ ! -e "$f" ] && [ ! -L "$f" ] || fail "there, and should not be: $f"; done; }
mode_is() { is "mode of $1" "$(stat -c %a -- "$1")" "$2"; }
# The list of a copy that failed (.rcp-done) goes with the rerun of the very same command: t-kills looks.
leftovers() { find "$1" -name '.*.rcp-*' ! -name '.*.rcp-done' | sort; }
clean() { [ -z "$(leftovers "$1")" ] || fail "left behind: $(leftovers "$1" | tr '\n' ' ')"; }
only_partials() {
	local f
	f=$(find "$1" -name '.*' -type f ! -name '.*.rcp-part' ! -name '.*.rcp-journal' ! -name '.*.rcp-done')
	[ -z "$f" ] || fail "more than partial files: $f"
}

# ---- cases ----

show_last() {
	note "command: $(cat "$dir/cmd" 2>/dev/null)"
	for f in out err; do
		[ ! -s "$dir/$f" ] || show "$f"
	done
}

# t NAME FUNCTION ARG...: one case. The function says what fails; skip REASON ends it as skipped.
# E2E_ONLY=PATTERN: those whose names match, for work on one.
t() {
	local name=$1 skipped='' failed=0

	shift
	[[ $name == *${E2E_ONLY:-}* ]] || return 0
	cases=$((cases + 1))
	rm -rf "$dir/dst" && mkdir "$dir/dst"
	rm -f "$dir/out" "$dir/err" "$dir/cmd" "$dir/rc"
	"$@" || failed=1
	reported "$name" || failed=1 skipped=''
	if [ -n "$skipped" ]; then
		printf 'ok %d - %s # SKIP %s\n' "$cases" "$name" "$skipped"
	elif [ "$failed" = 0 ]; then
		printf 'ok %d - %s\n' "$cases" "$name"
	else
		show_last
		printf 'not ok %d - %s\n' "$cases" "$name"
		bad=$((bad + 1))
	fi
	return 0
}

skip() { skipped=$*; }

# ---- data ----

# data FILE BYTES: bytes that no filter can predict, the same each time.
data() {
	head -c "$2" /dev/zero | openssl enc -aes-128-ctr -K 000102030405060708090a0b0c0d0e0f \
		-iv "$(printf '%032x' "$2")" 2>/dev/null >"$1"
}

# By gzip, which is slow: once for each file.
crc32_of() {
	local memo

	memo=$dir/crc.$(stat -c %i.%s.%Y -- "$1")
	[ -s "$memo" ] || gzip -1 -c -- "$1" | tail -c 8 | head -c 4 | od -A n -t x4 --endian=little | tr -d ' ' >"$memo"
	cat "$memo"
}
