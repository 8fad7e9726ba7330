#!/usr/bin/env bash
# The house rules of HACKING.md, held by grep: who may include whom, who may print, how long things may be.
# usage: layers.sh SOURCE_ROOT. Exit 1 and one line for each breach.
set -u
cd "${1:?source root}" || exit 2
bad=0
breach() { echo "breach: $*"; bad=1; }

# A folder includes only those before it.
order=(base wire file link session boot cli)
rank() { local i; for i in "${!order[@]}"; do [ "${order[$i]}" = "$1" ] && echo "$i" && return; done; echo -1; }
while IFS=: read -r file _ line; do
	from=$(echo "$file" | cut -d/ -f2)
	to=$(echo "$line" | sed -n 's/^#include "\([a-z]*\)\/.*/\1/p')
	case $to in '' | rcp) continue ;; esac
	[ "$(rank "$to")" -ge 0 ] || { breach "$file includes \"$to/\", which is no layer"; continue; }
	[ "$(rank "$to")" -le "$(rank "$from")" ] || breach "$file ($from) includes $to, which is above it"
done < <(grep -rn '^#include "' src --include='*.[ch]')

# only PATTERN WHAT ALLOWED-REGEX: matches outside the allowed files are breaches.
only() {
	local hit
	while IFS= read -r hit; do breach "$2: $hit"; done < <(
		grep -rnE "$1" src include --include='*.[ch]' | grep -vE "^($3)" | grep -vE '^[^:]+:[0-9]+:\s*(/?\*|//)')
}
only '#include <uv\.h>|\buv_[a-z_]+\(' "libuv outside its places" 'src/boot/|src/cli/|src/link/stream|src/link/verbs/(events|async)'
only '#include <(infiniband|rdma)/|\b(ibv|rdma)_[a-z_]+\(' "verbs outside src/link/verbs" 'src/link/verbs/'
only '#include <openssl/|\b(SSL|EVP)_[A-Za-z_]+\(' "OpenSSL outside its places" 'src/boot/tls|src/link/seal\.'
only '\b(printf|puts|perror|abort)\(|\bstderr\b|\bstdout\b|[^_a-z]exit\(' "printing or exiting below src/cli" 'src/cli/'
only '\b(uv|ibv|ssl|SSL)_' "foreign types in the public header" 'src/'

# Files of at most 700 lines, functions of at most 100.
while read -r lines file; do
	[ "$file" = total ] || [ "$lines" -le 700 ] || breach "$file has $lines lines (700 are allowed)"
done < <(find src include tests bench -name '*.[ch]' -exec wc -l {} + 2>/dev/null)
while IFS= read -r hit; do breach "$hit"; done < <(find src tests bench -name '*.c' 2>/dev/null | while read -r f; do
	awk -v f="$f" '/^[a-zA-Z_].*\(/ && !/;$/ {name=$0; at=NR} /^\{/ {start=NR}
		/^\}/ && start {if (NR-start > 100) printf "%s:%d: %d lines: %s\n", f, at, NR-start, name; start=0}' "$f"
done)
[ "$bad" = 0 ] && echo "layers: every rule holds"
exit "$bad"
