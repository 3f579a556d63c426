/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_SOURCE_H
#define SIDECAR_SOURCE_H

#include "policy/policy.h"

/*
 * What check, explain, test and diff read: a policy file, taken as the only
 * file of one cell named "policy", or a penstock.yaml with all its cells.
 * Which of the two it is shows in its keys.
 */
struct source;

/*
 * 0; -EINVAL when `ps` says what is wrong with the contents; other -errno
 * when the file cannot be read.  `path` is borrowed until source_free, the
 * problems too.
 */
MUST_USE int source_open(struct source **out, const char *path,
    int64_t now_s, struct problems *ps);
void source_free(struct source *s);
/* Words on stderr for what source_open returned, other than -EINVAL. */
void source_say(const char *verb, const char *path, int err);

/* Of a penstock.yaml; NULL for a policy file. */
struct settings;
const struct settings *source_settings(const struct source *s);

/* How a client is known to be of this cell; NULL for a policy file. */
const struct cell_from *source_from(const struct source *s, uint32_t cell);

const struct policy *source_policy(const struct source *s);
/* The charters of a cell, base first. */
size_t source_charters(const struct source *s, uint32_t cell,
    const struct charter *const **out);

/*
 * What a person writes for a destination: "host", "host:port", "address",
 * "a.b.c.d:port", "[v6]:port".  name->len is 0 for an address.  Without a
 * port *port stays.
 */
MUST_USE bool source_target(const char *text, struct host *name,
    struct addr *addr, uint16_t *port);

#endif
