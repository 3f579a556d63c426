/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/upstream.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#include "dns/dot.h"
#include "dns/message.h"
#include "ledger-client/clock.h"
#include "ledger-client/log.h"

#define TIMEOUT_MS 2000

#define X(ms) ms,
const uint32_t upstream_took_ms[UPSTREAM_TOOK_N] = { UPSTREAM_TOOK_MS(X) };
#undef X

/* One of the servers, and what is known of it. */
struct peer {
	struct server is;
	struct channels *channels;	/* or */
	struct dot *dot;
	unsigned failed;		/* times in a row */
	uint64_t answered_us;		/* when it last did */
	int64_t down_until_ms;
	struct upstream_state state;
};

struct upstream {
	struct peer servers[UPSTREAM_SERVERS_MAX];
	size_t n_servers;
	struct question *questions;	/* open */
};

/* One question, from try to try. */
struct question {
	struct upstream *upstream;
	struct question *next, **prev;
	struct host name;
	uint16_t type;
	uint8_t order[UPSTREAM_SERVERS_MAX];	/* of the servers */
	unsigned tries;
	bool tcp;			/* this try: the case was another */
	uint64_t started_us, try_us;
	enum reason reason;		/* of the last failure */
	upstream_done *done;
	void *arg;
	uint8_t query[MESSAGE_ASK_MAX_BYTES];
	size_t query_len;
};

static void put(struct question *q);

static uint64_t
now_us(void)
{
	return (uint64_t)clock_mono_us();
}

static int
peer_new(struct peer *s, struct event_base *base,
    const struct upstream_settings *set, const struct server *is)
{
	unsigned timeout = set->timeout_ms > 0 ? set->timeout_ms :
	    TIMEOUT_MS;

	s->is = *is;
	if (is->tls_name[0] == '\0')
		return channels_new(&s->channels, base, &is->at, timeout);
	return set->tls == NULL ? -EINVAL :
	    dot_new(&s->dot, base, &is->at, is->tls_name, set->tls, timeout);
}

int
upstream_new(struct upstream **out, struct event_base *base,
    const struct upstream_settings *set)
{
	struct upstream *u;
	int rc = 0;

	if (set->n_servers == 0 || set->n_servers > UPSTREAM_SERVERS_MAX)
		return -EINVAL;
	u = calloc(1, sizeof(*u));
	if (u == NULL)
		return -ENOMEM;
	u->n_servers = set->n_servers;
	for (size_t i = 0; i < set->n_servers && rc == 0; i++)
		rc = peer_new(&u->servers[i], base, set, &set->servers[i]);
	if (rc != 0) {
		upstream_free(u);
		return rc;
	}
	*out = u;
	return 0;
}

static void
question_free(struct question *q)
{
	*q->prev = q->next;
	if (q->next != NULL)
		q->next->prev = q->prev;
	free(q);
}

void
upstream_free(struct upstream *u)
{
	if (u == NULL)
		return;
	for (size_t i = 0; i < u->n_servers; i++) {
		channels_free(u->servers[i].channels);
		dot_free(u->servers[i].dot);
	}
	while (u->questions != NULL)
		question_free(u->questions);
	free(u);
}

/* ---- which server ---- */

static bool
is_down(const struct peer *s)
{
	return s->down_until_ms > clock_mono_ms();
}

/* As they are listed; those that are down come last. */
static void
choose_order(struct question *q)
{
	const struct upstream *u = q->upstream;
	uint8_t n = 0;

	for (unsigned down = 0; down < 2; down++)
		for (uint8_t i = 0; i < u->n_servers; i++)
			if (is_down(&u->servers[i]) == (down == 1) &&
			    n < u->n_servers)
				q->order[n++] = i;
	for (uint8_t i = 0; n < u->n_servers; i++)	/* one came back */
		q->order[n++] = i;
}

static unsigned
server_index(const struct question *q)
{
	return q->order[(q->tries - 1) % q->upstream->n_servers];
}

static struct peer *
peer_of(const struct question *q)
{
	return &q->upstream->servers[server_index(q)];
}

static bool
may_try(const struct question *q)
{
	return q->tries < UPSTREAM_TRIES &&
	    q->tries < UPSTREAM_TRIES_EACH * q->upstream->n_servers;
}

/* Not where it answered others while this one waited: that is the name's, whose
 * own servers keep it waiting. */
static void
peer_failed(struct peer *s, uint64_t asked_us)
{
	char at[ADDR_TEXT_BYTES];

	if (s->answered_us > asked_us || ++s->failed < UPSTREAM_DOWN_AFTER)
		return;
	if (s->failed == UPSTREAM_DOWN_AFTER)
		log_line(LOG_WARN, "resolver %s does not answer",
		    endpoint_text(&s->is.at, at));
	s->down_until_ms = clock_mono_ms() + UPSTREAM_DOWN_MS;
}

static void
peer_answered(struct peer *s, uint64_t us)
{
	char at[ADDR_TEXT_BYTES];
	size_t k = 0;

	while (k < UPSTREAM_TOOK_N && us > upstream_took_ms[k] * UINT64_C(1000))
		k++;
	s->state.took[k]++;
	s->state.answered++;
	s->state.answered_us += us;
	s->answered_us = now_us();
	if (s->failed >= UPSTREAM_DOWN_AFTER)
		log_line(LOG_WARN, "resolver %s answers again",
		    endpoint_text(&s->is.at, at));
	s->failed = 0;
	s->down_until_ms = 0;
}

/* ---- what comes back ---- */

static void
finish(struct question *q, enum reason why, struct span msg)
{
	struct upstream_answer a = {
		.reason = why, .msg = msg, .tries = q->tries,
		.server = server_index(q), .us = now_us() - q->started_us,
	};
	upstream_done *done = q->done;
	void *arg = q->arg;

	question_free(q);
	done(arg, &a);
}

static void
try_next(struct question *q, enum reason why)
{
	struct peer *s = peer_of(q);

	q->reason = why;
	if (why == REASON_DNS_TIMEOUT)
		s->state.timeouts++;
	else
		s->state.failures++;
	q->tcp = false;
	if (may_try(q))
		put(q);
	else
		finish(q, why, span_of(NULL, 0));
}

/* The server's own fault. */
static void
try_failed(struct question *q, enum reason why)
{
	peer_failed(peer_of(q), q->try_us);
	try_next(q, why);
}

static void
judge(struct question *q, struct span msg)
{
	struct peer *s = peer_of(q);
	enum message_echo echo = message_echo(span_of(q->query,
	    q->query_len), msg);
	unsigned rcode = msg.len > 3 ? msg.data[3] & 15u : 15;

	if (echo == MESSAGE_OTHER_CASE && !q->tcp && s->dot == NULL) {
		/* a guess, or a server that keeps no case: where nobody can
		 * put in a guess it makes no difference */
		s->state.other_case++;
		q->tcp = true;
		q->tries--;
		put(q);
		return;
	}
	if (echo == MESSAGE_OTHER) {
		try_failed(q, REASON_DNS_SERVFAIL);
		return;
	}
	if (rcode != RCODE_NOERROR && rcode != RCODE_NXDOMAIN) {
		/* the name's: whoever may ask for one of a broken zone must
		 * not put the server behind for all */
		try_next(q, REASON_DNS_SERVFAIL);
		return;
	}
	peer_answered(s, now_us() - q->try_us);
	finish(q, REASON_NONE, msg);
}

static void
on_done(void *arg, enum channel_end end, struct span msg)
{
	struct question *q = arg;

	switch (end) {
	case CHANNEL_ANSWERED:
		judge(q, msg);
		return;
	case CHANNEL_TIMEOUT:
		try_failed(q, REASON_DNS_TIMEOUT);
		return;
	case CHANNEL_FAILED:
		try_failed(q, REASON_DNS_SERVFAIL);
		return;
	case CHANNEL_MEMORY:
		try_next(q, REASON_LIMIT_MEMORY);	/* our own fault */
		return;
	}
}

/* ---- asking ---- */

/* The next try: capitals and number anew each time. */
static void
put(struct question *q)
{
	uint8_t capitals[32];
	struct peer *s;

	q->tries++;
	s = peer_of(q);
	s->state.asked++;
	q->try_us = now_us();
	randombytes_buf(capitals, sizeof(capitals));
	q->query_len = message_ask(&q->name, q->type, 0, capitals,
	    s->dot != NULL ? DOT_PAD_BYTES : 0, q->query);
	if (s->dot != NULL)
		dot_ask(s->dot, q->query, q->query_len, on_done, q);
	else
		channels_ask(s->channels, q->query, q->query_len, q->tcp,
		    on_done, q);
}

void
upstream_ask(struct upstream *u, const struct host *name, uint16_t type,
    upstream_done *done, void *arg)
{
	struct question *q = calloc(1, sizeof(*q));

	if (q == NULL) {
		done(arg, &(struct upstream_answer){
		    .reason = REASON_LIMIT_MEMORY });
		return;
	}
	q->upstream = u;
	q->name = *name;
	q->type = type;
	q->started_us = now_us();
	q->done = done;
	q->arg = arg;
	q->next = u->questions;
	if (q->next != NULL)
		q->next->prev = &q->next;
	q->prev = &u->questions;
	u->questions = q;
	choose_order(q);
	put(q);
}

size_t
upstream_states(const struct upstream *u,
    struct upstream_state out[static UPSTREAM_SERVERS_MAX])
{
	for (size_t i = 0; i < u->n_servers; i++) {
		out[i] = u->servers[i].state;
		out[i].is = u->servers[i].is;
		out[i].at = u->servers[i].is.at;
		out[i].tls = u->servers[i].dot != NULL;
		out[i].down = is_down(&u->servers[i]);
	}
	return u->n_servers;
}
