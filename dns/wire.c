/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/wire.h"

#define POINTER 0xc0
#define HOPS_MAX 64u		/* pointers in one name */

bool
wire_header(struct span *s, struct wire_header *h)
{
	return span_u16(s, &h->id) && span_u16(s, &h->flags) &&
	    span_u16(s, &h->questions) && span_u16(s, &h->answers) &&
	    span_u16(s, &h->authority) && span_u16(s, &h->additional);
}

/* A name while it is read. */
struct reader {
	size_t pos;
	size_t end;	/* behind the name where it stands; 0: not known */
	size_t len;	/* of what was read */
};

/* Pointers must point backwards, so a loop ends (RFC 1035 4.1.4). */
static bool
follow(struct span msg, struct reader *r)
{
	size_t to;

	if (r->pos + 1 >= msg.len)
		return false;
	to = (size_t)(msg.data[r->pos] & 0x3f) << 8 | msg.data[r->pos + 1];
	if (to >= r->pos || to < WIRE_HEADER_BYTES)
		return false;
	if (r->end == 0)
		r->end = r->pos + 2;
	r->pos = to;
	return true;
}

bool
wire_name(struct span msg, size_t *at, uint8_t out[static WIRE_NAME_MAX_BYTES],
    size_t *len)
{
	struct reader r = { .pos = *at };

	for (unsigned hops = 0; hops < HOPS_MAX;) {
		size_t n;

		if (r.pos >= msg.len)
			return false;
		n = msg.data[r.pos];
		if ((n & POINTER) == POINTER) {
			if (!follow(msg, &r))
				return false;
			hops++;
			continue;
		}
		if (n > 63 || r.pos + 1 + n > msg.len ||
		    r.len + 1 + n > WIRE_NAME_MAX_BYTES - (n > 0))
			return false;
		memcpy(out + r.len, msg.data + r.pos, 1 + n);
		r.len += 1 + n;
		r.pos += 1 + n;
		if (n == 0) {
			*at = r.end != 0 ? r.end : r.pos;
			*len = r.len;
			return true;
		}
	}
	return false;
}

bool
wire_host(struct span msg, size_t *at, struct host *out)
{
	uint8_t name[WIRE_NAME_MAX_BYTES], text[WIRE_NAME_MAX_BYTES];
	size_t name_len, len = 0;

	memset(out, 0, sizeof(*out));
	if (!wire_name(msg, at, name, &name_len))
		return false;
	for (size_t i = 0; name[i] != 0; i += 1u + name[i]) {
		/* a dot within a label is no host name's */
		if (memchr(name + i + 1, '.', name[i]) != NULL)
			return true;
		if (len > 0)
			text[len++] = '.';
		memcpy(text + len, name + i + 1, name[i]);
		len += name[i];
	}
	if (len > 0 && host_parse(out, span_of(text, len)) != REASON_NONE)
		memset(out, 0, sizeof(*out));
	return true;
}

bool
wire_record(struct span msg, size_t *at, struct wire_record *out)
{
	struct span rest;

	if (!wire_host(msg, at, &out->owner))
		return false;
	rest = span_of(msg.data + *at, msg.len - *at);
	if (!span_u16(&rest, &out->type) || !span_u16(&rest, &out->class) ||
	    !span_u32(&rest, &out->ttl_s) || !span_vec16(&rest, &out->data))
		return false;
	if (out->ttl_s >> 31)
		out->ttl_s = 0;
	out->data_at = (size_t)(out->data.data - msg.data);
	*at = msg.len - rest.len;
	return true;
}

/* ---- writing ---- */

void
wire_put16(struct wire_writer *w, unsigned v)
{
	uint8_t b[2] = { (uint8_t)(v >> 8), (uint8_t)v };

	wire_put(w, b, 2);
}

void
wire_put32(struct wire_writer *w, uint32_t v)
{
	wire_put16(w, v >> 16);
	wire_put16(w, v & 0xffff);
}

void
wire_patch16(struct wire_writer *w, size_t at, unsigned v)
{
	w->out[at] = (uint8_t)(v >> 8);
	w->out[at + 1] = (uint8_t)v;
}

void
wire_put_host(struct wire_writer *w, const struct host *name)
{
	const char *at = name->name, *end = at + name->len;

	while (at < end) {
		size_t n = strcspn(at, ".");

		w->out[w->at++] = (uint8_t)n;
		wire_put(w, at, n);
		at += n + 1;	/* the dot, or behind the end */
	}
	w->out[w->at++] = 0;
}
