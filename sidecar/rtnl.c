/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rtnl.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRIES 8

static int
ask_once(struct mnl_socket *nl, struct nlmsghdr *h, mnl_cb_t cb, void *arg)
{
	char buf[32768];
	ssize_t n;
	int rc;

	if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
	    mnl_socket_sendto(nl, h, h->nlmsg_len) < 0)
		return -errno;
	for (;;) {
		n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
		if (n < 0)
			return -errno;
		rc = mnl_cb_run(buf, (size_t)n, h->nlmsg_seq,
		    mnl_socket_get_portid(nl), cb, arg);
		if (rc == MNL_CB_ERROR)
			return -errno;
		if (rc == MNL_CB_STOP)
			return 0;
	}
}

/* Each time with a socket of its own: nothing is left of the answer before. */
int
rtnl_talk(struct nlmsghdr *h, mnl_cb_t cb, void *arg)
{
	int rc = -EINTR;

	h->nlmsg_seq = 1;
	for (int i = 0; i < TRIES && rc == -EINTR; i++) {
		struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE,
		    SOCK_CLOEXEC);

		if (nl == NULL)
			return -errno;
		rc = ask_once(nl, h, cb, arg);
		mnl_socket_close(nl);
	}
	return rc;
}

int
rtnl_listen(void)
{
	struct sockaddr_nl at = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR |
		    RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE,
	};
	int rc, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC |
	    SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

void
rtnl_forget(int fd)
{
	char buf[8192];

	errno = 0;
	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC) > 0 ||
	    errno == ENOBUFS || errno == EINTR)
		errno = 0;
}
