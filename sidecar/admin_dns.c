/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dns/pin_book.h"
#include "ledger-client/clock.h"
#include "sidecar/admin_part.h"
#include "sidecar/flush.h"

/*
 * What operators ask of DNS: the figures that the resolver leaves, the table
 * of pins, and the one thing here that changes anything: the cache's end.
 */
#define CELLS_SHOWN 1000u
#define PINS_BODY_BYTES (1u << 16)	/* then the next page begins */
#define LABELS_BYTES (SERVER_TEXT_BYTES + HOST_MAX_BYTES + 32)

static const char json_type[] = "application/json";

/* ---- metrics ---- */

struct family {
	const char *name, *type, *help;
};

static void
head(struct admin *a, bool openmetrics, const struct family *f)
{
	const char *end = strcmp(f->type, "counter") == 0 && !openmetrics ?
	    "_total" : "";

	admin_say(a, "# HELP penstock_dns_%s%s %s\n"
	    "# TYPE penstock_dns_%s%s %s\n", f->name, end, f->help, f->name,
	    end, f->type);
}

/* Who is asked, as the configuration and the policies name him. */
static char *
labels_of(const struct figures_server *s, char out[static LABELS_BYTES])
{
	char at[SERVER_TEXT_BYTES];

	(void)snprintf(out, LABELS_BYTES, "resolver=\"%s\",zone=\"%s\"",
	    server_text(&s->is.is, at), s->zone.name);
	return out;
}

/* One that stands twice in a zone is one series. */
static void
merge(struct figures *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_servers; i++) {
		struct upstream_state *from = &f->servers[i].is, *to;
		uint32_t k = 0;

		while (k < n && !(host_eq(&f->servers[k].zone,
		    &f->servers[i].zone) && server_eq(&f->servers[k].is.is,
		    &from->is)))
			k++;
		if (k == n) {
			f->servers[n++] = f->servers[i];
			continue;
		}
		to = &f->servers[k].is;
		to->asked += from->asked;
		to->timeouts += from->timeouts;
		to->failures += from->failures;
		to->other_case += from->other_case;
		to->answered += from->answered;
		to->answered_us += from->answered_us;
		for (size_t b = 0; b <= UPSTREAM_TOOK_N; b++)
			to->took[b] += from->took[b];
	}
	f->n_servers = n;
}

static void
say_took(struct admin *a, const struct figures_server *s)
{
	const char *const name = "penstock_dns_upstream_duration_seconds";
	char who[LABELS_BYTES];
	uint64_t sum = 0;

	labels_of(s, who);
	for (size_t i = 0; i < UPSTREAM_TOOK_N; i++) {
		sum += s->is.took[i];
		admin_say(a, "%s_bucket{%s,le=\"%u.%03u\"} %llu\n", name, who,
		    (unsigned)(upstream_took_ms[i] / 1000),
		    (unsigned)(upstream_took_ms[i] % 1000),
		    (unsigned long long)sum);
	}
	sum += s->is.took[UPSTREAM_TOOK_N];
	admin_say(a, "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} %llu.%06u\n"
	    "%s_count{%s} %llu\n", name, who, (unsigned long long)sum, name,
	    who, (unsigned long long)(s->is.answered_us / 1000000),
	    (unsigned)(s->is.answered_us % 1000000), name, who,
	    (unsigned long long)sum);
}

static void
say_servers(struct admin *a, bool openmetrics, const struct figures *f)
{
	static const struct family took = { "upstream_duration_seconds",
	    "histogram", "Time to a resolver's answer" },
	    tries = { "upstream_tries", "counter",
	    "Messages to a resolver, each try of a question" },
	    failures = { "upstream_failures", "counter",
	    "Tries without an answer that can be used" },
	    up = { "upstream_up", "gauge", "0: it failed and comes last" };
	char who[LABELS_BYTES];

	head(a, openmetrics, &took);
	for (uint32_t i = 0; i < f->n_servers; i++)
		say_took(a, &f->servers[i]);
	head(a, openmetrics, &tries);
	for (uint32_t i = 0; i < f->n_servers; i++)
		admin_say(a, "penstock_dns_upstream_tries_total{%s} %llu\n",
		    labels_of(&f->servers[i], who),
		    (unsigned long long)f->servers[i].is.asked);
	head(a, openmetrics, &failures);
	for (uint32_t i = 0; i < f->n_servers; i++) {
		const struct upstream_state *s = &f->servers[i].is;

		labels_of(&f->servers[i], who);
		admin_say(a, "penstock_dns_upstream_failures_total{%s,"
		    "kind=\"timeout\"} %llu\n"
		    "penstock_dns_upstream_failures_total{%s,"
		    "kind=\"failure\"} %llu\n", who,
		    (unsigned long long)s->timeouts, who,
		    (unsigned long long)s->failures);
	}
	head(a, openmetrics, &up);
	for (uint32_t i = 0; i < f->n_servers; i++)
		admin_say(a, "penstock_dns_upstream_up{%s} %d\n",
		    labels_of(&f->servers[i], who), !f->servers[i].is.down);
}

static bool
is_fresh(const struct figures *f)
{
	return clock_mono_ms() - f->at_ms < FIGURES_STALE_MS;
}

/* Large, and of one caller at a time. */
static bool
figures(const struct admin *a, struct figures **out)
{
	static struct figures f;

	if (!figures_read(a->figures, &f))
		return false;
	merge(&f);
	*out = &f;
	return true;
}

/* Of a resolver that is away nothing is told, rather than what was. */
void
admin_dns_metrics(struct admin *a, bool openmetrics)
{
	struct figures *f;

	if (!figures(a, &f) || !is_fresh(f))
		return;
	const struct {
		struct family is;
		uint64_t value;
	} gauges[] = {
		{ { "cache_entries", "gauge", "Answers in the cache" },
		    f->cache_answers },
		{ { "cache_bytes", "gauge", "Bytes of the cache in use" },
		    f->cache_bytes },
		{ { "cache_limit_bytes", "gauge", "Bytes it may have" },
		    f->cache_limit },
		{ { "pins", "gauge", "Places of the table of pins in use" },
		    f->pins_used },
		{ { "pins_limit", "gauge", "Places that it has" },
		    f->pins_all },
		{ { "tunnels_suspected", "gauge",
		    "Domains that look like a DNS tunnel now" },
		    f->suspected },
	};

	for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++) {
		head(a, openmetrics, &gauges[i].is);
		admin_say(a, "penstock_dns_%s %llu\n", gauges[i].is.name,
		    (unsigned long long)gauges[i].value);
	}
	say_servers(a, openmetrics, f);
}

/* ---- who may ---- */

/*
 * Which names a cell looks up is not everybody's, and on a port of this host
 * there may be anybody, in mode shared the agents themselves: only who comes
 * by the socket in the file system, as root or as the daemon itself.
 */
static bool
may(const struct admin_conn *c)
{
	struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(ss), n = sizeof(struct ucred);
	int fd = bufferevent_getfd(c->bev);
	struct ucred who;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0 ||
	    ss.ss_family != AF_UNIX ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0 ||
	    n != sizeof(who))
		return false;
	return who.uid == 0 || who.uid == c->admin->daemon;
}

/* ---- /status/dns ---- */

/* The bound that this part of the answers came within; 0: beyond all. */
static uint32_t
within_ms(const struct upstream_state *s, uint64_t percent)
{
	uint64_t sum = 0, all = 0;

	for (size_t i = 0; i <= UPSTREAM_TOOK_N; i++)
		all += s->took[i];
	for (size_t i = 0; i < UPSTREAM_TOOK_N; i++) {
		sum += s->took[i];
		if (sum * 100 >= all * percent)
			return upstream_took_ms[i];
	}
	return 0;
}

static void
say_server(struct admin *a, const struct figures_server *s)
{
	const struct upstream_state *is = &s->is;
	char at[SERVER_TEXT_BYTES];

	admin_say(a, "{\"resolver\":\"%s\",\"zone\":\"%s\",\"tls\":%s,"
	    "\"up\":%s,\"tries\":%llu,\"answers\":%llu,\"timeouts\":%llu,"
	    "\"failures\":%llu,\"other_case\":%llu,\"mean_us\":%llu",
	    server_text(&is->is, at), s->zone.name,
	    is->tls ? "true" : "false", is->down ? "false" : "true",
	    (unsigned long long)is->asked, (unsigned long long)is->answered,
	    (unsigned long long)is->timeouts,
	    (unsigned long long)is->failures,
	    (unsigned long long)is->other_case, (unsigned long long)
	    (is->answered > 0 ? is->answered_us / is->answered : 0));
	for (unsigned p = 50; p <= 99 && is->answered > 0; p += 49) {
		uint32_t ms = within_ms(is, p);

		if (ms > 0)
			admin_say(a, ",\"p%u_within_ms\":%u", p, ms);
	}
	admin_say(a, "}");
}

static void
say_held(struct admin *a, const struct pin_book *b, const uint32_t *held)
{
	uint32_t n = (uint32_t)policy_cells(a->role->policy), shown = 0, own,
	    most, more = 0;
	struct cell_view v;

	pin_book_parts(b, &own, &most);
	for (uint32_t i = 0; i < n; i++) {
		if (held[i] == 0 || !policy_cell(a->role->policy, i, 0, &v))
			continue;
		if (shown == CELLS_SHOWN) {
			more++;
			continue;
		}
		admin_say(a, "%s{\"cell\":", shown++ > 0 ? "," : "");
		admin_say_text(a, v.id);
		admin_say(a, ",\"used\":%u,\"own\":%u,\"most\":%u}", held[i],
		    own, most);
	}
	admin_say(a, "],\"cells_not_shown\":%u", more);
}

static void
say_cells(struct admin *a)
{
	struct pin_book *b = a->pins == NULL || a->role->policy == NULL ?
	    NULL : pin_book_new(a->pins, a->role->policy);
	uint32_t *held = calloc(POLICY_CELLS_MAX, sizeof(*held)), at = 0;
	struct pin_row row;

	admin_say(a, ",\"cells\":[");
	while (b != NULL && held != NULL && pin_book_next(b, &at, &row))
		if (row.cell < POLICY_CELLS_MAX)
			held[row.cell] += row.places;
	if (b != NULL && held != NULL)
		say_held(a, b, held);
	else
		admin_say(a, "],\"cells_not_shown\":0");
	pin_book_free(b);
	free(held);
}

unsigned
admin_dns_status(const struct admin_conn *c)
{
	struct admin *a = c->admin;
	struct figures *f;

	if (!figures(a, &f)) {
		admin_say(a, "{\"error\":\"the resolver has said nothing "
		    "yet\"}\n");
		return 503;
	}
	admin_say(a, "{\"age_ms\":%lld,\"fresh\":%s,\"servers\":[",
	    (long long)(clock_mono_ms() - f->at_ms),
	    is_fresh(f) ? "true" : "false");
	for (uint32_t i = 0; i < f->n_servers; i++) {
		admin_say(a, "%s", i > 0 ? "," : "");
		say_server(a, &f->servers[i]);
	}
	admin_say(a, "],\"asked\":%lld,\"cache\":{\"entries\":%llu,"
	    "\"bytes\":%llu,\"limit_bytes\":%llu,\"hits\":%lld,"
	    "\"misses\":%lld},\"pins\":{\"used\":%u,\"limit\":%u",
	    (long long)count_sum(a->role->counts, COUNT_DNS_UPSTREAM),
	    (unsigned long long)f->cache_answers,
	    (unsigned long long)f->cache_bytes,
	    (unsigned long long)f->cache_limit,
	    (long long)count_sum(a->role->counts, COUNT_DNS_CACHE_HITS),
	    (long long)count_sum(a->role->counts, COUNT_DNS_CACHE_MISSES),
	    f->pins_used, f->pins_all);
	if (may(c))
		say_cells(a);
	admin_say(a, "},\"tunnels\":{\"suspected\":%u,\"total\":%lld}}\n",
	    f->suspected, (long long)count_sum(a->role->counts,
	    COUNT_DNS_TUNNELS));
	return 200;
}

/* ---- queries ---- */

static int
hex(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of `key` ("name=") in the query, percent signs undone.  0: it has
 * none; -1: not sound or too long; else 1. */
static int
query(const struct http_request *rq, const char *key,
    char out[static HOST_MAX_BYTES + 2])
{
	struct span p = rq->path;
	const uint8_t *q = memchr(p.data, '?', p.len), *end = p.data + p.len;
	size_t n = 0, k = strlen(key);

	while (q != NULL && ((size_t)(end - ++q) < k ||
	    memcmp(q, key, k) != 0))
		q = memchr(q, '&', (size_t)(end - q));
	if (q == NULL)
		return 0;
	for (q += k; q < end && *q != '&'; q++) {
		int c = *q;

		if (c == '%') {
			if (end - q < 3 || hex(q[1]) < 0 || hex(q[2]) < 0)
				return -1;
			c = hex(q[1]) << 4 | hex(q[2]);
			q += 2;
		}
		if (c == 0 || n > HOST_MAX_BYTES)
			return -1;
		out[n++] = (char)c;
	}
	out[n] = '\0';
	return 1;
}

/* A name that was asked for; len 0: none was.  False: it is none. */
static bool
query_name(const struct http_request *rq, struct host *out)
{
	char text[HOST_MAX_BYTES + 2];
	int rc = query(rq, "name=", text);

	out->len = 0;
	return rc == 0 || (rc > 0 &&
	    host_parse(out, span_str(text)) == REASON_NONE);
}

/* ---- /pins ---- */

/* What of it is asked for. */
struct sought {
	uint32_t cell, from;	/* CELL_NONE: each */
	struct host name;	/* len 0: each */
};

/* 0, or the status with words. */
static unsigned
read_sought(struct admin *a, const struct http_request *rq, struct sought *s)
{
	char text[HOST_MAX_BYTES + 2], *end = text;
	int rc = query(rq, "cell=", text);

	*s = (struct sought){ .cell = CELL_NONE };
	if (rc > 0)
		s->cell = policy_cell_by_id(a->role->policy, span_str(text));
	if (rc < 0 || (rc > 0 && s->cell == CELL_NONE)) {
		admin_say(a, "the policy in force has no such cell\n");
		return 404;
	}
	if (!query_name(rq, &s->name)) {
		admin_say(a, "this is no host name\n");
		return 400;
	}
	rc = query(rq, "from=", text);
	if (rc > 0)
		s->from = (uint32_t)strtoul(text, &end, 10);
	if (rc < 0 || (rc > 0 && *end != '\0')) {
		admin_say(a, "from= is no number\n");
		return 400;
	}
	return 0;
}

static bool
is_sought(const struct sought *s, const struct pin_row *row)
{
	return (s->cell == CELL_NONE || s->cell == row->cell) &&
	    (s->name.len == 0 || host_eq(&s->name, &row->name));
}

static void
say_row(struct admin *a, const struct pin_row *row, bool first)
{
	int64_t left = row->until_ms - clock_mono_ms();
	char at[ADDR_TEXT_BYTES];
	struct cell_view v;

	admin_say(a, "%s{\"cell\":", first ? "" : ",");
	if (policy_cell(a->role->policy, row->cell, 0, &v))
		admin_say_text(a, v.id);
	else
		admin_say(a, "null");
	admin_say(a, ",\"name\":\"%s\",\"address\":\"%s\",\"left_ms\":%lld,"
	    "\"live\":%s}", row->name.name, addr_text(&row->addr, at),
	    (long long)(left > 0 ? left : 0), left > 0 ? "true" : "false");
}

static unsigned
get_pins(struct admin *a, const struct http_request *rq)
{
	struct pin_book *b;
	struct pin_row row;
	struct sought s;
	unsigned rc = a->role->policy == NULL || a->pins == NULL ? 503 :
	    read_sought(a, rq, &s);
	bool first = true, more = true;

	if (rc == 503)
		admin_say(a, "there is no policy, or no resolver, yet\n");
	if (rc != 0)
		return rc;
	b = pin_book_new(a->pins, a->role->policy);
	if (b == NULL)
		return 503;
	admin_say(a, "{\"pins\":[");
	while (a->len < PINS_BODY_BYTES &&
	    (more = pin_book_next(b, &s.from, &row))) {
		if (!is_sought(&s, &row))
			continue;
		say_row(a, &row, first);
		first = false;
	}
	if (more)
		admin_say(a, "],\"next\":%u}\n", s.from);
	else
		admin_say(a, "],\"next\":null}\n");
	pin_book_free(b);
	return 200;
}

/* ---- /cache/flush ---- */

static void
flush_close(struct admin *a)
{
	if (a->flushed == NULL)
		return;
	close(event_get_fd(a->flushed));
	event_free(a->flushed);
	a->flushed = NULL;
}

static void
reply_away(struct admin_conn *c)
{
	c->waits_for = 0;
	c->admin->len = 0;
	admin_say(c->admin, "the resolver is away, and its cache with it\n");
	admin_reply(c, 503, "text/plain; charset=utf-8", false);
}

/* The resolver is gone, and has taken its cache with it. */
static void
all_away(struct admin *a)
{
	flush_close(a);
	for (struct admin_conn *c = a->conns; c != NULL; c = c->next)
		if (c->waits_for != 0)
			reply_away(c);
}

static void
on_flushed(evutil_socket_t fd, short what, void *arg)
{
	struct admin *a = arg;
	struct flush_done d;
	int rc = flush_done_read((int)fd, &d);

	(void)what;
	if (rc == -EAGAIN)
		return;
	if (rc != 0) {
		all_away(a);
		return;
	}
	for (struct admin_conn *c = a->conns; c != NULL; c = c->next) {
		if (c->waits_for == 0 || c->waits_for != d.number)
			continue;
		c->waits_for = 0;
		a->len = 0;
		admin_say(a, "{\"flushed\":%llu}\n",
		    (unsigned long long)d.answers);
		admin_reply(c, 200, json_type, false);
	}
}

/* Answered when the resolver has done it. */
static void
flush(struct admin_conn *c, const struct http_request *rq)
{
	struct admin *a = c->admin;
	struct flush_order o = { .number = a->flush_number + 1 };

	if (!query_name(rq, &o.name)) {
		admin_say(a, "this is no host name\n");
		admin_reply(c, 400, "text/plain; charset=utf-8", false);
		return;
	}
	if (a->flushed == NULL ||
	    flush_order_send(event_get_fd(a->flushed), &o) != 0) {
		reply_away(c);
		return;
	}
	c->waits_for = a->flush_number = o.number;
}

bool
admin_dns_guarded(struct admin_conn *c, const struct http_request *rq)
{
	bool pins = admin_is_path(rq, "/pins");
	unsigned status = 405;

	if (!pins && !admin_is_path(rq, "/cache/flush"))
		return false;
	if (!may(c)) {
		admin_say(c->admin, "only root and the user of the daemon, "
		    "and only by a socket: set admin: unix:/PATH\n");
		status = 403;
	} else if (pins && rq->method == HTTP_GET) {
		status = get_pins(c->admin, rq);
	} else if (!pins && rq->method == HTTP_POST) {
		flush(c, rq);
		return true;
	} else {
		admin_say(c->admin, pins ? "only GET\n" : "only POST\n");
	}
	admin_reply(c, status, status == 200 ? json_type :
	    "text/plain; charset=utf-8", false);
	return true;
}

/* ---- life ---- */

static void
take_pins(struct admin *a, int fd)
{
	struct pins *now = NULL;

	if (fd >= 0 && pin_open(&now, fd) == 0) {
		pin_close(a->pins);
		a->pins = now;
	}
	if (fd >= 0)
		close(fd);
}

static void
take_flush(struct admin *a, int fd)
{
	all_away(a);
	if (fd < 0)
		return;
	a->flushed = event_new(a->role->base, fd, EV_READ | EV_PERSIST,
	    on_flushed, a);
	if (a->flushed == NULL)
		close(fd);
	else if (event_add(a->flushed, NULL) != 0)
		flush_close(a);
}

void
admin_dns_gift(struct admin *a, enum give what, int fd)
{
	if (what == GIVE_PINS)
		take_pins(a, fd);
	else if (what == GIVE_FLUSH)
		take_flush(a, fd);
	else
		close(fd);
}

int
admin_dns_start(struct admin *a)
{
	int page = role_take(a->role, GIVE_FIGURES, 0), rc = 0;
	socklen_t n = sizeof(struct ucred);
	struct ucred parent;

	/* whose pair it is, which he made before he was confined */
	if (getsockopt(a->role->parent, SOL_SOCKET, SO_PEERCRED, &parent,
	    &n) == 0 && n == sizeof(parent))
		a->daemon = parent.uid;
	if (page >= 0) {
		rc = figures_open(&a->figures, page, false);
		close(page);
	}
	take_pins(a, role_take(a->role, GIVE_PINS, 0));
	take_flush(a, role_take(a->role, GIVE_FLUSH, 0));
	return rc;
}

void
admin_dns_stop(struct admin *a)
{
	flush_close(a);
	figures_close(a->figures);
	pin_close(a->pins);
}
