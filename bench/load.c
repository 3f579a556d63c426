/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load generator and sink of the benchmarks: one program, evented, no TLS
 * crypto.  A connection begins with a well-formed ClientHello whose session
 * id carries the command, so that any gate that reads SNI can judge it; what
 * follows is raw bytes.  The sink obeys the command.
 *
 *   load sink ADDR:PORT
 *   load conns   ...   new connections: hello, object of SIZE bytes, close
 *   load echo    ...   kept tunnels: SIZE-byte requests and answers
 *   load bulk    ...   FLOWS downloads until the time is over
 *   load idle    ...   open FLOWS tunnels, hold them, print "held N"
 *
 *   common: --to ADDR:PORT --flows N --seconds S --size BYTES
 *           --names N      names hI.allowed.test, I below N
 *           --connect ADDR:PORT   through a CONNECT proxy
 *
 * Prints one JSON line: what was sent, what came back, errors.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HELLO_BYTES 517u
#define COMMAND_AT 44u		/* session id: record 5, head 4, 2, 32, 1 */
#define CHUNK_BYTES 262144u

enum command { CMD_OBJECT = 'O', CMD_ECHO = 'E', CMD_BULK = 'B',
	CMD_IDLE = 'I' };

struct flow {
	int fd;
	enum { CONNECTING, ASKED, TALK, SINK_HELLO, SINK_SEND, SINK_ECHO,
		SINK_HOLD } state;
	uint64_t left;		/* bytes to receive, or to send */
	uint32_t have;		/* of head, hello or echo unit */
	enum command command;
	uint64_t size;
	uint8_t head[HELLO_BYTES];
};

static struct {
	struct sockaddr_in to, proxy;
	bool connect;
	unsigned flows, seconds, names;
	uint64_t size;
	enum command command;
	uint64_t done, bytes, errors, opened, named, units;
	int ep;
	bool stop;
} run = { .flows = 64, .seconds = 1, .names = 900, .size = 1024 };

static uint8_t chunk[CHUNK_BYTES];

static void
die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static struct sockaddr_in
parse_address(const char *text)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	char host[64];
	const char *colon = strrchr(text, ':');

	if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
		fprintf(stderr, "load: %s is not ADDR:PORT\n", text);
		exit(2);
	}
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	sin.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	if (inet_pton(AF_INET, host, &sin.sin_addr) != 1) {
		fprintf(stderr, "load: %s is not an IPv4 address\n", host);
		exit(2);
	}
	return sin;
}

static uint8_t *
put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return p + 2;
}

static uint8_t *
put_extension(uint8_t *p, unsigned type, const void *body, size_t len)
{
	p = put16(put16(p, type), (unsigned)len);
	if (body != NULL)
		memcpy(p, body, len);
	else
		memset(p, 0, len);
	return p + len;
}

/* A TLS 1.3 ClientHello of exactly HELLO_BYTES (RFC 8446 4.1.2). */
static void
write_hello(uint8_t out[static HELLO_BYTES], unsigned name,
    enum command command, uint64_t size)
{
	static const uint8_t ciphers[] = { 0, 6, 0x13, 1, 0x13, 2, 0x13, 3 };
	static const uint8_t versions[] = { 4, 3, 4, 3, 3 };
	static const uint8_t groups[] = { 0, 4, 0, 0x1d, 0, 0x17 };
	static const uint8_t algorithms[] = { 0, 6, 4, 3, 8, 4, 4, 1 };
	uint8_t share[38] = { 0, 36, 0, 0x1d, 0, 32 };
	uint8_t sni[64];
	char host[32];
	uint8_t *p = out, *ext;
	size_t n;

	memset(out, 0, HELLO_BYTES);
	n = (size_t)snprintf(host, sizeof(host), "h%u.allowed.test", name);
	put16(put16(sni, (unsigned)(n + 3)) + 1, (unsigned)n);
	sni[2] = 0;
	memcpy(sni + 5, host, n);
	memset(share + 6, 0x42, 32);
	memcpy(p, "\x16\x03\x01", 3);
	put16(p + 3, HELLO_BYTES - 5);
	p[5] = 1;
	put16(p + 7, HELLO_BYTES - 9);
	put16(p + 9, 0x0303);
	memset(p + 11, 0x17, 32);
	p[43] = 32;
	out[COMMAND_AT] = (uint8_t)command;
	memcpy(out + COMMAND_AT + 8, &size, sizeof(size));
	p += 76;
	memcpy(p, ciphers, sizeof(ciphers));
	p += sizeof(ciphers);
	*p++ = 1;
	*p++ = 0;
	ext = p;
	p = put_extension(p + 2, 0, sni, n + 5);
	p = put_extension(p, 43, versions, sizeof(versions));
	p = put_extension(p, 10, groups, sizeof(groups));
	p = put_extension(p, 13, algorithms, sizeof(algorithms));
	p = put_extension(p, 51, share, sizeof(share));
	p = put_extension(p, 21, NULL,
	    HELLO_BYTES - (size_t)(p - out) - 4);
	put16(ext, (unsigned)(p - ext - 2));
}

static void
watch(struct flow *f, uint32_t events, bool add)
{
	struct epoll_event ev = { .events = events, .data.ptr = f };

	if (epoll_ctl(run.ep, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, f->fd,
	    &ev) < 0)
		die("epoll_ctl");
}

/* ---- sink ---- */

static void
sink_close(struct flow *f)
{
	close(f->fd);
	free(f);
}

static bool
sink_send(struct flow *f)
{
	while (f->left > 0) {
		size_t n = f->left < CHUNK_BYTES ? (size_t)f->left :
		    CHUNK_BYTES;
		ssize_t w = send(f->fd, chunk, n, MSG_NOSIGNAL);

		if (w < 0 && errno == EAGAIN) {
			watch(f, EPOLLOUT, false);
			return true;
		}
		if (w <= 0)
			return false;
		f->left -= (uint64_t)w;
	}
	shutdown(f->fd, SHUT_WR);
	f->state = SINK_HOLD;
	watch(f, EPOLLIN, false);
	return true;
}

static bool
sink_obey(struct flow *f)
{
	uint64_t size;

	memcpy(&size, f->head + COMMAND_AT + 8, sizeof(size));
	f->size = size;
	f->command = (enum command)f->head[COMMAND_AT];
	f->have = 0;
	switch (f->command) {
	case CMD_OBJECT:
	case CMD_BULK:
		f->state = SINK_SEND;
		f->left = size;
		return sink_send(f);
	case CMD_ECHO:
		/* like a TLS server, it speaks before the client goes on */
		f->state = SINK_ECHO;
		return send(f->fd, "!", 1, MSG_NOSIGNAL) == 1;
	case CMD_IDLE:
		f->state = SINK_HOLD;
		return send(f->fd, "!", 1, MSG_NOSIGNAL) == 1;
	}
	return false;
}

static bool
sink_echo(struct flow *f)
{
	ssize_t n = recv(f->fd, chunk, CHUNK_BYTES, 0);

	if (n < 0)
		return errno == EAGAIN;
	if (n == 0)
		return false;
	for (f->have += (uint32_t)n; f->have >= f->size;
	    f->have -= (uint32_t)f->size)
		if (send(f->fd, chunk, f->size, MSG_NOSIGNAL) !=
		    (ssize_t)f->size)
			return false;
	return true;
}

static bool
sink_step(struct flow *f)
{
	ssize_t n;

	switch (f->state) {
	case SINK_HELLO:
		n = recv(f->fd, f->head + f->have, HELLO_BYTES - f->have, 0);
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		f->have += (uint32_t)n;
		return f->have < HELLO_BYTES || sink_obey(f);
	case SINK_SEND:
		return sink_send(f);
	case SINK_ECHO:
		return sink_echo(f);
	case SINK_HOLD:
		n = recv(f->fd, chunk, CHUNK_BYTES, 0);
		return n > 0 || (n < 0 && errno == EAGAIN);
	case CONNECTING:
	case ASKED:
	case TALK:
		break;
	}
	return false;
}

static void
sink_accept(int listener)
{
	int one = 1;

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		struct flow *f;

		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		f = calloc(1, sizeof(*f));
		if (f == NULL)
			die("memory");
		f->fd = fd;
		f->state = SINK_HELLO;
		watch(f, EPOLLIN, true);
	}
}

static _Noreturn void
sink(const char *where)
{
	struct sockaddr_in at = parse_address(where);
	struct flow listener = { 0 };
	int one = 1;

	listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener.fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    listen(listener.fd, 16384) < 0)
		die("listen");
	watch(&listener, EPOLLIN, true);
	for (;;) {
		struct epoll_event ev[256];
		int n = epoll_wait(run.ep, ev, 256, -1);

		for (int i = 0; i < n; i++) {
			struct flow *f = ev[i].data.ptr;

			if (f == &listener)
				sink_accept(listener.fd);
			else if (!sink_step(f))
				sink_close(f);
		}
	}
}

/* ---- generator ---- */

static void
flow_open(struct flow *f)
{
	const struct sockaddr_in *to = run.connect ? &run.proxy : &run.to;
	int one = 1;

	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (f->fd < 0)
		die("socket");
	setsockopt(f->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(f->fd, (const struct sockaddr *)to, sizeof(*to)) < 0 &&
	    errno != EINPROGRESS)
		die("connect");
	f->state = CONNECTING;
	f->have = 0;
	run.opened++;
	watch(f, EPOLLOUT, true);
}

static void
flow_again(struct flow *f, bool failed)
{
	close(f->fd);
	f->fd = -1;
	if (failed)
		run.errors++;
	if (!run.stop && run.errors < 100000)
		flow_open(f);
}

static bool
flow_hello(struct flow *f)
{
	uint8_t hello[HELLO_BYTES];
	unsigned name = (unsigned)(run.named++ % run.names);

	write_hello(hello, name, run.command, run.size);
	if (send(f->fd, hello, HELLO_BYTES, MSG_NOSIGNAL) !=
	    (ssize_t)HELLO_BYTES)
		return false;
	f->state = TALK;
	f->left = run.command == CMD_ECHO ? 1 : run.size;
	return true;
}

static bool
flow_connected(struct flow *f)
{
	char head[256];
	int n, err = 0;
	socklen_t len = sizeof(err);

	getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err != 0)
		return false;
	watch(f, EPOLLIN, false);
	if (!run.connect)
		return flow_hello(f);
	f->state = ASKED;
	f->size = run.named++ % run.names;
	n = snprintf(head, sizeof(head),
	    "CONNECT h%u.allowed.test:%u HTTP/1.1\r\n"
	    "Host: h%u.allowed.test:%u\r\n\r\n",
	    (unsigned)f->size, ntohs(run.to.sin_port),
	    (unsigned)f->size, ntohs(run.to.sin_port));
	return send(f->fd, head, (size_t)n, MSG_NOSIGNAL) == n;
}

static bool
flow_asked(struct flow *f)
{
	ssize_t n = recv(f->fd, f->head + f->have, HELLO_BYTES - f->have, 0);
	uint8_t hello[HELLO_BYTES];

	if (n <= 0)
		return n < 0 && errno == EAGAIN;
	f->have += (uint32_t)n;
	if (f->have < 4 ||
	    memcmp(f->head + f->have - 4, "\r\n\r\n", 4) != 0)
		return f->have < HELLO_BYTES;
	if (memcmp(f->head + 8, " 200", 4) != 0)
		return false;
	write_hello(hello, (unsigned)f->size, run.command, run.size);
	if (send(f->fd, hello, HELLO_BYTES, MSG_NOSIGNAL) !=
	    (ssize_t)HELLO_BYTES)
		return false;
	f->state = TALK;
	f->left = run.command == CMD_ECHO ? 1 : run.size;
	return true;
}

/* True: go on.  A finished object opens the next connection. */
static bool
flow_talk(struct flow *f)
{
	ssize_t n = recv(f->fd, chunk, CHUNK_BYTES, 0);

	if (n < 0)
		return errno == EAGAIN;
	if (n == 0) {
		if (f->left != 0)
			return false;
		run.done++;
		flow_again(f, false);
		return true;
	}
	run.bytes += (uint64_t)n;
	f->left -= (uint64_t)n > f->left ? f->left : (uint64_t)n;
	if (run.command == CMD_IDLE) {
		run.done++;
		f->left = 0;
	}
	if (run.command == CMD_ECHO && f->left == 0) {
		run.done++;
		f->left = run.size;
		return send(f->fd, chunk, run.size, MSG_NOSIGNAL) ==
		    (ssize_t)run.size;
	}
	return true;
}

static void
flow_step(struct flow *f)
{
	bool ok = false;

	if (f->state == CONNECTING)
		ok = flow_connected(f);
	else if (f->state == ASKED)
		ok = flow_asked(f);
	else if (f->state == TALK)
		ok = flow_talk(f);
	if (!ok)
		flow_again(f, true);
}

static void
turn(int64_t until)
{
	struct epoll_event ev[256];
	int64_t left = until - now_ms();
	int n = epoll_wait(run.ep, ev, 256, left > 0 ? (int)left : 0);

	for (int i = 0; i < n; i++)
		flow_step(ev[i].data.ptr);
}

static int
generate(void)
{
	struct flow *flows = calloc(run.flows, sizeof(*flows));
	int64_t start = now_ms(), until = start + run.seconds * 1000ll;
	unsigned opened = 0;

	if (flows == NULL)
		die("memory");
	while (now_ms() < until) {
		for (unsigned i = 0; i < 64 && opened < run.flows; i++)
			flow_open(&flows[opened++]);
		turn(opened < run.flows ? now_ms() : until);
		if (run.command == CMD_IDLE && run.done == run.flows)
			break;
	}
	run.stop = true;
	printf("{\"done\":%llu,\"bytes\":%llu,\"errors\":%llu,"
	    "\"opened\":%llu,\"ms\":%lld}\n", (unsigned long long)run.done,
	    (unsigned long long)run.bytes, (unsigned long long)run.errors,
	    (unsigned long long)run.opened, (long long)(now_ms() - start));
	fflush(stdout);
	if (run.command == CMD_IDLE)
		while (now_ms() < until)
			turn(until);
	return run.errors != 0 && run.done == 0;
}

static void
options(int argc, char **argv)
{
	for (int i = 2; i + 1 < argc; i += 2) {
		const char *o = argv[i], *v = argv[i + 1];

		if (strcmp(o, "--to") == 0)
			run.to = parse_address(v);
		else if (strcmp(o, "--connect") == 0) {
			run.proxy = parse_address(v);
			run.connect = true;
		} else if (strcmp(o, "--flows") == 0)
			run.flows = (unsigned)strtoul(v, NULL, 10);
		else if (strcmp(o, "--seconds") == 0)
			run.seconds = (unsigned)strtoul(v, NULL, 10);
		else if (strcmp(o, "--size") == 0)
			run.size = strtoull(v, NULL, 10);
		else if (strcmp(o, "--names") == 0)
			run.names = (unsigned)strtoul(v, NULL, 10);
		else {
			fprintf(stderr, "load: unknown option %s\n", o);
			exit(2);
		}
	}
}

int
main(int argc, char **argv)
{
	static const struct { const char *verb; enum command command; } v[] = {
		{ "conns", CMD_OBJECT }, { "echo", CMD_ECHO },
		{ "bulk", CMD_BULK }, { "idle", CMD_IDLE },
	};
	struct rlimit nofile;

	signal(SIGPIPE, SIG_IGN);
	getrlimit(RLIMIT_NOFILE, &nofile);
	nofile.rlim_cur = nofile.rlim_max;
	setrlimit(RLIMIT_NOFILE, &nofile);
	run.ep = epoll_create1(0);
	if (argc >= 3 && strcmp(argv[1], "sink") == 0)
		sink(argv[2]);
	for (size_t i = 0; argc >= 2 && i < sizeof(v) / sizeof(v[0]); i++)
		if (strcmp(argv[1], v[i].verb) == 0) {
			run.command = v[i].command;
			options(argc, argv);
			return generate();
		}
	fprintf(stderr, "load: sink | conns | echo | bulk | idle\n");
	return 2;
}
