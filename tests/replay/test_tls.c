/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A server's first bytes that are no retry: an alert. */
static const uint8_t flight[] = { 22, 3, 3, 0, 2, 14, 0 };


static int origin;
static uint8_t hello[1024];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(origin);
	stage_down();
	return 0;
}

static int
opened(int *server)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd = stage_connect(WANTED, 443);

	stage_send(fd, hello, n);
	*server = stage_accept(origin);
	assert_true(*server >= 0);
	stage_expect(*server, hello, n);
	stage_send(*server, flight, sizeof(flight));
	stage_expect(fd, flight, sizeof(flight));
	return fd;
}

static void
B13_B22_an_allowed_name_reaches_its_own_address(void **state)
{
	const struct record *r;
	char word[2];
	bool reset;
	int server, fd = opened(&server);

	(void)state;
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
	assert_int_equal(r->via, VIA_TPROXY);
	assert_true(span_eq(record_get(r, TEXT_NAME),
	    span_str("allowed.test")));
	assert_true(span_eq(record_get(r, TEXT_RULE), span_str("web")));
	assert_int_equal(record_get(r, TEXT_JA4).len, 36);
	stage_send(fd, "up", 2);
	stage_expect(server, "up", 2);
	stage_send(server, "down", 4);
	stage_expect(fd, "down", 4);
	close(fd);
	assert_int_equal(stage_read_all(server, word, 2, &reset), 0);
	assert_false(reset);
	close(server);
	r = stage_record(RECORD_END);
	assert_int_equal(r->how, HOW_FIN);
	assert_int_equal(r->bytes_down, 4 + sizeof(flight));
	assert_true(r->bytes_up > 2);
}

static void
W19_a_hello_in_single_bytes_is_judged_as_a_whole(void **state)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd = stage_connect(WANTED, 443), server;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		stage_send(fd, hello + i, 1);
		usleep(200);
	}
	server = stage_accept(origin);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	close(fd);
	close(server);
}

/* The address is pinned for an allowed name; that opens it for TLS and HTTP
 * with the name, not for any bytes. */
static void
B008_B022_bytes_of_no_protocol_do_not_pass_by_a_rule_for_a_name(void **state)
{
	static const uint8_t junk[] = { 0, 1, 2, 3, 'x', 'y', 'z', '\n' };
	const struct record *r;
	char out[16];
	bool reset;
	int fd = stage_connect(WANTED, 443);

	(void)state;
	stage_send(fd, junk, sizeof(junk));
	assert_int_equal(stage_accept(origin), -1);
	assert_int_equal(stage_read_all(fd, out, sizeof(out), &reset), 0);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, REASON_NOT_TLS);
	close(fd);
}

static void
refused_with_alert(const char *name, enum reason why)
{
	static const uint8_t alert[] = { 21, 3, 3, 0, 2, 2, 49 };
	size_t n = stage_hello(name, hello, sizeof(hello));
	int fd = stage_connect(WANTED, 443);
	const struct record *r;
	char out[64];
	bool reset;

	stage_send(fd, hello, n);
	for (int i = 0; i < 8; i++)	/* it still sends */
		stage_send(fd, hello, sizeof(hello));
	assert_int_equal(stage_accept(origin), -1);
	assert_int_equal(stage_read_all(fd, out, sizeof(out), &reset),
	    sizeof(alert));
	assert_memory_equal(out, alert, sizeof(alert));
	assert_false(reset);
	close(fd);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, why);
	r = stage_record(RECORD_END);
	assert_int_equal(r->how, HOW_REFUSED);
	assert_int_equal(r->bytes_up, 0);
}

static void
N04_W28_a_denial_is_readable_while_it_sends(void **state)
{
	(void)state;
	refused_with_alert("denied.test", REASON_RULE_DENY);
	refused_with_alert("unknown.test", REASON_NO_RULE);
	refused_with_alert(NULL, REASON_NO_SNI);
}

static void
B026_each_half_ends_on_its_own(void **state)
{
	static char big[300000];
	int server, fd = opened(&server);
	bool reset;
	char end[2];

	(void)state;
	memset(big, 'x', sizeof(big));
	stage_send(fd, "ask", 3);
	shutdown(fd, SHUT_WR);
	stage_expect(server, "ask", 3);
	assert_int_equal(recv(server, end, 1, 0), 0);
	usleep(50000);
	stage_send(server, big, sizeof(big));
	close(server);
	assert_int_equal(stage_read_all(fd, end, 2, &reset), sizeof(big));
	assert_false(reset);
	close(fd);
	assert_int_equal(stage_record(RECORD_END)->how, HOW_FIN);
}

static void
reset_by(int fd)
{
	struct linger l = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static void
B029_a_reset_stays_a_reset_and_loses_nothing(void **state)
{
	int server, fd = opened(&server);
	char out[128];
	bool reset;

	(void)state;
	stage_send(server, "part", 4);
	usleep(20000);
	reset_by(server);
	assert_int_equal(stage_read_all(fd, out, sizeof(out), &reset), 4);
	assert_true(reset);
	close(fd);
	assert_int_equal(stage_record(RECORD_END)->how, HOW_RESET_UPSTREAM);
	fd = opened(&server);
	stage_send(fd, "part", 4);
	usleep(20000);
	reset_by(fd);
	assert_int_equal(stage_read_all(server, out, sizeof(out), &reset), 4);
	assert_true(reset);
	close(server);
	assert_int_equal(stage_record(RECORD_END)->how, HOW_RESET_CLIENT);
}

static void
B031_a_slow_reader_slows_its_sender_and_gets_all(void **state)
{
	static char block[65536], got[65536];
	int server, fd = opened(&server);
	size_t sent = 0, seen = 0;
	bool over = false;
	int stopped = 0;
	ssize_t n;

	(void)state;
	for (int i = 0; i < 2000 && !over; i++) {
		n = send(server, block, sizeof(block), MSG_DONTWAIT);
		if (n > 0)
			sent += (size_t)n;
		else
			usleep(10000);
		stopped = n > 0 ? 0 : stopped + 1;
		over = stopped == 20;	/* for 200 ms */
	}
	assert_true(over);		/* it was stopped */
	assert_true(sent < 64u << 20);
	shutdown(server, SHUT_WR);
	while ((n = recv(fd, got, sizeof(got), 0)) > 0)
		seen += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(seen, sent);
	close(fd);
	close(server);
}

static void
B034_a_trickle_does_not_move_the_deadline(void **state)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello)), i = 0;
	int fd = stage_connect(WANTED, 443);
	const struct record *r;

	(void)state;
	for (; i < n - 1; i++) {
		if (send(fd, hello + i, 1, MSG_NOSIGNAL) != 1)
			break;
		usleep(30000);
		if (i > 40)
			break;
	}
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->reason, REASON_HELLO_TIMEOUT);
	assert_true(stage_record(RECORD_END)->duration_us < 1500000);
	close(fd);
}

static void
N01_a_second_hello_with_another_name_never_goes_up(void **state)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello)), m;
	static uint8_t second[1024];
	const struct record *r;
	char out[64];
	bool reset;
	int fd, server;

	(void)state;
	m = stage_hello("denied.test", second, sizeof(second));
	for (int early = 0; early < 2; early++) {
		fd = stage_connect(WANTED, 443);
		stage_send(fd, hello, n);
		if (early)	/* even before the retry was sent */
			stage_send(fd, second, m);
		server = stage_accept(origin);
		assert_true(server >= 0);
		stage_expect(server, hello, n);
		stage_send(server, stage_retry, sizeof(stage_retry));
		stage_expect(fd, stage_retry, sizeof(stage_retry));
		if (!early)
			stage_send(fd, second, m);
		assert_int_equal(stage_read_all(server, out, sizeof(out),
		    &reset), 0);
		do
			r = stage_record(RECORD_DECISION);
		while (r->verdict == VERDICT_ALLOW);
		assert_int_equal(r->reason, REASON_SECOND_HELLO);
		assert_true(span_eq(record_get(r, TEXT_OTHER_NAME),
		    span_str("denied.test")));
		close(fd);
		close(server);
	}
}

static void
N01_a_second_hello_with_the_same_name_passes(void **state)
{
	static const uint8_t ccs[] = { 20, 3, 3, 0, 1, 1 };
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd = stage_connect(WANTED, 443), server;

	(void)state;
	stage_send(fd, hello, n);
	server = stage_accept(origin);
	stage_expect(server, hello, n);
	stage_send(server, stage_retry, sizeof(stage_retry));
	stage_expect(fd, stage_retry, sizeof(stage_retry));
	stage_send(fd, ccs, sizeof(ccs));
	stage_send(fd, hello, n);
	stage_expect(server, ccs, sizeof(ccs));
	stage_expect(server, hello, n);
	stage_send(fd, "more", 4);
	stage_expect(server, "more", 4);
	close(fd);
	close(server);
}

static void
a_dead_recorder_denies(void **state)
{
	(void)state;
	stage_beat(false);
	usleep(700000);
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd = stage_connect(WANTED, 443);
	char out[64];
	bool reset;

	stage_send(fd, hello, n);
	assert_int_equal(stage_accept(origin), -1);
	stage_read_all(fd, out, sizeof(out), &reset);
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_LEDGER_UNAVAILABLE);
	close(fd);
}

static void
a_new_policy_cuts_what_it_forbids(void **state)
{
	int server, fd = opened(&server);
	const struct record *r;
	char out[64];
	bool reset;

	(void)state;
	stage_policy("version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n"
	    "  lab: [203.0.113.0/24]\n  rule:\n"
	    "    - {verdict: allow, hostname: second.test}\n");
	stage_read_all(fd, out, sizeof(out), &reset);
	assert_true(reset);
	r = stage_record(RECORD_END);
	assert_int_equal(r->how, HOW_CUT);
	assert_int_equal(r->reason, REASON_POLICY_CHANGED);
	close(fd);
	close(server);
}

static void
an_idle_tunnel_is_cut(void **state)
{
	int server, fd = opened(&server);
	const struct record *r;

	(void)state;
	r = stage_record(RECORD_END);
	assert_int_equal(r->reason, REASON_IDLE);
	assert_true(r->duration_us > 1400000);
	close(fd);
	close(server);
}

static void
fill(char *p, size_t n)
{
	uint32_t x = 1;

	for (size_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = (char)(x >> 24);
	}
}

/* Both ways at the same time. */
static void
bulk(void)
{
	static char big[8 << 20];
	int server, fd = opened(&server);
	struct stage_job up = { fd, big, sizeof(big), .expect = false };
	struct stage_job come = { server, big, sizeof(big), .expect = true };

	fill(big, sizeof(big));
	stage_begin(&up);
	stage_begin(&come);
	stage_send(server, big, 1 << 20);
	stage_expect(fd, big, 1 << 20);
	assert_true(stage_await(&up));
	assert_true(stage_await(&come));
	close(fd);
	close(server);
}

static void
bulk_is_spliced_and_byte_exact(void **state)
{
	(void)state;
	bulk();
}

static void
without_pipes_bulk_is_copied(void **state)
{
	struct proxy_limits l = stage_limits;

	(void)state;
	l.pipe_share_percent = 0;
	close(origin);
	stage_down();
	stage_up(NULL, &l);
	origin = stage_listen(ORIGIN, 443);
	bulk();
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(B13_B22_an_allowed_name_reaches_its_own_address),
		T(W19_a_hello_in_single_bytes_is_judged_as_a_whole),
		T(B008_B022_bytes_of_no_protocol_do_not_pass_by_a_rule_for_a_name),
		T(N04_W28_a_denial_is_readable_while_it_sends),
		T(B026_each_half_ends_on_its_own),
		T(B029_a_reset_stays_a_reset_and_loses_nothing),
		T(B031_a_slow_reader_slows_its_sender_and_gets_all),
		T(B034_a_trickle_does_not_move_the_deadline),
		T(N01_a_second_hello_with_another_name_never_goes_up),
		T(N01_a_second_hello_with_the_same_name_passes),
		T(a_dead_recorder_denies),
		T(a_new_policy_cuts_what_it_forbids),
		T(an_idle_tunnel_is_cut),
		T(bulk_is_spliced_and_byte_exact),
		T(without_pipes_bulk_is_copied),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
