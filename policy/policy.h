/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_POLICY_H
#define POLICY_POLICY_H

#include "policy/addr.h"
#include "policy/charter.h"
#include "policy/host.h"
#include "policy/problem.h"
#include "policy/server.h"
#include "policy/verdict.h"

#define POLICY_DIGEST_BYTES 32
#define POLICY_ID_BYTES 64	/* cell ids, rule ids, label values: at most
				 * 63 bytes of [A-Za-z0-9._:/@-] */
#define POLICY_LABELS_MAX 8
#define POLICY_CELLS_MAX 4096
#define POLICY_RESOLVERS_MAX 8
#define POLICY_OWN_MAX 256u	/* more is an error */
#define CELL_NONE UINT32_MAX
#define RULE_NONE UINT32_MAX

/*
 * A compiled policy: an image of offsets without pointers, made by the
 * compile role, mapped read-only by every other.  It holds all cells of the
 * daemon, their rules, and an opaque section of settings that belongs to the
 * layer above.
 */
struct policy;

/* How a connection is attributed to a cell. */
enum cell_from_kind {
	CELL_FROM_ANY,		/* the only cell: a sidecar */
	CELL_FROM_NET,		/* interface and/or prefix */
	CELL_FROM_LISTENER,	/* whatever arrives on the named listener */
	CELL_FROM_CREDENTIAL,	/* who shows this proxy credential */
};

struct cell_from {
	enum cell_from_kind kind;
	char interface[16];	/* empty: any */
	bool has_prefix;
	struct prefix prefix;
	char listener[32];
	uint8_t token_hash[32];	/* BLAKE2b-256 of the token */
};

struct cell_label {
	char key[POLICY_ID_BYTES];
	char value[POLICY_ID_BYTES];
};

/* ---- building (compile role only) ---- */

struct policy_cell_source {
	char id[POLICY_ID_BYTES];
	struct cell_label labels[POLICY_LABELS_MAX];
	size_t n_labels;
	struct cell_from from;
	const struct charter *const *charters;	/* base first */
	size_t n_charters;
	struct place at;
};

/* Where an image is built other than on the heap. */
struct policy_memory {
	/* As realloc, and what is new is zero; NULL without memory. */
	uint8_t *(*grow)(void *arg, uint8_t *bytes, size_t old, size_t size);
	void *arg;
};

struct policy_source {
	const struct policy_cell_source *cells;
	size_t n_cells;
	uint64_t generation;
	uint8_t digest[POLICY_DIGEST_BYTES];	/* of the source bundle */
	const struct endpoint *own;		/* listeners, the host's
						 * addresses: never dialled;
						 * port 0: any port */
	size_t n_own;
	size_t n_gateways;			/* the last of own: gateways,
						 * opened by no name */
	struct addr sinkhole[2];		/* where denied names lead;
						 * ::: none */
	const struct policy_memory *memory;	/* NULL: the heap */
	bool spend_names;	/* the patterns of large files are given back
				 * while the image takes them: the charters
				 * cannot be built from again */
	struct span settings;			/* copied as it is */
	int64_t now_s;				/* epoch; for until: dates */
};

/*
 * Compile.  Rules that can never match, a policy without an allow rule, cells
 * whose resolvers differ and the like are errors in `ps`.  0 with the image
 * in *out (free it), or -EINVAL with problems, or -ENOMEM.  Of a charter with
 * errors the sound rules are checked all the same, and it is -EINVAL.
 */
MUST_USE int policy_build(const struct policy_source *src, uint8_t **out,
    size_t *out_len, struct problems *ps);

/* ---- using ---- */

/*
 * Check every offset and count of an image once and make a handle.  The bytes
 * are borrowed and must not change.  0, -EBADMSG (not an image, out of
 * bounds, not aligned to 8, other version) or -ENOMEM.
 */
MUST_USE int policy_open(struct policy **out, struct span image);
void policy_free(struct policy *p);

uint64_t policy_generation(const struct policy *p);
const uint8_t *policy_digest(const struct policy *p);
struct span policy_settings(const struct policy *p);

size_t policy_cells(const struct policy *p);

/* The pinned resolvers (the same for all cells); returns how many. */
size_t policy_resolvers(const struct policy *p,
    struct server out[static POLICY_RESOLVERS_MAX]);

/* What identifies a client; unknown parts are zero / NULL. */
struct cell_key {
	const char *listener;		/* name of the listener */
	const char *interface;		/* where it came in; "" unknown */
	struct addr client;
	const char *credential_cell;	/* Basic user: the cell id */
	struct span credential_token;	/* Basic password */
};

/*
 * The cell of a client.  A credential, when one is shown, decides alone and
 * is compared in constant time.  CELL_NONE when no cell fits, and then *why
 * is REASON_UNKNOWN_CELL, REASON_AUTH_REQUIRED (only credential cells exist
 * for this listener) or REASON_AUTH_FAILED.
 */
uint32_t policy_cell_find(const struct policy *p,
    const struct cell_key *key, enum reason *why);

/*
 * What is this host's own changes while a policy stays.  True when the policy
 * has this list already.
 */
MUST_USE bool policy_own_is(const struct policy *p,
    const struct endpoint *own, size_t n_own, size_t n_gateways);
/* Put another one, at most POLICY_OWN_MAX, into the bytes of an image that
 * policy_open took; every image has room for all. */
void policy_set_own(uint8_t *image, const struct endpoint *own, size_t n_own,
    size_t n_gateways, uint64_t generation);

/* The whole image, as it was opened: for policy/decide.c. */
struct span policy_image(const struct policy *p);

/* By id; CELL_NONE when there is none. */
uint32_t policy_cell_by_id(const struct policy *p, struct span id);

/* Tells one token of a cell's credential from another; 0: it has none. */
uint64_t policy_cell_token(const struct policy *p, uint32_t cell);

/* Views into the image, valid as long as the policy. */
struct cell_view {
	struct span id;
	size_t n_labels;
	struct { struct span key, value; } labels[POLICY_LABELS_MAX];
	struct span help;	/* ends every refusal; may be empty */
	bool enforce_strict;	/* enforce: strict */
	bool reports;		/* default: report, still in date */
};
MUST_USE bool policy_cell(const struct policy *p, uint32_t cell,
    int64_t now_s, struct cell_view *out);

struct rule_view {
	struct span id;
	struct span file;
	uint32_t line;
	struct span reason;	/* the author's words; may be empty */
	struct span owner;
	struct span subject;	/* what it names: "*.a.example", "10.0.0.0/8",
				 * "file allow.txt" */
	enum verdict verdict;
	int64_t until_s;	/* switched off from then on; 0: never */
	bool report;		/* report: true */
	bool opaque;		/* protocol: tcp */
	bool allow_private;
	uint32_t qtypes;	/* dns: (policy/qtype) */
};
/* How many rules a cell has; they are numbered from 0 in their order. */
uint32_t policy_rules(const struct policy *p, uint32_t cell);
/* True when the rule covers the port (expired or not). */
bool policy_rule_port(const struct policy *p, uint32_t cell, uint32_t rule,
    uint16_t port);
/* "443, 8000-8099" or "any"; cut with "~" when the room ends.  Returns out. */
char *policy_rule_ports(const struct policy *p, uint32_t cell, uint32_t rule,
    char *out, size_t size);
/* What stands outside the rules and has no other question, for people: how
 * many prefixes count as public (lab); out gets at most max of them. */
size_t policy_lab(const struct policy *p, uint32_t cell, struct prefix *out,
    size_t max);
MUST_USE bool policy_rule(const struct policy *p, uint32_t cell,
    uint32_t rule, struct rule_view *out);

#endif
