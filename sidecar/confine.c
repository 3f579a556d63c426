/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sidecar/seccomp.h"

/* What the kernel's header may be too old to name. */
#define FS_REFER (1ull << 13)
#define FS_TRUNCATE (1ull << 14)
#define FS_IOCTL_DEV (1ull << 15)
#define SCOPE_ABSTRACT_UNIX (1ull << 0)
#define SCOPE_SIGNAL (1ull << 1)

struct ruleset {
	uint64_t handled_fs;
	uint64_t handled_net;
	uint64_t scoped;
};

static int drop_bounding(uint64_t keep);
static int drop_capabilities(uint64_t keep);
static int become(uid_t uid);
static int set_limits(enum role_kind k);
static int landlock(enum role_kind k, int dir);

static int
get_capabilities(uint64_t *permitted)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d) != 0)
		return -errno;
	*permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	return 0;
}

bool
confine_can_setuid(void)
{
	const uint64_t need = 1ull << CAP_SETUID | 1ull << CAP_SETGID;
	uint64_t have = 0;

	return get_capabilities(&have) == 0 && (have & need) == need;
}

/* The kernel lists its rules for nobody else. */
static uint64_t
keeps(enum role_kind k)
{
	return k == ROLE_WARDEN ? 1ull << CAP_NET_ADMIN : 0;
}

int
confine_privileges(enum role_kind k, uid_t uid)
{
	int rc;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -errno;
	/* Limits first: raising one may need what is about to go. */
	rc = set_limits(k);
	/* The change of uid takes SETPCAP away: the bounding set before. */
	if (rc == 0)
		rc = drop_bounding(keeps(k));
	if (rc == 0 && keeps(k) != 0 && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
		rc = -errno;
	if (rc == 0 && uid != SETTINGS_UID_KEEP && confine_can_setuid())
		rc = become(uid);
	if (rc == 0)
		rc = drop_capabilities(keeps(k));
	if (rc == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		rc = -errno;
	return rc;
}

int
confine_lock(enum role_kind k, int dir)
{
	int rc = landlock(k, dir);

	return rc == 0 ? seccomp_apply(k) : rc;
}

int
confine_compile(int dir)
{
	int rc = confine_privileges(ROLE_COMPILE, SETTINGS_UID_KEEP);

	return rc == 0 ? confine_lock(ROLE_COMPILE, dir) : rc;
}

int
confine_parent(bool watched)
{
	uint64_t keep = 1ull << CAP_SETUID | 1ull << CAP_SETGID |
	    1ull << CAP_KILL | (watched ? keeps(ROLE_WARDEN) : 0);
	int rc;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -errno;
	rc = drop_capabilities(keep);
	if (rc == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		rc = -errno;
	return rc == 0 ? seccomp_apply(ROLE_PARENT) : rc;
}

/* Needs SETPCAP; without it nothing can be dropped, and no_new_privs keeps
 * an exec from gaining any. */
static int
drop_bounding(uint64_t keep)
{
	uint64_t have = 0;
	int rc = get_capabilities(&have);

	for (int c = 0; rc == 0 && c < 64; c++)
		if ((keep >> c & 1) == 0 &&
		    prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1 &&
		    prctl(PR_CAPBSET_DROP, c, 0, 0, 0) != 0 &&
		    (have >> CAP_SETPCAP & 1) != 0)
			rc = -errno;
	return rc;
}

static int
drop_capabilities(uint64_t keep)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];
	uint64_t have = 0;
	int rc = get_capabilities(&have);

	if (rc == 0)
		rc = drop_bounding(keep);
	if (rc != 0)
		return rc;
	keep &= have;
	d[0].effective = d[0].permitted = d[0].inheritable = (uint32_t)keep;
	d[1].effective = d[1].permitted = d[1].inheritable =
	    (uint32_t)(keep >> 32);
	if (keep == 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL,
	    0, 0, 0) != 0)
		return -errno;
	if (syscall(SYS_capset, &h, d) != 0)
		return -errno;
	/* A parent that is not root hands on what a role needs to become
	 * another uid. */
	for (int c = 0; keep != 0 && c < 64; c++)
		if ((keep >> c & 1) != 0 && prctl(PR_CAP_AMBIENT,
		    PR_CAP_AMBIENT_RAISE, c, 0, 0) != 0)
			return -errno;
	return 0;
}

static int
become(uid_t uid)
{
	gid_t gid = (gid_t)uid;

	if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 ||
	    setresuid(uid, uid, uid) != 0)
		return -errno;
	return getuid() == uid && geteuid() == uid && getgid() == gid ? 0 :
	    -EPERM;
}

static int
limit_to(__rlimit_resource_t what, rlim_t value)
{
	struct rlimit l;

	if (getrlimit(what, &l) != 0)
		return -errno;
	l.rlim_cur = l.rlim_max = value < l.rlim_max ? value : l.rlim_max;
	return setrlimit(what, &l) == 0 ? 0 : -errno;
}

static int
set_limits(enum role_kind k)
{
	int rc = limit_to(RLIMIT_CORE, 0);

	/* A thread or child is never made; the check is by uid, which other
	 * roles may share, so that zero refuses all and counts nobody. */
	if (rc == 0)
		rc = limit_to(RLIMIT_NPROC, 0);
	if (rc == 0 && k == ROLE_COMPILE)
		rc = limit_to(RLIMIT_CPU, 30);
	return rc;
}

/* ---- Landlock, by its raw calls ---- */

int
confine_landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
	    LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : (int)abi;
}

static uint64_t
fs_rights(int abi)
{
	uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

	if (abi >= 2)
		all |= FS_REFER;
	if (abi >= 3)
		all |= FS_TRUNCATE;
	if (abi >= 5)
		all |= FS_IOCTL_DEV;
	return all;
}

static uint64_t
dir_rights(enum role_kind k, int abi)
{
	uint64_t r = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

	if (k != ROLE_RECORDER)
		return r;
	r |= LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
	    LANDLOCK_ACCESS_FS_REMOVE_FILE;
	if (abi >= 3)
		r |= FS_TRUNCATE;
	return r;
}

static int
allow_dir(int set, int dir, uint64_t rights)
{
	struct landlock_path_beneath_attr at = {
		.allowed_access = rights, .parent_fd = dir,
	};

	if (dir < 0)
		return 0;
	return syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH,
	    &at, 0) == 0 ? 0 : -errno;
}

/* Without Landlock in the kernel seccomp alone denies the files. */
static int
landlock(enum role_kind k, int dir)
{
	int abi = confine_landlock_abi(), set, rc;
	struct ruleset rs = { .handled_fs = fs_rights(abi) };
	size_t size = sizeof(rs.handled_fs);

	if (abi == 0)
		return 0;
	if (abi >= 4)
		size = sizeof(rs.handled_fs) + sizeof(rs.handled_net);
	if (abi >= 6) {
		size = sizeof(rs);
		rs.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	}
	set = (int)syscall(SYS_landlock_create_ruleset, &rs, size, 0);
	if (set < 0)
		return -errno;
	rc = allow_dir(set, dir, dir_rights(k, abi));
	if (rc == 0 && syscall(SYS_landlock_restrict_self, set, 0) != 0)
		rc = -errno;
	close(set);
	return rc;
}
