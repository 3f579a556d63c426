/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sidecar/admin_client.h"

/* What the daemon is doing, for a person or as JSON. */

struct asked {
	const char *admin, *config;
	bool json, dns;
};

static int
read_options(int argc, char **argv, struct asked *a)
{
	const struct verb_option options[] = {
		{ "json", 0, NULL, "as one JSON object", .flag = &a->json },
		ADMIN_CLIENT_OPTIONS(a),
	};
	const struct verb v = {
		"status", "[dns]", "What does the daemon do now, or its "
		"resolver?\n",
		"0, 2 usage, 69 no daemon answers, 78 bad configuration, "
		"1 failure",
		0, 1, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	if (rc != VERB_GO || argv[optind] == NULL)
		return rc;
	a->dns = strcmp(argv[optind], "dns") == 0;
	return a->dns ? rc : verb_wrong(&v, "there is no status of %s",
	    argv[optind]);
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

/* Each process of the daemon; one without a pid is away. */
static void
print_roles(const json_t *o)
{
	const json_t *roles = json_object_get(o, "roles"), *v;
	size_t i;

	json_array_foreach(roles, i, v) {
		printf("  process      %s %lld", text(v, "role"),
		    number(v, "index"));
		if (number(v, "pid") != 0)
			printf("  pid %lld", number(v, "pid"));
		else
			printf("  away");
		printf("%s", json_is_true(json_object_get(v, "ready")) ? "" :
		    ", NOT READY");
		if (number(v, "restarts") > 0)
			printf(", restarted %lld", number(v, "restarts"));
		putchar('\n');
	}
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
		printf("  NOT ENFORCING: %s\n", text(o, "not_enforcing"));
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
	print_roles(o);
	print_denied(o);
	print_checks(o);
}

/* ---- dns ---- */

static void
print_server(const json_t *o)
{
	printf("  resolver     %s", text(o, "resolver"));
	if (text(o, "zone")[0] != '\0')
		printf(" for %s", text(o, "zone"));
	printf("  %s%s\n    %lld tries, %lld answers, %lld timeouts, %lld "
	    "failures", json_is_true(json_object_get(o, "up")) ? "up" :
	    "DOWN", json_is_true(json_object_get(o, "tls")) ? ", tls" : "",
	    number(o, "tries"), number(o, "answers"), number(o, "timeouts"),
	    number(o, "failures"));
	if (number(o, "other_case") > 0)
		printf(", %lld in other letters' case",
		    number(o, "other_case"));
	if (number(o, "answers") > 0)
		printf("\n    mean %lld.%03lld ms", number(o, "mean_us") / 1000,
		    number(o, "mean_us") % 1000);
	if (number(o, "p50_within_ms") > 0)
		printf(", half within %lld ms", number(o, "p50_within_ms"));
	if (number(o, "p99_within_ms") > 0)
		printf(", 99%% within %lld ms", number(o, "p99_within_ms"));
	putchar('\n');
}

static void
print_cells(const json_t *pins)
{
	const json_t *cells = json_object_get(pins, "cells"), *v;
	size_t i;

	if (cells == NULL)
		printf("    cells: for root and the daemon's user only, by "
		    "admin: unix:PATH\n");
	json_array_foreach(cells, i, v)
		printf("    %-20s %lld, of its own %lld, at most %lld\n",
		    text(v, "cell"), number(v, "used"), number(v, "own"),
		    number(v, "most"));
	if (number(pins, "cells_not_shown") > 0)
		printf("    and %lld cells more\n",
		    number(pins, "cells_not_shown"));
}

static void
print_dns(const json_t *o)
{
	const json_t *servers = json_object_get(o, "servers"), *v;
	const json_t *cache = json_object_get(o, "cache");
	const json_t *pins = json_object_get(o, "pins");
	const json_t *tunnels = json_object_get(o, "tunnels");
	size_t i;

	if (!json_is_true(json_object_get(o, "fresh")))
		printf("THE RESOLVER IS AWAY: this is of %lld s ago\n",
		    number(o, "age_ms") / 1000);
	json_array_foreach(servers, i, v)
		print_server(v);
	printf("  asked        %lld questions upstream\n",
	    number(o, "asked"));
	printf("  cache        %lld answers, %lld of %lld bytes, %lld hits, "
	    "%lld misses\n", number(cache, "entries"),
	    number(cache, "bytes"), number(cache, "limit_bytes"),
	    number(cache, "hits"), number(cache, "misses"));
	printf("  pins         %lld of %lld places\n", number(pins, "used"),
	    number(pins, "limit"));
	print_cells(pins);
	printf("  tunnels      %lld domains suspected now, %lld so far\n",
	    number(tunnels, "suspected"), number(tunnels, "total"));
}

int
verb_status(int argc, char **argv)
{
	static char body[ADMIN_CLIENT_BODY_BYTES];
	struct asked a = { .config = VERB_CONFIG };
	json_error_t err;
	json_t *o;
	int rc = read_options(argc, argv, &a);

	if (rc != VERB_GO)
		return rc;
	rc = admin_client_where(&a.admin, a.config);
	if (rc != 0)
		return rc;
	rc = admin_client_get(a.admin, a.dns ? "/status/dns" : "/status",
	    body);
	if (rc != 200) {
		admin_client_say("status", a.admin, rc);
		return EXIT_UNAVAILABLE;
	}
	if (a.json) {
		fputs(body, stdout);
		return 0;
	}
	o = json_loads(body, JSON_REJECT_DUPLICATES, &err);
	if (o == NULL) {
		fprintf(stderr, "penstock status: %s: %s\n", a.admin,
		    err.text);
		return EXIT_UNAVAILABLE;
	}
	(a.dns ? print_dns : print_table)(o);
	json_decref(o);
	return 0;
}
