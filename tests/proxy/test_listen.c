/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a client wanted to go, by the kind of listener.  The sockets are real
 * and on the loopback; what the kernel says of a redirected one is the test's
 * (--wrap of getsockopt and getsockname), and so is the connection's life.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"

#define ORIGINAL 80		/* SO_ORIGINAL_DST and the one of IPv6 */

int __real_getsockopt(int fd, int level, int name, void *v, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *v, socklen_t *len);
int __real_getsockname(int fd, struct sockaddr *sa, socklen_t *len);
int __wrap_getsockname(int fd, struct sockaddr *sa, socklen_t *len);
void __wrap_conn_new(struct listener *l, int fd, const struct endpoint *peer,
    const struct endpoint *original, enum reason refused);
void __wrap_account_turned_away(const struct listener *l,
    const struct endpoint *peer, const struct endpoint *original,
    uint32_t cell, enum reason why);

/* What the kernel answers; port 0: it fails. */
static struct endpoint redirected, local;
static bool wrong_family, local_is_real;
static int asked_level;

static struct {
	unsigned times, away;
	struct endpoint peer, original;
	enum reason why;
} got;

static int
answer(const struct endpoint *e, void *out, socklen_t *len)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t n;

	if (e->port == 0) {
		errno = ENOENT;
		return -1;
	}
	n = endpoint_to_sockaddr(e, &ss);
	if (wrong_family)
		ss.ss_family = AF_UNIX;
	assert_true(*len >= n);
	memcpy(out, &ss, n);
	*len = n;
	return 0;
}

int
__wrap_getsockopt(int fd, int level, int name, void *v, socklen_t *len)
{
	if (name != ORIGINAL || (level != SOL_IP && level != SOL_IPV6))
		return __real_getsockopt(fd, level, name, v, len);
	asked_level = level;
	return answer(&redirected, v, len);
}

int
__wrap_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	return local_is_real ? __real_getsockname(fd, sa, len) :
	    answer(&local, sa, len);
}

void
__wrap_conn_new(struct listener *l, int fd, const struct endpoint *peer,
    const struct endpoint *original, enum reason refused)
{
	(void)l;
	got.times++;
	got.peer = *peer;
	got.original = *original;
	got.why = refused;
	close(fd);
}

void
__wrap_account_turned_away(const struct listener *l,
    const struct endpoint *peer, const struct endpoint *original,
    uint32_t cell, enum reason why)
{
	(void)l;
	assert_int_equal(cell, CELL_NONE);	/* no policy is loaded */
	got.away++;
	got.peer = *peer;
	got.original = *original;
	got.why = why;
}

/* ---- two listeners: one that is tried, and one more that is ours ---- */

static struct proxy proxy;
static struct listener listeners[2];

static struct endpoint
at(const char *addr, uint16_t port)
{
	struct endpoint e = { .port = port };

	assert_true(addr_parse(&e.addr, span_str(addr)));
	return e;
}

/* "any4" and "any6" are all addresses. */
static struct endpoint
where(const char *addr, uint16_t port)
{
	static const uint8_t zero[16];
	struct endpoint e = { .port = port };

	if (strcmp(addr, "any4") == 0)
		e.addr = addr_from_v4(zero);
	else if (strcmp(addr, "any6") == 0)
		e.addr = addr_from_v6(zero);
	else
		e = at(addr, port);
	return e;
}

static void
open_at(const char *addr, enum listen_kind kind)
{
	struct sockaddr_storage ss;
	struct listener *l = &listeners[0];
	struct endpoint e = where(addr, 0);
	socklen_t len = endpoint_to_sockaddr(&e, &ss);
	int off = 0;

	memset(&got, 0, sizeof(got));
	asked_level = 0;
	wrong_family = local_is_real = false;
	redirected = local = (struct endpoint){ .port = 0 };
	l->proxy = &proxy;
	l->is.kind = kind;
	l->is.fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_true(l->is.fd >= 0);
	if (ss.ss_family == AF_INET6)
		setsockopt(l->is.fd, SOL_IPV6, IPV6_V6ONLY, &off,
		    sizeof(off));
	assert_int_equal(bind(l->is.fd, (struct sockaddr *)&ss, len), 0);
	assert_int_equal(listen(l->is.fd, 8), 0);
	len = sizeof(ss);
	assert_int_equal(__real_getsockname(l->is.fd, (struct sockaddr *)&ss,
	    &len), 0);
	assert_true(endpoint_from_sockaddr(&l->is.bound, &ss));
	l->is.bound.addr = e.addr;
	listeners[1] = *l;
	listeners[1].is.bound = at("10.9.9.9", 15001);
	assert_int_equal(listen_start(l), 0);
}

static void
shut(void)
{
	event_free(listeners[0].ev);
	close(listeners[0].is.fd);
}

/* One client from the loopback of that family. */
static void
arrive(const char *from)
{
	struct endpoint e = at(from, listeners[0].is.bound.port);
	struct sockaddr_storage ss;
	socklen_t len = endpoint_to_sockaddr(&e, &ss);
	unsigned before = got.times;
	int fd = socket(ss.ss_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	event_base_loop(proxy.parts.base, EVLOOP_ONCE);
	assert_int_equal(got.times, before + 1);
	assert_true(addr_eq(&got.peer.addr, &e.addr));
	close(fd);
}

static void
went(const char *addr, uint16_t port, enum reason why)
{
	struct endpoint e = where(addr, port);
	char text[ADDR_TEXT_BYTES];

	if (got.why != why)
		fail_msg("%s, not %s", reason_word(got.why),
		    reason_word(why));
	if (!endpoint_eq(&got.original, &e))
		fail_msg("%s", endpoint_text(&got.original, text));
}

/* ---- REDIRECT ---- */

static void
a_redirected_client_is_asked_for_by_its_family(void **state)
{
	(void)state;
	open_at("127.0.0.1", LISTEN_REDIRECT);
	redirected = at("203.0.113.7", 443);
	arrive("127.0.0.1");
	went("203.0.113.7", 443, REASON_NONE);
	assert_int_equal(asked_level, SOL_IP);
	shut();

	open_at("::1", LISTEN_REDIRECT);
	redirected = at("2001:db8::7", 8443);
	arrive("::1");
	went("2001:db8::7", 8443, REASON_NONE);
	assert_int_equal(asked_level, SOL_IPV6);
	shut();
}

/* One socket for both families: the packets say which call answers. */
static void
on_a_socket_for_both_families_the_peer_says_which(void **state)
{
	(void)state;
	open_at("any6", LISTEN_REDIRECT);
	local = at("2001:db8::99", 9);
	redirected = at("203.0.113.7", 443);
	arrive("127.0.0.1");
	went("203.0.113.7", 443, REASON_NONE);
	assert_int_equal(asked_level, SOL_IP);
	redirected = at("2001:db8::7", 443);
	arrive("::1");
	went("2001:db8::7", 443, REASON_NONE);
	assert_int_equal(asked_level, SOL_IPV6);
	shut();
}

static void
a_destination_that_the_kernel_does_not_tell_is_refused(void **state)
{
	static const char *const addrs[] = { "127.0.0.1", "::1" };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		open_at(addrs[i], LISTEN_REDIRECT);
		arrive(addrs[i]);
		assert_int_equal(got.why, REASON_ORIGINAL_DESTINATION);
		redirected = at("203.0.113.7", 443);
		wrong_family = true;
		arrive(addrs[i]);
		assert_int_equal(got.why, REASON_ORIGINAL_DESTINATION);
		shut();

		open_at(addrs[i], LISTEN_TPROXY);
		arrive(addrs[i]);
		assert_int_equal(got.why, REASON_ORIGINAL_DESTINATION);
		shut();
	}
}

/* ---- TPROXY ---- */

static void
a_tproxied_client_wanted_the_local_end(void **state)
{
	(void)state;
	open_at("127.0.0.1", LISTEN_TPROXY);
	local = at("203.0.113.7", 443);
	arrive("127.0.0.1");
	went("203.0.113.7", 443, REASON_NONE);
	assert_int_equal(asked_level, 0);
	shut();

	open_at("::1", LISTEN_TPROXY);
	local = at("2001:db8::7", 443);
	arrive("::1");
	went("2001:db8::7", 443, REASON_NONE);
	shut();
}

/* ---- our own listeners ---- */

static void
a_listener_of_ours_is_no_destination(void **state)
{
	static const char *const addrs[] = { "127.0.0.1", "::1" };
	static const enum listen_kind kinds[] = { LISTEN_REDIRECT,
	    LISTEN_TPROXY };

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		open_at(addrs[i % 2], kinds[i / 2]);
		redirected = local = listeners[0].is.bound;
		arrive(addrs[i % 2]);
		assert_int_equal(got.why, REASON_OWN_LISTENER);
		/* another one of ours */
		redirected = local = listeners[1].is.bound;
		arrive(addrs[i % 2]);
		assert_int_equal(got.why, REASON_OWN_LISTENER);
		/* its address alone, its port alone */
		redirected = local = at("10.9.9.9", 15002);
		arrive(addrs[i % 2]);
		assert_int_equal(got.why, REASON_NONE);
		redirected = local = at("10.9.9.8", 15001);
		arrive(addrs[i % 2]);
		assert_int_equal(got.why, REASON_NONE);
		shut();
	}
}

/* Bound to every address, it was met without a redirect when both ends agree;
 * its port on another machine is a destination like any other. */
static void
a_listener_on_every_address_knows_itself(void **state)
{
	static const char *const any[] = { "any4", "any6", "any6" };
	static const char *const from[] = { "127.0.0.1", "::1", "127.0.0.1" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		open_at(any[i], LISTEN_REDIRECT);
		local_is_real = true;
		redirected = at(from[i], listeners[0].is.bound.port);
		arrive(from[i]);
		assert_int_equal(got.why, REASON_OWN_LISTENER);
		redirected = at(i == 1 ? "2001:db8::7" : "203.0.113.7",
		    listeners[0].is.bound.port);
		arrive(from[i]);
		assert_int_equal(got.why, REASON_NONE);
		shut();
	}
}

/* ---- without an original destination ---- */

static void
an_explicit_client_has_none(void **state)
{
	(void)state;
	open_at("127.0.0.1", LISTEN_EXPLICIT);
	redirected = local = at("203.0.113.7", 443);
	arrive("127.0.0.1");
	went("any6", 0, REASON_NONE);
	assert_int_equal(asked_level, 0);
	shut();
}

static void
a_named_client_has_the_port_of_its_listener(void **state)
{
	(void)state;
	open_at("127.0.0.1", LISTEN_NAMED);
	redirected = local = at("203.0.113.7", 1);
	arrive("127.0.0.1");
	went("any6", listeners[0].is.bound.port, REASON_NONE);
	shut();
}

/* ---- how many at once ---- */

static void
one_wakeup_takes_sixteen_and_leaves_the_rest_to_the_next(void **state)
{
	struct endpoint e;
	struct sockaddr_storage ss;
	socklen_t len;
	int fds[20];

	(void)state;
	open_at("127.0.0.1", LISTEN_EXPLICIT);
	assert_int_equal(listen(listeners[0].is.fd, 64), 0);
	e = listeners[0].is.bound;
	len = endpoint_to_sockaddr(&e, &ss);
	for (size_t i = 0; i < 20; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&ss, len),
		    0);
	}
	event_base_loop(proxy.parts.base, EVLOOP_ONCE);
	assert_int_equal(got.times, 16);
	event_base_loop(proxy.parts.base, EVLOOP_ONCE);
	assert_int_equal(got.times, 20);
	assert_int_equal(got.away, 0);
	for (size_t i = 0; i < 20; i++)
		close(fds[i]);
	shut();
}

/* Paused: the pause is not begun again, nothing is counted.  In a drain it
 * is begun too, for clients are accepted then, to be refused. */
static void
a_pause_is_counted_once(void **state)
{
	int64_t before = count_sum(proxy.parts.counts, COUNT_ACCEPT_PAUSES);

	(void)state;
	open_at("127.0.0.1", LISTEN_EXPLICIT);
	listeners[1].ev = listeners[0].ev;
	proxy.draining = true;
	listen_pause(&proxy);
	listen_pause(&proxy);
	assert_true(proxy.paused);
	assert_true(count_sum(proxy.parts.counts, COUNT_ACCEPT_PAUSES) ==
	    before + 1);
	assert_false(event_pending(listeners[0].ev, EV_READ, NULL));
	event_base_loop(proxy.parts.base, EVLOOP_ONCE);
	assert_false(proxy.paused);
	assert_true(event_pending(listeners[0].ev, EV_READ, NULL));
	proxy.draining = false;
	shut();
}

static void
resume(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	proxy.paused = false;
	event_add(listeners[0].ev, NULL);
}

/* A network of its own, so that ::1 is there wherever this runs. */
static int
up(void **state)
{
	int fd = count_create();

	(void)state;
	if (unshare(CLONE_NEWNET) != 0 &&
	    unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return -1;
	if (system("ip link set lo up") != 0)
		return -1;
	proxy.parts.base = event_base_new();
	proxy.parts.n_listeners = 2;
	proxy.listeners = listeners;
	proxy.reserve = -1;
	proxy.resume = evtimer_new(proxy.parts.base, resume, NULL);
	return fd < 0 || proxy.parts.base == NULL || proxy.resume == NULL ||
	    count_open(&proxy.parts.counts, fd, 1) != 0 || close(fd) != 0;
}

static int
down(void **state)
{
	(void)state;
	event_free(proxy.resume);
	event_base_free(proxy.parts.base);
	count_close(proxy.parts.counts);
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_redirected_client_is_asked_for_by_its_family),
		cmocka_unit_test(
		    on_a_socket_for_both_families_the_peer_says_which),
		cmocka_unit_test(
		    a_destination_that_the_kernel_does_not_tell_is_refused),
		cmocka_unit_test(a_tproxied_client_wanted_the_local_end),
		cmocka_unit_test(a_listener_of_ours_is_no_destination),
		cmocka_unit_test(a_listener_on_every_address_knows_itself),
		cmocka_unit_test(an_explicit_client_has_none),
		cmocka_unit_test(a_named_client_has_the_port_of_its_listener),
		cmocka_unit_test(
		    one_wakeup_takes_sixteen_and_leaves_the_rest_to_the_next),
		cmocka_unit_test(a_pause_is_counted_once),
	};

	return cmocka_run_group_tests(tests, up, down);
}
