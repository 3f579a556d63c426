/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: penstock schema policy|config\n"
    "Print the JSON Schema (2020-12) of policies or of penstock.yaml.\n"
    "Exit: 0, 2 usage, 1 failure.\n";

/* The files as they are, put into the program by the assembler. */
__asm__(
    ".pushsection .rodata\n"
    "schema_policy_begin:\n"
    ".incbin \"policy/penstock-policy.schema.json\"\n"
    "schema_policy_end:\n"
    "schema_config_begin:\n"
    ".incbin \"sidecar/penstock.schema.json\"\n"
    "schema_config_end:\n"
    ".popsection\n");
extern const char schema_policy_begin[], schema_policy_end[];
extern const char schema_config_begin[], schema_config_end[];

static int
print(const char *begin, const char *end)
{
	size_t n = (size_t)(end - begin);

	if (fwrite(begin, 1, n, stdout) != n || fflush(stdout) != 0)
		return EXIT_FAILURE;
	return 0;
}

int
verb_schema(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1)
		return c == 'h' ? fputs(usage, stdout) < 0 :
		    (fputs(usage, stderr), EXIT_USAGE);
	if (optind + 1 == argc && strcmp(argv[optind], "policy") == 0)
		return print(schema_policy_begin, schema_policy_end);
	if (optind + 1 == argc && strcmp(argv[optind], "config") == 0)
		return print(schema_config_begin, schema_config_end);
	return fputs(usage, stderr), EXIT_USAGE;
}
