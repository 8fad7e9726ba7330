/*
 * src/link/verbs where rcp was built without RDMA: the same door, and behind it the reason.
 */
#include "link/verbs/verbs.h"

static int absent(struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL, "this rcp was built without RDMA");
	rcp_err_fix(
		err,
		"install the development files of libibverbs and librdmacm and build rcp again");
	return (int)err->code;
}

int rcp_rdma_open(const struct rcp_rdma_options *options, struct rcp_err *err,
		  struct rcp_rdma **out)
{
	(void)options;
	*out = NULL;
	return absent(err);
}

void rcp_rdma_close(struct rcp_rdma **rdma)
{
	*rdma = NULL;
}

const struct rcp_rdma_port *rcp_rdma_ports(const struct rcp_rdma *rdma, unsigned *count)
{
	(void)rdma;
	*count = 0;
	return NULL;
}

uint32_t rcp_rdma_chunk_bytes(const struct rcp_rdma *rdma, uint32_t wanted)
{
	(void)rdma;
	return wanted;
}

const char *rcp_rdma_remarks(const struct rcp_rdma *rdma)
{
	(void)rdma;
	return "";
}

int rcp_rdma_connect(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		     const struct rcp_link_params *params, const struct rcp_rdma_connect *how,
		     struct rcp_err *err, struct rcp_link **out)
{
	(void)rdma;
	(void)loop;
	(void)params;
	(void)how;
	*out = NULL;
	return absent(err);
}

int rcp_rdma_listen(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		    const struct rcp_rdma_listen_ops *ops, struct rcp_err *err,
		    struct rcp_rdma_listener **out)
{
	(void)rdma;
	(void)loop;
	(void)ops;
	*out = NULL;
	return absent(err);
}

void rcp_rdma_listener_close(struct rcp_rdma_listener *listener, void (*done)(void *arg), void *arg)
{
	(void)listener;
	(void)done;
	(void)arg;
}

int rcp_rdma_oob_new(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		     const struct rcp_link_params *params, uint16_t local_port,
		     enum rcp_gid_type gid_type, bool peer_imm, struct rcp_err *err,
		     struct rcp_link **out, struct rcp_rdma_oob *mine)
{
	(void)rdma;
	(void)loop;
	(void)params;
	(void)local_port;
	(void)gid_type;
	(void)peer_imm;
	(void)mine;
	*out = NULL;
	return absent(err);
}

int rcp_rdma_oob_connect(struct rcp_link *link, const struct rcp_rdma_oob *peer,
			 struct rcp_err *err)
{
	(void)link;
	(void)peer;
	return absent(err);
}
