/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_COMPILE_ROLE_H
#define SIDECAR_COMPILE_ROLE_H

/*
 * The role compile, one shot: takes one order (struct ipc_give with the
 * directory) from the parent, answers with IPC_COMPILED and ends.  Returns
 * the exit status.
 */
int compile_main(void);

/* struct ipc_give.flags of the order. */
#define COMPILE_ORDER_SHARED_SEGMENT 1u
#define COMPILE_ORDER_NOT_PROVEN 2u

#endif
