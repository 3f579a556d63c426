/* SPDX-License-Identifier: Apache-2.0 */
/* What each cell may hold of the places, and when it has them back. */
#include "tests/replay/stage.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int origin, web;
static uint8_t hello[1024];
static char got[8192];

#define POLICY(name) "version: 1\nnetwork:\n  default: deny\n" \
	"  resolvers: [198.18.0.53]\n  lab: [203.0.113.0/24]\n  rule:\n" \
	"    - {verdict: allow, hostname: " name "}\n" \
	"    - {verdict: allow, hostname: second.test}\n" \
	"    - {verdict: allow, hostname: third.test}\n"
#define CREDENTIAL "Proxy-Authorization: Basic YWdlbnQ6c2VjcmV0\r\n"

static void
begin(unsigned per_cell, unsigned connections, unsigned patience_ms)
{
	struct proxy_limits l = stage_limits;

	l.per_cell = per_cell;
	l.connections = connections;
	l.resolve_ms = 300;
	l.connect_ms = 500;
	l.hello_ms = l.idle_ms = l.keepalive_ms = patience_ms;
	l.linger_ms = 200;
	stage_agent(POLICY("allowed.test"), "1");
	stage_up(POLICY("allowed.test"), &l);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	stage_pin("second.test", "203.0.113.30");	/* nobody there */
}

static void
end(void)
{
	close(origin);
	close(web);
	stage_agent(NULL, NULL);
	stage_cells(NULL);
	stage_down();
}

static void
reset_by(int fd)
{
	struct linger l = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static int
shows(const char *name)
{
	int fd = stage_connect(WANTED, 443);

	(void)!send(fd, hello, stage_hello(name, hello, sizeof(hello)),
	    MSG_NOSIGNAL);
	return fd;
}

static int
asks(const char *credential, const char *name)
{
	int fd = stage_connect(WANTED, 3128);
	char head[256];

	snprintf(head, sizeof(head), "CONNECT %s:443 HTTP/1.1\r\n"
	    "Host: %s:443\r\n%s\r\n", name, name, credential);
	say(fd, head);
	return fd;
}

/* So many ends more are told: then their places are given back. */
static void
over(int n)
{
	while (n-- > 0)
		stage_record(RECORD_END);
}

/* One of the cell that its socket tells: its server, or -1. */
static int
opens(int *fd)
{
	int server;

	*fd = shows("allowed.test");
	server = stage_accept(origin);
	if (server < 0) {
		close(*fd);
		over(1);
	}
	return server;
}

/* One of the cell that its credential tells. */
static int
opens_agents(int *fd)
{
	const struct record *r;

	*fd = asks(CREDENTIAL, "allowed.test");
	stage_read_head(*fd, got, sizeof(got));
	if (memcmp(got, "HTTP/1.1 200", 12) == 0)
		return stage_accept(origin);
	assert_memory_equal(got, "HTTP/1.1 503", 12);
	assert_non_null(strstr(got, "limit_cell"));
	close(*fd);
	r = stage_record(RECORD_END);
	assert_true(span_eq(record_get(r, TEXT_CELL), span_str("agent")));
	return -1;
}

/* ---- the ends, of one connection each ---- */

static void
by_fin(void)
{
	int fd, server = opens(&fd);

	close(fd);
	close(server);
}

static void
by_reset_of_client(void)
{
	int fd, server = opens(&fd);

	reset_by(fd);
	close(server);
}

static void
by_reset_of_server(void)
{
	int fd, server = opens(&fd);

	reset_by(server);
	stage_read_all(fd, got, sizeof(got), &(bool){ false });
	close(fd);
}

static void
by_idling(void)
{
	int fd, server = opens(&fd);

	stage_read_all(fd, got, sizeof(got), &(bool){ false });
	close(fd);
	close(server);
}

static void
refused_by(int fd)
{
	stage_read_all(fd, got, sizeof(got), &(bool){ false });
	close(fd);
}

static void
by_a_rule(void)
{
	refused_by(shows("denied.test"));
}

static void
by_no_name(void)
{
	refused_by(shows("third.test"));	/* nobody resolves */
}

static void
by_no_server(void)
{
	refused_by(shows("second.test"));
}

static void
by_silence(void)
{
	refused_by(stage_connect(WANTED, 443));
}

static void
by_junk(void)
{
	int fd = stage_connect(WANTED, 443);

	say(fd, "\x01\x02\x03");
	refused_by(fd);
}

static void
by_nothing(void)
{
	close(stage_connect(WANTED, 443));
}

static void
by_a_policy(void)
{
	int fd, server = opens(&fd);

	stage_policy(POLICY("other.test"));
	stage_read_all(fd, got, sizeof(got), &(bool){ false });
	close(fd);
	close(server);
	stage_policy(POLICY("allowed.test"));
}

static void
by_an_answer(void)
{
	int fd = stage_connect(WANTED, 80), server;

	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Connection: close\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	refused_by(fd);
	close(server);
}

static void
of_an_agent(void)
{
	int fd, server = opens_agents(&fd);

	assert_true(server >= 0);
	close(fd);
	close(server);
}

static void
of_an_agent_without_a_server(void)
{
	refused_by(asks(CREDENTIAL, "second.test"));
}

static void
of_nobody(void)
{
	refused_by(asks("Proxy-Authorization: Basic YWdlbnQ6eA==\r\n",
	    "allowed.test"));
}

static void
the_place_of_a_cell_is_given_back_at_each_end(void **state)
{
	static const struct {
		const char *what;
		void (*life)(void);
	} t[] = {
		{ "fin", by_fin }, { "client", by_reset_of_client },
		{ "server", by_reset_of_server }, { "idle", by_idling },
		{ "rule", by_a_rule }, { "no name", by_no_name },
		{ "no server", by_no_server }, { "silence", by_silence },
		{ "junk", by_junk }, { "nothing", by_nothing },
		{ "policy", by_a_policy }, { "answer", by_an_answer },
		{ "agent", of_an_agent },
		{ "agent, no server", of_an_agent_without_a_server },
		{ "nobody", of_nobody },
	};
	int fd[2], server[2];

	(void)state;
	begin(1, 100, 500);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		t[i].life();
		over(1);
		/* the only place of each cell */
		server[0] = opens_agents(&fd[0]);
		server[1] = opens(&fd[1]);
		for (int k = 0; k < 2; k++) {
			if (server[k] < 0)
				fail_msg("no place behind: %s", t[i].what);
			close(fd[k]);
			close(server[k]);
		}
		over(2);
	}
	end();
}

/* ---- one connection, two cells ---- */

/* One request on a connection to the explicit listener. */
static void
exchange(int fd, int *server, const char *credential)
{
	char head[256];

	snprintf(head, sizeof(head), "GET http://allowed.test/ HTTP/1.1\r\n"
	    "Host: allowed.test\r\n%s\r\n", credential);
	say(fd, head);
	if (*server < 0)
		*server = stage_accept(web);
	assert_true(*server >= 0);
	stage_read_head(*server, got, sizeof(got));
	say(*server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 204", 12);
	over(1);
}

static void
a_connection_counts_as_the_cells_that_asked_last(void **state)
{
	int kept, up = -1, agents, of_agents, fd[2], server[2], more;

	(void)state;
	begin(2, 100, 20000);
	kept = stage_connect(WANTED, 3128);
	for (int i = 0; i < 3; i++)	/* the same again is nothing */
		exchange(kept, &up, CREDENTIAL);
	of_agents = opens_agents(&agents);
	assert_true(of_agents >= 0);
	assert_int_equal(opens_agents(&more), -1);
	exchange(kept, &up, CREDENTIAL);
	for (int i = 0; i < 2; i++) {
		server[i] = opens(&fd[i]);
		assert_true(server[i] >= 0);
	}
	/* the other cell has no place for it: it ends as the agent's */
	say(kept, "GET http://allowed.test/ HTTP/1.1\r\n"
	    "Host: allowed.test\r\n\r\n");
	stage_read_all(kept, got, sizeof(got), &(bool){ false });
	assert_memory_equal(got, "HTTP/1.1 503", 12);
	assert_non_null(strstr(got, "limit_cell"));
	close(kept);
	close(up);
	over(1);
	close(fd[1]);
	close(server[1]);
	over(1);
	of_an_agent();
	over(1);
	/* and with a place it is the other's from then on */
	kept = stage_connect(WANTED, 3128);
	up = -1;
	exchange(kept, &up, CREDENTIAL);
	assert_int_equal(opens_agents(&more), -1);
	exchange(kept, &up, "");
	assert_int_equal(opens(&more), -1);
	close(fd[0]);
	close(server[0]);
	over(1);
	of_an_agent();
	over(1);
	exchange(kept, &up, CREDENTIAL);
	assert_int_equal(opens_agents(&more), -1);
	for (int i = 0; i < 2; i++) {
		server[i] = opens(&fd[i]);
		assert_true(server[i] >= 0);
	}
	close(kept);
	close(up);
	close(agents);
	close(of_agents);
	for (int i = 0; i < 2; i++) {
		close(fd[i]);
		close(server[i]);
	}
	end();
}

/* ---- reloads ---- */

/* What is held stays held, also where the cells have other numbers then. */
static void
a_reload_gives_no_place_back(void **state)
{
	int fd[4], server[4], more;

	(void)state;
	begin(2, 100, 20000);
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 3; k++) {
			server[k] = k < 2 ? opens_agents(&fd[k]) :
			    opens(&fd[k]);
			assert_true(server[k] >= 0);
		}
		stage_cells(i % 2 ? "ca" : "ac");
		stage_policy(POLICY("allowed.test"));
		assert_int_equal(opens_agents(&more), -1);
		server[3] = opens(&fd[3]);
		assert_true(server[3] >= 0);
		assert_int_equal(opens(&more), -1);
		if (i < 2)	/* given back by the other's numbers */
			stage_cells(i % 2 ? "ac" : "ca");
		stage_policy(POLICY("allowed.test"));
		for (int k = 0; k < 4; k++) {
			close(fd[k]);
			close(server[k]);
		}
		over(4);
	}
	end();
}

/* So many of a cell's are open at the same time. */
static int
most(int fd[static 16], int server[static 16], int n)
{
	while (n < 16 && (server[n] = opens(&fd[n])) >= 0)
		n++;
	return n;
}

/* Three quarters of eight for two cells; all for an only one. */
static void
a_reload_with_fewer_cells_makes_shares_larger(void **state)
{
	int fd[16], server[16], n;

	(void)state;
	begin(0, 8, 20000);
	n = most(fd, server, 0);
	assert_int_equal(n, 3);
	stage_agent(NULL, NULL);
	stage_policy(POLICY("allowed.test"));
	n = most(fd, server, n);
	assert_int_equal(n, 8);
	while (n > 0) {
		close(fd[--n]);
		close(server[n]);
	}
	end();
}

/* From an address of its own. */
static int
from(const char *client)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(3128) }, own = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, WANTED, &to.sin_addr);
	inet_pton(AF_INET, client, &own.sin_addr);
	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void
turned_away(int fd, const char *why)
{
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 503", 12);
	if (strstr(got, why) == NULL)
		fail_msg("not %s: %s", why, got);
	close(fd);
	over(1);
}

/* It asks now, and is served. */
static void
asks_now(int fd)
{
	int server;

	say(fd, "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n" CREDENTIAL "\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	server = stage_accept(origin);
	assert_true(server >= 0);
	close(fd);
	close(server);
	over(1);
}

/* Of 16 those of no cell may have 4, and one address 2 of them: who comes then
 * has the place of the one that is silent for longest. */
static void
who_says_nothing_takes_no_cells_place(void **state)
{
	int silent[4], fd[4], server[4], late;

	(void)state;
	begin(2, 16, 20000);
	for (int i = 0; i < 2; i++) {
		silent[i] = from("203.0.113.50");
		usleep(50000);
	}
	late = from("203.0.113.50");
	turned_away(silent[0], "limit_client");
	asks_now(late);
	silent[0] = from("203.0.113.50");
	for (int i = 0; i < 4; i++) {
		server[i] = i < 2 ? opens(&fd[i]) : opens_agents(&fd[i]);
		assert_true(server[i] >= 0);
	}
	for (int i = 2; i < 4; i++)
		silent[i] = from("203.0.113.51");
	usleep(50000);
	close(fd[3]);
	close(server[3]);
	over(1);
	late = from("203.0.113.52");
	turned_away(silent[1], "limit_cell");
	asks_now(late);
	for (int i = 0; i < 4; i++) {
		if (i != 1)
			close(silent[i]);
		if (i != 3) {
			close(fd[i]);
			close(server[i]);
		}
	}
	over(6);
	of_an_agent();
	end();
}

/* Who was refused, and stays, is of no use to anybody either. */
static void
who_was_refused_gives_way(void **state)
{
	struct proxy_limits l;
	int stays[2], late;

	(void)state;
	begin(2, 16, 20000);
	l = stage_limits;
	l.per_cell = 2;
	l.connections = 16;
	l.linger_ms = 20000;
	stage_limit(&l);
	for (int i = 0; i < 2; i++) {
		stays[i] = from("203.0.113.50");
		say(stays[i], "GET http://allowed.test/ HTTP/1.1\r\n"
		    "Host: allowed.test\r\nProxy-Authorization: Basic "
		    "YWdlbnQ6eA==\r\n\r\n");
		stage_read_head(stays[i], got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 407", 12);
	}
	late = from("203.0.113.50");
	over(1);
	asks_now(late);
	for (int i = 0; i < 2; i++)
		close(stays[i]);
	over(1);
	end();
}

/* Who is of no cell, or has not yet shown of which, has a quarter, whatever a
 * cell may have. */
static void
those_of_no_cell_have_a_quarter(void **state)
{
	const struct record *r;
	int fd[2], more;

	(void)state;
	for (unsigned per_cell = 0; per_cell < 2; per_cell++) {
		stage_cells("a");
		begin(per_cell, 8, 20000);
		for (int i = 0; i < 2; i++) {
			of_an_agent();
			over(1);
			fd[i] = from(i ? "203.0.113.50" :
			    "203.0.113.51");
		}
		usleep(50000);
		more = from("203.0.113.52");
		stage_read_head(fd[0], got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 503", 12);
		assert_non_null(strstr(got, "limit_cell"));
		r = stage_record(RECORD_END);
		assert_int_equal(record_get(r, TEXT_CELL).len, 0);
		close(more);
		for (int i = 0; i < 2; i++)
			close(fd[i]);
		over(2);
		of_an_agent();
		end();
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    the_place_of_a_cell_is_given_back_at_each_end),
		cmocka_unit_test(
		    a_connection_counts_as_the_cells_that_asked_last),
		cmocka_unit_test(a_reload_gives_no_place_back),
		cmocka_unit_test(who_says_nothing_takes_no_cells_place),
		cmocka_unit_test(who_was_refused_gives_way),
		cmocka_unit_test(those_of_no_cell_have_a_quarter),
		cmocka_unit_test(
		    a_reload_with_fewer_cells_makes_shares_larger),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
