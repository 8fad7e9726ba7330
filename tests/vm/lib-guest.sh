# shellcheck shell=bash
# For tests inside a guest: TAP, and rcp's JSON summary. Sourced.
set -u
cases=0 failures=0

# ok NAME STATUS [DETAIL-FILE]: one TAP line; the detail is shown where it failed.
ok() {
	cases=$((cases + 1))
	if [ "$2" = 0 ]; then
		echo "ok $cases - $1"
	else
		failures=$((failures + 1))
		echo "not ok $cases - $1"
		[ -z "${3:-}" ] || sed 's/^/# /' "$3" | tail -n 30
	fi
}
skip() {
	cases=$((cases + 1))
	echo "ok $cases - $1 # SKIP $2"
}
finish() {
	echo "1..$cases"
	[ "$failures" = 0 ]
}

# copy STATUS ARG...: runs rcp with a deadline; its JSON in $json, its messages in $said. Returns 0 where its status is STATUS.
json=/run/tmp/json said=/run/tmp/said
copy() {
	local want=$1 got=0
	shift
	timeout -k 5 "${deadline:-90}" "$RCP" --json "$@" >"$json" 2>"$said" || got=$?
	{ echo "status $got, wanted $want: rcp $*"; grep '"summary"' "$json"; } >>"$said"
	[ "$got" = "$want" ]
}

# field NAME: of the summary, as jq prints it.
field() { grep '"event":"summary"' "$json" | sed -nE "s/.*\"$1\":(\"([^\"]*)\"|([^,}]*)).*/\2\3/p" | head -1; }
number() { grep '"event":"summary"' "$json" | sed -nE "s/.*\"$1\":([0-9]+).*/\1/p" | head -1; }

# expect TEXT...: each stands in what rcp said or in its JSON.
expect() {
	local text status=0
	for text; do
		grep -qF -- "$text" "$said" "$json" || { echo "missing: $text" >>"$said"; status=1; }
	done
	return $status
}
