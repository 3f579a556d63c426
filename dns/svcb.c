/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/svcb.h"

#define KEY_MANDATORY 0
#define KEY_ECH 5

/* A list of keys of which one may have gone; empty, it goes with it. */
static bool
put_mandatory(struct wire_writer *w, struct span keys)
{
	size_t head = w->at;
	uint16_t key;

	wire_put16(w, KEY_MANDATORY);
	wire_put16(w, 0);
	while (keys.len > 0) {
		if (!span_u16(&keys, &key))
			return false;
		if (key != KEY_ECH)
			wire_put16(w, key);
	}
	wire_patch16(w, head + 2, (unsigned)(w->at - head - 4));
	if (w->at == head + 4)
		w->at = head;
	return true;
}

/* What is written is never longer than what is read. */
static bool
strip(struct span rdata, struct wire_writer *w)
{
	uint8_t name[WIRE_NAME_MAX_BYTES];
	uint16_t key;
	struct span value;
	size_t at = 2, len;

	if (rdata.len < 3 || !wire_name(rdata, &at, name, &len))
		return false;
	wire_put(w, rdata.data, 2);
	wire_put(w, name, len);
	rdata = span_of(rdata.data + at, rdata.len - at);
	while (rdata.len > 0) {
		if (!span_u16(&rdata, &key) || !span_vec16(&rdata, &value))
			return false;
		if (key == KEY_MANDATORY && !put_mandatory(w, value))
			return false;
		if (key == KEY_MANDATORY || key == KEY_ECH)
			continue;
		wire_put16(w, key);
		wire_put16(w, (unsigned)value.len);
		wire_put(w, value.data, value.len);
	}
	return true;
}

void
svcb_strip_ech(const struct answer *from, union answer_room *to)
{
	static uint8_t bytes[ANSWER_DATA_MAX_BYTES];
	struct answer *kept = &to->answer;
	struct span rdata;
	size_t at = 0;

	answer_none(kept, from->type, from->reason);
	answer_put_links(kept, from);
	while (answer_next(from, &at, &rdata)) {
		struct wire_writer w = { .out = bytes,
		    .size = sizeof(bytes) };

		if (!strip(rdata, &w) ||
		    !answer_put(kept, span_of(bytes, w.at)))
			continue;
	}
	if (kept->n_records == 0 && kept->reason == REASON_NONE)
		kept->reason = REASON_DNS_NODATA;
}
