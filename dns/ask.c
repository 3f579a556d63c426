/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ledger-client/clock.h"

#define READS_PER_WAKE 64u

struct ask_call {
	struct ask *ask;
	struct ask_call *next, **prev;	/* the ask's list, oldest first */
	struct ask_question question;
	int64_t deadline_ms;
	bool failed;			/* answer with `why` at the next turn */
	enum reason why;
	ask_done *done;
	void *arg;
};

struct ask {
	struct event_base *base;
	struct event *readable, *timer;
	int fd;				/* -1: the resolver is away */
	uint64_t next_id;
	unsigned pending;
	struct ask_call *first, **last;
};

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_timer(evutil_socket_t fd, short what, void *arg);

static int
attach(struct ask *a, int fd)
{
	a->fd = fd;
	a->readable = event_new(a->base, fd, EV_READ | EV_PERSIST,
	    on_readable, a);
	if (a->readable == NULL || event_add(a->readable, NULL) < 0)
		return -ENOMEM;
	return 0;
}

static void
detach(struct ask *a)
{
	if (a->readable != NULL)
		event_free(a->readable);
	a->readable = NULL;
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
}

int
ask_new(struct ask **out, struct event_base *base, int fd)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return -ENOMEM;
	a->base = base;
	a->fd = fd;
	a->last = &a->first;
	a->timer = event_new(base, -1, 0, on_timer, a);
	if (a->timer == NULL || attach(a, fd) < 0) {
		ask_free(a);
		return -ENOMEM;
	}
	*out = a;
	return 0;
}

void
ask_free(struct ask *a)
{
	if (a == NULL)
		return;
	while (a->first != NULL)
		ask_cancel(a->first);
	detach(a);
	if (a->timer != NULL)
		event_free(a->timer);
	free(a);
}

static void
unlink_call(struct ask_call *c)
{
	*c->prev = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	else
		c->ask->last = c->prev;
	c->ask->pending--;
}

static void
finish(struct ask_call *c, const struct ask_answer *answer)
{
	ask_done *done = c->done;
	void *arg = c->arg;

	unlink_call(c);
	free(c);
	done(arg, answer);
}

/* Wake at the first deadline. */
static bool
arm(struct ask *a)
{
	struct timeval tv = { 0 };
	int64_t left;

	if (a->first == NULL)
		return true;
	left = a->first->deadline_ms - clock_mono_ms();
	if (left > 0) {
		tv.tv_sec = left / 1000;
		tv.tv_usec = left % 1000 * 1000;
	}
	return event_add(a->timer, &tv) == 0;
}

static void
fail_later(struct ask_call *c, enum reason why)
{
	c->failed = true;
	c->why = why;
	event_active(c->ask->timer, EV_TIMEOUT, 0);
}

/* REASON_NONE, or why it was not put. */
static enum reason
put(struct ask *a, const struct ask_question *q)
{
	if (a->fd < 0)
		return REASON_RESOLVER_UNAVAILABLE;
	/* a SEQPACKET sends a message whole or not at all */
	if (send(a->fd, q, sizeof(*q), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return REASON_NONE;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return REASON_LIMIT_TOTAL;
	return errno == ENOMEM || errno == ENOBUFS ? REASON_LIMIT_MEMORY :
	    REASON_RESOLVER_UNAVAILABLE;
}

/* REASON_NONE, or why it cannot be asked. */
static enum reason
fill(struct ask_question *q, const struct policy *p, uint32_t cell,
    const struct host *name)
{
	struct pin_cell v;

	if (p == NULL)
		return REASON_POLICY_UNAVAILABLE;
	if (!pin_cell_of(p, cell, &v) || v.id.len >= sizeof(q->cell) ||
	    v.run.len >= sizeof(q->run))
		return REASON_UNKNOWN_CELL;
	q->generation = policy_generation(p);
	memcpy(q->cell, v.id.data, v.id.len);
	if (v.run.len > 0)
		memcpy(q->run, v.run.data, v.run.len);
	q->name = *name;
	return REASON_NONE;
}

/* A place in the table and the time that ends it. */
static struct ask_call *
call_new(struct ask *a, const struct ask_question *q)
{
	struct ask_call *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->ask = a;
	c->question = *q;
	c->question.id = ++a->next_id;
	c->deadline_ms = clock_mono_ms() + ASK_TIMEOUT_MS;
	c->prev = a->last;
	*a->last = c;
	a->last = &c->next;
	if (a->pending++ > 0 || arm(a))
		return c;
	unlink_call(c);
	free(c);
	return NULL;
}

struct ask_call *
ask_start(struct ask *a, const struct policy *p, uint32_t cell,
    const struct host *name, ask_done *done, void *arg, enum reason *why)
{
	struct ask_question q = { 0 };
	struct ask_call *c;

	*why = a->fd < 0 ? REASON_RESOLVER_UNAVAILABLE :
	    a->pending >= ASK_PENDING_MAX ? REASON_LIMIT_TOTAL :
	    fill(&q, p, cell, name);
	if (*why != REASON_NONE)
		return NULL;
	c = call_new(a, &q);
	*why = c == NULL ? REASON_LIMIT_MEMORY : put(a, &c->question);
	if (*why != REASON_NONE) {
		if (c != NULL)
			ask_cancel(c);
		return NULL;
	}
	c->done = done;
	c->arg = arg;
	return c;
}

void
ask_cancel(struct ask_call *c)
{
	unlink_call(c);
	free(c);
}

int
ask_reconnect(struct ask *a, int fd)
{
	int rc;

	detach(a);
	rc = attach(a, fd);
	if (rc < 0)
		detach(a);
	for (struct ask_call *c = a->first; c != NULL; c = c->next) {
		enum reason why = put(a, &c->question);

		if (why != REASON_NONE)
			fail_later(c, why);
	}
	return rc;
}

static struct ask_call *
by_id(struct ask *a, uint64_t id)
{
	for (struct ask_call *c = a->first; c != NULL; c = c->next)
		if (c->question.id == id)
			return c;
	return NULL;
}

/* The resolver is a process of ours that reads hostile bytes: what it says
 * is checked. */
static bool
is_sound(const struct ask_answer *m, ssize_t n)
{
	return n == (ssize_t)sizeof(*m) && m->n_addrs <= PIN_ADDRS_MAX &&
	    m->reason < REASON_COUNT &&
	    (m->reason != REASON_NONE || m->n_addrs > 0);
}

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct ask *a = arg;
	struct ask_answer m;

	(void)what;
	/* done may have attached another socket meanwhile */
	for (unsigned i = 0; i < READS_PER_WAKE && a->fd == fd; i++) {
		/* MSG_TRUNC: the length that was sent, though it is longer */
		ssize_t n = recv(fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
		struct ask_call *c;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			/* questions wait for ask_reconnect or time out */
			detach(a);
			return;
		}
		if (!is_sound(&m, n))
			continue;
		c = by_id(a, m.id);
		if (c != NULL)
			finish(c, &m);
	}
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ask *a = arg;
	struct ask_answer no = { 0 };
	int64_t now = clock_mono_ms();
	bool again = true;

	(void)fd;
	(void)what;
	/* done may change the list: look from the start each time */
	while (again) {
		again = false;
		for (struct ask_call *c = a->first; c != NULL; c = c->next) {
			if (!c->failed && c->deadline_ms > now)
				continue;
			no.id = c->question.id;
			no.reason = c->failed ? c->why : REASON_DNS_TIMEOUT;
			finish(c, &no);
			again = true;
			break;
		}
	}
	/* its place among the timers is the one that it had */
	(void)arm(a);
}
