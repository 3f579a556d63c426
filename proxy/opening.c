/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/opening.h"

#include <strings.h>

#define RECORD_CHANGE_CIPHER_SPEC 20
#define RECORD_ALERT 21
#define RECORD_HANDSHAKE 22
#define RECORD_LAST 24			/* heartbeat */
#define RECORD_HEAD_BYTES 5u
#define RECORD_MAX_BYTES (16384u + 2048u)
/* A well-known server reads records of every version below 16.0. */
#define MAJOR_END 0x10
#define ALERT_BYTES 2u

#define SSLV2_MIN_BYTES 9u
#define SSLV2_MAX_BYTES 16384u

static enum parse
bad(enum reason *why, enum reason r)
{
	*why = r;
	return PARSE_BAD;
}

/* What parts words for a lenient server; a line feed ends the line. */
static bool
is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

static size_t
record_length(struct span s)
{
	return (size_t)s.data[3] << 8 | s.data[4];
}

/* ---- what hides ---- */

/* A handshake record whose head is whole, but of no version that is. */
static enum parse
judge_handshake(struct span s, enum reason *why)
{
	size_t len = record_length(s);

	if (len == 0)
		return bad(why, REASON_HELLO_MALFORMED);
	if (len > RECORD_MAX_BYTES)
		return PARSE_DONE;
	if (s.len == RECORD_HEAD_BYTES)
		return PARSE_MORE;
	return s.data[RECORD_HEAD_BYTES] == 1 ?
	    bad(why, REASON_HELLO_MALFORMED) : PARSE_DONE;
}

/* A record of TLS that is no hello as we read it.  Servers skip alerts, and
 * some look at no version. */
static enum parse
judge_record(struct span s, enum reason *why)
{
	const uint8_t type = s.data[0];

	if (type < RECORD_CHANGE_CIPHER_SPEC || type > RECORD_LAST)
		return PARSE_DONE;
	if (s.len < 2)
		return PARSE_MORE;
	if (type != RECORD_HANDSHAKE && s.data[1] == 3)
		return bad(why, REASON_PROTOCOL);
	if (s.data[1] >= MAJOR_END ||
	    (type != RECORD_HANDSHAKE && type != RECORD_ALERT))
		return PARSE_DONE;
	if (s.len < RECORD_HEAD_BYTES)
		return PARSE_MORE;
	if (type == RECORD_HANDSHAKE)
		return judge_handshake(s, why);
	return record_length(s) == ALERT_BYTES ?
	    bad(why, REASON_PROTOCOL) : PARSE_DONE;
}

/* Two length bytes with the top bit, type 1, version 0.2 or 3.x (RFC 5246
 * E.2). */
static enum parse
judge_sslv2(struct span s, enum reason *why)
{
	size_t len;

	if ((s.data[0] & 0x80) == 0)
		return PARSE_DONE;
	if (s.len < 2)
		return PARSE_MORE;
	len = (size_t)(s.data[0] & 0x7f) << 8 | s.data[1];
	if (len < SSLV2_MIN_BYTES || len > SSLV2_MAX_BYTES)
		return PARSE_DONE;
	if (s.len < 3)
		return PARSE_MORE;
	if (s.data[2] != 1)
		return PARSE_DONE;
	if (s.len < 4)
		return PARSE_MORE;
	return s.data[3] <= 3 ? bad(why, REASON_HELLO_SSLV2) : PARSE_DONE;
}

/* A header of the PROXY protocol: what follows is read as if nothing stood
 * before.  Version 2 begins with an empty line. */
static enum parse
judge_proxy(struct span s, enum reason *why)
{
	static const char head[] = "PROXY ";
	size_t n = s.len < sizeof(head) - 1 ? s.len : sizeof(head) - 1;

	if (memcmp(s.data, head, n) != 0)
		return PARSE_DONE;
	return n == sizeof(head) - 1 ? bad(why, REASON_PROTOCOL) :
	    PARSE_MORE;
}

/* "GET /" of HTTP/0.9, behind which some servers read fields all the same. */
static enum parse
judge_method(struct span s, const char *method, enum reason *why)
{
	const size_t len = strlen(method);
	size_t n = s.len < len ? s.len : len;

	if (strncasecmp((const char *)s.data, method, n) != 0)
		return PARSE_DONE;
	if (n < len || s.len == len)
		return PARSE_MORE;
	if (!is_blank(s.data[n]))
		return PARSE_DONE;
	while (n < s.len && is_blank(s.data[n]))
		n++;
	if (n == s.len)
		return PARSE_MORE;
	return s.data[n] == '/' || s.data[n] == '*' ||
	    (s.data[n] | 0x20) == 'h' ? bad(why, REASON_PROTOCOL) :
	    PARSE_DONE;
}

static enum parse
judge_request(struct span s, enum reason *why)
{
	static const char *const methods[] = { "GET", "HEAD", "POST", "PUT",
		"DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE" };
	enum parse got = PARSE_DONE, p;

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		p = judge_method(s, methods[i], why);
		if (p == PARSE_BAD)
			return p;
		if (p == PARSE_MORE)
			got = p;
	}
	return got;
}

enum parse
opening_judge(struct span s, enum reason *why)
{
	static enum parse (*const judges[])(struct span, enum reason *) = {
		judge_record, judge_sslv2, judge_proxy, judge_request };
	enum parse p;

	if (s.len == 0)
		return PARSE_MORE;
	if (is_blank(s.data[0]) || s.data[0] == '\n')
		return bad(why, REASON_PROTOCOL);
	/* No two of them begin alike. */
	for (size_t i = 0; i < sizeof(judges) / sizeof(judges[0]); i++) {
		p = judges[i](s, why);
		if (p != PARSE_DONE)
			return p;
	}
	return PARSE_DONE;
}

/* ---- the first line ---- */

static const char version[] = " HTTP/";
#define AT_DIGITS (sizeof(version) - 1)
#define AT_END (AT_DIGITS + 1)
#define AT_BLANK (AT_END + 1)		/* at the end of the line */

/* One byte of a line of text. */
static void
match(struct opening_line *l, uint8_t c)
{
	if ((l->matched == AT_DIGITS || l->matched == AT_END) &&
	    ((c >= '0' && c <= '9') || c == '.'))
		l->matched = AT_END;
	else if (l->matched >= AT_END && is_blank(c))
		l->matched = AT_BLANK;
	else if (l->matched < AT_DIGITS && (is_blank(c) ? ' ' :
	    c >= 'a' && c <= 'z' ? c - 0x20 : c) == version[l->matched])
		l->matched++;
	else
		l->matched = is_blank(c) ? 1 : 0;
}

bool
opening_line_is_http(struct opening_line *l, struct span bytes)
{
	for (size_t i = 0; i < bytes.len && !l->over; i++) {
		uint8_t c = bytes.data[i];

		if (c == '\n' && l->matched >= AT_END)
			return true;
		l->over = c == 0x7f || (c < 0x20 && !is_blank(c));
		match(l, c);
	}
	return false;
}

/* ---- a hello further behind ---- */

/* The beginning of the message: its type, a length of at most 65535, version
 * 3.0 to 3.4. */
static bool
fits_message(size_t at, uint8_t c)
{
	switch (at) {
	case 0:
		return c == 1;
	case 1:
		return c == 0;
	case 4:
		return c == 3;
	case 5:
		return c <= 4;
	}
	return true;
}
#define MESSAGE_TELLS 6u

static bool
fits_head(struct span head)
{
	size_t len = head.len == RECORD_HEAD_BYTES ? record_length(head) : 1;

	if (head.len > 1 && head.data[1] >= MAJOR_END)
		return false;
	return len > 0 && len <= RECORD_MAX_BYTES;
}

/*
 * Does a hello begin here, in pieces of any size?  Behind a first one any
 * record that follows is a part of it or an attempt: an alert between two
 * pieces, an empty record.
 */
static enum parse
begins_hello(struct span s)
{
	size_t message = 0;

	while (message < MESSAGE_TELLS) {
		struct span head = span_of(s.data, s.len < RECORD_HEAD_BYTES ?
		    s.len : RECORD_HEAD_BYTES);
		size_t len;

		if (head.len == 0)
			return PARSE_MORE;
		if (head.data[0] != RECORD_HANDSHAKE || !fits_head(head))
			return message > 0 && head.data[0] >=
			    RECORD_CHANGE_CIPHER_SPEC &&
			    head.data[0] <= RECORD_LAST ? PARSE_DONE :
			    PARSE_BAD;
		if (head.len < RECORD_HEAD_BYTES)
			return PARSE_MORE;
		len = record_length(head);
		s = span_of(s.data + head.len, s.len - head.len);
		for (; len > 0 && message < MESSAGE_TELLS; len--) {
			if (s.len == 0)
				return PARSE_MORE;
			if (!fits_message(message++, s.data[0]))
				return PARSE_BAD;
			s = span_of(s.data + 1, s.len - 1);
		}
	}
	return PARSE_DONE;
}

bool
opening_find_hello(struct span s, size_t *at)
{
	const uint8_t *from = s.data, *end = s.data + s.len, *p;
	enum parse got;

	*at = s.len;
	while (from < end && (p = memchr(from, RECORD_HANDSHAKE,
	    (size_t)(end - from))) != NULL) {
		got = begins_hello(span_of(p, (size_t)(end - p)));
		if (got == PARSE_DONE) {
			*at = (size_t)(p - s.data);
			return true;
		}
		if (got == PARSE_MORE && *at == s.len)
			*at = (size_t)(p - s.data);
		from = p + 1;
	}
	return false;
}
