/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DNS_FAKE_SERVER_H
#define TESTS_DNS_FAKE_SERVER_H

/* A DNS server on the test's own event base: UDP and TCP on one loopback
 * port.  What it says is up to a function of the test. */
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "policy/addr.h"

struct fake;
/* Writes the answer into out[512]; 0: none. */
typedef size_t fake_says(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out);

struct fake {
	struct event_base *base;
	struct event *udp;
	struct evconnlistener *tcp;
	struct endpoint at;
	fake_says *says;
	bool over_tcp;			/* the question at hand */
	uint16_t from;			/* the port it came from */
	unsigned n_udp, n_tcp;
	unsigned ports[65536];		/* questions that came from each */
	struct bufferevent *streams[64];
	uint8_t last[512];		/* the question before */
	size_t last_len;
};

/* The question with QR set, this RCODE, and one A record where that is 0. */
static size_t __attribute__((unused))
fake_answer(const uint8_t *query, uint8_t rcode, uint8_t *out)
{
	static const uint8_t a[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4,
	    192, 0, 2, 1 };
	size_t n = 12;

	while (query[n] != 0)
		n += 1u + query[n];
	n += 5;
	memcpy(out, query, n);
	out[2] |= 0x80;
	out[3] = (uint8_t)(0x80 | rcode);
	out[7] = rcode == 0;
	out[11] = 0;
	if (rcode != 0)
		return n;
	memcpy(out + n, a, sizeof(a));
	return n + sizeof(a);
}

static size_t __attribute__((unused))
fake_says_yes(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, 0, out);
}

static size_t __attribute__((unused))
fake_says_nothing(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	(void)f;
	(void)query;
	(void)len;
	(void)out;
	return 0;
}

static size_t
fake_hear(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	assert_true(len >= 17 && len <= sizeof(f->last));
	memcpy(f->last, query, len);
	f->last_len = len;
	return f->says(f, query, len, out);
}

static void
fake_on_udp(evutil_socket_t fd, short what, void *arg)
{
	struct fake *f = arg;
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	uint8_t in[512], out[512];
	ssize_t n;

	(void)what;
	while ((n = recvfrom(fd, in, sizeof(in), MSG_DONTWAIT,
	    (struct sockaddr *)&from, &size)) > 0) {
		f->over_tcp = false;
		f->from = ntohs(from.sin_port);
		f->ports[f->from]++;
		f->n_udp++;
		n = (ssize_t)fake_hear(f, in, (size_t)n, out);
		if (n > 0)
			sendto(fd, out, (size_t)n, 0,
			    (struct sockaddr *)&from, size);
	}
}

static void
fake_on_stream(struct bufferevent *bev, void *arg)
{
	struct fake *f = arg;
	struct evbuffer *in = bufferevent_get_input(bev);
	uint8_t query[512], out[2 + 512];

	while (evbuffer_copyout(in, out, 2) == 2) {
		size_t n = (size_t)out[0] << 8 | out[1];

		if (evbuffer_get_length(in) < 2 + n)
			return;
		assert_true(n <= sizeof(query));
		evbuffer_drain(in, 2);
		evbuffer_remove(in, query, n);
		f->over_tcp = true;
		f->n_tcp++;
		n = fake_hear(f, query, n, out + 2);
		out[0] = (uint8_t)(n >> 8);
		out[1] = (uint8_t)n;
		if (n > 0)
			bufferevent_write(bev, out, 2 + n);
	}
}

static void
fake_on_end(struct bufferevent *bev, short what, void *arg)
{
	struct fake *f = arg;

	if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) == 0)
		return;
	for (unsigned i = 0; i < 64; i++)
		if (f->streams[i] == bev)
			f->streams[i] = NULL;
	bufferevent_free(bev);
}

static void
fake_on_accept(struct evconnlistener *l, evutil_socket_t fd,
    struct sockaddr *from, int len, void *arg)
{
	struct fake *f = arg;
	struct bufferevent *bev = bufferevent_socket_new(f->base, fd,
	    BEV_OPT_CLOSE_ON_FREE);

	(void)l;
	(void)from;
	(void)len;
	bufferevent_setcb(bev, fake_on_stream, NULL, fake_on_end, f);
	bufferevent_enable(bev, EV_READ | EV_WRITE);
	for (unsigned i = 0; i < 64; i++)
		if (f->streams[i] == NULL) {
			f->streams[i] = bev;
			return;
		}
	bufferevent_free(bev);
}

static void __attribute__((unused))
fake_start(struct fake *f, struct event_base *base, fake_says *says)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = -1;

	memset(f, 0, sizeof(*f));
	f->base = base;
	f->says = says;
	/* a port that is free for both */
	for (int i = 0; i < 100 && f->tcp == NULL; i++) {
		if (fd >= 0)
			close(fd);
		at.sin_port = 0;
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC |
		    SOCK_NONBLOCK, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&at,
		    sizeof(at)), 0);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&at,
		    &len), 0);
		f->tcp = evconnlistener_new_bind(base, fake_on_accept, f,
		    LEV_OPT_CLOSE_ON_FREE, 16, (struct sockaddr *)&at,
		    sizeof(at));
	}
	assert_non_null(f->tcp);
	f->at.addr = addr_from_v4((const uint8_t[]){ 127, 0, 0, 1 });
	f->at.port = ntohs(at.sin_port);
	f->udp = event_new(base, fd, EV_READ | EV_PERSIST, fake_on_udp, f);
	event_add(f->udp, NULL);
}

static void __attribute__((unused))
fake_stop(struct fake *f)
{
	int fd = event_get_fd(f->udp);

	event_free(f->udp);
	close(fd);
	evconnlistener_free(f->tcp);
	for (unsigned i = 0; i < 64; i++)
		if (f->streams[i] != NULL)
			bufferevent_free(f->streams[i]);
}

#endif
