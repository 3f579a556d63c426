/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_SHADOW_H
#define POLICY_SHADOW_H

#include "policy/problem.h"
#include "policy/rules.h"

/*
 * Rules that stand in each other's way.  A rule that can never match,
 * because permanent rules before it decide everything that it names, is an
 * error; an allow that takes something from a later deny is a warning.
 *
 * `rule` holds all rules of a cell in order; the indexes are those of the
 * image.  -ENOMEM, or 0 (look at ps).
 */
MUST_USE int shadow_check(const struct rule *const *rule, uint32_t n,
    struct span names, struct span cidrs, struct problems *ps);

#endif
