/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_CHANGE_H
#define SIDECAR_CHANGE_H

#include "policy/policy.h"

/*
 * What a reload changed, for the log and the policy record: cells that came
 * and went, rules by their ids, what a rule that stayed says otherwise, that
 * the rules that stayed stand in another order, the keys beside the rules, and
 * the names that came into or went out of the hostnames_file of a rule that
 * stayed.
 */
#define CHANGE_LINES_MAX 20u	/* lines of one reload; the rest is counted */

struct change_count {
	unsigned cells_added, cells_removed, rules_added, rules_removed;
	unsigned names_added, names_removed;
	unsigned rules_changed;		/* same id, other content */
	unsigned orders;		/* cells whose rules moved */
	unsigned keys;			/* default, help, resolvers, ... */
};

/* Call say for each change, CHANGE_LINES_MAX times at most, and count all. */
struct change_count change_find(const struct policy *before,
    const struct policy *after, void (*say)(void *arg, const char *line),
    void *arg);

#endif
