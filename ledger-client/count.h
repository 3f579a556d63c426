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
 * zeroed when its engine dies).  A family may go on with labels: its rows
 * stand one after another, with one help.
 */
#define COUNT_LIST(X) \
X(CONNECTIONS_OPEN, "connections_open", GAUGE, "Client connections open") \
X(UPSTREAM_OPEN, "upstream_open", GAUGE, "Upstream connections open") \
X(ACCEPTED, "accepted_total", COUNTER, "Client connections accepted") \
X(ALLOWED, "allowed_total", COUNTER, "Decisions to allow") \
X(REPORTED, "reported_total", COUNTER, "Allowed, would be denied") \
X(BYTES_UP, "upstream_bytes_total", COUNTER, "Bytes from clients relayed") \
X(BYTES_DOWN, "client_bytes_total", COUNTER, "Bytes to clients relayed") \
X(DNS_ASKED_A, "dns_questions_total{type=\"A\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_AAAA, "dns_questions_total{type=\"AAAA\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_HTTPS, "dns_questions_total{type=\"HTTPS\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_SVCB, "dns_questions_total{type=\"SVCB\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_MX, "dns_questions_total{type=\"MX\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_TXT, "dns_questions_total{type=\"TXT\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_SRV, "dns_questions_total{type=\"SRV\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_PTR, "dns_questions_total{type=\"PTR\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_NS, "dns_questions_total{type=\"NS\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_SOA, "dns_questions_total{type=\"SOA\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_CAA, "dns_questions_total{type=\"CAA\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_ANY, "dns_questions_total{type=\"ANY\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ASKED_OTHER, "dns_questions_total{type=\"other\"}", COUNTER, \
    "DNS questions received, by type") \
X(DNS_ALLOWED_NOERROR, \
    "dns_answers_total{rcode=\"NOERROR\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_ALLOWED_FORMERR, \
    "dns_answers_total{rcode=\"FORMERR\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_ALLOWED_SERVFAIL, \
    "dns_answers_total{rcode=\"SERVFAIL\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_ALLOWED_NXDOMAIN, \
    "dns_answers_total{rcode=\"NXDOMAIN\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_ALLOWED_NOTIMP, \
    "dns_answers_total{rcode=\"NOTIMP\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_ALLOWED_REFUSED, \
    "dns_answers_total{rcode=\"REFUSED\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_ALLOWED_BADVERS, \
    "dns_answers_total{rcode=\"BADVERS\",verdict=\"allow\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_NOERROR, \
    "dns_answers_total{rcode=\"NOERROR\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_FORMERR, \
    "dns_answers_total{rcode=\"FORMERR\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_SERVFAIL, \
    "dns_answers_total{rcode=\"SERVFAIL\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_NXDOMAIN, \
    "dns_answers_total{rcode=\"NXDOMAIN\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_NOTIMP, \
    "dns_answers_total{rcode=\"NOTIMP\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_REFUSED, \
    "dns_answers_total{rcode=\"REFUSED\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_DENIED_BADVERS, \
    "dns_answers_total{rcode=\"BADVERS\",verdict=\"deny\"}", COUNTER, \
    "DNS questions by what they were told") \
X(DNS_UPSTREAM, "dns_upstream_total", COUNTER, \
    "Questions, of one name and type each, put to resolvers") \
X(DNS_CACHE_HITS, "dns_cache_hits_total", COUNTER, \
    "Questions of clients and engines answered from the cache") \
X(DNS_CACHE_MISSES, "dns_cache_misses_total", COUNTER, \
    "Questions of clients and engines that the cache had no answer to") \
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
