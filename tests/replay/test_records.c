/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ledger learns of connections that end badly.  The program is linked
 * with --wrap, so that memory can be missing at one place.
 */
#include "tests/replay/stage.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ledger-client/fold.h"
#include "proxy/conn.h"

static atomic_bool no_conn, no_end;	/* no memory for these */
static uint8_t hello[1024];
static char got[8192];

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *
__wrap_malloc(size_t n)
{
	if (atomic_load(&no_end) && n >= offsetof(struct record, text) &&
	    n <= sizeof(struct record))
		return NULL;
	return __real_malloc(n);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	if (atomic_load(&no_conn) && size == sizeof(struct conn))
		return NULL;
	return __real_calloc(n, size);
}

static void
is_at(const struct endpoint *e, const char *addr, uint16_t port)
{
	char text[ADDR_TEXT_BYTES];

	assert_string_equal(addr_text(&e->addr, text), addr);
	assert_int_equal(e->port, port);
}

static void
is_text(const struct record *r, enum record_text which, const char *text)
{
	struct span s = record_get(r, which);

	if (!span_eq(s, span_str(text)))
		fail_msg("'%.*s' is not '%s'", (int)s.len, s.data, text);
}

/* A denial that became no connection. */
static const struct record *
turned_away(enum reason why)
{
	const struct record *r;

	do
		r = stage_record(RECORD_DECISION);
	while (r->connection != 0);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, why);
	assert_int_equal(r->generation, 1);
	is_text(r, TEXT_CELL, "cell");
	return r;
}

static void
is_reset(int fd)
{
	bool reset;

	assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset), 0);
	assert_true(reset);
	close(fd);
}

/* ---- no place, no answer ---- */

enum { TOLD = 256, MORE = 6 };

static void
a_crowd_beyond_the_limit_is_told_of_in_few_records(void **state)
{
	struct proxy_limits l = stage_limits;
	const struct record *r;
	int fd[1 + TOLD];

	(void)state;
	l.per_client = 1;
	l.hello_ms = l.linger_ms = 20000;
	stage_up(NULL, &l);
	for (int i = 0; i < 1 + TOLD; i++)
		fd[i] = stage_connect(WANTED, 3128);
	for (int i = 1; i < 1 + TOLD; i++)
		stage_expect(fd[i], "HTTP/1.1 503", 12);
	for (int i = 0; i < MORE; i++)
		is_reset(stage_connect(WANTED, i < 2 ? 443 : 80));
	for (unsigned i = 0; i < FOLD_DISTINCT; i++) {
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->reason, REASON_LIMIT_CLIENT);
		assert_int_not_equal(r->connection, 0);
		assert_int_equal(r->count, 0);
	}
	assert_true(stage_no_record(RECORD_DECISION));
	for (int i = 0; i < 1 + TOLD; i++)
		close(fd[i]);
	stage_stop();
	/* whether they had an answer or were reset */
	r = turned_away(REASON_LIMIT_CLIENT);
	assert_int_equal(r->count, TOLD + MORE - FOLD_DISTINCT);
	is_at(&r->client, WANTED, r->client.port);
	assert_int_equal(r->original.port, 0);	/* not all the same */
	assert_int_equal(r->via, VIA_NONE);
	assert_true(stage_no_record(RECORD_DECISION));
	stage_down();
}

#define AGENT_POLICY "version: 1\nnetwork:\n  default: deny\n" \
	"  resolvers: [198.18.0.53]\n  lab: [203.0.113.0/24]\n  rule:\n" \
	"    - {verdict: allow, hostname: allowed.test}\n"

static int
asks(const char *credential)
{
	int fd = stage_connect(WANTED, 3128);

	say(fd, "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n");
	say(fd, credential);
	say(fd, "\r\n");
	return fd;
}

static int
agent_asks(void)
{
	return asks("Proxy-Authorization: Basic YWdlbnQ6c2VjcmV0\r\n");
}

static void
is_over(int fd, const char *cell)
{
	const struct record *r;

	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 503", 12);
	assert_non_null(strstr(got, "limit_cell"));
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, REASON_LIMIT_CELL);
	is_text(r, TEXT_CELL, cell);
	close(fd);
}

/* Of eight places three are each cell's.  On the explicit listener a
 * connection counts from its first request on. */
static void
each_cell_has_its_share(void **state)
{
	struct proxy_limits l = stage_limits;
	int fd[3], of_agent[3], origin, server[3];

	(void)state;
	l.connections = 8;
	l.hello_ms = l.idle_ms = 20000;
	stage_agent(AGENT_POLICY, "1");
	stage_up(NULL, &l);
	origin = stage_listen(ORIGIN, 443);
	for (int i = 0; i < 2; i++)
		fd[i] = stage_connect(WANTED, 443);
	for (int i = 0; i < 3; i++) {
		of_agent[i] = agent_asks();
		stage_read_head(of_agent[i], got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		server[i] = stage_accept(origin);
		assert_true(server[i] >= 0);
	}
	is_over(agent_asks(), "agent");
	fd[2] = stage_connect(WANTED, 443);
	usleep(50000);
	is_over(asks(""), "cell");
	for (int i = 0; i < 3; i++) {
		close(fd[i]);
		close(of_agent[i]);
		close(server[i]);
	}
	close(origin);
	stage_agent(NULL, NULL);
	stage_down();
}

static void
without_memory_for_a_connection_there_is_a_record(void **state)
{
	struct proxy_limits l = stage_limits;
	const struct record *r;
	int fd;

	(void)state;
	l.per_cell = 1;
	stage_up(NULL, &l);
	atomic_store(&no_conn, true);
	is_reset(stage_connect(WANTED, 443));
	r = turned_away(REASON_LIMIT_MEMORY);
	is_at(&r->original, WANTED, 443);
	atomic_store(&no_conn, false);
	/* nor has it a place */
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, stage_hello("denied.test", hello,
	    sizeof(hello)));
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_RULE_DENY);
	close(fd);
	stage_down();
}

static void
B028_W34_without_a_descriptor_there_is_a_record(void **state)
{
	struct rlimit old, few;
	struct sockaddr_storage ss;
	struct endpoint e = { .port = 443 };
	const struct record *r;
	int fd[8];

	(void)state;
	stage_up(NULL, NULL);
	assert_true(addr_parse(&e.addr, span_str(WANTED)));
	endpoint_to_sockaddr(&e, &ss);
	for (int i = 0; i < 8; i++)	/* made before the limit: they stay */
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	few.rlim_cur = (rlim_t)fd[7] + 2;
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < 8; i++)
		assert_int_equal(connect(fd[i], (struct sockaddr *)&ss,
		    sizeof(struct sockaddr_in)), 0);
	r = turned_away(REASON_LIMIT_DESCRIPTORS);
	assert_int_equal(r->via, VIA_TPROXY);
	is_at(&r->client, WANTED, r->client.port);
	is_at(&r->original, WANTED, 443);
	for (int i = 0; i < 8; i++)
		close(fd[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	usleep(300000);
	stage_down();
}

static void
a_denial_is_told_without_memory_for_its_end(void **state)
{
	size_t n = stage_hello("denied.test", hello, sizeof(hello));
	const struct record *r;
	bool reset;
	int fd;

	(void)state;
	stage_up(NULL, NULL);
	atomic_store(&no_end, true);
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, REASON_RULE_DENY);
	is_text(r, TEXT_NAME, "denied.test");
	atomic_store(&no_end, false);
	stage_down();
}

/* ---- what comes after the decision ---- */

static int
tunnel(int lfd, const char *head, int *server)
{
	int fd = stage_connect(WANTED, 3128);

	say(fd, head);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	return fd;
}

#define TUNNEL "CONNECT allowed.test:443 HTTP/1.1\r\n" \
	"Host: allowed.test:443\r\n\r\n"
#define OPAQUE "CONNECT git.test:22 HTTP/1.1\r\nHost: git.test:22\r\n\r\n"

/* A hello that offers h2. */
static size_t
with_alpn(const char *name)
{
	static const uint8_t h2[] = { 0, 3, 2, 'h', '2' };
	size_t n = stage_hello(name, hello, sizeof(hello));

	n = stage_extend(hello, n, 16, sizeof(h2));
	memcpy(hello + STAGE_EXTENSION, h2, sizeof(h2));
	return n;
}

/* Where it is shown at once the decision has it: the end of the others must
 * tell the same. */
static void
the_end_of_a_tunnel_tells_of_the_hello_inside(void **state)
{
	char ja4[64] = "", text[64];
	int tls, ssh, fd, server;
	const struct record *r;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("git.test", ORIGIN);
	stage_pin("git.test", WANTED);
	tls = stage_listen(ORIGIN, 443);
	ssh = stage_listen(ORIGIN, 22);
	for (int i = 0; i < 3; i++) {
		size_t n = with_alpn(i < 2 ? "allowed.test" : "git.test");

		if (i == 0) {
			fd = stage_connect(WANTED, 443);
			stage_send(fd, hello, n);
			server = stage_accept(tls);
			assert_true(server >= 0);
		} else {
			fd = tunnel(i == 1 ? tls : ssh, i == 1 ? TUNNEL :
			    OPAQUE, &server);
			stage_send(fd, hello, n);
		}
		stage_expect(server, hello, n);
		close(fd);
		close(server);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(record_get(r, TEXT_JA4).len, i ? 0 : 36);
		r = stage_record(RECORD_END);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		is_text(r, TEXT_ALPN, "h2");
		is_text(r, TEXT_NAME, i < 2 ? "allowed.test" : "git.test");
		span_print(record_get(r, TEXT_JA4), text, sizeof(text));
		assert_int_equal(strlen(text), 36);
		if (i == 0)
			memcpy(ja4, text, sizeof(ja4));
		assert_string_equal(text, ja4);
	}
	close(tls);
	close(ssh);
	stage_down();
}

/* The hello of another name after `head`, or after a retry. */
static void
the_end_tells_of_a_later_denial(void **state)
{
	static const struct {
		const char *head, *name, *other;
		enum reason why;
	} t[] = {
		{ TUNNEL, "allowed.test", "second.test",
		    REASON_SNI_MISMATCH },
		{ OPAQUE, "git.test", "allowed.test", REASON_OTHER_NAME },
		{ NULL, "allowed.test", "second.test", REASON_SECOND_HELLO },
	};
	int tls, ssh, fd, server;
	const struct record *r;
	bool reset;
	size_t n;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("git.test", ORIGIN);
	tls = stage_listen(ORIGIN, 443);
	ssh = stage_listen(ORIGIN, 22);
	for (int i = 0; i < 3; i++) {
		if (t[i].head != NULL) {
			fd = tunnel(i == 1 ? ssh : tls, t[i].head, &server);
		} else {
			fd = stage_connect(WANTED, 443);
			n = stage_hello(t[i].name, hello, sizeof(hello));
			stage_send(fd, hello, n);
			server = stage_accept(tls);
			stage_expect(server, hello, n);
			stage_send(server, stage_retry, sizeof(stage_retry));
			stage_expect(fd, stage_retry, sizeof(stage_retry));
		}
		n = with_alpn(t[i].other);
		stage_send(fd, hello, n);
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		close(server);
		r = stage_record(RECORD_END);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_equal(r->would, VERDICT_DENY);
		assert_int_equal(r->reason, t[i].why);
		assert_int_equal(r->how, HOW_REFUSED);
		is_text(r, TEXT_NAME, t[i].name);
		is_text(r, TEXT_OTHER_NAME, t[i].other);
		is_at(&r->dialled, ORIGIN, i == 1 ? 22 : 443);
	}
	close(tls);
	close(ssh);
	stage_down();
}

/* On a kept connection the first request is answered. */
static int
kept(int lfd, int *server)
{
	int fd = stage_connect(WANTED, 80);

	say(fd, "GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	stage_read_head(*server, got, sizeof(got));
	say(*server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	return fd;
}

/* The next end is of this request, went there, and has these bytes. */
static const struct record *
ended(uint64_t request, const char *addr, size_t bytes_up, size_t bytes_down)
{
	const struct record *r = stage_record(RECORD_END);

	assert_int_equal(r->request, request);
	assert_int_equal(r->bytes_up, bytes_up);
	assert_int_equal(r->bytes_down, bytes_down);
	if (addr != NULL)
		is_at(&r->dialled, addr, 80);
	return r;
}

static void
a_refused_request_has_an_end_of_its_own(void **state)
{
	int web, fd, server;
	const struct record *r;
	bool reset;
	size_t n;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	for (int away = 0; away < 2; away++) {
		fd = kept(web, &server);
		if (away) {	/* no room for another end */
			stage_beat(false);
			usleep(700000);
		}
		say(fd, "GET /2 HTTP/1.1\r\nHost: denied.test\r\n\r\n");
		n = stage_read_all(fd, got, sizeof(got), &reset);
		assert_memory_equal(got, "HTTP/1.1 403", 12);
		close(fd);
		close(server);
		do
			r = stage_record(RECORD_END);
		while (r->request != 1);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		assert_int_equal(r->how, HOW_FIN);
		is_text(r, TEXT_NAME, "allowed.test");
		r = ended(2, NULL, 0, n);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_equal(r->reason, REASON_RULE_DENY);
		is_text(r, TEXT_CELL, "cell");
		is_text(r, TEXT_NAME, "denied.test");
		is_text(r, TEXT_PATH, "/2");
		is_text(r, TEXT_RULE_REASON, "not here");
	}
	close(web);
	stage_down();
}

/* Of what was told before, that stays which the denial tells too. */
static void
a_later_denial_without_room_keeps_what_is_true(void **state)
{
	int tls, fd, server;
	const struct record *r;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	tls = stage_listen(ORIGIN, 443);
	fd = tunnel(tls, TUNNEL, &server);
	stage_beat(false);
	usleep(550000);
	stage_send(fd, hello, with_alpn("second.test"));
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	close(server);
	r = stage_record(RECORD_END);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, REASON_SNI_MISMATCH);
	is_text(r, TEXT_CELL, "cell");
	is_text(r, TEXT_NAME, "allowed.test");
	is_text(r, TEXT_OTHER_NAME, "");
	close(tls);
	stage_down();
}

/* ---- one connection, several requests ---- */

#define OTHER "203.0.113.2"

/* One request with a body of that size, and its answer: what the server and
 * the client saw. */
static void
exchange(int fd, int lfd, int *server, const char *name, size_t body,
    size_t *bytes_up, size_t *bytes_down)
{
	static const char zeros[3000];
	char head[256];

	snprintf(head, sizeof(head), "PUT /u HTTP/1.1\r\nHost: %s\r\n"
	    "Content-Length: %zu\r\n\r\n", name, body);
	say(fd, head);
	stage_send(fd, zeros, body);
	if (*server < 0)
		*server = stage_accept(lfd);
	assert_true(*server >= 0);
	*bytes_up = stage_read_head(*server, got, sizeof(got)) + body;
	stage_expect(*server, zeros, body);
	snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\n"
	    "Content-Length: %zu\r\n\r\n", 2 * body);
	say(*server, head);
	stage_send(*server, zeros, 2 * body);
	*bytes_down = stage_read_head(fd, got, sizeof(got)) + 2 * body;
	stage_expect(fd, zeros, 2 * body);
}

/* The bytes of all were told under the last name and address. */
static void
each_request_has_an_end_with_its_own_bytes_and_place(void **state)
{
	static const struct { const char *name, *addr; size_t body; } t[] = {
		{ "allowed.test", ORIGIN, 10 },
		{ "allowed.test", ORIGIN, 1500 },
		{ "second.test", OTHER, 200 },
	};
	int web[2], fd, server = -1, old = -1;
	const struct record *r;
	size_t sent, came;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("second.test", OTHER);
	web[0] = stage_listen(ORIGIN, 80);
	web[1] = stage_listen(OTHER, 80);
	fd = stage_connect(WANTED, 80);
	for (size_t i = 0; i < 3; i++) {
		if (i == 2) {
			old = server;
			server = -1;
			usleep(300000);
		}
		exchange(fd, web[i == 2], &server, t[i].name, t[i].body,
		    &sent, &came);
		r = ended(i + 1, t[i].addr, sent, came);
		assert_int_equal(r->how, HOW_FIN);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		assert_int_equal(r->reason, REASON_NONE);
		is_text(r, TEXT_NAME, t[i].name);
		/* and its own time */
		assert_true(r->duration_us < 250000);
	}
	close(fd);
	assert_true(stage_no_record(RECORD_END));
	close(server);
	close(old);
	close(web[0]);
	close(web[1]);
	stage_down();
}

#define INNER "CONNECT allowed.test:80 HTTP/1.1\r\n" \
	"Host: allowed.test\r\n\r\n"

static void
a_connect_ends_where_a_request_inside_begins(void **state)
{
	int web, fd, server;
	size_t sent, came;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	fd = tunnel(web, INNER, &server);
	exchange(fd, -1, &server, "allowed.test", 30, &sent, &came);
	ended(1, ORIGIN, 0, strlen("HTTP/1.1 200 Connection established\r\n"
	    "\r\n"));
	ended(2, ORIGIN, sent, came);
	close(fd);
	close(server);
	close(web);
	stage_down();
}

/* A request that is sent once more, as its kept server had left, went to
 * another place without a word. */
static void
a_request_that_is_sent_again_is_decided_again(void **state)
{
	int web, other, fd, server;
	const struct record *r;
	size_t sent, came;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("allowed.test", OTHER);
	web = stage_listen(ORIGIN, 80);
	other = stage_listen(OTHER, 80);
	fd = kept(web, &server);
	close(web);
	say(fd, "GET /2 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	sent = stage_read_head(server, got, sizeof(got));
	close(server);
	server = stage_accept(other);
	assert_true(server >= 0);
	assert_int_equal(stage_read_head(server, got, sizeof(got)), sent);
	assert_memory_equal(got, "GET /2", 6);
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	came = stage_read_head(fd, got, sizeof(got));
	for (uint64_t i = 1; i <= 3; i++) {
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->request, i > 1 ? 2 : 1);
		r = stage_record(RECORD_END);
		assert_int_equal(r->how, i == 2 ? HOW_RESET_UPSTREAM :
		    HOW_FIN);
		assert_int_equal(r->reason, i == 2 ? REASON_UPSTREAM_CLOSED :
		    REASON_NONE);
		is_at(&r->dialled, i == 3 ? OTHER : ORIGIN, 80);
		if (i > 1) {
			assert_int_equal(r->bytes_up, sent);
			assert_int_equal(r->bytes_down, i == 2 ? 0 : came);
		}
	}
	close(fd);
	close(server);
	close(other);
	stage_down();
}

/* A decision is older than what it leads to: it names a candidate, the end
 * what was reached.  0: the first address refuses; 1: all do. */
static void
the_end_names_the_address_that_was_reached(void **state)
{
	static const char ask[] = "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n";
	int tls, fd, server = -1;
	char json[RECORD_JSON_MAX_BYTES];
	const struct record *r;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("second.test", "203.0.113.30");
	stage_pin("second.test", OTHER);
	tls = stage_listen(OTHER, 443);
	for (int none = 0; none < 2; none++) {
		if (none)
			close(tls);
		fd = stage_connect(WANTED, 3128);
		say(fd, ask);
		stage_read_head(fd, got, sizeof(got));
		close(fd);
		r = stage_record(RECORD_DECISION);
		is_at(&r->dialled, "203.0.113.30", 443);
		r = stage_record(RECORD_END);
		if (none)
			assert_int_equal(r->reason, REASON_CONNECT_REFUSED);
		else
			is_at(&r->dialled, OTHER, 443);
		record_json(r, 1, "i", json);
		assert_true((strstr(json, "\"dialled\":") == NULL) == none);
		assert_null(strstr(json, "candidate"));
		if (!none)
			server = stage_accept(tls);
	}
	close(server);
	stage_down();
}

/* A denial by name has chosen no address; one by address names it. */
static void
a_denial_names_the_address_that_it_is_for(void **state)
{
	size_t n = stage_hello("denied.test", hello, sizeof(hello));
	const struct record *r;
	bool reset;
	int fd;

	(void)state;
	stage_up(NULL, NULL);
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	for (int i = 0; i < 2; i++) {
		r = stage_record(i ? RECORD_END : RECORD_DECISION);
		is_at(&r->original, WANTED, 443);
		is_at(&r->dialled, "::", 443);
	}
	stage_pin("second.test", "169.254.169.254");
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->reason, REASON_SPECIAL_USE);
	is_at(&r->dialled, "169.254.169.254", 443);
	is_at(&stage_record(RECORD_END)->dialled, "::", 443);
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT 203.0.113.9:443 HTTP/1.1\r\n"
	    "Host: 203.0.113.9:443\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_DENY);
	is_at(&r->dialled, "203.0.113.9", 443);
	stage_down();
}

/* Between two requests nothing is open, but what has begun is refused. */
static void
a_request_that_stays_half_is_a_denial(void **state)
{
	struct linger now = { 1, 0 };
	const struct record *r;
	int web, fd, server;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	for (int i = 0; i < 3; i++) {
		fd = kept(web, &server);
		assert_int_equal(stage_record(RECORD_END)->request, 1);
		say(fd, "GET /2 HT");
		usleep(50000);
		if (i == 0)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &now,
			    sizeof(now));
		else if (i == 1)
			shutdown(fd, SHUT_WR);
		if (i > 0)
			stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		do
			r = stage_record(RECORD_DECISION);
		while (r->verdict == VERDICT_ALLOW);
		assert_int_equal(r->reason, i < 2 ? REASON_HELLO_INCOMPLETE :
		    REASON_HEAD_TIMEOUT);
		assert_int_equal(r->request, 2);
		r = stage_record(RECORD_END);
		assert_int_equal(r->request, 2);
		assert_int_equal(r->bytes_up, 0);
		close(server);
	}
	close(web);
	stage_down();
}

/* ---- the status that was told ---- */

static void
told_is(unsigned status, const char *method)
{
	const struct record *r = stage_record(RECORD_END);

	is_text(r, TEXT_METHOD, method);
	assert_int_equal(r->status, status);
}

/* The server's, a refusal's, a tunnel's, or none. */
static void
the_end_has_the_status_that_was_told(void **state)
{
	struct linger now = { 1, 0 };
	int web, fd, server;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	fd = kept(web, &server);
	told_is(204, "GET");
	say(fd, "HEAD /2 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 103 Early Hints\r\n\r\n"
	    "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n");
	told_is(404, "HEAD");
	say(fd, "PUT / HTTP/1.1\r\nHost: denied.test\r\n"
	    "Content-Length: 0\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_non_null(strstr(got, "HTTP/1.1 403"));
	told_is(403, "PUT");
	close(fd);
	close(server);
	/* a server that ends without a word */
	fd = stage_connect(WANTED, 80);
	say(fd, "GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	close(server);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_non_null(strstr(got, "HTTP/1.1 502"));
	told_is(502, "GET");
	close(fd);
	/* a client that does not wait for it */
	fd = stage_connect(WANTED, 80);
	say(fd, "GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	told_is(0, "GET");
	close(server);
	close(web);
	/* what is refused inside was told 200 before */
	web = stage_listen(ORIGIN, 443);
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	stage_send(fd, hello, stage_hello("denied.test", hello,
	    sizeof(hello)));
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_int_equal(stage_record(RECORD_END)->status, 200);
	close(fd);
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT denied.test:443 HTTP/1.1\r\n"
	    "Host: denied.test:443\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	told_is(403, "CONNECT");
	close(fd);
	/* a hello is told no status */
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, stage_hello("denied.test", hello,
	    sizeof(hello)));
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	told_is(0, "");
	close(web);
	stage_down();
}

/* ---- numbers ---- */

static const struct record *
next_is(enum verdict verdict, enum reason why, uint64_t request)
{
	const struct record *r = stage_record(RECORD_DECISION);

	assert_int_equal(r->verdict, verdict);
	assert_int_equal(r->reason, why);
	assert_int_equal(r->request, request);
	return r;
}

/* What is said behind an answered request. */
static void
each_request_has_its_own_number(void **state)
{
	static const struct {
		const char *text;
		enum reason why;
		const char *method, *path;
	} t[] = {
		{ "GET /a HTTP/1.1\r\nHost: denied.test\r\n\r\n",
		    REASON_RULE_DENY, "GET", "/a" },
		{ "GET /b HTTP/1.1\r\nHost : a\r\n\r\n",
		    REASON_HEAD_MALFORMED, "GET", "/b" },
		{ "CONNECT allowed.test:80 HTTP/1.1\r\n"
		    "Host: allowed.test\r\n\r\n", REASON_NESTED_PROXY,
		    "CONNECT", "" },
		{ "\x16\x03\x01", REASON_HEAD_MALFORMED, "", "" },
	};
	const struct record *r;
	int web, fd, server;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = kept(web, &server);
		next_is(VERDICT_ALLOW, REASON_RULE, 1);
		say(fd, t[i].text);
		stage_read_all(fd, got, sizeof(got), &reset);
		r = next_is(VERDICT_DENY, t[i].why, 2);
		is_text(r, TEXT_METHOD, t[i].method);
		is_text(r, TEXT_PATH, t[i].path);
		close(fd);
		close(server);
	}
	close(web);
	stage_down();
}

static void
a_connect_has_its_own_number(void **state)
{
	int web, fd, server;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	fd = tunnel(web, INNER, &server);
	next_is(VERDICT_ALLOW, REASON_RULE, 1);
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	stage_read_head(server, got, sizeof(got));
	next_is(VERDICT_ALLOW, REASON_RULE, 2);
	close(fd);
	close(server);
	/* nor is what was asked for the CONNECT's */
	fd = tunnel(web, INNER, &server);
	next_is(VERDICT_ALLOW, REASON_RULE, 1);
	say(fd, "GET / HTTP/1.1\r\nHost : a\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	next_is(VERDICT_DENY, REASON_HEAD_MALFORMED, 2);
	close(fd);
	close(server);
	/* a letter that could have begun a request */
	fd = tunnel(web, INNER, &server);
	next_is(VERDICT_ALLOW, REASON_RULE, 1);
	say(fd, "S");
	usleep(50000);
	say(fd, "SH-2.0-x\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	next_is(VERDICT_DENY, REASON_PROTOCOL, 1);
	close(fd);
	close(server);
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT denied.test:443 HTTP/1.1\r\n"
	    "Host: denied.test\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	next_is(VERDICT_DENY, REASON_RULE_DENY, 1);
	close(fd);
	fd = stage_connect(WANTED, 80);
	say(fd, "S");
	usleep(50000);
	say(fd, "SH-2.0-x\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	next_is(VERDICT_DENY, REASON_NOT_TLS, 0);
	close(fd);
	close(web);
	stage_down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_cell_has_its_share),
		cmocka_unit_test(
		    a_crowd_beyond_the_limit_is_told_of_in_few_records),
		cmocka_unit_test(
		    without_memory_for_a_connection_there_is_a_record),
		cmocka_unit_test(
		    B028_W34_without_a_descriptor_there_is_a_record),
		cmocka_unit_test(a_denial_is_told_without_memory_for_its_end),
		cmocka_unit_test(the_end_of_a_tunnel_tells_of_the_hello_inside),
		cmocka_unit_test(the_end_tells_of_a_later_denial),
		cmocka_unit_test(a_refused_request_has_an_end_of_its_own),
		cmocka_unit_test(
		    a_later_denial_without_room_keeps_what_is_true),
		cmocka_unit_test(
		    each_request_has_an_end_with_its_own_bytes_and_place),
		cmocka_unit_test(a_connect_ends_where_a_request_inside_begins),
		cmocka_unit_test(a_request_that_is_sent_again_is_decided_again),
		cmocka_unit_test(the_end_names_the_address_that_was_reached),
		cmocka_unit_test(a_denial_names_the_address_that_it_is_for),
		cmocka_unit_test(the_end_has_the_status_that_was_told),
		cmocka_unit_test(a_request_that_stays_half_is_a_denial),
		cmocka_unit_test(each_request_has_its_own_number),
		cmocka_unit_test(a_connect_has_its_own_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
