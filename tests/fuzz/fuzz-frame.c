/* The control connection's bytes: frames, messages, and the records in their blobs; and a chunk's header. */
#include "fuzz.h"

#include "base/crc.h"
#include "wire/chunk.h"
#include "wire/msg.h"

#include <string.h>

/* What was decoded is encoded to the same bytes: nothing is lost, nothing has two forms. */
static void same_again(const struct rcp_msg *msg, const uint8_t *frame, size_t len)
{
	struct rcp_wr w = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};
	const void *body = &msg->hello_; /* all of the union start here */

	rcp_msg_encode(&w, msg->type, body);
	MUST(!w.bad && w.len == len && memcmp(w.data, frame, len) == 0);
	rcp_wr_free(&w);
}

static void records(const uint8_t *data, size_t len)
{
	union {
		struct rcp_rec_entry entry;
		uint8_t room[4096];
	} rec;

	for (int type = 0; type < RCP_REC_COUNT; type++) {
		struct rcp_rd rd = rcp_rd_of(data, len);

		while (rcp_rec_next(&rd, (enum rcp_rec_type)type, &rec) > 0)
			;
	}
}

static void chunk(const uint8_t header[RCP_CHUNK_HEADER])
{
	struct rcp_chunk chunk;
	uint8_t again[RCP_CHUNK_HEADER];

	if (rcp_chunk_decode(header, &chunk)) {
		rcp_chunk_encode(&chunk, again);
		MUST(memcmp(again, header, sizeof(again)) == 0);
	}
}

/* As it is, and with a checksum that is right. */
static void chunks(const uint8_t *data)
{
	uint8_t right[RCP_CHUNK_HEADER];

	chunk(data);
	memcpy(right, data, sizeof(right));
	rcp_put_u32(right + 60, rcp_crc32(0, right, 60));
	chunk(right);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	records(data, size);
	if (size >= RCP_CHUNK_HEADER)
		chunks(data);
	while (size >= RCP_FRAME_HEADER) {
		struct rcp_err err = {0};
		enum rcp_msg_type type;
		uint32_t len;
		struct rcp_msg msg;

		if (rcp_frame_parse(data, RCP_CHUNK_BYTES_DEFAULT, &err, &type, &len) ||
		    len > size - RCP_FRAME_HEADER)
			break;
		if (rcp_msg_decode(type, data + RCP_FRAME_HEADER, len, &err, &msg) == 0)
			same_again(&msg, data, RCP_FRAME_HEADER + len);
		data += RCP_FRAME_HEADER + len;
		size -= RCP_FRAME_HEADER + len;
	}
	return 0;
}
