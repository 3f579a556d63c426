/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/role.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "sidecar/compile_role.h"
#include "sidecar/confine.h"

#define GIFT_WAIT_MS 10000
#define BEAT_S 1

static int collect(struct role *r);
static int take_policy(struct role *r, int fd);
static int open_shared(struct role *r);
static int confine(struct role *r, int dir);
static int serve(struct role *r);
static void on_parent(evutil_socket_t fd, short what, void *arg);

static const char *const words[] = {
	[ROLE_PARENT] = "parent", [ROLE_COMPILE] = "compile",
	[ROLE_RESOLVER] = "resolver", [ROLE_ENGINE] = "engine",
	[ROLE_RECORDER] = "recorder", [ROLE_ADMIN] = "admin",
	[ROLE_WARDEN] = "warden",
};

const char *
role_word(enum role_kind k)
{
	return k < ROLE_COUNT ? words[k] : "unknown";
}

static const struct role_ops *
ops_of(enum role_kind k)
{
	switch (k) {
	case ROLE_RESOLVER:
		return &resolver_ops;
	case ROLE_ENGINE:
		return &engine_ops;
	case ROLE_RECORDER:
		return &recorder_ops;
	case ROLE_ADMIN:
		return &admin_ops;
	case ROLE_WARDEN:
		return &warden_ops;
	case ROLE_PARENT:
	case ROLE_COMPILE:
	case ROLE_COUNT:
		break;
	}
	return NULL;
}

int
role_main(int argc, char **argv)
{
	static struct role role;
	struct role *r = &role;
	unsigned k = ROLE_COMPILE;
	int rc;

	while (k < ROLE_COUNT && (argc != 2 || strcmp(argv[1], words[k]) != 0))
		k++;
	if (k == ROLE_COUNT || fcntl(ROLE_PARENT_FD, F_GETFD) < 0) {
		fprintf(stderr, "penstock: roles are started by serve\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	/* Service managers and terminals signal whole groups: the parent
	 * alone orders the end. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	prctl(PR_SET_NAME, "penstock", 0, 0, 0);
	log_init(words[k], LOG_INFO_);
	if (k == ROLE_COMPILE)
		return compile_main();
	r->kind = (enum role_kind)k;
	r->ops = ops_of(r->kind);
	r->parent = ROLE_PARENT_FD;
	rc = collect(r);
	if (rc == 0)
		rc = serve(r);
	if (rc != 0)
		log_line(LOG_ERROR_, "role cannot serve error=%s",
		    strerror(-rc));
	return rc == 0 ? 0 : 1;
}

/* ---- what the parent gives before IPC_RUN ---- */

static int
keep_gift(struct role *r, struct ipc_message *m)
{
	struct ipc_give g;

	if (m->type != IPC_GIVE || m->len != sizeof(g) || m->n_fds != 1 ||
	    r->n_gifts == GIFTS_MAX) {
		ipc_discard(m);
		return -EBADMSG;
	}
	memcpy(&g, m->body, sizeof(g));
	r->column = g.column;
	r->number = g.number;
	if (r->kind == ROLE_ENGINE)
		r->index = g.column - COLUMN_ENGINE;
	if (g.what == GIVE_POLICY)
		return take_policy(r, m->fds[0]);
	r->gifts[r->n_gifts++] = (struct gift){
		(enum give)g.what, g.index, m->fds[0],
	};
	return 0;
}

static int
collect(struct role *r)
{
	static struct ipc_message m;
	int rc = 0;

	while (rc == 0) {
		struct pollfd p = { .fd = r->parent, .events = POLLIN };
		int n;

		if (poll(&p, 1, GIFT_WAIT_MS) != 1)
			return -ETIMEDOUT;
		n = ipc_receive(r->parent, &m);
		if (n == -EAGAIN)
			continue;
		if (n <= 0)
			return n < 0 ? n : -EPIPE;
		if (m.type == IPC_RUN)
			return 0;
		rc = keep_gift(r, &m);
	}
	return rc;
}

int
role_take(struct role *r, enum give what, unsigned index)
{
	for (size_t i = 0; i < r->n_gifts; i++)
		if (r->gifts[i].what == what && r->gifts[i].index == index &&
		    r->gifts[i].fd >= 0) {
			int fd = r->gifts[i].fd;

			r->gifts[i].fd = -1;
			return fd;
		}
	return -1;
}

/* Maps and checks the image; the policy before it is freed afterwards. */
static int
take_policy(struct role *r, int fd)
{
	struct policy *old = r->policy, *p = NULL;
	void *old_image = r->image, *image;
	size_t old_bytes = r->image_bytes;
	struct settings s;
	struct stat st;
	int rc;

	if (fstat(fd, &st) != 0 || st.st_size == 0) {
		close(fd);
		return -EBADMSG;
	}
	image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	rc = image == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc != 0)
		return rc;
	rc = policy_open(&p, span_of(image, (size_t)st.st_size));
	if (rc == 0 && !settings_from(&s, p)) {
		policy_free(p);
		rc = -EBADMSG;
	}
	if (rc != 0) {
		munmap(image, (size_t)st.st_size);
		return rc;
	}
	r->policy = p;
	r->image = image;
	r->image_bytes = (size_t)st.st_size;
	r->settings = s;
	log_init(role_word(r->kind), (enum log_level)s.log_level);
	if (old != NULL) {
		if (r->ops->policy != NULL)
			r->ops->policy(r, old);
		policy_free(old);
		munmap(old_image, old_bytes);
	}
	return 0;
}

/* Its own column, and what others count where it was given that. */
static int
open_counts(struct role *r)
{
	int fd = role_take(r, GIVE_COUNTS, r->column), rc;

	rc = fd < 0 ? -ENOENT : count_open(&r->counts, fd, r->column);
	if (fd >= 0)
		close(fd);
	for (unsigned i = 0; i < COLUMNS && rc == 0; i++) {
		fd = role_take(r, GIVE_COUNTS, i);
		if (fd < 0)
			continue;
		rc = count_see(r->counts, fd, i, false);
		close(fd);
	}
	return rc;
}

static int
open_shared(struct role *r)
{
	int rc = open_counts(r), ring, state, wake;

	if (rc != 0 || r->kind == ROLE_RECORDER)
		return rc;
	ring = role_take(r, GIVE_RING, r->column);
	if (ring < 0)
		return 0;
	state = role_take(r, GIVE_STATE, 0);
	wake = role_take(r, GIVE_WAKE, 0);
	rc = emit_open(&r->emit, ring, state, wake);
	close(ring);
	close(state);
	return rc;
}

/* ---- confinement ---- */

static uid_t
uid_of(const struct role *r)
{
	switch (r->kind) {
	case ROLE_RESOLVER:
		return r->settings.uid_resolver;
	case ROLE_ENGINE:
		return r->settings.uid_engine;
	case ROLE_RECORDER:
		return r->settings.uid_recorder;
	case ROLE_ADMIN:
		return r->settings.uid_admin;
	case ROLE_WARDEN:
		return r->settings.uid_warden;
	case ROLE_PARENT:
	case ROLE_COMPILE:
	case ROLE_COUNT:
		break;
	}
	return SETTINGS_UID_KEEP;
}

/* A recorder that writes beneath a directory of somebody else's takes its
 * owner: nobody else could open the files that are there.  In one of the
 * parent's own the parent opens the file (shared.c). */
static uid_t
uid_to_take(const struct role *r, int dir)
{
	struct stat st;

	if (r->kind == ROLE_RECORDER && dir >= 0 && fstat(dir, &st) == 0 &&
	    st.st_uid != r->settings.uid_recorder)
		return st.st_uid == 0 ? SETTINGS_UID_KEEP : st.st_uid;
	return uid_of(r);
}

static int
ledger_dir(const struct role *r)
{
	for (size_t i = 0; i < r->n_gifts; i++)
		if (r->gifts[i].what == GIVE_LEDGER_DIR)
			return r->gifts[i].fd;
	return -1;
}

static int
confine(struct role *r, int dir)
{
	int rc = confine_privileges(r->kind, uid_to_take(r, dir));

	/* Without a parent nobody restarts or ends us; after the change of
	 * uid, which clears it.  The recorder writes out what is in the
	 * rings first, when its socket tells it. */
	if (rc == 0 && r->kind != ROLE_RECORDER)
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	return rc;
}

/* ---- serving ---- */

/* A change list joins the changes of one turn into one call a descriptor; no
 * descriptor is watched twice, which is what it would not bear. */
static struct event_base *
new_base(void)
{
	struct event_config *cfg = event_config_new();
	struct event_base *base = NULL;

	if (cfg != NULL && event_config_set_flag(cfg,
	    EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST) == 0)
		base = event_base_new_with_config(cfg);
	if (cfg != NULL)
		event_config_free(cfg);
	return base;
}

static void
on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct role *r = arg;

	(void)fd;
	(void)what;
	count_beat(r->counts);
}

static int
make_base(struct role *r)
{
	const struct timeval each = { .tv_sec = BEAT_S };

	r->base = new_base();
	if (r->base == NULL)
		return -ENOMEM;
	r->from_parent = event_new(r->base, r->parent, EV_READ | EV_PERSIST,
	    on_parent, r);
	r->beat = event_new(r->base, -1, EV_PERSIST, on_beat, r);
	return r->from_parent == NULL || r->beat == NULL ||
	    event_add(r->from_parent, NULL) != 0 ||
	    event_add(r->beat, &each) != 0 ? -ENOMEM : 0;
}

/* One turn of the event loop after the other; the recorder is woken at most
 * once in each. */
static int
loop(struct role *r)
{
	int rc = 0;

	while (rc == 0 && !event_base_got_exit(r->base)) {
		if (event_base_loop(r->base, EVLOOP_ONCE) != 0)
			rc = -EIO;
		if (r->emit != NULL)
			emit_flush(r->emit);
	}
	if (rc == 0 && r->ops->stop != NULL)
		r->ops->stop(r);
	if (r->emit != NULL)
		emit_flush(r->emit);
	return rc == 0 && r->failed ? -EIO : rc;
}

static int
serve(struct role *r)
{
	int dir = ledger_dir(r), lock_dir = -1, rc;

	/* start may take the descriptor; the lock needs it afterwards. */
	if (dir >= 0)
		lock_dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	else if (r->kind == ROLE_WARDEN)
		lock_dir = open("/proc/sys/net", O_PATH | O_DIRECTORY |
		    O_CLOEXEC);
	rc = r->policy == NULL ? -ENOENT : open_shared(r);
	if (rc == 0)
		rc = confine(r, dir);
	if (rc == 0)
		rc = make_base(r);
	if (rc == 0)
		rc = r->ops->start(r);
	if (rc == 0)
		rc = confine_lock(r->kind, lock_dir);
	if (lock_dir >= 0)
		close(lock_dir);
	if (rc == 0)
		rc = role_send(r, IPC_READY);
	return rc == 0 ? loop(r) : rc;
}

static void
take_message(struct role *r, struct ipc_message *m)
{
	struct ipc_give g;
	int rc;

	if (m->type != IPC_GIVE) {
		ipc_discard(m);
		if (r->ops->order != NULL)
			r->ops->order(r, (enum ipc_type)m->type);
		return;
	}
	if (m->len != sizeof(g) || m->n_fds != 1) {
		ipc_discard(m);
		return;
	}
	memcpy(&g, m->body, sizeof(g));
	r->number = g.number;
	if (g.what != GIVE_POLICY) {
		if (r->ops->gift != NULL)
			r->ops->gift(r, (enum give)g.what, g.index,
			    m->fds[0]);
		else
			close(m->fds[0]);
		return;
	}
	rc = take_policy(r, m->fds[0]);
	if (rc != 0) {
		log_line(LOG_ERROR_, "new policy not taken error=%s",
		    strerror(-rc));
		role_fail(r);
	}
}

static void
on_parent(evutil_socket_t fd, short what, void *arg)
{
	static struct ipc_message m;
	struct role *r = arg;
	int n = ipc_receive((int)fd, &m);

	(void)what;
	if (n == -EAGAIN || n == -EBADMSG)
		return;
	if (n <= 0)
		role_end(r);	/* the parent is gone */
	else
		take_message(r, &m);
}

int
role_send(struct role *r, enum ipc_type type)
{
	return ipc_send(r->parent, type, span_of(NULL, 0), NULL, 0);
}

int
role_send_fd(struct role *r, enum give what, int fd)
{
	struct ipc_give g = { .what = what, .column = r->column };

	return ipc_send(r->parent, IPC_GIVE, span_of(&g, sizeof(g)), &fd, 1);
}

void
role_end(struct role *r)
{
	event_base_loopexit(r->base, NULL);
}

void
role_fail(struct role *r)
{
	r->failed = true;
	role_end(r);
}
