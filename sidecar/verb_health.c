/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <stdio.h>

#include "sidecar/admin_client.h"

/* For HEALTHCHECK and exec probes: exit 0 or 1, words on stdout. */

struct asked {
	const char *admin, *config;
	bool live, ready;
};

/* One of the two, so that a probe cannot mean the other one. */
static int
read_options(int argc, char **argv, struct asked *a)
{
	const struct verb_option options[] = {
		{ "live", 0, NULL, "does the parent turn?",
		    .flag = &a->live },
		{ "ready", 0, NULL, "is all there that a decision needs?",
		    .flag = &a->ready },
		ADMIN_CLIENT_OPTIONS(a),
	};
	const struct verb v = {
		"health", "--live|--ready",
		"Is the daemon live, is it ready?\n",
		"0 yes, 1 no or no daemon answers, 2 usage, "
		"78 bad configuration",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	return rc == VERB_GO && a->live == a->ready ?
	    verb_wrong(&v, "one of --live and --ready is needed") : rc;
}

int
verb_health(int argc, char **argv)
{
	static char body[ADMIN_CLIENT_BODY_BYTES];
	struct asked a = { .config = VERB_CONFIG };
	int rc = read_options(argc, argv, &a);

	if (rc != VERB_GO)
		return rc;
	rc = admin_client_where(&a.admin, a.config);
	if (rc != 0)
		return rc;
	rc = admin_client_get(a.admin,
	    a.live ? "/livez" : "/readyz?verbose", body);
	if (rc < 0) {
		admin_client_say("health", a.admin, rc);
		return 1;
	}
	fputs(body, stdout);
	return rc == 200 ? 0 : 1;
}
