/* SPDX-License-Identifier: Apache-2.0 */
/* Puts, gets and flushes in any order, as upstream and time may have them:
 * what is given is what was put, in its time, and the bound holds. */
#include <stdio.h>
#include <stdlib.h>

#include "dns/cache.h"

#define NAMES 32u
#define CACHE_BYTES 4096u	/* so that some have to go */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct host names[NAMES];
static union answer_room room;

static void
make_names(void)
{
	char text[HOST_MAX_BYTES + 1];

	for (unsigned i = 0; i < NAMES; i++) {
		/* some are long */
		snprintf(text, sizeof(text), "n%u.%.*s.example", i,
		    (int)(i % 8 * 7), "abcdefghijklmnopqrstuvwxyzabcdefghij"
		    "klmnopqrstuvwxyz");
		if (i % 8 == 0)
			snprintf(text, sizeof(text), "n%u.example", i);
		if (host_parse(&names[i], span_str(text)) != REASON_NONE)
			abort();
	}
}

/* One answer: its records bear the number of its name. */
static void
put(struct cache *c, const uint8_t *b, int64_t now)
{
	unsigned name = b[0] % NAMES;
	uint8_t rdata[16] = { (uint8_t)name };
	bool none = b[1] & 0x80;

	answer_none(&room.answer, b[1] & 1 ? TYPE_A : TYPE_AAAA,
	    none ? REASON_DNS_NXDOMAIN : REASON_NONE);
	room.answer.ttl_s = b[2];
	for (unsigned i = 0; !none && i < b[3]; i++)
		if (!answer_put(&room.answer, span_of(rdata, b[1] & 1 ? 4 :
		    16)))
			break;
	cache_put(c, span_str(b[0] & 64 ? "one" : "other"), &names[name],
	    &room.answer, now);
}

static void
get(struct cache *c, const uint8_t *b, int64_t now)
{
	unsigned name = b[0] % NAMES;
	uint16_t type = b[1] & 1 ? TYPE_A : TYPE_AAAA;
	uint32_t ttl = 0;
	const struct answer *a = cache_get(c, &names[name], type, now, &ttl);
	struct span rdata;

	if (a == NULL)
		return;
	/* 0 is never kept, and nothing lives longer than it said */
	if (a->type != type || ttl == 0 || ttl > a->ttl_s)
		abort();
	for (size_t at = 0; answer_next(a, &at, &rdata);)
		if (rdata.data[0] != name)
			abort();
}

static void
step(struct cache *c, const uint8_t *b, int64_t *now)
{
	uint32_t ttl;

	switch (b[4] % 8) {
	case 0:
		*now += (int64_t)b[0] * 500;
		break;
	case 1:
		(void)cache_flush(c, &names[b[0] % NAMES]);
		if (cache_get(c, &names[b[0] % NAMES], TYPE_A, *now,
		    &ttl) != NULL)
			abort();
		break;
	case 2:
		if (b[0] == 0 && (cache_flush(c, NULL), cache_answers(c) > 0))
			abort();
		break;
	case 3: case 4:
		get(c, b, *now);
		break;
	default:
		put(c, b, *now);
	}
	if (cache_bytes(c) > cache_limit(c))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cache *c = cache_new(CACHE_BYTES);
	int64_t now = 1000;

	if (c == NULL)
		abort();
	if (names[0].len == 0)
		make_names();
	for (; size >= 5; data += 5, size -= 5)
		step(c, data, &now);
	cache_free(c);
	return 0;
}
