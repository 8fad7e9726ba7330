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
	(void)initiator;
	return at < SETTLED ? RCP_PHASE_BOOT : at < USED ? RCP_PHASE_TALK : RCP_PHASE_TALK | RCP_PHASE_COPY;
}

/* Nothing is wrong with it there: the victim waits for more, or ends as it would have. */
static bool harmless(enum state at, unsigned number, bool source)
{
	switch (number) {
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
	enum rcp_role role = at < SETTLED ? 0 : source ? RCP_ROLE_SOURCE : RCP_ROLE_SINK;
	bool legal = rcp_msg_legal(d, phase_of(at, initiator), initiator, role);

	snprintf(name, sizeof(name), "%s %s", d->name, states[at]);
	c = (struct evil_case){.name = name, .act = at_state, .status = 3, .says = "broke the protocol", .arg = (long)at, .len = n % MESSAGES};
	if (legal && harmless(at, number, source)) {
		c.status = at < USED ? 3 : at == JUDGED ? 0 : 6;
		c.says = NULL;
		c.data = "hang up";
	}
	if (at == JUDGED)
		c.made = source ? "f" : NULL;
	if (number == RCP_MSG_ABORT && legal)
		c.says = NULL;
	return &c;
}
