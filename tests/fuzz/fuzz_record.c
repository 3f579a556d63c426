/* SPDX-License-Identifier: Apache-2.0 */
/* What a taken producer may put into the ring: refused, or one line of JSON
 * that a reader reads. */
#include <jansson.h>
#include <stdlib.h>

#include "ledger-client/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char line[RECORD_JSON_MAX_BYTES];

static void
check(const struct record *r)
{
	size_t n = record_json(r, 1, "i", line);
	json_error_t error;
	json_t *j;

	if (n < 2 || n > sizeof(line) || line[n - 1] != '\n')
		abort();
	for (size_t i = 0; i + 1 < n; i++)
		if (line[i] < 0x20 || line[i] > 0x7e)
			abort();
	j = json_loadb(line, n, JSON_ALLOW_NUL, &error);
	if (j == NULL || json_object_get(j, "kind") == NULL)
		abort();
	json_decref(j);
}

/* The same bytes as the text of a sound record, so that more than the check
 * is reached. */
static void
sound(const uint8_t *data, size_t size)
{
	struct record r;

	record_init(&r, RECORD_DECISION);
	for (unsigned i = 0; i < TEXT_COUNT && size > 0; i++) {
		size_t n = size < data[0] ? size : data[0];

		if (i != TEXT_LABELS || memchr(data, '\0', n) == NULL)
			record_set(&r, (enum record_text)i,
			    span_of(data, n));
		data += n > 0 ? n : 1;
		size -= n > 0 ? n : 1;
	}
	if (!record_check(&r, record_size(&r)))
		abort();
	check(&r);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record r;

	memset(&r, 0, sizeof(r));
	memcpy(&r, data, size < sizeof(r) ? size : sizeof(r));
	if (size <= sizeof(r) && record_check(&r, size))
		check(&r);
	sound(data, size);
	return 0;
}
