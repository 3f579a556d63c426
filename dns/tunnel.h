/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_TUNNEL_H
#define DNS_TUNNEL_H

#include "policy/span.h"

/*
 * Names as a covert channel: how much do the questions of one cell under one
 * registered domain (public suffix list) carry?  A tunnel cannot do without
 * names that never come again, so only what is new in the window counts:
 *
 *   told	bits of text in names not asked before: their letters times
 *		the entropy of the name
 *   carriers	new names asked for types whose answers carry what one likes
 *		(NULL, TXT, KEY, CNAME, MX, SRV, ..., or no host name at all)
 *   got	bytes of the answers to new names
 *
 * Each alone can make the score; together they make it sooner.  Two half
 * windows slide; memory is bounded, and where it is short the domain that
 * carried the least is forgotten.  Reverse names (arpa) are not looked at.
 */
struct tunnel;

struct tunnel_settings {
	unsigned window_s;	/* default 60 */
	unsigned score;		/* suspected from here on, 1..100; default 50 */
	unsigned names_min;	/* new names before it is; default 8 */
	unsigned domains_max;	/* remembered; default 8192 */
};

/* What is known of a cell's domain. */
struct tunnel_look {
	unsigned score;		/* 0..100 */
	unsigned names;		/* new ones in the window, about */
	unsigned told_bits, carriers, got_bytes;
	bool suspected;
	bool first;		/* it has become so with this question */
	char domain[256];	/* printable; "" for names without one */
};

MUST_USE struct tunnel *tunnel_new(const struct tunnel_settings *s);
void tunnel_free(struct tunnel *t);
void tunnel_set(struct tunnel *t, const struct tunnel_settings *s);

/* A question: `cell` is the cell's id, qname a sound name in wire form. */
void tunnel_question(struct tunnel *t, struct span cell, struct span qname,
    uint16_t type, int64_t now_ms, struct tunnel_look *out);
/* Its answer has this many bytes. */
void tunnel_answer(struct tunnel *t, struct span cell, struct span qname,
    size_t bytes, int64_t now_ms);
/* How many domains are suspected now. */
unsigned tunnel_suspected(const struct tunnel *t, int64_t now_ms);

#endif
