/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/pin.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TOO_MANY_NAMES (PIN_NAMES_MAX + 1)

static struct host
host_of(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static struct addr
v4(uint8_t last)
{
	const uint8_t b[4] = { 192, 0, 2, last };

	return addr_from_v4(b);
}

static void
a_pin_is_seen_by_readers_until_it_expires(void **state)
{
	struct host h = host_of("a.example"), names[PIN_NAMES_MAX];
	struct addr a = v4(1), out[PIN_ADDRS_MAX];
	struct pins *w, *r;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_int_equal(pin_open(&r, fd), 0);
	assert_false(pin_has(r, &h, &a, 0));
	assert_true(pin_add(w, span_str("cell"), &h, &a, 1, 1000, 0));
	assert_true(pin_has(r, &h, &a, 999));
	assert_int_equal(pin_addrs(r, &h, 999, out), 1);
	assert_int_equal(pin_names(r, &a, 999, names), 1);
	assert_true(host_eq(&names[0], &h));
	assert_false(pin_has(r, &h, &a, 1001));
	assert_int_equal(pin_names(r, &a, 1001, names), 0);
	pin_close(r);
	pin_close(w);
	close(fd);
}

static void
a_reader_cannot_map_the_table_for_writing(void **state)
{
	struct pins *w;
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_ptr_equal(mmap(NULL, (size_t)st.st_size,
	    PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_not_equal(ftruncate(fd, 0), 0);
	pin_close(w);
	close(fd);
}

static void
readers_survive_any_bytes_in_the_table(void **state)
{
	struct host h = host_of("a.example"), names[PIN_NAMES_MAX];
	struct addr a = v4(1), out[PIN_ADDRS_MAX];
	struct pins *w;
	struct stat st;
	uint8_t *copy;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_true(pin_add(w, span_str("cell"), &h, &a, 1, 1000, 0));
	assert_int_equal(fstat(fd, &st), 0);
	copy = malloc((size_t)st.st_size);
	assert_non_null(copy);
	assert_int_equal(pread(fd, copy, (size_t)st.st_size, 0), st.st_size);
	srandom(1);
	for (unsigned round = 0; round < 300; round++) {
		int bad = memfd_create("bad", 0);
		struct pins *r;

		assert_true(bad >= 0);
		assert_int_equal(pwrite(bad, copy, (size_t)st.st_size, 0),
		    st.st_size);
		/* the head stays sound, so that the rest is read */
		for (unsigned i = 0; i < 400; i++) {
			uint8_t b = (uint8_t)random();

			assert_int_equal(pwrite(bad, &b, 1, 64 +
			    random() % (st.st_size - 64)), 1);
		}
		if (pin_open(&r, bad) == 0) {
			assert_true(pin_addrs(r, &h, 1, out) <=
			    PIN_ADDRS_MAX);
			assert_true(pin_names(r, &a, 1, names) <=
			    TOO_MANY_NAMES);
			pin_close(r);
		}
		close(bad);
	}
	free(copy);
	pin_close(w);
	close(fd);
}

static void
a_full_table_gives_way_to_what_is_new(void **state)
{
	struct pins *w;
	char text[32];
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 16, &fd), 0);
	for (int i = 0; i < 200; i++) {
		struct addr a = v4((uint8_t)i);
		struct host h;

		snprintf(text, sizeof(text), "n%d.example", i);
		h = host_of(text);
		assert_true(pin_add(w, span_str("cell"), &h, &a, 1, 1000 + i, 0));
		assert_true(pin_has(w, &h, &a, 1));
	}
	pin_close(w);
	close(fd);
}

/* `n` addresses for the name, the first of them 192.0.2.`from`. */
static bool
add_many(struct pins *w, int name, unsigned n, int64_t until, int64_t now)
{
	struct addr all[PIN_ADDRS_MAX];
	struct host h;
	char text[32];

	for (unsigned i = 0; i < n; i++)
		all[i] = v4((uint8_t)(name * 32 + (int)i));
	snprintf(text, sizeof(text), "n%d.example", name);
	h = host_of(text);
	return pin_add(w, span_str("cell"), &h, all, n, until, now) &&
	    pin_has(w, &h, &all[n - 1], now);
}

/* Names with many addresses fill the index of addresses before the table. */
static void
pins_that_ended_make_room_for_addresses(void **state)
{
	struct host kept = host_of("n7.example");
	struct addr a = v4(7 * 32 % 256);
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_true(add_many(w, 7, 1, 9000, 0));
	for (int i = 0; i < 100; i++)
		assert_true(add_many(w, 100 + i, 32, 100 * i + 99, 100 * i));
	assert_false(pin_has(w, &kept, &a, 9000));
	pin_close(w);
	close(fd);
}

static void
of_live_pins_those_make_room_that_end_first(void **state)
{
	struct host kept = host_of("n7.example");
	struct addr a = v4(7 * 32 % 256);
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_true(add_many(w, 7, 1, 1000000, 0));
	for (int i = 0; i < 100; i++)
		assert_true(add_many(w, 100 + i, 32, 1000 + i, 0));
	assert_true(pin_has(w, &kept, &a, 1));
	pin_close(w);
	close(fd);
}

static void
more_addresses_than_the_table_has_room_for_are_refused(void **state)
{
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 4, &fd), 0);
	assert_false(add_many(w, 1, 32, 1000, 0));
	assert_true(add_many(w, 2, 3, 1000, 0));
	pin_close(w);
	close(fd);
}

/* A name that cannot be read may be one that is denied. */
static void
a_name_that_cannot_be_read_makes_the_address_not_pinned(void **state)
{
	struct host h = host_of("a.example"), g = host_of("b.example");
	struct host names[PIN_NAMES_MAX];
	struct addr a = v4(1);
	struct pins *w, *r;
	uint8_t bytes[1 << 18];
	ssize_t n;
	int fd, half = memfd_create("half", 0);

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_true(pin_add(w, span_str("cell"), &h, &a, 1, 1000, 0));
	assert_true(pin_add(w, span_str("cell"), &g, &a, 1, 1000, 0));
	n = pread(fd, bytes, sizeof(bytes), 0);
	assert_in_range(n, 65, sizeof(bytes) - 1);
	bytes[64] |= 1;		/* the first entry is being written */
	assert_int_equal(pwrite(half, bytes, (size_t)n, 0), n);
	assert_int_equal(pin_open(&r, half), 0);
	assert_int_equal(pin_names(w, &a, 1, names), 2);
	assert_int_equal(pin_names(r, &a, 1, names), TOO_MANY_NAMES);
	pin_close(r);
	pin_close(w);
	close(half);
	close(fd);
}

struct churn {
	struct pins *w;
	_Atomic bool done;
};

static void *
churn(void *arg)
{
	struct churn *c = arg;

	for (unsigned i = 0; i < 60000; i++) {
		const uint8_t b[4] = { 10, (uint8_t)(i >> 16),
		    (uint8_t)(i >> 8), (uint8_t)i };
		struct addr a = addr_from_v4(b);
		struct host h;
		char text[32];

		snprintf(text, sizeof(text), "c%u.example", i);
		if (host_parse(&h, span_str(text)) == REASON_NONE)
			(void)pin_add(c->w, span_str("b"), &h, &a, 1,
			    1000000, 0);
	}
	c->done = true;
	return NULL;
}

static void
readers_of_another_thread_see_all_names_or_none(void **state)
{
	struct host h = host_of("a.example"), g = host_of("b.example");
	struct host names[PIN_NAMES_MAX];
	struct addr a = v4(1);
	struct churn c = { 0 };
	struct pins *r;
	pthread_t t;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&c.w, 64, &fd), 0);
	assert_int_equal(pin_open(&r, fd), 0);
	assert_true(pin_add(c.w, span_str("a"), &h, &a, 1, 1000, 0));
	assert_true(pin_add(c.w, span_str("a"), &g, &a, 1, 1000, 0));
	assert_int_equal(pthread_create(&t, NULL, churn, &c), 0);
	while (!c.done) {
		size_t n = pin_names(r, &a, 1, names);

		assert_true(n == 2 || n == TOO_MANY_NAMES);
	}
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(pin_names(r, &a, 1, names), 2);
	pin_close(r);
	pin_close(c.w);
	close(fd);
}

/* Ten names that end soon, against many of another cell with many addresses
 * that end late. */
static void
one_cell_does_not_push_out_what_another_pinned(void **state)
{
	struct addr a = v4(1);
	struct pins *w;
	char text[32];
	struct host h;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	for (int i = 0; i < 10; i++) {
		snprintf(text, sizeof(text), "a%d.example", i);
		h = host_of(text);
		assert_true(pin_add(w, span_str("a"), &h, &a, 1, 1000, 0));
	}
	for (int i = 0; i < 500; i++)
		assert_true(add_many(w, i, 28, 1000000, 0));
	for (int i = 0; i < 300; i++)
		assert_true(add_many(w, i, 1, 1000000, 0));
	for (int i = 0; i < 10; i++) {
		snprintf(text, sizeof(text), "a%d.example", i);
		h = host_of(text);
		assert_true(pin_has(w, &h, &a, 1));
	}
	pin_close(w);
	close(fd);
}

/* ---- one comes in the midst of another ---- */

/* In one thread: a timer interrupts `outer`, at any instruction, and runs
 * `inner`.  Each has a mapping of its own, as two processes have. */
static struct between {
	struct pins *w, *r;
	struct host a, b;
	timer_t timer;
	void (*inner)(void);
	unsigned steps, torn;
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

/* Both names want the one entry of the table. */
static void
take_turns(void)
{
	const struct addr addrs[4] = { v4(1), v4(2), v4(11), v4(12) };
	bool first = at.steps++ % 2 == 0;

	if (!pin_add(at.w, span_str("cell"), first ? &at.a : &at.b,
	    first ? addrs : addrs + 2, 2, 1000, 0))
		at.torn++;
}

static void
look_for_another_s_address(void)
{
	struct addr out[PIN_ADDRS_MAX], own[2] = { v4(1), v4(2) };
	struct host names[PIN_NAMES_MAX];
	size_t n = pin_addrs(at.r, &at.a, 1, out);

	for (size_t i = 0; i < n; i++)
		at.torn += !addr_eq(&out[i], &own[i]);
	n = pin_names(at.r, &own[0], 1, names);
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
	assert_int_equal(pin_create(&at.w, 1, &fd), 0);
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

	if (!pin_add(at.w, span_str("cell"), &at.a, &a, 1,
	    10 * (at.steps + 16), 10 * at.steps))
		at.torn++;
}

static void
look_for_ended_ones(void)
{
	struct addr out[PIN_ADDRS_MAX];
	unsigned from = at.steps;
	size_t n = pin_addrs(at.r, &at.a, 10 * from, out);

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
	assert_int_equal(pin_create(&at.w, 64, &fd), 0);
	assert_int_equal(pin_open(&at.r, fd), 0);
	run_between(look_for_ended_ones, renew);
	pin_close(at.r);
	pin_close(at.w);
	close(fd);
	assert_int_equal(pin_create(&at.w, 64, &fd), 0);
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

	snprintf(text, sizeof(text), "c%u.example", at.steps++);
	if (host_parse(&h, span_str(text)) == REASON_NONE &&
	    !pin_add(at.w, span_str("b"), &h, &a, 1, 1000000, 0))
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
	size_t n = pin_names(at.r, &a, 1, names);

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
	assert_true(pin_add(at.w, span_str("a"), &at.a, &a, 1, 1000, 0));
	assert_true(pin_add(at.w, span_str("a"), &at.b, &a, 1, 1000, 0));
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
		cmocka_unit_test(a_pin_is_seen_by_readers_until_it_expires),
		cmocka_unit_test(a_reader_cannot_map_the_table_for_writing),
		cmocka_unit_test(readers_survive_any_bytes_in_the_table),
		cmocka_unit_test(a_full_table_gives_way_to_what_is_new),
		cmocka_unit_test(
		    a_name_that_cannot_be_read_makes_the_address_not_pinned),
		cmocka_unit_test(readers_see_all_names_of_an_address_or_none),
		cmocka_unit_test(no_name_is_read_with_another_s_addresses),
		cmocka_unit_test(
		    no_address_that_ended_is_read_with_the_time_of_the_next),
		cmocka_unit_test(
		    one_cell_does_not_push_out_what_another_pinned),
		cmocka_unit_test(pins_that_ended_make_room_for_addresses),
		cmocka_unit_test(of_live_pins_those_make_room_that_end_first),
		cmocka_unit_test(
		    more_addresses_than_the_table_has_room_for_are_refused),
		cmocka_unit_test(
		    readers_of_another_thread_see_all_names_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
