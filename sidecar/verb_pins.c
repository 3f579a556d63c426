/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/host.h"
#include "sidecar/admin_client.h"

/* Which names have which addresses now, for each cell. */

#define PATH_BYTES (ADMIN_CLIENT_VALUE_BYTES + HOST_MAX_BYTES + 64)

struct asked {
	const char *admin, *config, *cell, *name;
	bool json;
	struct host host;
};

static int
read_options(int argc, char **argv, struct asked *a)
{
	const struct verb_option options[] = {
		{ "cell", 0, "ID", "one cell only", .text = &a->cell },
		{ "name", 0, "NAME", "one name only", .text = &a->name },
		{ "json", 0, NULL, "one JSON object for each",
		    .flag = &a->json },
		ADMIN_CLIENT_OPTIONS(a),
	};
	const struct verb v = {
		"pins", "",
		"Which names have which addresses now?  For root and the "
		"daemon's user, by an\nadmin listener unix:PATH.\n",
		"0, 2 usage, 69 no daemon answers or there is no such cell, "
		"77 not root and not\nthe daemon's user, or no socket, "
		"78 bad configuration, 1 failure",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	if (rc == VERB_GO && a->name != NULL && host_parse_policy(&a->host,
	    span_str(a->name)) != REASON_NONE)
		return verb_wrong(&v, "%s is no host name", a->name);
	if (rc == VERB_GO && a->cell != NULL &&
	    (a->cell[0] == '\0' || strlen(a->cell) > 255))
		return verb_wrong(&v, "%s is no cell", a->cell);
	return rc;
}

static const char *
text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : "-";
}

static void
print_pin(const struct asked *a, const json_t *o)
{
	long long left = (long long)json_integer_value(json_object_get(o,
	    "left_ms"));

	if (a->json) {
		(void)json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	printf("%-20s %-40s %-39s ", text(o, "cell"), text(o, "name"),
	    text(o, "address"));
	if (json_is_true(json_object_get(o, "live")))
		printf("%lld s\n", (left + 999) / 1000);
	else
		puts("ended");
}

/* One page of them; *from is where the next begins, -1: nowhere. */
static int
print_page(const struct asked *a, long long *from)
{
	static char body[ADMIN_CLIENT_BODY_BYTES];
	char path[PATH_BYTES], cell[ADMIN_CLIENT_VALUE_BYTES] = "";
	const json_t *pin, *next;
	json_t *o;
	size_t i;
	int rc;

	if (a->cell != NULL)
		admin_client_value(a->cell, cell);
	(void)snprintf(path, sizeof(path), "/pins?from=%lld%s%s%s%s", *from,
	    a->cell != NULL ? "&cell=" : "", cell,
	    a->name != NULL ? "&name=" : "", a->host.name);
	rc = admin_client_get(a->admin, path, body);
	if (rc != 200)
		return admin_client_refused("pins", a->admin, rc, body);
	o = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
	if (o == NULL) {
		admin_client_say("pins", a->admin, rc);
		return EXIT_UNAVAILABLE;
	}
	json_array_foreach(json_object_get(o, "pins"), i, pin)
		print_pin(a, pin);
	next = json_object_get(o, "next");
	/* a daemon that does not go on would be asked for ever */
	*from = json_integer_value(next) > *from ?
	    (long long)json_integer_value(next) : -1;
	json_decref(o);
	return 0;
}

int
verb_pins(int argc, char **argv)
{
	struct asked a = { .config = VERB_CONFIG };
	long long from = 0;
	int rc = read_options(argc, argv, &a);

	if (rc != VERB_GO)
		return rc;
	rc = admin_client_where(&a.admin, a.config);
	while (rc == 0 && from >= 0)
		rc = print_page(&a, &from);
	if (rc != 0)
		return rc;
	return fflush(stdout) == 0 ? 0 : EXIT_FAILURE;
}
