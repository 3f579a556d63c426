/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the parsers over captured streams.  A line on stdin is
 *
 *     tls  FILE OFFSET SEGMENT,SEGMENT,...
 *     http FILE
 *     dns  FILE
 *     carry FILE SOURCE
 *
 * and a line on stdout is what our parser says of it, the same for every way
 * of cutting the stream (whole, by segments, byte by byte), or "unstable".
 */
#include <stdio.h>
#include <stdlib.h>

#include "dns/message.h"
#include "dns/tunnel.h"
#include "proxy/hello.h"
#include "proxy/http.h"

#define FILE_MAX_BYTES (1u << 20)
#define SAID_BYTES 8192u

static uint8_t bytes[FILE_MAX_BYTES];

static bool
load(const char *path, struct span *out)
{
	FILE *f = fopen(path, "rb");

	if (f == NULL)
		return false;
	*out = span_of(bytes, fread(bytes, 1, sizeof(bytes), f));
	fclose(f);
	return true;
}

/* ---- tls ---- */

static void
say_hello(enum parse got, const struct hello *h, enum reason why, char *out)
{
	char sni[300];

	switch (got) {
	case PARSE_DONE:
		snprintf(out, SAID_BYTES, "hello sni=%s ech=%d early=%d "
		    "ja4=%s",
		    span_print(span_of(h->name.name, h->name.len), sni,
		    sizeof(sni)), h->ech, h->early_data, h->ja4);
		break;
	case PARSE_MORE:
		snprintf(out, SAID_BYTES, "incomplete");
		break;
	case PARSE_BAD:
		snprintf(out, SAID_BYTES, "bad %s", reason_word(why));
		break;
	}
}

/* Feed in steps: the sizes of `segments`, or one byte each when NULL. */
static void
feed_hello(struct span s, const char *segments, char *out)
{
	struct hello_reader r;
	struct hello h = { 0 };
	enum reason why = REASON_NONE;
	enum parse got = PARSE_MORE;
	size_t at = 0;

	hello_reader_init(&r, HELLO_MAX_BYTES);
	while (at < s.len && got == PARSE_MORE) {
		size_t step = 1;

		if (segments != NULL && *segments != '\0') {
			char *end;

			step = strtoul(segments, &end, 10);
			segments = *end == ',' ? end + 1 : end;
		} else if (segments != NULL) {
			step = s.len - at;
		}
		at = step < s.len - at ? at + step : s.len;
		got = hello_feed(&r, span_of(s.data, at), &h, &why);
	}
	say_hello(got, &h, why, out);
}

static void
tls(const char *path, size_t offset, const char *segments)
{
	char whole[SAID_BYTES], cut[SAID_BYTES], single[SAID_BYTES];
	struct span s;

	if (!load(path, &s) || offset > s.len) {
		puts("unreadable");
		return;
	}
	s = span_of(s.data + offset, s.len - offset);
	feed_hello(s, "", whole);
	feed_hello(s, offset == 0 ? segments : "", cut);
	feed_hello(s, NULL, single);
	if (strcmp(whole, single) != 0 || strcmp(whole, cut) != 0)
		printf("unstable whole=<%s> cut=<%s> single=<%s>\n", whole,
		    cut, single);
	else
		puts(whole);
}

/* ---- http ---- */

/* The body that belongs to the head, as far as its framing can be broken. */
static const char *
body_verdict(const struct http_request *rq, struct span rest)
{
	struct http_chunks c = { 0 };
	size_t used;

	if (rq->body != HTTP_BODY_CHUNKED)
		return "accept";
	switch (http_chunks_feed(&c, rest, &used)) {
	case PARSE_BAD:
		return "reject body";
	case PARSE_MORE:
		return "accept more";
	case PARSE_DONE:
		break;
	}
	return "accept";
}

/* What was decided on goes with the verdict: method, target, host, port. */
static void
say_place(const struct http_request *rq, const char *verdict, char *out)
{
	char host[ADDR_TEXT_BYTES], method[64], target[4096];

	snprintf(out, SAID_BYTES, "%s\t%s\t%s\t%s\t%u", verdict,
	    span_print(rq->method_text, method, sizeof(method)),
	    rq->to.is_addr ? addr_text(&rq->to.addr, host) :
	    rq->to.host.name, span_print(rq->target, target,
	    sizeof(target)), rq->to.port);
}

static void
say_request(struct span s, bool single, char *out)
{
	static struct http_request rq;
	enum reason why = REASON_NONE;
	enum parse got = PARSE_MORE;
	size_t scanned = 0;

	for (size_t n = single ? 1 : s.len; n <= s.len &&
	    got == PARSE_MORE && s.len > 0; n++)
		got = http_request_parse(span_of(s.data, n), &scanned, 80,
		    &rq, &why);
	if (got == PARSE_DONE)
		say_place(&rq, body_verdict(&rq, span_of(s.data +
		    rq.head_bytes, s.len - rq.head_bytes)), out);
	else if (got == PARSE_MORE)
		snprintf(out, SAID_BYTES, "incomplete");
	else
		snprintf(out, SAID_BYTES, "reject %s", reason_word(why));
}

static void
http(const char *path)
{
	char whole[SAID_BYTES], single[SAID_BYTES];
	struct span s;

	if (!load(path, &s)) {
		puts("unreadable");
		return;
	}
	say_request(s, false, whole);
	say_request(s, true, single);
	/* a break is seen earlier or later, but it is seen both ways */
	if (strncmp(whole, single, 6) != 0)
		printf("unstable whole=<%s> single=<%s>\n", whole, single);
	else
		puts(whole);
}

/* ---- dns ---- */

/* "query", name, type and class, or "bad". */
static void
say_query(struct span s, char *out)
{
	struct message_question q;
	bool id_known;

	if (message_query(s, &q, &id_known) != PARSE_DONE)
		snprintf(out, SAID_BYTES, "bad");
	else
		snprintf(out, SAID_BYTES, "query\t%s\t%u\t%u", q.name.name,
		    q.type, q.class);
}

/* The only question of a message. */
static bool
question_of(struct span s, struct host *name, uint16_t *type)
{
	size_t at = WIRE_HEADER_BYTES;
	struct span rest = s;
	struct wire_header h;

	if (!wire_header(&rest, &h) || h.questions != 1 ||
	    !wire_host(s, &at, name) || name->len == 0)
		return false;
	rest = span_of(s.data + at, s.len - at);
	return span_u16(&rest, type);
}

/* "answer", reason, TTL, aliases, records and the addresses among them. */
static void
say_answer(struct span s, char *out)
{
	static union answer_room room;
	const struct answer *a = &room.answer;
	char text[ADDR_TEXT_BYTES];
	struct host name;
	uint16_t type;
	int n;

	if (!question_of(s, &name, &type)) {
		snprintf(out, SAID_BYTES, "not-ours");
		return;
	}
	if (!answer_read(s, &name, type, false, &room)) {
		snprintf(out, SAID_BYTES, "bad");
		return;
	}
	n = snprintf(out, SAID_BYTES, "answer\t%s\t%u\t%u\t%u\t",
	    reason_word(a->reason), a->ttl_s, a->n_links, a->n_records);
	for (unsigned i = 0; (type == TYPE_A || type == TYPE_AAAA) &&
	    i < a->n_records; i++) {
		struct addr one = answer_addr(a, i);

		n += snprintf(out + n, SAID_BYTES - (size_t)n, "%s%s",
		    i > 0 ? "," : "", addr_text(&one, text));
	}
}

static void
dns(const char *path)
{
	char said[SAID_BYTES];
	struct span s;

	if (!load(path, &s)) {
		puts("unreadable");
		return;
	}
	if (s.len > 2 && (s.data[2] & 0x80) != 0)
		say_answer(s, said);
	else
		say_query(s, said);
	puts(said);
}

/* A query on its way, 50 ms after the one before: does its source look like a
 * tunnel now? */
static void
carry(const char *path, const char *source)
{
	static struct tunnel *tunnel;
	static int64_t now_ms = 1000000;
	const struct tunnel_settings usual = { 0 };
	struct message_question q;
	struct tunnel_look look;
	bool id_known;
	struct span s;

	if (tunnel == NULL)
		tunnel = tunnel_new(&usual);
	now_ms += 50;
	if (tunnel == NULL || !load(path, &s)) {
		puts("unreadable");
		return;
	}
	if (message_query(s, &q, &id_known) != PARSE_DONE) {
		puts("bad");
		return;
	}
	tunnel_question(tunnel, span_str(source), span_of(q.qname,
	    q.qname_len), q.type, now_ms, &look);
	puts(look.suspected ? "suspected" : "-");
}

int
main(void)
{
	char line[8192], kind[8], path[4096], segments[4096];
	unsigned long offset;

	while (fgets(line, sizeof(line), stdin) != NULL) {
		segments[0] = '\0';
		if (sscanf(line, "%7s %4095s %lu %4095s", kind, path,
		    &offset, segments) >= 3 && strcmp(kind, "tls") == 0)
			tls(path, offset, segments);
		else if (strcmp(kind, "http") == 0)
			http(path);
		else if (strcmp(kind, "dns") == 0)
			dns(path);
		else if (sscanf(line, "%7s %4095s %4095s", kind, path,
		    segments) == 3 && strcmp(kind, "carry") == 0)
			carry(path, segments);
		else
			puts("what?");
		fflush(stdout);
	}
	return 0;
}
