/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dns/front.h"
#include "ledger-client/clock.h"
#include "ledger-client/log.h"
#include "sidecar/role.h"

#define CACHE_BYTES (32u << 20)

/* The resolver: the DNS front, the cache and the pins, and the engines'
 * questions. */
struct resolver {
	struct cache *cache;
	struct resolve *resolve;
	struct pins *pins;
	struct front *front;
};

static int make_pins(struct role *r, struct resolver *v);
static int make_front(struct role *r, struct resolver *v);
static int take_sockets(struct role *r, struct resolver *v);

static void
servers(const struct role *r, struct resolve_settings *to)
{
	struct endpoint from_policy[POLICY_RESOLVERS_MAX];
	const struct endpoint *at = r->settings.resolvers;
	struct upstream_settings *up = &to->zones[0].servers;
	size_t n = r->settings.n_resolvers;

	memset(to, 0, sizeof(*to));
	if (n == 0) {
		n = policy_resolvers(r->policy, from_policy);
		at = from_policy;
	}
	to->n_zones = 1;
	up->n_servers = n;
	for (size_t i = 0; i < n; i++)
		up->servers[i].at = at[i];
}

static int
resolver_start(struct role *r)
{
	struct resolver *v = calloc(1, sizeof(*v));
	static struct resolve_settings s;	/* large */
	int rc;

	if (v == NULL)
		return -ENOMEM;
	r->self = v;
	servers(r, &s);
	v->cache = cache_new(CACHE_BYTES);
	if (v->cache == NULL)
		return -ENOMEM;
	rc = resolve_new(&v->resolve, r->base, &s, v->cache);
	if (rc == 0)
		rc = make_pins(r, v);
	if (rc == 0)
		rc = make_front(r, v);
	return rc == 0 ? take_sockets(r, v) : rc;
}

/* A new table each time: the one before may have been left in mid-write. */
static int
make_pins(struct role *r, struct resolver *v)
{
	int before = role_take(r, GIVE_PINS, 0), fd = -1, rc;
	struct pins *old = NULL;

	rc = pin_create(&v->pins, PIN_DEFAULT, &fd);
	if (rc == 0 && before >= 0 && pin_open(&old, before) == 0) {
		pin_copy(v->pins, old, clock_mono_ms());
		pin_close(old);
	}
	if (before >= 0)
		close(before);
	if (rc == 0) {
		rc = role_send_fd(r, GIVE_PINS, fd);
		close(fd);
	}
	return rc;
}

static int
make_front(struct role *r, struct resolver *v)
{
	struct front_settings s = r->settings.front;
	struct front_parts parts = {
		.base = r->base, .resolve = v->resolve, .pins = v->pins,
		.emit = r->emit, .counts = r->counts, .listener = "dns",
	};
	int rc;

	s.ipv6_drop = r->settings.ipv6_drop;
	rc = front_new(&v->front, &s, &parts);

	if (rc == 0)
		front_set_policy(v->front, r->policy);
	return rc;
}

static int
take_sockets(struct role *r, struct resolver *v)
{
	int rc = 0, fd;

	for (size_t i = 0; i < r->n_gifts && rc == 0; i++) {
		struct gift *g = &r->gifts[i];

		if (g->what != GIVE_DNS_UDP && g->what != GIVE_DNS_TCP &&
		    g->what != GIVE_ASK)
			continue;
		fd = role_take(r, g->what, g->index);
		if (g->what == GIVE_DNS_UDP)
			rc = front_add_udp(v->front, fd);
		else if (g->what == GIVE_DNS_TCP)
			rc = front_add_tcp(v->front, fd);
		else
			rc = front_add_engine(v->front, fd);
	}
	return rc;
}

static void
resolver_policy(struct role *r, const struct policy *old)
{
	struct resolver *v = r->self;
	static struct resolve_settings s;	/* large */

	(void)old;
	servers(r, &s);
	if (resolve_reconfigure(v->resolve, &s) != 0) {
		log_line(LOG_ERROR_, "the new resolvers cannot be used");
		role_fail(r);
		return;
	}
	front_set_policy(v->front, r->policy);
}

static void
resolver_gift(struct role *r, enum give what, unsigned index, int fd)
{
	struct resolver *v = r->self;

	(void)index;
	if (what != GIVE_ASK)
		close(fd);
	else if (front_add_engine(v->front, fd) != 0)
		role_fail(r);
}

static void
resolver_order(struct role *r, enum ipc_type order)
{
	if (order == IPC_STOP)
		role_end(r);
}

static void
resolver_stop(struct role *r)
{
	struct resolver *v = r->self;

	front_free(v->front);
	resolve_free(v->resolve);
	cache_free(v->cache);
	pin_close(v->pins);
}

const struct role_ops resolver_ops = {
	.start = resolver_start,
	.policy = resolver_policy,
	.gift = resolver_gift,
	.order = resolver_order,
	.stop = resolver_stop,
};
