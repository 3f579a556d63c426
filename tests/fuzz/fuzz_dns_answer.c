/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "dns/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What was read can be walked, and holds what it says. */
static void
walk(const struct answer *a)
{
	unsigned links = 0, records = 0;
	struct span item;

	for (size_t at = 0; answer_next_link(a, &at, &item);)
		links++;
	for (size_t at = 0; answer_next(a, &at, &item);)
		records++;
	if (links != a->n_links || records != a->n_records ||
	    links > ANSWER_LINKS_MAX || records > ANSWER_RECORDS_MAX ||
	    a->ttl_s > ANSWER_TTL_MAX_S)
		abort();
}

/* A reply from upstream to a.example of each type that has a form. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const uint16_t types[] = { TYPE_A, TYPE_AAAA, TYPE_CNAME,
		TYPE_MX, TYPE_SRV, TYPE_SOA, TYPE_TXT, TYPE_CAA, TYPE_HTTPS };
	static union answer_room room;
	struct host name;

	if (host_parse(&name, span_str("a.example")) != REASON_NONE)
		abort();
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (answer_read(span_of(data, len), &name, types[i], false,
		    &room))
			walk(&room.answer);
	}
	return 0;
}
