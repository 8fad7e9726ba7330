#!/bin/bash
# Names are bytes: none of them breaks, hides or runs anything, at either end.
# Names that a shell must not expand are the point here.
# shellcheck disable=SC2016
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen jq openssl
begin
start_sshd

long=$(printf 'n%.0s' {1..255})
names=(
	'a b' ' lead' 'trail ' $'new\nline' $'tab\there' "it's" 'say "x"' '*' '?' '[a]' '-r' '--server' '-'
	$'\xff\xfe\x80' $'caf\xc3\xa9' 'back\slash' '$(touch pwned)' '`touch pwned`' '$HOME' '~' '~root' 'a:b'
	'#' '!' ';touch pwned' '|x' '&' '>x' '{a,b}' $'\x01\x1b[31m' '%s%n' '..x' '.dot' 'x@y' $'\xe2\x80\xae'
	"$long" "${long:0:250}"
)
mkdir src/names home/names
i=0
for n in "${names[@]}"; do printf 'file %d' $((i += 1)) >"src/names/$n"; done
mkdir 'src/names/dir $(x) *' && echo inner >'src/names/dir $(x) */'$'in\nner'

untouched() { absent pwned home/pwned src/pwned dst/pwned src/names/pwned; }

whole_tree() {
	rcp -r "$@"
	rc_is 0
	same_tree src/names dst/names
	clean dst
	untouched
}

# Each by itself: as an operand, quoted once, for the local shell alone.
single() {
	local n=$1 from=$2

	rcp --json -- "$from" "box:$dir/dst/"
	rc_is 0
	same "src/names/$n" "dst/$n"
	rm -rf dst && mkdir dst
	# What the remote end takes for a pattern is written so that it means itself.
	rcp --json -- "box:$dir/src/names/$(printf %s "$n" | sed 's/[][*?\\]/\\&/g')" dst/
	rc_is 0
	same "src/names/$n" "dst/$n"
	is 'lines that are no JSON' "$(jq -e . dst/../out >/dev/null 2>&1 || echo some)" ''
	untouched
}

# To a name: the target's own name is as hostile as the source's.
renamed() {
	rcp -- "src/names/a b" "box:$dir/dst/$1"
	rc_is 0
	same 'src/names/a b' "dst/$1"
	untouched
}

here_dash() {
	cd src/names || return
	rcp -- -r "box:$dir/dst/"
	rc_is 0
	same -r ../../dst/-r
	rcp ./-r '--server' -- - '--server' "box:$dir/dst/"
	cd ../..
}

colon() {
	cd src/names || return
	rcp ./a:b "box:$dir/dst/"
	rc_is 0
	same a:b "$dir/dst/a:b"
	rcp "box:$dir/dst/a:b" ./c:d
	rc_is 0
	same a:b ./c:d
	rm -f ./c:d
	rcp "$dir/src/names/a:b" "$dir/dst/e:f"
	rc_is 0
	same a:b "$dir/dst/e:f"
	cd ../..
}

# A message shows a hostile name escaped, on one line.
shown() {
	local n=$'gone\n\x1b[31m\xff'

	rcp -- "src/$n" "box:$dir/dst/"
	rc_is 1
	err_lines 1
	err_lacks $'\x1b'
	err_has gone 'No such file or directory'
	rcp -- "box:$dir/src/$n" dst/
	rc_is 1
	err_lines 1
	err_lacks $'\x1b'
	err_has gone 'No such file or directory'
}

bad_hosts() {
	local h

	for h in '-oProxyCommand=touch pwned:x' 'a b:x' $'a\nb:x' '@:x' '-l@box:x'; do
		rcp -- src/names/-r "$h"
		rc_is 2
		err_lines 1
	done
	untouched
}

t 'a tree of odd names up, tcp' whole_tree src/names "box:$dir/dst/"
t 'a tree of odd names down, tcp' whole_tree "box:$dir/src/names" dst/
t 'a tree of odd names up, ssh' whole_tree --transport=ssh src/names "box:$dir/dst/"
t 'a tree of odd names, local' whole_tree src/names dst/
for n in 'a b' $'new\nline' "it's" 'say "x"' '*' '?' '-r' $'\xff\xfe\x80' 'back\slash' '$(touch pwned)' \
	';touch pwned' '~root' "$long"; do
	t "by itself: $(printf %q "$n" | cut -c 1-40 | tr '#' '.')" single "$n" "src/names/$n"
done
for n in 'x y' $'x\ny' '$(touch pwned)' $'\xff' 'x"'\''x'; do
	t "renamed to $(printf %q "$n")" renamed "$n"
done
t 'a leading dash behind --' here_dash
t 'a colon in a local name' colon
t 'a message about a hostile name' shown
t 'host names that are no hosts' bad_hosts
end
