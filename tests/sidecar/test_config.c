/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sidecar/config_stage.h"

static void
each_mode_has_its_own_listeners(void **state)
{
	static const struct {
		const char *text;
		enum settings_mode mode;
		uint32_t n, n_dns;
		enum listen_kind first;
	} rows[] = {
		{ "version: 1\nmode: shared\n" CELL, MODE_SHARED, 3, 2,
		    LISTEN_REDIRECT },
		{ "version: 1\nmode: gateway\ninterfaces: [ag0]\n" CELL,
		    MODE_GATEWAY, 4, 2, LISTEN_TPROXY },
		{ "version: 1\nmode: isolated\n" CELL, MODE_ISOLATED, 3, 1,
		    LISTEN_NAMED },
		{ "version: 1\nmode: cooperative\n" CELL, MODE_COOPERATIVE,
		    1, 0, LISTEN_EXPLICIT },
	};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct config *c = accepted(rows[i].text, &no_env);

		assert_int_equal(c->settings.mode, rows[i].mode);
		assert_int_equal(c->settings.n_listeners, rows[i].n);
		assert_int_equal(c->settings.n_dns, rows[i].n_dns);
		assert_int_equal(c->settings.listeners[0].kind,
		    rows[i].first);
		config_free(c);
	}
}

static void
every_key_is_read(void **state)
{
	struct config *c = accepted("version: 1\nmode: gateway\n"
	    "interfaces: [ag0, ag1]\ndns: [\"10.0.0.1:53\", \"[::1]:5353\"]\n"
	    "listeners:\n"
	    "  - {name: t, kind: tproxy, address: \"0.0.0.0:15001\"}\n"
	    "  - {name: e, kind: explicit, address: \"127.0.0.1:1\", "
	    "credential: true}\n"
	    "cells:\n"
	    "  - {id: a, labels: {team: x, run: \"7\"}, policy: [b.yaml, "
	    "t.yaml], from: {interface: ag0, cidr: 10.1.0.0/16}}\n"
	    "  - {id: b, policy: [b.yaml], from: {listener: e}}\n"
	    "  - {id: c, policy: [b.yaml], from: {credential: \"blake2b:"
	    "00112233445566778899aabbccddeeff"
	    "00112233445566778899aabbccddeeff\"}}\n"
	    "inbound: [22, 443]\nipv6: proxy\n"
	    "limits: {hello_timeout: 2s, connections: 7, linger_bytes: 99, "
	    "per_cell: 3, hello_bytes: 4096, header_count: 9, "
	    "dns_questions: 64, dns_per_client: 5, dns_connections: 6, "
	    "dns_idle_timeout: 3s}\n"
	    "engines: 3\nledger: {dir: /x, ring_bytes: 65536}\n"
	    "admin: \"unix:/run/p.sock\"\nusers: {engine: 5, admin: 6}\n"
	    "drain_timeout: 1m\nreload_grace: 250ms\nlog: debug\n"
	    "instance: me\n", &no_env);
	const struct settings *s = &c->settings;

	(void)state;
	assert_int_equal(s->n_interfaces, 2);
	assert_string_equal(s->interfaces[1], "ag1");
	assert_int_equal(s->dns[1].port, 5353);
	assert_int_equal(s->n_listeners, 2);
	assert_true(s->listeners[1].credential);
	assert_int_equal(c->n_cells, 3);
	assert_int_equal(c->cells[0].n_files, 2);
	assert_string_equal(c->cells[0].files[1], "t.yaml");
	assert_string_equal(c->cells[0].labels[1].value, "7");
	assert_int_equal(c->cells[0].from.kind, CELL_FROM_NET);
	assert_int_equal(c->cells[1].from.kind, CELL_FROM_LISTENER);
	assert_int_equal(c->cells[2].from.kind, CELL_FROM_CREDENTIAL);
	assert_int_equal(c->cells[2].from.token_hash[31], 0xff);
	assert_int_equal(s->inbound[1], 443);
	assert_false(s->ipv6_drop);
	assert_int_equal(s->limits.hello_ms, 2000);
	assert_int_equal(s->limits.connections, 7);
	assert_true(s->connections_asked);
	assert_int_equal(s->limits.linger_bytes, 99);
	assert_int_equal(s->limits.per_cell, 3);
	assert_int_equal(s->limits.hello_bytes, 4096);
	assert_int_equal(s->limits.header_count, 9);
	assert_int_equal(s->front.pending_max, 64);
	assert_int_equal(s->front.client_max, 5);
	assert_int_equal(s->front.tcp_max, 6);
	assert_int_equal(s->front.tcp_idle_ms, 3000);
	assert_int_equal(s->limits.reload_grace_ms, 250);
	assert_int_equal(s->engines, 3);
	assert_string_equal(s->ledger_dir, "/x");
	assert_string_equal(s->admin, "unix:/run/p.sock");
	assert_int_equal(s->uid_engine, 5);
	assert_int_equal(s->uid_resolver, 1338);
	assert_int_equal(s->drain_timeout_ms, 60000);
	assert_int_equal(s->log_level, 3);
	assert_string_equal(s->instance, "me");
	config_free(c);
}

static void
what_is_wrong_is_said_with_its_place(void **state)
{
	static const struct { const char *text, *words; } rows[] = {
		{ "mode: shared\n" CELL, "version is missing" },
		{ "version: 1\n" CELL, "mode is missing" },
		{ "version: 2\nmode: shared\n" CELL, "1:10: error" },
		{ "version: 1\nmode: open\n" CELL, "2:7: error" },
		{ "version: 1\nmode: shared\n", "there is no cell" },
		{ "version: 1\nmode: gateway\n" CELL, "interfaces" },
		{ "version: 1\nmode: shared\ninterfaces: [a]\n" CELL,
		    "of mode gateway only" },
		{ "version: 1\nmode: shared\nbogus: 1\n" CELL,
		    "no key bogus" },
		{ "version: 1\nmode: shared\nipv6: yes\n" CELL, "ipv6" },
		{ "version: 1\nmode: shared\nengines: 65\n" CELL, "engines" },
		{ "version: 1\nmode: shared\nadmin: \"0.0.0.0:9901\"\n" CELL,
		    "no authentication" },
		{ "version: 1\nmode: shared\nadmin: \"10.0.0.1:9901\"\n" CELL,
		    "no authentication" },
		{ "version: 1\nmode: shared\nlimits: {drain_timeout: 1s}\n"
		    CELL, "drain_timeout" },
		{ "version: 1\nmode: shared\ndrain_timeout: 5\n" CELL,
		    "this is no time" },
		{ "version: 1\nmode: shared\nlimits: {resolve_timeout: 11s}\n"
		    CELL, "3:27: error: this is more than the 10 s that are "
		    "possible here; write less" },
		{ "version: 1\nmode: shared\nlimits: {resolve_timeout: 9}\n"
		    CELL, "this is no time of at most 10 s" },
		{ "version: 1\nmode: shared\nlimits: {hello_timeout: 1ms}\n"
		    CELL, "at least 100ms" },
		{ "version: 1\nmode: shared\nlimits: {per_cell: 0}\n" CELL,
		    "per_cell is at least 1" },
		{ "version: 1\nmode: shared\nlimits: {hello_bytes: 511}\n"
		    CELL, "hello_bytes is at least 512" },
		{ "version: 1\nmode: shared\nlimits: {hello_bytes: 16385}\n"
		    CELL, "a number from 512 to 16384 is needed" },
		{ "version: 1\nmode: shared\nlimits: {header_count: 129}\n"
		    CELL, "a number from 8 to 128 is needed" },
		{ "version: 1\nmode: shared\nlimits: {dns_questions: 0}\n"
		    CELL, "dns_questions is at least 4" },
		{ "version: 1\nmode: shared\nlimits: {dns_connections: 3}\n"
		    CELL, "dns_connections is at least 4" },
		{ "version: 1\nmode: shared\nlimits: {dns_idle_timeout: 1}\n"
		    CELL, "this is no time" },
		{ "version: 1\nmode: shared\nlimits: {bogus: 1}\n" CELL,
		    "no key bogus" },
		{ "version: 1\nmode: shared\nusers: {engine: 0}\n" CELL,
		    "no uid" },
		{ "version: 1\nmode: shared\nusers: {compile: 5}\n" CELL,
		    "no key compile" },
		{ "version: 1\nmode: shared\ndns: [\"127.0.0.1:99999\"]\n"
		    CELL, "no address and port" },
		{ "version: 1\nmode: shared\nlisteners: [{name: a, kind: "
		    "odd, address: \"127.0.0.1:1\"}]\n" CELL, "no kind" },
		{ "version: 1\nmode: shared\nlisteners: []\n" CELL,
		    "no listener" },
		{ "version: 1\nmode: shared\nledger: {dir: rel}\n" CELL,
		    "relative" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: "
		    "[/etc/x]}]\n", "no policy file name" },
		{ "version: 1\nmode: shared\ncells: [{id: a}]\n",
		    "has no policy" },
		{ "version: 1\nmode: shared\ncells: [{id: \"a b\", policy: "
		    "[p]}]\n", "no cell id" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {}}]\n", "says nothing" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {cidr: 10.0.0.1/8}}]\n", "no prefix" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {listener: z}}]\n", "no listener z" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {credential: secret}}]\n", "no hashed token" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: [p]}, "
		    "{id: b, policy: [p]}]\n", "who is of this one" },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {cidr: 10.0.0.0/8}}, {id: a, policy: [p], from: "
		    "{cidr: 11.0.0.0/8}}]\n", "two cells have the id a" },
		{ "version: 1\nversion: 1\nmode: shared\n" CELL, "2:" },
		{ "version: 1\nmode: shared\nadmin: \"127.0.0.1:15080\"\n"
		    CELL, "listener explicit and admin have the address "
		    "127.0.0.1:15080; give each its own" },
		{ "version: 1\nmode: shared\nlisteners: [{name: a, kind: "
		    "explicit, address: \"127.0.0.1:1\"}, {name: b, kind: "
		    "explicit, address: \"127.0.0.1:1\"}]\n" CELL,
		    "listener a and listener b have the address" },
		{ "version: 1\nmode: shared\ndns: [\"127.0.0.1:5\", "
		    "\"127.0.0.1:5\"]\n" CELL, "dns and dns have the" },
		{ "version: 1\nmode: shared\nlisteners: [{name: a, kind: "
		    "explicit, address: \"0.0.0.0:1\"}, {name: b, kind: "
		    "named, address: \"10.0.0.1:1\"}]\n" CELL,
		    "listener a has the address 0.0.0.0:1 and listener b has "
		    "10.0.0.1:1, of which one is all addresses; give each its "
		    "own port" },
		{ "version: 1\nmode: shared\ndns: [\"[fd00::1]:5\", "
		    "\"[::]:5\"]\n" CELL, "of which one is all" },
		{ "version: 1\nmode: gateway\ninterfaces: [ag0]\n"
		    "listeners: [{name: a, kind: tproxy, address: "
		    "\"0.0.0.0:1\"}, {name: e, kind: explicit, address: "
		    "\"0.0.0.0:3\"}, {name: b, kind: tproxy, address: "
		    "\"[::]:2\"}]\n" CELL, "listener a has port 1 and "
		    "listener b has port 2, but the kernel's rules send all "
		    "that they capture to one port; give both the same" },
		{ "version: 1\nmode: shared\nbogus: 1\n" CELL,
		    "the file has no key bogus; see penstock.yaml(5)" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		refused(rows[i].text, &no_env, rows[i].words);
}

static void
a_cell_behind_an_interface_that_is_not_watched_is_told(void **state)
{
	static const char text[] = "version: 1\nmode: gateway\n"
	    "interfaces: [%s]\ncells:\n"
	    "  - {id: a, policy: [p], from: {interface: ag0}}\n"
	    "  - {id: b, policy: [p], from: {interface: ag1}}\n";
	char both[512], one[512];

	(void)state;
	snprintf(both, sizeof(both), text, "ag0, ag1");
	snprintf(one, sizeof(one), text, "ag0");
	config_free(accepted(both, &no_env));
	assert_string_equal(said, "");
	config_free(accepted(one, &no_env));
	assert_non_null(strstr(said, "6:5: warning: cell b is known by the "
	    "interface ag1, which is none of interfaces: nothing is captured "
	    "there; add it"));
	assert_null(strstr(said, "cell a"));
}

/* On all addresses of a family and on one of the other. */
static void
a_port_is_had_once_in_each_family(void **state)
{
	(void)state;
	config_free(accepted("version: 1\nmode: shared\nlisteners:\n"
	    "  - {name: a, kind: explicit, address: \"0.0.0.0:1\"}\n"
	    "  - {name: b, kind: explicit, address: \"[fd00::1]:1\"}\n"
	    "  - {name: c, kind: explicit, address: \"10.0.0.1:2\"}\n"
	    "  - {name: d, kind: explicit, address: \"10.0.0.2:2\"}\n" CELL,
	    &no_env));
}

static void
all_errors_are_found_at_once(void **state)
{
	(void)state;
	refused("version: 1\nmode: cooperative\nlisteners:\n"
	    "  - {name: t, kind: tproxy, address: \"127.0.0.1:1\"}\n" CELL,
	    &no_env, "kind: tproxy takes what is captured, and mode "
	    "cooperative captures nothing; write kind: explicit");
	refused("version: 1\nmode: shared\nipv6: x\nengines: y\nlog: z\n"
	    CELL, &no_env, "ipv6");
	assert_non_null(strstr(said, "3:7"));
	assert_non_null(strstr(said, "4:10"));
	assert_non_null(strstr(said, "5:6"));
}

/* One mistake is one error: a key that was refused is not missing too. */
static void
a_refused_key_is_not_told_as_missing(void **state)
{
	static const char *const texts[] = {
		"version: 1\nmode: shared\ncells: [{id: \"a b\", policy: "
		    "[p]}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: p}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: [/p]}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {listner: x}}, {id: b, policy: [p], from: {cidr: "
		    "10.0.0.0/8}}]\n",
		"*x\n", "x\n",
		"<<: *x\n",
		"version: 1\nmode: *x\ninterfaces: [a]\n" CELL,
		"version: 1\nmode: gatway\ninterfaces: [a]\n" CELL,
		"version: 1\ninterfaces: [a]\n" CELL,
		"version: 1\nmode: gateway\ninterfaces: *x\n" CELL,
		"version: 1\nmode: gateway\ninterfaces: [*x]\n" CELL,
		"version: 1\nmode: shared\ncells: *x\n",
		"version: 1\nmode: shared\ncells: 5\n",
		"version: 1\nmode: shared\ncells: [*x]\n",
		"version: 1\nmode: shared\ncells: [{<<: *x}]\n",
		"version: 1\nmode: shared\ncells: [{id: *x, policy: [p]}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: *x}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: [*x]}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: *x}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {listener: *x}}]\n",
		"version: 1\nmode: shared\ncells: [{id: a, policy: [p], "
		    "from: {cidr: *x}}]\n",
		"version: 1\nmode: shared\nlisteners: *x\n" CELL,
		"version: 1\nmode: shared\nlisteners: [*x]\n" CELL,
		"version: 1\nmode: shared\nlisteners: [{<<: *x}]\n" CELL,
		"version: 1\nmode: shared\nlisteners: [{name: *x, kind: "
		    "explicit, address: \"127.0.0.1:1\"}]\n" CELL,
		"version: 1\nmode: shared\nlisteners: [{name: l, kind: odd, "
		    "address: \"127.0.0.1:1\", credential: true}]\n"
		    "cells: [{id: a, policy: [p], from: {listener: l}}]\n",
		"version: 1\nmode: shared\nlimits: *x\n" CELL,
		"version: 1\nmode: shared\nlimits: {hello_timeout: *x}\n"
		    CELL,
		"version: 1\nmode: shared\nadmin: *x\n" CELL,
		"version: 1\nmode: shared\nusers: {engine: *x}\n" CELL,
		"version: 1\nmode: shared\n" CELL "dns: [\n",
		"version: 1\n\"x\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		refused(texts[i], &no_env, "error");
		if (strstr(strstr(said, "error") + 1, "error") != NULL)
			fail_msg("of %s: %s", texts[i], said);
	}
}

/* Of the tree, of keys, of values, of what keys say together. */
static void
N43_errors_of_every_kind_are_found_at_once(void **state)
{
	static const char *const places[] = {
		"penstock.yaml:2:11: error: anchors are not accepted",
		"penstock.yaml:3:7: error: ipv6 is none of",
		"penstock.yaml:4:1: error: the key \"version\" stands twice",
		"penstock.yaml:5:1: error: the file has no key bogus",
		"penstock.yaml:6:10: error: limits has no key engines",
		"penstock.yaml:6:19: error: \"*.x\" must be quoted",
		"penstock.yaml:8:6: error: a cell has no key lables",
		"penstock.yaml:8:22: error: this is no cell id",
		"penstock.yaml:9:15: error: this is no policy file name",
		"penstock.yaml:11:5: error: there is no listener z",
	};
	const char *at;
	size_t i;

	(void)state;
	refused("version: 1\n"
	    "instance: &i here\n"
	    "ipv6: x\n"
	    "version: 1\n"
	    "bogus: 1\n"
	    "limits: {engines: *.x}\n"
	    "cells:\n"
	    "  - {lables: {}, id: \"a b\",\n"
	    "     policy: [/etc/p],\n"
	    "     from: {cidr: 10.0.0.0/8}}\n"
	    "  - {id: b, policy: [p], from: {listener: z}}\n"
	    "mode: shared\n", &no_env, "error");
	for (at = said, i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		at = strstr(at, places[i]);
		if (at == NULL)
			fail_msg("no %s in: %s", places[i], said);
	}
}

static void
a_shared_segment_needs_the_risk_to_be_accepted(void **state)
{
	static const char text[] = "version: 1\nmode: gateway\n"
	    "interfaces: [ag0]\ncells: [{id: a, policy: [p], from: "
	    "{interface: ag0, cidr: 10.0.1.0/24}}, {id: b, policy: [p], "
	    "from: {interface: ag0, cidr: 10.0.2.0/24}}]\n";
	static const char apart[] = "version: 1\nmode: gateway\n"
	    "interfaces: [ag0, ag1]\ncells: [{id: a, policy: [p], from: "
	    "{interface: ag0}}, {id: b, policy: [p], from: {interface: "
	    "ag1}}]\n";
	struct config_env env = { .accept_shared_segment = true,
	    .serves = true };
	const struct config_env serves = { .serves = true };
	static const char mixed[] = "version: 1\nmode: gateway\n"
	    "interfaces: [ag0]\ncells: [{id: a, policy: [p], from: "
	    "{interface: ag0}}, {id: b, policy: [p], from: {cidr: "
	    "10.0.2.0/24}}]\n";

	(void)state;
	refused(text, &serves, "address alone");
	assert_non_null(strstr(said, "--accept-risk shared-segment"));
	/* whoever only reads it is told */
	config_free(accepted(text, &no_env));
	assert_non_null(strstr(said, "warning: cells a and b are told apart "
	    "by address alone"));
	refused(mixed, &env, "is known by its interface");
	config_free(accepted(text, &env));
	assert_string_equal(said, "");
	config_free(accepted(apart, &serves));
}

static void
a_mode_that_nothing_checks_starts_only_with_that_accepted(void **state)
{
	static const char text[] = "version: 1\nmode: isolated\n" CELL;
	struct config_env env = { .serves = true };

	(void)state;
	refused(text, &env, "penstock.yaml:2:7: error: mode isolated: nothing "
	    "checks");
	assert_non_null(strstr(said, "--accept-risk not-proven"));
	env.accept_shared_segment = true;
	refused(text, &env, "mode isolated: nothing checks");
	env.accept_not_proven = true;
	config_free(accepted(text, &env));
	assert_string_equal(said, "");
	/* whoever only reads it is told */
	config_free(accepted(text, &no_env));
	assert_non_null(strstr(said, "2:7: warning: mode isolated"));
}

static void
a_sidecar_is_one_cell_from_the_environment(void **state)
{
	static const char text[] = "version: 1\nmode: shared\n"
	    "cells: [{policy: [p.yaml]}]\n";
	struct config_env env = {
		.cell = "pod-7", .labels = "team=\"a\"\nrun=7",
	};
	struct config *c;

	(void)state;
	refused(text, &no_env, "the cell has no id");
	c = accepted(text, &env);
	assert_false(c->settings.connections_asked);
	assert_string_equal(c->cells[0].id, "pod-7");
	assert_int_equal(c->cells[0].n_labels, 2);
	assert_string_equal(c->cells[0].labels[0].value, "a");
	config_free(c);
	env.labels = "team";
	refused(text, &env, "no labels");
	env.labels = NULL;
	env.cell = "a b";
	refused(text, &env, "no cell id");
}

static void
W4_a_bad_resolver_in_the_environment_stops_the_start(void **state)
{
	static const char *const bad[] = {
		"", ",", "198.18.0.53,", "198.18.0.0/24", "dns.example",
		"198.18.0.53 ", "1.2.3", "1.2.3.4,,1.2.3.5",
	};
	static const char text[] = "version: 1\nmode: shared\n" CELL;
	struct config_env env = { .dns_resolvers = "198.18.0.53,2001:db8::1" };
	struct config *c = accepted(text, &env);

	(void)state;
	assert_int_equal(c->settings.n_resolvers, 2);
	assert_int_equal(c->settings.resolvers[0].at.port, 53);
	config_free(c);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		env.dns_resolvers = bad[i];
		refused(text, &env, "RUNEWARD_DNS_RESOLVERS");
	}
}

static void
W40_an_inline_policy_is_a_policy_or_stops_the_start(void **state)
{
	struct config_env env = {
		.cell = "c", .dns_resolvers = "198.18.0.53",
		.egress_policy = "{\"default\":\"deny\",\"rules\":"
		    "[{\"verdict\":\"allow\",\"hostname\":\"a.example\"}]}",
	};
	struct config *c = accepted(config_sidecar_text, &env);

	(void)state;
	assert_non_null(strstr(c->egress_policy, "\"rule\""));
	assert_non_null(strstr(c->egress_policy, "198.18.0.53"));
	assert_null(strstr(c->egress_policy, "\"rules\""));
	config_free(c);
	env.egress_policy = "{";
	refused(config_sidecar_text, &env, "RUNEWARD_EGRESS_POLICY");
	env.egress_policy = "[]";
	refused(config_sidecar_text, &env, "RUNEWARD_EGRESS_POLICY");
	env.egress_policy = "{\"a\":1,\"a\":2}";
	refused(config_sidecar_text, &env, "RUNEWARD_EGRESS_POLICY");
	/* a policy file's form: what stands beside network is not lost */
	env.egress_policy = "{\"network\":{\"default\":\"deny\"},"
	    "\"rules\":[{\"verdict\":\"deny\"}]}";
	c = accepted(config_sidecar_text, &env);
	assert_non_null(strstr(c->egress_policy, "\"rules\""));
	assert_non_null(strstr(c->egress_policy, "\"version\": 1"));
	config_free(c);
	env.egress_policy = "{}";
	refused("version: 1\nmode: shared\n" CELL, &env,
	    "without policy files");
}

static void
N43_text_that_means_something_else_is_refused(void **state)
{
	static const char *const bad[] = {
		"version: 1.0\nmode: shared\n" CELL,
		"version: 0x1\nmode: shared\n" CELL,
		"version: 1\nmode: shared\ninbound: [022]\n" CELL,
		"version: 1\nmode: shared\ninbound: [1e3]\n" CELL,
		"version: 1\nmode: shared\nlisteners: [{name: e, kind: "
		    "explicit, address: \"127.0.0.1:1\", credential: yes}]\n"
		    CELL,
	};
	struct config *c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		c = load_env(bad[i], &no_env);
		if (c != NULL && !c->wrong)
			fail_msg("accepted: %s", bad[i]);
		config_free(c);
	}
	config_free(accepted("\xef\xbb\xbfversion: 1\r\nmode: shared\r\n"
	    "cells: [{id: a, policy: [p.yaml]}]\r\n", &no_env));
	config_free(accepted("{\"version\":1,\"mode\":\"shared\",\"cells\":"
	    "[{\"id\":\"a\",\"policy\":[\"p\"]}]}", &no_env));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_mode_has_its_own_listeners),
		cmocka_unit_test(every_key_is_read),
		cmocka_unit_test(what_is_wrong_is_said_with_its_place),
		cmocka_unit_test(
		    a_cell_behind_an_interface_that_is_not_watched_is_told),
		cmocka_unit_test(a_port_is_had_once_in_each_family),
		cmocka_unit_test(all_errors_are_found_at_once),
		cmocka_unit_test(N43_errors_of_every_kind_are_found_at_once),
		cmocka_unit_test(a_refused_key_is_not_told_as_missing),
		cmocka_unit_test(
		    a_shared_segment_needs_the_risk_to_be_accepted),
		cmocka_unit_test(
		    a_mode_that_nothing_checks_starts_only_with_that_accepted),
		cmocka_unit_test(a_sidecar_is_one_cell_from_the_environment),
		cmocka_unit_test(
		    W4_a_bad_resolver_in_the_environment_stops_the_start),
		cmocka_unit_test(
		    W40_an_inline_policy_is_a_policy_or_stops_the_start),
		cmocka_unit_test(
		    N43_text_that_means_something_else_is_refused),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	free(said);
	return rc;
}
