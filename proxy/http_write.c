/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/http.h"

#include <stdio.h>

/* Heads as they are sent on. */

#define VIA_NAME "penstock"

struct writer {
	uint8_t *out;
	size_t size, at;
	bool full;
};

static void
put(struct writer *w, struct span s)
{
	if (s.len > w->size - w->at)
		w->full = true;
	if (w->full || s.len == 0)
		return;
	memcpy(w->out + w->at, s.data, s.len);
	w->at += s.len;
}

static void
put_text(struct writer *w, const char *text)
{
	put(w, span_str(text));
}

static void
put_field(struct writer *w, struct span name, struct span value)
{
	put(w, name);
	put_text(w, ": ");
	put(w, value);
	put_text(w, "\r\n");
}

static bool
is(struct span s, const char *text)
{
	return span_caseeq(s, span_str(text));
}

bool
http_field_is_hop(const struct http_field *f, const struct http_field *fields,
    size_t n)
{
	/* what frames the message is never taken out, whatever Connection
	 * says */
	if (is(f->name, "Content-Length") || is(f->name, "Transfer-Encoding"))
		return false;
	return is(f->name, "Connection") || is(f->name, "Keep-Alive") ||
	    is(f->name, "TE") || is(f->name, "Upgrade") ||
	    is(f->name, "Host") || is(f->name, "HTTP2-Settings") ||
	    span_starts(f->name, "Proxy-") ||
	    http_field_lists(fields, n, "Connection", f->name);
}

/* What a client of 1.0 cannot wait for (RFC 9110 10.1.1), and what it cannot
 * read (RFC 9112 6.1). */
static const char *const not_from_1_0[] = { "Expect", NULL };
static const char *const not_to_1_0[] = { "Transfer-Encoding", "Trailer",
	NULL };
/* Of an answer that has no body, "Content-Length: 0" is what is left of them
 * (RFC 9110 8.6). */
static const char *const not_without_body[] = { "Content-Length", NULL };
static const char *const nothing[] = { NULL };

static bool
is_one_of(struct span name, const char *const *names)
{
	for (; *names != NULL; names++)
		if (is(name, *names))
			return true;
	return false;
}

static void
put_fields(struct writer *w, const struct http_field *fields, size_t n,
    const char *const *without)
{
	for (size_t i = 0; i < n; i++)
		if (!http_field_is_hop(&fields[i], fields, n) &&
		    !is_one_of(fields[i].name, without))
			put_field(w, fields[i].name, fields[i].value);
}

static void
put_via(struct writer *w, unsigned minor)
{
	put_text(w, minor == 0 ? "Via: 1.0 " VIA_NAME "\r\n" :
	    "Via: 1.1 " VIA_NAME "\r\n");
}

static void
put_host(struct writer *w, const struct http_target *to)
{
	char text[HOST_MAX_BYTES + 16], a[ADDR_TEXT_BYTES];

	if (!to->is_addr)
		snprintf(text, sizeof(text), "%s", to->host.name);
	else if (addr_is_v4(&to->addr))
		snprintf(text, sizeof(text), "%s", addr_text(&to->addr, a));
	else
		snprintf(text, sizeof(text), "[%s]", addr_text(&to->addr, a));
	put_text(w, "Host: ");
	put_text(w, text);
	if (to->port != 80) {
		snprintf(text, sizeof(text), ":%u", to->port);
		put_text(w, text);
	}
	put_text(w, "\r\n");
}

bool
http_body_may_be_missed(const struct http_request *rq)
{
	if (rq->body == HTTP_BODY_NONE ||
	    (rq->body == HTTP_BODY_LENGTH && rq->length == 0))
		return false;
	return (rq->method != HTTP_POST && rq->method != HTTP_PUT &&
	    rq->method != HTTP_PATCH) || rq->upgrade.len > 0;
}

size_t
http_request_write(const struct http_request *rq, bool upgrade, uint8_t *out,
    size_t size)
{
	struct writer w = { .out = out, .size = size };

	put(&w, rq->method_text);
	put_text(&w, " ");
	/* OPTIONS http://h and GET http://h?q (RFC 9112 3.2.1, 3.2.4) */
	if (rq->path.len == 0)
		put_text(&w, rq->method == HTTP_OPTIONS ? "*" : "/");
	else if (rq->path.data[0] == '?')
		put_text(&w, "/");
	put(&w, rq->path);
	put_text(&w, " HTTP/1.1\r\n");
	put_host(&w, &rq->to);
	put_fields(&w, rq->fields, rq->n_fields,
	    rq->minor == 0 ? not_from_1_0 : nothing);
	put_via(&w, rq->minor);
	if (upgrade) {
		put_text(&w, "Connection: upgrade\r\n");
		put_field(&w, span_str("Upgrade"), rq->upgrade);
	} else if (rq->minor == 0 || http_body_may_be_missed(rq)) {
		put_text(&w, "Connection: close\r\n");
	}
	put_text(&w, "\r\n");
	return w.full ? 0 : w.at;
}

size_t
http_response_write(const struct http_response *rs, unsigned minor,
    enum http_then then, uint8_t *out, size_t size)
{
	struct writer w = { .out = out, .size = size };
	char line[32];

	snprintf(line, sizeof(line), "HTTP/1.1 %03u ", rs->status);
	put_text(&w, line);
	put(&w, rs->reason);
	put_text(&w, "\r\n");
	put_fields(&w, rs->fields, rs->n_fields,
	    rs->status < 200 || rs->status == 204 ? not_without_body :
	    minor == 0 ? not_to_1_0 : nothing);
	put_via(&w, rs->minor);
	if (then == HTTP_THEN_UPGRADE) {
		put_text(&w, "Connection: upgrade\r\n");
		put_field(&w, span_str("Upgrade"), rs->upgrade);
	} else if (rs->status >= 200) {
		put_text(&w, then == HTTP_THEN_CLOSE ?
		    "Connection: close\r\n" :
		    "Connection: keep-alive\r\n");
	}
	put_text(&w, "\r\n");
	return w.full ? 0 : w.at;
}
