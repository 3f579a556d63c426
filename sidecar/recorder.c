/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "sidecar/open_table.h"
#include "sidecar/role.h"

/*
 * The recorder: takes records out of every producer's ring and appends them
 * as lines.  It has no network; while it cannot write, nobody may decide.
 */
#define BATCH_BYTES 262144u	/* lines gathered before one write */
#define RECORDS_PER_WAKE 2048u	/* then the loop turns, and beats */
#define RETRY_MS 1000
#define REST_MS 5	/* between two wakes: many records, one write */

struct recorder {
	struct role *role;
	struct emit_reader *rings[COLUMNS];
	struct open_table *open[COLUMNS];	/* decisions without an end */
	struct emit_state *state;
	struct event *wake, *rest, *beat;
	int wake_fd, dir, out;
	uint64_t seq;
	uint64_t written;		/* of these, in the file */
	uint64_t ended[COLUMNS];	/* its producer died: connections with
				 * numbers below this are to be ended */
	bool behind[COLUMNS];	/* there may be more in the ring */
	char instance[80];	/* connection numbers are unique in it */
	int64_t retry_ms;
	bool ok, told;		/* told: the parent knows of the first one */
	bool ordered;		/* to end: producers have ended before */
	size_t used;			/* of batch */
	size_t torn;	/* of its first line, so much is in the file */
	char batch[BATCH_BYTES + RECORD_JSON_MAX_BYTES];
};

static void on_wake(evutil_socket_t fd, short what, void *arg);
static void on_beat(evutil_socket_t fd, short what, void *arg);

/* ---- writing ---- */

/* A recorder that was killed may have left half a line: end it, so that the
 * next record stands on its own.  A failure shows at the next write. */
static void
end_torn_line(int fd)
{
	off_t end = lseek(fd, 0, SEEK_END);
	char last;

	if (end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n' &&
	    write(fd, "\n", 1) != 1)
		log_line(LOG_WARN, "a torn line could not be ended");
}

static int
open_file(const struct recorder *v)
{
	int fd;

	if (v->dir < 0)
		return STDOUT_FILENO;
	fd = openat(v->dir, LEDGER_FILE,
	    O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		return -errno;
	end_torn_line(fd);
	return fd;
}

static void
failed(struct recorder *v, int err)
{
	if (v->ok)
		log_line(LOG_ERROR_, "records cannot be written, nothing new "
		    "is allowed until they can error=%s", strerror(err));
	count_add(v->role->counts, COUNT_RECORD_ERRORS, 1);
	v->ok = false;
	/* at once: until the next beat more would be allowed */
	emit_state_beat(v->state, false);
}

/* Readiness waits for it: where the parent does not read, the next beat says
 * it once more. */
static void
tell(struct recorder *v)
{
	if (!v->told && v->written > 0)
		v->told = role_send(v->role, IPC_WROTE) == 0;
}

/* All that was read is in the file: only now the rings may forget it. */
static void
commit(struct recorder *v)
{
	for (unsigned i = 0; i < COLUMNS; i++)
		if (v->rings[i] != NULL)
			emit_commit(v->rings[i]);
	v->written = v->seq;
	tell(v);
}

/* Write the batch; a line that could not be written whole stays whole in it:
 * another file may get it. */
static void
flush(struct recorder *v)
{
	size_t at = v->torn, line;

	while (at < v->used) {
		ssize_t n = write(v->out, v->batch + at, v->used - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {	/* nothing taken is no way on either */
			failed(v, n < 0 ? errno : EIO);
			break;
		}
		at += (size_t)n;
	}
	for (line = at; line > 0 && v->batch[line - 1] != '\n'; line--)
		continue;
	v->torn = at - line;
	memmove(v->batch, v->batch + line, v->used - line);
	v->used -= line;
	if (v->used > 0)
		return;
	commit(v);
	if (!v->ok) {
		log_line(LOG_WARN, "records are written again");
		v->ok = true;
	}
}

static bool
full(const struct recorder *v)
{
	return v->used >= BATCH_BYTES;
}

static void
append(struct recorder *v, const struct record *r)
{
	v->used += record_json(r, ++v->seq, v->instance,
	    v->batch + v->used);
	count_add(v->role->counts, COUNT_RECORDS, 1);
}

/* ---- reading ---- */

static void
note_gap(struct recorder *v, const char *text)
{
	struct record gap;

	record_init(&gap, RECORD_GAP);
	record_stamp(&gap);
	gap.reason = REASON_INTERNAL;
	gap.count = 1;
	record_set(&gap, TEXT_DETAIL, span_str(text));
	count_add(v->role->counts, COUNT_RECORDS_LOST, 1);
	append(v, &gap);
}

static void
note_lost(struct recorder *v, unsigned column, uint64_t bytes)
{
	char text[64];

	snprintf(text, sizeof(text), "ring %u: %llu bytes were no records",
	    column, (unsigned long long)bytes);
	note_gap(v, text);
}

/* What each role has to tell: a taken one speaks for no other. */
static bool
is_its_own(unsigned column, const struct record *r)
{
	switch ((enum record_kind)r->kind) {
	case RECORD_GAP:
		return true;
	case RECORD_DECISION:
	case RECORD_END:
		return column >= COLUMN_ENGINE;
	case RECORD_DNS:
		return column == COLUMN_RESOLVER;
	case RECORD_START:
	case RECORD_POLICY:
	case RECORD_ROLE:
	case RECORD_STOP:
	case RECORD_RULES:
		return column == COLUMN_PARENT;
	case RECORD_NONE:
		break;
	}
	return false;
}

static void
take(struct recorder *v, unsigned column, const struct record *r)
{
	char text[80];

	if (!is_its_own(column, r)) {
		snprintf(text, sizeof(text), "ring %u: a record of kind %s "
		    "is not this role's", column, record_kind_word(r->kind));
		note_gap(v, text);
	} else if (!role_owns_connection(column, r->connection)) {
		snprintf(text, sizeof(text), "ring %u: connection %llu is "
		    "not this role's", column,
		    (unsigned long long)r->connection);
		note_gap(v, text);
	} else {
		open_table_see(v->open[column], r);
		append(v, r);
	}
}

/* True when the ring had more than its turn. */
static bool
drain_ring(struct recorder *v, unsigned column, unsigned turn)
{
	uint64_t lost = 0;

	for (unsigned i = 0; i < turn && !full(v); i++) {
		const struct record *r = emit_next(v->rings[column], &lost);

		if (lost > 0) {
			note_lost(v, column, lost);
			lost = 0;
		}
		if (r == NULL)
			return false;
		take(v, column, r);
	}
	return true;
}

static bool
drain_all(struct recorder *v)
{
	bool more = false;

	for (unsigned i = 0; i < COLUMNS; i++)
		if (v->rings[i] != NULL)
			more |= v->behind[i] = drain_ring(v, i,
			    RECORDS_PER_WAKE / 8);
	if (v->used > 0)
		flush(v);
	return more;
}

/* Listen again; what was put meanwhile has left its mark in the eventfd. */
static void
on_rest(evutil_socket_t fd, short what, void *arg)
{
	struct recorder *v = arg;

	(void)fd;
	(void)what;
	event_add(v->wake, NULL);
}

static void
on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct recorder *v = arg;
	struct timeval rest = { .tv_usec = REST_MS * 1000 };
	uint64_t n;

	(void)what;
	if (event_add(v->rest, &rest) == 0)
		event_del(v->wake);
	if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		return;
	/* while writing fails, rings fill and producers deny */
	if (v->ok && drain_all(v))
		event_active(v->wake, EV_READ, 0);
}

static void
try_again(struct recorder *v)
{
	int fd;

	if (v->used > 0) {
		flush(v);
		return;
	}
	fd = v->out >= 0 ? v->out : open_file(v);
	if (fd < 0)
		return;
	v->out = fd;
	v->ok = true;
	log_line(LOG_WARN, "records are written again");
}

/* A producer died: what it had open ends here. */
static void
end_open(void *arg, struct record *end)
{
	struct recorder *v = arg;

	if (full(v))
		flush(v);
	if (full(v)) {
		count_add(v->role->counts, COUNT_RECORDS_LOST, 1);
		return;
	}
	end->how = HOW_CUT;
	end->reason = REASON_ENGINE_LOST;
	record_stamp(end);
	append(v, end);
}

/* Once records can be written, and all that the dead producer left was read:
 * what it still tells of is not told after its end.  Its successor writes to
 * the same ring meanwhile, with higher numbers. */
static void
end_lost(struct recorder *v)
{
	for (unsigned i = 0; i < COLUMNS; i++) {
		uint64_t before = v->ended[i];

		if (before == 0 || v->behind[i])
			continue;
		v->ended[i] = 0;
		open_table_end(v->open[i], before, end_open, v);
		flush(v);
	}
}

static void
on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct recorder *v = arg;

	(void)fd;
	(void)what;
	if (!v->ok && (v->retry_ms += EMIT_BEAT_MS) >= RETRY_MS) {
		v->retry_ms = 0;
		try_again(v);
	}
	if (v->ok && drain_all(v))
		event_active(v->wake, EV_READ, 0);
	if (v->ok)
		end_lost(v);
	tell(v);
	emit_state_beat(v->state, v->ok);
}

/* ---- life ---- */

/* What could not be written goes to the new file, from the beginning of its
 * line on; a part of that line may stay at the end of the old one. */
static void
use_file(struct recorder *v, int fd)
{
	if (v->torn > 0)
		log_line(LOG_WARN, "the old %s ends in a torn line, which "
		    "the new one has whole", LEDGER_FILE);
	v->torn = 0;
	if (v->out >= 0)
		close(v->out);
	v->out = fd;
	log_line(LOG_INFO_, "reopened %s", LEDGER_FILE);
}

/* The parent opened the file again: all that came before is in the old one. */
static void
take_file(struct recorder *v, int fd)
{
	drain_all(v);
	end_torn_line(fd);
	use_file(v, fd);
}

/* The same ring given again says that its producer has died; the number is
 * above all that it can have given its connections. */
static void
recorder_gift(struct role *r, enum give what, unsigned index, int fd)
{
	struct recorder *v = r->self;

	if (what == GIVE_LEDGER_FILE) {
		take_file(v, fd);
		return;
	}
	close(fd);
	if (what != GIVE_RING || index >= COLUMNS || v->rings[index] == NULL)
		return;
	v->ended[index] = r->number;
	v->behind[index] = true;
	while (v->ok && v->behind[index]) {
		v->behind[index] = drain_ring(v, index, RECORDS_PER_WAKE);
		flush(v);
	}
	if (v->ok)
		end_lost(v);
}

static int
open_rings(struct role *r, struct recorder *v)
{
	for (unsigned i = 0; i < COLUMNS; i++) {
		int fd = role_take(r, GIVE_RING, i), rc;

		if (fd < 0)
			continue;
		rc = emit_reader_open(&v->rings[i], fd);
		close(fd);
		if (rc != 0)
			return rc;
		v->open[i] = open_table_new();
		if (v->open[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int
make_events(struct role *r, struct recorder *v)
{
	struct timeval beat = { .tv_usec = EMIT_BEAT_MS * 1000 };

	v->wake = event_new(r->base, v->wake_fd, EV_READ | EV_PERSIST,
	    on_wake, v);
	v->rest = evtimer_new(r->base, on_rest, v);
	v->beat = event_new(r->base, -1, EV_PERSIST, on_beat, v);
	if (v->wake == NULL || v->rest == NULL || v->beat == NULL ||
	    event_add(v->wake, NULL) < 0 || event_add(v->beat, &beat) < 0)
		return -ENOMEM;
	emit_state_beat(v->state, v->ok);
	return 0;
}

static int
recorder_start(struct role *r)
{
	struct recorder *v = calloc(1, sizeof(*v));
	int state, rc;

	if (v == NULL)
		return -ENOMEM;
	r->self = v;
	v->role = r;
	snprintf(v->instance, sizeof(v->instance), "%s-%08llx",
	    r->settings.instance, (unsigned long long)r->number);
	v->wake_fd = role_take(r, GIVE_WAKE, 0);
	v->dir = role_take(r, GIVE_LEDGER_DIR, 0);
	state = role_take(r, GIVE_STATE, 0);
	if (v->wake_fd < 0 || state < 0)
		return -ENOENT;
	rc = emit_state_open(&v->state, state);
	close(state);
	if (rc == 0)
		rc = open_rings(r, v);
	if (rc != 0)
		return rc;
	v->out = role_take(r, GIVE_LEDGER_FILE, 0);
	if (v->out >= 0)
		end_torn_line(v->out);
	else
		v->out = v->dir < 0 && r->settings.ledger_dir[0] != '\0' ?
		    -ENOENT : open_file(v);
	if (v->out < 0) {
		log_line(LOG_ERROR_, "cannot open %s beneath the ledger "
		    "directory error=%s", LEDGER_FILE, strerror(-v->out));
		return v->out;
	}
	v->ok = true;
	return make_events(r, v);
}

/* Keep the old file when the new one cannot be opened. */
static void
reopen(struct recorder *v)
{
	int fd;

	if (v->dir < 0)
		return;
	drain_all(v);
	fd = open_file(v);
	if (fd < 0) {
		log_line(LOG_ERROR_, "cannot reopen %s, the old file stays "
		    "error=%s", LEDGER_FILE, strerror(-fd));
		return;
	}
	use_file(v, fd);
}

static void
recorder_order(struct role *r, enum ipc_type order)
{
	struct recorder *v = r->self;

	if (order == IPC_REOPEN) {
		reopen(v);
		return;
	}
	v->ordered = true;
	role_end(r);
}

/* Ordered to end, or without a parent: what is in the rings comes first. */
static void
recorder_stop(struct role *r)
{
	struct recorder *v = r->self;

	if (!v->ok)
		try_again(v);
	while (v->ok && drain_all(v))
		continue;
	/* who died with the parent tells of no end */
	for (unsigned i = 0; i < COLUMNS; i++)
		if (!v->ordered && v->rings[i] != NULL)
			v->ended[i] = UINT64_MAX;
	if (v->ok)
		end_lost(v);
	/* a pipe or terminal has nothing to be synced */
	if (v->out > STDERR_FILENO && fdatasync(v->out) != 0 &&
	    errno != EINVAL && errno != EROFS)
		log_line(LOG_ERROR_, "records may not be on the disk "
		    "error=%s", strerror(errno));
	emit_state_beat(v->state, v->ok);
}

const struct role_ops recorder_ops = {
	.start = recorder_start,
	.gift = recorder_gift,
	.order = recorder_order,
	.stop = recorder_stop,
};
