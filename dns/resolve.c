/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolve.h"

#include <ares.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "dns/message.h"
#include "ledger-client/clock.h"

#define BUCKETS 1024u
#define SOCKETS_MAX 64u	/* more than c-ares has: two a server */
#define POLL_MS 20		/* of sockets that cannot be watched */

/* One name that is being asked for, and everyone who waits for it. */
struct job {
	struct resolve *resolve;
	struct job *next, **prev;	/* of the bucket */
	struct host name;
	unsigned epoch;			/* of the servers that were asked */
	unsigned open;			/* queries not answered */
	struct cache_answer a, aaaa;
	struct resolve_call *first, **last;
	struct event *finish;		/* answers are given from the loop */
};

struct resolve_call {
	struct job *job;
	struct resolve_call *next, **prev;
	resolve_done *done;
	void *arg;
};

/* One family of a job, as c-ares hands it back. */
struct query {
	struct job *job;
	uint16_t type;
};

struct resolve {
	struct event_base *base;
	struct resolve_settings settings;
	struct cache *cache;
	ares_channel channel;
	struct event *sockets[SOCKETS_MAX];
	evutil_socket_t fds[SOCKETS_MAX];
	bool polled[SOCKETS_MAX];	/* without memory for its event */
	struct event *timer;
	struct job *buckets[BUCKETS];
	unsigned pending;
	unsigned epoch;			/* of the servers */
	bool closing;
};

/* ---- c-ares on the event base ---- */

static void
arm_timer(struct resolve *r)
{
	struct timeval most = { .tv_usec = POLL_MS * 1000 }, tv;
	struct timeval *left = NULL;

	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		if (r->polled[i])
			left = &most;
	left = ares_timeout(r->channel, left, &tv);
	if (left == NULL)
		event_del(r->timer);
	else
		event_add(r->timer, left);
}

static void
on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct resolve *r = arg;

	ares_process_fd(r->channel,
	    what & EV_READ ? fd : ARES_SOCKET_BAD,
	    what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	arm_timer(r);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct resolve *r = arg;

	(void)fd;
	(void)what;
	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		if (r->polled[i])
			ares_process_fd(r->channel, r->fds[i], r->fds[i]);
	ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm_timer(r);
}

/* The place of a descriptor, or a free one. */
static unsigned
socket_place(const struct resolve *r, evutil_socket_t fd)
{
	unsigned empty = SOCKETS_MAX;

	for (unsigned i = 0; i < SOCKETS_MAX; i++) {
		bool used = r->sockets[i] != NULL || r->polled[i];

		if (used && r->fds[i] == fd)
			return i;
		if (!used && empty == SOCKETS_MAX)
			empty = i;
	}
	return empty;
}

static void
on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct resolve *r = arg;
	unsigned i = socket_place(r, fd);
	short what = (short)((readable ? EV_READ : 0) |
	    (writable ? EV_WRITE : 0));

	if (i == SOCKETS_MAX)
		return;
	if (r->sockets[i] != NULL)
		event_free(r->sockets[i]);
	r->sockets[i] = NULL;
	r->polled[i] = false;
	if (what == 0)
		return;
	r->fds[i] = fd;
	r->sockets[i] = event_new(r->base, fd, (short)(what | EV_PERSIST),
	    on_socket, r);
	if (r->sockets[i] != NULL && event_add(r->sockets[i], NULL) == 0)
		return;
	/* its answer would end as a time-out */
	if (r->sockets[i] != NULL)
		event_free(r->sockets[i]);
	r->sockets[i] = NULL;
	r->polled[i] = true;
}

/* "1.2.3.4:53,[2001:db8::1]:53" */
static int
set_servers(struct resolve *r)
{
	char csv[8 * (ADDR_TEXT_BYTES + 1)] = "";
	size_t at = 0;

	for (size_t i = 0; i < r->settings.n_servers; i++) {
		char text[ADDR_TEXT_BYTES];
		int n = snprintf(csv + at, sizeof(csv) - at, "%s%s",
		    i > 0 ? "," : "",
		    endpoint_text(&r->settings.servers[i], text));

		at += (size_t)n;
	}
	return ares_set_servers_ports_csv(r->channel, csv) == ARES_SUCCESS ?
	    0 : -EINVAL;
}

static int
open_channel(struct resolve *r)
{
	char lookups[] = "b";
	struct ares_options o = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES |
		    ARES_FLAG_EDNS,
		.timeout = (int)r->settings.timeout_ms,
		.tries = (int)r->settings.tries,
		.ednspsz = 1232,
		.lookups = lookups,
		.sock_state_cb = on_socket_state,
		.sock_state_cb_data = r,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
	    ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB |
	    ARES_OPT_DOMAINS | ARES_OPT_NOROTATE;

	if (ares_init_options(&r->channel, &o, mask) != ARES_SUCCESS)
		return -ENOMEM;
	return set_servers(r);
}

static void
defaults(struct resolve_settings *s)
{
	if (s->timeout_ms == 0)
		s->timeout_ms = 2000;
	if (s->tries == 0)
		s->tries = 2;
	if (s->pending_max == 0)
		s->pending_max = 4096;
}

int
resolve_new(struct resolve **out, struct event_base *base,
    const struct resolve_settings *s, struct cache *cache)
{
	struct resolve *r;

	if (s->n_servers == 0 || s->n_servers > 8)
		return -EINVAL;
	if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
		return -ENOMEM;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->base = base;
	r->cache = cache;
	r->settings = *s;
	defaults(&r->settings);
	r->timer = event_new(base, -1, 0, on_timer, r);
	if (r->timer == NULL || open_channel(r) < 0) {
		resolve_free(r);
		return -EINVAL;
	}
	*out = r;
	return 0;
}

void
resolve_free(struct resolve *r)
{
	if (r == NULL)
		return;
	r->closing = true;
	if (r->channel != NULL)
		ares_destroy(r->channel);
	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		if (r->sockets[i] != NULL)
			event_free(r->sockets[i]);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (r->buckets[i] != NULL) {
			struct job *j = r->buckets[i];

			r->buckets[i] = j->next;
			while (j->first != NULL) {
				struct resolve_call *c = j->first;

				j->first = c->next;
				free(c);
			}
			event_free(j->finish);
			free(j);
		}
	if (r->timer != NULL)
		event_free(r->timer);
	ares_library_cleanup();
	free(r);
}

int
resolve_reconfigure(struct resolve *r, const struct resolve_settings *s)
{
	bool same = s->n_servers == r->settings.n_servers;

	if (s->n_servers == 0 || s->n_servers > 8)
		return -EINVAL;
	for (size_t i = 0; same && i < s->n_servers; i++)
		same = endpoint_eq(&s->servers[i], &r->settings.servers[i]);
	r->settings = *s;
	defaults(&r->settings);
	if (same)
		return 0;
	/* what ends from here on is not of these servers: see on_finish */
	r->epoch++;
	ares_cancel(r->channel);
	cache_flush(r->cache);
	return set_servers(r);
}

/* ---- jobs ---- */

/* What one family says; the TTL of a failure is the cache's affair. */
static void
read_reply(struct query *q, int status, const uint8_t *msg, int len,
    struct cache_answer *out)
{
	uint8_t rcode = RCODE_SERVFAIL;

	memset(out, 0, sizeof(*out));
	out->reason = status == ARES_ETIMEOUT ? REASON_DNS_TIMEOUT :
	    status == ARES_ENOMEM ? REASON_LIMIT_MEMORY :
	    REASON_DNS_SERVFAIL;
	if (msg == NULL || len <= 0 || message_addrs(span_of(msg,
	    (size_t)len), &q->job->name, q->type, out->addrs, &out->n_addrs,
	    &out->ttl_s, &rcode) != PARSE_DONE) {
		out->n_addrs = 0;
		return;
	}
	if (rcode == RCODE_NXDOMAIN && out->n_addrs == 0)
		out->reason = REASON_DNS_NXDOMAIN;
	else if (rcode == RCODE_NOERROR)
		out->reason = out->n_addrs > 0 ? REASON_NONE :
		    REASON_DNS_NODATA;
	else
		out->n_addrs = 0;
}

static void
on_reply(void *arg, int status, int timeouts, unsigned char *msg, int len)
{
	struct query *q = arg;
	struct job *j = q->job;

	(void)timeouts;
	if (!j->resolve->closing) {
		read_reply(q, status, msg, len,
		    q->type == TYPE_A ? &j->a : &j->aaaa);
		if (--j->open == 0)
			event_active(j->finish, EV_TIMEOUT, 0);
	}
	free(q);
}

/* How much a failure says against what the other family says. */
static int
weight(enum reason why)
{
	return why == REASON_DNS_NODATA ? 0 :
	    why == REASON_DNS_NXDOMAIN ? 1 : 2;
}

/* Both families as one answer.  Addresses of one outweigh a failure of the
 * other, but are kept no longer than that; of two failures the one that is no
 * absence counts. */
static void
merge(const struct job *j, struct cache_answer *out)
{
	const struct cache_answer *a = &j->a, *b = &j->aaaa;

	*out = *a;
	if (a->reason == REASON_NONE && b->reason == REASON_NONE) {
		if (b->ttl_s < out->ttl_s)
			out->ttl_s = b->ttl_s;
		for (uint32_t i = 0; i < b->n_addrs &&
		    out->n_addrs < PIN_ADDRS_MAX; i++)
			out->addrs[out->n_addrs++] = b->addrs[i];
		return;
	}
	if (a->reason != REASON_NONE && (b->reason == REASON_NONE ||
	    !j->resolve->settings.ipv4 ||
	    weight(b->reason) > weight(a->reason)))
		*out = *b;
	if (out->reason == REASON_NONE && out->ttl_s > CACHE_FAILURE_S &&
	    weight(a->reason != REASON_NONE ? a->reason : b->reason) == 2)
		out->ttl_s = CACHE_FAILURE_S;
}

static void
unlink_job(struct job *j)
{
	*j->prev = j->next;
	if (j->next != NULL)
		j->next->prev = j->prev;
	j->resolve->pending--;
}

static void
put_query(struct job *j, uint16_t type)
{
	struct query *q = malloc(sizeof(*q));
	struct cache_answer *out = type == TYPE_A ? &j->a : &j->aaaa;

	if (q == NULL) {
		out->reason = REASON_LIMIT_MEMORY;
		return;
	}
	*q = (struct query){ .job = j, .type = type };
	j->open++;
	ares_query(j->resolve->channel, j->name.name, 1, type, on_reply, q);
}

static void
ask(struct job *j)
{
	struct resolve *r = j->resolve;

	memset(&j->a, 0, sizeof(j->a));
	memset(&j->aaaa, 0, sizeof(j->aaaa));
	j->a.reason = j->aaaa.reason = REASON_DNS_NODATA;
	j->epoch = r->epoch;
	/* held open until both families were put */
	j->open = 1;
	if (r->settings.ipv4)
		put_query(j, TYPE_A);
	if (r->settings.ipv6)
		put_query(j, TYPE_AAAA);
	if (--j->open == 0)
		event_active(j->finish, EV_TIMEOUT, 0);
	arm_timer(r);
}

static void
on_finish(evutil_socket_t fd, short what, void *arg)
{
	struct job *j = arg;
	struct cache_answer answer;

	(void)fd;
	(void)what;
	/* cancelled, or an answer of servers that are ours no more */
	if (j->epoch != j->resolve->epoch && j->first != NULL) {
		ask(j);
		return;
	}
	merge(j, &answer);
	/* memory may be there for the next one that asks */
	if (answer.reason != REASON_LIMIT_MEMORY &&
	    j->epoch == j->resolve->epoch)
		cache_put(j->resolve->cache, &j->name, &answer,
		    clock_mono_ms());
	/* the clamped time to live is what everybody is told */
	if (!cache_get(j->resolve->cache, &j->name, clock_mono_ms(), &answer))
		answer.ttl_s = 1;
	unlink_job(j);
	while (j->first != NULL) {
		struct resolve_call *c = j->first;
		resolve_done *done = c->done;
		void *user = c->arg;

		j->first = c->next;
		if (j->first != NULL)
			j->first->prev = &j->first;
		free(c);
		done(user, &answer);
	}
	event_free(j->finish);
	free(j);
}

static struct job **
bucket(struct resolve *r, const struct host *name)
{
	uint32_t h = 5381;

	for (size_t i = 0; i < name->len; i++)
		h = h * 33 + (uint8_t)name->name[i];
	return &r->buckets[h % BUCKETS];
}

static struct job *
job_new(struct resolve *r, const struct host *name, enum reason *why)
{
	struct job *j, **head = bucket(r, name);

	*why = REASON_LIMIT_TOTAL;
	if (r->pending >= r->settings.pending_max)
		return NULL;
	*why = REASON_LIMIT_MEMORY;
	j = calloc(1, sizeof(*j));
	if (j == NULL)
		return NULL;
	j->finish = event_new(r->base, -1, 0, on_finish, j);
	if (j->finish == NULL) {
		free(j);
		return NULL;
	}
	j->resolve = r;
	j->name = *name;
	j->last = &j->first;
	j->next = *head;
	if (j->next != NULL)
		j->next->prev = &j->next;
	j->prev = head;
	*head = j;
	r->pending++;
	ask(j);
	return j;
}

bool
resolve_cached(struct resolve *r, const struct host *name,
    struct cache_answer *out)
{
	return cache_get(r->cache, name, clock_mono_ms(), out);
}

struct resolve_call *
resolve_start(struct resolve *r, const struct host *name,
    resolve_done *done, void *arg, enum reason *why)
{
	struct job *j = *bucket(r, name);
	struct resolve_call *c = calloc(1, sizeof(*c));

	*why = REASON_LIMIT_MEMORY;
	if (c == NULL)
		return NULL;
	while (j != NULL && !host_eq(&j->name, name))
		j = j->next;
	if (j == NULL)
		j = job_new(r, name, why);
	if (j == NULL) {
		free(c);
		return NULL;
	}
	*c = (struct resolve_call){ .job = j, .prev = j->last, .done = done,
	    .arg = arg };
	*j->last = c;
	j->last = &c->next;
	return c;
}

void
resolve_cancel(struct resolve_call *c)
{
	*c->prev = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	else
		c->job->last = c->prev;
	free(c);
}
