/* SPDX-License-Identifier: Apache-2.0 */
/* The datagrams of the front: many are read and answered at once. */
#include <errno.h>
#include <unistd.h>

#include "dns/front_part.h"

static void
on_datagrams(evutil_socket_t fd, short what, void *arg)
{
	struct front *f = arg;
	unsigned n = way_batch_recv(f->datagrams, fd);

	(void)what;
	f->in_batch = true;
	f->ifindex = 0;
	for (unsigned i = 0; i < n; i++) {
		struct waiting w = { .front = f, .via = VIA_DNS_UDP };
		struct span msg = way_batch_get(f->datagrams, i, &w.way);

		if (endpoint_from_sockaddr(&w.client, &w.way.peer))
			front_question(&w, msg);
	}
	f->in_batch = false;
	front_flush(f);
}

/* Records are handed over before what they tell of is said. */
void
front_flush(struct front *f)
{
	if (f->in_batch)
		return;
	emit_flush(f->parts.emit);
	way_batch_flush(f->datagrams);
}

int
front_add_udp(struct front *f, int fd)
{
	struct event *ev;

	if (f->n_sockets == FRONT_SOCKETS_MAX)
		return -ENOSPC;
	ev = event_new(f->parts.base, fd, EV_READ | EV_PERSIST, on_datagrams,
	    f);
	if (ev == NULL || event_add(ev, NULL) < 0) {
		if (ev != NULL)
			event_free(ev);
		return -ENOMEM;
	}
	f->sockets[f->n_sockets++] = ev;
	return 0;
}
