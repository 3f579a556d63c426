/* SPDX-License-Identifier: Apache-2.0 */
/* Each test in a network namespace of its own. */
#include "sidecar/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

static char why[RULES_WHY_BYTES];
/* Neither is there: a rule waits for its interface. */
static struct rules_spec spec = { .interfaces = { "ag0", "ag1" },
    .n_interfaces = 2 };

/* A network with its loopback up. */
static void
own_network(void)
{
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	if (unshare(CLONE_NEWNET) != 0 &&
	    unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		skip();
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &up), 0);
	close(fd);
}

static void
put_setting(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		skip();
	assert_int_equal(write(fd, text, 1), 1);
	close(fd);
}

/* Somebody takes all routes of our table away, and not the rule. */
static void
delete_routes(uint8_t family)
{
	char buf[4096];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct mnl_socket *nl = mnl_socket_open(NETLINK_ROUTE);
	struct rtmsg *m;

	h->nlmsg_type = RTM_DELROUTE;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
	m->rtm_family = family;
	m->rtm_type = RTN_LOCAL;
	m->rtm_scope = RT_SCOPE_NOWHERE;
	mnl_attr_put_u32(h, RTA_TABLE, RULES_ROUTE_TABLE);
	assert_non_null(nl);
	assert_int_equal(mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID), 0);
	assert_true(mnl_socket_sendto(nl, h, h->nlmsg_len) > 0);
	assert_true(mnl_socket_recvfrom(nl, buf, sizeof(buf)) > 0);
	assert_int_equal(((struct nlmsgerr *)mnl_nlmsg_get_payload(
	    (struct nlmsghdr *)buf))->error, 0);
	mnl_socket_close(nl);
}

static void
what_was_added_is_found_until_it_is_removed(void **state)
{
	(void)state;
	own_network();
	assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)), -EBADMSG);
	assert_string_equal(why, "the IPv4 routing rule from ag0 to the "
	    "listener is missing");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rules_route_add(&spec, why,
	    sizeof(why)), 0);
		assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)), 0);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rules_route_remove(why, sizeof(why)), 0);
		assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)),
		    -EBADMSG);
	}
}

/* Each interface has a rule, and what stands for another is not taken for
 * it. */
static void
a_rule_that_is_missing_is_told_with_its_interface(void **state)
{
	struct rules_spec one = spec;

	(void)state;
	own_network();
	one.n_interfaces = 1;
	assert_int_equal(rules_route_add(&one, why, sizeof(why)), 0);
	assert_int_equal(rules_route_check(&one, why, sizeof(why)), 0);
	assert_int_equal(rules_route_check(&spec, why, sizeof(why)),
	    -EBADMSG);
	assert_string_equal(why, "the IPv4 routing rule from ag1 to the "
	    "listener is missing");
	assert_int_equal(rules_route_add(&spec, why, sizeof(why)), 0);
	assert_int_equal(rules_route_check(&spec, why, sizeof(why)), 0);
	assert_int_equal(rules_route_remove(why, sizeof(why)), 0);
	assert_int_equal(rules_route_check(&one, why, sizeof(why)),
	    -EBADMSG);
}

static void
a_rule_without_its_route_is_missing_the_route(void **state)
{
	(void)state;
	own_network();
	assert_int_equal(rules_route_add(&spec, why,
	    sizeof(why)), 0);
	delete_routes(AF_INET);
	assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)), -EBADMSG);
	assert_string_equal(why, "the IPv4 local route to the listener is "
	    "missing");
	assert_int_equal(rules_route_add(&spec, why,
	    sizeof(why)), 0);
	assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)), 0);
}

static void
ipv6_is_looked_at_while_loopback_has_it(void **state)
{
	static const char off[] = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";

	(void)state;
	own_network();
	put_setting(off, "0");
	assert_int_equal(rules_route_add(&spec, why,
	    sizeof(why)), 0);
	delete_routes(AF_INET6);
	assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)), -EBADMSG);
	assert_string_equal(why, "the IPv6 local route to the listener is "
	    "missing");
	put_setting(off, "1");
	assert_int_equal(rules_route_check(&spec, why,
	    sizeof(why)), 0);
}

static void
a_kernel_that_forwards_is_told_with_its_key(void **state)
{
	static const char four[] = "/proc/sys/net/ipv4/ip_forward",
	    six[] = "/proc/sys/net/ipv6/conf/all/forwarding";

	(void)state;
	own_network();
	put_setting(four, "0");
	put_setting(six, "0");
	assert_int_equal(rules_route_forwarding(why, sizeof(why)), 0);
	put_setting(four, "1");
	assert_int_equal(rules_route_forwarding(why, sizeof(why)), -EPROTO);
	assert_non_null(strstr(why, four));
	put_setting(four, "0");
	put_setting(six, "1");
	assert_int_equal(rules_route_forwarding(why, sizeof(why)), -EPROTO);
	assert_non_null(strstr(why, six));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_found_until_it_is_removed),
		cmocka_unit_test(
		    a_rule_that_is_missing_is_told_with_its_interface),
		cmocka_unit_test(
		    a_rule_without_its_route_is_missing_the_route),
		cmocka_unit_test(ipv6_is_looked_at_while_loopback_has_it),
		cmocka_unit_test(a_kernel_that_forwards_is_told_with_its_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
