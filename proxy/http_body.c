/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/http.h"

/* Chunked bodies (RFC 9112 7.1), byte-exact or without their chunks. */

#define SIZE_DIGITS_MAX 15u
#define EXTENSION_MAX_BYTES 256u	/* of one chunk-size line */
#define TRAILER_MAX_BYTES 8192u

enum chunk_state {
	CHUNK_SIZE = 0, CHUNK_EXTENSION, CHUNK_QUOTED, CHUNK_ESCAPED,
	CHUNK_SIZE_LF, CHUNK_DATA,
	CHUNK_DATA_CR, CHUNK_DATA_LF, CHUNK_TRAILER, CHUNK_TRAILER_LINE,
	CHUNK_TRAILER_LF, CHUNK_LAST_LF, CHUNK_END,
};

static int
hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static bool
size_byte(struct http_chunks *c, uint8_t b)
{
	int v = hex_value(b);

	if (v >= 0) {
		c->left = c->left << 4 | (unsigned)v;
		return ++c->digits <= SIZE_DIGITS_MAX;
	}
	if (c->digits == 0)
		return false;
	c->line = 0;
	if (b == '\r')
		c->state = CHUNK_SIZE_LF;
	else if (b == ';')
		c->state = CHUNK_EXTENSION;
	else
		return false;
	c->digits = 0;
	return true;
}

/* RFC 9112 7.1.1: a semicolon is followed by a name, and a quoted value ends
 * in its line. */
static bool
extension_byte(struct http_chunks *c, uint8_t b)
{
	if (b == '\r') {
		c->state = CHUNK_SIZE_LF;
		return c->digits == 1;
	}
	if (++c->line > EXTENSION_MAX_BYTES)
		return false;
	if (b == ';' && c->digits-- == 0)
		return false;
	if (b == '"' && c->digits == 1)
		c->state = CHUNK_QUOTED;
	else if (http_is_token_char(b))
		c->digits = 1;
	else
		return b == ';' || b == '=' || b == ' ' || b == '\t';
	return true;
}

static bool
quoted_byte(struct http_chunks *c, uint8_t b)
{
	if (c->state == CHUNK_QUOTED && b == '\\')
		c->state = CHUNK_ESCAPED;
	else if (c->state == CHUNK_QUOTED && b == '"')
		c->state = CHUNK_EXTENSION;
	else
		c->state = CHUNK_QUOTED;
	return (b == '\t' || (b >= 0x20 && b != 0x7f)) &&
	    ++c->line <= EXTENSION_MAX_BYTES;
}

/* Fields that frame, route or authenticate a message are never taken from
 * a trailer (RFC 9110 6.5.1). */
static const char *const forbidden[] = { "host", "content-length",
	"transfer-encoding", "authorization", "proxy-authorization",
	"connection", "content-encoding", "content-type", "content-range",
	"te", "trailer", "cookie", "set-cookie", "expect", "upgrade" };

/* The name is kept as a hash of its folded bytes, so that no buffer is.  Some
 * servers read "_" as "-". */
static uint64_t
name_hash(uint64_t h, uint8_t b)
{
	if (b >= 'A' && b <= 'Z')
		b = (uint8_t)(b + 32);
	if (b == '_')
		b = '-';
	return ((h == 0 ? 14695981039346656037ull : h) ^ b) *
	    1099511628211ull;
}

static bool
is_forbidden(uint64_t hash)
{
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]);
	    i++) {
		uint64_t h = 0;

		for (const char *p = forbidden[i]; *p != '\0'; p++)
			h = name_hash(h, (uint8_t)*p);
		if (h == hash)
			return true;
	}
	return false;
}

/* A trailer line is a token, a colon at once, and a value: no folding and no
 * blank before the colon. */
static bool
trailer_byte(struct http_chunks *c, uint8_t b)
{
	if (++c->trailer > TRAILER_MAX_BYTES)
		return false;
	if (c->state == CHUNK_TRAILER) {
		if (b == '\r') {
			c->state = CHUNK_LAST_LF;
			return true;
		}
		c->state = CHUNK_TRAILER_LINE;
		c->digits = 0;
		c->left = name_hash(0, b);
		return http_is_token_char(b);
	}
	if (b == '\r') {
		c->state = CHUNK_TRAILER_LF;
		return c->digits == 1;
	}
	if (c->digits == 0 && b == ':') {
		c->digits = 1;
		return !is_forbidden(c->left);
	}
	if (c->digits == 0) {
		c->left = name_hash(c->left, b);
		return http_is_token_char(b);
	}
	return b == '\t' || (b >= 0x20 && b != 0x7f);
}

static bool
byte(struct http_chunks *c, uint8_t b)
{
	switch ((enum chunk_state)c->state) {
	case CHUNK_SIZE:
		return size_byte(c, b);
	case CHUNK_EXTENSION:
		return extension_byte(c, b);
	case CHUNK_QUOTED:
	case CHUNK_ESCAPED:
		return quoted_byte(c, b);
	case CHUNK_SIZE_LF:
		c->state = c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
		c->digits = 0;
		return b == '\n';
	case CHUNK_DATA_CR:
		c->state = CHUNK_DATA_LF;
		return b == '\r';
	case CHUNK_DATA_LF:
		c->state = CHUNK_SIZE;
		return b == '\n';
	case CHUNK_TRAILER:
	case CHUNK_TRAILER_LINE:
		return trailer_byte(c, b);
	case CHUNK_TRAILER_LF:
		c->state = CHUNK_TRAILER;
		return b == '\n';
	case CHUNK_LAST_LF:
		c->state = CHUNK_END;
		return b == '\n';
	case CHUNK_DATA:
	case CHUNK_END:
		break;
	}
	return false;
}

/* How many of these bytes are the chunk's data, and are passed by. */
static size_t
take_data(struct http_chunks *c, size_t len)
{
	size_t n = c->left < len ? (size_t)c->left : len;

	c->left -= n;
	if (c->left == 0)
		c->state = CHUNK_DATA_CR;
	return n;
}

enum parse
http_chunks_feed(struct http_chunks *c, struct span bytes, size_t *used)
{
	*used = 0;
	while (*used < bytes.len && c->state != CHUNK_END) {
		if (c->state == CHUNK_DATA) {
			*used += take_data(c, bytes.len - *used);
			continue;
		}
		if (!byte(c, bytes.data[*used]))
			return PARSE_BAD;
		(*used)++;
	}
	return c->state == CHUNK_END ? PARSE_DONE : PARSE_MORE;
}

enum parse
http_chunks_strip(struct http_chunks *c, uint8_t *bytes, size_t len,
    size_t *used, size_t *data)
{
	*used = *data = 0;
	while (*used < len && c->state != CHUNK_END) {
		if (c->state == CHUNK_DATA) {
			size_t n = take_data(c, len - *used);

			memmove(bytes + *data, bytes + *used, n);
			*used += n;
			*data += n;
			continue;
		}
		if (!byte(c, bytes[*used]))
			return PARSE_BAD;
		(*used)++;
	}
	return c->state == CHUNK_END ? PARSE_DONE : PARSE_MORE;
}
