/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_WIRE_H
#define DNS_WIRE_H

#include "policy/host.h"
#include "policy/span.h"

/*
 * What DNS messages are made of (RFC 1035 4): header, names, records.  Reading
 * is bounded in every way: pointers point backwards and are counted.
 */
#define WIRE_HEADER_BYTES 12u
#define WIRE_NAME_MAX_BYTES 255u

#define WIRE_QR 0x8000
#define WIRE_AA 0x0400
#define WIRE_TC 0x0200
#define WIRE_RD 0x0100
#define WIRE_RA 0x0080
#define WIRE_CD 0x0010

enum wire_type { TYPE_A = 1, TYPE_NS = 2, TYPE_CNAME = 5, TYPE_SOA = 6,
	TYPE_NULL = 10, TYPE_PTR = 12, TYPE_HINFO = 13, TYPE_MX = 15, TYPE_TXT = 16,
	TYPE_AAAA = 28, TYPE_SRV = 33, TYPE_OPT = 41, TYPE_SVCB = 64,
	TYPE_HTTPS = 65, TYPE_AXFR = 252, TYPE_ANY = 255, TYPE_CAA = 257 };
enum wire_rcode { RCODE_NOERROR = 0, RCODE_FORMERR = 1,
	RCODE_SERVFAIL = 2, RCODE_NXDOMAIN = 3, RCODE_NOTIMP = 4,
	RCODE_REFUSED = 5, RCODE_BADVERS = 16 };

struct wire_header {
	uint16_t id, flags, questions, answers, authority, additional;
};

/* One resource record; data views the message. */
struct wire_record {
	struct host owner;	/* len 0: the root, or no host name */
	uint16_t type, class;
	uint32_t ttl_s;		/* top bit set: 0 (RFC 2181 8) */
	size_t data_at;		/* in the message */
	struct span data;
};

MUST_USE bool wire_header(struct span *s, struct wire_header *h);
/* The name at *at as a host name; *at moves behind it.  False: no name.  One
 * that is no host name (other letters, the root) has len 0. */
MUST_USE bool wire_host(struct span msg, size_t *at, struct host *out);
/* The same as bytes without pointers, at most WIRE_NAME_MAX_BYTES; *len is
 * how many. */
MUST_USE bool wire_name(struct span msg, size_t *at,
    uint8_t out[static WIRE_NAME_MAX_BYTES], size_t *len);
MUST_USE bool wire_record(struct span msg, size_t *at,
    struct wire_record *out);

/* ---- writing ---- */

/* at never passes size; who writes asks wire_fits before. */
struct wire_writer {
	uint8_t *out;
	size_t size, at;
};

static inline bool
wire_fits(const struct wire_writer *w, size_t n)
{
	return w->size - w->at >= n;
}

static inline void
wire_put(struct wire_writer *w, const void *bytes, size_t n)
{
	memcpy(w->out + w->at, bytes, n);
	w->at += n;
}

void wire_put16(struct wire_writer *w, unsigned v);
void wire_put32(struct wire_writer *w, uint32_t v);
void wire_patch16(struct wire_writer *w, size_t at, unsigned v);
/* name->len + 2 bytes. */
void wire_put_host(struct wire_writer *w, const struct host *name);

#endif
