/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_YAML_H
#define POLICY_YAML_H

#include "policy/problem.h"
#include "policy/span.h"

#define YAML_MAX_BYTES (8u << 20)
#define YAML_MAX_DEPTH 16
#define YAML_MAX_NODES 1000000u
#define YAML_MAX_KEYS 256u	/* of one mapping; no schema has as many */

/*
 * A strict subset of YAML 1.1 as a tree: one document of mappings, sequences
 * and scalars.  Anchors, aliases, tags, merge keys, second documents,
 * duplicate keys, tabs in indentation, NUL, invisible characters in scalars
 * and complex keys are errors with their place.  JSON is a subset.  Scalars
 * are text; the schema that reads them gives them a type.  A byte-order mark
 * and CRLF are accepted.
 *
 * After an error reading goes on, so that the schema can tell of the rest: an
 * anchor and a tag are dropped, the first of two equal keys stays, what is
 * nested too deeply or cannot be read is a node without a value.  Only text
 * that is not YAML, a second document and too many values end it.
 */
enum yaml_kind { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
	enum yaml_kind kind;
	bool quoted;			/* scalar in quotes */
	bool refused;			/* its error was told; no value: look
					 * at nothing but the place */
	bool lacks;			/* a mapping or list of which a part
					 * is not here: do not tell of what
					 * is absent */
	bool doubtful;			/* something in it, at any depth, is
					 * not as it was written */
	struct place at;
	struct span text;		/* scalar: NUL-terminated too */
	struct yaml_node *key;		/* in a mapping: its key, a scalar */
	struct yaml_node *next;		/* next item of the same parent */
	struct yaml_node *child;	/* first item */
	size_t n_children;
};

struct yaml;

/*
 * Parse the text.  Errors go to `ps` (all that can be found), and what could
 * be read is returned all the same: whoever makes something of the tree looks
 * at `ps` first.  NULL when nothing could be read, or no memory, with an
 * error.  `file` is borrowed for the life of the tree and of the problems.
 */
MUST_USE struct yaml *yaml_parse(const char *file, struct span text,
    struct problems *ps);
/* Not yaml_free: libyaml has a function of that name. */
void yaml_close(struct yaml *y);
const struct yaml_node *yaml_root(const struct yaml *y);

/* The value of a key of a mapping, or NULL. */
const struct yaml_node *yaml_get(const struct yaml_node *map,
    const char *key);

bool yaml_is(const struct yaml_node *scalar, const char *text);

/* A decimal unsigned integer without sign or leading zeros, at most max. */
MUST_USE bool yaml_uint(const struct yaml_node *scalar, uint64_t max,
    uint64_t *out);
/* true | false, unquoted, nothing else. */
MUST_USE bool yaml_bool(const struct yaml_node *scalar, bool *out);

#endif
