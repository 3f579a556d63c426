/* SPDX-License-Identifier: Apache-2.0 */
/* What questions of every type and denied names are told. */
#include "tests/dns/front_stage.h"

#define MORE "    - {verdict: allow, hostname: typed.test, dns: [MX, TXT]}\n" \
    "    - {verdict: deny, hostname: closed.typed.test}\n" \
    "    - {verdict: deny, hostname: half.typed.test, ports: [22]}\n" \
    "    - {verdict: allow, hostname: \"*.typed.test\", dns: TXT}\n"

/* As the stage's, with rules that open types. */
static struct world *
typed_world(const struct front_settings *s)
{
	struct world *w = world_with(s);

	one_rules(&w->other, RULES MORE);
	front_set_policy(w->front, w->other.policy);
	return w;
}

/* The reply holds a record of this type with these bytes at its end. */
static bool
has_record(const struct reply *r, uint16_t type, const void *data, size_t n)
{
	uint8_t head[] = { (uint8_t)(type >> 8), (uint8_t)type, 0, 1 };
	const uint8_t *at = memmem(r->b + 12, r->len - 12, head, 4);

	return at != NULL && memmem(r->b, r->len, data, n) != NULL;
}

static void
types_are_opened_by_rules(void **state)
{
	struct front_settings s = { 0 };
	struct world *w = typed_world(&s);
	struct record rec;
	struct reply *r;

	(void)state;
	r = ask(w, "typed.test", TYPE_TXT);
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 1);
	assert_true(has_record(r, TYPE_TXT, "\4text", 5));
	r = ask(w, "typed.test", TYPE_MX);
	assert_int_equal(r->answers, 1);
	assert_true(has_record(r, TYPE_MX, "\0\12\4mail", 7));
	assert_int_equal(ask(w, "a.typed.test", TYPE_TXT)->answers, 1);
	assert_int_equal(ask(w, "half.typed.test", TYPE_TXT)->answers, 1);
	assert_int_equal(records(w, REASON_DNS_TYPE, &rec), 0);
	/* not of the rule, and of no rule: nothing leaves */
	assert_int_equal(asked("MX\""), 1);
	r = ask(w, "a.typed.test", TYPE_MX);
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_true(r->answers == 0 && r->soa);
	assert_int_equal(ask(w, "api.team.allowed.test", TYPE_TXT)->answers,
	    0);
	r = ask_sized(w, "closed.typed.test", TYPE_TXT, 1232);
	assert_true(r->answers == 0);
	assert_non_null(memmem(r->b, r->len, "rule_deny", 9));
	assert_int_equal(ask(w, "typed.test", TYPE_SRV)->answers, 0);
	assert_int_equal(asked("MX\""), 1);
	assert_int_equal(asked("api.team"), 0);
	assert_int_equal(records(w, REASON_DNS_TYPE, &rec), 3);
	world_free(w);
}

static void
forms_that_are_good_for_tunnels_are_refused(void **state)
{
	static const uint16_t types[] = { TYPE_NULL, TYPE_AXFR, 251, 0,
	    TYPE_OPT, 249, 250, 253, 254, 128 };
	struct world *w = world_new();
	struct reply *r;

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		r = ask_sized(w, "api.team.allowed.test", types[i], 1232);
		assert_int_equal(r->rcode, RCODE_REFUSED);
		assert_int_equal(r->answers, 0);
	}
	assert_int_equal(asked("api.team"), 0);
	world_free(w);
}

/* RFC 8482 4.2 */
static void
any_is_one_record_of_our_own(void **state)
{
	struct world *w = world_new();
	struct reply *r = ask(w, "api.team.allowed.test", TYPE_ANY);

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 1);
	assert_true(has_record(r, TYPE_HINFO, "\7RFC8482", 9));
	assert_int_equal(asked("api.team"), 0);
	world_free(w);
}

static void
no_ech_key_arrives(void **state)
{
	static const uint8_t ech[] = { 0xfe, 0x0d };
	struct front_settings s = { 0 };
	struct world *w = world_with(&s);
	struct reply *r = ask(w, "x1.wild.test", TYPE_HTTPS);

	(void)state;
	assert_true(r->rcode == RCODE_NOERROR && r->answers == 0 && r->soa);
	assert_int_equal(asked("x1.wild.test"), 0);
	world_free(w);
	s.svcb_strip = true;
	w = world_with(&s);
	r = ask(w, "svcb.wild.test", TYPE_HTTPS);
	assert_int_equal(r->answers, 2);
	assert_true(has_record(r, TYPE_HTTPS, "\3\2h2", 4));
	assert_null(memmem(r->b, r->len, ech, 2));
	world_free(w);
}

/* ---- denied names ---- */

static struct front_settings
sinkholes(void)
{
	struct front_settings s = { .denied = FRONT_SINKHOLE };

	s.sinkhole[0] = one_endpoint("192.0.2.1", 0).addr;
	s.sinkhole[1] = one_endpoint("3fff::1", 0).addr;
	s.search[0] = one_host("svc.cluster.test");
	s.n_search = 1;
	return s;
}

static void
a_denied_name_leads_to_the_sinkhole(void **state)
{
	static const char *const names[] = { "other.test", "no.allowed.test",
	    "x.y.evil.test", "team.allowed.test" };
	struct front_settings s = sinkholes();
	struct world *w = world_with(&s);
	struct reply *r;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		r = ask_sized(w, names[i], TYPE_A, 1232);
		assert_int_equal(r->rcode, RCODE_NOERROR);
		assert_int_equal(r->answers, 1);
		assert_true(holds(r, "192.0.2.1"));
		assert_non_null(memmem(r->b, r->len, "rule", 4));
		r = ask(w, names[i], TYPE_AAAA);
		assert_true(r->answers == 1 && holds(r, "3fff::1"));
		r = ask(w, names[i], TYPE_TXT);
		assert_true(r->rcode == RCODE_NOERROR && r->answers == 0);
		assert_true(r->soa);
		assert_false(pinned(w, names[i], "192.0.2.1"));
	}
	assert_int_equal(asked("other.test"), 0);
	assert_int_equal(asked("evil"), 0);
	world_free(w);
	s.ipv6_drop = true;
	w = world_with(&s);
	r = ask(w, "other.test", TYPE_AAAA);
	assert_true(r->rcode == RCODE_NOERROR && r->answers == 0 && r->soa);
	world_free(w);
}

/* What a client makes of one label is asked for by its full name, if at all:
 * no other ever leaves. */
static void
no_suffix_is_appended_for_a_client(void **state)
{
	struct front_settings s = { .n_search = 2 };
	struct world *w;
	struct record rec;

	(void)state;
	s.search[0] = one_host("team.allowed.test");
	s.search[1] = one_host("corp.test");
	w = world_with(&s);
	assert_int_equal(ask(w, "api", TYPE_A)->rcode, RCODE_NXDOMAIN);
	assert_int_equal(records(w, REASON_NO_RULE, &rec), 1);
	assert_int_equal(ask(w, "api.corp.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(ask(w, "db.team.allowed.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_UPSTREAM), 0);
	assert_int_equal(ask(w, "api.team.allowed.test", TYPE_A)->answers, 1);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_UPSTREAM), 1);
	world_free(w);
}

/* Where a resolver goes on from a no, an address would end its search. */
static void
names_that_are_searched_for_are_not_there(void **state)
{
	static const char *const names[] = { "single", "printer.local",
	    "4.3.2.1.in-addr.arpa", "1.0.0.ip6.arpa",
	    "api.other.test.svc.cluster.test" };
	struct front_settings s = sinkholes();
	struct world *w = world_with(&s);
	struct reply *r;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		r = ask(w, names[i], TYPE_A);
		assert_int_equal(r->rcode, RCODE_NXDOMAIN);
		assert_true(r->answers == 0 && r->soa);
	}
	assert_int_equal(asked("cluster"), 0);
	world_free(w);
}

static void
a_denied_name_may_be_refused_in_one_word(void **state)
{
	struct front_settings s = { .denied = FRONT_REFUSED };
	struct world *w = world_with(&s);
	struct reply *r = ask_sized(w, "no.allowed.test", TYPE_A, 1232);

	(void)state;
	assert_int_equal(r->rcode, RCODE_REFUSED);
	assert_true(r->answers == 0 && !r->soa);
	/* why, and by which rule (RFC 8914) */
	assert_non_null(memmem(r->b, r->len, "rule_deny: rule ", 16));
	world_free(w);
}

/* ---- tunnels ---- */

/* Many names under one domain that an allow with a wildcard opens, each with
 * the text that it carries; how many answers the last has. */
static unsigned
tunnel_through(struct world *w, unsigned names)
{
	struct reply *r = NULL;
	uint64_t x = 88172645463325252u;
	char name[128];

	for (unsigned i = 0; i < names; i++) {
		char text[51];

		for (unsigned k = 0; k < 50; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			text[k] = "abcdefghijklmnopqrstuvwxyz234567"[x >> 20 &
			    31];
		}
		text[50] = '\0';
		snprintf(name, sizeof(name), "%s.wild.test", text);
		r = ask(w, name, TYPE_A);
	}
	return r->answers;
}

static void
a_tunnel_is_told_once_and_may_be_refused(void **state)
{
	struct front_settings s = { 0 };
	struct world *w = world_with(&s);
	struct record rec;

	(void)state;
	assert_int_equal(tunnel_through(w, 40), 1);
	assert_int_equal(records(w, REASON_TUNNEL, &rec), 1);
	assert_int_equal(rec.verdict, VERDICT_ALLOW);
	assert_int_equal(rec.would, VERDICT_DENY);
	assert_non_null(memmem(rec.text, rec.text_len,
	    "tunnel suspected under wild.test: score", 39));
	assert_int_equal(count_sum(w->counts, COUNT_DNS_TUNNELS), 1);
	world_free(w);
	s.tunnel_deny = true;
	w = world_with(&s);
	assert_int_equal(tunnel_through(w, 40), 0);
	assert_true(records(w, REASON_TUNNEL, &rec) > 1);
	assert_int_equal(rec.verdict, VERDICT_DENY);
	/* another domain's names are asked as ever */
	assert_int_equal(ask(w, "api.team.allowed.test", TYPE_A)->answers, 1);
	world_free(w);
	/* a threshold that nothing comes to */
	s.tunnel.names_min = 1000;
	w = world_with(&s);
	assert_int_equal(tunnel_through(w, 40), 1);
	assert_int_equal(records(w, REASON_TUNNEL, &rec), 0);
	world_free(w);
}

/* ---- records ---- */

static void
a_record_says_what_was_told_and_by_whom(void **state)
{
	struct world *w = world_new();
	struct record rec;
	char line[RECORD_JSON_MAX_BYTES];

	(void)state;
	(void)ask(w, "mixed.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_RULE, &rec), 1);
	(void)record_json(&rec, 1, "i", line);
	assert_non_null(strstr(line, "\"rcode\":\"NOERROR\""));
	assert_non_null(strstr(line, "\"answers\":[\"9.9.9.4\"]"));
	assert_non_null(strstr(line, "\"server\":"));
	assert_non_null(strstr(line, "\"duration_us\":"));
	assert_int_equal(rec.dialled.port, upstream_port);
	(void)ask(w, "none.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_DNS_NXDOMAIN, &rec), 1);
	assert_int_equal(rec.rcode, RCODE_NXDOMAIN);
	(void)ask(w, "no.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_RULE_DENY, &rec), 1);
	assert_int_equal(rec.rcode, RCODE_NXDOMAIN);
	assert_int_equal(rec.dialled.port, 0);
	(void)ask(w, "fail.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_DNS_SERVFAIL, &rec), 1);
	assert_int_equal(rec.rcode, RCODE_SERVFAIL);
	world_free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_are_opened_by_rules),
		cmocka_unit_test(forms_that_are_good_for_tunnels_are_refused),
		cmocka_unit_test(any_is_one_record_of_our_own),
		cmocka_unit_test(no_ech_key_arrives),
		cmocka_unit_test(a_denied_name_leads_to_the_sinkhole),
		cmocka_unit_test(names_that_are_searched_for_are_not_there),
		cmocka_unit_test(no_suffix_is_appended_for_a_client),
		cmocka_unit_test(a_denied_name_may_be_refused_in_one_word),
		cmocka_unit_test(a_tunnel_is_told_once_and_may_be_refused),
		cmocka_unit_test(a_record_says_what_was_told_and_by_whom),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
