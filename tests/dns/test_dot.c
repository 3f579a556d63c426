/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/dot.h"

#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>

#include "dns/message.h"
#include "dns/trust.h"
#include "tests/dns/fake_server.h"

/* A server with a certificate of its own for dns.test; what it says is
 * fake's affair. */
static struct event_base *base;
static struct fake fake;
static SSL_CTX *server_tls, *client_tls;
static struct bufferevent *served;
static unsigned n_accepted;
static struct dot *dot;

struct got {
	unsigned n, ends[4];
	size_t len;
};

static void
on_done(void *arg, enum channel_end end, struct span msg)
{
	struct got *g = arg;

	g->n++;
	g->ends[end]++;
	g->len = msg.len;
}

static void
on_served_end(struct bufferevent *bev, short what, void *arg)
{
	(void)arg;
	if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) == 0)
		return;
	if (served == bev)
		served = NULL;
	bufferevent_free(bev);
}

static void
on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *from,
    int len, void *arg)
{
	(void)l;
	(void)from;
	(void)len;
	n_accepted++;
	served = bufferevent_openssl_socket_new(base, fd,
	    SSL_new(server_tls), BUFFEREVENT_SSL_ACCEPTING,
	    BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(served, fake_on_stream, NULL, on_served_end, arg);
	bufferevent_enable(served, EV_READ | EV_WRITE);
}

static X509 *
certificate(EVP_PKEY *key)
{
	X509 *x = X509_new();
	X509_NAME *name = X509_get_subject_name(x);
	X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL,
	    NID_subject_alt_name, "DNS:dns.test");

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -60);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
	    (const unsigned char *)"dns.test", -1, -1, 0);
	X509_set_issuer_name(x, name);
	X509_add_ext(x, san, -1);
	X509_EXTENSION_free(san);
	X509_set_pubkey(x, key);
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	return x;
}

static int
make_contexts(void **state)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = certificate(key);

	(void)state;
	signal(SIGPIPE, SIG_IGN);	/* as each role does */
	server_tls = SSL_CTX_new(TLS_server_method());
	client_tls = SSL_CTX_new(TLS_client_method());
	assert_int_equal(SSL_CTX_use_certificate(server_tls, x), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(server_tls, key), 1);
	assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(
	    client_tls), x), 1);
	X509_free(x);
	EVP_PKEY_free(key);
	return 0;
}

static int
free_contexts(void **state)
{
	(void)state;
	SSL_CTX_free(server_tls);
	SSL_CTX_free(client_tls);
	return 0;
}

static void
up(fake_says *says, const char *name, SSL_CTX *tls)
{
	base = event_base_new();
	n_accepted = 0;
	served = NULL;
	fake_start(&fake, base, says);
	evconnlistener_set_cb(fake.tcp, on_accept, &fake);
	assert_int_equal(dot_new(&dot, base, &fake.at, name, tls, 500), 0);
}

static void
down(void)
{
	dot_free(dot);
	if (served != NULL)
		bufferevent_free(served);
	fake_stop(&fake);
	event_base_free(base);
}

static void
ask(struct got *g)
{
	static const uint8_t none[32];
	uint8_t query[MESSAGE_ASK_MAX_BYTES];
	struct host name;
	size_t n;

	assert_int_equal(host_parse(&name, span_str("a.example")),
	    REASON_NONE);
	n = message_ask(&name, TYPE_A, 0, none, DOT_PAD_BYTES, query);
	dot_ask(dot, query, n, on_done, g);
}

static void
await(struct got *g, unsigned n)
{
	for (int i = 0; i < 2000 && g->n < n; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g->n, n);
}

static void
questions_share_a_connection(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes, "dns.test", client_tls);
	for (unsigned i = 0; i < 100; i++)
		ask(&g);
	await(&g, 100);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 100);
	assert_int_equal(n_accepted, 1);
	assert_int_equal(fake.n_udp, 0);
	down();
}

/* RFC 8467: a length says nothing of the name. */
static void
questions_are_padded(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes, "dns.test", client_tls);
	ask(&g);
	await(&g, 1);
	assert_int_equal(fake.last_len, DOT_PAD_BYTES);
	down();
}

static void
a_certificate_for_another_name_is_none(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes, "other.test", client_tls);
	ask(&g);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_FAILED], 1);
	assert_int_equal(fake.n_tcp, 0);
	down();
}

static void
a_certificate_that_nobody_signed_is_none(void **state)
{
	SSL_CTX *strict = SSL_CTX_new(TLS_client_method());
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes, "dns.test", strict);
	ask(&g);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_FAILED], 1);
	assert_int_equal(fake.n_tcp, 0);
	down();
	SSL_CTX_free(strict);
}

static void
silence_is_a_time_out(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_nothing, "dns.test", client_tls);
	ask(&g);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_TIMEOUT], 1);
	down();
}

/* A server may close when nothing is in flight (RFC 7858 3.4). */
static void
what_meets_a_closed_connection_is_sent_again(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes, "dns.test", client_tls);
	ask(&g);
	await(&g, 1);
	assert_non_null(served);
	bufferevent_free(served);
	served = NULL;
	ask(&g);
	await(&g, 2);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 2);
	assert_int_equal(n_accepted, 2);
	down();
}

static size_t
hangs_up(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)query;
	(void)len;
	(void)out;
	shutdown(bufferevent_getfd(served), SHUT_RDWR);
	return 0;
}

static void
a_server_that_always_closes_is_a_failure(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(hangs_up, "dns.test", client_tls);
	ask(&g);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_FAILED], 1);
	assert_true(n_accepted <= 2);
	down();
}

static void
nobody_is_told_after_the_end(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_nothing, "dns.test", client_tls);
	for (unsigned i = 0; i < 10; i++)
		ask(&g);
	for (unsigned i = 0; i < 20; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
	down();
	assert_int_equal(g.n, 0);
}

static void
what_is_in_flight_is_bounded(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_nothing, "dns.test", client_tls);
	for (unsigned i = 0; i < DOT_OPEN_MAX; i++)
		ask(&g);
	assert_int_equal(g.n, 0);
	ask(&g);
	assert_int_equal(g.ends[CHANNEL_MEMORY], 1);
	down();
}

/* Beyond what one cell of two may have open there is room for the other's:
 * only the front, which knows cells, says no. */
static void
many_in_flight_find_their_askers(void **state)
{
	enum { N = 2048 };
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes, "dns.test", client_tls);
	for (unsigned i = 0; i < N; i++)
		ask(&g);
	await(&g, N);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], N);
	assert_int_equal(n_accepted, 1);
	down();
}

/* The server's own certificate as a file of those that are trusted. */
static void
write_file(const char *path, const char *before)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(before, f) >= 0);
	if (server_tls != NULL && before[0] != '!')
		assert_int_equal(PEM_write_X509(f,
		    SSL_CTX_get0_certificate(server_tls)), 1);
	assert_int_equal(fclose(f), 0);
}

static void
trust_is_read_from_a_file_that_was_opened_before(void **state)
{
	char path[] = "/tmp/penstock-test-XXXXXX";
	struct trust *t;
	struct got g = { 0 };
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	write_file(path, "# a comment\n");
	t = trust_new(path);
	assert_non_null(t);
	assert_int_equal(unlink(path), 0);
	assert_non_null(trust_context(t));
	assert_ptr_equal(trust_context(t), trust_context(t));
	up(fake_says_yes, "dns.test", trust_context(t));
	ask(&g);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 1);
	down();
	trust_free(t);
	/* none in it, and no file */
	write_file(path, "! nothing\n");
	t = trust_new(path);
	assert_null(trust_context(t));
	trust_free(t);
	assert_int_equal(unlink(path), 0);
	t = trust_new(path);
	assert_null(trust_context(t));
	trust_free(t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(questions_share_a_connection),
		cmocka_unit_test(questions_are_padded),
		cmocka_unit_test(a_certificate_for_another_name_is_none),
		cmocka_unit_test(a_certificate_that_nobody_signed_is_none),
		cmocka_unit_test(silence_is_a_time_out),
		cmocka_unit_test(
		    what_meets_a_closed_connection_is_sent_again),
		cmocka_unit_test(a_server_that_always_closes_is_a_failure),
		cmocka_unit_test(nobody_is_told_after_the_end),
		cmocka_unit_test(what_is_in_flight_is_bounded),
		cmocka_unit_test(many_in_flight_find_their_askers),
		cmocka_unit_test(
		    trust_is_read_from_a_file_that_was_opened_before),
	};

	return cmocka_run_group_tests(tests, make_contexts, free_contexts);
}
