/* SPDX-License-Identifier: Apache-2.0 */
/* Each role with all that it gives up: privileges, Landlock, the filter. */
#include "tests/sidecar/attempts.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "sidecar/confine.h"

#define UID_ROLE 1337u
#define NO_DIR (-1)

static const int roles[] = { ROLE_COMPILE, ROLE_RESOLVER, ROLE_ENGINE,
	ROLE_RECORDER, ROLE_ADMIN, ROLE_WARDEN };
#define ROLES (sizeof(roles) / sizeof(roles[0]))

/* As sidecar/role.c: these are given a directory. */
static int
dir_of(int role)
{
	return role == ROLE_RECORDER || role == ROLE_WARDEN ||
	    role == ROLE_COMPILE ? attempts_dir_fd : NO_DIR;
}

static int
confined(int role)
{
	if (role == ROLE_PARENT)
		return confine_parent(false);
	if (role == ROLE_COMPILE)
		return confine_compile(attempts_dir_fd);
	if (confine_privileges((enum role_kind)role, UID_ROLE) != 0)
		return -1;
	return confine_lock((enum role_kind)role, dir_of(role));
}

static void
only(int which, unsigned set, int theirs, int others)
{
	for (size_t i = 0; i < ROLES; i++)
		attempts_expect(which, confined, roles[i],
		    role_word((enum role_kind)roles[i]),
		    set >> roles[i] & 1 ? theirs : others);
}

/* Whom the filter lets open files, to read them only. */
#define READS (1u << ROLE_COMPILE | 1u << ROLE_WARDEN)
#define NET (1u << ROLE_ENGINE | 1u << ROLE_RESOLVER)

/* ---- what each still does, and what not ---- */

static void
every_role_lives_and_does_its_work(void **state)
{
	(void)state;
	only(LIFE, 0, 0, WORKS);
	only(TCP, NET, WORKS, EPERM);
	only(NFTABLES, 1u << ROLE_WARDEN, WORKS, EPERM);
	only(PIPE, 1u << ROLE_ENGINE, WORKS, EPERM);
	only(MEMFD, 1u << ROLE_COMPILE, WORKS, EPERM);
}

static void
no_role_reaches_another_process_or_gains_anything(void **state)
{
	static const int dead[] = { EXEC, TRACE, MEMORY, PIDFD, NAMESPACE,
	    CHROOT };
	static const int fails[] = { SIGNAL, OWNER, FORK, CODE, CODE_OF_DATA,
	    UID, UNIX, RAW, PACKET };

	(void)state;
	for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
		only(dead[i], 0, 0, KILLED);
	for (size_t i = 0; i < sizeof(fails) / sizeof(fails[0]); i++)
		only(fails[i], 0, 0, EPERM);
}

static void
a_file_is_opened_beneath_its_directory_only(void **state)
{
	(void)state;
	assert_true(confine_landlock_abi() > 0);
	only(OPEN_OUTSIDE, 0, 0, EACCES);
	only(CREATE_OUTSIDE, READS, EPERM, EACCES);
	only(OPEN_WITHIN, 1u << ROLE_RECORDER | 1u << ROLE_COMPILE |
	    1u << ROLE_WARDEN, WORKS, EACCES);
	for (size_t i = 0; i < ROLES; i++)
		attempts_expect(CREATE_WITHIN, confined, roles[i],
		    role_word((enum role_kind)roles[i]),
		    roles[i] == ROLE_RECORDER ? WORKS :
		    READS >> roles[i] & 1 ? EPERM : EACCES);
}

/* ---- privileges ---- */

static uint64_t
capabilities(bool effective)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d) != 0)
		return UINT64_MAX;
	return effective ? d[0].effective | (uint64_t)d[1].effective << 32 :
	    d[0].permitted | (uint64_t)d[1].permitted << 32;
}

static uint64_t
set_of(int ask, unsigned long arg)
{
	uint64_t set = 0;

	for (unsigned long c = 0; c <= CAP_LAST_CAP; c++)
		if ((ask == PR_CAP_AMBIENT ?
		    prctl(ask, arg, c, 0, 0) : prctl(ask, c, 0, 0, 0)) == 1)
			set |= 1ull << c;
	return set;
}

static bool
has(uint64_t want)
{
	return capabilities(true) == want && capabilities(false) == want &&
	    set_of(PR_CAPBSET_READ, 0) == want &&
	    set_of(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET) == want &&
	    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
	    prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0;
}

static bool
limited(__rlimit_resource_t what, rlim_t to)
{
	struct rlimit l;

	return getrlimit(what, &l) == 0 && l.rlim_cur == to &&
	    l.rlim_max == to;
}

static bool
is_user(uid_t uid)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	return getresuid(&r, &e, &s) == 0 && r == uid && e == uid &&
	    s == uid && getresgid(&rg, &eg, &sg) == 0 && rg == uid &&
	    eg == uid && sg == uid && getgroups(0, NULL) == 0;
}

/* In a child: exits with the number of the first thing that is wrong. */
static void
in_child(int (*check)(int arg), int arg, const char *who)
{
	int status = 0;
	pid_t p = fork();

	assert_true(p >= 0);
	if (p == 0)
		_exit(check(arg));
	assert_int_equal(waitpid(p, &status, 0), p);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("%s: %x", who, (unsigned)status);
}

static int
role_gives_up(int role)
{
	gid_t more[] = { 4, 27 };

	if (setgroups(2, more) != 0)
		return 1;
	if (confine_privileges((enum role_kind)role, UID_ROLE) != 0)
		return 2;
	if (!has(role == ROLE_WARDEN ? 1ull << CAP_NET_ADMIN : 0))
		return 3;
	if (!is_user(UID_ROLE))
		return 4;
	if (!limited(RLIMIT_CORE, 0) || !limited(RLIMIT_NPROC, 0))
		return 5;
	return role == ROLE_COMPILE && !limited(RLIMIT_CPU, 30) ? 6 : 0;
}

static void
a_role_is_another_user_without_capabilities(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROLES; i++)
		in_child(role_gives_up, roles[i],
		    role_word((enum role_kind)roles[i]));
}

/* A uid to keep, and a number of files to keep. */
static int
keeps(int arg)
{
	struct rlimit before, after;

	(void)arg;
	if (getrlimit(RLIMIT_NOFILE, &before) != 0 ||
	    confine_privileges(ROLE_ENGINE, SETTINGS_UID_KEEP) != 0)
		return 1;
	if (getrlimit(RLIMIT_NOFILE, &after) != 0 ||
	    before.rlim_cur != after.rlim_cur ||
	    before.rlim_max != after.rlim_max)
		return 2;
	return geteuid() == 0 && has(0) ? 0 : 3;
}

/* Not root, without SETUID: it stays who it is, and is confined. */
static int
without_root(int arg)
{
	(void)arg;
	if (setresgid(1338, 1338, 1338) != 0 || setgroups(0, NULL) != 0 ||
	    setresuid(1338, 1338, 1338) != 0 || confine_can_setuid())
		return 1;
	if (confine_privileges(ROLE_ENGINE, UID_ROLE) != 0 ||
	    confine_lock(ROLE_ENGINE, NO_DIR) != 0)
		return 2;
	return open("/etc/passwd", O_RDONLY) < 0 &&
	    socket(AF_UNIX, SOCK_STREAM, 0) < 0 &&
	    socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : 3;
}

static void
what_is_kept_and_what_cannot_be_had(void **state)
{
	(void)state;
	assert_true(confine_can_setuid());
	in_child(keeps, 0, "keeps");
	in_child(without_root, 0, "without root");
}

/* ---- the parent ---- */

static int
parent_gives_up(int watched)
{
	uint64_t want = 1ull << CAP_SETUID | 1ull << CAP_SETGID |
	    1ull << CAP_KILL | (watched ? 1ull << CAP_NET_ADMIN : 0);

	if (confine_parent(watched) != 0)
		return 1;
	return has(want) && confine_can_setuid() ? 0 : 2;
}

static void
the_parent_keeps_what_starts_and_ends_roles(void **state)
{
	static const int works[] = { LIFE, SIGNAL, FORK, EXEC, UID, TCP };
	static const int dead[] = { TRACE, MEMORY, NAMESPACE, CHROOT };

	(void)state;
	in_child(parent_gives_up, false, "parent");
	in_child(parent_gives_up, true, "parent with a warden");
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++)
		attempts_expect(works[i], confined, ROLE_PARENT, "parent",
		    WORKS);
	for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
		attempts_expect(dead[i], confined, ROLE_PARENT, "parent",
		    KILLED);
	attempts_expect(RAW, confined, ROLE_PARENT, "parent", EPERM);
	attempts_expect(PACKET, confined, ROLE_PARENT, "parent", EPERM);
}

/* ---- a step that cannot be taken is an error ---- */

static int
locked_to(int fd)
{
	if (confine_privileges(ROLE_RECORDER, UID_ROLE) != 0)
		return 1;
	return confine_lock(ROLE_RECORDER, fd) < 0 ? 0 : 2;
}

static int
lock_without_privileges_given_up(int arg)
{
	(void)arg;
	if (setresuid(UID_ROLE, UID_ROLE, UID_ROLE) != 0)
		return 1;
	return confine_lock(ROLE_ENGINE, NO_DIR) < 0 ? 0 : 2;
}

static int
lock_of_no_role(int arg)
{
	(void)arg;
	return confine_privileges(ROLE_ENGINE, UID_ROLE) == 0 &&
	    confine_lock(ROLE_COUNT, NO_DIR) < 0 ? 0 : 1;
}

static void
who_cannot_be_confined_is_told(void **state)
{
	(void)state;
	in_child(locked_to, 9999, "a directory that is not open");
	in_child(locked_to, attempts_sock, "a directory that is a socket");
	in_child(lock_without_privileges_given_up, 0, "no_new_privs");
	in_child(lock_of_no_role, 0, "no role");
}

static int
up(void **state)
{
	(void)state;
	return attempts_up(UID_ROLE);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(attempts_all_work),
		cmocka_unit_test(every_role_lives_and_does_its_work),
		cmocka_unit_test(
		    no_role_reaches_another_process_or_gains_anything),
		cmocka_unit_test(a_file_is_opened_beneath_its_directory_only),
		cmocka_unit_test(a_role_is_another_user_without_capabilities),
		cmocka_unit_test(what_is_kept_and_what_cannot_be_had),
		cmocka_unit_test(the_parent_keeps_what_starts_and_ends_roles),
		cmocka_unit_test(who_cannot_be_confined_is_told),
	};

	return cmocka_run_group_tests(tests, up, attempts_down);
}
