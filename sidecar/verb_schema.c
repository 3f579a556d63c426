/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	const struct verb v = {
		"schema", "policy|config",
		"Print the JSON Schema (2020-12) of policies or of "
		"penstock.yaml.\n",
		"0, 2 usage, 1 failure", 1, 1, NULL, 0
	};
	int rc = verb_read(&v, argc, argv);

	if (rc != VERB_GO)
		return rc;
	if (strcmp(argv[optind], "policy") == 0)
		return print(schema_policy_begin, schema_policy_end);
	if (strcmp(argv[optind], "config") == 0)
		return print(schema_config_begin, schema_config_end);
	return verb_wrong(&v, "there is no schema %s", argv[optind]);
}
