/* SPDX-License-Identifier: Apache-2.0 */
/* The SEQPACKETs of engines; what they ask is judged in dns/front.c. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dns/front_part.h"

#define READS_PER_WAKE 64u
#define UNSENT_MS 10u		/* until a full socket is tried again */

/* ---- answers ---- */

/* False: it finds no room now.  Where the engine is gone nobody waits for it,
 * as the end of file says. */
static bool
engine_send(struct engine *e, const struct ask_answer *a)
{
	return send(e->fd, a, sizeof(*a), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
	    (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM &&
	    errno != EINTR);
}

static void
engine_keep(struct engine *e, const struct ask_answer *a)
{
	struct timeval again = { .tv_usec = UNSENT_MS * 1000 };

	if (e->n_unsent == e->room)
		return;			/* not reached: see engine_room */
	e->unsent[e->n_unsent++] = *a;
	/* without the timer the socket's next event looks after it */
	if (e->n_unsent == 1 && event_add(e->again, &again) == 0)
		event_del(e->readable);
}

/* True when all is sent. */
static bool
engine_send_kept(struct engine *e)
{
	size_t n = 0;

	while (n < e->n_unsent && engine_send(e, &e->unsent[n]))
		n++;
	e->n_unsent -= n;
	if (n > 0)
		memmove(e->unsent, e->unsent + n,
		    e->n_unsent * sizeof(*e->unsent));
	return e->n_unsent == 0;
}

static void
on_again(evutil_socket_t fd, short what, void *arg)
{
	struct timeval again = { .tv_usec = UNSENT_MS * 1000 };
	struct engine *e = arg;

	(void)fd;
	(void)what;
	if (!engine_send_kept(e) || event_add(e->readable, NULL) < 0)
		event_add(e->again, &again);
}

/* An answer to one more question has a place. */
static bool
engine_room(struct engine *e)
{
	size_t n = e->room > 0 ? 2 * e->room : 16;
	struct ask_answer *more;

	if (e->room >= e->n_open + 2)
		return true;
	more = reallocarray(e->unsent, n, sizeof(*more));
	if (more == NULL)
		return false;
	e->unsent = more;
	e->room = n;
	return true;
}

void
front_engine_answer(const struct waiting *w, enum reason why,
    const struct addrs *got)
{
	struct ask_answer a = { .id = w->ask_id, .reason = (uint32_t)why };

	if (w->engine == NULL)
		return;
	if (why == REASON_NONE) {
		a.n_addrs = got->n;
		a.ttl_s = got->ttl_s;
		memcpy(a.addrs, got->addrs, sizeof(a.addrs));
	}
	if (w->engine->n_unsent > 0 || !engine_send(w->engine, &a))
		engine_keep(w->engine, &a);
}

/* ---- questions ---- */

/* Judged by the policy at hand; one that is asked by a policy yet to come
 * waits for that: what it allows would be refused here.  (Its number may be
 * any later one: a reload that failed has taken one too.) */
void
front_engine_question(struct waiting *w)
{
	const struct policy *p = w->front->policy;
	bool early = p != NULL && w->generation > policy_generation(p);
	enum reason why = early ? front_pending_wait(w) : front_find_cell(w);

	if (why != REASON_NONE) {
		front_engine_answer(w, why, NULL);
	} else if (!early) {
		w->deadline_ms = 0;
		front_judge(w);
	}
}

/* An engine reads hostile bytes: take no name on trust. */
static bool
read_question(struct waiting *w, const struct ask_question *q, ssize_t n)
{
	if (n != (ssize_t)sizeof(*q) || q->name.len > HOST_MAX_BYTES ||
	    memchr(q->cell, '\0', sizeof(q->cell)) == NULL ||
	    memchr(q->run, '\0', sizeof(q->run)) == NULL ||
	    host_parse(&w->question.name, span_of(q->name.name,
	    q->name.len)) != REASON_NONE)
		return false;
	w->ask_id = q->id;
	w->generation = q->generation;
	memcpy(w->cell_id, q->cell, sizeof(w->cell_id));
	memcpy(w->cell_run, q->run, sizeof(w->cell_run));
	w->via = VIA_NONE;
	return true;
}

static void
on_engine(evutil_socket_t fd, short what, void *arg)
{
	struct engine *e = arg;
	struct ask_question q;

	(void)what;
	for (unsigned i = 0; i < READS_PER_WAKE && engine_send_kept(e); i++) {
		struct waiting w = { .front = e->front, .engine = e };
		ssize_t n = recv(fd, &q, sizeof(q), MSG_DONTWAIT |
		    MSG_TRUNC);		/* the length that was sent */

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			front_engine_free(e);
			return;
		}
		if (!read_question(&w, &q, n))
			continue;
		if (engine_room(e))
			front_engine_question(&w);
		else
			front_engine_answer(&w, REASON_LIMIT_MEMORY, NULL);
	}
	emit_flush(e->front->parts.emit);
}

/* ---- life ---- */

void
front_engine_free(struct engine *e)
{
	for (struct waiting *w = e->front->waiting; w != NULL; w = w->next)
		if (w->engine == e)
			w->engine = NULL;
	for (struct engine **p = &e->front->engines; *p != NULL;
	    p = &(*p)->next)
		if (*p == e) {
			*p = e->next;
			break;
		}
	if (e->readable != NULL)
		event_free(e->readable);
	if (e->again != NULL)
		event_free(e->again);
	close(e->fd);
	free(e->unsent);
	free(e);
}

int
front_engine_new(struct front *f, int fd)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return -ENOMEM;
	e->front = f;
	e->fd = fd;
	e->next = f->engines;
	f->engines = e;
	e->readable = event_new(f->parts.base, fd, EV_READ | EV_PERSIST,
	    on_engine, e);
	e->again = event_new(f->parts.base, -1, 0, on_again, e);
	if (!engine_room(e) || e->again == NULL || e->readable == NULL ||
	    event_add(e->readable, NULL) < 0) {
		front_engine_free(e);
		return -ENOMEM;
	}
	return 0;
}
