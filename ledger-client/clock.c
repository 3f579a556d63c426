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

/* Of the kernel's last tick: what asks for no more than milliseconds, several
 * times for each packet, does not read the hardware's counter. */
int64_t
clock_mono_ms(void)
{
	return us_of(CLOCK_MONOTONIC_COARSE) / 1000;
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
