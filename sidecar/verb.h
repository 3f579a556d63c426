/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_VERB_H
#define SIDECAR_VERB_H

/*
 * One file for each verb.  argv[0] is the verb itself; getopt has not run.
 * Data goes to stdout, words to stderr; the result is the exit status.
 */
#define EXIT_OPEN_END 3		/* something is left open */
#define EXIT_DENY 10		/* explain: deny; diff: wider */
#define EXIT_NARROWER 12	/* diff */
#define EXIT_LEAKED 20
#define EXIT_NOT_PROVEN 21
#define EXIT_USAGE 2
#define EXIT_UNAVAILABLE 69	/* what is asked is not there */
#define EXIT_PRIVILEGE 77	/* a privilege is missing */
#define EXIT_CONFIG 78		/* bad configuration */

int verb_serve(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_explain(int argc, char **argv);
int verb_test(int argc, char **argv);
int verb_diff(int argc, char **argv);
int verb_rules(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_tail(int argc, char **argv);
int verb_health(int argc, char **argv);
int verb_env(int argc, char **argv);
int verb_token(int argc, char **argv);
int verb_schema(int argc, char **argv);

#endif
