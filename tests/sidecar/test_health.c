/* SPDX-License-Identifier: Apache-2.0 */
/* The page of health between a parent that writes and an admin that reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sidecar/health.h"
#include "sidecar/parent_part.h"

_Static_assert(HEALTH_ROLES_MAX >= 2 + CHILDREN_MAX,
    "the parent, its children and one that compiles");

static struct health_page *writer, *reader;
static int page_fd;
static struct health h, got;

static int
up(void **state)
{
	int ro;

	(void)state;
	page_fd = health_create();
	assert_true(page_fd >= 0);
	ro = emit_read_only(page_fd);
	assert_int_equal(health_open(&writer, page_fd, true), 0);
	assert_int_equal(health_open(&reader, ro, false), 0);
	close(ro);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	health_close(writer);
	health_close(reader);
	close(page_fd);
	return 0;
}

/* The same byte everywhere. */
static void
fill(uint8_t byte)
{
	memset(&h, byte, sizeof(h));
}

static void
what_was_written_is_read(void **state)
{
	(void)state;
	/* nothing yet: a page of zeros, which says that nothing is ready */
	assert_true(health_read(reader, &got));
	assert_false(got.serving || got.recorder_ready || got.rules);
	for (unsigned i = 1; i < 256; i++) {
		fill((uint8_t)i);
		health_write(writer, &h);
		assert_true(health_read(reader, &got));
		assert_memory_equal(&got, &h, sizeof(h));
	}
}

static void
a_page_that_is_read_cannot_be_written(void **state)
{
	int ro = emit_read_only(page_fd);
	struct health_page *p;

	(void)state;
	assert_true(ro >= 0);
	assert_int_equal(health_open(&p, ro, true), -EACCES);
	close(ro);
}

static void
what_is_no_page_is_not_opened(void **state)
{
	struct health_page *p;
	int other = memfd_create("other", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(health_open(&p, -1, false), -EBADMSG);
	assert_int_equal(health_open(&p, other, false), -EBADMSG);
	assert_int_equal(ftruncate(other, 1 << 20), 0);
	assert_int_equal(health_open(&p, other, false), -EBADMSG);
	close(other);
	/* its size is for good: a reader would die of less */
	assert_int_equal(ftruncate(page_fd, 0), -1);
	assert_int_equal(ftruncate(page_fd, 1 << 20), -1);
}

/* Its number is odd: a writer that died in the midst of it. */
static void
a_half_written_page_is_not_read_until_it_is_whole(void **state)
{
	uint32_t *seq = mmap(NULL, sizeof(*seq), PROT_READ | PROT_WRITE,
	    MAP_SHARED, page_fd, 0);

	(void)state;
	assert_true(seq != MAP_FAILED);
	fill(1);
	health_write(writer, &h);
	++*seq;
	assert_false(health_read(reader, &got));
	/* the next parent writes on */
	fill(2);
	health_write(writer, &h);
	assert_true(health_read(reader, &got));
	assert_memory_equal(&got, &h, sizeof(h));
	assert_int_equal(*seq & 1, 0);
	/* where the number wraps too */
	*seq = UINT32_MAX - 1;
	for (unsigned i = 0; i < 3; i++) {
		fill((uint8_t)(3 + i));
		health_write(writer, &h);
		assert_true(health_read(reader, &got));
		assert_memory_equal(&got, &h, sizeof(h));
	}
	munmap(seq, sizeof(*seq));
}

static atomic_bool stop;
static atomic_ulong wrote;

static void *
writes(void *arg)
{
	static struct health own;

	(void)arg;
	for (unsigned i = 0; !atomic_load(&stop); i++) {
		memset(&own, (int)(i % 251), sizeof(own));
		health_write(writer, &own);
		atomic_fetch_add(&wrote, 1);
	}
	return NULL;
}

/* Each copy is of one time. */
static void
a_copy_is_never_of_two_writes(void **state)
{
	const uint8_t *bytes = (const uint8_t *)&got;
	unsigned torn = 0, whole = 0;
	pthread_t t;

	(void)state;
	fill(0);
	health_write(writer, &h);
	assert_int_equal(pthread_create(&t, NULL, writes, NULL), 0);
	while (whole < 20000 || atomic_load(&wrote) < 1000) {
		if (!health_read(reader, &got))
			continue;
		whole++;
		for (size_t i = 1; i < sizeof(got); i++)
			if (bytes[i] != bytes[0]) {
				torn++;
				break;
			}
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	assert_int_equal(torn, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_was_written_is_read),
		T(a_page_that_is_read_cannot_be_written),
		T(what_is_no_page_is_not_opened),
		T(a_half_written_page_is_not_read_until_it_is_whole),
		T(a_copy_is_never_of_two_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
