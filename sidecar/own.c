/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/own.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>

#include "sidecar/rtnl.h"

/* One half of the list while it is made. */
struct found {
	struct endpoint at[POLICY_OWN_MAX];
	size_t n;
	int err;
};

_Static_assert(sizeof(struct endpoint) == sizeof(struct addr) + 2,
    "endpoints are compared as bytes");

static int
order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct endpoint));
}

/* Kept sorted, each once. */
static void
add(struct found *f, const struct addr *a)
{
	struct endpoint e = { .addr = *a };
	size_t i = 0;
	int c = -1;

	while (i < f->n && (c = order(&f->at[i], &e)) < 0)
		i++;
	if (i < f->n && c == 0)
		return;
	if (f->n == POLICY_OWN_MAX) {
		f->err = -E2BIG;
		return;
	}
	memmove(f->at + i + 1, f->at + i, (f->n - i) * sizeof(e));
	f->at[i] = e;
	f->n++;
}

/* ---- addresses ---- */

static bool
address_of(const struct sockaddr *sa, struct addr *out)
{
	struct sockaddr_storage ss;
	struct endpoint e;

	if (sa == NULL)
		return false;
	memset(&ss, 0, sizeof(ss));
	memcpy(&ss, sa, sa->sa_family == AF_INET6 ?
	    sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	if (!endpoint_from_sockaddr(&e, &ss))
		return false;
	*out = e.addr;
	return true;
}

static void
add_interface(struct found *f, const struct ifaddrs *a)
{
	struct addr at;

	/* An address of lo may be a public one; loopback's own class is
	 * opened by no rule. */
	if (address_of(a->ifa_addr, &at) &&
	    addr_class(&at) != ADDR_LOOPBACK)
		add(f, &at);
}

static int
list_addresses(struct found *f)
{
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all) != 0)
		return -errno;
	for (struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
		add_interface(f, a);
	freeifaddrs(all);
	return f->err;
}

/* A mask of IPv4 stands behind a prefix that both addresses have. */
static bool
same_network(const struct addr *a, const struct addr *b,
    const struct ifaddrs *of)
{
	struct addr mask;

	if (!address_of(of->ifa_netmask, &mask) ||
	    addr_is_v4(a) != addr_is_v4(b))
		return false;
	for (size_t i = 0; i < sizeof(mask.b); i++)
		if (((a->b[i] ^ b->b[i]) & mask.b[i]) != 0)
			return false;
	return true;
}

bool
own_address(const char *interface, bool v6, const struct addr *near,
    struct addr *out)
{
	struct ifaddrs *all = NULL;
	struct addr a;
	bool found = false;

	if (getifaddrs(&all) != 0)
		return false;
	for (struct ifaddrs *i = all; !found && i != NULL; i = i->ifa_next)
		found = strcmp(i->ifa_name, interface) == 0 &&
		    address_of(i->ifa_addr, &a) && addr_is_v4(&a) != v6 &&
		    addr_class(&a) != ADDR_LINK_LOCAL &&
		    (near == NULL || same_network(&a, near, i));
	freeifaddrs(all);
	if (found)
		*out = a;
	return found;
}

/* ---- gateways ---- */

static void
add_bytes(struct found *f, const void *bytes, size_t len)
{
	struct addr a;

	if (len == 4)
		a = addr_from_v4(bytes);
	else if (len == 16)
		a = addr_from_v6(bytes);
	else
		return;
	if (addr_class(&a) != ADDR_UNSPECIFIED)
		add(f, &a);
}

static int on_attribute(const struct nlattr *a, void *arg);

/* The ways of a route that has several, one behind the other. */
static void
add_hops(struct found *f, const uint8_t *at, size_t left)
{
	struct rtnexthop h;
	size_t step;

	while (left >= sizeof(h)) {
		memcpy(&h, at, sizeof(h));
		if (h.rtnh_len < sizeof(h) || h.rtnh_len > left)
			return;
		(void)mnl_attr_parse_payload(at + sizeof(h),
		    h.rtnh_len - sizeof(h), on_attribute, f);
		step = (h.rtnh_len + RTNH_ALIGNTO - 1u) / RTNH_ALIGNTO *
		    RTNH_ALIGNTO;
		if (step >= left)
			return;
		left -= step;
		at += step;
	}
}

static int
on_attribute(const struct nlattr *a, void *arg)
{
	const uint8_t *at = mnl_attr_get_payload(a);
	const size_t len = mnl_attr_get_payload_len(a);

	switch (mnl_attr_get_type(a)) {
	case RTA_GATEWAY:
		add_bytes(arg, at, len);
		break;
	case RTA_VIA:		/* of another family; that stands in front */
		if (len > sizeof(struct rtvia))
			add_bytes(arg, at + sizeof(struct rtvia),
			    len - sizeof(struct rtvia));
		break;
	case RTA_MULTIPATH:
		add_hops(arg, at, len);
		break;
	default:
		break;
	}
	return MNL_CB_OK;
}

static int
on_route(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *m = mnl_nlmsg_get_payload(h);

	if (mnl_nlmsg_get_payload_len(h) >= sizeof(*m) &&
	    m->rtm_type == RTN_UNICAST && m->rtm_dst_len == 0)
		(void)mnl_attr_parse(h, sizeof(*m), on_attribute, arg);
	return MNL_CB_OK;
}

/* Of all tables: a policy route's way out is one too. */
static int
list_gateways(struct found *f)
{
	_Alignas(struct nlmsghdr) char buf[1024];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct rtmsg *m;
	int rc;

	h->nlmsg_type = RTM_GETROUTE;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
	m->rtm_family = AF_UNSPEC;
	rc = rtnl_talk(h, on_route, f);
	return rc != 0 ? rc : f->err;
}

/* ---- both ---- */

int
own_list(struct own *o)
{
	struct found a = { .n = 0 }, g = { .n = 0 };
	int rc = list_addresses(&a);

	if (rc == 0)
		rc = list_gateways(&g);
	if (rc == 0 && a.n + g.n > POLICY_OWN_MAX)
		rc = -E2BIG;
	if (rc != 0)
		return rc;
	memcpy(o->at, a.at, a.n * sizeof(o->at[0]));
	memcpy(o->at + a.n, g.at, g.n * sizeof(o->at[0]));
	o->n = a.n + g.n;
	o->n_gateways = g.n;
	return 0;
}

int
own_add(struct own *o, const struct settings *s)
{
	const size_t more = s->n_listeners + s->n_dns;
	struct endpoint *to = o->at + (o->n - o->n_gateways);

	if (o->n + more > POLICY_OWN_MAX)
		return -E2BIG;
	memmove(to + more, to, o->n_gateways * sizeof(*to));
	for (uint32_t i = 0; i < s->n_listeners; i++)
		*to++ = s->listeners[i].at;
	for (uint32_t i = 0; i < s->n_dns; i++)
		*to++ = s->dns[i];
	o->n += more;
	return 0;
}
