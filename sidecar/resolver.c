/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dns/front.h"
#include "dns/trust.h"
#include "ledger-client/clock.h"
#include "ledger-client/log.h"
#include "sidecar/figures.h"
#include "sidecar/flush.h"
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
	struct figures_page *figures;
	struct event *tell;		/* each FIGURES_MS */
	struct event *flush;		/* on the pair with the admin; NULL */
};

static int make_pins(struct role *r, struct resolver *v, uint64_t source);
static int make_front(struct role *r, struct resolver *v);
static int make_figures(struct role *r, struct resolver *v);
static void take_flush(struct role *r, struct resolver *v, int fd);
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
	to->counts = r->counts;
	/* each is for two types where an engine asks: the front's bound, of
	 * which each cell has its part, is what is felt */
	to->pending_max = 2 * s->front.pending_max;
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
		rc = make_pins(r, v, resolve_source(&s));
	if (rc == 0)
		rc = make_front(r, v);
	if (rc == 0)
		rc = make_figures(r, v);
	take_flush(r, v, role_take(r, GIVE_FLUSH, 0));
	return rc == 0 ? take_sockets(r, v) : rc;
}

/* A new table each time: the one before may have been left in mid-write. */
static int
make_pins(struct role *r, struct resolver *v, uint64_t source)
{
	int before = role_take(r, GIVE_PINS, 0), fd = -1, rc;
	struct pins *old = NULL;

	rc = pin_create(&v->pins, PIN_DEFAULT, &fd);
	if (rc == 0)
		pin_set_source(v->pins, source);
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

/* ---- what the admin tells of it, and asks for ---- */

static void
tell_servers(struct figures *f, const struct resolver *v)
{
	struct upstream_state states[UPSTREAM_SERVERS_MAX];
	struct host suffix;
	uint32_t n = 0;
	size_t k;

	for (size_t z = 0; (k = resolve_states(v->resolve, z, &suffix,
	    states)) > 0; z++)
		for (size_t i = 0; i < k && n < FIGURES_SERVERS_MAX; i++)
			f->servers[n++] = (struct figures_server){
			    .zone = suffix, .is = states[i] };
	f->n_servers = n;
}

static void
tell(evutil_socket_t fd, short what, void *arg)
{
	struct resolver *v = arg;
	struct figures *f = figures_begin(v->figures);

	(void)fd;
	(void)what;
	f->at_ms = clock_mono_ms();
	f->cache_answers = cache_answers(v->cache);
	f->cache_bytes = cache_bytes(v->cache);
	f->cache_limit = cache_limit(v->cache);
	pin_used(v->pins, &f->pins_used, &f->pins_all);
	f->suspected = front_suspected(v->front);
	tell_servers(f, v);
	figures_end(v->figures);
}

static int
make_figures(struct role *r, struct resolver *v)
{
	struct timeval each = { .tv_sec = FIGURES_MS / 1000 };
	int fd = role_take(r, GIVE_FIGURES, 0), rc;

	if (fd < 0)
		return -ENOENT;
	rc = figures_open(&v->figures, fd, true);
	close(fd);
	if (rc != 0)
		return rc;
	tell(-1, 0, v);
	v->tell = event_new(r->base, -1, EV_PERSIST, tell, v);
	return v->tell != NULL && event_add(v->tell, &each) == 0 ? 0 :
	    -ENOMEM;
}

static void
flush_close(struct resolver *v)
{
	if (v->flush == NULL)
		return;
	close(event_get_fd(v->flush));
	event_free(v->flush);
	v->flush = NULL;
}

static void
on_flush(evutil_socket_t fd, short what, void *arg)
{
	struct resolver *v = arg;
	struct flush_order o;
	struct flush_done done;
	int rc = flush_order_read((int)fd, &o);

	(void)what;
	if (rc == -EAGAIN)
		return;
	if (rc == 0) {
		done.number = o.number;
		done.answers = cache_flush(v->cache, o.name.len > 0 ?
		    &o.name : NULL);
		tell(-1, 0, v);
		rc = flush_done_send((int)fd, &done);
		log_line(LOG_INFO_, "cache flushed name=%s answers=%llu",
		    o.name.len > 0 ? o.name.name : "(all)",
		    (unsigned long long)done.answers);
	}
	if (rc != 0)
		flush_close(v);	/* the admin is gone, or speaks otherwise */
}

/* Without it nothing is flushed, and the admin says so. */
static void
take_flush(struct role *r, struct resolver *v, int fd)
{
	flush_close(v);
	if (fd < 0)
		return;
	v->flush = event_new(r->base, fd, EV_READ | EV_PERSIST, on_flush, v);
	if (v->flush == NULL)
		close(fd);
	else if (event_add(v->flush, NULL) != 0)
		flush_close(v);
}

struct servers_to_be {
	const struct resolve *now;
	const struct resolve_settings *then;
};

static bool
is_forsaken(void *arg, const struct host *name)
{
	const struct servers_to_be *s = arg;

	return resolve_forsakes(s->now, s->then, name);
}

static void
resolver_policy(struct role *r, const struct policy *old)
{
	struct resolver *v = r->self;
	static struct resolve_settings s;	/* large */

	(void)old;
	struct front_settings told = front_settings(r);
	int rc = servers(r, v, &s);

	/* engines dial what is pinned: it is from who is asked today, too */
	if (rc == 0) {
		front_forsake(v->front, is_forsaken, &(struct servers_to_be){
		    .now = v->resolve, .then = &s });
		pin_set_source(v->pins, resolve_source(&s));
		rc = resolve_reconfigure(v->resolve, &s);
	}
	if (rc != 0) {
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
	if (what == GIVE_FLUSH)
		take_flush(r, v, fd);
	else if (what != GIVE_ASK)
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

	flush_close(v);
	if (v->tell != NULL)
		event_free(v->tell);
	figures_close(v->figures);
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
