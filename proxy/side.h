/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_SIDE_H
#define PROXY_SIDE_H

#include "proxy/buf.h"

/*
 * One of the two sockets of a connection, what waits to be written to it, and
 * what is known of it: edges come once, so `readable` and `writable` hold
 * from an edge until a call said EAGAIN.
 */
struct pipes_pair;

struct side {
	struct buf out;
	struct pipes_pair *pipe;
	uint64_t sent;			/* bytes written to it */
	uint32_t piped;			/* bytes in the pipe */
	int fd;
	uint8_t want;			/* SIDE_ bits: who is woken by what */
	bool readable;			/* a read may find something */
	bool writable;			/* a write may find room */
	bool doubtful;			/* a short read may not be the last */
	bool ending;			/* its end is behind what is unread */
	bool deaf;			/* to input, until it is wanted */
	bool eof;			/* nothing more comes from it */
	bool reset;			/* its peer has reset it */
	bool shut;			/* we have ended our direction */
	bool bulk;			/* its peer fills buffers: splice */
};

#define SIDE_READ 1u
#define SIDE_WRITE 2u

/* A socket of which nothing is known yet: it may be both. */
void side_open(struct side *s, int fd);
/* An edge, as EPOLL bits.  True: somebody waits for that. */
bool side_edge(struct side *s, uint32_t events);
/* What is wanted can be done without a further edge. */
bool side_can(const struct side *s);

/* recv(2), as far as it may find something: the number, 0 at the end of the
 * stream, -EAGAIN, another -errno. */
ssize_t side_recv(struct side *s, void *data, size_t size);
/* The same, and what came is forgotten unread. */
ssize_t side_drop(struct side *s, size_t size);
/* The same to the end of b, so that at most `max` bytes wait there; also
 * -ENOBUFS when it is full, -ENOMEM. */
ssize_t side_fill(struct side *s, struct buf *b, size_t max);
/* send(2): the number, -EAGAIN, another -errno.  `more`: the end follows at
 * once, and goes out in the same segment. */
ssize_t side_send(struct side *s, const void *data, size_t size, bool more);
/* Send what waits in `out`: 0 all is gone, -EAGAIN, another -errno. */
int side_flush(struct side *s);
/* Bytes for it that its peer has not taken: ours, and the kernel's. */
uint64_t side_left(const struct side *s);

#endif
