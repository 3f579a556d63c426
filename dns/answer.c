/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/answer.h"

#define WALK_MAX 512u		/* records in one section */
#define SOA_TAIL_BYTES 20u

void
answer_none(struct answer *a, uint16_t type, enum reason why)
{
	memset(a, 0, sizeof(*a));
	a->type = type;
	a->reason = why;
}

/* ---- putting together ---- */

static bool
put_item(struct answer *a, const uint8_t *bytes, size_t n)
{
	if (n > UINT16_MAX || a->len + 2 + n > ANSWER_DATA_MAX_BYTES)
		return false;
	a->data[a->len++] = (uint8_t)(n >> 8);
	a->data[a->len++] = (uint8_t)n;
	memcpy(a->data + a->len, bytes, n);
	a->len += (uint32_t)n;
	return true;
}

static bool
next_item(const struct answer *a, size_t *at, size_t end, struct span *out)
{
	struct span rest = span_of(a->data + *at, end - *at);

	if (!span_vec16(&rest, out))
		return false;
	*at = end - rest.len;
	return true;
}

bool
answer_next(const struct answer *a, size_t *at, struct span *rdata)
{
	if (*at < a->links_len)
		*at = a->links_len;
	return next_item(a, at, a->len, rdata);
}

bool
answer_next_link(const struct answer *a, size_t *at, struct span *name)
{
	return next_item(a, at, a->links_len, name);
}

bool
answer_last_link(const struct answer *a, struct host *out)
{
	struct span name = { 0 };
	size_t at = 0, from = 0;

	while (answer_next_link(a, &at, &name))
		continue;
	return name.len > 0 && wire_host(name, &from, out) && out->len > 0;
}

struct addr
answer_addr(const struct answer *a, unsigned i)
{
	size_t n = a->type == TYPE_A ? 4 : 16;
	const uint8_t *at = a->data + a->links_len + i * (2 + n) + 2;

	return n == 4 ? addr_from_v4(at) : addr_from_v6(at);
}

static unsigned
records_max(const struct answer *a)
{
	return a->type == TYPE_A || a->type == TYPE_AAAA ?
	    ANSWER_ADDRS_MAX : ANSWER_RECORDS_MAX;
}

bool
answer_put(struct answer *a, struct span rdata)
{
	if (a->n_records == records_max(a) ||
	    !put_item(a, rdata.data, rdata.len))
		return false;
	a->n_records++;
	return true;
}

void
answer_put_links(struct answer *a, const struct answer *from)
{
	memcpy(a->data, from->data, from->links_len);
	a->len = a->links_len = from->links_len;
	a->n_links = from->n_links;
	a->n_records = 0;
}

static bool
is_there(const struct answer *a, const uint8_t *bytes, size_t n)
{
	struct span old;

	for (size_t at = 0; answer_next(a, &at, &old);)
		if (span_eq(old, span_of(bytes, n)))
			return true;
	return false;
}

static void
lower_ttl(struct answer *a, uint32_t ttl_s)
{
	if (ttl_s < a->ttl_s)
		a->ttl_s = ttl_s;
}

/* ---- aliases ---- */

static bool
was_there(const struct answer *a, const uint8_t *name, size_t len)
{
	struct span old;

	for (size_t at = 0; answer_next_link(a, &at, &old);)
		if (span_eq(old, span_of(name, len)))
			return true;
	return false;
}

/* One link more, in its canonical form. */
static bool
put_link(struct answer *a, const struct host *name)
{
	uint8_t bytes[WIRE_NAME_MAX_BYTES];
	struct wire_writer w = { .out = bytes, .size = sizeof(bytes) };

	wire_put_host(&w, name);
	if (a->n_links == ANSWER_LINKS_MAX || was_there(a, bytes, w.at) ||
	    !put_item(a, bytes, w.at))
		return false;
	a->links_len = a->len;
	a->n_links++;
	return true;
}

enum step { STEP_BAD = 0, STEP_END, STEP_LINK };

/* The alias of `name` in the answers, which it becomes. */
static enum step
follow(struct span msg, size_t at, unsigned n, struct host *name,
    struct answer *a)
{
	for (unsigned i = 0; i < n; i++) {
		struct wire_record r;
		size_t data;

		if (!wire_record(msg, &at, &r))
			return STEP_BAD;
		if (r.type != TYPE_CNAME || r.class != 1 ||
		    !host_eq(&r.owner, name))
			continue;
		data = r.data_at;
		if (!wire_host(msg, &data, name) || name->len == 0 ||
		    data != r.data_at + r.data.len || !put_link(a, name))
			return STEP_BAD;
		lower_ttl(a, r.ttl_s);
		return STEP_LINK;
	}
	return STEP_END;
}

/* ---- records ---- */

/* How the data of a type begins, how many names follow, and how it ends
 * (RFC 1035 3.3, RFC 2782): the types in which names may be shortened. */
struct form {
	uint16_t type;
	uint8_t head, names, tail;
};

static const struct form *
form_of(uint16_t type)
{
	static const struct form forms[] = {
		{ TYPE_NS, 0, 1, 0 }, { TYPE_CNAME, 0, 1, 0 },
		{ TYPE_PTR, 0, 1, 0 }, { TYPE_MX, 2, 1, 0 },
		{ TYPE_SRV, 6, 1, 0 }, { TYPE_SOA, 0, 2, SOA_TAIL_BYTES },
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (forms[i].type == type)
			return &forms[i];
	return NULL;
}

/* The data with its names whole. */
static bool
unfold(struct span msg, const struct wire_record *r, const struct form *f,
    uint8_t *out, size_t *len)
{
	size_t at = r->data_at + f->head, end = r->data_at + r->data.len, n;

	if (r->data.len < f->head)
		return false;
	memcpy(out, r->data.data, f->head);
	*len = f->head;
	for (unsigned i = 0; i < f->names; i++) {
		if (at >= end || !wire_name(msg, &at, out + *len, &n))
			return false;
		*len += n;
	}
	if (at + f->tail != end)
		return false;
	memcpy(out + *len, msg.data + at, f->tail);
	*len += f->tail;
	return true;
}

/* Strings with a length in front, one at least (RFC 1035 3.3.14). */
static bool
is_text(struct span data)
{
	struct span one;

	do
		if (!span_vec8(&data, &one))
			return false;
	while (data.len > 0);
	return true;
}

static bool
is_sound(const struct wire_record *r)
{
	switch (r->type) {
	case TYPE_A:
		return r->data.len == 4;
	case TYPE_AAAA:
		return r->data.len == 16;
	case TYPE_TXT:
		return is_text(r->data);
	case TYPE_CAA:
		return r->data.len > 2 && r->data.data[1] > 0 &&
		    2u + r->data.data[1] <= r->data.len;
	default:
		return true;
	}
}

static bool
put_record(struct span msg, const struct wire_record *r, struct answer *a)
{
	uint8_t room[6 + 2 * WIRE_NAME_MAX_BYTES + SOA_TAIL_BYTES];
	const struct form *f = form_of(r->type);
	const uint8_t *bytes = r->data.data;
	size_t len = r->data.len;

	if (!is_sound(r))
		return false;
	if (f != NULL) {
		if (!unfold(msg, r, f, room, &len))
			return false;
		bytes = room;
	}
	lower_ttl(a, r->ttl_s);
	return is_there(a, bytes, len) || a->n_records == records_max(a) ||
	    answer_put(a, span_of(bytes, len));
}

static bool
collect(struct span msg, size_t at, unsigned n, const struct host *name,
    struct answer *a)
{
	for (unsigned i = 0; i < n; i++) {
		struct wire_record r;

		if (!wire_record(msg, &at, &r))
			return false;
		if (r.type == a->type && r.class == 1 &&
		    host_eq(&r.owner, name) && !put_record(msg, &r, a))
			return false;
	}
	return true;
}

/* ---- a no ---- */

/* How long it may be kept: the SOA of the authority section (RFC 2308 5);
 * false when there is none. */
static bool
negative_ttl(struct span msg, size_t at, const struct wire_header *h,
    uint32_t *ttl_s)
{
	struct wire_record r;

	for (unsigned i = 0; i < h->answers; i++)
		if (!wire_record(msg, &at, &r))
			return false;
	for (unsigned i = 0; i < h->authority && i < WALK_MAX; i++) {
		struct span last;

		if (!wire_record(msg, &at, &r))
			return false;
		if (r.type != TYPE_SOA || r.data.len < SOA_TAIL_BYTES + 2)
			continue;
		last = span_of(r.data.data + r.data.len - 4, 4);
		if (!span_u32(&last, ttl_s))
			return false;
		if (r.ttl_s < *ttl_s)
			*ttl_s = r.ttl_s;
		return true;
	}
	return false;
}

/* An alias that this reply has put behind the `had` that were there is asked
 * for next.  One that was asked for already has nothing. */
static void
say_no(struct span msg, size_t at, const struct wire_header *h, uint8_t had,
    struct answer *a)
{
	uint32_t ttl_s = 0;
	bool soa = negative_ttl(msg, at, h, &ttl_s);

	a->reason = (h->flags & 15) == RCODE_NXDOMAIN ?
	    REASON_DNS_NXDOMAIN : REASON_DNS_NODATA;
	a->unfinished = !soa && a->n_links > had &&
	    a->reason == REASON_DNS_NODATA;
	if (!a->unfinished)
		lower_ttl(a, ttl_s);
}

/* ---- a reply ---- */

static bool
skip_question(struct span msg, size_t *at)
{
	struct host name;

	if (!wire_host(msg, at, &name) || *at + 4 > msg.len)
		return false;
	*at += 4;
	return true;
}

static bool
read_reply(struct span msg, const struct host *asked, struct answer *a)
{
	struct host name = *asked;
	enum step step = STEP_LINK;
	uint8_t had = a->n_links;
	size_t at = WIRE_HEADER_BYTES;
	struct span rest = msg;
	struct wire_header h;

	if (!wire_header(&rest, &h) || h.questions != 1 ||
	    h.answers > WALK_MAX || !skip_question(msg, &at))
		return false;
	while (a->type != TYPE_CNAME && step == STEP_LINK)
		step = follow(msg, at, h.answers, &name, a);
	if (step == STEP_BAD || !collect(msg, at, h.answers, &name, a))
		return false;
	if (a->n_records == 0)
		say_no(msg, at, &h, had, a);
	return true;
}

bool
answer_read(struct span msg, const struct host *name, uint16_t type,
    bool more, union answer_room *out)
{
	struct answer *a = &out->answer;

	if (!more) {
		answer_none(a, type, REASON_NONE);
		a->ttl_s = ANSWER_TTL_MAX_S;
	}
	a->reason = REASON_NONE;
	a->unfinished = false;
	if (read_reply(msg, name, a))
		return true;
	answer_none(a, type, REASON_DNS_SERVFAIL);
	return false;
}
