/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DNS_RESOLVE_STAGE_H
#define TESTS_DNS_RESOLVE_STAGE_H

/* A resolve over two fake servers: one for every name, one for the zone
 * corp.example. */
#include "dns/resolve.h"
#include "tests/dns/fake_server.h"

#define CELL span_str("cell")

static struct event_base *base;
static struct fake fakes[2];
static struct cache *cache;
static struct resolve *resolve;

static struct host
host_of(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static struct resolve_settings *
settings_for(const struct fake *f)
{
	static struct resolve_settings s;

	memset(&s, 0, sizeof(s));
	s.n_zones = 1;
	s.pending_max = 8;
	s.zones[0].servers.n_servers = 1;
	s.zones[0].servers.timeout_ms = 50;
	s.zones[0].servers.servers[0].at = f->at;
	return &s;
}

static void
stage_up(fake_says *says)
{
	base = event_base_new();
	cache = cache_new(1u << 20);
	for (unsigned i = 0; i < 2; i++)
		fake_start(&fakes[i], base, says);
	assert_int_equal(resolve_new(&resolve, base, settings_for(&fakes[0]),
	    cache), 0);
}

static void
stage_down(void)
{
	resolve_free(resolve);
	cache_free(cache);
	for (unsigned i = 0; i < 2; i++)
		fake_stop(&fakes[i]);
	event_base_free(base);
}

#endif
