/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_MESSAGE_H
#define DNS_MESSAGE_H

#include "dns/answer.h"

/*
 * Queries of clients and the replies to them, and queries of our own (RFC
 * 1035 4, RFC 6891); no sockets.
 */
#define MESSAGE_MAX_BYTES 65535u


struct message_question {
	uint16_t id;
	uint8_t opcode;
	bool rd, cd;
	uint16_t type, class;
	uint8_t qname[WIRE_NAME_MAX_BYTES];	/* wire form, case kept */
	uint8_t qname_len;
	struct host name;	/* canonical; len 0: the root or no host name */
	bool edns;
	uint8_t edns_version;
	bool dnssec_ok;
	uint16_t udp_bytes;	/* what the client takes; 512 without EDNS */
};

/*
 * Read a query.  PARSE_DONE: one question, all sound.  PARSE_BAD with *id
 * set when at least a header was there: answer message_unread; id_known
 * false: drop (responses, too short).
 */
MUST_USE enum parse message_query(struct span msg,
    struct message_question *out, bool *id_known);

/* What to answer. */
struct message_answer {
	enum wire_rcode rcode;
	bool authoritative;
	uint32_t ttl_s;			/* of everything in it */
	const struct answer *records;	/* its aliases and records, or NULL */
	bool negative_soa;	/* put a synthesised SOA in authority */
	int ede;		/* RFC 8914 INFO-CODE, -1: none */
	const char *ede_text;	/* or NULL */
};

/*
 * Write the reply into out[size]; the question is echoed byte for byte,
 * owner names are compressed, TC is set when records had to be left out.
 * Returns the length.
 */
size_t message_reply(const struct message_question *q,
    const struct message_answer *a, uint8_t *out, size_t size);
/* For an unreadable query with a known id: FORMERR, or NOTIMP where its opcode
 * is another one (UPDATE and NOTIFY have other sections).  The header alone. */
size_t message_unread(struct span msg, uint8_t *out, size_t size);
/*
 * Write a query of our own: RD, EDNS with UDP_BYTES; the letters of the name
 * in capitals where `capitals` has a bit (draft-vixie-dnsext-dns0x20).  With
 * pad_to the length is a multiple of it (RFC 7830, 8467), else the OPT record
 * is the last 11 bytes.  Returns the length.
 */
#define MESSAGE_ASK_MAX_BYTES 512u
size_t message_ask(const struct host *name, uint16_t type, uint16_t id,
    const uint8_t capitals[static 32], unsigned pad_to,
    uint8_t out[static MESSAGE_ASK_MAX_BYTES]);
/* Whether a reply echoes the query's question. */
enum message_echo { MESSAGE_OTHER = 0, MESSAGE_OTHER_CASE, MESSAGE_ECHO };
enum message_echo message_echo(struct span query, struct span reply);

#endif
