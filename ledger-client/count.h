/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_CLIENT_COUNT_H
#define LEDGER_CLIENT_COUNT_H

#include "policy/verdict.h"

/*
 * Counters in shared memory: one column for each producer process, so that
 * writing needs no lock and a dead producer's column can be told apart.  Each
 * is a memfd of its own, and a producer has no other: a taken one can change
 * what it counted itself.  The names are closed enums: nothing a client
 * chooses is a label.
 *
 * X(name, family, kind, help)   kind: COUNTER or GAUGE (what is open now;
 * zeroed when its engine dies)
 */
#define COUNT_LIST(X) \
X(CONNECTIONS_OPEN, "connections_open", GAUGE, "Client connections open") \
X(UPSTREAM_OPEN, "upstream_open", GAUGE, "Upstream connections open") \
X(ACCEPTED, "accepted_total", COUNTER, "Client connections accepted") \
X(ALLOWED, "allowed_total", COUNTER, "Decisions to allow") \
X(REPORTED, "reported_total", COUNTER, "Allowed, would be denied") \
X(BYTES_UP, "upstream_bytes_total", COUNTER, "Bytes from clients relayed") \
X(BYTES_DOWN, "client_bytes_total", COUNTER, "Bytes to clients relayed") \
X(DNS_QUESTIONS, "dns_questions_total", COUNTER, "DNS questions received") \
X(DNS_UPSTREAM, "dns_upstream_total", COUNTER, "DNS questions sent up") \
X(DNS_CACHE_HITS, "dns_cache_hits_total", COUNTER, "DNS answers from cache") \
X(DNS_TUNNELS, "dns_tunnels_total", COUNTER, \
    "Domains that have come to look like a DNS tunnel") \
X(ACCEPT_PAUSES, "accept_pauses_total", COUNTER, \
    "Times accepting paused for want of descriptors") \
X(RECORDS_LOST, "records_lost_total", COUNTER, "Records lost, see gap") \
X(RECORDS, "records_total", COUNTER, "Records written") \
X(RECORD_ERRORS, "record_errors_total", COUNTER, "Failed writes of records")

enum count {
#define X(name, family, kind, help) COUNT_##name,
	COUNT_LIST(X)
#undef X
	COUNT_N
};

#define COUNT_COLUMNS 80u	/* engines and the other producers */

struct counts;

/* The memfd of one column (parent); fd or -errno. */
MUST_USE int count_create(void);
/* Map the one written by this process; column < COUNT_COLUMNS. */
MUST_USE int count_open(struct counts **out, int fd, unsigned column);
/* Map another process's too, for the sums and, with `forget`, to be forgotten
 * (otherwise a descriptor that can only be read does).  0 or -errno. */
MUST_USE int count_see(struct counts *c, int fd, unsigned column,
    bool forget);
void count_close(struct counts *c);

void count_add(struct counts *c, enum count what, int64_t n);
/* Denials by reason. */
void count_denied(struct counts *c, enum reason r);

/* This process turns: a number that only its change says something of, and
 * that of another column (parent). */
void count_beat(struct counts *c);
uint64_t count_beats(const struct counts *c, unsigned column);

/* Sums over all columns that are mapped. */
int64_t count_sum(const struct counts *c, enum count what);
int64_t count_denied_sum(const struct counts *c, enum reason r);

/* A column's gauges to zero: its process died (parent; mapped to be
 * forgotten). */
void count_forget(struct counts *c, unsigned column);

/* All families as Prometheus text 0.0.4, or OpenMetrics 1.0.0 (with # EOF
 * left to the caller).  Returns bytes written, 0 when out is too small. */
size_t count_text(const struct counts *c, bool openmetrics, char *out,
    size_t size);

#endif
