/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_CHARTER_H
#define POLICY_CHARTER_H

#include "policy/addr.h"
#include "policy/host.h"
#include "policy/problem.h"
#include "policy/server.h"
#include "policy/verdict.h"

/*
 * One policy file, read by its schema: the `network` table of a Runeward
 * Charter plus our keys (penstock-policy(5)).  It holds what was written,
 * typed and canonical, with places; policy_build turns charters into an
 * image.
 */
struct charter;
struct rules;

#define CHARTER_RESOLVERS_MAX 8u	/* as POLICY_RESOLVERS_MAX */
#define CHARTER_PREFIXES_MAX 16u	/* of lab, of nat64 */
#define CHARTER_HELP_BYTES 256u
#define CHARTER_EXPECT_MAX 10000u
#define CHARTER_REPORT_DAYS 90

/* How a hostnames_file is read: the compile role opens it beneath its
 * directory.  Its bytes go to `take` piece by piece and in order, as long as
 * that returns 0.  Returns 0, what `take` did, or negative errno. */
struct charter_reader {
	int (*read)(void *arg, const char *name,
	    int (*take)(void *to, struct span piece), void *to);
	void *arg;
};

/* What stands outside the rules; in the first file of a cell only. */
struct charter_scalars {
	bool partly;			/* an error kept some from being read:
					 * do not tell of what is absent */
	bool report;			/* default: report */
	int64_t report_until_s;		/* off from this second on */
	struct place report_at;
	bool cooperative;		/* enforce: cooperative */
	struct place strict_at;		/* enforce: strict; file NULL: it does
					 * not stand there */
	bool no_sni_pinned;		/* no_sni: pinned-ip */
	bool ech_denied;		/* ech: deny */
	char help[CHARTER_HELP_BYTES + 1];
	struct server resolvers[CHARTER_RESOLVERS_MAX];
	size_t n_resolvers;
	bool resolvers_system;		/* those of this host */
	struct place resolvers_at;
	struct place lab_at;
	struct prefix lab[CHARTER_PREFIXES_MAX];
	size_t n_lab;
	struct prefix nat64[CHARTER_PREFIXES_MAX];
	size_t n_nat64;
};

/* One line of `expect:` ("host", "host:port", "address:port"). */
struct charter_expect {
	struct place at;
	enum verdict verdict;
	char *what;
};

/*
 * Load one file.  `base` is true for the first file of a cell: only there
 * may scalars (default, resolvers, ...) stand.  Errors, warnings and notes go
 * to `ps`.  One with errors is returned as well (charter_wrong), so that
 * policy_build can tell what else is wrong, and it makes nothing of it.  NULL,
 * with an error, when nothing could be read.  `file` is borrowed and outlives
 * the charter.
 *
 * The root is a policy, a Runeward Charter, or the policy object of Runeward's
 * egress program ({"default": ..., "rules": [...]}).
 */
MUST_USE struct charter *charter_load(const char *file, struct span text,
    bool base, const struct charter_reader *reader, struct problems *ps);
void charter_free(struct charter *c);
/* True when the file had an error. */
bool charter_wrong(const struct charter *c);

/* What was read; valid as long as the charter. */
const char *charter_file(const struct charter *c);
const struct charter_scalars *charter_scalars(const struct charter *c);
const struct rules *charter_rules(const struct charter *c);
const struct charter_expect *charter_expects(const struct charter *c,
    size_t *n);

#endif
