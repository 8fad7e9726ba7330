/*
 * librcp: start a copy, watch it, get the verdict. Link with `pkg-config --libs rcp`.
 *
 *   struct rcp_options o;
 *   rcp_options_init(&o);
 *   o.sources = (const char *const[]){"big.img", NULL};
 *   o.target = "host:/data/";
 *   struct rcp_copy *copy;
 *   int code = rcp_copy_new(&o, &watch, &copy);
 *   if (!code)
 *           code = rcp_copy_run(copy);
 *   rcp_copy_free(&copy);
 *
 * One copy runs in the calling thread, with an event loop and worker threads of its own. Callbacks come
 * in that thread. Nothing is printed, no signal handler but SIGBUS's is installed, the process never
 * exits. All strings are bytes as the file system has them: escape before showing.
 */
#ifndef RCP_RCP_H
#define RCP_RCP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RCP_API __attribute__((visibility("default")))

/* Exit statuses of rcp(1), results of rcp_copy_run. */
enum rcp_exit {
	RCP_EXIT_OK = 0,
	RCP_EXIT_PARTIAL = 1,	  /* some files failed */
	RCP_EXIT_USAGE = 2,
	RCP_EXIT_CONNECT = 3,	  /* could not connect, authenticate or agree */
	RCP_EXIT_INTEGRITY = 4,
	RCP_EXIT_IO = 5,	  /* at either end; resumable where the disk was full */
	RCP_EXIT_LINK = 6,	  /* link lost, retries used up */
	RCP_EXIT_INTERRUPTED = 130,
	RCP_EXIT_TERMINATED = 143,
};

enum rcp_transport { RCP_TRANSPORT_AUTO = 0, RCP_TRANSPORT_RDMA, RCP_TRANSPORT_TCP, RCP_TRANSPORT_SSH };
enum rcp_source_engine { RCP_SOURCE_AUTO = 0, RCP_SOURCE_MAPPED, RCP_SOURCE_STAGED, RCP_SOURCE_DIRECT };
enum rcp_encryption { RCP_ENCRYPTION_AUTO = 0, RCP_ENCRYPTION_ALWAYS, RCP_ENCRYPTION_NEVER };

/* Borrowed by rcp_copy_new until rcp_copy_free. NULL or 0 where the field says no default. */
struct rcp_options {
	const char *const *sources; /* NULL-ended; "host:path", "user@[::1]:path" or local */
	const char *target;

	/* what to copy */
	bool recursive, times, archive, numeric_ids;
	bool skip_existing, update, dry_run;
	const char *const *excludes; /* NULL-ended patterns or NULL */
	const char *const *names;    /* --files-from: names below the one source, NULL-ended, or NULL */

	/* how to trust it */
	bool verify, fsync, no_resume;
	int retries; /* within the run; 3 */

	/* how to log in */
	const char *ssh;		 /* -S; "ssh" */
	const char *const *ssh_args;	 /* passed on: -p PORT, -i, -F, -o, -J, -4, ...; NULL-ended or NULL */
	const char *rcp_path;		 /* on the other side; "rcp" */
	int family;			 /* 0, 4 or 6 */
	const char *key;		 /* key file for rcp://; NULL: $XDG_CONFIG_HOME/rcp/key, ~/.config/rcp/key */
	bool list;			 /* sources: one "rcp://host/", whose modules are told; no target */

	/* how to move it */
	enum rcp_transport transport;
	enum rcp_encryption encryption;
	enum rcp_source_engine source;
	bool connect_oob;
	const char *device;   /* DEV[:PORT] */
	const char *rdma_addr;
	int gid_index, tos, sl, pkey; /* -1 */
	uint32_t chunk_bytes; /* 1 MiB */
	uint32_t slots;	      /* 32 */
	unsigned streams;     /* 0: chosen */
	uint64_t limit_bytes_per_second; /* 0: none */
	unsigned threads;     /* 0: chosen */
	int verbose;	      /* 0, 1, 2: which log lines are made */
};

RCP_API void rcp_options_init(struct rcp_options *options);

/* One error, as it is shown and as JSON has it. */
struct rcp_fault {
	int code;	    /* enum rcp_exit */
	int sys_errno;
	const char *call, *object, *reason, *fix; /* never NULL, may be "" */
	bool warning;	    /* the file was copied, something of it could not be kept */
};

struct rcp_transport_info {
	const char *transport; /* "rdma" "tcp" "ssh" "local" */
	const char *fabric;    /* or NULL */
	const char *detail;    /* devices, addresses */
	const char *fallback_reason; /* or NULL: why it is not the better one */
	const char *encrypted; /* what protects the data: "aes-256-gcm" "ssh" "tls" or NULL: nothing does */
	bool sealed;	       /* rcp does, chunk by chunk: "aes-256-gcm" */
};

struct rcp_progress {
	uint64_t bytes, total_bytes;	   /* committed to the sink's file system; total known so far */
	uint64_t files, total_files;
	bool total_final;		   /* the walk is over: totals won't grow */
	uint64_t elapsed_ns;
	const char *name;		   /* a file under way, or NULL */
	uint64_t name_bytes, name_total;
	const char *transport;		   /* or NULL while connecting */
};

struct rcp_summary {
	int exit_code;
	uint64_t files, bytes, skipped, failed;
	double seconds;
	double bytes_per_second;
	const char *transport, *fabric, *fallback_reason; /* NULL where there is none */
	const char *encrypted; /* of the last transport, as in rcp_transport_info */
	bool sealed;
	uint64_t sealed_bytes; /* of chunks that went sealed */
	uint64_t zero_copy_bytes, staged_bytes, resumed_bytes, resent_chunks;
	unsigned retries;
	bool crc32_known; /* one file: its CRC-32 */
	uint32_t crc32;
	const char *bottleneck; /* "source" "network" "sink" or NULL */
	bool resumable;		/* a rerun of the same command goes on from here */
};

/* Any may be NULL. Pointers inside are valid during the call only. */
struct rcp_watch {
	void *arg;
	void (*start)(void *arg, const char *host, const char *remote_software);
	void (*transport)(void *arg, const struct rcp_transport_info *info);
	/* One file ended: committed, skipped or failed (fault follows or came before). */
	void (*file)(void *arg, const char *name, uint64_t bytes, const char *status);
	void (*fault)(void *arg, const struct rcp_fault *fault);
	void (*progress)(void *arg, const struct rcp_progress *progress); /* about 10 times a second */
	void (*log)(void *arg, int level, const char *line);	  /* 0 warning, 1 -v, 2 -vv */
	/* Remote stderr that is not rcp's (banners, ssh errors): bytes as they come. */
	void (*remote_output)(void *arg, const char *bytes, unsigned long len);
	/* With options.list: one for each module. */
	void (*module)(void *arg, const char *name, bool writable, const char *comment);
	void (*summary)(void *arg, const struct rcp_summary *summary); /* last, once */
};

struct rcp_copy;

/* Checks the options (RCP_EXIT_USAGE with a fault where they can't be). *out is NULL on failure. */
RCP_API int rcp_copy_new(const struct rcp_options *options, const struct rcp_watch *watch,
			 struct rcp_copy **out);
/* Runs to the end. Returns an enum rcp_exit. */
RCP_API int rcp_copy_run(struct rcp_copy *copy);
/* End it early, with RCP_EXIT_INTERRUPTED or _TERMINATED; partial files are kept. Safe in signal
 * handlers and from any thread. */
RCP_API void rcp_copy_cancel(struct rcp_copy *copy, int exit_code);
RCP_API void rcp_copy_free(struct rcp_copy **copy);

/*
 * The responder, for `rcp --server`: serves one copy on the given descriptors (standard input and
 * output under ssh), until its end, or SIGTERM, SIGHUP or SIGINT, which are its own meanwhile: what is
 * there is kept for a rerun then, and the peer told. Returns an enum rcp_exit. Faults before the peer can be told
 * go to watch.
 */
enum rcp_access { RCP_ACCESS_BOTH = 0, RCP_ACCESS_READ, RCP_ACCESS_WRITE };
struct rcp_server_options {
	int in_fd, out_fd;
	unsigned threads;
	enum rcp_encryption encryption; /* ALWAYS: no data but sealed, whatever the initiator says */
	const char *restrict_dir;	/* NULL, or the root of all of the initiator's paths. Changes the process for good */
	enum rcp_access restrict_access; /* of files there: WRITE refuses to be the source of a copy */
};
RCP_API int rcp_server_run(const struct rcp_server_options *options, const struct rcp_watch *watch);

/*
 * The daemon: serves modules until SIGTERM or SIGINT; SIGHUP reads the configuration again. Faults before
 * it serves go to watch.fault, what it does then to watch.log, or to syslog where that is configured.
 * Forks; signals and children are its own in this process. Returns an enum rcp_exit.
 */
struct rcp_daemon_options {
	const char *config; /* rcpd.conf(5) */
	unsigned threads;   /* of each child; 0: chosen */
};
RCP_API int rcp_daemon_run(const struct rcp_daemon_options *options, const struct rcp_watch *watch);

/* A new key: its line into out (RCP_KEY_LINE_MAX), and into a new file where path is not NULL. Faults
 * go to watch. */
#define RCP_KEY_LINE_MAX 160
RCP_API int rcp_key_new(const char *name, const char *path, const struct rcp_watch *watch,
			char out[RCP_KEY_LINE_MAX]);

RCP_API const char *rcp_version(void);

#ifdef __cplusplus
}
#endif

#endif
