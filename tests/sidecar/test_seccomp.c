/* SPDX-License-Identifier: Apache-2.0 */
/* The filter alone: the children stay root with all capabilities, so that
 * what fails here fails by it. */
#include "tests/sidecar/attempts.h"

#include <sys/prctl.h>

#include "sidecar/seccomp.h"

static int
filtered(int role)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return seccomp_apply((enum role_kind)role);
}

static const int roles[] = { ROLE_COMPILE, ROLE_RESOLVER, ROLE_ENGINE,
	ROLE_RECORDER, ROLE_ADMIN, ROLE_WARDEN };
#define ROLES (sizeof(roles) / sizeof(roles[0]))

static void
every(int which, int want)
{
	for (size_t i = 0; i < ROLES; i++)
		attempts_expect(which, filtered, roles[i],
		    role_word((enum role_kind)roles[i]), want);
}

/* The roles of the set: one result; all others: another. */
static void
only(int which, unsigned set, int theirs, int others)
{
	for (size_t i = 0; i < ROLES; i++)
		attempts_expect(which, filtered, roles[i],
		    role_word((enum role_kind)roles[i]),
		    set >> roles[i] & 1 ? theirs : others);
}

#define NET (1u << ROLE_ENGINE | 1u << ROLE_RESOLVER)
#define FILES (1u << ROLE_RECORDER | 1u << ROLE_COMPILE | 1u << ROLE_WARDEN)

static void
every_role_lives_its_usual_life(void **state)
{
	(void)state;
	every(LIFE, WORKS);
}

static void
what_an_attacker_wants_and_no_role_ends_the_process(void **state)
{
	static const int which[] = { EXEC, TRACE, MEMORY, PIDFD, NAMESPACE,
	    CHROOT };

	(void)state;
	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		every(which[i], KILLED);
}

static void
what_no_role_needs_fails(void **state)
{
	static const int which[] = { UNIX, RAW, PACKET, UEVENT, SIGNAL,
	    SIGNAL_SELF, OWNER, FORK, CODE, CODE_OF_DATA, UID };

	(void)state;
	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		every(which[i], EPERM);
}

static void
only_who_talks_to_the_network_makes_sockets(void **state)
{
	(void)state;
	only(TCP, NET, WORKS, EPERM);
	only(WAITING, NET | 1u << ROLE_ADMIN, WORKS, EPERM);
	only(NFTABLES, 1u << ROLE_WARDEN, WORKS, EPERM);
	only(PIPE, 1u << ROLE_ENGINE, WORKS, EPERM);
}

/* Which ones of these, Landlock says (test_confine). */
static void
only_who_works_with_files_opens_one(void **state)
{
	(void)state;
	only(OPEN_OUTSIDE, FILES, WORKS, EACCES);
	only(OPEN_WITHIN, FILES, WORKS, EACCES);
	for (size_t i = 0; i < ROLES; i++)
		attempts_expect(CREATE_WITHIN, filtered, roles[i],
		    role_word((enum role_kind)roles[i]),
		    roles[i] == ROLE_RECORDER ? WORKS :
		    FILES >> roles[i] & 1 ? EPERM : EACCES);
}

static void
only_compile_makes_a_file_in_memory(void **state)
{
	(void)state;
	only(MEMFD, 1u << ROLE_COMPILE, WORKS, EPERM);
}

/* It starts roles again; it never looks into one. */
static void
the_parent_keeps_exec_and_nothing_that_looks_into_processes(void **state)
{
	static const int dead[] = { TRACE, MEMORY, NAMESPACE, CHROOT };
	static const int works[] = { LIFE, TCP, UNIX, OPEN_OUTSIDE, SIGNAL,
	    FORK, UID, EXEC, MEMFD };

	(void)state;
	for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
		attempts_expect(dead[i], filtered, ROLE_PARENT, "parent",
		    KILLED);
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++)
		attempts_expect(works[i], filtered, ROLE_PARENT, "parent",
		    WORKS);
}

static int
ended_with(int role, long (*call)(void))
{
	int status = 0;
	pid_t p = fork();

	assert_true(p >= 0);
	if (p == 0) {
		if (role >= 0 && filtered(role) != 0)
			_exit(NOT_CONFINED);
		_exit(call() >= 0 ? WORKS : 1);
	}
	assert_int_equal(waitpid(p, &status, 0), p);
	return status;
}

#ifdef __x86_64__
static long
by_x32(void)
{
	return syscall(0x40000000 | SYS_getpid);
}

static long
by_i386(void)
{
	long rc = 20;		/* getpid */

	__asm__ volatile ("int $0x80" : "+a" (rc) : : "memory");
	return 0;
}

/* The numbers mean other calls there: the list would not hold. */
static void
another_way_into_the_kernel_ends_the_process(void **state)
{
	(void)state;
	for (int role = ROLE_PARENT; role < ROLE_COUNT; role++) {
		int x32 = ended_with(role, by_x32);
		int i386 = ended_with(role, by_i386);

		if (!WIFSIGNALED(x32) || WTERMSIG(x32) != SIGSYS)
			fail_msg("%s by x32: %x",
			    role_word((enum role_kind)role), (unsigned)x32);
		if (!WIFSIGNALED(i386) || WTERMSIG(i386) != SIGSYS)
			fail_msg("%s by i386: %x",
			    role_word((enum role_kind)role), (unsigned)i386);
	}
	/* without the filter neither of them ends it by SIGSYS */
	assert_true(WIFEXITED(ended_with(-1, by_x32)));
}
#endif

static long
again(void)
{
	return seccomp_apply(ROLE_PARENT) == 0 ? 0 : -1;
}

static void
a_filter_is_not_replaced(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROLES; i++) {
		int status = ended_with(roles[i], again);

		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 1);
	}
}

/* No list: no filter is loaded, and it is an error. */
static void
what_is_no_role_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(seccomp_apply(ROLE_COUNT), -EINVAL);
	assert_int_equal(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), 0);
}

static int
up(void **state)
{
	(void)state;
	return attempts_up(0);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(attempts_all_work),
		cmocka_unit_test(every_role_lives_its_usual_life),
		cmocka_unit_test(
		    what_an_attacker_wants_and_no_role_ends_the_process),
		cmocka_unit_test(what_no_role_needs_fails),
		cmocka_unit_test(only_who_talks_to_the_network_makes_sockets),
		cmocka_unit_test(only_who_works_with_files_opens_one),
		cmocka_unit_test(only_compile_makes_a_file_in_memory),
		cmocka_unit_test(
		    the_parent_keeps_exec_and_nothing_that_looks_into_processes),
#ifdef __x86_64__
		cmocka_unit_test(
		    another_way_into_the_kernel_ends_the_process),
#endif
		cmocka_unit_test(a_filter_is_not_replaced),
		cmocka_unit_test(what_is_no_role_is_an_error),
	};

	return cmocka_run_group_tests(tests, up, attempts_down);
}
