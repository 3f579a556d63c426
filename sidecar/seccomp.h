/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_SECCOMP_H
#define SIDECAR_SECCOMP_H

#include "policy/span.h"
#include "sidecar/role.h"

/*
 * The system calls of each role as an allow list.  What no role has a use
 * for and an attacker has (exec, ptrace, other processes' memory, mounts,
 * kernel modules) ends the process; anything else that is not listed fails
 * with EPERM, so that a harmless call of a library does not end a daemon.
 * Loading needs no_new_privs.  0 or -errno.
 */
MUST_USE int seccomp_apply(enum role_kind k);

#endif
