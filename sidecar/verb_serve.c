/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/parent.h"

static int
usage(int status)
{
	fprintf(status == 0 ? stdout : stderr,
	    "usage: penstock serve [-c FILE] [--rules external] "
	    "[--accept-risk shared-segment]\n");
	return status;
}

int
verb_serve(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "rules", required_argument, NULL, 'r' },
		{ "accept-risk", required_argument, NULL, 'a' },
		{ "help", no_argument, NULL, 'h' },
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
		else if (c == 'h')
			exit(usage(0));
		else
			return usage(EXIT_USAGE);
	}
	if (optind != argc)
		return usage(EXIT_USAGE);
	if (o.config == NULL && getenv("RUNEWARD_EGRESS_POLICY") == NULL) {
		fprintf(stderr, "penstock serve: say -c FILE, or set "
		    "RUNEWARD_EGRESS_POLICY\n");
		return EXIT_USAGE;
	}
	return parent_run(&o);
}
