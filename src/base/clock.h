/* Monotonic time. Any thread. */
#ifndef RCP_BASE_CLOCK_H
#define RCP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define RCP_MS UINT64_C(1000000)
#define RCP_SEC UINT64_C(1000000000)

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t rcp_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RCP_SEC + (uint64_t)ts.tv_nsec;
}

#endif
