/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char program[4096];

static int
run(const char *arg, char *out, size_t size)
{
	char command[4200];
	size_t n;
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "'%s' %s 2>&1", program, arg);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(out, 1, size - 1, f);
	out[n] = '\0';
	status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *
manual(void)
{
	static char text[1 << 16];
	FILE *f = fopen("sidecar/penstock.1", "r");

	if (f == NULL)
		fail_msg("run from the top of the source tree");
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	return text;
}

static void
help_and_manual_agree(void **state)
{
	char help[4096], want[256], *line, *end = NULL;
	const char *man = manual(), *at;
	size_t in_help = 0, in_manual = 0;

	(void)state;
	assert_int_equal(run("--help", help, sizeof(help)), 0);
	for (line = strtok_r(help, "\n", &end); line != NULL;
	    line = strtok_r(NULL, "\n", &end)) {
		char name[32], words[128];

		if (line[0] != ' ' ||
		    sscanf(line, "  %31s %127[^\n]", name, words) != 2)
			continue;
		snprintf(want, sizeof(want), ".It Cm %s Ta %s Ta ", name,
		    words);
		if (strstr(man, want) == NULL)
			fail_msg("not in the manual: %s", want);
		in_help++;
	}
	for (at = man; (at = strstr(at, ".It Cm ")) != NULL; at++)
		in_manual += strstr(at, " Ta ") != NULL &&
		    strstr(at, " Ta ") < strchr(at, '\n');
	assert_int_equal(in_help, 15);
	assert_int_equal(in_manual, in_help);
}

static void
what_is_no_verb_is_a_usage_error(void **state)
{
	char out[4096];

	(void)state;
	assert_int_equal(run("", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("bogus", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("serve --rules none", out, sizeof(out)),
	    EXIT_USAGE);
	assert_int_equal(run("serve -c x y", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("explain", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("schema none", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("rules none", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("rules remove --mode gatway", out, sizeof(out)),
	    EXIT_USAGE);
	assert_int_equal(run("token x", out, sizeof(out)), EXIT_USAGE);
	assert_int_equal(run("version", out, sizeof(out)), 0);
}

static void
roles_are_started_by_serve_only(void **state)
{
	char out[4096];

	(void)state;
	assert_int_equal(run("role engine 3<&-", out, sizeof(out)), 2);
	assert_int_equal(run("role bogus", out, sizeof(out)), 2);
	assert_int_equal(run("role parent", out, sizeof(out)), 2);
}

static void
a_token_and_its_hash_belong_together(void **state)
{
	char out[4096], again[4096], command[256], token[64], hash[128];

	(void)state;
	assert_int_equal(run("token", out, sizeof(out)), 0);
	assert_int_equal(sscanf(out, "token: %63s\ncredential: %127s", token,
	    hash), 2);
	assert_int_equal(strlen(token), 43);
	snprintf(command, sizeof(command), "token --hash <<'E'\n%s\nE\n",
	    token);
	assert_int_equal(run(command, again, sizeof(again)), 0);
	assert_non_null(strstr(again, hash));
	assert_int_equal(run("token", again, sizeof(again)), 0);
	assert_string_not_equal(out, again);
}

static int
find_program(void **state)
{
	ssize_t n = readlink("/proc/self/exe", program, 3000);

	(void)state;
	if (n <= 0)
		return -1;
	program[n] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(program, '/') = '\0';
	strcat(program, "/penstock");
	return access(program, X_OK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(help_and_manual_agree),
		cmocka_unit_test(what_is_no_verb_is_a_usage_error),
		cmocka_unit_test(roles_are_started_by_serve_only),
		cmocka_unit_test(a_token_and_its_hash_belong_together),
	};

	return cmocka_run_group_tests(tests, find_program, NULL);
}
