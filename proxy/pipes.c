/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/conn.h"

#define PIPES_IDLE_MAX 64u	/* kept for the next flow; more are closed */
#define PIPE_FIRST_BYTES 65536u
#define PIPE_LARGE_BYTES 262144u

void
pipes_init(struct pipes *p, size_t bytes_max)
{
	*p = (struct pipes){ .bytes_max = bytes_max };
}

static void
pair_free(struct pipes *p, struct pipes_pair *pair)
{
	p->bytes -= pair->bytes;
	close(pair->rd);
	close(pair->wr);
	free(pair);
}

void
pipes_done(struct pipes *p)
{
	struct pipes_pair *pair;

	while ((pair = p->idle) != NULL) {
		p->idle = pair->next;
		pair_free(p, pair);
	}
	p->n_idle = 0;
}

/* What the kernel really gave: near the limit of the uid it gives a page or
 * two, and then copying is better. */
static bool
pair_size(struct pipes *p, struct pipes_pair *pair)
{
	int got = fcntl(pair->wr, F_GETPIPE_SZ);

	if (got < (int)PIPE_FIRST_BYTES)
		return false;
	if (p->bytes + PIPE_LARGE_BYTES <= p->bytes_max / 2 &&
	    fcntl(pair->wr, F_SETPIPE_SZ, PIPE_LARGE_BYTES) > 0)
		got = fcntl(pair->wr, F_GETPIPE_SZ);
	if (got < (int)PIPE_FIRST_BYTES)
		return false;
	pair->bytes = (unsigned)got;
	return true;
}

/* NULL: no pipe of use can be had; copy. */
struct pipes_pair *
pipes_get(struct pipes *p)
{
	struct pipes_pair *pair = p->idle;
	int fd[2];

	if (pair != NULL) {
		p->idle = pair->next;
		p->n_idle--;
		return pair;
	}
	if (p->bytes + PIPE_FIRST_BYTES > p->bytes_max)
		return NULL;
	pair = calloc(1, sizeof(*pair));
	if (pair == NULL)
		return NULL;
	if (pipe2(fd, O_NONBLOCK | O_CLOEXEC) < 0) {
		free(pair);
		return NULL;
	}
	pair->rd = fd[0];
	pair->wr = fd[1];
	if (!pair_size(p, pair)) {
		pair_free(p, pair);
		return NULL;
	}
	p->bytes += pair->bytes;
	return pair;
}

/* Back to the pool; one that still holds bytes is never given to another. */
void
pipes_put(struct pipes *p, struct pipes_pair *pair, bool clean)
{
	if (!clean || p->n_idle >= PIPES_IDLE_MAX) {
		pair_free(p, pair);
		return;
	}
	pair->next = p->idle;
	p->idle = pair;
	p->n_idle++;
}
