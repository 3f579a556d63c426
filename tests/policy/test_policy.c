/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/policy/one.h"

#include <sodium.h>

#include "policy/image.h"

#define RULES "network:\n  rule:\n    - {verdict: allow, hostname: a.example}\n"

static struct charter *
load(const char *text, bool base)
{
	struct problems *ps = problem_new();
	struct charter *c = charter_load("p.yaml", span_str(text), base, NULL,
	    ps);

	assert_non_null(c);
	problem_free(ps);
	return c;
}

static struct cell_from
from_net(const char *interface, const char *prefix)
{
	struct cell_from f = { .kind = CELL_FROM_NET };

	strcpy(f.interface, interface);
	if (prefix[0] != '\0') {
		assert_true(prefix_parse(&f.prefix, span_str(prefix)));
		f.has_prefix = true;
	}
	return f;
}

static int
build(struct policy_cell_source *cells, size_t n, uint8_t **image,
    struct policy **p, struct problems *ps)
{
	struct policy_source src = { .cells = cells, .n_cells = n,
	    .generation = 42, .digest = { 1, 2, 3 },
	    .settings = span_str("settings"), .now_s = NOW_S };
	size_t len;
	int err = policy_build(&src, image, &len, ps);

	if (err == 0)
		assert_int_equal(policy_open(p, span_of(*image, len)), 0);
	return err;
}

static void
a_client_belongs_to_the_closest_cell(void **state)
{
	struct charter *c = load(RULES, true);
	const struct charter *list[] = { c };
	struct policy_cell_source cells[4] = {
	    { .id = "net", .charters = list, .n_charters = 1 },
	    { .id = "host", .charters = list, .n_charters = 1 },
	    { .id = "listener", .charters = list, .n_charters = 1 },
	    { .id = "token", .charters = list, .n_charters = 1 },
	};
	struct problems *ps = problem_new();
	struct cell_key key = { .listener = "main", .interface = "veth0" };
	enum reason why;
	struct policy *p;
	uint8_t *image;

	(void)state;
	cells[0].from = from_net("", "10.1.0.0/16");
	cells[1].from = from_net("veth0", "10.1.2.0/24");
	cells[2].from.kind = CELL_FROM_LISTENER;
	strcpy(cells[2].from.listener, "ci");
	cells[3].from.kind = CELL_FROM_CREDENTIAL;
	crypto_generichash(cells[3].from.token_hash, 32,
	    (const unsigned char *)"secret", 6, NULL, 0);
	assert_int_equal(build(cells, 4, &image, &p, ps), 0);
	key.client = one_endpoint("10.1.1.1", 0).addr;
	assert_int_equal(policy_cell_find(p, &key, &why), 0);
	key.client = one_endpoint("10.1.2.1", 0).addr;
	assert_int_equal(policy_cell_find(p, &key, &why), 1);
	key.interface = "veth1";
	assert_int_equal(policy_cell_find(p, &key, &why), 0);
	key.listener = "ci";
	assert_int_equal(policy_cell_find(p, &key, &why), 2);
	key.listener = "main";
	key.client = one_endpoint("10.2.0.1", 0).addr;
	assert_int_equal(policy_cell_find(p, &key, &why), CELL_NONE);
	assert_int_equal(why, REASON_AUTH_REQUIRED);
	/* A credential decides alone, whatever else fits. */
	key.client = one_endpoint("10.1.1.1", 0).addr;
	key.credential_cell = "token";
	key.credential_token = span_str("secret");
	assert_int_equal(policy_cell_find(p, &key, &why), 3);
	key.credential_token = span_str("Secret");
	assert_int_equal(policy_cell_find(p, &key, &why), CELL_NONE);
	assert_int_equal(why, REASON_AUTH_FAILED);
	key.credential_token = span_str("");
	assert_int_equal(policy_cell_find(p, &key, &why), CELL_NONE);
	key.credential_token = span_str("secret");
	key.credential_cell = "net";
	assert_int_equal(policy_cell_find(p, &key, &why), CELL_NONE);
	key.credential_cell = "nobody";
	assert_int_equal(policy_cell_find(p, &key, &why), CELL_NONE);
	policy_free(p);
	free(image);
	charter_free(c);
	problem_free(ps);
}

static void
a_client_of_no_cell_is_unknown(void **state)
{
	struct charter *c = load(RULES, true);
	const struct charter *list[] = { c };
	struct policy_cell_source cell = { .id = "net", .charters = list,
	    .n_charters = 1, .from = from_net("", "10.1.0.0/16") };
	struct problems *ps = problem_new();
	struct cell_key key = { .listener = "main", .interface = "" };
	enum reason why;
	struct policy *p;
	uint8_t *image;

	(void)state;
	assert_int_equal(build(&cell, 1, &image, &p, ps), 0);
	key.client = one_endpoint("10.2.1.1", 0).addr;
	assert_int_equal(policy_cell_find(p, &key, &why), CELL_NONE);
	assert_int_equal(why, REASON_UNKNOWN_CELL);
	policy_free(p);
	free(image);
	charter_free(c);
	problem_free(ps);
}

static void
base_rules_stand_first_and_cannot_be_weakened(void **state)
{
	struct charter *base = load("network:\n  help: ask\n  rule:\n"
	    "    - {verdict: deny, hostname: .bad.example}\n", true);
	struct charter *team = load("network:\n  rule:\n"
	    "    - {verdict: allow, hostname: .example, force: true}\n",
	    false);
	struct charter *sly = load("network:\n  rule:\n"
	    "    - {verdict: allow, hostname: x.bad.example}\n"
	    "    - {verdict: allow, hostname: y.example}\n", false);
	const struct charter *good[] = { base, team }, *bad[] = { base, sly };
	struct policy_cell_source cell = { .id = "a", .charters = good,
	    .n_charters = 2 };
	struct problems *ps = problem_new();
	struct decide_at at = { .now_s = NOW_S };
	struct host h = one_host("x.bad.example");
	struct policy *p;
	struct decision d;
	struct cell_view v;
	uint8_t *image;

	(void)state;
	assert_int_equal(build(&cell, 1, &image, &p, ps), 0);
	at.policy = p;
	d = decide_name(&at, &h, 443, NULL);
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_int_equal(d.rule, 0);
	h = one_host("x.example");
	d = decide_name(&at, &h, 443, NULL);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(policy_cell(p, 0, NOW_S, &v));
	assert_true(span_eq(v.help, span_str("ask")));
	assert_true(v.enforce_strict);
	assert_false(v.reports);
	policy_free(p);
	free(image);
	cell.charters = bad;
	assert_int_equal(build(&cell, 1, &image, &p, ps), -EINVAL);
	charter_free(base);
	charter_free(team);
	charter_free(sly);
	problem_free(ps);
}

static void
all_cells_name_the_same_resolvers(void **state)
{
	struct charter *a = load("network:\n  resolvers: [198.18.0.1]\n"
	    "  rule: [{verdict: allow, hostname: a.example}]\n", true);
	struct charter *b = load("network:\n  resolvers: [198.18.0.2]\n"
	    "  rule: [{verdict: allow, hostname: a.example}]\n", true);
	struct charter *none = load(RULES, true);
	const struct charter *la[] = { a }, *lb[] = { b }, *ln[] = { none };
	struct policy_cell_source cells[2] = {
	    { .id = "a", .charters = la, .n_charters = 1 },
	    { .id = "b", .charters = lb, .n_charters = 1 },
	};
	struct server r[POLICY_RESOLVERS_MAX];
	struct problems *ps = problem_new();
	struct policy *p;
	uint8_t *image;

	(void)state;
	assert_int_equal(build(cells, 2, &image, &p, ps), -EINVAL);
	problem_free(ps);
	ps = problem_new();
	cells[1].charters = ln;
	assert_int_equal(build(cells, 2, &image, &p, ps), 0);
	assert_int_equal(policy_resolvers(p, r), 1);
	assert_int_equal(r[0].at.port, 53);
	policy_free(p);
	free(image);
	charter_free(a);
	charter_free(b);
	charter_free(none);
	problem_free(ps);
}

static void
cells_are_named_once_and_share_their_rules(void **state)
{
	struct charter *c = load(RULES, true);
	const struct charter *list[] = { c };
	struct policy_cell_source cells[2] = {
	    { .id = "a", .charters = list, .n_charters = 1, .n_labels = 1,
	      .labels = { { "team", "red" } } },
	    { .id = "b", .charters = list, .n_charters = 1 },
	};
	struct problems *ps = problem_new();
	struct cell_view v;
	struct rule_view r;
	struct policy *p;
	uint8_t *image;

	(void)state;
	assert_int_equal(build(cells, 2, &image, &p, ps), 0);
	assert_int_equal(image_head(policy_image(p))->sets.len, 1);
	assert_int_equal(policy_cells(p), 2);
	assert_int_equal(policy_generation(p), 42);
	assert_int_equal(policy_digest(p)[2], 3);
	assert_true(span_eq(policy_settings(p), span_str("settings")));
	assert_int_equal(policy_cell_by_id(p, span_str("b")), 1);
	assert_int_equal(policy_cell_by_id(p, span_str("c")), CELL_NONE);
	assert_true(policy_cell(p, 0, NOW_S, &v));
	assert_int_equal(v.n_labels, 1);
	assert_true(span_eq(v.labels[0].value, span_str("red")));
	assert_false(policy_cell(p, 2, NOW_S, &v));
	assert_true(policy_rule(p, 1, 0, &r));
	assert_int_equal(r.line, 3);
	assert_true(span_eq(r.subject, span_str("a.example")));
	assert_true(span_eq(r.file, span_str("p.yaml")));
	assert_false(policy_rule(p, 1, 1, &r));
	assert_false(policy_rule(p, 0, RULE_NONE, &r));
	policy_free(p);
	free(image);
	strcpy(cells[1].id, "a");
	assert_int_equal(build(cells, 2, &image, &p, ps), -EINVAL);
	charter_free(c);
	problem_free(ps);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_belongs_to_the_closest_cell),
		cmocka_unit_test(a_client_of_no_cell_is_unknown),
		cmocka_unit_test(
		    base_rules_stand_first_and_cannot_be_weakened),
		cmocka_unit_test(all_cells_name_the_same_resolvers),
		cmocka_unit_test(cells_are_named_once_and_share_their_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
