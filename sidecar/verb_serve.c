/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/parent.h"

/* Anything but the one word is a mistake. */
static bool
is_word(const char *option, const char *got, const char *want)
{
	if (got == NULL || strcmp(got, want) == 0)
		return true;
	fprintf(stderr, "penstock serve: --%s: only %s\n", option, want);
	return false;
}

int
verb_serve(int argc, char **argv)
{
	const char *rules = NULL, *risk = NULL;
	struct parent_options o = { 0 };
	const struct verb_option options[] = {
		{ "config", 'c', "FILE", "the configuration, or "
		    VERB_CONFIG, .text = &o.config },
		{ "rules", 0, "external", "somebody else holds the "
		    "kernel rules", .text = &rules },
		{ "accept-risk", 0, "shared-segment", "cells told apart by "
		    "address alone", .text = &risk },
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
	if (!is_word("rules", rules, "external") ||
	    !is_word("accept-risk", risk, "shared-segment"))
		return verb_usage(&v, EXIT_USAGE);
	o.rules_external = rules != NULL;
	o.accept_shared_segment = risk != NULL;
	if (o.config == NULL && getenv("RUNEWARD_EGRESS_POLICY") == NULL)
		o.config = VERB_CONFIG;
	return parent_run(&o);
}
