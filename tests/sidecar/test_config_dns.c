/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sidecar/config_stage.h"

#define GATE "version: 1\nmode: shared\n" CELL
#define NONE "version: 1\nmode: cooperative\n" CELL

static void
a_list_alone_is_where_it_listens(void **state)
{
	struct config *c = accepted(GATE "dns: [127.0.0.53:5353]\n", &no_env);

	(void)state;
	assert_int_equal(c->settings.n_dns, 1);
	assert_int_equal(c->settings.dns[0].port, 5353);
	config_free(c);
	c = accepted(GATE "dns: {listen: [127.0.0.53, \"[::1]:53\"]}\n",
	    &no_env);
	assert_int_equal(c->settings.n_dns, 2);
	config_free(c);
	refused(GATE "dns: {listen: [here]}\n", &no_env, "no address and port");
	refused(GATE "dns: {serve: [127.0.0.53]}\n", &no_env,
	    "dns has no key serve");
	refused(GATE "dns: yes\n", &no_env, "a list is needed");
}

static void
zones_have_resolvers_of_their_own(void **state)
{
	struct config *c = accepted(GATE "dns:\n  zones:\n"
	    "    - {suffix: .corp.example, resolvers: [10.0.0.53, "
	    "\"tls://10.0.0.54#ns.corp.example\"]}\n"
	    "    - {suffix: Lab.Example, resolvers: [\"10.0.1.53:5353\"]}\n",
	    &no_env);
	const struct settings_zone *z = c->settings.zones;

	(void)state;
	assert_int_equal(c->settings.n_zones, 2);
	assert_string_equal(z[0].suffix.name, "corp.example");
	assert_int_equal(z[0].n_servers, 2);
	assert_string_equal(z[0].servers[1].tls_name, "ns.corp.example");
	assert_string_equal(z[1].suffix.name, "lab.example");
	assert_int_equal(z[1].servers[0].at.port, 5353);
	config_free(c);
	refused(GATE "dns: {zones: [{suffix: a.example}]}\n", &no_env,
	    "a zone needs both");
	refused(GATE "dns: {zones: [{suffix: a.example, resolvers: []}]}\n",
	    &no_env, "a zone without resolvers");
	refused(GATE "dns: {zones: [{suffix: a.example, resolvers: [ns]}]}\n",
	    &no_env, "this is no resolver");
	refused(GATE "dns: {zones: [{suffix: ., resolvers: [1.2.3.4]}]}\n",
	    &no_env, "this is no domain name");
	refused(GATE "dns: {zones: [{suffix: a.b, resolvers: [1.2.3.4]}, "
	    "{suffix: .A.b, resolvers: [1.2.3.5]}]}\n", &no_env,
	    "two zones with this suffix");
}

static void
denied_names_lead_where_they_are_told(void **state)
{
	struct config *c = accepted(GATE "dns: {denied_names: sinkhole, "
	    "sinkhole: [192.0.2.9, \"3fff::9\"], search: [svc.cluster.local, "
	    ".example]}\n", &no_env);
	const struct front_settings *f = &c->settings.front;
	char text[ADDR_TEXT_BYTES];

	(void)state;
	assert_int_equal(f->denied, FRONT_SINKHOLE);
	assert_string_equal(addr_text(&f->sinkhole[0], text), "192.0.2.9");
	assert_string_equal(addr_text(&f->sinkhole[1], text), "3fff::9");
	assert_int_equal(f->n_search, 2);
	assert_string_equal(f->search[1].name, "example");
	config_free(c);
	c = accepted(NONE "dns: {denied_names: refused, svcb: strip-ech}\n",
	    &no_env);
	assert_int_equal(c->settings.front.denied, FRONT_REFUSED);
	assert_true(c->settings.front.svcb_strip);
	config_free(c);
	c = accepted(NONE, &no_env);
	assert_int_equal(c->settings.front.denied, FRONT_NXDOMAIN);
	config_free(c);
	refused(NONE "dns: {denied_names: sinkhole}\n", &no_env,
	    "mode cooperative does not capture");
	refused(GATE "dns: {denied_names: drop}\n", &no_env,
	    "this word is not known");
	refused(GATE "dns: {sinkhole: [10.0.0.1]}\n", &no_env,
	    "may be somebody's");
	refused(GATE "dns: {sinkhole: [here]}\n", &no_env,
	    "this is no address");
	refused(GATE "dns: {svcb: all}\n", &no_env, "this word is not known");
	refused(GATE "dns: {tls_ca: ca.pem}\n", &no_env, "no absolute path");
}

static void
what_looks_like_a_tunnel_is_recorded_or_refused(void **state)
{
	struct config *c = accepted(GATE "dns: {tunnel: deny}\n", &no_env);

	(void)state;
	assert_true(c->settings.front.tunnel_deny);
	config_free(c);
	c = accepted(GATE "dns:\n  tunnel: {action: record, window: 2m, "
	    "score: 70, names: 20}\n", &no_env);
	assert_false(c->settings.front.tunnel_deny);
	assert_int_equal(c->settings.front.tunnel.window_s, 120);
	assert_int_equal(c->settings.front.tunnel.score, 70);
	assert_int_equal(c->settings.front.tunnel.names_min, 20);
	config_free(c);
	refused(GATE "dns: {tunnel: block}\n", &no_env,
	    "this word is not known");
	refused(GATE "dns: {tunnel: {score: 101}}\n", &no_env,
	    "a number from 1 to 100");
	refused(GATE "dns: {tunnel: {score: 0}}\n", &no_env,
	    "a number from 1 to 100");
	refused(GATE "dns: {tunnel: {window: 1s}}\n", &no_env,
	    "less than 2 s");
}

static void
the_systems_servers_are_read_as_libc_reads_them(void **state)
{
	static const char text[] = "# nameserver 1.1.1.1\n"
	    "search a.example\nnameserver 198.18.0.53\n"
	    "nameserver\t198.18.0.54 # second\r\n nameserver 9.9.9.9\n"
	    "nameservers 9.9.9.9\nnameserver\nnameserver fe80::1%eth0\n"
	    "nameserver 2001:db8::53";
	struct server s[POLICY_RESOLVERS_MAX];
	char many[400] = "", at[SERVER_TEXT_BYTES];

	(void)state;
	assert_int_equal(config_system_servers(text, s), 3);
	assert_string_equal(server_text(&s[0], at), "198.18.0.53:53");
	assert_string_equal(server_text(&s[1], at), "198.18.0.54:53");
	assert_string_equal(server_text(&s[2], at), "[2001:db8::53]:53");
	assert_int_equal(config_system_servers("", s), 0);
	assert_int_equal(config_system_servers(NULL, s), 0);
	assert_int_equal(config_system_servers("nameserver", s), 0);
	for (int i = 0; i < 12; i++)
		strcat(many, "nameserver 198.18.0.1\n");
	assert_int_equal(config_system_servers(many, s),
	    POLICY_RESOLVERS_MAX);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_alone_is_where_it_listens),
		cmocka_unit_test(zones_have_resolvers_of_their_own),
		cmocka_unit_test(denied_names_lead_where_they_are_told),
		cmocka_unit_test(
		    what_looks_like_a_tunnel_is_recorded_or_refused),
		cmocka_unit_test(
		    the_systems_servers_are_read_as_libc_reads_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
