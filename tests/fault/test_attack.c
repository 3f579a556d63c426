/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks from a taken engine on the other roles.  Each runs twice: first
 * unconfined, where it must work (otherwise the second run proves nothing),
 * then confined, where it must not.
 */
#include "sidecar/confine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKED 42
#define FAILED 43
#define UID_ENGINE 1337u
#define UID_OTHER 1338u

static char secret[16] = "secret";
static char unix_path[64];
static int unix_fd = -1;

struct attack {
	const char *name;
	bool (*run)(pid_t victim);
};

static bool
open_file(pid_t victim)
{
	(void)victim;
	return open("/etc/passwd", O_RDONLY) >= 0;
}

static bool
create_file(pid_t victim)
{
	(void)victim;
	return open("/tmp", O_TMPFILE | O_WRONLY, 0600) >= 0;
}

static bool
trace(pid_t victim)
{
	return ptrace(PTRACE_SEIZE, victim, NULL, NULL) == 0;
}

static bool
send_signal(pid_t victim)
{
	return kill(victim, SIGCONT) == 0;
}

/* fcntl(2) has the kernel send any signal when the descriptor is ready. */
static bool
send_by_owner(pid_t victim)
{
	int pair[2];

	return pipe2(pair, O_CLOEXEC) == 0 &&
	    fcntl(pair[0], F_SETOWN, victim) == 0 &&
	    fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0;
}

static bool
read_memory(pid_t victim)
{
	char got[sizeof(secret)];
	struct iovec to = { got, sizeof(got) };
	struct iovec from = { secret, sizeof(secret) };

	return process_vm_readv(victim, &to, 1, &from, 1, 0) ==
	    (ssize_t)sizeof(got);
}

static bool
open_memory(pid_t victim)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)victim);
	return open(path, O_RDONLY) >= 0;
}

static bool
connect_path(pid_t victim)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)victim;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", unix_path);
	return fd >= 0 && connect(fd, (struct sockaddr *)&sa,
	    sizeof(sa)) == 0;
}

static bool
execute(pid_t victim)
{
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" },
	    (char[]){ "exit 42" }, NULL };
	char *envp[] = { NULL };

	(void)victim;
	execve("/bin/sh", argv, envp);
	return false;
}

static bool
open_pid(pid_t victim)
{
	return syscall(SYS_pidfd_open, victim, 0) >= 0;
}

static bool
map_code(pid_t victim)
{
	(void)victim;
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static bool
netlink(pid_t victim)
{
	(void)victim;
	return socket(AF_NETLINK, SOCK_RAW, 0) >= 0;
}

static bool
make_process(pid_t victim)
{
	pid_t p = fork();

	(void)victim;
	if (p == 0)
		_exit(0);
	return p > 0;
}

static const struct attack attacks[] = {
	{ "open a file", open_file },
	{ "create a file", create_file },
	{ "ptrace another role", trace },
	{ "signal another role", send_signal },
	{ "signal another role as an owner", send_by_owner },
	{ "read another role's memory", read_memory },
	{ "open another role's memory", open_memory },
	{ "connect to a unix path", connect_path },
	{ "execute a program", execute },
	{ "open a pidfd", open_pid },
	{ "map code", map_code },
	{ "open netlink", netlink },
	{ "make a process", make_process },
};
#define ATTACKS (sizeof(attacks) / sizeof(attacks[0]))

/* A role that sits there: confined or as plain as its attacker. */
static pid_t
start_victim(uid_t uid, bool confined)
{
	int ready[2];
	char c;
	pid_t p;

	assert_int_equal(pipe(ready), 0);
	p = fork();
	assert_true(p >= 0);
	if (p == 0) {
		if (confined) {
			if (confine_privileges(ROLE_RESOLVER, uid) != 0)
				_exit(1);
		} else if (setresuid(uid, uid, uid) != 0) {
			_exit(1);
		} else {
			prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		}
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return p;
}

static int
run_attack(const struct attack *a, pid_t victim, bool confined, uid_t uid)
{
	int status = 0;
	pid_t p = fork();

	assert_true(p >= 0);
	if (p == 0) {
		if (confined) {
			if (confine_privileges(ROLE_ENGINE, uid) != 0 ||
			    confine_lock(ROLE_ENGINE, -1) != 0)
				_exit(1);
		} else if (setresuid(uid, uid, uid) != 0) {
			_exit(1);
		}
		_exit(a->run(victim) ? WORKED : FAILED);
	}
	assert_int_equal(waitpid(p, &status, 0), p);
	return status;
}

static void
end_victim(pid_t victim)
{
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
}

static void
attack_all(uid_t victim_uid)
{
	for (size_t i = 0; i < ATTACKS; i++) {
		pid_t plain = start_victim(UID_ENGINE, false);
		pid_t role = start_victim(victim_uid, true);
		int before, after;

		before = run_attack(&attacks[i], plain, false, UID_ENGINE);
		after = run_attack(&attacks[i], role, true, UID_ENGINE);
		end_victim(plain);
		end_victim(role);
		if (!WIFEXITED(before) || WEXITSTATUS(before) != WORKED)
			fail_msg("control: %s does not work unconfined",
			    attacks[i].name);
		if (WIFEXITED(after) ? WEXITSTATUS(after) != FAILED :
		    WTERMSIG(after) != SIGSYS)
			fail_msg("an engine can %s: status %x",
			    attacks[i].name, (unsigned)after);
	}
}

static void
an_engine_cannot_attack_roles_of_its_own_uid(void **state)
{
	(void)state;
	attack_all(UID_ENGINE);
}

static void
an_engine_cannot_attack_roles_of_other_uids(void **state)
{
	(void)state;
	attack_all(UID_OTHER);
}

static void
an_engine_still_makes_internet_sockets(void **state)
{
	int status;
	pid_t p = fork();

	(void)state;
	if (p == 0) {
		if (confine_privileges(ROLE_ENGINE, UID_ENGINE) != 0 ||
		    confine_lock(ROLE_ENGINE, -1) != 0)
			_exit(1);
		_exit(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK |
		    SOCK_CLOEXEC, 0) >= 0 &&
		    socket(AF_INET6, SOCK_DGRAM, 0) >= 0 &&
		    socket(AF_INET, SOCK_RAW, IPPROTO_TCP) < 0 &&
		    socket(AF_INET, SOCK_STREAM, 262) < 0 ? WORKED : FAILED);
	}
	assert_int_equal(waitpid(p, &status, 0), p);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), WORKED);
}

static void
a_recorder_writes_beneath_its_directory_only(void **state)
{
	char dir[] = "/tmp/penstock-test-XXXXXX", inside[64];
	int status, fd;
	pid_t p;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chown(dir, UID_OTHER, UID_OTHER), 0);
	snprintf(inside, sizeof(inside), "%s/f", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	p = fork();
	if (p == 0) {
		if (confine_privileges(ROLE_RECORDER, UID_OTHER) != 0 ||
		    confine_lock(ROLE_RECORDER, fd) != 0)
			_exit(1);
		_exit(openat(fd, "f", O_CREAT | O_WRONLY, 0600) >= 0 &&
		    openat(fd, "../x", O_CREAT | O_WRONLY, 0600) < 0 &&
		    open("/etc/passwd", O_RDONLY) < 0 &&
		    socket(AF_INET, SOCK_STREAM, 0) < 0 ? WORKED : FAILED);
	}
	assert_int_equal(waitpid(p, &status, 0), p);
	close(fd);
	unlink(inside);
	rmdir(dir);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), WORKED);
}

static int
setup(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	(void)state;
	if (geteuid() != 0) {
		fprintf(stderr, "the attacks need root to set them up\n");
		return -1;
	}
	snprintf(unix_path, sizeof(unix_path), "/tmp/penstock-attack.%d",
	    (int)getpid());
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", unix_path);
	unix_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(unix_fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(unix_fd, 64) != 0)
		return -1;
	return chmod(unix_path, 0777);
}

static int
teardown(void **state)
{
	(void)state;
	close(unix_fd);
	return unlink(unix_path);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_engine_cannot_attack_roles_of_its_own_uid),
		cmocka_unit_test(an_engine_cannot_attack_roles_of_other_uids),
		cmocka_unit_test(an_engine_still_makes_internet_sockets),
		cmocka_unit_test(a_recorder_writes_beneath_its_directory_only),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
