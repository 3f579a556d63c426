/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_PER_TURN 128

struct watch {
	int fd;
	bool turning;
	struct event *ev;
	watch_fn *seen;
	void (*over)(void *arg);
	void *arg;
};

/* The tag stands in the bits that alignment leaves free. */
static uint64_t
pack(void *owner, unsigned tag)
{
	return (uint64_t)(uintptr_t)owner | tag;
}

static void *
owner_of(uint64_t packed)
{
	return (void *)(uintptr_t)(packed & ~(uint64_t)(WATCH_TAGS - 1));
}

/* What is left over after one turn is still there in the next: the loop
 * watches this epoll level-triggered. */
static void
on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct epoll_event events[EVENTS_PER_TURN];
	struct watch *w = arg;
	int n = epoll_wait(fd, events, EVENTS_PER_TURN, 0);

	(void)what;
	w->turning = true;
	for (int i = 0; i < n; i++)
		w->seen(owner_of(events[i].data.u64),
		    events[i].data.u64 & (WATCH_TAGS - 1), events[i].events);
	w->turning = false;
	w->over(w->arg);
}

int
watch_new(struct watch **out, struct event_base *base, watch_fn *seen,
    void (*over)(void *arg), void *arg)
{
	struct watch *w = calloc(1, sizeof(*w));
	int e;

	if (w == NULL)
		return -ENOMEM;
	w->seen = seen;
	w->over = over;
	w->arg = arg;
	w->fd = epoll_create1(EPOLL_CLOEXEC);
	e = w->fd < 0 ? -errno : 0;
	if (e == 0)
		w->ev = event_new(base, w->fd, EV_READ | EV_PERSIST,
		    on_ready, w);
	if (e == 0 && (w->ev == NULL || event_add(w->ev, NULL) < 0))
		e = -ENOMEM;
	if (e < 0) {
		watch_free(w);
		return e;
	}
	*out = w;
	return 0;
}

void
watch_free(struct watch *w)
{
	if (w == NULL)
		return;
	if (w->ev != NULL)
		event_free(w->ev);
	if (w->fd >= 0)
		close(w->fd);
	free(w);
}

/* Urgent data is input: a read stops short of it (see side_recv), and the
 * kernel wakes whoever waits for either. */
#define INPUT (EPOLLIN | EPOLLPRI)

static int
control(struct watch *w, int op, int fd, uint64_t packed, uint32_t input)
{
	struct epoll_event e = {
		.events = input | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.u64 = packed,
	};

	return epoll_ctl(w->fd, op, fd, &e) < 0 ? -errno : 0;
}

int
watch_add(struct watch *w, int fd, void *owner, unsigned tag)
{
	return control(w, EPOLL_CTL_ADD, fd, pack(owner, tag), INPUT);
}

int
watch_input(struct watch *w, int fd, void *owner, unsigned tag, bool on)
{
	return control(w, EPOLL_CTL_MOD, fd, pack(owner, tag),
	    on ? INPUT : 0);
}

bool
watch_turning(const struct watch *w)
{
	return w->turning;
}
