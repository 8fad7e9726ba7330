# shellcheck shell=bash
# Shared by prepare and run: where things are, which kernels there are, how to say "not here".
# Sourced, never run. It knows nothing of options.

lab_kernels=(6.1 6.12)
lab_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab_cache=${RCP_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rcp-lab}

# Where root's tools are, for users whose PATH lacks it.
PATH+=:/usr/local/sbin:/usr/sbin:/sbin

# command:package, for what the lab and the tests in it call.
lab_tools=(
	qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod ip:iproute2 xz:xz-utils zstd:zstd
	make:build-essential sshd:openssh-server ssh:openssh-client nft:nftables mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs
	dmsetup:dmsetup ethtool:ethtool ping:iputils-ping rping:rdmacm-utils ibv_devices:ibverbs-utils ib_write_bw:perftest
)

lab_missing_packages() {
	local t
	for t in "${lab_tools[@]}"; do
		command -v "${t%%:*}" >/dev/null || echo "${t##*:}"
	done
	compgen -G '/usr/lib*/*/libibverbs/librxe-*' >/dev/null || echo ibverbs-providers
}

lab_say() { printf 'lab: %s\n' "$*" >&2; }
lab_die() { lab_say "$*"; exit 125; }
# A skip is an answer, not an error: 77 is what meson and automake count as one.
lab_skip() { lab_say "SKIP: $*"; exit 77; }

lab_is_kernel() {
	local k
	for k in "${lab_kernels[@]}"; do [ "$k" = "$1" ] && return; done
	return 1
}

# What the initramfs is made of: it is made anew when this changes.
lab_initramfs_id() { cat "$lab_here/guest/init" "$lab_here/prepare" "$lab_here/lib.sh" | sha256sum | cut -c1-16; }

# True where kernel $1 can boot at once.
lab_is_ready() {
	local dir=$lab_cache/$1
	[ -z "$(lab_missing_packages)" ] && [ -f "$dir/vmlinux" ] && [ -f "$dir/initramfs-$(lab_initramfs_id)" ]
}
