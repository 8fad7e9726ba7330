/*
 * The initiator's way to a daemon: the user's key, the host's addresses, TCP, and TLS keyed by that key.
 * What comes of it is run->pipe, and carries what ssh's pipe carries. Loop's thread.
 */
#include "boot/jail.h"
#include "boot/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIAL_MS 10000 /* TCP, all addresses */
#define TLS_MS	10000

/* Lives as long as the resolver's thread works for it, which may be longer than the run wants it. */
struct daemon_dial {
	uv_getaddrinfo_t req;
	struct rcp_run *run; /* NULL: given up */
	bool resolving;
	const struct rcp_ctl_ops *ops;
	void (*done)(struct rcp_run *run, const struct rcp_err *err);
};

/* ---- the key ---- */

static int default_key(char *path, size_t size, struct rcp_err *err)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config && config[0] == '/')
		snprintf(path, size, "%s/rcp/key", config);
	else if (home && home[0] == '/')
		snprintf(path, size, "%s/.config/rcp/key", home);
	else
		return rcp_err_set(err, RCP_E_USAGE, 0, "", NULL, "no key: name its file with --key");
	return 0;
}

static int take_key(struct rcp_run *run, const struct rcp_options *o, struct rcp_err *err)
{
	struct rcp_keyring ring = {0};
	const struct rcp_psk *key;
	char path[4096];

	rcp_jail_hide();
	if (!o->key && default_key(path, sizeof(path), err))
		return (int)err->code;
	if (rcp_keyring_read(&ring, o->key ? o->key : path, err)) {
		if (!o->key && err->sys_errno == ENOENT)
			snprintf(err->fix, sizeof(err->fix),
				 "name your key's file with --key; rcp --keygen NAME FILE makes one, which the "
				 "daemon must have, too");
		rcp_keyring_free(&ring);
		return (int)err->code;
	}
	key = rcp_keyring_find(&ring, run->where.user);
	if (key)
		run->key = *key;
	else
		rcp_err_set(err, RCP_E_USAGE, 0, "", o->key ? o->key : path,
			    run->where.user ? "has no key %.64s" : "has no key", run->where.user);
	rcp_keyring_free(&ring);
	return (int)err->code;
}

/* ---- the connection ---- */

static void give_up(struct daemon_dial *d, const struct rcp_err *err)
{
	d->run->dialing = NULL;
	d->done(d->run, err);
	free(d);
}

static void on_raced(void *arg, int fd, const union rcp_sa *to, unsigned index, const struct rcp_err *cause)
{
	struct daemon_dial *d = arg;
	struct rcp_run *run = d->run;
	struct rcp_err err = {0};
	struct rcp_tls_params p = {.identity = run->key.name, .key = run->key.key};

	(void)to;
	(void)index;
	rcp_race_free(&run->race);
	if (fd < 0) {
		err = *cause;
		rcp_err_object(&err, run->host);
		rcp_err_fix(&err, "is a daemon running there, and listening on port %u?", run->where.port);
	} else {
		rcp_ctl_new_tls(&run->loop, fd, &p, TLS_MS, run->host, d->ops, run, &err, &run->pipe);
	}
	give_up(d, &err);
}

static int start_race(struct daemon_dial *d, const struct addrinfo *list, struct rcp_err *err)
{
	struct rcp_run *run = d->run;
	struct rcp_addrs addrs = {0};
	struct rcp_race_params p = {.addrs = &addrs,
				    .port = run->where.port,
				    .deadline_ms = DIAL_MS,
				    .sock = {.tos = run->req.tos, .timeout_ms = RUN_DEAD_MS}};

	for (const struct addrinfo *i = list; i; i = i->ai_next) {
		union rcp_sa sa = {0};

		if (i->ai_addrlen > sizeof(sa))
			continue;
		memcpy(&sa, i->ai_addr, i->ai_addrlen);
		rcp_addrs_add(&addrs, &sa, NULL, false);
	}
	return rcp_race_new(&run->loop, &p, on_raced, d, err, &run->race);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	struct daemon_dial *d = req->data;
	struct rcp_err err = {0};

	d->resolving = false;
	if (!d->run) {
		free(d);
	} else if (status < 0 || !list) {
		rcp_err_set(&err, RCP_E_CONNECT, 0, "getaddrinfo", d->run->host, "%s",
			    status < 0 ? uv_strerror(status) : "it has no address");
		give_up(d, &err);
	} else if (start_race(d, list, &err)) {
		give_up(d, &err);
	}
	uv_freeaddrinfo(list);
}

int daemon_dial(struct rcp_run *run, const struct rcp_options *o, const struct rcp_ctl_ops *ops,
		void (*done)(struct rcp_run *run, const struct rcp_err *err), struct rcp_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_family = o->family == 4   ? AF_INET
						    : o->family == 6 ? AF_INET6
								     : AF_UNSPEC};
	struct daemon_dial *d;
	int rc;

	if (take_key(run, o, err))
		return (int)err->code;
	d = calloc(1, sizeof(*d));
	if (!d)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	d->run = run;
	d->ops = ops;
	d->done = done;
	d->req.data = d;
	rc = uv_getaddrinfo(&run->loop, &d->req, on_resolved, run->host, NULL, &hints);
	if (rc < 0) {
		free(d);
		return rcp_err_set(err, RCP_E_CONNECT, 0, "getaddrinfo", run->host, "%s", uv_strerror(rc));
	}
	d->resolving = true;
	run->dialing = d;
	return 0;
}

void daemon_dial_stop(struct rcp_run *run)
{
	struct daemon_dial *d = run->dialing;

	if (!d)
		return;
	run->dialing = NULL;
	d->run = NULL;
	if (d->resolving)
		uv_cancel((uv_req_t *)&d->req); /* on_resolved comes in any case */
	else
		free(d); /* the race is over, or was freed */
}
