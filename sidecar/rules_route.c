/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sidecar/rtnl.h"

/* What is asked of the kernel: one message, and what each answer means. */
struct ask_route {
	uint8_t family;
	const struct rules_spec *spec;
	bool rules[sizeof(((struct rules_spec *)0)->interfaces) /
	    sizeof(((struct rules_spec *)0)->interfaces[0])];
	bool route;		/* a dump had it */
};

#define LOOPBACK_INDEX 1	/* of lo, in every network namespace */

static const uint8_t families[] = { AF_INET, AF_INET6 };

static struct nlmsghdr *rule_message(char *buf, uint8_t family, uint16_t type,
    uint16_t flags, const char *interface);
static struct nlmsghdr *route_message(char *buf, uint8_t family,
    uint16_t type, uint16_t flags);

static const char *
family_word(uint8_t family)
{
	return family == AF_INET ? "IPv4" : "IPv6";
}

/* IPv6 switched off, in the kernel or on loopback: there is nothing to route.
 * The table still drops it. */
static bool
is_absent(uint8_t family, int error)
{
	return family == AF_INET6 && (error == -EAFNOSUPPORT ||
	    error == -EACCES || error == -EOPNOTSUPP || error == -EPERM);
}

/*
 * Of what comes in there, or of any.  A rule for whatever has the mark would
 * be met too when the kernel asks for the way back to a packet's source, which
 * it does with the mark where src_valid_mark is set: all that is captured
 * would then be a martian.
 */
static struct nlmsghdr *
rule_message(char *buf, uint8_t family, uint16_t type, uint16_t flags,
    const char *interface)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct fib_rule_hdr *f;

	h->nlmsg_type = type;
	h->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	f = mnl_nlmsg_put_extra_header(h, sizeof(*f));
	f->family = family;
	f->action = FR_ACT_TO_TBL;
	mnl_attr_put_u32(h, FRA_PRIORITY, RULES_ROUTE_PRIORITY);
	mnl_attr_put_u32(h, FRA_FWMARK, RULES_MARK);
	mnl_attr_put_u32(h, FRA_FWMASK, RULES_MARK);
	mnl_attr_put_u32(h, FRA_TABLE, RULES_ROUTE_TABLE);
	if (interface != NULL)
		mnl_attr_put_strz(h, FRA_IIFNAME, interface);
	return h;
}

static struct nlmsghdr *
route_message(char *buf, uint8_t family, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct rtmsg *m;

	h->nlmsg_type = type;
	h->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
	m->rtm_family = family;
	m->rtm_type = RTN_LOCAL;
	m->rtm_protocol = RTPROT_STATIC;
	m->rtm_scope = RT_SCOPE_HOST;
	m->rtm_table = RT_TABLE_UNSPEC;
	mnl_attr_put_u32(h, RTA_TABLE, RULES_ROUTE_TABLE);
	mnl_attr_put_u32(h, RTA_OIF, LOOPBACK_INDEX);
	return h;
}

static int
rules_add(const struct rules_spec *r, uint8_t family)
{
	char buf[1024];
	int error = 0;

	for (size_t i = 0; i < r->n_interfaces && error == 0; i++) {
		error = rtnl_talk(rule_message(buf, family, RTM_NEWRULE,
		    NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, r->interfaces[i]),
		    NULL, NULL);
		if (error == -EEXIST)
			error = 0;
	}
	return error;
}

int
rules_route_add(const struct rules_spec *r, char *why, size_t size)
{
	char buf[1024];
	int error;

	for (size_t i = 0; i < sizeof(families); i++) {
		uint8_t f = families[i];

		error = rules_add(r, f);
		if (error == 0)
			error = rtnl_talk(route_message(buf, f, RTM_NEWROUTE,
			    NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE), NULL,
			    NULL);
		if (error == 0 || is_absent(f, error))
			continue;
		snprintf(why, size, "the %s route to the listener: %s",
		    family_word(f), strerror(-error));
		return error;
	}
	return 0;
}

int
rules_route_remove(char *why, size_t size)
{
	char buf[1024];
	int error, result = 0;

	for (size_t i = 0; i < sizeof(families); i++) {
		uint8_t f = families[i];

		/* Of each interface, and as often as by hand. */
		do
			error = rtnl_talk(rule_message(buf, f, RTM_DELRULE,
			    NLM_F_ACK, NULL), NULL, NULL);
		while (error == 0);
		if (error == -ENOENT || error == -ESRCH)
			error = rtnl_talk(route_message(buf, f, RTM_DELROUTE,
			    NLM_F_ACK), NULL, NULL);
		if (error == 0 || error == -ESRCH || error == -ENOENT ||
		    (f == AF_INET6 && error == -EAFNOSUPPORT))
			continue;
		snprintf(why, size, "the %s route to the listener: %s",
		    family_word(f), strerror(-error));
		result = error;
	}
	return result;
}

struct wanted {
	uint16_t type;
	uint32_t value;
};

static int
on_attribute(const struct nlattr *a, void *arg)
{
	struct wanted *w = arg;

	if (mnl_attr_get_type(a) == w->type &&
	    mnl_attr_get_payload_len(a) == sizeof(uint32_t))
		w->value = mnl_attr_get_u32(a);
	return MNL_CB_OK;
}

static uint32_t
attribute(const struct nlmsghdr *h, unsigned offset, uint16_t type)
{
	struct wanted w = { .type = type };

	if (mnl_attr_parse(h, offset, on_attribute, &w) < 0)
		return 0;
	return w.value;
}

static int
on_interface(const struct nlattr *a, void *arg)
{
	const char **name = arg;

	if (mnl_attr_get_type(a) == FRA_IIFNAME &&
	    mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
		*name = mnl_attr_get_str(a);
	return MNL_CB_OK;
}

static void
found_rule(struct ask_route *q, const struct nlmsghdr *h, unsigned offset)
{
	const char *name = "";

	if (mnl_attr_parse(h, offset, on_interface, &name) < 0)
		return;
	for (size_t i = 0; i < q->spec->n_interfaces; i++)
		if (strcmp(name, q->spec->interfaces[i]) == 0)
			q->rules[i] = true;
}

static int
on_rule(const struct nlmsghdr *h, void *arg)
{
	struct ask_route *q = arg;
	const struct fib_rule_hdr *f = mnl_nlmsg_get_payload(h);
	const unsigned at = sizeof(*f);

	if (f->family == q->family && f->action == FR_ACT_TO_TBL &&
	    f->src_len == 0 && f->dst_len == 0 && f->tos == 0 &&
	    (f->flags & FIB_RULE_INVERT) == 0 &&
	    attribute(h, at, FRA_PRIORITY) == RULES_ROUTE_PRIORITY &&
	    attribute(h, at, FRA_FWMARK) == RULES_MARK &&
	    attribute(h, at, FRA_FWMASK) == RULES_MARK &&
	    attribute(h, at, FRA_TABLE) == RULES_ROUTE_TABLE)
		found_rule(q, h, at);
	return MNL_CB_OK;
}

static int
on_route(const struct nlmsghdr *h, void *arg)
{
	struct ask_route *q = arg;
	const struct rtmsg *m = mnl_nlmsg_get_payload(h);
	const unsigned at = sizeof(*m);

	if (m->rtm_family == q->family && m->rtm_type == RTN_LOCAL &&
	    m->rtm_dst_len == 0 &&
	    attribute(h, at, RTA_TABLE) == RULES_ROUTE_TABLE &&
	    attribute(h, at, RTA_OIF) == LOOPBACK_INDEX)
		q->route = true;
	return MNL_CB_OK;
}

/* True when this family needs no route: loopback has it switched off. */
static bool
family_is_off(uint8_t family)
{
	char c = '0';
	int fd;

	if (family == AF_INET)
		return false;
	fd = open("/proc/sys/net/ipv6/conf/lo/disable_ipv6",
	    O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	if (read(fd, &c, 1) != 1)
		c = '0';
	close(fd);
	return c == '1';
}

/* What of it is not there; NULL: nothing. */
static const char *
missing(const struct ask_route *q, const char **interface)
{
	*interface = "";
	for (size_t i = 0; i < q->spec->n_interfaces; i++) {
		if (q->rules[i])
			continue;
		*interface = q->spec->interfaces[i];
		return "routing rule from ";
	}
	return q->route ? NULL : "local route";
}

int
rules_route_check(const struct rules_spec *r, char *why, size_t size)
{
	const char *what, *from;
	char buf[1024];
	int error;

	for (size_t i = 0; i < sizeof(families); i++) {
		struct ask_route q = { .family = families[i], .spec = r };

		if (family_is_off(families[i]))
			continue;
		error = rtnl_talk(rule_message(buf, families[i], RTM_GETRULE,
		    NLM_F_DUMP, NULL), on_rule, &q);
		if (error == 0)
			error = rtnl_talk(route_message(buf, families[i],
			    RTM_GETROUTE, NLM_F_DUMP), on_route, &q);
		what = missing(&q, &from);
		if (error == 0 && what == NULL)
			continue;
		snprintf(why, size, "the %s %s%s to the listener %s",
		    family_word(families[i]), what != NULL ? what : "route",
		    from, error != 0 ? strerror(-error) : "is missing");
		return error != 0 ? error : -EBADMSG;
	}
	return 0;
}

int
rules_route_forwarding(char *why, size_t size)
{
	static const char *const keys[] = {
		"/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv6/conf/all/forwarding",
	};

	for (size_t i = 0; i < 2; i++) {
		char c = '0';
		int fd = open(keys[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0 && i == 1)
			continue;	/* no IPv6 */
		if (fd < 0 || read(fd, &c, 1) != 1)
			c = '?';
		if (fd >= 0)
			close(fd);
		if (c == '0')
			continue;
		snprintf(why, size, "%s is %c: set it to 0, or whoever loses "
		    "these rules has an open router", keys[i], c);
		return -EPROTO;
	}
	return 0;
}
