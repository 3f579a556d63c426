/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_CLIENT_EMIT_H
#define LEDGER_CLIENT_EMIT_H

#include "ledger-client/record.h"

/*
 * The bounded, non-blocking hand-over from a producer to the recorder: a ring
 * of bytes in a memfd (one producer, one consumer) and a page of the
 * recorder's state that every producer reads.  Putting a record is a copy
 * and a release store; the eventfd is written at most once a wake-up.
 */
#define EMIT_STALE_MS 500	/* an older heartbeat denies */
#define EMIT_BEAT_MS 100	/* the recorder's heartbeat */

/* ---- memory, made by the parent, kept open by it ---- */
/* A sealed-size memfd for one ring of at least `bytes`; fd or -errno. */
MUST_USE int emit_ring_create(size_t bytes);
MUST_USE int emit_state_create(void);
/* The same memory, by a descriptor that cannot be mapped for writing: for
 * whoever shall only read it.  fd or -errno. */
MUST_USE int emit_read_only(int fd);

/* ---- producer ---- */
struct emit;
/* Map both; descriptors may be closed afterwards except wake (borrowed).
 * 0, -EBADMSG when they are not what they should be, -ENOMEM, or why they
 * cannot be mapped. */
MUST_USE int emit_open(struct emit **out, int ring_fd, int state_fd,
    int wake_fd);
void emit_close(struct emit *e);

/* How much the ring holds. */
size_t emit_bytes(const struct emit *e);
/* True while its heartbeat is young, whether it can write or not. */
MUST_USE bool emit_recorder_lives(const struct emit *e);
/* True when a decision may be taken now: recorder ok, heartbeat young, room
 * for a decision and an end of the largest size. */
bool emit_ready(const struct emit *e);

/*
 * Hand over a decision and keep room for `end_bytes` (record_size of the
 * coming end record, 0: none).  0, or -EAGAIN when the recorder is not ok or
 * the room is not there: then deny with REASON_LEDGER_UNAVAILABLE.
 */
MUST_USE int emit_decision(struct emit *e, const struct record *r,
    size_t end_bytes);

/* Give back the room kept for an end that will not come. */
void emit_release(struct emit *e, size_t end_bytes);

/* Hand over an end into the room kept for it. */
void emit_end(struct emit *e, const struct record *r, size_t end_bytes);

/* Hand over another record without reservation; when there is no room it is
 * counted as lost, with all that its `count` says, in a later RECORD_GAP. */
void emit_note(struct emit *e, const struct record *r);

/* Wake the recorder if something was put since the last flush: call once at
 * the end of an event-loop turn. */
void emit_flush(struct emit *e);

/* ---- recorder ---- */
struct emit_reader;
/* As emit_open. */
MUST_USE int emit_reader_open(struct emit_reader **out, int ring_fd);
void emit_reader_close(struct emit_reader *r);
/* The next record, or NULL; valid until the next call.  *lost grows by the
 * bytes of entries that failed record_check (the ring then skips to its
 * head: counted, never trusted). */
const struct record *emit_next(struct emit_reader *r, uint64_t *lost);

/* What was read is done with: its room is the producer's again.  Until then a
 * recorder that is started anew reads it once more. */
void emit_commit(struct emit_reader *r);

struct emit_state;
/* As emit_open; mapped until the process ends. */
MUST_USE int emit_state_open(struct emit_state **out, int state_fd);
void emit_state_beat(struct emit_state *s, bool ok);

#endif
