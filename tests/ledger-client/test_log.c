/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int ends[2], kept;
static char got[65536];

static void
catch(void)
{
	fflush(stderr);
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	kept = dup(2);
	dup2(ends[1], 2);
}

static void
caught(void)
{
	ssize_t n;

	dup2(kept, 2);
	close(kept);
	n = read(ends[0], got, sizeof(got) - 1);
	got[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	close(ends[1]);
}

/* The lines of one second are counted together. */
static void
new_second(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec = 0;
	ts.tv_nsec = 1000000000l - ts.tv_nsec;
	nanosleep(&ts, NULL);
}

static unsigned
count(const char *what)
{
	unsigned n = 0;

	for (const char *at = got; (at = strstr(at, what)) != NULL; at++)
		n++;
	return n;
}

static void
a_line_cannot_be_forged(void **state)
{
	(void)state;
	log_init("tester", LOG_INFO_);
	catch();
	log_line(LOG_ERROR_, "name=%s", "a\nlevel=info\x1b[2J\"x");
	caught();
	assert_int_equal(count("\n"), 1);
	assert_null(strchr(got, 0x1b));
	assert_non_null(strstr(got, " level=error role=tester pid="));
	assert_non_null(strstr(got, "name=a\\x0alevel=info\\x1b[2J\\\"x\"\n"));
}

static void
a_long_line_is_cut_and_still_a_line(void **state)
{
	static char big[8000];

	(void)state;
	memset(big, 0x01, sizeof(big) - 1);
	catch();
	log_line(LOG_WARN, "%s", big);
	caught();
	assert_int_equal(count("\n"), 1);
	assert_string_equal(got + strlen(got) - 2, "\"\n");
}

static void
what_is_below_the_level_is_not_said(void **state)
{
	(void)state;
	log_init("tester", LOG_WARN);
	catch();
	log_line(LOG_INFO_, "no");
	log_line(LOG_DEBUG_, "no");
	log_line(LOG_WARN, "yes");
	caught();
	assert_int_equal(count("\n"), 1);
}

static void
what_is_left_out_is_counted_in_the_next_line(void **state)
{
	(void)state;
	log_init("tester", LOG_INFO_);
	new_second();
	catch();
	for (int i = 0; i < LOG_PER_SECOND + 7; i++)
		log_line(LOG_INFO_, "again");
	caught();
	assert_int_equal(count("\n"), LOG_PER_SECOND);
	new_second();
	catch();
	log_line(LOG_INFO_, "then");
	log_line(LOG_INFO_, "then");
	caught();
	assert_int_equal(count(" left_out=7 "), 1);
	assert_int_equal(count("left_out"), 1);
}

/* A file that may not grow past its limit makes the write short. */
static void
half_a_line_is_ended_before_the_next(void **state)
{
	FILE *f = tmpfile();
	struct rlimit was, low;
	int err = dup(2);
	ssize_t n;

	(void)state;
	assert_non_null(f);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	low = was;
	low.rlim_cur = 20;
	new_second();
	dup2(fileno(f), 2);
	setrlimit(RLIMIT_FSIZE, &low);
	log_line(LOG_WARN, "first");
	log_line(LOG_WARN, "lost");
	setrlimit(RLIMIT_FSIZE, &was);
	log_line(LOG_WARN, "third");
	dup2(err, 2);
	close(err);
	n = pread(fileno(f), got, sizeof(got) - 1, 0);
	got[n > 0 ? n : 0] = '\0';
	fclose(f);
	assert_int_equal(count("\n"), 2);
	assert_int_equal(count("msg=\"first\"\ntime="), 1);
	assert_int_equal(count("left_out=1 msg=\"third\"\n"), 1);
	assert_int_equal(count("lost"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_cannot_be_forged),
		cmocka_unit_test(a_long_line_is_cut_and_still_a_line),
		cmocka_unit_test(what_is_below_the_level_is_not_said),
		cmocka_unit_test(half_a_line_is_ended_before_the_next),
		cmocka_unit_test(
		    what_is_left_out_is_counted_in_the_next_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
