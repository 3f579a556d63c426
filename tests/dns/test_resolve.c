/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolve.h"

#include "tests/dns/upstream.h"

/* Against tests/net/dnsserver.py on loopback. */
static const char zone[] = "{"
    "\"a.example\": {\"A\": [\"192.0.2.1\"], \"AAAA\": [\"2001:db8::1\"]},"
    "\"alias.example\": {\"CNAME\": \"a.example\"},"
    "\"big.example\": {\"A\": [\"192.0.2.9\"], \"truncate\": true},"
    "\"fail.example\": {\"rcode\": \"SERVFAIL\"},"
    "\"mute.example\": {\"timeout\": true},"
    "\"empty.example\": {}}";

struct got {
	struct event_base *base;
	unsigned n;
	struct cache_answer answer;
};

static void
on_done(void *arg, const struct cache_answer *a)
{
	struct got *g = arg;

	g->n++;
	g->answer = *a;
	event_base_loopbreak(g->base);
}

static int
server_start(void **state)
{
	(void)state;
	return upstream_start(zone);
}

static int
server_stop(void **state)
{
	(void)state;
	return upstream_stop();
}

static struct got
ask_for(const char *text, unsigned times)
{
	static const uint8_t lo[] = { 127, 0, 0, 1 };
	struct resolve_settings s = { .n_servers = 1, .timeout_ms = 200,
	    .tries = 1, .ipv4 = true, .ipv6 = true, .pending_max = 8 };
	struct got g = { .base = event_base_new() };
	struct cache *c = cache_new(16);
	struct resolve *r;
	struct host name;
	enum reason why;

	s.servers[0].addr = addr_from_v4(lo);
	s.servers[0].port = upstream_port;
	assert_int_equal(host_parse(&name, span_str(text)), REASON_NONE);
	assert_int_equal(resolve_new(&r, g.base, &s, c), 0);
	for (unsigned i = 0; i < times; i++)
		assert_non_null(resolve_start(r, &name, on_done, &g,
		    &why));
	assert_int_equal(g.n, 0);
	event_base_dispatch(g.base);
	while (g.n < times)
		event_base_loop(g.base, EVLOOP_ONCE);
	resolve_free(r);
	cache_free(c);
	event_base_free(g.base);
	return g;
}

static void
both_families_are_merged_and_equal_questions_asked_once(void **state)
{
	struct got g = ask_for("a.example", 5);

	(void)state;
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_int_equal(g.answer.n_addrs, 2);
	assert_true(addr_is_v4(&g.answer.addrs[0]));
	assert_int_equal(asked("a.example"), 2);
}

static void
an_alias_is_followed(void **state)
{
	(void)state;
	assert_int_equal(ask_for("alias.example", 1).answer.n_addrs, 2);
}

static void
a_truncated_answer_is_asked_again_over_tcp(void **state)
{
	struct got g = ask_for("big.example", 1);

	(void)state;
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_int_equal(g.answer.n_addrs, 1);
}

static void
each_failure_has_its_reason(void **state)
{
	(void)state;
	assert_int_equal(ask_for("none.example", 1).answer.reason,
	    REASON_DNS_NXDOMAIN);
	assert_int_equal(ask_for("empty.example", 1).answer.reason,
	    REASON_DNS_NODATA);
	assert_int_equal(ask_for("fail.example", 1).answer.reason,
	    REASON_DNS_SERVFAIL);
	assert_int_equal(ask_for("mute.example", 1).answer.reason,
	    REASON_DNS_TIMEOUT);
}

/* Eight open questions are all there is room for; an equal one joins. */
static void
a_full_table_is_the_limit_of_all(void **state)
{
	struct resolve_settings s = { .n_servers = 1, .timeout_ms = 200,
	    .tries = 1, .ipv4 = true, .pending_max = 8 };
	struct got g = { .base = event_base_new() };
	struct cache *c = cache_new(16);
	enum reason why = REASON_NONE;
	struct resolve *r;
	struct host name;
	char text[32];

	(void)state;
	s.servers[0].addr = addr_from_v4((uint8_t[]){ 127, 0, 0, 1 });
	s.servers[0].port = upstream_port;
	assert_int_equal(resolve_new(&r, g.base, &s, c), 0);
	for (unsigned i = 0; i < 9; i++) {
		snprintf(text, sizeof(text), "n%u.mute.example", i);
		assert_int_equal(host_parse(&name, span_str(text)),
		    REASON_NONE);
		assert_int_equal(resolve_start(r, &name, on_done, &g, &why)
		    != NULL, i < 8);
	}
	assert_int_equal(why, REASON_LIMIT_TOTAL);
	assert_int_equal(host_parse(&name, span_str("n0.mute.example")),
	    REASON_NONE);
	assert_non_null(resolve_start(r, &name, on_done, &g, &why));
	resolve_free(r);
	cache_free(c);
	event_base_free(g.base);
}

/* Two servers: the one of the tests, and one that never answers. */
struct move {
	struct event_base *base;
	struct cache *cache;
	struct resolve *resolve;
	struct resolve_settings settings, mute;
	struct host a;
	int fd;
};

static void
move_open(struct move *m, bool from_mute)
{
	static const uint8_t lo[] = { 127, 0, 0, 1 };
	uint16_t port = 0;

	memset(m, 0, sizeof(*m));
	m->settings = (struct resolve_settings){ .n_servers = 1,
	    .timeout_ms = 300, .tries = 1, .ipv4 = true, .pending_max = 8 };
	m->settings.servers[0].addr = addr_from_v4(lo);
	m->settings.servers[0].port = upstream_port;
	m->mute = m->settings;
	m->fd = bound(SOCK_DGRAM, &port);
	m->mute.servers[0].port = port;
	m->base = event_base_new();
	m->cache = cache_new(16);
	assert_int_equal(host_parse(&m->a, span_str("a.example")),
	    REASON_NONE);
	assert_int_equal(resolve_new(&m->resolve, m->base, from_mute ?
	    &m->mute : &m->settings, m->cache), 0);
}

static void
move_close(struct move *m)
{
	resolve_free(m->resolve);
	cache_free(m->cache);
	event_base_free(m->base);
	close(m->fd);
}

static void
what_is_open_is_put_to_the_new_servers(void **state)
{
	struct cache_answer known;
	struct move m;
	struct got g = { 0 };
	enum reason why;

	(void)state;
	move_open(&m, true);
	g.base = m.base;
	assert_non_null(resolve_start(m.resolve, &m.a, on_done, &g, &why));
	event_base_loop(m.base, EVLOOP_NONBLOCK);
	assert_int_equal(resolve_reconfigure(m.resolve, &m.settings), 0);
	while (g.n == 0)
		event_base_loop(m.base, EVLOOP_ONCE);
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_true(resolve_cached(m.resolve, &m.a, &known));
	assert_int_equal(known.n_addrs, 1);
	move_close(&m);
}

/* The mute server answers after all: for AAAA, and that it failed for A. */
static void
serve_half(const struct move *m)
{
	static const uint8_t answer[] = { 0xc0, 12, 0, 28, 0, 1, 0, 0, 14, 16,
	    0, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7 };
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	uint8_t b[1024];
	ssize_t n = recvfrom(m->fd, b, sizeof(b) - sizeof(answer),
	    MSG_DONTWAIT, (struct sockaddr *)&from, &len);
	size_t at = 12;

	if (n < 17)
		return;
	while (b[at] != 0)
		at += 1u + b[at];
	at += 5;
	b[2] |= 0x80;
	b[11] = 0;
	if (b[at - 3] == 28) {
		b[7] = 1;
		memcpy(b + at, answer, sizeof(answer));
		at += sizeof(answer);
	} else {
		b[3] = 2;
	}
	assert_int_equal(sendto(m->fd, b, at, 0, (struct sockaddr *)&from,
	    len), at);
}

static void
half_an_answer_is_kept_no_longer_than_its_failure(void **state)
{
	struct resolve_settings both;
	struct got g = { 0 };
	enum reason why;
	struct move m;

	(void)state;
	move_open(&m, true);
	both = m.mute;
	both.ipv6 = true;
	assert_int_equal(resolve_reconfigure(m.resolve, &both), 0);
	g.base = m.base;
	assert_non_null(resolve_start(m.resolve, &m.a, on_done, &g, &why));
	while (g.n == 0) {
		event_base_loop(m.base, EVLOOP_NONBLOCK);
		serve_half(&m);
	}
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_int_equal(g.answer.n_addrs, 1);
	assert_in_range(g.answer.ttl_s, 1, CACHE_FAILURE_S);
	move_close(&m);
}

struct event *__real_event_new(struct event_base *base, evutil_socket_t fd,
    short what, event_callback_fn fn, void *arg);
struct event *__wrap_event_new(struct event_base *base, evutil_socket_t fd,
    short what, event_callback_fn fn, void *arg);
static bool no_memory;

struct event *
__wrap_event_new(struct event_base *base, evutil_socket_t fd, short what,
    event_callback_fn fn, void *arg)
{
	return no_memory && fd >= 0 ? NULL :
	    __real_event_new(base, fd, what, fn, arg);
}

static void
a_socket_that_cannot_be_watched_is_looked_at(void **state)
{
	struct got g, big;

	(void)state;
	no_memory = true;
	g = ask_for("a.example", 1);
	big = ask_for("big.example", 1);
	no_memory = false;
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_int_equal(g.answer.n_addrs, 2);
	assert_int_equal(big.answer.reason, REASON_NONE);
}

static struct move *moving;
static struct got first_got;

static void
on_first(void *arg, const struct cache_answer *a)
{
	on_done(arg, a);
	if (first_got.n == 1)
		assert_int_equal(resolve_reconfigure(moving->resolve,
		    &moving->mute), 0);
}

/* Two answers come at once; the servers change when the first is given. */
static void
an_answer_of_the_old_servers_is_not_kept(void **state)
{
	struct cache_answer known;
	struct host c;
	struct move m;
	enum reason why;

	(void)state;
	move_open(&m, false);
	moving = &m;
	memset(&first_got, 0, sizeof(first_got));
	first_got.base = m.base;
	assert_int_equal(host_parse(&c, span_str("alias.example")),
	    REASON_NONE);
	assert_non_null(resolve_start(m.resolve, &m.a, on_first, &first_got,
	    &why));
	assert_non_null(resolve_start(m.resolve, &c, on_first, &first_got,
	    &why));
	usleep(200000);		/* both are there before they are read */
	while (first_got.n == 0)
		event_base_loop(m.base, EVLOOP_ONCE);
	assert_int_equal(first_got.answer.reason, REASON_NONE);
	while (first_got.n < 2)
		event_base_loop(m.base, EVLOOP_ONCE);
	assert_int_equal(first_got.answer.reason, REASON_DNS_TIMEOUT);
	assert_true(!resolve_cached(m.resolve, &m.a, &known) ||
	    known.reason != REASON_NONE);
	assert_true(!resolve_cached(m.resolve, &c, &known) ||
	    known.reason != REASON_NONE);
	move_close(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    both_families_are_merged_and_equal_questions_asked_once),
		cmocka_unit_test(an_alias_is_followed),
		cmocka_unit_test(
		    half_an_answer_is_kept_no_longer_than_its_failure),
		cmocka_unit_test(a_socket_that_cannot_be_watched_is_looked_at),
		cmocka_unit_test(what_is_open_is_put_to_the_new_servers),
		cmocka_unit_test(an_answer_of_the_old_servers_is_not_kept),
		cmocka_unit_test(a_truncated_answer_is_asked_again_over_tcp),
		cmocka_unit_test(each_failure_has_its_reason),
		cmocka_unit_test(a_full_table_is_the_limit_of_all),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
