/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/settings.h"

#include <stdio.h>

#define UID_FIRST 1337u		/* as the sidecars that this one replaces */

static void add_listeners(struct settings *s);
static void add_dns(struct settings *s);

static const char *const mode_words[] = {
	[MODE_SHARED] = "shared", [MODE_GATEWAY] = "gateway",
	[MODE_ISOLATED] = "isolated", [MODE_COOPERATIVE] = "cooperative",
};

void
settings_default(struct settings *s, enum settings_mode mode)
{
	memset(s, 0, sizeof(*s));
	s->version = SETTINGS_VERSION;
	s->size = sizeof(*s);
	s->mode = mode;
	s->ipv6_drop = true;
	s->limits = proxy_limits_default;
	s->front = (struct front_settings){ .tcp_max = 256,
	    .tcp_idle_ms = 10000, .pending_max = 4096 };
	if (addr_parse(&s->front.sinkhole[0], span_str("192.0.2.1")) &&
	    addr_parse(&s->front.sinkhole[1], span_str("3fff::1")) &&
	    settings_captures(s))
		s->front.denied = FRONT_SINKHOLE;
	s->ring_bytes = 0;		/* by the number of connections */
	s->uid_engine = UID_FIRST;
	s->uid_resolver = UID_FIRST + 1;
	s->uid_recorder = UID_FIRST + 2;
	s->uid_admin = UID_FIRST + 3;
	s->uid_warden = UID_FIRST + 4;
	s->drain_timeout_ms = 30000;
	s->log_level = 2;
	snprintf(s->admin, sizeof(s->admin), "127.0.0.1:9901");
	add_listeners(s);
	add_dns(s);
}

static bool
endpoint_at(struct endpoint *e, const char *addr, uint16_t port)
{
	e->port = port;
	if (strcmp(addr, "0.0.0.0") == 0) {
		static const uint8_t zero[4];

		e->addr = addr_from_v4(zero);
		return true;
	}
	return addr_parse(&e->addr, span_str(addr));
}

static void
add_listeners(struct settings *s)
{
	static const struct {
		enum settings_mode mode;
		const char *name;
		enum listen_kind kind;
		const char *addr;
		uint16_t port;
	} usual[] = {
		{ MODE_SHARED, "redirect4", LISTEN_REDIRECT, "127.0.0.1",
		    15001 },
		{ MODE_SHARED, "redirect6", LISTEN_REDIRECT, "::1", 15001 },
		{ MODE_SHARED, "explicit", LISTEN_EXPLICIT, "127.0.0.1",
		    15080 },
		{ MODE_GATEWAY, "tproxy4", LISTEN_TPROXY, "0.0.0.0", 15001 },
		{ MODE_GATEWAY, "tproxy6", LISTEN_TPROXY, "::", 15001 },
		{ MODE_GATEWAY, "explicit", LISTEN_EXPLICIT, "0.0.0.0",
		    15080 },
		{ MODE_GATEWAY, "explicit6", LISTEN_EXPLICIT, "::", 15080 },
		{ MODE_ISOLATED, "named-https", LISTEN_NAMED, "0.0.0.0",
		    443 },
		{ MODE_ISOLATED, "named-http", LISTEN_NAMED, "0.0.0.0", 80 },
		{ MODE_ISOLATED, "explicit", LISTEN_EXPLICIT, "0.0.0.0",
		    15080 },
		{ MODE_COOPERATIVE, "explicit", LISTEN_EXPLICIT, "127.0.0.1",
		    15080 },
	};

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
		struct settings_listener *l = &s->listeners[s->n_listeners];

		if (usual[i].mode != s->mode ||
		    !endpoint_at(&l->at, usual[i].addr, usual[i].port))
			continue;
		snprintf(l->name, sizeof(l->name), "%s", usual[i].name);
		l->kind = usual[i].kind;
		s->n_listeners++;
	}
}

static void
add_dns(struct settings *s)
{
	static const struct {
		enum settings_mode mode;
		const char *addr;
		uint16_t port;
	} usual[] = {
		{ MODE_SHARED, "127.0.0.1", 15053 },
		{ MODE_SHARED, "::1", 15053 },
		{ MODE_GATEWAY, "0.0.0.0", 53 },
		{ MODE_GATEWAY, "::", 53 },
		{ MODE_ISOLATED, "0.0.0.0", 53 },
	};

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (usual[i].mode == s->mode && endpoint_at(
		    &s->dns[s->n_dns], usual[i].addr, usual[i].port))
			s->n_dns++;
}

bool
settings_for_agents(const struct settings *s,
    const struct settings_listener *l)
{
	return s->mode == MODE_GATEWAY &&
	    addr_class(&l->at.addr) == ADDR_UNSPECIFIED;
}

bool
settings_captures(const struct settings *s)
{
	return s->mode == MODE_SHARED || s->mode == MODE_GATEWAY;
}

unsigned
settings_fit(const struct settings *s, uint64_t descriptors)
{
	uint64_t fit = (descriptors - descriptors / 16) / 2;

	return fit < s->limits.connections ? (unsigned)fit :
	    s->limits.connections;
}

bool
settings_from(struct settings *out, const struct policy *p)
{
	struct span at = policy_settings(p);

	if (at.len != sizeof(*out))
		return false;
	memcpy(out, at.data, sizeof(*out));
	return out->version == SETTINGS_VERSION &&
	    out->size == sizeof(*out) &&
	    out->mode <= MODE_COOPERATIVE &&
	    out->n_listeners <= SETTINGS_LISTENERS_MAX &&
	    out->n_dns <= sizeof(out->dns) / sizeof(out->dns[0]) &&
	    out->n_interfaces <=
	    sizeof(out->interfaces) / sizeof(out->interfaces[0]) &&
	    out->n_inbound <= SETTINGS_INBOUND_MAX &&
	    out->n_resolvers <= POLICY_RESOLVERS_MAX &&
	    out->n_zones <= SETTINGS_ZONES_MAX &&
	    out->front.n_search <= FRONT_SEARCH_MAX;
}

enum settings_unenforced
settings_unenforced(const struct settings *s, const struct policy *p,
    int64_t now_s)
{
	struct cell_view v;

	if (s->mode == MODE_COOPERATIVE)
		return UNENFORCED_COOPERATIVE;
	if (s->mode == MODE_ISOLATED)
		return UNENFORCED_NOT_PROVEN;
	for (uint32_t i = 0; i < policy_cells(p); i++)
		if (!policy_cell(p, i, now_s, &v) || v.reports)
			return UNENFORCED_REPORTS;
	return UNENFORCED_NOTHING;
}

const char *
settings_unenforced_text(enum settings_unenforced why)
{
	static const char *const texts[] = {
#define X(name, text) [UNENFORCED_##name] = text,
		SETTINGS_UNENFORCED(X)
#undef X
	};

	return why < UNENFORCED_COUNT ? texts[why] : "unknown";
}

const char *
settings_mode_word(enum settings_mode m)
{
	return m <= MODE_COOPERATIVE ? mode_words[m] : "unknown";
}

bool
settings_mode_parse(enum settings_mode *out, struct span text)
{
	for (unsigned i = 0; i <= MODE_COOPERATIVE; i++)
		if (span_eq(text, span_str(mode_words[i]))) {
			*out = (enum settings_mode)i;
			return true;
		}
	return false;
}

static bool
same_listeners(const struct settings *a, const struct settings *b)
{
	if (a->n_listeners != b->n_listeners)
		return false;
	for (uint32_t i = 0; i < a->n_listeners; i++) {
		const struct settings_listener *x = &a->listeners[i];
		const struct settings_listener *y = &b->listeners[i];

		if (strcmp(x->name, y->name) != 0 || x->kind != y->kind ||
		    !endpoint_eq(&x->at, &y->at) ||
		    x->credential != y->credential)
			return false;
	}
	return true;
}

static bool
same_dns(const struct settings *a, const struct settings *b)
{
	if (a->n_dns != b->n_dns)
		return false;
	for (uint32_t i = 0; i < a->n_dns; i++)
		if (!endpoint_eq(&a->dns[i], &b->dns[i]))
			return false;
	return true;
}

static bool
same_users(const struct settings *a, const struct settings *b)
{
	return a->uid_engine == b->uid_engine &&
	    a->uid_resolver == b->uid_resolver &&
	    a->uid_recorder == b->uid_recorder &&
	    a->uid_admin == b->uid_admin &&
	    a->uid_warden == b->uid_warden;
}

#define SAME(field) (memcmp(&a->field, &b->field, sizeof(a->field)) == 0)

struct fixed_key {
	const char *key;
	bool same;
};

/* Each key that needs a new start: what it tells of was made at the start. */
#define FIXED_KEYS 18u

static void
fixed_keys(const struct settings *a, const struct settings *b,
    struct fixed_key out[static FIXED_KEYS])
{
	const struct fixed_key keys[FIXED_KEYS] = {
		{ "mode", SAME(mode) },
		{ "listeners", same_listeners(a, b) },
		{ "dns", same_dns(a, b) },
		{ "dns.tls_ca", strcmp(a->tls_ca, b->tls_ca) == 0 },
		{ "interfaces", SAME(interfaces) },
		{ "inbound", SAME(inbound) },
		{ "ipv6", a->ipv6_drop == b->ipv6_drop },
		/* the size of tables and rings */
		{ "limits.connections", SAME(limits.connections) },
		{ "limits.dns_questions", SAME(front.pending_max) },
		{ "limits.dns_per_client", SAME(front.client_max) },
		{ "limits.dns_connections", SAME(front.tcp_max) },
		{ "limits.dns_idle_timeout", SAME(front.tcp_idle_ms) },
		{ "engines", SAME(engines) },
		{ "ledger.ring_bytes", SAME(ring_bytes) },
		{ "ledger.dir", strcmp(a->ledger_dir, b->ledger_dir) == 0 },
		{ "admin", strcmp(a->admin, b->admin) == 0 },
		{ "users", same_users(a, b) },
		{ "instance", strcmp(a->instance, b->instance) == 0 },
	};

	memcpy(out, keys, sizeof(keys));
}

const char *
settings_fixed_difference(const struct settings *a, const struct settings *b)
{
	struct fixed_key keys[FIXED_KEYS];

	fixed_keys(a, b, keys);
	for (size_t i = 0; i < FIXED_KEYS; i++)
		if (!keys[i].same)
			return keys[i].key;
	return NULL;
}

void
settings_keep_fixed(struct settings *s, const struct settings *old,
    char keys[static SETTINGS_KEYS_BYTES])
{
	struct fixed_key all[FIXED_KEYS];
	struct settings now = *old;
	size_t at = 0;

	fixed_keys(s, old, all);
	keys[0] = '\0';
	for (size_t i = 0; i < FIXED_KEYS; i++)
		if (!all[i].same && at < SETTINGS_KEYS_BYTES)
			at += (size_t)snprintf(keys + at,
			    SETTINGS_KEYS_BYTES - at, "%s%s",
			    at > 0 ? ", " : "", all[i].key);
	/* What may change is less than what may not. */
	now.limits = s->limits;
	now.limits.connections = old->limits.connections;
	now.drain_timeout_ms = s->drain_timeout_ms;
	now.log_level = s->log_level;
	now.accept_shared_segment = s->accept_shared_segment;
	memcpy(now.resolvers, s->resolvers, sizeof(now.resolvers));
	now.n_resolvers = s->n_resolvers;
	now.resolvers_system = s->resolvers_system;
	memcpy(now.zones, s->zones, sizeof(now.zones));
	now.n_zones = s->n_zones;
	now.front = s->front;
	now.front.pending_max = old->front.pending_max;
	now.front.client_max = old->front.client_max;
	now.front.tcp_max = old->front.tcp_max;
	now.front.tcp_idle_ms = old->front.tcp_idle_ms;
	*s = now;
}
