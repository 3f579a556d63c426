/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dns/front.h"
#include "dns/trust.h"
#include "ledger-client/clock.h"
#include "ledger-client/log.h"
#include "sidecar/role.h"

#define CACHE_BYTES (32u << 20)

/* The resolver: the DNS front, the cache and the pins, and the engines'
 * questions. */
struct resolver {
	struct trust *trust;
	struct cache *cache;
	struct resolve *resolve;
	struct pins *pins;
	struct front *front;
};

static int make_pins(struct role *r, struct resolver *v);
static int make_front(struct role *r, struct resolver *v);
static int take_sockets(struct role *r, struct resolver *v);

static size_t
policy_servers(const struct role *r, struct server *out)
{
	size_t n = r->settings.n_resolvers;

	if (n == 0)
		return policy_resolvers(r->policy, out);
	memcpy(out, r->settings.resolvers, n * sizeof(*out));
	return n;
}

static int
use_tls(struct resolver *v, struct upstream_settings *up)
{
	for (size_t i = 0; i < up->n_servers && up->tls == NULL; i++)
		if (up->servers[i].tls_name[0] != '\0') {
			up->tls = trust_context(v->trust);
			if (up->tls == NULL)
				return -EKEYREJECTED;
		}
	return 0;
}

/* Who is asked for what. */
static int
servers(const struct role *r, struct resolver *v, struct resolve_settings *to)
{
	const struct settings *s = &r->settings;
	int rc;

	memset(to, 0, sizeof(*to));
	to->n_zones = 1 + s->n_zones;
	to->zones[0].servers.n_servers = policy_servers(r,
	    to->zones[0].servers.servers);
	rc = use_tls(v, &to->zones[0].servers);
	for (uint32_t i = 0; i < s->n_zones && rc == 0; i++) {
		struct resolve_zone *z = &to->zones[1 + i];

		z->suffix = s->zones[i].suffix;
		z->servers.n_servers = s->zones[i].n_servers;
		memcpy(z->servers.servers, s->zones[i].servers,
		    sizeof(s->zones[i].servers));
		rc = use_tls(v, &z->servers);
	}
	if (rc != 0)
		log_line(LOG_ERROR_, "a resolver is named with tls://, and "
		    "no certificate to trust it by can be read: set "
		    "dns.tls_ca, or install ca-certificates");
	return rc;
}

static struct front_settings
front_settings(const struct role *r)
{
	struct front_settings s = r->settings.front;

	s.ipv6_drop = r->settings.ipv6_drop;
	return s;
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
	v->trust = trust_new(r->settings.tls_ca);
	v->cache = cache_new(CACHE_BYTES);
	if (v->trust == NULL || v->cache == NULL)
		return -ENOMEM;
	rc = servers(r, v, &s);
	if (rc == 0)
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
	struct front_settings s = front_settings(r);
	struct front_parts parts = {
		.base = r->base, .resolve = v->resolve, .pins = v->pins,
		.emit = r->emit, .counts = r->counts, .listener = "dns",
	};
	int rc = front_new(&v->front, &s, &parts);

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
	struct front_settings told = front_settings(r);

	if (servers(r, v, &s) != 0 ||
	    resolve_reconfigure(v->resolve, &s) != 0) {
		log_line(LOG_ERROR_, "the new resolvers cannot be used");
		role_fail(r);
		return;
	}
	front_configure(v->front, &told);
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
	trust_free(v->trust);
	pin_close(v->pins);
}

const struct role_ops resolver_ops = {
	.start = resolver_start,
	.policy = resolver_policy,
	.gift = resolver_gift,
	.order = resolver_order,
	.stop = resolver_stop,
};
