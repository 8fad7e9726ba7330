/*
 * rdma_connect where it may block. siw connects its TCP socket inside the call: a firewall that
 * drops makes it last two minutes (seen on 6.1 and 6.12), and one loop serves everything. So on
 * iWARP a thread makes the call. If the link ends first, the connection is left to the thread,
 * which destroys it when the call returns: nothing else may touch the id before.
 *
 * Everything but dial_run is on the loop's thread. `state` changes hands by atomic exchange, and
 * who finds the other's mark there has the last word:
 *
 *   RUNNING -> DONE        by the thread, after it made `fd` readable; it touches nothing any more
 *   RUNNING -> ABANDONED   by the loop, after it filled `orphan`
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RUNNING, DONE, ABANDONED };

struct verbs_dial {
	atomic_int state;
	int fd;
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	uint8_t data[VERBS_PRIVATE_BYTES];
	int sys_errno; /* the call's, or 0 */
	struct verbs_conn orphan;
};

static void dial_free(struct verbs_dial *d)
{
	close(d->fd);
	free(d);
}

static void *dial_run(void *arg)
{
	struct verbs_dial *d = arg;
	uint64_t one = 1;

	d->sys_errno = rdma_connect(d->id, &d->param) == 0 ? 0 : errno ? errno : EIO;
	/* Eight bytes into an empty eventfd: can't fail. */
	(void)!write(d->fd, &one, sizeof(one));
	if (atomic_exchange(&d->state, DONE) == ABANDONED) {
		rcp_verbs_conn_stop(&d->orphan);
		rcp_verbs_conn_free(&d->orphan);
		dial_free(d);
	}
	return NULL;
}

/* Detached, and deaf: signals are the main thread's. */
static int thread_start(struct verbs_dial *d)
{
	pthread_attr_t attr;
	sigset_t all, was;
	pthread_t thread;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int ret = pthread_create(&thread, &attr, dial_run, d);

	pthread_sigmask(SIG_SETMASK, &was, NULL);
	pthread_attr_destroy(&attr);
	return ret;
}

int rcp_verbs_dial_start(struct verbs_link *v, const struct rdma_conn_param *param,
			 struct rcp_err *err)
{
	struct verbs_dial *d = calloc(1, sizeof(*d));

	if (!d)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	d->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->fd < 0) {
		rcp_verbs_err_errno(err, RCP_E_IO, "eventfd", v->name);
		free(d);
		return (int)err->code;
	}
	atomic_init(&d->state, RUNNING);
	d->id = v->conn.id;
	d->param = *param;
	memcpy(d->data, param->private_data, sizeof(d->data));
	d->param.private_data = d->data;
	int ret = rcp_verbs_io_watch(v->io, VERBS_FD_DIAL, d->fd, err);

	if (!ret && (ret = thread_start(d)) != 0)
		rcp_err_set(err, RCP_E_IO, ret, "pthread_create", v->name, NULL);
	if (ret) {
		rcp_verbs_io_forget(v->io, VERBS_FD_DIAL);
		dial_free(d);
		return (int)err->code;
	}
	v->dial = d;
	return 0;
}

void rcp_verbs_dial_readable(struct verbs_link *v)
{
	struct verbs_dial *d = v->dial;
	struct rcp_err e = {0};

	/* Readable a moment before it is done: look again at once. */
	if (atomic_load(&d->state) != DONE)
		return;
	int failed = d->sys_errno;

	rcp_verbs_io_forget(v->io, VERBS_FD_DIAL);
	v->dial = NULL;
	dial_free(d);
	if (!failed)
		return;
	errno = failed;
	rcp_verbs_err_errno(&e, rcp_verbs_link_code(v), "rdma_connect", v->name);
	rcp_verbs_link_fail(v, &e);
}

bool rcp_verbs_dial_leave(struct verbs_link *v)
{
	struct verbs_dial *d = v->dial;

	if (!d)
		return false;
	v->dial = NULL;
	d->orphan = v->conn;
	if (atomic_exchange(&d->state, ABANDONED) == DONE) {
		dial_free(d);
		return false;
	}
	memset(&v->conn, 0, sizeof(v->conn));
	return true;
}
