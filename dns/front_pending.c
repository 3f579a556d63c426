/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that wait: for the resolver, or for the policy that they were
 * asked by.  Each has a place, and a part of what its client and its cell may
 * hold. */
#include <errno.h>
#include <stdlib.h>

#include "dns/front_part.h"
#include "ledger-client/clock.h"

static void on_late(evutil_socket_t fd, short what, void *arg);

int
front_pending_start(struct front *f)
{
	f->share = share_new(f->settings.client_max);
	f->cells = share_new(0);
	f->late = evtimer_new(f->parts.base, on_late, f);
	if (f->share == NULL || f->cells == NULL || f->late == NULL) {
		front_pending_stop(f);
		return -ENOMEM;
	}
	front_pending_policy(f);
	return 0;
}

void
front_pending_stop(struct front *f)
{
	if (f->late != NULL)
		event_free(f->late);
	share_free(f->share);
	share_free(f->cells);
	f->late = NULL;
	f->share = f->cells = NULL;
}

void
front_pending_policy(struct front *f)
{
	share_cells(f->cells, f->settings.pending_max,
	    f->policy != NULL ? (uint32_t)policy_cells(f->policy) : 1);
}

/* ---- parts ---- */

/* Whose place it takes.  What an engine says of a cell that is not, or not
 * yet, is not taken for one: all of those share the part of one. */
static void
name_part(struct waiting *w)
{
	struct pin_cell cell;

	memset(w->part, 0, sizeof(w->part));
	if (pin_cell_of(w->front->policy, w->cell, &cell) &&
	    cell.id.len < sizeof(w->part))
		memcpy(w->part, cell.id.data, cell.id.len);
}

static enum reason
take_parts(struct waiting *w)
{
	struct front *f = w->front;
	/* An engine asks for many clients, whose connections are bounded. */
	bool shared = w->via != VIA_NONE;
	enum reason why = REASON_NONE;

	name_part(w);
	if (shared)
		why = share_take(f->share, &w->client.addr);
	if (why != REASON_NONE)
		return why;
	why = share_take_cell(f->cells, span_str(w->part));
	if (why != REASON_NONE && shared)
		share_give(f->share, &w->client.addr);
	return why;
}

static void
give_parts(const struct waiting *w)
{
	if (w->via != VIA_NONE)
		share_give(w->front->share, &w->client.addr);
	share_give_cell(w->front->cells, span_str(w->part));
}

/* ---- places ---- */

struct waiting *
front_pending_new(struct waiting *from, enum reason *why)
{
	struct front *f = from->front;
	bool full = f->n_waiting >= f->settings.pending_max;
	struct waiting *w;

	*why = take_parts(from);
	if (*why != REASON_NONE)
		return NULL;
	w = full ? NULL : malloc(sizeof(*w));
	if (w == NULL) {
		*why = full ? REASON_LIMIT_TOTAL : REASON_LIMIT_MEMORY;
		give_parts(from);
		return NULL;
	}
	*w = *from;
	w->next = f->waiting;
	if (w->next != NULL)
		w->next->prev = &w->next;
	w->prev = &f->waiting;
	f->waiting = w;
	f->n_waiting++;
	if (w->engine != NULL)
		w->engine->n_open++;
	if (w->tcp != NULL)
		front_tcp_hold(w->tcp);
	return w;
}

void
front_pending_free(struct waiting *w)
{
	struct front_tcp *tcp = w->tcp;

	*w->prev = w->next;
	if (w->next != NULL)
		w->next->prev = w->prev;
	w->front->n_waiting--;
	if (w->engine != NULL)
		w->engine->n_open--;
	give_parts(w);
	free(w);
	if (tcp != NULL)
		front_tcp_release(tcp);	/* may read the next message */
}

/* ---- a policy yet to come ---- */

enum reason
front_pending_wait(struct waiting *from)
{
	struct front *f = from->front;
	unsigned ms = f->settings.policy_wait_ms;
	struct timeval tv = { ms / 1000, (suseconds_t)(ms % 1000) * 1000 };
	enum reason why = REASON_NONE;
	struct waiting *w;

	/* one that has waited already goes on */
	if (from->deadline_ms == 0)
		from->deadline_ms = clock_mono_ms() + ms;
	from->cell = policy_cell_by_id(f->policy, span_str(from->cell_id));
	w = front_pending_new(from, &why);
	if (w == NULL)
		return why;
	if (!evtimer_pending(f->late, NULL) && event_add(f->late, &tv) < 0) {
		front_pending_free(w);
		return REASON_LIMIT_MEMORY;
	}
	return REASON_NONE;
}

/* What is over; the timer is for the first of the others. */
static void
on_late(evutil_socket_t fd, short what, void *arg)
{
	struct front *f = arg;
	struct waiting *w, *next;
	int64_t now = clock_mono_ms(), first = 0;
	struct timeval tv;

	(void)fd;
	(void)what;
	for (w = f->waiting; w != NULL; w = next) {
		next = w->next;
		if (w->deadline_ms > now &&
		    (first == 0 || w->deadline_ms < first))
			first = w->deadline_ms;
		if (w->deadline_ms == 0 || w->deadline_ms > now)
			continue;
		front_engine_answer(w, REASON_DNS_TIMEOUT, NULL);
		front_pending_free(w);
	}
	if (first == 0)
		return;
	tv.tv_sec = (first - now) / 1000;
	tv.tv_usec = (first - now) % 1000 * 1000;
	/* its place among the timers is the one that it had */
	(void)event_add(f->late, &tv);
}
