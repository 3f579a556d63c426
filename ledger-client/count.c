/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/count.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct column {
	_Atomic int64_t value[COUNT_N];
	_Atomic int64_t denied[REASON_COUNT];
	_Atomic uint64_t beats;
};

struct counts {
	struct column *columns[COUNT_COLUMNS];	/* NULL: not mapped */
	struct column *own;
};

static const struct {
	const char *family, *help;
	bool gauge;
} families[COUNT_N] = {
#define COUNTER false
#define GAUGE true
#define X(name, family, kind, help) [COUNT_##name] = { family, help, kind },
	COUNT_LIST(X)
#undef X
};

int
count_create(void)
{
	int fd = memfd_create("penstock-counts",
	    MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct column)) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_SEAL) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

int
count_see(struct counts *c, int fd, unsigned column, bool forget)
{
	void *at;

	if (column >= COUNT_COLUMNS || c->columns[column] != NULL)
		return -EINVAL;
	at = mmap(NULL, sizeof(struct column), forget ?
	    PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	c->columns[column] = at;
	return 0;
}

int
count_open(struct counts **out, int fd, unsigned column)
{
	struct counts *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL)
		return -ENOMEM;
	rc = count_see(c, fd, column, true);
	if (rc != 0) {
		free(c);
		return rc;
	}
	c->own = c->columns[column];
	*out = c;
	return 0;
}

void
count_close(struct counts *c)
{
	if (c == NULL)
		return;
	for (unsigned i = 0; i < COUNT_COLUMNS; i++)
		if (c->columns[i] != NULL)
			munmap(c->columns[i], sizeof(struct column));
	free(c);
}

/* One writer a column: a relaxed load and store is enough.  Sums wrap: of
 * other columns nothing is sure. */
static void
add(_Atomic int64_t *v, int64_t n)
{
	atomic_store_explicit(v, (int64_t)((uint64_t)atomic_load_explicit(v,
	    memory_order_relaxed) + (uint64_t)n), memory_order_relaxed);
}

void
count_add(struct counts *c, enum count what, int64_t n)
{
	add(&c->own->value[what], n);
}

void
count_denied(struct counts *c, enum reason r)
{
	add(&c->own->denied[r], 1);
}

void
count_beat(struct counts *c)
{
	atomic_fetch_add_explicit(&c->own->beats, 1, memory_order_relaxed);
}

uint64_t
count_beats(const struct counts *c, unsigned column)
{
	if (column >= COUNT_COLUMNS || c->columns[column] == NULL)
		return 0;
	return atomic_load_explicit(&c->columns[column]->beats,
	    memory_order_relaxed);
}

int64_t
count_sum(const struct counts *c, enum count what)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < COUNT_COLUMNS; i++)
		if (c->columns[i] != NULL)
			sum += (uint64_t)atomic_load_explicit(
			    &c->columns[i]->value[what],
			    memory_order_relaxed);
	return (int64_t)sum;
}

int64_t
count_denied_sum(const struct counts *c, enum reason r)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < COUNT_COLUMNS; i++)
		if (c->columns[i] != NULL)
			sum += (uint64_t)atomic_load_explicit(
			    &c->columns[i]->denied[r], memory_order_relaxed);
	return (int64_t)sum;
}

void
count_forget(struct counts *c, unsigned column)
{
	if (column >= COUNT_COLUMNS || c->columns[column] == NULL)
		return;
	for (unsigned i = 0; i < COUNT_N; i++)
		if (families[i].gauge)
			atomic_store(&c->columns[column]->value[i], 0);
}

/* Labels apart. */
static bool
is_same_family(const char *a, const char *b)
{
	size_t n = strcspn(a, "{");

	return n == strcspn(b, "{") && memcmp(a, b, n) == 0;
}

/* The family name of a counter has no _total in OpenMetrics. */
static int
head(char *out, size_t size, bool openmetrics, const char *family,
    const char *help, bool gauge)
{
	size_t n = strcspn(family, "{");

	if (openmetrics && !gauge && n > 6)
		n -= strlen("_total");
	return snprintf(out, size,
	    "# HELP penstock_%.*s %s\n# TYPE penstock_%.*s %s\n", (int)n,
	    family, help, (int)n, family, gauge ? "gauge" : "counter");
}

static bool
append(char *out, size_t size, size_t *at, int n)
{
	(void)out;
	if (n < 0 || (size_t)n >= size - *at)
		return false;
	*at += (size_t)n;
	return true;
}

size_t
count_text(const struct counts *c, bool openmetrics, char *out, size_t size)
{
	size_t at = 0;

	for (unsigned i = 0; i < COUNT_N; i++) {
		bool begins = i == 0 || !is_same_family(families[i].family,
		    families[i - 1].family);

		if ((begins && !append(out, size, &at, head(out + at,
		    size - at, openmetrics, families[i].family,
		    families[i].help, families[i].gauge))) ||
		    !append(out, size, &at, snprintf(out + at, size - at,
		    "penstock_%s %lld\n", families[i].family,
		    (long long)count_sum(c, (enum count)i))))
			return 0;
	}
	if (!append(out, size, &at, head(out + at, size - at, openmetrics,
	    "denied_total", "Decisions to deny, by reason", false)))
		return 0;
	for (unsigned r = 0; r < REASON_COUNT; r++)
		if (!append(out, size, &at, snprintf(out + at, size - at,
		    "penstock_denied_total{reason=\"%s\"} %lld\n",
		    reason_word((enum reason)r),
		    (long long)count_denied_sum(c, (enum reason)r))))
			return 0;
	return at;
}
