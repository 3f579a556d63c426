/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_FRONT_PART_H
#define DNS_FRONT_PART_H

#include <net/if.h>

#include "dns/addrs.h"
#include "dns/front.h"
#include "dns/front_tcp.h"
#include "dns/keep.h"
#include "dns/message.h"
#include "dns/share.h"
#include "dns/way.h"
#include "ledger-client/fold.h"

/* The state of the front, for front.c and the files front_*.c only. */

#define FRONT_SOCKETS_MAX 16u

/* One question that waits for the resolver; of a datagram, of a TCP
 * connection or of an engine. */
struct waiting {
	struct front *front;
	struct waiting *next, **prev;
	struct resolve_call *call;	/* or */
	struct addrs_call *both;	/* an engine's */
	struct message_question question;
	struct endpoint client;
	struct decision flow;
	const struct resolve_answer *got;	/* while it is settled: what
						 * came, and what of it is
						 * told */
	const struct addrs *told;
	uint32_t cell;
	bool known;			/* judged and pinned this second */
	enum record_via via;
	struct way way;			/* UDP */
	struct front_tcp *tcp;		/* TCP: held until it is answered */
	struct engine *engine;		/* engine's question (VIA_NONE), or
					 * NULL when it ended, or of our own */
	uint64_t ask_id, generation;	/* engine's, as the cell that it is of */
	char cell_id[POLICY_ID_BYTES], cell_run[POLICY_ID_BYTES];
	int64_t deadline_ms;		/* it waits for a policy; 0: it does
					 * not */
	char part[POLICY_ID_BYTES];	/* the cell whose place it has */
};

/*
 * The SEQPACKET of an engine.  What finds it full waits in `unsent`, which
 * has room for an answer to each open question and one more; nothing is read
 * meanwhile.
 */
struct engine {
	struct front *front;
	struct engine *next;
	struct event *readable, *again;
	int fd;
	struct ask_answer *unsent;
	size_t n_unsent, room, n_open;
};

struct front {
	struct front_settings settings;
	struct front_parts parts;
	const struct policy *policy;
	uint64_t epoch;			/* another with each policy and with
					 * each change of the settings */
	bool stopping;
	struct event *sockets[FRONT_SOCKETS_MAX];
	struct front_tcp_listener *tcp[FRONT_SOCKETS_MAX];
	unsigned n_sockets, n_tcp;
	struct engine *engines;
	struct waiting *waiting;
	unsigned n_waiting;
	struct fold *fold;
	struct tunnel *tunnel;
	struct share *share;		/* of each client in the questions */
	struct share *cells;		/* of each cell, engines' too */
	struct keep *keep;		/* names that are asked for without
					 * a client */
	struct event *keep_tick;
	struct event *late;		/* a policy that does not come */
	struct way_batch *datagrams;
	bool in_batch;			/* datagrams are being read */
	unsigned ifindex;		/* of the one before; 0: none */
	char interface[IF_NAMESIZE];	/* and its name then */
	uint8_t reply[MESSAGE_MAX_BYTES];
	union answer_room kept;		/* an answer without what may not be
					 * dialled */
};

/* ---- front: judging ---- */
/* The cell that asks, into w->cell; REASON_NONE, or why it is none. */
enum reason front_find_cell(struct waiting *w);
/* Policy, cache, upstream; `w` may be on the stack. */
void front_judge(struct waiting *w);
/* One message of a workload; of `w` all but its transport is filled in. */
void front_question(struct waiting *w, struct span msg);
struct decide_at front_at(const struct waiting *w);
/* An allowed question that is told nothing, as if nothing were there. */
void front_no_data(struct waiting *w, uint32_t ttl_s);
/* A record of the question, until the next one is. */
struct record *front_record(const struct waiting *w, enum reason why,
    uint32_t rule);
/* A refusal is counted and recorded, with the RCODE that it is told. */
void front_note_refused(const struct waiting *w, enum reason why,
    uint32_t rule, enum wire_rcode rcode);
/* It waits for nobody any more. */
void front_cancel(struct waiting *w);

/* ---- front_udp: datagrams ---- */
/* What was put leaves: records first, then answers. */
void front_flush(struct front *f);

/* ---- front_reply: the form of what is told ---- */
/* An answer as it is, with its aliases; what it says of no address too. */
void front_reply_records(struct waiting *w, const struct answer *records,
    enum reason why, uint32_t ttl_s);
/* A failure, or our own no to a question that was allowed. */
void front_reply_failure(struct waiting *w, enum reason why, uint32_t ttl_s);
/* The RCODE of either. */
enum wire_rcode front_reply_rcode(enum reason why);
/* Our own no to a name, recorded and told. */
void front_reply_refused(struct waiting *w, const struct decision *d);
/* To a message that could not be read. */
void front_reply_unread(struct waiting *w, struct span msg);
/* What is told without the policy: forms that are not served.  True: it was
 * told. */
bool front_reply_form(struct waiting *w);
/* What an allowed name is told without asking anybody, by its type. */
bool front_reply_type(struct waiting *w);

/* ---- front_tunnel: what names carry ---- */
/* A question that is allowed; true when it is refused as part of a tunnel. */
bool front_tunnel_refuses(struct waiting *w);
/* What its answer carries. */
void front_tunnel_answer(const struct waiting *w, size_t bytes);

/* ---- front_keep: names that stay pinned ---- */
/* 0, or -1 without memory, which leaves nothing. */
MUST_USE int front_keep_start(struct front *f);
void front_keep_stop(struct front *f);
/* The question is our own: it carries nothing of a client's, and nobody waits
 * for its answer. */
bool front_keep_asks(const struct waiting *w);
/* An answer was pinned for the cell. */
void front_keep_note(const struct waiting *w, const struct pin_cell *cell,
    uint32_t ttl_s, int64_t now_ms);
/* Another policy; the first takes over what the table has. */
void front_keep_policy(struct front *f, bool first);

/* ---- front_known: what was judged this second ---- */
/* True when this question of this cell was allowed in this second by the
 * policy at hand, and its answer, which `got` gets from the cache, judged and
 * pinned: then that need not be done again. */
bool front_known(struct waiting *w, struct resolve_answer *got);
/* All of the answer was judged and pinned, so that front_known says so. */
void front_know(const struct waiting *w);

/* ---- front_pending: what waits ---- */
/* 0 or -ENOMEM, which leaves nothing. */
int front_pending_start(struct front *f);
void front_pending_stop(struct front *f);
/* The parts are those of the policy's cells from here on. */
void front_pending_policy(struct front *f);
/* A place for the question, with a copy of it; NULL and why when there is
 * none. */
struct waiting *front_pending_new(struct waiting *from, enum reason *why);
void front_pending_free(struct waiting *w);
/* An engine's question waits for a policy, and is refused when that does not
 * come in time.  REASON_NONE, or why there is no place. */
enum reason front_pending_wait(struct waiting *from);

/* ---- front_engine: the questions of engines ---- */
int front_engine_new(struct front *f, int fd);
void front_engine_free(struct engine *e);
/* Judge it, or let it wait for its policy. */
void front_engine_question(struct waiting *w);
void front_engine_answer(const struct waiting *w, enum reason why,
    const struct addrs *got);

#endif
