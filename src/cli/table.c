/*
 * The option table. A row starts with ROW; with LATER as long as what it asks for isn't there: then
 * it is refused with "not available in this version".
 */
#include "cli/table.h"

#include <limits.h>

#define AT(field) offsetof(struct cli_args, field)
#define KIB	  1024
#define MIB	  (1024 * 1024)

/* CLI_WORD stores an index as int: each list below follows its enum. */
_Static_assert(sizeof(enum rcp_transport) == sizeof(int), "CLI_WORD stores an int");
_Static_assert(RCP_TRANSPORT_RDMA == 1 && RCP_TRANSPORT_TCP == 2 && RCP_TRANSPORT_SSH == 3,
	       "order");
_Static_assert(RCP_SOURCE_MAPPED == 1 && RCP_SOURCE_STAGED == 2 && RCP_SOURCE_DIRECT == 3, "order");
_Static_assert(RCP_ENCRYPTION_ALWAYS == 1 && RCP_ENCRYPTION_NEVER == 2, "order");
_Static_assert(CLI_PROGRESS_BAR == 1 && CLI_PROGRESS_PLAIN == 2 && CLI_PROGRESS_NONE == 3, "order");

static const char *const transports[] = {"auto", "rdma", "tcp", "ssh", NULL};
static const char *const connects[] = {"cm", "oob", NULL};
static const char *const sources[] = {"auto", "mapped", "staged", "direct", NULL};
static const char *const encryptions[] = {"auto", "always", "never", NULL};
static const char *const progresses[] = {"auto", "bar", "plain", "none", NULL};

const char *const cli_group_titles[CLI_GROUPS] = {
	[CLI_GROUP_WHAT] = "What to copy",   [CLI_GROUP_TRUST] = "How to trust it",
	[CLI_GROUP_LOGIN] = "How to log in", [CLI_GROUP_MOVE] = "How to move it",
	[CLI_GROUP_SHOW] = "What to show",
};

/* clang-format off */
#define LATER(l, n, a, g) .letter = (l), .name = (n), .argument = (a), .group = CLI_GROUP_##g
#define ROW(l, n, a, g) LATER(l, n, a, g), .ready = true
#define KEEP(k, field) .kind = CLI_##k, .offset = AT(field)

const struct cli_option cli_options[] = {
	{ROW('r', "recursive", NULL, WHAT), KEEP(FLAG, copy.recursive),
	 .help = "copy directories; symbolic links are followed"},
	{ROW('p', "preserve", NULL, WHAT), KEEP(FLAG, copy.times),
	 .help = "keep times and the whole mode"},
	{ROW('a', "archive", NULL, WHAT), KEEP(FLAG, copy.archive),
	 .help = "-r -p and symbolic links as such, hard links, owners, extended attributes, ACLs"},
	{ROW(0, "numeric-ids", NULL, WHAT), KEEP(FLAG, copy.numeric_ids),
	 .help = "with -a: keep owners by number, not by name"},
	{ROW(0, "skip-existing", NULL, WHAT), KEEP(FLAG, copy.skip_existing),
	 .help = "leave files alone that the target has"},
	{ROW(0, "update", NULL, WHAT), KEEP(FLAG, copy.update),
	 .help = "skip files that the target has with the same size and time"},
	{ROW(0, "exclude", "PATTERN", WHAT), KEEP(LIST, excludes),
	 .help = "leave out names that match (as in .gitignore); repeatable"},
	{ROW(0, "files-from", "FILE", WHAT), KEEP(TEXT, files_from), .offer = CLI_OFFER_FILE,
	 .help = "copy the names listed in FILE, one a line, below the source; - is standard input"},
	{ROW('0', NULL, NULL, WHAT), KEEP(FLAG, nul_names),
	 .help = "names in --files-from end with NUL, not newline"},
	{ROW(0, "dry-run", NULL, WHAT), KEEP(FLAG, copy.dry_run),
	 .help = "tell which files would be copied, write nothing"},

	{ROW(0, "verify", NULL, TRUST), KEEP(FLAG, copy.verify),
	 .help = "read each file back from the target's disk and compare"},
	{ROW(0, "fsync", NULL, TRUST), KEEP(FLAG, copy.fsync),
	 .help = "a file counts as copied once it is on stable storage"},
	{ROW(0, "no-resume", NULL, TRUST), KEEP(FLAG, copy.no_resume),
	 .help = "start over even where a partial file could be completed"},
	{ROW(0, "retries", "N", TRUST), KEEP(INT, copy.retries), .max = 1000, .unit = "",
	 .help = "reconnect up to N times after a lost connection (3)"},

	{ROW('P', "port", "PORT", LOGIN), .kind = CLI_SSH_ONLY, .min = 1, .max = 65535, .unit = "", .ssh = 'p',
	 .help = "ssh's port on the other side"},
	{ROW('i', NULL, "FILE", LOGIN), .kind = CLI_SSH_ONLY, .ssh = 'i', .offer = CLI_OFFER_FILE,
	 .help = "ssh identity (private key)"},
	{ROW('F', NULL, "FILE", LOGIN), .kind = CLI_SSH_ONLY, .ssh = 'F', .offer = CLI_OFFER_FILE,
	 .help = "ssh configuration"},
	{ROW('o', NULL, "OPTION", LOGIN), .kind = CLI_SSH_ONLY, .ssh = 'o',
	 .help = "ssh option as in ssh_config; repeatable"},
	{ROW('J', NULL, "HOST", LOGIN), .kind = CLI_SSH_ONLY, .ssh = 'J', .offer = CLI_OFFER_HOST,
	 .help = "ssh through this jump host"},
	{ROW('S', NULL, "PROGRAM", LOGIN), KEEP(TEXT, copy.ssh), .offer = CLI_OFFER_COMMAND,
	 .help = "log in with PROGRAM instead of ssh"},
	{ROW('4', NULL, NULL, LOGIN), KEEP(VALUE, copy.family), .value = 4, .ssh = '4',
	 .help = "IPv4 only"},
	{ROW('6', NULL, NULL, LOGIN), KEEP(VALUE, copy.family), .value = 6, .ssh = '6',
	 .help = "IPv6 only"},
	{LATER('3', NULL, NULL, LOGIN), KEEP(VALUE, copy.family),
	 .help = "copy between two other hosts through this one"},
	{ROW(0, "rcp-path", "PROGRAM", LOGIN), KEEP(TEXT, copy.rcp_path), .offer = CLI_OFFER_COMMAND,
	 .help = "rcp on the other side (rcp)"},
	{ROW(0, "server", NULL, LOGIN), KEEP(VALUE, action), .value = CLI_SERVER,
	 .help = "be the other side, on standard input and output; ssh runs this"},
	{ROW(0, "restrict", "DIR[,ro|,wo]", LOGIN), KEEP(TEXT, restrict_to), .offer = CLI_OFFER_FILE,
	 .help = "with --server: no file but those below DIR, which may be held to one way"},
	{ROW(0, "key", "FILE", LOGIN), KEEP(TEXT, copy.key), .offer = CLI_OFFER_FILE,
	 .help = "key file for rcp:// (~/.config/rcp/key)"},
	{ROW(0, "keygen", NULL, LOGIN), KEEP(VALUE, action), .value = CLI_KEYGEN,
	 .help = "make a key: rcp --keygen NAME [FILE]"},
	{ROW(0, "daemon", NULL, LOGIN), KEEP(VALUE, action), .value = CLI_DAEMON,
	 .help = "serve the modules of a configuration to rcp://"},
	{ROW(0, "config", "FILE", LOGIN), KEEP(TEXT, config), .offer = CLI_OFFER_FILE,
	 .help = "configuration of --daemon (/etc/rcp/rcpd.conf)"},

	{ROW(0, "transport", "WAY", MOVE), KEEP(WORD, copy.transport), .words = transports,
	 .help = "how the data travels; all but auto fail where they can't"},
	{ROW(0, "device", "DEV[:PORT]", MOVE), KEEP(TEXT, copy.device), .offer = CLI_OFFER_DEVICE,
	 .help = "RDMA device to use here"},
	{ROW(0, "gid-index", "N", MOVE), KEEP(INT, copy.gid_index), .max = 255, .unit = "",
	 .help = "index of the GID to use here"},
	{ROW(0, "rdma-addr", "ADDRESS", MOVE), KEEP(TEXT, copy.rdma_addr),
	 .help = "address of the RDMA interface to use here"},
	{ROW(0, "connect", "HOW", MOVE), KEEP(WORD, connect), .words = connects,
	 .help = "by rdma_cm, or by exchanging queue pair numbers over TCP, for fabrics without IP"},
	{ROW(0, "tos", "N", MOVE), KEEP(INT, copy.tos), .max = 255, .unit = "",
	 .help = "type of service (traffic class) of RDMA and TCP packets"},
	{ROW(0, "sl", "N", MOVE), KEEP(INT, copy.sl), .max = 15, .unit = "",
	 .help = "InfiniBand service level"},
	{ROW(0, "pkey", "KEY", MOVE), KEEP(INT, copy.pkey), .max = 65535, .unit = "",
	 .help = "InfiniBand partition key, such as 0x7fff"},
	{ROW(0, "source", "ENGINE", MOVE), KEEP(WORD, copy.source), .words = sources,
	 .help = "how files are read here, where this end is the source"},
	{ROW(0, "chunk-size", "SIZE", MOVE), KEEP(SIZE32, copy.chunk_bytes),
	 .min = 4 * KIB, .max = 16 * MIB, .step = 4 * KIB,
	 .help = "bytes in a chunk, 4K to 16M (1M)"},
	{ROW(0, "slots", "N", MOVE), KEEP(INT, copy.slots), .min = 1, .max = 4096, .unit = " slots",
	 .help = "chunks under way at once (32)"},
	{ROW(0, "streams", "N", MOVE), KEEP(INT, copy.streams), .min = 1, .max = 64, .unit = " streams",
	 .help = "TCP connections side by side (chosen by rcp)"},
	{ROW(0, "threads", "N", MOVE), KEEP(INT, copy.threads), .min = 1, .max = 256, .unit = " threads",
	 .help = "worker threads here (chosen by rcp)"},
	{ROW('l', NULL, "KBIT", MOVE), KEEP(KBIT, copy.limit_bytes_per_second),
	 .min = 1, .max = INT64_MAX / 128, .unit = " Kbit/s", .help = "at most KBIT Kbit a second, as scp"},
	{ROW(0, "bwlimit", "RATE", MOVE), KEEP(RATE, copy.limit_bytes_per_second),
	 .min = 1, .max = INT64_MAX, .help = "at most RATE bytes a second; K M G T are powers of 1024"},
	{ROW(0, "encrypt", "WHEN", MOVE), KEEP(WORD, copy.encryption), .words = encryptions,
	 .help = "seal the data: auto does on TCP, always on RDMA, too"},

	{ROW('q', "quiet", NULL, SHOW), KEEP(FLAG, quiet), .ssh = 'q',
	 .help = "errors only: no progress, no warnings"},
	{ROW('v', "verbose", NULL, SHOW), KEEP(COUNT, copy.verbose), .max = 2,
	 .help = "tell what happens and why; -vv tells more"},
	{ROW(0, "progress", "HOW", SHOW), KEEP(WORD, progress), .words = progresses,
	 .help = "auto is a bar on a terminal; plain is a line now and then"},
	{ROW(0, "stats", NULL, SHOW), KEEP(FLAG, stats),
	 .help = "end with figures: bytes, rate, transport, what was slowest"},
	{ROW(0, "json", NULL, SHOW), KEEP(FLAG, json),
	 .help = "events as JSON on standard output, one object a line"},
	{ROW(0, "help", NULL, SHOW), KEEP(VALUE, action), .value = CLI_HELP, .help = "this text"},
	{ROW(0, "version", NULL, SHOW), KEEP(VALUE, action), .value = CLI_VERSION,
	 .help = "version and what is built in"},
	{0},
};
/* clang-format on */
