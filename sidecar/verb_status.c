/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "sidecar/admin_client.h"

/* What the daemon is doing, for a person or as JSON. */

struct asked {
	const char *admin, *config;
	bool json;
};

static int
read_options(int argc, char **argv, struct asked *a)
{
	const struct verb_option options[] = {
		{ "json", 0, NULL, "as one JSON object", .flag = &a->json },
		ADMIN_CLIENT_OPTIONS(a),
	};
	const struct verb v = {
		"status", "", "What does the daemon do now?\n",
		"0, 2 usage, 69 no daemon answers, 78 bad configuration, "
		"1 failure",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};

	return verb_read(&v, argc, argv);
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
	rc = admin_client_get(a.admin, "/status", body);
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
	print_table(o);
	json_decref(o);
	return 0;
}
