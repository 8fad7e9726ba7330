/*
 * rdma_connect in a thread of its own, for iWARP: there the call returns only when TCP was answered
 * or gave up (over two minutes where packets are dropped), and rdma_destroy_id waits for it. Whose
 * deadline passes leaves the connection to the thread, which ends it when it can; at the process's
 * exit the kernel does.
 *
 * Loop's thread, but for dial_main. Knows nothing of the link behind the connection.
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

enum { DIAL_RUNS, DIAL_DONE, DIAL_LEFT };

struct verbs_dial {
	pthread_t thread;
	_Atomic int state;
	int fd;	    /* eventfd: it has returned */
	int result; /* errno */
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	uint8_t data[VERBS_PRIVATE_BYTES];
	struct verbs_conn conn; /* once left */
};

static void dial_free(struct verbs_dial *d)
{
	close(d->fd);
	free(d);
}

static void *dial_main(void *arg)
{
	struct verbs_dial *d = arg;
	uint64_t one = 1;

	d->result = rdma_connect(d->id, &d->param) == 0 ? 0 : errno ? errno : EIO;
	while (write(d->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	if (atomic_exchange(&d->state, DIAL_DONE) == DIAL_LEFT) {
		rcp_verbs_conn_quit(&d->conn);
		rcp_verbs_conn_drop(&d->conn);
		dial_free(d);
	}
	return NULL;
}

/* Signals are for the process's own threads. */
static int start(struct verbs_dial *d)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	rc = pthread_create(&d->thread, NULL, dial_main, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int rcp_verbs_dial(struct verbs_link *v, const struct rdma_conn_param *param, struct rcp_err *err)
{
	struct verbs_dial *d = calloc(1, sizeof(*d));
	int rc = ENOMEM;

	if (!d)
		return rcp_err_set(err, RCP_E_IO, rc, "calloc", v->name, NULL);
	d->id = v->conn.id;
	d->param = *param;
	memcpy(d->data, param->private_data, sizeof(d->data));
	d->param.private_data = d->data;
	d->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->fd < 0) {
		rcp_err_set(err, RCP_E_IO, errno, "eventfd", v->name, NULL);
		free(d);
		return (int)err->code;
	}
	rc = rcp_verbs_io_watch(v->io, VERBS_FD_DIAL, d->fd, err) == 0 ? start(d) : -1;
	if (rc > 0)
		rcp_err_set(err, RCP_E_IO, rc, "pthread_create", v->name, NULL);
	if (rc != 0) {
		rcp_verbs_io_forget(v->io, VERBS_FD_DIAL);
		dial_free(d);
		return (int)err->code;
	}
	v->conn.dial = d;
	return 0;
}

int rcp_verbs_dial_end(struct verbs_conn *c)
{
	struct verbs_dial *d = c->dial;
	uint64_t count;
	int result;

	if (d->state == DIAL_LEFT)
		return 0;
	pthread_join(d->thread, NULL);
	/* Emptied rather than closed: the loop watches it until the link's handles close. */
	while (read(d->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	result = d->result;
	d->state = DIAL_LEFT; /* nothing runs any more; freed with the connection */
	return result;
}

void rcp_verbs_dial_leave(struct verbs_conn *c)
{
	struct verbs_dial *d = c->dial;

	if (!d)
		return;
	c->dial = NULL;
	if (d->state == DIAL_LEFT) { /* joined in dial_end */
		dial_free(d);
		return;
	}
	d->conn = *c;
	pthread_t thread = d->thread;

	if (atomic_exchange(&d->state, DIAL_LEFT) == DIAL_DONE) {
		pthread_join(thread, NULL);
		dial_free(d);
		return;
	}
	pthread_detach(thread);
	*c = (struct verbs_conn){0};
}
