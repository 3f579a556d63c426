/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_WATCH_H
#define PROXY_WATCH_H

#include <event2/event.h>
#include <stdint.h>

#include "policy/span.h"

/*
 * The sockets of all connections of an engine: an epoll instance of their
 * own, which the event loop holds as one descriptor.  Each socket is added
 * once, for both directions and edge-triggered, and leaves with its close:
 * one system call for its whole life (two more each time that its input is
 * turned off), and no memory per socket.  In return
 * its owner must remember what an edge said until EAGAIN (struct side).
 *
 * A process that has one must not fork: a socket that a child holds too would
 * not leave with its close, and its edges would come for an owner that is
 * gone.  (The filter of an engine allows no fork.)
 */
struct watch;

#define WATCH_TAGS 16u

/* `owner` and `tag` as they were added; `events` are EPOLL bits.  They may be
 * of a socket that was closed by an earlier call of the same turn: then they
 * are a false alarm. */
typedef void watch_fn(void *owner, unsigned tag, uint32_t events);

/* `over` is called behind the last event of a turn: until then owners that
 * have gone must stay in memory.  0 or -errno. */
MUST_USE int watch_new(struct watch **out, struct event_base *base,
    watch_fn *seen, void (*over)(void *arg), void *arg);
void watch_free(struct watch *w);

/* Until fd is closed.  `owner` is aligned to WATCH_TAGS (malloc is), `tag`
 * below it.  0, or -errno: -ENOMEM, -ENOSPC (max_user_watches). */
MUST_USE int watch_add(struct watch *w, int fd, void *owner, unsigned tag);

/* No edges for input, or again, with one for what came meanwhile; the end and
 * errors are told all the while.  As watch_add. */
MUST_USE int watch_input(struct watch *w, int fd, void *owner, unsigned tag,
    bool on);

/* Within a turn: between the first call of `seen` and `over`. */
bool watch_turning(const struct watch *w);

#endif
