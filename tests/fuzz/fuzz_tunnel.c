/* SPDX-License-Identifier: Apache-2.0 */
/* Questions and answers of any names, in any order and time: the score stays
 * in its range, what is shown is printable, and nothing is suspected before it
 * has the names for it. */
#include <stdlib.h>
#include <string.h>

#include "dns/tunnel.h"
#include "dns/wire.h"

#define NAMES_MIN 8u
#define NAME_BYTES 255u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A sound name in wire form of what the bytes say; returns how many of them
 * were used. */
static size_t
make_name(const uint8_t *data, size_t size, uint8_t *out, size_t *len)
{
	size_t at = 0, used = 1, labels = data[0] % 6u;

	for (; labels > 0 && used < size; labels--) {
		size_t n = data[used] % 63u + 1;

		used++;
		if (n > size - used)
			n = size - used;
		if (n == 0 || at + 1 + n + 1 > NAME_BYTES)
			break;
		out[at++] = (uint8_t)n;
		for (size_t i = 0; i < n; i++)
			out[at++] = data[used++];
	}
	out[at++] = 0;
	*len = at;
	return used;
}

static void
check(const struct tunnel_look *l)
{
	if (l->score > 100 || (l->first && !l->suspected))
		abort();
	if (memchr(l->domain, '\0', sizeof(l->domain)) == NULL)
		abort();
	for (const char *s = l->domain; *s != '\0'; s++)
		if (*s < 0x20 || *s > 0x7e)
			abort();
}

/* 4 bytes say what, and a name follows; returns how many were used. */
static size_t
step(struct tunnel *t, const uint8_t *data, size_t size, int64_t *now)
{
	static const char *const cells[] = { "a", "b", "agent-3", "" };
	static const uint16_t types[] = { 1, 28, 16, 10, 5, 15, 33, 12, 25,
	    65, 255, 0 };
	uint8_t name[NAME_BYTES + 1];
	struct tunnel_look look = { .score = 0 };
	struct span cell = span_str(cells[data[0] & 3]);
	size_t len, used = 4 + make_name(data + 4, size - 4, name, &len);

	*now += (int64_t)data[1] * 100;
	tunnel_question(t, cell, span_of(name, len),
	    types[data[2] % (sizeof(types) / sizeof(types[0]))], *now, &look);
	check(&look);
	if (data[0] & 4)
		tunnel_answer(t, cell, span_of(name, len),
		    (size_t)data[3] * 257, *now);
	if (tunnel_suspected(t, *now) > 16)
		abort();
	return used;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tunnel_settings s = { .names_min = NAMES_MIN,
	    .domains_max = 16 };
	struct tunnel *t = tunnel_new(&s);
	int64_t now = 1000;

	if (t == NULL)
		abort();
	while (size >= 5) {
		size_t used = step(t, data, size, &now);

		data += used;
		size -= used;
	}
	tunnel_free(t);
	return 0;
}
