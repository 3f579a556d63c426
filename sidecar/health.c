/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/health.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_TRIES 1000

/* An odd number is a write in progress. */
struct page {
	_Atomic uint32_t seq;
	struct health health;
};

struct health_page {
	struct page *page;
};

int
health_create(void)
{
	int fd = memfd_create("penstock-health", MFD_CLOEXEC |
	    MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct page)) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	return fd;
}

int
health_open(struct health_page **out, int fd, bool writable)
{
	struct health_page *p;
	struct stat st;

	if (fstat(fd, &st) != 0 || st.st_size != sizeof(struct page))
		return -EBADMSG;
	p = malloc(sizeof(*p));
	if (p == NULL)
		return -ENOMEM;
	p->page = mmap(NULL, sizeof(struct page), writable ?
	    PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (p->page == MAP_FAILED) {
		int rc = -errno;

		free(p);
		return rc;
	}
	*out = p;
	return 0;
}

void
health_close(struct health_page *p)
{
	if (p == NULL)
		return;
	munmap(p->page, sizeof(struct page));
	free(p);
}

void
health_write(struct health_page *p, const struct health *h)
{
	uint32_t seq = atomic_load_explicit(&p->page->seq,
	    memory_order_relaxed);

	atomic_store_explicit(&p->page->seq, seq | 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	p->page->health = *h;
	atomic_store_explicit(&p->page->seq, (seq | 1) + 1,
	    memory_order_release);
}

bool
health_read(const struct health_page *p, struct health *out)
{
	for (int i = 0; i < READ_TRIES; i++) {
		uint32_t a = atomic_load_explicit(&p->page->seq,
		    memory_order_acquire);

		*out = p->page->health;
		atomic_thread_fence(memory_order_acquire);
		if ((a & 1) == 0 && a == atomic_load_explicit(&p->page->seq,
		    memory_order_relaxed))
			return true;
	}
	return false;
}
