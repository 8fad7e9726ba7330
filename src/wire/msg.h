/*
 * Messages of the control connection: structs, encode, decode. Pure: knows no fd, no peer, no
 * state. Any thread. The wire itself is described in rcp-protocol(7).
 */
#ifndef RCP_WIRE_MSG_H
#define RCP_WIRE_MSG_H

#include "base/bytes.h"
#include "base/err.h"
#include "wire/table.h"

#define RCP_MAGIC UINT32_C(0x72637031) /* "rcp1" */
#define RCP_VERSION_MIN 1
#define RCP_VERSION_MAX 1

#define RCP_FRAME_HEADER 8	      /* U32 payload length, U16 type, U16 zero */
#define RCP_FRAME_MAX (256 * 1024)    /* payload of every message but CHUNK */
#define RCP_STR_MAX 4096
#define RCP_CHUNK_BYTES_MIN 4096
#define RCP_CHUNK_BYTES_MAX (16 << 20)
#define RCP_CHUNK_BYTES_DEFAULT (1 << 20)
#define RCP_SLOTS_DEFAULT 32
#define RCP_SLOTS_MAX 4096

/* Feature bits of HELLO and CAPS. Unknown ones are ignored. */
#define RCP_FEATURE_BUNDLES (UINT64_C(1) << 0)
#define RCP_FEATURE_RESUME (UINT64_C(1) << 1)
#define RCP_FEATURE_SEAL (UINT64_C(1) << 2)
#define RCP_FEATURE_IMM (UINT64_C(1) << 3)
#define RCP_FEATURE_OOB (UINT64_C(1) << 4)
#define RCP_FEATURE_SEAL_ALWAYS (UINT64_C(1) << 5) /* it takes nothing that is not sealed */

/* START.flags */
#define RCP_OPT_RECURSIVE (UINT64_C(1) << 0)
#define RCP_OPT_TIMES (UINT64_C(1) << 1)   /* -p */
#define RCP_OPT_ARCHIVE (UINT64_C(1) << 2) /* -a */
#define RCP_OPT_NUMERIC_IDS (UINT64_C(1) << 3)
#define RCP_OPT_FSYNC (UINT64_C(1) << 4)
#define RCP_OPT_VERIFY (UINT64_C(1) << 5)
#define RCP_OPT_NO_RESUME (UINT64_C(1) << 6)
#define RCP_OPT_SKIP_EXISTING (UINT64_C(1) << 7)
#define RCP_OPT_UPDATE (UINT64_C(1) << 8)
#define RCP_OPT_DRY_RUN (UINT64_C(1) << 9)
#define RCP_OPT_TARGET_DIR (UINT64_C(1) << 10) /* several sources: the target must be a directory */
#define RCP_OPT_PAIRS (UINT64_C(1) << 11)      /* paths are relative names below one root */
#define RCP_OPT_VERBOSE (UINT64_C(1) << 12)
#define RCP_OPT_LOCK_WAIT (UINT64_C(1) << 63)  /* this end's own, on no wire: a run before may still hold locks */
#define RCP_OPT_RETRY (UINT64_C(1) << 13)      /* taken up again: the run before may still hold locks */
#define RCP_OPT_ONE_NAME (UINT64_C(1) << 14)   /* the target is no directory: a pattern may stand for one name only */
#define RCP_OPT_KNOWN ((UINT64_C(1) << 15) - 1)

enum rcp_role { RCP_ROLE_SOURCE = 1, RCP_ROLE_SINK = 2 };
enum rcp_switch { RCP_SWITCH_TCP = 1, RCP_SWITCH_PIPE = 2 };

/* Link kinds (LINK_TRY.kind, LINK_USE.kind) and START.transports bits (1 << kind). */
enum rcp_link_kind {
	RCP_LINK_NONE = 0,
	RCP_LINK_RDMA_CM = 1,
	RCP_LINK_RDMA_OOB = 2,
	RCP_LINK_TCP = 3,
	RCP_LINK_PIPE = 4,
	RCP_LINK_LOOP = 5,
};
enum rcp_encrypt { RCP_ENCRYPT_AUTO = 0, RCP_ENCRYPT_ALWAYS = 1, RCP_ENCRYPT_NEVER = 2 };
enum rcp_connect { RCP_CONNECT_CM = 0, RCP_CONNECT_OOB = 1 };
enum rcp_engine { RCP_ENGINE_AUTO = 0, RCP_ENGINE_MAPPED, RCP_ENGINE_STAGED, RCP_ENGINE_DIRECT };

enum rcp_entry_type {
	RCP_ENTRY_FILE = 1,
	RCP_ENTRY_DIR = 2,
	RCP_ENTRY_SYMLINK = 3,
	RCP_ENTRY_HARDLINK = 4, /* link = path of the first name, below the same root */
	RCP_ENTRY_FIFO = 5,
	RCP_ENTRY_CHR = 6,
	RCP_ENTRY_BLK = 7,
	RCP_ENTRY_SOCK = 8,
	RCP_ENTRY_DIR_END = 9, /* all of the directory was named: its mode and times can be set */
};
#define RCP_ENTRY_SPARSE 0x01 /* has holes: zero blocks are not written */
#define RCP_ENTRY_TOP 0x02    /* one of the user's arguments: the target rules apply */
#define RCP_ENTRY_WAY 0x04    /* a directory on the way to a listed name: a symlink there is entered */
#define RCP_ENTRY_INSIDE 0x10 /* its path is below the target itself, whose name it doesn't hold; "." is the target */
#define RCP_ENTRY_DONE 0x08   /* committed earlier in this run: not wanted again where it is there */

enum rcp_status {
	RCP_STATUS_OK = 0,
	RCP_STATUS_FAILED = 1,
	RCP_STATUS_SKIPPED = 2,
	RCP_STATUS_WARNED = 3,
	RCP_STATUS_LEFT_OUT = 4, /* the directory that it is in failed, and that was told */
};
enum rcp_severity { RCP_SEVERITY_WARNING = 0, RCP_SEVERITY_ERROR = 1 };

/* PORT.transport, PORT.link_layer and GID.type */
enum rcp_rdma_transport { RCP_RDMA_IB = 1, RCP_RDMA_IWARP = 2 };
enum rcp_rdma_layer { RCP_LAYER_INFINIBAND = 1, RCP_LAYER_ETHERNET = 2 };
enum rcp_gid_type { RCP_GID_IB = 1, RCP_GID_ROCE_V1 = 2, RCP_GID_ROCE_V2 = 3 };

#define RCP_CTYPE_U8 uint8_t
#define RCP_CTYPE_U16 uint16_t
#define RCP_CTYPE_U32 uint32_t
#define RCP_CTYPE_U64 uint64_t
#define RCP_CTYPE_K16 struct rcp_k16
#define RCP_CTYPE_K32 struct rcp_k32
#define RCP_CTYPE_STR struct rcp_span
#define RCP_CTYPE_BLOB struct rcp_span

struct rcp_k16 {
	uint8_t b[16];
};
struct rcp_k32 {
	uint8_t b[32];
};

#define RCP_MEMBER(S, type, name) RCP_CTYPE_##type name;

/* struct rcp_msg_hello, ... : STR and BLOB members borrow the buffer they were decoded from. */
#define RCP_STRUCT(NAME, name, number, who, phase)                                                 \
	struct rcp_msg_##name {                                                                    \
		RCP_##NAME##_FIELDS(RCP_MEMBER, )                                                    \
	};
RCP_MESSAGES(RCP_STRUCT)
#undef RCP_STRUCT

#define RCP_STRUCT(NAME, name)                                                                     \
	struct rcp_rec_##name {                                                                    \
		RCP_REC_##NAME##_FIELDS(RCP_MEMBER, )                                                \
	};
RCP_RECORDS(RCP_STRUCT)
#undef RCP_STRUCT

enum rcp_msg_type {
#define RCP_ENUM(NAME, name, number, who, phase) RCP_MSG_##NAME = number,
	RCP_MESSAGES(RCP_ENUM)
#undef RCP_ENUM
};

enum rcp_rec_type {
#define RCP_ENUM(NAME, name) RCP_REC_##NAME,
	RCP_RECORDS(RCP_ENUM)
#undef RCP_ENUM
	RCP_REC_COUNT
};

/* Any decoded message. */
struct rcp_msg {
	enum rcp_msg_type type;
	union {
#define RCP_UNION(NAME, name, number, who, phase) struct rcp_msg_##name name##_;
		RCP_MESSAGES(RCP_UNION)
#undef RCP_UNION
	};
};

enum rcp_wire_type { RCP_W_U8, RCP_W_U16, RCP_W_U32, RCP_W_U64, RCP_W_K16, RCP_W_K32, RCP_W_STR, RCP_W_BLOB };

struct rcp_field {
	const char *name;
	enum rcp_wire_type type;
	size_t offset;
};

enum rcp_who { RCP_WHO_I = 1, RCP_WHO_R = 2, RCP_WHO_IR = 3, RCP_WHO_S = 4, RCP_WHO_K = 8, RCP_WHO_SK = 12 };
enum rcp_phase { RCP_PHASE_BOOT = 1, RCP_PHASE_TALK = 2, RCP_PHASE_COPY = 4, RCP_PHASE_ANY = 7 };

struct rcp_msg_desc {
	const char *name;
	uint16_t number;
	enum rcp_who who;
	enum rcp_phase phase;
	const struct rcp_field *fields; /* ends with name NULL */
};

/* NULL for an unknown number. */
const struct rcp_msg_desc *rcp_msg_desc(unsigned number);
const struct rcp_field *rcp_rec_fields(enum rcp_rec_type type);

/* Frame header and payload to the end of w. msg points to the struct of that type. The writer's
 * `bad` tells of an overrun or no memory. */
void rcp_msg_encode(struct rcp_wr *w, enum rcp_msg_type type, const void *msg);

/* One record to the end of w (the BLOB under construction). */
void rcp_rec_encode(struct rcp_wr *w, enum rcp_rec_type type, const void *rec);

/* Check a frame's 8 header bytes. Returns 0 and type, payload length, or RCP_E_CONNECT with a
 * protocol error (unknown type, too long, reserved bits). chunk_bytes bounds CHUNK frames. */
int rcp_frame_parse(const uint8_t header[RCP_FRAME_HEADER], uint32_t chunk_bytes,
		    struct rcp_err *err, enum rcp_msg_type *type, uint32_t *length);

/* Payload -> out; spans borrow payload. RCP_E_CONNECT where it is short, long or out of bounds. */
int rcp_msg_decode(enum rcp_msg_type type, const uint8_t *payload, size_t len, struct rcp_err *err,
		   struct rcp_msg *out);

/* Next record of a BLOB: 1 and out filled, 0 at the end, -1 malformed. */
int rcp_rec_next(struct rcp_rd *blob, enum rcp_rec_type type, void *out);

/* May a peer send this message in this phase? is_initiator, role: the sender's. */
bool rcp_msg_legal(const struct rcp_msg_desc *desc, enum rcp_phase phase, bool is_initiator,
		   enum rcp_role role);

static inline struct rcp_span rcp_span_of(const void *data, size_t len)
{
	return (struct rcp_span){.data = data, .len = len};
}
struct rcp_span rcp_span_str(const char *text);

/* NUL-terminated copy, or NULL without memory. Caller frees. */
char *rcp_span_dup(struct rcp_span s);
/* Into a fixed array, cut if too long; returns dst. */
char *rcp_span_copy(struct rcp_span s, char *dst, size_t size);

/* An rcp_err on the wire: FAULT, ABORT, LINK_FAIL and RESULT share these fields. */
#define RCP_ERR_TO_WIRE(m, e)                                                                      \
	((m)->sys_errno = (uint32_t)(e)->sys_errno, (m)->call = rcp_span_str((e)->call),           \
	 (m)->object = rcp_span_str((e)->object), (m)->text = rcp_span_str((e)->text),             \
	 (m)->fix = rcp_span_str((e)->fix))
#define RCP_ERR_FROM_WIRE(m, c, e)                                                                 \
	rcp_err_from_wire(c, (m)->sys_errno, (m)->call, (m)->object, (m)->text, (m)->fix, e)
/* Codes out of range become RCP_E_CONNECT. First cause wins, as everywhere. */
void rcp_err_from_wire(unsigned code, uint32_t sys_errno, struct rcp_span call,
		       struct rcp_span object, struct rcp_span text, struct rcp_span fix,
		       struct rcp_err *err);

#endif
