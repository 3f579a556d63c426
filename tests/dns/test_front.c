/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "dns/front_tcp.h"
#include "dns/message.h"
#include "dns/pin.h"
#include "tests/dns/upstream.h"
#include "tests/policy/one.h"

/* A front on loopback before tests/net/dnsserver.py. */
static const char zone[] = "{"
    "\"api.team.allowed.test\": {\"A\": [\"9.9.9.1\"], "
    "\"AAAA\": [\"2606:4700::1\"]},"
    "\"six.allowed.test\": {\"AAAA\": [\"2606:4700::6\"]},"
    "\"slow.allowed.test\": {\"A\": [\"9.9.9.2\"], \"delay\": 0.3},"
    "\"late.allowed.test\": {\"A\": [\"9.9.9.3\"], \"delay\": 0.6},"
    "\"fail.allowed.test\": {\"rcode\": \"SERVFAIL\"},"
    "\"mute.allowed.test\": {\"timeout\": true},"
    "\"inner.allowed.test\": {\"A\": [\"169.254.169.254\", \"10.0.0.1\", "
    "\"127.0.0.1\"], \"AAAA\": [\"::1\"]},"
    "\"mixed.allowed.test\": {\"A\": [\"10.0.0.1\", \"9.9.9.4\"]},"
    "\"private.allowed.test\": {\"A\": [\"10.0.0.7\", "
    "\"169.254.169.254\"]},"
    "\"big.allowed.test\": {\"A\": [BIG]},"
    "\"none.allowed.test\": {\"rcode\": \"NXDOMAIN\"},"
    "\"*\": {\"A\": [\"9.9.9.250\"]}}";

#define RULES "    - {verdict: deny, hostname: no.allowed.test}\n" \
    "    - {verdict: allow, hostname: api.team.allowed.test}\n" \
    "    - {verdict: allow, hostname: six.allowed.test}\n" \
    "    - {verdict: allow, hostname: slow.allowed.test}\n" \
    "    - {verdict: allow, hostname: late.allowed.test}\n" \
    "    - {verdict: allow, hostname: fail.allowed.test}\n" \
    "    - {verdict: allow, hostname: mute.allowed.test}\n" \
    "    - {verdict: allow, hostname: inner.allowed.test}\n" \
    "    - {verdict: allow, hostname: mixed.allowed.test}\n" \
    "    - {verdict: allow, hostname: big.allowed.test}\n" \
    "    - {verdict: allow, hostname: none.allowed.test}\n" \
    "    - {verdict: allow, hostname: private.allowed.test}\n" \
    "    - {verdict: allow, hostname: private.allowed.test, " \
    "ports: [5432], allow_private: true}\n" \
    "    - {verdict: allow, hostname: \"*.wild.test\"}\n"

struct world {
	struct event_base *base;
	struct cache *cache;
	struct resolve *resolve;
	struct pins *pins;
	struct emit *emit;
	struct emit_reader *reader;
	struct emit_state *state;
	struct counts *counts;
	struct front *front;
	struct one one, other;
	struct event *beat;
	int wake, count_fd;
	uint16_t port;
	int udp;			/* the client's, connected */
};

/* One reply, taken apart as far as the tests need it. */
struct reply {
	uint8_t b[65535];
	size_t len;
	uint16_t id;
	unsigned rcode, questions, answers, authority, additional;
	bool qr, aa, tc, rd, ra;
	bool soa;			/* the first of authority is one */
};

static void
on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct world *w = arg;

	(void)fd;
	(void)what;
	emit_state_beat(w->state, true, 0, 0);
}

static void
open_records(struct world *w)
{
	int ring = emit_ring_create(1 << 20), state = emit_state_create();

	assert_true(ring >= 0 && state >= 0);
	w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(emit_open(&w->emit, ring, state, w->wake), 0);
	assert_int_equal(emit_reader_open(&w->reader, ring), 0);
	assert_int_equal(emit_state_open(&w->state, state), 0);
	emit_state_beat(w->state, true, 0, 0);
	close(ring);
	close(state);
	w->count_fd = count_create();
	assert_int_equal(count_open(&w->counts, w->count_fd, 1), 0);
}

static void
open_resolver(struct world *w)
{
	static const uint8_t lo[] = { 127, 0, 0, 1 };
	struct resolve_settings s = { .n_servers = 1, .timeout_ms = 400,
	    .tries = 1, .ipv4 = true, .ipv6 = true, .pending_max = 64 };
	int fd;

	s.servers[0].addr = addr_from_v4(lo);
	s.servers[0].port = upstream_port;
	w->cache = cache_new(256);
	assert_non_null(w->cache);
	assert_int_equal(resolve_new(&w->resolve, w->base, &s, w->cache), 0);
	assert_int_equal(pin_create(&w->pins, 256, &fd), 0);
	close(fd);
}

static void
open_front(struct world *w, const struct front_settings *s)
{
	struct front_parts parts = { .base = w->base, .resolve = w->resolve,
	    .pins = w->pins, .emit = w->emit, .counts = w->counts,
	    .listener = "dns" };
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int udp, tcp, one = 1;

	w->port = free_port();
	udp = bound(SOCK_DGRAM | SOCK_NONBLOCK, &w->port);
	tcp = bound(SOCK_STREAM | SOCK_NONBLOCK, &w->port);
	assert_true(udp >= 0 && tcp >= 0);
	assert_int_equal(setsockopt(udp, IPPROTO_IP, IP_PKTINFO, &one,
	    sizeof(one)), 0);
	assert_int_equal(listen(tcp, 64), 0);
	assert_int_equal(front_new(&w->front, s, &parts), 0);
	assert_int_equal(front_add_udp(w->front, udp), 0);
	assert_int_equal(front_add_tcp(w->front, tcp), 0);
	front_set_policy(w->front, w->one.policy);
	to.sin_port = htons(w->port);
	w->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(w->udp, (struct sockaddr *)&to,
	    sizeof(to)), 0);
}

static struct world *
world_with(const struct front_settings *s)
{
	struct timeval beat = { .tv_usec = EMIT_BEAT_MS * 1000 };
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->base = event_base_new();
	open_records(w);
	open_resolver(w);
	one_rules(&w->one, RULES);
	open_front(w, s);
	w->beat = event_new(w->base, -1, EV_PERSIST, on_beat, w);
	event_add(w->beat, &beat);
	return w;
}

static struct world *
world_new(void)
{
	struct front_settings s = { 0 };

	return world_with(&s);
}

static void
world_free(struct world *w)
{
	close(w->udp);
	front_free(w->front);
	resolve_free(w->resolve);
	cache_free(w->cache);
	pin_close(w->pins);
	event_free(w->beat);
	emit_close(w->emit);
	emit_reader_close(w->reader);
	count_close(w->counts);
	close(w->count_fd);
	close(w->wake);
	one_done(&w->one);
	if (w->other.ps != NULL)
		one_done(&w->other);
	event_base_free(w->base);
	free(w);
}

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The front works until there is something to read; false: not in time. */
static bool
until_readable(struct world *w, int fd, int64_t ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t end = now_ms() + ms;

	while (poll(&p, 1, 0) == 0) {
		if (now_ms() > end)
			return false;
		event_base_loop(w->base, EVLOOP_NONBLOCK);
		(void)poll(&p, 1, 2);
	}
	return true;
}

static void
work(struct world *w, int64_t ms)
{
	int64_t end = now_ms() + ms;

	while (now_ms() < end) {
		event_base_loop(w->base, EVLOOP_NONBLOCK);
		(void)poll(NULL, 0, 2);
	}
}

/* ---- messages ---- */

static size_t
query(uint8_t *out, uint16_t id, const char *name, uint16_t type,
    unsigned udp_bytes)
{
	size_t n = 12;

	memset(out, 0, n);
	out[0] = (uint8_t)(id >> 8);
	out[1] = (uint8_t)id;
	out[2] = 1;		/* RD */
	out[5] = 1;
	out[11] = udp_bytes > 0;
	while (*name != '\0') {
		size_t len = strcspn(name, ".");

		out[n++] = (uint8_t)len;
		memcpy(out + n, name, len);
		n += len;
		name += len + (name[len] == '.');
	}
	out[n++] = 0;
	out[n++] = (uint8_t)(type >> 8);
	out[n++] = (uint8_t)type;
	out[n++] = 0;
	out[n++] = 1;
	if (udp_bytes > 0) {
		const uint8_t opt[] = { 0, 0, TYPE_OPT,
		    (uint8_t)(udp_bytes >> 8), (uint8_t)udp_bytes, 0, 0, 0,
		    0, 0, 0 };

		memcpy(out + n, opt, sizeof(opt));
		n += sizeof(opt);
	}
	return n;
}

static unsigned
at16(const uint8_t *b)
{
	return (unsigned)b[0] << 8 | b[1];
}

/* Where the name at `at` ends. */
static size_t
past_name(const struct reply *r, size_t at)
{
	while (at < r->len && r->b[at] != 0) {
		if (r->b[at] >= 0xc0)
			return at + 2;
		at += 1u + r->b[at];
	}
	return at + 1;
}

static void
take_apart(struct reply *r)
{
	size_t at = 12;

	assert_true(r->len >= 12);
	r->id = (uint16_t)at16(r->b);
	r->qr = r->b[2] & 0x80;
	r->aa = r->b[2] & 4;
	r->tc = r->b[2] & 2;
	r->rd = r->b[2] & 1;
	r->ra = r->b[3] & 0x80;
	r->rcode = r->b[3] & 15;
	r->questions = at16(r->b + 4);
	r->answers = at16(r->b + 6);
	r->authority = at16(r->b + 8);
	r->additional = at16(r->b + 10);
	r->soa = false;
	if (r->questions == 1)
		at = past_name(r, at) + 4;
	for (unsigned i = 0; i < r->answers; i++) {
		at = past_name(r, at);
		assert_true(at + 10 <= r->len);
		at += 10 + at16(r->b + at + 8);
	}
	if (r->authority > 0) {
		at = past_name(r, at);
		assert_true(at + 10 <= r->len);
		r->soa = at16(r->b + at) == TYPE_SOA;
	}
	assert_true(at <= r->len);
}

/* The IPv4 or IPv6 address is among the answers (as bytes). */
static bool
holds(const struct reply *r, const char *text)
{
	uint8_t a[16];
	size_t n = inet_pton(AF_INET, text, a) == 1 ? 4 : 16;

	if (n == 16)
		assert_int_equal(inet_pton(AF_INET6, text, a), 1);
	return memmem(r->b, r->len, a, n) != NULL;
}

static void
put(const struct world *w, const uint8_t *msg, size_t len)
{
	assert_int_equal(send(w->udp, msg, len, 0), len);
}

static bool
get(struct world *w, struct reply *r, int64_t ms)
{
	ssize_t n;

	if (!until_readable(w, w->udp, ms))
		return false;
	n = recv(w->udp, r->b, sizeof(r->b), 0);
	assert_true(n > 0);
	r->len = (size_t)n;
	take_apart(r);
	return true;
}

static struct reply *
ask_sized(struct world *w, const char *name, uint16_t type, unsigned bytes)
{
	static struct reply r;
	static uint16_t id = 100;
	uint8_t msg[512];
	size_t n = query(msg, ++id, name, type, bytes);

	put(w, msg, n);
	assert_true(get(w, &r, 3000));
	assert_int_equal(r.id, id);
	assert_true(r.qr);
	/* the question comes back byte for byte */
	assert_int_equal(r.questions, 1);
	assert_memory_equal(r.b + 12, msg + 12, n - 12 - (bytes ? 11 : 0));
	assert_true(r.len <= (bytes > 512 ? bytes : 512));
	return &r;
}

static struct reply *
ask(struct world *w, const char *name, uint16_t type)
{
	return ask_sized(w, name, type, 0);
}

/* ---- TCP ---- */

static int
dial(const struct world *w)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(w->port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static size_t
framed(uint8_t *out, uint16_t id, const char *name, uint16_t type)
{
	size_t n = query(out + 2, id, name, type, 0);

	out[0] = (uint8_t)(n >> 8);
	out[1] = (uint8_t)n;
	return n + 2;
}

static void
write_all(struct world *w, int fd, const uint8_t *b, size_t n)
{
	while (n > 0) {
		ssize_t k = send(fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0)
			assert_int_equal(errno, EAGAIN);
		else
			b += k, n -= (size_t)k;
		event_base_loop(w->base, EVLOOP_NONBLOCK);
	}
}

static bool
read_all(struct world *w, int fd, uint8_t *b, size_t n)
{
	while (n > 0) {
		ssize_t k;

		if (!until_readable(w, fd, 3000))
			return false;
		k = recv(fd, b, n, 0);
		if (k <= 0)
			return false;
		b += k;
		n -= (size_t)k;
	}
	return true;
}

/* False at the end of the connection. */
static bool
tcp_get(struct world *w, int fd, struct reply *r)
{
	uint8_t head[2];

	if (!read_all(w, fd, head, 2))
		return false;
	r->len = at16(head);
	assert_true(read_all(w, fd, r->b, r->len));
	take_apart(r);
	return true;
}

/* ---- records ---- */

static unsigned
records(struct world *w, enum reason why, struct record *last)
{
	const struct record *r;
	uint64_t lost = 0;
	unsigned n = 0;

	while ((r = emit_next(w->reader, &lost)) != NULL)
		if (r->kind == RECORD_DNS && r->reason == why) {
			memcpy(last, r, record_size(r));
			n++;
		}
	assert_int_equal(lost, 0);
	return n;
}

static bool
pinned(const struct world *w, const char *name, const char *addr)
{
	struct host h = one_host(name);
	struct endpoint e = one_endpoint(addr, 0);

	return pin_has(w->pins, &h, &e.addr, now_ms());
}

/* ---- the tests ---- */

static void
an_allowed_name_is_answered_and_pinned_before_the_answer(void **state)
{
	struct world *w = world_new();
	struct reply *r = ask(w, "api.team.allowed.test", TYPE_A);

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "9.9.9.1"));
	assert_true(r->ra && r->rd && !r->tc);
	assert_true(pinned(w, "api.team.allowed.test", "9.9.9.1"));
	assert_true(pinned(w, "api.team.allowed.test", "2606:4700::1"));
	r = ask(w, "api.team.allowed.test", TYPE_AAAA);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "2606:4700::1"));
	/* both families were asked for once, the second came from the cache */
	assert_int_equal(asked("api.team.allowed.test"), 2);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_QUESTIONS), 2);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_CACHE_HITS), 1);
	world_free(w);
}

static void
B049_W6_a_name_that_is_not_allowed_never_leaves(void **state)
{
	static const uint16_t types[] = { TYPE_A, TYPE_AAAA, TYPE_TXT, 10,
	    TYPE_CNAME, TYPE_MX, TYPE_SRV, TYPE_HTTPS, TYPE_PTR, TYPE_ANY };
	struct world *w = world_new();
	uint8_t msg[512];
	struct reply r;
	int fd = dial(w);

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(ask(w, "q4x0r9secret.x.evil.test",
		    types[i])->rcode, RCODE_NXDOMAIN);
		write_all(w, fd, msg, framed(msg, 1,
		    "q4x0r9secret.x.evil.test", types[i]));
		assert_true(tcp_get(w, fd, &r));
		assert_int_equal(r.rcode, RCODE_NXDOMAIN);
		/* and no data in a question of another type */
		assert_int_equal(ask(w, "x1.wild.test", types[i])->rcode,
		    types[i] == TYPE_A || types[i] == TYPE_AAAA ?
		    RCODE_NOERROR : RCODE_NOTIMP);
	}
	assert_int_equal(ask(w, "no.allowed.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(ask(w, "x1.wild.test.evil.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(ask(w, "xwild.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(asked("x1.wild.test\""), 2);
	assert_int_equal(asked("evil"), 0);
	assert_int_equal(asked("no.allowed.test"), 0);
	assert_int_equal(asked("xwild"), 0);
	close(fd);
	world_free(w);
}

static void
N17_our_own_no_has_the_shape_that_resolvers_expect(void **state)
{
	static const uint16_t types[] = { TYPE_A, TYPE_NS, TYPE_SOA };
	static const char *const above[] = { "team.allowed.test",
	    "allowed.test", "test", "" };
	struct world *w = world_new();
	struct reply *r;

	(void)state;
	for (size_t t = 0; t < 3; t++) {
		for (size_t i = 0; i < 4; i++) {
			r = ask(w, above[i], types[t]);
			assert_int_equal(r->rcode, RCODE_NOERROR);
			assert_int_equal(r->answers, 0);
			assert_true(r->ra && r->soa && !r->tc);
		}
		r = ask(w, "other.test", types[t]);
		assert_int_equal(r->rcode, RCODE_NXDOMAIN);
		assert_true(r->ra && r->soa && r->answers == 0);
	}
	/* why, for those that read it (RFC 8914) */
	r = ask_sized(w, "no.allowed.test", TYPE_A, 1232);
	assert_non_null(memmem(r->b, r->len, "rule_deny", 9));
	r = ask_sized(w, "other.test", TYPE_A, 1232);
	assert_non_null(memmem(r->b, r->len, "no_rule", 7));
	/* an allowed name under them is not hidden; one that upstream does
	 * not have is a no with SOA too */
	assert_int_equal(ask(w, "api.team.allowed.test", TYPE_A)->answers, 1);
	r = ask(w, "none.allowed.test", TYPE_A);
	assert_int_equal(r->rcode, RCODE_NXDOMAIN);
	assert_true(r->ra && r->soa);
	r = ask(w, "six.allowed.test", TYPE_A);
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_true(r->ra && r->soa && r->answers == 0);
	assert_int_equal(asked("\"team.allowed.test"), 0);
	world_free(w);
}

static void
B044_N14_an_answer_fits_the_client_or_is_asked_for_over_tcp(void **state)
{
	struct world *w = world_new();
	struct reply *r, whole;
	uint8_t msg[512];
	int fd = dial(w);

	(void)state;
	/* 32 addresses: 35 + 32 * 16 bytes */
	r = ask(w, "big.allowed.test", TYPE_A);
	assert_true(r->tc);
	r = ask_sized(w, "big.allowed.test", TYPE_A, 512);
	assert_true(r->tc);
	r = ask_sized(w, "big.allowed.test", TYPE_A, 1232);
	assert_false(r->tc);
	assert_int_equal(r->answers, 32);
	write_all(w, fd, msg, framed(msg, 7, "big.allowed.test", TYPE_A));
	assert_true(tcp_get(w, fd, &whole));
	assert_false(whole.tc);
	assert_int_equal(whole.answers, 32);
	close(fd);
	world_free(w);
}

static void
N13_one_connection_carries_many_questions(void **state)
{
	struct world *w = world_new();
	uint8_t msg[65536];
	unsigned n = 0, answered = 0, first = 0;
	struct reply r;
	size_t len = 0;
	int fd = dial(w);

	(void)state;
	/* the slow one first: it does not hold up the others */
	len = framed(msg, 0, "slow.allowed.test", TYPE_A);
	for (n = 1; n < 300; n++)
		len += framed(msg + len, (uint16_t)n, n % 2 == 0 ?
		    "api.team.allowed.test" : "other.test", TYPE_A);
	write_all(w, fd, msg, len);
	for (; answered < n && tcp_get(w, fd, &r); answered++) {
		if (answered == 0)
			first = r.id;
		assert_true(r.id < 300);
		assert_int_equal(r.rcode, r.id == 0 || r.id % 2 == 0 ?
		    RCODE_NOERROR : RCODE_NXDOMAIN);
		if (r.id == 0)
			assert_true(holds(&r, "9.9.9.2"));
	}
	assert_int_equal(answered, 300);
	assert_int_not_equal(first, 0);
	/* and byte by byte */
	len = framed(msg, 9, "api.team.allowed.test", TYPE_A);
	for (size_t i = 0; i < len; i++) {
		write_all(w, fd, msg + i, 1);
		work(w, 1);
	}
	assert_true(tcp_get(w, fd, &r));
	assert_int_equal(r.id, 9);
	close(fd);
	world_free(w);
}

/* More than may be open at once: the rest waits in the input, and is
 * answered though the client has ended its side meanwhile. */
static void
N13_what_came_before_a_half_close_is_answered(void **state)
{
	struct front_settings s = { .pending_max = 1000 };
	struct world *w = world_with(&s);
	unsigned n = 0, total = 3 * FRONT_TCP_OPEN_MAX;
	uint8_t msg[32768];
	size_t len = 0;
	struct reply r;
	int fd = dial(w);

	(void)state;
	for (unsigned i = 0; i < total; i++)
		len += framed(msg + len, (uint16_t)i, "slow.allowed.test",
		    TYPE_A);
	write_all(w, fd, msg, len);
	shutdown(fd, SHUT_WR);
	while (tcp_get(w, fd, &r)) {
		assert_int_equal(r.answers, 1);
		n++;
	}
	assert_int_equal(n, total);
	close(fd);
	world_free(w);
}

/* A question that cannot be asked for want of room is answered inside its
 * own handler; those behind it are still read once each. */
static void
N13_failures_at_once_do_not_garble_the_rest(void **state)
{
	struct front_settings s = { .pending_max = 1000 };
	struct world *w = world_with(&s);
	unsigned seen[200] = { 0 }, failed = 0;
	uint8_t msg[32768];
	char name[32];
	size_t len = 0;
	struct reply r;
	int fd = dial(w), fill[8];

	(void)state;
	/* the resolver's own table (64) fills from several connections */
	for (unsigned k = 0; k < 8; k++) {
		fill[k] = dial(w);
		len = 0;
		for (unsigned i = 0; i < 25; i++) {
			snprintf(name, sizeof(name), "f%u-%u.wild.test", k,
			    i);
			len += framed(msg + len, (uint16_t)(k * 25 + i), name,
			    TYPE_A);
		}
		write_all(w, fill[k], msg, len);
	}
	for (unsigned k = 0; k < 8; k++)
		for (unsigned i = 0; i < 25; i++) {
			assert_true(tcp_get(w, fill[k], &r));
			assert_true(r.id < 200);
			seen[r.id]++;
			failed += r.rcode == RCODE_SERVFAIL;
		}
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(seen[i], 1);
	assert_true(failed > 0 && failed < 200);
	for (unsigned k = 0; k < 8; k++)
		close(fill[k]);
	close(fd);
	world_free(w);
}

static void
two_bytes_and_silence_end_at_the_idle_limit(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 150, .tcp_max = 1 };
	struct world *w = world_with(&s);
	static const uint8_t head[] = { 0, 40 };
	struct reply r;
	uint8_t msg[512];
	int64_t from = now_ms();
	int fd = dial(w), second;

	(void)state;
	write_all(w, fd, head, sizeof(head));
	work(w, 20);
	second = dial(w);		/* one too many */
	assert_false(tcp_get(w, second, &r));
	close(second);
	assert_false(tcp_get(w, fd, &r));
	assert_in_range(now_ms() - from, 140, 2000);
	close(fd);
	fd = dial(w);			/* its place is free */
	write_all(w, fd, msg, framed(msg, 5, "other.test", TYPE_A));
	assert_true(tcp_get(w, fd, &r));
	close(fd);
	world_free(w);
}

/* As many equal questions as fit into msg. */
static unsigned
fill(uint8_t *msg, size_t size, size_t *len)
{
	unsigned n = 0;

	for (*len = 0; *len + 64 < size; n++)
		*len += framed(msg + *len, (uint16_t)n, "other.test", TYPE_A);
	return n;
}

/* A connection with little room for answers on their way. */
static int
dial_narrow(const struct world *w)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(w->port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small,
	    sizeof(small)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* Answers that nobody reads end the connection, and its place is free. */
static void
a_client_that_reads_nothing_is_not_served_for_ever(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 300, .tcp_max = 1 };
	struct world *w = world_with(&s);
	static uint8_t msg[65536];
	struct reply r;
	int64_t end = now_ms() + 10000;
	int fd = dial_narrow(w);
	size_t len, at = 0;
	ssize_t k;

	(void)state;
	(void)fill(msg, sizeof(msg), &len);
	while ((k = send(fd, msg + at, len - at, MSG_DONTWAIT |
	    MSG_NOSIGNAL)) > 0 || errno == EAGAIN) {
		at = k > 0 ? (at + (size_t)k) % len : at;
		work(w, 1);
		assert_true(now_ms() < end);
	}
	close(fd);
	fd = dial(w);
	write_all(w, fd, msg, framed(msg, 5, "other.test", TYPE_A));
	assert_true(tcp_get(w, fd, &r));
	close(fd);
	world_free(w);
}

/* Questions stand back while answers wait to be read; none is lost, and the
 * connection goes on afterwards. */
static void
a_client_that_reads_late_gets_every_answer(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 3000 };
	struct world *w = world_with(&s);
	static uint8_t msg[200000];
	int fd = dial_narrow(w);
	size_t len, at = 0;
	unsigned n = fill(msg, sizeof(msg), &len);
	struct reply r;
	ssize_t k;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		k = at < len ? send(fd, msg + at, len - at, MSG_DONTWAIT) : 0;
		at += k > 0 ? (size_t)k : 0;
		work(w, 1);
	}
	for (unsigned i = 0; i < n; i++) {
		if (at < len) {
			k = send(fd, msg + at, len - at, MSG_DONTWAIT);
			at += k > 0 ? (size_t)k : 0;
		}
		assert_true(tcp_get(w, fd, &r));
		assert_int_equal(r.id, i & 0xffff);
	}
	assert_int_equal(at, len);
	write_all(w, fd, msg, framed(msg, 5, "six.allowed.test", TYPE_AAAA));
	assert_true(tcp_get(w, fd, &r));
	assert_int_equal(r.answers, 1);
	close(fd);
	world_free(w);
}

static void
B046_the_case_of_a_question_is_kept(void **state)
{
	struct world *w = world_new();

	(void)state;
	/* ask() compares the question byte by byte */
	assert_int_equal(ask(w, "aPi.TeAm.AlLoWeD.tEsT", TYPE_A)->answers,
	    1);
	assert_int_equal(ask(w, "API.team.allowed.TEST", TYPE_A)->answers,
	    1);
	assert_int_equal(ask(w, "NO.allowed.TEST", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_true(pinned(w, "api.team.allowed.test", "9.9.9.1"));
	world_free(w);
}

static void
an_allowed_name_does_not_lead_inside(void **state)
{
	struct world *w = world_new();
	struct record last;
	struct reply *r = ask_sized(w, "inner.allowed.test", TYPE_A, 1232);

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 0);
	assert_true(r->soa);
	assert_non_null(memmem(r->b, r->len, "dns_special_use", 15));
	assert_int_equal(ask(w, "inner.allowed.test", TYPE_AAAA)->answers, 0);
	assert_false(pinned(w, "inner.allowed.test", "169.254.169.254"));
	assert_int_equal(records(w, REASON_DNS_SPECIAL_USE, &last), 1);
	assert_int_equal(last.verdict, VERDICT_DENY);

	r = ask(w, "mixed.allowed.test", TYPE_A);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "9.9.9.4"));
	assert_false(pinned(w, "mixed.allowed.test", "10.0.0.1"));

	/* private on one port: the answer has it, each dial is judged */
	r = ask(w, "private.allowed.test", TYPE_A);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "10.0.0.7"));
	assert_true(pinned(w, "private.allowed.test", "10.0.0.7"));
	assert_false(pinned(w, "private.allowed.test", "169.254.169.254"));
	world_free(w);
}

static void
B045_under_ipv6_drop_aaaa_is_no_data(void **state)
{
	struct front_settings s = { .ipv6_drop = true };
	struct world *w = world_with(&s);
	struct reply *r = ask(w, "six.allowed.test", TYPE_AAAA);
	unsigned before = asked("six.allowed.test");

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 0);
	assert_true(r->soa && r->ra);
	assert_int_equal(ask(w, "six.allowed.test", TYPE_AAAA)->answers, 0);
	assert_int_equal(asked("six.allowed.test"), before);
	world_free(w);
}

static void
other_forms_are_told_so(void **state)
{
	struct world *w = world_new();
	struct reply r;
	uint8_t msg[512];
	size_t n;

	(void)state;
	n = query(msg, 1, "api.team.allowed.test", TYPE_A, 0);
	msg[n - 1] = 3;				/* CHAOS */
	put(w, msg, n);
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_REFUSED);
	n = query(msg, 2, "api.team.allowed.test", TYPE_A, 0);
	msg[2] |= 4 << 3;			/* NOTIFY */
	put(w, msg, n);
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_NOTIMP);
	n = query(msg, 3, "api.team.allowed.test", TYPE_A, 1232);
	msg[n - 5] = 1;				/* EDNS 1 */
	put(w, msg, n);
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_BADVERS & 15);
	n = query(msg, 4, "api.team.allowed.test", TYPE_A, 0);
	put(w, msg, n - 1);			/* cut */
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_FORMERR);
	assert_int_equal(r.id, 4);
	msg[2] |= 0x80;				/* a response, and too short */
	put(w, msg, n);
	put(w, msg, 3);
	assert_false(get(w, &r, 200));
	assert_int_equal(count_denied_sum(w->counts, REASON_DNS_MALFORMED),
	    3);
	world_free(w);
}

static void
equal_refusals_are_one_record(void **state)
{
	struct world *w = world_new();
	struct record last;

	(void)state;
	for (unsigned i = 0; i < 50; i++)
		ask(w, "other.test", TYPE_A);
	ask(w, "another.test", TYPE_A);
	assert_int_equal(records(w, REASON_NO_RULE, &last), 2);
	assert_int_equal(count_denied_sum(w->counts, REASON_NO_RULE), 51);
	assert_int_equal(last.name_from, NAME_FROM_QUESTION);
	assert_int_equal(last.via, VIA_DNS_UDP);
	assert_int_equal(last.qtype, TYPE_A);
	assert_true(record_get(&last, TEXT_NAME).len == 12);
	world_free(w);
}

static void
without_a_recorder_nothing_is_asked(void **state)
{
	struct world *w = world_new();
	struct record last;
	unsigned before = asked("slow.allowed.test");

	(void)state;
	event_del(w->beat);
	emit_state_beat(w->state, false, 0, 0);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	assert_int_equal(asked("slow.allowed.test"), before);
	/* a heartbeat that stopped is the same */
	emit_state_beat(w->state, true, 0, 0);
	work(w, EMIT_STALE_MS + 100);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	assert_int_equal(asked("slow.allowed.test"), before);
	assert_int_equal(count_denied_sum(w->counts,
	    REASON_LEDGER_UNAVAILABLE), 2);
	(void)records(w, REASON_NONE, &last);
	emit_state_beat(w->state, true, 0, 0);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->answers, 1);
	world_free(w);
}

static void
upstream_failures_are_servfail(void **state)
{
	struct world *w = world_new();

	(void)state;
	assert_int_equal(ask(w, "fail.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	assert_int_equal(ask(w, "mute.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	world_free(w);
}

static void
B047_a_full_table_fails_at_once_and_recovers(void **state)
{
	struct front_settings s = { .pending_max = 2 };
	struct world *w = world_with(&s);
	uint8_t msg[512];
	struct reply r;

	(void)state;
	put(w, msg, query(msg, 1, "mute.allowed.test", TYPE_A, 0));
	put(w, msg, query(msg, 2, "mute.allowed.test", TYPE_A, 0));
	put(w, msg, query(msg, 3, "x9.wild.test", TYPE_A, 0));
	assert_true(get(w, &r, 200));
	assert_int_equal(r.id, 3);
	assert_int_equal(r.rcode, RCODE_SERVFAIL);
	assert_true(get(w, &r, 3000));
	assert_true(get(w, &r, 3000));
	assert_int_equal(ask(w, "x9.wild.test", TYPE_A)->answers, 1);
	world_free(w);
}

static void
without_a_policy_everything_is_refused(void **state)
{
	struct world *w = world_new();
	struct reply *r;

	(void)state;
	front_set_policy(w->front, NULL);
	r = ask(w, "x2.wild.test", TYPE_A);
	assert_int_equal(r->rcode, RCODE_REFUSED);
	assert_int_equal(asked("x2.wild.test"), 0);
	front_set_policy(w->front, w->one.policy);
	assert_int_equal(ask(w, "x2.wild.test", TYPE_A)->answers, 1);
	world_free(w);
}

static void
a_new_policy_judges_what_waits(void **state)
{
	struct world *w = world_new();
	uint8_t msg[512];
	struct reply r;

	(void)state;
	one_rules(&w->other,
	    "    - {verdict: allow, hostname: slow.allowed.test}\n");
	put(w, msg, query(msg, 1, "slow.allowed.test", TYPE_A, 0));
	put(w, msg, query(msg, 2, "late.allowed.test", TYPE_A, 0));
	work(w, 50);
	front_set_policy(w->front, w->other.policy);
	assert_true(get(w, &r, 100));		/* refused at once */
	assert_int_equal(r.id, 2);
	assert_int_equal(r.rcode, RCODE_NXDOMAIN);
	assert_true(get(w, &r, 2000));
	assert_int_equal(r.id, 1);
	assert_true(holds(&r, "9.9.9.2"));
	assert_false(get(w, &r, 600));
	assert_false(pinned(w, "late.allowed.test", "9.9.9.3"));
	world_free(w);
}

static void
a_front_ends_with_questions_open(void **state)
{
	struct world *w = world_new();
	uint8_t msg[4096];
	size_t n = 0;
	int fd = dial(w), gone = dial(w);

	(void)state;
	for (unsigned i = 0; i < 80; i++)
		n += framed(msg + n, (uint16_t)i, "mute.allowed.test",
		    TYPE_A);
	write_all(w, fd, msg, n);
	write_all(w, gone, msg, n / 2);
	put(w, msg + 2, framed(msg, 1, "mute.allowed.test", TYPE_A) - 2);
	work(w, 30);
	{
		struct linger now = { .l_onoff = 1 };

		setsockopt(gone, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(gone);		/* reset: its questions stay */
	}
	work(w, 30);
	world_free(w);
	close(fd);
}

/* ---- engines ---- */

static bool
engine_get(struct world *w, int fd, struct ask_answer *a)
{
	return until_readable(w, fd, 1500) &&
	    recv(fd, a, sizeof(*a), 0) == (ssize_t)sizeof(*a);
}

static int
engine(struct world *w)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
	    SOCK_NONBLOCK, 0, sv), 0);
	assert_int_equal(front_add_engine(w->front, sv[1]), 0);
	return sv[0];
}

static struct ask_question
question(uint64_t id, const char *name)
{
	return (struct ask_question){ .id = id, .name = one_host(name) };
}

static void
an_engine_is_answered_as_a_workload_is(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "api.team.allowed.test");
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 1);
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n_addrs, 2);
	assert_true(pinned(w, "api.team.allowed.test", "9.9.9.1"));
	q = question(2, "spy.evil.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_NO_RULE);
	assert_int_equal(a.n_addrs, 0);
	assert_int_equal(asked("spy.evil"), 0);
	q = question(3, "none.allowed.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_DNS_NXDOMAIN);
	q = question(4, "inner.allowed.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_DNS_SPECIAL_USE);
	assert_int_equal(a.n_addrs, 0);
	close(fd);
	work(w, 10);
	world_free(w);
}

static void
an_engines_unsound_questions_are_passed_over(void **state)
{
	struct world *w = world_new();
	struct { struct ask_question q; char more; } m = {
	    .q = question(9, "api.team.allowed.test") };
	const struct ask_question good = m.q;
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	send(fd, &m, sizeof(m), 0);		/* longer */
	send(fd, &good, sizeof(good) - 1, 0);
	send(fd, &good, 1, 0);
	m.q.cell = 1;				/* there is one cell, 0 */
	send(fd, &m.q, sizeof(m.q), 0);
	m.q.cell = CELL_NONE;
	send(fd, &m.q, sizeof(m.q), 0);
	m.q = good;
	m.q.name.len = 0;
	send(fd, &m.q, sizeof(m.q), 0);
	m.q = good;
	memset(&m.q.name.len, 0xff, sizeof(m.q.name.len));
	send(fd, &m.q, sizeof(m.q), 0);
	m.q = good;
	m.q.name.name[3] = '\0';
	send(fd, &m.q, sizeof(m.q), 0);
	m.q.name.name[3] = '@';
	send(fd, &m.q, sizeof(m.q), 0);
	memset(&m.q.name, 0xff, sizeof(m.q.name));
	send(fd, &m.q, sizeof(m.q), 0);
	work(w, 50);
	m.q = good;
	m.q.id = 10;
	send(fd, &m.q, sizeof(m.q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 10);
	front_set_policy(w->front, NULL);
	send(fd, &good, sizeof(good), 0);
	assert_false(engine_get(w, fd, &a));
	close(fd);
	world_free(w);
}

static void
an_engine_that_dies_leaves_its_questions_behind(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "slow.allowed.test");
	int fd = engine(w), kept = engine(w);
	struct ask_answer a;

	(void)state;
	send(fd, &q, sizeof(q), 0);
	send(kept, &q, sizeof(q), 0);
	work(w, 50);
	close(fd);
	assert_true(engine_get(w, kept, &a));
	assert_int_equal(a.reason, REASON_NONE);
	work(w, 50);
	close(kept);
	world_free(w);
}

static void
an_engines_open_question_is_judged_by_a_new_policy(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "slow.allowed.test");
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	one_rules(&w->other,
	    "    - {verdict: allow, hostname: slow.allowed.test}\n");
	send(fd, &q, sizeof(q), 0);
	q = question(2, "late.allowed.test");
	send(fd, &q, sizeof(q), 0);
	work(w, 50);
	front_set_policy(w->front, w->other.policy);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 2);
	assert_int_equal(a.reason, REASON_NO_RULE);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 1);
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n_addrs, 1);
	q = question(3, "late.allowed.test");
	front_set_policy(w->front, w->one.policy);
	send(fd, &q, sizeof(q), 0);
	work(w, 50);
	front_set_policy(w->front, NULL);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 3);
	assert_int_equal(a.reason, REASON_POLICY_CHANGED);
	close(fd);
	world_free(w);
}

/* ---- the run ---- */

static int
server_start(void **state)
{
	char text[8192], big[1024] = "";
	const char *at = strstr(zone, "BIG");
	size_t n = 0;

	(void)state;
	for (unsigned i = 0; i < 32; i++)
		n += (size_t)snprintf(big + n, sizeof(big) - n,
		    "%s\"9.8.7.%u\"", i > 0 ? ", " : "", i);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - zone), zone, big,
	    at + 3);
	return upstream_start(text);
}

static int
server_stop(void **state)
{
	(void)state;
	return upstream_stop();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    an_allowed_name_is_answered_and_pinned_before_the_answer),
		cmocka_unit_test(
		    B049_W6_a_name_that_is_not_allowed_never_leaves),
		cmocka_unit_test(
		    N17_our_own_no_has_the_shape_that_resolvers_expect),
		cmocka_unit_test(
		    B044_N14_an_answer_fits_the_client_or_is_asked_for_over_tcp),
		cmocka_unit_test(N13_one_connection_carries_many_questions),
		cmocka_unit_test(N13_what_came_before_a_half_close_is_answered),
		cmocka_unit_test(N13_failures_at_once_do_not_garble_the_rest),
		cmocka_unit_test(two_bytes_and_silence_end_at_the_idle_limit),
		cmocka_unit_test(
		    a_client_that_reads_nothing_is_not_served_for_ever),
		cmocka_unit_test(a_client_that_reads_late_gets_every_answer),
		cmocka_unit_test(B046_the_case_of_a_question_is_kept),
		cmocka_unit_test(an_allowed_name_does_not_lead_inside),
		cmocka_unit_test(B045_under_ipv6_drop_aaaa_is_no_data),
		cmocka_unit_test(other_forms_are_told_so),
		cmocka_unit_test(equal_refusals_are_one_record),
		cmocka_unit_test(without_a_recorder_nothing_is_asked),
		cmocka_unit_test(upstream_failures_are_servfail),
		cmocka_unit_test(B047_a_full_table_fails_at_once_and_recovers),
		cmocka_unit_test(without_a_policy_everything_is_refused),
		cmocka_unit_test(a_new_policy_judges_what_waits),
		cmocka_unit_test(a_front_ends_with_questions_open),
		cmocka_unit_test(an_engine_is_answered_as_a_workload_is),
		cmocka_unit_test(an_engines_unsound_questions_are_passed_over),
		cmocka_unit_test(
		    an_engine_that_dies_leaves_its_questions_behind),
		cmocka_unit_test(
		    an_engines_open_question_is_judged_by_a_new_policy),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
