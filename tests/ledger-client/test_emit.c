/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/emit.h"

static int ring_fd, state_fd, wake_fd;
static struct emit *e;
static struct emit_reader *reader;
static struct emit_state *recorder;
static struct record r;
static uint64_t lost;

static int
up(void **state)
{
	(void)state;
	ring_fd = emit_ring_create(1);
	state_fd = emit_state_create();
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	lost = 0;
	return ring_fd < 0 || state_fd < 0 || wake_fd < 0 ||
	    emit_state_open(&recorder, state_fd) != 0 ||
	    emit_open(&e, ring_fd, state_fd, wake_fd) != 0 ||
	    emit_reader_open(&reader, ring_fd) != 0;
}

static int
down(void **state)
{
	struct stat st;

	(void)state;
	emit_close(e);
	emit_reader_close(reader);
	if (fstat(state_fd, &st) == 0)
		munmap(recorder, (size_t)st.st_size);
	close(ring_fd);
	close(state_fd);
	close(wake_fd);
	return 0;
}

/* What the recorder does: read, write, give the room back. */
static const struct record *
next_record(struct emit_reader *from, uint64_t *count)
{
	const struct record *got = emit_next(from, count);

	emit_commit(from);
	return got;
}

static void
beat(void)
{
	emit_state_beat(recorder, true, 0, 0);
}

/* A record that says which it is, with n bytes of text. */
static void
make(enum record_kind kind, uint64_t number, size_t n)
{
	static char text[RECORD_TEXT_MAX_BYTES];

	memset(text, 'x', sizeof(text));
	record_init(&r, kind);
	r.connection = number;
	for (unsigned i = 0; i < TEXT_COUNT && n > 0; i++) {
		size_t part = n < sizeof(text) ? n : sizeof(text);

		record_set(&r, (enum record_text)i, span_of(text, part));
		n -= part;
	}
}

static void
records_come_out_as_they_went_in_around_the_ring_many_times(void **state)
{
	uint64_t in = 0, out = 0;
	const struct record *got;

	(void)state;
	while (in < 5000) {
		unsigned burst = (unsigned)(in % 9) + 1;

		beat();
		for (unsigned i = 0; i < burst; i++) {
			in++;
			make(RECORD_DECISION, in, (in * 37) % 1500);
			assert_int_equal(emit_decision(e, &r, 0), 0);
		}
		while ((got = next_record(reader, &lost)) != NULL) {
			out++;
			assert_true(got->connection == out);
			make(RECORD_DECISION, out, (out * 37) % 1500);
			assert_int_equal(record_size(got), record_size(&r));
			assert_memory_equal(got, &r, record_size(&r));
		}
	}
	assert_true(in == out);
	assert_true(lost == 0);
}

static void
a_full_ring_denies_and_goes_on_when_there_is_room(void **state)
{
	uint64_t in = 0, out = 0;

	(void)state;
	for (;;) {
		beat();
		make(RECORD_DECISION, in + 1, 100);
		if (emit_decision(e, &r, 0) != 0)
			break;
		in++;
		assert_true(in < 1000);
	}
	assert_true(in > 50);
	assert_int_equal(emit_decision(e, &r, 0), -EAGAIN);
	assert_false(emit_ready(e));
	while (next_record(reader, &lost) != NULL)
		out++;
	assert_true(in == out);
	assert_true(emit_ready(e));
	assert_int_equal(emit_decision(e, &r, 0), 0);
}

static void
a_recorder_that_is_silent_or_not_well_denies(void **state)
{
	const struct timespec wait = { 0, (EMIT_STALE_MS + 20) * 1000000L };

	(void)state;
	make(RECORD_DECISION, 1, 0);
	/* never heard of */
	assert_false(emit_ready(e));
	assert_int_equal(emit_decision(e, &r, 0), -EAGAIN);
	beat();
	assert_true(emit_ready(e));
	assert_int_equal(emit_decision(e, &r, 0), 0);
	emit_state_beat(recorder, false, 1, 1);
	assert_false(emit_ready(e));
	assert_int_equal(emit_decision(e, &r, 0), -EAGAIN);
	beat();
	assert_int_equal(nanosleep(&wait, NULL), 0);
	assert_false(emit_ready(e));
	assert_int_equal(emit_decision(e, &r, 0), -EAGAIN);
}

static void
the_room_for_an_end_is_kept_from_all_others(void **state)
{
	uint64_t decisions = 0, ends = 0, gaps = 0;
	const struct record *got;
	size_t end_bytes;

	(void)state;
	make(RECORD_END, 1, 1400);
	end_bytes = record_size(&r);
	for (;;) {
		beat();
		make(RECORD_DECISION, decisions + 1, 10);
		if (emit_decision(e, &r, end_bytes) != 0)
			break;
		decisions++;
	}
	assert_true(decisions > 5);
	/* notes take nothing of it */
	for (unsigned i = 0; i < 1000; i++) {
		make(RECORD_ROLE, i + 1, 1400);
		emit_note(e, &r);
	}
	/* the recorder is stopped: every end has its place all the same */
	emit_state_beat(recorder, false, 0, 0);
	for (uint64_t i = 1; i <= decisions; i++) {
		make(RECORD_END, i, 1400);
		emit_end(e, &r, end_bytes);
	}
	while ((got = next_record(reader, &lost)) != NULL)
		ends += got->kind == RECORD_END;
	assert_true(ends == decisions);
	/* and what was lost is told */
	emit_flush(e);
	while ((got = next_record(reader, &lost)) != NULL)
		if (got->kind == RECORD_GAP)
			gaps += got->count;
	assert_in_range(gaps, 900, 1000);
	assert_true(lost == 0);
}

static void
the_recorder_is_woken_once_a_flush(void **state)
{
	uint64_t n;

	(void)state;
	beat();
	emit_flush(e);
	assert_int_equal(read(wake_fd, &n, sizeof(n)), -1);
	make(RECORD_ROLE, 1, 0);
	emit_note(e, &r);
	emit_note(e, &r);
	emit_flush(e);
	emit_flush(e);
	assert_int_equal(read(wake_fd, &n, sizeof(n)), sizeof(n));
	assert_true(n == 1);
}

static void
a_restarted_producer_and_recorder_go_on(void **state)
{
	const struct record *got;

	(void)state;
	for (uint64_t i = 1; i <= 3; i++) {
		beat();
		make(RECORD_DECISION, i, 50);
		assert_int_equal(emit_decision(e, &r, 2000), 0);
		emit_close(e);
		assert_int_equal(emit_open(&e, ring_fd, state_fd, wake_fd),
		    0);
	}
	for (uint64_t i = 1; i <= 3; i++) {
		got = next_record(reader, &lost);
		assert_non_null(got);
		assert_true(got->connection == i);
		emit_reader_close(reader);
		assert_int_equal(emit_reader_open(&reader, ring_fd), 0);
	}
	assert_null(next_record(reader, &lost));
	assert_true(lost == 0);
}

static void
a_record_that_was_not_given_back_is_read_again(void **state)
{
	const struct record *got;

	(void)state;
	beat();
	make(RECORD_DECISION, 5, 10);
	assert_int_equal(emit_decision(e, &r, 0), 0);
	got = emit_next(reader, &lost);
	assert_non_null(got);
	/* the recorder is killed before its write */
	emit_reader_close(reader);
	assert_int_equal(emit_reader_open(&reader, ring_fd), 0);
	got = emit_next(reader, &lost);
	assert_non_null(got);
	assert_true(got->connection == 5);
	emit_commit(reader);
	assert_null(emit_next(reader, &lost));
}

static void
an_end_whose_room_was_kept_is_never_lost(void **state)
{

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		uint64_t allowed = 0, ends = 0;
		const struct record *got;

		beat();
		for (;; allowed++) {
			make(RECORD_DECISION, allowed + 1,
			    (round * 131 + allowed * 57) % 1500);
			if (emit_decision(e, &r, record_size(&r)) != 0)
				break;
		}
		for (uint64_t i = 0; i < allowed; i++) {
			make(RECORD_END, i + 1, (round * 131 + i * 57) % 1500);
			emit_end(e, &r, record_size(&r));
		}
		while ((got = next_record(reader, &lost)) != NULL)
			ends += got->kind == RECORD_END;
		assert_true(ends == allowed);
	}
	assert_true(lost == 0);
}

/* ---- a producer that was taken over ---- */

static uint8_t *
map_ring(size_t *size)
{
	struct stat st;
	uint8_t *p;

	assert_int_equal(fstat(ring_fd, &st), 0);
	*size = (size_t)st.st_size;
	p = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd,
	    0);
	assert_true(p != MAP_FAILED);
	return p;
}

/* Where the words of the ring's head are: the one that a record moves is
 * head, the one that reading moves is tail. */
#define HEAD_AT 64u
#define BYTES_AT 192u

static void
hostile_bytes_are_skipped_and_counted(void **state)
{
	size_t size;
	uint8_t *p = map_ring(&size);
	uint64_t head;

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		uint64_t before = lost;

		beat();
		make(RECORD_DECISION, 1, round);
		assert_int_equal(emit_decision(e, &r, 0), 0);
		memcpy(&head, p + HEAD_AT, sizeof(head));
		/* the newest entry's record: a kind that is none */
		memset(p + BYTES_AT, 0xa5, size - BYTES_AT);
		assert_null(next_record(reader, &lost));
		assert_true(lost > before);
		assert_null(next_record(reader, &lost));
		/* and the next sound one is read */
		make(RECORD_DECISION, 77, 0);
		assert_int_equal(emit_decision(e, &r, 0), 0);
		assert_non_null(next_record(reader, &lost));
	}
	munmap(p, size);
}

static void
a_hostile_head_never_leads_out_of_the_ring(void **state)
{
	static const uint64_t heads[] = { 1, 7, 8, 16, 65536, 65544,
		UINT64_MAX, UINT64_MAX - 7, 1ull << 63, 3, 65535 };
	static const uint32_t words[] = { 0, 1, 8, 1700, 1800, 65000, 65536,
		UINT32_MAX, UINT32_MAX - 1, UINT32_MAX - 8 };
	size_t size;
	uint8_t *p = map_ring(&size);

	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		for (size_t j = 0; j < sizeof(words) / sizeof(words[0]);
		    j++) {
			for (size_t at = BYTES_AT; at + 8 <= size; at += 8)
				memcpy(p + at, &words[j], sizeof(words[j]));
			memcpy(p + HEAD_AT, &heads[i], sizeof(heads[i]));
			for (unsigned n = 0; n < 100; n++)
				(void)next_record(reader, &lost);
			assert_null(next_record(reader, &lost));
		}
	assert_true(lost > 0);
	munmap(p, size);
}

static void
what_is_no_ring_is_not_opened(void **state)
{
	struct emit_reader *no_reader;
	struct emit_state *no_state;
	struct emit *no;
	int fd = memfd_create("x", MFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(emit_open(&no, fd, state_fd, wake_fd), -EBADMSG);
	assert_int_equal(ftruncate(fd, 65536 + 192), 0);
	assert_int_equal(emit_open(&no, fd, state_fd, wake_fd), -EBADMSG);
	assert_int_equal(emit_open(&no, ring_fd, fd, wake_fd), -EBADMSG);
	assert_int_equal(emit_open(&no, state_fd, ring_fd, wake_fd),
	    -EBADMSG);
	assert_int_equal(emit_reader_open(&no_reader, state_fd), -EBADMSG);
	assert_int_equal(emit_state_open(&no_state, ring_fd), -EBADMSG);
	close(fd);
}

static void
a_ring_cannot_be_made_smaller(void **state)
{
	(void)state;
	assert_int_equal(ftruncate(ring_fd, 100), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(state_fd, 1), -1);
	assert_int_equal(errno, EPERM);
}

static void
a_head_left_by_a_hostile_producer_is_not_gone_on_from(void **state)
{
	uint64_t head = 61, far = 1ull << 40;
	struct emit *next;
	size_t size;
	uint8_t *p = map_ring(&size);

	(void)state;
	memcpy(p + HEAD_AT, &head, sizeof(head));
	assert_int_equal(emit_open(&next, ring_fd, state_fd, wake_fd), 0);
	memcpy(&head, p + HEAD_AT, sizeof(head));
	assert_int_equal(head, 64);
	assert_null(next_record(reader, &lost));
	beat();
	make(RECORD_DECISION, 9, 10);
	assert_int_equal(emit_decision(next, &r, 0), 0);
	assert_non_null(next_record(reader, &lost));
	emit_close(next);
	memcpy(p + HEAD_AT, &far, sizeof(far));
	assert_int_equal(emit_open(&next, ring_fd, state_fd, wake_fd),
	    -EBADMSG);
	/* the recorder has passed it */
	assert_null(next_record(reader, &lost));
	assert_int_equal(emit_open(&next, ring_fd, state_fd, wake_fd), 0);
	emit_close(next);
	munmap(p, size);
}

static void
a_producer_cannot_write_the_recorder_s_state(void **state)
{
	int fd = emit_read_only(state_fd);
	struct emit *next;
	void *p;

	(void)state;
	assert_true(fd >= 0);
	assert_true(mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
	    == MAP_FAILED);
	assert_int_equal(errno, EACCES);
	p = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p, 8, PROT_READ | PROT_WRITE), -1);
	munmap(p, 8);
	assert_int_equal(emit_open(&next, ring_fd, fd, wake_fd), 0);
	beat();
	assert_true(emit_ready(next));
	emit_close(next);
	assert_int_equal(emit_read_only(-1), -ENOENT);
	close(fd);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(a_record_that_was_not_given_back_is_read_again),
		ONE(an_end_whose_room_was_kept_is_never_lost),
		ONE(records_come_out_as_they_went_in_around_the_ring_many_times),
		ONE(a_full_ring_denies_and_goes_on_when_there_is_room),
		ONE(a_recorder_that_is_silent_or_not_well_denies),
		ONE(the_room_for_an_end_is_kept_from_all_others),
		ONE(the_recorder_is_woken_once_a_flush),
		ONE(a_restarted_producer_and_recorder_go_on),
		ONE(hostile_bytes_are_skipped_and_counted),
		ONE(a_hostile_head_never_leads_out_of_the_ring),
		ONE(what_is_no_ring_is_not_opened),
		ONE(a_ring_cannot_be_made_smaller),
		ONE(a_head_left_by_a_hostile_producer_is_not_gone_on_from),
		ONE(a_producer_cannot_write_the_recorder_s_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
