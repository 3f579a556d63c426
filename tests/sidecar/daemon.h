/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SIDECAR_DAEMON_H
#define TESTS_SIDECAR_DAEMON_H

/*
 * The daemon as it is started, in a network namespace of its own, with its
 * files in a directory of the test program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 8000
#define CONFIG "version: 1\nmode: shared\nengines: 2\n" \
	"cells: [{id: a, policy: [policy.yaml]}]\n"
#define POLICY "version: 1\nnetwork:\n  resolvers: [198.18.0.99]\n" \
	"  rule:\n    - {verdict: allow, hostname: a.example.com}\n"

static char program[4096];
static char dir[] = "/tmp/penstock-test-XXXXXX";
static pid_t daemon_pid;
static rlim_t start_descriptors __attribute__((unused));	/* 0: ours */

static void
path_of(char out[static 128], const char *name)
{
	snprintf(out, 128, "%s/%s", dir, name);
}

static void
put(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	path_of(path, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static char *
get(const char *path)
{
	static char text[1 << 20];
	FILE *f = fopen(path, "r");
	size_t n = 0;

	if (f != NULL) {
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[n] = '\0';
	return text;
}

static bool
logged(const char *words)
{
	char path[128];

	path_of(path, "err");
	return strstr(get(path), words) != NULL;
}

static void
pause_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void
expect_log(const char *words)
{
	char path[128];

	for (int i = 0; i < WAIT_MS / 20; i++) {
		if (logged(words))
			return;
		pause_ms(20);
	}
	path_of(path, "err");
	fail_msg("no \"%s\" in: %s", words, get(path));
}

/* A network of our own, with its loopback up. */
static void
own_network(void)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	if (unshare(CLONE_NEWNET) != 0)
		_exit(99);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) != 0)
		_exit(99);
	close(fd);
}

static void
redirect(const char *name, int to)
{
	char path[128];
	int fd;

	path_of(path, name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd < 0 || dup2(fd, to) < 0)
		_exit(99);
	close(fd);
}

static pid_t
start(const char *const *extra, uid_t uid)
{
	char config[128];
	const char *argv[8] = { "penstock", "serve", "-c", config };
	int fd;
	pid_t p;

	path_of(config, "penstock.yaml");
	for (int i = 0; extra != NULL && extra[i] != NULL; i++)
		argv[4 + i] = extra[i];
	p = fork();
	assert_true(p >= 0);
	if (p != 0)
		return p;
	if (start_descriptors != 0 && setrlimit(RLIMIT_NOFILE,
	    &(struct rlimit){ start_descriptors, start_descriptors }) != 0)
		_exit(99);
	own_network();
	redirect("out", STDOUT_FILENO);
	redirect("err", STDERR_FILENO);
	/* its directory may be closed to that uid */
	fd = open(program, O_RDONLY | O_CLOEXEC);
	if (uid != 0 && (setresgid(uid, uid, uid) != 0 ||
	    setresuid(uid, uid, uid) != 0))
		_exit(99);
	fexecve(fd, (char *const *)(uintptr_t)argv, environ);
	_exit(99);
}

static const char *const external[] = { "--rules", "external", NULL };

static void
start_ready(uid_t uid)
{
	char path[128];

	/* not what one before it said */
	path_of(path, "err");
	unlink(path);
	daemon_pid = start(external, uid);
	expect_log("started version=");
}

static int
end_of(pid_t p)
{
	int status = 0;

	for (int i = 0; i < WAIT_MS / 20; i++) {
		if (waitpid(p, &status, WNOHANG) == p)
			return WIFEXITED(status) ? WEXITSTATUS(status) :
			    1000 + WTERMSIG(status);
		pause_ms(20);
	}
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
	return -1;
}

static int
stop(void)
{
	pid_t p = daemon_pid;

	daemon_pid = 0;
	kill(p, SIGTERM);
	return end_of(p);
}

/* The n-th process of a role below the daemon; 0 when there is none. */
__attribute__((unused)) static pid_t
role_pid(const char *role, int n)
{
	char path[64], want[64], *line;
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	assert_non_null(d);
	while (found == 0 && (e = readdir(d)) != NULL) {
		int pid = atoi(e->d_name), parent = 0;

		if (pid <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/status", pid);
		line = strstr(get(path), "PPid:");
		if (line == NULL || sscanf(line, "PPid: %d", &parent) != 1 ||
		    parent != daemon_pid)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		line = get(path);
		snprintf(want, sizeof(want), "%s", role);
		if (strcmp(line, "penstock") == 0 &&
		    strcmp(line + 9, "role") == 0 &&
		    strcmp(line + 14, want) == 0 && n-- == 0)
			found = pid;
	}
	closedir(d);
	return found;
}

/* ---- around the tests ---- */

static int
find_program(void **state)
{
	const char *given = getenv("PENSTOCK");
	ssize_t n = readlink("/proc/self/exe", program, 3000);

	(void)state;
	if (geteuid() != 0) {
		fprintf(stderr, "the daemon's tests need root\n");
		return -1;
	}
	if (given != NULL)
		snprintf(program, sizeof(program), "%s", given);
	else if (n > 0) {
		/* build/CONFIG/tests/sidecar/test_NAME */
		program[n] = '\0';
		for (int i = 0; i < 3; i++)
			*strrchr(program, '/') = '\0';
		strcat(program, "/penstock");
	}
	if (mkdtemp(dir) == NULL || chmod(dir, 0755) != 0)
		return -1;
	return access(program, X_OK);
}

static int
before(void **state)
{
	char path[128];

	(void)state;
	put("penstock.yaml", CONFIG);
	put("policy.yaml", POLICY);
	path_of(path, "out");
	unlink(path);
	path_of(path, "err");
	unlink(path);
	daemon_pid = 0;
	return 0;
}

static int
after(void **state)
{
	(void)state;
	if (daemon_pid > 0) {
		kill(daemon_pid, SIGKILL);
		waitpid(daemon_pid, NULL, 0);
	}
	return 0;
}

static int
clean(void **state)
{
	static const char *const names[] =
	    { "penstock.yaml", "policy.yaml", "out", "err", "notify",
	      "health", "health-err", "admin.sock" };
	char path[128];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		path_of(path, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

#define EACH(name) cmocka_unit_test_setup_teardown(name, before, after)

#endif
