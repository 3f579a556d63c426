/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/clock.h"

#include <time.h>

static int64_t
us_of(clockid_t which)
{
	struct timespec ts;

	clock_gettime(which, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t
clock_mono_ms(void)
{
	return clock_mono_us() / 1000;
}

int64_t
clock_mono_us(void)
{
	return us_of(CLOCK_MONOTONIC);
}

int64_t
clock_wall_us(void)
{
	return us_of(CLOCK_REALTIME);
}
