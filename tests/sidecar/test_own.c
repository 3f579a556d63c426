/* SPDX-License-Identifier: Apache-2.0 */
/* Each test in a network namespace of its own. */
#include "sidecar/own.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "sidecar/rtnl.h"

static void
ip_as(const char *how, const char *commands)
{
	FILE *f = popen(how, "w");

	assert_non_null(f);
	fputs(commands, f);
	assert_int_equal(pclose(f), 0);
}

static void
ip(const char *commands)
{
	ip_as("ip -batch -", commands);
}

static void
ip6(const char *commands)
{
	ip_as("ip -6 -batch -", commands);
}

static void
own_network(void)
{
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	ip("link set lo up\n"
	    "link add own0 type veth peer name own1\n"
	    "link add own2 type veth peer name own3\n"
	    "link set own0 addrgenmode none\nlink set own2 addrgenmode none\n"
	    "link set own0 up\nlink set own1 up\n"
	    "link set own2 up\nlink set own3 up\n"
	    "addr add 10.1.0.2/24 dev own0\naddr add 10.2.0.2/24 dev own2\n"
	    "addr add fd01::2/64 dev own0 nodad\n"
	    "addr add 203.0.113.7/32 dev lo\n");
}

static bool
has(const struct own *o, bool gateway, const char *text)
{
	const size_t middle = o->n - o->n_gateways;
	struct addr a;
	size_t i;

	assert_true(addr_parse(&a, span_str(text)));
	for (i = gateway ? middle : 0; i < (gateway ? o->n : middle); i++)
		if (addr_eq(&o->at[i].addr, &a))
			return true;
	return false;
}

static void
the_next_hops_of_default_routes_are_gateways(void **state)
{
	struct own o;

	(void)state;
	own_network();
	assert_int_equal(own_list(&o), 0);
	assert_int_equal(o.n_gateways, 0);
	assert_true(has(&o, false, "10.1.0.2") && has(&o, false, "fd01::2") &&
	    has(&o, false, "203.0.113.7"));
	assert_false(has(&o, false, "127.0.0.1"));
	ip("route add default via 10.1.0.1\n"
	    "route add default via 10.1.0.1 metric 7\n"
	    "route add default table 99 nexthop via 10.1.0.3 nexthop via "
	    "10.2.0.1\n"
	    "route add 192.168.0.0/16 via 10.2.0.9\n"
	    "route add default table 98 via inet6 fd01::9 dev own0\n");
	ip6("route add default via fd01::1\n"
	    "route add default via fe80::1 dev own2 metric 9\n"
	    "route add default table 99 nexthop via fd01::3 nexthop via "
	    "fd01::4\n");
	assert_int_equal(own_list(&o), 0);
	assert_true(has(&o, true, "10.1.0.1"));
	assert_true(has(&o, true, "10.1.0.3"));
	assert_true(has(&o, true, "10.2.0.1"));
	assert_true(has(&o, true, "fd01::1"));
	assert_true(has(&o, true, "fe80::1"));
	assert_true(has(&o, true, "fd01::3"));
	assert_true(has(&o, true, "fd01::4"));
	assert_true(has(&o, true, "fd01::9"));
	assert_false(has(&o, true, "10.2.0.9"));
	assert_int_equal(o.n_gateways, 8);
}

static void
listeners_stand_before_the_gateways_and_have_their_port(void **state)
{
	struct settings s = { .n_listeners = 1, .n_dns = 1 };
	struct own o, again;
	size_t n;

	(void)state;
	own_network();
	ip("route add default via 10.1.0.1\n");
	assert_int_equal(own_list(&o), 0);
	n = o.n;
	s.listeners[0].at.port = 15001;
	s.dns[0].port = 53;
	assert_int_equal(own_add(&o, &s), 0);
	assert_int_equal(o.n, n + 2);
	assert_int_equal(o.at[o.n - 3].port, 15001);
	assert_int_equal(o.at[o.n - 2].port, 53);
	assert_true(has(&o, true, "10.1.0.1"));
	assert_int_equal(own_list(&again), 0);
	assert_int_equal(own_add(&again, &s), 0);
	assert_memory_equal(o.at, again.at, o.n * sizeof(o.at[0]));
	o.n = POLICY_OWN_MAX - 1;
	assert_int_equal(own_add(&o, &s), -E2BIG);
}

static bool
heard(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	bool yes = poll(&p, 1, 1000) == 1;

	rtnl_forget(fd);
	return yes;
}

static void
addresses_and_routes_that_come_and_go_are_heard(void **state)
{
	static const char *const changes[] = {
		"addr add 10.1.0.77/24 dev own0\n",
		"route add default via 10.1.0.1\n",
		"route del default via 10.1.0.1\n",
		"addr add fd01::77/64 dev own0 nodad\n",
		"addr del 10.1.0.77/24 dev own0\n",
	};
	struct pollfd p = { .events = POLLIN };
	int fd;

	(void)state;
	own_network();
	fd = rtnl_listen();
	assert_true(fd >= 0);
	usleep(300000);		/* links that come up */
	rtnl_forget(fd);
	p.fd = fd;
	assert_int_equal(poll(&p, 1, 0), 0);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		ip(changes[i]);
		assert_true(heard(fd));
	}
	ip6("route add default via fd01::1\n");
	assert_true(heard(fd));
	close(fd);
}

static bool
found(const char *interface, bool v6, const char *near, const char *want)
{
	struct addr a, n;
	char text[ADDR_TEXT_BYTES];

	if (near != NULL)
		assert_true(addr_parse(&n, span_str(near)));
	if (!own_address(interface, v6, near != NULL ? &n : NULL, &a))
		return false;
	assert_string_equal(addr_text(&a, text), want);
	return true;
}

static void
an_interfaces_address_is_found_by_its_network(void **state)
{
	(void)state;
	own_network();
	ip("addr add 10.3.0.2/16 dev own0\n"
	    "addr add fe80::7/64 dev own2 nodad\n");
	assert_true(found("own0", false, NULL, "10.1.0.2"));
	assert_true(found("own0", false, "10.3.255.9", "10.3.0.2"));
	assert_true(found("own0", true, NULL, "fd01::2"));
	assert_true(found("own0", true, "fd01::ffff:0:0:9", "fd01::2"));
	assert_false(found("own0", false, "10.1.1.9", ""));
	assert_false(found("own0", false, "fd01::9", ""));
	assert_false(found("own0", true, "fd01:0:0:1::9", ""));
	/* a link-local one says nothing without its interface */
	assert_false(found("own2", true, NULL, ""));
	assert_false(found("own1", false, NULL, ""));
	assert_false(found("none", false, NULL, ""));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_next_hops_of_default_routes_are_gateways),
		cmocka_unit_test(
		    listeners_stand_before_the_gateways_and_have_their_port),
		cmocka_unit_test(
		    addresses_and_routes_that_come_and_go_are_heard),
		cmocka_unit_test(
		    an_interfaces_address_is_found_by_its_network),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "these tests need root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
