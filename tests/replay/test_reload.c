/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What a new policy finds again, and what a gate does that time runs out
 * for. */

#define LAB "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  lab: [203.0.113.0/24]\n"
#define ALLOW(name) LAB "  rule:\n    - {verdict: allow, hostname: " name "}\n"
#define AGENT "Proxy-Authorization: Basic YWdlbnQ6c2VjcmV0\r\n"

static const uint8_t flight[] = { 22, 3, 3, 0, 7, 2, 0, 0, 3, 3, 3, 0 };

static int origin, web;
static uint8_t hello[4096];
static char got[16384];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(origin);
	close(web);
	stage_agent(NULL, NULL);
	stage_down();
	return 0;
}

/* The hello with an encrypted one in it. */
static size_t
hiding_hello(const char *name)
{
	const size_t at = 52, more = 104;
	static const size_t lengths[] = { 50, 3, 7 };
	size_t n = stage_hello(name, hello, sizeof(hello));

	memmove(hello + at + more, hello + at, n - at);
	memset(hello + at, 0, more);
	memcpy(hello + at, "\xfe\x0d\0\x64", 4);
	for (size_t i = 0; i < 3; i++) {
		uint8_t *p = hello + lengths[i];
		size_t v = ((size_t)p[0] << 8 | p[1]) + more;

		p[0] = (uint8_t)(v >> 8);
		p[1] = (uint8_t)v;
	}
	return n + more;
}

static int
tunnel(int lfd, const char *place, int *server)
{
	int fd = stage_connect(WANTED, 3128);
	char head[256];

	snprintf(head, sizeof(head), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n"
	    "\r\n", place, place);
	say(fd, head);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	assert_int_equal(stage_record(RECORD_DECISION)->verdict,
	    VERDICT_ALLOW);
	return fd;
}

/* The gate opens with the server's flight when there is one. */
static void
shake(int fd, int server, size_t n, bool opened)
{
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	if (!opened)
		return;
	stage_send(server, flight, sizeof(flight));
	stage_expect(fd, flight, sizeof(flight));
}

static void
is_cut(int fd, int server)
{
	const struct record *r;
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	assert_true(reset);
	r = stage_record(RECORD_END);
	assert_int_equal(r->how, HOW_CUT);
	assert_int_equal(r->reason, REASON_POLICY_CHANGED);
	close(fd);
	close(server);
}

static void
still_open(int fd, int server)
{
	say(fd, "x");
	stage_expect(server, "x", 1);
}

static void
a_credential_is_found_again_while_a_name_is_looked_up(void **state)
{
	const struct record *r;
	bool reset;
	int fd;

	(void)state;
	for (int other = 0; other < 3; other++) {
		stage_agent(ALLOW("late.test"), "1");
		stage_policy(ALLOW("allowed.test"));
		fd = stage_connect(WANTED, 3128);
		say(fd, "CONNECT late.test:443 HTTP/1.1\r\n"
		    "Host: late.test:443\r\n" AGENT "\r\n");
		usleep(50000);
		/* the same, another run, and one that forbids it */
		if (other == 1)
			stage_agent(ALLOW("late.test"), "2");
		if (other == 2)
			stage_agent(ALLOW("allowed.test"), "1");
		stage_policy(other == 2 ? ALLOW("late.test") :
		    ALLOW("allowed.test"));
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_equal(r->reason, other ? REASON_POLICY_CHANGED :
		    REASON_DNS_TIMEOUT);
		if (other != 1)
			assert_true(span_eq(record_get(r, TEXT_CELL),
			    span_str("agent")));
	}
}

/* The second request has none, or a wrong one: never the first one's cell. */
static void
a_kept_connection_is_whose_request_is_at_hand(void **state)
{
	const struct record *r;
	int fd, server;
	bool reset;

	(void)state;
	for (int wrong = 0; wrong < 2; wrong++) {
		stage_agent(LAB "  rule:\n"
		    "    - {verdict: allow, hostname: allowed.test}\n"
		    "    - {verdict: allow, hostname: late.test}\n", "1");
		stage_policy(ALLOW("late.test"));
		fd = stage_connect(WANTED, 3128);
		say(fd, "GET http://allowed.test/ HTTP/1.1\r\n"
		    "Host: allowed.test\r\n" AGENT "\r\n");
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		r = stage_record(RECORD_DECISION);
		assert_true(span_eq(record_get(r, TEXT_CELL),
		    span_str("agent")));
		if (wrong)
			say(fd, "GET http://late.test/ HTTP/1.1\r\n"
			    "Host: late.test\r\nProxy-Authorization: Basic "
			    "YWdlbnQ6d3Jvbmc=\r\n\r\n");
		else
			say(fd, "GET http://late.test/ HTTP/1.1\r\n"
			    "Host: late.test\r\n\r\n");
		usleep(50000);
		stage_policy(ALLOW("allowed.test"));
		stage_read_all(fd, got, sizeof(got), &reset);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_equal(r->reason, wrong ? REASON_AUTH_FAILED :
		    REASON_POLICY_CHANGED);
		close(fd);
		close(server);
	}
}

static void
a_hello_without_a_name_ends_when_names_are_asked_for(void **state)
{
	static const char open_to[] = LAB "  no_sni: pinned-ip\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n";
	static const char *const place[] = { "allowed.test:443",
	    ORIGIN ":443" };
	int fd, server;

	(void)state;
	for (int i = 0; i < 4; i++) {
		stage_policy(open_to);
		fd = tunnel(origin, place[i % 2], &server);
		shake(fd, server, stage_hello(NULL, hello, sizeof(hello)),
		    i < 2);
		stage_policy(open_to);
		if (i < 2)
			still_open(fd, server);
		stage_policy(ALLOW("allowed.test"));
		is_cut(fd, server);
	}
	/* who shows the name stays */
	stage_policy(open_to);
	fd = tunnel(origin, place[0], &server);
	shake(fd, server, stage_hello("allowed.test", hello, sizeof(hello)),
	    true);
	stage_policy(ALLOW("allowed.test"));
	still_open(fd, server);
	close(fd);
	close(server);
}

static void
what_hides_a_name_ends_when_that_is_denied(void **state)
{
	static const char open_to[] = LAB "  ech: allow-outer\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n";
	static const char closed[] = LAB "  ech: deny\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n";
	int fd, server;

	(void)state;
	for (int inside = 0; inside < 2; inside++) {
		stage_policy(open_to);
		if (inside) {
			fd = tunnel(origin, "allowed.test:443", &server);
			shake(fd, server, hiding_hello("allowed.test"), true);
		} else {
			fd = stage_connect(WANTED, 443);
			stage_send(fd, hello, hiding_hello("allowed.test"));
			server = stage_accept(origin);
			assert_true(server >= 0);
		}
		stage_policy(closed);
		is_cut(fd, server);
	}
}

#define OPAQUE(more) LAB more "  rule:\n    - {verdict: allow, " \
	"hostname: db.test, ports: [5432], protocol: tcp}\n"

static void
denied_there(int fd, int server, enum reason why)
{
	const struct record *r = stage_record(RECORD_DECISION);
	bool reset;

	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, why);
	stage_read_all(fd, got, sizeof(got), &reset);
	r = stage_record(RECORD_END);
	assert_int_equal(r->how, HOW_REFUSED);
	assert_int_equal(r->reason, why);
	close(fd);
	close(server);
}

static void
an_opaque_flow_hides_no_name_where_that_is_denied(void **state)
{
	int fd, server, lfd = stage_listen(ORIGIN, 5432);

	(void)state;
	stage_pin("db.test", ORIGIN);
	stage_policy(OPAQUE("  ech: allow-outer\n"));
	fd = tunnel(lfd, "db.test:5432", &server);
	shake(fd, server, hiding_hello("db.test"), true);
	stage_policy(OPAQUE("  ech: deny\n"));
	is_cut(fd, server);
	fd = tunnel(lfd, "db.test:5432", &server);
	stage_send(fd, hello, hiding_hello("db.test"));
	denied_there(fd, server, REASON_ECH);
	close(lfd);
}

/* What servers skip in front of a request or hello: behind it a name would be
 * seen by nobody here. */
static void
nothing_stands_before_what_shows_a_name(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} t[] = {
#define GET "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"
#define BYTES(s) { s, sizeof(s) - 1 }
		BYTES("\r\n\r\n" GET), BYTES("\n" GET), BYTES(" " GET),
		BYTES("\t" GET), BYTES("\x15\x03\x01\0\x02\x01\x5a"),
		BYTES("\x14\x03\x03\0\x01\x01"),
		BYTES("\x17\x03\x03\0\x01x"),
#undef BYTES
#undef GET
	};
	int fd, server, lfd = stage_listen(ORIGIN, 5432);

	(void)state;
	stage_pin("db.test", ORIGIN);
	stage_policy(OPAQUE("  ech: allow-outer\n"));
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = tunnel(lfd, "db.test:5432", &server);
		stage_send(fd, t[i].bytes, t[i].len);
		denied_there(fd, server, REASON_PROTOCOL);
		fd = stage_connect(WANTED, 443);
		stage_send(fd, t[i].bytes, t[i].len);
		assert_int_equal(stage_record(RECORD_DECISION)->reason,
		    REASON_NOT_TLS);
		close(fd);
	}
	close(lfd);
}

static void
a_gate_that_stays_undecided_is_a_denial(void **state)
{
	int fd, server, lfd = stage_listen(ORIGIN, 5432);
	size_t n;

	(void)state;
	stage_pin("db.test", ORIGIN);
	stage_policy(OPAQUE(""));
	fd = tunnel(lfd, "db.test:5432", &server);
	stage_send(fd, hello, stage_hello("db.test", hello, sizeof(hello)) / 2);
	denied_there(fd, server, REASON_HELLO_TIMEOUT);
	fd = tunnel(lfd, "db.test:5432", &server);
	say(fd, "GET / HTTP/1.1\r\nHost: db.t");
	denied_there(fd, server, REASON_HEAD_TIMEOUT);
	close(lfd);
	stage_policy(ALLOW("allowed.test"));
	fd = tunnel(origin, "allowed.test:443", &server);
	n = stage_hello("allowed.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	stage_send(server, stage_retry, sizeof(stage_retry));
	stage_expect(fd, stage_retry, sizeof(stage_retry));
	denied_there(fd, server, REASON_HELLO_TIMEOUT);
}

static void
W24_a_report_lets_the_server_speak_first(void **state)
{
	char text[512], day[16];
	time_t until = time(NULL) + 30 * 86400;
	struct tm tm;
	const struct record *r;
	struct timespec a, b;
	struct proxy_limits l = stage_limits;
	int fd;

	(void)state;
	strftime(day, sizeof(day), "%Y-%m-%d", gmtime_r(&until, &tm));
	snprintf(text, sizeof(text), LAB "  default: report\n"
	    "  report_until: %s\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n", day);
	down(NULL);
	l.hello_ms = 3000;
	stage_up(text, &l);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	clock_gettime(CLOCK_MONOTONIC, &a);
	fd = stage_connect(WANTED, 22);
	r = stage_record(RECORD_DECISION);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
	assert_int_equal(r->would, VERDICT_DENY);
	assert_int_equal(r->original.port, 22);
	assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) /
	    1000000 < 1000);
	close(fd);
}

time_t __real_time(time_t *t);
time_t __wrap_time(time_t *t);
static atomic_int days_ahead;

/* Linked with --wrap=time: the date is the test's. */
time_t
__wrap_time(time_t *t)
{
	time_t now = __real_time(NULL) + 86400 * (time_t)days_ahead;

	if (t != NULL)
		*t = now;
	return now;
}

/*
 * The name ok.test leads to the listener itself, on a port that no rule opens:
 * what passes there comes back as a second connection, which dials where its
 * name leads.  Returns the text of the policy.
 */
static const char *
reporting_stage(int *lfd)
{
	static char text[512];
	time_t until = __real_time(NULL) + 30 * 86400;
	struct proxy_limits l = stage_limits;
	struct tm tm;
	char day[16];

	strftime(day, sizeof(day), "%Y-%m-%d", gmtime_r(&until, &tm));
	snprintf(text, sizeof(text), LAB "  default: report\n"
	    "  report_until: %s\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n"
	    "    - {verdict: deny, hostname: denied.test, ports: [22]}\n",
	    day);
	down(NULL);
	l.hello_ms = 3000;
	l.idle_ms = 10000;
	stage_up(text, &l);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	*lfd = stage_listen(ORIGIN, 22);
	stage_pin("ok.test", WANTED);
	stage_pin("other.test", ORIGIN);
	stage_pin("denied.test", ORIGIN);
	return text;
}

/* A client that waited for its server until the flow was let pass. */
static int
late_client(void)
{
	const struct record *r;
	int fd = stage_connect(WANTED, 22);

	do
		r = stage_record(RECORD_DECISION);
	while (r->name_from != NAME_FROM_PIN);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
	assert_int_equal(r->would, VERDICT_DENY);
	usleep(50000);
	return fd;
}

static void
is_refused_late(int fd, int lfd, const char *name)
{
	const struct record *r;
	bool reset;

	stage_send(fd, hello, stage_hello(name, hello, sizeof(hello)));
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, REASON_OTHER_NAME);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_int_equal(stage_accept(lfd), -1);
	close(fd);
}

static void
a_report_lets_a_late_name_pass_that_no_rule_matches(void **state)
{
	int lfd, fd, server;
	size_t n;

	(void)state;
	reporting_stage(&lfd);
	fd = late_client();
	n = stage_hello("other.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	server = stage_accept(lfd);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	close(fd);
	close(server);
	/* a request as well */
	fd = late_client();
	say(fd, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n");
	server = stage_accept(lfd);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	close(fd);
	close(server);
	/* what a rule denies does not */
	is_refused_late(late_client(), lfd, "denied.test");
	close(lfd);
}

/* The next decision of a request; the flow comes back as a second one, of
 * which other records tell. */
static const struct record *
of_request(uint64_t request, enum reason why)
{
	const struct record *r;

	do
		r = stage_record(RECORD_DECISION);
	while (r->request == 0);
	assert_int_equal(r->request, request);
	assert_int_equal(r->reason, why);
	return r;
}

/* What comes late is judged as what comes at once, and so is all that
 * follows it. */
static void
a_report_judges_each_late_request(void **state)
{
	const struct record *r;
	int lfd, fd, server;
	bool reset;

	(void)state;
	reporting_stage(&lfd);
	fd = late_client();
	say(fd, "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	r = of_request(1, REASON_RULE_DENY);
	assert_int_equal(r->verdict, VERDICT_DENY);
	close(fd);
	assert_int_equal(stage_accept(lfd), -1);
	fd = late_client();
	for (uint64_t i = 1; i < 3; i++) {
		say(fd, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n");
		if (i == 1)
			server = stage_accept(lfd);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		r = of_request(i, REASON_NO_RULE);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		assert_int_equal(r->would, VERDICT_DENY);
		assert_true(span_eq(record_get(r, TEXT_NAME),
		    span_str("other.test")));
	}
	say(fd, "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	of_request(3, REASON_RULE_DENY);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	close(server);
	close(fd);
	/* one that is none is told in words */
	fd = late_client();
	say(fd, "GET / HTTP/1.1\r\nHost : other.test\r\n\r\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 400", 12);
	close(fd);
	close(lfd);
}

static void
a_report_that_is_over_lets_nothing_pass_that_comes(void **state)
{
	const struct record *r;
	int lfd, fd, server, waits;
	const char *text;
	bool reset;
	size_t n;

	(void)state;
	text = reporting_stage(&lfd);
	fd = late_client();
	n = stage_hello("other.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	server = stage_accept(lfd);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	waits = late_client();
	days_ahead = 32;
	/* one that was let pass and shows its name now */
	is_refused_late(waits, lfd, "other.test");
	/* a new one */
	waits = stage_connect(WANTED, 22);
	do
		r = stage_record(RECORD_DECISION);
	while (r->reason != REASON_NO_RULE);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->would, VERDICT_DENY);
	close(waits);
	/* one that was open ends with the next policy */
	assert_int_equal(recv(fd, got, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	stage_policy(text);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	close(server);
	close(lfd);
	days_ahead = 0;
}

static void
reloads_in_a_row_keep_nothing_that_the_first_forbade(void **state)
{
	struct proxy_limits l = stage_limits;
	int fd, server, n = 0;

	(void)state;
	down(NULL);
	l.reload_grace_ms = 600;
	stage_up(ALLOW("allowed.test"), &l);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	fd = tunnel(origin, "allowed.test:443", &server);
	shake(fd, server, stage_hello("allowed.test", hello, sizeof(hello)),
	    true);
	stage_policy(ALLOW("late.test"));
	for (; n < 10; n++) {
		usleep(200000);
		stage_policy(ALLOW("late.test"));
		if (recv(fd, got, sizeof(got), MSG_DONTWAIT) != -1 ||
		    errno != EAGAIN)
			break;
	}
	assert_in_range(n, 2, 5);
	assert_int_equal(stage_record(RECORD_END)->reason,
	    REASON_POLICY_CHANGED);
	close(fd);
	close(server);
}

/* Listens, and what is dialled there waits until somebody has accepted. */
static int
busy(const char *addr, int *filler)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(5000) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	assert_int_equal(inet_pton(AF_INET, addr, &to.sin_addr), 1);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(listen(fd, 0), 0);
	*filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(*filler, (struct sockaddr *)&to, sizeof(to)),
	    0);
	return fd;
}

/* Whoever waits may come in: is there somebody, within the time in which a
 * SYN is sent again? */
static int
serve(int lfd, int filler)
{
	struct pollfd p = { .fd = lfd, .events = POLLIN };
	int fd = accept(lfd, NULL, NULL);

	close(filler);
	assert_true(fd >= 0);
	close(fd);
	return poll(&p, 1, 1500) == 1 ? accept(lfd, NULL, NULL) : -1;
}

#define PRIVATE "10.99.0.1"
#define DIALS(more) LAB "  rule:\n    - {verdict: allow, hostname: " \
	"two.test, ports: [5000]" more "}\n"

static int
dialling(void)
{
	int fd = stage_connect(WANTED, 3128);

	say(fd, "CONNECT two.test:5000 HTTP/1.1\r\nHost: two.test:5000\r\n"
	    "\r\n");
	return fd;
}

static void
patient_stage(unsigned stagger_ms, unsigned grace_ms)
{
	struct proxy_limits l = stage_limits;

	down(NULL);
	l.connect_ms = 4000;
	l.stagger_ms = stagger_ms;
	l.reload_grace_ms = grace_ms;
	stage_up(DIALS(", allow_private: true"), &l);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
}

/* Whether it is the first or the second, under way or yet to come. */
static void
a_dial_goes_where_the_new_policy_lets_it(void **state)
{
	int open_fd, private_fd, fill[2], fd, server;

	(void)state;
	assert_int_equal(system("ip route replace local 10.99.0.0/24 dev lo"),
	    0);
	for (int i = 0; i < 4; i++) {
		patient_stage(i < 2 ? 50 : 1000, i == 3 ? 60000 : 0);
		stage_pin("two.test", i % 2 ? PRIVATE : "203.0.113.40");
		stage_pin("two.test", i % 2 ? "203.0.113.40" : PRIVATE);
		open_fd = busy("203.0.113.40", &fill[0]);
		private_fd = busy(PRIVATE, &fill[1]);
		fd = dialling();
		usleep(200000);
		stage_policy(DIALS(""));
		assert_int_equal(serve(private_fd, fill[1]), -1);
		server = serve(open_fd, fill[0]);
		assert_true(server >= 0);
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		close(fd);
		assert_int_equal(recv(server, got, 1, 0), 0);
		close(server);
		close(open_fd);
		close(private_fd);
	}
}

static void
no_grace_lets_an_old_dial_win(void **state)
{
	int lfd, filler, fd;
	bool reset;

	(void)state;
	patient_stage(50, 60000);
	stage_pin("two.test", "203.0.113.40");
	lfd = busy("203.0.113.40", &filler);
	fd = dialling();
	usleep(100000);
	stage_policy(ALLOW("allowed.test"));
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_int_equal(stage_record(RECORD_END)->reason,
	    REASON_POLICY_CHANGED);
	assert_int_equal(serve(lfd, filler), -1);
	close(fd);
	close(lfd);
}

#define CIDR(range) LAB "  rule:\n    - {verdict: allow, cidr: " range \
	", ports: [443]}\n"

static void
a_flow_by_name_is_no_flow_to_the_original_address(void **state)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd, server;

	(void)state;
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	server = stage_accept(origin);
	assert_true(server >= 0);
	shake(fd, server, 0, true);
	stage_policy(CIDR(WANTED "/32"));
	is_cut(fd, server);
}

static void
what_a_tunnel_shows_is_held_against_the_new_policy(void **state)
{
	int fd, server, lfd = stage_listen(ORIGIN, 5432);

	(void)state;
	/* an address rule asked for no name */
	stage_policy(CIDR(ORIGIN "/32"));
	fd = tunnel(origin, ORIGIN ":443", &server);
	stage_policy(ALLOW("allowed.test"));
	stage_send(fd, hello, stage_hello(NULL, hello, sizeof(hello)));
	denied_there(fd, server, REASON_NO_SNI);
	/* nor did a rule for the protocol ask for TLS */
	stage_pin("db.test", ORIGIN);
	stage_policy(OPAQUE(""));
	fd = tunnel(lfd, "db.test:5432", &server);
	stage_policy(LAB "  rule:\n    - {verdict: allow, "
	    "hostname: db.test, ports: [5432]}\n");
	say(fd, "SSH-2.0-a\r\n");
	denied_there(fd, server, REASON_PROTOCOL);
	close(lfd);
}

static void
a_kept_way_to_a_server_ends_with_the_policy(void **state)
{
	int fd = stage_connect(WANTED, 80), server;

	(void)state;
	for (int i = 0; i < 3; i++) {
		say(fd, i == 2 ? "t: allowed.test\r\n\r\n" :
		    "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		if (i == 1) {		/* half of the next is here */
			say(fd, "GET / HTTP/1.1\r\nHos");
			usleep(50000);
		}
		stage_policy(ALLOW("allowed.test"));
		assert_int_equal(recv(server, got, 1, 0), 0);
		close(server);
	}
	close(fd);
}

/* For what comes, and for what moves. */
static void
other_limits_count_at_once(void **state)
{
	static char big[1 << 20];
	struct proxy_limits l = stage_limits;
	int fd, server, other;
	struct stage_job up_job;

	(void)state;
	fd = tunnel(origin, "allowed.test:443", &server);
	shake(fd, server, stage_hello("allowed.test", hello, sizeof(hello)),
	    true);
	up_job = (struct stage_job){ fd, big, sizeof(big), .expect = false };
	l.per_client = 1;
	l.head_bytes = 1024;
	l.copy_buffer_bytes = 4096;
	l.pipe_share_percent = 0;
	l.idle_ms = 400;
	stage_limit(&l);
	other = stage_connect(WANTED, 3128);
	stage_read_head(other, got, sizeof(got));
	assert_non_null(strstr(got, "limit_client"));
	close(other);
	stage_begin(&up_job);
	stage_expect(server, big, sizeof(big));
	assert_true(stage_await(&up_job));
	l.copy_buffer_bytes = 1 << 20;
	stage_limit(&l);
	up_job.fd = server;
	stage_begin(&up_job);
	stage_expect(fd, big, sizeof(big));
	assert_true(stage_await(&up_job));
	close(fd);
	close(server);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

/* ---- what a pin allowed ---- */

#define BRIEF "203.0.113.77"
#define BY_PIN(more) LAB "  no_sni: pinned-ip\n  rule:\n" more \
	"    - {verdict: allow, hostname: late.test, ports: [8080]}\n"
#define ALLOWS(name) "    - {verdict: allow, hostname: " name "}\n"

static const char by_pin[] = BY_PIN(ALLOWS("brief.test")
    ALLOWS("other.test"));

/* A request of an address, which its server has not answered. */
static int
request_there(int lfd, int *server)
{
	int fd = stage_connect(WANTED, 3128);

	say(fd, "GET http://" BRIEF "/ HTTP/1.1\r\nHost: " BRIEF "\r\n\r\n");
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	assert_int_equal(stage_record(RECORD_DECISION)->verdict,
	    VERDICT_ALLOW);
	stage_read_head(*server, got, sizeof(got));
	return fd;
}

static int
open_by_pin(int kind, int tls, int http, int *server)
{
	static const char *const place[] = { "brief.test:443", BRIEF ":443" };
	int fd;

	stage_pin_brief("brief.test", BRIEF, 300);
	stage_pin_brief("other.test", BRIEF, 300);
	if (kind == 2)
		return request_there(http, server);
	fd = tunnel(tls, place[kind], server);
	shake(fd, *server, stage_hello(NULL, hello, sizeof(hello)), true);
	return fd;
}

static void
goes_on(int kind, int fd, int server)
{
	if (kind < 2) {
		still_open(fd, server);
		return;
	}
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 204", 12);
}

/* Nor does a pin that comes: that name had not the address when it began. */
static void
the_end_of_a_pin_cuts_nothing_that_is_open(void **state)
{
	int tls = stage_listen(BRIEF, 443), http = stage_listen(BRIEF, 80);
	int fd, server;

	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		stage_policy(by_pin);
		fd = open_by_pin(kind, tls, http, &server);
		usleep(350000);
		stage_policy(by_pin);
		assert_true(stage_no_record(RECORD_END));
		stage_pin_brief("late.test", BRIEF, 300);
		stage_policy(by_pin);
		goes_on(kind, fd, server);
		close(fd);
		close(server);
		(void)stage_record(RECORD_END);
		usleep(350000);
	}
	close(tls);
	close(http);
}

/* It may be the flow of any of them. */
static void
a_policy_that_forbids_a_name_cuts_what_it_allowed(void **state)
{
	int tls = stage_listen(BRIEF, 443), http = stage_listen(BRIEF, 80);
	int fd, server;

	(void)state;
	for (int kind = 0; kind < 6; kind++) {
		stage_policy(by_pin);
		fd = open_by_pin(kind % 3, tls, http, &server);
		if (kind >= 3)
			usleep(350000);
		stage_policy(BY_PIN(ALLOWS("brief.test")));
		is_cut(fd, server);
	}
	close(tls);
	close(http);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_credential_is_found_again_while_a_name_is_looked_up),
		T(a_kept_connection_is_whose_request_is_at_hand),
		T(a_hello_without_a_name_ends_when_names_are_asked_for),
		T(what_hides_a_name_ends_when_that_is_denied),
		T(an_opaque_flow_hides_no_name_where_that_is_denied),
		T(nothing_stands_before_what_shows_a_name),
		T(a_gate_that_stays_undecided_is_a_denial),
		T(W24_a_report_lets_the_server_speak_first),
		T(a_report_lets_a_late_name_pass_that_no_rule_matches),
		T(a_report_judges_each_late_request),
		T(a_report_that_is_over_lets_nothing_pass_that_comes),
		T(a_dial_goes_where_the_new_policy_lets_it),
		T(no_grace_lets_an_old_dial_win),
		T(a_flow_by_name_is_no_flow_to_the_original_address),
		T(what_a_tunnel_shows_is_held_against_the_new_policy),
		T(a_kept_way_to_a_server_ends_with_the_policy),
		T(the_end_of_a_pin_cuts_nothing_that_is_open),
		T(a_policy_that_forbids_a_name_cuts_what_it_allowed),
		T(other_limits_count_at_once),
		T(reloads_in_a_row_keep_nothing_that_the_first_forbade),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
