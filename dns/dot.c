/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/dot.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <sodium.h>
#include <stdlib.h>

#include "dns/message.h"
#include "ledger-client/log.h"

#define BUCKETS 1024u		/* a power of two */

/* One message in flight: in the order of asking, and by its number. */
struct sent {
	struct dot *dot;
	struct sent *next, **prev;
	struct sent *chain;		/* of the bucket */
	struct event *late;
	channel_done *done;
	void *arg;
	size_t len;
	uint8_t query[MESSAGE_ASK_MAX_BYTES];
};

struct dot {
	struct event_base *base;
	struct endpoint server;
	SSL_CTX *tls;
	struct bufferevent *bev;	/* NULL: no connection */
	bool answered;			/* this connection has */
	bool told;			/* of a failure, until one answers */
	struct timeval timeout;
	struct sent *sent, **last;
	unsigned n_sent;
	struct sent *by_id[BUCKETS];
	char name[];
};

static void on_read(struct bufferevent *bev, void *arg);
static void on_event(struct bufferevent *bev, short what, void *arg);

int
dot_new(struct dot **out, struct event_base *base,
    const struct endpoint *server, const char *name, SSL_CTX *tls,
    unsigned timeout_ms)
{
	size_t n = strlen(name) + 1;
	struct dot *d = calloc(1, sizeof(*d) + n);

	if (d == NULL || SSL_CTX_up_ref(tls) != 1) {
		free(d);
		return -ENOMEM;
	}
	d->base = base;
	d->server = *server;
	d->tls = tls;
	d->last = &d->sent;
	d->timeout.tv_sec = timeout_ms / 1000;
	d->timeout.tv_usec = timeout_ms % 1000 * 1000;
	memcpy(d->name, name, n);
	*out = d;
	return 0;
}

static void
hang_up(struct dot *d)
{
	if (d->bev != NULL)
		bufferevent_free(d->bev);
	d->bev = NULL;
}

static struct sent **
bucket(struct dot *d, const uint8_t id[static 2])
{
	return &d->by_id[((unsigned)id[0] << 8 | id[1]) & (BUCKETS - 1)];
}

static void
forget(struct sent *s)
{
	struct sent **at = bucket(s->dot, s->query);

	while (*at != s)
		at = &(*at)->chain;
	*at = s->chain;
	*s->prev = s->next;
	*(s->next != NULL ? &s->next->prev : &s->dot->last) = s->prev;
	s->dot->n_sent--;
	event_free(s->late);
	free(s);
}

void
dot_free(struct dot *d)
{
	if (d == NULL)
		return;
	hang_up(d);
	while (d->sent != NULL)
		forget(d->sent);
	SSL_CTX_free(d->tls);
	free(d);
}

/* ---- the connection ---- */

static SSL *
session(const struct dot *d)
{
	SSL *ssl = SSL_new(d->tls);

	if (ssl == NULL)
		return NULL;
	SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
	if (SSL_set_min_proto_version(ssl, TLS1_2_VERSION) != 1 ||
	    SSL_set1_host(ssl, d->name) != 1 ||
	    SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME,
	    TLSEXT_NAMETYPE_host_name, (void *)(uintptr_t)d->name) != 1) {
		SSL_free(ssl);
		return NULL;
	}
	return ssl;
}

static int
hang_on(struct dot *d)
{
	struct timeval idle = { .tv_sec = DOT_IDLE_S };
	struct sockaddr_storage to;
	socklen_t len = endpoint_to_sockaddr(&d->server, &to);
	SSL *ssl = session(d);

	d->answered = false;
	if (ssl == NULL)
		return -ENOMEM;
	d->bev = bufferevent_openssl_socket_new(d->base, -1, ssl,
	    BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE |
	    BEV_OPT_DEFER_CALLBACKS);
	if (d->bev == NULL) {
		SSL_free(ssl);
		return -ENOMEM;
	}
	bufferevent_setcb(d->bev, on_read, NULL, on_event, d);
	if (bufferevent_set_timeouts(d->bev, &idle, NULL) < 0 ||
	    bufferevent_enable(d->bev, EV_READ | EV_WRITE) < 0 ||
	    bufferevent_socket_connect(d->bev, (struct sockaddr *)&to,
	    (int)len) < 0) {
		hang_up(d);
		return -ECONNREFUSED;
	}
	return 0;
}

static int
put(struct dot *d, const struct sent *s)
{
	uint8_t length[2] = { (uint8_t)(s->len >> 8), (uint8_t)s->len };
	int rc = d->bev != NULL ? 0 : hang_on(d);

	if (rc == 0 && (bufferevent_write(d->bev, length, 2) < 0 ||
	    bufferevent_write(d->bev, s->query, s->len) < 0))
		rc = -ENOMEM;
	return rc;
}

static void
end(struct sent *s, enum channel_end how, struct span msg)
{
	channel_done *done = s->done;
	void *arg = s->arg;

	forget(s);
	done(arg, how, msg);
}

/* Whoever waits now; those who ask meanwhile have a connection of their
 * own. */
static void
end_all(struct dot *d)
{
	unsigned n = d->n_sent;

	for (; n > 0 && d->sent != NULL; n--)
		end(d->sent, CHANNEL_FAILED, span_of(NULL, 0));
}

static void
say_failed(struct dot *d, short what)
{
	unsigned long err = bufferevent_get_openssl_error(d->bev);
	long verify = SSL_get_verify_result(
	    bufferevent_openssl_get_ssl(d->bev));
	char at[ADDR_TEXT_BYTES];

	if (d->told)
		return;
	d->told = true;
	log_line(LOG_WARN, "DNS over TLS to %s as %s failed: %s",
	    endpoint_text(&d->server, at), d->name,
	    verify != X509_V_OK ? X509_verify_cert_error_string(verify) :
	    err != 0 ? ERR_reason_error_string(err) :
	    what & BEV_EVENT_EOF ? "it closed the connection" :
	    evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
}

/* It is closed.  A server may do so at any time (RFC 7858 3.4): what was sent
 * on a connection that worked is sent again on a new one, once. */
static void
on_event(struct bufferevent *bev, short what, void *arg)
{
	struct dot *d = arg;
	bool again = d->answered && !(what & BEV_EVENT_TIMEOUT);
	struct sent *s;

	(void)bev;
	if (what & BEV_EVENT_CONNECTED)
		return;
	if (d->n_sent > 0 && !again)
		say_failed(d, what);
	hang_up(d);
	for (s = d->sent; again && s != NULL; s = s->next)
		again = put(d, s) == 0;
	if (!again) {
		hang_up(d);
		end_all(d);
	}
}

static struct sent *
find(struct dot *d, const uint8_t id[static 2])
{
	struct sent *s = *bucket(d, id);

	while (s != NULL && memcmp(s->query, id, 2) != 0)
		s = s->chain;
	return s;
}

/* One message off the stream; false when it is not whole. */
static bool
take(struct dot *d)
{
	struct evbuffer *in = bufferevent_get_input(d->bev);
	uint8_t length[2], *whole;
	struct sent *s;
	size_t n;

	if (evbuffer_copyout(in, length, 2) < 2)
		return false;
	n = (size_t)length[0] << 8 | length[1];
	if (evbuffer_get_length(in) < 2 + n)
		return false;
	whole = evbuffer_pullup(in, (ev_ssize_t)(2 + n));
	s = whole == NULL || n < 2 ? NULL : find(d, whole + 2);
	if (s != NULL) {
		static uint8_t copy[MESSAGE_MAX_BYTES];

		memcpy(copy, whole + 2, n);
		evbuffer_drain(in, 2 + n);
		d->answered = true;
		d->told = false;
		end(s, CHANNEL_ANSWERED, span_of(copy, n));
	} else {
		evbuffer_drain(in, 2 + n);
	}
	return d->bev != NULL;
}

static void
on_read(struct bufferevent *bev, void *arg)
{
	struct dot *d = arg;

	(void)bev;
	while (take(d))
		continue;
}

/* ---- messages ---- */

static void
on_late(evutil_socket_t fd, short what, void *arg)
{
	struct sent *s = arg;

	(void)fd;
	(void)what;
	end(s, CHANNEL_TIMEOUT, span_of(NULL, 0));
}

/* The query with a number that none in flight has. */
static struct sent *
sent_new(struct dot *d, uint8_t *query, size_t len)
{
	struct sent *s = calloc(1, sizeof(*s)), **head;

	if (s == NULL)
		return NULL;
	s->late = event_new(d->base, -1, 0, on_late, s);
	if (s->late == NULL || event_add(s->late, &d->timeout) < 0) {
		if (s->late != NULL)
			event_free(s->late);
		free(s);
		return NULL;
	}
	do
		randombytes_buf(query, 2);
	while (find(d, query) != NULL);
	memcpy(s->query, query, len);
	s->len = len;
	s->dot = d;
	s->prev = d->last;
	*d->last = s;
	d->last = &s->next;
	head = bucket(d, query);
	s->chain = *head;
	*head = s;
	d->n_sent++;
	return s;
}

void
dot_ask(struct dot *d, uint8_t *query, size_t len, channel_done *done,
    void *arg)
{
	struct sent *s = d->n_sent < DOT_OPEN_MAX ? sent_new(d, query, len) :
	    NULL;

	if (s == NULL) {
		done(arg, CHANNEL_MEMORY, span_of(NULL, 0));
		return;
	}
	s->done = done;
	s->arg = arg;
	if (put(d, s) < 0)
		end(s, CHANNEL_FAILED, span_of(NULL, 0));
}
