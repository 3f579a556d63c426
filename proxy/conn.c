/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/conn.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "proxy/forward.h"
#include "proxy/refuse.h"

#define REFUSING_MAX 256u	/* clients above a limit that are told so at
				 * the same time; further ones are reset */
#define INTERFACE_KEPT_MS 100

static void conn_arm(struct conn *c);
static void conn_free(struct conn *c);

#define BIT(s) (1u << (s))

/* What may follow what. */
static const struct {
	const char *name;
	unsigned next;
} states[CONN_STATES] = {
	[CONN_NAME] = { "name", BIT(CONN_DECIDE) | BIT(CONN_END) },
	[CONN_DECIDE] = { "decide", BIT(CONN_RESOLVE) | BIT(CONN_RELAY) |
	    BIT(CONN_END) },
	[CONN_RESOLVE] = { "resolve", BIT(CONN_DIAL) | BIT(CONN_NAME) |
	    BIT(CONN_END) },
	[CONN_DIAL] = { "dial", BIT(CONN_RELAY) | BIT(CONN_NAME) |
	    BIT(CONN_END) },
	[CONN_RELAY] = { "relay", BIT(CONN_NAME) | BIT(CONN_RESOLVE) |
	    BIT(CONN_END) },
	[CONN_END] = { "end", 0 },
};

int64_t
conn_now_ms(void)
{
	return clock_mono_ms();
}

void
conn_run(struct conn *c)
{
	enum step step = STEP_NEXT;

	while (step == STEP_NEXT)
		switch ((enum conn_state)c->state) {
		case CONN_NAME:
			step = name_step(c);
			break;
		case CONN_DECIDE:
			step = weigh_step(c);
			break;
		case CONN_RESOLVE:
			step = dial_resolve(c);
			break;
		case CONN_DIAL:
			step = dial_step(c);
			break;
		case CONN_RELAY:
			step = c->forward ? forward_step(c) : relay_step(c);
			break;
		case CONN_END:
			step = end_step(c);
			break;
		case CONN_STATES:
			abort();
		}
	if (step == STEP_GONE)
		conn_free(c);
	else
		conn_arm(c);
}

void
conn_enter(struct conn *c, enum conn_state state)
{
	const struct proxy_limits *l = &c->proxy->limits;
	int64_t now = conn_now_ms();

	if ((states[c->state].next & BIT(state)) == 0)
		abort();	/* a bug of ours: the role is started anew */
	c->state = (uint8_t)state;
	switch (state) {
	case CONN_NAME:
		/* A head of which some bytes are here has begun. */
		c->deadline_ms = now + (c->forward &&
		    buf_left(&c->in) == 0 ? l->keepalive_ms : l->hello_ms);
		break;
	case CONN_RESOLVE:
		c->deadline_ms = now + l->resolve_ms;
		break;
	case CONN_DIAL:
		c->deadline_ms = now + l->connect_ms;
		break;
	case CONN_RELAY:
		c->moved_ms = now;
		/* Bytes that came with a CONNECT wait at the gate already. */
		c->deadline_ms = now + (c->open != NULL &&
		    c->open->gate == GATE_OPAQUE && buf_left(&c->in) > 0 &&
		    c->forward == NULL ? l->hello_ms : l->idle_ms);
		break;
	case CONN_END:
		c->deadline_ms = now + (c->how == HOW_RESET_CLIENT ||
		    c->how == HOW_RESET_UPSTREAM ? l->idle_ms : l->linger_ms);
		if (c->open != NULL)
			dial_cancel(c);
		break;
	case CONN_DECIDE:
	case CONN_STATES:
		break;
	}
}

/* ---- refusing ---- */

static bool
speaks_http(const struct conn *c)
{
	const struct opening *o = c->open;

	if (o == NULL)
		return false;
	if (c->forward != NULL)
		return !forward_answered(c);
	if (o->shown == SHOWN_REQUEST)
		return true;
	return c->proxy->listeners[c->listener].is.kind == LISTEN_EXPLICIT &&
	    !c->inside;
}

static void
tell_http(struct conn *c, enum reason why, uint32_t rule)
{
	const struct policy *p = c->proxy->policy;
	const struct opening *o = c->open;
	uint8_t out[REFUSE_MAX_BYTES];
	char place[HOST_MAX_BYTES + 16] = "", at[ADDR_TEXT_BYTES];
	struct refusal r = { .reason = why, .json = o->json,
	    .head_only = o->head_only, .minor = o->minor };
	struct rule_view rv;
	struct cell_view cv;

	if (o->name.len > 0 && o->to.port == 0)
		snprintf(place, sizeof(place), "%s", o->name.name);
	else if (o->name.len > 0)
		snprintf(place, sizeof(place), "%s:%u", o->name.name,
		    o->to.port);
	else if (o->to.port != 0)
		snprintf(place, sizeof(place), "%s",
		    endpoint_text(&o->to, at));
	r.place = span_str(place);
	if (p != NULL && policy_cell(p, c->cell, (int64_t)time(NULL), &cv))
		r.help = cv.help;
	if (p != NULL && rule != RULE_NONE &&
	    policy_rule(p, c->cell, rule, &rv)) {
		r.rule = rv.id;
		r.words = rv.reason;
	}
	/* Without memory for the answer the client is reset. */
	c->told = buf_put(&c->client.out,
	    span_of(out, refuse_http(&r, out))) == 0;
	if (c->told)
		account_status(c, refuse_status(why));
}

static void
tell(struct conn *c, enum reason why, uint32_t rule)
{
	uint8_t alert[REFUSE_ALERT_BYTES];
	const struct opening *o = c->open;
	bool tls = o != NULL && (o->shown == SHOWN_HELLO ||
	    (buf_left(&c->in) > 0 && c->in.data[c->in.at] == 0x16));

	if (speaks_http(c)) {
		tell_http(c, why, rule);
	} else if (tls && c->state != CONN_RELAY) {
		refuse_alert(why, alert);
		c->told = buf_put(&c->client.out,
		    span_of(alert, sizeof(alert))) == 0;
	}
}

static bool
is_upstream_failure(enum reason why)
{
	return why == REASON_CONNECT_REFUSED ||
	    why == REASON_CONNECT_TIMEOUT || why == REASON_UNREACHABLE ||
	    why == REASON_UPSTREAM_CLOSED ||
	    why == REASON_UPSTREAM_MALFORMED ||
	    why == REASON_UPSTREAM_HEAD_TOO_LARGE ||
	    why == REASON_UPSTREAM_TIMEOUT;
}

enum step
conn_refuse(struct conn *c, enum reason why)
{
	struct decision d = { .verdict = VERDICT_DENY, .rule = RULE_NONE };

	if (c->open != NULL)
		d = c->open->decision;
	if (account_is_unread(c)) {
		d.rule = RULE_NONE;
		forward_glance(c);
	}
	/* What fails after it was allowed is told by the end record. */
	if (d.verdict != VERDICT_ALLOW || !account_is_open(c) ||
	    !is_upstream_failure(why)) {
		d.verdict = d.would = VERDICT_DENY;
		d.reason = why;
		/* A denial stands whether or not it could be recorded. */
		(void)!account_decision(c, &d, why);
	}
	tell(c, why, d.rule);
	return conn_cut(c, HOW_REFUSED, why);
}

enum step
conn_cut(struct conn *c, enum record_how how, enum reason why)
{
	if (c->state == CONN_END)
		return STEP_NEXT;
	c->how = (uint8_t)how;
	c->reason = (uint16_t)why;
	conn_enter(c, CONN_END);
	return STEP_NEXT;
}

/* ---- events ---- */

/* Input that nobody wants, while there is more already: its peer is slower.
 * Each segment would wake us until it has caught up. */
static void
hush(struct conn *c, struct side *s, unsigned tag)
{
	if (!s->deaf)
		s->deaf = watch_input(c->proxy->watch, s->fd, c, tag,
		    false) == 0;
}

static void
hear(struct conn *c, struct side *s, unsigned tag)
{
	if (!s->deaf || s->readable || !(s->want & SIDE_READ))
		return;
	s->deaf = false;
	/* It can only fail for a socket that is not there. */
	if (watch_input(c->proxy->watch, s->fd, c, tag, true) < 0)
		s->readable = true;
}

void
conn_edge(void *owner, unsigned tag, uint32_t events)
{
	struct conn *c = owner;
	struct side *s = tag == TAG_CLIENT ? &c->client : &c->up;
	bool more = s->readable && (events & EPOLLIN);

	if (c->is_gone)
		return;
	if (s->fd < 0)
		dial_edge(c, tag, events);
	else if (s == &c->up && tag != c->up_tag)
		return;		/* of one that was closed */
	else if (side_edge(s, events))
		conn_run(c);
	else if (more)
		hush(c, s, tag);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd;
	(void)what;
	c->timer_ms = 0;
	conn_run(c);
}

/* It goes on in the next turn of the loop, behind what others wait for. */
static void
go_on(struct conn *c)
{
	const struct timeval now = { 0 };
	struct proxy *p = c->proxy;

	if (c->queued)
		return;
	c->queued = true;
	TAILQ_INSERT_TAIL(&p->again, c, later);
	if (p->n_again++ == 0)
		event_add(p->later, &now);
}

void
conn_timer(struct conn *c, int64_t at)
{
	struct proxy *p = c->proxy;
	int64_t ms = at - conn_now_ms();
	struct timeval plain;
	const struct timeval *tv = &plain;

	if (at == 0 || (c->timer_ms != 0 && c->timer_ms <= at))
		return;		/* an earlier one will look again */
	if (c->timer == NULL)
		c->timer = evtimer_new(p->parts.base, on_timer, c);
	if (c->timer == NULL)
		return;		/* the sweep will come by */
	if (ms < 1)
		ms = 1;
	plain.tv_sec = ms / 1000;
	plain.tv_usec = ms % 1000 * 1000;
	for (unsigned i = 0; i < PROXY_TIMEOUTS && p->timeouts[i].tv; i++)
		if (p->timeouts[i].ms == ms)
			tv = p->timeouts[i].tv;
	if (evtimer_add(c->timer, tv) == 0)
		c->timer_ms = at;
}

static unsigned
out_wants(const struct side *s)
{
	return buf_left(&s->out) > 0 ? SIDE_WRITE : 0;
}

/* The time at which something must happen; tunnels are many and mostly idle,
 * so they have no timer of their own. */
static void
arm_time(struct conn *c)
{
	if (c->state == CONN_DIAL && c->open->next_try_ms != 0 &&
	    c->open->next_try_ms < c->deadline_ms)
		conn_timer(c, c->open->next_try_ms);
	if (c->state != CONN_RELAY || c->forward || c->open) {
		conn_timer(c, c->deadline_ms);
	} else if (c->timer != NULL) {
		event_free(c->timer);
		c->timer = NULL;
		c->timer_ms = 0;
	}
}

static unsigned
client_wants(const struct conn *c)
{
	unsigned want = out_wants(&c->client);

	switch ((enum conn_state)c->state) {
	case CONN_NAME:
		return c->client.eof ? want : want | SIDE_READ;
	case CONN_RELAY:
		return c->forward ? forward_wants(c, true) :
		    relay_wants(c, true);
	case CONN_END:
		return want == 0 && !c->client.eof && c->told ? SIDE_READ :
		    want;
	case CONN_DECIDE:
	case CONN_RESOLVE:
	case CONN_DIAL:
	case CONN_STATES:
		break;
	}
	return 0;
}

static unsigned
up_wants(const struct conn *c)
{
	if (c->up.fd < 0)
		return 0;
	if (c->state == CONN_RELAY)
		return c->forward ? forward_wants(c, false) :
		    relay_wants(c, false);
	return c->state == CONN_END ? out_wants(&c->up) : 0;
}

/* The only place that says what wakes it: from the state and what waits. */
static void
conn_arm(struct conn *c)
{
	c->client.want = (uint8_t)client_wants(c);
	c->up.want = (uint8_t)up_wants(c);
	hear(c, &c->client, TAG_CLIENT);
	hear(c, &c->up, c->up_tag);
	if (side_can(&c->client) || side_can(&c->up))
		go_on(c);
	arm_time(c);
}

/* ---- birth and death ---- */

/* The interface that the first segment came in on; 0: not known.  For IPv4
 * the listener has the option already.  For IPv6 it is set on the connection
 * only: a listener that has it keeps the SYN of each connection in memory. */
static int
ifindex_of(int fd, bool v6)
{
	uint8_t ctl[256];
	socklen_t len = sizeof(ctl);
	struct msghdr m = { .msg_control = ctl };
	struct in_pktinfo v4_info;
	struct in6_pktinfo v6_info;
	const int one = 1;

	if ((v6 && setsockopt(fd, SOL_IPV6, IPV6_RECVPKTINFO, &one,
	    sizeof(one)) < 0) || getsockopt(fd, v6 ? SOL_IPV6 : SOL_IP,
	    v6 ? IPV6_2292PKTOPTIONS : IP_PKTOPTIONS, ctl, &len) < 0)
		return 0;
	m.msg_controllen = len;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h != NULL;
	    h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level == SOL_IP && h->cmsg_type == IP_PKTINFO) {
			memcpy(&v4_info, CMSG_DATA(h), sizeof(v4_info));
			return v4_info.ipi_ifindex;
		}
		if (h->cmsg_level == SOL_IPV6 &&
		    h->cmsg_type == IPV6_PKTINFO) {
			memcpy(&v6_info, CMSG_DATA(h), sizeof(v6_info));
			return (int)v6_info.ipi6_ifindex;
		}
	}
	return 0;
}

/* The last name is kept for a moment: most clients come in on one
 * interface, and one can be renamed. */
static const char *
interface_of(int fd, bool v6, char name[static IF_NAMESIZE])
{
	static struct ifreq known;
	static int64_t until;
	struct ifreq ifr = { 0 };
	int64_t now = conn_now_ms();

	ifr.ifr_ifindex = ifindex_of(fd, v6);
	if (ifr.ifr_ifindex == 0)
		return "";
	if (ifr.ifr_ifindex != known.ifr_ifindex || now >= until) {
		if (ioctl(fd, SIOCGIFNAME, &ifr) < 0)
			return "";
		known = ifr;
		until = now + INTERFACE_KEPT_MS;
	}
	memcpy(name, known.ifr_name, IF_NAMESIZE);
	name[IF_NAMESIZE - 1] = '\0';
	return name;
}

static bool
is_inside(const struct listener *l, const char *interface)
{
	for (size_t i = 0; i < l->is.n_inside; i++)
		if (strcmp(l->is.inside[i], interface) == 0)
			return true;
	return false;
}

uint32_t
conn_cell_of(const struct listener *l, int fd, const struct endpoint *peer,
    const char *user, struct span token, enum reason *why)
{
	const struct policy *p = l->proxy->policy;
	char name[IF_NAMESIZE] = "";
	struct cell_key key = { .listener = l->is.name, .interface = name,
	    .client = peer->addr, .credential_cell = user,
	    .credential_token = token };
	uint32_t cell;

	*why = REASON_POLICY_UNAVAILABLE;
	if (p == NULL)
		return CELL_NONE;
	/* The kernel's rules turn it away too. */
	*why = REASON_UNKNOWN_CELL;
	if (l->is.n_inside > 0 && !is_inside(l, interface_of(fd,
	    !addr_is_v4(&peer->addr), name)))
		return CELL_NONE;
	cell = policy_cell_find(p, &key, why);
	/* Most cells need no interface; asking the kernel costs two calls. */
	if (cell == CELL_NONE && *why == REASON_UNKNOWN_CELL &&
	    interface_of(fd, !addr_is_v4(&peer->addr), name)[0] != '\0')
		cell = policy_cell_find(p, &key, why);
	return cell;
}

void
conn_cell(struct conn *c, const char *user, struct span token,
    enum reason *why)
{
	c->cell = conn_cell_of(&c->proxy->listeners[c->listener],
	    c->client.fd, &c->peer, user, token, why);
}

/* Shares of all cells, and of those who have none, fit together; an only cell
 * has nobody to leave room for. */
static unsigned
cell_max(const struct proxy *p, uint32_t cell)
{
	unsigned all = p->limits.connections, quarter = all / 4, part = quarter;
	size_t n = p->policy != NULL ? policy_cells(p->policy) : 0;

	if (cell != CELL_NONE && p->limits.per_cell > 0)
		return p->limits.per_cell;
	if (cell != CELL_NONE)
		part = n > 1 ? (all - quarter) / (unsigned)n : all;
	return part > 0 ? part : 1;
}

/* Of one client, while its cell is not known. */
static unsigned
untold_max(const struct proxy *p)
{
	return (cell_max(p, CELL_NONE) + 1) / 2;
}

static struct span
cell_id(const struct proxy *p, uint32_t cell)
{
	struct cell_view v;

	if (p->policy == NULL || !policy_cell(p->policy, cell, 0, &v))
		return span_of(NULL, 0);
	return v.id;
}

/* On an explicit listener it is of no cell until a whole request has told of
 * which: one that says nothing takes no cell's place, least that of the one
 * its address happens to tell.  Of those one address may hold half, so that it
 * cannot keep others from asking. */
static enum reason
place_take(const struct listener *l, const struct endpoint *peer,
    uint32_t cell, struct limit_place *place)
{
	struct proxy *p = l->proxy;
	uint32_t of = l->is.kind == LISTEN_EXPLICIT ? CELL_NONE : cell;
	struct limit_max max = { .total = p->limits.connections,
	    .cell = cell_max(p, of), .client = p->limits.per_client,
	    .apart = untold_max(p) };

	return limit_take(p->parts.limit, &peer->addr, cell_id(p, of), &max,
	    place);
}

static void
is_told(struct conn *c)
{
	if (c->is_untold)
		TAILQ_REMOVE(&c->proxy->untold, c->open, untold);
	c->is_untold = false;
}

enum reason
conn_count_cell(struct conn *c)
{
	struct proxy *p = c->proxy;
	enum reason why = limit_move(p->parts.limit, &c->place,
	    cell_id(p, c->cell), cell_max(p, c->cell));

	if (why == REASON_NONE)
		is_told(c);
	return why;
}

/* The one that has not told its cell for longest: of the same client,
 * where that is what holds too many. */
static struct conn *
longest_untold(struct proxy *p, const struct endpoint *peer, enum reason why)
{
	struct opening *o;

	TAILQ_FOREACH(o, &p->untold, untold)
		if (why == REASON_LIMIT_CELL ||
		    limit_same_client(&o->of->peer.addr, &peer->addr))
			return o->of;
	return NULL;
}

/* All clients need one of these places to begin, and several cells may come
 * from one address: who tells nothing gives way to who may.  (A client that
 * means to ask does so at once.)  REASON_NONE: there is a place now. */
static enum reason
place_make(const struct listener *l, const struct endpoint *peer,
    uint32_t cell, enum reason why, struct limit_place *place)
{
	struct proxy *p = l->proxy;
	struct conn *c = NULL;

	/* A client's own limit, where that is the smaller, is its own affair:
	 * it is told. */
	if (l->is.kind == LISTEN_EXPLICIT && (why == REASON_LIMIT_CELL ||
	    (why == REASON_LIMIT_CLIENT &&
	    p->limits.per_client > untold_max(p))))
		c = longest_untold(p, peer, why);
	if (c == NULL)
		return why;
	if (c->state != CONN_END)
		conn_refuse(c, why);
	(void)side_flush(&c->client);	/* it is told if it takes it */
	conn_free(c);
	return place_take(l, peer, cell, place);
}

enum record_via
conn_via(enum listen_kind kind)
{
	switch (kind) {
	case LISTEN_TPROXY:
		return VIA_TPROXY;
	case LISTEN_REDIRECT:
		return VIA_REDIRECT;
	case LISTEN_EXPLICIT:
		return VIA_HTTP;
	case LISTEN_NAMED:
		return VIA_NAMED;
	}
	return VIA_NONE;
}

void
conn_reset(int fd)
{
	struct linger now = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static struct conn *
conn_make(struct listener *l, int fd, const struct endpoint *peer,
    const struct endpoint *original)
{
	struct proxy *p = l->proxy;
	struct conn *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->open = calloc(1, sizeof(*c->open));
	if (c->open == NULL ||
	    watch_add(p->watch, fd, c, TAG_CLIENT) < 0) {
		free(c->open);
		free(c);
		return NULL;
	}
	c->opened_us = clock_mono_us();
	c->proxy = p;
	side_open(&c->client, fd);
	c->up.fd = -1;
	c->id = p->next_id++;
	c->peer = *peer;
	c->original = *original;
	c->open->to = *original;
	c->open->decision.rule = RULE_NONE;
	c->open->minor = 1;
	c->cell = CELL_NONE;
	c->listener = (uint16_t)(l - p->listeners);
	c->deadline_ms = conn_now_ms() + p->limits.hello_ms;
	hello_reader_init(&c->open->reader, p->limits.hello_bytes);
	c->via = (uint8_t)conn_via(l->is.kind);
	return c;
}

void
conn_new(struct listener *l, int fd, const struct endpoint *peer,
    const struct endpoint *original, enum reason refused)
{
	struct proxy *p = l->proxy;
	struct limit_place place = { 0 };
	struct conn *c;
	enum reason no_cell;
	uint32_t cell = conn_cell_of(l, fd, peer, NULL, span_of(NULL, 0),
	    &no_cell);

	if (refused == REASON_NONE)
		refused = place_take(l, peer, cell, &place);
	if (refused != REASON_NONE && !place.held)
		refused = place_make(l, peer, cell, refused, &place);
	c = place.held || p->n_refusing < REFUSING_MAX ?
	    conn_make(l, fd, peer, original) : NULL;
	if (c == NULL) {
		account_turned_away(l, peer, original, cell, place.held ?
		    REASON_LIMIT_MEMORY : refused);
		limit_give(p->parts.limit, &place);
		conn_reset(fd);
		return;
	}
	c->cell = cell;
	c->open->no_cell = no_cell;
	c->place = place;
	if (!place.held)
		p->n_refusing++;
	c->is_untold = l->is.kind == LISTEN_EXPLICIT && place.held;
	c->open->of = c;
	if (c->is_untold)
		TAILQ_INSERT_TAIL(&p->untold, c->open, untold);
	p->n_open++;
	c->late = p->draining;
	p->n_late += c->late;
	count_add(p->parts.counts, COUNT_CONNECTIONS_OPEN, 1);
	LIST_INSERT_HEAD(&p->open, c, link);
	if (refused != REASON_NONE)
		conn_refuse(c, refused);
	conn_run(c);
}

void
conn_close_up(struct conn *c)
{
	struct side *s = &c->up;

	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	buf_free(&s->out);
	s->eof = s->reset = s->shut = s->bulk = false;
	c->probed = false;
	if (c->up_alive)
		count_add(c->proxy->parts.counts, COUNT_UPSTREAM_OPEN, -1);
	c->up_alive = false;
}

static void
side_pipe_done(struct conn *c, struct side *s)
{
	if (s->pipe != NULL)
		pipes_put(&c->proxy->pipes, s->pipe, s->piped == 0);
	s->pipe = NULL;
}

static void
conn_free(struct conn *c)
{
	struct proxy *p = c->proxy;

	account_end(c, (enum record_how)c->how, (enum reason)c->reason);
	free(c->end);
	is_told(c);
	if (c->open != NULL)
		dial_cancel(c);
	side_pipe_done(c, &c->client);
	side_pipe_done(c, &c->up);
	conn_close_up(c);
	if (c->timer != NULL)
		event_free(c->timer);
	close(c->client.fd);
	buf_free(&c->client.out);
	buf_free(&c->in);
	forward_free(c);
	free(c->names);
	free(c->shown);
	free(c->open);
	if (c->queued)
		TAILQ_REMOVE(&p->again, c, later);
	LIST_REMOVE(c, link);
	if (!c->place.held)
		p->n_refusing--;
	limit_give(p->parts.limit, &c->place);
	p->n_open--;
	p->n_late -= c->late;
	count_add(p->parts.counts, COUNT_CONNECTIONS_OPEN, -1);
	if (watch_turning(p->watch)) {
		c->is_gone = true;
		LIST_INSERT_HEAD(&p->gone, c, link);
	} else {
		free(c);
	}
	proxy_gone(p);
}

void
conn_forget(struct proxy *p)
{
	struct conn *c;

	while ((c = LIST_FIRST(&p->gone)) != NULL) {
		LIST_REMOVE(c, link);
		free(c);
	}
}
