/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "sidecar/admin_client.h"

/* For HEALTHCHECK and exec probes: exit 0 or 1, words on stdout. */

static int
usage(int status)
{
	fprintf(status == 0 ? stdout : stderr,
	    "usage: penstock health --live|--ready "
	    "[--admin ADDRESS:PORT|unix:PATH] [-c FILE]\n");
	return status;
}

struct asked {
	const char *path, *admin, *config;
};

static int
read_options(int argc, char **argv, struct asked *a)
{
	static const struct option options[] = {
		{ "live", no_argument, NULL, 'l' },
		{ "ready", no_argument, NULL, 'r' },
		{ "admin", required_argument, NULL, 'a' },
		{ "config", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		if (c == 'l')
			a->path = "/livez";
		else if (c == 'r')
			a->path = "/readyz?verbose";
		else if (c == 'a')
			a->admin = optarg;
		else if (c == 'c')
			a->config = optarg;
		else if (c == 'h')
			exit(usage(0));
		else
			return usage(EXIT_USAGE);
	}
	return a->path != NULL && optind == argc ? 0 : usage(EXIT_USAGE);
}

int
verb_health(int argc, char **argv)
{
	static char body[ADMIN_CLIENT_BODY_BYTES];
	static struct settings s;
	struct asked a = { .config = "/etc/penstock/penstock.yaml" };
	int rc = read_options(argc, argv, &a);

	if (rc == 0 && a.admin == NULL) {
		rc = admin_client_settings(a.config, &s);
		a.admin = s.admin;
	}
	if (rc != 0)
		return rc;
	rc = admin_client_get(a.admin, a.path, body);
	if (rc < 0) {
		fprintf(stderr, "penstock: %s: %s\n", a.admin,
		    strerror(-rc));
		return 1;
	}
	fputs(body, stdout);
	return rc == 200 ? 0 : 1;
}
