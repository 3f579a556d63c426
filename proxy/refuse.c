/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/refuse.h"

#include <stdarg.h>
#include <stdio.h>

#define ALERT_UNEXPECTED_MESSAGE 10
#define ALERT_HANDSHAKE_FAILURE 40
#define ALERT_ACCESS_DENIED 49
#define ALERT_DECODE_ERROR 50
#define ALERT_INTERNAL_ERROR 80
#define ALERT_UNRECOGNIZED_NAME 112

struct answer {
	unsigned status;
	const char *error;	/* RFC 9209 2.3 */
};

/* One line for each reason: no default, so that a new reason must say what
 * its client is told. */
static struct answer
answer_of(enum reason r)
{
	static const char denied[] = "http_request_denied";
	static const char bad[] = "http_request_error";

	switch (r) {
	case REASON_NO_RULE: case REASON_RULE_DENY: case REASON_NOT_PINNED:
	case REASON_NAMELESS: case REASON_ADDRESS_LITERAL:
	case REASON_NO_SNI: case REASON_ECH: case REASON_SNI_MISMATCH:
	case REASON_HOST_MISMATCH: case REASON_SECOND_HELLO:
	case REASON_OTHER_NAME: case REASON_PROTOCOL:
	case REASON_NESTED_PROXY: case REASON_UNKNOWN_CELL:
	case REASON_POLICY_CHANGED: case REASON_DNS_TYPE:
	case REASON_RULE: case REASON_REPORT: case REASON_NONE:
		return (struct answer){ 403, denied };
	case REASON_CIDR_DENY: case REASON_SPECIAL_USE:
	case REASON_PRIVATE_ADDRESS: case REASON_DNS_SPECIAL_USE:
		return (struct answer){ 403, "destination_ip_prohibited" };
	case REASON_OWN_LISTENER:
		return (struct answer){ 403, "proxy_loop_detected" };
	case REASON_NAME_MALFORMED: case REASON_HELLO_MALFORMED:
	case REASON_HELLO_TOO_LARGE: case REASON_HELLO_SSLV2:
	case REASON_HELLO_NAMES: case REASON_HELLO_INCOMPLETE:
	case REASON_NOT_TLS: case REASON_HEAD_MALFORMED:
	case REASON_FRAMING: case REASON_TARGET: case REASON_UPGRADE:
	case REASON_DNS_MALFORMED:
		return (struct answer){ 400, bad };
	case REASON_HEAD_TOO_LARGE:
		return (struct answer){ 431, bad };
	case REASON_HELLO_TIMEOUT: case REASON_HEAD_TIMEOUT:
		return (struct answer){ 408, bad };
	case REASON_METHOD:
		return (struct answer){ 405, bad };
	case REASON_VERSION:
		return (struct answer){ 505, bad };
	case REASON_EXPECTATION:
		return (struct answer){ 417, bad };
	case REASON_AUTH_REQUIRED: case REASON_AUTH_FAILED:
		return (struct answer){ 407, denied };
	case REASON_DNS_NXDOMAIN: case REASON_DNS_NODATA:
	case REASON_DNS_SERVFAIL:
		return (struct answer){ 502, "dns_error" };
	case REASON_DNS_TIMEOUT:
		return (struct answer){ 504, "dns_timeout" };
	case REASON_CONNECT_REFUSED:
		return (struct answer){ 502, "connection_refused" };
	case REASON_CONNECT_TIMEOUT:
		return (struct answer){ 504, "connection_timeout" };
	case REASON_UNREACHABLE:
		return (struct answer){ 502, "destination_ip_unroutable" };
	case REASON_UPSTREAM_CLOSED:
		return (struct answer){ 502, "connection_terminated" };
	case REASON_UPSTREAM_MALFORMED:
		return (struct answer){ 502, "http_protocol_error" };
	case REASON_UPSTREAM_HEAD_TOO_LARGE:
		return (struct answer){ 502,
		    "http_response_header_section_size" };
	case REASON_UPSTREAM_TIMEOUT:
		return (struct answer){ 504, "http_response_timeout" };
	case REASON_LIMIT_TOTAL: case REASON_LIMIT_CELL:
	case REASON_LIMIT_CLIENT: case REASON_LIMIT_DESCRIPTORS:
	case REASON_LIMIT_MEMORY:
		return (struct answer){ 503, "connection_limit_reached" };
	case REASON_RESOLVER_UNAVAILABLE: case REASON_LEDGER_UNAVAILABLE:
	case REASON_POLICY_UNAVAILABLE: case REASON_DRAINING:
		return (struct answer){ 503, "proxy_internal_response" };
	case REASON_ORIGINAL_DESTINATION: case REASON_IDLE:
	case REASON_ENGINE_LOST: case REASON_INTERNAL: case REASON_COUNT:
		return (struct answer){ 500, "proxy_internal_error" };
	}
	return (struct answer){ 500, "proxy_internal_error" };
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
