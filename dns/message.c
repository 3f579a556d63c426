/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/message.h"

#define HEADER_BYTES 12u
#define LABEL_POINTER 0xc0
#define FLAG_QR 0x8000
#define FLAG_AA 0x0400
#define FLAG_TC 0x0200
#define FLAG_RD 0x0100
#define FLAG_RA 0x0080
#define FLAG_CD 0x0010
#define UDP_BYTES 1232u		/* what we say that we take */
#define OPTION_PADDING 12
#define OPTION_EDE 15
#define HOPS_MAX 64u		/* compression pointers in one name */
#define RECORDS_MAX 512u	/* walked in one section */

struct header {
	uint16_t id, flags, questions, answers, authority, additional;
};

static bool
read_header(struct span *s, struct header *h)
{
	return span_u16(s, &h->id) && span_u16(s, &h->flags) &&
	    span_u16(s, &h->questions) && span_u16(s, &h->answers) &&
	    span_u16(s, &h->authority) && span_u16(s, &h->additional);
}

/* ---- names ---- */

/* A name while it is read: its text, and where reading goes on. */
struct name_reader {
	uint8_t text[MESSAGE_QNAME_MAX_BYTES + 1];
	size_t pos, len;
	size_t end;	/* behind the name where it stands; 0: not known */
	bool odd;		/* a label holds a dot: no host name */
};

/* Pointers must point backwards, so a loop ends (RFC 1035 4.1.4). */
static bool
follow_pointer(struct span msg, struct name_reader *r)
{
	size_t to;

	if (r->pos + 1 >= msg.len)
		return false;
	to = (size_t)(msg.data[r->pos] & 0x3f) << 8 | msg.data[r->pos + 1];
	if (to >= r->pos || to < HEADER_BYTES)
		return false;
	if (r->end == 0)
		r->end = r->pos + 2;
	r->pos = to;
	return true;
}

static bool
take_label(struct span msg, struct name_reader *r)
{
	size_t n = msg.data[r->pos];

	if (n > 63 || r->pos + 1 + n > msg.len || r->len + n + 1 > 254)
		return false;
	r->odd |= memchr(msg.data + r->pos + 1, '.', n) != NULL;
	memcpy(r->text + r->len, msg.data + r->pos + 1, n);
	r->len += n;
	r->text[r->len++] = '.';
	r->pos += 1 + n;
	return true;
}

/*
 * The name at *at in msg as a host; *at moves behind it.  Pointers are
 * counted.  False when the bytes are no name at all.  A name that is no host
 * name (other characters, too long) gives len 0.
 */
static bool
read_name(struct span msg, size_t *at, struct host *out)
{
	struct name_reader r = { .pos = *at };

	for (unsigned hops = 0; hops < HOPS_MAX;) {
		if (r.pos >= msg.len)
			return false;
		if ((msg.data[r.pos] & LABEL_POINTER) == LABEL_POINTER) {
			if (!follow_pointer(msg, &r))
				return false;
			hops++;
			continue;
		}
		if (msg.data[r.pos] == 0) {
			*at = r.end != 0 ? r.end : r.pos + 1;
			memset(out, 0, sizeof(*out));
			if (!r.odd && r.len > 0 && host_parse(out,
			    span_of(r.text, r.len - 1)) != REASON_NONE)
				memset(out, 0, sizeof(*out));
			return true;
		}
		if (!take_label(msg, &r))
			return false;
	}
	return false;
}

/* The question's name in wire form, case kept; no pointers in a query. */
static bool
read_qname(struct span *s, struct message_question *q)
{
	size_t len = 0;

	for (;;) {
		struct span label;
		uint8_t n;

		if (!span_u8(s, &n) || n > 63 ||
		    len + n + 1 > MESSAGE_QNAME_MAX_BYTES ||
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

static void
qname_host(struct message_question *q)
{
	uint8_t text[MESSAGE_QNAME_MAX_BYTES];
	size_t len = 0;

	memset(&q->name, 0, sizeof(q->name));
	for (size_t at = 0; q->qname[at] != 0; at += 1u + q->qname[at]) {
		if (len > 0)
			text[len++] = '.';
		if (memchr(q->qname + at + 1, '.', q->qname[at]) != NULL)
			return;
		memcpy(text + len, q->qname + at + 1, q->qname[at]);
		len += q->qname[at];
	}
	if (len > 0 &&
	    host_parse(&q->name, span_of(text, len)) != REASON_NONE)
		memset(&q->name, 0, sizeof(q->name));
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
	struct header h;

	memset(out, 0, sizeof(*out));
	*id_known = false;
	if (!read_header(&msg, &h) || (h.flags & FLAG_QR) != 0)
		return PARSE_BAD;
	*id_known = true;
	out->id = h.id;
	out->opcode = (uint8_t)(h.flags >> 11 & 15);
	out->rd = (h.flags & FLAG_RD) != 0;
	out->cd = (h.flags & FLAG_CD) != 0;
	out->udp_bytes = 512;
	if (h.questions != 1 || h.answers != 0 || h.authority != 0 ||
	    h.additional > 1 || !read_qname(&msg, out) ||
	    !span_u16(&msg, &out->type) || !span_u16(&msg, &out->class) ||
	    !read_additional(&msg, h.additional, out) || msg.len != 0)
		return PARSE_BAD;
	qname_host(out);
	return PARSE_DONE;
}

/* ---- replies ---- */

struct writer {
	uint8_t *out;
	size_t size, at;
};

static bool
fits(const struct writer *w, size_t n)
{
	return w->size - w->at >= n;
}

static void
put(struct writer *w, const void *bytes, size_t n)
{
	memcpy(w->out + w->at, bytes, n);
	w->at += n;
}

static void
put16(struct writer *w, unsigned v)
{
	uint8_t b[2] = { (uint8_t)(v >> 8), (uint8_t)v };

	put(w, b, 2);
}

static void
put32(struct writer *w, uint32_t v)
{
	put16(w, v >> 16);
	put16(w, v & 0xffff);
}

static void
patch16(struct writer *w, size_t at, unsigned v)
{
	w->out[at] = (uint8_t)(v >> 8);
	w->out[at + 1] = (uint8_t)v;
}

static bool
put_address(struct writer *w, const struct message_question *q,
    const struct addr *a, uint32_t ttl_s)
{
	bool v4 = addr_is_v4(a);
	size_t n = v4 ? 4 : 16;

	if (!fits(w, 12 + n))
		return false;
	put16(w, 0xc000 | HEADER_BYTES);
	put16(w, q->type);
	put16(w, 1);
	put32(w, ttl_s);
	put16(w, (unsigned)n);
	put(w, v4 ? a->b + 12 : a->b, n);
	return true;
}

/* A SOA of our own, so that caches keep the no just as long as we say
 * (RFC 2308 3). */
static bool
put_soa(struct writer *w, uint32_t ttl_s)
{
	static const uint8_t mname[] = { 8, 'p', 'e', 'n', 's', 't', 'o',
		'c', 'k', 7, 'i', 'n', 'v', 'a', 'l', 'i', 'd', 0 };

	if (!fits(w, 12 + sizeof(mname) + 2 + 20))
		return false;
	put16(w, 0xc000 | HEADER_BYTES);
	put16(w, TYPE_SOA);
	put16(w, 1);
	put32(w, ttl_s);
	put16(w, (unsigned)(sizeof(mname) + 2 + 20));
	put(w, mname, sizeof(mname));
	/* the mailbox is the same name: a pointer to it */
	put16(w, 0xc000 | (unsigned)(w->at - sizeof(mname)));
	put32(w, 1);
	put32(w, 3600);
	put32(w, 600);
	put32(w, 86400);
	put32(w, ttl_s);
	return true;
}

static bool
put_opt(struct writer *w, const struct message_answer *a)
{
	size_t text = a->ede_text != NULL ? strlen(a->ede_text) : 0;
	size_t option = a->ede >= 0 ? 4 + 2 + text : 0;

	if (!fits(w, 11 + option)) {
		option = 0;
		if (!fits(w, 11))
			return false;
	}
	put(w, "", 1);
	put16(w, TYPE_OPT);
	put16(w, UDP_BYTES);
	put32(w, (uint32_t)(a->rcode >> 4) << 24);
	put16(w, (unsigned)option);
	if (option > 0) {
		put16(w, OPTION_EDE);
		put16(w, (unsigned)(2 + text));
		put16(w, (unsigned)a->ede);
		if (text > 0)
			put(w, a->ede_text, text);
	}
	return true;
}

size_t
message_reply(const struct message_question *q,
    const struct message_answer *a, uint8_t *out, size_t size)
{
	struct writer w = { .out = out, .size = size };
	unsigned flags = FLAG_QR | FLAG_RA | (q->rd ? FLAG_RD : 0) |
	    (q->cd ? FLAG_CD : 0) | (a->authoritative ? FLAG_AA : 0) |
	    (unsigned)q->opcode << 11 | ((unsigned)a->rcode & 15);
	unsigned n = 0, tail = q->edns ? 11 : 0;

	if (size < HEADER_BYTES + q->qname_len + 4u + tail)
		return 0;
	put16(&w, q->id);
	put16(&w, flags);
	put16(&w, 1);
	put16(&w, 0);
	put32(&w, 0);
	put(&w, q->qname, q->qname_len);
	put16(&w, q->type);
	put16(&w, q->class);
	w.size -= tail;		/* the OPT record always fits */
	while (n < a->n_addrs && put_address(&w, q, &a->addrs[n], a->ttl_s))
		n++;
	if (n < a->n_addrs)
		patch16(&w, 2, flags | FLAG_TC);
	patch16(&w, 6, n);
	if (a->negative_soa && put_soa(&w, a->ttl_s))
		patch16(&w, 8, 1);
	w.size += tail;
	if (q->edns && put_opt(&w, a))
		patch16(&w, 10, 1);
	return w.at;
}

/* ---- queries of our own ---- */

static void
put_name(struct writer *w, const struct host *name,
    const uint8_t capitals[static 32])
{
	const char *at = name->name, *end = at + name->len;

	while (at < end) {
		size_t n = strcspn(at, ".");

		w->out[w->at++] = (uint8_t)n;
		for (; n > 0; n--, at++) {
			size_t bit = (size_t)(at - name->name);
			bool up = capitals[bit / 8] >> bit % 8 & 1;

			w->out[w->at++] = (uint8_t)(*at >= 'a' &&
			    *at <= 'z' && up ? *at - 'a' + 'A' : *at);
		}
		at++;		/* the dot, or behind the end */
	}
	w->out[w->at++] = 0;
}

static void
put_padding(struct writer *w, unsigned pad_to)
{
	size_t bare = w->at + 11 + 4, pad = (pad_to - bare % pad_to) % pad_to;

	put(w, "", 1);
	put16(w, TYPE_OPT);
	put16(w, UDP_BYTES);
	put32(w, 0);
	put16(w, (unsigned)(4 + pad));
	put16(w, OPTION_PADDING);
	put16(w, (unsigned)pad);
	memset(w->out + w->at, 0, pad);
	w->at += pad;
}

size_t
message_ask(const struct host *name, uint16_t type, uint16_t id,
    const uint8_t capitals[static 32], unsigned pad_to,
    uint8_t out[static MESSAGE_ASK_MAX_BYTES])
{
	static const struct message_answer plain = { .ede = -1 };
	struct writer w = { .out = out, .size = MESSAGE_ASK_MAX_BYTES };

	put16(&w, id);
	put16(&w, FLAG_RD);
	put16(&w, 1);
	put32(&w, 0);
	put16(&w, 1);
	put_name(&w, name, capitals);
	put16(&w, type);
	put16(&w, 1);
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

	rest.data += HEADER_BYTES;
	rest.len -= HEADER_BYTES;
	if (!read_qname(&rest, &q))
		return MESSAGE_OTHER;
	n = q.qname_len + 4u;
	if (reply.len < HEADER_BYTES + n || (reply.data[2] & 0x80) == 0 ||
	    reply.data[4] != 0 || reply.data[5] != 1 ||
	    memcmp(reply.data, query.data, 2) != 0 ||
	    memcmp(reply.data + HEADER_BYTES + q.qname_len, rest.data, 4) != 0)
		return MESSAGE_OTHER;
	for (size_t i = HEADER_BYTES; i < HEADER_BYTES + q.qname_len; i++) {
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
	if (msg.len < HEADER_BYTES || size < HEADER_BYTES)
		return 0;
	memset(out, 0, HEADER_BYTES);
	memcpy(out, msg.data, 2);
	out[2] = (uint8_t)(0x80 | (msg.data[2] & 0x79));
	out[3] = (msg.data[2] >> 3 & 15) != 0 ? RCODE_NOTIMP : RCODE_FORMERR;
	return HEADER_BYTES;
}

/* ---- answers from upstream ---- */

struct rr {
	struct host name;
	uint16_t type, class;
	uint32_t ttl;
	size_t data_at;
	struct span data;
};

static bool
read_rr(struct span msg, size_t *at, struct rr *rr)
{
	struct span rest;

	if (!read_name(msg, at, &rr->name))
		return false;
	rest = span_of(msg.data + *at, msg.len - *at);
	if (!span_u16(&rest, &rr->type) || !span_u16(&rest, &rr->class) ||
	    !span_u32(&rest, &rr->ttl) || !span_vec16(&rest, &rr->data))
		return false;
	/* RFC 2181 8: the top bit means zero */
	if (rr->ttl >> 31)
		rr->ttl = 0;
	rr->data_at = (size_t)(rr->data.data - msg.data);
	*at = msg.len - rest.len;
	return true;
}

static void
lower_ttl(uint32_t *ttl, uint32_t other)
{
	if (other < *ttl)
		*ttl = other;
}

/* The alias of `name` in the answers; false when there is none. */
static bool
find_alias(struct span msg, size_t at, unsigned n, struct host *name,
    uint32_t *ttl, bool *sound)
{
	for (unsigned i = 0; i < n; i++) {
		struct rr rr;
		size_t data;

		if (!read_rr(msg, &at, &rr)) {
			*sound = false;
			return false;
		}
		if (rr.type != TYPE_CNAME || rr.class != 1 ||
		    !host_eq(&rr.name, name))
			continue;
		data = rr.data_at;
		if (!read_name(msg, &data, name) ||
		    data != rr.data_at + rr.data.len || name->len == 0) {
			*sound = false;
			return false;
		}
		lower_ttl(ttl, rr.ttl);
		return true;
	}
	return false;
}

static bool
collect(struct span msg, size_t at, unsigned n, const struct host *name,
    uint16_t type, struct addr out[static PIN_ADDRS_MAX], uint32_t *found,
    uint32_t *ttl)
{
	for (unsigned i = 0; i < n; i++) {
		struct rr rr;

		if (!read_rr(msg, &at, &rr))
			return false;
		if (rr.type != type || rr.class != 1 ||
		    !host_eq(&rr.name, name))
			continue;
		if (rr.data.len != (type == TYPE_A ? 4u : 16u))
			return false;
		lower_ttl(ttl, rr.ttl);
		if (*found < PIN_ADDRS_MAX)
			out[(*found)++] = type == TYPE_A ?
			    addr_from_v4(rr.data.data) :
			    addr_from_v6(rr.data.data);
	}
	return true;
}

/* How long a no may be kept: the SOA of the authority section (RFC 2308 5);
 * 0 when there is none. */
static uint32_t
negative_ttl(struct span msg, size_t at, const struct header *h)
{
	struct rr rr;

	for (unsigned i = 0; i < h->answers; i++)
		if (!read_rr(msg, &at, &rr))
			return 0;
	for (unsigned i = 0; i < h->authority && i < RECORDS_MAX; i++) {
		struct span last;
		uint32_t minimum;

		if (!read_rr(msg, &at, &rr))
			return 0;
		if (rr.type != TYPE_SOA || rr.data.len < 22)
			continue;
		last = span_of(rr.data.data + rr.data.len - 4, 4);
		if (!span_u32(&last, &minimum))
			return 0;
		return minimum < rr.ttl ? minimum : rr.ttl;
	}
	return 0;
}

/* The reply must echo the question that was put. */
static bool
same_question(struct span msg, size_t *at, const struct host *name,
    uint16_t type)
{
	struct host asked;
	struct span rest;
	uint16_t t, c;

	if (!read_name(msg, at, &asked) || !host_eq(&asked, name))
		return false;
	rest = span_of(msg.data + *at, msg.len - *at);
	if (!span_u16(&rest, &t) || !span_u16(&rest, &c) || t != type ||
	    c != 1)
		return false;
	*at += 4;
	return true;
}

enum parse
message_addrs(struct span msg, const struct host *name, uint16_t type,
    struct addr out[static PIN_ADDRS_MAX], uint32_t *n, uint32_t *ttl_s,
    uint8_t *rcode)
{
	struct span rest = msg;
	struct host now = *name;
	size_t at = HEADER_BYTES;
	bool sound = true;
	struct header h;

	*n = 0;
	*ttl_s = UINT32_MAX;
	if (!read_header(&rest, &h) || (h.flags & FLAG_QR) == 0 ||
	    h.questions != 1 || h.answers > RECORDS_MAX ||
	    !same_question(msg, &at, name, type))
		return PARSE_BAD;
	*rcode = h.flags & 15;
	for (unsigned hops = 0; find_alias(msg, at, h.answers, &now, ttl_s,
	    &sound); hops++)
		if (hops == MESSAGE_CHAIN_MAX)
			return PARSE_BAD;
	if (!sound || !collect(msg, at, h.answers, &now, type, out, n,
	    ttl_s))
		return PARSE_BAD;
	if (*n == 0)
		*ttl_s = negative_ttl(msg, at, &h);
	return PARSE_DONE;
}
