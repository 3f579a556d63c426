/* SPDX-License-Identifier: Apache-2.0 */
/* The warden as its role, in a network namespace of its own; the parent is
 * played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/role.h"
#include "sidecar/rules.h"

/* A role has no end but that of its process. */
static struct role role;
static struct rules_spec spec;
static struct ipc_rules told;
static char why[RULES_WHY_BYTES];
static int parent;

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static bool
hear(void)
{
	struct ipc_message m;

	if (ipc_receive(parent, &m) != 1)
		return false;
	assert_int_equal(m.type, IPC_RULES);
	assert_int_equal(m.len, sizeof(told));
	memcpy(&told, m.body, sizeof(told));
	return true;
}

/* The last that is told says so, well before the next interval. */
static bool
tells(bool ok)
{
	int64_t end = now_ms() + WARDEN_MS / 2;

	while (now_ms() < end) {
		event_base_loop(role.base, EVLOOP_NONBLOCK);
		if (hear() && told.ok == ok)
			return true;
		(void)poll(NULL, 0, 5);
	}
	return false;
}

static int
start(void **state)
{
	int sv[2];

	(void)state;
	if (unshare(CLONE_NEWNET) != 0 &&
	    unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return 0;
	if (ipc_pair(sv) != 0)
		return -1;
	role.parent = sv[0];
	parent = sv[1];
	role.base = event_base_new();
	settings_default(&role.settings, MODE_SHARED);
	rules_from_settings(&spec, &role.settings);
	return warden_ops.start(&role) == -ENOPKG ? 0 : role.self == NULL;
}

static void
needs_a_warden(void)
{
	if (role.base == NULL || role.self == NULL)
		skip();
}

static void
it_says_at_once_what_stands(void **state)
{
	(void)state;
	needs_a_warden();
	assert_true(hear());
	assert_int_equal(told.ok, 0);
	assert_string_equal(told.why, "there is no table inet penstock");
	assert_false(hear());
}

static void
a_change_is_told_soon(void **state)
{
	(void)state;
	needs_a_warden();
	assert_int_equal(rules_apply(&spec, why, sizeof(why)), 0);
	assert_true(tells(true));
	assert_string_equal(told.why, "");
	assert_int_equal(rules_remove(why, sizeof(why)), 0);
	assert_true(tells(false));
	assert_string_equal(told.why, "there is no table inet penstock");
	assert_int_equal(rules_apply(&spec, why, sizeof(why)), 0);
	assert_true(tells(true));
}

/* What its own comparison changes is no change: else it would never rest. */
static void
its_own_comparison_wakes_it_not(void **state)
{
	(void)state;
	needs_a_warden();
	for (int64_t end = now_ms() + 1000; now_ms() < end;) {
		event_base_loop(role.base, EVLOOP_NONBLOCK);
		assert_false(hear());
		(void)poll(NULL, 0, 5);
	}
}

static void
a_new_policy_is_judged_by_its_settings(void **state)
{
	(void)state;
	needs_a_warden();
	role.settings.ipv6_drop = !role.settings.ipv6_drop;
	warden_ops.policy(&role, NULL);
	assert_true(hear());
	assert_int_equal(told.ok, 0);
	role.settings.ipv6_drop = !role.settings.ipv6_drop;
	warden_ops.policy(&role, NULL);
	assert_true(hear());
	assert_int_equal(told.ok, 1);
}

static void
stop_ends_it_and_nothing_else_does(void **state)
{
	(void)state;
	needs_a_warden();
	warden_ops.order(&role, IPC_DRAIN);
	event_base_loop(role.base, EVLOOP_NONBLOCK);
	assert_false(event_base_got_exit(role.base) ||
	    event_base_got_break(role.base));
	warden_ops.order(&role, IPC_STOP);
	event_base_loop(role.base, EVLOOP_NONBLOCK);
	assert_true(event_base_got_exit(role.base) ||
	    event_base_got_break(role.base));
	assert_false(role.failed);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_at_once_what_stands),
		cmocka_unit_test(a_change_is_told_soon),
		cmocka_unit_test(its_own_comparison_wakes_it_not),
		cmocka_unit_test(a_new_policy_is_judged_by_its_settings),
		cmocka_unit_test(stop_ends_it_and_nothing_else_does),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
