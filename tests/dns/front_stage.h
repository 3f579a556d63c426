/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DNS_FRONT_STAGE_H
#define TESTS_DNS_FRONT_STAGE_H

/* A front on loopback before tests/net/dnsserver.py, its client and what it
 * says. */
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
    "\"svcb.wild.test\": {\"raw\": {\"65\": ["
    "\"00010000010003026832\", \"000200000100030268320005000"
    "4fe0d0000\"]}},"
    "\"none.allowed.test\": {\"rcode\": \"NXDOMAIN\"},"
    "\"*\": {\"A\": [\"9.9.9.250\"], \"TXT\": [\"text\"], "
    "\"MX\": [\"mail.test\"]}}";

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

static unsigned pin_names_max = 256;

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

static void __attribute__((unused))
on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct world *w = arg;

	(void)fd;
	(void)what;
	emit_state_beat(w->state, true);
}

static void __attribute__((unused))
open_records(struct world *w)
{
	int ring = emit_ring_create(1 << 20), state = emit_state_create();

	assert_true(ring >= 0 && state >= 0);
	w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(emit_open(&w->emit, ring, state, w->wake), 0);
	assert_int_equal(emit_reader_open(&w->reader, ring), 0);
	assert_int_equal(emit_state_open(&w->state, state), 0);
	emit_state_beat(w->state, true);
	close(ring);
	close(state);
	w->count_fd = count_create();
	assert_int_equal(count_open(&w->counts, w->count_fd, 1), 0);
}

static void __attribute__((unused))
open_resolver(struct world *w)
{
	static const uint8_t lo[] = { 127, 0, 0, 1 };
	static struct resolve_settings s;
	struct upstream_settings *up = &s.zones[0].servers;
	int fd;

	s.n_zones = 1;
	s.counts = w->counts;
	s.pending_max = 64;
	up->n_servers = 1;
	up->timeout_ms = 900;
	up->servers[0].at.addr = addr_from_v4(lo);
	up->servers[0].at.port = upstream_port;
	w->cache = cache_new(1u << 20);
	assert_non_null(w->cache);
	assert_int_equal(resolve_new(&w->resolve, w->base, &s, w->cache), 0);
	assert_int_equal(pin_create(&w->pins, pin_names_max, &fd), 0);
	close(fd);
}

static void __attribute__((unused))
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

static struct world * __attribute__((unused))
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

static __attribute__((unused)) struct world *
world_new(void)
{
	struct front_settings s = { 0 };

	return world_with(&s);
}

static void __attribute__((unused))
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

static int64_t __attribute__((unused))
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The front works until there is something to read; false: not in time. */
static bool __attribute__((unused))
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

static void __attribute__((unused))
work(struct world *w, int64_t ms)
{
	int64_t end = now_ms() + ms;

	while (now_ms() < end) {
		event_base_loop(w->base, EVLOOP_NONBLOCK);
		(void)poll(NULL, 0, 2);
	}
}

/* ---- messages ---- */

static size_t __attribute__((unused))
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

static unsigned __attribute__((unused))
at16(const uint8_t *b)
{
	return (unsigned)b[0] << 8 | b[1];
}

/* Where the name at `at` ends. */
static size_t __attribute__((unused))
past_name(const struct reply *r, size_t at)
{
	while (at < r->len && r->b[at] != 0) {
		if (r->b[at] >= 0xc0)
			return at + 2;
		at += 1u + r->b[at];
	}
	return at + 1;
}

static void __attribute__((unused))
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
static bool __attribute__((unused))
holds(const struct reply *r, const char *text)
{
	uint8_t a[16];
	size_t n = inet_pton(AF_INET, text, a) == 1 ? 4 : 16;

	if (n == 16)
		assert_int_equal(inet_pton(AF_INET6, text, a), 1);
	return memmem(r->b, r->len, a, n) != NULL;
}

static void __attribute__((unused))
put(const struct world *w, const uint8_t *msg, size_t len)
{
	assert_int_equal(send(w->udp, msg, len, 0), len);
}

static bool __attribute__((unused))
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

static __attribute__((unused)) struct reply *
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

static __attribute__((unused)) struct reply *
ask(struct world *w, const char *name, uint16_t type)
{
	return ask_sized(w, name, type, 0);
}

/* ---- TCP ---- */

static int __attribute__((unused))
dial(const struct world *w)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(w->port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* A client's socket with another address. */
static int __attribute__((unused))
client_at(const struct world *w, unsigned number, int type)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK + number) };
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	at.sin_port = htons(w->port);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static int __attribute__((unused))
other_client(const struct world *w, int type)
{
	return client_at(w, 1, type);
}

static size_t __attribute__((unused))
framed(uint8_t *out, uint16_t id, const char *name, uint16_t type)
{
	size_t n = query(out + 2, id, name, type, 0);

	out[0] = (uint8_t)(n >> 8);
	out[1] = (uint8_t)n;
	return n + 2;
}

static void __attribute__((unused))
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

static bool __attribute__((unused))
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
static bool __attribute__((unused))
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

static unsigned __attribute__((unused))
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
	emit_commit(w->reader);
	assert_int_equal(lost, 0);
	return n;
}

static bool __attribute__((unused))
pinned(const struct world *w, const char *name, const char *addr)
{
	struct host h = one_host(name);
	struct endpoint e = one_endpoint(addr, 0);
	struct pin_cell cell = { .id = span_str("a") };

	return pin_has(w->pins, &cell, &h, &e.addr, now_ms());
}

/* ---- the server ---- */

static int __attribute__((unused))
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

static int __attribute__((unused))
server_stop(void **state)
{
	(void)state;
	return upstream_stop();
}

#endif
