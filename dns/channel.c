/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/channel.h"

/* 1.34 deprecates ares_send, which 1.18 has alone */
#define CARES_NO_DEPRECATED
#include <ares.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "ledger-client/clock.h"

#define SOCKETS 4u		/* c-ares has two for one server */
#define POLL_MS 20		/* of sockets that cannot be watched */

struct watched {
	struct event *event;		/* NULL, polled: no memory for it */
	evutil_socket_t fd;
	bool polled;
};

/* One c-ares channel. */
struct channel {
	struct channels *of;
	struct channel *next;		/* of those that end */
	ares_channel ares;
	struct watched sockets[SOCKETS];
	struct event *timer;
	int64_t opened_ms;
	unsigned sent, open;
	bool retired;
	uint16_t ids[CHANNEL_MESSAGES];	/* that were sent: none twice */
};

/* Those for UDP, then one for TCP alone. */
#define SLOTS (CHANNEL_POOL + 1)

struct channels {
	struct event_base *base;
	struct endpoint server;
	unsigned timeout_ms;
	struct channel *slots[SLOTS];
	struct channel *ending;		/* their last answers are awaited */
	struct event *reap;
	bool closing;
};

struct message {
	struct channel *channel;
	channel_done *done;
	void *arg;
	uint16_t id;
};

/* ---- c-ares on the event base ---- */

static void
arm_timer(struct channel *c)
{
	struct timeval most = { .tv_usec = POLL_MS * 1000 }, tv;
	struct timeval *left = NULL;

	for (unsigned i = 0; i < SOCKETS; i++)
		if (c->sockets[i].polled)
			left = &most;
	left = ares_timeout(c->ares, left, &tv);
	if (left == NULL) {
		event_del(c->timer);
		return;
	}
	/* the loop counts in milliseconds: for less it would turn and turn */
	if (left->tv_sec == 0 && left->tv_usec < 1000)
		left->tv_usec = 1000;
	event_add(c->timer, left);
}

static void
on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct channel *c = arg;

	ares_process_fd(c->ares,
	    what & EV_READ ? fd : ARES_SOCKET_BAD,
	    what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	arm_timer(c);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct channel *c = arg;

	(void)fd;
	(void)what;
	for (unsigned i = 0; i < SOCKETS; i++)
		if (c->sockets[i].polled)
			ares_process_fd(c->ares, c->sockets[i].fd,
			    c->sockets[i].fd);
	ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm_timer(c);
}

/* The place of a descriptor, or a free one; NULL: none. */
static struct watched *
place_of(struct channel *c, evutil_socket_t fd)
{
	struct watched *empty = NULL;

	for (unsigned i = 0; i < SOCKETS; i++) {
		struct watched *w = &c->sockets[i];
		bool used = w->event != NULL || w->polled;

		if (used && w->fd == fd)
			return w;
		if (!used && empty == NULL)
			empty = w;
	}
	return empty;
}

static void
on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct channel *c = arg;
	struct watched *w = place_of(c, fd);
	short what = (short)((readable ? EV_READ : 0) |
	    (writable ? EV_WRITE : 0));

	if (w == NULL)
		return;
	if (w->event != NULL)
		event_free(w->event);
	*w = (struct watched){ .fd = fd };
	if (what == 0)
		return;
	w->event = event_new(c->of->base, fd, (short)(what | EV_PERSIST),
	    on_socket, c);
	if (w->event != NULL && event_add(w->event, NULL) == 0)
		return;
	/* its answer would end as a time-out */
	if (w->event != NULL)
		event_free(w->event);
	*w = (struct watched){ .fd = fd, .polled = true };
}

/* Everything that c-ares would look for in files or the environment is given,
 * so it reads none. */
static int
open_ares(struct channel *c, bool tcp)
{
	char lookups[] = "b", text[ADDR_TEXT_BYTES];
	struct in_addr placeholder = { 0 };
	struct ares_options o = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES |
		    ARES_FLAG_EDNS | ARES_FLAG_NOCHECKRESP |
		    (tcp ? ARES_FLAG_USEVC : 0),
		.timeout = (int)c->of->timeout_ms, .tries = 1, .ndots = 1,
		.servers = &placeholder, .nservers = 1, .ednspsz = 1232,
		.lookups = lookups,
		.sock_state_cb = on_socket_state, .sock_state_cb_data = c,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
	    ARES_OPT_NDOTS | ARES_OPT_SERVERS | ARES_OPT_DOMAINS |
	    ARES_OPT_SORTLIST | ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS |
	    ARES_OPT_SOCK_STATE_CB | ARES_OPT_NOROTATE;

#ifdef ARES_OPT_QUERY_CACHE
	mask |= ARES_OPT_QUERY_CACHE;	/* of none: dns/cache is the one */
#endif
	if (ares_init_options(&c->ares, &o, mask) != ARES_SUCCESS) {
		c->ares = NULL;
		return -ENOMEM;
	}
	return ares_set_servers_ports_csv(c->ares, endpoint_text(
	    &c->of->server, text)) == ARES_SUCCESS ? 0 : -EINVAL;
}

static void
channel_free(struct channel *c)
{
	if (c == NULL)
		return;
	if (c->ares != NULL)
		ares_destroy(c->ares);
	for (unsigned i = 0; i < SOCKETS; i++)
		if (c->sockets[i].event != NULL)
			event_free(c->sockets[i].event);
	if (c->timer != NULL)
		event_free(c->timer);
	free(c);
}

static struct channel *
channel_new(struct channels *of, bool tcp)
{
	struct channel *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->of = of;
	c->opened_ms = clock_mono_ms();
	c->timer = event_new(of->base, -1, 0, on_timer, c);
	if (c->timer == NULL || open_ares(c, tcp) < 0) {
		channel_free(c);
		return NULL;
	}
	return c;
}

/* ---- the pool ---- */

/* From the loop: c-ares does not take its end from its own callback. */
static void
on_reap(evutil_socket_t fd, short what, void *arg)
{
	struct channels *cs = arg;

	(void)fd;
	(void)what;
	for (struct channel **p = &cs->ending; *p != NULL;) {
		struct channel *c = *p;

		if (c->open > 0) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		channel_free(c);
	}
}

int
channels_new(struct channels **out, struct event_base *base,
    const struct endpoint *server, unsigned timeout_ms)
{
	struct channels *cs = calloc(1, sizeof(*cs));

	if (cs == NULL)
		return -ENOMEM;
	cs->base = base;
	cs->server = *server;
	cs->timeout_ms = timeout_ms;
	cs->reap = event_new(base, -1, 0, on_reap, cs);
	if (cs->reap == NULL) {
		free(cs);
		return -ENOMEM;
	}
	/* tells a server that cannot be used before anybody asks */
	cs->slots[0] = channel_new(cs, false);
	if (cs->slots[0] == NULL) {
		channels_free(cs);
		return -EINVAL;
	}
	*out = cs;
	return 0;
}

void
channels_free(struct channels *cs)
{
	if (cs == NULL)
		return;
	cs->closing = true;
	for (unsigned i = 0; i < SLOTS; i++)
		channel_free(cs->slots[i]);
	while (cs->ending != NULL) {
		struct channel *c = cs->ending;

		cs->ending = c->next;
		channel_free(c);
	}
	event_free(cs->reap);
	free(cs);
}

static void
retire(struct channels *cs, struct channel *c)
{
	c->retired = true;
	c->next = cs->ending;
	cs->ending = c;
	if (c->open == 0)
		event_active(cs->reap, EV_TIMEOUT, 0);
}

static struct channel *
take(struct channels *cs, bool tcp)
{
	struct channel **slot = &cs->slots[tcp ? CHANNEL_POOL :
	    randombytes_uniform(CHANNEL_POOL)];
	struct channel *c = *slot;

	if (c != NULL && c->sent < CHANNEL_MESSAGES &&
	    clock_mono_ms() - c->opened_ms < CHANNEL_LIFE_MS)
		return c;
	*slot = channel_new(cs, tcp);
	if (*slot == NULL) {
		*slot = c;	/* the old one waits for memory */
		return NULL;
	}
	if (c != NULL)
		retire(cs, c);
	return *slot;
}

/* ---- messages ---- */

static uint16_t
id_new(struct channel *c)
{
	uint16_t id;
	unsigned i;

	do {
		id = (uint16_t)randombytes_random();
		for (i = 0; i < c->sent && c->ids[i] != id; i++)
			continue;
	} while (i < c->sent);
	c->ids[c->sent++] = id;
	return id;
}

static void
put_id(uint8_t *msg, uint16_t id)
{
	msg[0] = (uint8_t)(id >> 8);
	msg[1] = (uint8_t)id;
}

static enum channel_end
end_of(int status, const uint8_t *msg)
{
	if (status == ARES_ENOMEM)
		return CHANNEL_MEMORY;
	if (status == ARES_ETIMEOUT)
		return CHANNEL_TIMEOUT;
	return msg != NULL ? CHANNEL_ANSWERED : CHANNEL_FAILED;
}

static void
on_answer(void *arg, int status, int timeouts, unsigned char *msg, int len)
{
	struct message *m = arg;
	struct channel *c = m->channel;
	struct message was = *m;

	(void)timeouts;
	free(m);
	c->open--;
	if (c->of->closing)
		return;
	/* c-ares has matched the ID; newer ones send an ID of their own */
	if (msg != NULL && len >= 2)
		put_id(msg, was.id);
	if (c->open == 0 && c->retired)
		event_active(c->of->reap, EV_TIMEOUT, 0);
	was.done(was.arg, end_of(status, msg),
	    span_of(msg, msg != NULL && len > 0 ? (size_t)len : 0));
}

void
channels_ask(struct channels *cs, uint8_t *query, size_t len, bool tcp,
    channel_done *done, void *arg)
{
	struct message *m = malloc(sizeof(*m));
	struct channel *c = m == NULL ? NULL : take(cs, tcp);

	if (c == NULL) {
		free(m);
		done(arg, CHANNEL_MEMORY, span_of(NULL, 0));
		return;
	}
	*m = (struct message){ .channel = c, .done = done, .arg = arg,
	    .id = id_new(c) };
	put_id(query, m->id);
	c->open++;
	ares_send(c->ares, query, (int)len, on_answer, m);
	arm_timer(c);
}
