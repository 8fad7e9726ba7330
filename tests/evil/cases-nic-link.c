/* Evil before a chunk moves: RDMA ports, private data, proofs, hello, queue pair numbers. Either role. */
#include "evil.h"
#include "nic.h"

#include "link/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static void give_up(struct evil *e)
{
	/* What can't be done is said, and another way waited for: that is ours to give up. */
	if (e->initiator && evil_await(e, RCP_MSG_LINK_FAIL))
		evil_hang_up(e);
	evil_drain(e);
}

static void honest(struct evil *e)
{
	if (!evil_session(e))
		return;
	evil_act(e);
	evil_copy_f(e);
}

/* ---- private data ---- */

enum bend { PROOF, REFLECTED, ZEROS, SESSION, ATTEMPT, CUT, NONE, MAGIC, VERSION, RESERVED, PADDED, ALL_BENDS };

static size_t bend(struct evil *e, enum bend how, uint8_t data[256])
{
	memset(data, 0, 256);
	nic_private(e, e->link_id, data);
	switch (how) {
	case PROOF:
		data[8 + 31] ^= 1;
		break;
	case REFLECTED: /* what the other end would say */
		e->initiator = !e->initiator;
		nic_private(e, e->link_id, data);
		e->initiator = !e->initiator;
		break;
	case ZEROS:
		memset(data + 8, 0, 32);
		break;
	case SESSION:
		data[40] ^= 1;
		break;
	case ATTEMPT:
		nic_private(e, (uint16_t)(e->link_id + 1), data);
		break;
	case CUT:
		return NIC_PRIVATE - 1;
	case NONE:
		return 0;
	case MAGIC:
		data[0] ^= 1;
		break;
	case VERSION:
		data[4] = 2;
		break;
	case RESERVED:
		data[5] = 1;
		break;
	case PADDED: /* as InfiniBand does by itself; iWARP never */
		memset(data + NIC_PRIVATE, 0xff, 100);
		return NIC_PRIVATE + 100;
	case ALL_BENDS:
		break;
	}
	return NIC_PRIVATE;
}

/* Called with what must not be taken; then with what must, and the copy. */
static void wrong_call(struct evil *e)
{
	uint8_t data[256];

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	evil_act(e);
	for (int i = 0; i < 3; i++) {
		struct evil_nic *in = nic_second(e, data, bend(e, (enum bend)e->c->arg, data));

		if (in)
			evil_note(e, "broken", "a wrong proof was taken");
	}
	if (evil_connect(e) && evil_use(e))
		evil_copy_f(e);
}

static void wrong_accept(struct evil *e)
{
	uint8_t data[256], theirs[256];
	size_t len;

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e) || !nic_called(e, theirs, &len))
		return;
	evil_act(e);
	len = bend(e, (enum bend)e->c->arg, data);
	if (e->c->arg == ALL_BENDS) /* its own words, sent back */
		memcpy(data, theirs, NIC_PRIVATE);
	nic_accept(e, data, len);
	if (e->c->arg == PADDED && nic_hello(e) && evil_use(e))
		evil_copy_f(e);
	else
		evil_drain(e);
}

static void padded_call(struct evil *e)
{
	uint8_t data[256];

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	evil_act(e);
	if (nic_call(e, data, bend(e, PADDED, data)) && nic_hello(e) && evil_use(e))
		evil_copy_f(e);
}

/* The very bytes that proved it once, while the link is used. */
static void replayed_call(struct evil *e)
{
	uint8_t data[256];

	if (!evil_session(e))
		return;
	evil_act(e);
	for (int i = 0; i < 3; i++) {
		if (nic_second(e, data, bend(e, ALL_BENDS, data)))
			evil_note(e, "broken", "a replayed proof was taken");
	}
	evil_copy_f(e);
}

/* Nobody answers the call, or there is nobody to be called. */
static void no_answer(struct evil *e)
{
	uint8_t theirs[256];
	size_t len;

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	evil_act(e);
	if (e->initiator) /* it never calls */
		evil_await(e, RCP_MSG_LINK_FAIL);
	else if (e->c->arg == 0)
		nic_called(e, theirs, &len);
	if (e->initiator)
		evil_hang_up(e);
	evil_drain(e);
}

/* ---- hello ---- */

static void bad_hello(struct evil *e)
{
	uint8_t data[256], hello[8] = {1, 1, 0, 1};

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	size_t len = bend(e, ALL_BENDS, data);

	hello[3] = (uint8_t)e->link_id;
	if (!nic_call(e, data, len))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0: /* none at all */
		break;
	case 1:
		hello[3]++;
		nic_send(e, hello, 8);
		break;
	case 2:
		hello[1] = 2;
		nic_send(e, hello, 8);
		break;
	case 3:
		nic_send(e, hello, 7);
		break;
	case 4: /* the other way round: a chunk's message */
		nic_say_chunk(e, 0, 64);
		break;
	case 5:
		nic_send(e, hello, 0);
		break;
	}
	give_up(e);
}

/* ---- CAPS ---- */

static void bad_port(struct evil *e)
{
	struct rcp_rdma_port p = {.device = "fake0",
				  .number = 1,
				  .layer = e->link & EVIL_ANY_OOB ? RCP_LAYER_INFINIBAND : RCP_LAYER_ETHERNET,
				  .transport = e->link & EVIL_ANY_IWARP ? RCP_RDMA_IWARP : RCP_RDMA_IB,
				  .mtu = 3,
				  .rate_mbps = 100000,
				  .lid = e->link & EVIL_ANY_OOB ? 0x107 : 0,
				  .max_msg_bytes = 1u << 31,
				  .imm = true,
				  .cm_port = 7471,
				  .addr_count = 1};
	struct rcp_msg_caps m = {.features = e->hello.features, .slots = EVIL_SLOTS, .chunk_bytes = EVIL_CHUNK, .cpus = 1, .streams = 1};
	struct sockaddr_in *at = (struct sockaddr_in *)(void *)&p.addrs[0];
	struct rcp_wr w = {.max = 200000};
	unsigned count = 1;

	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(0x7f4d0139); /* on the fabric, and nobody's */
	if (!evil_boot(e))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		break;
	case 1: /* another network */
		at->sin_addr.s_addr = htonl(0x08080808);
		break;
	case 2:
		p.cm_port = 0;
		break;
	case 3:
		p.max_msg_bytes = 0;
		break;
	case 4:
		p.max_msg_bytes = 4095;
		break;
	case 5:
		snprintf(p.device, sizeof(p.device), "\033]0;owned\007\033[2J\r\n%%s%%n");
		break;
	case 6:
		p.mtu = 0;
		break;
	case 7:
		p.mtu = 255;
		break;
	case 8:
		p.number = 0;
		break;
	case 9: /* all the same one */
		count = 200;
		break;
	case 10:
		p.addr_count = 0;
		break;
	case 11: /* the victim's own address */
		at->sin_addr.s_addr = htonl(0x7f4d0104);
		break;
	}
	for (unsigned i = 0; i < count; i++) {
		p.index = e->c->arg == 9 ? 7 : (uint16_t)i;
		rcp_rdma_port_encode(&w, &p);
	}
	m.ports = rcp_span_of(w.data, w.len);
	evil_say(e, RCP_MSG_CAPS, &m);
	rcp_wr_free(&w);
	while (evil_await(e, RCP_MSG_LINK_TRY)) {
		uint16_t link = e->msg.link_try_.link;

		if (!(e->link & EVIL_ANY_OOB))
			evil_say(e, RCP_MSG_LINK_GO, &(struct rcp_msg_link_go){.link = link});
	}
	evil_drain(e);
}

/* Ports that were never told of, at the one end or the other. */
static void bad_try(struct evil *e)
{
	struct rcp_msg_link_try m = {.link = e->link_id,
				     .kind = evil_kind(e),
				     .streams = 1,
				     .initiator_port = e->c->arg == 0 ? 99 : 0,
				     .responder_port = e->c->arg == 1 ? 99 : 0,
				     .slots = EVIL_SLOTS,
				     .chunk_bytes = EVIL_CHUNK};
	struct rcp_msg_link_oob mine;

	if (!evil_boot(e) || !evil_caps(e))
		return;
	evil_act(e);
	evil_say(e, RCP_MSG_LINK_TRY, &m);
	if (e->link & EVIL_ANY_OOB) {
		if (nic_numbers(e, &mine))
			evil_say(e, RCP_MSG_LINK_OOB, &mine);
		give_up(e);
	} else if (evil_await(e, RCP_MSG_LINK_GO) && evil_connect(e) && evil_use(e)) {
		evil_copy_f(e);
	}
}

/* Each has a ring and a queue pair of its own. */
static void many_tries(struct evil *e)
{
	struct rcp_msg_link_oob mine;

	if (!evil_boot(e) || !evil_caps(e))
		return;
	evil_act(e);
	if (e->link & EVIL_ANY_OOB && !nic_numbers(e, &mine))
		return;
	for (uint16_t i = 1; i < 2000 && !e->gone && !e->aborted; i++) {
		evil_say(e, RCP_MSG_LINK_TRY, &(struct rcp_msg_link_try){.link = i,
									 .kind = evil_kind(e),
									 .streams = 1,
									 .slots = EVIL_SLOTS,
									 .chunk_bytes = EVIL_CHUNK});
		mine.link = i;
		if (e->link & EVIL_ANY_OOB)
			evil_say(e, RCP_MSG_LINK_OOB, &mine);
	}
	evil_drain(e);
}

/* ---- queue pair numbers ---- */

static void nonsense(long how, struct rcp_msg_link_oob *m)
{
	switch (how) {
	case 0:
		m->qpn = 0;
		break;
	case 1:
		m->qpn = 1u << 24;
		break;
	case 2:
		m->qpn = UINT32_MAX;
		break;
	case 3:
		m->psn = 1u << 24;
		break;
	case 4:
		m->mtu = 0;
		break;
	case 5:
		m->mtu = 6;
		break;
	case 6:
		m->mtu = 255;
		break;
	case 7:
		m->gid_type = RCP_GID_ROCE_V2;
		break;
	case 8:
		m->gid_type = 0;
		break;
	case 9:
		m->gid_type = 255;
		break;
	case 10: /* no address at all */
		m->lid = 0;
		break;
	case 11:
		m->lid = UINT16_MAX;
		break;
	case 12: /* another subnet, and a GID of nobody */
		memset(m->gid.b, 0xff, sizeof(m->gid.b));
		break;
	case 13: /* somebody else's queue pair */
		m->qpn += 77;
		break;
	case 14:
		m->psn = 0;
		m->mtu = 1;
		break;
	}
}

static void bad_numbers(struct evil *e)
{
	struct rcp_msg_link_oob mine;

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e) || (!e->initiator && !evil_await(e, RCP_MSG_LINK_OOB)))
		return;
	if (!nic_numbers(e, &mine))
		return;
	evil_act(e);
	nonsense(e->c->arg, &mine);
	evil_say(e, RCP_MSG_LINK_OOB, &mine);
	give_up(e);
}

/* Numbers again, when they have served; or of another attempt, which is nobody's. */
static void numbers_again(struct evil *e)
{
	struct rcp_msg_link_oob mine = {.link = 1, .qpn = 300, .psn = 1, .mtu = 3, .lid = 0x104, .gid_type = RCP_GID_IB};

	if (!evil_session(e))
		return;
	evil_act(e);
	mine.link = (uint16_t)(e->c->arg == 0 ? e->link_id : e->link_id + 9);
	for (int i = 0; i < 50; i++)
		evil_say(e, RCP_MSG_LINK_OOB, &mine);
	evil_copy_f(e);
}

#define BROKE "broke the protocol"
#define CM (EVIL_CM | EVIL_CM_SEALED | EVIL_IWARP | EVIL_IWARP_SEALED)

const struct evil_case evil_nic_link_cases[] = {
	{"honest", honest, 0, NULL, EVIL_RDMA, .made = "f"},

	{"call: a wrong proof", wrong_call, 0, NULL, EVIL_I | CM, .arg = PROOF, .made = "f"},
	{"call: the other end's proof", wrong_call, 0, NULL, EVIL_I | CM, .arg = REFLECTED, .made = "f"},
	{"call: zeros for a proof", wrong_call, 0, NULL, EVIL_I | CM, .arg = ZEROS, .made = "f"},
	{"call: another session", wrong_call, 0, NULL, EVIL_I | CM, .arg = SESSION, .made = "f"},
	{"call: another attempt", wrong_call, 0, NULL, EVIL_I | CM, .arg = ATTEMPT, .made = "f"},
	{"call: private data cut", wrong_call, 0, NULL, EVIL_I | EVIL_IWARP, .arg = CUT, .made = "f"},
	{"call: no private data", wrong_call, 0, NULL, EVIL_I | CM, .arg = NONE, .made = "f"},
	{"call: another magic", wrong_call, 0, NULL, EVIL_I | CM, .arg = MAGIC, .made = "f"},
	{"call: another version", wrong_call, 0, NULL, EVIL_I | CM, .arg = VERSION, .made = "f"},
	{"call: reserved bits", wrong_call, 0, NULL, EVIL_I | CM, .arg = RESERVED, .made = "f"},
	{"call: private data padded", padded_call, 0, NULL, EVIL_I | EVIL_IWARP, .made = "f"},
	{"call: the same proof once more", replayed_call, 0, NULL, EVIL_I | CM, .arg = 0, .made = "f"},
	{"call: never", no_answer, 3, NULL, EVIL_I | CM, .arg = 0, .lines = -3},
	{"call: not answered", no_answer, 3, NULL, EVIL_R | CM, .arg = 0},

	{"answer: a wrong proof", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = PROOF},
	{"answer: the other end's proof", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = REFLECTED},
	{"answer: its own words sent back", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = ALL_BENDS},
	{"answer: zeros for a proof", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = ZEROS},
	{"answer: another session", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = SESSION},
	{"answer: another attempt", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = ATTEMPT},
	{"answer: private data cut", wrong_accept, 3, "session's secret", EVIL_R | EVIL_IWARP, .arg = CUT},
	{"answer: no private data", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = NONE},
	{"answer: another magic", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = MAGIC},
	{"answer: another version", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = VERSION},
	{"answer: reserved bits", wrong_accept, 3, "session's secret", EVIL_R | CM, .arg = RESERVED},
	{"answer: private data padded", wrong_accept, 0, NULL, EVIL_R | CM, .arg = PADDED, .made = "f"},

	{"hello: none", bad_hello, 3, NULL, EVIL_I | CM, .arg = 0, .lines = -3},
	{"hello: of another attempt", bad_hello, 3, NULL, EVIL_I | CM, .arg = 1, .lines = -3},
	{"hello: another version", bad_hello, 3, NULL, EVIL_I | CM, .arg = 2, .lines = -3},
	{"hello: cut", bad_hello, 3, NULL, EVIL_I | CM, .arg = 3, .lines = -3},
	{"hello: a chunk instead", bad_hello, 3, NULL, EVIL_I | CM, .arg = 4, .lines = -3},
	{"hello: nothing instead", bad_hello, 3, NULL, EVIL_I | CM, .arg = 5, .lines = -3},

	{"port: nobody there", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 0},
	{"port: on another network", bad_port, 3, NULL, EVIL_R | EVIL_CM | EVIL_IWARP, .arg = 1},
	{"port: that does not listen", bad_port, 3, NULL, EVIL_R | EVIL_CM | EVIL_IWARP, .arg = 2},
	{"port: no messages", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 3},
	{"port: messages too short", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 4},
	{"port: terminal escapes", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 5},
	{"port: MTU 0", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 6},
	{"port: MTU 255", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 7},
	{"port: number 0", bad_port, 3, NULL, EVIL_R | EVIL_RDMA, .arg = 8},
	{"port: 200 times", bad_port, 3, NULL, EVIL_R | EVIL_CM, .arg = 9, .arg2 = 200},
	{"port: no address", bad_port, 3, NULL, EVIL_R | EVIL_CM | EVIL_IWARP, .arg = 10},
	{"port: the victim's own", bad_port, 3, NULL, EVIL_R | EVIL_CM | EVIL_IWARP, .arg = 11},
	{"try: from a port that is not there", bad_try, 0, NULL, EVIL_I | CM, .arg = 0, .made = "f"},
	{"try: from a port that is not there", bad_try, 3, NULL, EVIL_I | EVIL_OOB, .arg = 0, .lines = -3},
	{"try: to a port that is not there", bad_try, 3, NULL, EVIL_I | EVIL_OOB, .arg = 1, .lines = -3},
	{"try: 2000 times", many_tries, 3, BROKE, EVIL_I | EVIL_RDMA},

	{"numbers: QP 0", bad_numbers, 3, NULL, EVIL_OOB, .arg = 0, .lines = -3},
	{"numbers: QP 2^24", bad_numbers, 3, NULL, EVIL_OOB, .arg = 1, .lines = -3},
	{"numbers: QP 2^32 - 1", bad_numbers, 3, NULL, EVIL_OOB, .arg = 2, .lines = -3},
	{"numbers: PSN 2^24", bad_numbers, 3, NULL, EVIL_OOB, .arg = 3, .lines = -3},
	{"numbers: MTU 0", bad_numbers, 3, NULL, EVIL_OOB, .arg = 4, .lines = -3},
	{"numbers: MTU 6", bad_numbers, 3, NULL, EVIL_OOB, .arg = 5, .lines = -3},
	{"numbers: MTU 255", bad_numbers, 3, NULL, EVIL_OOB, .arg = 6, .lines = -3},
	{"numbers: a GID of RoCE", bad_numbers, 3, NULL, EVIL_OOB, .arg = 7, .lines = -3},
	{"numbers: a GID of no type", bad_numbers, 3, NULL, EVIL_OOB, .arg = 8, .lines = -3},
	{"numbers: a GID of type 255", bad_numbers, 3, NULL, EVIL_OOB, .arg = 9, .lines = -3},
	{"numbers: no LID", bad_numbers, 3, NULL, EVIL_OOB, .arg = 10, .lines = -3},
	{"numbers: LID 65535", bad_numbers, 3, NULL, EVIL_OOB, .arg = 11, .lines = -3},
	{"numbers: a GID of ones", bad_numbers, 3, NULL, EVIL_OOB, .arg = 12, .lines = -3},
	{"numbers: somebody else's", bad_numbers, 3, NULL, EVIL_OOB, .arg = 13, .lines = -3},
	{"numbers: right ones, and no word then", bad_numbers, 3, NULL, EVIL_OOB, .arg = 14, .lines = -3},
	{"numbers: again", numbers_again, 0, NULL, EVIL_OOB, .arg = 0, .made = "f"},
	{"numbers: of another attempt", numbers_again, 0, NULL, EVIL_OOB, .arg = 1, .made = "f"},
	{0},
};
