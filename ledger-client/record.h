/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_CLIENT_RECORD_H
#define LEDGER_CLIENT_RECORD_H

#include "policy/policy.h"

/*
 * One record, in the fixed form that travels from a producer to the recorder.
 * It explains itself: a reader needs no other record and no policy file.
 */
enum record_kind {
	RECORD_NONE = 0,
	RECORD_START,		/* penstock started; text says how */
	RECORD_POLICY,		/* a generation took effect, or was refused */
	RECORD_DECISION,	/* a connection or request was judged */
	RECORD_END,		/* that connection or request ended */
	RECORD_DNS,		/* a question was judged */
	RECORD_ROLE,		/* a role died or was started again */
	RECORD_GAP,		/* records were lost: count */
	RECORD_STOP,
	RECORD_RULES,		/* the kernel's rules were lost, or are back */
};

/* How a connection came in. */
enum record_via {
	VIA_NONE = 0, VIA_TPROXY, VIA_REDIRECT, VIA_CONNECT, VIA_HTTP,
	VIA_NAMED, VIA_DNS_UDP, VIA_DNS_TCP,
};

/* What showed the name. */
enum record_name_from {
	NAME_FROM_NONE = 0, NAME_FROM_SNI, NAME_FROM_HOST, NAME_FROM_CONNECT,
	NAME_FROM_QUESTION, NAME_FROM_PIN,
};

/* How it ended. */
enum record_how {
	HOW_NONE = 0,
	HOW_FIN,		/* both sides ended in order */
	HOW_RESET_CLIENT, HOW_RESET_UPSTREAM,
	HOW_REFUSED,		/* a decision or failure refused it */
	HOW_CUT,		/* reason says why: idle, policy_changed, ... */
};

/* The strings of a record; each at most 255 bytes. */
enum record_text {
	TEXT_CELL = 0, TEXT_LABELS /* "team=a,run=7" */, TEXT_NAME,
	TEXT_RULE /* id */, TEXT_RULE_FILE, TEXT_RULE_REASON, TEXT_JA4,
	TEXT_ALPN, TEXT_METHOD, TEXT_PATH, TEXT_DETAIL, TEXT_OTHER_NAME,
	TEXT_TRIED /* struct record_try, one behind the other */,
	TEXT_LAB /* "203.0.113.0/24,2001:db8::/32" */,
	TEXT_ANSWERS /* struct addr, one behind the other */,
	TEXT_COUNT,
};
#define RECORD_TEXT_MAX_BYTES 255u
#define RECORD_TEXT_BYTES 1536u

/* RECORD_END: an address that was dialled and is not the one reached; its port
 * is that of `dialled`. */
struct record_try {
	struct addr addr;
	uint8_t reason;			/* enum reason; 0: was under way */
};
#define RECORD_TRIES_MAX 8u		/* further ones are not told */
_Static_assert(sizeof(struct record_try) == sizeof(struct addr) + 1 &&
    RECORD_TRIES_MAX * sizeof(struct record_try) <= RECORD_TEXT_MAX_BYTES,
    "bytes of one text");

/* RECORD_DNS: the addresses that it was told; further ones are not. */
#define RECORD_ANSWERS_MAX 8u

struct record {
	uint16_t kind;			/* enum record_kind */
	uint8_t verdict, would;		/* enum verdict */
	uint16_t reason;		/* enum reason */
	uint8_t via, name_from, how;
	uint8_t rcode;			/* RECORD_DNS: what it was told */
	uint16_t qtype;			/* RECORD_DNS */
	uint16_t status;		/* HTTP status told, or 0 */
	uint32_t rule_line;
	uint32_t count;			/* RECORD_GAP, folded records */
	uint64_t connection;		/* unique in the instance */
	uint64_t request;		/* on that connection, from 1, with each
					 * CONNECT; 0: no HTTP request */
	int64_t wall_us, mono_us;	/* of the event */
	uint64_t generation;
	uint8_t digest[POLICY_DIGEST_BYTES];
	uint64_t bytes_up, bytes_down;
	uint64_t duration_us;		/* RECORD_DNS: until it answered */
	uint64_t lost_up, lost_down;	/* RECORD_END: received, not delivered */
	struct endpoint client, original;
	struct endpoint dialled;	/* RECORD_DECISION: what would be first;
					 * RECORD_DNS: the server that was
					 * asked */
	uint16_t text_len;
	uint8_t text_at_len[TEXT_COUNT];
	uint16_t text_at[TEXT_COUNT];
	char text[RECORD_TEXT_BYTES];	/* only text_len bytes travel */
};

/* Zero all but the text bytes. */
void record_init(struct record *r, enum record_kind kind);

/* Set one string, once; what is longer is cut and ends in "~" (raw bytes are
 * kept; record_json escapes them). */
void record_set(struct record *r, enum record_text which, struct span s);
struct span record_get(const struct record *r, enum record_text which);

/* Bytes that travel: the head and the used text. */
size_t record_size(const struct record *r);

/* Fill cell, labels, rule (id, file, line, reason), generation and digest
 * from the policy. */
void record_policy(struct record *r, const struct policy *p, uint32_t cell,
    uint32_t rule);

/* Both clocks. */
void record_stamp(struct record *r);

/*
 * One JSON object and a newline (ledger(5)): outside bytes escaped, no float,
 * keys in fixed order.  `seq` and `instance` are the recorder's.  Returns
 * the length; out[RECORD_JSON_MAX_BYTES] is always enough.
 */
#define RECORD_JSON_MAX_BYTES 16384u
size_t record_json(const struct record *r, uint64_t seq,
    const char *instance, char out[static RECORD_JSON_MAX_BYTES]);

/* True when the bytes that came out of a ring are a sound record (all
 * offsets in bounds, enums in range): a taken producer may write anything. */
MUST_USE bool record_check(const struct record *r, size_t len);

/* Words of the enums above. */
const char *record_kind_word(enum record_kind k);
const char *record_via_word(enum record_via v);
const char *record_how_word(enum record_how h);

#endif
