/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void take_fds(struct msghdr *h, struct ipc_message *m);

int
ipc_pair(int fds[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
	    0, fds) != 0)
		return -errno;
	return 0;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * IPC_FDS_MAX)];
};

int
ipc_send(int fd, enum ipc_type type, struct span body, const int *fds,
    size_t n_fds)
{
	uint32_t head[2] = { (uint32_t)type, (uint32_t)n_fds };
	struct iovec iov[2] = {
		{ head, sizeof(head) },
		{ (void *)(uintptr_t)body.data, body.len },
	};
	struct msghdr h = { .msg_iov = iov, .msg_iovlen = 2 };
	union control control;
	ssize_t n;

	if (n_fds > IPC_FDS_MAX || body.len > IPC_BODY_MAX_BYTES)
		return -EINVAL;
	if (n_fds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		h.msg_control = control.bytes;
		h.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	do {
		n = sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == ECONNRESET ? -EPIPE : -errno;
}

int
ipc_receive(int fd, struct ipc_message *m)
{
	uint32_t head[2];
	struct iovec iov[2] = {
		{ head, sizeof(head) }, { m->body, sizeof(m->body) },
	};
	union control control;
	struct msghdr h = {
		.msg_iov = iov, .msg_iovlen = 2,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t n;

	m->type = IPC_NONE;
	m->n_fds = 0;
	m->len = 0;
	do {
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? 0 :
		    errno == EWOULDBLOCK ? -EAGAIN : -errno;
	take_fds(&h, m);
	if (n == 0 && m->n_fds == 0)
		return 0;
	if ((size_t)n < sizeof(head) || head[1] != m->n_fds ||
	    head[0] == IPC_NONE || head[0] >= IPC_TYPES ||
	    (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
		ipc_discard(m);
		return -EBADMSG;
	}
	m->type = head[0];
	m->len = (size_t)n - sizeof(head);
	return 1;
}

static void
take_fds(struct msghdr *h, struct ipc_message *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL;
	    c = CMSG_NXTHDR(h, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		if (n > IPC_FDS_MAX - m->n_fds)
			n = IPC_FDS_MAX - m->n_fds;
		memcpy(m->fds + m->n_fds, CMSG_DATA(c), n * sizeof(int));
		m->n_fds += (uint32_t)n;
	}
}

void
ipc_discard(struct ipc_message *m)
{
	for (uint32_t i = 0; i < m->n_fds; i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	m->n_fds = 0;
}

int
ipc_sealed(const char *name, struct span bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t at = 0;

	if (fd < 0)
		return -errno;
	while (at < bytes.len) {
		ssize_t n = write(fd, bytes.data + at, bytes.len - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			goto fail;
		at += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_WRITE | F_SEAL_SEAL) == 0)
		return fd;
fail:
	close(fd);
	return -EIO;
}
