/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 32u		/* directories; more are -ELOOP */
#define READ_BYTES 65536u
#define LINKS_MAX 40u		/* as the kernel follows */

/* Each directory on the way is held open, so that ".." is where we came
 * from and not where somebody moved it to. */
struct walk {
	int dirs[DEPTH_MAX];	/* the first is borrowed */
	unsigned depth;
	unsigned links;
	char rest[PATH_MAX];	/* what is still to be walked */
};

static int next(struct walk *w);
static int enter(struct walk *w, const char *name);
static int up(struct walk *w);
static int follow(struct walk *w, const char *name, int otherwise);

int
beneath_open(int dir, const char *name)
{
	struct walk w = { .dirs = { dir }, .depth = 1 };
	int fd = -EAGAIN;

	if (name[0] == '/')
		return -EXDEV;
	if (snprintf(w.rest, sizeof(w.rest), "%s", name) >=
	    (int)sizeof(w.rest))
		return -ENAMETOOLONG;
	while (fd == -EAGAIN)
		fd = next(&w);
	while (w.depth > 1)
		close(w.dirs[--w.depth]);
	return fd;
}

/* The first name of the rest, without the slashes around it; false when it
 * is too long.  *last: nothing follows it. */
static bool
take_name(struct walk *w, char name[static NAME_MAX + 1], bool *last)
{
	size_t from = strspn(w->rest, "/");
	size_t len = strcspn(w->rest + from, "/");

	if (len > NAME_MAX)
		return false;
	memcpy(name, w->rest + from, len);
	name[len] = '\0';
	*last = w->rest[from + len] == '\0';
	memmove(w->rest, w->rest + from + len,
	    strlen(w->rest + from + len) + 1);
	return true;
}

/* -EAGAIN: there is more to walk. */
static int
next(struct walk *w)
{
	char name[NAME_MAX + 1];
	bool last;
	int fd;

	if (!take_name(w, name, &last))
		return -ENAMETOOLONG;
	if (name[0] == '\0')
		return -EISDIR;
	if (strcmp(name, ".") == 0)
		return -EAGAIN;
	if (strcmp(name, "..") == 0)
		return up(w);
	if (!last)
		return enter(w, name);
	fd = openat(w->dirs[w->depth - 1], name, O_RDONLY | O_CLOEXEC |
	    O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
	if (fd >= 0)
		return fd;
	return errno == ELOOP ? follow(w, name, -ELOOP) : -errno;
}

static int
up(struct walk *w)
{
	if (w->depth == 1)
		return -EXDEV;
	close(w->dirs[--w->depth]);
	return -EAGAIN;
}

static int
enter(struct walk *w, const char *name)
{
	int fd;

	if (w->depth == DEPTH_MAX)
		return -ELOOP;
	fd = openat(w->dirs[w->depth - 1], name,
	    O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR ? follow(w, name, -ENOTDIR) : -errno;
	w->dirs[w->depth++] = fd;
	return -EAGAIN;
}

/* Where it points to comes before the rest; `otherwise` when it is no link
 * (any more). */
static int
follow(struct walk *w, const char *name, int otherwise)
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(w->dirs[w->depth - 1], name, to, sizeof(to));
	size_t rest = strlen(w->rest);

	if (n < 0)
		return errno == EINVAL ? otherwise : -errno;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	if (n == 0 || to[0] == '/')
		return n == 0 ? -ENOENT : -EXDEV;
	if ((size_t)n + rest >= sizeof(w->rest))
		return -ENAMETOOLONG;
	memmove(w->rest + n, w->rest, rest + 1);
	memcpy(w->rest, to, (size_t)n);
	return -EAGAIN;
}

static int
pieces(int fd, size_t size, int (*take)(void *to, struct span piece),
    void *to)
{
	uint8_t piece[READ_BYTES];
	int rc = 0;

	while (size > 0 && rc == 0) {
		ssize_t n = read(fd, piece, size < sizeof(piece) ? size :
		    sizeof(piece));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		size -= (size_t)n;
		rc = take(to, span_of(piece, (size_t)n));
	}
	return rc;
}

int
beneath_read(int dir, const char *name, size_t max,
    int (*take)(void *to, struct span piece), void *to)
{
	int fd = beneath_open(dir, name), rc;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) != 0)
		rc = -errno;
	else if (!S_ISREG(st.st_mode))
		rc = -EBADF;
	else if (st.st_size > (off_t)max)
		rc = -EFBIG;
	else
		rc = pieces(fd, (size_t)st.st_size, take, to);
	close(fd);
	return rc;
}
