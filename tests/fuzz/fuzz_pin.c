/* SPDX-License-Identifier: Apache-2.0 */
/* Pins of two cells in any order and time, and a reader: what is pinned is
 * found until it ends and by its own cell alone, and a table whose bytes are
 * anything is read without harm. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dns/pin.h"

#define NAMES 16u
#define PLACES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct host names[NAMES];
static const struct pin_cell cells[2] = {
	{ .id = { (const uint8_t *)"a", 1 } },
	{ .id = { (const uint8_t *)"b", 1 } },
};

/* Of one, two and three places. */
static void
make_names(void)
{
	static const char label[] = "abcdefghijklmnopqrstuvwxyzabcdefghij"
	    "klmnopqrstuvwxyz";
	char text[HOST_MAX_BYTES + 1];

	for (unsigned i = 0; i < NAMES; i++) {
		int n = snprintf(text, sizeof(text), "n%u", i);

		for (unsigned k = 0; k < i % 4; k++)
			n += snprintf(text + n, sizeof(text) - (size_t)n,
			    ".%s", label);
		snprintf(text + n, sizeof(text) - (size_t)n, ".example");
		if (host_parse(&names[i], span_str(text)) != REASON_NONE)
			abort();
	}
}

static struct addr
address(uint8_t last)
{
	const uint8_t v4[4] = { 198, 18, 0, last };

	return addr_from_v4(v4);
}

/* All names of an address have it, and the other way round. */
static void
agree(const struct pins *p, const struct pin_cell *cell,
    const struct host *name, int64_t now)
{
	static struct host of[PIN_NAMES_MAX];
	struct addr addrs[PIN_ADDRS_MAX];
	size_t n = pin_addrs(p, cell, name, now, addrs);

	if (n > PIN_ADDRS_MAX)
		abort();
	for (size_t i = 0; i < n; i++) {
		size_t k = pin_names(p, cell, &addrs[i], now, of);
		bool found = k > PIN_NAMES_MAX;

		if (!pin_has(p, cell, name, &addrs[i], now))
			abort();
		for (size_t j = 0; !found && j < k; j++)
			found = host_eq(&of[j], name);
		if (!found)
			abort();
	}
}

static void
step(struct pins *p, const struct pins *reader, const uint8_t *b,
    int64_t *now)
{
	const struct pin_cell *cell = &cells[b[0] & 1];
	const struct host *name = &names[b[1] % NAMES];
	struct addr addrs[PIN_ADDRS_MAX];
	size_t n = b[2] % PIN_ADDRS_MAX + 1;
	int64_t until = *now + 1 + (int64_t)b[3] * 50;
	uint32_t used, all;

	if ((b[0] & 0x0e) == 0)
		*now += (int64_t)b[3] * 100;
	for (size_t i = 0; i < n; i++)
		addrs[i] = address((uint8_t)(b[4] + i));
	until = until > *now ? until : *now + 1;
	if (pin_add(p, cell, name, addrs, n, until, *now) == REASON_NONE)
		for (size_t i = 0; i < n; i++)
			if (!pin_has(reader, cell, name, &addrs[i],
			    until - 1))
				abort();
	agree(reader, &cells[0], name, *now);
	agree(reader, &cells[1], name, *now);
	pin_used(p, &used, &all);
	if (used > all || all != PLACES)
		abort();
}

/* The writer is the resolver, which reads hostile bytes. */
static void
read_any(const uint8_t *data, size_t size)
{
	static struct host of[PIN_NAMES_MAX];
	int fd = memfd_create("fuzz-pins", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct addr addrs[PIN_ADDRS_MAX], a = address(1);
	struct pins *p = NULL;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (pin_open(&p, fd) == 0) {
		(void)pin_addrs(p, &cells[0], &names[0], 1, addrs);
		(void)pin_names(p, &cells[0], &a, 1, of);
		pin_close(p);
	}
	close(fd);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pins *p = NULL, *reader = NULL;
	int64_t now = 1000;
	int fd = -1;

	if (names[0].len == 0)
		make_names();
	read_any(data, size);
	if (pin_create(&p, PLACES, &fd) != 0 || pin_open(&reader, fd) != 0)
		abort();
	for (; size >= 5; data += 5, size -= 5)
		step(p, reader, data, &now);
	pin_close(reader);
	pin_close(p);
	close(fd);
	return 0;
}
