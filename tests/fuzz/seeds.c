/* Writes the corpora's first inputs: a frame of each message and kind of record, honest sessions, words.
 * usage: fuzz-seeds DIR. What a fuzzer found is in the corpora besides. */
#include "fuzz.h"

#include "base/bytes.h"
#include "boot/ctl.h"
#include "boot/preamble.h"
#include "file/journal.h"
#include "link/verbs/verbs.h"
#include "wire/chunk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE(text) {text, sizeof(text) - 1}

struct seed {
	const char *bytes;
	size_t len;
};

static int root;

static void keep(const char *name, const void *data, size_t len)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	MUST(fd >= 0 && write(fd, data, len) == (ssize_t)len);
	close(fd);
}

static void keep_numbered(const char *target, const char *what, unsigned number, const struct rcp_wr *w)
{
	char name[64];

	snprintf(name, sizeof(name), "%s/seed-%s%02u", target, what, number);
	MUST(!w->bad);
	keep(name, w->data, w->len);
}

static void keep_all(const char *target, const struct seed *seeds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct rcp_wr w = {.max = 1 << 20};

		rcp_wr_bytes(&w, seeds[i].bytes, seeds[i].len);
		keep_numbered(target, "", (unsigned)i, &w);
		rcp_wr_free(&w);
	}
}
#define KEEP_ALL(target, seeds) keep_all(target, seeds, sizeof(seeds) / sizeof((seeds)[0]))

/* ---- frames and messages ---- */

static void blob_of(enum rcp_rec_type type, const void *rec, struct rcp_wr *w)
{
	*w = (struct rcp_wr){.max = RCP_FRAME_MAX};
	rcp_rec_encode(w, type, rec);
	rcp_rec_encode(w, type, rec);
}

/* Two records of the kind that a message carries. */
static bool blob_for(enum rcp_msg_type type, struct rcp_wr *w)
{
	static const uint64_t range[] = {4096, 8192};
	const struct rcp_rec_entry entry = {.type = 1, .size = 5, .path = rcp_span_str("a/b"), .user = rcp_span_str("u")};
	const struct rcp_rec_answer answer = {.first = 1, .count = 1, .have = rcp_span_of(range, sizeof(range))};
	const struct rcp_rec_result result = {.count = 2, .status = 1, .code = 5, .text = rcp_span_str("no")};
	const struct rcp_rec_listing listing = {.name = rcp_span_str("m"), .comment = rcp_span_str("c")};
	const struct rcp_rec_addr addr = {.family = 4, .addr = {{192, 0, 2, 1}}};
	const struct rcp_rec_path path = {.path = rcp_span_str("x/y")};
	const struct rcp_rec_port port = {.number = 1, .link_layer = 2, .transport = 1, .mtu = 5};
	const struct rcp_rec_slot slot = {.slot = 0x10007};
	const struct {
		enum rcp_msg_type type;
		enum rcp_rec_type rec;
		const void *at;
	} all[] = {
		{RCP_MSG_ENTRIES, RCP_REC_ENTRY, &entry},    {RCP_MSG_ANSWERS, RCP_REC_ANSWER, &answer},
		{RCP_MSG_RESULTS, RCP_REC_RESULT, &result},  {RCP_MSG_MODULES, RCP_REC_LISTING, &listing},
		{RCP_MSG_READY, RCP_REC_ADDR, &addr},	     {RCP_MSG_NAMES, RCP_REC_PATH, &path},
		{RCP_MSG_START, RCP_REC_PATH, &path},	     {RCP_MSG_CAPS, RCP_REC_PORT, &port},
		{RCP_MSG_CREDIT, RCP_REC_SLOT, &slot},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i].type == type) {
			blob_of(all[i].rec, all[i].at, w);
			return true;
		}
	}
	return false;
}

/* The message with its records, if it has any, and text in all its strings. */
static void fill(struct rcp_msg *msg, struct rcp_wr *records)
{
	bool has = blob_for(msg->type, records);

	for (const struct rcp_field *f = rcp_msg_desc(msg->type)->fields; f->name; f++) {
		struct rcp_span span = rcp_span_str("text");

		if (f->type != RCP_W_STR && !(f->type == RCP_W_BLOB && has))
			continue;
		if (f->type == RCP_W_BLOB)
			span = rcp_span_of(records->data, records->len);
		memcpy((char *)&msg->hello_ + f->offset, &span, sizeof(span));
	}
}

/* In pieces of at most 255 bytes, behind what says how they are to be taken. */
static void ctl(const struct rcp_msg_desc *desc, const struct rcp_wr *frame)
{
	struct rcp_wr w = {.max = 1 << 20};
	unsigned who = desc->who;
	uint8_t how = (uint8_t)((who & (RCP_WHO_I | RCP_WHO_SK)) != 0) | (who & RCP_WHO_S ? 2 : 0) | 4 | 32;

	rcp_wr_u8(&w, how);
	rcp_wr_u8(&w, RCP_PHASE_ANY);
	for (unsigned twice = 0; twice < 2; twice++) {
		rcp_wr_u8(&w, (uint8_t)(frame->len < 255 ? frame->len : 255));
		rcp_wr_bytes(&w, frame->data, frame->len < 255 ? frame->len : 255);
	}
	keep_numbered("ctl", "message-", desc->number, &w);
	rcp_wr_free(&w);
}

static void messages(void)
{
	uint8_t index = 0;

	for (unsigned type = 0; type < 256; type++) {
		const struct rcp_msg_desc *desc = rcp_msg_desc(type);
		struct rcp_wr records = {0}, frame = {.max = RCP_FRAME_MAX}, w = {.max = RCP_FRAME_MAX};
		struct rcp_msg msg = {.type = (enum rcp_msg_type)type};

		if (!desc)
			continue;
		fill(&msg, &records);
		rcp_msg_encode(&frame, msg.type, &msg.hello_);
		keep_numbered("frame", "message-", type, &frame);
		ctl(desc, &frame);
		rcp_wr_u8(&w, index++);
		rcp_wr_bytes(&w, frame.data + RCP_FRAME_HEADER, frame.len - RCP_FRAME_HEADER);
		keep_numbered("message", "", type, &w);
		rcp_wr_free(&w);
		rcp_wr_free(&frame);
		rcp_wr_free(&records);
	}
}

static void frames(void)
{
	struct rcp_chunk chunk = {.generation = 1, .length = 5, .sequence = 7};
	uint8_t header[RCP_CHUNK_HEADER];

	for (int type = 0; type < RCP_REC_COUNT; type++) {
		struct rcp_wr w = {.max = RCP_FRAME_MAX};
		const uint8_t rec[1024] = {0};

		rcp_rec_encode(&w, (enum rcp_rec_type)type, rec);
		keep_numbered("frame", "record-", (unsigned)type, &w);
		rcp_wr_free(&w);
	}
	rcp_chunk_encode(&chunk, header);
	keep("frame/seed-chunk", header, sizeof(header));
}

/* ---- links ---- */

static void put_chunk(struct rcp_wr *w, const char *payload)
{
	struct rcp_chunk chunk = {.generation = 7, .length = (uint32_t)strlen(payload)};
	uint8_t header[RCP_CHUNK_HEADER];

	rcp_chunk_encode(&chunk, header);
	rcp_wr_bytes(w, header, sizeof(header));
	rcp_wr_bytes(w, payload, strlen(payload));
}

static void put_piece(struct rcp_wr *w, uint8_t how, const struct rcp_wr *bytes)
{
	rcp_wr_u8(w, how);
	rcp_wr_u8(w, (uint8_t)bytes->len);
	rcp_wr_bytes(w, bytes->data, bytes->len);
}

static void chunks_on_pipe(void)
{
	struct rcp_wr w = {.max = 1 << 20}, frame = {.max = 255};

	rcp_wr_u8(&w, 1 | 2 | 4 | 32);
	rcp_wr_u8(&w, RCP_PHASE_ANY);
	for (uint32_t slot = 0; slot < 2; slot++) {
		frame.len = 0;
		rcp_wr_u32(&frame, 8 + RCP_CHUNK_HEADER + 4);
		rcp_wr_u16(&frame, RCP_MSG_CHUNK);
		rcp_wr_u16(&frame, 0);
		rcp_wr_u32(&frame, rcp_imm(slot, 7));
		rcp_wr_u32(&frame, RCP_CHUNK_HEADER + 4);
		put_chunk(&frame, "pipe");
		rcp_wr_u8(&w, (uint8_t)frame.len);
		rcp_wr_bytes(&w, frame.data, frame.len);
	}
	keep_numbered("ctl", "chunks", 0, &w);
	rcp_wr_free(&frame);
	rcp_wr_free(&w);
}

static void streams(void)
{
	struct rcp_wr sink = {.max = 1 << 20}, source = {.max = 1 << 20}, bytes = {.max = 255};

	rcp_wr_u16(&sink, 0x0200); /* two connections, the ring as it is */
	for (uint32_t slot = 0; slot < 3; slot++) {
		bytes.len = 0;
		rcp_wr_u32(&bytes, rcp_imm(slot, 7));
		rcp_wr_u32(&bytes, 6);
		put_chunk(&bytes, "stream");
		put_piece(&sink, (uint8_t)(16 | slot % 2), &bytes);
	}
	keep_numbered("stream", "sink", 0, &sink);
	rcp_wr_u16(&source, 0x0100);
	for (uint32_t slot = 0; slot < 3; slot++) {
		bytes.len = 0;
		if (slot)
			rcp_wr_u32(&bytes, rcp_imm(slot - 1, 7));
		put_piece(&source, 32 | 64, &bytes);
	}
	bytes.len = 0;
	put_piece(&source, 128, &bytes);
	keep_numbered("stream", "source", 0, &source);
	rcp_wr_free(&bytes);
	rcp_wr_free(&source);
	rcp_wr_free(&sink);
}

static void caps(void)
{
	static const uint8_t key[RCP_SECRET] = {1};
	struct rcp_rdma_port port = {.device = "mlx5_0", .number = 1, .layer = RCP_LAYER_ETHERNET,
				     .transport = RCP_RDMA_IB, .mtu = 5, .rate_mbps = 100000, .cm_port = 7471,
				     .netdev = "eth0", .gid_count = 2, .addr_count = 2,
				     .gids = {{.type = RCP_GID_ROCE_V2}, {.type = RCP_GID_ROCE_V1}}};
	struct rcp_preamble p = {.session = {'s'}, .link = 1, .stream = 2};
	struct rcp_rec_addr a4 = {.family = 4, .addr = {{192, 0, 2, 1}}}, a6 = {.family = 6, .addr = {{0x20, 1}}};
	struct rcp_wr w = {.max = RCP_FRAME_MAX};
	struct rcp_err err = {0};
	uint8_t proof[1 + RCP_PREAMBLE] = {2};

	port.addrs[0].ss_family = AF_INET;
	port.addrs[1].ss_family = AF_INET6;
	for (unsigned how = 0; how < 2; how++) {
		w.len = 0;
		rcp_wr_u8(&w, 0);
		rcp_wr_u8(&w, (uint8_t)(0x7e | how)); /* with rdma_cm, without */
		rcp_rdma_port_encode(&w, &port);
		port.layer = RCP_LAYER_INFINIBAND;
		port.lid = 3;
		port.index = 1;
		rcp_rdma_port_encode(&w, &port);
		keep_numbered("caps", "ports", how, &w);
	}
	w.len = 0;
	rcp_wr_u8(&w, 1);
	rcp_rec_encode(&w, RCP_REC_ADDR, &a4);
	rcp_rec_encode(&w, RCP_REC_ADDR, &a6);
	keep_numbered("caps", "addrs", 0, &w);
	MUST(rcp_preamble_encode(&p, key, proof + 1, &err) == 0);
	keep("caps/seed-preamble", proof, sizeof(proof));
	rcp_wr_free(&w);
}

/* ---- files ---- */

static void journal(void)
{
	const struct rcp_journal_key key = {.id = {.dev = 1, .ino = 2, .size = 100 << 20, .mtime_s = 3},
					    .chunk_bytes = 1 << 20};
	struct rcp_claim claims[3] = {{0, 1}, {7, 0xffffffff}, {99, 5}};
	struct rcp_journal_key other = key;
	struct rcp_journal j;
	int dir = openat(root, "journal", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	MUST(rcp_journal_create(dir, "seed-three", &key, &j) == 0);
	MUST(rcp_journal_append(&j, claims, 3) == 0);
	rcp_journal_close(&j);
	other.id.size++;
	MUST(rcp_journal_create(dir, "seed-other", &other, &j) == 0);
	rcp_journal_close(&j);
	keep("journal/seed-none", "", 0);
	MUST(fchmodat(dir, "seed-three", 0644, 0) == 0 && fchmodat(dir, "seed-other", 0644, 0) == 0);
	close(dir);
}

/* ---- sessions: the steps are in fuzz-recv.c and fuzz-send.c ---- */

#define FILES	"\0\2\2\2\2\1\0\3\x67\1\0\4\2"		   /* a directory, two chunks in it, and a small file */
#define TURNS	"\x0b\x0b\x0b"
#define CHUNKS	"\1\0\1\0A\1\0\1\1B" TURNS
#define BUNDLED "\2\0\0\2" TURNS
#define END	"\3\1\0" TURNS "\0\0\x09\0\2" TURNS "\5\0" TURNS "\6\0" TURNS "\7" TURNS

static void receivers(void)
{
	static const struct seed scripts[] = {
		LINE(FILES TURNS CHUNKS BUNDLED END),
		LINE(FILES TURNS "\1\1\1\0A\1\1\1\0A\1\0\1\1B" TURNS "\1\0\1\0A" BUNDLED END), /* a wrong CRC */
		LINE(FILES TURNS "\1\0\1\0A" BUNDLED "\3\1\0\5\0\6\0" TURNS "\1\0\1\1B" END),	/* one never came */
		LINE(FILES TURNS "\1\0\1\0A" TURNS "\x09\0" TURNS "\1\0\1\1B" BUNDLED END),	/* another link */
		LINE(FILES TURNS "\1\0\1\0A\x08\xff\x08\xff\1\0\1\0A" TURNS "\x09\1" FILES TURNS "\1\0\1\1B" BUNDLED END),
		LINE(FILES TURNS "\2\x80\1\2\0\0\0\2" TURNS "\2\0\0\2" CHUNKS END),
		LINE(FILES TURNS "\4\1\1\1\4late\4\xff\0\1\0" BUNDLED "\3\1\0" TURNS "\5\0" TURNS "\7" TURNS),
		LINE(FILES TURNS "\1\x40\1\0\0\0\0\0\0\0\0\x10\0A\1\x30\1\0A" TURNS BUNDLED END), /* came twice */
		LINE(FILES TURNS "\1\2\1\0A\x1d\1" TURNS "\1\0\1\0A" TURNS "\1\x30\1\1B" TURNS END),
		LINE("\0\4\1\0\0\0\3\0\1\0\4\0\0\0\5\0\1\x08\1\2\1" TURNS "\2\0\0\0" TURNS "\5\0" TURNS "\7" TURNS),
		LINE("\0\2\1\x41\0\3\5\0\0\0\0\0\1\0\7\x02\1\0\x08\1" TURNS "\2\0\2\0" TURNS "\5\0" TURNS "\7" TURNS),
		LINE("\0\0\1\1\0\x75" TURNS "\1\0\0\0\0\1\0\0\5\0" TURNS "\3\0\1\0\0\x10\0" TURNS "\5\0" TURNS "\7" TURNS),
	};
	static const uint16_t flags[] = {0, RCP_OPT_TIMES, RCP_OPT_ARCHIVE, RCP_OPT_VERIFY | RCP_OPT_FSYNC, RCP_OPT_NO_RESUME,
					 RCP_OPT_SKIP_EXISTING, RCP_OPT_UPDATE, RCP_OPT_DRY_RUN};
	static const uint8_t bits[] = {0, 1, 3, 4, 8, 16, 32, 17};
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		for (size_t k = 0; k < sizeof(flags) / sizeof(flags[0]); k++) {
			struct rcp_wr w = {.max = 4096};

			rcp_wr_u16(&w, flags[k]);
			rcp_wr_u8(&w, bits[(i + k) % 8]);
			rcp_wr_bytes(&w, scripts[i].bytes, scripts[i].len);
			keep_numbered("recv", "", n++, &w);
			rcp_wr_free(&w);
		}
	}
}

#define CARRIED "\x07\x0f\x0b\x07\x0f\x0b\x07\x0f\x0b\x07\x0f\x0b\x07\x0f\x0b\x07\x0f\x0b"

static void senders(void)
{
	static const struct seed scripts[] = {
		LINE("\x0b\x0b\1" TURNS CARRIED CARRIED "\3\5\0" TURNS),
		LINE("\x0b\x0b\0\2\1\x11\x21" TURNS CARRIED "\1" CARRIED "\3\5\0" TURNS "\1" CARRIED "\3\5\0" TURNS),
		LINE("\x0b\x0b\1" TURNS CARRIED CARRIED "\4\1\1\4\0\5\4\2\2" TURNS CARRIED "\3\5\4" TURNS),
		LINE("\x0b\x0b\1" TURNS "\x07\1\x08\0" TURNS "\4\1\1" CARRIED "\3\5\0" TURNS),
		LINE("\x0b\x09\1\x0b\1" TURNS CARRIED "\x09\0" CARRIED "\3\5\0" TURNS),
		LINE("\x0b\x09\2\x0b\1" TURNS CARRIED "\x09\0" CARRIED "\3\5\0" TURNS),
		LINE("\x0b\x0b\1" TURNS "\2\x20\1\5\3bad\2\x60\2\1\0" CARRIED "\x08\1" TURNS),
		LINE("\x0b\x0b\1\x06\xff\x06\xff" CARRIED "\x06\xff" CARRIED "\3\5\0" TURNS),
	};
	static const uint8_t bits[] = {0, 1, 2, 4, 8, 16, 32, 3, 6};
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		for (size_t k = 0; k < sizeof(bits); k++) {
			struct rcp_wr w = {.max = 4096};

			rcp_wr_u8(&w, bits[k]);
			rcp_wr_u8(&w, (uint8_t)((i + k) % 4));
			rcp_wr_bytes(&w, scripts[i].bytes, scripts[i].len);
			keep_numbered("send", "", n++, &w);
			rcp_wr_free(&w);
		}
	}
}

/* ---- words ---- */

static void words(void)
{
	static const struct seed targets[] = {
		LINE("\0host:path"), LINE("\0user@[fe80::1%eth0]:a:b"), LINE("\0rcp://key@host:7471/module/x"),
		LINE("\0rcp://[::1]/m"), LINE("\0rcp://h"), LINE("\0./a:b"), LINE("\0~user/x"), LINE("\0scp://h/x"),
		LINE("\0"), LINE("\0@h:"), LINE("\0[::1:"), LINE("\0u@[]:x"), LINE("\0-h:x"), LINE("\0-u@h:x"), LINE("\0u@-h:x"),
		LINE("\0:a"), LINE("\0[a]b:c"), LINE("\0rcp://-h/m"), LINE("\0rcp://[::1/m"), LINE("\0rcp://::1/m"),
		LINE("\0rcp://h:0/m"), LINE("\0rcp://h:99999/m"), LINE("\0rcp://h:x/m"), LINE("\0rcp://h:/m"), LINE("\0rcp://h//x"),
		LINE("\0rcp://k@[::1]:22"),
		LINE("\1-rp\n-P\n22\n--chunk-size=2M\n--exclude=*.o\na\nhost:b"), LINE("\1--json\n--files-from=x\n-0\nd\nh:"),
		LINE("\1--transport=tcp\n--bwlimit=5M\n-l\n100\n-oX=Y\n--slots\n8\n--\n-a\nb"), LINE("\1--keygen\nn\nf"),
		LINE("\1--sever"), LINE("\1-Z"), LINE("\1--slots"), LINE("\1--quiet=x"), LINE("\1rcp://host/"), LINE("\1--server"),
		LINE("\2a\nb c\n\nd"), LINE("\3a\0b\nc\0"), LINE("\2a\0b"), LINE("\2"),
	};
	static const struct seed configs[] = {
		LINE("\0keys = /k\nport = 1\nlisten = ::1, 127.0.0.1\nlog = syslog\nidle-seconds = 60\nhandshake-seconds = 9\n"
		     "max-connections = 8\n[m]\npath = /p\nkeys = *, a\nbwlimit = 1M\nwritable = yes\ncomment = x\n"
		     "encrypt = always\nuser = root\ngroup = root\nmax-connections = 3\n[n]\npath = /q\nkeys = b\n"),
		LINE("\0[m]\npath = p\n"), LINE("\0x"), LINE("\0keys ="), LINE("\0[m"), LINE("\0[.]"), LINE("\0port = 0"),
		LINE("\0log = x"), LINE("\0keys = /k\n"), LINE("\0keys = /k\n[m]\n"), LINE("\0keys = /k\nkeys = /k\n"),
		LINE("\0keys = /k\n[m]\nbwlimit = x\n"), LINE("\0[m]\n[m]\n"), LINE("\0keys = /k\n[m]\npath = /\nkeys = a\ngroup = g\n"),
		LINE("\0a\0b"), LINE("\0keys = /k\nlisten = x.y\n[m]\npath = /\nkeys = a\n"), LINE("\0keys = /k\n[m]\npath = /\nkeys = -\n"),
		LINE("\x80keys = @/keys/a\n[m]\npath = @\nkeys = a\n"),
		LINE("\x80keys = @/keys/a\n[m]\npath = @\nkeys = a\nuser = root\ngroup = root\n"),
		LINE("\x80keys = @/keys/a\n[m]\npath = @\nkeys = a\nuser = root\n"),
		LINE("\x80keys = @/keys/a\n[m]\npath = @\nkeys = zz\nuser = root\n"),
		LINE("\x80keys = @/keys/a\n[m]\npath = @/none\nkeys = a\n"),
		LINE("\x80keys = @/keys\n[m]\npath = @\nkeys = *\nuser = nobody-here\n"),
		LINE("\x80keys = @/keys/a\n[m]\npath = @\nkeys = *\nuser = root\ngroup = no-such-group\n"),
		LINE("\x80keys = @/nothing\n[m]\npath = @\nkeys = *\n"),
		LINE("\1# c\na 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\nb 12\n"),
		LINE("\1a 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n"
		     "a 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n"),
		LINE("\1a 00112233445566778899aabbccddeeff00112233445566778899aabbccddeefg"), LINE("\1" ".a 00"), LINE("\x20me"),
		LINE("\x20-me"), LINE("\x40x"), LINE("\x41x"), LINE("\1  # c\n   \n\tb\t12"),
		LINE("\1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 00"),
		LINE("\x20" "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), LINE("\1a=b 00"),
		LINE("\x81" "a 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\r\n\n"),
	};
	static const struct seed others[] = {
		LINE("\0" "1.5GiB"), LINE("\1a\x1b[2J\xff\xe2\x80\xae\n"), LINE("\2/a/**/b[!x-z]*\na/q/b"), LINE("\2!\\#?/\nx"),
		LINE("\3a/../../b"), LINE("\3a/./b//c/"), LINE("\3a/b"),
	};
	static const struct seed lists[] = {
		LINE("\0"), LINE("\3rcp-done 1\n\0\0\0\0\0" "0123456789abcdef" "0123456789abcdef"), LINE("\1rcp-d"),
		LINE("\1rcp-done 1\n\0\0\0\0\0" "0123456789abcdef" "0123456789abcdef01234567"), LINE("\2other"), LINE("\4"),
		LINE("\4rcp-done 1\n\0\0\0\0\0" "0123456789abcdef" "0123456789abcdef"), LINE("\6"), LINE("\4x"),
	};

	KEEP_ALL("target", targets);
	KEEP_ALL("config", configs);
	KEEP_ALL("words", others);
	KEEP_ALL("done", lists);
}

int main(int argc, char **argv)
{
	static const char *const targets[] = {"frame", "message", "caps", "ctl", "stream", "journal", "done", "config",
					      "target", "words", "recv", "send"};

	MUST(argc == 2);
	root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(root >= 0);
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		mkdirat(root, targets[i], 0755);
	frames();
	messages();
	chunks_on_pipe();
	streams();
	caps();
	journal();
	receivers();
	senders();
	words();
	close(root);
	return 0;
}
