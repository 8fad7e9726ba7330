/* What an honest end says while a copy runs: as the source, as the sink. */
#include "evil.h"
#include "nic.h"

#include "base/crc.h"

#include <stdlib.h>
#include <string.h>

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
	if (evil_is_rdma(e)) {
		nic_chunk(e, slot, header, payload, len);
		if (slot < 64)
			e->taken[slot] = true;
		return;
	}
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

	if (evil_is_rdma(e))
		return nic_credits(e);
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

bool evil_begin(struct evil *e, uint32_t *id)
{
	if (!evil_session(e))
		return false;
	*id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, *id))
		return false;
	evil_act(e);
	return true;
}

/* Says each time that it has sent all, with as many AGAINs as came: the sink's patience must end. */
void evil_posted(struct evil *e, uint64_t chunks, uint64_t answers)
{
	evil_say(e, RCP_MSG_POSTED, &(struct rcp_msg_posted){.generation = e->ring.generation,
							      .chunks = chunks,
							      .answers = answers,
							      .agains = e->agains});
}

/* What comes in place of the first cell, each time it is asked for. */
void evil_again_and_again(struct evil *e, uint32_t id, void (*wrong)(struct evil *e, uint32_t id, uint64_t offset))
{
	uint64_t seen = 0, sent = 1;

	wrong(e, id, 0);
	evil_send_cell(e, id, EVIL_CHUNK, EVIL_CHUNK);
	evil_send_cell(e, id, 2ul * EVIL_CHUNK, EVIL_F_BYTES - 2 * EVIL_CHUNK);
	evil_end_entry(e, id, EVIL_F_BYTES);
	evil_walk_end(e);
	evil_posted(e, sent += 2, 1);
	while (!e->verdict && evil_get(e)) {
		for (; seen < e->agains; seen++) {
			wrong(e, id, e->again.offset);
			sent++;
		}
		if (e->msg.type == RCP_MSG_AGAIN)
			evil_posted(e, sent, 1);
	}
	evil_verdict(e);
}

uint32_t evil_open_slot(struct evil *e)
{
	for (uint32_t i = 0; i < e->ring.slots; i++) {
		if (!e->taken[i])
			return i;
	}
	return 0;
}

/* ---- sink ---- */

bool evil_begin_sink(struct evil *e)
{
	if (!evil_session(e) || !evil_heard(e))
		return false;
	evil_act(e);
	return true;
}

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

	if (evil_is_rdma(e)) {
		const uint8_t *header = nic_take(e, &e->chunk_slot);

		return header && took(e, e->chunk_slot, header);
	}
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

	if (evil_is_rdma(e)) {
		nic_credit(e, slot);
		return;
	}
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
