/* SPDX-License-Identifier: Apache-2.0 */
/* Exact names of protocol: tcp rules that a cell has looked up stay pinned:
 * their clients keep an address, show no name, and do not ask again. */
#include "dns/front_part.h"
#include "dns/keep.h"
#include "dns/pin_book.h"
#include "ledger-client/clock.h"

#define TICK_S 1
#define ASKED_PER_TICK 16u	/* a round of all is within a pin's grace */

static void on_tick(evutil_socket_t fd, short what, void *arg);

int
front_keep_start(struct front *f)
{
	struct timeval tick = { .tv_sec = TICK_S };

	f->keep = keep_new(f->settings.keep_min_ms);
	f->keep_tick = event_new(f->parts.base, -1, EV_PERSIST, on_tick, f);
	if (f->keep != NULL && f->keep_tick != NULL &&
	    event_add(f->keep_tick, &tick) == 0)
		return 0;
	front_keep_stop(f);
	return -1;
}

void
front_keep_stop(struct front *f)
{
	keep_free(f->keep);
	if (f->keep_tick != NULL)
		event_free(f->keep_tick);
	f->keep = NULL;
	f->keep_tick = NULL;
}

bool
front_keep_asks(const struct waiting *w)
{
	return w->via == VIA_NONE && w->engine == NULL;
}

void
front_keep_note(const struct waiting *w, const struct pin_cell *cell,
    uint32_t ttl_s, int64_t now_ms)
{
	if (w->flow.kept)
		(void)keep_note(w->front->keep, cell, &w->question.name,
		    ttl_s, front_keep_asks(w), now_ms);
}

/* ---- asking ---- */

/* As an engine's question, with nobody to be answered: what comes is judged
 * and pinned. */
static struct waiting
asker(struct front *f, const struct keep_name *n)
{
	struct waiting w = { .front = f, .via = VIA_NONE,
	    .question.name = n->name,
	    .generation = policy_generation(f->policy) };

	memcpy(w.cell_id, n->cell, sizeof(w.cell_id));
	memcpy(w.cell_run, n->run, sizeof(w.cell_run));
	return w;
}

static void
on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct front *f = arg;
	struct keep_name n;

	(void)fd;
	(void)what;
	if (f->policy == NULL)
		return;
	for (unsigned i = 0; i < ASKED_PER_TICK &&
	    keep_due(f->keep, clock_mono_ms(), &n); i++) {
		struct waiting w = asker(f, &n);

		front_engine_question(&w);
	}
}

/* ---- other servers, another policy ---- */

void
front_forsake(struct front *f, pin_fits *fits, void *arg)
{
	pin_end_names(f->parts.pins, fits, arg);
	keep_hurry(f->keep, fits, arg, clock_mono_ms());
}

static bool
stays(void *arg, const struct keep_name *n)
{
	struct front *f = arg;
	struct waiting w = asker(f, n);
	struct decide_at at;

	if (front_find_cell(&w) != REASON_NONE)
		return false;
	at = front_at(&w);
	return decide_question(&at, &n->name, &w.flow) && w.flow.kept;
}

/* What a resolver before this one has pinned is asked for anew. */
static void
take_over(struct front *f)
{
	struct pin_book *b = pin_book_new(f->parts.pins, f->policy);
	int64_t now = clock_mono_ms();
	struct pin_row row;
	uint32_t at = 0;

	while (b != NULL && pin_book_next(b, &at, &row)) {
		struct waiting w = { .front = f, .cell = row.cell };
		struct decide_at where = front_at(&w);
		struct pin_cell cell;

		if (row.until_ms > now &&
		    pin_cell_of(f->policy, row.cell, &cell) &&
		    decide_question(&where, &row.name, &w.flow) &&
		    w.flow.kept)
			(void)keep_note(f->keep, &cell, &row.name, 0, false,
			    now);
	}
	pin_book_free(b);
}

void
front_keep_policy(struct front *f, bool first)
{
	if (f->policy == NULL)
		return;
	keep_policy(f->keep, (uint32_t)policy_cells(f->policy), stays, f);
	if (first)
		take_over(f);
}
