/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/pin_book.h"

#include <unistd.h>

#include "tests/dns/cells.h"
#include "tests/dns/pins.h"

#define ALLOW "    - {verdict: allow, hostname: \"*.x.test\"}\n"
#define LONG "a-name-that-is-longer-than-the-place-has-room-for" \
	".and-goes-on-in-another-one.test"

static void
each_pin_is_seen_once_with_its_cell(void **state)
{
	static const struct cells_of two[] = { { "a", "", "192.0.2.1/32" },
	    { "b", "7", "192.0.2.2/32" } };
	struct host names[3] = { host_of("x.test"), host_of("y.test"),
	    host_of(LONG) };
	struct addr at[2] = { v4(1), v4(2) };
	uint32_t place = 0, seen[3] = { 0 }, used, all, own, most;
	struct pin_book *b;
	struct pin_row row;
	struct pins *w, *r;
	struct one o;
	int fd;

	(void)state;
	cells_make(&o, ALLOW, two, 2);
	assert_int_equal(pin_create(&w, 64, &fd), 0);
	assert_int_equal(pin_open(&r, fd), 0);
	close(fd);
	pin_set_policy(w, o.policy);
	assert_true(add(w, CELL("a"), &names[0], at, 2, 1000, 0));
	assert_true(add(w, RUN("b", "7"), &names[1], at, 1, 2000, 0));
	assert_true(add(w, RUN("b", "7"), &names[2], at, 1, 3000, 0));
	/* another life of the cell, of which this policy knows nothing */
	assert_true(add(w, RUN("b", "8"), &names[1], at, 1, 4000, 0));
	pin_used(w, &used, &all);
	assert_int_equal(used, 6);
	assert_int_equal(all, 64);
	b = pin_book_new(r, o.policy);
	assert_non_null(b);
	while (pin_book_next(b, &place, &row)) {
		if (row.cell == CELL_NONE) {
			assert_int_equal(row.until_ms, 4000);
			seen[2]++;
			continue;
		}
		assert_in_range(row.cell, 0, 1);
		seen[row.cell]++;
		assert_int_equal(row.cell == 0,
		    host_eq(&row.name, &names[0]));
		assert_int_equal(row.places,
		    host_eq(&row.name, &names[2]) ? 2 : 1);
	}
	assert_int_equal(seen[0], 2);
	assert_int_equal(seen[1], 2);
	assert_int_equal(seen[2], 1);
	pin_book_parts(b, &own, &most);
	assert_int_equal(own, 16);
	assert_int_equal(most, 48);
	pin_book_free(b);
	pin_close(r);
	pin_close(w);
	one_done(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pin_is_seen_once_with_its_cell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
