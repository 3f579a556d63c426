/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/tunnel.h"

#include <libpsl.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>

#include "dns/wire.h"

#define WAYS 8u			/* places where a domain can stand */
#define SEEN_BITS 1024u		/* of names, in each half of the window */

/* Where each kind of evidence is complete. */
#define TOLD_FULL 3072.0	/* bits */
#define CARRIERS_FULL 20.0	/* names */
#define GOT_FULL 32768.0	/* bytes */

struct half {
	int64_t number;		/* of half windows since the clock's zero */
	uint32_t told_bits, carriers, got_bytes, names;
	uint64_t seen[SEEN_BITS / 64];	/* names, hashed */
};

struct entry {
	uint64_t key;		/* of cell and domain; 0: free */
	struct half half[2];	/* the even ones and the odd ones */
	bool suspected;
};

struct tunnel {
	struct tunnel_settings settings;
	const psl_ctx_t *psl;
	struct entry *entries;
	uint32_t n_buckets;
	uint8_t hash_key[crypto_shorthash_KEYBYTES];
};

/* A question's name, taken apart. */
struct parts {
	char text[256];		/* lower case, dots; what does not print: ? */
	size_t len;
	size_t domain_at;	/* in text; len: it has none */
	bool odd;		/* no host name */
	bool reverse;
};

static void
defaults(struct tunnel_settings *s)
{
	if (s->window_s == 0)
		s->window_s = 60;
	if (s->score == 0)
		s->score = 50;
	if (s->names_min == 0)
		s->names_min = 8;
	if (s->domains_max == 0)
		s->domains_max = 8192;
}

struct tunnel *
tunnel_new(const struct tunnel_settings *s)
{
	struct tunnel *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->settings = *s;
	defaults(&t->settings);
	t->psl = psl_builtin();
	t->n_buckets = t->settings.domains_max / WAYS;
	if (t->n_buckets == 0)
		t->n_buckets = 1;
	randombytes_buf(t->hash_key, sizeof(t->hash_key));
	t->entries = calloc((size_t)t->n_buckets * WAYS, sizeof(*t->entries));
	if (t->entries == NULL) {
		free(t);
		return NULL;
	}
	return t;
}

void
tunnel_free(struct tunnel *t)
{
	if (t == NULL)
		return;
	free(t->entries);
	free(t);
}

void
tunnel_set(struct tunnel *t, const struct tunnel_settings *s)
{
	unsigned domains_max = t->settings.domains_max;

	t->settings = *s;
	t->settings.domains_max = domains_max;
	defaults(&t->settings);
}

/* ---- names ---- */

static bool
is_host_char(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	    c == '-' || c == '_';
}

static void
take_label(struct parts *p, const uint8_t *label, size_t n)
{
	if (p->len > 0)
		p->text[p->len++] = '.';
	for (size_t i = 0; i < n; i++) {
		uint8_t c = label[i];

		if (c >= 'A' && c <= 'Z')
			c = (uint8_t)(c + ('a' - 'A'));
		p->odd |= !is_host_char(c);
		p->text[p->len++] = c > 0x20 && c < 0x7f && c != '.' ?
		    (char)c : '?';
	}
}

static bool
ends_with(const struct parts *p, const char *suffix)
{
	size_t n = strlen(suffix);

	return p->len > n && p->text[p->len - n - 1] == '.' &&
	    memcmp(p->text + p->len - n, suffix, n) == 0;
}

/* Letters only: the kind of top label that people give to networks of their
 * own.  One with digits is likely to be data itself. */
static bool
is_word(const char *s)
{
	for (; *s != '\0'; s++)
		if (*s < 'a' || *s > 'z')
			return false;
	return true;
}

/* Under a top label that nobody registers names in, the label with the one in
 * front of it, or alone where that is all; where it is no word, nowhere: then
 * all such names of a cell are one domain. */
static size_t
find_private(const struct parts *p, const char *top)
{
	const char *at = top;

	if (!is_word(top) || top == p->text)
		return p->len;
	for (at -= 1; at > p->text && at[-1] != '.'; at--)
		;
	return (size_t)((at > p->text ? at : top) - p->text);
}

/* Where the registered domain begins. */
static size_t
find_domain(const struct tunnel *t, const struct parts *p)
{
	const char *top = strrchr(p->text, '.'), *domain;

	top = top == NULL ? p->text : top + 1;
	if (t->psl == NULL || !psl_is_public_suffix2(t->psl, top,
	    PSL_TYPE_ANY | PSL_TYPE_NO_STAR_RULE))
		return find_private(p, top);
	domain = psl_registrable_domain(t->psl, p->text);
	return domain == NULL ? p->len : (size_t)(domain - p->text);
}

static void
take_apart(const struct tunnel *t, struct span qname, struct parts *p)
{
	memset(p, 0, sizeof(*p));
	for (size_t at = 0; at < qname.len && qname.data[at] != 0;) {
		size_t n = qname.data[at];

		if (n > 63 || at + 1 + n > qname.len ||
		    p->len + n + 2 > sizeof(p->text))
			break;
		take_label(p, qname.data + at + 1, n);
		at += 1 + n;
	}
	p->reverse = ends_with(p, "arpa");
	p->domain_at = find_domain(t, p);
}

/* What is said in front of the domain. */
static struct span
told(const struct parts *p)
{
	return span_of((const uint8_t *)p->text, p->domain_at);
}

/* Bits in a text: its letters times their entropy; dots are no letters. */
static uint32_t
bits_of(struct span s)
{
	unsigned count[256] = { 0 };
	double bits = 0, n = 0;

	for (size_t i = 0; i < s.len; i++)
		if (s.data[i] != '.') {
			count[s.data[i]]++;
			n++;
		}
	for (unsigned c = 0; c < 256; c++)
		if (count[c] > 0)
			bits += count[c] * log2(n / count[c]);
	return (uint32_t)bits;
}

/* ---- the table ---- */

static uint64_t
hash(const struct tunnel *t, uint64_t seed, struct span s)
{
	uint8_t buf[8 + 256], out[crypto_shorthash_BYTES];
	uint64_t h;

	if (s.len > 256)
		s.len = 256;
	memcpy(buf, &seed, 8);
	if (s.len > 0)
		memcpy(buf + 8, s.data, s.len);
	crypto_shorthash(out, buf, 8 + s.len, t->hash_key);
	memcpy(&h, out, sizeof(h));
	return h;
}

static uint64_t
key_of(const struct tunnel *t, struct span cell, const struct parts *p)
{
	struct span domain = span_of((const uint8_t *)p->text + p->domain_at,
	    p->len - p->domain_at);

	return hash(t, hash(t, 0, cell), domain) | 1;
}

static int64_t
half_number(const struct tunnel *t, int64_t now_ms)
{
	return now_ms / ((int64_t)t->settings.window_s * 500);
}

/* This half of the window, and the one before it where it is that still. */
static struct half *
half_now(const struct tunnel *t, struct entry *e, int64_t now_ms)
{
	int64_t n = half_number(t, now_ms);
	struct half *h = &e->half[n & 1];

	if (h->number != n) {
		memset(h, 0, sizeof(*h));
		h->number = n;
	}
	return h;
}

static const struct half *
half_before(const struct tunnel *t, const struct entry *e, int64_t now_ms)
{
	static const struct half none;
	int64_t n = half_number(t, now_ms) - 1;
	const struct half *h = &e->half[n & 1];

	return h->number == n ? h : &none;
}

static unsigned
names_of(const struct tunnel *t, const struct entry *e, int64_t now_ms)
{
	int64_t n = half_number(t, now_ms);
	unsigned names = 0;

	for (unsigned i = 0; i < 2; i++)
		if (e->half[i].number == n || e->half[i].number == n - 1)
			names += e->half[i].names;
	return names;
}

static struct entry *
find(const struct tunnel *t, uint64_t key)
{
	struct entry *e = t->entries + (key >> 1) % t->n_buckets * WAYS;

	for (unsigned i = 0; i < WAYS; i++)
		if (e[i].key == key)
			return &e[i];
	return NULL;
}

/* A free place, or that of the domain with the fewest names: who asks for
 * many domains once does not get a tunnel forgotten. */
static struct entry *
make_room(const struct tunnel *t, uint64_t key, int64_t now_ms)
{
	struct entry *e = t->entries + (key >> 1) % t->n_buckets * WAYS;
	struct entry *least = e;

	for (unsigned i = 1; i < WAYS && least->key != 0; i++)
		if (e[i].key == 0 || names_of(t, &e[i], now_ms) <
		    names_of(t, least, now_ms))
			least = &e[i];
	memset(least, 0, sizeof(*least));
	least->key = key;
	/* no half of ours: the clock may stand near its zero */
	least->half[0].number = least->half[1].number = -2;
	return least;
}

/* ---- scores ---- */

static bool
carries(const struct parts *p, uint16_t type)
{
	switch (type) {
	case TYPE_A:
	case TYPE_AAAA:
	case TYPE_HTTPS:
	case TYPE_SVCB:
	case TYPE_NS:
	case TYPE_SOA:
	case TYPE_PTR:
		return p->odd;
	default:
		return true;
	}
}

/* Not asked in this window; from here on it is. */
static bool
is_new(const struct tunnel *t, struct half *now, const struct half *before,
    struct span name)
{
	uint64_t at = hash(t, 1, name) % SEEN_BITS, bit = 1ull << at % 64;

	if ((now->seen[at / 64] & bit) != 0)
		return false;
	now->seen[at / 64] |= bit;
	return (before->seen[at / 64] & bit) == 0;
}

static double
part(double have, double full)
{
	return have < full ? have / full : 1;
}

/* Evidence adds up as doubts multiply. */
static void
score(const struct tunnel *t, const struct half *now,
    const struct half *before, struct tunnel_look *out)
{
	out->names = now->names + before->names;
	out->told_bits = now->told_bits + before->told_bits;
	out->carriers = now->carriers + before->carriers;
	out->got_bytes = now->got_bytes + before->got_bytes;
	out->score = (unsigned)(100 - 100 *
	    (1 - part(out->told_bits, TOLD_FULL)) *
	    (1 - part(out->carriers, CARRIERS_FULL)) *
	    (1 - part(out->got_bytes, GOT_FULL)));
	out->suspected = out->names >= t->settings.names_min &&
	    out->score >= t->settings.score;
}

static void
look(const struct tunnel *t, struct entry *e, int64_t now_ms,
    struct tunnel_look *out)
{
	score(t, half_now(t, e, now_ms), half_before(t, e, now_ms), out);
	out->first = out->suspected && !e->suspected;
	e->suspected = out->suspected;
}

void
tunnel_question(struct tunnel *t, struct span cell, struct span qname,
    uint16_t type, int64_t now_ms, struct tunnel_look *out)
{
	struct parts p;
	struct entry *e;
	struct half *now;
	uint64_t key;

	memset(out, 0, sizeof(*out));
	take_apart(t, qname, &p);
	if (p.reverse || p.len == 0)
		return;
	memcpy(out->domain, p.text + p.domain_at, p.len - p.domain_at);
	key = key_of(t, cell, &p);
	e = find(t, key);
	if (e == NULL)
		e = make_room(t, key, now_ms);
	now = half_now(t, e, now_ms);
	if (p.domain_at > 0 && is_new(t, now, half_before(t, e, now_ms),
	    told(&p))) {
		now->names++;
		now->told_bits += bits_of(told(&p));
		now->carriers += carries(&p, type);
	}
	look(t, e, now_ms, out);
}

void
tunnel_answer(struct tunnel *t, struct span cell, struct span qname,
    size_t bytes, int64_t now_ms)
{
	struct parts p;
	struct entry *e;

	take_apart(t, qname, &p);
	e = p.reverse ? NULL : find(t, key_of(t, cell, &p));
	if (e != NULL && p.domain_at > 0)
		half_now(t, e, now_ms)->got_bytes += (uint32_t)bytes;
}

unsigned
tunnel_suspected(const struct tunnel *t, int64_t now_ms)
{
	unsigned n = 0;

	for (size_t i = 0; i < (size_t)t->n_buckets * WAYS; i++)
		n += t->entries[i].suspected &&
		    names_of(t, &t->entries[i], now_ms) > 0;
	return n;
}
