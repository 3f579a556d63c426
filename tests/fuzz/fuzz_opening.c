/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that pass without being read: what is told of them stays true when
 * more come, and a hello further behind is found where it begins, in pieces
 * of any size. */
#include <stdlib.h>

#include "proxy/opening.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EACH_BYTES 512u		/* so far each prefix is tried */

/* The next prefix, of a step that comes from the data. */
static size_t
longer(struct span s, size_t n)
{
	size_t step = s.len <= EACH_BYTES ? 1 :
	    s.data[s.len - 1] * 16u + 1;

	return n >= s.len || s.len - n <= step ? s.len : n + step;
}

/* Of bytes that nobody may read beyond. */
static enum parse
judge(struct span s, size_t n, enum reason *why)
{
	uint8_t *copy = malloc(n > 0 ? n : 1);
	enum parse p;

	if (copy == NULL)
		abort();
	memcpy(copy, s.data, n);
	*why = REASON_NONE;
	p = opening_judge(span_of(copy, n), why);
	free(copy);
	if ((p == PARSE_BAD) != (*why != REASON_NONE))
		abort();
	return p;
}

static void
judged(struct span s)
{
	enum reason why, final_why;
	enum parse p, final = judge(s, s.len, &final_why);

	for (size_t n = 0; n < s.len; n = longer(s, n)) {
		p = judge(s, n, &why);
		if (p != PARSE_MORE && (p != final || why != final_why))
			abort();
	}
}

static void
lines(struct span s)
{
	struct opening_line whole = { 0 }, slow = { 0 };
	bool at_once = opening_line_is_http(&whole, s), found = false;
	size_t at = 0, to;

	for (; at < s.len && !found; at = to) {
		to = longer(s, at);
		found = opening_line_is_http(&slow, span_of(s.data + at,
		    to - at));
	}
	if (found != at_once)
		abort();
	/* nothing behind the line makes it one */
	if (found && memchr(s.data, '\n', s.len) == NULL)
		abort();
}

/* As the gate does it: what cannot begin a hello is let go. */
static void
found(struct span s)
{
	size_t at, want, from = 0;
	bool is = opening_find_hello(s, &want);

	if (want > s.len || (is && s.data[want] != 0x16))
		abort();
	for (size_t n = 0;; n = longer(s, n)) {
		if (opening_find_hello(span_of(s.data + from, n - from),
		    &at)) {
			if (!is || from + at != want)
				abort();
			return;
		}
		from += at;
		if (from > n || from > want)
			abort();
		if (n == s.len)
			break;
	}
	if (is || from != want)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_of(data, size);

	if (size == 0)
		return 0;
	judged(s);
	lines(s);
	found(s);
	return 0;
}
