/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_CONFINE_H
#define SIDECAR_CONFINE_H

#include <sys/types.h>

#include "policy/span.h"
#include "sidecar/role.h"

/*
 * What a process gives up.  Every function is final, and a step that cannot
 * be taken is an error: a role that is not confined does not serve.
 */

/* Privileges, uid, limits; files can still be opened where uid allows.
 * 0 or -errno. */
MUST_USE int confine_privileges(enum role_kind k, uid_t uid);

/*
 * The rest: Landlock (dir: the one directory that a recorder writes beneath,
 * -1: none) and seccomp.  0 or -errno.
 */
MUST_USE int confine_lock(enum role_kind k, int dir);

/*
 * Both, for the one-shot compile role.  It keeps the uid of the start: at
 * each reload it opens the configuration, which is that uid's alone where it
 * has secrets, and a uid to take would stand in there, so that SETUID would
 * have to be kept while it parses.
 */
MUST_USE int confine_compile(int dir);

/* The parent, after everything privileged was done: SETUID, SETGID and KILL
 * stay where they were, and NET_ADMIN when it has a warden to start again. */
MUST_USE int confine_parent(bool watched);

/* True when this process may become another uid. */
bool confine_can_setuid(void);

/* Landlock ABI of the kernel, 0 without. */
int confine_landlock_abi(void);

#endif
