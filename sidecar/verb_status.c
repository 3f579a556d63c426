/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sidecar/admin_client.h"

/* What the daemon is doing, for a person or as JSON. */

static int
usage(int status)
{
	fprintf(status == 0 ? stdout : stderr,
	    "usage: penstock status [--json] "
	    "[--admin ADDRESS:PORT|unix:PATH] [-c FILE]\n");
	return status;
}

struct asked {
	const char *admin, *config;
	bool json;
};

static int
read_options(int argc, char **argv, struct asked *a)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "admin", required_argument, NULL, 'a' },
		{ "config", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		if (c == 'j')
			a->json = true;
		else if (c == 'a')
			a->admin = optarg;
		else if (c == 'c')
			a->config = optarg;
		else if (c == 'h')
			exit(usage(0));
		else
			return usage(EXIT_USAGE);
	}
	return optind == argc ? 0 : usage(EXIT_USAGE);
}

static const char *
text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : "-";
}

static long long
number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void
print_denied(const json_t *o)
{
	json_t *denied = json_object_get(o, "denied"), *v;
	const char *key;

	json_object_foreach(denied, key, v)
		printf("  denied       %-22s %lld\n", key,
		    (long long)json_integer_value(v));
}

static void
print_checks(const json_t *o)
{
	json_t *checks = json_object_get(o, "checks"), *v;
	const char *key;

	json_object_foreach(checks, key, v)
		if (!json_is_true(v))
			printf("  check        %-22s failed\n", key);
}

static void
print_table(const json_t *o)
{
	long long up = (long long)time(NULL) - number(o, "started");

	printf("penstock %s  %s  mode %s  up %lld s\n", text(o, "version"),
	    json_is_true(json_object_get(o, "ready")) ? "ready" :
	    "NOT READY", text(o, "mode"), up);
	if (!json_is_true(json_object_get(o, "enforcing")))
		printf("  NOT ENFORCING\n");
	printf("  policy       generation %lld  %.16s\n",
	    number(o, "generation"), text(o, "digest"));
	printf("  engines      %lld of %lld ready, roles restarted %lld\n",
	    number(o, "engines_ready"), number(o, "engines"),
	    number(o, "restarts"));
	printf("  connections  %lld open, %lld accepted, %lld allowed\n",
	    number(o, "connections_open"), number(o, "accepted"),
	    number(o, "allowed"));
	printf("  bytes        %lld up, %lld down\n", number(o, "bytes_up"),
	    number(o, "bytes_down"));
	printf("  records      %lld\n", number(o, "records"));
	print_denied(o);
	print_checks(o);
}

int
verb_status(int argc, char **argv)
{
	static char body[ADMIN_CLIENT_BODY_BYTES];
	static struct settings s;
	struct asked a = { .config = "/etc/penstock/penstock.yaml" };
	json_error_t err;
	json_t *o;
	int rc = read_options(argc, argv, &a);

	if (rc == 0 && a.admin == NULL) {
		rc = admin_client_settings(a.config, &s);
		a.admin = s.admin;
	}
	if (rc != 0)
		return rc;
	rc = admin_client_get(a.admin, "/status", body);
	if (rc != 200) {
		fprintf(stderr, "penstock: %s: %s\n", a.admin,
		    rc < 0 ? strerror(-rc) : "no status");
		return EXIT_UNAVAILABLE;
	}
	if (a.json) {
		fputs(body, stdout);
		return 0;
	}
	o = json_loads(body, JSON_REJECT_DUPLICATES, &err);
	if (o == NULL) {
		fprintf(stderr, "penstock: %s: %s\n", a.admin, err.text);
		return EXIT_UNAVAILABLE;
	}
	print_table(o);
	json_decref(o);
	return 0;
}
