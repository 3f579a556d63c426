/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_CIDR_H
#define POLICY_CIDR_H

#include "policy/addr.h"

/*
 * The index from prefixes to rules, inside an image: entries sorted by
 * length and base.  A lookup is one binary search for each prefix length in
 * use, longest first.
 */
struct cidr_builder;
MUST_USE struct cidr_builder *cidr_builder_new(void);
void cidr_builder_free(struct cidr_builder *b);
MUST_USE int cidr_add(struct cidr_builder *b, const struct prefix *p,
    uint32_t rule);
size_t cidr_size(const struct cidr_builder *b);
void cidr_write(struct cidr_builder *b, uint8_t *to);

MUST_USE bool cidr_check(struct span image, uint32_t n_rules);

/* Call visit for every rule whose prefix holds the address, until it returns
 * false. */
void cidr_visit(struct span image, const struct addr *a,
    bool (*visit)(void *arg, uint32_t rule), void *arg);

#endif
