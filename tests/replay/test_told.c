/* SPDX-License-Identifier: Apache-2.0 */
/* What a record tells of a request that was refused early, and of addresses
 * that were dialled in vain. */
#include "tests/replay/stage.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OTHER "203.0.113.2"

static uint8_t hello[1024];
static char got[8192];

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

/* ---- addresses ---- */

/* The end tells that this one was dialled in vain. */
static void
is_tried(const struct record *r, size_t n, size_t i, const char *addr,
    enum reason why)
{
	struct span s = record_get(r, TEXT_TRIED);
	char text[ADDR_TEXT_BYTES];
	struct record_try t;

	assert_int_equal(s.len, n * sizeof(t));
	if (n == 0)
		return;
	memcpy(&t, s.data + i * sizeof(t), sizeof(t));
	assert_string_equal(addr_text(&t.addr, text), addr);
	assert_int_equal(t.reason, why);
}

/* Says nothing to a SYN: its queue is full. */
static int
mute(const char *addr, int fill[static 4])
{
	struct endpoint e = { .port = 443 };
	struct sockaddr_storage ss;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	assert_true(addr_parse(&e.addr, span_str(addr)));
	endpoint_to_sockaddr(&e, &ss);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&ss,
	    sizeof(struct sockaddr_in)), 0);
	assert_int_equal(listen(fd, 0), 0);
	for (int i = 0; i < 4; i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC |
		    SOCK_NONBLOCK, 0);
		(void)!connect(fill[i], (struct sockaddr *)&ss,
		    sizeof(struct sockaddr_in));
	}
	usleep(50000);
	return fd;
}

/* A CONNECT to it that is answered so. */
static int
asks_second(const char *status)
{
	int fd = stage_connect(WANTED, 3128);

	say(fd, "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got + 9, status, 3);
	return fd;
}

#define SILENT "203.0.113.40"
#define CLOSED "203.0.113.30"

/* 0: one refuses, one is silent, the third is reached; 1: none is. */
static void
the_end_tells_of_the_addresses_that_were_tried(void **state)
{
	char json[RECORD_JSON_MAX_BYTES];
	const struct record *r;
	int silent, fill[4], tls, fd;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("second.test", CLOSED);
	stage_pin("second.test", SILENT);
	silent = mute(SILENT, fill);
	for (int none = 0; none < 2; none++) {
		if (!none) {
			stage_pin("second.test", OTHER);
			tls = stage_listen(OTHER, 443);
		}
		fd = asks_second(none ? "504" : "200");
		close(fd);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(record_get(r, TEXT_TRIED).len, 0);
		r = stage_record(RECORD_END);
		record_json(r, 1, "i", json);
		is_tried(r, 2u + (unsigned)none, 0, CLOSED,
		    REASON_CONNECT_REFUSED);
		if (none) {
			is_tried(r, 3, 1, OTHER, REASON_CONNECT_REFUSED);
			is_tried(r, 3, 2, SILENT, REASON_CONNECT_TIMEOUT);
			assert_int_equal(r->reason, REASON_CONNECT_TIMEOUT);
			break;
		}
		is_tried(r, 2, 1, SILENT, REASON_NONE);
		is_at(&r->dialled, OTHER, 443);
		assert_non_null(strstr(json, "\"dialled\":\"" OTHER ":443\","
		    "\"tried\":[{\"address\":\"" CLOSED ":443\","
		    "\"reason\":\"connect_refused\"},"
		    "{\"address\":\"" SILENT ":443\"}]"));
		close(tls);
	}
	for (int i = 0; i < 4; i++)
		close(fill[i]);
	close(silent);
	stage_down();
}

static void
of_many_addresses_eight_are_told(void **state)
{
	const struct record *r;
	char addr[32];

	(void)state;
	stage_up(NULL, NULL);
	for (int i = 0; i < 10; i++) {
		snprintf(addr, sizeof(addr), "203.0.113.%d", 50 + i);
		stage_pin("second.test", addr);
	}
	close(asks_second("502"));
	r = stage_record(RECORD_END);
	for (unsigned i = 0; i < 8; i++) {
		snprintf(addr, sizeof(addr), "203.0.113.%u", 50 + i);
		is_tried(r, 8, i, addr, REASON_CONNECT_REFUSED);
	}
	stage_down();
}

/* Also where a denial with the same numbers comes later, with room for it in
 * the ledger or without; and nothing of it is the next request's. */
static void
a_later_denial_keeps_what_was_tried(void **state)
{
	const struct record *r;
	int tls, fd, server;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("second.test", CLOSED);
	stage_pin("second.test", OTHER);
	tls = stage_listen(OTHER, 443);
	for (int away = 0; away < 2; away++) {
		fd = asks_second("200");
		server = stage_accept(tls);
		if (away) {
			stage_beat(false);
			usleep(550000);
		}
		stage_send(fd, hello, stage_hello("allowed.test", hello,
		    sizeof(hello)));
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		close(server);
		r = stage_record(RECORD_END);
		assert_int_equal(r->reason, REASON_SNI_MISMATCH);
		is_at(&r->dialled, OTHER, 443);
		is_tried(r, 1, 0, CLOSED, REASON_CONNECT_REFUSED);
	}
	close(tls);
	stage_down();
	stage_up(NULL, NULL);
	stage_pin("second.test", CLOSED);
	stage_pin("second.test", OTHER);
	tls = stage_listen(OTHER, 80);
	fd = stage_connect(WANTED, 3128);
	for (uint64_t i = 1; i < 3; i++) {
		say(fd, "GET http://second.test/ HTTP/1.1\r\n"
		    "Host: second.test\r\n\r\n");
		if (i == 1)
			server = stage_accept(tls);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		r = stage_record(RECORD_END);
		assert_int_equal(r->request, i);
		is_tried(r, i == 1, 0, CLOSED, REASON_CONNECT_REFUSED);
	}
	close(fd);
	close(server);
	close(tls);
	stage_down();
}

/* ---- what is not known is not the former's ---- */

#define POLICY(help) "version: 1\nnetwork:\n  default: deny\n" help \
	"  resolvers: [198.18.0.53]\n  lab: [203.0.113.0/24]\n  rule:\n" \
	"    - {verdict: allow, hostname: allowed.test}\n"
#define SHOWN "Proxy-Authorization: Basic YWdlbnQ6c2VjcmV0\r\n"
#define BY_PROXY "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n"

/* On a kept connection to the explicit listener, behind a request of the
 * agent's: whose is what is refused before it shows a credential?  As for a
 * first request, its that the socket tells.  1: a policy comes in between. */
static void
a_request_without_a_credential_is_not_the_formers(void **state)
{
	static const struct {
		const char *text, *cell;
		enum reason why;
	} t[] = {
		{ "GET http://allowed.test/ HTTP/1.1\r\nHost : a\r\n\r\n",
		    "cell", REASON_HEAD_MALFORMED },
		{ "POST http://allowed.test/ HTTP/1.1\r\nContent-Length: 1\r\n"
		    "Host: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n",
		    "cell", REASON_FRAMING },
		{ "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "cell",
		    REASON_TARGET },
		{ "GET http://allowed.test/ HT", "cell", REASON_HEAD_TIMEOUT },
		{ "\x16\x03\x01", "cell", REASON_HEAD_MALFORMED },
		{ BY_PROXY "Proxy-Authorization: Basic !\r\n\r\n", "",
		    REASON_AUTH_FAILED },
		{ BY_PROXY "Proxy-Authorization: Basic YWdlbnQ6eA==\r\n\r\n",
		    "", REASON_AUTH_FAILED },
	};
	const size_t n = sizeof(t) / sizeof(t[0]);
	int web, fd, server;
	const struct record *r;
	bool reset;

	(void)state;
	stage_agent(POLICY("  help: \"ask the agent's\"\n"), "1");
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	for (size_t i = 0; i < 2 * n; i++) {
		fd = stage_connect(WANTED, 3128);
		say(fd, BY_PROXY SHOWN "\r\n");
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		is_text(r, TEXT_CELL, "agent");
		if (i >= n)
			stage_policy(POLICY(""));
		say(fd, t[i % n].text);
		stage_read_all(fd, got, sizeof(got), &reset);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->request, 2);
		assert_int_equal(r->reason, t[i % n].why);
		is_text(r, TEXT_CELL, t[i % n].cell);
		is_text(r, TEXT_LABELS, "");
		is_text(r, TEXT_RULE, "");
		is_text(r, TEXT_NAME, i % n == 4 ? "" : "allowed.test");
		is_text(r, TEXT_OTHER_NAME, i % n == 0 ? "a" : "");
		do
			r = stage_record(RECORD_END);
		while (r->request != 2);
		is_text(r, TEXT_CELL, t[i % n].cell);
		assert_null(strstr(got, "ask the agent's"));
		close(fd);
		close(server);
	}
	close(web);
	stage_agent(NULL, NULL);
	stage_down();
}

/* Behind a CONNECT: its name, rule and address are not those of what begins
 * inside and is refused before it is judged. */
static void
a_request_inside_is_not_the_connect(void **state)
{
	static const struct {
		const char *text, *name;
		enum reason why;
	} t[] = {
		{ "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "a",
		    REASON_HEAD_MALFORMED },
		{ "GET / HT", "", REASON_HEAD_TIMEOUT },
		{ "GET / HTTP/1.1\r\nHost: second.test\r\n\r\n",
		    "second.test", REASON_HOST_MISMATCH },
	};
	int web, fd, server;
	const struct record *r;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = tunnel(web, "CONNECT allowed.test:80 HTTP/1.1\r\n"
		    "Accept: application/json\r\n"
		    "Host: allowed.test\r\n\r\n", &server);
		r = stage_record(RECORD_DECISION);
		is_text(r, TEXT_RULE, "web");
		say(fd, t[i].text);
		stage_read_all(fd, got, sizeof(got), &reset);
		assert_null(strstr(got, "json"));
		assert_null(strstr(got, "rule web"));
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->reason, t[i].why);
		assert_int_equal(r->request, 2);
		is_text(r, TEXT_CELL, "cell");
		is_text(r, TEXT_NAME, t[i].name);
		is_text(r, TEXT_RULE, "");
		assert_int_equal(r->name_from, t[i].name[0] != '\0' ?
		    NAME_FROM_HOST : NAME_FROM_NONE);
		is_at(&r->dialled, "::", r->dialled.port);
		close(fd);
		close(server);
	}
	close(web);
	stage_down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_tells_of_the_addresses_that_were_tried),
		cmocka_unit_test(of_many_addresses_eight_are_told),
		cmocka_unit_test(a_later_denial_keeps_what_was_tried),
		cmocka_unit_test(
		    a_request_without_a_credential_is_not_the_formers),
		cmocka_unit_test(a_request_inside_is_not_the_connect),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
