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

/*
 * What is open when a policy changes is asked for by what it was let pass: its
 * name, its address, or no more than that a rule carries any bytes.
 */

#define PORT 5432
#define THERE "203.0.113.5"	/* of db.test alone */
#define BYTES "\1hello\n"		/* no beginning of a request */
#define PRIVATE "10.99.0.1"
#define LAB "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  lab: [203.0.113.0/24]\n"
#define WITH(keys, rules) LAB keys "  rule:\n" rules
#define DB(more) "    - {verdict: allow, hostname: db.test, ports: [5432]" \
	more "}\n"
#define TCP ", protocol: tcp"
#define NEXT "    - {verdict: allow, hostname: next.test, ports: [5432]}\n"
#define CIDR(range) "    - {verdict: allow, cidr: " range ", ports: [5432]}\n"
#define NO(what) "    - {verdict: deny, " what ", ports: [5432]}\n"
/* There must be one rule that allows. */
#define ELSE "    - {verdict: allow, hostname: else.test}\n"
#define REPORT "  default: report\n  report_until: @@@@-@@-@@\n"
#define PINNED "  no_sni: pinned-ip\n"
#define OUTER "  ech: allow-outer\n"

static uint8_t hello[4096];
static char got[16384];
static int db, inner;
static const char *credential = "";
static atomic_bool redirected;

int __real_getsockname(int fd, struct sockaddr *sa, socklen_t *len);
int __wrap_getsockname(int fd, struct sockaddr *sa, socklen_t *len);

/* Linked with --wrap=getsockname: who comes to port 22 wanted to go to the
 * origin's port. */
int
__wrap_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	int e = __real_getsockname(fd, sa, len);
	struct sockaddr_in in;

	if (e < 0 || !atomic_load(&redirected))
		return e;
	memcpy(&in, sa, sizeof(in));
	if (in.sin_family != AF_INET || in.sin_port != htons(22))
		return e;
	in.sin_port = htons(PORT);
	if (inet_pton(AF_INET, THERE, &in.sin_addr) != 1)
		return -1;
	memcpy(sa, &in, sizeof(in));
	return e;
}

static void
begin(const struct proxy_limits *l)
{
	struct proxy_limits patient = l ? *l : stage_limits;

	patient.idle_ms = 20000;
	stage_up(WITH("", DB("")), &patient);
	assert_int_equal(system("ip route replace local 10.99.0.0/24 dev lo"),
	    0);
	db = stage_listen(THERE, PORT);
	inner = stage_listen(PRIVATE, PORT);
	stage_pin("db.test", THERE);
	stage_pin("next.test", "203.0.113.2");
	stage_pin("in.test", PRIVATE);
	atomic_store(&redirected, true);
}

static int
up(void **state)
{
	(void)state;
	begin(NULL);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(db);
	close(inner);
	stage_agent(NULL, NULL);
	stage_cells(NULL);
	stage_token(NULL);
	stage_home(NULL);
	stage_down();
	return 0;
}

/* The date of a report that is not over. */
static const char *
dated(const char *text)
{
	static char out[2][2048];
	static unsigned turn;
	time_t until = time(NULL) + 30 * 86400;
	char day[16], *to = out[turn++ % 2], *at;
	struct tm tm;

	strftime(day, sizeof(day), "%Y-%m-%d", gmtime_r(&until, &tm));
	snprintf(to, sizeof(out[0]), "%s", text);
	at = strstr(to, "@@@@");
	if (at != NULL)
		memcpy(at, day, 10);
	return to;
}

/* How a flow begins, and what it shows, a letter each: b(ytes), h(ello with
 * its name), o(ther name), n(o name), e(ncrypted one), f(in). */
struct flow {
	const char *to;		/* of a CONNECT; NULL: transparent */
	const char *shows;
};

static size_t
hello_of(char what)
{
	size_t n = stage_hello(what == 'n' ? NULL : what == 'o' ?
	    "next.test" : "db.test", hello, sizeof(hello));

	if (what == 'e')
		n = stage_extend(hello, n, 0xfe0d, 100);
	return n;
}

static void
show(const struct flow *f, int fd, int server)
{
	for (const char *s = f->shows; *s != '\0'; s++) {
		if (*s == 'f') {
			shutdown(fd, SHUT_WR);
			assert_int_equal(recv(server, got, 1, 0), 0);
		} else if (*s == 'b') {
			say(fd, BYTES);
			stage_expect(server, BYTES, sizeof(BYTES) - 1);
		} else {
			size_t n = hello_of(*s);

			stage_send(fd, hello, n);
			stage_expect(server, hello, n);
		}
	}
}

static bool
begins_hello(const struct flow *f)
{
	return f->shows[0] != '\0' && strchr("hone", f->shows[0]) != NULL;
}

static int
begin_flow(const struct flow *f, int *server)
{
	int fd = stage_connect(WANTED, f->to ? 3128 : 22);
	char head[256];

	if (f->to != NULL) {
		snprintf(head, sizeof(head), "CONNECT %s:%d HTTP/1.1\r\n"
		    "Host: %s:%d\r\n%s\r\n", f->to, PORT, f->to, PORT,
		    credential);
		say(fd, head);
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
	} else if (begins_hello(f)) {
		stage_send(fd, hello, hello_of(f->shows[0]));
	} else if (f->shows[0] == 'b') {
		say(fd, BYTES);
	}
	assert_int_equal(stage_record(RECORD_DECISION)->verdict,
	    VERDICT_ALLOW);
	*server = stage_accept(f->to && strcmp(f->to, "in.test") == 0 ?
	    inner : db);
	assert_true(*server >= 0);
	return fd;
}

/* What was sent with the beginning has come. */
static int
open_flow(const struct flow *f, int *server)
{
	int fd = begin_flow(f, server);
	struct flow rest = *f;

	if (f->to == NULL && f->shows[0] == 'b') {
		stage_expect(*server, BYTES, sizeof(BYTES) - 1);
		rest.shows++;
	} else if (f->to == NULL && begins_hello(f)) {
		size_t n = hello_of(f->shows[0]);

		stage_expect(*server, hello, n);
		rest.shows++;
	}
	show(&rest, fd, *server);
	return fd;
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

static bool
is_open(int fd, int server)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (send(server, "x", 1, MSG_NOSIGNAL) != 1 ||
	    poll(&p, 1, 1000) != 1)
		return false;
	return recv(fd, got, 1, 0) == 1;
}

/* ---- one table of what each was let pass by ---- */

struct row {
	const char *what;
	struct flow flow;
	const char *before, *after;
	bool stays;
};

static const struct row rows[] = {
	/* protocol: tcp leaves the rule */
	{ "bytes", { NULL, "b" }, WITH("", DB(TCP)), WITH("", DB("")), false },
	{ "bytes in a CONNECT", { "db.test", "b" }, WITH("", DB(TCP)),
	    WITH("", DB("")), false },
	{ "bytes in a CONNECT to an address", { THERE, "b" },
	    WITH("", DB(TCP)), WITH("", DB("")), false },
	{ "nothing but an end", { NULL, "f" }, WITH("", DB(TCP)),
	    WITH("", DB("")), false },
	{ "nothing but an end in a CONNECT", { "db.test", "f" },
	    WITH("", DB(TCP)), WITH("", DB("")), false },
	{ "no name", { NULL, "n" }, WITH("", DB(TCP)), WITH("", DB("")),
	    false },
	{ "no name in a CONNECT", { "db.test", "n" }, WITH("", DB(TCP)),
	    WITH("", DB("")), false },
	{ "no name where a pin suffices", { NULL, "n" }, WITH("", DB(TCP)),
	    WITH(PINNED, DB("")), true },
	{ "STARTTLS", { NULL, "bh" }, WITH("", DB(TCP)), WITH("", DB("")),
	    false },
	{ "STARTTLS in a CONNECT", { "db.test", "bh" }, WITH("", DB(TCP)),
	    WITH("", DB("")), false },
	{ "STARTTLS in a CONNECT to an address", { THERE, "bh" },
	    WITH("", DB(TCP)), WITH("", DB("")), false },
	/* ... and who showed the name needs none */
	{ "its name", { NULL, "h" }, WITH("", DB(TCP)), WITH("", DB("")),
	    true },
	{ "its name in a CONNECT", { "db.test", "h" }, WITH("", DB(TCP)),
	    WITH("", DB("")), true },
	{ "its name in a CONNECT to an address", { THERE, "h" },
	    WITH("", DB(TCP)), WITH("", DB("")), true },
	/* the port, or the name */
	{ "bytes, another port", { NULL, "b" }, WITH("", DB(TCP)), WITH("",
	    "    - {verdict: allow, hostname: db.test, ports: [5433]" TCP
	    "}\n"), false },
	{ "bytes, another name", { NULL, "b" }, WITH("", DB(TCP)),
	    WITH("", ELSE), false },
	{ "a name, another name", { "db.test", "h" }, WITH("", DB("")),
	    WITH("", ELSE), false },
	{ "bytes, a name is denied", { NULL, "b" }, WITH("", DB(TCP)),
	    WITH("", NO("hostname: db.test") ELSE), false },
	/* a rule for another name has the port read first */
	{ "bytes to an address, the port is read", { NULL, "b" },
	    WITH("", CIDR(THERE "/32")), WITH("", CIDR(THERE "/32") NEXT),
	    true },
	/* an address rule */
	{ "bytes, no prefix", { NULL, "b" }, WITH("", CIDR(THERE "/32")),
	    WITH("", DB("")), false },
	{ "read bytes, no prefix", { NULL, "b" },
	    WITH("", CIDR(THERE "/32") NEXT), WITH("", DB("") NEXT), false },
	{ "read bytes and a name, no prefix", { NULL, "bh" },
	    WITH("", CIDR(THERE "/32") DB("")), WITH("", DB("")), false },
	{ "bytes, a prefix in place of the protocol", { NULL, "b" },
	    WITH("", DB(TCP)), WITH("", CIDR(THERE "/32")), true },
	{ "bytes, denied prefix", { NULL, "b" }, WITH("", DB(TCP)),
	    WITH("", DB(TCP) NO("cidr: " THERE "/32")), false },
	{ "a name, denied prefix", { "db.test", "h" }, WITH("", DB("")),
	    WITH("", DB("") NO("cidr: " THERE "/32")), false },
	{ "bytes in a CONNECT, denied prefix", { "db.test", "b" },
	    WITH("", DB(TCP)), WITH("", DB(TCP) NO("cidr: " THERE "/32")),
	    false },
	/* a name that only an address rule let be shown */
	{ "another name, no prefix", { NULL, "o" },
	    WITH("", CIDR(THERE "/32")), WITH("", DB(TCP)), false },
	{ "another name, a rule that denies it", { NULL, "o" },
	    WITH("", CIDR(THERE "/32")), WITH("", CIDR(THERE "/32")
	    NO("hostname: next.test")), false },
	{ "another name, the prefix", { NULL, "o" },
	    WITH("", CIDR(THERE "/32")), WITH("", CIDR("203.0.113.0/24")),
	    true },
	{ "its name in a CONNECT to an address, its rule leaves",
	    { THERE, "h" }, WITH("", CIDR(THERE "/32") DB("")),
	    WITH("", CIDR(THERE "/32")), false },
	/* what hides */
	{ "no name, names are asked for", { NULL, "n" },
	    WITH(PINNED, DB("")), WITH("", DB("")), false },
	{ "no name in a CONNECT, names are asked for", { THERE, "n" },
	    WITH(PINNED, DB("")), WITH("", DB("")), false },
	{ "ECH", { NULL, "e" }, WITH(OUTER, DB("")), WITH("  ech: deny\n",
	    DB("")), false },
	{ "ECH in a CONNECT", { "db.test", "e" }, WITH(OUTER, DB("")),
	    WITH("  ech: deny\n", DB("")), false },
	{ "ECH behind bytes", { NULL, "be" }, WITH(OUTER, DB(TCP)),
	    WITH("  ech: deny\n", DB(TCP)), false },
	/* a report that is over */
	{ "reported bytes", { NULL, "b" }, WITH(REPORT, ELSE),
	    WITH("", ELSE), false },
	{ "reported bytes, the name is allowed", { NULL, "b" },
	    WITH(REPORT, ELSE), WITH("", DB("")), false },
	{ "a reported name", { NULL, "h" }, WITH(REPORT, ELSE),
	    WITH("", ELSE), false },
	{ "a reported name in a CONNECT", { "db.test", "h" },
	    WITH(REPORT, ELSE), WITH("", ELSE), false },
	{ "a reported CONNECT to an address", { THERE, "h" },
	    WITH(REPORT, ELSE), WITH("", ELSE), false },
	{ "no name, reported", { NULL, "n" }, WITH(REPORT, ELSE),
	    WITH("", ELSE), false },
	{ "a reported name that is allowed now", { NULL, "h" },
	    WITH(REPORT, ELSE), WITH("", DB("")), true },
	/* private addresses */
	{ "a private address", { "in.test", "b" }, WITH("",
	    "    - {verdict: allow, hostname: in.test, ports: [5432], "
	    "allow_private: true" TCP "}\n"), WITH("",
	    "    - {verdict: allow, hostname: in.test, ports: [5432]" TCP
	    "}\n"), false },
};

/* The same policy again takes nothing from anybody. */
static void
what_is_open_is_asked_what_let_it_pass(void **state)
{
	unsigned bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		int fd, server;

		stage_policy(dated(r->before));
		fd = open_flow(&r->flow, &server);
		stage_policy(dated(r->before));
		if (!is_open(fd, server)) {
			print_error("%s: cut by the same policy\n", r->what);
			bad++;
		} else {
			stage_policy(dated(r->after));
			if (is_open(fd, server) != r->stays) {
				print_error("%s: %s\n", r->what, r->stays ?
				    "cut" : "goes on");
				bad++;
			} else if (!r->stays) {
				is_cut(fd, server);
				continue;
			}
		}
		close(fd);
		close(server);
		(void)stage_record(RECORD_END);
	}
	assert_int_equal(bad, 0);
}

/* ---- whose it is ---- */

#define AGENT "Proxy-Authorization: Basic YWdlbnQ6c2VjcmV0\r\n"

struct owner {
	const char *what;
	bool agent;		/* it showed a credential */
	const char *to;
	const char *cells, *token, *home, *run;
	bool stays;
};

static const struct owner owners[] = {
	{ "the cell is gone", false, NULL, "a", NULL, NULL, "1", false },
	{ "the cell of a CONNECT is gone", false, "db.test", "a", NULL, NULL,
	    "1", false },
	{ "the credential's cell is gone", true, "db.test", "c", NULL, NULL,
	    "1", false },
	{ "another token", true, "db.test", "ca", "other", NULL, "1", false },
	{ "another run", true, "db.test", "ca", NULL, NULL, "2", false },
	{ "the cell is of other clients", false, NULL, "ca", NULL,
	    "192.0.2.0/24", "1", false },
	{ "the cell of a CONNECT is of other clients", false, "db.test", "ca",
	    NULL, "192.0.2.0/24", "1", false },
	{ "the cell is of fewer clients", false, NULL, "ca", NULL,
	    "203.0.113.0/24", "1", true },
	{ "another's cell is of other clients", true, "db.test", "ca", NULL,
	    "192.0.2.0/24", "1", true },
	{ "another order", true, "db.test", "ac", NULL, NULL, "1", true },
	{ "another order of others", false, NULL, "ac", NULL, NULL, "1",
	    true },
};

static void
owner_before(void)
{
	stage_agent(WITH("", DB(TCP)), "1");
	stage_cells(NULL);
	stage_token(NULL);
	stage_home(NULL);
	stage_policy(WITH("", DB(TCP)));
	stage_pin_for("agent", "1", "db.test", THERE);
}

static void
owner_after(const struct owner *o)
{
	stage_agent(WITH("", DB(TCP)), o->run);
	stage_cells(o->cells);
	stage_token(o->token);
	stage_home(o->home);
	stage_policy(WITH("", DB(TCP)));
}

static void
what_is_open_is_whose_it_was(void **state)
{
	unsigned bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
		const struct owner *o = &owners[i];
		struct flow f = { o->to, "b" };
		int fd, server;

		owner_before();
		credential = o->agent ? AGENT : "";
		fd = open_flow(&f, &server);
		credential = "";
		owner_after(o);
		if (is_open(fd, server) != o->stays) {
			print_error("%s: %s\n", o->what, o->stays ? "cut" :
			    "goes on");
			bad++;
		} else if (!o->stays) {
			is_cut(fd, server);
			continue;
		}
		close(fd);
		close(server);
		(void)stage_record(RECORD_END);
	}
	assert_int_equal(bad, 0);
}

/* ---- when ---- */

static void
a_grace_is_for_bytes_too(void **state)
{
	struct proxy_limits l = stage_limits;
	struct flow f = { NULL, "b" };
	int fd, server;

	down(state);
	l.reload_grace_ms = 400;
	begin(&l);
	stage_policy(WITH("", DB(TCP)));
	usleep(500000);		/* the grace of that */
	fd = open_flow(&f, &server);
	stage_policy(WITH("", DB("")));
	usleep(100000);
	assert_true(is_open(fd, server));
	is_cut(fd, server);
}

/* Nothing is shown yet: what comes then is read. */
static void
who_waits_is_read_from_then_on(void **state)
{
	static const char *const before[] = { WITH("", DB(TCP)),
	    WITH(REPORT, ELSE) };
	struct flow f = { NULL, "" };
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		stage_policy(dated(before[i / 2]));
		fd = begin_flow(&f, &server);
		usleep(50000);
		stage_policy(WITH("", DB("")));
		if (i % 2 == 0) {
			say(fd, BYTES);
			stage_read_all(fd, got, sizeof(got), &reset);
			assert_int_equal(stage_record(RECORD_DECISION)->reason,
			    REASON_NOT_TLS);
			assert_int_equal(recv(server, got, 1, 0), 0);
		} else {
			close(server);
			n = hello_of('h');
			stage_send(fd, hello, n);
			server = stage_accept(db);
			assert_true(server >= 0);
			stage_expect(server, hello, n);
			(void)stage_record(RECORD_DECISION);
		}
		close(fd);
		close(server);
		(void)stage_record(RECORD_END);
	}
}

/* What is not there yet is read as well, and dialled for what it shows. */
static void
who_is_dialled_for_is_read_from_then_on(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
	    .sin_port = htons(PORT) };
	int full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fill, fd;
	bool reset;

	(void)state;
	close(db);
	assert_int_equal(inet_pton(AF_INET, THERE, &at.sin_addr), 1);
	db = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(db, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	assert_int_equal(bind(db, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(db, 0), 0);
	assert_int_equal(connect(full, (struct sockaddr *)&at, sizeof(at)), 0);
	stage_policy(WITH("", DB(TCP)));
	fd = stage_connect(WANTED, 22);
	assert_int_equal(stage_record(RECORD_DECISION)->verdict,
	    VERDICT_ALLOW);
	stage_policy(WITH("", DB("")));
	fill = accept(db, NULL, NULL);
	say(fd, BYTES);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_NOT_TLS);
	assert_int_equal(stage_accept(db), -1);
	close(fd);
	close(fill);
	close(full);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_open_is_asked_what_let_it_pass),
		T(what_is_open_is_whose_it_was),
		T(a_grace_is_for_bytes_too),
		T(who_waits_is_read_from_then_on),
		T(who_is_dialled_for_is_read_from_then_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
