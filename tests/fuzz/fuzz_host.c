/* SPDX-License-Identifier: Apache-2.0 */
/* A name: its canonical form is its own canonical form, and a policy that
 * writes it means the same. */
#include <stdlib.h>

#include "policy/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(const struct host *h)
{
	struct span s = span_of(h->name, h->len);
	struct host again;

	if (h->len == 0 || h->len > HOST_MAX_BYTES ||
	    h->name[h->len] != '\0' || h->name[h->len - 1] == '.')
		abort();
	for (size_t i = 0; i < h->len; i++) {
		char c = h->name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		    c == '-' || c == '_' || c == '.'))
			abort();
	}
	if (host_parse(&again, s) != REASON_NONE || !host_eq(&again, h))
		abort();
	if (!span_eq(host_suffix(h, 0), s) ||
	    host_suffix(h, host_labels(h)).len != 0 ||
	    host_suffix(h, host_labels(h) - 1).len == 0 ||
	    host_under(h, h))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_of(data, size);
	struct host h;

	if (host_parse(&h, s) == REASON_NONE)
		check(&h);
	else if (h.len != 0)
		abort();
	if (host_parse_policy(&h, s) == REASON_NONE)
		check(&h);
	else if (h.len != 0)
		abort();
	return 0;
}
