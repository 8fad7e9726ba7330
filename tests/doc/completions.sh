#!/bin/sh
# Each shell offers exactly the options that --help shows, and the words of an option's argument.
# completions.sh GENERATOR RCP SHELL. 77: the shell is not installed.
set -eu
generator=$1 rcp=$2 shell=$3

command -v "$shell" >/dev/null || { echo "skipped: no $shell"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HOME="$dir" XDG_CONFIG_HOME="$dir" XDG_DATA_HOME="$dir"
script=$dir/script
"$generator" "$shell" >"$script"

# "-x" and "--name", from the lines of options of --help
"$rcp" --help | sed -n 's/^  \(-.\), \(--[a-z0-9-]*\).*/\1\n\2/p; s/^  \(-[^-]\)\( .*\)\{0,1\}$/\1/p
	s/^      \(--[a-z0-9-]*\).*/\1/p' | sort >"$dir/wanted"
[ "$(wc -l <"$dir/wanted")" -gt 40 ] || { echo "too few options in --help"; exit 1; }

# compopt only works while bash completes; here its answer is not what is looked at
# shellcheck disable=SC2016 # for the shell that is tested
bash_offers='compopt() { :; }; . "$1"; shift; COMP_WORDS=(rcp "$@"); COMP_CWORD=$#; _rcp
	[ ${#COMPREPLY[@]} = 0 ] || printf "%s\n" "${COMPREPLY[@]}"'
# zsh has no words to give outside its line editor: what is told to _arguments is looked at
# shellcheck disable=SC2016
zsh_specs='_arguments() { print -rl -- "$@" }; . $1'
# shellcheck disable=SC2016
fish_offers='source $argv[1]; complete -C $argv[2]'

case $shell in
bash)
	bash -n "$script"
	bash --norc -c "$bash_offers" bash "$script" - | sed 's/=$//' | sort >"$dir/all"
	bash --norc -c "$bash_offers" bash "$script" --transport = r >"$dir/word"
	echo rdma >"$dir/word.wanted"
	: >"$dir/with space"
	(cd "$dir" && bash --norc -c "$bash_offers" bash "$script" -i with) >"$dir/file"
	echo "with space" | cmp - "$dir/file"
	bash --norc -c "$bash_offers" bash "$script" host : p | cmp - /dev/null
	;;
zsh)
	zsh -n "$script"
	zsh -f -c "$zsh_specs" zsh "$script" >"$dir/specs"
	sed -n 's/^\(([^)]*)\|\*\)\{0,1\}\(-[^-[+=]\|--[a-z0-9-]*\)[+=]\{0,1\}\[.*\].*/\2/p' "$dir/specs" |
		sort >"$dir/all"
	sed -n 's/^--transport=\[.*\]:WAY:(\(.*\))$/\1/p' "$dir/specs" >"$dir/word"
	echo auto rdma tcp ssh >"$dir/word.wanted"
	;;
fish)
	fish -n "$script"
	fish -c "$fish_offers" "$script" 'rcp -' | cut -f1 | sort >"$dir/all"
	fish -c "$fish_offers" "$script" 'rcp --transport=r' | cut -f1 >"$dir/word"
	echo --transport=rdma >"$dir/word.wanted"
	;;
esac
diff "$dir/wanted" "$dir/all"
diff "$dir/word.wanted" "$dir/word"
