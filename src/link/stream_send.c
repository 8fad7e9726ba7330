#include "link/stream_impl.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection takes no more posts when it has these: the socket has work for the next turn, and no
 * more of the sender's memory is tied up than that. */
#define QUEUE_POSTS 2u
#define QUEUE_BYTES (4u << 20)

#define COPY_BYTES (64u << 10)

int stream_source_init(struct stream *s, struct rcp_err *err)
{
	s->copy = malloc(COPY_BYTES);
	if (!s->copy)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	for (unsigned i = 0; i < s->conn_count; i++)
		s->conns[i].tail = &s->conns[i].head;
	return 0;
}

void stream_source_free(struct stream *s)
{
	free(s->copy);
	free(s->free_slots);
	free(s->slots);
}

int stream_source_ring(struct stream *s, const struct rcp_ring_info *ring, struct rcp_err *err)
{
	if (s->granted)
		return rcp_err_set(err, RCP_E_CONNECT, 0, NULL, s->peer,
				   "the peer broke the protocol: a second ring for one link");
	if (rcp_ring_check(ring, err)) {
		rcp_err_object(err, s->peer);
		return (int)err->code;
	}
	s->free_slots = calloc(ring->slots, sizeof(*s->free_slots));
	s->slots = calloc(ring->slots, 1);
	if (!s->free_slots || !s->slots)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	s->slot_count = ring->slots;
	while (s->free_count < ring->slots) {
		s->free_slots[s->free_count] = ring->slots - 1 - s->free_count;
		s->free_count++;
	}
	s->generation = ring->generation;
	s->link.caps.slots = ring->slots;
	s->link.caps.chunk_bytes = MIN(s->link.caps.chunk_bytes, ring->chunk_bytes);
	s->granted = true;
	return 0;
}

/* The connection with the least to do; NULL when all have enough. */
static struct stream_conn *choose(struct stream *s)
{
	assert(s->conn_count);
	struct stream_conn *best = &s->conns[s->turn % s->conn_count];

	for (unsigned i = 1; i < s->conn_count; i++) {
		struct stream_conn *c = &s->conns[(s->turn + i) % s->conn_count];

		if (c->queued < best->queued)
			best = c;
	}
	return best->posts >= QUEUE_POSTS && best->queued >= QUEUE_BYTES ? NULL : best;
}

int stream_source_post(struct stream *s, struct rcp_post *post)
{
	assert(s->granted && post->chunk.length <= s->link.caps.chunk_bytes);
	struct stream_conn *c = s->free_count ? choose(s) : NULL;

	if (!c) {
		s->starved = true;
		return RCP_AGAIN;
	}
	s->turn = (unsigned)(c - s->conns) + 1;
	post->slot = s->free_slots[--s->free_count];
	s->slots[post->slot] = SLOT_QUEUED;
	post->chunk.generation = s->generation;
	rcp_chunk_encode(&post->chunk, post->header);
	rcp_put_u32(post->prefix, rcp_imm(post->slot, s->generation));
	rcp_put_u32(post->prefix + 4, post->chunk.length);
	post->progress = 0;
	post->next = NULL;
	*c->tail = post;
	c->tail = &post->next;
	c->posts++;
	c->queued += STREAM_HEAD + post->chunk.length;
	stream_wake(s);
	return 0;
}

static size_t add(struct iovec *iov, size_t n, const uint8_t *part, size_t len, uint64_t *skip)
{
	size_t gone = MIN(*skip, len);

	*skip -= gone;
	if (gone < len) {
		/* sendmsg does not write through it. */
		iov[n].iov_base = (void *)((uintptr_t)part + gone);
		iov[n].iov_len = len - gone;
		n++;
	}
	return n;
}

/* Prefix and header, and the body if it comes from memory. */
static ssize_t send_memory(const struct stream_conn *c, const struct rcp_post *post, bool body)
{
	struct iovec iov[3];
	uint64_t skip = post->progress;
	size_t n = add(iov, 0, post->prefix, sizeof(post->prefix), &skip);

	n = add(iov, n, post->header, sizeof(post->header), &skip);
	if (body)
		n = add(iov, n, post->body, post->chunk.length, &skip);
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};

	return sendmsg(c->fd, &msg, MSG_NOSIGNAL | (body ? 0 : MSG_MORE));
}

/*
 * The file is shorter than it was, can't be read any more, or its file system knows no sendfile:
 * what pread gives, and zeros where it gives nothing. The frame is whole then and the link stays of
 * use; the sink's check of the CRC finds the chunk wrong.
 */
static ssize_t send_copy(const struct stream *s, const struct stream_conn *c,
			 const struct rcp_post *post, off_t at, size_t left)
{
	size_t want = MIN(left, COPY_BYTES);
	ssize_t n = pread(post->fd, s->copy, want, at);

	if (n <= 0) {
		memset(s->copy, 0, want);
		n = (ssize_t)want;
	}
	return send(c->fd, s->copy, (size_t)n, MSG_NOSIGNAL | ((size_t)n < left ? MSG_MORE : 0));
}

/* sendfile has no MSG_NOSIGNAL: hold SIGPIPE back, and take it away if it was ours. It is raised
 * also where the first bytes still went and the later ones did not. */
static ssize_t sendfile_quiet(int out, int in, off_t at, size_t len)
{
	static const struct timespec now;
	sigset_t pipe_set, old, pending;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	ssize_t n = sendfile(out, in, &at, len);
	int e = errno;

	if (n < (ssize_t)len && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe_set, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = e;
	return n;
}

static bool socket_error(int e)
{
	return e == EAGAIN || e == EINTR || e == EPIPE || e == ECONNRESET || e == ETIMEDOUT ||
	       e == EHOSTUNREACH || e == ENETUNREACH || e == ENETDOWN || e == ENOTCONN;
}

static ssize_t send_file(const struct stream *s, const struct stream_conn *c,
			 const struct rcp_post *post)
{
	uint64_t done = post->progress - STREAM_HEAD;
	off_t at = (off_t)(post->fd_offset + done);
	size_t left = post->chunk.length - (size_t)done;
	ssize_t n = sendfile_quiet(c->fd, post->fd, at, left);

	if (n > 0 || (n < 0 && socket_error(errno)))
		return n;
	return send_copy(s, c, post, at, left);
}

/* One call's worth of the connection's first post. */
static ssize_t send_some(const struct stream *s, const struct stream_conn *c,
			 const struct rcp_post *post)
{
	bool file = post->fd >= 0 && post->chunk.length;

	if (file && post->progress >= STREAM_HEAD)
		return send_file(s, c, post);
	return send_memory(c, post, !file);
}

/* The first post is with the network. */
static void complete(struct stream *s, struct stream_conn *c)
{
	struct rcp_post *post = c->head;

	c->head = post->next;
	if (!c->head)
		c->tail = &c->head;
	c->posts--;
	s->slots[post->slot] = SLOT_SENT;
	s->link.events->sent(s->link.arg, post, true);
}

static void send_turn(struct stream *s, struct stream_conn *c)
{
	uint64_t budget = STREAM_TURN_BYTES;

	while (c->head && !s->over) {
		if (!budget) {
			/* Others want their turn; the loop says when ours comes again. */
			c->blocked = true;
			return;
		}
		ssize_t n = send_some(s, c, c->head);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			c->blocked = true;
			return;
		}
		if (n < 0) {
			stream_fail(s, RCP_E_LINK, errno, "send", "the connection was lost");
			return;
		}
		c->head->progress += (uint64_t)n;
		c->queued -= (uint64_t)n;
		s->link.moved += (uint64_t)n;
		budget -= MIN((uint64_t)n, budget);
		if (c->head->progress == STREAM_HEAD + c->head->chunk.length)
			complete(s, c);
	}
}

void stream_source_turn(struct stream *s)
{
	for (unsigned i = 0; i < s->conn_count; i++) {
		struct stream_conn *c = &s->conns[i];

		if (c->head && !c->blocked && !s->over)
			send_turn(s, c);
	}
	if (s->starved && !s->over && !s->closing && s->free_count && choose(s)) {
		s->starved = false;
		s->link.events->room(s->link.arg);
	}
}

bool stream_source_empty(const struct stream *s)
{
	for (unsigned i = 0; i < s->conn_count; i++) {
		if (s->conns[i].head)
			return false;
	}
	return true;
}

void stream_source_abandon(struct stream *s)
{
	for (unsigned i = 0; i < s->conn_count; i++) {
		struct stream_conn *c = &s->conns[i];

		while (c->head) {
			struct rcp_post *post = c->head;

			c->head = post->next;
			s->link.events->sent(s->link.arg, post, false);
		}
		c->tail = &c->head;
		c->posts = 0;
		c->queued = 0;
	}
}

static bool credit(struct stream *s, uint32_t imm)
{
	uint32_t slot = rcp_imm_slot(imm);

	if (slot >= s->slot_count || !rcp_imm_current(imm, s->generation) ||
	    s->slots[slot] != SLOT_SENT) {
		stream_fail(
			s, RCP_E_CONNECT, 0, NULL,
			"the peer broke the protocol: credit for slot %u, which it does not hold",
			slot);
		return false;
	}
	s->slots[slot] = SLOT_FREE;
	s->free_slots[s->free_count++] = slot;
	return true;
}

static void credits(struct stream *s, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		s->word[s->word_have++] = data[i];
		if (s->word_have < sizeof(s->word))
			continue;
		s->word_have = 0;
		if (!credit(s, rcp_get_u32(s->word)))
			return;
	}
}

void stream_source_readable(struct stream_conn *c)
{
	struct stream *s = c->stream;
	uint8_t buf[4096];
	ssize_t n = recv(c->fd, buf, sizeof(buf), 0);

	if (n > 0 && !c->first) {
		stream_fail(s, RCP_E_CONNECT, 0, NULL,
			    "the peer broke the protocol: bytes where none are due");
	} else if (n > 0) {
		s->link.moved += (uint64_t)n;
		credits(s, buf, (size_t)n);
	} else if (n == 0 && s->closing) {
		c->eof = true;
	} else if (!stream_again(s, n, "recv")) {
		c->eof = true;
	}
}
