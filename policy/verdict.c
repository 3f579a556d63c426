/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/verdict.h"

static const struct {
	const char *word, *text;
} reasons[REASON_COUNT] = {
#define X(name, word, text) [REASON_##name] = { word, text },
	REASON_LIST(X)
#undef X
};

const char *
reason_word(enum reason r)
{
	return (unsigned)r < REASON_COUNT ? reasons[r].word : "internal";
}

const char *
reason_text(enum reason r)
{
	return (unsigned)r < REASON_COUNT ? reasons[r].text :
	    reasons[REASON_INTERNAL].text;
}

const char *
verdict_word(enum verdict v)
{
	return v == VERDICT_ALLOW ? "allow" : "deny";
}
