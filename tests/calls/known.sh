#!/bin/sh
# All that src/ calls outside itself is in `wrapped` or in `passed`: a call that is new can't go untested by oversight.
# usage: known.sh DIR OBJECT|ARCHIVE...
dir=$1
shift
command -v nm >/dev/null || { echo 'nm is not installed'; exit 77; }
{
	nm --defined-only "$@" | awk 'NF == 3 && $2 ~ /[A-TV-Z]/ { print "own", $3 }'
	sed -n 's/^\([^# -][^ ]*\).*/known \1/p' "$dir/wrapped" "$dir/passed"
	nm -u "$@" | awk '$1 == "U" { print "used", $2 }'
} | awk '
	$1 == "own" { own[$2] = 1 }
	$1 == "known" { star = index($2, "*"); if (star) like[$2] = star; else known[$2] = 1 }
	$1 == "used" && !($2 in own) && !($2 in known) && !seen[$2]++ {
		for (l in like) {
			end = substr(l, like[l] + 1)
			if (substr($2, 1, like[l] - 1) == substr(l, 1, like[l] - 1) &&
			    substr($2, length($2) - length(end) + 1) == end)
				next
		}
		print $2 ": neither in tests/calls/wrapped nor in tests/calls/passed"
		bad = 1
	}
	{ if ($1 == "used") n++ }
	END { if (!n) print "no calls found"; exit bad || !n }'
