/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/host.h"
#include "sidecar/admin_client.h"

/* Have the resolver forget what it was told. */

struct asked {
	const char *admin, *config;
	bool json;
	char path[64 + HOST_MAX_BYTES];
};

/* The verb has one thing that it does yet, which is named all the same. */
static int
read_options(int argc, char **argv, struct asked *a)
{
	const struct verb_option options[] = {
		{ "json", 0, NULL, "as one JSON object", .flag = &a->json },
		ADMIN_CLIENT_OPTIONS(a),
	};
	const struct verb v = {
		"cache", "flush [NAME]",
		"Have the resolver forget its answers, or those of one "
		"name.\nPins stay.  For root and the daemon's user, by an "
		"admin listener\nunix:PATH.\n",
		"0, 2 usage, 69 no daemon answers or its resolver is away, "
		"77 not root and not\nthe daemon's user, or no socket, "
		"78 bad configuration, 1 failure",
		1, 2, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);
	struct host name = { .len = 0 };

	if (rc != VERB_GO)
		return rc;
	if (strcmp(argv[optind], "flush") != 0)
		return verb_wrong(&v, "there is no cache %s", argv[optind]);
	if (argv[optind + 1] != NULL && host_parse_policy(&name,
	    span_str(argv[optind + 1])) != REASON_NONE)
		return verb_wrong(&v, "%s is no host name; write one as "
		    "git.example, or none for all", argv[optind + 1]);
	(void)snprintf(a->path, sizeof(a->path), "/cache/flush%s%s",
	    name.len > 0 ? "?name=" : "", name.name);
	return VERB_GO;
}

int
verb_cache(int argc, char **argv)
{
	static char body[ADMIN_CLIENT_BODY_BYTES];
	struct asked a = { .config = VERB_CONFIG };
	json_t *o;
	int rc = read_options(argc, argv, &a);

	if (rc != VERB_GO)
		return rc;
	rc = admin_client_where(&a.admin, a.config);
	if (rc != 0)
		return rc;
	rc = admin_client_post(a.admin, a.path, body);
	if (rc != 200)
		return admin_client_refused("cache", a.admin, rc, body);
	o = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
	if (o == NULL || !json_is_integer(json_object_get(o, "flushed"))) {
		json_decref(o);
		admin_client_say("cache", a.admin, rc);
		return EXIT_UNAVAILABLE;
	}
	if (a.json)
		fputs(body, stdout);
	else
		printf("%lld answers flushed\n", (long long)
		    json_integer_value(json_object_get(o, "flushed")));
	json_decref(o);
	return fflush(stdout) == 0 ? 0 : EXIT_FAILURE;
}
