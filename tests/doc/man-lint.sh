#!/bin/sh
# Every page in good mdoc. A page of the project's own that is not installed yet is no fault.
# man-lint.sh PAGE... 77: no mandoc.
set -eu

command -v mandoc >/dev/null || { echo "skipped: no mandoc"; exit 77; }
faults=$(mandoc -T lint "$@" 2>&1 | grep -v -e 'referenced manual not found' -e 'outdated mandoc.db' || :)
[ -z "$faults" ] || { echo "$faults"; exit 1; }
