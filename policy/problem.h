/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_PROBLEM_H
#define POLICY_PROBLEM_H

#include <stdio.h>

#include "policy/span.h"

#define PROBLEM_MAX 100		/* further ones are counted, not kept */
#define PROBLEM_FILE_BYTES 256	/* longer names are cut */
#define PROBLEM_TEXT_BYTES 512	/* longer ones are cut with "~" */

enum problem_kind {
	PROBLEM_ERROR,		/* the load fails */
	PROBLEM_WARNING,	/* it loads; check prints it */
	PROBLEM_NOTE,		/* a stated difference, a key that is not ours */
};

/* Where in which file; line and column count from 1, 0 is "no place". */
struct place {
	const char *file;	/* borrowed; problem_add copies it */
	uint32_t line;
	uint32_t column;
};

/* All that is wrong with the input, found in one go. */
struct problems;

/* NULL when out of memory. */
MUST_USE struct problems *problem_new(void);
void problem_free(struct problems *ps);

/*
 * Add one: "what, why; fix" in one line of text.  `fix` may be NULL.
 * Untrusted bytes must have gone through span_print.  Never fails: what does
 * not fit is counted.  The same once more is counted and printed once.
 */
__attribute__((format(printf, 5, 6)))
void problem_add(struct problems *ps, enum problem_kind kind,
    struct place at, const char *fix, const char *what, ...);

size_t problem_count(const struct problems *ps, enum problem_kind kind);

/* Print "file:line:col: error: what; fix" lines, errors first, in order of
 * place.  Text handed on by another process is escaped already. */
void problem_print(const struct problems *ps, FILE *to);

#endif
