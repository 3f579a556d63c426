/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	emit_state_beat(recorder, true);
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
	emit_state_beat(recorder, false);
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
	/* one that stands for many */
	r.count = 70000;
	emit_note(e, &r);
	/* the recorder is stopped: every end has its place all the same */
	emit_state_beat(recorder, false);
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
	assert_in_range(gaps, 70000 + 900, 70000 + 1000);
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

/* How many mappings there are of memory with this name. */
static unsigned
mappings(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, name) != NULL;
	fclose(f);
	return n;
}

static void
what_is_refused_leaves_nothing_mapped(void **state)
{
	int fd = memfd_create("no-emit", MFD_CLOEXEC);
	struct emit *other;
	struct emit_reader *other_reader;
	struct emit_state *other_state;

	(void)state;
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(emit_state_open(&other_state, fd), -EBADMSG);
	assert_int_equal(emit_open(&other, ring_fd, fd, wake_fd), -EBADMSG);
	assert_int_equal(emit_open(&other, fd, state_fd, wake_fd), -EBADMSG);
	assert_int_equal(emit_reader_open(&other_reader, fd), -EBADMSG);
	assert_int_equal(mappings("no-emit"), 0);
	close(fd);
	/* those of the fixture, and no more */
	assert_int_equal(mappings("penstock-ring"), 2);
	assert_int_equal(mappings("penstock-recorder"), 2);
}

static void
why_it_cannot_be_mapped_is_said(void **state)
{
	int ring = emit_read_only(ring_fd), status = emit_read_only(state_fd);
	struct emit *other;
	struct emit_reader *other_reader;
	struct emit_state *other_state;

	(void)state;
	assert_true(ring >= 0 && status >= 0);
	assert_int_equal(emit_open(&other, ring, status, wake_fd), -EACCES);
	assert_int_equal(emit_open(&other, -1, status, wake_fd), -EBADF);
	assert_int_equal(emit_open(&other, ring_fd, -1, wake_fd), -EBADF);
	assert_int_equal(emit_reader_open(&other_reader, ring), -EACCES);
	assert_int_equal(emit_state_open(&other_state, status), -EACCES);
	close(ring);
	close(status);
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

/* ---- to the last byte ---- */

#define RING_BYTES 65536u
#define TAIL_AT 128u
#define HEAD_BYTES offsetof(struct record, text)
#define ENTRY_LEAST ((8 + HEAD_BYTES + 7) & ~7ul)
#define ENTRY_MOST ((8 + HEAD_BYTES + RECORD_TEXT_BYTES) & ~7ul)
#define SLACK (sizeof(struct record) + 16)	/* what a wrap may waste */

/* A record that takes exactly so many bytes of the ring. */
static void
make_entry(enum record_kind kind, uint64_t number, size_t bytes)
{
	assert_in_range(bytes, ENTRY_LEAST, ENTRY_MOST);
	make(kind, number, bytes - 8 - HEAD_BYTES);
}

/* An empty ring whose next entry begins at this offset. */
static void
begin_at(uint64_t at)
{
	size_t size;
	uint8_t *p = map_ring(&size);

	assert_int_equal(size, BYTES_AT + RING_BYTES);
	memcpy(p + HEAD_AT, &at, sizeof(at));
	memcpy(p + TAIL_AT, &at, sizeof(at));
	munmap(p, size);
	emit_close(e);
	emit_reader_close(reader);
	assert_int_equal(emit_open(&e, ring_fd, state_fd, wake_fd), 0);
	assert_int_equal(emit_reader_open(&reader, ring_fd), 0);
	beat();
}

/* The next entry's size, when exactly `want` bytes are to be filled. */
static size_t
part_of(size_t want)
{
	if (want <= ENTRY_MOST)
		return want;
	return want - ENTRY_MOST < ENTRY_LEAST ? want - ENTRY_LEAST :
	    ENTRY_MOST;
}

/* Put entries until exactly `left` bytes are free, and say how many; 0 when
 * the sizes of entries do not add up to that.  *at goes to the next one. */
static uint64_t
fill(uint64_t *at, size_t left)
{
	size_t unused = RING_BYTES;
	uint64_t n = 0;

	while (unused > left) {
		size_t run = RING_BYTES - *at, want = unused - left;

		if (run < ENTRY_LEAST && run < want) {	/* skipped */
			unused -= run;
			*at = 0;
			continue;
		}
		want = part_of(run < want ? run : want);
		if (want < ENTRY_LEAST)
			return 0;
		make_entry(RECORD_END, ++n, want);
		emit_end(e, &r, 0);
		*at = (*at + want) % RING_BYTES;
		unused -= want;
	}
	return n;
}

/* Exactly these come out, whole, and then nothing. */
static void
come_out(uint64_t n)
{
	const struct record *got;

	for (uint64_t i = 1; i <= n; i++) {
		got = next_record(reader, &lost);
		assert_non_null(got);
		assert_true(got->connection == i);
		for (size_t k = 0; k < got->text_len; k++)
			if (got->text[k] != 'x')
				fail_msg("another's bytes in %zu", (size_t)i);
	}
	assert_null(next_record(reader, &lost));
	assert_true(lost == 0);
}

/* How many records the producer says that it lost since the last flush. */
static uint32_t
said_lost(void)
{
	const struct record *got;

	emit_flush(e);
	got = next_record(reader, &lost);
	if (got == NULL)
		return 0;
	assert_int_equal(got->kind, RECORD_GAP);
	return got->count;
}

static void
nothing_more_goes_in(void)
{
	make_entry(RECORD_DECISION, 999, ENTRY_LEAST);
	beat();
	assert_false(emit_ready(e));
	assert_int_equal(emit_decision(e, &r, 0), -EAGAIN);
	emit_note(e, &r);
	emit_end(e, &r, 0);
}

static void
a_ring_is_filled_to_its_last_byte_and_no_further(void **state)
{
	unsigned filled = 0;

	(void)state;
	for (uint64_t at = 0; at < RING_BYTES; at += 8) {
		uint64_t next = at, n;

		begin_at(at);
		n = fill(&next, 0);
		if (n == 0)
			continue;
		filled++;
		nothing_more_goes_in();
		come_out(n);
		assert_int_equal(said_lost(), 2);
		assert_true(emit_ready(e));
	}
	/* all but those with less than one entry in front of them */
	assert_int_equal(filled, (RING_BYTES - ENTRY_LEAST) / 8 + 1);
}

/* The free bytes are one largest entry, at every place of the ring: in one
 * run, or in two of which the larger can be had. */
static void
an_entry_goes_in_that_fits_and_none_that_is_one_word_longer(void **state)
{
	unsigned split = 0, whole = 0;

	(void)state;
	for (uint64_t at = 0; at < RING_BYTES; at += 8) {
		uint64_t next = at, n;
		size_t run, most = ENTRY_MOST;

		begin_at(at);
		n = fill(&next, ENTRY_MOST);
		run = RING_BYTES - next;
		if (n == 0)
			continue;
		if (run < ENTRY_MOST)
			most = run > ENTRY_MOST - run ? run :
			    ENTRY_MOST - run;
		if (most < ENTRY_LEAST)
			continue;
		if (most < ENTRY_MOST) {
			split++;
			make_entry(RECORD_END, 999, most + 8);
			emit_end(e, &r, 0);
		} else {
			whole++;
		}
		make_entry(RECORD_END, n + 1, most);
		emit_end(e, &r, 0);
		come_out(n + 1);
		assert_int_equal(said_lost(), most < ENTRY_MOST);
	}
	assert_true(whole > 7000 && split > ENTRY_MOST / 16);
}

/* Room for the decision, its end and what a wrap may waste: then both go in,
 * wherever the wrap is.  One word less, and it is refused. */
static void
a_decision_is_refused_for_one_word_and_no_promised_end_is_lost(void **state)
{
	const size_t ends[] = { 0, ENTRY_LEAST, ENTRY_MOST };
	unsigned taken = 0;

	(void)state;
	for (uint64_t at = 0; at < RING_BYTES; at += 8) {
		size_t end = ends[at / 8 % 3];
		size_t need = ENTRY_LEAST + (at / 8 * 40) % 1000 / 8 * 8;
		uint64_t next = at, n;

		for (size_t less = 0; less <= 8; less += 8) {
			next = at;
			begin_at(at);
			n = fill(&next, SLACK + need + end - less);
			if (n == 0)
				continue;
			make_entry(RECORD_DECISION, n + 1, need);
			beat();
			assert_int_equal(emit_decision(e, &r, end ? end - 8 :
			    0), less ? -EAGAIN : 0);
			if (less == 0 && end > 0) {
				make_entry(RECORD_END, n + 2, end);
				emit_end(e, &r, end - 8);
			}
			come_out(n + (less == 0) + (less == 0 && end > 0));
			assert_int_equal(said_lost(), 0);
			taken += less == 0;
		}
	}
	assert_true(taken > 7000);
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
		ONE(what_is_refused_leaves_nothing_mapped),
		ONE(why_it_cannot_be_mapped_is_said),
		ONE(a_ring_cannot_be_made_smaller),
		ONE(a_head_left_by_a_hostile_producer_is_not_gone_on_from),
		ONE(a_producer_cannot_write_the_recorder_s_state),
		ONE(a_ring_is_filled_to_its_last_byte_and_no_further),
		ONE(an_entry_goes_in_that_fits_and_none_that_is_one_word_longer),
		ONE(
		    a_decision_is_refused_for_one_word_and_no_promised_end_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
