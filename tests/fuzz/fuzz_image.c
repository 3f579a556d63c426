/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that claim to be a compiled policy: either refused, or every
 * question stays inside them.  The input is a patch on a good image: pairs of
 * an offset (3 bytes) and a value, so that the fuzzer gets past the header. */
#include <stdlib.h>

#include "policy/charter.h"
#include "policy/decide.h"
#include "policy/policy.h"

#define NOW_S INT64_C(1790000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "network:\n  help: ask\n  lab: [203.0.113.0/24]\n"
    "  rule:\n"
    "    - {verdict: deny, hostname: b.a.example, reason: no}\n"
    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
    "    - {verdict: allow, cidr: 10.0.0.0/8, ports: [1, 3-9]}\n"
    "    - {verdict: deny, cidr: 10.1.0.0/16}\n";

static uint8_t *
good(size_t *len)
{
	struct problems *ps = problem_new();
	const struct charter *c = charter_load("f", span_str(text), true,
	    NULL, ps);
	struct policy_cell_source cell = { .id = "a", .charters = &c,
	    .n_charters = 1 };
	const struct policy_source src = { .cells = &cell, .n_cells = 1,
	    .now_s = NOW_S };
	uint8_t *image;

	if (c == NULL || policy_build(&src, &image, len, ps) != 0)
		abort();
	charter_free((struct charter *)(uintptr_t)c);
	problem_free(ps);
	return image;
}

static void
ask(const struct policy *p)
{
	const struct decide_at at = { .policy = p, .now_s = NOW_S };
	struct endpoint to = { .port = 443 };
	const struct host *names[1];
	struct cell_key key = { .listener = "x", .interface = "y" };
	struct cell_view v;
	struct rule_view r;
	struct decision d;
	enum reason why;
	unsigned asked = 0;
	struct host h;
	uint32_t i;

	if (!addr_parse(&to.addr, span_str("10.1.2.3")) ||
	    host_parse(&h, span_str("b.a.example")) != REASON_NONE)
		abort();
	names[0] = &h;
	d = decide_name(&at, &h, 443, &to);
	d = decide_addr(&at, &d, &to);
	d = decide_nameless(&at, &to, names, 1);
	asked += decide_opaque(&at, &to, names, 1, &d);
	asked += decide_port_open(&at, &to);
	asked += decide_question(&at, &h, &d);
	asked += decide_question_hides(&at, &h);
	(void)decide_nearest(&at, &h);
	(void)policy_cell_find(p, &key, &why);
	for (i = 0; i < policy_cells(p); i++)
		asked += policy_cell(p, i, NOW_S, &v);
	for (i = 0; i < policy_rules(p, 0); i++)
		asked += policy_rule(p, 0, i, &r);
	(void)asked;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *image;
	static size_t len;
	struct policy *p;
	uint8_t *copy;
	size_t i, at;

	if (image == NULL)
		image = good(&len);
	copy = malloc(len);
	if (copy == NULL)
		return 0;
	memcpy(copy, image, len);
	for (i = 0; i + 4 <= size; i += 4) {
		at = (size_t)data[i] << 16 | (size_t)data[i + 1] << 8 |
		    data[i + 2];
		copy[at % len] = data[i + 3];
	}
	if (policy_open(&p, span_of(copy, len)) == 0) {
		ask(p);
		policy_free(p);
	}
	free(copy);
	return 0;
}
