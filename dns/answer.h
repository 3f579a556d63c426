/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_ANSWER_H
#define DNS_ANSWER_H

#include "dns/wire.h"
#include "policy/addr.h"
#include "policy/verdict.h"

/*
 * What a name has of one type: read from a reply, kept in the cache, written
 * to whoever asks.  Plain memory of answer_bytes(a) bytes, to be copied as it
 * is.
 */
#define ANSWER_RECORDS_MAX 64u		/* of the type; further ones are cut */
#define ANSWER_ADDRS_MAX 32u		/* the same for addresses */
#define ANSWER_LINKS_MAX 16u		/* aliases from the name to its owner */
#define ANSWER_DATA_MAX_BYTES 65536u
#define ANSWER_TTL_MAX_S 86400u

struct answer {
	enum reason reason;	/* NONE, DNS_NXDOMAIN, DNS_NODATA,
				 * DNS_SERVFAIL, DNS_TIMEOUT, LIMIT_MEMORY */
	uint16_t type;
	uint8_t n_links;
	bool unfinished;	/* the chain leads to a name that is new
				 * with this reply, which says nothing of it */
	uint16_t n_records;
	uint32_t ttl_s;		/* the least of all; of a no that of its SOA,
				 * 0 without one (RFC 2308 5) */
	uint32_t links_len, len;	/* bytes of data: links, all */
	uint8_t data[];		/* each with 2 bytes of length in front:
				 * names of the links, rdata of the records,
				 * names in both without pointers */
};

/* An answer with room for anything, for whoever reads one. */
union answer_room {
	struct answer answer;
	uint8_t bytes[sizeof(struct answer) + ANSWER_DATA_MAX_BYTES];
};

static inline size_t
answer_bytes(const struct answer *a)
{
	return sizeof(*a) + a->len;
}

/* A no without records. */
void answer_none(struct answer *a, uint16_t type, enum reason why);
/* Just this record more (at most ANSWER_RECORDS_MAX); false: no room. */
MUST_USE bool answer_put(struct answer *a, struct span rdata);
/* The aliases of another one, and no records. */
void answer_put_links(struct answer *a, const struct answer *from);

/*
 * Read a reply whose question is known to be (name, type): follows aliases
 * and keeps the records of the last one's.  Whatever else is in the message
 * (other names, other types, other sections) is not looked at.
 *
 * `more` continues: the links that are in *out already stay, and name is the
 * last of them.  False when the message is malformed, loops or has more links
 * than ANSWER_LINKS_MAX: *out is DNS_SERVFAIL then.
 */
MUST_USE bool answer_read(struct span msg, const struct host *name,
    uint16_t type, bool more, union answer_room *out);
/* The last alias: what to ask for when the answer is unfinished. */
MUST_USE bool answer_last_link(const struct answer *a, struct host *out);

/* The i-th address of an answer of type A or AAAA. */
struct addr answer_addr(const struct answer *a, unsigned i);
/* Its records one after the other: *at is 0 at first; false at the end. */
bool answer_next(const struct answer *a, size_t *at, struct span *rdata);
/* The same for the links, as names in wire form. */
bool answer_next_link(const struct answer *a, size_t *at, struct span *name);

#endif
