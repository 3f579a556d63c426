/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "dns/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A query from a client; what was readable can be answered. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const struct message_answer no = { .rcode = RCODE_NXDOMAIN,
	    .ttl_s = 5, .negative_soa = true, .ede = 15, .ede_text = "no" };
	struct message_question q;
	uint8_t out[1232];
	bool known = false;
	size_t n;

	if (message_query(span_of(data, len), &q, &known) == PARSE_DONE) {
		n = message_reply(&q, &no, out, sizeof(out));
		if (n < 12 || n > sizeof(out))
			abort();
	} else if (known) {
		if (message_unread(span_of(data, len), out,
		    sizeof(out)) < 12)
			abort();
	}
	return 0;
}
