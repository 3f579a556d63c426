/* SPDX-License-Identifier: Apache-2.0 */
/* Readers that a writer overtakes at any instruction. */
#include "dns/pin.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/dns/pins.h"

/* In one thread: a timer interrupts `outer`, at any instruction, and runs
 * `inner`.  Each has a mapping of its own, as two processes have. */
static struct between {
	struct pins *w, *r;
	struct host a, b;
	timer_t timer;
	void (*inner)(void);
	unsigned steps, torn;
	int64_t clock;			/* goes on from run to run */
	volatile sig_atomic_t runs;
} at;

static void
again(void)
{
	/* now here, now there: up to 32 us later */
	const struct itimerspec t = { .it_value.tv_nsec =
	    1000 + at.runs * 7919l % 32000 };

	timer_settime(at.timer, 0, &t, NULL);
}

static void
on_timer(int signal)
{
	(void)signal;
	at.inner();
	at.runs = at.runs + 1;
	again();
}

static void
run_between(void (*outer)(void), void (*inner)(void))
{
	struct sigaction act = { .sa_handler = on_timer };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
	    .sigev_signo = SIGUSR1 };

	at.inner = inner;
	at.runs = 0;
	at.steps = at.torn = 0;
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &at.timer), 0);
	again();
	while (at.runs < 10000)
		outer();
	timer_delete(at.timer);
	assert_int_equal(at.torn, 0);
}

/* Both names want the two places of the table. */
static void
take_turns(void)
{
	const struct addr addrs[4] = { v4(1), v4(2), v4(11), v4(12) };
	bool first = at.steps++ % 2 == 0;

	at.clock += 10;
	if (!add(at.w, CELL("cell"), first ? &at.a : &at.b,
	    first ? addrs : addrs + 2, 2, at.clock + 10, at.clock))
		at.torn++;
}

static void
look_for_another_s_address(void)
{
	struct addr out[PIN_ADDRS_MAX], own[2] = { v4(1), v4(2) };
	struct host names[PIN_NAMES_MAX];
	size_t n = pin_addrs(at.r, CELL("cell"), &at.a, 1, out);

	for (size_t i = 0; i < n; i++)
		at.torn += !addr_eq(&out[i], &own[0]) &&
		    !addr_eq(&out[i], &own[1]);
	n = pin_names(at.r, CELL("cell"), &own[0], 1, names);
	if (n != TOO_MANY_NAMES)
		for (size_t i = 0; i < n; i++)
			at.torn += !host_eq(&names[i], &at.a);
}

static void
no_name_is_read_with_another_s_addresses(void **state)
{
	int fd;

	(void)state;
	at.a = host_of("a.example");
	at.b = host_of("b.example");
	assert_int_equal(pin_create(&at.w, 2, &fd), 0);
	assert_int_equal(pin_open(&at.r, fd), 0);
	run_between(look_for_another_s_address, take_turns);
	run_between(take_turns, look_for_another_s_address);
	pin_close(at.r);
	pin_close(at.w);
	close(fd);
}

/* Of one name a new address at each step, in the place of one that ended:
 * each lives for 16 steps of 10 ms. */
static void
renew(void)
{
	struct addr a = v4((uint8_t)(++at.steps % 64));

	if (!add(at.w, CELL("cell"), &at.a, &a, 1,
	    10 * (at.steps + 16), 10 * at.steps))
		at.torn++;
}

static void
look_for_ended_ones(void)
{
	struct addr out[PIN_ADDRS_MAX];
	unsigned from = at.steps;
	size_t n = pin_addrs(at.r, CELL("cell"), &at.a, 10 * from, out);

	for (size_t i = 0; i < n; i++)
		at.torn += (at.steps - out[i].b[15]) % 64 >=
		    16 + (at.steps - from);
}

static void
no_address_that_ended_is_read_with_the_time_of_the_next(void **state)
{
	int fd;

	(void)state;
	at.a = host_of("a.example");
	assert_int_equal(pin_create(&at.w, 20, &fd), 0);
	assert_int_equal(pin_open(&at.r, fd), 0);
	run_between(look_for_ended_ones, renew);
	pin_close(at.r);
	pin_close(at.w);
	close(fd);
	assert_int_equal(pin_create(&at.w, 20, &fd), 0);
	assert_int_equal(pin_open(&at.r, fd), 0);
	run_between(renew, look_for_ended_ones);
	pin_close(at.r);
	pin_close(at.w);
	close(fd);
}

/* Others come and go, so that the places of all are made anew. */
static void
come_and_go(void)
{
	const uint8_t b[4] = { 10, 0, (uint8_t)(at.steps >> 8),
	    (uint8_t)at.steps };
	struct addr a = addr_from_v4(b);
	struct host h;
	char text[32];

	at.clock += 10;
	snprintf(text, sizeof(text), "c%u.example", at.steps++);
	if (host_parse(&h, span_str(text)) == REASON_NONE &&
	    !add(at.w, CELL("cell"), &h, &a, 1, at.clock + 40,
	    at.clock))
		at.torn++;
}

/* So many that they are made anew at least once. */
static void
come_and_go_all(void)
{
	for (unsigned i = 0; i < 30; i++)
		come_and_go();
}

static void
look_for_both(void)
{
	struct host names[PIN_NAMES_MAX];
	struct addr a = v4(1);
	size_t n = pin_names(at.r, CELL("cell"), &a, 1, names);

	at.torn += n != 2 && n != TOO_MANY_NAMES;
}

static void
readers_see_all_names_of_an_address_or_none(void **state)
{
	struct addr a = v4(1);
	int fd;

	(void)state;
	at.a = host_of("a.example");
	at.b = host_of("b.example");
	assert_int_equal(pin_create(&at.w, 8, &fd), 0);
	assert_int_equal(pin_open(&at.r, fd), 0);
	/* some stand before them and may push them to another place */
	for (unsigned i = 0; i < 5; i++)
		come_and_go();
	assert_true(add(at.w, CELL("cell"), &at.a, &a, 1, FOR_EVER, 0));
	assert_true(add(at.w, CELL("cell"), &at.b, &a, 1, FOR_EVER, 0));
	run_between(look_for_both, come_and_go_all);
	run_between(come_and_go, look_for_both);
	pin_close(at.r);
	pin_close(at.w);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_name_is_read_with_another_s_addresses),
		cmocka_unit_test(
		    no_address_that_ended_is_read_with_the_time_of_the_next),
		cmocka_unit_test(readers_see_all_names_of_an_address_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
