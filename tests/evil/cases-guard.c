/* What one client can take of a responder that is wary of it: a daemon's child, or one with --restrict. From HELLO on. */
#include "evil.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_MOST  (256ull << 20) /* SECURITY.md's words, not run.h's */
#define NAMES_MOST (128ull << 20)

static bool refused(struct evil *e, const char *why)
{
	char text[600];

	rcp_span_copy(e->msg.link_fail_.text, text, sizeof(text));
	if (strstr(text, why))
		return true;
	evil_note(e, "unexpected", text);
	return false;
}

/* A ring of a GiB is made smaller; of links that are tried side by side two have room. */
bool guard_rings(struct evil *e)
{
	struct rcp_msg_caps caps = {.features = e->hello.features, .slots = 64, .chunk_bytes = 16 << 20, .cpus = 1, .streams = 1};
	struct rcp_msg_link_try m = {.kind = RCP_LINK_PIPE, .streams = 1, .chunk_bytes = 16 << 20};

	e->start.slots = 64;
	e->start.chunk_bytes = 16 << 20;
	e->start.target = rcp_span_str("");
	if (!evil_request(e) || !evil_control(e))
		return false;
	evil_say(e, RCP_MSG_CAPS, &caps);
	if (!evil_await(e, RCP_MSG_CAPS))
		return false;
	m.slots = e->msg.caps_.slots;
	m.chunk_bytes = e->msg.caps_.chunk_bytes;
	if ((uint64_t)m.slots * m.chunk_bytes != RING_MOST) {
		evil_note(e, "unexpected", "another ring than 256 MiB");
		return false;
	}
	for (m.link = 1; m.link <= 2; m.link++) {
		evil_say(e, RCP_MSG_LINK_TRY, &m);
		if (!evil_await(e, RCP_MSG_LINK_GO))
			return false;
	}
	evil_say(e, RCP_MSG_LINK_TRY, &m);
	while (evil_get(e) && e->msg.type != RCP_MSG_LINK_FAIL && e->msg.type != RCP_MSG_LINK_GO)
		;
	return e->msg.type == RCP_MSG_LINK_FAIL && refused(e, "more memory than is given");
}

/* Names of 9 bytes in a directory that is excluded, as many as cost so much. first: what else must be named. */
static void say_many(struct evil *e, const char *first, uint64_t count, bool over)
{
	struct rcp_wr w = {.max = 1 << 17};
	char name[16];

	for (uint64_t i = 0; i < count && !e->gone; i++) {
		snprintf(name, sizeof(name), "x/%07llx", (unsigned long long)i);
		struct rcp_rec_path rec = {.path = rcp_span_str(i || !first ? name : first)};

		rcp_rec_encode(&w, RCP_REC_PATH, &rec);
		if (w.len < 1 << 16 && i + 1 < count)
			continue;
		evil_say(e, RCP_MSG_NAMES, &(struct rcp_msg_names){.last = !over && i + 1 == count, .paths = rcp_span_of(w.data, w.len)});
		w.len = 0;
	}
	rcp_wr_free(&w);
}

/* arg: bit 0: arguments, not a list; bit 1: more than there may be. */
bool guard_names(struct evil *e)
{
	bool list = !(e->c->arg & 1), over = e->c->arg & 2;
	uint64_t each = list ? 9 + 100 : 3 * 9 + 220;
	struct rcp_rec_path x = {.path = rcp_span_str("x")};
	struct rcp_wr w = {.max = 64};
	struct rcp_msg_switch to = {.to = RCP_SWITCH_PIPE};

	e->source = false;
	rcp_rec_encode(&w, RCP_REC_PATH, &x);
	e->start.role = RCP_ROLE_SOURCE;
	e->start.target = rcp_span_str("");
	e->start.excludes = rcp_span_of(w.data, w.len);
	e->start.flags = list ? RCP_OPT_PAIRS : 0;
	evil_say_start(e);
	rcp_wr_free(&w);
	say_many(e, list ? "." : NULL, NAMES_MOST / each + (over ? 10 : -10ull), over);
	if (over) {
		evil_drain(e);
		return e->aborted;
	}
	if (!evil_await(e, RCP_MSG_READY))
		return false;
	evil_say(e, RCP_MSG_SWITCH, &to);
	return evil_link(e) && evil_heard(e);
}

/* As evil_link, with chunks that are larger than its own. */
static bool large_link(struct evil *e, uint32_t slots, uint32_t bytes)
{
	struct rcp_msg_caps caps = {.features = e->hello.features, .slots = slots, .chunk_bytes = bytes, .cpus = 1, .streams = 1};
	struct rcp_msg_link_try try = {.link = 1, .kind = RCP_LINK_PIPE, .streams = 1, .slots = slots, .chunk_bytes = bytes};
	struct rcp_msg_link_use use = {.link = 1, .kind = RCP_LINK_PIPE, .slots = slots, .chunk_bytes = bytes, .generation = 1};

	e->ring = (struct rcp_msg_link_ring){.link = 1, .slots = slots, .slot_bytes = 4096 + bytes, .chunk_bytes = bytes, .generation = 1};
	evil_say(e, RCP_MSG_CAPS, &caps);
	if (!evil_await(e, RCP_MSG_CAPS))
		return false;
	evil_say(e, RCP_MSG_LINK_TRY, &try);
	if (!evil_await(e, RCP_MSG_LINK_GO))
		return false;
	evil_say(e, RCP_MSG_LINK_USE, &use);
	evil_say(e, RCP_MSG_LINK_RING, &e->ring);
	return true;
}

/* A source of what `path` is, up to the link. */
static bool source_of(struct evil *e, const char *path)
{
	struct rcp_msg_switch to = {.to = RCP_SWITCH_PIPE};

	e->source = false;
	e->start.role = RCP_ROLE_SOURCE;
	e->start.target = rcp_span_str("");
	evil_say_start(e);
	evil_say_names(e, path, true);
	if (!evil_await(e, RCP_MSG_READY))
		return false;
	evil_say(e, RCP_MSG_SWITCH, &to);
	return true;
}

#define LINKS 20

static void link_name(const struct evil *e, unsigned i, char out[900])
{
	int n = snprintf(out, 900, "%s/w/target/", e->top);

	memset(out + n, 'l', 247);
	snprintf(out + n + 247, 900 - (size_t)n - 247, "%u", i);
}

/* Links to where they are: a few names, and 20^8 that match, of 2 KB each. */
bool guard_patterns(struct evil *e)
{
	char path[900], text[600];
	bool told = false;

	for (unsigned i = 0; i < LINKS; i++) {
		link_name(e, i, path);
		if (symlink(".", path) < 0)
			return false;
	}
	if (source_of(e, "*/*/*/*/*/*/*/*") && evil_link(e)) {
		while (!told && !e->walk_end && evil_get(e)) {
			if (e->msg.type == RCP_MSG_FAULT)
				told = strstr(rcp_span_copy(e->msg.fault_.text, text, sizeof(text)), "more names than are taken here");
		}
		told = told && evil_heard(e);
	}
	for (unsigned i = 0; i < LINKS; i++) {
		link_name(e, i, path);
		unlink(path);
	}
	if (!told)
		evil_note(e, "unexpected", "patterns without an end");
	return told;
}

/* Chunks of 16 MiB are loaded ahead of the credits: in no more memory than a ring may take. */
bool guard_staging(struct evil *e)
{
	static uint8_t mib[1 << 20];
	char path[700];
	bool good = false;

	memset(mib, 7, sizeof(mib));
	snprintf(path, sizeof(path), "%s/w/target/staged", e->top);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	for (int i = 0; fd >= 0 && i < 416; i++) {
		if (write(fd, mib, sizeof(mib)) != sizeof(mib))
			fd = close(fd) - 1;
	}
	if (fd >= 0)
		close(fd);
	e->start.slots = 64;
	e->start.chunk_bytes = 16 << 20;
	if (fd >= 0 && source_of(e, "staged") && large_link(e, 16, 16 << 20) && evil_heard(e)) {
		evil_answer(e, 0, 1, NULL, 0);
		good = true;
		for (unsigned came = 0; good && came < e->ring.slots; came++)
			good = evil_await(e, RCP_MSG_CHUNK);
		while (good && evil_get_within(e, 1500)) /* it may load what else it will */
			;
	}
	unlink(path);
	return good;
}
