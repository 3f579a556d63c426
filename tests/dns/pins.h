/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DNS_PINS_H
#define TESTS_DNS_PINS_H

/* Names, addresses and cells for tests of pins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dns/pin.h"

#define TOO_MANY_NAMES (PIN_NAMES_MAX + 1)
#define FOR_EVER ((int64_t)1 << 40)
#define CELL(name) (&(const struct pin_cell){ .id = span_str(name) })
#define RUN(name, of) (&(const struct pin_cell){ .id = span_str(name), \
	.run = span_str(of) })

static struct host __attribute__((unused))
host_of(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static struct addr __attribute__((unused))
v4(uint8_t last)
{
	const uint8_t b[4] = { 192, 0, 2, last };

	return addr_from_v4(b);
}

static bool __attribute__((unused))
add(struct pins *p, const struct pin_cell *cell, const struct host *name,
    const struct addr *addrs, size_t n, int64_t until, int64_t now)
{
	return pin_add(p, cell, name, addrs, n, until, now) == REASON_NONE;
}

#endif
