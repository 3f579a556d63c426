/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/admin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "sidecar/role.h"

/* The page that the parent writes and the role that answers from it. */
static int page_fd;
static struct health_page *page;
static struct health good;

static int64_t
now_ms(void)
{
	return clock_mono_ms();
}

static int
up(void **state)
{
	(void)state;
	good = (struct health){ .generation = 1, .engines = 1,
	    .engines_ready = 1, .serving = true, .recorder_ready = true,
	    .resolver_ready = true, .rules = true,
	    .beat_ms = now_ms() };
	page_fd = health_create();
	return page_fd < 0 || health_open(&page, page_fd, true) != 0;
}

static int
down(void **state)
{
	(void)state;
	health_close(page);
	close(page_fd);
	return 0;
}

static void
what_is_written_is_read_by_another_mapping(void **state)
{
	struct health_page *reader;
	struct health got;

	(void)state;
	assert_int_equal(health_open(&reader, page_fd, false), 0);
	health_write(page, &good);
	assert_true(health_read(reader, &got));
	assert_int_equal(got.beat_ms, good.beat_ms);
	assert_int_equal(got.unenforced, UNENFORCED_NOTHING);
	health_close(reader);
}

static void
a_write_that_never_ended_is_no_answer(void **state)
{
	struct health got;
	struct stat st;
	uint32_t *seq;

	(void)state;
	health_write(page, &good);
	assert_int_equal(fstat(page_fd, &st), 0);
	seq = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
	    MAP_SHARED, page_fd, 0);
	assert_ptr_not_equal(seq, MAP_FAILED);
	*seq |= 1;
	assert_false(health_read(page, &got));
	/* who is started anew writes over it */
	health_write(page, &good);
	assert_true(health_read(page, &got));
	munmap(seq, (size_t)st.st_size);
}

static void
another_file_is_not_taken_for_the_page(void **state)
{
	struct health_page *p;
	int fd = memfd_create("x", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(health_open(&p, fd, false), -EBADMSG);
	assert_int_equal(ftruncate(fd, 7), 0);
	assert_int_equal(health_open(&p, fd, false), -EBADMSG);
	close(fd);
	assert_int_equal(health_open(&p, -1, false), -EBADMSG);
}

static void
each_thing_that_closes_makes_it_unready(void **state)
{
	(void)state;
	assert_true(admin_is_ready(&good));
#define WITHOUT(field, value) do { \
		struct health h = good; \
		h.field = value; \
		assert_false(admin_is_ready(&h)); \
	} while (0)
	WITHOUT(generation, 0);
	WITHOUT(serving, false);
	WITHOUT(engines_ready, 0);
	WITHOUT(recorder_ready, false);
	WITHOUT(resolver_ready, false);
	WITHOUT(draining, true);
	WITHOUT(rules, false);
	WITHOUT(beat_ms, now_ms() - HEALTH_STALE_MS - 1);
}

static void
a_refused_policy_is_told_and_keeps_readiness(void **state)
{
	struct health h = good;

	(void)state;
	h.stale = true;
	assert_true(admin_is_ready(&h));
	assert_false(admin_check_ok(&h, CHECK_POLICY_STALE));
	assert_string_equal(admin_check_effect(CHECK_POLICY_STALE), "none");
	snprintf(h.waits_for_start, sizeof(h.waits_for_start), "engines");
	assert_true(admin_is_ready(&h));
	assert_false(admin_check_ok(&h, CHECK_SETTINGS_CURRENT));
	assert_string_equal(admin_check_effect(CHECK_SETTINGS_CURRENT),
	    "none");
	h.unenforced = UNENFORCED_NOT_PROVEN;
	assert_true(admin_is_ready(&h));
	assert_false(admin_check_ok(&h, CHECK_ENFORCING));
	assert_string_equal(admin_check_effect(CHECK_ENFORCING), "open");
	assert_false(admin_check_ok(&h, CHECK_COUNT));
}

/* ---- over HTTP ---- */

static struct role role;
static int client;
static char got[1 << 17];

static void
start(void)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), counts;

	memset(&ss, 0, sizeof(ss));
	ss.ss_family = AF_INET;
	assert_int_equal(bind(l, (struct sockaddr *)&ss, 16), 0);
	assert_int_equal(listen(l, 8), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&ss, &len), 0);
	client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	(void)connect(client, (struct sockaddr *)&ss, len);
	counts = count_create();
	memset(&role, 0, sizeof(role));
	role.base = event_base_new();
	assert_int_equal(count_open(&role.counts, counts, 0), 0);
	close(counts);
	role.gifts[0] = (struct gift){ GIVE_LISTENER, 0, l };
	role.gifts[1] = (struct gift){ GIVE_HEALTH, 0, dup(page_fd) };
	role.n_gifts = 2;
	assert_int_equal(admin_ops.start(&role), 0);
}

/* The status; the whole answer is in got. */
static int
ask(const char *request)
{
	struct timeval turn = { .tv_usec = 20000 };
	size_t n = 0, sent = 0, len = strlen(request);
	int status = 0;

	start();
	for (int i = 0; i < 100; i++) {
		ssize_t k;

		(void)event_base_loopexit(role.base, &turn);
		(void)event_base_dispatch(role.base);
		if (sent < len) {
			k = send(client, request + sent, len - sent,
			    MSG_NOSIGNAL);
			sent += k > 0 ? (size_t)k : 0;
			continue;
		}
		k = recv(client, got + n, sizeof(got) - 1 - n, 0);
		n += k > 0 ? (size_t)k : 0;
		if (k == 0)
			break;
	}
	got[n] = '\0';
	close(client);
	admin_ops.stop(&role);
	count_close(role.counts);
	event_base_free(role.base);
	(void)sscanf(got, "HTTP/1.1 %d", &status);
	return status;
}

static void
readiness_and_liveness_are_told_apart(void **state)
{
	struct health h = good;

	(void)state;
	h.recorder_ready = false;
	h.beat_ms = now_ms();
	health_write(page, &h);
	assert_int_equal(ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), 503);
	assert_non_null(strstr(got, "[-] recorder effect: closed\n"));
	assert_int_equal(ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
	h = good;
	h.beat_ms = now_ms() - HEALTH_STALE_MS - 1;
	health_write(page, &h);
	assert_int_equal(ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"), 503);
	assert_int_equal(ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), 503);
	assert_non_null(strstr(got, "[-] live effect: none\nnot ready\n"));
	/* and wherever else readiness is told */
	assert_int_equal(ask("GET /status HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
	assert_non_null(strstr(got, "\"ready\":false"));
	assert_non_null(strstr(got, "\"live\":false"));
	assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_non_null(strstr(got, "penstock_check_ok{check=\"live\","
	    "effect=\"none\"} 0\n"));
}

static void
a_refused_policy_has_one_name_everywhere(void **state)
{
	struct health h = good;

	(void)state;
	h.stale = true;
	h.beat_ms = now_ms();
	health_write(page, &h);
	assert_int_equal(ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
	assert_non_null(strstr(got, "[-] policy_stale effect: none\n"));
	assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_non_null(strstr(got, "penstock_check_ok{check=\"policy_stale\","
	    "effect=\"none\"} 0\n"));
}

static void
what_is_not_asked_well_is_refused(void **state)
{
	static char big[12000];

	(void)state;
	good.beat_ms = now_ms();
	health_write(page, &good);
	assert_int_equal(ask("POST /readyz HTTP/1.1\r\nHost: x\r\n"
	    "Content-Length: 0\r\n\r\n"), 405);
	assert_int_equal(ask("GET /other HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
	assert_int_equal(ask("GET /readyz\r\n\r\n"), 400);
	(void)snprintf(big, sizeof(big), "GET /readyz HTTP/1.1\r\nHost: x\r\n"
	    "X: %09000d", 0);
	assert_int_equal(ask(big), 400);
	assert_int_equal(ask("HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_string_equal(strstr(got, "\r\n\r\n"), "\r\n\r\n");
	assert_int_equal(ask("GET /status HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
	assert_non_null(strstr(got, "\"ready\":true"));
}

static void
it_is_said_why_it_does_not_enforce(void **state)
{
	(void)state;
	good.beat_ms = now_ms();
	health_write(page, &good);
	assert_int_equal(ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_null(strstr(got, "enforcing"));
	assert_int_equal(ask("GET /status HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
	assert_non_null(strstr(got, "\"enforcing\":true,"
	    "\"not_enforcing\":\"\","));
	good.unenforced = UNENFORCED_RULES_EXTERNAL;
	health_write(page, &good);
	assert_int_equal(ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_non_null(strstr(got, "[-] enforcing effect: open\n"
	    "not enforcing: the kernel's rules are somebody else's, and not "
	    "looked at\n"));
	assert_int_equal(ask("GET /status HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
	assert_non_null(strstr(got, "\"enforcing\":false,"
	    "\"not_enforcing\":\"the kernel's rules are somebody else's"));
	assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_non_null(strstr(got, "penstock_check_ok{check=\"enforcing\","
	    "effect=\"open\"} 0\n"));
}

static void
restarts_are_a_counter_in_both_formats(void **state)
{
	(void)state;
	good.beat_ms = now_ms();
	good.restarts = 7;
	health_write(page, &good);
	assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_non_null(strstr(got,
	    "\n# TYPE penstock_role_restarts_total counter\n"
	    "penstock_role_restarts_total 7\n"));
	assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n"
	    "Accept: application/openmetrics-text\r\n\r\n"), 200);
	assert_non_null(strstr(got,
	    "\n# TYPE penstock_role_restarts counter\n"
	    "penstock_role_restarts_total 7\n"));
	/* unknown is not zero */
	good.beat_ms = 0;
	health_write(page, &good);
	assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
	    200);
	assert_null(strstr(got, "role_restarts"));
}

static void
a_client_that_sends_a_byte_now_and_then_has_no_more_time(void **state)
{
	struct timeval turn = { .tv_usec = 500000 };
	char c;
	int turns = 0;

	(void)state;
	start();
	while (turns++ < 14) {
		(void)event_base_loopexit(role.base, &turn);
		(void)event_base_dispatch(role.base);
		if (recv(client, &c, 1, 0) == 0)
			break;
		(void)send(client, "G", 1, MSG_NOSIGNAL);
	}
	close(client);
	admin_ops.stop(&role);
	count_close(role.counts);
	event_base_free(role.base);
	assert_in_range(turns, 9, 12);
}

int
main(void)
{
#define WITH(t) cmocka_unit_test_setup_teardown(t, up, down)
	const struct CMUnitTest tests[] = {
		WITH(what_is_written_is_read_by_another_mapping),
		WITH(a_write_that_never_ended_is_no_answer),
		WITH(another_file_is_not_taken_for_the_page),
		WITH(each_thing_that_closes_makes_it_unready),
		WITH(a_refused_policy_is_told_and_keeps_readiness),
		WITH(readiness_and_liveness_are_told_apart),
		WITH(a_refused_policy_has_one_name_everywhere),
		WITH(what_is_not_asked_well_is_refused),
		WITH(a_client_that_sends_a_byte_now_and_then_has_no_more_time),
		WITH(it_is_said_why_it_does_not_enforce),
		WITH(restarts_are_a_counter_in_both_formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
