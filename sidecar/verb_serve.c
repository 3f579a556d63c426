/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/parent.h"

static int
usage(void)
{
	fprintf(stderr, "usage: penstock serve [-c FILE] [--rules external] "
	    "[--accept-risk shared-segment]\n");
	return EXIT_USAGE;
}

int
verb_serve(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "rules", required_argument, NULL, 'r' },
		{ "accept-risk", required_argument, NULL, 'a' },
		{ NULL, 0, NULL, 0 },
	};
	struct parent_options o = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		if (c == 'c')
			o.config = optarg;
		else if (c == 'r' && strcmp(optarg, "external") == 0)
			o.rules_external = true;
		else if (c == 'a' && strcmp(optarg, "shared-segment") == 0)
			o.accept_shared_segment = true;
		else
			return usage();
	}
	if (optind != argc)
		return usage();
	if (o.config == NULL && getenv("RUNEWARD_EGRESS_POLICY") == NULL) {
		fprintf(stderr, "penstock serve: say -c FILE, or set "
		    "RUNEWARD_EGRESS_POLICY\n");
		return EXIT_USAGE;
	}
	return parent_run(&o);
}
