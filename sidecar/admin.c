/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/admin.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "sidecar/admin_part.h"

/*
 * The role that answers for the daemon: /metrics, /livez, /readyz, /status.
 * It reads shared pages and HTTP, and can change nothing but have the
 * resolver forget answers (admin_dns.c).
 */
#define CONNS_MAX 64u
#define DEADLINE_S 5
#define HEAD_MAX_BYTES 8192u

static const struct {
	const char *word, *effect;
} checks[CHECK_COUNT] = {
#define X(name, word, effect) [CHECK_##name] = { word, effect },
	ADMIN_CHECKS(X)
#undef X
};

const char *
admin_check_word(enum admin_check c)
{
	return checks[c].word;
}

const char *
admin_check_effect(enum admin_check c)
{
	return checks[c].effect;
}

static bool
is_live(const struct health *h)
{
	return clock_mono_ms() - h->beat_ms < HEALTH_STALE_MS;
}

bool
admin_check_ok(const struct health *h, enum admin_check c)
{
	switch (c) {
	case CHECK_SERVING: return h->serving;
	case CHECK_POLICY: return h->generation > 0;
	case CHECK_ENGINES: return h->engines_ready > 0;
	case CHECK_RESOLVER: return h->resolver_ready;
	case CHECK_RECORDER: return h->recorder_ready;
	case CHECK_RULES: return h->rules;
	case CHECK_NOT_DRAINING: return !h->draining;
	case CHECK_LIVE: return is_live(h);
	case CHECK_POLICY_STALE: return !h->stale;
	case CHECK_SETTINGS_CURRENT: return h->waits_for_start[0] == '\0';
	case CHECK_ENFORCING: return h->unenforced == UNENFORCED_NOTHING;
	case CHECK_COUNT: break;
	}
	return false;
}

bool
admin_is_ready(const struct health *h)
{
	for (unsigned c = 0; c < CHECK_POLICY_STALE; c++)
		if (!admin_check_ok(h, (enum admin_check)c))
			return false;
	return true;
}

/* ---- bodies ---- */

void
admin_say(struct admin *a, const char *fmt, ...)
{
	size_t left = sizeof(a->body) - a->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(a->body + a->len, left, fmt, ap);
	va_end(ap);
	if (n > 0)
		a->len += (size_t)n < left ? (size_t)n : left - 1;
}

void
admin_say_text(struct admin *a, struct span text)
{
	admin_say(a, "\"");
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] < ' ' || text.data[i] > '~' ||
		    text.data[i] == '"' || text.data[i] == '\\')
			admin_say(a, "\\u%04x", text.data[i]);
		else
			admin_say(a, "%c", text.data[i]);
	admin_say(a, "\"");
}

static struct health
look(const struct admin *a)
{
	struct health h;

	if (!health_read(a->health, &h)) {
		memset(&h, 0, sizeof(h));
		h.unenforced = UNENFORCED_NOT_STARTED;
	}
	return h;
}

static unsigned
get_livez(struct admin *a)
{
	struct health h = look(a);
	bool live = is_live(&h);

	admin_say(a, live ? "ok\n" : "the parent does not turn\n");
	return live ? 200 : 503;
}

static const char *
why_not(const struct health *h)
{
	return settings_unenforced_text(
	    (enum settings_unenforced)h->unenforced);
}

static unsigned
get_readyz(struct admin *a, bool verbose)
{
	struct health h = look(a);
	bool ready = admin_is_ready(&h);

	for (unsigned i = 0; i < CHECK_COUNT; i++) {
		enum admin_check c = (enum admin_check)i;
		bool ok = admin_check_ok(&h, c);

		if (ok && !verbose)
			continue;
		admin_say(a, "[%s] %s%s%s\n", ok ? "+" : "-",
		    admin_check_word(c),
		    ok ? "" : " effect: ", ok ? "" : admin_check_effect(c));
	}
	for (unsigned i = 0; verbose && i < h.n_roles; i++)
		admin_say(a, "role %s %u pid %d%s\n",
		    role_word(h.roles[i].kind),
		    h.roles[i].index, (int)h.roles[i].pid,
		    h.roles[i].ready ? "" : " not ready");
	if (!admin_check_ok(&h, CHECK_SETTINGS_CURRENT))
		admin_say(a, "not in use before a new start: %s\n",
		    h.waits_for_start);
	if (!admin_check_ok(&h, CHECK_ENFORCING))
		admin_say(a, "not enforcing: %s\n", why_not(&h));
	admin_say(a, ready ? "ready\n" : "not ready\n");
	return ready ? 200 : 503;
}

static void
gauge(struct admin *a, const char *name, const char *help, uint64_t v)
{
	admin_say(a, "# HELP penstock_%s %s\n# TYPE penstock_%s gauge\n"
	    "penstock_%s %llu\n", name, help, name, name,
	    (unsigned long long)v);
}

/* The family of a counter has no _total in OpenMetrics. */
static void
counter(struct admin *a, bool openmetrics, const char *name,
    const char *help, uint64_t v)
{
	const char *end = openmetrics ? "" : "_total";

	admin_say(a, "# HELP penstock_%s%s %s\n# TYPE penstock_%s%s counter\n"
	    "penstock_%s_total %llu\n", name, end, help, name, end, name,
	    (unsigned long long)v);
}

static unsigned
get_metrics(struct admin *a, bool openmetrics)
{
	struct health h = look(a);

	a->len = count_text(a->role->counts, openmetrics, a->body,
	    sizeof(a->body));
	admin_say(a, "# HELP penstock_build_info Version\n"
	    "# TYPE penstock_build_info gauge\n"
	    "penstock_build_info{version=\"%s\"} 1\n", PENSTOCK_VERSION);
	gauge(a, "policy_generation", "Generation of the policy in force",
	    h.generation);
	gauge(a, "start_timestamp_seconds", "When the daemon started",
	    (uint64_t)h.started_s);
	gauge(a, "engines_ready", "Engines that serve", h.engines_ready);
	/* A page that cannot be read is no fall to zero. */
	if (h.beat_ms > 0)
		counter(a, openmetrics, "role_restarts",
		    "Times a role was started again", h.restarts);
	admin_say(a, "# HELP penstock_check_ok Checks of readyz\n"
	    "# TYPE penstock_check_ok gauge\n");
	for (unsigned c = 0; c < CHECK_COUNT; c++)
		admin_say(a, "penstock_check_ok{check=\"%s\","
		    "effect=\"%s\"} %d\n",
		    admin_check_word((enum admin_check)c),
		    admin_check_effect((enum admin_check)c),
		    admin_check_ok(&h, (enum admin_check)c));
	admin_dns_metrics(a, openmetrics);
	if (openmetrics)
		admin_say(a, "# EOF\n");
	return 200;
}

static const char *
yes(bool b)
{
	return b ? "true" : "false";
}

static void
say_identity(struct admin *a, const struct health *h)
{
	const struct settings *is = &a->role->settings;

	admin_say(a, "\"version\":\"%s\",\"instance\":\"%s\",\"mode\":\"%s\","
	    "\"generation\":%llu,\"digest\":\"", PENSTOCK_VERSION,
	    is->instance, settings_mode_word(is->mode),
	    (unsigned long long)h->generation);
	for (unsigned i = 0; i < sizeof(h->digest); i++)
		admin_say(a, "%02x", h->digest[i]);
	admin_say(a, "\"");
}

static void
say_state(struct admin *a, const struct health *h)
{
	admin_say(a, "\"started\":%lld,\"engines\":%u,\"engines_ready\":%u,"
	    "\"restarts\":%u,\"ready\":%s,\"enforcing\":%s,"
	    "\"not_enforcing\":\"%s\",\"checks\":{",
	    (long long)h->started_s, h->engines, h->engines_ready,
	    h->restarts, yes(admin_is_ready(h)),
	    yes(admin_check_ok(h, CHECK_ENFORCING)), why_not(h));
	for (unsigned c = 0; c < CHECK_COUNT; c++)
		admin_say(a, "%s\"%s\":%s", c > 0 ? "," : "",
		    admin_check_word((enum admin_check)c),
		    yes(admin_check_ok(h, (enum admin_check)c)));
	admin_say(a, "}");
}

static void
say_roles(struct admin *a, const struct health *h)
{
	admin_say(a, "\"roles\":[");
	for (unsigned i = 0; i < h->n_roles; i++)
		admin_say(a, "%s{\"role\":\"%s\",\"index\":%u,\"pid\":%d,"
		    "\"ready\":%s,\"restarts\":%u}", i > 0 ? "," : "",
		    role_word(h->roles[i].kind), h->roles[i].index,
		    (int)h->roles[i].pid, yes(h->roles[i].ready),
		    h->roles[i].restarts);
	admin_say(a, "]");
}

static void
say_sums(struct admin *a)
{
	static const struct {
		const char *key;
		enum count which;
	} sums[] = {
		{ "connections_open", COUNT_CONNECTIONS_OPEN },
		{ "accepted", COUNT_ACCEPTED },
		{ "allowed", COUNT_ALLOWED },
		{ "bytes_up", COUNT_BYTES_UP },
		{ "bytes_down", COUNT_BYTES_DOWN },
		{ "records", COUNT_RECORDS },
	};

	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		admin_say(a, "%s\"%s\":%lld", i > 0 ? "," : "", sums[i].key,
		    (long long)count_sum(a->role->counts, sums[i].which));
}

/* The reasons that there were. */
static void
say_denied(struct admin *a)
{
	unsigned n = 0;

	admin_say(a, "\"denied\":{");
	for (unsigned r = 0; r < REASON_COUNT; r++) {
		int64_t v = count_denied_sum(a->role->counts,
		    (enum reason)r);

		if (v > 0)
			admin_say(a, "%s\"%s\":%lld", n++ > 0 ? "," : "",
			    reason_word((enum reason)r), (long long)v);
	}
	admin_say(a, "}");
}

static unsigned
get_status(struct admin *a)
{
	struct health h = look(a);

	admin_say(a, "{");
	say_identity(a, &h);
	admin_say(a, ",");
	say_state(a, &h);
	admin_say(a, ",");
	say_roles(a, &h);
	admin_say(a, ",");
	say_sums(a);
	admin_say(a, ",");
	say_denied(a);
	admin_say(a, "}\n");
	return 200;
}

/* ---- HTTP ---- */

static void
conn_free(struct admin_conn *c)
{
	c->admin->n--;
	*c->prev = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	event_free(c->limit);
	bufferevent_free(c->bev);
	free(c);
}

void
admin_reply(struct admin_conn *c, unsigned status, const char *type,
    bool head_only)
{
	struct evbuffer *out = bufferevent_get_output(c->bev);
	const char *word = status == 200 ? "OK" : status == 404 ?
	    "Not Found" : status == 503 ? "Service Unavailable" :
	    status == 405 ? "Method Not Allowed" : status == 403 ?
	    "Forbidden" : "Bad Request";

	evbuffer_add_printf(out, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\n"
	    "Content-Length: %zu\r\nCache-Control: no-store\r\n"
	    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
	    status, word, type, c->admin->len);
	if (!head_only)
		evbuffer_add(out, c->admin->body, c->admin->len);
	c->answered = true;
	bufferevent_disable(c->bev, EV_READ);
}

/* The path without its query. */
bool
admin_is_path(const struct http_request *rq, const char *path)
{
	const uint8_t *query = memchr(rq->path.data, '?', rq->path.len);
	size_t len = query == NULL ? rq->path.len :
	    (size_t)(query - rq->path.data);

	return span_eq(span_of(rq->path.data, len), span_str(path));
}

static bool
is_verbose(const struct http_request *rq)
{
	return memmem(rq->path.data, rq->path.len, "?verbose", 8) != NULL ||
	    memmem(rq->path.data, rq->path.len, "&verbose", 8) != NULL;
}

static bool
wants_openmetrics(const struct http_request *rq)
{
	const struct http_field *f = http_field_find(rq->fields,
	    rq->n_fields, "Accept");

	return f != NULL && memmem(f->value.data, f->value.len,
	    "application/openmetrics-text", 28) != NULL;
}

static void
serve(struct admin_conn *c, const struct http_request *rq)
{
	struct admin *a = c->admin;
	const char *type = "text/plain; charset=utf-8";
	unsigned status = 404;
	bool open = wants_openmetrics(rq);

	a->len = 0;
	if (admin_dns_guarded(c, rq))
		return;
	if (rq->method != HTTP_GET && rq->method != HTTP_HEAD) {
		admin_say(a, "only GET\n");
		status = 405;
	} else if (admin_is_path(rq, "/livez")) {
		status = get_livez(a);
	} else if (admin_is_path(rq, "/readyz") ||
	    admin_is_path(rq, "/healthz")) {
		status = get_readyz(a, is_verbose(rq));
	} else if (admin_is_path(rq, "/status")) {
		status = get_status(a);
		type = "application/json";
	} else if (admin_is_path(rq, "/status/dns")) {
		status = admin_dns_status(c);
		type = "application/json";
	} else if (admin_is_path(rq, "/metrics")) {
		status = get_metrics(a, open);
		type = open ? "application/openmetrics-text; version=1.0.0; "
		    "charset=utf-8" :
		    "text/plain; version=0.0.4; charset=utf-8";
	} else {
		admin_say(a, "try /metrics, /livez, /readyz?verbose, "
		    "/status, /status/dns, /pins\n");
	}
	admin_reply(c, status, type, rq->method == HTTP_HEAD);
}

static void
on_read(struct bufferevent *bev, void *arg)
{
	static struct http_request rq;
	struct admin_conn *c = arg;
	struct evbuffer *in = bufferevent_get_input(bev);
	size_t len = evbuffer_get_length(in);
	const uint8_t *p = evbuffer_pullup(in, -1);
	enum reason why;

	if (c->waits_for != 0)
		return;		/* what it says after its request */
	switch (http_request_parse(span_of(p, len), &c->scanned, 80, &rq,
	    &why)) {
	case PARSE_DONE:
		serve(c, &rq);
		return;
	case PARSE_MORE:
		if (len <= HEAD_MAX_BYTES)
			return;
		why = REASON_HEAD_TOO_LARGE;
		break;
	case PARSE_BAD:
		break;
	}
	c->admin->len = 0;
	admin_say(c->admin, "%s: %s\n", reason_word(why), reason_text(why));
	admin_reply(c, 400, "text/plain; charset=utf-8", false);
}

static void
on_write(struct bufferevent *bev, void *arg)
{
	struct admin_conn *c = arg;

	if (c->answered &&
	    evbuffer_get_length(bufferevent_get_output(bev)) == 0)
		conn_free(c);
}

static void
on_event(struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	(void)what;
	conn_free(arg);
}

static void
on_limit(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	conn_free(arg);
}

static void
conn_new(struct admin *a, int fd)
{
	struct timeval limit = { .tv_sec = DEADLINE_S };
	struct admin_conn *c = a->n < CONNS_MAX ? calloc(1, sizeof(*c)) : NULL;

	if (c == NULL) {
		close(fd);
		return;
	}
	c->admin = a;
	c->bev = bufferevent_socket_new(a->role->base, fd,
	    BEV_OPT_CLOSE_ON_FREE);
	if (c->bev == NULL) {
		close(fd);
		free(c);
		return;
	}
	c->limit = evtimer_new(a->role->base, on_limit, c);
	if (c->limit == NULL || event_add(c->limit, &limit) != 0) {
		if (c->limit != NULL)
			event_free(c->limit);
		bufferevent_free(c->bev);
		free(c);
		return;
	}
	a->n++;
	c->next = a->conns;
	if (c->next != NULL)
		c->next->prev = &c->next;
	c->prev = &a->conns;
	a->conns = c;
	bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
	bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

static void
on_accept(evutil_socket_t fd, short what, void *arg)
{
	int got;

	(void)what;
	got = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (got >= 0)
		conn_new(arg, got);
}

/* ---- life ---- */

static int
admin_start(struct role *r)
{
	struct admin *a = calloc(1, sizeof(*a));
	int page, rc;

	if (a == NULL)
		return -ENOMEM;
	r->self = a;
	a->role = r;
	a->fd = role_take(r, GIVE_LISTENER, 0);
	page = role_take(r, GIVE_HEALTH, 0);
	if (a->fd < 0 || page < 0)
		return -ENOENT;
	rc = health_open(&a->health, page, false);
	close(page);
	if (rc == 0)
		rc = admin_dns_start(a);
	if (rc != 0)
		return rc;
	a->accept = event_new(r->base, a->fd, EV_READ | EV_PERSIST,
	    on_accept, a);
	return a->accept != NULL && event_add(a->accept, NULL) == 0 ? 0 :
	    -ENOMEM;
}

static void
admin_order(struct role *r, enum ipc_type order)
{
	/* it answers through a drain: that is when it is asked */
	if (order == IPC_STOP)
		role_end(r);
}

static void
admin_gift(struct role *r, enum give what, unsigned index, int fd)
{
	(void)index;
	admin_dns_gift(r->self, what, fd);
}

static void
admin_stop(struct role *r)
{
	struct admin *a = r->self;

	if (a == NULL)
		return;
	if (a->accept != NULL)
		event_free(a->accept);
	admin_dns_stop(a);
	health_close(a->health);
	if (a->fd >= 0)
		close(a->fd);
	free(a);
	r->self = NULL;
}

const struct role_ops admin_ops = {
	.start = admin_start,
	.gift = admin_gift,
	.order = admin_order,
	.stop = admin_stop,
};
