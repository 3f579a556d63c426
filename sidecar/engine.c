/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "proxy/proxy.h"
#include "sidecar/role.h"

/* The engine: an event loop around one proxy. */
struct engine {
	struct role *role;
	struct proxy *proxy;
	struct ask *ask;
	struct pins *pins;
	struct limit *limit;
	unsigned n_engines;
	struct proxy_listener listeners[SETTINGS_LISTENERS_MAX];
	size_t n_listeners;
	struct event *drain_limit;
};

static int make_parts(struct role *r, struct engine *e);
static void take_listeners(struct role *r, struct engine *e);
static int open_limits(struct role *r, struct engine *e);
static int make_proxy(struct role *r, struct engine *e);
static void drained(void *arg);

static int
engine_start(struct role *r)
{
	struct engine *e = calloc(1, sizeof(*e));
	int rc;

	if (e == NULL)
		return -ENOMEM;
	r->self = e;
	e->role = r;
	rc = r->emit == NULL ? -ENOENT : make_parts(r, e);
	if (rc == 0) {
		take_listeners(r, e);
		rc = open_limits(r, e);
	}
	if (rc == 0)
		rc = make_proxy(r, e);
	if (rc == 0)
		proxy_set_policy(e->proxy, r->policy);
	return rc;
}

static int
make_parts(struct role *r, struct engine *e)
{
	int pins = role_take(r, GIVE_PINS, 0);
	int ask = role_take(r, GIVE_ASK, r->index);
	int rc;

	if (pins < 0 || ask < 0)
		return -ENOENT;
	rc = pin_open(&e->pins, pins);
	close(pins);
	return rc == 0 ? ask_new(&e->ask, r->base, ask) : rc;
}

static void
take_listeners(struct role *r, struct engine *e)
{
	for (unsigned i = 0; i < r->settings.n_listeners; i++) {
		const struct settings_listener *s = &r->settings.listeners[i];
		struct proxy_listener *l = &e->listeners[e->n_listeners];

		l->fd = role_take(r, GIVE_LISTENER, i);
		if (l->fd < 0)
			continue;
		l->kind = s->kind;
		memcpy(l->name, s->name, sizeof(l->name));
		l->bound = s->at;
		l->credential = s->credential;
		if (settings_for_agents(&r->settings, s)) {
			l->inside = (const char (*)[16])r->settings.interfaces;
			l->n_inside = r->settings.n_interfaces;
		}
		e->n_listeners++;
	}
}

/* What this engine has open, and each of the others. */
static int
open_limits(struct role *r, struct engine *e)
{
	int fd = role_take(r, GIVE_LIMITS, r->index), rc;

	rc = fd < 0 ? -ENOENT : limit_open(&e->limit, fd, r->index);
	if (fd >= 0)
		close(fd);
	e->n_engines = 1;
	for (unsigned i = 0; i < LIMIT_ENGINES_MAX && rc == 0; i++) {
		fd = role_take(r, GIVE_LIMITS, i);
		if (fd < 0)
			continue;
		rc = limit_see(e->limit, fd, i, false);
		close(fd);
		e->n_engines++;
	}
	return rc;
}

/* Beyond that clients would be reset for want of a descriptor, whoever's turn
 * it is.  Who asked for more is warned; the default is as much as fits. */
static void
fit_descriptors(struct role *r)
{
	unsigned wanted = r->settings.limits.connections, fit;
	static bool told;
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) != 0)
		return;
	fit = settings_fit(&r->settings, l.rlim_cur);
	r->settings.limits.connections = fit;
	if (fit == wanted || told || r->index != 0)
		return;
	told = true;
	if (r->settings.connections_asked)
		log_line(LOG_WARN, "limits.connections is %u, the limit of "
		    "descriptors (%ju) has room for %u, which counts: raise "
		    "LimitNOFILE or lower limits.connections", wanted,
		    (uintmax_t)l.rlim_cur, fit);
	else
		log_line(LOG_INFO_, "limits.connections is %u: so many have "
		    "room in the limit of descriptors (%ju), and none is "
		    "configured", fit, (uintmax_t)l.rlim_cur);
}

static int
make_proxy(struct role *r, struct engine *e)
{
	struct proxy_parts parts = {
		.base = r->base, .ask = e->ask, .pins = e->pins,
		.emit = r->emit, .counts = r->counts,
		.limit = e->limit, .n_engines = e->n_engines,
		.limits = &r->settings.limits,
		.listeners = e->listeners, .n_listeners = e->n_listeners,
		.connection_base = r->number,
	};

	fit_descriptors(r);
	return proxy_new(&e->proxy, &parts);
}

static void
engine_policy(struct role *r, const struct policy *old)
{
	struct engine *e = r->self;

	(void)old;
	fit_descriptors(r);
	proxy_set_limits(e->proxy, &r->settings.limits);
	proxy_set_policy(e->proxy, r->policy);
}

static void
new_pins(struct engine *e, int fd)
{
	struct pins *pins = NULL, *old = e->pins;
	int rc = pin_open(&pins, fd);

	close(fd);
	if (rc != 0) {
		log_line(LOG_ERROR_, "new pins not taken error=%s",
		    strerror(-rc));
		role_fail(e->role);
		return;
	}
	e->pins = pins;
	proxy_set_pins(e->proxy, pins);
	pin_close(old);
}

static void
new_resolver(struct engine *e, int fd)
{
	if (ask_reconnect(e->ask, fd) == 0)
		return;
	log_line(LOG_ERROR_, "the resolver cannot be asked: no memory");
	role_fail(e->role);
}

static void
engine_gift(struct role *r, enum give what, unsigned index, int fd)
{
	struct engine *e = r->self;

	(void)index;
	if (what == GIVE_PINS)
		new_pins(e, fd);
	else if (what == GIVE_ASK)
		new_resolver(e, fd);
	else
		close(fd);
}

static void
on_drain_limit(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	drained(arg);
}

static void
drain(struct role *r, struct engine *e)
{
	struct timeval limit = {
		.tv_sec = r->settings.drain_timeout_ms / 1000,
		.tv_usec = (int)(r->settings.drain_timeout_ms % 1000) * 1000,
	};

	if (e->drain_limit != NULL)
		return;
	e->drain_limit = evtimer_new(r->base, on_drain_limit, e);
	if (e->drain_limit == NULL ||
	    event_add(e->drain_limit, &limit) != 0) {
		role_end(r);
		return;
	}
	proxy_drain(e->proxy, drained, e);
}

/* Nothing is open any more, or the time for it is over: what is left is cut
 * and has its end recorded by proxy_free. */
static void
drained(void *arg)
{
	struct engine *e = arg;

	role_end(e->role);
}

static void
engine_order(struct role *r, enum ipc_type order)
{
	if (order == IPC_DRAIN)
		drain(r, r->self);
	else if (order == IPC_STOP)
		role_end(r);
}

static void
engine_stop(struct role *r)
{
	struct engine *e = r->self;

	proxy_free(e->proxy);
	ask_free(e->ask);
}

const struct role_ops engine_ops = {
	.start = engine_start,
	.policy = engine_policy,
	.gift = engine_gift,
	.order = engine_order,
	.stop = engine_stop,
};
