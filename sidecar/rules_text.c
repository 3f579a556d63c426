/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RULE_BYTES 3072u
#define FOREIGN_PORTS_MAX (1u + 4u + 1u + SETTINGS_LISTENERS_MAX)
#define SET_BYTES 2048u		/* of SETTINGS_LISTENERS_MAX addresses */

/*
 * Any packet that has a socket of a process.  The exemption comes first, so
 * what still has an owner is the agent's; what has none (TIME_WAIT, orphans)
 * is ours only by the mark of its connection.
 */
#define OWNED "meta skuid 0-4294967294"
#define NDP "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, " \
	"nd-neighbor-advert } ip6 hoplimit 255 accept"
#define MARK_OWN "ct mark and 0x2 == 0x2"
/* A reply never opens: a SYN that reuses the ports of a served connection
 * that has ended would be the agent's own. */
#define SERVED "ct mark and 0x4 == 0x4 ct direction reply " \
	"tcp flags & (syn | ack) != syn accept"

struct text {
	char *at;
	size_t size, len;
	bool full;
};

static void put(struct text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void rule(struct text *t, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void chain(struct text *t, const char *name, const char *type,
    const char *hook, int priority, const char *policy);
static void shared_chains(const struct rules_spec *r, struct text *t);
static void gateway_chains(const struct rules_spec *r, struct text *t);

static void
put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (t->full)
		return;
	va_start(ap, fmt);
	n = vsnprintf(t->at + t->len, t->size - t->len, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= t->size - t->len)
		t->full = true;
	else
		t->len += (size_t)n;
}

/* One rule; its comment says who made it and how it is called. */
static void
rule(struct text *t, const char *name, const char *fmt, ...)
{
	char line[RULE_BYTES];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(line))
		t->full = true;
	put(t, "\t\t%s comment \"penstock " PENSTOCK_VERSION " %s\"\n", line,
	    name);
}

static void
chain(struct text *t, const char *name, const char *type, const char *hook,
    int priority, const char *policy)
{
	put(t, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy %s;\n",
	    name, type, hook, priority, policy);
}

static void
end(struct text *t)
{
	put(t, "\t}\n");
}

static void
ports_text(const uint16_t *ports, size_t n, char *out, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < n && len < size; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%" PRIu16,
		    i > 0 ? ", " : "", ports[i]);
}

/* An exempt process gives the exemption up with SO_PRIORITY 6, so that a
 * canary of penstock's own can prove the guard. */
static void
exempt_text(const struct rules_spec *r, char *out, size_t size)
{
	size_t len = (size_t)snprintf(out, size, "meta skuid { ");

	for (size_t i = 0; i < r->n_uids; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%" PRIu32,
		    i > 0 ? ", " : "", (uint32_t)r->uids[i]);
	snprintf(out + len, size - len, " } meta priority != 0:6");
}

static void
shared_redirect(const struct rules_spec *r, const char *exempt,
    struct text *t)
{
	chain(t, "redir", "nat", "output", -101, "accept");
	rule(t, "redir/exempt", "%s accept", exempt);
	if (r->ipv6_drop)
		rule(t, "redir/ipv6", "meta nfproto ipv6 fib daddr type "
		    "!= local accept");
	rule(t, "redir/dns-udp", "udp dport 53 redirect to :%" PRIu16,
	    r->dns_port);
	rule(t, "redir/dns-tcp", "tcp dport 53 redirect to :%" PRIu16,
	    r->dns_port);
	rule(t, "redir/local", "fib daddr type local accept");
	rule(t, "redir/tcp", "meta l4proto tcp redirect to :%" PRIu16,
	    r->tcp_port);
	end(t);
}

/* Refusals that are heard at once; what they miss, postrouting drops. */
static void
shared_filter(const struct rules_spec *r, const char *exempt, struct text *t)
{
	chain(t, "flt", "filter", "output", 0, "accept");
	rule(t, "flt/exempt", "%s accept", exempt);
	if (r->n_inbound > 0)
		rule(t, "flt/served", SERVED);
	rule(t, "flt/docker-dns", "ip daddr 127.0.0.11 ct direction original "
	    OWNED " reject");
	/* what the agent sends from a resolver's address to penstock's port
	 * would make the next question a reply to it */
	rule(t, "flt/as-docker-dns", "ip saddr 127.0.0.11 ct direction "
	    "original " OWNED " reject");
	rule(t, "flt/as-resolver", "meta l4proto { tcp, udp } th sport 53 "
	    "ct direction original " OWNED " reject");
	if (r->admin_port != 0)
		rule(t, "flt/admin", "meta skuid != 0 fib daddr type local "
		    "tcp dport %" PRIu16 " ct direction original reject with "
		    "tcp reset", r->admin_port);
	/* a reset for TCP: an ICMP error is not heard before the SYN is sent
	 * a second time, for the socket is busy sending the first */
	if (r->ipv6_drop) {
		rule(t, "flt/ipv6-tcp", "meta nfproto ipv6 fib daddr type "
		    "!= local " OWNED " meta l4proto tcp reject with tcp "
		    "reset");
		rule(t, "flt/ipv6", "meta nfproto ipv6 fib daddr type "
		    "!= local " OWNED " reject with icmpv6 admin-prohibited");
	}
	rule(t, "flt/local", "fib daddr type local accept");
	rule(t, "flt/tcp", OWNED " meta l4proto tcp reject with tcp reset");
	rule(t, "flt/rest", OWNED " reject with icmpx port-unreachable");
	end(t);
}

/* The guard: only here is the interface the true one (SO_BINDTODEVICE). */
static void
shared_guard(const struct rules_spec *r, const char *exempt, struct text *t)
{
	chain(t, "post", "filter", "postrouting", 300, "drop");
	/* a question is never a reply to a flow of somebody else */
	rule(t, "post/question", "%s meta l4proto { tcp, udp } th dport 53 "
	    "ct direction reply counter drop", exempt);
	rule(t, "post/lo", "oifname \"lo\" accept");
	rule(t, "post/exempt", "%s accept", exempt);
	/* what is dropped is the agent's; our own upstream may be IPv6 */
	if (r->ipv6_drop)
		rule(t, "post/ipv6", "meta nfproto ipv6 " OWNED
		    " counter drop");
	if (r->n_inbound > 0)
		rule(t, "post/served", "%s" SERVED, r->ipv6_drop ?
		    "meta nfproto ipv4 " : "");
	rule(t, "post/agent", OWNED " counter drop");
	/* an orphan of ours begins nothing: a SYN here is an agent's listener
	 * that answers, by a cookie, on a port that we had */
	rule(t, "post/orphan-syn", MARK_OWN " tcp flags syn counter drop");
	rule(t, "post/orphan", MARK_OWN " counter accept");
	rule(t, "post/ndp", NDP);
	rule(t, "post/rest", "counter drop");
	end(t);
}

static void
shared_chains(const struct rules_spec *r, struct text *t)
{
	char exempt[256], ports[SETTINGS_INBOUND_MAX * 8 + 1] = "";

	exempt_text(r, exempt, sizeof(exempt));
	chain(t, "tag", "filter", "output", -150, "accept");
	rule(t, "tag/own", "%s ct state new ct direction original "
	    "ct mark set ct mark or 0x2", exempt);
	end(t);
	if (r->n_inbound > 0) {
		ports_text(r->inbound, r->n_inbound, ports, sizeof(ports));
		chain(t, "served", "filter", "prerouting", -150, "accept");
		rule(t, "served/new", "iifname != \"lo\" fib daddr type local "
		    "tcp dport { %s } ct state new ct direction original "
		    "ct mark set ct mark or 0x4", ports);
		end(t);
	}
	shared_redirect(r, exempt, t);
	shared_filter(r, exempt, t);
	shared_guard(r, exempt, t);
}

static void
gateway_tproxy(struct text *t, const char *name, const char *match,
    uint16_t port, bool ipv6)
{
	char full[64];

	snprintf(full, sizeof(full), "%s4", name);
	rule(t, full, "meta nfproto ipv4 %s meta mark set meta mark or 0x%x "
	    "tproxy ip to :%" PRIu16 " accept", match, RULES_MARK, port);
	snprintf(full, sizeof(full), "%s6", name);
	if (ipv6)
		rule(t, full, "meta nfproto ipv6 %s meta mark set meta mark "
		    "or 0x%x tproxy ip6 to :%" PRIu16 " accept", match,
		    RULES_MARK, port);
}

static void
gateway_pre(const struct rules_spec *r, const char *others, struct text *t)
{
	chain(t, "pre", "filter", "prerouting", -150, "drop");
	rule(t, "pre/others", "%s accept", others);
	rule(t, "pre/ndp", NDP);
	/* nobody is answered, refusals included, who does not live there */
	rule(t, "pre/forged", "fib saddr . iif oif missing counter drop");
	if (r->ipv6_drop) {
		rule(t, "pre/ipv6-tcp", "meta nfproto ipv6 meta l4proto tcp "
		    "counter reject with tcp reset");
		rule(t, "pre/ipv6", "meta nfproto ipv6 counter reject with "
		    "icmpv6 admin-prohibited");
	}
	gateway_tproxy(t, "pre/dns-udp", "udp dport 53", r->dns_port,
	    !r->ipv6_drop);
	gateway_tproxy(t, "pre/dns-tcp", "tcp dport 53", r->dns_port,
	    !r->ipv6_drop);
	rule(t, "pre/local", "meta l4proto tcp fib daddr type local accept");
	gateway_tproxy(t, "pre/tcp", "meta l4proto tcp", r->tcp_port,
	    !r->ipv6_drop);
	/* tproxy without a listener goes on to the next rule */
	rule(t, "pre/closed", "meta l4proto tcp counter reject with tcp "
	    "reset");
	rule(t, "pre/rest", "counter reject with icmpx port-unreachable");
	end(t);
}

static bool
is_everywhere(const struct endpoint *e)
{
	return addr_class(&e->addr) == ADDR_UNSPECIFIED;
}

static bool
is_v6(const struct endpoint *e)
{
	return !addr_is_v4(&e->addr);
}

static size_t
add_port(uint16_t *list, size_t n, uint16_t port)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == port)
			return n;
	list[n] = port;
	return n + 1;
}

/* To those n: the ports of what is on all addresses of one family. */
static size_t
add_everywhere(const struct rules_spec *r, bool v6, uint16_t *list, size_t n)
{
	for (size_t i = 0; i < r->n_offered; i++)
		if (is_everywhere(&r->offered[i]) &&
		    is_v6(&r->offered[i]) == v6)
			n = add_port(list, n, r->offered[i].port);
	return n;
}

/* "address . port" of those that are on one, of one family; how many. */
static size_t
addresses_text(const struct rules_spec *r, bool v6, char *out, size_t size)
{
	char at[ADDR_TEXT_BYTES];
	size_t len = 0, n = 0;

	for (size_t i = 0; i < r->n_offered && len < size; i++) {
		const struct endpoint *e = &r->offered[i];

		if (is_everywhere(e) || is_v6(e) != v6)
			continue;
		len += (size_t)snprintf(out + len, size - len,
		    "%s%s . %" PRIu16, n++ > 0 ? ", " : "",
		    addr_text(&e->addr, at), e->port);
	}
	return n;
}

/*
 * Who comes in by another interface than the agents' is answered by nothing
 * of ours but a listener on one address, and that only by the interface which
 * has it: the kernel by itself answers at any of its addresses, the agents'
 * side's too, whichever way one comes.  No answer, for a source out there may
 * be anybody's.
 */
static void
gateway_foreign(const struct rules_spec *r, const char *others,
    struct text *t)
{
	uint16_t all[FOREIGN_PORTS_MAX] = { r->dns_port }, *captured = all;
	size_t n = 1;
	char ports[FOREIGN_PORTS_MAX * 8], set[SET_BYTES];

	for (size_t i = 0; i < r->n_dns_more; i++)
		n = add_port(all, n, r->dns_more[i]);
	ports_text(all, n, ports, sizeof(ports));
	rule(t, "inp/foreign-udp", "%s iifname != \"lo\" udp dport { %s } "
	    "counter drop", others, ports);
	captured += n;
	captured[0] = r->tcp_port;
	n = add_everywhere(r, false, captured, 1);
	n = add_everywhere(r, true, captured, n);
	ports_text(all, n + (size_t)(captured - all), ports, sizeof(ports));
	rule(t, "inp/foreign-tcp", "%s iifname != \"lo\" tcp dport { %s } "
	    "counter drop", others, ports);
	ports_text(captured + 1, n - 1, ports, sizeof(ports));
	if (n > 1)
		rule(t, "inp/self", "iifname \"lo\" tcp dport { %s } counter "
		    "reject with tcp reset", ports);
	if (addresses_text(r, false, set, sizeof(set)) > 0)
		rule(t, "inp/elsewhere4", "%s iifname != \"lo\" ip daddr . "
		    "tcp dport { %s } fib daddr . iif type != local counter "
		    "drop", others, set);
	if (addresses_text(r, true, set, sizeof(set)) > 0)
		rule(t, "inp/elsewhere6", "%s iifname != \"lo\" ip6 daddr . "
		    "tcp dport { %s } fib daddr . iif type != local counter "
		    "drop", others, set);
}

/*
 * What agents connect to by themselves: on all addresses any of this host's
 * will do, for they are told by the interface; otherwise the one that theirs
 * has, or they would come to the listener, and so be of the cell, of others.
 */
static void
gateway_offered(const struct rules_spec *r, bool v6, struct text *t)
{
	uint16_t ports[SETTINGS_LISTENERS_MAX];
	size_t n = add_everywhere(r, v6, ports, 0);
	char text[SETTINGS_LISTENERS_MAX * 8], set[SET_BYTES];

	ports_text(ports, n, text, sizeof(text));
	if (n > 0)
		rule(t, v6 ? "inp/offered6" : "inp/offered4", "meta nfproto "
		    "%s fib daddr type local tcp dport { %s } accept",
		    v6 ? "ipv6" : "ipv4", text);
	if (addresses_text(r, v6, set, sizeof(set)) > 0)
		rule(t, v6 ? "inp/offered-at6" : "inp/offered-at4", "%s daddr "
		    ". tcp dport { %s } fib daddr . iif type local accept",
		    v6 ? "ip6" : "ip", set);
}

static void
gateway_chains(const struct rules_spec *r, struct text *t)
{
	char others[256] = "iifname != { ";
	size_t len = strlen(others);

	for (size_t i = 0; i < r->n_interfaces; i++)
		len += (size_t)snprintf(others + len, sizeof(others) - len,
		    "%s\"%s\"", i > 0 ? ", " : "", r->interfaces[i]);
	snprintf(others + len, sizeof(others) - len, " }");
	gateway_pre(r, others, t);

	chain(t, "inp", "filter", "input", 0, "drop");
	gateway_foreign(r, others, t);
	rule(t, "inp/others", "%s accept", others);
	rule(t, "inp/captured", "meta mark and 0x%x == 0x%x accept",
	    RULES_MARK, RULES_MARK);
	rule(t, "inp/ndp", NDP);
	gateway_offered(r, false, t);
	if (!r->ipv6_drop)
		gateway_offered(r, true, t);
	rule(t, "inp/tcp", "meta l4proto tcp counter reject with tcp reset");
	rule(t, "inp/rest", "counter drop");
	end(t);
	chain(t, "forw", "filter", "forward", 0, "drop");
	rule(t, "forw/rest", "counter drop");
	end(t);
}

static int
table_text(const struct rules_spec *r, const char *name, bool dormant,
    char *out, size_t size)
{
	struct text t = { .at = out, .size = size };

	/* Made first, so that deleting what is not there cannot fail: one
	 * transaction replaces any earlier form. */
	put(&t, "table inet %s {\n}\ndelete table inet %s\n", name, name);
	put(&t, "table inet %s {\n%s", name,
	    dormant ? "\tflags dormant;\n" : "");
	if (r->mode == MODE_SHARED)
		shared_chains(r, &t);
	else
		gateway_chains(r, &t);
	put(&t, "}\n");
	return t.full ? -ENOSPC : (int)t.len;
}

int
rules_text(const struct rules_spec *r, char *out, size_t size)
{
	return table_text(r, RULES_TABLE, false, out, size);
}

int
rules_text_beside(const struct rules_spec *r, const char *table, char *out,
    size_t size)
{
	return table_text(r, table, true, out, size);
}
