/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "dns/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A reply from upstream to a.example, A and AAAA. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const uint16_t types[] = { TYPE_A, TYPE_AAAA };
	struct addr out[PIN_ADDRS_MAX];
	struct host name;
	uint32_t n, ttl;
	uint8_t rcode;

	if (host_parse(&name, span_str("a.example")) != REASON_NONE)
		abort();
	for (unsigned i = 0; i < 2; i++) {
		if (message_addrs(span_of(data, len), &name, types[i], out,
		    &n, &ttl, &rcode) == PARSE_DONE && n > PIN_ADDRS_MAX)
			abort();
	}
	return 0;
}
