/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "sidecar/settings.h"

#define NOW_S INT64_C(1800000000)

static const char enforces[] = "network:\n"
    "  rule:\n"
    "    - {verdict: allow, hostname: a.example}\n";
static const char reports[] = "network:\n"
    "  default: report\n"
    "  report_until: 2027-03-30\n"
    "  rule:\n"
    "    - {verdict: allow, hostname: a.example}\n";

static uint8_t *image;

/* A policy with these bytes as its settings: two cells when second is given. */
static struct policy *
policy_with(const void *settings, size_t len, const char *first,
    const char *second)
{
	struct problems *ps = problem_new();
	const char *texts[] = { first, second };
	const struct charter *c[2] = { NULL, NULL };
	struct policy_cell_source cells[2] = {
		{ .id = "a", .from = { .kind = CELL_FROM_LISTENER,
		    .listener = "x" }, .charters = &c[0], .n_charters = 1 },
		{ .id = "b", .from = { .kind = CELL_FROM_LISTENER,
		    .listener = "y" }, .charters = &c[1], .n_charters = 1 },
	};
	struct policy_source src = { .cells = cells,
	    .n_cells = second ? 2 : 1, .settings = span_of(settings, len),
	    .now_s = NOW_S };
	struct policy *p = NULL;
	size_t n = 0;

	for (size_t i = 0; i < src.n_cells; i++)
		c[i] = charter_load("p", span_str(texts[i]), true, NULL, ps);
	for (size_t i = 0; i < src.n_cells; i++)
		if (c[i] == NULL)
			problem_print(ps, stderr);
	free(image);
	image = NULL;
	if (policy_build(&src, &image, &n, ps) != 0)
		problem_print(ps, stderr);
	for (size_t i = 0; i < src.n_cells; i++)
		charter_free((struct charter *)(uintptr_t)c[i]);
	problem_free(ps);
	assert_int_equal(policy_open(&p, span_of(image, n)), 0);
	return p;
}

static bool
comes_back(const void *settings, size_t len)
{
	struct policy *p = policy_with(settings, len, enforces, NULL);
	struct settings out;
	bool ok = settings_from(&out, p);

	if (ok)
		assert_memory_equal(&out, settings, sizeof(out));
	policy_free(p);
	return ok;
}

/* ---- defaults ---- */

static void
is_listener(const struct settings *s, uint32_t i, const char *name,
    enum listen_kind kind, const char *at)
{
	char text[ADDR_TEXT_BYTES];

	assert_true(i < s->n_listeners);
	assert_string_equal(s->listeners[i].name, name);
	assert_int_equal(s->listeners[i].kind, kind);
	assert_string_equal(endpoint_text(&s->listeners[i].at, text), at);
	assert_false(s->listeners[i].credential);
}

static void
is_dns(const struct settings *s, uint32_t i, const char *at)
{
	char text[ADDR_TEXT_BYTES];

	assert_true(i < s->n_dns);
	assert_string_equal(endpoint_text(&s->dns[i], text), at);
}

static void
each_mode_has_its_listeners(void **state)
{
	struct settings s;

	(void)state;
	settings_default(&s, MODE_SHARED);
	assert_int_equal(s.n_listeners, 3);
	is_listener(&s, 0, "redirect4", LISTEN_REDIRECT, "127.0.0.1:15001");
	is_listener(&s, 1, "redirect6", LISTEN_REDIRECT, "[::1]:15001");
	is_listener(&s, 2, "explicit", LISTEN_EXPLICIT, "127.0.0.1:15080");
	assert_int_equal(s.n_dns, 2);
	is_dns(&s, 0, "127.0.0.1:15053");
	is_dns(&s, 1, "[::1]:15053");
	assert_int_equal(s.front.denied, FRONT_SINKHOLE);

	settings_default(&s, MODE_GATEWAY);
	assert_int_equal(s.n_listeners, 4);
	is_listener(&s, 0, "tproxy4", LISTEN_TPROXY, "0.0.0.0:15001");
	is_listener(&s, 1, "tproxy6", LISTEN_TPROXY, "[::]:15001");
	is_listener(&s, 2, "explicit", LISTEN_EXPLICIT, "0.0.0.0:15080");
	is_listener(&s, 3, "explicit6", LISTEN_EXPLICIT, "[::]:15080");
	assert_int_equal(s.n_dns, 2);
	is_dns(&s, 0, "0.0.0.0:53");
	is_dns(&s, 1, "[::]:53");
	assert_int_equal(s.front.denied, FRONT_SINKHOLE);

	settings_default(&s, MODE_ISOLATED);
	assert_int_equal(s.n_listeners, 3);
	is_listener(&s, 0, "named-https", LISTEN_NAMED, "0.0.0.0:443");
	is_listener(&s, 1, "named-http", LISTEN_NAMED, "0.0.0.0:80");
	is_listener(&s, 2, "explicit", LISTEN_EXPLICIT, "0.0.0.0:15080");
	assert_int_equal(s.n_dns, 1);
	assert_int_equal(s.front.denied, FRONT_NXDOMAIN);

	settings_default(&s, MODE_COOPERATIVE);
	assert_int_equal(s.n_listeners, 1);
	is_listener(&s, 0, "explicit", LISTEN_EXPLICIT, "127.0.0.1:15080");
	assert_int_equal(s.n_dns, 0);
	assert_int_equal(s.front.denied, FRONT_NXDOMAIN);
}

/* Whatever stood there before: settings travel byte for byte. */
static void
defaults_are_the_same_over_any_bytes(void **state)
{
	struct settings a, b;

	(void)state;
	for (unsigned m = 0; m <= MODE_COOPERATIVE; m++) {
		memset(&a, 0x00, sizeof(a));
		memset(&b, 0xff, sizeof(b));
		settings_default(&a, (enum settings_mode)m);
		settings_default(&b, (enum settings_mode)m);
		assert_memory_equal(&a, &b, sizeof(a));
		assert_int_equal(a.mode, m);
		assert_int_equal(a.version, SETTINGS_VERSION);
		assert_int_equal(a.size, sizeof(a));
		assert_true(a.ipv6_drop);
		assert_false(a.accept_shared_segment);
		assert_null(settings_fixed_difference(&a, &b));
	}
}

/* A role that is taken is not another role, and none is root. */
static void
each_role_has_a_uid_of_its_own(void **state)
{
	struct settings s;

	(void)state;
	settings_default(&s, MODE_SHARED);
	{
		const uid_t u[] = { s.uid_engine, s.uid_resolver,
		    s.uid_recorder, s.uid_admin, s.uid_warden };

		for (size_t i = 0; i < sizeof(u) / sizeof(u[0]); i++) {
			assert_int_not_equal(u[i], 0);
			assert_int_not_equal(u[i], SETTINGS_UID_KEEP);
			for (size_t j = 0; j < i; j++)
				assert_int_not_equal(u[i], u[j]);
		}
	}
}

/* ---- out of an image ---- */

static void
settings_come_back_from_an_image(void **state)
{
	struct settings s;

	(void)state;
	for (unsigned m = 0; m <= MODE_COOPERATIVE; m++) {
		settings_default(&s, (enum settings_mode)m);
		snprintf(s.instance, sizeof(s.instance), "i-%u", m);
		assert_true(comes_back(&s, sizeof(s)));
	}
}

static void
settings_of_another_size_or_version_are_refused(void **state)
{
	static uint8_t more[sizeof(struct settings) + 8];
	struct settings s;

	(void)state;
	settings_default(&s, MODE_SHARED);
	memcpy(more, &s, sizeof(s));
	assert_false(comes_back(more, sizeof(more)));
	assert_false(comes_back(&s, sizeof(s) - 8));
	assert_false(comes_back(&s, 0));
	s.version++;
	assert_false(comes_back(&s, sizeof(s)));
	s.version = 0;
	assert_false(comes_back(&s, sizeof(s)));
	settings_default(&s, MODE_SHARED);
	s.size--;
	assert_false(comes_back(&s, sizeof(s)));
}

#define COUNT_ROW(n, of) \
	{ #n, offsetof(struct settings, n), \
	  (uint32_t)(sizeof(((struct settings *)0)->of) / \
	  sizeof(((struct settings *)0)->of[0])) }

static void
counts_out_of_bounds_are_refused(void **state)
{
	static const struct {
		const char *what;
		size_t at;
		uint32_t max;
	} rows[] = {
		COUNT_ROW(n_listeners, listeners), COUNT_ROW(n_dns, dns),
		COUNT_ROW(n_interfaces, interfaces),
		COUNT_ROW(n_inbound, inbound),
		COUNT_ROW(n_resolvers, resolvers),
		{ "mode", offsetof(struct settings, mode), MODE_COOPERATIVE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint32_t values[] = { rows[i].max, rows[i].max + 1,
		    UINT32_MAX };

		for (size_t v = 0; v < 3; v++) {
			struct settings s;

			settings_default(&s, MODE_GATEWAY);
			memcpy((uint8_t *)&s + rows[i].at, &values[v], 4);
			if (comes_back(&s, sizeof(s)) != (v == 0))
				fail_msg("%s %u", rows[i].what, values[v]);
		}
	}
}

/* ---- is it enforcing ---- */

static void
one_cell_that_reports_is_not_enforcing(void **state)
{
	struct settings s;
	struct policy *p;

	(void)state;
	settings_default(&s, MODE_GATEWAY);
	p = policy_with(&s, sizeof(s), enforces, reports);
	assert_int_equal(settings_unenforced(&s, p, NOW_S),
	    UNENFORCED_REPORTS);
	/* its time is over: 2030 */
	assert_int_equal(settings_unenforced(&s, p, INT64_C(1900000000)),
	    UNENFORCED_NOTHING);
	policy_free(p);
}

static void
a_mode_that_nothing_checks_is_not_enforcing(void **state)
{
	static const enum settings_unenforced want[] = {
		[MODE_SHARED] = UNENFORCED_NOTHING,
		[MODE_GATEWAY] = UNENFORCED_NOTHING,
		[MODE_ISOLATED] = UNENFORCED_NOT_PROVEN,
		[MODE_COOPERATIVE] = UNENFORCED_COOPERATIVE,
	};

	(void)state;
	for (unsigned m = 0; m <= MODE_COOPERATIVE; m++) {
		struct settings s;
		struct policy *p;

		settings_default(&s, (enum settings_mode)m);
		p = policy_with(&s, sizeof(s), enforces, enforces);
		assert_int_equal(settings_unenforced(&s, p, NOW_S), want[m]);
		policy_free(p);
	}
	for (unsigned i = 0; i < UNENFORCED_COUNT; i++)
		assert_int_equal(settings_unenforced_text(
		    (enum settings_unenforced)i)[0] == '\0',
		    i == UNENFORCED_NOTHING);
}

/* ---- words ---- */

static void
modes_have_words_and_only_these(void **state)
{
	static const char *const wrong[] = { "", "share", "sharedx", "Shared",
	    " shared", "split", "unknown" };
	enum settings_mode m;

	(void)state;
	for (unsigned i = 0; i <= MODE_COOPERATIVE; i++) {
		const char *w = settings_mode_word((enum settings_mode)i);

		m = MODE_SHARED;
		assert_true(settings_mode_parse(&m, span_str(w)));
		assert_int_equal(m, i);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		m = MODE_ISOLATED;
		assert_false(settings_mode_parse(&m, span_str(wrong[i])));
		assert_int_equal(m, MODE_ISOLATED);
	}
	assert_string_equal(settings_mode_word((enum settings_mode)99),
	    "unknown");
}

/* ---- what needs a new start ---- */

static struct settings a, b;

static void
alike(void)
{
	settings_default(&a, MODE_GATEWAY);
	snprintf(a.interfaces[0], sizeof(a.interfaces[0]), "veth0");
	a.n_interfaces = 1;
	a.inbound[0] = 8080;
	a.n_inbound = 1;
	b = a;
	assert_null(settings_fixed_difference(&a, &b));
}

static void
differ(const char *key)
{
	const char *got = settings_fixed_difference(&a, &b);

	if (got == NULL || strcmp(got, key) != 0)
		fail_msg("%s instead of %s", got ? got : "nothing", key);
	/* whichever of the two is the new one */
	got = settings_fixed_difference(&b, &a);
	assert_non_null(got);
	assert_string_equal(got, key);
	alike();
}

static void
what_cannot_change_is_named_by_its_key(void **state)
{
	(void)state;
	alike();
	b.mode = MODE_SHARED;
	differ("mode");
	snprintf(b.interfaces[0], sizeof(b.interfaces[0]), "veth1");
	differ("interfaces");
	b.inbound[0]++;
	differ("inbound");
	b.ipv6_drop = !b.ipv6_drop;
	differ("ipv6");
	b.limits.connections++;
	differ("limits.connections");
	b.front.pending_max++;
	differ("limits.dns_questions");
	b.front.client_max++;
	differ("limits.dns_per_client");
	b.front.tcp_max++;
	differ("limits.dns_connections");
	b.front.tcp_idle_ms++;
	differ("limits.dns_idle_timeout");
	b.engines++;
	differ("engines");
	b.ring_bytes++;
	differ("ledger.ring_bytes");
	b.ledger_dir[0] = '/';
	differ("ledger.dir");
	b.admin[0] = '2';
	differ("admin");
	b.instance[0] = 'x';
	differ("instance");
}

static void
a_listener_differs_by_each_of_its_parts(void **state)
{
	(void)state;
	alike();
	b.n_listeners--;
	differ("listeners");
	b.listeners[1].name[0] = 'x';
	differ("listeners");
	b.listeners[1].kind = LISTEN_EXPLICIT;
	differ("listeners");
	b.listeners[1].at.port++;
	differ("listeners");
	b.listeners[1].at.addr.b[15] = 1;
	differ("listeners");
	b.listeners[1].credential = true;
	differ("listeners");
	b.n_dns--;
	differ("dns");
	b.dns[1].port++;
	differ("dns");
	b.dns[1].addr.b[15] = 1;
	differ("dns");
}

static void
each_uid_differs(void **state)
{
	(void)state;
	alike();
	b.uid_engine = 1;
	differ("users");
	b.uid_resolver = 1;
	differ("users");
	b.uid_recorder = 1;
	differ("users");
	b.uid_admin = 1;
	differ("users");
	b.uid_warden = 1;
	differ("users");
}

/* Bytes that nobody reads, and what a reload takes over. */
static void
what_may_change_is_no_difference(void **state)
{
	(void)state;
	alike();
	snprintf(b.listeners[b.n_listeners].name, 8, "unused");
	b.dns[b.n_dns].port = 1;
	memset(b.listeners[0].name + 20, 'x', 8);	/* after the NUL */
	b.admin[sizeof(b.admin) - 1] = 'x';
	b.log_level++;
	b.drain_timeout_ms++;
	b.n_resolvers = 1;
	b.limits.reload_grace_ms++;
	b.limits.idle_ms++;
	b.limits.per_cell++;
	b.limits.hello_bytes--;
	assert_null(settings_fixed_difference(&a, &b));
}

static void
a_reload_keeps_what_needs_a_new_start(void **state)
{
	char keys[SETTINGS_KEYS_BYTES];

	(void)state;
	alike();
	b.limits.connections++;
	b.limits.per_client = 7;
	b.limits.reload_grace_ms = 8;
	b.front.tcp_max++;
	b.instance[0] = 'x';
	b.uid_admin = 1;
	b.n_listeners--;
	b.log_level = 3;
	settings_keep_fixed(&b, &a, keys);
	assert_string_equal(keys, "listeners, limits.connections, "
	    "limits.dns_connections, users, instance");
	assert_null(settings_fixed_difference(&a, &b));
	assert_int_equal(b.limits.connections, a.limits.connections);
	assert_int_equal(b.limits.per_client, 7);
	assert_int_equal(b.limits.reload_grace_ms, 8);
	assert_int_equal(b.log_level, 3);
	settings_keep_fixed(&b, &a, keys);
	assert_string_equal(keys, "");
	/* whatever differs has room (1 is no other value of a bool) */
	memset(&b, 1, sizeof(b));
	b.n_listeners = b.n_dns = 0;
	b.ledger_dir[1] = b.admin[1] = b.instance[1] = '\0';
	settings_keep_fixed(&b, &a, keys);
	assert_true(strlen(keys) < sizeof(keys) - 1);
	assert_non_null(strstr(keys, ", instance"));
}

static int
down(void **state)
{
	(void)state;
	free(image);
	image = NULL;
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_mode_has_its_listeners),
		cmocka_unit_test(defaults_are_the_same_over_any_bytes),
		cmocka_unit_test(each_role_has_a_uid_of_its_own),
		cmocka_unit_test(settings_come_back_from_an_image),
		cmocka_unit_test(
		    settings_of_another_size_or_version_are_refused),
		cmocka_unit_test(counts_out_of_bounds_are_refused),
		cmocka_unit_test(one_cell_that_reports_is_not_enforcing),
		cmocka_unit_test(a_mode_that_nothing_checks_is_not_enforcing),
		cmocka_unit_test(modes_have_words_and_only_these),
		cmocka_unit_test(what_cannot_change_is_named_by_its_key),
		cmocka_unit_test(a_listener_differs_by_each_of_its_parts),
		cmocka_unit_test(each_uid_differs),
		cmocka_unit_test(what_may_change_is_no_difference),
		cmocka_unit_test(a_reload_keeps_what_needs_a_new_start),
	};

	return cmocka_run_group_tests(tests, NULL, down);
}
