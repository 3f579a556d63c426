/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "policy/span.h"
#include "sidecar/role.h"
#include "sidecar/verb.h"

/* One row for each verb: the table that --help prints and the manual has. */
static const struct row {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *line;
} verbs[] = {
	{ "serve", verb_serve, "run the daemon" },
	{ "check", verb_check, "is this configuration or policy sound?" },
	{ "explain", verb_explain, "why is this destination allowed or not?" },
	{ "test", verb_test, "do the policy's expectations hold?" },
	{ "diff", verb_diff, "what would a new policy open or close?" },
	{ "rules", verb_rules, "print, apply, check, remove kernel rules" },
	{ "status", verb_status, "what does the daemon do now?" },
	{ "pins", verb_pins, "which names have which addresses now?" },
	{ "cache", verb_cache, "have the resolver forget its answers" },
	{ "tail", verb_tail, "show records as they are written" },
	{ "health", verb_health, "is the daemon live, is it ready?" },
	{ "env", verb_env, "print the proxy variables for a cell" },
	{ "token", verb_token, "make a proxy credential for a cell" },
	{ "schema", verb_schema, "print the JSON Schema of a file" },
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void
help(FILE *to)
{
	fprintf(to, "usage: penstock VERB [option ...]\n\n");
	for (size_t i = 0; i < VERBS; i++)
		fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].line);
	fprintf(to, "  %-8s %s\n", "version", "print the version");
	fprintf(to, "\nsee penstock(1)\n");
}

/* Exit handlers of libraries may do what a confined process cannot. */
static _Noreturn void
confined_exit(int status)
{
	fflush(NULL);
	_exit(status);
}

int
main(int argc, char **argv)
{
	char shown[64];
	const char *verb = argc > 1 ? argv[1] : "";

	if (strcmp(verb, "role") == 0)
		confined_exit(role_main(argc - 1, argv + 1));
	if (strcmp(verb, "serve") == 0)
		confined_exit(verb_serve(argc - 1, argv + 1));
	if (strcmp(verb, "version") == 0 || strcmp(verb, "--version") == 0) {
		printf("penstock %s\n", PENSTOCK_VERSION);
		return 0;
	}
	if (strcmp(verb, "help") == 0 || strcmp(verb, "--help") == 0 ||
	    strcmp(verb, "-h") == 0) {
		help(stdout);
		return 0;
	}
	for (size_t i = 0; i < VERBS; i++)
		if (strcmp(verb, verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
	if (argc > 1)
		fprintf(stderr, "penstock: there is no verb \"%s\"\n\n",
		    span_print(span_str(verb), shown, sizeof(shown)));
	help(stderr);
	return EXIT_USAGE;
}
