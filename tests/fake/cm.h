/* What cm.c (the calls of rdma_cm) and cmwire.c (its frames) share. */
#ifndef RCP_TESTS_FAKE_CM_H
#define RCP_TESTS_FAKE_CM_H

#include "fake.h"

enum fk_cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_LISTEN,
	CM_ADDR,
	CM_ROUTE,
	CM_REQ_SENT, /* active */
	CM_REQ_RCVD, /* passive */
	CM_REP_SENT, /* passive */
	CM_REP_RCVD, /* active: librdmacm has the answer, the program not yet */
	CM_UP,
	CM_GONE,
};

enum fk_cm_type { CM_REQ = 1, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP };
struct fk_cm_frame {
	uint32_t type, qpn;
	int32_t status;
	uint8_t net, place, kind, rnr_retry;
	uint32_t len;
	struct sockaddr_storage from, to;
	uint8_t data[256];
};

struct fk_id {
	struct rdma_cm_id id; /* first */
	enum fk_cm_state state;
	struct fk_port *port;
	struct fk_wire *wire; /* listener's, or the connection's */
	bool passive, told_gone;
	bool unknown; /* a request that the program has not been told of */
	struct fk_id *listener;
	unsigned unacked;
	struct fk_path peer;
	uint8_t rnr_retry;
	struct fk_id *next;
};
extern struct fk_id *fk_ids;

struct fk_cm_channel {
	struct rdma_event_channel channel; /* first */
	struct fk_evq events;
	unsigned ids;
};

struct fk_cm_event {
	struct fk_ev ev; /* first */
	struct rdma_cm_event event;
	bool connect; /* the program's call takes the last steps */
	uint8_t data[256];
};

/* Queue an event for an id; faults of the script are applied. */
void fk_cm_tell(struct fk_id *id, enum rdma_cm_event_type type, int status,
		const struct fk_cm_frame *f, struct fk_id *listener);
int fk_cm_send(struct fk_id *id, const struct fk_cm_frame *f);
void fk_cm_name(const struct sockaddr *sa, char name[64]);
void fk_cm_watch(struct fk_id *id, int fd);
void fk_cm_listen_ready(struct fk_wire *w, uint32_t events);
struct fk_id *fk_id_new(struct rdma_event_channel *channel, void *context);
void fk_id_place(struct fk_id *id, struct fk_port *port);
/* Sizes that InfiniBand's messages have for private data. */
uint32_t fk_cm_room(const struct fk_id *id, enum fk_cm_type type);

#endif
