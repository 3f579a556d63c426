/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/record.h"

#include <time.h>

#include "ledger-client/clock.h"

#define RECORD_VERSION 1

static const char *const kind_words[] = {
	[RECORD_NONE] = "none", [RECORD_START] = "start",
	[RECORD_POLICY] = "policy", [RECORD_DECISION] = "decision",
	[RECORD_END] = "end", [RECORD_DNS] = "dns", [RECORD_ROLE] = "role",
	[RECORD_GAP] = "gap", [RECORD_STOP] = "stop",
	[RECORD_RULES] = "rules",
};
static const char *const via_words[] = {
	[VIA_NONE] = "none", [VIA_TPROXY] = "tproxy",
	[VIA_REDIRECT] = "redirect", [VIA_CONNECT] = "connect",
	[VIA_HTTP] = "http", [VIA_NAMED] = "named",
	[VIA_DNS_UDP] = "dns-udp", [VIA_DNS_TCP] = "dns-tcp",
};
static const char *const from_words[] = {
	[NAME_FROM_NONE] = "none", [NAME_FROM_SNI] = "sni",
	[NAME_FROM_HOST] = "host", [NAME_FROM_CONNECT] = "connect",
	[NAME_FROM_QUESTION] = "question", [NAME_FROM_PIN] = "pin",
};
static const char *const how_words[] = {
	[HOW_NONE] = "none", [HOW_FIN] = "fin",
	[HOW_RESET_CLIENT] = "reset_client",
	[HOW_RESET_UPSTREAM] = "reset_upstream",
	[HOW_REFUSED] = "refused", [HOW_CUT] = "cut",
};
#define LAST(words) (sizeof(words) / sizeof((words)[0]) - 1)

const char *
record_kind_word(enum record_kind k)
{
	return kind_words[(unsigned)k <= LAST(kind_words) ? k : 0];
}

const char *
record_via_word(enum record_via v)
{
	return via_words[(unsigned)v <= LAST(via_words) ? v : 0];
}

const char *
record_how_word(enum record_how h)
{
	return how_words[(unsigned)h <= LAST(how_words) ? h : 0];
}

void
record_init(struct record *r, enum record_kind kind)
{
	memset(r, 0, offsetof(struct record, text));
	r->kind = (uint16_t)kind;
	r->rule_line = 0;
}

void
record_set(struct record *r, enum record_text which, struct span s)
{
	bool cut = s.len > RECORD_TEXT_MAX_BYTES;
	size_t n = cut ? RECORD_TEXT_MAX_BYTES : s.len;

	if (n > RECORD_TEXT_BYTES - r->text_len) {
		n = RECORD_TEXT_BYTES - r->text_len;
		cut = true;
	}
	if (n == 0)
		return;
	memcpy(r->text + r->text_len, s.data, n);
	if (cut)
		r->text[r->text_len + n - 1] = '~';
	r->text_at[which] = r->text_len;
	r->text_at_len[which] = (uint8_t)n;
	r->text_len = (uint16_t)(r->text_len + n);
}

struct span
record_get(const struct record *r, enum record_text which)
{
	return span_of(r->text + r->text_at[which], r->text_at_len[which]);
}

size_t
record_size(const struct record *r)
{
	return offsetof(struct record, text) + r->text_len;
}

static char *
append(char *at, struct span s)
{
	if (s.len > 0)
		memcpy(at, s.data, s.len);
	return at + s.len;
}

/* As many labels as have room, each one whole. */
static void
set_labels(struct record *r, const struct cell_view *cell)
{
	char all[RECORD_TEXT_MAX_BYTES], *at = all;

	for (size_t i = 0; i < cell->n_labels; i++) {
		struct span key = cell->labels[i].key;
		struct span value = cell->labels[i].value;
		size_t room = sizeof(all) - (size_t)(at - all);

		if (key.len > room || value.len > room ||
		    key.len + value.len + 2 > room)
			break;
		if (i > 0)
			*at++ = ',';
		at = append(at, key);
		*at++ = '=';
		at = append(at, value);
	}
	record_set(r, TEXT_LABELS, span_of(all, (size_t)(at - all)));
}

void
record_policy(struct record *r, const struct policy *p, uint32_t cell,
    uint32_t rule)
{
	struct cell_view c;
	struct rule_view v;

	if (p == NULL)
		return;
	r->generation = policy_generation(p);
	memcpy(r->digest, policy_digest(p), sizeof(r->digest));
	if (cell == CELL_NONE || !policy_cell(p, cell, 0, &c))
		return;
	record_set(r, TEXT_CELL, c.id);
	set_labels(r, &c);
	if (rule == RULE_NONE || !policy_rule(p, cell, rule, &v))
		return;
	record_set(r, TEXT_RULE, v.id);
	record_set(r, TEXT_RULE_FILE, v.file);
	record_set(r, TEXT_RULE_REASON, v.reason);
	r->rule_line = v.line;
}

void
record_stamp(struct record *r)
{
	r->wall_us = clock_wall_us();
	r->mono_us = clock_mono_us();
}

/* The numbers of the line are ones that every reader of JSON can hold. */
static bool
numbers_hold(const struct record *r)
{
	return ((r->connection | r->request | r->generation | r->bytes_up |
	    r->bytes_down | r->lost_up | r->lost_down | r->duration_us |
	    (uint64_t)r->wall_us | (uint64_t)r->mono_us) >> 63) == 0;
}

/* All strings in bounds, and together no longer than the text: strings that
 * share bytes could make a line longer than its room.  Labels become keys,
 * and readers of JSON end a key at a NUL. */
static bool
texts_hold(const struct record *r)
{
	struct span labels;
	unsigned sum = 0;

	for (unsigned i = 0; i < TEXT_COUNT; i++) {
		if (r->text_at[i] + r->text_at_len[i] > r->text_len)
			return false;
		sum += r->text_at_len[i];
	}
	labels = record_get(r, TEXT_LABELS);
	return sum <= r->text_len &&
	    memchr(labels.data, '\0', labels.len) == NULL;
}

bool
record_check(const struct record *r, size_t len)
{
	if (len < offsetof(struct record, text) ||
	    r->text_len > RECORD_TEXT_BYTES || len < record_size(r))
		return false;
	if (r->wall_us < 0 || r->mono_us < 0 ||
	    r->kind == RECORD_NONE || r->kind > LAST(kind_words) ||
	    r->verdict > VERDICT_ALLOW || r->would > VERDICT_ALLOW ||
	    r->reason >= REASON_COUNT || r->via > LAST(via_words) ||
	    r->name_from > LAST(from_words) || r->how > LAST(how_words))
		return false;
	return numbers_hold(r) && texts_hold(r);
}

/* ---- JSON ---- */

/* A line being written: the bound is checked once, at the end of each
 * piece, and RECORD_JSON_MAX_BYTES holds the worst case. */
struct line {
	char *out;
	size_t at;
	bool comma;
};

static void
put(struct line *l, const char *text)
{
	size_t n = strlen(text);

	if (l->at + n >= RECORD_JSON_MAX_BYTES)
		return;
	memcpy(l->out + l->at, text, n);
	l->at += n;
}

static void
put_key(struct line *l, const char *key)
{
	put(l, l->comma ? ",\"" : "\"");
	put(l, key);
	put(l, "\":");
	l->comma = true;
}

static const char hex_digits[] = "0123456789abcdef";

/* Everything that is not plain ASCII becomes \u00XX: a line is always ASCII
 * and cannot be forged by what it reports. */
static void
put_string(struct line *l, struct span s)
{
	char *out;

	if (l->at + 6 * s.len + 2 >= RECORD_JSON_MAX_BYTES)
		return;
	out = l->out + l->at;
	*out++ = '"';
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.data[i];

		if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
			*out++ = (char)c;
			continue;
		}
		memcpy(out, "\\u00", 4);
		out[4] = hex_digits[c >> 4];
		out[5] = hex_digits[c & 15];
		out += 6;
	}
	*out++ = '"';
	l->at = (size_t)(out - l->out);
}

static void
put_text(struct line *l, const char *key, struct span s)
{
	if (s.len == 0)
		return;
	put_key(l, key);
	put_string(l, s);
}

static void
put_word(struct line *l, const char *key, const char *word)
{
	put_text(l, key, span_str(word));
}

static void
put_number(struct line *l, const char *key, uint64_t v)
{
	char text[DECIMAL_TEXT_BYTES];

	put_key(l, key);
	*decimal_text(v, text) = '\0';
	put(l, text);
}

static bool
has_address(const struct endpoint *e)
{
	static const struct addr none;

	return !addr_eq(&e->addr, &none);
}

static void
put_endpoint(struct line *l, const char *key, const struct endpoint *e)
{
	char text[ADDR_TEXT_BYTES];

	if (has_address(e))
		put_word(l, key, endpoint_text(e, text));
}

/* What a producer wrote there may be anything: whole pieces count, and known
 * reasons. */
static void
put_tried(struct line *l, const struct record *r)
{
	struct span s = record_get(r, TEXT_TRIED);
	struct record_try t;

	if (r->kind != RECORD_END || s.len < sizeof(t))
		return;
	put_key(l, "tried");
	put(l, "[");
	for (size_t i = 0; i < RECORD_TRIES_MAX &&
	    (i + 1) * sizeof(t) <= s.len; i++) {
		struct endpoint e = { .port = r->dialled.port };

		memcpy(&t, s.data + i * sizeof(t), sizeof(t));
		e.addr = t.addr;
		put(l, i > 0 ? ",{" : "{");
		l->comma = false;
		put_endpoint(l, "address", &e);
		if (t.reason != REASON_NONE && t.reason < REASON_COUNT)
			put_word(l, "reason", reason_word(t.reason));
		put(l, "}");
	}
	put(l, "]");
	l->comma = true;
}

/* A request for a name has a port before it has an address. */
static void
put_port(struct line *l, const struct record *r)
{
	if (r->dialled.port != 0 && !has_address(&r->dialled) &&
	    !has_address(&r->original))
		put_number(l, "port", r->dialled.port);
}

/* The text of a second is kept: many records fall into one. */
static void
put_time(struct line *l, int64_t wall_us)
{
	static char text[48];
	static size_t len;
	static time_t kept = -1;
	time_t s = (time_t)(wall_us / 1000000);
	int64_t us = wall_us % 1000000;
	struct tm tm;

	if (s != kept) {
		gmtime_r(&s, &tm);
		len = strftime(text, 32, "%Y-%m-%dT%H:%M:%S.", &tm);
		memcpy(text + len, "000000Z", 8);
		kept = s;
	}
	for (size_t i = 6; i-- > 0; us /= 10)
		text[len + i] = (char)('0' + us % 10);
	put_word(l, "time", text);
}

/* "team=a,run=7" as an object. */
static void
put_labels(struct line *l, struct span all)
{
	if (all.len == 0)
		return;
	put_key(l, "labels");
	put(l, "{");
	l->comma = false;
	while (all.len > 0) {
		const uint8_t *end = memchr(all.data, ',', all.len);
		size_t n = end != NULL ? (size_t)(end - all.data) : all.len;
		const uint8_t *eq = memchr(all.data, '=', n);
		size_t k = eq != NULL ? (size_t)(eq - all.data) : n;

		put(l, l->comma ? "," : "");
		put_string(l, span_of(all.data, k));
		put(l, ":");
		put_string(l, k < n ? span_of(eq + 1, n - k - 1) :
		    span_of("", 0));
		l->comma = true;
		all = n < all.len ? span_of(all.data + n + 1,
		    all.len - n - 1) : span_of("", 0);
	}
	put(l, "}");
	l->comma = true;
}

/* "203.0.113.0/24,2001:db8::/32" as a list. */
static void
put_lab(struct line *l, struct span all)
{
	if (all.len == 0)
		return;
	put_key(l, "lab");
	put(l, "[");
	l->comma = false;
	while (all.len > 0) {
		const uint8_t *end = memchr(all.data, ',', all.len);
		size_t n = end != NULL ? (size_t)(end - all.data) : all.len;

		/* before each but the first: a comma may be the last byte */
		put(l, l->comma ? "," : "");
		put_string(l, span_of(all.data, n));
		l->comma = true;
		n += n < all.len;
		all = span_of(all.data + n, all.len - n);
	}
	put(l, "]");
	l->comma = true;
}

/* "policy.yaml:12" */
static void
put_rule_at(struct line *l, const struct record *r)
{
	struct span file = record_get(r, TEXT_RULE_FILE);
	char at[RECORD_TEXT_MAX_BYTES + 16], *end = append(at, file);

	if (file.len == 0)
		return;
	*end++ = ':';
	end = decimal_text(r->rule_line, end);
	put_text(l, "rule_at", span_of(at, (size_t)(end - at)));
}

static void
put_rule(struct line *l, const struct record *r)
{
	put_text(l, "rule", record_get(r, TEXT_RULE));
	put_rule_at(l, r);
	put_text(l, "rule_reason", record_get(r, TEXT_RULE_REASON));
}

/* RFC 1035 4.1.1, RFC 6895 2.3 */
static const char *
rcode_word(uint8_t rcode)
{
	static const char *const words[] = { "NOERROR", "FORMERR", "SERVFAIL",
	    "NXDOMAIN", "NOTIMP", "REFUSED" };

	return rcode < sizeof(words) / sizeof(words[0]) ? words[rcode] :
	    rcode == 16 ? "BADVERS" : "OTHER";
}

static void
put_digest(struct line *l, const struct record *r)
{
	char hex[2 * POLICY_DIGEST_BYTES];

	if (r->generation == 0)
		return;
	put_number(l, "generation", r->generation);
	for (size_t i = 0; i < POLICY_DIGEST_BYTES; i++) {
		hex[2 * i] = hex_digits[r->digest[i] >> 4];
		hex[2 * i + 1] = hex_digits[r->digest[i] & 15];
	}
	put_text(l, "digest", span_of(hex, sizeof(hex)));
}

static bool
is_judged(const struct record *r)
{
	return r->kind == RECORD_DECISION || r->kind == RECORD_DNS ||
	    r->kind == RECORD_END;
}

static void
put_verdict(struct line *l, const struct record *r)
{
	if (!is_judged(r))
		return;
	put_word(l, "verdict", verdict_word((enum verdict)r->verdict));
	if (r->would != r->verdict)
		put_word(l, "would", verdict_word((enum verdict)r->would));
}

/* A number that was not given is left out. */
static void
put_given(struct line *l, const char *key, uint64_t v)
{
	if (v != 0)
		put_number(l, key, v);
}

static void
put_end(struct line *l, const struct record *r)
{
	if (r->kind == RECORD_DNS)
		put_given(l, "duration_us", r->duration_us);
	if (r->kind != RECORD_END)
		return;
	put_word(l, "how", record_how_word((enum record_how)r->how));
	put_number(l, "bytes_up", r->bytes_up);
	put_number(l, "bytes_down", r->bytes_down);
	put_number(l, "duration_us", r->duration_us);
	put_given(l, "lost_up", r->lost_up);
	put_given(l, "lost_down", r->lost_down);
}

static void
put_head(struct line *l, const struct record *r, uint64_t seq,
    const char *instance)
{
	put_number(l, "v", RECORD_VERSION);
	put_number(l, "seq", seq);
	put_word(l, "instance", instance);
	put_word(l, "kind", record_kind_word((enum record_kind)r->kind));
	put_time(l, r->wall_us);
	put_number(l, "mono_us", (uint64_t)r->mono_us);
	put_given(l, "connection", r->connection);
	put_given(l, "request", r->request);
}

static void
put_client(struct line *l, const struct record *r)
{
	put_text(l, "cell", record_get(r, TEXT_CELL));
	put_labels(l, record_get(r, TEXT_LABELS));
	put_endpoint(l, "client", &r->client);
	if (r->via != VIA_NONE)
		put_word(l, "via", via_words[r->via]);
}

static void
put_name(struct line *l, const struct record *r)
{
	put_text(l, "name", record_get(r, TEXT_NAME));
	if (r->name_from != NAME_FROM_NONE)
		put_word(l, "name_from", from_words[r->name_from]);
	put_text(l, "other_name", record_get(r, TEXT_OTHER_NAME));
	put_given(l, "qtype", r->qtype);
}

/* What was told, and who said so. */
static void
put_dns(struct line *l, const struct record *r)
{
	struct span s = record_get(r, TEXT_ANSWERS);
	struct endpoint e = { 0 };

	put_word(l, "rcode", rcode_word(r->rcode));
	if (s.len >= sizeof(e.addr)) {
		put_key(l, "answers");
		put(l, "[");
		for (size_t i = 0; (i + 1) * sizeof(e.addr) <= s.len; i++) {
			char text[ADDR_TEXT_BYTES];

			memcpy(&e.addr, s.data + i * sizeof(e.addr),
			    sizeof(e.addr));
			put(l, i > 0 ? "," : "");
			put_string(l, span_str(addr_text(&e.addr, text)));
		}
		put(l, "]");
	}
	put_endpoint(l, "server", &r->dialled);
}

static void
put_server(struct line *l, const struct record *r)
{
	put_endpoint(l, "original", &r->original);
	if (r->kind == RECORD_DNS) {
		put_dns(l, r);
		return;
	}
	put_endpoint(l, r->kind == RECORD_END ? "dialled" : "candidate",
	    &r->dialled);
	put_tried(l, r);
	put_port(l, r);
}

static void
put_decision(struct line *l, const struct record *r)
{
	put_verdict(l, r);
	if (r->reason != REASON_NONE)
		put_word(l, "reason", reason_word((enum reason)r->reason));
	put_rule(l, r);
}

static void
put_request(struct line *l, const struct record *r)
{
	put_text(l, "ja4", record_get(r, TEXT_JA4));
	put_text(l, "alpn", record_get(r, TEXT_ALPN));
	put_text(l, "method", record_get(r, TEXT_METHOD));
	put_text(l, "path", record_get(r, TEXT_PATH));
	put_given(l, "status", r->status);
}

size_t
record_json(const struct record *r, uint64_t seq, const char *instance,
    char out[static RECORD_JSON_MAX_BYTES])
{
	struct line l = { .out = out };

	put(&l, "{");
	put_head(&l, r, seq, instance);
	put_client(&l, r);
	put_name(&l, r);
	put_server(&l, r);
	put_decision(&l, r);
	put_request(&l, r);
	put_end(&l, r);
	put_given(&l, "count", r->count);
	put_digest(&l, r);
	put_lab(&l, record_get(r, TEXT_LAB));
	put_text(&l, "detail", record_get(r, TEXT_DETAIL));
	put(&l, "}\n");
	return l.at;
}
