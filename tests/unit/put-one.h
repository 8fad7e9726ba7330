/* One small file from beginning to end, for tests: the sink's way for bundles with a bundle of one. */
#ifndef TESTS_UNIT_PUT_ONE_H
#define TESTS_UNIT_PUT_ONE_H

#include "file/sink.h"

struct put_outcome {
	struct rcp_err *err;
	unsigned *lost;
};

static inline void put_outcome_note(void *arg, const struct rcp_err *err, unsigned lost)
{
	struct put_outcome *o = arg;

	*o->err = *err;
	*o->lost = lost;
}

static inline int put_one(const struct rcp_sink_params *params, const void *data, size_t len,
		 const struct rcp_meta *meta, struct rcp_err *err, unsigned *lost)
{
	struct put_outcome o = {.err = err, .lost = lost};
	struct rcp_sink_puts *puts;

	*lost = 0;
	if (rcp_sink_puts_new(put_outcome_note, err, &puts))
		return (int)err->code;
	rcp_sink_puts_add(puts, params, data, len, meta, &o);
	rcp_sink_puts_free(&puts);
	return (int)err->code;
}

#endif
