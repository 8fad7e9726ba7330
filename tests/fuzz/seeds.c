/* Writes the corpora's first inputs: a frame of each message and kind of record, a journal, words.
 * usage: fuzz-seeds DIR (which has frame, journal and words) */
#include "fuzz.h"

#include "file/journal.h"
#include "wire/chunk.h"
#include "wire/msg.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int root;

static void keep(const char *name, const void *data, size_t len)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	MUST(fd >= 0 && write(fd, data, len) == (ssize_t)len);
	close(fd);
}

static void frames(void)
{
	for (unsigned type = 0; type < 256; type++) {
		if (!rcp_msg_desc(type))
			continue;
		struct rcp_wr w = {.max = RCP_FRAME_MAX};
		struct rcp_msg msg;
		char name[64];

		memset(&msg, 0, sizeof(msg));
		rcp_msg_encode(&w, (enum rcp_msg_type)type, &msg.hello_);
		snprintf(name, sizeof(name), "frame/message-%02u", type);
		if (!w.bad)
			keep(name, w.data, w.len);
		rcp_wr_free(&w);
	}
	for (int type = 0; type < RCP_REC_COUNT; type++) {
		struct rcp_wr w = {.max = RCP_FRAME_MAX};
		uint8_t rec[4096] = {0};
		char name[64];

		rcp_rec_encode(&w, (enum rcp_rec_type)type, rec);
		snprintf(name, sizeof(name), "frame/record-%02d", type);
		if (!w.bad)
			keep(name, w.data, w.len);
		rcp_wr_free(&w);
	}
	struct rcp_chunk chunk = {.generation = 1, .length = 5, .sequence = 7};
	uint8_t header[RCP_CHUNK_HEADER];

	rcp_chunk_encode(&chunk, header);
	keep("frame/chunk", header, sizeof(header));
}

static void journal(void)
{
	const struct rcp_journal_key key = {.id = {.dev = 1, .ino = 2, .size = 100 << 20, .mtime_s = 3},
					    .chunk_bytes = 1 << 20};
	struct rcp_claim claims[3] = {{0, 1}, {7, 0xffffffff}, {99, 5}};
	struct rcp_journal j;
	int dir = openat(root, "journal", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	MUST(rcp_journal_create(dir, "three", &key, &j) == 0);
	MUST(rcp_journal_append(&j, claims, 3) == 0);
	rcp_journal_close(&j);
	MUST(fchmodat(dir, "three", 0644, 0) == 0);
	close(dir);
}

int main(int argc, char **argv)
{
	static const char *const words[] = {
		"0host:path", "0user@[fe80::1%eth0]:a:b", "0rcp://key@host:7471/module/x", "0./a:b", "0~user/x",
		"1a\x1b[2J\xff\xe2\x80\xae\n", "2/a/**/b[!x-z]*\na/q/b", "2!\\#?/\nx", "31.5GiB", "3a/../../b",
		"4keys = /k\nport = 1\n[m]\npath = /p\nkeys = *, a\nbwlimit = 1M\nwritable = yes\n",
		"5# c\na 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\nb 12\n",
	};

	MUST(argc == 2);
	root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(root >= 0);
	mkdirat(root, "frame", 0755);
	mkdirat(root, "journal", 0755);
	mkdirat(root, "words", 0755);
	frames();
	journal();
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), "words/%02zu", i);
		keep(name, words[i], strlen(words[i]));
	}
	close(root);
	return 0;
}
