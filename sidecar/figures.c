/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/figures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_TRIES 100

/* An odd number is a write in progress. */
struct page {
	_Atomic uint32_t seq;
	struct figures figures;
};

struct figures_page {
	struct page *page;
};

int
figures_create(void)
{
	int fd = memfd_create("penstock-figures", MFD_CLOEXEC |
	    MFD_ALLOW_SEALING), rc;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct page)) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_SEAL) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int
figures_open(struct figures_page **out, int fd, bool writable)
{
	struct figures_page *p;
	struct stat st;
	int rc;

	if (fstat(fd, &st) != 0 || st.st_size != sizeof(struct page))
		return -EBADMSG;
	p = malloc(sizeof(*p));
	if (p == NULL)
		return -ENOMEM;
	p->page = mmap(NULL, sizeof(struct page), writable ?
	    PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (p->page != MAP_FAILED) {
		*out = p;
		return 0;
	}
	rc = -errno;
	free(p);
	return rc;
}

void
figures_close(struct figures_page *p)
{
	if (p == NULL)
		return;
	munmap(p->page, sizeof(struct page));
	free(p);
}

struct figures *
figures_begin(struct figures_page *p)
{
	uint32_t seq = atomic_load_explicit(&p->page->seq,
	    memory_order_relaxed);

	atomic_store_explicit(&p->page->seq, seq | 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	return &p->page->figures;
}

void
figures_end(struct figures_page *p)
{
	uint32_t seq = atomic_load_explicit(&p->page->seq,
	    memory_order_relaxed);

	atomic_store_explicit(&p->page->seq, (seq | 1) + 1,
	    memory_order_release);
}

/* A resolver that was taken over writes what it likes. */
static void
bound(struct figures *f)
{
	if (f->n_servers > FIGURES_SERVERS_MAX)
		f->n_servers = FIGURES_SERVERS_MAX;
	for (uint32_t i = 0; i < f->n_servers; i++) {
		struct figures_server *s = &f->servers[i];

		if (s->zone.len > HOST_MAX_BYTES)
			s->zone.len = 0;
		s->zone.name[s->zone.len] = '\0';
		s->is.is.tls_name[HOST_MAX_BYTES] = '\0';
	}
}

bool
figures_read(const struct figures_page *p, struct figures *out)
{
	for (int i = 0; p != NULL && i < READ_TRIES; i++) {
		uint32_t seq = atomic_load_explicit(&p->page->seq,
		    memory_order_acquire);

		*out = p->page->figures;
		atomic_thread_fence(memory_order_acquire);
		if ((seq & 1) != 0 || seq != atomic_load_explicit(
		    &p->page->seq, memory_order_relaxed))
			continue;
		bound(out);
		return out->at_ms != 0;
	}
	return false;
}
