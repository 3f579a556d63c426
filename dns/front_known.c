/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of questions for the same name, many a second, only the first of each second
 * is judged: the policy, the cell, the second and the answer are all that the
 * rest would be judged by, and they are the same.  A question that is answered
 * from the cache carries nothing to anybody, so nor are tunnels looked for.
 * Each is counted and recorded all the same.
 */
#include <time.h>

#include "dns/front_part.h"

bool
front_known(struct waiting *w, struct resolve_answer *got)
{
	const struct cache_note *note;

	if (w->via == VIA_NONE || !resolve_cached(w->front->parts.resolve,
	    &w->question.name, w->question.type, got))
		return false;
	note = cache_note(got->records);
	w->known = note->epoch == w->front->epoch &&
	    note->cell == w->cell && note->second == (int64_t)time(NULL);
	if (w->known)
		w->flow = note->flow;
	return w->known;
}

void
front_know(const struct waiting *w)
{
	if (w->via == VIA_NONE || !w->got->cached)
		return;
	*cache_note(w->got->records) = (struct cache_note){
	    .epoch = w->front->epoch, .second = (int64_t)time(NULL),
	    .cell = w->cell, .flow = w->flow };
}
