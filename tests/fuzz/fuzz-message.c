/* Each message of the table: what was decoded is encoded to the same bytes, and so are the records in its blobs. The
 * first byte says which message, the rest is its payload. */
#include "fuzz.h"

#include "wire/msg.h"

#include <string.h>

union record {
	struct rcp_rec_entry entry;
	struct rcp_rec_port port;
	struct rcp_rec_result result;
	uint8_t room[1024];
};

static const struct rcp_msg_desc *choose(uint8_t which)
{
	unsigned known = 0, at = 0;

	for (unsigned n = 0; n < 256; n++)
		known += rcp_msg_desc(n) != NULL;
	for (unsigned left = which % known;; at++) {
		if (rcp_msg_desc(at) && !left--)
			return rcp_msg_desc(at);
	}
}

static void records(struct rcp_span blob, enum rcp_rec_type type)
{
	struct rcp_rd rd = rcp_rd_of(blob.data, blob.len);
	struct rcp_wr again = {.max = 2 * RCP_FRAME_MAX};
	union record rec;
	size_t whole = 0;
	int rc;

	while ((rc = rcp_rec_next(&rd, type, &rec)) > 0) {
		rcp_rec_encode(&again, type, &rec);
		whole = rd.at;
	}
	MUST(rcp_rec_next(&rd, type, &rec) == rc); /* what is malformed stays so */
	MUST((rc == 0) == (whole == blob.len) && !again.bad && again.len == whole);
	MUST(!whole || memcmp(again.data, blob.data, whole) == 0);
	rcp_wr_free(&again);
}

static void blobs(const struct rcp_msg_desc *desc, const struct rcp_msg *msg)
{
	for (const struct rcp_field *f = desc->fields; f->name; f++) {
		struct rcp_span span;

		if (f->type != RCP_W_BLOB)
			continue;
		memcpy(&span, (const char *)&msg->hello_ + f->offset, sizeof(span));
		for (int type = 0; type < RCP_REC_COUNT; type++)
			records(span, (enum rcp_rec_type)type);
	}
}

/* Nobody but its sender may say it, and in its phase only. */
static void legal(const struct rcp_msg_desc *desc)
{
	unsigned who = 0;

	for (int initiator = 0; initiator < 2; initiator++) {
		for (int role = 0; role <= RCP_ROLE_SINK; role++)
			who += rcp_msg_legal(desc, desc->phase, initiator, (enum rcp_role)role);
	}
	MUST(who && !rcp_msg_legal(desc, (enum rcp_phase)0, true, RCP_ROLE_SOURCE));
}

static void errors(const struct rcp_msg *msg)
{
	struct rcp_err err = {0};
	char text[8192];

	if (msg->type == RCP_MSG_FAULT)
		RCP_ERR_FROM_WIRE(&msg->fault_, msg->fault_.code, &err);
	else if (msg->type == RCP_MSG_ABORT)
		RCP_ERR_FROM_WIRE(&msg->abort_, msg->abort_.code, &err);
	else
		return;
	MUST(rcp_err_is(&err) && err.sys_errno >= 0);
	struct rcp_err first = err;

	rcp_err_from_wire(RCP_E_IO, 5, rcp_span_str("x"), rcp_span_str("x"), rcp_span_str("x"), rcp_span_str("x"), &err);
	MUST(err.code == first.code && strcmp(err.text, first.text) == 0);
	rcp_err_format(&err, text, sizeof(text));
	MUST(!strpbrk(text, "\n\x1b"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rcp_wr w = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};
	struct rcp_err err = {0};
	struct rcp_msg msg;

	if (!size || size > RCP_FRAME_MAX)
		return 0;
	const struct rcp_msg_desc *desc = choose(*data++);
	enum rcp_msg_type type = (enum rcp_msg_type)desc->number;

	size--;
	legal(desc);
	if (rcp_msg_decode(type, data, size, &err, &msg)) {
		MUST(err.code == RCP_E_CONNECT && strstr(err.text, desc->name));
		return 0;
	}
	rcp_msg_encode(&w, type, &msg.hello_);
	MUST(!w.bad && w.len == RCP_FRAME_HEADER + size && (!size || !memcmp(w.data + RCP_FRAME_HEADER, data, size)));
	rcp_wr_free(&w);
	blobs(desc, &msg);
	errors(&msg);
	return 0;
}
