/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SIDECAR_ATTEMPTS_H
#define TESTS_SIDECAR_ATTEMPTS_H

/*
 * What a process may try, and a child that tries it after it was confined.
 * Each attempt works as root without confinement (attempts_all_work), since
 * otherwise its failing later proves nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKS 0
#define KILLED (-1)		/* by SIGSYS */
#define NOT_CONFINED 254	/* confinement itself failed */
#define EXEC_WORKED 253

static char attempts_dir[] = "/tmp/penstock-test-XXXXXX";
static int attempts_dir_fd = -1, attempts_sock = -1;

/* Each: >= 0 when it worked, else -1 with errno. */
static int
usual_life(void)
{
	struct timespec ts;
	uint64_t one = 1;
	int ev = eventfd(0, EFD_NONBLOCK), ep = epoll_create1(0);
	struct epoll_event e = { .events = EPOLLIN };
	void *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return ev < 0 || ep < 0 || p == MAP_FAILED ||
	    write(ev, &one, 8) != 8 || epoll_ctl(ep, EPOLL_CTL_ADD, ev,
	    &e) != 0 || epoll_wait(ep, &e, 1, 0) != 1 ||
	    fcntl(ev, F_GETFL) < 0 || close(ev) != 0 ||
	    munmap(p, 65536) != 0 ||
	    clock_gettime(CLOCK_MONOTONIC, &ts) != 0 ? -1 : 0;
}

static int tcp_socket(void) { return socket(AF_INET6, SOCK_STREAM, 0); }
static int unix_socket(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }

static int
raw_socket(void)
{
	return socket(AF_INET, SOCK_RAW, IPPROTO_TCP);
}

static int
packet_socket(void)
{
	return socket(AF_PACKET, SOCK_RAW, 0);
}

static int
nftables_socket(void)
{
	return socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
}

static int
uevent_socket(void)
{
	return socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
}

static int
bytes_waiting(void)
{
	int n;

	return ioctl(attempts_sock, FIONREAD, &n);
}

static int
pipe_made(void)
{
	int p[2];

	return pipe2(p, 0);
}

static int open_outside(void) { return open("/etc/passwd", O_RDONLY); }

static int
open_within(void)
{
	return openat(attempts_dir_fd, "f", O_RDONLY);
}

static int
create_within(void)
{
	int fd = openat(attempts_dir_fd, "new", O_CREAT | O_WRONLY, 0600);

	return fd < 0 ? -1 : unlinkat(attempts_dir_fd, "new", 0);
}

static int
create_outside(void)
{
	return open("/tmp", O_TMPFILE | O_WRONLY, 0600);
}

static int memory_file(void) { return memfd_create("x", 0); }
static int signal_sent(void) { return kill(getppid(), 0); }
static int signal_itself(void) { return kill(getpid(), 0); }

static int
owner_set(void)
{
	return fcntl(attempts_sock, F_SETOWN, getppid());
}

static int
process_made(void)
{
	pid_t p = fork();

	if (p == 0)
		_exit(0);
	return p < 0 ? -1 : waitpid(p, NULL, 0);
}

static int
code_made(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE |
	    MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}

static int
code_of_data(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE |
	    MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 :
	    mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static int other_uid(void) { return setresuid(1, 1, 1); }

static int
executed(void)
{
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" },
	    (char[]){ "exit 253" }, NULL };
	char *envp[] = { NULL };

	return execve("/bin/sh", argv, envp);
}

static int traced(void) { return (int)ptrace(PTRACE_TRACEME, 0, 0, 0); }

static int
memory_read(void)
{
	char a[8], b[8];
	struct iovec to = { a, 8 }, from = { b, 8 };

	return (int)process_vm_readv(getppid(), &to, 1, &from, 1, 0);
}

static int
process_opened(void)
{
	return (int)syscall(SYS_pidfd_open, getppid(), 0);
}

static int namespaced(void) { return unshare(CLONE_NEWUTS); }
static int rooted(void) { return chroot("/"); }

enum { LIFE, TCP, UNIX, RAW, PACKET, NFTABLES, UEVENT, WAITING, PIPE,
	OPEN_OUTSIDE, OPEN_WITHIN, CREATE_WITHIN, CREATE_OUTSIDE, MEMFD,
	SIGNAL, SIGNAL_SELF, OWNER, FORK, CODE, CODE_OF_DATA, UID, EXEC,
	TRACE, MEMORY, PIDFD, NAMESPACE, CHROOT, ATTEMPTS };

static const struct {
	const char *name;
	int (*run)(void);
} attempts[ATTEMPTS] = {
	[LIFE] = { "live its usual life", usual_life },
	[TCP] = { "make a TCP socket", tcp_socket },
	[UNIX] = { "make a UNIX socket", unix_socket },
	[RAW] = { "make a raw socket", raw_socket },
	[PACKET] = { "make a packet socket", packet_socket },
	[NFTABLES] = { "speak to nftables", nftables_socket },
	[UEVENT] = { "speak another netlink", uevent_socket },
	[WAITING] = { "ask what waits in a socket", bytes_waiting },
	[PIPE] = { "make a pipe", pipe_made },
	[OPEN_OUTSIDE] = { "open a file anywhere", open_outside },
	[OPEN_WITHIN] = { "open a file in its directory", open_within },
	[CREATE_WITHIN] = { "make a file in its directory", create_within },
	[CREATE_OUTSIDE] = { "make a file anywhere", create_outside },
	[MEMFD] = { "make a file in memory", memory_file },
	[SIGNAL] = { "signal its parent", signal_sent },
	[SIGNAL_SELF] = { "signal itself", signal_itself },
	[OWNER] = { "have the kernel signal", owner_set },
	[FORK] = { "make a process", process_made },
	[CODE] = { "map executable memory", code_made },
	[CODE_OF_DATA] = { "make data executable", code_of_data },
	[UID] = { "become another uid", other_uid },
	[EXEC] = { "execute a program", executed },
	[TRACE] = { "be traced", traced },
	[MEMORY] = { "read another's memory", memory_read },
	[PIDFD] = { "open a process", process_opened },
	[NAMESPACE] = { "make a namespace", namespaced },
	[CHROOT] = { "change its root", rooted },
};

/* In a child, after confine(role): WORKS, KILLED or the errno. */
static int
attempts_try(int which, int (*confine)(int role), int role)
{
	int status = 0;
	pid_t p = fork();

	assert_true(p >= 0);
	if (p == 0) {
		if (confine != NULL && confine(role) != 0)
			_exit(NOT_CONFINED);
		errno = 0;
		_exit(attempts[which].run() >= 0 ? WORKS : errno);
	}
	assert_int_equal(waitpid(p, &status, 0), p);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		return KILLED;
	if (!WIFEXITED(status))
		fail_msg("%s: status %x", attempts[which].name,
		    (unsigned)status);
	if (WEXITSTATUS(status) == NOT_CONFINED)
		fail_msg("%s: not confined", attempts[which].name);
	return WEXITSTATUS(status) == EXEC_WORKED ? WORKS :
	    WEXITSTATUS(status);
}

static const char *
attempts_word(int result)
{
	return result == WORKS ? "works" : result == KILLED ? "is killed" :
	    strerror(result);
}

static void
attempts_expect(int which, int (*confine)(int role), int role,
    const char *who, int want)
{
	int got = attempts_try(which, confine, role);

	if (got != want)
		fail_msg("%s, %s: %s; should be: %s", who,
		    attempts[which].name, attempts_word(got),
		    attempts_word(want));
}

static void
attempts_all_work(void **state)
{
	(void)state;
	for (int i = 0; i < ATTEMPTS; i++)
		attempts_expect(i, NULL, 0, "unconfined", WORKS);
}

/* The directory belongs to `owner`, with one file that all may read. */
static int
attempts_up(uid_t owner)
{
	int fd;

	if (geteuid() != 0) {
		fprintf(stderr, "to confine a process needs root\n");
		return -1;
	}
	if (mkdtemp(attempts_dir) == NULL ||
	    chmod(attempts_dir, 0755) != 0 ||
	    chown(attempts_dir, owner, owner) != 0)
		return -1;
	attempts_dir_fd = open(attempts_dir, O_RDONLY | O_DIRECTORY);
	fd = openat(attempts_dir_fd, "f", O_CREAT | O_WRONLY, 0644);
	attempts_sock = socket(AF_INET, SOCK_STREAM, 0);
	return attempts_dir_fd < 0 || fd < 0 || close(fd) != 0 ||
	    attempts_sock < 0;
}

static int
attempts_down(void **state)
{
	(void)state;
	unlinkat(attempts_dir_fd, "f", 0);
	unlinkat(attempts_dir_fd, "new", 0);
	close(attempts_dir_fd);
	close(attempts_sock);
	return rmdir(attempts_dir);
}

#endif
