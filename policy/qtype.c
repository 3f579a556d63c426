/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/qtype.h"

#include <stdio.h>

static const struct {
	uint16_t type;
	const char *word;
} types[QTYPE_COUNT] = {
	{ 2, "NS" }, { 5, "CNAME" }, { 6, "SOA" }, { 12, "PTR" },
	{ 15, "MX" }, { 16, "TXT" }, { 33, "SRV" }, { 257, "CAA" },
};

uint32_t
qtype_bit(uint16_t type)
{
	for (unsigned i = 0; i < QTYPE_COUNT; i++)
		if (types[i].type == type)
			return UINT32_C(1) << i;
	return 0;
}

uint32_t
qtype_named(struct span word)
{
	for (unsigned i = 0; i < QTYPE_COUNT; i++)
		if (span_caseeq(word, span_str(types[i].word)))
			return UINT32_C(1) << i;
	return 0;
}

char *
qtype_text(uint32_t set, char out[static QTYPE_TEXT_BYTES])
{
	size_t n = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < QTYPE_COUNT; i++)
		if ((set >> i & 1) != 0)
			n += (size_t)snprintf(out + n, QTYPE_TEXT_BYTES - n,
			    "%s%s", n > 0 ? " " : "", types[i].word);
	return out;
}
