/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_VERB_H
#define SIDECAR_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "policy/span.h"

/*
 * One file for each verb.  argv[0] is the verb itself; getopt has not run.
 * Data goes to stdout, words to stderr; the result is the exit status.
 */
#define EXIT_OPEN_END 3		/* something is left open */
#define EXIT_DENY 10		/* explain: deny; diff: wider */
#define EXIT_NARROWER 12	/* diff */
#define EXIT_USAGE 2
#define EXIT_UNAVAILABLE 69	/* what is asked is not there */
#define EXIT_PRIVILEGE 77	/* a privilege is missing */
#define EXIT_CONFIG 78		/* bad configuration */

/* Read where no file is named. */
#define VERB_CONFIG "/etc/penstock/penstock.yaml"

/*
 * An option: a flag, a text (the last one counts), or, with `count`, a list
 * of at most `max` texts.  `name` is without its hyphens; `value` is what it
 * takes, as the help shows it, NULL for a flag.
 */
struct verb_option {
	const char *name;
	char letter;		/* 0: it has none */
	const char *value, *help;
	bool *flag;
	const char **text;
	size_t *count, max;
};
#define VERB_OPTIONS_MAX 12u

/* What a verb takes; its --help is made of this. */
struct verb {
	const char *name, *operands;
	const char *what;	/* whole lines */
	const char *exits;
	int operands_min, operands_max;
	const struct verb_option *options;
	size_t n_options;	/* VERB_OPTIONS_MAX at most */
};

/*
 * Read the command line; --help and -h print the help.  VERB_GO, with the
 * operands from argv[optind] on, or the exit status to end with.  The texts
 * are argv's.
 */
#define VERB_GO (-1)
MUST_USE int verb_read(const struct verb *v, int argc, char **argv);
/* What is wrong with the command line, and its form, on stderr.  A byte
 * that is not printable is shown as a dot.  Returns EXIT_USAGE. */
__attribute__((format(printf, 2, 3)))
int verb_wrong(const struct verb *v, const char *what, ...);

/*
 * Load a penstock.yaml as a running daemon has it: a risk that `serve` was
 * told to accept is accepted.  `path` is borrowed for the life of *out,
 * which is the caller's (config_free).  0, or an exit status after words on
 * stderr.
 */
struct config;
MUST_USE int verb_config(const char *path, struct config **out);

int verb_serve(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_explain(int argc, char **argv);
int verb_test(int argc, char **argv);
int verb_diff(int argc, char **argv);
int verb_rules(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_pins(int argc, char **argv);
int verb_cache(int argc, char **argv);
int verb_tail(int argc, char **argv);
int verb_health(int argc, char **argv);
int verb_env(int argc, char **argv);
int verb_token(int argc, char **argv);
int verb_schema(int argc, char **argv);

#endif
