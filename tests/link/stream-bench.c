/*
 * How fast the TCP link is over loopback, and what it costs: a source process (CRC of the mapped
 * file on workers, sendfile) and a sink process (recv into the ring; then nothing, or CRC and
 * pwrite on workers). Prints GB/s (10^9) and CPU seconds per GB of both, which other load disturbs
 * less.
 *
 *   stream-bench FROM [-o TO] [-w WORKERS] [-s SLOTS] [-c CHUNK_KIB] [-n CONNECTIONS] [-x]
 *
 * Without -o the sink drops the chunks. -x: the source computes no CRC. Compare with bench/floor.
 */
#include "base/clock.h"
#include "base/crc.h"
#include "base/pool.h"
#include "link/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uv.h>

struct options {
	const char *from, *to;
	unsigned workers, slots, connections;
	uint32_t chunk_bytes;
	bool no_crc;
};

/* A chunk on its way at either end. */
struct work {
	struct rcp_job job;
	struct rcp_post post;
	struct bench *bench;
	const uint8_t *data;
	uint32_t slot, length;
	struct rcp_chunk chunk;
	struct work *next;
};

struct bench {
	const struct options *o;
	uv_loop_t loop;
	uv_poll_t reap;
	struct rcp_pool *pool;
	struct rcp_link *link;
	struct work *works;
	int fd;
	uint64_t size, at, done;
	struct work *ready; /* source: CRC is known, no room yet */
	uint64_t start;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "stream-bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- source ---- */

static void crc_work(struct rcp_job *job)
{
	struct work *w = (struct work *)job;

	if (!w->bench->o->no_crc)
		w->post.chunk.crc = rcp_crc32(0, w->data, w->post.chunk.length);
}

static void post_ready(struct bench *b)
{
	while (b->ready) {
		struct work *w = b->ready;
		int rc = rcp_link_post(b->link, &w->post);

		if (rc == RCP_AGAIN)
			return;
		if (rc)
			die("post");
		b->ready = w->next;
	}
}

static void crc_done(struct rcp_job *job)
{
	struct work *w = (struct work *)job, **end = &w->bench->ready;

	while (*end)
		end = &(*end)->next;
	w->next = NULL;
	*end = w;
	post_ready(w->bench);
}

static void next_chunk(struct work *w)
{
	struct bench *b = w->bench;

	if (b->at == b->size)
		return;
	uint64_t left = b->size - b->at;
	uint32_t length = left < b->o->chunk_bytes ? (uint32_t)left : b->o->chunk_bytes;

	w->post = (struct rcp_post){.chunk = {.offset = b->at, .length = length},
				    .fd = b->fd,
				    .fd_offset = b->at,
				    .owner = w};
	w->data = b->works[0].data + b->at;
	w->job = (struct rcp_job){.work = crc_work, .done = crc_done};
	b->at += length;
	rcp_pool_submit(b->pool, RCP_POOL_START, &w->job);
}

static void on_sent(void *arg, struct rcp_post *post, bool ok)
{
	struct bench *b = arg;
	struct work *w = post->owner;

	if (!ok)
		die("sent");
	b->done += post->chunk.length;
	next_chunk(w);
}

static void on_room(void *arg)
{
	post_ready(arg);
}

/* ---- sink ---- */

static void write_work(struct rcp_job *job)
{
	struct work *w = (struct work *)job;

	if (!w->bench->o->no_crc && rcp_crc32(0, w->data, w->length) != w->chunk.crc)
		die("crc");
	if (pwrite(w->bench->fd, w->data, w->length, (off_t)w->chunk.offset) != w->length)
		die("pwrite");
}

static void taken(struct bench *b, const struct work *w)
{
	b->done += w->length;
	rcp_link_release(b->link, w->slot);
	if (b->done == b->size)
		rcp_link_close(b->link);
}

static void write_done(struct rcp_job *job)
{
	struct work *w = (struct work *)job;

	taken(w->bench, w);
}

static void on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		     uint32_t length)
{
	struct bench *b = arg;
	struct work *w = &b->works[slot];

	if (!b->start)
		b->start = rcp_now_ns();
	if (!rcp_chunk_decode(header, &w->chunk))
		die("header");
	w->bench = b;
	w->slot = slot;
	w->data = payload;
	w->length = length;
	w->job = (struct rcp_job){.work = write_work, .done = write_done};
	if (b->o->to)
		rcp_pool_submit(b->pool, RCP_POOL_FINISH, &w->job);
	else
		taken(b, w);
}

/* ---- both ---- */

static void on_up(void *arg)
{
	struct bench *b = arg;
	struct rcp_err err = {0};
	struct rcp_ring_info ring = {.slots = b->o->slots,
				     .slot_bytes = b->o->chunk_bytes + 4096,
				     .chunk_bytes = b->o->chunk_bytes,
				     .generation = 1};

	if (!b->link->caps.sendfile) {
		b->link->ops->ring_get(b->link, &ring);
		return;
	}
	if (b->link->ops->ring_set(b->link, &ring, &err))
		die(err.text);
	for (unsigned i = 1; i <= b->o->workers + 6; i++) {
		b->works[i].bench = b;
		next_chunk(&b->works[i]);
	}
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct bench *b = arg;

	/* The sink closes when all is written; that is how the source hears of it. */
	if (b->done != b->size)
		die(cause->text);
	rcp_link_free(&b->link);
	uv_close((uv_handle_t *)&b->reap, NULL);
}

static const struct rcp_link_events events = {
	.up = on_up, .sent = on_sent, .room = on_room, .chunk = on_chunk, .down = on_down};

static void on_reap(uv_poll_t *poll, int status, int ev)
{
	struct bench *b = poll->data;

	(void)status, (void)ev;
	rcp_pool_reap(b->pool);
}

static void run(struct bench *b, enum rcp_role role, const int *fds)
{
	struct rcp_err err = {0};
	struct rcp_link_params params = {.role = role,
					 .slots = b->o->slots,
					 .chunk_bytes = b->o->chunk_bytes,
					 .generation = 1,
					 .events = &events,
					 .arg = b};

	b->works = calloc(b->o->slots + b->o->workers + 8, sizeof(*b->works));
	if (!b->works || uv_loop_init(&b->loop) || rcp_pool_new(b->o->workers, &err, &b->pool) ||
	    uv_poll_init(&b->loop, &b->reap, rcp_pool_fd(b->pool)))
		die("set-up");
	b->reap.data = b;
	uv_poll_start(&b->reap, UV_READABLE, on_reap);
	if (role == RCP_ROLE_SOURCE) {
		b->works[0].data = mmap(NULL, b->size, PROT_READ, MAP_SHARED, b->fd, 0);
		if (b->works[0].data == MAP_FAILED)
			die("mmap");
	}
	if (rcp_stream_new(&b->loop, &params, fds, b->o->connections, &err, &b->link))
		die(err.text);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	rcp_pool_free(&b->pool);
}

static double cpu(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void connect_all(unsigned count, int *a, int *b)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 64) ||
	    getsockname(fd, (struct sockaddr *)&addr, &len))
		die("listen");
	for (unsigned i = 0; i < count; i++) {
		a[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(a[i], (struct sockaddr *)&addr, len))
			die("connect");
		b[i] = accept(fd, NULL, NULL);
	}
	close(fd);
}

static void options(int argc, char **argv, struct options *o)
{
	int c;

	*o = (struct options){.workers = 2, .slots = 32, .connections = 1, .chunk_bytes = 1 << 20};
	while ((c = getopt(argc, argv, "o:w:s:c:n:x")) != -1) {
		if (c == 'o')
			o->to = optarg;
		else if (c == 'w')
			o->workers = (unsigned)atoi(optarg);
		else if (c == 's')
			o->slots = (unsigned)atoi(optarg);
		else if (c == 'c')
			o->chunk_bytes = (uint32_t)atoi(optarg) << 10;
		else if (c == 'n')
			o->connections = (unsigned)atoi(optarg);
		else if (c == 'x')
			o->no_crc = true;
		else
			exit(2);
	}
	if (optind + 1 != argc || o->connections < 1 || o->connections > 64) {
		fprintf(stderr, "usage: see the head of stream-bench.c\n");
		exit(2);
	}
	o->from = argv[optind];
}

int main(int argc, char **argv)
{
	struct options o;
	struct bench b = {.o = &o};
	struct stat st;
	int a[64], z[64], from;

	options(argc, argv, &o);
	from = open(o.from, O_RDONLY);
	if (from < 0 || fstat(from, &st))
		die(o.from);
	b.size = (uint64_t)st.st_size;
	connect_all(o.connections, a, z);
	pid_t pid = fork();

	if (pid == 0) {
		for (unsigned i = 0; i < o.connections; i++)
			close(z[i]);
		b.fd = from;
		run(&b, RCP_ROLE_SOURCE, a);
		exit(0);
	}
	for (unsigned i = 0; i < o.connections; i++)
		close(a[i]);
	b.fd = o.to ? open(o.to, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
	run(&b, RCP_ROLE_SINK, z);
	if (o.to && close(b.fd))
		die(o.to);
	double seconds = (double)(rcp_now_ns() - b.start) / 1e9;
	double gb = (double)b.done / 1e9;
	int status = 1;

	waitpid(pid, &status, 0);
	printf("%.3f GB/s, CPU s/GB: source %.3f sink %.3f\n", gb / seconds,
	       cpu(RUSAGE_CHILDREN) / gb, cpu(RUSAGE_SELF) / gb);
	return status != 0 || b.done != b.size;
}
