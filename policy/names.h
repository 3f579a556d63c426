/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_NAMES_H
#define POLICY_NAMES_H

#include "policy/host.h"

/*
 * The index from names to rules, inside an image: a hash table of canonical
 * names without pointers.  A lookup costs one probe for each label of the
 * name asked, however many rules there are.
 *
 * A pattern is exact ("a.b"), below ("*.b": one or more labels deeper) or
 * both (".b").  Each entry lists the rules that name this pattern, in order.
 */
enum names_kind { NAMES_EXACT = 1, NAMES_BELOW = 2 };

/* ---- building ---- */
struct names_builder;
MUST_USE struct names_builder *names_builder_new(void);
void names_builder_free(struct names_builder *b);
/* The pattern under kinds (a set of enum names_kind) leads to `rule`.
 * Adding in rising order of rule is cheapest.  0 or -ENOMEM. */
MUST_USE int names_add(struct names_builder *b, const struct host *name,
    unsigned kinds, uint32_t rule);
/* Bytes that names_write needs, and the writing; 8-byte aligned.  What is
 * written is given back meanwhile: the builder can only be freed then. */
size_t names_size(const struct names_builder *b);
void names_write(struct names_builder *b, uint8_t *to);

/* ---- using ---- */
/* Check all offsets once; false when the bytes are not such an index. */
MUST_USE bool names_check(struct span image, uint32_t n_rules);

/*
 * Call visit for every rule that names `name`, exactly or by a wildcard,
 * until it returns false.  Not in rule order across labels.
 */
void names_visit(struct span image, const struct host *name,
    bool (*visit)(void *arg, uint32_t rule, enum names_kind kind), void *arg);

/* Call visit for every pattern (name and kinds) of every rule, in no order. */
void names_each(struct span image, void (*visit)(void *arg,
    struct span name, unsigned kinds, uint32_t rule), void *arg);

/* True when this rule has this very pattern. */
bool names_holds(struct span image, struct span name, unsigned kinds,
    uint32_t rule);

/* True when some pattern lies under `name` (it is an ancestor). */
bool names_has_under(struct span image, const struct host *name);

#endif
