/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_CLIENT_CLOCK_H
#define LEDGER_CLIENT_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC: how long something takes, and when it is due.  The one in
 * milliseconds is behind the other by up to a tick (10 ms). */
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
/* CLOCK_REALTIME since the epoch: what is written down. */
int64_t clock_wall_us(void);

#endif
