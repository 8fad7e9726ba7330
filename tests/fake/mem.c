/*
 * Protection domains and memory regions. Keys are never used twice: a stale one finds nothing.
 */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	int err = fk_fault_call("ibv_alloc_pd");
	struct fk_pd *pd = err ? NULL : calloc(1, sizeof(*pd));

	if (!pd) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	FK_LOCK();
	pd->pd.context = ctx;
	fk_ctx_of(ctx)->objects++;
	fk.count[FK_PD]++;
	FK_UNLOCK();
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct fk_pd *pd = FK_OF(ibpd, struct fk_pd, pd);

	if (pd->objects) {
		fk_breach("ibv_dealloc_pd: %u objects are left", pd->objects);
		return EBUSY;
	}
	FK_LOCK();
	fk_ctx_of(ibpd->context)->objects--;
	fk.count[FK_PD]--;
	FK_UNLOCK();
	free(pd);
	return 0;
}

/* Is the memory there? A kernel that can't pin it says EFAULT. */
static bool readable(const void *addr, size_t len)
{
	int ends[2];
	bool ok = true;
	long page = sysconf(_SC_PAGESIZE);

	if (!len || pipe(ends) != 0)
		return len != 0;
	for (size_t at = 0; ok && at < len; at += (size_t)page * 64) {
		char byte;

		ok = write(ends[1], (const char *)addr + at, 1) == 1 &&
		     read(ends[0], &byte, 1) == 1;
	}
	ok = ok && write(ends[1], (const char *)addr + len - 1, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return ok;
}

static int reg_check(struct fk_nic *nic, const void *addr, size_t len, int access)
{
	int err = fk_fault_call("ibv_reg_mr");

	if (err)
		return err;
	if (nic->fatal)
		return EIO;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (!readable(addr, len))
		return EFAULT;
	return nic->pinned + len > nic->memlock ? ENOMEM : 0;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct fk_nic *nic = fk_nic_of(pd->context);
	struct fk_mr *mr = calloc(1, sizeof(*mr));
	int err;

	FK_LOCK();
	err = mr ? reg_check(nic, addr, len, access) : ENOMEM;
	if (err) {
		free(mr);
		mr = NULL;
	} else {
		uint32_t key = ++fk.next_key << 8 | 0x5a;

		mr->mr = (struct ibv_mr){.context = pd->context,
					 .pd = pd,
					 .addr = addr,
					 .length = len,
					 .lkey = key,
					 .rkey = key ^ 0x80000000u};
		mr->access = access;
		mr->next = nic->mrs;
		nic->mrs = mr;
		nic->pinned += len;
		FK_OF(pd, struct fk_pd, pd)->objects++;
		fk.count[FK_MR]++;
	}
	FK_UNLOCK();
	errno = err;
	return mr ? &mr->mr : NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return reg(pd, addr, len, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
				unsigned access)
{
	if (iova != (uintptr_t)addr) {
		errno = ENOTSUP;
		return NULL;
	}
	return reg(pd, addr, len, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct fk_mr *mr = FK_OF(ibmr, struct fk_mr, mr), **at;
	struct fk_nic *nic = fk_nic_of(ibmr->context);

	FK_LOCK();
	fk_busy_wait(NULL);
	if (mr->in_use)
		fk_breach("ibv_dereg_mr: %u posted requests use it", mr->in_use);
	for (at = &nic->mrs; *at != mr; at = &(*at)->next)
		;
	*at = mr->next;
	nic->pinned -= ibmr->length;
	FK_OF(ibmr->pd, struct fk_pd, pd)->objects--;
	fk.count[FK_MR]--;
	FK_UNLOCK();
	free(mr);
	return 0;
}

struct fk_mr *fk_mr_by_key(struct fk_nic *nic, uint32_t key)
{
	for (struct fk_mr *mr = nic->mrs; mr; mr = mr->next) {
		if (mr->mr.lkey == key || mr->mr.rkey == key)
			return mr;
	}
	return NULL;
}

struct fk_mr *fk_mr_check(struct fk_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access)
{
	struct fk_mr *mr = fk_mr_by_key(qp->nic, key);
	bool remote = access & IBV_ACCESS_REMOTE_WRITE;

	if (!mr || mr->mr.pd != qp->qp.pd || key != (remote ? mr->mr.rkey : mr->mr.lkey) ||
	    (mr->access & access) != access)
		return NULL;
	uint64_t base = (uintptr_t)mr->mr.addr;

	if (addr < base || len > mr->mr.length || addr - base > mr->mr.length - len)
		return NULL;
	return mr;
}

void fk_mr_use(struct fk_qp *qp, const struct ibv_sge *sge, unsigned sges, int by)
{
	for (unsigned i = 0; i < sges; i++) {
		struct fk_mr *mr = fk_mr_by_key(qp->nic, sge[i].lkey);

		if (mr)
			mr->in_use = (unsigned)((int)mr->in_use + by);
	}
}
