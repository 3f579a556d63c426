/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sidecar/config.h"

static bool loud;
static const char *text, *list[2];
static size_t n_list;
static const struct verb_option options[] = {
	{ "loud", 'l', NULL, "say more", .flag = &loud },
	{ "text", 't', "TEXT", "the last one counts", .text = &text },
	{ "list", 0, "ITEM", "may be repeated", .text = list,
	    .count = &n_list, .max = 2 },
};
static const struct verb verb = {
	"try", "A [B]", "What it does.\n", "0 done, 2 usage", 1, 2, options,
	3
};

static int
verb_of(const char *a, const char *b, const char *c, const char *d)
{
	static char store[5][16] = { "try" };
	const char *const given[] = { a, b, c, d };
	char *argv[6] = { store[0] };
	int argc = 1;

	loud = false;
	text = NULL;
	n_list = 0;
	for (; argc < 5 && given[argc - 1][0] != '\0'; argc++) {
		argv[argc] = store[argc];
		snprintf(store[argc], sizeof(store[0]), "%s",
		    given[argc - 1]);
	}
	return verb_read(&verb, argc, argv);
}

static void
options_and_operands_come_in_any_order(void **state)
{
	(void)state;
	assert_int_equal(verb_of("A", "--loud", "-t", "x"), VERB_GO);
	assert_true(loud);
	assert_string_equal(text, "x");
	assert_int_equal(verb_of("--text=x", "--text=y", "A", ""), VERB_GO);
	assert_string_equal(text, "y");
	assert_false(loud);
	assert_int_equal(verb_of("A", "B", "", ""), VERB_GO);
	assert_int_equal(verb_of("--list=1", "--list=2", "A", ""), VERB_GO);
	assert_int_equal(n_list, 2);
	assert_string_equal(list[1], "2");
}

static void
what_the_form_does_not_have_is_a_usage_error(void **state)
{
	(void)state;
	assert_int_equal(verb_of("", "", "", ""), EXIT_USAGE);
	assert_int_equal(verb_of("A", "B", "C", ""), EXIT_USAGE);
	assert_int_equal(verb_of("A", "--none", "", ""), EXIT_USAGE);
	assert_int_equal(verb_of("A", "-x", "", ""), EXIT_USAGE);
	assert_int_equal(verb_of("A", "-t", "", ""), EXIT_USAGE);
	assert_int_equal(verb_of("A", "--loud=1", "", ""), EXIT_USAGE);
}

static void
a_list_that_is_full_takes_no_more(void **state)
{
	(void)state;
	assert_int_equal(verb_of("--list=1", "--list=2", "--list=3", "A"),
	    EXIT_USAGE);
	assert_int_equal(n_list, 2);
}

static void
help_ends_with_success_and_wins(void **state)
{
	(void)state;
	assert_int_equal(verb_of("-h", "", "", ""), 0);
	assert_int_equal(verb_of("--help", "A", "B", "C"), 0);
	assert_int_equal(verb_wrong(&verb, "x"), EXIT_USAGE);
}

static int
config_of(const char *words, size_t extra)
{
	char path[] = "/tmp/test_verb.XXXXXX";
	struct config *c = NULL;
	int fd = mkstemp(path), rc;
	FILE *f = fdopen(fd, "w");

	fputs(words, f);
	for (size_t i = 0; i < extra; i++)
		fputc('#', f);
	fclose(f);
	rc = verb_config(path, &c);
	assert_int_equal(c == NULL, rc != 0);
	config_free(c);
	unlink(path);
	return rc;
}

static void
a_configuration_is_read_as_the_daemon_has_it(void **state)
{
	static const char good[] = "version: 1\nmode: shared\n"
	    "cells:\n  - {id: a, policy: [p.yaml]}\n";
	static const char segment[] = "version: 1\nmode: gateway\n"
	    "interfaces: [eth0]\ncells:\n"
	    "  - {id: a, policy: [p.yaml], from: {cidr: 10.0.0.1/32}}\n"
	    "  - {id: b, policy: [p.yaml], from: {cidr: 10.0.0.2/32}}\n";
	struct config *c;

	(void)state;
	assert_int_equal(config_of(good, 0), 0);
	assert_int_equal(config_of(segment, 0), 0);
	assert_int_equal(config_of("version: 1\nbogus: 1\n", 0),
	    EXIT_CONFIG);
	/* a cut file is not a shorter one */
	assert_int_equal(config_of(good, CONFIG_BYTES_MAX), EXIT_CONFIG);
	assert_int_equal(verb_config("/nonexistent/x", &c), EXIT_CONFIG);
	assert_int_equal(verb_config("/", &c), EXIT_CONFIG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_and_operands_come_in_any_order),
		cmocka_unit_test(what_the_form_does_not_have_is_a_usage_error),
		cmocka_unit_test(a_list_that_is_full_takes_no_more),
		cmocka_unit_test(help_ends_with_success_and_wins),
		cmocka_unit_test(a_configuration_is_read_as_the_daemon_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
