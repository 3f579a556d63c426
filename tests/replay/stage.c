/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/thread.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <sodium.h>
#include <unistd.h>

#include "proxy/limit.h"

#define WAIT_MS 3000
#define HOLD_MS 150

const struct proxy_limits stage_limits = {
	.hello_ms = 600, .resolve_ms = 500, .connect_ms = 1500,
	.stagger_ms = 100, .idle_ms = 1500, .half_closed_ms = 1500,
	.keepalive_ms = 1000,
	.linger_ms = 500, .linger_bytes = 1 << 20, .hello_bytes = 16384,
	.head_bytes = 8192, .header_count = 128,
	.connections = 1000, .per_client = 500, .pipe_share_percent = 50,
	.copy_buffer_bytes = 65536,
};

static const char usual[] =
"version: 1\n"
"network:\n"
"  default: deny\n"
"  resolvers: [198.18.0.53]\n"
"  lab: [203.0.113.0/24]\n"
"  help: \"ask the platform team\"\n"
"  rule:\n"
"    - {verdict: allow, hostname: allowed.test, id: web}\n"
"    - {verdict: allow, hostname: second.test, id: second}\n"
"    - {verdict: allow, hostname: git.test, ports: [22], protocol: tcp}\n"
"    - {verdict: deny, hostname: denied.test, reason: \"not here\"}\n";

static struct {
	pthread_t thread;
	struct event_base *base;
	struct event *beat, *order;
	struct proxy *proxy;
	struct proxy_parts parts;
	struct proxy_listener listeners[4];
	struct emit *emit;
	struct emit_reader *reader;
	struct emit_state *state;
	struct counts *counts;
	struct pins *pins;
	struct limit *limit;
	struct ask *ask;
	struct policy *policy;
	const struct proxy_limits *limits;
	uint8_t *image;
	int orders[2], asked;
	bool up;
	atomic_bool beats, drained;
	struct record last;
} st;

static struct endpoint
endpoint(const char *addr, uint16_t port)
{
	struct endpoint e = { .port = port };

	assert_true(addr_parse(&e.addr, span_str(addr)));
	return e;
}

int64_t
stage_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int
bound(const char *addr, uint16_t port)
{
	struct sockaddr_storage ss;
	struct endpoint e = endpoint(addr, port);
	socklen_t len = endpoint_to_sockaddr(&e, &ss);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* as sidecar/sockets.c has it; connections inherit it */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, len), 0);
	assert_int_equal(listen(fd, 128), 0);
	return fd;
}

int
stage_listen(const char *addr, uint16_t port)
{
	return bound(addr, port);
}

/* The second cell, of who shows a credential; NULL: there is none. */
static const char *agent_text, *agent_run;
static const char *cell_order;
static const char *agent_token, *home;

void
stage_agent(const char *text, const char *run)
{
	agent_text = text;
	agent_run = run;
}

void
stage_token(const char *token)
{
	agent_token = token;
}

void
stage_home(const char *prefix)
{
	home = prefix;
}

void
stage_cells(const char *order)
{
	cell_order = order;
}

static void
build_policy(const char *text, struct policy **out, uint8_t **image)
{
	struct problems *ps = problem_new();
	struct charter *ch = charter_load("test.yaml", span_str(text), true,
	    NULL, ps);
	struct charter *agent = agent_text ? charter_load("agent.yaml",
	    span_str(agent_text), true, NULL, ps) : NULL;
	const struct charter *list[2] = { ch, agent };
	struct policy_cell_source cells[2], both[2] = { { .id = "cell",
	    .from.kind = CELL_FROM_ANY, .charters = list, .n_charters = 1 },
	    { .id = "agent", .from.kind = CELL_FROM_CREDENTIAL,
	    .charters = list + 1, .n_charters = 1, .n_labels = 1,
	    .labels[0].key = "run" } };
	struct policy_source src = { .cells = cells, .generation = 1,
	    .now_s = (int64_t)time(NULL) };
	struct span token;
	size_t len = 0;

	if (agent != NULL)
		snprintf(both[1].labels[0].value,
		    sizeof(both[1].labels[0].value), "%s", agent_run);
	token = span_str(agent_token ? agent_token : "secret");
	crypto_generichash(both[1].from.token_hash, 32, token.data, token.len,
	    NULL, 0);
	if (home != NULL) {
		both[0].from.kind = CELL_FROM_NET;
		both[0].from.has_prefix = true;
		assert_true(prefix_parse(&both[0].from.prefix,
		    span_str(home)));
	}
	for (const char *at = cell_order ? cell_order : agent ? "ca" : "c";
	    *at != '\0'; at++)
		cells[src.n_cells++] = both[*at == 'a'];
	if (ch == NULL || policy_build(&src, image, &len, ps) < 0) {
		problem_print(ps, stderr);
		fail_msg("the policy does not compile");
	}
	charter_free(agent);
	charter_free(ch);
	problem_free(ps);
	assert_int_equal(policy_open(out, span_of(*image, len)), 0);
}

static void
on_beat(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	if (atomic_load(&st.beats))
		emit_state_beat(st.state, true);
}

static void
on_drained(void *arg)
{
	(void)arg;
	atomic_store(&st.drained, true);
}

/* 'p': take st.policy; 'l': take st.limits; 'h': hold for a while; 'd': drain;
 * 'q': end. */
static void
on_order(evutil_socket_t fd, short what, void *arg)
{
	char c = 0;

	(void)what;
	(void)arg;
	if (read(fd, &c, 1) != 1)
		return;
	if (c == 'p')
		proxy_set_policy(st.proxy, st.policy);
	if (c == 'l')
		proxy_set_limits(st.proxy, st.limits);
	if (c == 'd')
		proxy_drain(st.proxy, on_drained, NULL);
	if (c == 'q')
		event_base_loopbreak(st.base);
	if (write(fd, &c, 1) != 1)
		abort();
	if (c == 'h')
		usleep(HOLD_MS * 1000);
}

static void *
run(void *arg)
{
	(void)arg;
	event_base_dispatch(st.base);
	return NULL;
}

static void
order(char c)
{
	assert_int_equal(write(st.orders[0], &c, 1), 1);
	assert_int_equal(read(st.orders[0], &c, 1), 1);
}

static void
own_network(void)
{
	static bool done;

	if (done)
		return;
	if (unshare(CLONE_NEWNET) < 0)
		assert_int_equal(unshare(CLONE_NEWUSER | CLONE_NEWNET), 0);
	assert_int_equal(system("ip link set lo up && "
	    "ip route add local 203.0.113.0/24 dev lo"), 0);
	done = true;
}

static void
listeners(void)
{
	static const struct {
		uint16_t port;
		enum listen_kind kind;
	} l[4] = { { 443, LISTEN_TPROXY }, { 80, LISTEN_TPROXY },
	    { 22, LISTEN_TPROXY }, { 3128, LISTEN_EXPLICIT } };

	for (int i = 0; i < 4; i++) {
		struct proxy_listener *p = &st.listeners[i];

		p->fd = bound(WANTED, l[i].port);
		fcntl(p->fd, F_SETFL, O_NONBLOCK);
		p->kind = l[i].kind;
		snprintf(p->name, sizeof(p->name), "l%d", i);
		p->bound = endpoint("127.0.0.1", 15001);
	}
}

/* As one answer with those that the name has. */
static void
pin_until(const char *cell, const char *run, const char *name,
    const char *addr, int ms)
{
	struct pin_cell whose = { span_str(cell), span_str(run) };
	struct addr all[PIN_ADDRS_MAX];
	struct endpoint e = endpoint(addr, 0);
	int64_t now = stage_now_ms();
	struct host h;
	size_t n;

	assert_int_equal(host_parse(&h, span_str(name)), REASON_NONE);
	n = pin_addrs(st.pins, &whose, &h, now, all);
	if (n < PIN_ADDRS_MAX)
		all[n++] = e.addr;
	assert_int_equal(pin_add(st.pins, &whose, &h, all, n, now + ms,
	    now), REASON_NONE);
}

void
stage_pin_for(const char *cell, const char *run, const char *name,
    const char *addr)
{
	pin_until(cell, run, name, addr, 600000);
}

void
stage_pin_brief(const char *name, const char *addr, int ms)
{
	pin_until("cell", "", name, addr, ms);
}

void
stage_pin(const char *name, const char *addr)
{
	stage_pin_for("cell", "", name, addr);
}

/* What each cell has looked up, in the life that it has now. */
static void
pin_usual(void)
{
	stage_pin("allowed.test", ORIGIN);
	if (agent_text != NULL)
		stage_pin_for("agent", agent_run, "allowed.test", ORIGIN);
}

void
stage_up(const char *policy, const struct proxy_limits *limits)
{
	struct timeval tv = { 0, 50000 };
	int ring, state, sv[2], pins, e;

	if (st.up)		/* the test before failed half-way */
		stage_down();
	signal(SIGPIPE, SIG_IGN);
	own_network();
	memset(&st, 0, sizeof(st));
	atomic_store(&st.beats, true);
	st.base = event_base_new();
	ring = emit_ring_create(1 << 20);
	state = emit_state_create();
	assert_true(ring >= 0 && state >= 0);
	assert_int_equal(emit_open(&st.emit, ring, state, eventfd(0,
	    EFD_NONBLOCK)), 0);
	assert_int_equal(emit_reader_open(&st.reader, ring), 0);
	assert_int_equal(emit_state_open(&st.state, state), 0);
	emit_state_beat(st.state, true);
	close(ring);
	close(state);
	e = count_create();
	assert_int_equal(count_open(&st.counts, e, 4), 0);
	assert_int_equal(pin_create(&st.pins, 1024, &pins), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK,
	    0, sv), 0);
	assert_int_equal(ask_new(&st.ask, st.base, sv[0]), 0);
	st.asked = sv[1];
	e = limit_create(1000, 1);
	assert_int_equal(limit_open(&st.limit, e, 0), 0);
	close(e);
	listeners();
	st.parts = (struct proxy_parts){ .base = st.base, .ask = st.ask,
	    .pins = st.pins, .emit = st.emit, .counts = st.counts,
	    .limit = st.limit, .n_engines = 1,
	    .limits = limits ? limits : &stage_limits,
	    .listeners = st.listeners, .n_listeners = 4,
	    .connection_base = 1 };
	assert_int_equal(proxy_new(&st.proxy, &st.parts), 0);
	build_policy(policy ? policy : usual, &st.policy, &st.image);
	proxy_set_policy(st.proxy, st.policy);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, st.orders), 0);
	st.order = event_new(st.base, st.orders[1], EV_READ | EV_PERSIST,
	    on_order, NULL);
	event_add(st.order, NULL);
	st.beat = event_new(st.base, -1, EV_PERSIST, on_beat, NULL);
	event_add(st.beat, &tv);
	pin_usual();
	assert_int_equal(pthread_create(&st.thread, NULL, run, NULL), 0);
	st.up = true;
}

void
stage_hold(void)
{
	order('h');
}

void
stage_drain(void)
{
	order('d');
}

bool
stage_drained(void)
{
	return atomic_load(&st.drained);
}

void
stage_stop(void)
{
	order('q');
	pthread_join(st.thread, NULL);
	proxy_free(st.proxy);
	st.proxy = NULL;
}

void
stage_down(void)
{
	st.up = false;
	if (st.proxy != NULL)
		stage_stop();
	event_free(st.order);
	event_free(st.beat);
	ask_free(st.ask);
	event_base_free(st.base);
	policy_free(st.policy);
	free(st.image);
	emit_close(st.emit);
	emit_reader_close(st.reader);
	/* Every place was given back, every socket closed. */
	assert_int_equal(count_sum(st.counts, COUNT_CONNECTIONS_OPEN), 0);
	assert_int_equal(count_sum(st.counts, COUNT_UPSTREAM_OPEN), 0);
	count_close(st.counts);
	pin_close(st.pins);
	close(st.asked);
	close(st.orders[0]);
	close(st.orders[1]);
	limit_close(st.limit);
}

void
stage_policy(const char *text)
{
	struct policy *old = st.policy;
	uint8_t *image = st.image;

	build_policy(text, &st.policy, &st.image);
	pin_usual();
	order('p');
	policy_free(old);
	free(image);
}

void
stage_limit(const struct proxy_limits *limits)
{
	st.limits = limits;
	order('l');
}

void
stage_beat(bool on)
{
	atomic_store(&st.beats, on);
}

static int
patient(int fd)
{
	struct timeval tv = { WAIT_MS / 1000, 0 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	return fd;
}

int
stage_accept(int lfd)
{
	struct pollfd p = { .fd = lfd, .events = POLLIN };

	if (poll(&p, 1, 300) != 1)
		return -1;
	return patient(accept(lfd, NULL, NULL));
}

int
stage_connect(const char *addr, uint16_t port)
{
	struct sockaddr_storage ss;
	struct endpoint e = endpoint(addr, port);
	socklen_t len = endpoint_to_sockaddr(&e, &ss);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return patient(fd);
}

void
stage_send(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		assert_true(n > 0);
		p += n;
		len -= (size_t)n;
	}
}

void
say(int fd, const char *text)
{
	stage_send(fd, text, strlen(text));
}

void
stage_say(int fd, const char *text, bool whole)
{
	if (whole) {
		say(fd, text);
		return;
	}
	for (; *text != '\0'; text++) {
		stage_send(fd, text, 1);
		usleep(500);
	}
}

/* No assertion here: cmocka jumps, and that within a thread. */
static void *
job(void *arg)
{
	struct stage_job *j = arg;
	char got[4096];
	size_t at = 0;

	while (at < j->len) {
		size_t left = j->len - at;
		ssize_t n = j->expect ? recv(j->fd, got,
		    left < sizeof(got) ? left : sizeof(got), 0) :
		    send(j->fd, j->data + at, left, MSG_NOSIGNAL);

		if (n <= 0 || (j->expect &&
		    memcmp(got, j->data + at, (size_t)n) != 0))
			return NULL;
		at += (size_t)n;
	}
	j->well = true;
	return NULL;
}

void
stage_begin(struct stage_job *j)
{
	j->well = false;
	assert_int_equal(pthread_create(&j->thread, NULL, job, j), 0);
}

bool
stage_await(struct stage_job *j)
{
	assert_int_equal(pthread_join(j->thread, NULL), 0);
	return j->well;
}

void
stage_expect(int fd, const void *data, size_t len)
{
	const char *p = data;
	char buf[4096];

	while (len > 0) {
		ssize_t n = recv(fd, buf, len < sizeof(buf) ? len :
		    sizeof(buf), 0);

		if (n <= 0)
			fail_msg("%zu bytes did not come (%zd, %s)", len, n,
			    strerror(errno));
		assert_memory_equal(buf, p, (size_t)n);
		p += n;
		len -= (size_t)n;
	}
}

size_t
stage_read_all(int fd, char *out, size_t size, bool *reset)
{
	size_t len = 0;
	char bin[65536];

	*reset = false;
	for (;;) {
		ssize_t n = recv(fd, bin, sizeof(bin), 0);

		if (n == 0)
			break;
		if (n < 0 && errno == EAGAIN)
			fail_msg("the stream did not end");
		if (n < 0) {
			*reset = true;
			break;
		}
		for (ssize_t i = 0; i < n; i++, len++)
			if (len + 1 < size)
				out[len] = bin[i];
	}
	if (size > 0)
		out[len < size ? len : size - 1] = '\0';
	return len;
}

size_t
stage_read_head(int fd, char *out, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		if (recv(fd, out + n, 1, 0) != 1)
			fail_msg("no whole head came");
		out[++n] = '\0';
		if (n >= 4 && memcmp(out + n - 4, "\r\n\r\n", 4) == 0)
			return n;
	}
	fail_msg("the head is too long");
	return 0;
}

const struct record *
stage_record(enum record_kind kind)
{
	int64_t end = stage_now_ms() + WAIT_MS;
	uint64_t lost = 0;

	while (stage_now_ms() < end) {
		const struct record *r = emit_next(st.reader, &lost);

		emit_commit(st.reader);
		if (r == NULL) {
			usleep(2000);
			continue;
		}
		if (r->kind == kind) {
			memset(&st.last, 0, sizeof(st.last));
			memcpy(&st.last, r, record_size(r));
			return &st.last;
		}
	}
	fail_msg("no record of kind %s came", record_kind_word(kind));
	return NULL;
}

int64_t
stage_count(enum count what)
{
	return count_sum(st.counts, what);
}

int64_t
stage_denied(enum reason why)
{
	return count_denied_sum(st.counts, why);
}

bool
stage_no_record(enum record_kind kind)
{
	uint64_t lost = 0;
	const struct record *r;

	usleep(100000);
	while ((r = emit_next(st.reader, &lost)) != NULL) {
		emit_commit(st.reader);
		if (r->kind == kind)
			return false;
	}
	return true;
}

static void
put16(uint8_t **p, size_t v)
{
	*(*p)++ = (uint8_t)(v >> 8);
	*(*p)++ = (uint8_t)v;
}

size_t
stage_hello(const char *name, uint8_t *out, size_t size)
{
	size_t n = name ? strlen(name) : 0, ext = 4 + 3 + (name ? n + 9 : 0);
	size_t body = 2 + 32 + 1 + 4 + 2 + 2 + ext;
	uint8_t *p = out;

	assert_true(size >= body + 9);
	*p++ = 22;
	put16(&p, 0x0301);
	put16(&p, body + 4);
	*p++ = 1;
	*p++ = 0;
	put16(&p, body);
	put16(&p, 0x0303);
	memset(p, 0x5a, 32);
	p += 32;
	*p++ = 0;
	put16(&p, 2);
	put16(&p, 0x1301);
	*p++ = 1;
	*p++ = 0;
	put16(&p, ext);
	if (name != NULL) {
		put16(&p, 0);
		put16(&p, n + 5);
		put16(&p, n + 3);
		*p++ = 0;
		put16(&p, n);
		memcpy(p, name, n);
		p += n;
	}
	put16(&p, 43);
	put16(&p, 3);
	*p++ = 2;
	put16(&p, 0x0304);
	assert_int_equal((size_t)(p - out), body + 9);
	return (size_t)(p - out);
}

static void
add16(uint8_t *at, size_t more)
{
	size_t v = ((size_t)at[0] << 8 | at[1]) + more;

	put16(&at, v);
}

size_t
stage_extend(uint8_t *h, size_t len, unsigned type, size_t n)
{
	uint8_t *at = h + STAGE_EXTENSION - 4;

	memmove(at + 4 + n, at, len - (STAGE_EXTENSION - 4));
	memset(at, 0, 4 + n);
	add16(at, type);
	add16(at + 2, n);
	add16(h + 3, 4 + n);
	add16(h + 7, 4 + n);
	add16(at - 2, 4 + n);
	return len + 4 + n;
}

const uint8_t stage_retry[] = { 22, 3, 3, 0, 40, 2, 0, 0, 36, 3, 3,
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
	0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
	0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
	0, 0 };
