/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/server.h"

#include <stdio.h>

/* address, a.b.c.d:port or [v6]:port; the port as it is without one. */
static bool
endpoint_parse(struct endpoint *out, struct span s)
{
	const uint8_t *sep;
	size_t at;

	if (addr_parse(&out->addr, s))
		return true;
	if (s.len == 0)
		return false;
	if (s.data[0] == '[') {
		sep = memchr(s.data, ']', s.len);
		if (sep == NULL)
			return false;
		at = (size_t)(sep - s.data);
		if (!addr_parse(&out->addr, span_of(s.data + 1, at - 1)))
			return false;
		if (at + 1 == s.len)
			return true;
		return s.data[at + 1] == ':' && addr_port(
		    span_of(s.data + at + 2, s.len - at - 2), &out->port);
	}
	sep = memchr(s.data, ':', s.len);
	if (sep == NULL)
		return false;
	at = (size_t)(sep - s.data);
	return addr_parse(&out->addr, span_of(s.data, at)) &&
	    addr_port(span_of(sep + 1, s.len - at - 1), &out->port);
}

/* What stands behind tls:// */
static bool
tls_parse(struct server *out, struct span s)
{
	const uint8_t *sep = memchr(s.data, '#', s.len);
	struct host name;
	size_t at;

	if (sep == NULL)
		return false;
	at = (size_t)(sep - s.data);
	if (host_parse_policy(&name, span_of(sep + 1, s.len - at - 1)) !=
	    REASON_NONE)
		return false;
	memcpy(out->tls_name, name.name, name.len);
	out->at.port = SERVER_TLS_PORT;
	return endpoint_parse(&out->at, span_of(s.data, at));
}

bool
server_parse(struct server *out, struct span text)
{
	static const char tls[] = "tls://";
	const size_t n = sizeof(tls) - 1;

	memset(out, 0, sizeof(*out));
	out->at.port = SERVER_PORT;
	if (text.len > n && memcmp(text.data, tls, n) == 0)
		return tls_parse(out, span_of(text.data + n, text.len - n));
	return endpoint_parse(&out->at, text);
}

bool
server_eq(const struct server *a, const struct server *b)
{
	return endpoint_eq(&a->at, &b->at) &&
	    strcmp(a->tls_name, b->tls_name) == 0;
}

char *
server_text(const struct server *s, char out[static SERVER_TEXT_BYTES])
{
	char at[ADDR_TEXT_BYTES];

	endpoint_text(&s->at, at);
	if (s->tls_name[0] == '\0')
		snprintf(out, SERVER_TEXT_BYTES, "%s", at);
	else
		snprintf(out, SERVER_TEXT_BYTES, "tls://%s#%s", at,
		    s->tls_name);
	return out;
}
