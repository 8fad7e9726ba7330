# shellcheck shell=bash
# Measuring for bench/peers and bench/peers-guest: rounds, medians, the table. Sourced.
#
# A peer is a function peer_NAME that copies to $work/dst once. What it took is in the arrays wall, cpu and within by
# NAME and round. From the caller: $work, $rounds, and $sshd and $daemon, whose children count too (empty: none).

: "${work:=}" "${rounds:=3}"
declare -A wall cpu within
size=0
export LC_ALL=C

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

has() {
	command -v "$1" >/dev/null 2>&1 || { say "skipped: $1 is not installed"; return 1; }
}

# data FILE MiB: bytes that nothing on the way can predict, made fast.
data() {
	head -c "$2M" /dev/zero | openssl enc -aes-128-ctr -K 000102030405060708090a0b0c0d0e0f \
		-iv "$(printf '%032x' "$2")" 2>/dev/null >"$1"
}

# CPU ticks of our ended children, and of sshd's and the daemon's.
ticks() {
	local stat sum pid
	read -r stat <"/proc/$BASHPID/stat"
	# shellcheck disable=SC2086 # words are wanted
	set -- ${stat##*) }
	sum=$((${14} + ${15}))
	for pid in ${sshd:-} ${daemon:-}; do
		read -r stat <"/proc/$pid/stat"
		# shellcheck disable=SC2086
		set -- ${stat##*) }
		sum=$((sum + ${14} + ${15}))
	done
	ticks=$sum
}

# A login's processes count once sshd has collected them.
logins_gone() {
	[ -z "${sshd:-}" ] && return
	local i
	for ((i = 0; i < 200; i++)); do
		[ -n "$(cat "/proc/$sshd/task/$sshd/children" 2>/dev/null)" ] || return 0
		sleep 0.02
	done
}

# inner NAME SECONDS: what the peer itself says its transfer took.
# shellcheck disable=SC2034
inner() { within[$1,$round]=$2; }

# transfer NAME COMMAND...: an rcp with --json. Its transfer is from the line that tells the transport, which comes when
# login and connecting are over, to the summary. The lines stay in $work/json.
transfer() {
	local name=$1
	shift
	"$@" | stamped >"$work/json"
	inner "$name" "$(calc "$(awk '/"event":"transport"/ && !b { b = $1 } /"event":"summary"/ { e = $1 } END { print e "-" b }' "$work/json")")"
}
stamped() { while read -r line; do echo "$EPOCHREALTIME $line"; done; }

# run_rounds BYTES NAME...
run_rounds() {
	local name start before hz
	size=$1
	shift
	hz=$(getconf CLK_TCK)
	for ((round = 1; round <= rounds; round++)); do
		for name; do
			# What copies again stands behind what copied first.
			[[ $name = *_again ]] || { rm -rf "$work/dst" && mkdir "$work/dst"; }
			ticks
			before=$ticks
			start=$EPOCHREALTIME
			"peer_$name" || die "$name failed"
			wall[$name,$round]=$(calc "$EPOCHREALTIME - $start")
			logins_gone
			ticks
			cpu[$name,$round]=$(calc "($ticks - $before) / $hz")
			say "round $round: $name ${wall[$name,$round]} s, CPU ${cpu[$name,$round]} s"
		done
	done
	rm -rf "$work/dst" && mkdir "$work/dst"
}

calc() { awk "BEGIN { printf \"%.4f\", ($1) }"; }

# median, smallest and largest of the numbers on standard input.
spread() { sort -g | awk '{ v[NR] = $1 } END { if (NR) printf "%.6f %.6f %.6f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, v[1], v[NR] }'; }

column() { # ARRAY NAME
	local -n values=$1
	local r
	for ((r = 1; r <= rounds; r++)); do [ -z "${values[$2,$r]:-}" ] || echo "${values[$2,$r]}"; done
}

heading() {
	printf '\n%s; medians of %d rounds\n\n%-52s %9s %9s %9s %9s\n' "$1" "$rounds" '' seconds MB/s 'its own' 'CPU s/GB'
}

row() { # NAME TEXT: whole run; MB/s of it, and of the transfer as the peer itself tells it
	local w c i
	w=$(column wall "$1" | spread | cut -d' ' -f1)
	[ -n "$w" ] || return 0
	i=$(column within "$1" | spread | cut -d' ' -f1)
	c=$(column cpu "$1" | spread | cut -d' ' -f1)
	awk -v w="$w" -v c="$c" -v i="${i:-0}" -v size="$size" -v text="$2" 'BEGIN {
		own = i > 0 ? sprintf("%.0f", size / i / 1e6) : ""
		printf "%-52s %9.2f %9.0f %9s %9.2f\n", text, w, size / w / 1e6, own, c / size * 1e9
	}'
}

quotients() { # ARRAY OVER UNDER: OVER / UNDER of each round
	local -n v=$1
	local r
	for ((r = 1; r <= rounds; r++)); do
		[ -z "${v[$2,$r]:-}" ] || [ -z "${v[$3,$r]:-}" ] || calc "${v[$3,$r]} > 0 ? ${v[$2,$r]} / ${v[$3,$r]} : 0"
		echo
	done | grep .
}

told() { # TEXT, quotients on standard input
	local m low high
	read -r m low high <<<"$(spread)" || true
	[ -z "$m" ] || printf '%-62s %6.2f   (%.2f to %.2f)\n' "$1" "$m" "$low" "$high"
}

ratio() { quotients wall "$2" "$1" | told "$3"; }        # how often A fits into B's time
ratio_inner() { quotients within "$2" "$1" | told "$3"; } # the same, of what they say themselves
ratio_cpu() { quotients cpu "$1" "$2" | told "$3"; }      # A's CPU over B's
