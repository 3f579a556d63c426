/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/flush.h"

#include <errno.h>
#include <sys/socket.h>

static int
put(int fd, const void *what, size_t size)
{
	ssize_t n = send(fd, what, size, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n == (ssize_t)size ? 0 : n < 0 ? -errno : -EBADMSG;
}

static int
get(int fd, void *what, size_t size)
{
	ssize_t n = recv(fd, what, size, MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0)
		return -errno;
	return n == (ssize_t)size ? 0 : n == 0 ? -EPIPE : -EBADMSG;
}

int
flush_order_send(int fd, const struct flush_order *o)
{
	return put(fd, o, sizeof(*o));
}

/* The name is read anew: the other side parses HTTP. */
int
flush_order_read(int fd, struct flush_order *o)
{
	struct flush_order got;
	int rc = get(fd, &got, sizeof(got));

	if (rc != 0)
		return rc;
	*o = (struct flush_order){ .number = got.number };
	if (got.name.len == 0)
		return 0;
	if (got.name.len > HOST_MAX_BYTES ||
	    host_parse(&o->name, span_of(got.name.name, got.name.len)) !=
	    REASON_NONE)
		return -EBADMSG;
	return 0;
}

int
flush_done_send(int fd, const struct flush_done *d)
{
	return put(fd, d, sizeof(*d));
}

int
flush_done_read(int fd, struct flush_done *d)
{
	return get(fd, d, sizeof(*d));
}
