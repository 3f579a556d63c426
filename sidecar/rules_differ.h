/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_RULES_DIFFER_H
#define SIDECAR_RULES_DIFFER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "policy/span.h"

/*
 * Two listings of a table as libnftables gives them in JSON: what stands
 * there, and what should.  They are the same when all things in them are, in
 * the same order; their handles, counts and the name of the table aside.
 */
#define RULES_THINGS_MAX 128u	/* of one table; with more it is another */
#define RULES_NAME_BYTES 128u

enum rules_difference_kind {
	RULES_FOREIGN,		/* it should not be there */
	RULES_LACKS,		/* it should be there */
	RULES_OTHER,		/* it should read otherwise */
	RULES_MOVED,		/* it should stand elsewhere */
};

/* The first difference, and how many there are beside it. */
struct rules_difference {
	enum rules_difference_kind kind;
	bool rule;		/* of a rule; otherwise of a chain or the like */
	char type[16];		/* "rule", "chain", "set" */
	char chain[RULES_NAME_BYTES];
	size_t position;	/* of the rule in its chain, from 1 */
	long long handle, wanted_handle;	/* or 0 */
	char found[RULES_NAME_BYTES];	/* its comment or name, or empty */
	char wanted[RULES_NAME_BYTES];
	size_t more;
};

/* True, with *out filled, when they differ.  Both are changed: what does not
 * count is taken out. */
MUST_USE bool rules_differ(json_t *have, json_t *want,
    struct rules_difference *out);

/* A listing's things alone, without what does not count; NULL without
 * memory. */
json_t *rules_differ_things(json_t *list);

/*
 * In words: where, what was found, what was expected.  The texts are those of
 * the rule (or of a chain's first line) on both sides, empty when not known;
 * they may be anybody's.
 */
void rules_differ_text(const struct rules_difference *d, const char *found,
    const char *wanted, char *why, size_t size);

#endif
