/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_HTTP_H
#define PROXY_HTTP_H

#include "policy/addr.h"
#include "policy/host.h"
#include "policy/span.h"
#include "policy/verdict.h"

/*
 * HTTP/1.1 heads and bodies, strict (RFC 9110, 9112, 9931): what two parsers
 * could read in two ways is refused.  No allocation, no I/O; the control
 * plane uses the same code.
 */

#define HTTP_HEAD_MAX_BYTES 65536u
#define HTTP_FIELDS_MAX 128u
#define HTTP_UPGRADE "websocket"	/* the only one that is passed on */
#define HTTP_OPTIONS_MAX 32u	/* that Connection lists, in all its lines */
#define HTTP_OPTIONS_MAX_BYTES 1024u	/* in one of them */

struct http_field {
	struct span name;	/* as sent */
	struct span value;	/* without surrounding blanks */
};

enum http_method {
	HTTP_OTHER = 0,		/* a token that we do not know: forwarded */
	HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OPTIONS,
	HTTP_PATCH, HTTP_CONNECT, HTTP_TRACE, HTTP_PRI,
};

enum http_form { HTTP_ORIGIN, HTTP_ABSOLUTE, HTTP_AUTHORITY, HTTP_ASTERISK };

/* How the end of a body is found. */
enum http_body {
	HTTP_BODY_NONE = 0,
	HTTP_BODY_LENGTH,
	HTTP_BODY_CHUNKED,
	HTTP_BODY_CLOSE,	/* responses only: until the connection ends */
};

/* The place that a request is for: a name or an address literal. */
struct http_target {
	bool is_addr;
	struct host host;
	struct addr addr;
	uint16_t port;
};

/* Spans point into the head that was parsed. */
struct http_request {
	enum http_method method;
	enum http_form form;
	struct span method_text;
	struct span target;	/* as sent */
	struct span path;	/* path and query to send in origin form */
	struct http_target to;	/* from target, or Host in origin form */
	unsigned minor;		/* HTTP/1.minor */
	struct http_field fields[HTTP_FIELDS_MAX];
	size_t n_fields;
	enum http_body body;
	uint64_t length;	/* of HTTP_BODY_LENGTH */
	bool keep_alive;
	bool expect_continue;
	struct span upgrade;	/* the Upgrade field when Connection names it
				 * and Sec-WebSocket-Key is one */
	struct span key;	/* that key */
	struct span credential;	/* the Proxy-Authorization value, or empty */
	size_t head_bytes;	/* with the empty line */
};

/*
 * `stream` is all that was received since the end of the message before.
 * Scanning resumes at *scanned (0 at first), so costs are linear.
 * `default_port` fills an authority without a port (80 for http://; a CONNECT
 * without a port is refused).  PARSE_BAD sets *why (HEAD_MALFORMED,
 * HEAD_TOO_LARGE, FRAMING, METHOD, VERSION, TARGET, HOST_MISMATCH,
 * NAME_MALFORMED, ADDRESS_LITERAL, UPGRADE, EXPECTATION).  One empty line
 * before the request line is skipped (RFC 9112 2.2).
 */
MUST_USE enum parse http_request_parse(struct span stream, size_t *scanned,
    uint16_t default_port, struct http_request *out, enum reason *why);

/*
 * What a head that is refused, or will not be whole, tells all the same, for
 * its record and its answer: nothing may be done by it.  What is not there
 * stays empty (a place without a port has port 0).  `other`: the first Host
 * that names another place than `to`; len 0: there is none.
 */
void http_request_glance(struct span stream, uint16_t default_port,
    struct http_request *out, struct host *other);

/* True when these bytes can still become an HTTP/1 request line. */
bool http_looks_like_request(struct span stream);

struct http_response {
	unsigned status;
	unsigned minor;
	struct span reason;
	struct http_field fields[HTTP_FIELDS_MAX];
	size_t n_fields;
	enum http_body body;
	uint64_t length;
	bool keep_alive;
	struct span upgrade;
	size_t head_bytes;
};

/* `method` is that of the request answered (HEAD and CONNECT have no body).
 * PARSE_BAD sets *why (UPSTREAM_MALFORMED, HEAD_TOO_LARGE, FRAMING).  FRAMING
 * also for a 1xx or 204 that says it has a body: it has none, but not every
 * client knows (RFC 9110 8.6, RFC 9112 6.1). */
MUST_USE enum parse http_response_parse(struct span stream, size_t *scanned,
    enum http_method method, struct http_response *out, enum reason *why);

/* What Sec-WebSocket-Accept has to say to a request with this key (RFC 6455
 * 4.2.2).  False when it cannot be computed. */
#define HTTP_ACCEPT_BYTES 29u	/* and the NUL */
MUST_USE bool http_websocket_accept(struct span key,
    char out[static HTTP_ACCEPT_BYTES]);
/* True for a 101 to what was asked for: one Upgrade field, of HTTP_UPGRADE,
 * that Connection names, and one Sec-WebSocket-Accept, of this text.  Any
 * other 101 is an error of the server (RFC 9110 7.8, RFC 6455 4.1). */
bool http_response_upgrades(const struct http_response *rs,
    const char *accept);

/*
 * Walks a chunked body (RFC 9112 7.1) with trailers, byte-exact: what it
 * passes can be sent on as it is.  Embedded; zero it before use.
 */
struct http_chunks {
	uint8_t state;
	uint8_t digits;
	uint32_t line;		/* bytes of the current line */
	uint32_t trailer;	/* bytes of the trailer section */
	uint64_t left;
};
/*
 * How many of the bytes belong to the body goes to *used.  PARSE_MORE: all
 * of them and more to come; PARSE_DONE: the body ends after *used bytes;
 * PARSE_BAD: nothing after *used may be forwarded.
 */
MUST_USE enum parse http_chunks_feed(struct http_chunks *c,
    struct span bytes, size_t *used);
/* The same for who cannot read chunks: the data in them is moved together to
 * the front of `bytes`, *data of it; the other bytes up to *used are lost, and
 * trailers with them. */
MUST_USE enum parse http_chunks_strip(struct http_chunks *c,
    uint8_t *bytes, size_t len, size_t *used, size_t *data);

/* True for a character of a token (RFC 9110 5.6.2). */
bool http_is_token_char(uint8_t c);

/* First field of that name, case-blind; NULL when absent. */
const struct http_field *http_field_find(const struct http_field *fields,
    size_t n, const char *name);

/* True when a field of that name lists the token (RFC 9110 5.6.1), both
 * case-blind. */
bool http_field_lists(const struct http_field *fields, size_t n,
    const char *name, struct span token);

/*
 * True when a proxy must not pass this field on: Connection and what it
 * lists, Keep-Alive, Proxy-*, TE, Trailer stays, Upgrade, Host (regenerated)
 * (RFC 9110 7.6.1).  Transfer-Encoding and Content-Length are kept.
 */
bool http_field_is_hop(const struct http_field *f,
    const struct http_field *fields, size_t n);

/*
 * True for a body that a server may not look for: its bytes would then be its
 * next request, one that nobody judged.  Such a request is sent with
 * Connection: close, and the connection serves no other (RFC 9110 9.3.1).
 */
bool http_body_may_be_missed(const struct http_request *rq);

/*
 * Write the head to send upstream: HTTP/1.1 in origin form, Host first,
 * hop-by-hop fields removed, Via added (RFC 9110 7.6.3), Upgrade kept only
 * when `upgrade`, Expect only from a client of 1.1.  Returns the length, or 0
 * when out[size] is too small (head_bytes + 512 is always enough).
 */
size_t http_request_write(const struct http_request *rq, bool upgrade,
    uint8_t *out, size_t size);
/* How the client's connection goes on behind an answer. */
enum http_then { HTTP_THEN_KEEP, HTTP_THEN_CLOSE, HTTP_THEN_UPGRADE };
/* The same for the way down, to a client of 1.`minor`: one of 1.0 is told of
 * no chunks, which must not reach it (http_chunks_strip). */
size_t http_response_write(const struct http_response *rs, unsigned minor,
    enum http_then then, uint8_t *out, size_t size);

/* "user:password" of a Basic credential (RFC 7617) into buf; false when it
 * is none or too long.  The spans point into buf. */
MUST_USE bool http_basic(struct span credential, uint8_t *buf, size_t size,
    struct span *user, struct span *password);

#endif
