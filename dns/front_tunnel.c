/* SPDX-License-Identifier: Apache-2.0 */
/* Allowed names that carry what no policy has allowed. */
#include <stdio.h>

#include "dns/front_part.h"
#include "ledger-client/clock.h"

/* The name as it was asked, or, of an engine, as it was shown. */
struct asked {
	uint8_t name[WIRE_NAME_MAX_BYTES];
	struct span cell, qname;
	uint16_t type;
};

static void
asked_of(struct asked *a, const struct waiting *w)
{
	struct wire_writer to = { .size = sizeof(a->name) };
	struct pin_cell cell;

	to.out = a->name;
	a->cell = pin_cell_of(w->front->policy, w->cell, &cell) ? cell.id :
	    span_of(NULL, 0);
	a->type = w->question.type;
	a->qname = span_of(w->question.qname, w->question.qname_len);
	if (w->via != VIA_NONE)
		return;
	wire_put_host(&to, &w->question.name);
	a->qname = span_of(a->name, to.at);
	a->type = TYPE_A;
}

/* Once, when the domain has come to look like one. */
static void
tell(const struct waiting *w, const struct tunnel_look *look)
{
	struct record *r = front_record(w, REASON_TUNNEL, w->flow.rule);
	char text[RECORD_TEXT_MAX_BYTES];

	r->verdict = w->front->settings.tunnel_deny ? VERDICT_DENY :
	    VERDICT_ALLOW;
	r->would = VERDICT_DENY;
	snprintf(text, sizeof(text), "tunnel suspected under %.100s: score "
	    "%u, %u names, %u bits told, %u carriers, %u bytes got",
	    look->domain, look->score, look->names, look->told_bits,
	    look->carriers, look->got_bytes);
	record_set(r, TEXT_DETAIL, span_str(text));
	emit_note(w->front->parts.emit, r);
	count_add(w->front->parts.counts, COUNT_DNS_TUNNELS, 1);
}

bool
front_tunnel_refuses(struct waiting *w)
{
	struct front *f = w->front;
	struct tunnel_look look;
	struct asked a = { .type = 0 };

	if (front_keep_asks(w))
		return false;
	asked_of(&a, w);
	tunnel_question(f->tunnel, a.cell, a.qname, a.type, clock_mono_ms(),
	    &look);
	if (look.first)
		tell(w, &look);
	if (!look.suspected || !f->settings.tunnel_deny)
		return false;
	w->flow = (struct decision){ .reason = REASON_TUNNEL,
	    .rule = w->flow.rule };
	return true;
}

void
front_tunnel_answer(const struct waiting *w, size_t bytes)
{
	struct asked a = { .type = 0 };

	if (front_keep_asks(w))
		return;
	asked_of(&a, w);
	tunnel_answer(w->front->tunnel, a.cell, a.qname, bytes,
	    clock_mono_ms());
}
