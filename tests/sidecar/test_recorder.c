/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder as its role, with the producers played here; it is linked with
 * --wrap=write, so that writing can be short, interrupted or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/role.h"

#define FILE_NAME "records.jsonl"
#define STAGES 16u

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);

static enum { WHOLE = 0, SHORT, TORN, REFUSED, NOTHING } writing;
static unsigned writes;

/* Only what goes to the file of records is touched, wherever the log goes. */
ssize_t
__wrap_write(int fd, const void *data, size_t n)
{
	struct stat st;

	if (writing == WHOLE || fd <= STDERR_FILENO || fstat(fd, &st) != 0 ||
	    !S_ISREG(st.st_mode))
		return __real_write(fd, data, n);
	writes++;
	if (writing == NOTHING)
		return 0;
	if (writing == TORN && writes == 1)
		return __real_write(fd, data, 37);
	if (writing == REFUSED || writing == TORN) {
		errno = ENOSPC;
		return -1;
	}
	if (writes % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	return __real_write(fd, data, n < 37 ? n : 1 + writes % 37);
}

/* One for each test: a role has no end but that of its process. */
static struct stage {
	struct role role;
	struct emit *emit;
	char dir[32];
	int dir_fd, ring, state, wake, parent;
} stages[STAGES], *s;
static size_t n_stages;

static void
give(enum give what, unsigned index, int fd)
{
	s->role.gifts[s->role.n_gifts++] = (struct gift){ what, index,
	    dup(fd) };
}

static void
turn(long ms)
{
	struct timeval tv = { ms / 1000, ms % 1000 * 1000 };

	(void)event_base_loopexit(s->role.base, &tv);
	(void)event_base_dispatch(s->role.base);
}

static int
up(void **state)
{
	int counts = count_create(), pair[2];

	(void)state;
	s = &stages[n_stages++];
	writing = WHOLE;
	strcpy(s->dir, "/tmp/test_recorder.XXXXXX");
	if (mkdtemp(s->dir) == NULL || ipc_pair(pair) != 0)
		return -1;
	s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	s->ring = emit_ring_create(1 << 20);
	s->state = emit_state_create();
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->role.kind = ROLE_RECORDER;
	s->role.base = event_base_new();
	s->role.parent = pair[0];
	s->parent = pair[1];
	snprintf(s->role.settings.instance,
	    sizeof(s->role.settings.instance), "i");
	give(GIVE_RING, COLUMN_ENGINE, s->ring);
	give(GIVE_STATE, 0, s->state);
	give(GIVE_WAKE, 0, s->wake);
	give(GIVE_LEDGER_DIR, 0, s->dir_fd);
	return count_open(&s->role.counts, counts, COLUMN_RECORDER) != 0 ||
	    close(counts) != 0 ||
	    emit_open(&s->emit, s->ring, s->state, s->wake) != 0;
}

static int
down(void **state)
{
	(void)state;
	unlinkat(s->dir_fd, FILE_NAME, 0);
	unlinkat(s->dir_fd, "old", 0);
	return rmdir(s->dir);
}

/* On a machine that does other things too. */
static void
becomes_ready(bool is)
{
	for (int i = 0; i < 400 && emit_ready(s->emit) != is; i++)
		turn(20);
	assert_int_equal(emit_ready(s->emit), is);
}

static void
start(void)
{
	assert_int_equal(recorder_ops.start(&s->role), 0);
	turn(20);
	becomes_ready(true);
}

static void
put(unsigned first, unsigned n)
{
	char name[32];

	for (unsigned i = first; i < first + n; i++) {
		struct record r;
		int k = snprintf(name, sizeof(name), "r%u", i);

		record_init(&r, RECORD_DECISION);
		record_stamp(&r);
		r.verdict = VERDICT_ALLOW;
		r.would = VERDICT_ALLOW;
		r.connection = i + 1;
		record_set(&r, TEXT_NAME, span_of(name, (size_t)k));
		assert_int_equal(emit_decision(s->emit, &r, 0), 0);
	}
	emit_flush(s->emit);
}

/* All lines are records, r0 to r(n-1) in order, each once. */
static void
expect_records(const char *file, unsigned first, unsigned n)
{
	char path[64], line[RECORD_JSON_MAX_BYTES], want[32];
	unsigned seen = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", s->dir, file);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

		assert_non_null(o);
		if (strstr(line, "engine_lost") != NULL) {
			json_decref(o);
			continue;
		}
		snprintf(want, sizeof(want), "r%u", first + seen++);
		assert_string_equal(json_string_value(json_object_get(o,
		    "name")), want);
		json_decref(o);
	}
	fclose(f);
	assert_int_equal(seen, n);
}

static void
each_record_is_written_once_in_order_and_told(void **state)
{
	static struct ipc_message m;

	(void)state;
	start();
	put(0, 500);
	turn(50);
	put(500, 10);
	turn(50);
	expect_records(FILE_NAME, 0, 510);
	assert_int_equal(count_sum(s->role.counts, COUNT_RECORDS), 510);
	assert_int_equal(ipc_receive(s->parent, &m), 1);
	assert_int_equal(m.type, IPC_WROTE);
	assert_int_equal(ipc_receive(s->parent, &m), -EAGAIN);
}

static void
short_and_interrupted_writes_lose_nothing(void **state)
{
	(void)state;
	start();
	writing = SHORT;
	put(0, 300);
	turn(100);
	writing = WHOLE;
	assert_true(writes > 300);
	expect_records(FILE_NAME, 0, 300);
	assert_true(emit_ready(s->emit));
	assert_int_equal(count_sum(s->role.counts, COUNT_RECORD_ERRORS), 0);
}

static void
nothing_is_allowed_while(int how)
{
	struct record r;

	start();
	writing = how;
	writes = 0;
	put(0, 20);
	becomes_ready(false);
	record_init(&r, RECORD_DECISION);
	assert_int_equal(emit_decision(s->emit, &r, 0), -EAGAIN);
	assert_true(writes > 0);
	assert_int_equal(count_sum(s->role.counts, COUNT_RECORD_ERRORS),
	    writes);
	writing = WHOLE;
	becomes_ready(true);
	put(20, 5);
	turn(50);
	expect_records(FILE_NAME, 0, 25);
}

static void
while_nothing_can_be_written_nothing_is_allowed(void **state)
{
	(void)state;
	nothing_is_allowed_while(REFUSED);
}

/* Once round the loop for each, it would never beat again. */
static void
a_write_that_takes_nothing_is_a_failing_disk(void **state)
{
	(void)state;
	nothing_is_allowed_while(NOTHING);
}

/* A taken engine says what it likes: not in the name of another role. */
static void
an_engine_writes_no_kind_of_record_but_its_own(void **state)
{
	static const enum record_kind foreign[] = { RECORD_START,
	    RECORD_POLICY, RECORD_DNS, RECORD_ROLE, RECORD_STOP,
	    RECORD_RULES };
	const size_t n = sizeof(foreign) / sizeof(foreign[0]);
	char path[64], line[RECORD_JSON_MAX_BYTES], want[96];
	struct record r;
	FILE *f;

	(void)state;
	start();
	for (size_t i = 0; i < n; i++) {
		record_init(&r, foreign[i]);
		record_stamp(&r);
		record_set(&r, TEXT_DETAIL, span_str("in use"));
		emit_note(s->emit, &r);
	}
	emit_flush(s->emit);
	turn(50);
	snprintf(path, sizeof(path), "%s/%s", s->dir, FILE_NAME);
	f = fopen(path, "r");
	assert_non_null(f);
	for (size_t i = 0; i < n; i++) {
		assert_non_null(fgets(line, sizeof(line), f));
		assert_non_null(strstr(line, "\"kind\":\"gap\""));
		assert_null(strstr(line, "in use"));
		snprintf(want, sizeof(want), "ring %u: a record of kind %s ",
		    COLUMN_ENGINE, record_kind_word(foreign[i]));
		assert_non_null(strstr(line, want));
	}
	assert_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_int_equal(count_sum(s->role.counts, COUNT_RECORDS_LOST), n);
}

/* Nor of another engine's connections, one of which it could end. */
static void
an_engine_writes_of_no_connection_but_its_own(void **state)
{
	static const struct {
		unsigned engine, restarts;
	} t[] = { { 0, 0 }, { 1, 0 }, { 0, 3 }, { 63, 0 }, { 5, 3 },
	    { 0, 131071 } };
	char path[64], line[RECORD_JSON_MAX_BYTES], want[96];
	unsigned lost_ones = 0;
	struct record r;
	FILE *f;

	(void)state;
	start();
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		record_init(&r, i % 2 ? RECORD_END : RECORD_DECISION);
		record_stamp(&r);
		r.connection = role_first_connection(t[i].engine,
		    t[i].restarts) + i;
		emit_note(s->emit, &r);
	}
	emit_flush(s->emit);
	turn(50);
	snprintf(path, sizeof(path), "%s/%s", s->dir, FILE_NAME);
	f = fopen(path, "r");
	assert_non_null(f);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		unsigned long long id = role_first_connection(t[i].engine,
		    t[i].restarts) + i;

		assert_non_null(fgets(line, sizeof(line), f));
		snprintf(want, sizeof(want), t[i].engine == 0 ?
		    "\"connection\":%llu," : "\"detail\":\"ring 5: "
		    "connection %llu is not this role's\"", id);
		assert_non_null(strstr(line, want));
		assert_int_equal(strstr(line, "\"kind\":\"gap\"") != NULL,
		    t[i].engine != 0);
		lost_ones += t[i].engine != 0;
	}
	assert_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_int_equal(count_sum(s->role.counts, COUNT_RECORDS_LOST),
	    lost_ones);
}

static void
numbers_of_connections_say_whose_they_are(void **state)
{
	uint64_t last = 0;

	(void)state;
	assert_true(role_first_connection(0, 0) == 1);
	for (unsigned restarts = 0; restarts < 200; restarts++) {
		for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++) {
			uint64_t n = role_first_connection(i, restarts);

			assert_true(n > last && n <= INT64_MAX);
			assert_true(restarts >= 128 || n < 1ull << 53);
			/* as many as a life can have */
			last = n + (1ull << 40) - 2;
			for (unsigned k = 0; k < LIMIT_ENGINES_MAX; k++) {
				unsigned c = COLUMN_ENGINE + k;

				assert_int_equal(k == i,
				    role_owns_connection(c, n));
				assert_int_equal(k == i,
				    role_owns_connection(c, last));
			}
			assert_false(role_owns_connection(COLUMN_RESOLVER, n));
			assert_false(role_owns_connection(COLUMN_PARENT, n));
		}
	}
	assert_true(role_owns_connection(COLUMN_RESOLVER, 0));
	assert_true(role_owns_connection(COLUMN_ENGINE, 0));
}

static void
a_torn_line_is_ended_before_the_next(void **state)
{
	char path[64], line[128];
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/%s", s->dir, FILE_NAME);
	f = fopen(path, "w");
	fputs("{\"torn\":", f);
	fclose(f);
	start();
	put(0, 1);
	turn(50);
	f = fopen(path, "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_string_equal(line, "{\"torn\":\n");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_memory_equal(line, "{\"", 2);
	fclose(f);
}

static void
a_link_in_place_of_the_file_is_not_followed(void **state)
{
	(void)state;
	assert_int_equal(symlinkat("old", s->dir_fd, FILE_NAME), 0);
	assert_int_equal(recorder_ops.start(&s->role), -ELOOP);
}

/* The producer died: all that it opened has a number below `before`. */
static void
lost(uint64_t before)
{
	s->role.number = before;
	recorder_ops.gift(&s->role, GIVE_RING, COLUMN_ENGINE, dup(s->ring));
}

static void
put_end(uint64_t connection)
{
	struct record r;

	record_init(&r, RECORD_END);
	record_stamp(&r);
	r.connection = connection;
	r.verdict = r.would = VERDICT_ALLOW;
	emit_note(s->emit, &r);
	emit_flush(s->emit);
}

/* How many ends there are, each of another connection below `max` that was
 * decided before; *cut of them are told by the recorder. */
static unsigned
count_ends(uint64_t max, unsigned *cut)
{
	char path[64], line[RECORD_JSON_MAX_BYTES];
	bool decided[1000] = { false }, ended[1000] = { false };
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", s->dir, FILE_NAME);
	f = fopen(path, "r");
	assert_non_null(f);
	*cut = 0;
	while (fgets(line, sizeof(line), f) != NULL) {
		const char *at = strstr(line, "\"connection\":");
		unsigned long long id = strtoull(strpbrk(at, "0123456789"),
		    NULL, 10);

		assert_true(id < max && id < 1000);
		if (strstr(line, "\"kind\":\"end\"") == NULL) {
			decided[id] = true;
			continue;
		}
		assert_true(decided[id] && !ended[id]);
		ended[id] = true;
		*cut += strstr(line, "engine_lost") != NULL;
		n++;
	}
	fclose(f);
	return n;
}

static void
a_slow_recorder_ends_nothing_of_the_next_producer(void **state)
{
	unsigned cut;

	(void)state;
	start();
	put(0, 2);		/* connections 1 and 2 */
	put(499, 3);		/* those of the next one: from 500 on */
	lost(500);
	turn(150);
	assert_int_equal(count_ends(1000, &cut), 2);
	assert_int_equal(cut, 2);
	put_end(501);
	turn(50);
	assert_int_equal(count_ends(1000, &cut), 3);
	lost(900);
	assert_int_equal(count_ends(1000, &cut), 5);
	assert_int_equal(cut, 4);
}

/* More than one turn's records wait in the ring when it can write again. */
static void
a_dead_producer_s_last_words_come_before_its_ends(void **state)
{
	unsigned cut;

	(void)state;
	start();
	put(0, 900);
	put_end(900);
	put_end(899);
	writing = REFUSED;
	turn(60);
	lost(1000);
	writing = WHOLE;
	becomes_ready(true);
	turn(300);
	assert_int_equal(count_ends(1000, &cut), 900);
	assert_int_equal(cut, 898);
}

static void
what_a_dead_producer_had_open_ends(void **state)
{
	char path[64], line[RECORD_JSON_MAX_BYTES] = "";
	unsigned n = 0;
	FILE *f;

	(void)state;
	start();
	put(0, 2);
	lost(3);
	snprintf(path, sizeof(path), "%s/%s", s->dir, FILE_NAME);
	f = fopen(path, "r");
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, "\"kind\":\"end\"") != NULL &&
		    strstr(line, "engine_lost") != NULL;
	fclose(f);
	assert_int_equal(n, 2);
}

static void
a_rotated_file_gets_no_more_and_an_end_drains_all(void **state)
{
	(void)state;
	start();
	put(0, 3);
	assert_int_equal(renameat(s->dir_fd, FILE_NAME, s->dir_fd, "old"), 0);
	/* what was handed over before belongs to the old file */
	recorder_ops.order(&s->role, IPC_REOPEN);
	put(3, 4);
	recorder_ops.order(&s->role, IPC_STOP);
	recorder_ops.stop(&s->role);
	expect_records("old", 0, 3);
	expect_records(FILE_NAME, 3, 4);
}

static void
what_is_in_the_rings_is_written_when_the_parent_is_gone(void **state)
{
	(void)state;
	start();
	put(0, 30);
	assert_non_null(recorder_ops.stop);
	recorder_ops.stop(&s->role);
	expect_records(FILE_NAME, 0, 30);
}

static void
what_was_open_ends_when_the_parent_is_gone(void **state)
{
	unsigned cut;

	(void)state;
	start();
	put(0, 30);
	put_end(7);
	recorder_ops.stop(&s->role);
	assert_int_equal(count_ends(1000, &cut), 30);
	assert_int_equal(cut, 29);
}

static void
a_line_torn_by_a_full_disk_is_whole_in_the_next_file(void **state)
{
	char path[64], line[RECORD_JSON_MAX_BYTES];
	FILE *f;

	(void)state;
	start();
	writing = TORN;
	writes = 0;
	put(0, 3);
	becomes_ready(false);
	assert_int_equal(renameat(s->dir_fd, FILE_NAME, s->dir_fd, "old"), 0);
	recorder_ops.order(&s->role, IPC_REOPEN);
	writing = WHOLE;
	becomes_ready(true);
	expect_records(FILE_NAME, 0, 3);
	snprintf(path, sizeof(path), "%s/old", s->dir);
	f = fopen(path, "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_int_equal(strlen(line), 37);
	fclose(f);
}

static void
the_first_record_is_told_once_the_parent_reads(void **state)
{
	static struct ipc_message m;
	unsigned told = 0;

	(void)state;
	start();
	while (role_send(&s->role, IPC_READY) == 0)
		continue;
	put(0, 1);
	turn(50);
	while (ipc_receive(s->parent, &m) == 1)
		assert_int_equal(m.type, IPC_READY);
	turn(250);
	while (ipc_receive(s->parent, &m) == 1)
		told += m.type == IPC_WROTE;
	assert_int_equal(told, 1);
}

int
main(void)
{
#define WITH(t) cmocka_unit_test_setup_teardown(t, up, down)
	const struct CMUnitTest tests[] = {
		WITH(each_record_is_written_once_in_order_and_told),
		WITH(short_and_interrupted_writes_lose_nothing),
		WITH(while_nothing_can_be_written_nothing_is_allowed),
		WITH(a_write_that_takes_nothing_is_a_failing_disk),
		WITH(an_engine_writes_no_kind_of_record_but_its_own),
		WITH(an_engine_writes_of_no_connection_but_its_own),
		cmocka_unit_test(numbers_of_connections_say_whose_they_are),
		WITH(a_torn_line_is_ended_before_the_next),
		WITH(a_link_in_place_of_the_file_is_not_followed),
		WITH(what_a_dead_producer_had_open_ends),
		WITH(a_slow_recorder_ends_nothing_of_the_next_producer),
		WITH(a_dead_producer_s_last_words_come_before_its_ends),
		WITH(a_rotated_file_gets_no_more_and_an_end_drains_all),
		WITH(what_is_in_the_rings_is_written_when_the_parent_is_gone),
		WITH(what_was_open_ends_when_the_parent_is_gone),
		WITH(a_line_torn_by_a_full_disk_is_whole_in_the_next_file),
		WITH(the_first_record_is_told_once_the_parent_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
