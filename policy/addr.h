/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_ADDR_H
#define POLICY_ADDR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "policy/span.h"

/*
 * An IP address in one form: 16 bytes, IPv4 as ::ffff:a.b.c.d (RFC 4291
 * 2.5.5.2).  So a mapped address and the IPv4 address that it means are the
 * same value, everywhere.
 */
struct addr {
	uint8_t b[16];
};

/* bits counts in the 128-bit form: 10.0.0.0/8 has 104. */
struct prefix {
	struct addr base;
	uint8_t bits;
};

struct endpoint {
	struct addr addr;
	uint16_t port;		/* host order */
};

/*
 * What an address is for (RFC 6890 and its registries, complete).  Zero is
 * the class that is never dialled.
 */
enum addr_class {
	ADDR_RESERVED = 0,	/* 240/4, 192.0.0/24, 5f00::/16, ... */
	ADDR_UNSPECIFIED,	/* 0/8, :: */
	ADDR_LOOPBACK,
	ADDR_LINK_LOCAL,
	ADDR_METADATA,		/* 169.254.169.254, fd00:ec2::254, ... */
	ADDR_MULTICAST,		/* and broadcast */
	ADDR_BENCHMARK,		/* 198.18/15, 2001:2::/48 */
	ADDR_DOCUMENTATION,	/* 192.0.2/24, 2001:db8::/32, 3fff::/20 ... */
	ADDR_PRIVATE,		/* RFC 1918, ULA, 100.64/10 */
	ADDR_PUBLIC,
};

#define ADDR_TEXT_BYTES 64	/* room for [v6]:port and the NUL */

bool addr_is_v4(const struct addr *a);
bool addr_eq(const struct addr *a, const struct addr *b);
bool endpoint_eq(const struct endpoint *a, const struct endpoint *b);

/* From 4 network-order bytes, from 16. */
struct addr addr_from_v4(const uint8_t b[static 4]);
struct addr addr_from_v6(const uint8_t b[static 16]);

/*
 * Strict text forms only: dotted quad without leading zeros, RFC 4291 2.2
 * IPv6 without brackets and without zone.  False for anything else (octal,
 * hex, short forms, 32-bit numbers).
 */
MUST_USE bool addr_parse(struct addr *out, struct span text);

/* "10.0.0.0/8", "2001:db8::/32", or a bare address (all bits).  False when a
 * bit after the prefix is set or the length is out of range. */
MUST_USE bool prefix_parse(struct prefix *out, struct span text);

bool prefix_has(const struct prefix *p, const struct addr *a);

/* RFC 5952 text; IPv4 as dotted quad.  Returns out. */
char *addr_text(const struct addr *a, char out[static ADDR_TEXT_BYTES]);
/* Decimal, 1 to 65535, without zeros in front. */
MUST_USE bool addr_port(struct span s, uint16_t *out);
/* a.b.c.d:port or [v6]:port. */
char *endpoint_text(const struct endpoint *e,
    char out[static ADDR_TEXT_BYTES]);
char *prefix_text(const struct prefix *p, char out[static ADDR_TEXT_BYTES]);

/* False when the sockaddr is of another family. */
MUST_USE bool endpoint_from_sockaddr(struct endpoint *out,
    const struct sockaddr_storage *sa);
/* Returns the length to hand to connect(2); an IPv4 endpoint gives AF_INET. */
socklen_t endpoint_to_sockaddr(const struct endpoint *e,
    struct sockaddr_storage *out);

/*
 * The address that decides: the IPv4 address inside a 6to4 (RFC 3056),
 * Teredo client (RFC 4380), IPv4-compatible, ISATAP or NAT64 (RFC 6052,
 * 64:ff9b::/96, 64:ff9b:1::/48 and the given further /96 ... /32 prefixes)
 * address, otherwise the address itself.  For Teredo both the server and the
 * client are embedded; the stricter class of the two decides, so the one
 * returned is that.
 */
struct addr addr_judged(const struct addr *a, const struct prefix *nat64,
    size_t n_nat64);

/* The class of an address after addr_judged. */
enum addr_class addr_class(const struct addr *judged);

/*
 * The class of a whole prefix: of the narrowest range that holds all of it.
 * One that reaches over several ranges beside each other is of what holds
 * them all: 10.0.0.0/7 is public, ::/0 reserved.  Addresses in it may be of
 * other classes (169.254.169.254 in 169.254.0.0/16).
 */
enum addr_class prefix_class(const struct prefix *p);
/* False when every address in it is of a class that nothing opens. */
bool prefix_can_open(const struct prefix *p);

/* The ranges that the classes are made of; returns how many.  Between their
 * bases and the addresses behind them the class does not change. */
size_t addr_ranges(const struct prefix **out);

/* One word for messages and records: "loopback", "private", ... */
const char *addr_class_word(enum addr_class c);

#endif
