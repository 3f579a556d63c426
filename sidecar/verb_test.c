/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <time.h>

#include "policy/charter.h"
#include "policy/decide.h"
#include "sidecar/source.h"

#define SHOWN_BYTES 512

/* Counts over all cells. */
struct tally {
	size_t n, failed;
};

static void cell_test(const struct source *s, uint32_t cell,
    struct tally *t);
static int tally_end(const struct tally *t, const char *path);

int
verb_test(int argc, char **argv)
{
	const struct verb v = {
		"test", "[FILE]",
		"Compare the rules of a policy, or of all policies of a "
		"penstock.yaml, with the\nexpect: lists that stand beside "
		"them. Prints TAP. A deny without a port expects\nthat no "
		"port is open. Without FILE: " VERB_CONFIG "\n",
		"0 all met, 1 one was not or there is none, 2 usage, "
		"78 bad configuration",
		0, 1, NULL, 0
	};
	struct source *s = NULL;
	struct problems *ps;
	struct tally t = { 0 };
	const char *file;
	uint32_t i;
	int err, rc = verb_read(&v, argc, argv);

	if (rc != VERB_GO)
		return rc;
	file = optind < argc ? argv[optind] : VERB_CONFIG;
	ps = problem_new();
	if (ps == NULL)
		return EXIT_FAILURE;
	err = source_open(&s, file, (int64_t)time(NULL), ps);
	if (err == -EINVAL)
		problem_print(ps, stderr);
	else if (err != 0)
		source_say("test", file, err);
	for (i = 0; err == 0 && i < policy_cells(source_policy(s)); i++)
		cell_test(s, i, &t);
	problem_free(ps);
	source_free(s);
	if (err != 0)
		return err == -EINVAL ? EXIT_CONFIG : EXIT_FAILURE;
	return tally_end(&t, file);
}

static int
tally_end(const struct tally *t, const char *path)
{
	printf("1..%zu\n", t->n);
	if (t->n == 0)
		fprintf(stderr, "penstock test: %s has no expect: list\n",
		    path);
	return t->failed == 0 && t->n > 0 ? 0 : EXIT_FAILURE;
}

/* A name without a port: allowed when 443 is, denied when no port is. */
static bool
expect_met(const struct decide_at *at, const struct charter_expect *e,
    struct decision *d)
{
	struct endpoint to = { .port = 0 };
	struct host name;

	*d = (struct decision){ .reason = REASON_NAME_MALFORMED,
	    .rule = RULE_NONE };
	if (!source_target(e->what, &name, &to.addr, &to.port))
		return false;
	if (name.len == 0) {
		to.port = to.port != 0 ? to.port : 443;
		*d = decide_nameless(at, &to, NULL, 0);
	} else if (to.port == 0 && e->verdict == VERDICT_DENY) {
		return !decide_question(at, &name, d);
	} else {
		*d = decide_name(at, &name, to.port != 0 ? to.port : 443,
		    NULL);
		if (decide_nameless_protocol(to.port) != NULL)
			*d = decide_bytes(at, d, NULL);
	}
	return d->would == e->verdict;
}

/* "ID: ", or nothing where there is one cell alone. */
static void
cell_prefix(const struct policy *p, uint32_t cell, char *out, size_t size)
{
	struct cell_view v;

	out[0] = '\0';
	if (policy_cells(p) > 1 && policy_cell(p, cell, 0, &v))
		(void)snprintf(out, size, "%.*s: ", (int)v.id.len,
		    (const char *)v.id.data);
}

static void
expect_test(const struct decide_at *at, const struct charter_expect *e,
    struct tally *t)
{
	char cell[POLICY_ID_BYTES + 2], what[SHOWN_BYTES];
	struct decision d;
	bool met = expect_met(at, e, &d);

	cell_prefix(at->policy, at->cell, cell, sizeof(cell));
	t->n++;
	t->failed += met ? 0 : 1;
	printf("%sok %zu - %s%s %s", met ? "" : "not ", t->n, cell,
	    verdict_word(e->verdict),
	    span_print(span_str(e->what), what, sizeof(what)));
	if (!met)
		printf(" # %s:%u: %s: %s", e->at.file, e->at.line,
		    verdict_word(d.would), reason_text(d.reason));
	printf("\n");
}

static void
cell_test(const struct source *s, uint32_t cell, struct tally *t)
{
	const struct decide_at at = { .policy = source_policy(s),
	    .cell = cell, .now_s = (int64_t)time(NULL) };
	const struct charter *const *charters = NULL;
	const struct charter_expect *e;
	size_t i, k, n, n_charters;

	n_charters = source_charters(s, cell, &charters);
	for (i = 0; i < n_charters; i++) {
		e = charter_expects(charters[i], &n);
		for (k = 0; k < n; k++)
			expect_test(&at, &e[k], t);
	}
}
