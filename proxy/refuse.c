/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/refuse.h"

#include <stdarg.h>
#include <stdio.h>

#define ALERT_HANDSHAKE_FAILURE 40
#define ALERT_ACCESS_DENIED 49
#define ALERT_DECODE_ERROR 50
#define ALERT_INTERNAL_ERROR 80
#define ALERT_UNRECOGNIZED_NAME 112

/* What a client is told. */
enum told {
	TELL_DENIED, TELL_PROHIBITED, TELL_LOOP, TELL_BAD, TELL_LARGE,
	TELL_SLOW, TELL_METHOD, TELL_VERSION, TELL_EXPECTATION,
	TELL_CREDENTIAL, TELL_DNS, TELL_DNS_SLOW, TELL_NO_SERVER,
	TELL_SERVER_SLOW, TELL_UNREACHABLE, TELL_CLOSED, TELL_MALFORMED,
	TELL_ANSWER_LARGE, TELL_ANSWER_SLOW, TELL_LIMIT, TELL_NOT_NOW,
	TELL_FAILED
};

static const struct answer {
	unsigned status;
	const char *error;	/* RFC 9209 2.3 */
} answers[] = {
	[TELL_DENIED] = { 403, "http_request_denied" },
	[TELL_PROHIBITED] = { 403, "destination_ip_prohibited" },
	[TELL_LOOP] = { 403, "proxy_loop_detected" },
	[TELL_BAD] = { 400, "http_request_error" },
	[TELL_LARGE] = { 431, "http_request_error" },
	[TELL_SLOW] = { 408, "http_request_error" },
	[TELL_METHOD] = { 405, "http_request_error" },
	[TELL_VERSION] = { 505, "http_request_error" },
	[TELL_EXPECTATION] = { 417, "http_request_error" },
	[TELL_CREDENTIAL] = { 407, "http_request_denied" },
	[TELL_DNS] = { 502, "dns_error" },
	[TELL_DNS_SLOW] = { 504, "dns_timeout" },
	[TELL_NO_SERVER] = { 502, "connection_refused" },
	[TELL_SERVER_SLOW] = { 504, "connection_timeout" },
	[TELL_UNREACHABLE] = { 502, "destination_ip_unroutable" },
	[TELL_CLOSED] = { 502, "connection_terminated" },
	[TELL_MALFORMED] = { 502, "http_protocol_error" },
	[TELL_ANSWER_LARGE] = { 502, "http_response_header_section_size" },
	[TELL_ANSWER_SLOW] = { 504, "http_response_timeout" },
	[TELL_LIMIT] = { 503, "connection_limit_reached" },
	[TELL_NOT_NOW] = { 503, "proxy_internal_response" },
	[TELL_FAILED] = { 500, "proxy_internal_error" },
};

/* By reason.  A new one that says here nothing of what its client is told does
 * not compile. */
enum {
	FOR_NO_RULE = TELL_DENIED, FOR_RULE_DENY = TELL_DENIED,
	FOR_NOT_PINNED = TELL_DENIED, FOR_NAMELESS = TELL_DENIED,
	FOR_ADDRESS_LITERAL = TELL_DENIED, FOR_NO_SNI = TELL_DENIED,
	FOR_ECH = TELL_DENIED, FOR_SNI_MISMATCH = TELL_DENIED,
	FOR_HOST_MISMATCH = TELL_DENIED, FOR_SECOND_HELLO = TELL_DENIED,
	FOR_OTHER_NAME = TELL_DENIED, FOR_PROTOCOL = TELL_DENIED,
	FOR_NESTED_PROXY = TELL_DENIED, FOR_UNKNOWN_CELL = TELL_DENIED,
	FOR_POLICY_CHANGED = TELL_DENIED, FOR_DNS_TYPE = TELL_DENIED,
	FOR_TUNNEL = TELL_DENIED,
	FOR_RULE = TELL_DENIED, FOR_REPORT = TELL_DENIED,
	FOR_NONE = TELL_DENIED,
	FOR_CIDR_DENY = TELL_PROHIBITED, FOR_SPECIAL_USE = TELL_PROHIBITED,
	FOR_PRIVATE_ADDRESS = TELL_PROHIBITED,
	FOR_DNS_SPECIAL_USE = TELL_PROHIBITED,
	FOR_SINKHOLE = TELL_DENIED,
	FOR_OWN_LISTENER = TELL_LOOP,
	FOR_NAME_MALFORMED = TELL_BAD, FOR_HELLO_MALFORMED = TELL_BAD,
	FOR_HELLO_TOO_LARGE = TELL_BAD, FOR_HELLO_SSLV2 = TELL_BAD,
	FOR_HELLO_NAMES = TELL_BAD, FOR_HELLO_INCOMPLETE = TELL_BAD,
	FOR_NOT_TLS = TELL_BAD, FOR_HEAD_MALFORMED = TELL_BAD,
	FOR_FRAMING = TELL_BAD, FOR_TARGET = TELL_BAD, FOR_UPGRADE = TELL_BAD,
	FOR_DNS_MALFORMED = TELL_BAD,
	FOR_HEAD_TOO_LARGE = TELL_LARGE,
	FOR_HELLO_TIMEOUT = TELL_SLOW, FOR_HEAD_TIMEOUT = TELL_SLOW,
	FOR_METHOD = TELL_METHOD,
	FOR_VERSION = TELL_VERSION,
	FOR_EXPECTATION = TELL_EXPECTATION,
	FOR_AUTH_REQUIRED = TELL_CREDENTIAL, FOR_AUTH_FAILED = TELL_CREDENTIAL,
	FOR_DNS_NXDOMAIN = TELL_DNS, FOR_DNS_NODATA = TELL_DNS,
	FOR_DNS_SERVFAIL = TELL_DNS,
	FOR_DNS_TIMEOUT = TELL_DNS_SLOW,
	FOR_CONNECT_REFUSED = TELL_NO_SERVER,
	FOR_CONNECT_TIMEOUT = TELL_SERVER_SLOW,
	FOR_UNREACHABLE = TELL_UNREACHABLE,
	FOR_UPSTREAM_CLOSED = TELL_CLOSED,
	FOR_UPSTREAM_MALFORMED = TELL_MALFORMED,
	FOR_UPSTREAM_HEAD_TOO_LARGE = TELL_ANSWER_LARGE,
	FOR_UPSTREAM_TIMEOUT = TELL_ANSWER_SLOW,
	FOR_LIMIT_TOTAL = TELL_LIMIT, FOR_LIMIT_CELL = TELL_LIMIT,
	FOR_LIMIT_CLIENT = TELL_LIMIT, FOR_LIMIT_DESCRIPTORS = TELL_LIMIT,
	FOR_LIMIT_MEMORY = TELL_LIMIT,
	FOR_RESOLVER_UNAVAILABLE = TELL_NOT_NOW,
	FOR_LEDGER_UNAVAILABLE = TELL_NOT_NOW,
	FOR_POLICY_UNAVAILABLE = TELL_NOT_NOW, FOR_DRAINING = TELL_NOT_NOW,
	FOR_ORIGINAL_DESTINATION = TELL_FAILED, FOR_IDLE = TELL_FAILED,
	FOR_ENGINE_LOST = TELL_FAILED, FOR_INTERNAL = TELL_FAILED,
};

static const uint8_t told[REASON_COUNT] = {
#define X(name, word, text) [REASON_##name] = FOR_##name,
	REASON_LIST(X)
#undef X
};

static struct answer
answer_of(enum reason r)
{
	return answers[r < REASON_COUNT ? told[r] : TELL_FAILED];
}

unsigned
refuse_status(enum reason r)
{
	return answer_of(r).status;
}

const char *
refuse_proxy_error(enum reason r)
{
	return answer_of(r).error;
}

static bool
is_policy(enum reason r)
{
	return refuse_status(r) == 403;
}

static const char *
phrase_of(unsigned status)
{
	switch (status) {
	case 400: return "Bad request to penstock";
	case 403: return "Denied by penstock";
	case 405: return "Method not forwarded by penstock";
	case 407: return "Proxy credential required by penstock";
	case 408: return "Request timed out at penstock";
	case 417: return "Expectation not met by penstock";
	case 431: return "Head too large for penstock";
	case 500: return "penstock failed";
	case 502: return "No answer for penstock";
	case 503: return "penstock cannot serve this now";
	case 504: return "Timed out behind penstock";
	case 505: return "Version not spoken by penstock";
	}
	return "Refused by penstock";
}

/* ---- bounded text ---- */

struct text {
	char *out;
	size_t size, at;
};

__attribute__((format(printf, 2, 3)))
static void
add(struct text *t, const char *fmt, ...)
{
	size_t left = t->size - t->at;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->out + t->at, left, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->at += (size_t)n < left ? (size_t)n : left - 1;
}

/* Printable and without what would end a quoted string; cut at max. */
static const char *
plain(struct span s, char *out, size_t size)
{
	span_print(s, out, size);
	for (char *p = out; *p != '\0'; p++)
		if (*p == '\\' || *p == '"')
			*p = '.';
	return out;
}

struct words {
	char place[300], rule[80], said[300], help[300];
};

static void
collect(const struct refusal *r, struct words *w)
{
	plain(r->place, w->place, sizeof(w->place));
	plain(r->rule, w->rule, sizeof(w->rule));
	plain(r->words, w->said, sizeof(w->said));
	plain(r->help, w->help, sizeof(w->help));
}

/* ---- the answer ---- */

/* The reason word, and the place and rule where there are such. */
static void
add_short(const struct refusal *r, const struct words *w, struct text *t)
{
	add(t, "%s", reason_word(r->reason));
	if (w->place[0] != '\0')
		add(t, " %s", w->place);
	if (w->rule[0] != '\0')
		add(t, " rule %s", w->rule);
}

/* Two sentences: what was refused by which rule; why, and where to ask. */
static void
body_text(const struct refusal *r, const struct words *w, struct text *t)
{
	add(t, "penstock refused %s: %s (%s%s%s).",
	    w->place[0] != '\0' ? w->place : "this request",
	    reason_text(r->reason), reason_word(r->reason),
	    w->rule[0] != '\0' ? ", rule " : "", w->rule);
	if (w->said[0] != '\0')
		add(t, " %s.", w->said);
	if (w->help[0] != '\0' && is_policy(r->reason))
		add(t, " To have it changed: %s.", w->help);
	else if (w->help[0] != '\0')
		add(t, " Help: %s.", w->help);
	else if (is_policy(r->reason))
		add(t, " The policy of this sandbox decides what may be "
		    "reached; trying again will not help.");
	add(t, "\n");
}

static void
body_json(const struct refusal *r, const struct words *w, struct text *t)
{
	add(t, "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%u,"
	    "\"detail\":\"%s\",\"reason\":\"%s\",\"destination\":\"%s\","
	    "\"rule\":\"%s\",\"rule_reason\":\"%s\",\"help\":\"%s\"}\n",
	    phrase_of(refuse_status(r->reason)), refuse_status(r->reason),
	    reason_text(r->reason), reason_word(r->reason), w->place,
	    w->rule, w->said, w->help);
}

size_t
refuse_http(const struct refusal *r, uint8_t out[static REFUSE_MAX_BYTES])
{
	unsigned status = refuse_status(r->reason);
	char body[2048];
	struct text b = { .out = body, .size = sizeof(body) };
	struct text t = { .out = (char *)out, .size = REFUSE_MAX_BYTES };
	struct words w;

	collect(r, &w);
	if (r->json)
		body_json(r, &w, &b);
	else
		body_text(r, &w, &b);
	add(&t, "HTTP/1.%u %u %s: ", r->minor == 0 ? 0 : 1, status,
	    phrase_of(status));
	add_short(r, &w, &t);
	add(&t, "\r\nProxy-Status: penstock; error=%s; details=\"",
	    refuse_proxy_error(r->reason));
	add_short(r, &w, &t);
	add(&t, "\"\r\n");
	if (status == 407)
		add(&t, "Proxy-Authenticate: Basic realm=\"penstock\", "
		    "charset=\"UTF-8\"\r\n");
	if (status == 405)
		add(&t, "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, "
		    "CONNECT\r\n");
	add(&t, "Content-Type: %s\r\nContent-Length: %zu\r\n"
	    "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
	    r->json ? "application/problem+json" :
	    "text/plain; charset=utf-8", b.at);
	if (!r->head_only)
		add(&t, "%s", body);
	return t.at;
}

static uint8_t
alert_of(enum reason r)
{
	switch (refuse_status(r)) {
	case 403:
	case 407:
		return ALERT_ACCESS_DENIED;
	case 400:
		return r == REASON_NAME_MALFORMED ? ALERT_UNRECOGNIZED_NAME :
		    r == REASON_HELLO_SSLV2 ? ALERT_HANDSHAKE_FAILURE :
		    ALERT_DECODE_ERROR;
	case 408:
		return ALERT_HANDSHAKE_FAILURE;
	}
	return ALERT_INTERNAL_ERROR;
}

void
refuse_alert(enum reason r, uint8_t out[static REFUSE_ALERT_BYTES])
{
	static const uint8_t head[5] = { 21, 3, 3, 0, 2 };

	memcpy(out, head, sizeof(head));
	out[5] = 2;	/* fatal */
	out[6] = alert_of(r);
}
