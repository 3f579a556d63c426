/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/addr.h"

#include <arpa/inet.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool
addr_is_v4(const struct addr *a)
{
	return memcmp(a->b, mapped, sizeof(mapped)) == 0;
}

bool
addr_eq(const struct addr *a, const struct addr *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

bool
endpoint_eq(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && addr_eq(&a->addr, &b->addr);
}

struct addr
addr_from_v4(const uint8_t b[static 4])
{
	struct addr a;

	memcpy(a.b, mapped, sizeof(mapped));
	memcpy(a.b + 12, b, 4);
	return a;
}

struct addr
addr_from_v6(const uint8_t b[static 16])
{
	struct addr a;

	memcpy(a.b, b, 16);
	return a;
}

/* Four decimal octets without leading zeros: inet_pton takes just these,
 * but for "00" and the like, which glibc refuses too. */
bool
addr_parse(struct addr *out, struct span text)
{
	char z[INET6_ADDRSTRLEN + 1];
	uint8_t b[16];

	if (text.len == 0 || text.len >= sizeof(z) ||
	    memchr(text.data, 0, text.len) != NULL)
		return false;
	memcpy(z, text.data, text.len);
	z[text.len] = '\0';
	if (inet_pton(AF_INET, z, b) == 1) {
		*out = addr_from_v4(b);
		return true;
	}
	if (inet_pton(AF_INET6, z, b) == 1) {
		*out = addr_from_v6(b);
		return true;
	}
	return false;
}

static bool
bit(const struct addr *a, unsigned i)
{
	return (a->b[i / 8] >> (7 - i % 8)) & 1;
}

/* Decimal digits without zeros in front, of a number up to max < 100000. */
static bool
small_number(struct span s, unsigned max, unsigned *out)
{
	unsigned v = 0;

	if (s.len == 0 || s.len > 5 || (s.len > 1 && s.data[0] == '0'))
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
		v = v * 10 + (unsigned)(s.data[i] - '0');
	}
	*out = v;
	return v <= max;
}

bool
addr_port(struct span s, uint16_t *out)
{
	unsigned v;

	if (!small_number(s, 65535, &v) || v == 0)
		return false;
	*out = (uint16_t)v;
	return true;
}

bool
prefix_parse(struct prefix *out, struct span text)
{
	const uint8_t *slash = memchr(text.data, '/', text.len);
	struct span head = text;
	unsigned max, bits;

	if (slash != NULL)
		head.len = (size_t)(slash - text.data);
	if (!addr_parse(&out->base, head))
		return false;
	/* ::ffff:10.0.0.0/104 is written as 10.0.0.0/8 */
	max = memchr(head.data, ':', head.len) == NULL ? 32 : 128;
	bits = max;
	if (slash != NULL && !small_number(span_of(slash + 1,
	    text.len - head.len - 1), max, &bits))
		return false;
	out->bits = (uint8_t)(bits + 128 - max);
	for (unsigned i = out->bits; i < 128; i++)
		if (bit(&out->base, i))
			return false;
	return true;
}

bool
prefix_has(const struct prefix *p, const struct addr *a)
{
	unsigned whole = p->bits / 8, rest = p->bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	return memcmp(p->base.b, a->b, whole) == 0 && (rest == 0 ||
	    ((p->base.b[whole] ^ a->b[whole]) & mask) == 0);
}

/* Returns where the NUL stands. */
static char *
put_addr(char *at, const struct addr *a)
{
	if (!addr_is_v4(a)) {
		inet_ntop(AF_INET6, a->b, at, INET6_ADDRSTRLEN);
		return at + strlen(at);
	}
	for (int i = 12; i < 16; i++) {
		at = decimal_text(a->b[i], at);
		*at++ = '.';
	}
	*--at = '\0';
	return at;
}

char *
addr_text(const struct addr *a, char out[static ADDR_TEXT_BYTES])
{
	put_addr(out, a);
	return out;
}

char *
endpoint_text(const struct endpoint *e, char out[static ADDR_TEXT_BYTES])
{
	bool v6 = !addr_is_v4(&e->addr);
	char *at = out;

	if (v6)
		*at++ = '[';
	at = put_addr(at, &e->addr);
	if (v6)
		*at++ = ']';
	*at++ = ':';
	*decimal_text(e->port, at) = '\0';
	return out;
}

char *
prefix_text(const struct prefix *p, char out[static ADDR_TEXT_BYTES])
{
	bool v4 = addr_is_v4(&p->base) && p->bits >= 96;
	char *at = put_addr(out, &p->base);

	*at++ = '/';
	*decimal_text(v4 ? p->bits - 96u : p->bits, at) = '\0';
	return out;
}

bool
endpoint_from_sockaddr(struct endpoint *out,
    const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;

	if (sa->ss_family == AF_INET) {
		uint8_t b[4];

		memcpy(b, &in->sin_addr, 4);
		out->addr = addr_from_v4(b);
		out->port = ntohs(in->sin_port);
		return true;
	}
	if (sa->ss_family != AF_INET6)
		return false;
	out->addr = addr_from_v6(in6->sin6_addr.s6_addr);
	out->port = ntohs(in6->sin6_port);
	return true;
}

socklen_t
endpoint_to_sockaddr(const struct endpoint *e, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (void *)out;
	struct sockaddr_in6 *in6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (addr_is_v4(&e->addr)) {
		in->sin_family = AF_INET;
		in->sin_port = htons(e->port);
		memcpy(&in->sin_addr, e->addr.b + 12, 4);
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(e->port);
	memcpy(in6->sin6_addr.s6_addr, e->addr.b, 16);
	return sizeof(*in6);
}

/* ---- classes ---- */

struct range {
	const char *prefix;
	enum addr_class class;
};

/*
 * The first match counts: holes stand before what they are cut from.  From
 * the IANA special-purpose registries (RFC 6890) and the metadata addresses
 * of the clouds.
 */
static const struct range ranges[] = {
	{ "169.254.169.254/32", ADDR_METADATA },
	{ "169.254.169.253/32", ADDR_METADATA },
	{ "169.254.170.2/32", ADDR_METADATA },
	{ "169.254.170.23/32", ADDR_METADATA },
	{ "169.254.0.23/32", ADDR_METADATA },
	{ "100.100.100.200/32", ADDR_METADATA },
	{ "192.0.0.192/32", ADDR_METADATA },
	{ "168.63.129.16/32", ADDR_METADATA },
	{ "fd00:ec2::254/128", ADDR_METADATA },
	{ "fd00:ec2::253/128", ADDR_METADATA },
	{ "fd00:ec2::23/128", ADDR_METADATA },
	{ "fd20:ce::254/128", ADDR_METADATA },
	{ "fd00:42::42/128", ADDR_METADATA },
	{ "255.255.255.255/32", ADDR_MULTICAST },
	{ "0.0.0.0/8", ADDR_UNSPECIFIED },
	{ "10.0.0.0/8", ADDR_PRIVATE },
	{ "100.64.0.0/10", ADDR_PRIVATE },
	{ "127.0.0.0/8", ADDR_LOOPBACK },
	{ "169.254.0.0/16", ADDR_LINK_LOCAL },
	{ "172.16.0.0/12", ADDR_PRIVATE },
	{ "192.0.0.9/32", ADDR_PUBLIC },	/* PCP anycast, RFC 7723 */
	{ "192.0.0.10/32", ADDR_PUBLIC },	/* TURN anycast, RFC 8155 */
	{ "192.0.0.0/24", ADDR_RESERVED },
	{ "192.0.2.0/24", ADDR_DOCUMENTATION },
	{ "192.88.99.0/24", ADDR_RESERVED },	/* 6to4 relays, RFC 7526 */
	{ "192.168.0.0/16", ADDR_PRIVATE },
	{ "198.18.0.0/15", ADDR_BENCHMARK },
	{ "198.51.100.0/24", ADDR_DOCUMENTATION },
	{ "203.0.113.0/24", ADDR_DOCUMENTATION },
	{ "224.0.0.0/4", ADDR_MULTICAST },
	{ "240.0.0.0/4", ADDR_RESERVED },
	{ "::ffff:0:0/96", ADDR_PUBLIC },	/* the rest of IPv4 */
	{ "::/128", ADDR_UNSPECIFIED },
	{ "::1/128", ADDR_LOOPBACK },
	{ "::/8", ADDR_RESERVED },
	{ "100::/64", ADDR_RESERVED },		/* discard, RFC 6666 */
	{ "2001:2::/48", ADDR_BENCHMARK },
	{ "2001:db8::/32", ADDR_DOCUMENTATION },
	{ "2001:1::1/128", ADDR_PUBLIC },
	{ "2001:1::2/128", ADDR_PUBLIC },
	{ "2001:1::3/128", ADDR_PUBLIC },	/* DNS-SD, RFC 9665 */
	{ "2001:3::/32", ADDR_PUBLIC },		/* AMT, RFC 7450 */
	{ "2001:4:112::/48", ADDR_PUBLIC },	/* AS112, RFC 7535 */
	{ "2001:20::/28", ADDR_PUBLIC },	/* ORCHIDv2, RFC 7343 */
	{ "2001:30::/28", ADDR_PUBLIC },	/* DETs, RFC 9374 */
	{ "2001::/23", ADDR_RESERVED },		/* protocol assignments */
	{ "2002::/16", ADDR_RESERVED },
	{ "3fff::/20", ADDR_DOCUMENTATION },
	{ "2000::/3", ADDR_PUBLIC },
	{ "fc00::/7", ADDR_PRIVATE },
	{ "fe80::/10", ADDR_LINK_LOCAL },
	{ "fec0::/10", ADDR_RESERVED },
	{ "ff00::/8", ADDR_MULTICAST },
	{ "::/0", ADDR_RESERVED },
};
#define RANGES (sizeof(ranges) / sizeof(ranges[0]))

/* The table in binary, made at the first question: prefix_parse is the
 * one reader of prefixes, and a wrong line is caught by the unit test. */
static const struct prefix *
range_table(void)
{
	static struct prefix table[RANGES];
	static bool made;

	if (!made) {
		for (size_t i = 0; i < RANGES; i++)
			if (!prefix_parse(&table[i],
			    span_str(ranges[i].prefix)))
				table[i] = (struct prefix){ .bits = 0 };
		made = true;
	}
	return table;
}

enum addr_class
addr_class(const struct addr *judged)
{
	const struct prefix *table = range_table();

	for (size_t i = 0; i < RANGES; i++)
		if (prefix_has(&table[i], judged))
			return ranges[i].class;
	return ADDR_RESERVED;
}

static bool
prefix_within(const struct prefix *in, const struct prefix *out)
{
	return in->bits >= out->bits && prefix_has(out, &in->base);
}

enum addr_class
prefix_class(const struct prefix *p)
{
	const struct prefix *table = range_table();

	for (size_t i = 0; i < RANGES; i++)
		if (prefix_within(p, &table[i]))
			return ranges[i].class;
	return ADDR_RESERVED;
}

static bool
never_opened(enum addr_class c)
{
	return c == ADDR_RESERVED || c == ADDR_UNSPECIFIED ||
	    c == ADDR_LOOPBACK || c == ADDR_MULTICAST;
}

/* One that begins or ends within: the class changes somewhere in p. */
static bool
is_split(const struct prefix *p)
{
	const struct prefix *table = range_table();

	for (size_t i = 0; i < RANGES; i++)
		if (table[i].bits > p->bits && prefix_within(&table[i], p))
			return true;
	return false;
}

/* Halved until all of it is of one class: as deep as the longest range, and
 * along the ranges only. */
bool
prefix_can_open(const struct prefix *p)
{
	struct prefix half = *p;

	if (!is_split(p))
		return !never_opened(prefix_class(p));
	half.bits++;
	if (prefix_can_open(&half))
		return true;
	half.base.b[p->bits / 8] |= (uint8_t)(0x80u >> p->bits % 8);
	return prefix_can_open(&half);
}

size_t
addr_ranges(const struct prefix **out)
{
	*out = range_table();
	return RANGES;
}

const char *
addr_class_word(enum addr_class c)
{
	switch (c) {
	case ADDR_RESERVED: return "reserved";
	case ADDR_UNSPECIFIED: return "unspecified";
	case ADDR_LOOPBACK: return "loopback";
	case ADDR_LINK_LOCAL: return "link-local";
	case ADDR_METADATA: return "metadata";
	case ADDR_MULTICAST: return "multicast";
	case ADDR_BENCHMARK: return "benchmark";
	case ADDR_DOCUMENTATION: return "documentation";
	case ADDR_PRIVATE: return "private";
	case ADDR_PUBLIC: return "public";
	}
	return "reserved";
}

/* ---- embedded IPv4 ---- */

static bool
starts(const struct addr *a, const uint8_t *bytes, size_t n)
{
	return memcmp(a->b, bytes, n) == 0;
}

/* The IPv4 address behind a NAT64 prefix (RFC 6052 2.2): octet 8 is left
 * out for prefixes shorter than 96. */
static struct addr
nat64_embedded(const struct addr *a, unsigned bits)
{
	uint8_t v4[4];
	unsigned at = bits / 8;

	for (unsigned i = 0; i < 4; i++) {
		if (at == 8)
			at++;
		v4[i] = a->b[at++];
	}
	return addr_from_v4(v4);
}

static struct addr
teredo_judged(const struct addr *a)
{
	uint8_t client[4];
	struct addr server = addr_from_v4(a->b + 4), inner;

	for (unsigned i = 0; i < 4; i++)
		client[i] = (uint8_t)~a->b[12 + i];
	inner = addr_from_v4(client);
	return addr_class(&server) < addr_class(&inner) ? server : inner;
}

struct addr
addr_judged(const struct addr *a, const struct prefix *nat64, size_t n_nat64)
{
	static const uint8_t zero[12];
	static const uint8_t wkp[12] = { 0, 0x64, 0xff, 0x9b };
	static const uint8_t local_nat64[6] = { 0, 0x64, 0xff, 0x9b, 0, 1 };
	static const uint8_t teredo[4] = { 0x20, 1, 0, 0 };
	static const uint8_t six[2] = { 0x20, 2 };

	if (addr_is_v4(a))
		return *a;
	/* a longer prefix leaves no room for the address: it is none */
	for (size_t i = 0; i < n_nat64; i++)
		if (nat64[i].bits <= 96 && prefix_has(&nat64[i], a))
			return nat64_embedded(a, nat64[i].bits);
	if (starts(a, wkp, sizeof(wkp)))
		return nat64_embedded(a, 96);
	if (starts(a, local_nat64, sizeof(local_nat64)))
		return nat64_embedded(a, 48);
	if (starts(a, teredo, sizeof(teredo)))
		return teredo_judged(a);
	if (starts(a, six, sizeof(six)))
		return addr_from_v4(a->b + 2);
	/* ISATAP: ::0:5efe:a.b.c.d and ::200:5efe:a.b.c.d (RFC 5214) */
	if ((a->b[8] & 0xfd) == 0 && a->b[9] == 0 && a->b[10] == 0x5e &&
	    a->b[11] == 0xfe)
		return addr_from_v4(a->b + 12);
	/* compatible, but for :: and ::1 */
	if (starts(a, zero, sizeof(zero)) &&
	    (a->b[12] | a->b[13] | a->b[14]) != 0)
		return addr_from_v4(a->b + 12);
	return *a;
}
