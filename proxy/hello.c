/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/hello.h"

#include "proxy/ja4.h"

#define RECORD_HANDSHAKE 22
#define RECORD_HEAD_BYTES 5u
#define RECORD_MAX_BYTES 16384u
#define MESSAGE_HEAD_BYTES 4u
#define CLIENT_HELLO 1

#define EXT_SERVER_NAME 0
#define EXT_ALPN 16
#define EXT_SIGNATURE_ALGORITHMS 13
#define EXT_EARLY_DATA 42
#define EXT_SUPPORTED_VERSIONS 43
#define EXT_ECH 0xfe0d

void
hello_reader_init(struct hello_reader *r, size_t max)
{
	memset(r, 0, sizeof(*r));
	r->max = max < HELLO_MAX_BYTES ? (uint32_t)max : HELLO_MAX_BYTES;
}

static enum parse
bad(enum reason *why, enum reason r)
{
	*why = r;
	return PARSE_BAD;
}

/* ---- extensions ---- */

/* RFC 6066 3: one list with one host_name in it. */
static enum reason
read_server_name(struct span body, struct hello *out)
{
	struct span list, name;
	uint8_t type;

	if (!span_vec16(&body, &list) || body.len != 0 || list.len == 0 ||
	    !span_u8(&list, &type) || !span_vec16(&list, &name))
		return REASON_HELLO_MALFORMED;
	if (type != 0)
		return REASON_HELLO_MALFORMED;
	if (list.len != 0)
		return REASON_HELLO_NAMES;
	if (name.len == 0)
		return REASON_NAME_MALFORMED;
	return host_parse(&out->name, name);
}

static enum reason
read_alpn(struct span body, struct hello *out, struct ja4_parts *ja4)
{
	struct span list, protocol;

	if (!span_vec16(&body, &list) || body.len != 0)
		return REASON_HELLO_MALFORMED;
	for (bool first = true; list.len > 0; first = false) {
		if (!span_vec8(&list, &protocol))
			return REASON_HELLO_MALFORMED;
		if (!first)
			continue;
		ja4->alpn = protocol;
		span_print(protocol, out->alpn, sizeof(out->alpn));
	}
	return REASON_NONE;
}

static enum reason
read_versions(struct span body, struct hello *out)
{
	struct span list;
	uint16_t v, best = 0;

	if (!span_vec8(&body, &list) || body.len != 0 || list.len == 0 ||
	    list.len % 2 != 0)
		return REASON_HELLO_MALFORMED;
	while (span_u16(&list, &v))
		if (!ja4_is_grease(v) && v > best)
			best = v;
	if (best != 0)
		out->version = best;
	return REASON_NONE;
}

static enum reason
read_algorithms(struct span body, struct ja4_parts *ja4)
{
	struct span list;
	uint16_t v;

	if (!span_vec16(&body, &list) || body.len != 0 || list.len % 2 != 0)
		return REASON_HELLO_MALFORMED;
	while (span_u16(&list, &v))
		if (!ja4_is_grease(v) && ja4->n_algorithms < JA4_LIST_MAX)
			ja4->algorithms[ja4->n_algorithms++] = v;
	return REASON_NONE;
}

static enum reason
read_extension(uint16_t type, struct span body, struct hello *out,
    struct ja4_parts *ja4)
{
	switch (type) {
	case EXT_SERVER_NAME:
		ja4->name = true;
		return read_server_name(body, out);
	case EXT_ALPN:
		return read_alpn(body, out, ja4);
	case EXT_SUPPORTED_VERSIONS:
		return read_versions(body, out);
	case EXT_SIGNATURE_ALGORITHMS:
		return read_algorithms(body, ja4);
	case EXT_ECH:
		out->ech = true;
		break;
	case EXT_EARLY_DATA:
		out->early_data = true;
		break;
	}
	return REASON_NONE;
}

/* Each type at most once (RFC 8446 4.2). */
static enum reason
read_extensions(struct span list, struct hello *out, struct ja4_parts *ja4)
{
	uint16_t seen[JA4_EXTENSIONS_MAX];
	size_t n = 0;

	while (list.len > 0) {
		enum reason why;
		struct span body;
		uint16_t type;

		if (!span_u16(&list, &type) || !span_vec16(&list, &body) ||
		    n == JA4_EXTENSIONS_MAX)
			return REASON_HELLO_MALFORMED;
		for (size_t i = 0; i < n; i++)
			if (seen[i] == type)
				return type == EXT_SERVER_NAME ?
				    REASON_HELLO_NAMES :
				    REASON_HELLO_MALFORMED;
		seen[n++] = type;
		if (!ja4_is_grease(type))
			ja4->extensions[ja4->n_extensions++] = type;
		why = read_extension(type, body, out, ja4);
		if (why != REASON_NONE)
			return why;
	}
	return REASON_NONE;
}

/* ---- the message ---- */

static enum reason
read_ciphers(struct span list, struct ja4_parts *ja4)
{
	uint16_t v;

	if (list.len == 0 || list.len % 2 != 0)
		return REASON_HELLO_MALFORMED;
	while (span_u16(&list, &v))
		if (!ja4_is_grease(v) && ja4->n_ciphers < JA4_LIST_MAX)
			ja4->ciphers[ja4->n_ciphers++] = v;
	return REASON_NONE;
}

/* RFC 8446 4.1.2; the extensions block may be absent before TLS 1.3. */
static enum reason
read_message(struct span m, struct hello *out, struct ja4_parts *ja4)
{
	struct span random, session, ciphers, compression, extensions;
	enum reason why;

	if (!span_u16(&m, &out->version) || out->version >> 8 != 3 ||
	    !span_take(&m, 32, &random) || !span_vec8(&m, &session) ||
	    session.len > 32 || !span_vec16(&m, &ciphers) ||
	    !span_vec8(&m, &compression) || compression.len == 0)
		return REASON_HELLO_MALFORMED;
	why = read_ciphers(ciphers, ja4);
	if (why != REASON_NONE || m.len == 0)
		return why;
	if (!span_vec16(&m, &extensions) || m.len != 0)
		return REASON_HELLO_MALFORMED;
	return read_extensions(extensions, out, ja4);
}

/* Copy the handshake bytes out of the records; all of them are there. */
static void
join(struct span stream, uint8_t *to, size_t want)
{
	size_t at = 0;

	while (at < want) {
		struct span head, body;
		size_t n;

		if (!span_take(&stream, 3, &head) ||
		    !span_vec16(&stream, &body))
			return;
		n = body.len < want - at ? body.len : want - at;
		memcpy(to + at, body.data, n);
		at += n;
	}
}

static enum parse
finish(struct hello_reader *r, struct span stream, struct hello *out,
    enum reason *why)
{
	static uint8_t message[HELLO_MAX_BYTES + MESSAGE_HEAD_BYTES];
	static struct ja4_parts ja4;
	size_t want = MESSAGE_HEAD_BYTES + r->want;

	/* a second message in the hello's last record is not legal yet */
	if (r->message != want)
		return bad(why, REASON_HELLO_MALFORMED);
	memset(out, 0, sizeof(*out));
	ja4_clear(&ja4);
	join(stream, message, want);
	*why = read_message(span_of(message + MESSAGE_HEAD_BYTES, r->want),
	    out, &ja4);
	if (*why != REASON_NONE)
		return PARSE_BAD;
	ja4.version = out->version;
	ja4_write(&ja4, out->ja4);
	out->stream_bytes = r->at;
	return PARSE_DONE;
}

/* ---- records ---- */

/* An SSLv2-style hello: two length bytes with the top bit, type 1, 3.x. */
static bool
is_sslv2(struct span s)
{
	return s.len >= 4 && (s.data[0] & 0x80) != 0 && s.data[2] == 1 &&
	    s.data[3] <= 3;
}

/* What the first bytes allow; a wrong byte is wrong as soon as it is there. */
static enum reason
check_head(struct span s, bool first)
{
	if (s.len >= 1 && s.data[0] != RECORD_HANDSHAKE)
		return first ? REASON_NOT_TLS : REASON_HELLO_MALFORMED;
	if (s.len >= 2 && s.data[1] != 3)
		return first ? REASON_NOT_TLS : REASON_HELLO_MALFORMED;
	if (s.len >= 3 && s.data[2] > 4)
		return first ? REASON_NOT_TLS : REASON_HELLO_MALFORMED;
	return REASON_NONE;
}

/* What n bytes of the message head say; *want: the length, 0: not known. */
static enum reason
judge_length(const uint8_t head[static MESSAGE_HEAD_BYTES], size_t n,
    uint32_t max, uint32_t *want)
{
	if (n > 0 && head[0] != CLIENT_HELLO)
		return REASON_HELLO_MALFORMED;
	if (n < MESSAGE_HEAD_BYTES)
		return REASON_NONE;
	*want = (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
	if (*want > max)
		return REASON_HELLO_TOO_LARGE;
	return *want == 0 ? REASON_HELLO_MALFORMED : REASON_NONE;
}

/* The message head from the first record bytes, wherever it is split. */
static enum reason
read_length(struct hello_reader *r, struct span stream)
{
	uint8_t head[MESSAGE_HEAD_BYTES] = { 0 };
	size_t n = r->message < sizeof(head) ? r->message : sizeof(head);

	if (r->want != 0)
		return REASON_NONE;
	join(stream, head, n);
	return judge_length(head, n, r->max, &r->want);
}

/* One record, when its head is there: its claimed length counts at once, so
 * that an oversized one is refused before it has arrived. */
static enum parse
walk(struct hello_reader *r, struct span stream, enum reason *why)
{
	struct span rest = span_of(stream.data + r->at, stream.len - r->at);
	size_t len;

	if (r->at == 0 && rest.len > 0 && rest.data[0] != RECORD_HANDSHAKE &&
	    (rest.data[0] & 0x80) != 0) {
		if (rest.len < 4)
			return PARSE_MORE;
		return bad(why, is_sslv2(rest) ? REASON_HELLO_SSLV2 :
		    REASON_NOT_TLS);
	}
	*why = check_head(rest, r->at == 0);
	if (*why != REASON_NONE)
		return PARSE_BAD;
	if (rest.len < RECORD_HEAD_BYTES)
		return PARSE_MORE;
	len = (size_t)rest.data[3] << 8 | rest.data[4];
	if (len > RECORD_MAX_BYTES)
		return bad(why, REASON_HELLO_TOO_LARGE);
	if (len == 0)
		return bad(why, REASON_HELLO_MALFORMED);
	if (rest.len < RECORD_HEAD_BYTES + len)
		return PARSE_MORE;
	if (++r->records > HELLO_RECORDS_MAX)
		return bad(why, REASON_HELLO_TOO_LARGE);
	r->at += RECORD_HEAD_BYTES + len;
	r->message += len;
	return PARSE_DONE;
}

/* The message head when its last bytes are in a record that has not arrived
 * whole. */
static enum reason
peek_length(const struct hello_reader *r, struct span stream)
{
	struct span rest = span_of(stream.data + r->at, stream.len - r->at);
	uint8_t head[MESSAGE_HEAD_BYTES] = { 0 };
	size_t n = r->message, part, len;
	uint32_t want;

	if (r->want != 0 || rest.len <= RECORD_HEAD_BYTES)
		return REASON_NONE;
	join(stream, head, n);		/* n < 4: the length is not known */
	len = (size_t)rest.data[3] << 8 | rest.data[4];
	part = rest.len - RECORD_HEAD_BYTES < len ?
	    rest.len - RECORD_HEAD_BYTES : len;
	if (part > sizeof(head) - n)
		part = sizeof(head) - n;
	memcpy(head + n, rest.data + RECORD_HEAD_BYTES, part);
	return judge_length(head, n + part, r->max, &want);
}

enum parse
hello_feed(struct hello_reader *r, struct span stream, struct hello *out,
    enum reason *why)
{
	for (;;) {
		enum parse got = walk(r, stream, why);

		if (got == PARSE_MORE) {
			*why = peek_length(r, stream);
			return *why == REASON_NONE ? PARSE_MORE : PARSE_BAD;
		}
		if (got == PARSE_BAD)
			return got;
		*why = read_length(r, stream);
		if (*why != REASON_NONE)
			return PARSE_BAD;
		if (r->want != 0 &&
		    r->message >= MESSAGE_HEAD_BYTES + r->want)
			return finish(r, stream, out, why);
	}
}
