/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/parent_part.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "sidecar/figures.h"
#include "sidecar/sockets.h"

#define RESET_PER_WAKE 64u
#define RING_SMALL_BYTES (1u << 20)
#define RING_END_BYTES 512u	/* of one connection, about */

static int make_memory(struct parent *p);
static int make_listeners(struct parent *p);
static int make_dns(struct parent *p);
static int make_admin(struct parent *p);
static int open_ledger(struct parent *p);
static int lock_ledger(struct parent *p);
static void on_waiting(evutil_socket_t fd, short what, void *arg);

static unsigned
cores(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > (int)LIMIT_ENGINES_MAX ? LIMIT_ENGINES_MAX :
	    (unsigned)n;
}

/* The ledger's lock first: who does not get it disturbs nothing of the one
 * that has it. */
int
shared_make(struct parent *p)
{
	int rc;

	p->n_engines = p->settings.engines > 0 ? p->settings.engines :
	    cores();
	p->n_children = CHILD_ENGINE + p->n_engines;
	rc = open_ledger(p);
	if (rc == 0)
		rc = make_memory(p);
	if (rc == 0)
		rc = make_listeners(p);
	if (rc == 0)
		rc = make_dns(p);
	if (rc == 0)
		rc = make_admin(p);
	return rc;
}

/* An engine keeps room in its ring for the end of each open connection, so
 * that one too small would refuse connections long before the limit. */
static size_t
ring_bytes(const struct settings *s, unsigned column)
{
	if (s->ring_bytes != 0)
		return s->ring_bytes;
	return column < COLUMN_ENGINE ? RING_SMALL_BYTES :
	    RING_SMALL_BYTES + (size_t)s->limits.connections *
	    RING_END_BYTES;
}

/* Each producer's counts, all of which the parent has and the admin sees. */
static int
make_counts(struct parent *p)
{
	int rc = 0;

	for (unsigned i = 0; i < COLUMN_ENGINE + p->n_engines; i++) {
		p->counts_fds[i] = count_create();
		if (p->counts_fds[i] < 0)
			return p->counts_fds[i];
		p->counts_ro[i] = emit_read_only(p->counts_fds[i]);
		if (p->counts_ro[i] < 0)
			return p->counts_ro[i];
	}
	rc = count_open(&p->counts, p->counts_fds[COLUMN_PARENT],
	    COLUMN_PARENT);
	for (unsigned i = 0; i < COLUMN_ENGINE + p->n_engines; i++)
		if (rc == 0 && i != COLUMN_PARENT)
			rc = count_see(p->counts, p->counts_fds[i], i, true);
	return rc;
}

/* What each engine has open, which the others read. */
static int
make_limits(struct parent *p)
{
	uint64_t seed;
	int rc = 0;

	if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		return -EIO;
	for (unsigned i = 0; i < p->n_engines && rc == 0; i++) {
		int fd = limit_create(p->settings.limits.connections, seed);

		p->limits_fds[i] = fd;
		p->limits_ro[i] = fd < 0 ? fd : emit_read_only(fd);
		if (p->limits_ro[i] < 0)
			return p->limits_ro[i];
		rc = i == 0 ? limit_open(&p->limits, fd, i) :
		    limit_see(p->limits, fd, i, true);
	}
	return rc;
}

static int
make_memory(struct parent *p)
{
	int rc;

	for (unsigned i = 0; i < COLUMN_ENGINE + p->n_engines; i++) {
		p->rings[i] = emit_ring_create(ring_bytes(&p->settings, i));
		if (p->rings[i] < 0)
			return p->rings[i];
	}
	p->state = emit_state_create();
	p->state_ro = p->state < 0 ? p->state : emit_read_only(p->state);
	p->health_ro = emit_read_only(p->health_fd);
	p->figures_fd = figures_create();
	p->figures_ro = p->figures_fd < 0 ? -1 :
	    emit_read_only(p->figures_fd);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->state_ro < 0 || p->health_ro < 0 || p->figures_ro < 0 ||
	    p->wake < 0)
		return -ENOMEM;
	rc = make_counts(p);
	if (rc == 0)
		rc = make_limits(p);
	if (rc == 0)
		rc = emit_open(&p->emit, p->rings[COLUMN_PARENT], p->state,
		    p->wake);
	return rc;
}

/* How to go on, where that is known. */
static const char *
remedy(int rc)
{
	switch (rc) {
	case -EADDRINUSE:
		return ": another process serves there; stop that one, or "
		    "give this one an address of its own";
	case -EEXIST:
		return ": what is there is no socket; remove it, or name "
		    "another path";
	case -EADDRNOTAVAIL:
		return ": no interface of this host has it";
	case -EACCES:
	case -EPERM:
		return ": a privilege is missing; see penstock(1)";
	default:
		return "";
	}
}

static int
said(const char *what, const struct endpoint *at, int rc)
{
	char text[ADDR_TEXT_BYTES];

	if (rc < 0)
		log_line(LOG_ERROR_, "cannot listen listener=%s address=%s "
		    "error=%s%s", what, endpoint_text(at, text),
		    strerror(-rc), remedy(rc));
	return rc;
}

/* It may come later, with the first agent; misspelt it never does. */
static void
miss_interfaces(const struct settings *s)
{
	for (uint32_t i = 0; i < s->n_interfaces; i++)
		if (if_nametoindex(s->interfaces[i]) == 0)
			log_line(LOG_WARN, "no interface of this host has the "
			    "name %s: until there is one nobody is served "
			    "there; interfaces: is to name those of the "
			    "agents", s->interfaces[i]);
}

static int
make_listeners(struct parent *p)
{
	miss_interfaces(&p->settings);
	for (unsigned i = 0; i < p->settings.n_listeners; i++) {
		const struct settings_listener *l = &p->settings.listeners[i];
		int fd = said(l->name, &l->at, sockets_listen(&l->at,
		    l->kind == LISTEN_TPROXY));

		if (fd < 0)
			return fd;
		p->listeners[i] = fd;
		p->reset[i] = event_new(p->base, fd, EV_READ | EV_PERSIST,
		    on_waiting, p);
		if (p->reset[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int
make_dns(struct parent *p)
{
	bool transparent = p->settings.mode == MODE_GATEWAY;

	for (unsigned i = 0; i < p->settings.n_dns; i++) {
		const struct endpoint *at = &p->settings.dns[i];

		p->dns_udp[i] = said("dns-udp", at,
		    sockets_dns_udp(at, transparent));
		if (p->dns_udp[i] < 0)
			return p->dns_udp[i];
		p->dns_tcp[i] = said("dns-tcp", at,
		    sockets_listen(at, transparent));
		if (p->dns_tcp[i] < 0)
			return p->dns_tcp[i];
	}
	return 0;
}

static int
make_admin(struct parent *p)
{
	if (p->settings.admin[0] == '\0')
		return 0;
	p->admin_fd = sockets_admin(p->settings.admin);
	if (p->admin_fd < 0)
		log_line(LOG_ERROR_, "cannot listen admin=%s error=%s%s",
		    p->settings.admin, strerror(-p->admin_fd),
		    remedy(p->admin_fd));
	return p->admin_fd < 0 ? p->admin_fd : 0;
}

int
shared_ledger_file(const struct parent *p)
{
	int fd = openat(p->ledger_dir, LEDGER_FILE,
	    O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);

	if (fd >= 0)
		return fd;
	log_line(LOG_ERROR_, "cannot open %s in ledger dir=%s error=%s",
	    LEDGER_FILE, p->settings.ledger_dir, strerror(errno));
	return -errno;
}

/* In a directory of our own (root's) we open the file, so that the recorder
 * needs no uid of ours; of another's (role.c) the recorder takes the owner: a
 * service manager sets that, and would set it back. */
static int
open_ledger(struct parent *p)
{
	const char *dir = p->settings.ledger_dir;
	struct stat st;

	if (dir[0] == '\0')
		return 0;
	p->ledger_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->ledger_dir < 0) {
		int err = errno;

		log_line(LOG_ERROR_, "cannot open ledger dir=%s error=%s: "
		    "make it a directory that penstock can open, or name "
		    "another in ledger.dir", dir, strerror(err));
		return -err;
	}
	if (fstat(p->ledger_dir, &st) != 0)
		return -errno;
	p->ledger_own = st.st_uid == geteuid();
	return lock_ledger(p);
}

/*
 * Two recorders in one file would mix their lines and numbers.  The lock is
 * on an opening of its own, since ledger_dir may be given to the recorder: it
 * goes when this process goes, however that ends, and a new start finds the
 * directory free.
 */
static int
lock_ledger(struct parent *p)
{
	int rc;

	p->ledger_lock = openat(p->ledger_dir, ".",
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->ledger_lock >= 0 &&
	    flock(p->ledger_lock, LOCK_EX | LOCK_NB) == 0)
		return 0;
	rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (rc == -EBUSY)
		log_line(LOG_ERROR_, "ledger.dir is in use by another "
		    "penstock dir=%s: stop that one, or give this one a "
		    "directory of its own", p->settings.ledger_dir);
	else
		log_line(LOG_ERROR_, "cannot lock ledger dir=%s error=%s: "
		    "use a file system that has flock(2) for directories",
		    p->settings.ledger_dir, strerror(-rc));
	return rc;
}

/* ---- while no engine lives ---- */

void
shared_guard(struct parent *p)
{
	bool alone = p->phase <= PHASE_DRAIN && parent_engines_ready(p) == 0;

	for (unsigned i = 0; i < p->settings.n_listeners; i++) {
		if (p->reset[i] == NULL)
			continue;
		if (alone)
			event_add(p->reset[i], NULL);
		else
			event_del(p->reset[i]);
	}
}

static void
on_waiting(evutil_socket_t fd, short what, void *arg)
{
	(void)what;
	(void)arg;
	sockets_reset_waiting((int)fd, RESET_PER_WAKE);
}

static void
close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Not even ours are open then: a client that comes is told so at once. */
void
shared_close_listeners(struct parent *p)
{
	for (unsigned i = 0; i < p->settings.n_listeners; i++) {
		if (p->reset[i] != NULL)
			event_free(p->reset[i]);
		p->reset[i] = NULL;
		close_one(&p->listeners[i]);
	}
	for (unsigned i = 0; i < p->settings.n_dns; i++) {
		close_one(&p->dns_udp[i]);
		close_one(&p->dns_tcp[i]);
	}
}
