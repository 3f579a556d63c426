/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/parent.h"

#define RISKS_MAX 8u

/* Anything but the one word is a mistake. */
static bool
read_rules(const char *got, struct parent_options *o)
{
	o->rules_external = got != NULL;
	return got == NULL || strcmp(got, "external") == 0;
}

/* The one that is none, or NULL. */
static const char *
read_risks(const char *const *got, size_t n, struct parent_options *o)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(got[i], "shared-segment") == 0) {
			o->accept_shared_segment = true;
		} else if (strcmp(got[i], "not-proven") == 0) {
			o->accept_not_proven = true;
		} else {
			return got[i];
		}
	return NULL;
}

int
verb_serve(int argc, char **argv)
{
	const char *rules = NULL, *wrong, *risks[RISKS_MAX];
	size_t n_risks = 0;
	struct parent_options o = { 0 };
	const struct verb_option options[] = {
		{ "config", 'c', "FILE", "the configuration, or "
		    VERB_CONFIG, .text = &o.config },
		{ "rules", 0, "external", "somebody else holds the "
		    "kernel rules", .text = &rules },
		{ "accept-risk", 0, "shared-segment|not-proven", "cells told "
		    "apart by address alone; mode isolated",
		    .text = risks, .count = &n_risks, .max = RISKS_MAX },
	};
	const struct verb v = {
		"serve", "", "Run the daemon, in the foreground. Without -c "
		"RUNEWARD_EGRESS_POLICY, when set,\nis the whole "
		"configuration.\n",
		"0 it was told to end, 2 usage, 77 a privilege is missing, "
		"78 bad configuration\nor ledger.dir in use, 1 failure",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	if (rc != VERB_GO)
		return rc;
	if (!read_rules(rules, &o))
		return verb_wrong(&v, "--rules %s: only external", rules);
	wrong = read_risks(risks, n_risks, &o);
	if (wrong != NULL)
		return verb_wrong(&v, "--accept-risk %s: only shared-segment "
		    "or not-proven", wrong);
	if (o.config == NULL && getenv("RUNEWARD_EGRESS_POLICY") == NULL)
		o.config = VERB_CONFIG;
	return parent_run(&o);
}
