#include "link/ring.h"

#include "link/link.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>

#define HUGE_BYTES ((size_t)2 << 20)

/* A mapping that starts on a huge page's border: map one more, give the ends back. */
static uint8_t *map_aligned(size_t bytes)
{
	size_t total = bytes + HUGE_BYTES;
	uint8_t *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	size_t before = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;

	if (before)
		munmap(p, before);
	munmap(p + before + bytes, total - before - bytes);
	return p + before;
}

int rcp_ring_map(uint32_t slots, uint32_t chunk_bytes, struct rcp_err *err, struct rcp_ring *out)
{
	uint32_t slot_bytes = chunk_bytes + RCP_SLOT_HEAD;
	/* Whole huge pages, or the last slots would be on small ones. */
	size_t bytes = roundup((size_t)slots * slot_bytes, HUGE_BYTES);

	memset(out, 0, sizeof(*out));
	uint8_t *base = map_aligned(bytes);

	if (!base) {
		rcp_err_set(err, RCP_E_IO, errno, "mmap", NULL,
			    "no memory for a ring of %u slots of %u bytes", slots, slot_bytes);
		rcp_err_fix(err, "ask for fewer slots (--slots) or raise the limit: ulimit -v");
		return RCP_E_IO;
	}
	/* Where the kernel has none, small pages serve as well. */
	(void)madvise(base, bytes, MADV_HUGEPAGE);
	/* A child between fork and exec must not copy it, nor pin what a NIC writes. */
	(void)madvise(base, bytes, MADV_DONTFORK);
	*out = (struct rcp_ring){.base = base,
				 .bytes = bytes,
				 .slots = slots,
				 .slot_bytes = slot_bytes,
				 .chunk_bytes = chunk_bytes};
	return 0;
}

int rcp_ring_map_most(uint32_t slots, uint32_t chunk_bytes, struct rcp_err *err,
		      struct rcp_ring *out)
{
	struct rcp_err first = {0};

	for (;; slots /= 2) {
		struct rcp_err e = {0};

		if (!rcp_ring_map(slots, chunk_bytes, &e, out))
			return 0;
		if (!rcp_err_is(&first))
			first = e;
		if (slots < 2 || e.sys_errno != ENOMEM)
			break;
	}
	if (!rcp_err_is(err))
		*err = first;
	return (int)err->code;
}

void rcp_ring_unmap(struct rcp_ring *ring)
{
	if (ring->base)
		munmap(ring->base, ring->bytes);
	memset(ring, 0, sizeof(*ring));
}

int rcp_ring_check(const struct rcp_ring_info *info, struct rcp_err *err)
{
	const char *wrong = NULL;

	if (info->slots < 1 || info->slots > RCP_SLOTS_MAX)
		wrong = "number of slots";
	else if (info->chunk_bytes < RCP_CHUNK_BYTES_MIN ||
		 info->chunk_bytes > RCP_CHUNK_BYTES_MAX || info->chunk_bytes % RCP_CHUNK_BYTES_MIN)
		wrong = "chunk size";
	else if (info->slot_bytes != info->chunk_bytes + RCP_SLOT_HEAD)
		wrong = "slot size";
	else if (info->addr + (uint64_t)info->slots * info->slot_bytes < info->addr)
		wrong = "address";
	if (!wrong)
		return 0;
	return rcp_err_set(
		err, RCP_E_CONNECT, 0, NULL, NULL,
		"the peer broke the protocol: its ring's %s can't be (%u slots of %u bytes)", wrong,
		info->slots, info->chunk_bytes);
}
