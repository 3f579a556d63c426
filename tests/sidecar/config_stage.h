/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SIDECAR_CONFIG_STAGE_H
#define TESTS_SIDECAR_CONFIG_STAGE_H

/* A penstock.yaml that is taken or refused, with what is said of it. */
#include "sidecar/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#define CELL "cells: [{id: a, policy: [p.yaml]}]\n"

static const struct config_env no_env;
static char *said;

static __attribute__((unused)) struct config *
load_env(const char *text, const struct config_env *env)
{
	struct problems *ps = problem_new();
	struct config *c;
	size_t n;
	FILE *f;

	free(said);
	said = NULL;
	c = config_load("penstock.yaml", span_str(text), env, ps);
	f = open_memstream(&said, &n);
	problem_print(ps, f);
	fclose(f);
	problem_free(ps);
	return c;
}

static __attribute__((unused)) void
refused(const char *text, const struct config_env *env, const char *words)
{
	struct config *c = load_env(text, env);

	if (c != NULL && !c->wrong)
		fail_msg("accepted: %s", text);
	config_free(c);
	if (strstr(said, words) == NULL)
		fail_msg("no \"%s\" in: %s", words, said);
}

static __attribute__((unused)) struct config *
accepted(const char *text, const struct config_env *env)
{
	struct config *c = load_env(text, env);

	if (c == NULL || c->wrong)
		fail_msg("refused: %s", said);
	return c;
}

#endif
