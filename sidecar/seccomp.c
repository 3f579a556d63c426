/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* Every role: memory, clocks, signals, waiting, the ends of descriptors. */
static const int common_calls[] = {
	SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(madvise), SCMP_SYS(mremap),
	SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(write), SCMP_SYS(writev),
	SCMP_SYS(close), SCMP_SYS(fstat), SCMP_SYS(lseek),
	SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait), SCMP_SYS(poll), SCMP_SYS(ppoll),
	SCMP_SYS(eventfd2), SCMP_SYS(timerfd_create),
	SCMP_SYS(timerfd_settime), SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
	SCMP_SYS(gettimeofday), SCMP_SYS(getrandom), SCMP_SYS(getpid),
	SCMP_SYS(gettid), SCMP_SYS(futex), SCMP_SYS(sched_yield),
	SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),
	SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
	SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(dup),
	SCMP_SYS(membarrier), SCMP_SYS(rseq), SCMP_SYS(getrusage),
	SCMP_SYS(sysinfo), SCMP_SYS(uname),
};

/* Roles that talk to the network. */
static const int net_calls[] = {
	SCMP_SYS(accept4), SCMP_SYS(connect), SCMP_SYS(bind),
	SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt), SCMP_SYS(shutdown), SCMP_SYS(recvfrom),
	SCMP_SYS(sendto), SCMP_SYS(recvmmsg), SCMP_SYS(sendmmsg),
};

/* Moving bytes without copying them. */
static const int engine_calls[] = {
	SCMP_SYS(pipe2), SCMP_SYS(splice), SCMP_SYS(tee),
};

/* Serves on a listener that the parent made; no socket of its own. */
static const int admin_calls[] = {
	SCMP_SYS(accept4), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
	SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(shutdown),
	SCMP_SYS(recvfrom), SCMP_SYS(sendto),
};

/* Files beneath one directory; Landlock says which.  Not openat2: its flags
 * cannot be seen from here. */
static const int file_calls[] = {
	SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(pread64),
	SCMP_SYS(getdents64), SCMP_SYS(fstatfs),
};

static const int recorder_calls[] = {
	SCMP_SYS(openat), SCMP_SYS(fsync), SCMP_SYS(fdatasync),
	SCMP_SYS(ftruncate), SCMP_SYS(renameat), SCMP_SYS(renameat2),
	SCMP_SYS(unlinkat), SCMP_SYS(pwrite64), SCMP_SYS(fallocate),
	SCMP_SYS(flock), SCMP_SYS(linkat),
};

/* compile makes its results in memory; libidn2 and libpsl read locale data
 * and lists before this is loaded or beneath the loaded libraries. */
static const int compile_calls[] = {
	SCMP_SYS(memfd_create), SCMP_SYS(ftruncate),
	SCMP_SYS(access), SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
	SCMP_SYS(getcwd), SCMP_SYS(getuid), SCMP_SYS(geteuid),
	SCMP_SYS(getgid), SCMP_SYS(getegid),
};

/* Asks the kernel for its rules, and looks into /proc/sys/net (Landlock). */
static const int warden_calls[] = {
	SCMP_SYS(bind), SCMP_SYS(getsockname), SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt), SCMP_SYS(sendto), SCMP_SYS(recvfrom),
	SCMP_SYS(getuid), SCMP_SYS(geteuid),
	SCMP_SYS(select), SCMP_SYS(pselect6),
};

/* Nobody calls these by mistake. */
static const int deadly_calls[] = {
	SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
	SCMP_SYS(process_madvise), SCMP_SYS(pidfd_open),
	SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(kcmp), SCMP_SYS(mount), SCMP_SYS(umount2),
	SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(setns),
	SCMP_SYS(unshare), SCMP_SYS(bpf), SCMP_SYS(perf_event_open),
	SCMP_SYS(init_module), SCMP_SYS(finit_module),
	SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load), SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup), SCMP_SYS(add_key), SCMP_SYS(keyctl),
	SCMP_SYS(request_key), SCMP_SYS(open_by_handle_at),
	SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen),
	SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(iopl),
	SCMP_SYS(ioperm), SCMP_SYS(vmsplice),
};

/* The parent keeps exec, since it restarts roles; these it never needs. */
static const int parent_deadly_calls[] = {
	SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev), SCMP_SYS(mount), SCMP_SYS(umount2),
	SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(setns),
	SCMP_SYS(unshare), SCMP_SYS(bpf), SCMP_SYS(perf_event_open),
	SCMP_SYS(init_module), SCMP_SYS(finit_module),
	SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load), SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup), SCMP_SYS(open_by_handle_at),
	SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
};

#define ADD(ctx, list) \
	add(ctx, SCMP_ACT_ALLOW, list, sizeof(list) / sizeof((list)[0]))

static int
add(scmp_filter_ctx ctx, uint32_t action, const int *calls, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = seccomp_rule_add(ctx, action, calls[i], 0);
	return rc;
}

/* No memory becomes executable once a role serves. */
static int
add_memory(scmp_filter_ctx ctx)
{
	const struct scmp_arg_cmp no_exec =
	    SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
	    no_exec);

	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect),
		    1, no_exec);
	return rc;
}

/* Not F_SETOWN and F_SETSIG: they send any signal to any process of the same
 * uid, as kill(2) would. */
static int
add_fcntl(scmp_filter_ctx ctx)
{
	static const int asks[] = {
		F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL,
		F_GETLK, F_SETLK, F_SETLKW, F_SETPIPE_SZ, F_GETPIPE_SZ,
		F_ADD_SEALS, F_GET_SEALS,
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]) && rc == 0;
	    i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl),
		    1, SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff,
		    (scmp_datum_t)asks[i]));
	return rc;
}

/* fstat(2), which some C libraries make of newfstatat and an empty path. */
static int
add_fstat(scmp_filter_ctx ctx)
{
	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
	    SCMP_A3(SCMP_CMP_EQ, AT_EMPTY_PATH, 0));
}

/* socket() of the Internet families only: TCP and UDP; no raw ones, and no
 * MPTCP, which rules and Landlock see as another protocol. */
static int
add_sockets(scmp_filter_ctx ctx)
{
	static const struct { int type, protocol; } kinds[] = {
		{ SOCK_STREAM, 0 }, { SOCK_STREAM, IPPROTO_TCP },
		{ SOCK_DGRAM, 0 }, { SOCK_DGRAM, IPPROTO_UDP },
	};
	static const int families[] = { AF_INET, AF_INET6 };
	int rc = 0;

	for (size_t f = 0; f < 2; f++)
		for (size_t k = 0; k < 4 && rc == 0; k++)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW,
			    SCMP_SYS(socket), 3,
			    SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[f], 0),
			    SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf,
			    (scmp_datum_t)kinds[k].type),
			    SCMP_A2(SCMP_CMP_EQ,
			    (scmp_datum_t)kinds[k].protocol, 0));
	return rc;
}

/* Netlink: nftables and routes. */
static int
add_netlink(scmp_filter_ctx ctx)
{
	static const int protocols[] = { NETLINK_ROUTE, NETLINK_NETFILTER };
	int rc = 0;

	for (size_t i = 0; i < 2 && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket),
		    2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0),
		    SCMP_A2(SCMP_CMP_EQ, (scmp_datum_t)protocols[i], 0));
	return rc;
}

/* What is waiting in a socket, and the name of an interface by its number. */
static int
add_ioctls(scmp_filter_ctx ctx)
{
	static const unsigned long asks[] =
	    { FIONREAD, FIONBIO, SIOCOUTQ, SIOCGIFNAME };
	int rc = 0;

	for (size_t i = 0; i < 4 && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl),
		    1, SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, asks[i]));
	return rc;
}

/* open* fails as for a file one may not read: c-ares and the C library go
 * on without it. */
static int
add_no_open(scmp_filter_ctx ctx)
{
	static const int calls[] =
	    { SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2) };

	return add(ctx, SCMP_ACT_ERRNO(EACCES), calls, 3);
}

/* Files are read, also where the kernel has no Landlock and the uid is the
 * owner of all there is. */
static int
add_open_to_read(scmp_filter_ctx ctx)
{
	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
	    SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC,
	    O_RDONLY));
}

#define CALLS(list) { list, sizeof(list) / sizeof((list)[0]) }

/* What a role has beside what every role has; a role that is not here gets no
 * filter, and does not start. */
static const struct has {
	struct { const int *calls; size_t n; } calls[2];
	int (*add[3])(scmp_filter_ctx ctx);
} has[ROLE_COUNT] = {
	[ROLE_RESOLVER] = { { CALLS(net_calls) },
	    { add_sockets, add_ioctls, add_no_open } },
	[ROLE_ENGINE] = { { CALLS(net_calls), CALLS(engine_calls) },
	    { add_sockets, add_ioctls, add_no_open } },
	[ROLE_ADMIN] = { { CALLS(admin_calls) },
	    { add_ioctls, add_no_open } },
	[ROLE_RECORDER] = { { CALLS(file_calls), CALLS(recorder_calls) },
	    { NULL } },
	[ROLE_WARDEN] = { { CALLS(warden_calls) },
	    { add_netlink, add_open_to_read } },
	[ROLE_COMPILE] = { { CALLS(file_calls), CALLS(compile_calls) },
	    { add_open_to_read } },
};

static int
add_role(scmp_filter_ctx ctx, enum role_kind k)
{
	const struct has *h = (unsigned)k < ROLE_COUNT ? &has[k] : NULL;
	int rc = h != NULL && h->calls[0].n > 0 ? 0 : -EINVAL;

	for (size_t i = 0; i < 2 && rc == 0; i++)
		rc = add(ctx, SCMP_ACT_ALLOW, h->calls[i].calls,
		    h->calls[i].n);
	for (size_t i = 0; rc == 0 && i < 3 && h->add[i] != NULL; i++)
		rc = h->add[i](ctx);
	return rc;
}

static int
apply_parent(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int rc;

	if (ctx == NULL)
		return -ENOMEM;
	rc = add(ctx, SCMP_ACT_KILL_PROCESS, parent_deadly_calls,
	    sizeof(parent_deadly_calls) / sizeof(parent_deadly_calls[0]));
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc;
}

int
seccomp_apply(enum role_kind k)
{
	scmp_filter_ctx ctx;
	int rc;

	if (k == ROLE_PARENT)
		return apply_parent();
	ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (ctx == NULL)
		return -ENOMEM;
	rc = ADD(ctx, common_calls);
	if (rc == 0)
		rc = add_memory(ctx);
	if (rc == 0)
		rc = add_fstat(ctx);
	if (rc == 0)
		rc = add_fcntl(ctx);
	if (rc == 0)
		rc = add_role(ctx, k);
	if (rc == 0)
		rc = add(ctx, SCMP_ACT_KILL_PROCESS, deadly_calls,
		    sizeof(deadly_calls) / sizeof(deadly_calls[0]));
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc;
}
