/* SPDX-License-Identifier: Apache-2.0 */
/* An address: its text reads as itself, and how it is written does not
 * change what it is. */
#include <stdlib.h>

#include "policy/addr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(const struct addr *a)
{
	char text[ADDR_TEXT_BYTES], again[ADDR_TEXT_BYTES];
	struct addr b, judged = addr_judged(a, NULL, 0);
	struct sockaddr_storage sa;
	struct endpoint e = { .addr = *a, .port = 443 }, f;

	if (!addr_parse(&b, span_str(addr_text(a, text))) ||
	    !addr_eq(a, &b) || strcmp(addr_text(&b, again), text) != 0)
		abort();
	if (addr_class(&judged) > ADDR_PUBLIC ||
	    addr_class_word(addr_class(&judged)) == NULL)
		abort();
	if (endpoint_to_sockaddr(&e, &sa) == 0 ||
	    !endpoint_from_sockaddr(&f, &sa) || !endpoint_eq(&e, &f))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_of(data, size);
	char text[ADDR_TEXT_BYTES];
	struct prefix p, q;
	struct addr a;

	if (addr_parse(&a, s))
		check(&a);
	if (prefix_parse(&p, s) && (p.bits > 128 ||
	    !prefix_has(&p, &p.base) ||
	    !prefix_parse(&q, span_str(prefix_text(&p, text))) ||
	    q.bits != p.bits || !addr_eq(&q.base, &p.base)))
		abort();
	if (size >= 16) {
		a = addr_from_v6(data);
		check(&a);
	}
	return 0;
}
