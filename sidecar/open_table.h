/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_OPEN_TABLE_H
#define SIDECAR_OPEN_TABLE_H

#include "ledger-client/record.h"

/*
 * The connections of one producer whose decision to allow was seen and whose
 * end was not: what the recorder ends when the producer dies.  Bounded: of
 * more than OPEN_TABLE_MAX the ends are left out (and counted by nobody but
 * the next end of the same connection).
 */
#define OPEN_TABLE_MAX 32768u

struct open_table;
MUST_USE struct open_table *open_table_new(void);
void open_table_free(struct open_table *t);

/* Take notice of a record: a decision opens, an end closes. */
void open_table_see(struct open_table *t, const struct record *r);
/* Call for each open one whose number is below `before` with an end that names
 * connection, request, cell and client (how, reason and time are the caller's;
 * where it was connected to only the producer knew), then forget it. */
void open_table_end(struct open_table *t, uint64_t before,
    void (*each)(void *arg, struct record *end), void *arg);
size_t open_table_count(const struct open_table *t);

#endif
