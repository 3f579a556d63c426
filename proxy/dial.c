/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"
#include "proxy/forward.h"

static void
on_answer(void *arg, const struct ask_answer *a)
{
	struct conn *c = arg;
	struct opening *o = c->open;

	o->ask = NULL;
	o->failed = a->reason < REASON_COUNT ? (enum reason)a->reason :
	    REASON_INTERNAL;
	o->n_addrs = a->n_addrs < PIN_ADDRS_MAX ? a->n_addrs : PIN_ADDRS_MAX;
	memcpy(o->addrs, a->addrs, o->n_addrs * sizeof(o->addrs[0]));
	if (o->failed == REASON_NONE && o->n_addrs == 0)
		o->failed = REASON_DNS_NODATA;
	conn_run(c);
}

/* Keep the addresses that may be dialled; when none may, reason and record are
 * those of the first. */
static enum step
judge_addrs(struct conn *c)
{
	struct opening *o = c->open;
	struct decision first = { .rule = RULE_NONE }, kept = first, d;
	size_t n = 0;

	for (size_t i = 0; i < o->n_addrs; i++) {
		struct endpoint to = { o->addrs[i], o->to.port };

		if (weigh_addr(c, &to, &d)) {
			if (n == 0)
				kept = d;
			o->addrs[n++] = to.addr;
		} else if (first.reason == REASON_NONE) {
			first = d;
		}
	}
	if (n == 0) {
		if (first.reason == REASON_NONE)
			first.reason = REASON_DNS_NODATA;
		first.verdict = VERDICT_DENY;
		o->decision = first;
		return conn_refuse(c, first.reason);
	}
	o->n_addrs = n;
	o->decision = kept;
	o->next_addr = 0;
	/* Nothing goes up before the decision is handed over. */
	if (account_decision(c, &kept, kept.reason) < 0)
		return conn_refuse(c, REASON_LEDGER_UNAVAILABLE);
	o->failed = REASON_UNREACHABLE;
	conn_enter(c, CONN_DIAL);
	return STEP_NEXT;
}

/* The one address that the client chose, when that may be kept. */
static bool
keep_original(const struct conn *c)
{
	const struct opening *o = c->open;

	if (o->name.len == 0 || o->decided || o->decision.original_only)
		return true;
	if (c->via != VIA_TPROXY && c->via != VIA_REDIRECT)
		return false;
	return pinned_has(c, &o->name, &c->original.addr);
}

/* The client's address first; to the client it answered already, so trying
 * the name's others is ours to do. */
static void
add_pinned(struct conn *c)
{
	struct opening *o = c->open;
	struct addr pinned[PIN_ADDRS_MAX];
	size_t n;

	if (o->name.len == 0 || o->decided || o->decision.original_only)
		return;
	n = pinned_addrs(c, &o->name, pinned);
	for (size_t i = 0; i < n && o->n_addrs < PIN_ADDRS_MAX; i++)
		if (!addr_eq(&pinned[i], &o->addrs[0]))
			o->addrs[o->n_addrs++] = pinned[i];
}

/* RESOLVE: the addresses that our own resolver has for the name. */
enum step
dial_resolve(struct conn *c)
{
	struct opening *o = c->open;
	enum reason why;

	if (o->ask != NULL) {
		if (conn_now_ms() < c->deadline_ms)
			return STEP_WAIT;
		ask_cancel(o->ask);
		o->ask = NULL;
		return conn_refuse(c, REASON_DNS_TIMEOUT);
	}
	if (o->failed != REASON_NONE)
		return conn_refuse(c, o->failed);
	if (o->n_addrs > 0)
		return judge_addrs(c);
	if (keep_original(c)) {
		o->addrs[0] = o->to.addr;
		if (c->via == VIA_TPROXY || c->via == VIA_REDIRECT)
			o->addrs[0] = c->original.addr;
		o->n_addrs = 1;
		add_pinned(c);
		return judge_addrs(c);
	}
	o->n_addrs = pinned_addrs(c, &o->name, o->addrs);
	if (o->n_addrs > 0)
		return judge_addrs(c);
	o->ask = ask_start(c->proxy->parts.ask, c->proxy->policy, c->cell,
	    &o->name, on_answer, c, &why);
	if (o->ask == NULL)
		return conn_refuse(c, why);
	return STEP_WAIT;
}

static enum reason
reason_of(int e)
{
	if (e == ECONNREFUSED || e == ECONNRESET)
		return REASON_CONNECT_REFUSED;
	if (e == ETIMEDOUT)
		return REASON_CONNECT_TIMEOUT;
	if (e == EMFILE || e == ENFILE)
		return REASON_LIMIT_DESCRIPTORS;
	return REASON_UNREACHABLE;
}

void
dial_edge(struct conn *c, unsigned tag, uint32_t events)
{
	struct opening *o = c->open;

	for (unsigned i = 0; o != NULL && i < o->n_tries; i++) {
		if (o->tries[i].fd < 0 || o->tries[i].tag != tag)
			continue;
		o->tries[i].events |= events;
		conn_run(c);
		return;
	}
}

static uint8_t
next_tag(struct conn *c)
{
	c->last_tag = c->last_tag + 1u < WATCH_TAGS ? c->last_tag + 1u :
	    TAG_CLIENT + 1u;
	return c->last_tag;
}

/* The end shall tell of it. */
static void
note(struct opening *o, const struct addr *a, enum reason why)
{
	if (o->n_tried < RECORD_TRIES_MAX)
		o->tried[o->n_tried++] = (struct record_try){ *a,
		    (uint8_t)why };
}

static void
try_drop(struct opening *o, unsigned i, bool keep_fd)
{
	struct dial_try *t = &o->tries[i];

	if (!keep_fd)
		close(t->fd);
	t->fd = -1;
	t->events = 0;
}

static void
drop_all(struct opening *o, enum reason why)
{
	for (unsigned i = 0; i < o->n_tries; i++) {
		if (o->tries[i].fd < 0)
			continue;
		note(o, &o->tries[i].to.addr, why);
		try_drop(o, i, false);
	}
	o->n_tries = 0;
}

void
dial_cancel(struct conn *c)
{
	struct opening *o = c->open;

	if (o->ask != NULL)
		ask_cancel(o->ask);
	o->ask = NULL;
	drop_all(o, REASON_NONE);
	if (o->n_tried > 0)
		account_tried(c);
}

bool
dial_judge_again(struct conn *c)
{
	struct opening *o = c->open;
	size_t n = o->next_addr;
	bool left = false;
	struct decision d;

	for (unsigned i = 0; i < o->n_tries; i++) {
		if (o->tries[i].fd < 0)
			continue;
		if (weigh_addr(c, &o->tries[i].to, &d)) {
			left = true;
			continue;
		}
		note(o, &o->tries[i].to.addr, d.reason);
		try_drop(o, i, false);
	}
	for (size_t i = o->next_addr; i < o->n_addrs; i++) {
		struct endpoint to = { o->addrs[i], o->to.port };

		if (weigh_addr(c, &to, &d))
			o->addrs[n++] = to.addr;
	}
	o->n_addrs = n;
	if (o->next_addr == n)
		o->next_try_ms = 0;
	return left || o->next_addr < n;
}

static int
dial_socket(struct conn *c, const struct endpoint *to, unsigned tag)
{
	int one = 1, e;
	struct sockaddr_storage ss;
	socklen_t len = endpoint_to_sockaddr(to, &ss);
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK |
	    SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	e = connect(fd, (struct sockaddr *)&ss, len) < 0 &&
	    errno != EINPROGRESS ? -errno :
	    watch_add(c->proxy->watch, fd, c, tag);
	if (e < 0) {
		close(fd);
		return e;
	}
	return fd;
}

static struct dial_try *
free_try(struct conn *c)
{
	struct opening *o = c->open;

	for (unsigned i = 0; i < o->n_tries; i++)
		if (o->tries[i].fd < 0)
			return &o->tries[i];
	if (o->n_tries == DIAL_TRIES_MAX)
		return NULL;
	o->tries[o->n_tries].fd = -1;
	return &o->tries[o->n_tries++];
}

/* Begin attempts until one is under way or there is none left. */
static void
next_try(struct conn *c)
{
	struct opening *o = c->open;
	struct dial_try *t;

	while (o->next_addr < o->n_addrs && (t = free_try(c)) != NULL) {
		t->to = (struct endpoint){ o->addrs[o->next_addr++],
		    o->to.port };
		t->tag = next_tag(c);
		t->fd = dial_socket(c, &t->to, t->tag);
		if (t->fd >= 0)
			break;
		o->failed = reason_of(-t->fd);
		note(o, &t->to.addr, o->failed);
		t->fd = -1;
	}
	o->next_try_ms = o->next_addr < o->n_addrs ?
	    conn_now_ms() + c->proxy->limits.stagger_ms : 0;
}

/* What became of the attempts: the winner's number, or -1. */
static int
look_at_tries(struct conn *c, unsigned *under_way)
{
	struct opening *o = c->open;

	*under_way = 0;
	for (unsigned i = 0; i < o->n_tries; i++) {
		int e = 0;
		socklen_t len = sizeof(e);

		if (o->tries[i].fd < 0)
			continue;
		if (o->tries[i].events == 0) {
			(*under_way)++;
			continue;
		}
		/* An error makes it readable too; only then is it asked for. */
		if ((o->tries[i].events & ~(uint32_t)EPOLLOUT) != 0 &&
		    getsockopt(o->tries[i].fd, SOL_SOCKET, SO_ERROR, &e,
		    &len) < 0)
			e = errno;
		if (e == 0)
			return (int)i;
		o->failed = reason_of(e);
		note(o, &o->tries[i].to.addr, o->failed);
		try_drop(o, i, false);
		o->next_try_ms = 0;	/* the next one at once */
	}
	return -1;
}

static enum step
dial_won(struct conn *c, unsigned i)
{
	struct opening *o = c->open;
	struct decision d;

	/* A policy that came while it was dialled may forbid the address. */
	o->addrs[0] = o->tries[i].to.addr;
	if (!weigh_addr(c, &o->tries[i].to, &d)) {
		note(o, &o->addrs[0], d.reason);
		try_drop(o, i, false);
		dial_cancel(c);
		return conn_refuse(c, d.reason);
	}
	side_open(&c->up, o->tries[i].fd);
	c->up_tag = o->tries[i].tag;
	c->up.readable = false;
	side_edge(&c->up, o->tries[i].events);
	c->end->dialled = o->tries[i].to;
	c->is_dialled = true;
	try_drop(o, i, true);
	dial_cancel(c);
	c->up_alive = true;
	count_add(c->proxy->parts.counts, COUNT_UPSTREAM_OPEN, 1);
	if (o->shown == SHOWN_REQUEST) {
		forward_dialled(c);
		conn_enter(c, CONN_RELAY);
		return STEP_NEXT;
	}
	if (tunnel_begin(c) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	/* Inside a tunnel the first bytes are looked at again. */
	conn_enter(c, c->inside && !o->decision.opaque ? CONN_NAME :
	    CONN_RELAY);
	return STEP_NEXT;
}

/* DIAL: the addresses one after the other, each a little later than the one
 * before, all within one deadline. */
enum step
dial_step(struct conn *c)
{
	struct opening *o = c->open;
	unsigned under_way;
	int won = look_at_tries(c, &under_way);

	if (won >= 0)
		return dial_won(c, (unsigned)won);
	if (conn_now_ms() >= c->deadline_ms) {
		drop_all(o, REASON_CONNECT_TIMEOUT);
		return conn_refuse(c, REASON_CONNECT_TIMEOUT);
	}
	if (o->next_addr < o->n_addrs && (under_way == 0 ||
	    o->next_try_ms == 0 || conn_now_ms() >= o->next_try_ms)) {
		next_try(c);
		for (unsigned i = 0; i < o->n_tries; i++)
			if (o->tries[i].fd >= 0)
				return STEP_WAIT;
		under_way = 0;
	}
	if (under_way == 0)
		return conn_refuse(c, o->failed);
	return STEP_WAIT;
}
