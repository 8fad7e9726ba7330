/* What an honest end says, step by step. */
#include "evil.h"

#include "base/clock.h"
#include "base/crc.h"
#include "boot/ctl.h"
#include "boot/preamble.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- start ---- */

static uint64_t flags_of(const char *opts)
{
	uint64_t f = 0;

	for (; opts && *opts; opts++)
		f |= *opts == 'r'   ? RCP_OPT_RECURSIVE
		     : *opts == 'a' ? RCP_OPT_ARCHIVE | RCP_OPT_TIMES | RCP_OPT_RECURSIVE
		     : *opts == 'p' ? RCP_OPT_TIMES
		     : *opts == 'n' ? RCP_OPT_NO_RESUME
		     : *opts == 'd' ? RCP_OPT_TARGET_DIR
				    : 0;
	return f;
}

void evil_init(struct evil *e)
{
	struct rcp_err err = {0};
	static char target[4096];

	snprintf(target, sizeof(target), "%s/w/target", e->top);
	rcp_secret_random(e->secret, sizeof(e->secret), &err);
	rcp_secret_random(e->session, sizeof(e->session), &err);
	e->ctl = &e->pipe;
	e->data = e->listener = e->tcp.rfd = e->tcp.wfd = -1;
	e->last_out_ns = evil_now();
	e->hello = (struct rcp_msg_hello){.magic = RCP_MAGIC,
					  .version_min = RCP_VERSION_MIN,
					  .version_max = RCP_VERSION_MAX,
					  .features = RCP_FEATURE_BUNDLES | RCP_FEATURE_RESUME | RCP_FEATURE_OOB | RCP_FEATURE_SEAL,
					  .software = rcp_span_str("rcp evil")};
	e->start = (struct rcp_msg_start){.role = e->source ? RCP_ROLE_SINK : RCP_ROLE_SOURCE,
					  .transports = (uint8_t)(1u << (e->link == EVIL_PIPE ? RCP_LINK_PIPE : RCP_LINK_TCP)),
					  .encrypt = e->link == EVIL_TCP ? RCP_ENCRYPT_NEVER : RCP_ENCRYPT_AUTO,
					  .family = 4,
					  .tos = UINT16_MAX,
					  .sl = UINT16_MAX,
					  .pkey = UINT32_MAX,
					  .streams = 1,
					  .chunk_bytes = EVIL_CHUNK,
					  .slots = EVIL_SLOTS,
					  .bundle_bytes = 16384,
					  .flags = flags_of(e->c->opts),
					  .target = rcp_span_str(e->source ? target : "")};
	memcpy(e->start.secret.b, e->secret, sizeof(e->secret));
	memcpy(e->start.session.b, e->session, sizeof(e->session));
	e->link_id = 1;
}

bool evil_marker(struct evil *e)
{
	struct evil_chan *c = &e->pipe;
	bool first = true;

	if (!e->initiator) {
		evil_raw(e, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);
		return true;
	}
	while (c->in_len < RCP_CTL_MARKER_LEN) {
		struct pollfd w = {.fd = c->rfd, .events = POLLIN};
		uint8_t b;

		if (!first && (evil_now() > e->until_ns || poll(&w, 1, 1000) < 0))
			return false;
		first = false;
		ssize_t n = read(c->rfd, &b, 1);

		if (n == 0)
			return false;
		if (n != 1)
			continue;
		if (!c->in)
			c->in = malloc(c->in_cap = 65536);
		c->in[c->in_len++] = b;
	}
	bool right = !memcmp(c->in, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);

	c->in_len = 0;
	return right;
}

bool evil_greet(struct evil *e)
{
	if (!evil_marker(e))
		return false;
	evil_say(e, RCP_MSG_HELLO, &e->hello);
	return evil_await(e, RCP_MSG_HELLO);
}

void evil_say_start(struct evil *e)
{
	evil_say(e, RCP_MSG_START, &e->start);
}

void evil_say_names(struct evil *e, const char *path, bool last)
{
	struct rcp_wr w = {.max = 65536};
	struct rcp_rec_path rec = {.path = rcp_span_str(path)};

	if (path)
		rcp_rec_encode(&w, RCP_REC_PATH, &rec);
	struct rcp_msg_names m = {.last = last, .paths = rcp_span_of(w.data, w.len)};

	evil_say(e, RCP_MSG_NAMES, &m);
	rcp_wr_free(&w);
}

static int listen_here(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)(const void *)&at, sizeof(at)) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)(void *)&at, &len) < 0)
		return -1;
	*port = ntohs(at.sin_port);
	return fd;
}

static void say_ready(struct evil *e)
{
	static const uint8_t loopback[] = {127, 0, 0, 1};
	struct rcp_rec_addr rec = {.family = 4};
	struct rcp_wr w = {.max = 256};

	if (e->link != EVIL_PIPE) {
		e->listener = listen_here(&e->port);
		memcpy(rec.addr.b, loopback, sizeof(loopback));
		rcp_rec_encode(&w, RCP_REC_ADDR, &rec);
	}
	struct rcp_msg_ready m = {.port = e->port, .addrs = rcp_span_of(w.data, w.len)};

	evil_say(e, RCP_MSG_READY, &m);
	rcp_wr_free(&w);
}

static bool hear_request(struct evil *e)
{
	if (!evil_await(e, RCP_MSG_START))
		return false;
	e->start = e->msg.start_;
	e->start.target = e->start.source = e->start.excludes = rcp_span_of(NULL, 0);
	memcpy(e->secret, e->start.secret.b, sizeof(e->secret));
	memcpy(e->session, e->start.session.b, sizeof(e->session));
	do {
		if (!evil_await(e, RCP_MSG_NAMES))
			return false;
	} while (!e->msg.names_.last);
	return true;
}

static void say_wanted(struct evil *e)
{
	const char *want = e->c->want ? e->c->want : "f";
	char path[4096];

	if (e->source) {
		evil_say_names(e, NULL, true);
		return;
	}
	while (*want) {
		size_t n = strcspn(want, " ");

		snprintf(path, sizeof(path), "%s/w/src/%.*s", e->top, (int)n, want);
		want += n + strspn(want + n, " ");
		evil_say_names(e, path, !*want);
	}
}

bool evil_request(struct evil *e)
{
	if (!e->initiator) {
		if (!hear_request(e))
			return false;
		say_ready(e);
		return true;
	}
	evil_say_start(e);
	say_wanted(e);
	if (!evil_await(e, RCP_MSG_READY))
		return false;
	e->port = e->msg.ready_.port;
	return true;
}

static int take_connection(struct evil *e)
{
	struct pollfd w = {.fd = e->listener, .events = POLLIN};

	if (poll(&w, 1, 15000) != 1)
		return -1;
	int fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

bool evil_control(struct evil *e)
{
	struct rcp_msg_switch m = {.to = RCP_SWITCH_PIPE};
	char identity[RCP_IDENTITY];

	if (e->link == EVIL_PIPE) {
		if (!e->initiator)
			return evil_await(e, RCP_MSG_SWITCH);
		evil_say(e, RCP_MSG_SWITCH, &m);
		return true;
	}
	int fd = e->initiator ? evil_dial(e->port) : take_connection(e);

	if (fd < 0 || !evil_tls(e, fd, !e->initiator, rcp_secret_identity(e->session, identity), e->secret))
		return false;
	e->ctl = &e->tcp;
	return true;
}

bool evil_boot(struct evil *e)
{
	return evil_greet(e) && evil_request(e) && evil_control(e);
}

/* ---- links ---- */

bool evil_caps(struct evil *e)
{
	struct rcp_msg_caps m = {.features = e->hello.features,
				 .slots = EVIL_SLOTS,
				 .chunk_bytes = EVIL_CHUNK,
				 .cpus = 1,
				 .streams = 1,
				 .no_rdma = rcp_span_str("none here")};

	evil_say(e, RCP_MSG_CAPS, &m);
	return evil_await(e, RCP_MSG_CAPS);
}

static uint8_t kind_of(const struct evil *e)
{
	return e->link == EVIL_PIPE ? RCP_LINK_PIPE : RCP_LINK_TCP;
}

bool evil_try(struct evil *e)
{
	struct rcp_msg_link_try m = {.link = e->link_id,
				     .kind = kind_of(e),
				     .streams = 1,
				     .slots = EVIL_SLOTS,
				     .chunk_bytes = EVIL_CHUNK};

	if (e->initiator) {
		evil_say(e, RCP_MSG_LINK_TRY, &m);
		return evil_await(e, RCP_MSG_LINK_GO);
	}
	if (!evil_await(e, RCP_MSG_LINK_TRY))
		return false;
	e->link_id = e->msg.link_try_.link;
	evil_say(e, RCP_MSG_LINK_GO, &(struct rcp_msg_link_go){.link = e->link_id});
	return true;
}

bool evil_preamble(struct evil *e, int fd, uint16_t link, uint16_t stream, const uint8_t *key)
{
	struct rcp_preamble p = {.link = link, .stream = stream};
	uint8_t said[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER];
	struct rcp_err err = {0};

	memcpy(p.session, e->session, sizeof(p.session));
	if (rcp_preamble_encode(&p, key, said, &err) || send(fd, said, sizeof(said), MSG_NOSIGNAL) != sizeof(said))
		return false;
	return evil_read(e, fd, answer, sizeof(answer)) && rcp_preamble_answered(said, e->secret, answer);
}

bool evil_connect(struct evil *e)
{
	uint8_t said[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER];
	struct rcp_preamble p;

	if (e->link == EVIL_PIPE)
		return true;
	if (e->initiator) {
		e->data = evil_dial(e->port);
		return e->data >= 0 && evil_preamble(e, e->data, e->link_id, 0, e->secret);
	}
	e->data = take_connection(e);
	if (e->data < 0 || !evil_read(e, e->data, said, sizeof(said)) || !rcp_preamble_decode(said, &p) ||
	    !rcp_preamble_check(&p, e->session, e->secret, answer))
		return false;
	evil_data(e, answer, sizeof(answer));
	return true;
}

bool evil_seal_key(struct evil *e, uint32_t generation)
{
	uint8_t base[RCP_SECRET], key[RCP_SEAL_KEY], data[4];
	struct rcp_err err = {0};
	bool from_initiator = e->initiator == e->source;

	rcp_put_u32(data, generation);
	rcp_seal_free(&e->seal);
	return !rcp_tls_export(e->tcp.tls, "EXPERIMENTAL rcp seal", base, sizeof(base), &err) &&
	       !rcp_secret_hmac(base, from_initiator ? "seal from initiator" : "seal from responder", data, sizeof(data), key,
				&err) &&
	       !rcp_seal_new(key, generation, &err, &e->seal);
}

static void say_ring(struct evil *e)
{
	e->ring = (struct rcp_msg_link_ring){.link = e->link_id,
					     .slots = EVIL_SLOTS,
					     .slot_bytes = 4096 + EVIL_CHUNK,
					     .chunk_bytes = EVIL_CHUNK,
					     .generation = e->link_id};
	evil_say(e, RCP_MSG_LINK_RING, &e->ring);
}

bool evil_use(struct evil *e)
{
	struct rcp_msg_link_use m = {.link = e->link_id,
				     .kind = kind_of(e),
				     .slots = EVIL_SLOTS,
				     .chunk_bytes = EVIL_CHUNK,
				     .generation = e->link_id,
				     .why = rcp_span_str("evil")};

	if (e->initiator)
		evil_say(e, RCP_MSG_LINK_USE, &m);
	else if (!evil_await(e, RCP_MSG_LINK_USE))
		return false;
	if (!e->source) {
		say_ring(e);
	} else {
		if (!evil_await(e, RCP_MSG_LINK_RING))
			return false;
		e->ring = e->msg.link_ring_;
	}
	return e->link != EVIL_SEALED || evil_seal_key(e, e->ring.generation);
}

bool evil_link(struct evil *e)
{
	return evil_caps(e) && evil_try(e) && evil_connect(e) && evil_use(e);
}

bool evil_session(struct evil *e)
{
	return evil_boot(e) && evil_link(e);
}

/* ---- source ---- */

void evil_payload(const char *name, uint64_t offset, uint8_t *out, size_t len)
{
	uint32_t seed = 0x811c9dc5;

	for (; *name; name++)
		seed = (seed ^ (uint8_t)*name) * 0x01000193;
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(((offset + i) * 2654435761u >> 11) + seed);
}

struct rcp_rec_entry evil_entry(uint8_t type, const char *path, uint64_t size)
{
	return (struct rcp_rec_entry){.type = type,
				      .flags = strchr(path, '/') ? 0 : RCP_ENTRY_TOP,
				      .mode = type == RCP_ENTRY_DIR || type == RCP_ENTRY_DIR_END ? 0755 : 0644,
				      .size = size,
				      .mtime_s = 1000000000,
				      .atime_s = 1000000000,
				      .ctime = 77,
				      .dev = 1,
				      .ino = size + 5,
				      .path = rcp_span_of(path, strlen(path))};
}

uint32_t evil_name(struct evil *e, const struct rcp_rec_entry *rec)
{
	struct rcp_wr w = {.max = 200000};
	uint32_t id = e->next_entry++;

	rcp_rec_encode(&w, RCP_REC_ENTRY, rec);
	struct rcp_msg_entries m = {.first = id, .count = 1, .entries = rcp_span_of(w.data, w.len)};

	if (id < EVIL_NAMES) {
		e->entries[id] = (struct evil_entry){.type = rec->type, .size = rec->size};
		rcp_span_copy(rec->path, e->entries[id].name, sizeof(e->entries[id].name));
	}
	evil_say(e, RCP_MSG_ENTRIES, &m);
	rcp_wr_free(&w);
	return id;
}

uint32_t evil_name_file(struct evil *e, const char *path, uint64_t size)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, path, size);

	return evil_name(e, &rec);
}

bool evil_answered(struct evil *e, uint32_t id)
{
	while (!e->entries[id].answered && !e->entries[id].ended) {
		if (!evil_get(e))
			return false;
	}
	return e->entries[id].answered && !e->entries[id].ended;
}

struct rcp_chunk evil_cell(struct evil *e, uint32_t id, uint64_t offset, uint32_t length, uint8_t *payload)
{
	const char *slash = strrchr(e->entries[id].name, '/');

	evil_payload(slash ? slash + 1 : e->entries[id].name, offset, payload, length);
	return (struct rcp_chunk){.generation = e->ring.generation,
				  .entry = id,
				  .offset = offset,
				  .length = length,
				  .crc = rcp_crc32(0, payload, length),
				  .sequence = e->sequence++};
}

void evil_send_chunk(struct evil *e, uint32_t slot, const struct rcp_chunk *c, const uint8_t *payload, size_t len)
{
	struct rcp_wr w = {.max = 20 << 20};
	uint8_t header[RCP_CHUNK_HEADER];

	rcp_chunk_encode(c, header);
	if (e->link == EVIL_PIPE) {
		rcp_wr_u32(&w, (uint32_t)(8 + RCP_CHUNK_HEADER + len));
		rcp_wr_u16(&w, RCP_MSG_CHUNK);
		rcp_wr_u16(&w, 0);
		rcp_wr_u32(&w, slot);
		rcp_wr_u32(&w, (uint32_t)(RCP_CHUNK_HEADER + len));
	} else {
		rcp_wr_u32(&w, rcp_imm(slot, e->ring.generation));
		rcp_wr_u32(&w, (uint32_t)len);
	}
	rcp_wr_bytes(&w, header, sizeof(header));
	rcp_wr_bytes(&w, payload, len);
	if (e->link == EVIL_PIPE)
		evil_raw(e, w.data, w.len);
	else
		evil_data(e, w.data, w.len);
	rcp_wr_free(&w);
	if (slot < 64)
		e->taken[slot] = true;
}

static bool hear_credit(struct evil *e)
{
	uint8_t word[4];

	if (e->link == EVIL_PIPE)
		return evil_get(e);
	if (e->data < 0 || !evil_read(e, e->data, word, sizeof(word)))
		return false;
	e->taken[rcp_imm_slot(rcp_get_u32(word)) & 63] = false;
	e->credits++;
	return true;
}

static uint32_t free_slot(struct evil *e)
{
	for (;;) {
		for (uint32_t i = 0; i < e->ring.slots && i < 64; i++) {
			if (!e->taken[i])
				return i;
		}
		if (!hear_credit(e))
			return 0;
	}
}

static void send_sealed(struct evil *e, struct rcp_chunk *c, uint8_t *payload)
{
	struct rcp_err err = {0};

	if (e->seal && rcp_seal_chunk(e->seal, c, payload, &err))
		evil_note(e, "broken", "sealing failed");
	evil_send_chunk(e, free_slot(e), c, payload, c->length);
}

void evil_send_cell(struct evil *e, uint32_t id, uint64_t offset, uint32_t length)
{
	static uint8_t payload[EVIL_CHUNK];
	struct rcp_chunk c = evil_cell(e, id, offset, length, payload);

	send_sealed(e, &c, payload);
}

void evil_end_entry(struct evil *e, uint32_t id, uint64_t data_bytes)
{
	evil_say(e, RCP_MSG_ENTRY_END, &(struct rcp_msg_entry_end){.entry = id, .data_bytes = data_bytes});
}

void evil_send_file(struct evil *e, uint32_t id)
{
	uint64_t size = e->entries[id].size;

	for (uint64_t at = 0; at < size && !e->gone && !e->aborted; at += EVIL_CHUNK)
		evil_send_cell(e, id, at, size - at < EVIL_CHUNK ? (uint32_t)(size - at) : EVIL_CHUNK);
	evil_end_entry(e, id, size);
}

void evil_bundle(struct evil *e, const uint32_t *ids, unsigned count, uint32_t slot)
{
	static uint8_t payload[EVIL_CHUNK];
	uint32_t at = 4 + 12 * count;

	rcp_put_u32(payload, count);
	for (unsigned i = 0; i < count; i++) {
		uint32_t len = (uint32_t)e->entries[ids[i]].size;
		uint8_t *rec = payload + 4 + 12 * i;

		const char *slash = strrchr(e->entries[ids[i]].name, '/');

		evil_payload(slash ? slash + 1 : e->entries[ids[i]].name, 0, payload + at, len);
		rcp_put_u32(rec, ids[i]);
		rcp_put_u32(rec + 4, len);
		rcp_put_u32(rec + 8, rcp_crc32(0, payload + at, len));
		at += len;
	}
	struct rcp_chunk c = {.flags = RCP_CHUNK_BUNDLE,
			      .generation = e->ring.generation,
			      .entry = ids[0],
			      .length = at,
			      .crc = rcp_crc32(0, payload, at),
			      .sequence = e->sequence++};

	(void)slot;
	send_sealed(e, &c, payload);
}

void evil_walk_end(struct evil *e)
{
	evil_say(e, RCP_MSG_WALK_END, &(struct rcp_msg_walk_end){.entries = e->next_entry});
}

bool evil_verdict(struct evil *e)
{
	while (!e->verdict) {
		if (!evil_get(e))
			return false;
	}
	evil_say(e, RCP_MSG_BYE, &(struct rcp_msg_bye){0});
	return true;
}

void evil_finish_source(struct evil *e)
{
	evil_walk_end(e);
	evil_verdict(e);
}

/* ---- sink ---- */

bool evil_heard(struct evil *e)
{
	while (!e->walk_end) {
		if (!evil_get(e))
			return false;
	}
	return true;
}

void evil_answer(struct evil *e, uint32_t first, uint32_t count, const void *have, size_t have_len)
{
	struct rcp_rec_answer rec = {.first = first, .count = count, .have = rcp_span_of(have, have_len)};
	struct rcp_wr w = {.max = RCP_FRAME_MAX};

	rcp_rec_encode(&w, RCP_REC_ANSWER, &rec);
	evil_say(e, RCP_MSG_ANSWERS, &(struct rcp_msg_answers){.answers = rcp_span_of(w.data, w.len)});
	rcp_wr_free(&w);
}

static bool took(struct evil *e, uint32_t slot, const uint8_t *header)
{
	e->chunk_slot = slot;
	e->chunks_in++;
	return rcp_chunk_decode(header, &e->chunk);
}

bool evil_take(struct evil *e)
{
	uint8_t head[8 + RCP_CHUNK_HEADER];
	static uint8_t payload[EVIL_CHUNK];

	if (e->link == EVIL_PIPE) {
		if (!evil_await(e, RCP_MSG_CHUNK) || e->msg.chunk_.bytes.len < RCP_CHUNK_HEADER)
			return false;
		return took(e, e->msg.chunk_.slot, e->msg.chunk_.bytes.data);
	}
	if (e->data < 0 || !evil_read(e, e->data, head, sizeof(head)))
		return false;
	uint32_t len = rcp_get_u32(head + 4);

	return len <= sizeof(payload) && evil_read(e, e->data, payload, len) && took(e, rcp_imm_slot(rcp_get_u32(head)), head + 8);
}

void evil_credit(struct evil *e, uint32_t slot)
{
	uint8_t word[4];

	if (e->link == EVIL_PIPE) {
		rcp_put_u32(word, slot);
		evil_say(e, RCP_MSG_CREDIT, &(struct rcp_msg_credit){.slots = rcp_span_of(word, 4)});
	} else {
		rcp_put_u32(word, rcp_imm(slot, e->ring.generation));
		evil_data(e, word, 4);
	}
}

void evil_result(struct evil *e, uint32_t first, uint32_t count, unsigned status, unsigned code, const char *text)
{
	struct rcp_rec_result rec = {.first = first,
				     .count = count,
				     .status = (uint8_t)status,
				     .code = (uint8_t)code,
				     .text = rcp_span_str(text)};
	struct rcp_wr w = {.max = 65536};

	rcp_rec_encode(&w, RCP_REC_RESULT, &rec);
	evil_say(e, RCP_MSG_RESULTS, &(struct rcp_msg_results){.results = rcp_span_of(w.data, w.len)});
	rcp_wr_free(&w);
}

void evil_say_verdict(struct evil *e, unsigned code)
{
	evil_say(e, RCP_MSG_VERDICT, &(struct rcp_msg_verdict){.code = (uint8_t)code, .files = e->next_entry});
}

bool evil_take_file(struct evil *e, uint32_t id)
{
	uint64_t got = 0, size = e->entries[id].size;

	evil_answer(e, id, 1, NULL, 0);
	while (got < size) {
		if (!evil_take(e))
			return false;
		got += e->chunk.flags & RCP_CHUNK_BUNDLE ? size : e->chunk.length;
		evil_credit(e, e->chunk_slot);
	}
	return true;
}

void evil_finish_sink(struct evil *e)
{
	evil_say_verdict(e, 0);
	evil_await(e, RCP_MSG_BYE);
}
