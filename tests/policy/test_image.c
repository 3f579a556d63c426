/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/policy/one.h"

#include "policy/image.h"

static const char text[] = "network:\n  help: ask\n  lab: [203.0.113.0/24]\n"
    "  rule:\n"
    "    - {verdict: deny, hostname: b.a.example, reason: no}\n"
    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
    "    - {verdict: allow, cidr: 10.0.0.0/8, ports: [1, 3-9]}\n"
    "    - {verdict: deny, cidr: 10.1.0.0/16}\n";

/* Whatever the bytes say, the questions stay inside them. */
static void
ask_everything(const struct policy *p)
{
	const struct decide_at at = { .policy = p, .now_s = NOW_S };
	const struct host h = one_host("b.a.example");
	const struct host *names[] = { &h };
	const struct endpoint to = one_endpoint("10.1.2.3", 443);
	struct server resolvers[POLICY_RESOLVERS_MAX];
	struct cell_key key = { .listener = "x", .interface = "y" };
	struct cell_view v;
	struct rule_view r;
	struct decision d;
	enum reason why;
	unsigned asked = 0;
	uint32_t i;

	d = decide_name(&at, &h, 443, &to);
	d = decide_addr(&at, &d, &to);
	d = decide_nameless(&at, &to, names, 1);
	asked += decide_opaque(&at, &to, names, 1, &d);
	asked += decide_port_open(&at, &to);
	asked += decide_question(&at, &h, &d);
	asked += decide_question_hides(&at, &h);
	(void)decide_nearest(&at, &h);
	(void)policy_cell_find(p, &key, &why);
	(void)policy_resolvers(p, resolvers);
	for (i = 0; i < policy_cells(p); i++)
		asked += policy_cell(p, i, NOW_S, &v);
	for (i = 0; i < policy_rules(p, 0); i++)
		asked += policy_rule(p, 0, i, &r);
	(void)asked;
}

static void
any_byte_may_be_wrong_and_nothing_is_read_outside(void **state)
{
	static const uint8_t with[] = { 0x00, 0xff, 0x80, 0x7f };
	struct policy *p;
	struct one o;
	uint8_t *copy, old;
	size_t i, k, opened = 0;

	(void)state;
	assert_true(one_make(&o, text, NULL, NULL, 0));
	copy = aligned_alloc(8, (o.len + 7) / 8 * 8);
	assert_non_null(copy);
	memcpy(copy, o.image, o.len);
	for (i = 0; i < o.len; i++)
		for (k = 0; k < sizeof(with); k++) {
			old = copy[i];
			copy[i] = with[k];
			if (policy_open(&p, span_of(copy, o.len)) == 0) {
				opened++;
				ask_everything(p);
				policy_free(p);
			}
			copy[i] = old;
		}
	assert_true(opened > 0);
	free(copy);
	one_done(&o);
}

static void
a_cut_image_is_refused(void **state)
{
	struct policy *p;
	struct one o;
	size_t i;

	(void)state;
	assert_true(one_make(&o, text, NULL, NULL, 0));
	for (i = 0; i < o.len; i++)
		assert_int_equal(policy_open(&p, span_of(o.image, i)),
		    -EBADMSG);
	one_done(&o);
}

static void
another_version_and_a_shifted_image_are_refused(void **state)
{
	struct image_header h;
	struct policy *p;
	struct one o;
	uint8_t *copy;

	(void)state;
	assert_true(one_make(&o, text, NULL, NULL, 0));
	copy = aligned_alloc(8, (o.len + 15) / 8 * 8);
	assert_non_null(copy);
	memcpy(copy + 4, o.image, o.len);
	assert_int_equal(policy_open(&p, span_of(copy + 4, o.len)),
	    -EBADMSG);
	memcpy(copy, o.image, o.len);
	memcpy(&h, copy, sizeof(h));
	h.version++;
	memcpy(copy, &h, sizeof(h));
	assert_int_equal(policy_open(&p, span_of(copy, o.len)), -EBADMSG);
	assert_int_equal(policy_open(&p, span_of(NULL, 0)), -EBADMSG);
	free(copy);
	one_done(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    any_byte_may_be_wrong_and_nothing_is_read_outside),
		cmocka_unit_test(a_cut_image_is_refused),
		cmocka_unit_test(
		    another_version_and_a_shifted_image_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
