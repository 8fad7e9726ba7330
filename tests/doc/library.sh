#!/bin/sh
# librcp exports what its header declares, and nothing else.
# usage: library.sh LIBRARY HEADER
set -eu
want=$(sed -n 's/^RCP_API [^(]*[ *]\(rcp_[a-z_]*\)(.*/\1/p' "$2" | sort)
have=$(nm -D --defined-only "$1" | awk '$2 ~ /^[TDBR]$/ { sub(/@.*/, "", $3); print $3 }' | grep -v '^__\(asan\|odr_asan\|llvm\|gcov\|tsan\|ubsan\)' | sort)
[ -n "$want" ] || { echo "$2: no RCP_API function found"; exit 1; }
[ "$want" = "$have" ] && exit 0
echo "declared: $want"
echo "exported: $have"
exit 1
