/* SPDX-License-Identifier: Apache-2.0 */
/* The form of what a question is told: an answer, our own no, a failure. */
#include <stdio.h>

#include "dns/front_part.h"
#include "policy/qtype.h"

#define REFUSED_TTL_S 5u
#define SINKHOLE_TTL_S 1u	/* a name that is allowed is found at once */
#define ANY_TTL_S 3600u
#define TEXT_BYTES 160u

/* RFC 8914 4 */
enum ede {
	EDE_NONE = -1,
	EDE_OTHER = 0,
	EDE_NOT_READY = 14,
	EDE_BLOCKED = 15,
	EDE_PROHIBITED = 18,
	EDE_NOT_SUPPORTED = 21,
	EDE_NO_REACHABLE = 22,
};

/* What is not in here is SERVFAIL, and EDE_OTHER. */
static const struct told {
	enum reason why;
	enum wire_rcode rcode;
	enum ede ede;
} told[] = {
	{ REASON_DNS_SPECIAL_USE, RCODE_NOERROR, EDE_BLOCKED },
	{ REASON_DNS_TYPE, RCODE_NOERROR, EDE_BLOCKED },
	{ REASON_TUNNEL, RCODE_NXDOMAIN, EDE_BLOCKED },
	{ REASON_NO_RULE, RCODE_NXDOMAIN, EDE_BLOCKED },
	{ REASON_RULE_DENY, RCODE_NXDOMAIN, EDE_PROHIBITED },
	{ REASON_NAME_MALFORMED, RCODE_NOERROR, EDE_BLOCKED },
	{ REASON_UNKNOWN_CELL, RCODE_REFUSED, EDE_PROHIBITED },
	{ REASON_AUTH_REQUIRED, RCODE_REFUSED, EDE_PROHIBITED },
	{ REASON_POLICY_UNAVAILABLE, RCODE_REFUSED, EDE_NOT_READY },
	{ REASON_POLICY_CHANGED, RCODE_REFUSED, EDE_NOT_READY },
	{ REASON_DNS_TIMEOUT, RCODE_SERVFAIL, EDE_NO_REACHABLE },
};

static struct told
told_of(enum reason why)
{
	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
		if (told[i].why == why)
			return told[i];
	return (struct told){ why, RCODE_SERVFAIL, EDE_OTHER };
}

/* ---- sending ---- */

static void
send_bytes(struct waiting *w, struct span bytes)
{
	if (bytes.len == 0)
		return;
	if (w->via == VIA_DNS_UDP)
		way_batch_put(w->front->datagrams, &w->way, bytes);
	else if (w->tcp != NULL)
		front_tcp_answer(w->tcp, bytes);
}

static void
send_answer(struct waiting *w, const struct message_answer *a)
{
	struct front *f = w->front;
	size_t max = w->via != VIA_DNS_UDP ? MESSAGE_MAX_BYTES :
	    w->question.udp_bytes < WAY_MAX_BYTES ? w->question.udp_bytes :
	    WAY_MAX_BYTES;

	send_bytes(w, span_of(f->reply,
	    message_reply(&w->question, a, f->reply, max)));
}

void
front_reply_unread(struct waiting *w, struct span msg)
{
	struct front *f = w->front;

	send_bytes(w, span_of(f->reply,
	    message_unread(msg, f->reply, sizeof(f->reply))));
}

/* ---- answers ---- */

void
front_reply_records(struct waiting *w, const struct answer *records,
    enum reason why, uint32_t ttl_s)
{
	struct message_answer a = { .rcode = front_reply_rcode(why),
	    .ttl_s = ttl_s, .records = records,
	    .negative_soa = why != REASON_NONE, .ede = EDE_NONE };

	send_answer(w, &a);
}

/* The reason's word, and which rule says so where one does. */
static const char *
words(const struct waiting *w, enum reason why, uint32_t rule)
{
	static char text[TEXT_BYTES];
	struct rule_view v;

	if (rule == RULE_NONE || w->front->policy == NULL ||
	    !policy_rule(w->front->policy, w->cell, rule, &v))
		return reason_word(why);
	snprintf(text, sizeof(text), "%s: rule %.*s", reason_word(why),
	    (int)v.id.len, (const char *)v.id.data);
	return text;
}

static struct message_answer
no(const struct waiting *w, enum reason why, uint32_t rule, uint32_t ttl_s)
{
	struct told t = told_of(why);

	return (struct message_answer){ .rcode = t.rcode, .ttl_s = ttl_s,
	    .negative_soa = t.rcode == RCODE_NOERROR ||
	    t.rcode == RCODE_NXDOMAIN, .ede = t.ede,
	    .ede_text = words(w, why, rule) };
}

enum wire_rcode
front_reply_rcode(enum reason why)
{
	if (why == REASON_NONE || why == REASON_DNS_NODATA)
		return RCODE_NOERROR;
	return why == REASON_DNS_NXDOMAIN ? RCODE_NXDOMAIN :
	    told_of(why).rcode;
}

void
front_reply_failure(struct waiting *w, enum reason why, uint32_t ttl_s)
{
	struct message_answer a = no(w, why, RULE_NONE, ttl_s);

	send_answer(w, &a);
}

/* ---- names that are denied ---- */

/*
 * Names of which a resolver asks many on its way to the one that is meant, or
 * that are nobody's to connect to: a no lets it go on at once, and an address
 * would end its search at the wrong name.
 */
static bool
is_searched(const struct front *f, const struct host *name)
{
	static const char *const apart[] = { "local", "in-addr.arpa",
	    "ip6.arpa" };
	struct host h;

	if (host_labels(name) == 1)
		return true;
	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
		if (host_parse(&h, span_str(apart[i])) == REASON_NONE &&
		    host_under(name, &h))
			return true;
	for (size_t i = 0; i < f->settings.n_search; i++)
		if (host_under(name, &f->settings.search[i]))
			return true;
	return false;
}

static bool
is_none(const struct addr *a)
{
	static const struct addr none;

	return addr_eq(a, &none);
}

/*
 * An address that the capture catches: the client connects, and gets a
 * refusal in words, and a record with what it wanted there.  Of other types
 * there is nothing.  False: not of this question.
 */
static bool
sinkhole(struct waiting *w, struct message_answer *a, struct answer *one)
{
	const struct front_settings *s = &w->front->settings;
	uint16_t type = w->question.type;
	const struct addr *to = type == TYPE_AAAA ? &s->sinkhole[1] :
	    &s->sinkhole[0];
	size_t n = type == TYPE_AAAA ? 16 : 4;

	if (s->denied != FRONT_SINKHOLE ||
	    is_searched(w->front, &w->question.name))
		return false;
	a->rcode = RCODE_NOERROR;
	a->ttl_s = SINKHOLE_TTL_S;
	if ((type != TYPE_A && type != TYPE_AAAA) || is_none(to) ||
	    (type == TYPE_AAAA && s->ipv6_drop))
		return true;
	answer_none(one, type, REASON_NONE);
	if (!answer_put(one, span_of(to->b + 16 - n, n)))
		return true;
	a->records = one;
	a->negative_soa = false;
	return true;
}

void
front_reply_refused(struct waiting *w, const struct decision *d)
{
	struct message_answer a = no(w, d->reason, d->rule, REFUSED_TTL_S);
	struct decide_at where = front_at(w);
	struct answer *one = &w->front->kept.answer;

	if (a.rcode == RCODE_NXDOMAIN && !sinkhole(w, &a, one)) {
		if (w->front->settings.denied == FRONT_REFUSED) {
			a.rcode = RCODE_REFUSED;
			a.negative_soa = false;
		} else if (decide_question_hides(&where, &w->question.name))
			a.rcode = RCODE_NOERROR;	/* see there */
	}
	front_note_refused(w, d->reason, d->rule, a.rcode);
	send_answer(w, &a);
}

/* ---- types and forms ---- */

/* Types that ask for no record of a name (RFC 6895 3.1), and NULL, which is
 * good for nothing but a tunnel. */
static bool
is_no_data(uint16_t type)
{
	return type == 0 || type == TYPE_NULL || type == TYPE_OPT ||
	    (type >= 128 && type < TYPE_ANY);
}

bool
front_reply_form(struct waiting *w)
{
	const struct message_question *q = &w->question;
	struct message_answer a = { .ede = EDE_NOT_SUPPORTED,
	    .ede_text = reason_word(REASON_DNS_TYPE) };

	if (q->edns && q->edns_version != 0)
		a.rcode = RCODE_BADVERS;
	else if (q->opcode != 0)
		a.rcode = RCODE_NOTIMP;
	else if (q->class != 1 || is_no_data(q->type))
		a.rcode = RCODE_REFUSED;
	else
		return false;
	front_note_refused(w, REASON_DNS_TYPE, RULE_NONE, a.rcode);
	send_answer(w, &a);
	return true;
}

/* RFC 8482 4.2: one record that says that there is no such thing. */
static void
reply_any(struct waiting *w)
{
	static const uint8_t hinfo[] = { 7, 'R', 'F', 'C', '8', '4', '8', '2',
		0 };
	struct answer *one = &w->front->kept.answer;

	answer_none(one, TYPE_HINFO, REASON_NONE);
	if (answer_put(one, span_of(hinfo, sizeof(hinfo))))
		front_reply_records(w, one, REASON_NONE, ANY_TTL_S);
}

bool
front_reply_type(struct waiting *w)
{
	const struct front_settings *s = &w->front->settings;
	struct decide_at where = front_at(w);
	uint16_t type = w->question.type;
	struct message_answer a;

	if (type == TYPE_A || (type == TYPE_AAAA && !s->ipv6_drop) ||
	    (decide_question_types(&where, &w->question.name) &
	    qtype_bit(type)) != 0)
		return false;
	if ((type == TYPE_HTTPS || type == TYPE_SVCB) && s->svcb_strip)
		return false;
	if (type == TYPE_AAAA || type == TYPE_HTTPS || type == TYPE_SVCB) {
		front_no_data(w, REFUSED_TTL_S);
		return true;
	}
	front_note_refused(w, REASON_DNS_TYPE, w->flow.rule, RCODE_NOERROR);
	if (type == TYPE_ANY) {
		reply_any(w);
		return true;
	}
	a = no(w, REASON_DNS_TYPE, RULE_NONE, REFUSED_TTL_S);
	send_answer(w, &a);
	return true;
}
