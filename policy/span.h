/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_SPAN_H
#define POLICY_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * A bounded view of bytes that somebody else owns.  Untrusted bytes travel
 * through the program as spans only: every reader below checks the bound, and
 * none of them allocates.  A span is valid as long as the bytes it views.
 */
struct span {
	const uint8_t *data;
	size_t len;
};

/* The result that must not be dropped. */
#define MUST_USE __attribute__((warn_unused_result))

/*
 * What a parser says of the bytes so far.  Zero is the refusal, so that a
 * forgotten assignment refuses.
 */
enum parse {
	PARSE_BAD = 0,	/* these bytes will never be accepted */
	PARSE_MORE,	/* not decided; call again with more */
	PARSE_DONE,	/* complete; the result is filled in */
};

static inline struct span
span_of(const void *data, size_t len)
{
	return (struct span){ .data = data, .len = len };
}

/* The bytes of a C string without its NUL. */
static inline struct span
span_str(const char *text)
{
	return span_of(text, strlen(text));
}

static inline bool
span_eq(struct span a, struct span b)
{
	return a.len == b.len &&
	    (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* ASCII case is ignored; bytes above 0x7f must be equal. */
bool span_caseeq(struct span a, struct span b);

/* True when the span begins with the text; ASCII case is ignored. */
bool span_starts(struct span s, const char *text);

/*
 * Take n bytes off the front into *out.  False, and nothing is moved, when
 * there are fewer.
 */
static inline bool
span_take(struct span *from, size_t n, struct span *out)
{
	if (from->len < n)
		return false;
	*out = span_of(from->data, n);
	from->data += n;
	from->len -= n;
	return true;
}

/* Big-endian integers off the front; false, and nothing moved, when short. */
bool span_u8(struct span *from, uint8_t *out);
bool span_u16(struct span *from, uint16_t *out);
bool span_u24(struct span *from, uint32_t *out);
bool span_u32(struct span *from, uint32_t *out);

/* A vector with a length in front (1, 2 or 3 bytes wide), as TLS writes it. */
bool span_vec8(struct span *from, struct span *out);
bool span_vec16(struct span *from, struct span *out);
bool span_vec24(struct span *from, struct span *out);

/*
 * True when the UTF-8 text holds a character that looks like nothing or like
 * another one: blanks that are not the blank, joiners, marks of direction,
 * other dots, a soft hyphen.  For what an operator writes.
 */
bool span_has_invisible(struct span s);

/*
 * Write the span as printable ASCII into out[size]: other bytes, the quote
 * and the backslash become \xNN.  The result is always terminated and ends
 * in "~" when it had to be cut.  Returns out.
 */
char *span_print(struct span s, char *out, size_t size);

/*
 * Write v in decimal, without a NUL; returns the place behind the last digit.
 * Each record has a dozen numbers, and printf took half of the time of a line.
 */
#define DECIMAL_TEXT_BYTES 21	/* of the largest one, with a NUL */
char *decimal_text(uint64_t v, char *out);

#endif
