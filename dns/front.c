/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dns/front_part.h"
#include "dns/svcb.h"
#include "ledger-client/clock.h"

#define TCP_MAX 256u
#define TCP_IDLE_MS 10000u
#define PENDING_MAX 4096u

struct decide_at
front_at(const struct waiting *w)
{
	return (struct decide_at){ .policy = w->front->policy,
	    .cell = w->cell, .now_s = (int64_t)time(NULL) };
}

/* ---- counts ---- */

static enum count
asked_of(uint16_t type)
{
	switch (type) {
	case TYPE_A: return COUNT_DNS_ASKED_A;
	case TYPE_AAAA: return COUNT_DNS_ASKED_AAAA;
	case TYPE_HTTPS: return COUNT_DNS_ASKED_HTTPS;
	case TYPE_SVCB: return COUNT_DNS_ASKED_SVCB;
	case TYPE_MX: return COUNT_DNS_ASKED_MX;
	case TYPE_TXT: return COUNT_DNS_ASKED_TXT;
	case TYPE_SRV: return COUNT_DNS_ASKED_SRV;
	case TYPE_PTR: return COUNT_DNS_ASKED_PTR;
	case TYPE_NS: return COUNT_DNS_ASKED_NS;
	case TYPE_SOA: return COUNT_DNS_ASKED_SOA;
	case TYPE_CAA: return COUNT_DNS_ASKED_CAA;
	case TYPE_ANY: return COUNT_DNS_ASKED_ANY;
	default: return COUNT_DNS_ASKED_OTHER;
	}
}

/* What a workload's question is told, as its record says. */
static void
count_told(const struct waiting *w, enum verdict v, enum wire_rcode rcode)
{
	unsigned first = v == VERDICT_ALLOW ? COUNT_DNS_ALLOWED_NOERROR :
	    COUNT_DNS_DENIED_NOERROR;
	unsigned last = COUNT_DNS_ALLOWED_BADVERS - COUNT_DNS_ALLOWED_NOERROR;

	count_add(w->front->parts.counts, (enum count)(first +
	    (rcode < last ? (unsigned)rcode : last)), 1);
}

/* ---- records ---- */

/* Who said what, where anybody was asked. */
static void
record_answer(struct record *r, const struct waiting *w)
{
	uint32_t n = w->told->n < RECORD_ANSWERS_MAX ? w->told->n :
	    RECORD_ANSWERS_MAX;

	if (n > 0)
		record_set(r, TEXT_ANSWERS, span_of(w->told->addrs,
		    n * sizeof(w->told->addrs[0])));
	r->dialled = w->got->server;
	r->duration_us = w->got->us;
}

struct record *
front_record(const struct waiting *w, enum reason why, uint32_t rule)
{
	static struct record r;

	record_init(&r, RECORD_DNS);
	record_stamp(&r);
	r.reason = (uint16_t)why;
	r.via = (uint8_t)w->via;
	r.name_from = NAME_FROM_QUESTION;
	r.qtype = w->question.type;
	r.client = w->client;
	record_set(&r, TEXT_NAME, span_of(w->question.name.name,
	    w->question.name.len));
	record_policy(&r, w->front->policy, w->cell, rule);
	if (w->got != NULL)
		record_answer(&r, w);
	return &r;
}

void
front_note_refused(const struct waiting *w, enum reason why, uint32_t rule,
    enum wire_rcode rcode)
{
	struct record *r;

	/* what an engine is told it counts and records itself, with its
	 * client */
	if (w->via == VIA_NONE)
		return;
	count_denied(w->front->parts.counts, why);
	/* a connection that is turned away asked nothing yet */
	if (w->via != VIA_DNS_TCP || w->tcp != NULL)
		count_told(w, VERDICT_DENY, rcode);
	r = front_record(w, why, rule);
	r->rcode = (uint8_t)rcode;
	fold_note(w->front->fold, r);
}

/* A question of a workload that goes on to its answer; `why` says what it is
 * told where that is no address.  An engine records what it does with its
 * answer.  False: no room, so it gets none. */
static bool
record_allowed(const struct waiting *w, enum reason why)
{
	struct record *r;

	if (w->via == VIA_NONE)
		return true;
	r = front_record(w, why != REASON_NONE ? why : w->flow.reason,
	    w->flow.rule);
	r->verdict = (uint8_t)w->flow.verdict;
	r->would = (uint8_t)w->flow.would;
	r->rcode = (uint8_t)front_reply_rcode(why);
	if (fold_decision(w->front->fold, r) != 0)
		return false;
	count_told(w, VERDICT_ALLOW, front_reply_rcode(why));
	return true;
}

/* ---- the end of a question ---- */

/* Leave out what this cell may not dial: an allowed name must not point at
 * the metadata service (rebinding).  Returns why when nothing is left. */
static enum reason
keep_allowed(const struct waiting *w, struct addrs *a)
{
	struct decide_at where = front_at(w);
	enum reason why = REASON_DNS_SPECIAL_USE;
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		struct endpoint to = { .addr = a->addrs[i] };
		struct decision d = decide_addr(&where, &w->flow, &to);

		if (d.verdict == VERDICT_ALLOW)
			a->addrs[n++] = a->addrs[i];
	}
	if (n > 0 || a->n == 0)
		why = REASON_NONE;
	a->n = n;
	return why;
}

static bool
is_addrs(uint16_t type)
{
	return type == TYPE_A || type == TYPE_AAAA;
}

/* The records of the addresses that are left; all of them as they came. */
static const struct answer *
records_kept(struct front *f, const struct answer *all, const struct addrs *a)
{
	struct answer *kept = &f->kept.answer;

	if (all->type == TYPE_SVCB || all->type == TYPE_HTTPS) {
		svcb_strip_ech(all, &f->kept);
		return kept;
	}
	if (a->n == all->n_records || !is_addrs(all->type))
		return all;
	answer_none(kept, all->type, all->reason);
	answer_put_links(kept, all);
	for (uint32_t i = 0; i < a->n; i++) {
		size_t n = all->type == TYPE_A ? 4 : 16;

		if (!answer_put(kept, span_of(a->addrs[i].b + 16 - n, n)))
			break;
	}
	return kept;
}

/* Our own no, as against what upstream says. */
static bool
is_refusal(enum reason why)
{
	return why == REASON_DNS_SPECIAL_USE || why == REASON_LIMIT_TOTAL ||
	    why == REASON_LIMIT_CLIENT || why == REASON_LIMIT_CELL ||
	    why == REASON_LIMIT_MEMORY ||
	    why == REASON_LEDGER_UNAVAILABLE;
}

static enum reason
pin_answer(const struct waiting *w, const struct addrs *a)
{
	struct pin_cell cell;
	int64_t now = clock_mono_ms();
	enum reason why;

	if (a->n == 0)
		return REASON_NONE;	/* of another type than addresses */
	if (!pin_cell_of(w->front->policy, w->cell, &cell))
		return REASON_UNKNOWN_CELL;
	why = pin_add(w->front->parts.pins, &cell, &w->question.name,
	    a->addrs, a->n,
	    now + (int64_t)a->ttl_s * 1000 + PIN_GRACE_MS, now);
	if (why == REASON_NONE)
		front_keep_note(w, &cell, a->ttl_s, now);
	return why;
}

/* What a question with these addresses is told: judged, pinned and recorded.
 * The record is the last, so that it says what happens. */
static enum reason
conclude(struct waiting *w, struct addrs *a)
{
	enum reason why = a->reason, told;
	uint32_t came = a->n;

	if (why == REASON_NONE && !w->known)
		why = keep_allowed(w, a);
	told = why;
	if (!is_refusal(why) && w->via != VIA_NONE &&
	    !emit_ready(w->front->parts.emit))
		why = REASON_LEDGER_UNAVAILABLE;
	/* what no connection would find is not told */
	if (why == REASON_NONE && !w->known)
		why = pin_answer(w, a);
	if (why == REASON_NONE && !w->known && a->n == came)
		front_know(w);
	if (!is_refusal(why) && !record_allowed(w, told))
		why = REASON_LEDGER_UNAVAILABLE;
	if (is_refusal(why))
		front_note_refused(w, why, w->flow.rule,
		    front_reply_rcode(why));
	return why;
}

/* An engine's: addresses, or why there are none. */
static void
settle_engine(struct waiting *w, const struct addrs *got)
{
	struct addrs a = *got;
	enum reason why = conclude(w, &a);

	front_engine_answer(w, why, &a);
	front_flush(w->front);
}

/* A workload's: judge what came, pin and record it, and only then answer. */
static void
settle(struct waiting *w, const struct resolve_answer *got)
{
	struct addrs a;
	enum reason why;

	addrs_of(&a, got);
	w->got = got;
	w->told = &a;
	why = conclude(w, &a);
	w->got = NULL;
	w->told = NULL;
	if (why == REASON_NONE || why == REASON_DNS_NODATA ||
	    why == REASON_DNS_NXDOMAIN)
		front_reply_records(w, records_kept(w->front, got->records,
		    &a), why, got->ttl_s);
	else
		front_reply_failure(w, why, got->ttl_s);
	front_flush(w->front);
}

/* Our own no, for as long as its cause lasts. */
static void
settle_refused(struct waiting *w, enum reason why)
{
	struct answer none;
	struct resolve_answer a = { .records = &none, .ttl_s = 1 };

	answer_none(&none, w->question.type, why);
	if (w->via == VIA_NONE)
		settle_engine(w, &(struct addrs){ .reason = why,
		    .ttl_s = 1 });
	else
		settle(w, &a);
}

void
front_no_data(struct waiting *w, uint32_t ttl_s)
{
	struct answer none;

	answer_none(&none, w->question.type, REASON_DNS_NODATA);
	settle(w, &(struct resolve_answer){ .records = &none,
	    .ttl_s = ttl_s });
}

static void
on_resolved(void *arg, const struct resolve_answer *answer)
{
	struct waiting *w = arg;

	front_tunnel_answer(w, answer->records->len);
	settle(w, answer);
	front_pending_free(w);
}

static void
on_both(void *arg, const struct addrs *answer)
{
	struct waiting *w = arg;

	front_tunnel_answer(w, answer->n * sizeof(answer->addrs[0]));
	settle_engine(w, answer);
	front_pending_free(w);
}

/* ---- judging ---- */

/* Datagrams that were read at once ask the kernel once for each interface in
 * turn: it may have another name by the next read. */
static const char *
interface_of(const struct way *way, struct front *f)
{
	struct ifreq rq = { .ifr_ifindex = (int)way->ifindex };

	if (f->in_batch && f->ifindex != 0 && f->ifindex == way->ifindex)
		return f->interface;
	f->ifindex = way->ifindex;
	f->interface[0] = '\0';
	if (way->ifindex != 0 && ioctl(way->fd, SIOCGIFNAME, &rq) == 0)
		memcpy(f->interface, rq.ifr_name, IF_NAMESIZE);
	return f->interface;
}

/* Its cell in the policy at hand, which may be newer than the engine's. */
static enum reason
find_engine_cell(struct waiting *w)
{
	const struct policy *p = w->front->policy;
	struct pin_cell now;

	w->cell = policy_cell_by_id(p, span_str(w->cell_id));
	if (pin_cell_of(p, w->cell, &now) &&
	    span_eq(now.run, span_str(w->cell_run)))
		return REASON_NONE;
	w->cell = CELL_NONE;
	return w->generation == policy_generation(p) ? REASON_UNKNOWN_CELL :
	    REASON_POLICY_CHANGED;
}

enum reason
front_find_cell(struct waiting *w)
{
	struct cell_key key = { .listener = w->front->parts.listener,
	    .client = w->client.addr };
	enum reason why;

	if (w->front->policy == NULL)
		return REASON_POLICY_UNAVAILABLE;
	if (w->via == VIA_NONE)
		return find_engine_cell(w);
	key.interface = interface_of(&w->way, w->front);
	w->cell = policy_cell_find(w->front->policy, &key, &why);
	return w->cell == CELL_NONE ? why : REASON_NONE;
}

/* The waiting question goes on its own: copy it to the heap and ask. */
static void
ask_upstream(struct waiting *on_stack)
{
	struct front *f = on_stack->front;
	enum reason why;
	struct waiting *w = front_pending_new(on_stack, &why);

	if (w == NULL) {
		settle_refused(on_stack, why);
		return;
	}
	if (w->via == VIA_NONE)
		w->both = addrs_start(f->parts.resolve, span_str(w->part),
		    &w->question.name, on_both, w, &why);
	else
		w->call = resolve_start(f->parts.resolve, span_str(w->part),
		    &w->question.name, w->question.type, on_resolved, w,
		    &why);
	if (w->call == NULL && w->both == NULL) {
		settle_refused(w, why);
		front_pending_free(w);
	}
}

void
front_cancel(struct waiting *w)
{
	if (w->call != NULL)
		resolve_cancel(w->call);
	if (w->both != NULL)
		addrs_cancel(w->both);
	w->call = NULL;
	w->both = NULL;
}

/* False when it must be asked for. */
static bool
settle_cached(struct waiting *w)
{
	struct resolve *r = w->front->parts.resolve;
	struct resolve_answer got;
	struct addrs both;

	if (w->via == VIA_NONE ? !addrs_cached(r, &w->question.name, &both) :
	    !resolve_cached(r, &w->question.name, w->question.type, &got)) {
		count_add(w->front->parts.counts, COUNT_DNS_CACHE_MISSES, 1);
		return false;
	}
	count_add(w->front->parts.counts, COUNT_DNS_CACHE_HITS, 1);
	if (w->via == VIA_NONE)
		settle_engine(w, &both);
	else
		settle(w, &got);
	return true;
}

/* Policy before lookup; a question that cannot be recorded is not asked. */
void
front_judge(struct waiting *w)
{
	struct front *f = w->front;
	struct decide_at where = front_at(w);
	struct resolve_answer got;

	if (front_known(w, &got)) {
		count_add(f->parts.counts, COUNT_DNS_CACHE_HITS, 1);
		settle(w, &got);
		return;
	}
	if (!decide_question(&where, &w->question.name, &w->flow) ||
	    front_tunnel_refuses(w)) {
		if (w->via == VIA_NONE)
			front_engine_answer(w, w->flow.reason, NULL);
		else
			front_reply_refused(w, &w->flow);
		return;
	}
	if (w->via != VIA_NONE && front_reply_type(w))
		return;
	if (!emit_ready(f->parts.emit))
		settle_refused(w, REASON_LEDGER_UNAVAILABLE);
	else if (!settle_cached(w))
		ask_upstream(w);
}

/* What could not be read is nobody's question, and no name is known of it. */
static void
unread(struct waiting *w, struct span msg, bool id_known)
{
	w->question.name.len = 0;
	w->question.type = 0;
	front_note_refused(w, w->question.opcode != 0 ? REASON_DNS_TYPE :
	    REASON_DNS_MALFORMED, RULE_NONE, w->question.opcode != 0 ?
	    RCODE_NOTIMP : RCODE_FORMERR);
	if (id_known)
		front_reply_unread(w, msg);
}

void
front_question(struct waiting *w, struct span msg)
{
	struct decision d = { .rule = RULE_NONE };
	bool id_known;

	w->cell = CELL_NONE;
	if (message_query(msg, &w->question, &id_known) != PARSE_DONE) {
		count_add(w->front->parts.counts, COUNT_DNS_ASKED_OTHER, 1);
		unread(w, msg, id_known);
	} else {
		count_add(w->front->parts.counts,
		    asked_of(w->question.type), 1);
		d.reason = front_find_cell(w);
		if (d.reason != REASON_NONE)
			front_reply_refused(w, &d);
		else if (!front_reply_form(w))
			front_judge(w);
	}
	front_flush(w->front);
}

/* ---- transports ---- */

static void
on_tcp_message(void *arg, struct front_tcp *conn, int fd,
    const struct endpoint *client, struct span msg)
{
	struct front *f = arg;
	struct waiting w = { .front = f, .via = VIA_DNS_TCP,
	    .client = *client, .tcp = conn, .way.fd = fd,
	    .way.ifindex = front_tcp_ifindex(conn) };

	if (!f->stopping)
		front_question(&w, msg);
}

static void
on_tcp_refused(void *arg, const struct endpoint *client, enum reason why)
{
	struct front *f = arg;
	struct waiting w = { .front = f, .via = VIA_DNS_TCP,
	    .client = *client, .cell = CELL_NONE };

	(void)front_find_cell(&w);	/* for the record, where it is known */
	front_note_refused(&w, why, RULE_NONE, RCODE_REFUSED);
	front_flush(f);
}

/* One client's, of what there is for all. */
static unsigned
part_of(unsigned all)
{
	return all < 4 ? all : all / 4;
}

int
front_add_engine(struct front *f, int fd)
{
	return front_engine_new(f, fd);
}

int
front_add_tcp(struct front *f, int fd)
{
	struct front_tcp_settings s = { .base = f->parts.base,
	    .max = f->settings.tcp_max, .idle_ms = f->settings.tcp_idle_ms,
	    .client_max = part_of(f->settings.tcp_max),
	    .message = on_tcp_message, .refused = on_tcp_refused, .arg = f };

	if (f->n_tcp == FRONT_SOCKETS_MAX)
		return -ENOSPC;
	f->tcp[f->n_tcp] = front_tcp_listen(&s, fd);
	return f->tcp[f->n_tcp] != NULL ? (f->n_tcp++, 0) : -ENOMEM;
}

int
front_new(struct front **out, const struct front_settings *s,
    const struct front_parts *parts)
{
	struct front *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return -ENOMEM;
	f->settings = *s;
	if (f->settings.tcp_max == 0)
		f->settings.tcp_max = TCP_MAX;
	if (f->settings.tcp_idle_ms == 0)
		f->settings.tcp_idle_ms = TCP_IDLE_MS;
	if (f->settings.pending_max == 0)
		f->settings.pending_max = PENDING_MAX;
	if (f->settings.client_max == 0)
		f->settings.client_max = part_of(f->settings.pending_max);
	if (f->settings.policy_wait_ms == 0)
		f->settings.policy_wait_ms = ASK_TIMEOUT_MS;
	f->parts = *parts;
	f->fold = fold_new(parts->base, parts->emit, FOLD_MS);
	f->datagrams = way_batch_new();
	f->tunnel = tunnel_new(&s->tunnel);
	if (f->fold == NULL || f->datagrams == NULL || f->tunnel == NULL ||
	    front_pending_start(f) < 0 || front_keep_start(f) < 0) {
		front_pending_stop(f);
		fold_free(f->fold);
		way_batch_free(f->datagrams);
		tunnel_free(f->tunnel);
		free(f);
		return -ENOMEM;
	}
	*out = f;
	return 0;
}

void
front_configure(struct front *f, const struct front_settings *s)
{
	struct front_settings now = *s;

	now.tcp_max = f->settings.tcp_max;
	now.tcp_idle_ms = f->settings.tcp_idle_ms;
	now.pending_max = f->settings.pending_max;
	now.client_max = f->settings.client_max;
	now.policy_wait_ms = f->settings.policy_wait_ms;
	now.keep_min_ms = f->settings.keep_min_ms;
	f->settings = now;
	f->epoch++;
	tunnel_set(f->tunnel, &now.tunnel);
}

void
front_free(struct front *f)
{
	if (f == NULL)
		return;
	f->stopping = true;
	while (f->waiting != NULL) {
		front_cancel(f->waiting);
		front_pending_free(f->waiting);
	}
	while (f->engines != NULL)
		front_engine_free(f->engines);
	for (unsigned i = 0; i < f->n_tcp; i++)
		front_tcp_close(f->tcp[i]);
	for (unsigned i = 0; i < f->n_sockets; i++) {
		close(event_get_fd(f->sockets[i]));
		event_free(f->sockets[i]);
	}
	fold_free(f->fold);
	way_batch_free(f->datagrams);
	tunnel_free(f->tunnel);
	front_pending_stop(f);
	front_keep_stop(f);
	free(f);
}

unsigned
front_suspected(const struct front *f)
{
	return tunnel_suspected(f->tunnel, clock_mono_ms());
}

/* A question that waits, under the new policy: true when it may go on. */
static bool
judge_again(struct waiting *w)
{
	struct decide_at where;

	w->flow = (struct decision){ .rule = RULE_NONE };
	w->flow.reason = front_find_cell(w);
	where = front_at(w);
	if (w->flow.reason == REASON_NONE &&
	    decide_question(&where, &w->question.name, &w->flow))
		return true;
	if (w->via == VIA_NONE)
		front_engine_answer(w, w->flow.reason, NULL);
	else
		front_reply_refused(w, &w->flow);
	return false;
}

/* One that waited for a policy begins anew. */
static void
begin_again(struct waiting *w)
{
	struct waiting now = *w;

	front_pending_free(w);
	if (now.engine != NULL)
		front_engine_question(&now);
}

void
front_set_policy(struct front *f, const struct policy *p)
{
	struct waiting *w = f->waiting, *next;
	bool first = f->policy == NULL;

	f->policy = p;
	f->epoch++;
	pin_set_policy(f->parts.pins, p);
	front_pending_policy(f);
	front_keep_policy(f, first);
	/* what a freed one lets be read goes before the head of the list:
	 * it is judged by the new policy already */
	for (; w != NULL; w = next) {
		next = w->next;
		if (w->call == NULL && w->both == NULL) {
			begin_again(w);
			continue;
		}
		if (judge_again(w))
			continue;
		front_cancel(w);
		front_pending_free(w);
	}
	front_flush(f);
}
