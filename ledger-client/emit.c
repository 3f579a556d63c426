/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/emit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger-client/clock.h"

#define RING_MAGIC 0x31474e4952534e50ull
#define STATE_MAGIC 0x3145544154534e50ull
#define WRAP UINT32_MAX		/* the rest of the ring is empty */
#define RING_MIN_BYTES 65536u
#define RING_MAX_BYTES (1u << 30)
/* What one decision and one end can cost at most. */
#define ENTRY_MAX_BYTES (sizeof(struct record) + 16u)

/*
 * head and tail count bytes since the beginning and never wrap; an entry is
 * a length word, padding, and the record.  The producer writes head, the
 * consumer tail.
 */
struct ring {
	uint64_t magic, size;
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) uint8_t bytes[];
};

struct emit_state {
	uint64_t magic;
	_Atomic uint32_t ok;
	_Atomic int64_t beat_ms;
};

struct emit {
	struct ring *ring;
	size_t mapped;
	uint64_t size;
	uint64_t head;
	uint64_t reserved;	/* for ends that will come */
	uint64_t lost;
	struct emit_state *state;	/* mapped for reading only */
	size_t state_mapped;
	int wake_fd;
	bool dirty;
};

struct emit_reader {
	struct ring *ring;
	size_t mapped;
	uint64_t size, tail;
	struct record copy;
};

static int
sealed(const char *name, size_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_SEAL) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

/* 0 with all of it in *out, -EBADMSG when it is shorter than `least`, or why
 * it cannot be mapped. */
static int
map(int fd, size_t least, int prot, void **out, size_t *size)
{
	struct stat st;
	void *p;

	*out = NULL;
	*size = 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (size_t)st.st_size < least)
		return -EBADMSG;
	*size = (size_t)st.st_size;
	p = mmap(NULL, *size, prot, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}

int
emit_ring_create(size_t bytes)
{
	size_t size = RING_MIN_BYTES, mapped;
	struct ring *r;
	void *p;
	int fd, rc;

	while (size < bytes && size < RING_MAX_BYTES)
		size *= 2;
	fd = sealed("penstock-ring", sizeof(*r) + size);
	if (fd < 0)
		return fd;
	rc = map(fd, sizeof(*r), PROT_READ | PROT_WRITE, &p, &mapped);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	r = p;
	r->size = size;
	r->magic = RING_MAGIC;
	munmap(r, mapped);
	return fd;
}

int
emit_state_create(void)
{
	int fd = sealed("penstock-recorder", sizeof(struct emit_state));
	struct emit_state *s;
	size_t mapped;
	void *p;
	int rc;

	if (fd < 0)
		return fd;
	rc = map(fd, sizeof(*s), PROT_READ | PROT_WRITE, &p, &mapped);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	s = p;
	s->magic = STATE_MAGIC;
	munmap(s, mapped);
	return fd;
}

int
emit_read_only(int fd)
{
	char path[32];
	int got;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	got = open(path, O_RDONLY | O_CLOEXEC);
	return got < 0 ? -errno : got;
}

/* The size was sealed by the parent; the header must agree with it. */
static int
ring_map(int fd, struct ring **out, size_t *mapped)
{
	struct ring *r;
	void *p;
	int rc = map(fd, sizeof(*r) + 8, PROT_READ | PROT_WRITE, &p, mapped);

	if (rc != 0)
		return rc;
	r = p;
	if (r->magic != RING_MAGIC || r->size != *mapped - sizeof(*r) ||
	    (r->size & 7) != 0) {
		munmap(p, *mapped);
		return -EBADMSG;
	}
	*out = r;
	return 0;
}

static int
state_map(int fd, int prot, struct emit_state **out, size_t *mapped)
{
	void *p;
	int rc = map(fd, sizeof(**out), prot, &p, mapped);

	if (rc != 0)
		return rc;
	if (((const struct emit_state *)p)->magic != STATE_MAGIC) {
		munmap(p, *mapped);
		return -EBADMSG;
	}
	*out = p;
	return 0;
}

/* A restarted producer goes on where the dead one had published; one that was
 * taken over may have left anything there.  What is too far from the tail is
 * refused until the recorder has skipped it. */
static bool
take_head(struct emit *e)
{
	uint64_t head = atomic_load(&e->ring->head);

	e->size = e->ring->size;
	e->head = (head + 7) & ~7ull;
	if (e->head - atomic_load(&e->ring->tail) > e->size)
		return false;
	if (e->head != head)
		atomic_store(&e->ring->head, e->head);
	return true;
}

int
emit_open(struct emit **out, int ring_fd, int state_fd, int wake_fd)
{
	struct emit *e = calloc(1, sizeof(*e));
	int rc;

	if (e == NULL)
		return -ENOMEM;
	rc = ring_map(ring_fd, &e->ring, &e->mapped);
	if (rc == 0)
		rc = state_map(state_fd, PROT_READ, &e->state,
		    &e->state_mapped);
	if (rc == 0 && !take_head(e))
		rc = -EBADMSG;
	if (rc != 0) {
		emit_close(e);
		return rc;
	}
	e->wake_fd = wake_fd;
	*out = e;
	return 0;
}

void
emit_close(struct emit *e)
{
	if (e == NULL)
		return;
	if (e->ring != NULL)
		munmap(e->ring, e->mapped);
	if (e->state != NULL)
		munmap(e->state, e->state_mapped);
	free(e);
}

static uint64_t
entry_bytes(size_t record)
{
	return (8 + record + 7) & ~7ull;
}

static uint64_t
free_bytes(const struct emit *e)
{
	uint64_t tail = atomic_load_explicit(&e->ring->tail,
	    memory_order_acquire);
	uint64_t used = e->head - tail;

	/* a consumer that wrote nonsense gets nothing more */
	return used > e->size ? 0 : e->size - used;
}

/* What may be promised: the free bytes, less one largest entry that the wrap
 * may waste.  There is never more than one wrap between tail and head. */
static uint64_t
room(const struct emit *e)
{
	uint64_t n = free_bytes(e);

	return n < ENTRY_MAX_BYTES ? 0 : n - ENTRY_MAX_BYTES;
}

/* Does this entry fit now, where the head stands? */
static bool
fits(const struct emit *e, uint64_t need)
{
	uint64_t left = e->size - e->head % e->size;

	return free_bytes(e) >= need + (left < need ? left : 0);
}

bool
emit_recorder_lives(const struct emit *e)
{
	return clock_mono_ms() - atomic_load_explicit(&e->state->beat_ms,
	    memory_order_relaxed) < EMIT_STALE_MS;
}

static bool
recorder_ok(const struct emit *e)
{
	return atomic_load_explicit(&e->state->ok, memory_order_relaxed) &&
	    emit_recorder_lives(e);
}

size_t
emit_bytes(const struct emit *e)
{
	return e->size;
}

bool
emit_ready(const struct emit *e)
{
	return recorder_ok(e) &&
	    room(e) >= e->reserved + 2 * ENTRY_MAX_BYTES;
}

static void
put(struct emit *e, const struct record *r)
{
	size_t len = record_size(r);
	uint64_t need = entry_bytes(len), at = e->head % e->size;
	uint32_t word = (uint32_t)len;

	if (e->size - at < need) {
		uint32_t wrap = WRAP;

		memcpy(e->ring->bytes + at, &wrap, sizeof(wrap));
		e->head += e->size - at;
		at = 0;
	}
	memcpy(e->ring->bytes + at, &word, sizeof(word));
	memcpy(e->ring->bytes + at + 8, r, len);
	e->head += need;
	atomic_store_explicit(&e->ring->head, e->head, memory_order_release);
	e->dirty = true;
}

int
emit_decision(struct emit *e, const struct record *r, size_t end_bytes)
{
	uint64_t end = end_bytes > 0 ? entry_bytes(end_bytes) : 0;

	if (!recorder_ok(e) ||
	    room(e) < e->reserved + end + entry_bytes(record_size(r)))
		return -EAGAIN;
	put(e, r);
	e->reserved += end;
	return 0;
}

void
emit_release(struct emit *e, size_t end_bytes)
{
	uint64_t end = end_bytes > 0 ? entry_bytes(end_bytes) : 0;

	e->reserved -= end < e->reserved ? end : e->reserved;
}

/* One that stands for many is as many. */
static void
lose(struct emit *e, const struct record *r)
{
	e->lost += r->count > 0 ? r->count : 1;
}

void
emit_end(struct emit *e, const struct record *r, size_t end_bytes)
{
	emit_release(e, end_bytes);
	if (!fits(e, entry_bytes(record_size(r)))) {
		lose(e, r);
		return;
	}
	put(e, r);
}

/* Say how many were lost as soon as there is room again. */
static void
put_gap(struct emit *e)
{
	struct record gap;

	record_init(&gap, RECORD_GAP);
	record_stamp(&gap);
	gap.count = e->lost > UINT32_MAX ? UINT32_MAX : (uint32_t)e->lost;
	if (room(e) < e->reserved + entry_bytes(record_size(&gap)))
		return;
	put(e, &gap);
	e->lost = 0;
}

void
emit_note(struct emit *e, const struct record *r)
{
	if (room(e) < e->reserved + entry_bytes(record_size(r))) {
		lose(e, r);
		return;
	}
	put(e, r);
}

void
emit_flush(struct emit *e)
{
	uint64_t one = 1;

	if (e->lost > 0)
		put_gap(e);
	if (!e->dirty)
		return;
	e->dirty = false;
	/* full means that it is awake already */
	if (write(e->wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- recorder ---- */

int
emit_reader_open(struct emit_reader **out, int ring_fd)
{
	struct emit_reader *r = calloc(1, sizeof(*r));
	int rc;

	if (r == NULL)
		return -ENOMEM;
	rc = ring_map(ring_fd, &r->ring, &r->mapped);
	if (rc != 0) {
		free(r);
		return rc;
	}
	r->size = r->ring->size;
	r->tail = atomic_load(&r->ring->tail);
	*out = r;
	return 0;
}

void
emit_reader_close(struct emit_reader *r)
{
	if (r == NULL)
		return;
	munmap(r->ring, r->mapped);
	free(r);
}

void
emit_commit(struct emit_reader *r)
{
	atomic_store_explicit(&r->ring->tail, r->tail, memory_order_release);
}

/* One entry into r->copy: 1 taken, 0 a wrap was skipped, -1 nonsense.  The
 * producer may change the bytes while we read, so they are copied first and
 * checked after. */
static int
take(struct emit_reader *r, uint64_t head)
{
	uint64_t at = r->tail % r->size, left = r->size - at;
	uint32_t len;

	memcpy(&len, r->ring->bytes + at, sizeof(len));
	if (len == WRAP && left <= head - r->tail) {
		r->tail += left;
		return 0;
	}
	if (len > sizeof(r->copy) || entry_bytes(len) > left ||
	    entry_bytes(len) > head - r->tail)
		return -1;
	memcpy(&r->copy, r->ring->bytes + at + 8, len);
	if (!record_check(&r->copy, len))
		return -1;
	r->tail += entry_bytes(len);
	return 1;
}

const struct record *
emit_next(struct emit_reader *r, uint64_t *lost)
{
	for (;;) {
		uint64_t head = atomic_load_explicit(&r->ring->head,
		    memory_order_acquire);
		int got;

		if (head == r->tail)
			return NULL;
		got = head - r->tail > r->size || (r->tail & 7) != 0 ||
		    (head & 7) != 0 ? -1 : take(r, head);
		if (got == 1)
			return &r->copy;
		if (got == 0)
			continue;
		*lost += head - r->tail <= r->size ? head - r->tail :
		    r->size;
		r->tail = head;
		return NULL;
	}
}

int
emit_state_open(struct emit_state **out, int state_fd)
{
	size_t mapped;

	return state_map(state_fd, PROT_READ | PROT_WRITE, out, &mapped);
}

void
emit_state_beat(struct emit_state *s, bool ok)
{
	atomic_store(&s->ok, ok);
	atomic_store(&s->beat_ms, clock_mono_ms());
}
