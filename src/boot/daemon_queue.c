#include "boot/daemon_queue.h"

#include <assert.h>
#include <string.h>

#define CELLS (2 * DAEMON_WAITING)

struct tally {
	uint64_t from[CELLS];
	unsigned count[CELLS]; /* 0: free */
};

uint64_t daemon_from(const union rcp_sa *peer)
{
	const uint8_t *a = peer->in6.sin6_addr.s6_addr;
	uint64_t from = 0;

	if (peer->sa.sa_family == AF_INET)
		return (uint64_t)0xffff << 32 | ntohl(peer->in.sin_addr.s_addr);
	if (peer->sa.sa_family != AF_INET6)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(&peer->in6.sin6_addr))
		a += 8; /* no network begins with ::ffff */
	for (int i = 0; i < 8; i++)
		from = from << 8 | a[i];
	return from;
}

static unsigned *cell(struct tally *t, uint64_t from)
{
	unsigned at = (unsigned)((from * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % CELLS;

	while (t->count[at] && t->from[at] != from)
		at = (at + 1) % CELLS;
	t->from[at] = from;
	return &t->count[at];
}

static void tally_of(struct tally *t, const struct daemon_mark *marks, unsigned n)
{
	memset(t->count, 0, sizeof(t->count));
	for (unsigned i = 0; i < n; i++)
		++*cell(t, marks[i].from);
}

unsigned daemon_heaviest(const struct daemon_mark *marks, unsigned n)
{
	struct tally t;
	unsigned best = 0, most = 0;

	assert(n && n <= DAEMON_WAITING);
	tally_of(&t, marks, n);
	for (unsigned i = 0; i < n; i++) {
		unsigned count = *cell(&t, marks[i].from);

		if (count > most || (count == most && marks[i].since_ns < marks[best].since_ns)) {
			most = count;
			best = i;
		}
	}
	return best;
}

static int take_out(struct daemon_queue *q, unsigned at, union rcp_sa *peer)
{
	int fd = q->fds[at];
	size_t behind = --q->count - at;

	if (peer)
		*peer = q->peers[at];
	memmove(&q->fds[at], &q->fds[at + 1], behind * sizeof(q->fds[0]));
	memmove(&q->marks[at], &q->marks[at + 1], behind * sizeof(q->marks[0]));
	memmove(&q->peers[at], &q->peers[at + 1], behind * sizeof(q->peers[0]));
	return fd;
}

int daemon_queue_push(struct daemon_queue *q, int fd, const union rcp_sa *peer, uint64_t now_ns)
{
	int out = -1;

	if (q->count == DAEMON_WAITING)
		out = take_out(q, daemon_heaviest(q->marks, q->count), NULL);
	q->fds[q->count] = fd;
	q->peers[q->count] = *peer;
	q->marks[q->count++] = (struct daemon_mark){.from = daemon_from(peer), .since_ns = now_ns};
	return out;
}

int daemon_queue_pop(struct daemon_queue *q, const struct daemon_mark *held, unsigned n, union rcp_sa *peer)
{
	struct tally t;
	unsigned best = 0, least = ~0u;

	assert(q->count && n <= DAEMON_STRANGERS);
	tally_of(&t, held, n);
	for (unsigned i = 0; i < q->count && least; i++) {
		unsigned count = *cell(&t, q->marks[i].from);

		if (count < least) {
			least = count;
			best = i;
		}
	}
	return take_out(q, best, peer);
}

int daemon_queue_late(struct daemon_queue *q, uint64_t before_ns)
{
	return q->count && q->marks[0].since_ns <= before_ns ? take_out(q, 0, NULL) : -1;
}
