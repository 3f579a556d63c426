/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/way.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL_BYTES 64u

union control {
	struct cmsghdr align;
	char room[CONTROL_BYTES];
};

_Static_assert(CMSG_SPACE(sizeof(struct in6_pktinfo)) <= CONTROL_BYTES,
    "room for an address");

/* One direction: what the kernel is given. */
struct side {
	struct mmsghdr msg[WAY_BATCH];
	struct iovec iov[WAY_BATCH];
	union control control[WAY_BATCH];
	struct sockaddr_storage peer[WAY_BATCH];
};

struct way_batch {
	struct side in, out;
	unsigned n_out;
	int in_fd, out_fd;
	uint8_t query[WAY_BATCH][WAY_QUERY_BYTES];
	uint8_t reply[WAY_BATCH][WAY_MAX_BYTES];
};

struct way_batch *
way_batch_new(void)
{
	struct way_batch *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	for (unsigned i = 0; i < WAY_BATCH; i++) {
		b->in.iov[i].iov_base = b->query[i];
		b->in.iov[i].iov_len = WAY_QUERY_BYTES;
		b->out.iov[i].iov_base = b->reply[i];
	}
	return b;
}

void
way_batch_free(struct way_batch *b)
{
	free(b);
}

/* ---- reading ---- */

unsigned
way_batch_recv(struct way_batch *b, int fd)
{
	int n;

	for (unsigned i = 0; i < WAY_BATCH; i++)
		b->in.msg[i].msg_hdr = (struct msghdr){
		    .msg_name = &b->in.peer[i],
		    .msg_namelen = sizeof(b->in.peer[i]),
		    .msg_iov = &b->in.iov[i], .msg_iovlen = 1,
		    .msg_control = &b->in.control[i],
		    .msg_controllen = sizeof(b->in.control[i]) };
	b->in_fd = fd;
	n = recvmmsg(fd, b->in.msg, WAY_BATCH, MSG_DONTWAIT, NULL);
	return n > 0 ? (unsigned)n : 0;
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

struct span
way_batch_get(const struct way_batch *b, unsigned i, struct way *way)
{
	struct msghdr m = b->in.msg[i].msg_hdr;

	*way = (struct way){ .fd = b->in_fd, .peer = b->in.peer[i],
	    .peer_len = m.msg_namelen };
	read_local(&m, way);
	return span_of(b->query[i], b->in.msg[i].msg_len);
}

/* ---- answering ---- */

static void
put_local(const struct way *way, struct msghdr *m, union control *control)
{
	bool is_v6 = way->peer.ss_family == AF_INET6;
	struct in6_pktinfo v6 = { 0 };
	struct in_pktinfo v4 = { 0 };
	struct cmsghdr *c;

	memset(control, 0, sizeof(*control));
	m->msg_control = control;
	m->msg_controllen = is_v6 ? CMSG_SPACE(sizeof(v6)) :
	    CMSG_SPACE(sizeof(v4));
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = is_v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	c->cmsg_type = is_v6 ? IPV6_PKTINFO : IP_PKTINFO;
	c->cmsg_len = is_v6 ? CMSG_LEN(sizeof(v6)) : CMSG_LEN(sizeof(v4));
	memcpy(&v4.ipi_spec_dst, way->local.b + 12, 4);
	memcpy(&v6.ipi6_addr, way->local.b, 16);
	memcpy(CMSG_DATA(c), is_v6 ? (void *)&v6 : (void *)&v4,
	    is_v6 ? sizeof(v6) : sizeof(v4));
}

void
way_batch_put(struct way_batch *b, const struct way *way, struct span bytes)
{
	struct msghdr *m;
	unsigned i;

	if (bytes.len > WAY_MAX_BYTES)
		return;
	if (b->n_out == WAY_BATCH || (b->n_out > 0 && b->out_fd != way->fd))
		way_batch_flush(b);
	b->out_fd = way->fd;
	i = b->n_out++;
	memcpy(b->reply[i], bytes.data, bytes.len);
	b->out.iov[i].iov_len = bytes.len;
	b->out.peer[i] = way->peer;
	m = &b->out.msg[i].msg_hdr;
	*m = (struct msghdr){ .msg_name = &b->out.peer[i],
	    .msg_namelen = way->peer_len, .msg_iov = &b->out.iov[i],
	    .msg_iovlen = 1 };
	if (way->has_local)
		put_local(way, m, &b->out.control[i]);
}

/* One that cannot leave (its client's address is gone) does not keep back
 * those behind it. */
void
way_batch_flush(struct way_batch *b)
{
	unsigned at = 0;

	while (at < b->n_out) {
		int n = sendmmsg(b->out_fd, b->out.msg + at, b->n_out - at,
		    MSG_DONTWAIT | MSG_NOSIGNAL);

		at += n > 0 ? (unsigned)n : 1;
	}
	b->n_out = 0;
}
