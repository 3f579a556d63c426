/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_NOTIFY_H
#define SIDECAR_NOTIFY_H

/*
 * sd_notify(3) without its library: the state as one datagram to the socket
 * that NOTIFY_SOCKET names.  Does nothing without the variable, and never
 * blocks or fails the daemon.  notify_init opens it while that is possible.
 */
void notify_init(void);
void notify_send(const char *state);
/* RELOADING=1 with its time. */
void notify_reloading(void);

#endif
