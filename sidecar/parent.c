/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/parent_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "proxy/proxy.h"
#include "sidecar/confine.h"
#include "sidecar/health.h"
#include "sidecar/notify.h"
#include "sidecar/verb.h"

#define BEAT_MS 1000
#define RULES_LIMIT_S 10u
#define FLUSH_LIMIT_MS 5000

static void init(struct parent *p, const struct parent_options *o);
static rlim_t raise_nofile(void);
static int open_config(struct parent *p);
static int add_signals(struct parent *p);
static int start_phase(struct parent *p);
static void serving(struct parent *p);
static void drain(struct parent *p);

int
parent_run(const struct parent_options *o)
{
	static struct parent parent;
	struct parent *p = &parent;

	signal(SIGHUP, SIG_IGN);	/* until there is something to reload */
	init(p, o);
	p->nofile = raise_nofile();
	signal(SIGPIPE, SIG_IGN);
	p->base = event_base_new();
	if (p->base == NULL || open_config(p) != 0)
		return p->base == NULL ? 1 : EXIT_CONFIG;
	notify_init();
	p->health_fd = health_create();
	if (p->health_fd < 0 ||
	    health_open(&p->health, p->health_fd, true) != 0 ||
	    add_signals(p) != 0 || reload_watch(p) != 0 ||
	    reload_start(p) != 0) {
		log_line(LOG_ERROR_, "cannot start error=%s",
		    strerror(errno));
		return 1;
	}
	event_base_dispatch(p->base);
	return p->status;
}

static void
init(struct parent *p, const struct parent_options *o)
{
	p->o = *o;
	p->ready_due = true;
	p->state_ro = p->health_ro = -1;
	p->figures_fd = p->figures_ro = -1;
	p->image_fd = p->config_dir = p->admin_fd = -1;
	p->ledger_dir = p->ledger_lock = -1;
	p->state = p->wake = p->pins_fd = -1;
	p->compile.fd = p->own_fd = -1;
	for (size_t i = 0; i < COLUMNS; i++)
		p->rings[i] = p->counts_fds[i] = p->counts_ro[i] = -1;
	for (size_t i = 0; i < LIMIT_ENGINES_MAX; i++)
		p->limits_fds[i] = p->limits_ro[i] = -1;
	for (size_t i = 0; i < SETTINGS_LISTENERS_MAX; i++)
		p->listeners[i] = -1;
	for (size_t i = 0; i < 4; i++)
		p->dns_udp[i] = p->dns_tcp[i] = -1;
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		struct child *c = &p->children[i];

		c->parent = p;
		c->fd = -1;
		c->kind = i >= CHILD_ENGINE ? ROLE_ENGINE :
		    i == CHILD_RECORDER ? ROLE_RECORDER :
		    i == CHILD_RESOLVER ? ROLE_RESOLVER :
		    i == CHILD_WARDEN ? ROLE_WARDEN : ROLE_ADMIN;
		c->index = i >= CHILD_ENGINE ? i - CHILD_ENGINE : 0;
		c->column = i >= CHILD_ENGINE ? COLUMN_ENGINE + c->index :
		    i == CHILD_RECORDER ? COLUMN_RECORDER :
		    i == CHILD_RESOLVER ? COLUMN_RESOLVER :
		    i == CHILD_WARDEN ? COLUMN_WARDEN : COLUMN_ADMIN;
	}
	p->started_s = (int64_t)time(NULL);
	log_init("parent", LOG_INFO_);
}

/* Each connection takes up to two descriptors, and pipes on top: the soft
 * limit is for programs that use select(2). */
static rlim_t
raise_nofile(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) != 0)
		return 0;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &l) != 0)
		getrlimit(RLIMIT_NOFILE, &l);
	return l.rlim_cur;
}

/* The directory stays open: every later reload reads beneath it. */
static int
open_config(struct parent *p)
{
	const char *file = p->o.config, *slash;
	char dir[4096] = ".";

	if (file == NULL) {
		p->config_dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		return p->config_dir < 0 ? -errno : 0;
	}
	slash = strrchr(file, '/');
	if (slash != NULL)
		snprintf(dir, sizeof(dir), "%.*s",
		    slash == file ? 1 : (int)(slash - file), file);
	if (snprintf(p->config_name, sizeof(p->config_name), "%s",
	    slash == NULL ? file : slash + 1) >=
	    (int)sizeof(p->config_name) || p->config_name[0] == '\0')
		return -EINVAL;
	p->config_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->config_dir >= 0)
		return 0;
	log_line(LOG_ERROR_, "cannot open the configuration's directory "
	    "dir=%s error=%s", dir, strerror(errno));
	return -errno;
}

/* ---- signals ---- */

static void
reap(struct parent *p)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == p->compile.pid) {
			reload_ended(p);
			continue;
		}
		for (unsigned i = 0; i < p->n_children; i++)
			if (p->children[i].pid == pid)
				child_ended(&p->children[i], status);
	}
	parent_advance(p);
}

static void
terminate(struct parent *p)
{
	if (p->phase < PHASE_SERVING) {
		parent_fail(p, 0);
	} else if (p->phase == PHASE_SERVING) {
		drain(p);
	} else if (p->phase == PHASE_DRAIN) {
		for (unsigned i = 0; i < p->n_engines; i++)
			child_send(&p->children[CHILD_ENGINE + i], IPC_STOP);
	}
}

static void
hup(struct parent *p)
{
	if (p->phase != PHASE_SERVING) {
		p->reload_again = p->phase < PHASE_SERVING;
		return;
	}
	notify_reloading();
	p->ready_due = true;
	reload_now(p);
}

static void
on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct parent *p = arg;

	(void)what;
	if (sig == SIGCHLD) {
		reap(p);
	} else if (sig == SIGHUP) {
		hup(p);
		told_health(p);
	} else if (sig == SIGUSR1 && p->ledger_own) {
		child_give_ledger(&p->children[CHILD_RECORDER]);
	} else if (sig == SIGUSR1) {
		child_send(&p->children[CHILD_RECORDER], IPC_REOPEN);
	} else {
		terminate(p);
	}
}

static void
on_beat(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	child_look(arg);
	told_health(arg);
	told_alive(arg);
}

static int
add_signals(struct parent *p)
{
	static const int sigs[] =
	    { SIGCHLD, SIGHUP, SIGUSR1, SIGTERM, SIGINT };
	const struct timeval beat = { .tv_sec = BEAT_MS / 1000 };

	for (size_t i = 0; i < 5; i++) {
		p->signals[i] = evsignal_new(p->base, sigs[i], on_signal, p);
		if (p->signals[i] == NULL ||
		    event_add(p->signals[i], NULL) != 0)
			return -ENOMEM;
	}
	p->signals[5] = event_new(p->base, -1, EV_PERSIST, on_beat, p);
	if (p->signals[5] == NULL || event_add(p->signals[5], &beat) != 0)
		return -ENOMEM;
	return 0;
}

/* ---- one phase after the other ---- */

static bool
phase_complete(const struct parent *p)
{
	switch (p->phase) {
	case PHASE_COMPILE:
		return p->policy != NULL;
	case PHASE_RECORDER:
		return p->children[CHILD_RECORDER].ready;
	case PHASE_RESOLVER:
		return p->children[CHILD_RESOLVER].ready && p->pins_fd >= 0;
	case PHASE_ENGINES:
		return parent_engines_ready(p) == p->n_engines &&
		    (p->admin_fd < 0 || p->children[CHILD_ADMIN].ready) &&
		    (!p->watched || p->children[CHILD_WARDEN].ready);
	case PHASE_SERVING:
		return false;
	case PHASE_DRAIN:
		for (unsigned i = 0; i < p->n_engines; i++)
			if (p->children[CHILD_ENGINE + i].pid > 0)
				return false;
		return true;
	case PHASE_CLOSE:
		return p->children[CHILD_RESOLVER].pid == 0 &&
		    p->children[CHILD_WARDEN].pid == 0 &&
		    p->children[CHILD_ADMIN].pid == 0;
	case PHASE_FLUSH:
		return p->children[CHILD_RECORDER].pid == 0 && (p->flushed ||
		    p->given_up || !p->children[CHILD_RECORDER].served);
	}
	return false;
}

/* What a start that failed ends with. */
static int
exit_of(int rc)
{
	if (rc == -EBUSY)
		return EXIT_CONFIG;	/* of two, one names a wrong ledger */
	return rc == -EPERM || rc == -EACCES ? EXIT_PRIVILEGE : 1;
}

void
parent_advance(struct parent *p)
{
	while (phase_complete(p)) {
		int rc;

		if (p->phase == PHASE_FLUSH) {
			event_base_loopexit(p->base, NULL);
			break;
		}
		p->phase++;
		rc = start_phase(p);
		if (rc != 0) {
			log_line(LOG_ERROR_, "cannot start error=%s",
			    strerror(-rc));
			parent_fail(p, exit_of(rc));
			break;
		}
	}
	if (p->policy != NULL && p->n_engines > 0)
		shared_guard(p);
	told_health(p);
}

static int check_rules(struct parent *p);
static void last_call(struct parent *p, uint32_t ms);
static int check_uid(const struct parent *p);

static int
start_engines(struct parent *p)
{
	int rc = 0;

	for (unsigned i = 0; i < p->n_engines && rc == 0; i++)
		rc = child_start(&p->children[CHILD_ENGINE + i]);
	if (rc == 0 && p->admin_fd >= 0)
		rc = child_start(&p->children[CHILD_ADMIN]);
	if (rc == 0 && p->watched)
		rc = child_start(&p->children[CHILD_WARDEN]);
	return rc;
}

static void
flush_last(struct parent *p)
{
	told_note(p, RECORD_STOP, "status=%d", p->status);
	last_call(p, FLUSH_LIMIT_MS);
	child_send(&p->children[CHILD_RECORDER], IPC_STOP);
}

static int
start_phase(struct parent *p)
{
	int rc = 0;

	switch (p->phase) {
	case PHASE_RECORDER:
		rc = check_uid(p);
		if (rc == 0)
			rc = check_rules(p);
		if (rc == 0)
			rc = shared_make(p);
		return rc == 0 ? child_start(&p->children[CHILD_RECORDER]) :
		    rc;
	case PHASE_RESOLVER:
		return child_start(&p->children[CHILD_RESOLVER]);
	case PHASE_ENGINES:
		return start_engines(p);
	case PHASE_SERVING:
		rc = confine_parent(p->watched);
		if (rc == 0)
			serving(p);
		return rc;
	case PHASE_CLOSE:
		shared_close_listeners(p);
		child_send(&p->children[CHILD_RESOLVER], IPC_STOP);
		child_send(&p->children[CHILD_ADMIN], IPC_STOP);
		child_send(&p->children[CHILD_WARDEN], IPC_STOP);
		return 0;
	case PHASE_FLUSH:
		flush_last(p);
		return 0;
	case PHASE_COMPILE:
	case PHASE_DRAIN:
		break;
	}
	return 0;
}

/* The rules of mode shared exempt two uids: other ones would be sent back to
 * our own listeners. */
static int
check_uid(const struct parent *p)
{
	uid_t uid = getuid();

	if (p->settings.mode != MODE_SHARED || p->o.rules_external ||
	    confine_can_setuid() || (p->settings.uid_engine == uid &&
	    p->settings.uid_resolver == uid))
		return 0;
	log_line(LOG_ERROR_, "cannot become another uid, and uid %u is not "
	    "that of users.engine and users.resolver: start with SETUID and "
	    "SETGID, or say users: %u", (unsigned)uid, (unsigned)uid);
	return -EPERM;
}

/*
 * The rules are read by the verb in a process of its own, so that this one
 * never maps netlink libraries.  A mode that needs them and has them not is
 * refused.
 */
static int
check_rules(struct parent *p)
{
	enum settings_mode m = p->settings.mode;
	int status = 0;
	pid_t pid;

	if ((m != MODE_SHARED && m != MODE_GATEWAY) || p->o.rules_external)
		return 0;
	p->watched = p->rules_told = true;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		alarm(RULES_LIMIT_S);
		if (p->o.config != NULL)
			execl("/proc/self/exe", "penstock", "rules", "check",
			    "-c", p->o.config, (char *)NULL);
		else
			execl("/proc/self/exe", "penstock", "rules", "check",
			    "--mode", settings_mode_word(m), (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	log_line(LOG_ERROR_, "mode %s is not enforced: the rules are not in "
	    "place; run penstock rules apply, or say --rules external "
	    "when somebody else holds them", settings_mode_word(m));
	return -EPERM;
}

static void
list_listeners(const struct parent *p, char *out, size_t size)
{
	size_t at = 0;

	for (unsigned i = 0; i < p->settings.n_listeners && at < size; i++) {
		char text[ADDR_TEXT_BYTES];

		at += (size_t)snprintf(out + at, size - at, "%s%s=%s",
		    i > 0 ? "," : "", p->settings.listeners[i].name,
		    endpoint_text(&p->settings.listeners[i].at, text));
	}
}

/* What all roles have in common: rings, tables, the policy. */
static uint64_t
bytes_of(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t
shared_bytes(const struct parent *p)
{
	const int others[] = { p->state, p->health_fd, p->pins_fd,
	    p->figures_fd, p->image_fd };
	uint64_t sum = 0;

	for (unsigned i = 0; i < COLUMN_ENGINE + p->n_engines; i++)
		sum += bytes_of(p->rings[i]) + bytes_of(p->counts_fds[i]);
	for (unsigned i = 0; i < p->n_engines; i++)
		sum += bytes_of(p->limits_fds[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		sum += bytes_of(others[i]);
	return sum;
}

static void
serving(struct parent *p)
{
	char digest[2 * POLICY_DIGEST_BYTES + 1], where[512] = "", lab[256];
	char asked[256];
	enum settings_unenforced why = told_unenforced(p);
	bool enforcing = why == UNENFORCED_NOTHING;
	struct proxy_limits fit = p->settings.limits;

	fit.connections = settings_fit(&p->settings, p->nofile);
	for (size_t i = 0; i < POLICY_DIGEST_BYTES; i++)
		snprintf(digest + 2 * i, 3, "%02x",
		    policy_digest(p->policy)[i]);
	list_listeners(p, where, sizeof(where));
	told_lab(p->policy, lab, sizeof(lab));
	log_line(LOG_INFO_, "started version=%s mode=%s %s generation=%"
	    PRIu64 " digest=%s cells=%zu engines=%u listeners=%s uids=%s "
	    "landlock=%d descriptors=%ju connections=%u "
	    "connections_memory_max_bytes=%" PRIu64 " shared_memory_bytes=%"
	    PRIu64 "%s%s",
	    PENSTOCK_VERSION,
	    settings_mode_word(p->settings.mode),
	    enforcing ? "enforcing" : "NOT ENFORCING",
	    p->generation, digest, policy_cells(p->policy), p->n_engines,
	    where, confine_can_setuid() ? "separate" : "one",
	    confine_landlock_abi(), (uintmax_t)p->nofile,
	    fit.connections, proxy_memory_max(&fit, p->n_engines),
	    shared_bytes(p), lab[0] != '\0' ? " lab=" : "", lab);
	if (!enforcing)
		log_line(LOG_WARN, "not enforcing: %s",
		    settings_unenforced_text(why));
	told_note(p, RECORD_START, "version=%s mode=%s %s engines=%u%s%s",
	    PENSTOCK_VERSION, settings_mode_word(p->settings.mode),
	    enforcing ? "enforcing" : "not enforcing", p->n_engines,
	    enforcing ? "" : ": ", settings_unenforced_text(why));
	told_resolvers(p, asked, sizeof(asked));
	log_line(LOG_INFO_, "names are asked of %s", asked);
	told_note(p, RECORD_POLICY, "in use; names are asked of %s", asked);
	if (p->reload_again && p->compile.pid == 0)
		hup(p);
	reload_own(p);
}

/* ---- the end ---- */

/* The recorder is spared until it had its time alone: another role that hangs
 * takes no records with it. */
static void
on_last_call(evutil_socket_t fd, short what, void *arg)
{
	struct parent *p = arg;

	(void)fd;
	(void)what;
	log_line(LOG_ERROR_, "roles did not end in time: killed");
	p->given_up = p->phase == PHASE_FLUSH;
	if (p->given_up && p->status == 0)
		p->status = 1;
	for (unsigned i = 0; i < p->n_children; i++)
		if (p->children[i].pid > 0 &&
		    (i != CHILD_RECORDER || p->given_up))
			kill(p->children[i].pid, SIGKILL);
	parent_advance(p);
}

static void
last_call(struct parent *p, uint32_t ms)
{
	struct timeval t = { .tv_sec = ms / 1000 };

	t.tv_usec = (int)(ms % 1000) * 1000;
	if (p->last_call == NULL)
		p->last_call = event_new(p->base, -1, EV_PERSIST,
		    on_last_call, p);
	if (p->last_call != NULL)
		event_add(p->last_call, &t);
}

static void
drain(struct parent *p)
{
	p->phase = PHASE_DRAIN;
	log_line(LOG_INFO_, "stopping: connections are drained");
	notify_status("STOPPING=1", "connections are drained");
	if (p->compile.pid > 0)
		kill(p->compile.pid, SIGKILL);
	last_call(p, p->settings.drain_timeout_ms + FLUSH_LIMIT_MS);
	for (unsigned i = 0; i < p->n_engines; i++)
		child_send(&p->children[CHILD_ENGINE + i], IPC_DRAIN);
	parent_advance(p);
}

void
parent_fail(struct parent *p, int status)
{
	if (p->phase >= PHASE_DRAIN)
		return;
	p->status = status;
	if (p->compile.pid > 0)
		kill(p->compile.pid, SIGKILL);
	if (p->n_children == 0) {
		event_base_loopexit(p->base, NULL);
		return;
	}
	p->phase = PHASE_DRAIN;
	shared_close_listeners(p);
	last_call(p, FLUSH_LIMIT_MS);
	for (unsigned i = 0; i < p->n_engines; i++)
		child_send(&p->children[CHILD_ENGINE + i], IPC_STOP);
	/* Not from here: a caller may stand inside parent_advance. */
	event_active(p->signals[0], EV_SIGNAL, 1);
}
