/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/way.h"

#include <netinet/in.h>
#include <string.h>

void
way_send(const struct way *way, struct span bytes)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes.data,
	    .iov_len = bytes.len };
	struct msghdr m = { .msg_name = (void *)(uintptr_t)&way->peer,
	    .msg_namelen = way->peer_len, .msg_iov = &iov, .msg_iovlen = 1 };
	struct in_pktinfo v4 = { 0 };
	struct in6_pktinfo v6 = { 0 };
	bool is_v6 = way->peer.ss_family == AF_INET6;
	struct cmsghdr *c;

	if (way->has_local) {
		memset(&control, 0, sizeof(control));
		m.msg_control = &control;
		m.msg_controllen = is_v6 ? CMSG_SPACE(sizeof(v6)) :
		    CMSG_SPACE(sizeof(v4));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = is_v6 ? IPPROTO_IPV6 : IPPROTO_IP;
		c->cmsg_type = is_v6 ? IPV6_PKTINFO : IP_PKTINFO;
		c->cmsg_len = is_v6 ? CMSG_LEN(sizeof(v6)) :
		    CMSG_LEN(sizeof(v4));
		memcpy(&v4.ipi_spec_dst, way->local.b + 12, 4);
		memcpy(&v6.ipi6_addr, way->local.b, 16);
		memcpy(CMSG_DATA(c), is_v6 ? (void *)&v6 : (void *)&v4,
		    is_v6 ? sizeof(v6) : sizeof(v4));
	}
	/* a lost datagram is asked for again by its client */
	if (sendmsg(way->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

static void
read_local(struct msghdr *m, struct way *way)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL;
	    c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP &&
		    c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo v4;
			uint8_t b[4];

			memcpy(&v4, CMSG_DATA(c), sizeof(v4));
			memcpy(b, &v4.ipi_addr, 4);
			way->local = addr_from_v4(b);
			way->ifindex = (unsigned)v4.ipi_ifindex;
			way->has_local = true;
		} else if (c->cmsg_level == IPPROTO_IPV6 &&
		    c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo v6;

			memcpy(&v6, CMSG_DATA(c), sizeof(v6));
			way->local = addr_from_v6(v6.ipi6_addr.s6_addr);
			way->ifindex = v6.ipi6_ifindex;
			way->has_local = true;
		}
	}
}

ssize_t
way_recv(struct way *way, int fd, void *data, size_t size)
{
	union {
		struct cmsghdr align;
		char room[512];
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = size };
	struct msghdr m = { .msg_name = &way->peer,
	    .msg_namelen = sizeof(way->peer), .msg_iov = &iov,
	    .msg_iovlen = 1, .msg_control = &control,
	    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);

	if (n < 0)
		return n;
	way->fd = fd;
	way->peer_len = m.msg_namelen;
	read_local(&m, way);
	return n;
}
