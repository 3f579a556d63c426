/* SPDX-License-Identifier: Apache-2.0 */
/* Charters to image: what is refused of cells and rules together, and what the
 * image holds of them. */
#include "tests/policy/one.h"

#include "policy/image.h"

#define NET "network:\n  resolvers: [198.18.0.1]\n"
#define RULES NET "  rule:\n    - {verdict: allow, hostname: a.example}\n"

static struct problems *ps;
static struct charter *loaded[8];
static size_t n_loaded;
static char said[16384];

static int
up(void **state)
{
	(void)state;
	ps = problem_new();
	n_loaded = 0;
	return ps == NULL;
}

static int
down(void **state)
{
	(void)state;
	while (n_loaded > 0)
		charter_free(loaded[--n_loaded]);
	problem_free(ps);
	return 0;
}

static const struct charter *
load(const char *file, const char *text, bool base)
{
	struct charter *c = charter_load(file, span_str(text), base, NULL,
	    ps);

	assert_non_null(c);
	loaded[n_loaded++] = c;
	return c;
}

static struct policy_cell_source
cell(const char *id, const struct charter *const *list, size_t n)
{
	struct policy_cell_source c = { .charters = list, .n_charters = n,
	    .at = { "penstock.yaml", 7, 3 } };

	snprintf(c.id, sizeof(c.id), "%s", id);
	return c;
}

static int
build(const struct policy_cell_source *cells, size_t n, uint8_t **image,
    size_t *len)
{
	struct policy_source src = { .cells = cells, .n_cells = n,
	    .generation = 42, .digest = { 1, 2, 3 },
	    .settings = span_str("settings"), .now_s = NOW_S };
	FILE *to;
	int err;

	*image = NULL;
	err = policy_build(&src, image, len, ps);
	memset(said, 0, sizeof(said));
	to = fmemopen(said, sizeof(said) - 1, "w");
	problem_print(ps, to);
	(void)fclose(to);
	return err;
}

/* Refused, in these words. */
static void
refused(const struct policy_cell_source *cells, size_t n, const char *words)
{
	uint8_t *image;
	size_t len;

	assert_int_equal(build(cells, n, &image, &len), -EINVAL);
	assert_null(image);
	if (strstr(said, words) == NULL)
		fail_msg("no \"%s\" in: %s", words, said);
}

static void
refused_alone(const char *text, const char *words)
{
	const struct charter *list[] = { load("p.yaml", text, true) };
	struct policy_cell_source c = cell("a", list, 1);

	refused(&c, 1, words);
}

/* Made, with these words to it, or with none. */
static void
made_alone(const char *text, const char *words)
{
	const struct charter *list[] = { load("p.yaml", text, true) };
	struct policy_cell_source c = cell("a", list, 1);
	uint8_t *image;
	size_t len;

	if (build(&c, 1, &image, &len) != 0)
		fail_msg("%s", said);
	if (words == NULL ? said[0] != '\0' : strstr(said, words) == NULL)
		fail_msg("not \"%s\": %s", words == NULL ? "" : words, said);
	free(image);
}

/* ---- cells ---- */

static void
the_number_of_cells_has_bounds(void **state)
{
	static struct policy_cell_source cells[POLICY_CELLS_MAX + 1];
	const struct charter *list[] = { load("p.yaml", RULES, true) };
	uint8_t *image;
	size_t len;

	(void)state;
	for (size_t i = 0; i <= POLICY_CELLS_MAX; i++) {
		cells[i] = cell("", list, 1);
		snprintf(cells[i].id, sizeof(cells[i].id), "c%zu", i);
	}
	refused(cells, 0, "there are 0 cells; 1 to 4096 are possible");
	refused(cells, POLICY_CELLS_MAX + 1, "there are 4097 cells");
	assert_int_equal(build(cells, POLICY_CELLS_MAX, &image, &len), 0);
	/* they share one set of rules */
	assert_int_equal(image_head(span_of(image, len))->sets.len, 1);
	assert_true(len < POLICY_CELLS_MAX * 4096u);
	free(image);
}

static void
all_that_is_wrong_with_cells_is_told_at_once(void **state)
{
	const struct charter *list[] = { load("p.yaml", RULES, true) };
	struct policy_cell_source cells[] = { cell("a", list, 1),
	    cell("two words", list, 1), cell("b", NULL, 0),
	    cell("a", list, 1), cell("", list, 1) };

	(void)state;
	refused(cells, 5, "penstock.yaml:7:3: error: the id of a cell is not "
	    "a word; use 1 to 63 of A-Z a-z 0-9 . _ : / @ -");
	assert_non_null(strstr(said, "a cell has no policy; name at least "
	    "one policy file"));
	assert_non_null(strstr(said, "two cells have the id \"a\"; give each "
	    "cell its own id"));
}

static void
a_cell_of_other_resolvers_is_named(void **state)
{
	const struct charter *a[] = { load("a.yaml", RULES, true) };
	const struct charter *b[] = { load("b.yaml", "network:\n"
	    "  resolvers: [198.18.0.1, 198.18.0.2]\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example}\n", true) };
	const struct charter *c[] = { load("c.yaml", "network:\n"
	    "  resolvers: [\"198.18.0.1:5353\"]\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example}\n", true) };
	struct policy_cell_source cells[] = { cell("one", a, 1),
	    cell("more", b, 1) };

	(void)state;
	refused(cells, 2, "b.yaml:2:14: error: cell \"more\" names other "
	    "resolvers than the cells before it; name the same resolvers in "
	    "the first file of every cell");
	cells[1] = cell("port", c, 1);
	refused(cells, 2, "c.yaml:2:14: error: cell \"port\" names other");
}

static void
more_addresses_of_its_own_than_fit_are_refused(void **state)
{
	static struct endpoint own[POLICY_OWN_MAX + 1];
	const struct charter *list[] = { load("p.yaml", RULES, true) };
	struct policy_cell_source c = cell("a", list, 1);
	struct policy_source src = { .cells = &c, .n_cells = 1, .own = own,
	    .n_own = POLICY_OWN_MAX, .n_gateways = 1, .now_s = NOW_S };
	const struct image_header *h;
	uint8_t *image;
	size_t len;

	(void)state;
	for (size_t i = 0; i < POLICY_OWN_MAX; i++)
		own[i] = one_endpoint("198.18.0.1", (uint16_t)(i + 1));
	assert_int_equal(policy_build(&src, &image, &len, ps), 0);
	h = image_head(span_of(image, len));
	assert_int_equal(h->own.len, POLICY_OWN_MAX);
	assert_int_equal(h->n_gateways, 1);
	assert_memory_equal(image + h->own.at, own, sizeof(own) -
	    sizeof(own[0]));
	free(image);
	src.n_own++;
	assert_int_equal(policy_build(&src, &image, &len, ps), -EINVAL);
	src.n_own = 1;
	src.n_gateways = 2;
	assert_int_equal(policy_build(&src, &image, &len, ps), -EINVAL);
}

/* ---- rules ---- */

static void
ids_of_rules_are_unique_over_the_files_of_a_cell(void **state)
{
	const struct charter *list[] = {
	    load("base.yaml", NET "  rule:\n    - {verdict: allow, "
	    "hostname: a.example, id: web}\n", true),
	    load("team.yaml", "network:\n  rule:\n    - {verdict: allow, "
	    "hostname: b.example, id: web}\n", false) };
	struct policy_cell_source both = cell("both", list, 2);
	struct policy_cell_source one = cell("one", list, 1);
	uint8_t *image;
	size_t len;

	(void)state;
	assert_int_equal(build(&one, 1, &image, &len), 0);
	free(image);
	refused(&both, 1, "team.yaml:3:7: error: two rules have the id "
	    "\"web\"; give one of them another id");
}

static void
an_opaque_service_has_a_port_of_its_own(void **state)
{
	(void)state;
	refused_alone(NET "  rule:\n"
	    "    - {verdict: allow, hostname: a.example, ports: [5432], "
	    "protocol: tcp}\n"
	    "    - {verdict: allow, hostname: b.example, ports: [5000-6000]}\n",
	    "p.yaml:4:7: error: protocol: tcp on a port that a rule opens to "
	    "a name");
	down(NULL);
	up(NULL);
	made_alone(NET "  rule:\n"
	    "    - {verdict: allow, hostname: a.example, ports: [5432], "
	    "protocol: tcp}\n"
	    "    - {verdict: allow, hostname: b.example, ports: [5433]}\n"
	    "    - {verdict: deny, hostname: c.example}\n", NULL);
}

static void
a_policy_that_opens_nothing_is_refused(void **state)
{
	(void)state;
	refused_alone(NET "  rule:\n    - {verdict: deny, hostname: "
	    "a.example}\n", "p.yaml:1:1: error: no rule allows anything, so "
	    "the policy opens nothing; add a rule with verdict: allow");
}

/* What the clock alone has done is no error: other cells would not get their
 * next policy either. */
static void
a_policy_whose_rules_are_over_is_made(void **state)
{
	(void)state;
	made_alone(NET "  rule:\n    - {verdict: allow, hostname: a.example, "
	    "until: 2026-09-20}\n", "p.yaml:1:1: warning: each rule that "
	    "allows is over, so the policy opens nothing");
	assert_non_null(strstr(said, "p.yaml:4:7: note: allow a.example is "
	    "switched off: its until: is over"));
	/* on its last day it is not over */
	down(NULL);
	up(NULL);
	made_alone(NET "  rule:\n    - {verdict: allow, hostname: a.example, "
	    "until: 2026-09-21}\n", NULL);
}

static void
a_report_has_an_end_that_is_near(void **state)
{
	(void)state;
	made_alone(NET "  default: report\n  report_until: 2026-10-01\n"
	    "  rule:\n    - {verdict: allow, hostname: a.example}\n",
	    "p.yaml:3:12: warning: not enforcing: what no rule matches is "
	    "allowed and reported");
	down(NULL);
	up(NULL);
	made_alone(NET "  default: report\n  report_until: 2026-09-01\n"
	    "  rule:\n    - {verdict: allow, hostname: a.example}\n",
	    "warning: report_until is over: what no rule matches is denied");
	down(NULL);
	up(NULL);
	refused_alone(NET "  default: report\n  report_until: 2027-03-01\n"
	    "  rule:\n    - {verdict: allow, hostname: a.example}\n",
	    "error: report_until is more than 90 days ahead; name a date "
	    "within 90 days");
}

static void
a_port_whose_protocol_shows_no_name_is_warned_of(void **state)
{
	(void)state;
	made_alone(NET "  rule:\n    - {verdict: allow, hostname: a.example, "
	    "ports: [22]}\n", "p.yaml:4:7: warning: allow a.example on port "
	    "22 carries TLS and HTTP only; ");
	down(NULL);
	up(NULL);
	/* a wide range was not meant for it */
	made_alone(NET "  rule:\n    - {verdict: allow, hostname: a.example, "
	    "ports: [1-1000]}\n", NULL);
	made_alone(NET "  rule:\n    - {verdict: allow, hostname: a.example, "
	    "ports: [22], protocol: tcp}\n", NULL);
	made_alone(NET "  rule:\n    - {verdict: allow, cidr: 192.0.2.0/24, "
	    "ports: [22]}\n", NULL);
}

/* A file with an error makes nothing, and the others are looked at. */
static void
what_else_is_wrong_is_told_with_an_error_of_a_file(void **state)
{
	const struct charter *list[] = { load("bad.yaml", NET "  rule:\n"
	    "    - {verdict: perhaps, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: b.example, id: x}\n"
	    "    - {verdict: allow, hostname: c.example, id: x}\n", true) };
	struct policy_cell_source c = cell("a", list, 1);

	(void)state;
	refused(&c, 1, "two rules have the id \"x\"");
	assert_non_null(strstr(said, "bad.yaml:4:"));
}

/* Nor is anything said of the rules that could not be read. */
static void
a_file_with_an_error_makes_nothing(void **state)
{
	static const char *const files[] = {
		NET "  rule:\n    - {verdict: perhaps, hostname: a.example}\n",
		NET "  rule:\n    - {verdict: perhaps, hostname: a.example}\n"
		    "    - {verdict: allow, hostname: b.example}\n",
	};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		down(NULL);
		up(NULL);
		refused_alone(files[i], "p.yaml:4:");
		assert_null(strstr(said, "opens nothing"));
		assert_int_equal(problem_count(ps, PROBLEM_ERROR), 1);
	}
	/* also for who has told of it before */
	down(NULL);
	up(NULL);
	{
		const struct charter *list[] = { load("p.yaml", files[1],
		    true) };
		struct policy_cell_source c = cell("a", list, 1);

		problem_free(ps);
		ps = problem_new();
		refused(&c, 1, "");
		assert_int_equal(problem_count(ps, PROBLEM_ERROR), 0);
	}
}

/* ---- the image ---- */

static void
an_image_holds_what_was_written(void **state)
{
	const struct charter *list[] = { load("p.yaml", NET
	    "  help: ask us\n  ech: deny\n  no_sni: pinned-ip\n"
	    "  lab: [203.0.113.0/24]\n  rule:\n"
	    "    - {verdict: deny, hostname: b.a.example, reason: no, id: d}\n"
	    "    - {verdict: allow, hostname: '*.a.example', owner: us}\n"
	    "    - {verdict: allow, cidr: 10.0.0.0/8, ports: [1, 3-9, 80]}\n"
	    "    - {verdict: allow, cidr: 10.0.0.1/32, ports: any}\n"
	    "    - {verdict: allow, hostname: db.example, ports: [5432], "
	    "protocol: tcp, allow_private: true}\n", true) };
	struct policy_cell_source c = cell("a", list, 1);
	const struct image_header *h;
	const struct image_rule *r;
	const struct image_set *s;
	const uint32_t *deny;
	struct span all;
	uint8_t *image;
	size_t len;

	(void)state;
	assert_int_equal(build(&c, 1, &image, &len), 0);
	all = span_of(image, len);
	assert_true(image_check(all));
	h = image_head(all);
	assert_int_equal(h->size, len);
	assert_int_equal(h->generation, 42);
	assert_int_equal(h->digest[1], 2);
	assert_int_equal(h->n_resolvers, 1);
	assert_int_equal(h->resolvers[0].at.port, 53);
	s = image_sets(all);
	assert_true(s->ech_denied && s->no_sni_pinned);
	assert_int_equal(s->n_lab, 1);
	assert_true(span_eq(image_text(all, s->help), span_str("ask us")));
	assert_int_equal(s->rules.len, 5);
	r = image_rules(all, s);
	assert_int_equal(r[0].flags, 0);
	assert_int_equal(r[1].flags, IMAGE_RULE_ALLOW);
	assert_int_equal(r[4].flags, IMAGE_RULE_ALLOW | IMAGE_RULE_OPAQUE |
	    IMAGE_RULE_ALLOW_PRIVATE);
	assert_int_equal(r[4].line, 12);
	assert_true(span_eq(image_text(all, r[0].reason), span_str("no")));
	assert_true(span_eq(image_text(all, r[1].owner), span_str("us")));
	assert_int_equal(r[2].ports.len, 3);
	assert_int_equal(image_ports(all, &r[2])[1].hi, 9);
	/* the rules that deny a name */
	assert_int_equal(s->denies.len, 1);
	deny = (const void *)(image + s->denies.at);
	assert_int_equal(deny[0], 0);
	/* where names are read, and where nothing is */
	for (unsigned port = 0; port < 65536; port++) {
		bool named = port == 80 || port == 443;
		bool opaque = port == 5432 || port == 1 ||
		    (port >= 3 && port <= 9);

		assert_int_equal(image_port_bit(all, s->named_ports,
		    (uint16_t)port), named);
		assert_int_equal(image_port_bit(all, s->opaque_ports,
		    (uint16_t)port), opaque);
	}
	free(image);
}

/* No address and no chance is in it, but for the index of names: that is of a
 * seed that nobody knows. */
static void
the_same_sources_make_the_same_image(void **state)
{
	const struct charter *list[] = { load("p.yaml", RULES, true) };
	const struct charter *again[] = { load("p.yaml", RULES, true) };
	struct policy_cell_source c = cell("a", list, 1);
	struct policy_cell_source d = cell("a", again, 1);
	struct image_part names;
	uint8_t *image, *other;
	size_t len, other_len, rest;

	(void)state;
	assert_int_equal(build(&c, 1, &image, &len), 0);
	assert_int_equal(build(&d, 1, &other, &other_len), 0);
	assert_int_equal(len, other_len);
	names = image_sets(span_of(image, len))->names;
	assert_memory_not_equal(image + names.at, other + names.at,
	    names.len);
	assert_memory_equal(image, other, names.at);
	rest = names.at + names.len;
	assert_memory_equal(image + rest, other + rest, len - rest);
	free(image);
	free(other);
}

/* Cells share a set of rules where their files are the same in order. */
static void
other_files_or_another_order_are_another_set(void **state)
{
	const struct charter *a = load("a.yaml", RULES, true);
	const struct charter *b = load("b.yaml", "network:\n  rule:\n"
	    "    - {verdict: allow, hostname: b.example}\n", false);
	const struct charter *c = load("c.yaml", "network:\n  rule:\n"
	    "    - {verdict: allow, hostname: c.example}\n", false);
	const struct charter *alone[] = { a }, *bc[] = { a, b, c },
	    *cb[] = { a, c, b }, *same[] = { a, b, c };
	struct policy_cell_source cells[] = { cell("1", alone, 1),
	    cell("2", bc, 3), cell("3", cb, 3), cell("4", same, 3) };
	const struct image_cell *got;
	struct span all;
	uint8_t *image;
	size_t len;

	(void)state;
	assert_int_equal(build(cells, 4, &image, &len), 0);
	all = span_of(image, len);
	assert_int_equal(image_head(all)->sets.len, 3);
	got = image_cells(all);
	assert_int_equal(got[0].set, 0);
	assert_int_equal(got[1].set, 1);
	assert_int_equal(got[2].set, 2);
	assert_int_equal(got[3].set, 1);
	/* the order of the files is that of the rules */
	assert_true(span_eq(image_text(all, image_rules(all,
	    &image_sets(all)[2])[1].subject), span_str("c.example")));
	free(image);
}

/* ---- names that are not held twice ---- */

#define MANY 120000u

static struct one_file
many_names(void)
{
	char *text = malloc(MANY * 24 + 1), *at = text;

	assert_non_null(text);
	for (unsigned i = 0; i < MANY; i++)
		at += snprintf(at, 24, "host-%06u.b.example\n", i);
	return (struct one_file){ "n.txt", text, 65536 };
}

/* Two cells read the file, the second in another set: what the first makes of
 * it must leave it to the second. */
static void
names_are_given_back_by_their_last_reader(void **state)
{
	static const char text[] = NET "  rule:\n"
	    "    - {verdict: allow, hostnames_file: n.txt}\n";
	struct one_file f = many_names();
	struct charter_reader reader = { one_read, &f };
	struct charter *big = charter_load("p.yaml", span_str(text), true,
	    &reader, ps);
	const struct charter *more = load("more.yaml", "network:\n  rule:\n"
	    "    - {verdict: allow, hostname: more.example}\n", false);
	const struct charter *one[] = { big }, *two[] = { big, more };
	struct policy_cell_source cells[] = { cell("1", one, 1),
	    cell("2", two, 2), cell("3", one, 1) };
	struct policy_source src = { .cells = cells, .n_cells = 3,
	    .now_s = NOW_S };
	uint8_t *image[2] = { NULL, NULL };
	size_t len[2] = { 0, 1 };
	struct policy *p;

	(void)state;
	assert_non_null(big);
	assert_int_equal(policy_build(&src, &image[0], &len[0], ps), 0);
	src.spend_names = true;
	assert_int_equal(policy_build(&src, &image[1], &len[1], ps), 0);
	assert_int_equal(len[0], len[1]);
	assert_int_equal(policy_open(&p, span_of(image[1], len[1])), 0);
	for (uint32_t i = 0; i < 3 * MANY; i += 7) {
		struct decide_at at = { .policy = p, .cell = i / MANY,
		    .now_s = NOW_S };
		char name[32];
		struct host h;

		snprintf(name, sizeof(name), "host-%06u.b.example", i % MANY);
		h = one_host(name);
		assert_int_equal(decide_name(&at, &h, 443, NULL).verdict,
		    VERDICT_ALLOW);
		h.name[0] = 'x';
		assert_int_equal(decide_name(&at, &h, 443, NULL).verdict,
		    VERDICT_DENY);
	}
	policy_free(p);
	free(image[0]);
	free(image[1]);
	charter_free(big);
	free((void *)(uintptr_t)f.text);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_number_of_cells_has_bounds),
		T(all_that_is_wrong_with_cells_is_told_at_once),
		T(a_cell_of_other_resolvers_is_named),
		T(more_addresses_of_its_own_than_fit_are_refused),
		T(ids_of_rules_are_unique_over_the_files_of_a_cell),
		T(an_opaque_service_has_a_port_of_its_own),
		T(a_policy_that_opens_nothing_is_refused),
		T(a_policy_whose_rules_are_over_is_made),
		T(a_report_has_an_end_that_is_near),
		T(a_port_whose_protocol_shows_no_name_is_warned_of),
		T(what_else_is_wrong_is_told_with_an_error_of_a_file),
		T(a_file_with_an_error_makes_nothing),
		T(an_image_holds_what_was_written),
		T(the_same_sources_make_the_same_image),
		T(other_files_or_another_order_are_another_set),
		T(names_are_given_back_by_their_last_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
