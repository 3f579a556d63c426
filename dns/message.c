/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/message.h"

#define UDP_BYTES 1232u		/* what we say that we take */
#define OPTION_PADDING 12
#define OPTION_EDE 15

/* The question's name in wire form, case kept; no pointers in a query. */
static bool
read_qname(struct span *s, struct message_question *q)
{
	size_t len = 0;

	for (;;) {
		struct span label;
		uint8_t n;

		if (!span_u8(s, &n) || n > 63 ||
		    len + n + 1 > WIRE_NAME_MAX_BYTES ||
		    !span_take(s, n, &label))
			return false;
		q->qname[len++] = n;
		if (n == 0)
			break;
		memcpy(q->qname + len, label.data, n);
		len += n;
	}
	q->qname_len = (uint8_t)len;
	return true;
}

/* ---- queries ---- */

/* The OPT pseudo record (RFC 6891 6.1); one at most, at the root. */
static bool
read_additional(struct span *s, uint16_t n, struct message_question *q)
{
	for (uint16_t i = 0; i < n; i++) {
		struct span data;
		uint16_t type, class;
		uint32_t ttl;
		uint8_t root;

		if (!span_u8(s, &root) || root != 0 || !span_u16(s, &type) ||
		    !span_u16(s, &class) || !span_u32(s, &ttl) ||
		    !span_vec16(s, &data) || type != TYPE_OPT || q->edns)
			return false;
		q->edns = true;
		q->edns_version = (uint8_t)(ttl >> 16);
		q->dnssec_ok = (ttl & 0x8000) != 0;
		q->udp_bytes = class < 512 ? 512 : class;
	}
	return true;
}

enum parse
message_query(struct span msg, struct message_question *out, bool *id_known)
{
	struct wire_header h;
	size_t at = 0;

	memset(out, 0, sizeof(*out));
	*id_known = false;
	if (!wire_header(&msg, &h) || (h.flags & WIRE_QR) != 0)
		return PARSE_BAD;
	*id_known = true;
	out->id = h.id;
	out->opcode = (uint8_t)(h.flags >> 11 & 15);
	out->rd = (h.flags & WIRE_RD) != 0;
	out->cd = (h.flags & WIRE_CD) != 0;
	out->udp_bytes = 512;
	if (h.questions != 1 || h.answers != 0 || h.authority != 0 ||
	    h.additional > 1 || !read_qname(&msg, out) ||
	    !span_u16(&msg, &out->type) || !span_u16(&msg, &out->class) ||
	    !read_additional(&msg, h.additional, out) || msg.len != 0)
		return PARSE_BAD;
	return wire_host(span_of(out->qname, out->qname_len), &at,
	    &out->name) ? PARSE_DONE : PARSE_BAD;
}

/* ---- replies ---- */

/* Owner, type, class, TTL, length.  False: no room for these and the data. */
static bool
put_head(struct wire_writer *w, size_t owner, unsigned type, uint32_t ttl_s,
    size_t data)
{
	if (!wire_fits(w, 12 + data))
		return false;
	wire_put16(w, 0xc000 | (unsigned)owner);
	wire_put16(w, type);
	wire_put16(w, 1);
	wire_put32(w, ttl_s);
	wire_put16(w, (unsigned)data);
	return true;
}

/* The aliases and then the records; how many, and whether all. */
static unsigned
put_records(struct wire_writer *w, const struct answer *a, uint32_t ttl_s,
    bool *whole)
{
	size_t owner = WIRE_HEADER_BYTES, at = 0;
	struct span data;
	unsigned n = 0;

	*whole = false;
	while (answer_next_link(a, &at, &data)) {
		if (!put_head(w, owner, TYPE_CNAME, ttl_s, data.len))
			return n;
		owner = w->at;	/* the name that is put now */
		wire_put(w, data.data, data.len);
		n++;
	}
	for (at = 0; answer_next(a, &at, &data); n++) {
		if (!put_head(w, owner, a->type, ttl_s, data.len))
			return n;
		wire_put(w, data.data, data.len);
	}
	*whole = true;
	return n;
}

/* A SOA of our own, so that caches keep the no just as long as we say
 * (RFC 2308 3). */
static bool
put_soa(struct wire_writer *w, uint32_t ttl_s)
{
	static const uint8_t mname[] = { 8, 'p', 'e', 'n', 's', 't', 'o',
		'c', 'k', 7, 'i', 'n', 'v', 'a', 'l', 'i', 'd', 0 };

	if (!wire_fits(w, 12 + sizeof(mname) + 2 + 20))
		return false;
	wire_put16(w, 0xc000 | WIRE_HEADER_BYTES);
	wire_put16(w, TYPE_SOA);
	wire_put16(w, 1);
	wire_put32(w, ttl_s);
	wire_put16(w, (unsigned)(sizeof(mname) + 2 + 20));
	wire_put(w, mname, sizeof(mname));
	/* the mailbox is the same name: a pointer to it */
	wire_put16(w, 0xc000 | (unsigned)(w->at - sizeof(mname)));
	wire_put32(w, 1);
	wire_put32(w, 3600);
	wire_put32(w, 600);
	wire_put32(w, 86400);
	wire_put32(w, ttl_s);
	return true;
}

static bool
put_opt(struct wire_writer *w, const struct message_answer *a)
{
	size_t text = a->ede_text != NULL ? strlen(a->ede_text) : 0;
	size_t option = a->ede >= 0 ? 4 + 2 + text : 0;

	if (!wire_fits(w, 11 + option)) {
		option = 0;
		if (!wire_fits(w, 11))
			return false;
	}
	wire_put(w, "", 1);
	wire_put16(w, TYPE_OPT);
	wire_put16(w, UDP_BYTES);
	wire_put32(w, (uint32_t)(a->rcode >> 4) << 24);
	wire_put16(w, (unsigned)option);
	if (option > 0) {
		wire_put16(w, OPTION_EDE);
		wire_put16(w, (unsigned)(2 + text));
		wire_put16(w, (unsigned)a->ede);
		if (text > 0)
			wire_put(w, a->ede_text, text);
	}
	return true;
}

size_t
message_reply(const struct message_question *q,
    const struct message_answer *a, uint8_t *out, size_t size)
{
	struct wire_writer w = { .out = out, .size = size };
	unsigned flags = WIRE_QR | WIRE_RA | (q->rd ? WIRE_RD : 0) |
	    (q->cd ? WIRE_CD : 0) | (a->authoritative ? WIRE_AA : 0) |
	    (unsigned)q->opcode << 11 | ((unsigned)a->rcode & 15);
	unsigned n, tail = q->edns ? 11 : 0;
	bool whole = true;

	if (size < WIRE_HEADER_BYTES + q->qname_len + 4u + tail)
		return 0;
	wire_put16(&w, q->id);
	wire_put16(&w, flags);
	wire_put16(&w, 1);
	wire_put16(&w, 0);
	wire_put32(&w, 0);
	wire_put(&w, q->qname, q->qname_len);
	wire_put16(&w, q->type);
	wire_put16(&w, q->class);
	w.size -= tail;		/* the OPT record always fits */
	n = a->records == NULL ? 0 :
	    put_records(&w, a->records, a->ttl_s, &whole);
	if (!whole)
		wire_patch16(&w, 2, flags | WIRE_TC);
	wire_patch16(&w, 6, n);
	if (a->negative_soa && put_soa(&w, a->ttl_s))
		wire_patch16(&w, 8, 1);
	w.size += tail;
	if (q->edns && put_opt(&w, a))
		wire_patch16(&w, 10, 1);
	return w.at;
}

/* ---- queries of our own ---- */

/* Letters only: a length is smaller than any. */
static void
capitalise(uint8_t *name, size_t len, const uint8_t capitals[static 32])
{
	for (size_t i = 0; i < len; i++)
		if (name[i] >= 'a' && name[i] <= 'z' &&
		    (capitals[i / 8] >> i % 8 & 1) != 0)
			name[i] = (uint8_t)(name[i] - ('a' - 'A'));
}

static void
put_padding(struct wire_writer *w, unsigned pad_to)
{
	size_t bare = w->at + 11 + 4, pad = (pad_to - bare % pad_to) % pad_to;

	wire_put(w, "", 1);
	wire_put16(w, TYPE_OPT);
	wire_put16(w, UDP_BYTES);
	wire_put32(w, 0);
	wire_put16(w, (unsigned)(4 + pad));
	wire_put16(w, OPTION_PADDING);
	wire_put16(w, (unsigned)pad);
	memset(w->out + w->at, 0, pad);
	w->at += pad;
}

size_t
message_ask(const struct host *name, uint16_t type, uint16_t id,
    const uint8_t capitals[static 32], unsigned pad_to,
    uint8_t out[static MESSAGE_ASK_MAX_BYTES])
{
	static const struct message_answer plain = { .ede = -1 };
	struct wire_writer w = { .out = out, .size = MESSAGE_ASK_MAX_BYTES };

	wire_put16(&w, id);
	wire_put16(&w, WIRE_RD);
	wire_put16(&w, 1);
	wire_put32(&w, 0);
	wire_put16(&w, 1);
	wire_put_host(&w, name);
	capitalise(out + WIRE_HEADER_BYTES, w.at - WIRE_HEADER_BYTES,
	    capitals);
	wire_put16(&w, type);
	wire_put16(&w, 1);
	if (pad_to > 0)
		put_padding(&w, pad_to);
	else
		put_opt(&w, &plain);
	return w.at;
}

static uint8_t
lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

enum message_echo
message_echo(struct span query, struct span reply)
{
	enum message_echo got = MESSAGE_ECHO;
	struct span rest = query;
	struct message_question q;
	size_t n;

	rest.data += WIRE_HEADER_BYTES;
	rest.len -= WIRE_HEADER_BYTES;
	if (!read_qname(&rest, &q))
		return MESSAGE_OTHER;
	n = q.qname_len + 4u;
	if (reply.len < WIRE_HEADER_BYTES + n || (reply.data[2] & 0x80) == 0 ||
	    reply.data[4] != 0 || reply.data[5] != 1 ||
	    memcmp(reply.data, query.data, 2) != 0 ||
	    memcmp(reply.data + WIRE_HEADER_BYTES + q.qname_len, rest.data,
	    4) != 0)
		return MESSAGE_OTHER;
	for (size_t i = WIRE_HEADER_BYTES;
	    i < WIRE_HEADER_BYTES + q.qname_len; i++) {
		if (lower(reply.data[i]) != lower(query.data[i]))
			return MESSAGE_OTHER;
		if (reply.data[i] != query.data[i])
			got = MESSAGE_OTHER_CASE;
	}
	return got;
}

size_t
message_unread(struct span msg, uint8_t *out, size_t size)
{
	if (msg.len < WIRE_HEADER_BYTES || size < WIRE_HEADER_BYTES)
		return 0;
	memset(out, 0, WIRE_HEADER_BYTES);
	memcpy(out, msg.data, 2);
	out[2] = (uint8_t)(0x80 | (msg.data[2] & 0x79));
	out[3] = (msg.data[2] >> 3 & 15) != 0 ? RCODE_NOTIMP : RCODE_FORMERR;
	return WIRE_HEADER_BYTES;
}
