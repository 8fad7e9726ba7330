/*
 * What flows: the source makes chunks whose every byte follows from their number, the sink checks
 * them and gives slots back in order or out of it.
 */
#include "verbs-end.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint32_t length_of(uint32_t sequence)
{
	static const uint32_t odd[] = {1, 63, 64, 65, 4095, 4096, 4097, 65537, 0, 12345};

	if (!opt.varying)
		return opt.bytes;
	uint32_t n = odd[sequence % 10] + (sequence % 3) * (opt.bytes / 4);

	return n <= opt.bytes ? n : opt.bytes;
}

static uint64_t word(uint32_t sequence, uint32_t at)
{
	return ((uint64_t)sequence << 32 | at) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(uint8_t *body, uint32_t sequence, uint32_t length)
{
	for (uint32_t i = 0; i < length; i += 8) {
		uint64_t w = word(sequence, i);

		memcpy(body + i, &w, length - i < 8 ? length - i : 8);
	}
}

static bool same(const uint8_t *body, uint32_t sequence, uint32_t length)
{
	for (uint32_t i = 0; i < length; i += 8) {
		uint64_t w = word(sequence, i);

		if (memcmp(body + i, &w, length - i < 8 ? length - i : 8) != 0)
			return false;
	}
	return true;
}

/* Bodies that are filled again and again, or, mapped, each at its place in a file. */
static void prepare(struct end *e, struct slot_post *p)
{
	uint32_t length = length_of(e->posted);

	/* Refused before, and none has gone out since. */
	if (p->ready && p->post.chunk.sequence == e->posted)
		return;
	p->ready = true;
	p->post.chunk = (struct rcp_chunk){.entry = 1,
					   .offset = (uint64_t)e->posted * opt.bytes,
					   .length = length,
					   .sequence = e->posted};
	if (opt.mapped)
		p->post.body = e->bodies + (size_t)e->posted * opt.bytes;
	else if (!opt.no_check)
		fill((uint8_t *)(uintptr_t)p->post.body, e->posted, length);
}

static void post_more(struct end *e)
{
	while (e->idle && e->posted < opt.chunks) {
		struct slot_post *p = e->idle;

		prepare(e, p);
		int ret = rcp_link_post(e->link, &p->post);

		if (ret == RCP_AGAIN || (ret && (opt.kill || opt.close_early || opt.evil)))
			return;
		if (ret)
			end_die(e, "post failed", NULL);
		e->idle = p->next;
		e->posted++;
		e->total_bytes += p->post.chunk.length;
		if (opt.kill && !strcmp(opt.kill, "source") && e->posted == opt.chunks / 2)
			raise(SIGKILL);
	}
}

static void bodies_map(struct end *e, uint32_t posts)
{
	int fd = opt.mapped ? memfd_create("bodies", MFD_CLOEXEC) : -1;

	e->bodies_len = (size_t)(opt.mapped ? opt.chunks : posts) * opt.bytes;
	if (opt.mapped && (fd < 0 || ftruncate(fd, (off_t)e->bodies_len) != 0))
		end_die(e, "no file to map", NULL);
	e->bodies = mmap(NULL, e->bodies_len, PROT_READ | PROT_WRITE,
			 opt.mapped ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (e->bodies == MAP_FAILED)
		end_die(e, "no memory", NULL);
	if (!opt.mapped)
		return;
	for (uint32_t i = 0; i < opt.chunks; i++)
		fill(e->bodies + (size_t)i * opt.bytes, i, length_of(i));
	mprotect(e->bodies, e->bodies_len, PROT_READ);
	close(fd);
}

void bulk_start(struct end *e)
{
	struct rcp_err err = {0};

	if (e->link->ops->ring_set(e->link, &e->ring, &err) != 0)
		end_die(e, "ring_set", &err);
	if (opt.evil && (e->evil = evil_source(e)))
		return;
	uint32_t n = 2 * e->link->caps.slots;

	bodies_map(e, n);
	e->posts = calloc(n, sizeof(*e->posts));
	if (!e->posts)
		end_die(e, "no memory", NULL);
	if (e->link->ops->reg(e->link, e->bodies, e->bodies_len, opt.mapped, &err, &e->mem) != 0)
		end_die(e, "reg", &err);
	for (uint32_t i = n; i-- > 0;) {
		struct slot_post *p = &e->posts[i];

		if (!opt.mapped)
			p->post.body = e->bodies + (size_t)i * opt.bytes;
		p->post.mem = e->mem;
		p->post.fd = -1;
		p->post.owner = p;
		p->next = e->idle;
		e->idle = p;
	}
	e->start_ns = rcp_now_ns();
	post_more(e);
	if (opt.close_early)
		rcp_link_close(e->link);
}

void bulk_free(struct end *e)
{
	if (e->bodies)
		munmap(e->bodies, e->bodies_len);
	free(e->posts);
	free(e->held);
	free(e->seen);
}

void bulk_sent(void *arg, struct rcp_post *post, bool ok)
{
	struct end *e = arg;
	struct slot_post *p = post->owner;

	if (e->down)
		end_die(e, "sent after down", NULL);
	e->sent++;
	if (!ok)
		e->failed++;
	p->ready = false;
	p->next = e->idle;
	e->idle = p;
	if (ok)
		post_more(e);
}

void bulk_room(void *arg)
{
	post_more(arg);
}

void bulk_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		uint32_t length)
{
	struct end *e = arg;
	struct rcp_chunk c;

	if (e->down)
		end_die(e, "chunk after down", NULL);
	if (!rcp_chunk_decode(header, &c) || c.length != length || c.sequence >= opt.chunks ||
	    c.generation != GENERATION || length != length_of((uint32_t)c.sequence))
		end_die(e, "bad header", NULL);
	if (e->seen[c.sequence])
		end_die(e, "a chunk came twice", NULL);
	if (!opt.no_check && !same(payload, (uint32_t)c.sequence, length))
		end_die(e, "bad bytes", NULL);
	e->seen[c.sequence] = true;
	e->arrived++;
	if (opt.evil && e->arrived == 1 && (e->evil = evil_sink(e)))
		return;
	if (opt.kill && !strcmp(opt.kill, "sink") && e->arrived == opt.chunks / 2)
		raise(SIGKILL);
	if (opt.hold && e->held_count < e->link->caps.slots / 2) {
		e->held[e->held_count++] = slot;
	} else {
		rcp_link_release(e->link, slot);
		/* an old one too, now and then: slots come back in any order */
		if (e->held_count && e->arrived % 3 == 0)
			rcp_link_release(e->link, e->held[--e->held_count]);
	}
	if (e->arrived == opt.chunks)
		end_say(e, TALK_DONE, NULL, 0);
}
