/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of unusual form or order, as reports have them. */
#include "tests/replay/stage.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int web, tls;
static char got[16384];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	tls = stage_listen(ORIGIN, 443);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(web);
	close(tls);
	stage_down();
	return 0;
}

/* A head whose status line begins so. */
static void
told(int fd, const char *line)
{
	stage_read_head(fd, got, sizeof(got));
	if (strncmp(got, line, strlen(line)) != 0)
		fail_msg("got '%s', not '%s'", got, line);
}

static bool
silent(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
}

static void
refused(int fd, const char *line, enum reason why)
{
	const struct record *r;
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	if (strncmp(got, line, strlen(line)) != 0)
		fail_msg("got '%s', not '%s'", got, line);
	assert_false(reset);
	assert_non_null(strstr(got, reason_word(why)));
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, why);
	close(fd);
}

/* ---- Expect: 100-continue ---- */

enum { BODY = 200000 };
static char body[BODY];

/* The two ways in: transparent, and asked as a proxy. */
static int
asks(bool proxy, const char *method, const char *fields)
{
	int fd = stage_connect(WANTED, proxy ? 3128 : 80);
	char head[512];

	snprintf(head, sizeof(head), "%s %s/u HTTP/1.1\r\n"
	    "Host: allowed.test\r\n%s\r\n", method, proxy ?
	    "http://allowed.test" : "", fields);
	say(fd, head);
	return fd;
}

#define EXPECTS "Expect: 100-continue\r\nContent-Length: 200000\r\n"

/* The head is there before any byte of the body, and says what is waited
 * for. */
static int
waits(bool proxy, int *server)
{
	int fd = asks(proxy, "PUT", EXPECTS);

	*server = stage_accept(web);
	assert_true(*server >= 0);
	told(*server, "PUT /u HTTP/1.1\r\n");
	assert_non_null(strcasestr(got, "\r\nexpect: 100-continue\r\n"));
	return fd;
}

/* The body and its answer, and then another request on the connection. */
static void
uploads(int fd, int server, bool proxy)
{
	for (size_t at = 0; at < BODY; at += BODY / 10) {
		stage_send(fd, body + at, BODY / 10);
		stage_expect(server, body + at, BODY / 10);
	}
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	told(fd, "HTTP/1.1 200");
	stage_expect(fd, "ok", 2);
	say(fd, proxy ? "GET http://allowed.test/2 HTTP/1.1\r\n"
	    "Host: allowed.test\r\n\r\n" :
	    "GET /2 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	told(server, "GET /2 HTTP/1.1\r\n");
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	told(fd, "HTTP/1.1 204");
	close(fd);
	close(server);
}

static void
B014_what_the_server_says_first_comes_at_once(void **state)
{
	static const char *const first[] = { "HTTP/1.1 100 Continue\r\n\r\n",
	    "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
	    "HTTP/1.1 100 Continue\r\n\r\n", "" };
	int fd, server;

	(void)state;
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (char)(i * 2654435761u >> 13);
	for (int i = 0; i < 2 * 3; i++) {
		bool proxy = i % 2;
		int64_t began;

		fd = waits(proxy, &server);
		usleep((useconds_t)(i / 2) * 200000); /* it may take its time */
		assert_true(silent(fd));	/* no 100 of our own */
		began = stage_now_ms();
		say(server, first[i / 2]);
		if (i / 2 == 1)
			told(fd, "HTTP/1.1 103");
		if (i / 2 <= 1)
			told(fd, "HTTP/1.1 100");
		assert_true(stage_now_ms() - began < 100);
		uploads(fd, server, proxy);
	}
}

/* The answer is whole and its connection ends in order, whether or not the
 * client begins to send. */
static void
B014_an_answer_instead_of_a_100_ends_the_upload(void **state)
{
	static const char *const answers[] = {
	    "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno",
	    "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno",
	    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too Large\r\n"
	    "Content-Length: 2\r\n\r\nno" };
	int fd, server;
	bool reset;

	(void)state;
	for (int i = 0; i < 3 * 4; i++) {
		fd = waits(i % 2, &server);
		say(server, answers[i / 4]);
		if (i / 4 == 2)
			told(fd, "HTTP/1.1 100");
		if (i % 4 >= 2)
			(void)!send(fd, body, 30000, MSG_NOSIGNAL);
		told(fd, i / 4 == 0 ? "HTTP/1.1 417" : i / 4 == 1 ?
		    "HTTP/1.1 401" : "HTTP/1.1 413");
		/* what follows would be taken for the body */
		assert_non_null(strcasestr(got, "\r\nconnection: close\r\n"));
		assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset),
		    2);
		assert_false(reset);
		close(fd);
		close(server);
	}
}

/* Who is refused is told so in place of a 100, and other expectations are
 * none that are passed on. */
static void
B014_a_refusal_comes_before_the_body(void **state)
{
	int fd;

	(void)state;
	fd = stage_connect(WANTED, 80);
	say(fd, "PUT /u HTTP/1.1\r\nHost: denied.test\r\n" EXPECTS "\r\n");
	refused(fd, "HTTP/1.1 403", REASON_RULE_DENY);
	assert_null(strstr(got, "HTTP/1.1 100"));
	fd = asks(true, "PUT", "Expect: 200-ok\r\nContent-Length: 5\r\n");
	refused(fd, "HTTP/1.1 417", REASON_EXPECTATION);
	assert_int_equal(stage_accept(web), -1);
}

/* RFC 9110 10.1.1: a client of 1.0 does not know of 100. */
static void
B014_a_client_of_1_0_sees_no_100(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	bool reset;

	(void)state;
	say(fd, "PUT /u HTTP/1.0\r\nHost: allowed.test\r\n"
	    "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
	server = stage_accept(web);
	assert_true(server >= 0);
	told(server, "PUT /u HTTP/1.1\r\n");
	assert_null(strcasestr(got, "\r\nexpect:"));
	assert_non_null(strstr(got, "\r\nVia: 1.0 penstock\r\n"));
	stage_expect(server, "hello", 5);
	say(server, "HTTP/1.1 100 Continue\r\n\r\n");
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_null(strstr(got, " 100 "));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	close(fd);
	close(server);
}

/* ---- clients of 1.0 ---- */

static int
asks_1_0(bool proxy, const char *method, const char *fields, int *server)
{
	int fd = stage_connect(WANTED, proxy ? 3128 : 80);
	char head[256];

	snprintf(head, sizeof(head), "%s %s/u HTTP/1.0\r\n"
	    "Host: allowed.test\r\n%s\r\n", method, proxy ?
	    "http://allowed.test" : "", fields);
	say(fd, head);
	*server = stage_accept(web);
	assert_true(*server >= 0);
	stage_read_head(*server, got, sizeof(got));
	assert_non_null(strstr(got, " /u HTTP/1.1\r\n"));
	assert_non_null(strstr(got, "\r\nVia: 1.0 penstock\r\n"));
	return fd;
}

#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" \
	"Trailer: X\r\n\r\n"

static void
a_client_of_1_0_gets_a_chunked_body_without_its_chunks(void **state)
{
	static const char want[] = "\r\n\r\nhello world";
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	for (int i = 0; i < 2 * 2 * 2; i++) {
		fd = asks_1_0(i % 2, "GET", i / 4 ?
		    "Connection: keep-alive\r\n" : "", &server);
		stage_say(server, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
		    CHUNKED "5;a=b\r\nhello\r\n6\r\n world\r\n"
		    "0\r\nX: y\r\n\r\n", i / 2 % 2);
		n = stage_read_all(fd, got, sizeof(got), &reset);
		assert_false(reset);
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		assert_null(strcasestr(got, "\r\ntransfer-encoding:"));
		assert_null(strcasestr(got, "\r\ntrailer:"));
		assert_non_null(strstr(got, "\r\nConnection: close\r\n"));
		assert_string_equal(got + n - strlen(want), want);
		close(fd);
		close(server);
		assert_int_equal(stage_record(RECORD_END)->how, HOW_FIN);
	}
}

/* More than one buffer, to a client that reads late. */
static void
a_client_of_1_0_gets_a_large_body_whole(void **state)
{
	static char chunks[BODY + BODY / 100 * 8];
	struct stage_job sends;
	size_t at = 0;
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (char)(i * 2654435761u >> 13);
	for (size_t i = 0, n = 1; i < BODY; i += n, n = n * 3 % 8191 + 1) {
		if (n > BODY - i)
			n = BODY - i;
		at += (size_t)snprintf(chunks + at, 16, "%zx\r\n", n);
		memcpy(chunks + at, body + i, n);
		memcpy(chunks + at + n, "\r\n", 2);
		at += n + 2;
		assert_true(at + 8192 + 16 < sizeof(chunks) || i + n >= BODY);
	}
	memcpy(chunks + at, "0\r\n\r\n", 5);
	fd = asks_1_0(false, "GET", "", &server);
	say(server, CHUNKED);
	sends = (struct stage_job){ .fd = server, .data = chunks,
	    .len = at + 5 };
	stage_begin(&sends);
	usleep(50000);
	told(fd, "HTTP/1.1 200");
	stage_expect(fd, body, sizeof(body));
	assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset), 0);
	assert_false(reset);
	assert_true(stage_await(&sends));
	close(fd);
	close(server);
}

/* Its end is the only sign of where it ends: it must not look whole. */
static void
a_body_without_chunks_that_broke_off_ends_with_a_reset(void **state)
{
	static const char *const parts[] = { "", "5", "5\r\nhel",
	    "5\r\nhello", "5\r\nhello\r\n", "5\r\nhello\r\n0\r\n",
	    "5\r\nhello\r\n0\r\nX: y\r\n", "5\r\nhello\r\n0\r\n\r" };
	const struct record *r;
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i <= sizeof(parts) / sizeof(parts[0]); i++) {
		bool bad = i == sizeof(parts) / sizeof(parts[0]);

		fd = asks_1_0(i % 2, "GET", "", &server);
		say(server, CHUNKED);
		told(fd, "HTTP/1.1 200");
		say(server, bad ? "5\r\nhello\n0\r\n\r\n" : parts[i]);
		if (!bad)
			close(server);
		stage_read_all(fd, got, sizeof(got), &reset);
		if (!reset)
			fail_msg("%zu: looks whole", i);
		if (bad)
			close(server);
		close(fd);
		r = stage_record(RECORD_END);
		assert_int_equal(r->how, HOW_RESET_UPSTREAM);
		assert_int_equal(r->reason, bad ? REASON_UPSTREAM_MALFORMED :
		    REASON_NONE);
	}
}

static void
a_client_of_1_0_gets_other_bodies_as_they_are(void **state)
{
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	/* a body of a known length keeps the connection, where asked to */
	fd = asks_1_0(false, "GET", "Connection: keep-alive\r\n", &server);
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
	    "2\r\nok\r\n");
	told(fd, "HTTP/1.1 200");
	assert_non_null(strstr(got, "\r\nConnection: keep-alive\r\n"));
	stage_expect(fd, "2\r\nok\r\n", 7);
	close(server);
	say(fd, "HEAD /u HTTP/1.0\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	told(server, "HEAD /u HTTP/1.1\r\n");
	/* and one that has no body says nothing of chunks */
	say(server, CHUNKED);
	n = stage_read_all(fd, got, sizeof(got), &reset);
	assert_false(reset);
	assert_null(strcasestr(got, "chunked"));
	assert_string_equal(got + n - 4, "\r\n\r\n");
	close(fd);
	close(server);
}

/* ---- upgrades ---- */

#define ASKS "GET /ws HTTP/1.1\r\nHost: allowed.test\r\n"
#define ASKS_WEBSOCKET ASKS "Connection: Upgrade\r\n" \
	"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
#define SWITCH "HTTP/1.1 101 Switching Protocols\r\n"
#define ACCEPT "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
#define TO_WEBSOCKET SWITCH "Upgrade: websocket\r\n" \
	"Connection: Upgrade\r\n" ACCEPT "\r\n"

/* Nothing of it reaches the client, nor of what the server says next. */
static void
N08_an_upgrade_that_nobody_asked_for_is_an_error(void **state)
{
	static const struct {
		const char *asks, *answer;
	} t[] = {
		{ ASKS "\r\n", TO_WEBSOCKET "first" },
		{ ASKS "\r\n", SWITCH "Upgrade: x\r\n"
		    "Connection: upgrade\r\n\r\nfirst" },
		/* these are not passed on */
		{ ASKS "Upgrade: websocket\r\n\r\n", TO_WEBSOCKET "first" },
		{ ASKS "Connection: upgrade\r\nUpgrade: TLS/1.3\r\n\r\n",
		    SWITCH "Connection: upgrade\r\nUpgrade: TLS/1.3\r\n\r\n" },
		{ "GET /ws HTTP/1.0\r\nHost: allowed.test\r\n"
		    "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
		    TO_WEBSOCKET },
		/* what would fit where no key was */
		{ ASKS "\r\n", SWITCH "Upgrade: websocket\r\n"
		    "Connection: Upgrade\r\nSec-WebSocket-Accept:\r\n"
		    "\r\nfirst" },
		/* a key is missing, or no key */
		{ ASKS "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		    TO_WEBSOCKET "first" },
		{ ASKS "Connection: Upgrade\r\nUpgrade: websocket\r\n"
		    "Sec-WebSocket-Key: x\r\n\r\n", TO_WEBSOCKET "first" },
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: h2c\r\n"
		    "Connection: Upgrade\r\n" ACCEPT "\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: websocket, h2c\r\n"
		    "Connection: Upgrade\r\n" ACCEPT "\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: websocket\r\n" ACCEPT
		    "\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH "Connection: Upgrade\r\n" ACCEPT
		    "\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH ACCEPT "\r\nfirst" },
		/* of a server that has not read the key */
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: websocket\r\n"
		    "Connection: Upgrade\r\n\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: websocket\r\n"
		    "Connection: Upgrade\r\nSec-WebSocket-Accept: "
		    "AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: websocket\r\n"
		    "Connection: Upgrade\r\n" ACCEPT ACCEPT "\r\nfirst" },
		/* what has no body, says it, and a client may believe it */
		{ ASKS "\r\n", "HTTP/1.1 100 Continue\r\n"
		    "Content-Length: 5\r\n\r\nfirst" },
		{ ASKS "\r\n", "HTTP/1.1 103 Early Hints\r\n"
		    "Transfer-Encoding: chunked\r\n\r\n" },
		{ ASKS "\r\n", "HTTP/1.1 204 No Content\r\n"
		    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" },
		{ ASKS "\r\n", "HTTP/1.1 204 No Content\r\n"
		    "Content-Length: 5\r\n\r\nfirst" },
		{ ASKS_WEBSOCKET, SWITCH "Upgrade: websocket\r\n"
		    "Connection: Upgrade\r\n" ACCEPT
		    "Content-Length: 5\r\n\r\nfirst" },
	};
	const struct record *r;
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = stage_connect(WANTED, 80);
		say(fd, t[i].asks);
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, t[i].answer);
		stage_read_all(fd, got, sizeof(got), &reset);
		if (strncmp(got + 8, " 502 No answer for penstock: "
		    "upstream_malformed", 47) != 0)
			fail_msg("%zu: %s", i, got);
		assert_null(strstr(got, "first"));
		assert_int_equal(stage_read_all(server, got, sizeof(got),
		    &reset), 0);
		close(fd);
		close(server);
		r = stage_record(RECORD_END);
		assert_int_equal(r->how, HOW_REFUSED);
		assert_int_equal(r->reason, REASON_UPSTREAM_MALFORMED);
	}
}

static void
a_websocket_becomes_a_relay(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	uint8_t hello[1024];
	size_t n = stage_hello("denied.test", hello, sizeof(hello));
	const struct record *r;

	(void)state;
	say(fd, ASKS_WEBSOCKET);
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	assert_non_null(strstr(got, "websocket"));
	say(server, TO_WEBSOCKET "first");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 101", 12);
	stage_expect(fd, "first", 5);
	say(fd, "frame");
	stage_expect(server, "frame", 5);
	say(server, "back");
	stage_expect(fd, "back", 4);
	/* what it carries has no names: its server has taken it over */
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	say(fd, ASKS "\r\n");
	stage_expect(server, ASKS "\r\n", strlen(ASKS "\r\n"));
	close(fd);
	close(server);
	r = stage_record(RECORD_END);
	assert_int_equal(r->status, 101);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
}

/* ---- methods and spellings ---- */

static void
W23_a_method_is_any_token(void **state)
{
	static const char *const methods[] = { "PROPFIND", "MKCOL", "REPORT",
	    "M-SEARCH", "get", "Post", "QUERY", "VERSION-CONTROL", "!#$%&'*+" };
	const struct record *r;
	int fd, server;
	char line[64];

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(methods) / sizeof(methods[0]); i++) {
		fd = asks(i % 2, methods[i / 2], "Content-Length: 3\r\n");
		say(fd, "abc");
		server = stage_accept(web);
		if (server < 0)
			fail_msg("%s was not forwarded", methods[i / 2]);
		snprintf(line, sizeof(line), "%s /u HTTP/1.1\r\n",
		    methods[i / 2]);
		told(server, line);
		stage_expect(server, "abc", 3);
		say(server, "HTTP/1.1 207 Multi-Status\r\n"
		    "Content-Length: 2\r\n\r\nok");
		told(fd, "HTTP/1.1 207");
		stage_expect(fd, "ok", 2);
		close(fd);
		close(server);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		assert_true(span_eq(record_get(r, TEXT_METHOD),
		    span_str(methods[i / 2])));
	}
}

/* What is not spoken is told with its reason, at once. */
static void
W23_what_is_not_spoken_is_told_in_words(void **state)
{
	static const struct {
		const char *head, *line;
		enum reason why;
	} t[] = {
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505",
		    REASON_VERSION },
		{ "GET / HTTP/2.0\r\nHost: allowed.test\r\n\r\n",
		    "HTTP/1.1 505", REASON_VERSION },
		{ "TRACE / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		    "HTTP/1.1 405", REASON_METHOD },
		{ "connect allowed.test:443 HTTP/1.1\r\n"
		    "Host: allowed.test\r\n\r\n", "HTTP/1.1 400",
		    REASON_TARGET },
	};
	int64_t began;
	int fd;

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(t) / sizeof(t[0]); i++) {
		began = stage_now_ms();
		fd = stage_connect(WANTED, i % 2 ? 3128 : 80);
		say(fd, t[i / 2].head);
		refused(fd, t[i / 2].line, t[i / 2].why);
		assert_true(stage_now_ms() - began < 300);
	}
	assert_int_equal(stage_accept(web), -1);
}

/* A name with its dot, and in capitals, is the same name: allowed where that
 * is, denied where that is. */
static void
W23_a_trailing_dot_is_no_other_name(void **state)
{
	static const char *const heads[] = {
	    "GET /u HTTP/1.1\r\nHost: Allowed.TEST.\r\n\r\n",
	    "GET http://ALLOWED.test./u HTTP/1.1\r\nHost: allowed.test\r\n"
	    "\r\n",
	    "CONNECT allowed.test.:443 HTTP/1.1\r\n"
	    "Host: allowed.test.:443\r\n\r\n" };
	uint8_t hello[1024];
	int fd, server;
	size_t n;

	(void)state;
	for (int i = 0; i < 3; i++) {
		fd = stage_connect(WANTED, i == 0 ? 80 : 3128);
		say(fd, heads[i]);
		server = stage_accept(i == 2 ? tls : web);
		assert_true(server >= 0);
		if (i == 2) {
			told(fd, "HTTP/1.1 200");
			n = stage_hello("ALLOWED.test.", hello,
			    sizeof(hello));
			stage_send(fd, hello, n);
			stage_expect(server, hello, n);
		} else {
			told(server, "GET /u HTTP/1.1\r\n");
		}
		close(fd);
		close(server);
	}
	fd = stage_connect(WANTED, 443);
	n = stage_hello("Allowed.Test.", hello, sizeof(hello));
	stage_send(fd, hello, n);
	server = stage_accept(tls);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	close(fd);
	close(server);
	fd = stage_connect(WANTED, 80);
	say(fd, "GET / HTTP/1.1\r\nHost: denied.test.\r\n\r\n");
	refused(fd, "HTTP/1.1 403", REASON_RULE_DENY);
}

/* ---- the size of a head ---- */

#define HEAD_MAX 1024u

static int
up_small(void **state)
{
	struct proxy_limits l = stage_limits;

	(void)state;
	l.head_bytes = HEAD_MAX;
	l.hello_ms = l.idle_ms = 20000;
	stage_up(NULL, &l);
	web = stage_listen(ORIGIN, 80);
	tls = stage_listen(ORIGIN, 443);
	return 0;
}

/* So many bytes with its end, whole or one at a time. */
static void
send_head(int fd, const char *begin, size_t size, bool whole)
{
	char head[HEAD_MAX + 2];
	size_t n = strlen(begin);

	assert_true(n + 7 < size && size <= sizeof(head));
	memset(head, 'a', size);
	memcpy(head, begin, n);
	memcpy(head + n, "X: ", 3);
	memcpy(head + size - 4, "\r\n\r\n", 4);
	if (whole) {
		stage_send(fd, head, size);
		return;
	}
	for (size_t i = 0; i < size; i++) {
		stage_send(fd, head + i, 1);
		if (i + 3 > size)
			usleep(2000);	/* so that it is read alone */
	}
}

static const struct {
	uint16_t port;
	const char *begin;
	bool connect;
} heads[] = {
	{ 80, "GET / HTTP/1.1\r\nHost: allowed.test\r\n", false },
	{ 3128, "GET http://allowed.test/ HTTP/1.1\r\n"
	    "Host: allowed.test\r\n", false },
	{ 3128, "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n", true },
};

static void
a_head_as_large_as_the_limit_passes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		int fd = stage_connect(WANTED, heads[i / 2].port), server;

		send_head(fd, heads[i / 2].begin, HEAD_MAX, i % 2);
		server = stage_accept(heads[i / 2].connect ? tls : web);
		assert_true(server >= 0);
		if (heads[i / 2].connect)
			told(fd, "HTTP/1.1 200");
		else
			told(server, "GET / HTTP/1.1\r\n");
		close(fd);
		close(server);
	}
}

static void
a_head_of_one_byte_more_is_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		int fd = stage_connect(WANTED, heads[i / 2].port);

		send_head(fd, heads[i / 2].begin, HEAD_MAX + 1, i % 2);
		refused(fd, "HTTP/1.1 431", REASON_HEAD_TOO_LARGE);
		assert_int_equal(stage_accept(web), -1);
		assert_int_equal(stage_accept(tls), -1);
	}
}

/* It is not waited for where it would end. */
static void
a_head_that_does_not_end_is_refused_behind_the_limit(void **state)
{
	char head[HEAD_MAX];
	int fd = stage_connect(WANTED, 80);

	(void)state;
	memset(head, 'a', sizeof(head));
	memcpy(head, "GET / HTTP/1.1\r\nX: ", 19);
	stage_send(fd, head, sizeof(head));
	usleep(50000);
	assert_true(silent(fd));
	say(fd, "a");
	refused(fd, "HTTP/1.1 431", REASON_HEAD_TOO_LARGE);
}

static void
the_next_head_has_the_same_limit(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		int fd = stage_connect(WANTED, 80), server;

		send_head(fd, heads[0].begin, HEAD_MAX, true);
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		send_head(fd, heads[0].begin, HEAD_MAX + i / 2, i % 2);
		if (i / 2) {
			refused(fd, "HTTP/1.1 431", REASON_HEAD_TOO_LARGE);
		} else {
			stage_read_head(server, got, sizeof(got));
			/* one that were gone now would be dialled again */
			say(server, "HTTP/1.1 204 No Content\r\n\r\n");
			stage_read_head(fd, got, sizeof(got));
			close(fd);
		}
		close(server);
	}
}

/* The client is told whose it was: 431 would blame the client. */
static void
the_head_of_an_answer_has_the_same_limit(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		int fd = stage_connect(WANTED, 80), server;

		say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		server = stage_accept(web);
		assert_true(server >= 0);
		told(server, "GET / HTTP/1.1\r\n");
		send_head(server, "HTTP/1.1 204 No Content\r\n",
		    HEAD_MAX + i / 2, i % 2);
		told(fd, i / 2 == 0 ? "HTTP/1.1 204" : "HTTP/1.1 502 No "
		    "answer for penstock: upstream_head_too_large");
		close(fd);
		close(server);
	}
}

static void
says(const struct record *r, enum record_text which, const char *text)
{
	struct span s = record_get(r, which);

	if (!span_eq(s, span_str(text)))
		fail_msg("'%.*s' is not '%s'", (int)s.len, s.data, text);
}

/* What stood in it, and where it went: in the record, and in the first line of
 * the answer. */
static void
a_head_that_is_refused_is_told_with_what_it_asked_for(void **state)
{
	static const struct {
		uint16_t port;
		enum reason why;
		const char *head, *place, *name, *other, *method, *path;
	} t[] = {
		{ 80, REASON_FRAMING, "POST /x HTTP/1.1\r\n"
		    "Host: allowed.test\r\nContent-Length: 5\r\n"
		    "Transfer-Encoding: chunked\r\n\r\n",
		    "allowed.test:80", "allowed.test", "", "POST", "/x" },
		{ 3128, REASON_HOST_MISMATCH,
		    "CONNECT allowed.test:443 HTTP/1.1\r\n"
		    "Host: evil.test:443\r\n\r\n", "allowed.test:443",
		    "allowed.test", "evil.test", "CONNECT", "" },
		{ 80, REASON_METHOD, "TRACE /t HTTP/1.1\r\n"
		    "Host: allowed.test:8080\r\n\r\n", "allowed.test:8080",
		    "allowed.test", "", "TRACE", "/t" },
		{ 80, REASON_UPGRADE, "GET / HTTP/1.1\r\n"
		    "Host: allowed.test\r\nConnection: Upgrade\r\n"
		    "Upgrade: h2c\r\n\r\n", "allowed.test:80",
		    "allowed.test", "", "GET", "/" },
		{ 80, REASON_HEAD_MALFORMED, "GET /2 HTTP/1.1\r\n"
		    "Host: allowed.test\r\nHost: evil.test\r\n\r\n",
		    "allowed.test:80", "allowed.test", "evil.test", "GET",
		    "/2" },
		{ 80, REASON_HEAD_MALFORMED, "GET /lf HTTP/1.1\n"
		    "Host: allowed.test\n\n", "allowed.test:80",
		    "allowed.test", "", "GET", "/lf" },
		{ 3128, REASON_TARGET, "GET http://u:p@evil.test/a HTTP/1.1"
		    "\r\nHost: evil.test\r\n\r\n", "evil.test:80",
		    "evil.test", "", "GET", "/a" },
		{ 3128, REASON_TARGET, "GET https://evil.test/?b HTTP/1.1"
		    "\r\nHost: evil.test\r\n\r\n", "evil.test:443",
		    "evil.test", "", "GET", "/?b" },
		{ 3128, REASON_TARGET, "CONNECT evil.test HTTP/1.1\r\n"
		    "Host: evil.test\r\n\r\n", "evil.test", "evil.test",
		    "", "CONNECT", "" },
	};
	const struct record *r;
	char want[128];
	bool reset;
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = stage_connect(WANTED, t[i].port);
		say(fd, t[i].head);
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		snprintf(want, sizeof(want), ": %s %s\r\n",
		    reason_word(t[i].why), t[i].place);
		if (strstr(got, want) == NULL)
			fail_msg("%zu: no '%s' in '%s'", i, want, got);
		do
			r = stage_record(RECORD_DECISION);
		while (r->verdict == VERDICT_ALLOW);
		assert_int_equal(r->reason, t[i].why);
		says(r, TEXT_NAME, t[i].name);
		says(r, TEXT_OTHER_NAME, t[i].other);
		says(r, TEXT_METHOD, t[i].method);
		says(r, TEXT_PATH, t[i].path);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)
#define SMALL(f) cmocka_unit_test_setup_teardown(f, up_small, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_head_that_is_refused_is_told_with_what_it_asked_for),
		T(B014_what_the_server_says_first_comes_at_once),
		T(B014_an_answer_instead_of_a_100_ends_the_upload),
		T(B014_a_refusal_comes_before_the_body),
		T(B014_a_client_of_1_0_sees_no_100),
		T(a_client_of_1_0_gets_a_chunked_body_without_its_chunks),
		T(a_client_of_1_0_gets_a_large_body_whole),
		T(a_body_without_chunks_that_broke_off_ends_with_a_reset),
		T(a_client_of_1_0_gets_other_bodies_as_they_are),
		T(N08_an_upgrade_that_nobody_asked_for_is_an_error),
		T(a_websocket_becomes_a_relay),
		T(W23_a_method_is_any_token),
		T(W23_what_is_not_spoken_is_told_in_words),
		T(W23_a_trailing_dot_is_no_other_name),
		SMALL(a_head_as_large_as_the_limit_passes),
		SMALL(a_head_of_one_byte_more_is_refused),
		SMALL(a_head_that_does_not_end_is_refused_behind_the_limit),
		SMALL(the_head_of_an_answer_has_the_same_limit),
		SMALL(the_next_head_has_the_same_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
