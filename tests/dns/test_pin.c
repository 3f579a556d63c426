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

#include "dns/pin_table.h"
#include "tests/dns/cells.h"
#include "tests/dns/pins.h"

/* `n` names of one address each, from number `from`: how many are pinned, and
 * why the first was not. */
static unsigned
add_names(struct pins *p, const struct pin_cell *cell, unsigned from,
    unsigned n, int64_t until, int64_t now, enum reason *why)
{
	struct addr a = v4(9);
	unsigned done = 0;

	*why = REASON_NONE;
	for (unsigned i = from; i < from + n; i++) {
		char text[32];
		struct host h;
		enum reason r;

		snprintf(text, sizeof(text), "x%u.example", i);
		h = host_of(text);
		r = pin_add(p, cell, &h, &a, 1, until, now);
		done += r == REASON_NONE;
		if (*why == REASON_NONE)
			*why = r;
		assert_int_equal(pin_has(p, cell, &h, &a, now),
		    r == REASON_NONE);
	}
	return done;
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
	assert_false(pin_has(r, CELL("cell"), &h, &a, 0));
	assert_true(add(w, CELL("cell"), &h, &a, 1, 1000, 0));
	assert_true(pin_has(r, CELL("cell"), &h, &a, 999));
	assert_int_equal(pin_addrs(r, CELL("cell"), &h, 999, out), 1);
	assert_int_equal(pin_names(r, CELL("cell"), &a, 999, names), 1);
	assert_true(host_eq(&names[0], &h));
	assert_false(pin_has(r, CELL("cell"), &h, &a, 1001));
	assert_int_equal(pin_names(r, CELL("cell"), &a, 1001, names), 0);
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
	assert_true(add(w, CELL("cell"), &h, &a, 1, 1000, 0));
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
			assert_true(pin_addrs(r, CELL("cell"), &h, 1, out) <=
			    PIN_ADDRS_MAX);
			assert_true(pin_names(r, CELL("cell"), &a, 1, names) <=
			    TOO_MANY_NAMES);
			pin_close(r);
		}
		close(bad);
	}
	free(copy);
	pin_close(w);
	close(fd);
}

/* What lives makes no room, what ended does, at once. */
static void
a_full_table_refuses_what_is_new_until_something_ends(void **state)
{
	enum reason why;
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 16, &fd), 0);
	assert_int_equal(add_names(w, CELL("cell"), 0, 200, 1000, 0, &why),
	    16);
	assert_int_equal(why, REASON_LIMIT_TOTAL);
	/* what is there may be said again */
	assert_int_equal(add_names(w, CELL("cell"), 0, 16, 2000, 999, &why),
	    16);
	assert_int_equal(add_names(w, CELL("cell"), 20, 20, 9000, 1999, &why),
	    0);
	assert_int_equal(add_names(w, CELL("cell"), 20, 20, 9000, 2000, &why),
	    16);
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
	return add(w, CELL("cell"), &h, all, n, until, now) &&
	    pin_has(w, CELL("cell"), &h, &all[n - 1], now);
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
	assert_false(pin_has(w, CELL("cell"), &kept, &a, 9000));
	pin_close(w);
	close(fd);
}

/* A name whose addresses change with each answer does not end: its own that
 * end first go. */
static void
of_one_name_the_last_addresses_are_kept(void **state)
{
	struct host h = host_of("a.example");
	struct addr out[PIN_ADDRS_MAX], a[2], first = v4(0), kept = v4(73);
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 256, &fd), 0);
	for (unsigned i = 0; i < 100; i++) {
		a[0] = v4((uint8_t)(2 * i));
		a[1] = v4((uint8_t)(2 * i + 1));
		assert_true(add(w, CELL("cell"), &h, a, 2, 1000 + i, 0));
	}
	assert_false(pin_has(w, CELL("cell"), &h, &first, 1));
	assert_true(pin_has(w, CELL("cell"), &h, &kept, 1));
	assert_int_equal(pin_addrs(w, CELL("cell"), &h, 1, out),
	    PIN_ADDRS_MAX);
	for (unsigned i = 0; i < PIN_ADDRS_MAX; i++)
		assert_int_equal(out[i].b[15], i % 2 ? 199 - i + 1 : 198 - i);
	/* the order of the last answer counts */
	a[1] = v4(198);
	a[0] = v4(199);
	assert_true(add(w, CELL("cell"), &h, a, 2, 1000, 0));
	(void)pin_addrs(w, CELL("cell"), &h, 1, out);
	assert_int_equal(out[0].b[15], 199);
	assert_int_equal(out[1].b[15], 198);
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

/* The slots of the index of names, held by nobody's entry. */
#define NOBODY 0x7fffffffu

static void
hold_slots(struct pins *w)
{
	for (uint32_t i = 0; i < w->head.n_slots; i++)
		if (w->by_name.slots[i] == PIN_TOMB ||
		    w->by_name.slots[i] == PIN_EMPTY)
			w->by_name.slots[i] = NOBODY;
}

static void
free_slots(struct pins *w)
{
	for (uint32_t i = 0; i < w->head.n_slots; i++)
		if (w->by_name.slots[i] == NOBODY)
			w->by_name.slots[i] = PIN_TOMB;
}

static void
an_answer_is_pinned_whole_or_not_at_all(void **state)
{
	struct addr a[4] = { v4(1), v4(2), v4(3), v4(4) }, out[PIN_ADDRS_MAX];
	struct host h = host_of("a.example"), g = host_of("b.example");
	struct host names[PIN_NAMES_MAX];
	enum reason why;
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_true(add(w, CELL("cell"), &h, &a[1], 1, 1000, 0));
	for (unsigned round = 0; round < 2; round++) {
		hold_slots(w);
		assert_int_equal(pin_add(w, CELL("cell"), &g, a, 4, 2000, 1),
		    REASON_LIMIT_TOTAL);
		assert_int_equal(pin_addrs(w, CELL("cell"), &g, 1, out), 0);
		assert_int_equal(pin_names(w, CELL("cell"), &a[0], 1, names),
		    0);
		assert_int_equal(pin_names(w, CELL("cell"), &a[1], 1, names),
		    1);
		/* nor is what was there before pinned for longer */
		assert_false(pin_has(w, CELL("cell"), &h, &a[1], 1000));
		free_slots(w);
	}
	/* and what it had taken is back */
	assert_true(add(w, CELL("cell"), &h, a, 4, 2000, 1));
	assert_int_equal(pin_addrs(w, CELL("cell"), &h, 1999, out), 4);
	for (unsigned i = 0; i < 4; i++)
		assert_true(addr_eq(&out[i], &a[i]));
	assert_int_equal(add_names(w, CELL("cell"), 0, 64, 2000, 1, &why), 60);
	pin_close(w);
	close(fd);
}

/* `n` names of b with an address each, from 10.1.0.0 + `from` on, of which
 * all are found again. */
static void
expect_others(struct pins *w, unsigned from, unsigned n, bool anew)
{
	struct host names[PIN_NAMES_MAX];
	unsigned missed = 0;

	for (unsigned i = from; i < from + n; i++) {
		const uint8_t b[4] = { 10, 1, (uint8_t)(i >> 8), (uint8_t)i };
		struct addr a = addr_from_v4(b);
		struct host h;
		char text[32];

		snprintf(text, sizeof(text), "o%u.example", i);
		h = host_of(text);
		if (anew)
			assert_true(add(w, CELL("b"), &h, &a, 1, 1000, 0));
		missed += pin_names(w, CELL("b"), &a, 1, names) != 1 ||
		    !pin_has(w, CELL("b"), &h, &a, 1);
	}
	assert_int_equal(missed, 0);
}

/* Thousands of names at a few addresses, and a name's end among them. */
static void
names_of_one_cell_crowd_out_no_address_of_another(void **state)
{
	struct host names[PIN_NAMES_MAX];
	struct addr a[16];
	struct pins *w;
	unsigned k = 0;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, PIN_DEFAULT, &fd), 0);
	expect_others(w, 0, 1000, true);
	for (unsigned i = 0; i < 6000; i++) {
		struct host h;
		char text[32];

		for (unsigned j = 0; j < 16; j++)
			a[j] = v4((uint8_t)(k++ % 48));
		snprintf(text, sizeof(text), "n%u.example", i);
		h = host_of(text);
		assert_true(add(w, CELL("a"), &h, a, 16, i < 4000 ? 500 :
		    1000, 0));
	}
	expect_others(w, 0, 1000, false);
	expect_others(w, 1000, 1000, true);
	a[0] = v4(0);
	assert_int_equal(pin_names(w, CELL("a"), a, 1, names), TOO_MANY_NAMES);
	/* what ended leaves from the middle */
	for (unsigned i = 0; i < 100; i++)
		assert_true(add_many(w, (int)(i % 7), 2, 2000, 600));
	expect_others(w, 0, 2000, false);
	assert_int_equal(pin_names(w, CELL("a"), a, 1, names), TOO_MANY_NAMES);
	assert_int_equal(pin_names(w, CELL("a"), a, 1000, names), 0);
	pin_close(w);
	close(fd);
}

/* Those before, between and behind end one after the other. */
static void
the_names_of_an_address_leave_in_any_order(void **state)
{
	static const int64_t until[] = { 500, 100, 400, 200, 300 };
	struct host names[PIN_NAMES_MAX], g = host_of("z.example");
	struct addr a = v4(1), b = v4(2);
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	for (unsigned i = 0; i < 5; i++) {
		struct host h;
		char text[32];

		snprintf(text, sizeof(text), "n%u.example", i);
		h = host_of(text);
		assert_true(add(w, CELL("cell"), &h, &a, 1, until[i], 0));
	}
	for (unsigned gone = 0; gone <= 5; gone++) {
		assert_int_equal(pin_names(w, CELL("cell"), &a, 0, names),
		    5 - gone);
		assert_true(add(w, CELL("cell"), &g, &b, 1, 1000,
		    100 * (gone + 1)));
	}
	pin_close(w);
	close(fd);
}

/* A full table takes nothing from the name that finds no room in it. */
static void
what_is_refused_pushes_out_none_of_its_own(void **state)
{
	struct host h = host_of("a.example");
	struct addr a[PIN_ADDRS_MAX], out[PIN_ADDRS_MAX];
	enum reason why;
	struct pins *w;
	unsigned kept = 0;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 130, &fd), 0);
	for (unsigned i = 0; i < 120; i++) {
		a[0] = v4((uint8_t)i);
		assert_true(add(w, CELL("cell"), &h, a, 1, 1000 + i, 0));
	}
	assert_int_equal(add_names(w, CELL("cell"), 0, 10, 2000, 0, &why), 10);
	for (unsigned i = 0; i < PIN_ADDRS_MAX; i++)
		a[i] = v4((uint8_t)(200 + i));
	assert_int_equal(pin_add(w, CELL("cell"), &h, a, PIN_ADDRS_MAX, 2000,
	    0), REASON_LIMIT_TOTAL);
	for (unsigned i = 0; i < 120; i++) {
		a[0] = v4((uint8_t)i);
		kept += pin_has(w, CELL("cell"), &h, a, 0);
	}
	assert_int_equal(kept, 120);
	assert_int_equal(pin_addrs(w, CELL("cell"), &h, 0, out),
	    PIN_ADDRS_MAX);
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
	assert_true(add(w, CELL("cell"), &h, &a, 1, 1000, 0));
	assert_true(add(w, CELL("cell"), &g, &a, 1, 1000, 0));
	n = pread(fd, bytes, sizeof(bytes), 0);
	assert_in_range(n, 65, sizeof(bytes) - 1);
	bytes[64] |= 1;		/* the first entry is being written */
	assert_int_equal(pwrite(half, bytes, (size_t)n, 0), n);
	assert_int_equal(pin_open(&r, half), 0);
	assert_int_equal(pin_names(w, CELL("cell"), &a, 1, names), 2);
	assert_int_equal(pin_names(r, CELL("cell"), &a, 1, names), TOO_MANY_NAMES);
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
			(void)add(c->w, CELL("cell"), &h, &a, 1,
			    i + 20, i);
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
	assert_true(add(c.w, CELL("cell"), &h, &a, 1, FOR_EVER, 0));
	assert_true(add(c.w, CELL("cell"), &g, &a, 1, FOR_EVER, 0));
	assert_int_equal(pthread_create(&t, NULL, churn, &c), 0);
	while (!c.done) {
		size_t n = pin_names(r, CELL("cell"), &a, 1, names);

		assert_true(n == 2 || n == TOO_MANY_NAMES);
	}
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(pin_names(r, CELL("cell"), &a, 1, names), 2);
	pin_close(r);
	pin_close(c.w);
	close(fd);
}

/* ---- cells ---- */

#define ALLOW "    - {verdict: allow, hostname: a.example}\n"

static void
what_one_cell_looked_up_is_no_other_s(void **state)
{
	struct host h = host_of("a.example"), g = host_of("denied.example");
	struct host names[PIN_NAMES_MAX];
	struct addr a = v4(1), b = v4(2), out[PIN_ADDRS_MAX];
	struct pins *w, *r;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_int_equal(pin_open(&r, fd), 0);
	assert_true(add(w, CELL("a"), &h, &a, 1, 1000, 0));
	assert_true(add(w, CELL("b"), &g, &a, 1, 1000, 0));
	assert_true(add(w, CELL("b"), &h, &b, 1, 1000, 0));
	assert_int_equal(pin_names(r, CELL("a"), &a, 1, names), 1);
	assert_true(host_eq(&names[0], &h));
	assert_int_equal(pin_names(r, CELL("b"), &a, 1, names), 1);
	assert_true(host_eq(&names[0], &g));
	assert_int_equal(pin_names(r, CELL("a"), &b, 1, names), 0);
	assert_int_equal(pin_addrs(r, CELL("a"), &h, 1, out), 1);
	assert_true(addr_eq(&out[0], &a));
	assert_int_equal(pin_addrs(r, CELL("b"), &h, 1, out), 1);
	assert_true(addr_eq(&out[0], &b));
	assert_false(pin_has(r, CELL("a"), &g, &a, 1));
	assert_false(pin_has(r, CELL("b"), &h, &a, 1));
	/* id and run have an end each */
	assert_true(add(w, RUN("c", "1"), &h, &a, 1, 1000, 0));
	assert_false(pin_has(r, CELL("c1"), &h, &a, 1));
	assert_false(pin_has(r, RUN("", "c1"), &h, &a, 1));
	assert_true(pin_has(r, RUN("c", "1"), &h, &a, 1));
	pin_close(r);
	pin_close(w);
	close(fd);
}

/* Of 64 places 16 are each cell's own, 32 are common. */
static void
one_cell_does_not_take_the_part_of_another(void **state)
{
	static const struct cells_of two[] = { { "a", "", "192.0.2.1/32" },
	    { "b", "", "192.0.2.2/32" } };
	struct one both, alone;
	enum reason why;
	struct pins *w;
	int fd;

	(void)state;
	cells_make(&both, ALLOW, two, 2);
	cells_make(&alone, ALLOW, two, 1);
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	pin_set_policy(w, both.policy);
	assert_int_equal(add_names(w, CELL("a"), 0, 64, 1000, 0, &why), 48);
	assert_int_equal(why, REASON_LIMIT_CELL);
	assert_int_equal(add_names(w, CELL("b"), 0, 64, 1000, 0, &why), 16);
	assert_int_equal(why, REASON_LIMIT_CELL);
	/* what a refused one needs is there when its time is over */
	assert_int_equal(add_names(w, CELL("b"), 100, 64, 3000, 1000, &why),
	    48);
	assert_int_equal(add_names(w, CELL("a"), 0, 64, 3000, 1000, &why), 16);
	/* an only cell may hold everything, and b's pins end with b */
	pin_set_policy(w, alone.policy);
	assert_int_equal(add_names(w, CELL("a"), 100, 64, 3000, 1000, &why),
	    48);
	assert_int_equal(why, REASON_LIMIT_TOTAL);
	/* what lives stays; the part of another grows back with time */
	pin_set_policy(w, both.policy);
	assert_int_equal(add_names(w, CELL("b"), 0, 64, 4000, 1000, &why), 0);
	assert_int_equal(why, REASON_LIMIT_TOTAL);
	assert_int_equal(add_names(w, CELL("b"), 0, 64, 4000, 3000, &why), 48);
	one_done(&both);
	one_done(&alone);
	pin_close(w);
	close(fd);
}

static void
a_reload_that_reorders_the_cells_leaves_each_its_own(void **state)
{
	static const struct cells_of ab[] = { { "a", "1", "192.0.2.1/32" },
	    { "b", "", "192.0.2.2/32" } }, ba[] = {
	    { "b", "", "192.0.2.2/32" }, { "a", "1", "192.0.2.1/32" } };
	struct host h = host_of("a.example"), g = host_of("b.example");
	const struct cells_of *order[] = { ab, ba, ab };
	struct addr x = v4(1);
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_true(add(w, RUN("a", "1"), &h, &x, 1, 1000, 0));
	assert_true(add(w, CELL("b"), &g, &x, 1, 1000, 0));
	for (size_t i = 0; i < 3; i++) {
		struct pin_cell a, b, none;
		struct one o;

		cells_make(&o, ALLOW, order[i], 2);
		pin_set_policy(w, o.policy);
		assert_true(pin_cell_of(o.policy, i % 2 ? 1 : 0, &a));
		assert_true(pin_cell_of(o.policy, i % 2 ? 0 : 1, &b));
		assert_false(pin_cell_of(o.policy, CELL_NONE, &none));
		assert_false(pin_cell_of(NULL, 0, &none));
		assert_true(pin_has(w, &a, &h, &x, 1));
		assert_true(pin_has(w, &b, &g, &x, 1));
		assert_false(pin_has(w, &a, &g, &x, 1));
		assert_false(pin_has(w, &b, &h, &x, 1));
		one_done(&o);
	}
	pin_close(w);
	close(fd);
}

static void
another_run_has_nothing_of_the_one_before(void **state)
{
	static const struct cells_of first[] = {
	    { "a", "1", "192.0.2.1/32" }, { "b", "", "192.0.2.2/32" } },
	    second[] = { { "a", "2", "192.0.2.1/32" },
	    { "b", "", "192.0.2.2/32" } };
	struct host h = host_of("x0.example");
	struct host names[PIN_NAMES_MAX];
	struct addr x = v4(9);
	struct one one, two;
	enum reason why;
	struct pins *w;
	int fd;

	(void)state;
	cells_make(&one, ALLOW, first, 2);
	cells_make(&two, ALLOW, second, 2);
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	pin_set_policy(w, one.policy);
	assert_int_equal(add_names(w, RUN("a", "1"), 0, 48, 1000, 0, &why),
	    48);
	assert_int_equal(add_names(w, CELL("b"), 0, 1, 1000, 0, &why), 1);
	pin_set_policy(w, two.policy);
	assert_false(pin_has(w, RUN("a", "1"), &h, &x, 1));
	assert_false(pin_has(w, RUN("a", "2"), &h, &x, 1));
	assert_int_equal(pin_names(w, RUN("a", "2"), &x, 1, names), 0);
	assert_true(pin_has(w, CELL("b"), &h, &x, 1));
	/* and all of its places are free */
	assert_int_equal(add_names(w, RUN("a", "2"), 0, 64, 1000, 0, &why),
	    48);
	/* the first run comes back: it has nothing either */
	pin_set_policy(w, one.policy);
	assert_false(pin_has(w, RUN("a", "1"), &h, &x, 1));
	one_done(&one);
	one_done(&two);
	pin_close(w);
	close(fd);
}

static void
a_copy_has_what_lives_for_whom_it_lives(void **state)
{
	struct host h = host_of("a.example"), g = host_of("b.example");
	struct addr x[2] = { v4(2), v4(1) }, out[PIN_ADDRS_MAX];
	struct pins *old, *w, *r;
	int old_fd, fd;

	(void)state;
	assert_int_equal(pin_create(&old, 64, &old_fd), 0);
	assert_true(add(old, RUN("a", "1"), &h, x, 2, 1000, 0));
	assert_true(add(old, CELL("b"), &g, x, 1, 1000, 0));
	assert_true(add(old, CELL("b"), &h, x, 1, 500, 0));
	pin_set_source(old, 3);
	assert_int_equal(pin_open(&r, old_fd), 0);
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	pin_set_source(w, 3);
	pin_copy(w, r, 600);
	pin_close(r);
	pin_close(old);
	assert_int_equal(pin_open(&r, fd), 0);
	assert_int_equal(pin_addrs(r, RUN("a", "1"), &h, 1, out), 2);
	assert_true(addr_eq(&out[0], &x[0]));
	assert_true(addr_eq(&out[1], &x[1]));
	assert_true(pin_has(r, CELL("b"), &g, &x[0], 1));
	assert_false(pin_has(r, CELL("b"), &h, &x[0], 1));
	assert_false(pin_has(r, CELL("a"), &h, &x[0], 1));
	/* what comes after goes before */
	assert_true(add(w, RUN("a", "1"), &h, &x[1], 1, 1000, 0));
	assert_int_equal(pin_addrs(r, RUN("a", "1"), &h, 1, out), 2);
	assert_true(addr_eq(&out[0], &x[1]));
	pin_close(r);
	pin_close(w);
	close(old_fd);
	close(fd);
}

/* The resolver was started again because of, or together with, other servers:
 * what those before have said is not known by name. */
static void
a_copy_has_nothing_of_other_servers(void **state)
{
	struct host h = host_of("a.example");
	struct pins *old, *w, *r;
	struct addr x = v4(1);
	int old_fd, fd;

	(void)state;
	assert_int_equal(pin_create(&old, 64, &old_fd), 0);
	pin_set_source(old, 3);
	assert_true(add(old, CELL("a"), &h, &x, 1, 1000, 0));
	pin_set_source(old, 4);
	assert_int_equal(pin_open(&r, old_fd), 0);
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	pin_set_source(w, 3);
	pin_copy(w, r, 1);
	assert_false(pin_has(w, CELL("a"), &h, &x, 1));
	pin_set_source(w, 4);
	pin_copy(w, r, 1);
	assert_true(pin_has(w, CELL("a"), &h, &x, 1));
	pin_close(r);
	pin_close(old);
	pin_close(w);
	close(old_fd);
	close(fd);
}

/* ---- places ---- */

/* Labels of at most 63: a name of `len` bytes. */
static struct host
long_name(size_t len, char c)
{
	char text[HOST_MAX_BYTES + 1];

	for (size_t i = 0; i < len; i++)
		text[i] = i % 50 == 49 && i + 1 < len ? '.' : c;
	text[len] = '\0';
	return host_of(text);
}

static void
a_name_of_any_length_has_its_places_and_gives_them_back(void **state)
{
	static const struct { size_t len; unsigned fit; } t[] = { { 1, 6 },
	    { 72, 6 }, { 73, 3 }, { 176, 3 }, { 177, 2 }, { 253, 2 } };
	struct addr a = v4(1), b = v4(2);
	struct host names[PIN_NAMES_MAX];
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 6, &fd), 0);
	for (unsigned round = 0; round < 60; round++) {
		size_t k = round % 6;
		unsigned n = 0;

		for (char c = 'a'; c < 'h'; c++) {
			struct host h = long_name(t[k].len, c);

			n += add(w, CELL("cell"), &h, &a, 1, 10 * round + 10,
			    10 * round);
			assert_int_equal(pin_has(w, CELL("cell"), &h, &a,
			    10 * round), n == (unsigned)(c - 'a') + 1);
		}
		assert_int_equal(n, t[k].fit);
		assert_int_equal(pin_names(w, CELL("cell"), &a, 10 * round,
		    names), n);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(names[i].len, t[k].len);
		assert_int_equal(pin_names(w, CELL("cell"), &b, 10 * round,
		    names), 0);
	}
	pin_close(w);
	close(fd);
}

static void
the_whole_table_is_less_than_16_mb_and_holds_what_it_says(void **state)
{
	struct host names[PIN_NAMES_MAX];
	struct pins *w, *r;
	struct stat st;
	unsigned found = 0;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, PIN_DEFAULT, &fd), 0);
	assert_int_equal(pin_open(&r, fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_size < 16 << 20);
	for (unsigned i = 0; i < PIN_DEFAULT + 100; i++) {
		const uint8_t b[4] = { 10, (uint8_t)(i >> 16),
		    (uint8_t)(i >> 8), (uint8_t)i };
		struct addr a = addr_from_v4(b);
		char text[32];
		struct host h;

		snprintf(text, sizeof(text), "c%u.example", i);
		h = host_of(text);
		assert_int_equal(pin_add(w, CELL("cell"), &h, &a, 1, 1000, 0),
		    i < PIN_DEFAULT ? REASON_NONE : REASON_LIMIT_TOTAL);
		found += pin_has(r, CELL("cell"), &h, &a, 1) &&
		    pin_names(r, CELL("cell"), &a, 1, names) == 1;
	}
	assert_int_equal(found, PIN_DEFAULT);
	pin_close(r);
	pin_close(w);
	close(fd);
}

static bool
is_below(void *arg, const struct host *name)
{
	return host_under(name, arg);
}

static void
names_end_for_all_cells_and_others_stay(void **state)
{
	static const char *const texts[] = { "a.corp.example", "a.example",
	    "a-name-that-takes-more-than-one-of-the-places-in-the-table."
	    "because-it-is-so-very-long.corp.example" };
	struct host zone = host_of("corp.example"), h;
	struct addr a = v4(1);
	uint32_t used, all;
	struct pins *w;
	int fd;

	(void)state;
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	for (unsigned i = 0; i < 3; i++) {
		h = host_of(texts[i]);
		assert_true(add(w, CELL("one"), &h, &a, 1, FOR_EVER, 0));
		assert_true(add(w, CELL("two"), &h, &a, 1, FOR_EVER, 0));
	}
	pin_end_names(w, is_below, &zone);
	for (unsigned i = 0; i < 3; i++) {
		h = host_of(texts[i]);
		assert_int_equal(pin_has(w, CELL("one"), &h, &a, 0), i == 1);
		assert_int_equal(pin_has(w, CELL("two"), &h, &a, 0), i == 1);
	}
	pin_used(w, &used, &all);
	assert_int_equal(used, 2);
	pin_close(w);
	close(fd);
}

/* ---- one comes in the midst of another ---- */

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pin_is_seen_by_readers_until_it_expires),
		cmocka_unit_test(a_reader_cannot_map_the_table_for_writing),
		cmocka_unit_test(readers_survive_any_bytes_in_the_table),
		cmocka_unit_test(
		    a_full_table_refuses_what_is_new_until_something_ends),
		cmocka_unit_test(what_one_cell_looked_up_is_no_other_s),
		cmocka_unit_test(
		    a_reload_that_reorders_the_cells_leaves_each_its_own),
		cmocka_unit_test(another_run_has_nothing_of_the_one_before),
		cmocka_unit_test(a_copy_has_what_lives_for_whom_it_lives),
		cmocka_unit_test(a_copy_has_nothing_of_other_servers),
		cmocka_unit_test(
		    a_name_of_any_length_has_its_places_and_gives_them_back),
		cmocka_unit_test(
		    the_whole_table_is_less_than_16_mb_and_holds_what_it_says),
		cmocka_unit_test(
		    a_name_that_cannot_be_read_makes_the_address_not_pinned),
		cmocka_unit_test(one_cell_does_not_take_the_part_of_another),
		cmocka_unit_test(pins_that_ended_make_room_for_addresses),
		cmocka_unit_test(of_one_name_the_last_addresses_are_kept),
		cmocka_unit_test(an_answer_is_pinned_whole_or_not_at_all),
		cmocka_unit_test(
		    names_of_one_cell_crowd_out_no_address_of_another),
		cmocka_unit_test(the_names_of_an_address_leave_in_any_order),
		cmocka_unit_test(what_is_refused_pushes_out_none_of_its_own),
		cmocka_unit_test(
		    more_addresses_than_the_table_has_room_for_are_refused),
		cmocka_unit_test(names_end_for_all_cells_and_others_stay),
		cmocka_unit_test(
		    readers_of_another_thread_see_all_names_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
