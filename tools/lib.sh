# shellcheck shell=bash disable=SC2034 # the lists are for those who source it
# What tools/check and tools/demo share: installing what is missing. Sourced.

# What a build needs, what the tests need on top of it, and what `tools/check --full` and `--deep` do (Debian's names). The lab installs its own.
build_packages=(meson ninja-build gcc pkg-config libibverbs-dev librdmacm-dev libuv1-dev zlib1g-dev libssl-dev libisal-dev)
demo_packages=(openssh-server openssh-client)
test_packages=(libcmocka-dev clang libclang-rt-dev openssh-server openssh-client python3 rsync jq mandoc shellcheck fish acl attr iproute2
	nftables kmod xfsprogs e2fsprogs procps)
deep_packages=(clang-tidy cppcheck valgrind)

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
die() { say "$*" >&2; exit 1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
		die "this needs root to install packages: run it as root, install sudo, or install them yourself: $*"
	fi
}

# Debian names the sanitizers' runtime after clang's version.
package_name() {
	case $1 in
	libclang-rt-dev)
		local v
		v=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -1)
		echo "libclang-rt-${v:-14}-dev"
		;;
	*) echo "$1" ;;
	esac
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need PACKAGE...: installs those that are not there.
need() {
	local missing=() p name
	if ! command -v apt-get >/dev/null; then
		say "no apt-get here; these packages (by Debian's names) must be there: $*"
		return 0
	fi
	for p; do
		name=$(package_name "$p")
		installed "$name" || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	as_root apt-get update -qq || die "apt-get update failed"
	local names=()
	for p in "${missing[@]}"; do names+=("$(package_name "$p")"); done
	say "installing ${names[*]}"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}" >/dev/null ||
		die "apt-get install failed: ${names[*]}"
}

# build DIR [MESON-OPTION...]: configures once and builds.
build() {
	local dir=$1
	shift
	if [ ! -f "$dir/build.ninja" ]; then
		meson setup "$dir" "$@" >"$dir.log" 2>&1 || { cat "$dir.log" >&2; die "meson setup failed"; }
		rm -f "$dir.log"
	fi
	ninja -C "$dir" >"$dir/build.log" 2>&1 || { tail -n 60 "$dir/build.log" >&2; die "the build in $dir failed"; }
}
