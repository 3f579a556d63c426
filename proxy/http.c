/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/http.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>

/* Longer tokens are not taken for a method, when the protocol is told from
 * the first bytes and when the request is read. */
#define METHOD_MAX_BYTES 32u

/* ---- characters ---- */

bool
http_is_token_char(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z') ||
	    (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool
is_token(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!http_is_token_char(s.data[i]))
			return false;
	return s.len > 0;
}

/* Visible ASCII: what a request target may hold. */
static bool
is_target_char(uint8_t c)
{
	return c > 0x20 && c < 0x7f;
}

/* RFC 9110 5.5: visible bytes, obs-text, blanks inside. */
static bool
is_value(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.data[i] != '\t' &&
		    (s.data[i] < 0x20 || s.data[i] == 0x7f))
			return false;
	return true;
}

static struct span
trim(struct span s)
{
	while (s.len > 0 && (s.data[0] == ' ' || s.data[0] == '\t'))
		s = span_of(s.data + 1, s.len - 1);
	while (s.len > 0 && (s.data[s.len - 1] == ' ' ||
	    s.data[s.len - 1] == '\t'))
		s.len--;
	return s;
}

static bool
is(struct span s, const char *text)
{
	return span_caseeq(s, span_str(text));
}

/* The part before c, and what follows it; false when c is not there. */
static bool
split(struct span s, uint8_t c, struct span *before, struct span *after)
{
	const uint8_t *p = s.len > 0 ? memchr(s.data, c, s.len) : NULL;

	if (p == NULL)
		return false;
	*before = span_of(s.data, (size_t)(p - s.data));
	*after = span_of(p + 1, s.len - before->len - 1);
	return true;
}

/* Next element of a comma-separated list (RFC 9110 5.6.1), trimmed; empty
 * ones are skipped. */
static bool
next_item(struct span *list, struct span *item)
{
	while (list->len > 0) {
		struct span rest;

		if (!split(*list, ',', item, &rest)) {
			*item = *list;
			rest = span_of(list->data + list->len, 0);
		}
		*list = rest;
		*item = trim(*item);
		if (item->len > 0)
			return true;
	}
	return false;
}

bool
http_field_lists(const struct http_field *fields, size_t n, const char *name,
    struct span token)
{
	for (size_t i = 0; i < n; i++) {
		struct span list = fields[i].value, item;

		if (!is(fields[i].name, name))
			continue;
		while (next_item(&list, &item))
			if (span_caseeq(item, token))
				return true;
	}
	return false;
}

static bool
lists(const struct http_field *fields, size_t n, const char *name,
    const char *token)
{
	return http_field_lists(fields, n, name, span_str(token));
}

const struct http_field *
http_field_find(const struct http_field *fields, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (is(fields[i].name, name))
			return &fields[i];
	return NULL;
}

static size_t
count_fields(const struct http_field *fields, size_t n, const char *name)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += is(fields[i].name, name);
	return found;
}

/* ---- lines ---- */

/*
 * The head is whole when CR LF CR LF was seen.  A LF without CR, or a CR
 * without LF, is refused as soon as it is there: parsers differ on them.
 */
static enum parse
find_end(struct span s, size_t *scanned, size_t *end, enum reason bad,
    enum reason *why)
{
	for (size_t i = *scanned; i < s.len; i++) {
		if (s.data[i] == '\n' && (i == 0 || s.data[i - 1] != '\r')) {
			*why = bad;
			return PARSE_BAD;
		}
		if (i > 0 && s.data[i - 1] == '\r' && s.data[i] != '\n') {
			*why = bad;
			return PARSE_BAD;
		}
		/* a head has one limit, whole or in pieces */
		if (i >= HTTP_HEAD_MAX_BYTES) {
			*why = REASON_HEAD_TOO_LARGE;
			return PARSE_BAD;
		}
		if (i >= 3 && s.data[i] == '\n' && s.data[i - 2] == '\n') {
			*end = i + 1;
			return PARSE_DONE;
		}
	}
	*scanned = s.len;
	return PARSE_MORE;
}

/* Where the first line ends, when it did among the bytes not yet scanned, and
 * otherwise 0: what it says can be judged before the rest is there. */
static size_t
line_came(struct span s, size_t skip, size_t scanned)
{
	const uint8_t *lf;

	if (s.len <= scanned || (scanned > skip &&
	    memchr(s.data + skip, '\n', scanned - skip) != NULL))
		return 0;
	lf = memchr(s.data + scanned, '\n', s.len - scanned);
	return lf != NULL ? (size_t)(lf - s.data) + 1 : 0;
}

/* Take a line off the front, without its CR LF. */
static struct span
next_line(struct span *s)
{
	const uint8_t *lf = memchr(s->data, '\n', s->len);
	struct span line = span_of(s->data, (size_t)(lf - s->data) - 1);

	*s = span_of(lf + 1, s->len - line.len - 2);
	return line;
}

/* Each field is looked for in what Connection lists: without a bound one head
 * could cost many milliseconds. */
static bool
lists_too_much(const struct http_field *fields, size_t n)
{
	struct span list, item;
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		if (!is(fields[i].name, "Connection"))
			continue;
		list = fields[i].value;
		if (list.len > HTTP_OPTIONS_MAX_BYTES)
			return true;
		while (next_item(&list, &item))
			if (++found > HTTP_OPTIONS_MAX)
				return true;
	}
	return false;
}

/* All field lines up to the empty one; no folding (RFC 9112 5.2), no blank
 * before the colon (5.1). */
static enum reason
read_fields(struct span s, struct http_field *fields, size_t *n)
{
	*n = 0;
	while (s.len > 0) {
		struct span line = next_line(&s), name, value;

		if (line.len == 0 && lists_too_much(fields, *n))
			return REASON_HEAD_TOO_LARGE;
		if (line.len == 0)
			return s.len == 0 ? REASON_NONE :
			    REASON_HEAD_MALFORMED;
		if (!split(line, ':', &name, &value) || !is_token(name))
			return REASON_HEAD_MALFORMED;
		value = trim(value);
		if (!is_value(value))
			return REASON_HEAD_MALFORMED;
		if (*n == HTTP_FIELDS_MAX)
			return REASON_HEAD_TOO_LARGE;
		fields[(*n)++] = (struct http_field){ name, value };
	}
	return REASON_HEAD_MALFORMED;
}

/* "HTTP/1.x" */
static bool
read_version(struct span s, unsigned *minor)
{
	if (s.len != 8 || memcmp(s.data, "HTTP/1.", 7) != 0 ||
	    (s.data[7] != '0' && s.data[7] != '1'))
		return false;
	*minor = (unsigned)(s.data[7] - '0');
	return true;
}

/* ---- the target ---- */

static bool
read_port(struct span s, uint16_t *port)
{
	unsigned v = 0;

	if (s.len == 0 || s.len > 5)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
		v = v * 10 + (unsigned)(s.data[i] - '0');
	}
	*port = (uint16_t)v;
	return v > 0 && v <= 65535;
}

/* Cut ":port" off; the rest is the host, still in brackets if it was. */
static enum reason
split_port(struct span *s, uint16_t default_port, uint16_t *port)
{
	size_t at = s->len;

	while (at > 0 && s->data[at - 1] >= '0' && s->data[at - 1] <= '9')
		at--;
	if (at == 0 || s->data[at - 1] != ':') {
		*port = default_port;
		return default_port != 0 ? REASON_NONE : REASON_TARGET;
	}
	if (!read_port(span_of(s->data + at, s->len - at), port))
		return REASON_TARGET;
	s->len = at - 1;
	return REASON_NONE;
}

/* RFC 3986 3.2 without user information: name, IPv4, or [IPv6]. */
static enum reason
read_authority(struct span s, uint16_t default_port, struct http_target *out)
{
	enum reason why;

	memset(out, 0, sizeof(*out));
	if (s.len == 0 || memchr(s.data, '@', s.len) != NULL)
		return REASON_TARGET;
	why = split_port(&s, default_port, &out->port);
	if (why != REASON_NONE)
		return why;
	if (s.len == 0)
		return REASON_TARGET;
	if (s.data[0] == '[') {
		if (s.data[s.len - 1] != ']' || !addr_parse(&out->addr,
		    span_of(s.data + 1, s.len - 2)) ||
		    memchr(s.data, ':', s.len) == NULL)
			return REASON_TARGET;
		out->is_addr = true;
		return REASON_NONE;
	}
	if (memchr(s.data, ':', s.len) != NULL)
		return REASON_TARGET;
	if (addr_parse(&out->addr, s)) {
		out->is_addr = true;
		return REASON_NONE;
	}
	why = host_parse(&out->host, s);
	return why == REASON_ADDRESS_LITERAL ? REASON_TARGET : why;
}

static bool
same_target(const struct http_target *a, const struct http_target *b)
{
	if (a->is_addr != b->is_addr || a->port != b->port)
		return false;
	return a->is_addr ? addr_eq(&a->addr, &b->addr) :
	    host_eq(&a->host, &b->host);
}

static enum reason
read_absolute(struct http_request *rq)
{
	struct span rest, authority;
	size_t n = 0;

	if (!span_starts(rq->target, "http://"))
		return REASON_TARGET;
	rest = span_of(rq->target.data + 7, rq->target.len - 7);
	while (n < rest.len && rest.data[n] != '/' && rest.data[n] != '?')
		n++;
	authority = span_of(rest.data, n);
	rq->path = span_of(rest.data + n, rest.len - n);
	rq->form = HTTP_ABSOLUTE;
	return read_authority(authority, 80, &rq->to);
}

/* Which of the four forms (RFC 9112 3.2), and what it names. */
static enum reason
read_target(struct http_request *rq)
{
	for (size_t i = 0; i < rq->target.len; i++)
		if (!is_target_char(rq->target.data[i]) ||
		    rq->target.data[i] == '#')
			return rq->target.data[i] == '#' ? REASON_TARGET :
			    REASON_HEAD_MALFORMED;
	if (rq->method == HTTP_CONNECT) {
		rq->form = HTTP_AUTHORITY;
		return read_authority(rq->target, 0, &rq->to);
	}
	if (is(rq->target, "*")) {
		rq->form = HTTP_ASTERISK;
		rq->path = rq->target;
		return rq->method == HTTP_OPTIONS ? REASON_NONE :
		    REASON_TARGET;
	}
	if (rq->target.data[0] == '/') {
		rq->form = HTTP_ORIGIN;
		rq->path = rq->target;
		return REASON_NONE;
	}
	return read_absolute(rq);
}

/*
 * Exactly one Host, and it must be what the target says (RFC 9112 3.2.2 lets
 * a proxy ignore it; a mismatch is never honest).  Only an HTTP/1.0 request
 * whose target names its host may go without.
 */
static enum reason
check_host(struct http_request *rq, uint16_t default_port)
{
	const struct http_field *f = http_field_find(rq->fields,
	    rq->n_fields, "Host");
	size_t n = count_fields(rq->fields, rq->n_fields, "Host");
	bool named = rq->form == HTTP_ABSOLUTE || rq->form == HTTP_AUTHORITY;
	struct http_target host;
	enum reason why;

	if (n > 1)
		return REASON_HEAD_MALFORMED;
	if (n == 0)
		return named && rq->minor == 0 ? REASON_NONE :
		    REASON_HEAD_MALFORMED;
	why = read_authority(f->value, rq->form == HTTP_AUTHORITY ?
	    rq->to.port : rq->form == HTTP_ABSOLUTE ? 80 : default_port,
	    &host);
	if (why != REASON_NONE)
		return why;
	if (!named) {
		rq->to = host;
		return REASON_NONE;
	}
	/* clients leave the port out of a CONNECT's Host, or say :443 */
	return same_target(&rq->to, &host) ? REASON_NONE :
	    REASON_HOST_MISMATCH;
}

/* ---- framing ---- */

static bool
read_length(struct span s, uint64_t *out)
{
	uint64_t v = 0;

	if (s.len == 0 || s.len > 18)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s.data[i] - '0');
	}
	*out = v;
	return true;
}

struct framing {
	enum http_body body;
	uint64_t length;
};

/* Servers that hand fields on as CGI does read "_" as "-", and some then find
 * the length of the body in what others pass over. */
static bool
frames_in_other_words(struct span name)
{
	return is(name, "Content_Length") || is(name, "Transfer_Encoding");
}

/* RFC 9112 6: one Content-Length, or Transfer-Encoding: chunked and nothing
 * else, never both. */
static enum reason
read_framing(const struct http_field *fields, size_t n, unsigned minor,
    struct framing *out)
{
	size_t lengths = count_fields(fields, n, "Content-Length");
	size_t codings = count_fields(fields, n, "Transfer-Encoding");
	const struct http_field *f;

	out->body = HTTP_BODY_NONE;
	out->length = 0;
	if (lengths + codings > 1)
		return REASON_FRAMING;
	if (codings == 1) {
		f = http_field_find(fields, n, "Transfer-Encoding");
		if (minor == 0 || !is(f->value, "chunked"))
			return REASON_FRAMING;
		out->body = HTTP_BODY_CHUNKED;
	}
	if (lengths == 1) {
		f = http_field_find(fields, n, "Content-Length");
		if (!read_length(f->value, &out->length))
			return REASON_FRAMING;
		out->body = HTTP_BODY_LENGTH;
	}
	return REASON_NONE;
}

static bool
keeps_alive(const struct http_field *fields, size_t n, unsigned minor)
{
	if (lists(fields, n, "Connection", "close"))
		return false;
	return minor == 1 || lists(fields, n, "Connection", "keep-alive") ||
	    lists(fields, n, "Proxy-Connection", "keep-alive");
}

/* ---- requests ---- */

static const struct {
	const char *word;
	enum http_method method;
} methods[] = {
	{ "GET", HTTP_GET }, { "HEAD", HTTP_HEAD }, { "POST", HTTP_POST },
	{ "PUT", HTTP_PUT }, { "DELETE", HTTP_DELETE },
	{ "OPTIONS", HTTP_OPTIONS }, { "PATCH", HTTP_PATCH },
	{ "CONNECT", HTTP_CONNECT }, { "TRACE", HTTP_TRACE },
	{ "PRI", HTTP_PRI },
};

static enum http_method
read_method(struct span s)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (span_eq(s, span_str(methods[i].word)))
			return methods[i].method;
	return HTTP_OTHER;
}

static enum reason
read_request_line(struct span line, struct http_request *rq)
{
	struct span rest, version;

	if (!split(line, ' ', &rq->method_text, &rest) ||
	    !split(rest, ' ', &rq->target, &version) ||
	    !is_token(rq->method_text) || rq->target.len == 0)
		return REASON_HEAD_MALFORMED;
	rq->method = read_method(rq->method_text);
	if (rq->method == HTTP_PRI || (version.len == 8 &&
	    memcmp(version.data, "HTTP/", 5) == 0 &&
	    !read_version(version, &rq->minor)))
		return REASON_VERSION;
	if (!read_version(version, &rq->minor))
		return REASON_HEAD_MALFORMED;
	if (rq->method == HTTP_TRACE ||
	    rq->method_text.len > METHOD_MAX_BYTES)
		return REASON_METHOD;
	return read_target(rq);
}

/* 16 bytes in base64, once (RFC 6455 4.1). */
static bool
read_key(struct http_request *rq)
{
	const struct http_field *f = http_field_find(rq->fields,
	    rq->n_fields, "Sec-WebSocket-Key");
	uint8_t key[16];
	size_t n;

	if (f == NULL || count_fields(rq->fields, rq->n_fields,
	    "Sec-WebSocket-Key") != 1 || sodium_base642bin(key, sizeof(key),
	    (const char *)f->value.data, f->value.len, NULL, &n, NULL,
	    sodium_base64_VARIANT_ORIGINAL) != 0 || n != sizeof(key))
		return false;
	rq->key = f->value;
	return true;
}

/* h2c would turn what we judge into what we cannot read. */
static enum reason
read_upgrade(struct http_request *rq)
{
	const struct http_field *f = http_field_find(rq->fields,
	    rq->n_fields, "Upgrade");

	if (f == NULL)
		return REASON_NONE;
	if (lists(rq->fields, rq->n_fields, "Upgrade", "h2c") ||
	    http_field_find(rq->fields, rq->n_fields, "HTTP2-Settings"))
		return REASON_UPGRADE;
	/* HTTP/1.0 has no upgrade (RFC 9110 7.8) */
	if (rq->minor == 1 && is(f->value, HTTP_UPGRADE) &&
	    rq->method == HTTP_GET &&
	    lists(rq->fields, rq->n_fields, "Connection", "upgrade") &&
	    count_fields(rq->fields, rq->n_fields, "Upgrade") == 1 &&
	    read_key(rq))
		rq->upgrade = f->value;
	return REASON_NONE;
}

static enum reason
read_expect(struct http_request *rq)
{
	const struct http_field *f = http_field_find(rq->fields,
	    rq->n_fields, "Expect");

	if (f == NULL)
		return REASON_NONE;
	if (!is(f->value, "100-continue") ||
	    count_fields(rq->fields, rq->n_fields, "Expect") > 1)
		return REASON_EXPECTATION;
	rq->expect_continue = rq->minor == 1;
	return REASON_NONE;
}

static enum reason
read_meaning(struct http_request *rq, uint16_t default_port)
{
	const struct http_field *f;
	struct framing framing;
	enum reason why = check_host(rq, default_port);

	if (why != REASON_NONE)
		return why;
	for (size_t i = 0; i < rq->n_fields; i++)
		if (frames_in_other_words(rq->fields[i].name))
			return REASON_FRAMING;
	why = read_framing(rq->fields, rq->n_fields, rq->minor, &framing);
	if (why != REASON_NONE)
		return why;
	rq->body = framing.body;
	rq->length = framing.length;
	if (rq->body == HTTP_BODY_LENGTH && rq->length == 0)
		rq->body = HTTP_BODY_NONE;
	/* RFC 9112 9.3.6: a CONNECT with a body has no meaning */
	if (rq->method == HTTP_CONNECT && rq->body != HTTP_BODY_NONE)
		return REASON_FRAMING;
	rq->keep_alive = keeps_alive(rq->fields, rq->n_fields, rq->minor);
	f = http_field_find(rq->fields, rq->n_fields, "Proxy-Authorization");
	if (f != NULL)
		rq->credential = f->value;
	why = read_upgrade(rq);
	return why != REASON_NONE ? why : read_expect(rq);
}

static void
request_init(struct http_request *rq)
{
	memset(rq, 0, offsetof(struct http_request, fields));
	rq->n_fields = 0;
	rq->upgrade = rq->key = rq->credential = span_of(NULL, 0);
	rq->expect_continue = false;
}

/* The request line as soon as it is whole: a client that says "GET /" and no
 * version waits for an answer (HTTP/0.9) and sends nothing more. */
static enum parse
first_request_line(struct span stream, size_t skip, size_t *scanned,
    struct http_request *rq, enum reason *why)
{
	size_t end, came = line_came(stream, skip, *scanned);
	struct span head = span_of(stream.data, came);
	enum parse got;

	if (came == 0)
		return PARSE_MORE;
	got = find_end(head, scanned, &end, REASON_HEAD_MALFORMED, why);
	if (got != PARSE_MORE)
		return got;
	request_init(rq);
	head = span_of(head.data + skip, head.len - skip);
	*why = read_request_line(next_line(&head), rq);
	return *why == REASON_NONE ? PARSE_MORE : PARSE_BAD;
}

enum parse
http_request_parse(struct span stream, size_t *scanned,
    uint16_t default_port, struct http_request *out, enum reason *why)
{
	size_t end, skip = 0;
	struct span head, line;
	enum parse got;

	/* one empty line before the request is forgiven (RFC 9112 2.2) */
	if (stream.len >= 2 && stream.data[0] == '\r' &&
	    stream.data[1] == '\n')
		skip = 2;
	if (stream.len > skip && stream.data[skip] <= 0x20 &&
	    !(skip == 0 && stream.len == 1 && stream.data[0] == '\r')) {
		*why = REASON_HEAD_MALFORMED;
		return PARSE_BAD;
	}
	if (*scanned < skip)
		*scanned = skip;
	got = first_request_line(stream, skip, scanned, out, why);
	if (got == PARSE_MORE)
		got = find_end(stream, scanned, &end, REASON_HEAD_MALFORMED,
		    why);
	if (got != PARSE_DONE)
		return got;
	request_init(out);
	out->head_bytes = end;
	head = span_of(stream.data + skip, end - skip);
	line = next_line(&head);
	*why = read_request_line(line, out);
	if (*why == REASON_NONE)
		*why = read_fields(head, out->fields, &out->n_fields);
	if (*why == REASON_NONE)
		*why = read_meaning(out, default_port);
	return *why == REASON_NONE ? PARSE_DONE : PARSE_BAD;
}

/* ---- of refused requests ---- */

/* A line as the most forgiving would take it. */
static struct span
lax_line(struct span *s)
{
	struct span line = *s, rest = span_of(s->data + s->len, 0);

	(void)split(*s, '\n', &line, &rest);
	*s = rest;
	while (line.len > 0 && line.data[line.len - 1] == '\r')
		line.len--;
	return trim(line);
}

/* What stands behind user information is the place; a port may be missing. */
static bool
glance_authority(struct span s, uint16_t port, struct http_target *out)
{
	struct span user;

	while (split(s, '@', &user, &s))
		;
	if (read_authority(s, port, out) == REASON_NONE)
		return true;
	if (port == 0 && read_authority(s, 1, out) == REASON_NONE) {
		out->port = 0;
		return true;
	}
	memset(out, 0, sizeof(*out));
	return false;
}

static void
glance_target(struct http_request *rq)
{
	struct span s = rq->target, scheme, authority;
	size_t n = 0;

	if (rq->method == HTTP_CONNECT) {
		(void)!glance_authority(s, 0, &rq->to);
		return;
	}
	if (s.len > 0 && s.data[0] != '/' && split(s, ':', &scheme, &s) &&
	    span_starts(s, "//")) {
		s = span_of(s.data + 2, s.len - 2);
		while (n < s.len && s.data[n] != '/' && s.data[n] != '?')
			n++;
		authority = span_of(s.data, n);
		(void)!glance_authority(authority, is(scheme, "https") ? 443 :
		    is(scheme, "http") ? 80 : 0, &rq->to);
		s = span_of(s.data + n, s.len - n);
	}
	if (s.len > 0 && (s.data[0] == '/' || s.data[0] == '*'))
		rq->path = s;
}

/* False: no request begins so. */
static bool
glance_line(struct span line, struct http_request *rq)
{
	struct span method = line, rest = span_of(NULL, 0), version;

	(void)split(line, ' ', &method, &rest);
	if (!is_token(method))
		return false;
	rq->method_text = method;
	rq->method = read_method(method);
	rq->target = rest;
	if (split(rest, ' ', &rq->target, &version))
		(void)!read_version(version, &rq->minor);
	glance_target(rq);
	return true;
}

/* Fields that are none are no names either. */
static void
glance_fields(struct span s, struct http_request *rq)
{
	struct span line, name, value;

	while (s.len > 0 && rq->n_fields < HTTP_FIELDS_MAX) {
		line = lax_line(&s);
		if (line.len == 0)
			return;
		if (split(line, ':', &name, &value))
			rq->fields[rq->n_fields++] = (struct http_field){
			    trim(name), trim(value) };
	}
}

static void
glance_hosts(struct http_request *rq, uint16_t port, struct host *other)
{
	struct http_target t;

	for (size_t i = 0; i < rq->n_fields; i++) {
		if (!is(rq->fields[i].name, "Host") ||
		    !glance_authority(rq->fields[i].value, port, &t))
			continue;
		if (rq->to.host.len == 0 && !rq->to.is_addr)
			rq->to = t;
		else if (!t.is_addr && other->len == 0 &&
		    !host_eq(&rq->to.host, &t.host))
			*other = t.host;
	}
}

void
http_request_glance(struct span stream, uint16_t default_port,
    struct http_request *out, struct host *other)
{
	struct span line = span_of(NULL, 0);

	request_init(out);
	out->minor = 1;
	other->len = 0;
	while (line.len == 0 && stream.len > 0)
		line = lax_line(&stream);
	if (!glance_line(line, out))
		return;
	glance_fields(stream, out);
	glance_hosts(out, default_port, other);
}

bool
http_looks_like_request(struct span s)
{
	size_t n = 0;

	if (s.len > 1 && s.data[0] == '\r' && s.data[1] == '\n')
		s = span_of(s.data + 2, s.len - 2);
	else if (s.len == 1 && s.data[0] == '\r')
		return true;
	while (n < s.len && http_is_token_char(s.data[n]))
		n++;
	if (n > METHOD_MAX_BYTES || (n == 0 && s.len > 0))
		return false;
	/* a method and a blank; SSH-2.0-x and the like end otherwise */
	if (n < s.len)
		return s.data[n] == ' ';
	return true;
}

/* ---- responses ---- */

static enum reason
read_status_line(struct span line, struct http_response *rs)
{
	struct span version = span_of(line.data, line.len < 8 ? line.len : 8);

	if (line.len < 12 || !read_version(version, &rs->minor) ||
	    line.data[8] != ' ' || (line.len > 12 && line.data[12] != ' '))
		return REASON_UPSTREAM_MALFORMED;
	for (size_t i = 9; i < 12; i++) {
		if (line.data[i] < '0' || line.data[i] > '9')
			return REASON_UPSTREAM_MALFORMED;
		rs->status = rs->status * 10 + (unsigned)(line.data[i] - '0');
	}
	if (line.len > 13)
		rs->reason = span_of(line.data + 13, line.len - 13);
	if (rs->status < 100 || rs->status > 599 || !is_value(rs->reason))
		return REASON_UPSTREAM_MALFORMED;
	return REASON_NONE;
}

/* RFC 9112 6.3 */
static enum reason
response_body(struct http_response *rs, enum http_method method)
{
	struct framing framing;
	enum reason why = read_framing(rs->fields, rs->n_fields, rs->minor,
	    &framing);

	if (why != REASON_NONE)
		return why;
	rs->body = framing.body;
	rs->length = framing.length;
	if ((rs->status < 200 || rs->status == 204) &&
	    (rs->body == HTTP_BODY_CHUNKED || rs->length > 0))
		return REASON_FRAMING;
	if (method == HTTP_HEAD || rs->status < 200 || rs->status == 204 ||
	    rs->status == 304) {
		rs->body = HTTP_BODY_NONE;
		return REASON_NONE;
	}
	if (rs->body == HTTP_BODY_NONE) {
		rs->body = HTTP_BODY_CLOSE;
		rs->keep_alive = false;
	} else if (rs->body == HTTP_BODY_LENGTH && rs->length == 0) {
		rs->body = HTTP_BODY_NONE;
	}
	return REASON_NONE;
}

static void
response_init(struct http_response *rs)
{
	memset(rs, 0, offsetof(struct http_response, fields));
	rs->upgrade = span_of(NULL, 0);
}

/* The same for an answer: a server that does not speak HTTP is no slow one. */
static enum parse
first_status_line(struct span stream, size_t *scanned,
    struct http_response *rs, enum reason *why)
{
	size_t end, came = line_came(stream, 0, *scanned);
	struct span head = span_of(stream.data, came);
	enum parse got;

	if (came == 0)
		return PARSE_MORE;
	got = find_end(head, scanned, &end, REASON_UPSTREAM_MALFORMED, why);
	if (got != PARSE_MORE)
		return got;
	response_init(rs);
	*why = read_status_line(next_line(&head), rs);
	return *why == REASON_NONE ? PARSE_MORE : PARSE_BAD;
}

enum parse
http_response_parse(struct span stream, size_t *scanned,
    enum http_method method, struct http_response *out, enum reason *why)
{
	const struct http_field *f;
	struct span head, line;
	size_t end;
	enum parse got;

	got = first_status_line(stream, scanned, out, why);
	if (got == PARSE_MORE)
		got = find_end(stream, scanned, &end,
		    REASON_UPSTREAM_MALFORMED, why);
	if (got != PARSE_DONE)
		return got;
	response_init(out);
	out->head_bytes = end;
	head = span_of(stream.data, end);
	line = next_line(&head);
	*why = read_status_line(line, out);
	if (*why == REASON_NONE)
		*why = read_fields(head, out->fields, &out->n_fields);
	if (*why == REASON_HEAD_MALFORMED)
		*why = REASON_UPSTREAM_MALFORMED;
	if (*why != REASON_NONE)
		return PARSE_BAD;
	out->keep_alive = keeps_alive(out->fields, out->n_fields,
	    out->minor);
	f = http_field_find(out->fields, out->n_fields, "Upgrade");
	if (f != NULL)
		out->upgrade = f->value;
	*why = response_body(out, method);
	return *why == REASON_NONE ? PARSE_DONE : PARSE_BAD;
}

bool
http_websocket_accept(struct span key, char out[static HTTP_ACCEPT_BYTES])
{
	static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	unsigned char text[64], digest[EVP_MAX_MD_SIZE];
	unsigned n;

	if (key.len + sizeof(magic) > sizeof(text))
		return false;
	memcpy(text, key.data, key.len);
	memcpy(text + key.len, magic, sizeof(magic) - 1);
	if (EVP_Digest(text, key.len + sizeof(magic) - 1, digest, &n,
	    EVP_sha1(), NULL) != 1 || n != 20)
		return false;
	sodium_bin2base64(out, HTTP_ACCEPT_BYTES, digest, n,
	    sodium_base64_VARIANT_ORIGINAL);
	return true;
}

bool
http_response_upgrades(const struct http_response *rs, const char *accept)
{
	const struct http_field *f = http_field_find(rs->fields, rs->n_fields,
	    "Sec-WebSocket-Accept");

	return rs->status == 101 && is(rs->upgrade, HTTP_UPGRADE) &&
	    count_fields(rs->fields, rs->n_fields, "Upgrade") == 1 &&
	    lists(rs->fields, rs->n_fields, "Connection", "upgrade") &&
	    f != NULL && span_eq(f->value, span_str(accept)) &&
	    count_fields(rs->fields, rs->n_fields,
	    "Sec-WebSocket-Accept") == 1;
}

/* ---- credentials ---- */

bool
http_basic(struct span credential, uint8_t *buf, size_t size,
    struct span *user, struct span *password)
{
	struct span text;
	size_t n;

	if (!span_starts(credential, "Basic "))
		return false;
	text = trim(span_of(credential.data + 6, credential.len - 6));
	if (sodium_base642bin(buf, size, (const char *)text.data, text.len,
	    NULL, &n, NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
		return false;
	return split(span_of(buf, n), ':', user, password);
}
