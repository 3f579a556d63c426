/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_CHARTER_H
#define POLICY_CHARTER_H

#include "policy/addr.h"
#include "policy/host.h"
#include "policy/problem.h"
#include "policy/verdict.h"

/*
 * One policy file, read by its schema: the `network` table of a Runeward
 * Charter plus our keys (penstock-policy(5)).  It holds what was written,
 * typed and canonical, with places; policy_build turns charters into an
 * image.
 */
struct charter;

/* How a hostnames_file is read: the compile role opens it beneath its
 * directory.  Returns 0 and the bytes (freed by the caller with free), or
 * negative errno. */
struct charter_reader {
	int (*read)(void *arg, const char *name, uint8_t **bytes,
	    size_t *len);
	void *arg;
};

/*
 * Load one file.  `base` is true for the first file of a cell: only there
 * may scalars (default, resolvers, ...) stand.  Errors, warnings and notes go
 * to `ps`; NULL when there was an error.  `file` is borrowed and outlives
 * the charter.
 */
MUST_USE struct charter *charter_load(const char *file, struct span text,
    bool base, const struct charter_reader *reader, struct problems *ps);
void charter_free(struct charter *c);

#endif
