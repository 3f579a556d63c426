/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_IPC_H
#define SIDECAR_IPC_H

#include "policy/span.h"

/*
 * Messages between the parent and a role: fixed form, over SOCK_SEQPACKET,
 * so that each arrives whole or not at all, with descriptors beside.
 */
#define IPC_FDS_MAX 16u
#define IPC_BODY_MAX_BYTES 2048u

enum ipc_type {
	IPC_NONE = 0,
	IPC_GIVE,		/* to a role: struct ipc_give, one descriptor */
	IPC_RUN,		/* to a role: that was all, start */
	IPC_DRAIN,		/* stop taking what is new, end when empty */
	IPC_STOP,		/* end now, in order */
	IPC_REOPEN,		/* recorder: open the file again */
	IPC_READY,		/* from a role: it serves */
	IPC_WROTE,		/* from the recorder: the first record is out */
	IPC_RULES,		/* from the warden: struct ipc_rules */
	IPC_COMPILED,		/* from compile: struct ipc_compiled + fds */
	IPC_TYPES,
};

/* What the kernel's rules are now, once each WARDEN_MS and when it changed. */
#define WARDEN_MS 5000
#define IPC_WHY_BYTES 512u
struct ipc_rules {
	uint32_t ok;
	char why[IPC_WHY_BYTES];	/* NUL-terminated by the reader */
};

struct ipc_message {
	uint32_t type;			/* enum ipc_type */
	uint32_t n_fds;
	int fds[IPC_FDS_MAX];		/* owned by the receiver */
	size_t len;
	_Alignas(8) uint8_t body[IPC_BODY_MAX_BYTES];
};

/* A pair, close-on-exec and non-blocking; 0 or -errno. */
MUST_USE int ipc_pair(int fds[2]);

/* 0, -EAGAIN when the other side does not read, -EPIPE when it is gone, or
 * another -errno.  Never blocks, never raises SIGPIPE; descriptors stay the
 * caller's. */
MUST_USE int ipc_send(int fd, enum ipc_type type, struct span body,
    const int *fds, size_t n_fds);

/* 1 with a message, 0 at the end, -EAGAIN when there is none, -EBADMSG for
 * one that is not of this form (its descriptors are closed), -errno. */
MUST_USE int ipc_receive(int fd, struct ipc_message *m);

/* A memfd with these bytes that nobody can change any more, or -errno. */
MUST_USE int ipc_sealed(const char *name, struct span bytes);

/* Close what is left in m->fds. */
void ipc_discard(struct ipc_message *m);

#endif
