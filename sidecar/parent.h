/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_PARENT_H
#define SIDECAR_PARENT_H

#include "policy/span.h"

/*
 * The parent of all roles: makes what is shared, starts them, hands on
 * policies, starts again what dies.  It reads nothing from outside.
 */
struct parent_options {
	const char *config;		/* file, or NULL: the environment */
	bool accept_shared_segment;
	bool accept_not_proven;		/* mode isolated */
	bool rules_external;		/* somebody else holds the rules */
};

/* Serves until TERM; the exit status. */
int parent_run(const struct parent_options *o);

#endif
