#include "wire/msg.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(S, type, name) {#name, RCP_W_##type, offsetof(struct S, name)},

#define FIELDS(NAME, name, number, who, phase)                                                     \
	static const struct rcp_field fields_##name[] = {RCP_##NAME##_FIELDS(FIELD, rcp_msg_##name){NULL, RCP_W_U8, 0}};
#define REC_FIELDS(NAME, name)                                                                     \
	static const struct rcp_field rec_fields_##name[] = {RCP_REC_##NAME##_FIELDS(FIELD, rcp_rec_##name){NULL, RCP_W_U8, 0}};

RCP_MESSAGES(FIELDS)
RCP_RECORDS(REC_FIELDS)

static const struct rcp_msg_desc descs[] = {
#define DESC(NAME, name, number, who, phase)                                                       \
	{#NAME, number, RCP_WHO_##who, RCP_PHASE_##phase, fields_##name},
	RCP_MESSAGES(DESC)
#undef DESC
};

static const struct rcp_field *const rec_descs[] = {
#define DESC(NAME, name) rec_fields_##name,
	RCP_RECORDS(DESC)
#undef DESC
};

const struct rcp_msg_desc *rcp_msg_desc(unsigned number)
{
	for (size_t i = 0; i < sizeof(descs) / sizeof(descs[0]); i++) {
		if (descs[i].number == number)
			return &descs[i];
	}
	return NULL;
}

const struct rcp_field *rcp_rec_fields(enum rcp_rec_type type)
{
	return rec_descs[type];
}

static void put_span(struct rcp_wr *w, enum rcp_wire_type type, const struct rcp_span *s)
{
	if (type == RCP_W_STR) {
		if (s->len > RCP_STR_MAX || (s->len && memchr(s->data, 0, s->len))) {
			w->bad = true;
			return;
		}
		rcp_wr_u16(w, (uint16_t)s->len);
	} else {
		rcp_wr_u32(w, (uint32_t)s->len);
	}
	rcp_wr_bytes(w, s->data, s->len);
}

static void put_field(struct rcp_wr *w, enum rcp_wire_type type, const void *p)
{
	switch (type) {
	case RCP_W_U8:
		rcp_wr_u8(w, *(const uint8_t *)p);
		break;
	case RCP_W_U16:
		rcp_wr_u16(w, *(const uint16_t *)p);
		break;
	case RCP_W_U32:
		rcp_wr_u32(w, *(const uint32_t *)p);
		break;
	case RCP_W_U64:
		rcp_wr_u64(w, *(const uint64_t *)p);
		break;
	case RCP_W_K16:
		rcp_wr_bytes(w, p, 16);
		break;
	case RCP_W_K32:
		rcp_wr_bytes(w, p, 32);
		break;
	case RCP_W_STR:
	case RCP_W_BLOB:
		put_span(w, type, p);
		break;
	}
}

static void put_fields(struct rcp_wr *w, const struct rcp_field *f, const void *rec)
{
	for (; f->name; f++)
		put_field(w, f->type, (const char *)rec + f->offset);
}

void rcp_rec_encode(struct rcp_wr *w, enum rcp_rec_type type, const void *rec)
{
	put_fields(w, rec_descs[type], rec);
}

void rcp_msg_encode(struct rcp_wr *w, enum rcp_msg_type type, const void *msg)
{
	const struct rcp_msg_desc *desc = rcp_msg_desc(type);
	size_t start = w->len;

	assert(desc);
	rcp_wr_u32(w, 0);
	rcp_wr_u16(w, (uint16_t)type);
	rcp_wr_u16(w, 0);
	put_fields(w, desc->fields, msg);
	if (w->bad)
		return;
	size_t len = w->len - start - RCP_FRAME_HEADER;

	if (type != RCP_MSG_CHUNK && len > RCP_FRAME_MAX)
		w->bad = true;
	else
		rcp_put_u32(w->data + start, (uint32_t)len);
}

static void get_span(struct rcp_rd *r, enum rcp_wire_type type, struct rcp_span *s)
{
	size_t len = type == RCP_W_STR ? rcp_rd_u16(r) : rcp_rd_u32(r);

	if (type == RCP_W_STR && len > RCP_STR_MAX)
		r->bad = true;
	s->data = rcp_rd_bytes(r, len);
	s->len = s->data ? len : 0;
	if (type == RCP_W_STR && s->len && memchr(s->data, 0, s->len))
		r->bad = true;
}

static void get_raw(struct rcp_rd *r, void *p, size_t len)
{
	const uint8_t *b = rcp_rd_bytes(r, len);

	if (b)
		memcpy(p, b, len);
}

static void get_field(struct rcp_rd *r, enum rcp_wire_type type, void *p)
{
	switch (type) {
	case RCP_W_U8:
		*(uint8_t *)p = rcp_rd_u8(r);
		break;
	case RCP_W_U16:
		*(uint16_t *)p = rcp_rd_u16(r);
		break;
	case RCP_W_U32:
		*(uint32_t *)p = rcp_rd_u32(r);
		break;
	case RCP_W_U64:
		*(uint64_t *)p = rcp_rd_u64(r);
		break;
	case RCP_W_K16:
		get_raw(r, p, 16);
		break;
	case RCP_W_K32:
		get_raw(r, p, 32);
		break;
	case RCP_W_STR:
	case RCP_W_BLOB:
		get_span(r, type, p);
		break;
	}
}

static void get_fields(struct rcp_rd *r, const struct rcp_field *f, void *out)
{
	for (; f->name; f++)
		get_field(r, f->type, (char *)out + f->offset);
}

int rcp_frame_parse(const uint8_t header[RCP_FRAME_HEADER], uint32_t chunk_bytes,
		    struct rcp_err *err, enum rcp_msg_type *type, uint32_t *length)
{
	uint32_t len = rcp_get_u32(header);
	unsigned number = rcp_get_u16(header + 4);
	uint32_t max = RCP_FRAME_MAX;

	if (!rcp_msg_desc(number) || rcp_get_u16(header + 6) != 0)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
				   "the peer broke the protocol: message %u unknown or malformed", number);
	if (number == RCP_MSG_CHUNK)
		max = 8 + 64 + chunk_bytes;
	if (len > max)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
				   "the peer broke the protocol: message %u of %u bytes is too long",
				   number, len);
	*type = (enum rcp_msg_type)number;
	*length = len;
	return 0;
}

int rcp_msg_decode(enum rcp_msg_type type, const uint8_t *payload, size_t len, struct rcp_err *err,
		   struct rcp_msg *out)
{
	const struct rcp_msg_desc *desc = rcp_msg_desc(type);
	struct rcp_rd r = rcp_rd_of(payload, len);

	assert(desc); /* a frame's type was looked up before */
	memset(out, 0, sizeof(*out));
	out->type = type;
	/* Every member of the union starts where the union does. */
	get_fields(&r, desc->fields, &out->hello_);
	if (r.bad || r.at != len)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
				   "the peer broke the protocol: malformed %s message", desc->name);
	return 0;
}

int rcp_rec_next(struct rcp_rd *blob, enum rcp_rec_type type, void *out)
{
	if (blob->bad)
		return -1;
	if (blob->at == blob->len)
		return 0;
	get_fields(blob, rec_descs[type], out);
	return blob->bad ? -1 : 1;
}

bool rcp_msg_legal(const struct rcp_msg_desc *desc, enum rcp_phase phase, bool is_initiator,
		   enum rcp_role role)
{
	unsigned sender = is_initiator ? RCP_WHO_I : RCP_WHO_R;

	sender |= role == RCP_ROLE_SOURCE ? RCP_WHO_S : role == RCP_ROLE_SINK ? RCP_WHO_K : 0u;
	return ((unsigned)desc->phase & (unsigned)phase) && ((unsigned)desc->who & sender);
}

struct rcp_span rcp_span_str(const char *text)
{
	size_t len = text ? strlen(text) : 0;

	return rcp_span_of(text, len > RCP_STR_MAX ? RCP_STR_MAX : len);
}

char *rcp_span_dup(struct rcp_span s)
{
	char *p = malloc(s.len + 1);

	if (p) {
		if (s.len)
			memcpy(p, s.data, s.len);
		p[s.len] = 0;
	}
	return p;
}

char *rcp_span_copy(struct rcp_span s, char *dst, size_t size)
{
	size_t n = s.len < size ? s.len : size - 1;

	if (n)
		memcpy(dst, s.data, n);
	dst[n] = 0;
	return dst;
}

void rcp_err_from_wire(unsigned code, uint32_t sys_errno, struct rcp_span call,
		       struct rcp_span object, struct rcp_span text, struct rcp_span fix,
		       struct rcp_err *err)
{
	bool known = (code >= RCP_E_PARTIAL && code <= RCP_E_LINK) || code == RCP_E_INTERRUPTED ||
		     code == RCP_E_TERMINATED;
	char name[sizeof(err->object)];

	if (rcp_err_is(err))
		return;
	rcp_err_set(err, known ? (enum rcp_code)code : RCP_E_CONNECT,
		    sys_errno < 4096 ? (int)sys_errno : 0, NULL,
		    rcp_span_copy(object, name, sizeof(name)), NULL);
	rcp_span_copy(call, err->call, sizeof(err->call));
	rcp_span_copy(text, err->text, sizeof(err->text));
	if (!text.len && !err->sys_errno)
		snprintf(err->text, sizeof(err->text), "failed, and the other end gave no reason");
	rcp_span_copy(fix, err->fix, sizeof(err->fix));
}
