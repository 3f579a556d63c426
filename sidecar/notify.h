/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_NOTIFY_H
#define SIDECAR_NOTIFY_H

#include "policy/span.h"

/*
 * sd_notify(3) without its library: the state as one datagram to the socket
 * that NOTIFY_SOCKET names.  Does nothing without the variable, and never
 * blocks or fails the daemon.  notify_init opens it while that is possible.
 */
void notify_init(void);
void notify_send(const char *state);
/*
 * The same with a line for the people: STATUS=..., of printable bytes, cut at
 * 200.  state may be NULL.
 */
void notify_status(const char *state, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* RELOADING=1 with its time. */
void notify_reloading(void);
/* True where the service manager ends a daemon that is not said to be alive
 * (WATCHDOG_USEC, WATCHDOG_PID: the daemon's own process). */
MUST_USE bool notify_is_watched(void);
/* WATCHDOG=1: it is. */
void notify_alive(void);

#endif
