/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/span.h"

static uint8_t
lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

bool
span_caseeq(struct span a, struct span b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++)
		if (lower(a.data[i]) != lower(b.data[i]))
			return false;
	return true;
}

bool
span_starts(struct span s, const char *text)
{
	struct span t = span_str(text);

	return s.len >= t.len && span_caseeq(span_of(s.data, t.len), t);
}

bool
span_u8(struct span *from, uint8_t *out)
{
	struct span b;

	if (!span_take(from, 1, &b))
		return false;
	*out = b.data[0];
	return true;
}

bool
span_u16(struct span *from, uint16_t *out)
{
	struct span b;

	if (!span_take(from, 2, &b))
		return false;
	*out = (uint16_t)(b.data[0] << 8 | b.data[1]);
	return true;
}

bool
span_u24(struct span *from, uint32_t *out)
{
	struct span b;

	if (!span_take(from, 3, &b))
		return false;
	*out = (uint32_t)b.data[0] << 16 | (uint32_t)b.data[1] << 8 |
	    b.data[2];
	return true;
}

bool
span_u32(struct span *from, uint32_t *out)
{
	struct span b;

	if (!span_take(from, 4, &b))
		return false;
	*out = (uint32_t)b.data[0] << 24 | (uint32_t)b.data[1] << 16 |
	    (uint32_t)b.data[2] << 8 | b.data[3];
	return true;
}

/* Length and body together, or neither. */
static bool
vec(struct span *from, struct span rest, size_t len, struct span *out)
{
	if (!span_take(&rest, len, out))
		return false;
	*from = rest;
	return true;
}

bool
span_vec8(struct span *from, struct span *out)
{
	struct span rest = *from;
	uint8_t len;

	return span_u8(&rest, &len) && vec(from, rest, len, out);
}

bool
span_vec16(struct span *from, struct span *out)
{
	struct span rest = *from;
	uint16_t len;

	return span_u16(&rest, &len) && vec(from, rest, len, out);
}

bool
span_vec24(struct span *from, struct span *out)
{
	struct span rest = *from;
	uint32_t len;

	return span_u24(&rest, &len) && vec(from, rest, len, out);
}

char *
span_print(struct span s, char *out, size_t size)
{
	static const char hex[] = "0123456789abcdef";
	size_t at = 0;

	if (size == 0)
		return out;
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.data[i];
		bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';

		/* one for "~", one for the NUL */
		if (at + (plain ? 1 : 4) + 2 > size) {
			if (at + 1 < size)
				out[at++] = '~';
			break;
		}
		if (plain) {
			out[at++] = (char)c;
			continue;
		}
		out[at++] = '\\';
		out[at++] = 'x';
		out[at++] = hex[c >> 4];
		out[at++] = hex[c & 15];
	}
	out[at] = '\0';
	return out;
}

/* ---- characters ---- */

/* The code point at s, and how many bytes it has; bytes that are no
 * UTF-8 give some number, never a read past the end. */
static uint32_t
code_point(const uint8_t *s, size_t left, size_t *bytes)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);

	*bytes = n < left ? n : left;
	for (size_t i = 1; i < *bytes; i++)
		c = c << 6 | (s[i] & 0x3f);
	return c;
}

/*
 * Characters that look like nothing or like another one (blanks that are not
 * the blank, joiners, marks of direction, other dots): they never belong into
 * a name or a number.
 */
static bool
is_invisible(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} set[] = {
		{ 0x80, 0xa0 }, { 0xad, 0xad }, { 0x34f, 0x34f },
		{ 0x61c, 0x61c }, { 0x115f, 0x1160 }, { 0x1680, 0x1680 },
		{ 0x17b4, 0x17b5 }, { 0x180b, 0x180f }, { 0x2000, 0x200f },
		{ 0x2028, 0x202f }, { 0x205f, 0x206f }, { 0x3000, 0x3000 },
		{ 0x3002, 0x3002 }, { 0x3164, 0x3164 }, { 0xfe00, 0xfe0f },
		{ 0xfeff, 0xfeff }, { 0xff0e, 0xff0e }, { 0xff61, 0xff61 },
		{ 0xffa0, 0xffa0 }, { 0xfff0, 0xfffb },
		{ 0xe0000, 0xe0fff },
	};

	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		if (c >= set[i].first && c <= set[i].last)
			return true;
	return false;
}

bool
span_has_invisible(struct span s)
{
	size_t n;

	for (size_t i = 0; i < s.len; i += n)
		if (is_invisible(code_point(s.data + i, s.len - i, &n)))
			return true;
	return false;
}

char *
decimal_text(uint64_t v, char *out)
{
	char digits[DECIMAL_TEXT_BYTES];
	size_t n = 0;

	do
		digits[n++] = (char)('0' + v % 10);
	while ((v /= 10) > 0);
	while (n > 0)
		*out++ = digits[--n];
	return out;
}
