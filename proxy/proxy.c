/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ledger-client/fold.h"
#include "proxy/conn.h"
#include "proxy/forward.h"

#define SWEEP_MAX_MS 10000u
#define KEEPALIVE_IDLE_S 60
#define PIPE_SOFT_DEFAULT_PAGES 16384u

const struct proxy_limits proxy_limits_default = {
	.hello_ms = 5000, .resolve_ms = 5000, .connect_ms = 10000,
	.stagger_ms = 250, .idle_ms = 3600000, .half_closed_ms = 60000,
	.keepalive_ms = 120000,
	.linger_ms = 1000, .reload_grace_ms = 0, .linger_bytes = 16 << 20,
	.hello_bytes = HELLO_MAX_BYTES, .head_bytes = HTTP_HEAD_MAX_BYTES,
	.header_count = HTTP_FIELDS_MAX, .connections = 20000,
	.per_cell = 0, .per_client = 4096, .pipe_share_percent = 50,
	.copy_buffer_bytes = 65536,
};

/* What the kernel gives one uid for pipes, by engine.  Read before the file
 * system is closed to us. */
static size_t
pipe_bytes(const struct proxy_parts *parts)
{
	size_t pages = PIPE_SOFT_DEFAULT_PAGES;
	unsigned engines = parts->n_engines ? parts->n_engines : 1;
	FILE *f = fopen("/proc/sys/fs/pipe-user-pages-soft", "re");

	if (f != NULL) {
		if (fscanf(f, "%zu", &pages) != 1 || pages > 1u << 22)
			pages = PIPE_SOFT_DEFAULT_PAGES;
		fclose(f);
	}
	return pages * (size_t)sysconf(_SC_PAGESIZE) / engines;
}

static size_t
pipe_bytes_max(const struct proxy *p)
{
	return p->pipe_bytes / 100 * p->limits.pipe_share_percent;
}

static void
on_flush(evutil_socket_t fd, short what, void *arg)
{
	struct proxy *p = arg;

	(void)fd;
	(void)what;
	emit_flush(p->parts.emit);
}

void
proxy_put(struct proxy *p)
{
	/* Runs behind the events that are already active. */
	event_active(p->flush, EV_TIMEOUT, 0);
}

static void
judge_all(struct proxy *p)
{
	struct conn *c = LIST_FIRST(&p->open), *next;

	for (; c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		again_judge(c);
	}
}

static void
on_grace(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	judge_all(arg);
}

/* An upstream that has been there for a sweep is watched for having gone
 * without a word; most are closed sooner. */
static void
probe_up(struct conn *c)
{
	const int one = 1, idle = KEEPALIVE_IDLE_S;

	if (c->probed || !c->up_alive)
		return;
	c->probed = true;
	setsockopt(c->up.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(c->up.fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
}

/* What can go on without an edge; who is not through then stands behind. */
static void
on_later(evutil_socket_t fd, short what, void *arg)
{
	struct proxy *p = arg;
	unsigned n = p->n_again;
	struct conn *c;

	(void)fd;
	(void)what;
	p->n_again = 0;
	while (n-- > 0 && (c = TAILQ_FIRST(&p->again)) != NULL) {
		TAILQ_REMOVE(&p->again, c, later);
		c->queued = false;
		conn_run(c);
	}
}

static void
on_turn_over(void *arg)
{
	conn_forget(arg);
}

/* A write that was refused for want of the kernel's memory, rather than of
 * room, may get no edge: it is tried again. */
static void
try_writing(struct conn *c)
{
	c->client.writable = c->up.writable = true;
	conn_run(c);
}

/* One side has ended, and both have taken all that was sent: bytes that wait
 * for a slow reader are no silence. */
static bool
is_half_closed(const struct conn *c)
{
	return c->state == CONN_RELAY && c->forward == NULL &&
	    c->client.eof != c->up.eof &&
	    side_left(&c->client) + side_left(&c->up) == 0;
}

/* A client that has left looks like one that has only ended its direction, and
 * a server that says nothing never meets it: from its end on, and from each
 * byte, there is less time than a whole connection has. */
static bool
half_closed_for_long(struct conn *c, int64_t now)
{
	bool was = c->half_closed;

	c->half_closed = is_half_closed(c);
	if (!c->half_closed)
		return false;
	if (!was || c->moved_ms == 0)
		c->moved_ms = now;
	return now - c->moved_ms >= c->proxy->limits.half_closed_ms;
}

/* Whose time is over among those without a timer, and who has left. */
static void
on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct proxy *p = arg;
	struct conn *c = LIST_FIRST(&p->open), *next;
	int64_t now = conn_now_ms();

	(void)fd;
	(void)what;
	for (; c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		probe_up(c);
		if (half_closed_for_long(c, now)) {
			conn_cut(c, HOW_CUT, REASON_IDLE);
			conn_run(c);
		} else if (c->timer_ms == 0 && c->deadline_ms != 0 &&
		    c->deadline_ms <= now) {
			conn_run(c);
		} else if (((c->client.want | c->up.want) & SIDE_WRITE) != 0) {
			try_writing(c);
		} else {
			forward_look_at_client(c);
		}
	}
}

/* A limit of what is idle is kept to a sixteenth of itself, or to ten
 * seconds. */
static int
sweep_every(struct proxy *p)
{
	const struct proxy_limits *l = &p->limits;
	unsigned ms = (l->idle_ms < l->half_closed_ms ? l->idle_ms :
	    l->half_closed_ms) / 16;
	struct timeval tv;

	ms = ms < 20 ? 20 : ms > SWEEP_MAX_MS ? SWEEP_MAX_MS : ms;
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (suseconds_t)(ms % 1000) * 1000;
	return event_add(p->sweep, &tv) < 0 ? -ENOMEM : 0;
}

static int
sweep_start(struct proxy *p)
{
	p->sweep = event_new(p->parts.base, -1, EV_PERSIST, on_sweep, p);
	return p->sweep == NULL ? -ENOMEM : sweep_every(p);
}

static void
on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct proxy *p = arg;

	(void)fd;
	(void)what;
	p->paused = false;
	if (p->reserve < 0)
		p->reserve = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	for (size_t i = 0; i < p->parts.n_listeners; i++)
		event_add(p->listeners[i].ev, NULL);
}

/* Timers of one length are kept in a queue of their own by libevent. */
static void
timeouts_init(struct proxy *p)
{
	const struct proxy_limits *l = &p->limits;
	const unsigned ms[] = { l->hello_ms, l->idle_ms, l->keepalive_ms,
	    l->linger_ms, l->stagger_ms, l->connect_ms, l->resolve_ms };
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++) {
		struct timeval tv = { ms[i] / 1000,
		    (suseconds_t)(ms[i] % 1000) * 1000 };

		p->timeouts[n].ms = ms[i];
		p->timeouts[n].tv =
		    event_base_init_common_timeout(p->parts.base, &tv);
		if (p->timeouts[n].tv != NULL)
			n++;
	}
}

static int
listeners_init(struct proxy *p)
{
	size_t n = p->parts.n_listeners;

	p->listeners = calloc(n ? n : 1, sizeof(*p->listeners));
	if (p->listeners == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		p->listeners[i].is = p->parts.listeners[i];
		p->listeners[i].proxy = p;
	}
	for (size_t i = 0; i < n; i++) {
		int e = listen_start(&p->listeners[i]);

		if (e < 0)
			return e;
	}
	return 0;
}

/* What libcrypto reads of files at its first use, it reads before the file
 * system is closed to us. */
static int
digest_init(void)
{
	uint8_t out[EVP_MAX_MD_SIZE];

	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	return EVP_Digest("", 0, out, NULL, EVP_sha256(), NULL) == 1 &&
	    EVP_Digest("", 0, out, NULL, EVP_sha1(), NULL) == 1 ? 0 : -ENOMEM;
}

int
proxy_new(struct proxy **out, const struct proxy_parts *parts)
{
	struct proxy *p = calloc(1, sizeof(*p));
	int e = -ENOMEM;

	if (p == NULL)
		return -ENOMEM;
	p->parts = *parts;
	p->limits = *parts->limits;
	p->pins = parts->pins;
	p->next_id = parts->connection_base;
	LIST_INIT(&p->open);
	LIST_INIT(&p->gone);
	TAILQ_INIT(&p->again);
	TAILQ_INIT(&p->untold);
	p->reserve = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	p->buffer = malloc(p->limits.copy_buffer_bytes);
	p->flush = event_new(parts->base, -1, 0, on_flush, p);
	p->resume = evtimer_new(parts->base, on_resume, p);
	p->grace = evtimer_new(parts->base, on_grace, p);
	p->later = evtimer_new(parts->base, on_later, p);
	p->fold = fold_new(parts->base, parts->emit, FOLD_MS);
	if (p->buffer == NULL || p->fold == NULL || p->flush == NULL ||
	    p->resume == NULL || p->grace == NULL || p->later == NULL ||
	    sweep_start(p) < 0 || digest_init() < 0)
		goto out;
	e = watch_new(&p->watch, parts->base, conn_edge, on_turn_over, p);
	if (e < 0)
		goto out;
	timeouts_init(p);
	p->pipe_bytes = pipe_bytes(parts);
	pipes_init(&p->pipes, pipe_bytes_max(p));
	e = listeners_init(p);
	if (e < 0)
		goto out;
	*out = p;
	return 0;
out:
	proxy_free(p);
	return e;
}

/* What it asks for, or has begun to, has no answer yet.  Between two requests
 * nothing is asked for; a tunnel in which nothing came has its end. */
static bool
is_unanswered(const struct conn *c)
{
	if (c->state != CONN_NAME)
		return c->state == CONN_RESOLVE || c->state == CONN_DIAL;
	return buf_left(&c->in) > 0 ||
	    (c->forward == NULL && !account_is_open(c));
}

static void
cut_all(struct proxy *p)
{
	struct conn *c;

	while ((c = LIST_FIRST(&p->open)) != NULL) {
		if (is_unanswered(c))
			conn_refuse(c, REASON_DRAINING);
		conn_cut(c, HOW_CUT, REASON_DRAINING);
		c->deadline_ms = 1;	/* long ago: no draining now */
		conn_run(c);
	}
}

void
proxy_free(struct proxy *p)
{
	if (p == NULL)
		return;
	p->drained = NULL;
	cut_all(p);
	for (size_t i = 0; p->listeners && i < p->parts.n_listeners; i++) {
		if (p->listeners[i].ev != NULL)
			event_free(p->listeners[i].ev);
		if (p->listeners[i].is.fd >= 0)
			close(p->listeners[i].is.fd);
	}
	free(p->listeners);
	fold_free(p->fold);
	emit_flush(p->parts.emit);
	if (p->flush != NULL)
		event_free(p->flush);
	if (p->resume != NULL)
		event_free(p->resume);
	if (p->grace != NULL)
		event_free(p->grace);
	if (p->sweep != NULL)
		event_free(p->sweep);
	if (p->later != NULL)
		event_free(p->later);
	watch_free(p->watch);
	pipes_done(&p->pipes);
	if (p->reserve >= 0)
		close(p->reserve);
	free(p->buffer);
	free(p);
}

void
proxy_set_policy(struct proxy *p, const struct policy *policy)
{
	bool first = p->policy == NULL;
	unsigned ms = p->limits.reload_grace_ms;
	struct timeval tv = { ms / 1000, (suseconds_t)(ms % 1000) * 1000 };

	p->policy = policy;
	if (policy == NULL || first || ms == 0) {
		judge_all(p);
		return;
	}
	/* The grace is for what is open; numbers are of one policy. */
	for (struct conn *c = LIST_FIRST(&p->open), *next; c; c = next) {
		next = LIST_NEXT(c, link);
		again_renumber(c);
	}
	/* One that runs is not begun anew: reloads in a row would keep what
	 * the first of them forbade. */
	if (!evtimer_pending(p->grace, NULL))
		event_add(p->grace, &tv);
}

void
proxy_set_limits(struct proxy *p, const struct proxy_limits *limits)
{
	size_t had = p->limits.copy_buffer_bytes;
	uint8_t *buffer = p->buffer;

	p->limits = *limits;
	if (p->limits.copy_buffer_bytes != had)
		buffer = realloc(buffer, p->limits.copy_buffer_bytes);
	if (buffer != NULL)
		p->buffer = buffer;
	else
		p->limits.copy_buffer_bytes = had;
	p->pipes.bytes_max = pipe_bytes_max(p);
	/* It sweeps on as before where that cannot be. */
	(void)!sweep_every(p);
}

void
proxy_set_pins(struct proxy *p, const struct pins *pins)
{
	p->pins = pins;
}

void
proxy_gone(struct proxy *p)
{
	void (*drained)(void *) = p->drained;

	if (!p->draining || p->n_open > p->n_late || drained == NULL)
		return;
	p->drained = NULL;
	drained(p->drained_arg);
}

void
proxy_drain(struct proxy *p, void (*drained)(void *arg), void *arg)
{
	struct conn *c = LIST_FIRST(&p->open), *next;

	p->draining = true;
	p->drained = drained;
	p->drained_arg = arg;
	/* Kept HTTP connections without a request end now; what is under way
	 * goes on to its end. */
	for (; c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		if (c->state != CONN_NAME || c->forward == NULL ||
		    buf_left(&c->in) > 0)
			continue;
		c->told = true;
		conn_cut(c, HOW_FIN, REASON_DRAINING);
		conn_run(c);
	}
	proxy_gone(p);
}

/* What a buffer takes that holds so many bytes at its fullest. */
static uint64_t
buffer_bytes(uint64_t n)
{
	uint64_t cap = 4096;

	while (cap < n)
		cap *= 2;
	return cap;
}

/*
 * Each connection at its worst: what the client sent and was not judged, a
 * head kept for a replay, what the server sent and did not go on, and what
 * waits for either side: a head and a body's bytes, or a shared buffer; and
 * each engine's shared buffer.
 */
uint64_t
proxy_memory_max(const struct proxy_limits *l, unsigned n_engines)
{
	uint64_t in = l->head_bytes > HELLO_STREAM_MAX_BYTES ?
	    l->head_bytes : HELLO_STREAM_MAX_BYTES;
	uint64_t body = l->copy_buffer_bytes > FORWARD_BODY_BYTES ?
	    l->copy_buffer_bytes : FORWARD_BODY_BYTES;
	uint64_t head = l->head_bytes + FORWARD_HEAD_MORE_BYTES;
	uint64_t each = sizeof(struct conn) + sizeof(struct opening) +
	    sizeof(struct record) + FORWARD_STATE_BYTES + buffer_bytes(in) +
	    head + buffer_bytes(body) + 2 * buffer_bytes(head + body);

	return each * l->connections +
	    (uint64_t)n_engines * l->copy_buffer_bytes;
}
