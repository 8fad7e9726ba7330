/*
 * Every message in every state: what an end may not say there ends the session with one word about it, and what it
 * may say does no harm. Messages are as empty as they can be, so that most of those in their place are wrong, too.
 */
#include "evil.h"

#include <stdlib.h>
#include <string.h>

enum state { AT_START, GREETED, ASKED, SETTLED, CAPS_SAID, TRIED, USED, COPYING, WALKED, JUDGED, STATES };

static const char *const states[] = {"at the start", "after HELLO", "after the request", "in control", "after CAPS",
				     "after LINK_TRY", "after LINK_RING", "with an entry open", "after WALK_END", "after VERDICT"};

static const uint16_t numbers[] = {
#define NUMBER(NAME, name, number, who, phase) number,
	RCP_MESSAGES(NUMBER)
#undef NUMBER
};
#define MESSAGES (sizeof(numbers) / sizeof(numbers[0]))

/* The evil end is there, and the victim waits for what comes. */
static bool reach(struct evil *e, enum state at)
{
	if (at == AT_START)
		return evil_marker(e);
	if (!evil_greet(e))
		return false;
	if (at >= ASKED && !evil_request(e))
		return false;
	if (at >= SETTLED && !evil_control(e))
		return false;
	if (at >= CAPS_SAID && !evil_caps(e))
		return false;
	if (at >= TRIED && !evil_try(e))
		return false;
	if (at >= USED && !evil_use(e))
		return false;
	if (at < COPYING)
		return true;
	if (e->source) {
		uint32_t id = evil_name_file(e, "f", EVIL_F_BYTES);

		if (!evil_answered(e, id))
			return false;
		if (at >= WALKED)
			evil_walk_end(e);
		if (at == JUDGED)
			evil_send_file(e, id);
		while (at == JUDGED && !e->verdict && evil_get(e))
			;
		return true;
	}
	if (!evil_heard(e))
		return false;
	if (at >= WALKED && !evil_take_file(e, 0))
		return false;
	if (at == JUDGED) {
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		evil_say_verdict(e, 0);
	}
	return true;
}

static void at_state(struct evil *e)
{
	union {
		struct rcp_msg_hello hello;
		struct rcp_msg_start start;
		struct rcp_msg_caps caps;
		struct rcp_msg_verdict verdict;
		uint8_t bytes[512];
	} zero = {.bytes = {0}};

	if (!reach(e, (enum state)e->c->arg))
		return;
	evil_act(e);
	evil_say(e, (enum rcp_msg_type)numbers[e->c->len], &zero);
	/* What was let pass must not keep it waiting: the rest of the session does not come. */
	if (e->c->data)
		evil_hang_up(e);
	evil_drain(e);
}

static enum rcp_phase phase_of(enum state at, bool initiator)
{
	/* A victim that is an initiator says SWITCH as soon as it is told of no port. */
	if (at == ASKED && !initiator)
		return RCP_PHASE_TALK;
	return at < SETTLED ? RCP_PHASE_BOOT : at < USED ? RCP_PHASE_TALK : RCP_PHASE_TALK | RCP_PHASE_COPY;
}

/* Nothing is wrong with it there: the victim waits for more, or ends as it would have. */
static bool harmless(enum state at, unsigned number, bool source, bool initiator)
{
	switch (number) {
	case RCP_MSG_READY:
		return at == GREETED && !initiator;
	case RCP_MSG_FAULT: /* the entry has failed, or one without a number has */
		return source && at == COPYING;
	case RCP_MSG_PING:
	case RCP_MSG_NOTE:
	case RCP_MSG_LINK_FAIL: /* of a link that is not (any more) */
	case RCP_MSG_LINK_GO:
	case RCP_MSG_LINK_OOB:
		return true;
	case RCP_MSG_POSTED: /* of another generation */
		return source;
	default:
		return at == JUDGED && !source; /* it has hung up */
	}
}

const struct evil_case *evil_state_case(bool source, bool initiator, unsigned n)
{
	static struct evil_case c;
	static char name[120];
	enum state at = (enum state)(n / MESSAGES);
	unsigned number = numbers[n % MESSAGES];

	if (n >= STATES * MESSAGES)
		return NULL;
	const struct rcp_msg_desc *d = rcp_msg_desc(number);
	enum rcp_role role = at < SETTLED && (initiator || at < ASKED) ? 0 : source ? RCP_ROLE_SOURCE : RCP_ROLE_SINK;
	bool legal = rcp_msg_legal(d, phase_of(at, initiator), initiator, role);
	/* A victim that is an initiator may have settled on the link by itself, or not yet. */
	bool later = at == TRIED && !initiator && rcp_msg_legal(d, phase_of(USED, initiator), initiator, role);

	snprintf(name, sizeof(name), "%s %s", d->name, states[at]);
	c = (struct evil_case){.name = name, .act = at_state, .status = 3, .says = "broke the protocol", .arg = (long)at, .len = n % MESSAGES};
	if ((legal || later) && harmless(at, number, source, initiator)) {
		c.status = at < TRIED || (at == TRIED && initiator) ? 3 : at == TRIED ? -(1 << 3 | 1 << 6) : 6;
		c.says = NULL;
		c.data = "hang up";
	}
	/* The verdict stands, whatever else is said: it is told or not, by which comes first. */
	if (at == JUDGED) {
		c.made = source ? "f" : NULL;
		c.status = -(1 << 0 | 1 << 3);
		c.lines = -1;
		c.says = NULL;
	}
	if (number == RCP_MSG_ABORT || number == RCP_MSG_NOTE || number == RCP_MSG_FAULT) /* it may hold no words, and a server repeats none */
		c.lines = legal ? -1 : c.lines;
	/* Told otherwise than as a broken protocol; or, of a ring for a link that is not, by what then never comes. */
	if (number == RCP_MSG_ABORT || number == RCP_MSG_HELLO || number == RCP_MSG_START ||
	    (number == RCP_MSG_FAULT && source) || (number == RCP_MSG_LINK_RING && !source))
		c.says = legal ? NULL : c.says;
	if (number == RCP_MSG_WALK_END && at == USED && source && initiator) { /* a copy of nothing */
		c.status = 0;
		c.says = NULL;
	}
	if (number == RCP_MSG_WALK_END && later && source) {
		c.status = -(1 << 0 | 1 << 3);
		c.says = NULL;
		c.lines = -1;
	}
	return &c;
}
