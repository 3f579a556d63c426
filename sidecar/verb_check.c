/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <time.h>

#include "policy/charter.h"
#include "policy/qtype.h"
#include "policy/rules.h"
#include "sidecar/settings.h"
#include "sidecar/source.h"

#define PORTS_BYTES 256
#define WILDCARDS_SHOWN 1000u

static void cell_print(const struct source *s, uint32_t cell);

int
verb_check(int argc, char **argv)
{
	bool quiet = false;
	const struct verb_option options[] = {
		{ "quiet", 'q', NULL, "problems only", .flag = &quiet },
	};
	const struct verb v = {
		"check", "[FILE]",
		"Read a policy or a penstock.yaml with its policies, say "
		"everything that is wrong\nwith it and print what would "
		"run. Without FILE: " VERB_CONFIG "\n",
		"0 good, 78 not good, 2 usage, 1 the file cannot be read",
		0, 1, options, 1
	};
	struct source *s = NULL;
	struct problems *ps;
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
	problem_print(ps, stderr);
	if (err != 0 && err != -EINVAL)
		source_say("check", file, err);
	for (i = 0; err == 0 && !quiet && i < policy_cells(source_policy(s));
	    i++)
		cell_print(s, i);
	if (err == 0 && !quiet)
		printf("%s: good: %zu warning%s\n", file,
		    problem_count(ps, PROBLEM_WARNING),
		    problem_count(ps, PROBLEM_WARNING) == 1 ? "" : "s");
	problem_free(ps);
	source_free(s);
	return err == 0 ? 0 : err == -EINVAL ? EXIT_CONFIG : EXIT_FAILURE;
}

static void
date_print(const char *before, int64_t until_s)
{
	time_t last = (time_t)(until_s - 86400);
	struct tm tm;

	if (gmtime_r(&last, &tm) != NULL)
		printf("%s%04d-%02d-%02d", before, tm.tm_year + 1900,
		    tm.tm_mon + 1, tm.tm_mday);
}

static void
rule_print(const struct policy *p, uint32_t cell, uint32_t rule)
{
	char ports[PORTS_BYTES], types[QTYPE_TEXT_BYTES];
	struct rule_view v;

	if (!policy_rule(p, cell, rule, &v))
		return;
	printf("  %4u  %-5s  %.*s  ports %s%s%s%s%s  id %.*s", rule + 1,
	    verdict_word(v.verdict), (int)v.subject.len,
	    (const char *)v.subject.data,
	    policy_rule_ports(p, cell, rule, ports, sizeof(ports)),
	    v.opaque ? "  tcp" : "", v.allow_private ? "  private" : "",
	    v.qtypes != 0 ? "  dns " : "", qtype_text(v.qtypes, types),
	    (int)v.id.len, (const char *)v.id.data);
	if (v.until_s != 0)
		date_print(v.until_s <= time(NULL) ? "  off since " :
		    "  until ", v.until_s);
	printf("%s\n", v.report ? "  reports only" : "");
}

/* For each wildcard one name that it matches and one that it does not. */
static void
wildcards_print(const struct rules *r)
{
	unsigned kinds, shown = 0;
	struct host name;
	size_t i, at;

	for (i = 0; i < r->n; i++)
		for (at = 0; shown < WILDCARDS_SHOWN &&
		    rules_pattern(&r->rule[i], &at, &name, &kinds);) {
			if (kinds == NAMES_EXACT)
				continue;
			shown++;
			printf("  %s%s matches %sa.%s, not %s%s\n",
			    kinds == NAMES_BELOW ? "*." : ".", name.name,
			    kinds == NAMES_BELOW ? "" : "itself and ",
			    name.name, kinds == NAMES_BELOW ? "" : "not",
			    name.name);
		}
}

/* Nothing is captured in mode cooperative, where strict cannot be had. */
static const char *
enforce_word(const struct source *s, const struct cell_view *v)
{
	const struct settings *mode = source_settings(s);

	return !v->enforce_strict || (mode != NULL &&
	    mode->mode == MODE_COOPERATIVE) ? "cooperative" : "strict";
}

static void
cell_print(const struct source *s, uint32_t cell)
{
	const struct policy *p = source_policy(s);
	const struct charter *const *charters = NULL;
	struct cell_view v;
	size_t i, n;
	uint32_t r;

	if (!policy_cell(p, cell, (int64_t)time(NULL), &v))
		return;
	n = source_charters(s, cell, &charters);
	printf("cell %.*s: default %s, enforce %s, %u rules\n",
	    (int)v.id.len, (const char *)v.id.data,
	    v.reports ? "report (not enforcing)" : "deny",
	    enforce_word(s, &v), policy_rules(p, cell));
	for (r = 0; r < policy_rules(p, cell); r++)
		rule_print(p, cell, r);
	for (i = 0; i < n; i++)
		wildcards_print(charter_rules(charters[i]));
}
