/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask of DNS, over HTTP, and who may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "sidecar/figures.h"
#include "sidecar/flush.h"
#include "sidecar/health.h"
#include "sidecar/ipc.h"
#include "sidecar/role.h"

static struct figures_page *page;
static int figures_fd, health_fd, orders = -1;
static struct role role;
static char got[1 << 18], dir[] = "/tmp/penstock-admin-XXXXXX";

static void
figures_of_two(int64_t at_ms)
{
	struct figures *f = figures_begin(page);

	memset(f, 0, sizeof(*f));
	f->at_ms = at_ms;
	f->cache_answers = 5;
	f->pins_used = 7;
	f->pins_all = 100;
	f->n_servers = 3;
	assert_true(server_parse(&f->servers[0].is.is,
	    span_str("192.0.2.53")));
	assert_true(server_parse(&f->servers[1].is.is,
	    span_str("tls://192.0.2.54#dns.test")));
	f->servers[1].is.tls = f->servers[1].is.down = true;
	assert_int_equal(host_parse(&f->servers[1].zone,
	    span_str("corp.test")), REASON_NONE);
	f->servers[0].is.answered = 4;
	f->servers[0].is.answered_us = 2000500;
	f->servers[0].is.took[1] = 3;
	f->servers[0].is.took[UPSTREAM_TOOK_N] = 1;
	f->servers[0].is.timeouts = 2;
	/* named twice: no two series of one name */
	f->servers[2] = f->servers[0];
	figures_end(page);
}

static int
up(void **state)
{
	(void)state;
	figures_fd = figures_create();
	health_fd = health_create();
	return figures_fd < 0 || health_fd < 0 ||
	    figures_open(&page, figures_fd, true) != 0;
}

static int
down(void **state)
{
	(void)state;
	figures_close(page);
	close(figures_fd);
	close(health_fd);
	return 0;
}

static int
listen_at(bool local, struct sockaddr_storage *ss, socklen_t *len)
{
	struct sockaddr_un *un = (void *)ss;
	int fd;

	memset(ss, 0, sizeof(*ss));
	*len = local ? sizeof(*un) : 16;
	ss->ss_family = local ? AF_UNIX : AF_INET;
	if (local)
		(void)snprintf(un->sun_path, sizeof(un->sun_path), "%s/s",
		    dir);
	fd = socket(ss->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)ss, *len), 0);
	assert_int_equal(listen(fd, 8), 0);
	*len = sizeof(*ss);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ss, len), 0);
	return fd;
}

/* The role, with the resolver's end of its pair in `orders`. */
static int
start(bool local)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int l, client, pair[2], counts = count_create();

	l = listen_at(local, &ss, &len);
	client = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	(void)connect(client, (struct sockaddr *)&ss, len);
	memset(&role, 0, sizeof(role));
	role.base = event_base_new();
	assert_int_equal(count_open(&role.counts, counts, 0), 0);
	close(counts);
	assert_int_equal(ipc_pair(pair), 0);
	role.parent = pair[0];
	role.gifts[0] = (struct gift){ GIVE_LISTENER, 0, l };
	role.gifts[1] = (struct gift){ GIVE_HEALTH, 0, dup(health_fd) };
	role.gifts[2] = (struct gift){ GIVE_FIGURES, 0, dup(figures_fd) };
	role.n_gifts = 3;
	close(pair[1]);
	assert_int_equal(ipc_pair(pair), 0);
	role.gifts[role.n_gifts++] = (struct gift){ GIVE_FLUSH, 0, pair[1] };
	orders = pair[0];
	assert_int_equal(admin_ops.start(&role), 0);
	return client;
}

/* Stands in for the resolver; 0: it goes away. */
static uint64_t answers;
static char flushed[HOST_MAX_BYTES + 1];

static void
resolver_turns(void)
{
	struct flush_order o;
	struct flush_done d;

	if (orders < 0 || flush_order_read(orders, &o) != 0)
		return;
	(void)snprintf(flushed, sizeof(flushed), "%s", o.name.name);
	if (answers == 0) {
		close(orders);
		orders = -1;
		return;
	}
	d = (struct flush_done){ o.number + 9, 1 };	/* another's */
	assert_int_equal(flush_done_send(orders, &d), 0);
	d = (struct flush_done){ o.number, answers };
	assert_int_equal(flush_done_send(orders, &d), 0);
}

static int
ask(bool local, const char *request)
{
	struct timeval turn = { .tv_usec = 5000 };
	int status = 0, client;
	size_t n = 0;
	char path[64];

	flushed[0] = '\0';
	client = start(local);
	assert_int_equal(send(client, request, strlen(request),
	    MSG_NOSIGNAL), strlen(request));
	for (int i = 0; i < 200; i++) {
		ssize_t k;

		(void)event_base_loopexit(role.base, &turn);
		(void)event_base_dispatch(role.base);
		resolver_turns();
		k = recv(client, got + n, sizeof(got) - 1 - n, 0);
		n += k > 0 ? (size_t)k : 0;
		if (k == 0)
			break;
	}
	got[n] = '\0';
	close(client);
	admin_ops.stop(&role);
	count_close(role.counts);
	event_base_free(role.base);
	close(role.parent);
	if (orders >= 0)
		close(orders);
	orders = -1;
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	(void)unlink(path);
	(void)sscanf(got, "HTTP/1.1 %d", &status);
	return status;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: x\r\n" \
	"Content-Length: 0\r\n\r\n"

static void
each_server_is_one_series_of_its_name_and_zone(void **state)
{
	(void)state;
	figures_of_two(clock_mono_ms());
	assert_int_equal(ask(false, GET("/metrics")), 200);
#define HAS(text) assert_non_null(strstr(got, text))
	HAS("\n# TYPE penstock_dns_upstream_duration_seconds histogram\n");
	HAS("\npenstock_dns_upstream_duration_seconds_bucket{resolver="
	    "\"192.0.2.53:53\",zone=\"\",le=\"0.001\"} 0\n");
	HAS("\",le=\"0.005\"} 6\n");
	HAS("\",le=\"2.500\"} 6\n");
	HAS("zone=\"\",le=\"+Inf\"} 8\n");
	HAS("_sum{resolver=\"192.0.2.53:53\",zone=\"\"} 4.001000\n");
	HAS("_count{resolver=\"192.0.2.53:53\",zone=\"\"} 8\n");
	HAS("penstock_dns_upstream_failures_total{resolver=\"192.0.2.53:53\","
	    "zone=\"\",kind=\"timeout\"} 4\n");
	HAS("penstock_dns_upstream_up{resolver=\"tls://192.0.2.54:853#"
	    "dns.test\",zone=\"corp.test\"} 0\n");
	HAS("\npenstock_dns_pins 7\n");
	HAS("\npenstock_dns_pins_limit 100\n");
	HAS("\npenstock_dns_cache_entries 5\n");
	HAS("\npenstock_dns_questions_total{type=\"CAA\"} 0\n");
	HAS("\npenstock_dns_answers_total{rcode=\"REFUSED\",verdict=\"deny\"}"
	    " 0\n");
	/* and the family once */
	assert_null(strstr(strstr(got, "# TYPE penstock_dns_questions_total")
	    + 1, "# TYPE penstock_dns_questions_total"));
	assert_null(strstr(strstr(got, "_sum{resolver=\"192") + 1,
	    "_sum{resolver=\"192"));
}

static void
of_a_resolver_that_is_away_nothing_is_told(void **state)
{
	(void)state;
	figures_of_two(clock_mono_ms() - FIGURES_STALE_MS - 1);
	assert_int_equal(ask(false, GET("/metrics")), 200);
	assert_null(strstr(got, "upstream_duration"));
	assert_null(strstr(got, "dns_pins"));
	/* to a person with its age */
	assert_int_equal(ask(false, GET("/status/dns")), 200);
	HAS("\"fresh\":false");
	/* dead in mid-write */
	(void)figures_begin(page);
	assert_int_equal(ask(false, GET("/status/dns")), 503);
	figures_end(page);
}

static void
numbers_out_of_bounds_are_not_followed(void **state)
{
	static struct figures f;

	(void)state;
	figures_of_two(clock_mono_ms());
	figures_begin(page)->n_servers = UINT32_MAX;
	figures_end(page);
	memset(figures_begin(page)->servers[0].zone.name, 'x',
	    HOST_MAX_BYTES + 1);
	figures_begin(page)->servers[0].zone.len = 255;
	figures_end(page);
	assert_true(figures_read(page, &f));
	assert_int_equal(f.n_servers, FIGURES_SERVERS_MAX);
	assert_true(f.servers[0].zone.len <= HOST_MAX_BYTES);
	assert_true(strlen(f.servers[0].zone.name) <= HOST_MAX_BYTES);
}

static void
a_flush_is_answered_by_the_resolver(void **state)
{
	(void)state;
	answers = 42;
	assert_int_equal(ask(true, POST("/cache/flush")), 200);
	HAS("\r\n\r\n{\"flushed\":42}\n");
	assert_string_equal(flushed, "");
	assert_int_equal(ask(true, POST("/cache/flush?name=GIT.test")), 200);
	assert_string_equal(flushed, "git.test");
	assert_int_equal(ask(true, POST("/cache/flush?name=%67it.test")),
	    200);
	assert_string_equal(flushed, "git.test");
	answers = 0;
	assert_int_equal(ask(true, POST("/cache/flush")), 503);
	HAS("the resolver is away");
}

static void
what_is_not_asked_well_flushes_nothing(void **state)
{
	static const char *const bad[] = { "?name=", "?name=a..b", "?name=%",
		"?name=%0", "?name=%00", "?name=a%20b", "?x&name=-_*" };
	char request[128];

	(void)state;
	answers = 42;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(request, sizeof(request),
		    POST("/cache/flush%s"), bad[i]);
		assert_int_equal(ask(true, request), 400);
		assert_string_equal(flushed, "");
	}
	assert_int_equal(ask(true, GET("/cache/flush")), 405);
	assert_int_equal(ask(true, POST("/pins")), 405);
	assert_int_equal(ask(true, POST("/status/dns")), 405);
}

/* On a port there may be anybody, an agent too. */
static void
a_port_neither_shows_pins_nor_flushes(void **state)
{
	(void)state;
	answers = 42;
	figures_of_two(clock_mono_ms());
	assert_int_equal(ask(false, POST("/cache/flush")), 403);
	assert_string_equal(flushed, "");
	assert_int_equal(ask(false, GET("/pins")), 403);
	assert_int_equal(ask(false, GET("/status/dns")), 200);
	assert_null(strstr(got, "\"cells\""));
	assert_int_equal(ask(true, GET("/status/dns")), 200);
	HAS("\"cells\":[]");
	/* no policy yet */
	assert_int_equal(ask(true, GET("/pins")), 503);
}

int
main(void)
{
#define WITH(t) cmocka_unit_test_setup_teardown(t, up, down)
	const struct CMUnitTest tests[] = {
		WITH(each_server_is_one_series_of_its_name_and_zone),
		WITH(of_a_resolver_that_is_away_nothing_is_told),
		WITH(numbers_out_of_bounds_are_not_followed),
		WITH(a_flush_is_answered_by_the_resolver),
		WITH(what_is_not_asked_well_flushes_nothing),
		WITH(a_port_neither_shows_pins_nor_flushes),
	};
	int rc;

	if (mkdtemp(dir) == NULL)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	(void)rmdir(dir);
	return rc;
}
