/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/parent_part.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "ledger-client/log.h"
#include "sidecar/compile_role.h"

#define BACKOFF_FIRST_MS 100u
#define BACKOFF_MAX_MS 5000u
#define STEADY_MS 10000		/* ready, and this long from its start on */
/* As often in a row one was not: the daemon ends, about 12 s after the first
 * where each dies at once, and who started it makes everything anew. */
#define UNSTEADY_MAX 8u
#define START_LIMIT_MS 30000

extern char **environ;

static void run(struct child *c, int fd);
static bool listen_to(struct child *c);
static void give_all(struct child *c);
static void on_message(evutil_socket_t fd, short what, void *arg);
static void on_late(evutil_socket_t fd, short what, void *arg);
static void on_again(evutil_socket_t fd, short what, void *arg);

int
child_start(struct child *c)
{
	int pair[2], rc = ipc_pair(pair);

	if (rc != 0)
		return rc;
	c->pid = fork();
	if (c->pid == 0)
		run(c, pair[1]);
	close(pair[1]);
	if (c->pid < 0) {
		c->pid = 0;
		close(pair[0]);
		return -errno;
	}
	c->fd = pair[0];
	c->ready = false;
	c->quiet = 0;
	c->started_ms = clock_mono_ms();
	if (!listen_to(c))
		kill(c->pid, SIGKILL);
	else
		give_all(c);
	return 0;
}

/* What it says, and when it has to have said that it is ready; compile has a
 * limit of its own. */
static bool
listen_to(struct child *c)
{
	const struct timeval limit = { .tv_sec = START_LIMIT_MS / 1000 };

	c->readable = event_new(c->parent->base, c->fd, EV_READ | EV_PERSIST,
	    on_message, c);
	if (c->readable == NULL || event_add(c->readable, NULL) != 0)
		return false;
	if (c->kind == ROLE_COMPILE)
		return true;
	if (c->late == NULL)
		c->late = evtimer_new(c->parent->base, on_late, c);
	return c->late != NULL && event_add(c->late, &limit) == 0;
}

static void
on_late(evutil_socket_t fd, short what, void *arg)
{
	struct child *c = arg;

	(void)fd;
	(void)what;
	if (c->pid <= 0 || c->ready)
		return;
	log_line(LOG_ERROR_, "role not ready in time role=%s index=%u pid=%d",
	    role_word(c->kind), c->index, (int)c->pid);
	kill(c->pid, SIGKILL);
}

/* The recorder is spared, for a disk may hang: started anew it would hang
 * there again, without what it holds. */
static void
look_at(struct child *c)
{
	uint64_t beats = count_beats(c->parent->counts, c->column);

	c->quiet = c->ready && beats == c->beats ? c->quiet + 1 : 0;
	c->beats = beats;
	if (c->quiet == CHILD_QUIET)
		log_line(LOG_ERROR_, "role does not turn role=%s index=%u "
		    "pid=%d", role_word(c->kind), c->index, (int)c->pid);
	if (c->quiet != CHILD_HANGS || c->kind == ROLE_RECORDER)
		return;
	log_line(LOG_ERROR_, "role hangs and is killed role=%s index=%u "
	    "pid=%d", role_word(c->kind), c->index, (int)c->pid);
	told_note(c->parent, RECORD_ROLE, "%s %u hangs, killed pid=%d",
	    role_word(c->kind), c->index, (int)c->pid);
	kill(c->pid, SIGKILL);
}

void
child_look(struct parent *p)
{
	if (p->counts == NULL)
		return;
	for (unsigned i = 0; i < p->n_children; i++)
		if (p->children[i].pid > 0)
			look_at(&p->children[i]);
	shared_guard(p);
}

/* The child before exec.  Every descriptor of ours is close-on-exec; only
 * compile reads the environment, only the recorder may write to stdout. */
static void
run(struct child *c, int fd)
{
	static char *const nothing[] = { NULL };
	char role[] = "role", name[] = "penstock";
	char *argv[] = { name, role, NULL, NULL };
	sigset_t none;

	argv[2] = strdup(role_word(c->kind));
	if (fd == ROLE_PARENT_FD)
		fcntl(fd, F_SETFD, 0);
	else if (dup2(fd, ROLE_PARENT_FD) < 0)
		_exit(127);
	if (c->kind != ROLE_RECORDER)
		dup2(STDERR_FILENO, STDOUT_FILENO);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve("/proc/self/exe", argv,
	    c->kind == ROLE_COMPILE ? environ : nothing);
	_exit(127);
}

void
child_stop_event(struct child *c)
{
	if (c->readable != NULL)
		event_free(c->readable);
	c->readable = NULL;
	if (c->late != NULL)
		event_del(c->late);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/* ---- messages ---- */

/* The number that goes with a descriptor (struct ipc_give). */
static uint64_t
number_for(const struct child *c)
{
	const struct parent *p = c->parent;

	if (c->kind == ROLE_ENGINE)
		return role_first_connection(c->index, c->restarts);
	return c->kind == ROLE_RECORDER ? (uint64_t)p->started_s : 0;
}

static void
give_numbered(struct child *c, enum give what, unsigned index, int fd,
    uint64_t number)
{
	struct ipc_give g = {
		.what = what, .index = index, .column = c->column,
		.number = number,
	};
	int rc;

	if (c->fd < 0 || fd < 0)
		return;
	if (c->kind == ROLE_COMPILE) {
		g.number = c->parent->last_generation;
		g.flags = (c->parent->o.accept_shared_segment ?
		    COMPILE_ORDER_SHARED_SEGMENT : 0) |
		    (c->parent->o.accept_not_proven ?
		    COMPILE_ORDER_NOT_PROVEN : 0);
		snprintf(g.text, sizeof(g.text), "%s",
		    c->parent->config_name);
	}
	rc = ipc_send(c->fd, IPC_GIVE, span_of(&g, sizeof(g)), &fd, 1);
	if (rc != 0 && rc != -EPIPE) {
		log_line(LOG_ERROR_, "role does not read role=%s pid=%d "
		    "error=%s", role_word(c->kind), (int)c->pid,
		    strerror(-rc));
		kill(c->pid, SIGKILL);
	}
}

static void
give(struct child *c, enum give what, unsigned index, int fd)
{
	give_numbered(c, what, index, fd, number_for(c));
}

/* Its ring once more: the recorder ends what it had open, and nothing of the
 * next one, which is started later and counts from a higher number. */
static void
tell_lost(const struct child *c)
{
	struct parent *p = c->parent;
	struct child *recorder = &p->children[CHILD_RECORDER];

	if (recorder->pid > 0)
		give_numbered(recorder, GIVE_RING, c->column,
		    p->rings[c->column], role_first_connection(c->index,
		    c->restarts + 1));
}

void
child_give(struct child *c, enum give what, unsigned index, int fd)
{
	if (c->pid > 0)
		give(c, what, index, fd);
}

void
child_send(struct child *c, enum ipc_type type)
{
	int rc;

	if (c->pid <= 0 || c->fd < 0)
		return;
	rc = ipc_send(c->fd, type, span_of(NULL, 0), NULL, 0);
	if (rc != 0 && rc != -EPIPE)
		kill(c->pid, SIGKILL);
}

/* A pair for an engine's questions: one end each. */
static void
give_ask(struct child *engine, struct child *resolver)
{
	int pair[2];

	if (ipc_pair(pair) != 0)
		return;
	give(resolver, GIVE_ASK, engine->index, pair[0]);
	give(engine, GIVE_ASK, engine->index, pair[1]);
	close(pair[0]);
	close(pair[1]);
}

/* A pair for what the admin has forgotten. */
static void
give_flush(struct child *admin, struct child *resolver)
{
	int pair[2];

	if (admin->pid <= 0 || resolver->pid <= 0 || ipc_pair(pair) != 0)
		return;
	give(resolver, GIVE_FLUSH, 0, pair[0]);
	give(admin, GIVE_FLUSH, 0, pair[1]);
	close(pair[0]);
	close(pair[1]);
}

static void
give_producer(struct child *c)
{
	struct parent *p = c->parent;

	give(c, GIVE_RING, c->column, p->rings[c->column]);
	give(c, GIVE_STATE, 0, p->state_ro);
	give(c, GIVE_WAKE, 0, p->wake);
}

static void
give_resolver(struct child *c)
{
	struct parent *p = c->parent;

	give_producer(c);
	give(c, GIVE_PINS, 0, p->pins_fd);
	for (unsigned i = 0; i < p->settings.n_dns; i++) {
		give(c, GIVE_DNS_UDP, i, p->dns_udp[i]);
		give(c, GIVE_DNS_TCP, i, p->dns_tcp[i]);
	}
	for (unsigned i = 0; i < p->n_engines; i++)
		if (p->children[CHILD_ENGINE + i].pid > 0)
			give_ask(&p->children[CHILD_ENGINE + i], c);
	give(c, GIVE_FIGURES, 0, p->figures_fd);
	give_flush(&p->children[CHILD_ADMIN], c);
}

static void
give_engine(struct child *c)
{
	struct parent *p = c->parent;
	struct child *resolver = &p->children[CHILD_RESOLVER];
	int pair[2];

	give_producer(c);
	for (unsigned i = 0; i < p->n_engines; i++)
		give(c, GIVE_LIMITS, i, i == c->index ? p->limits_fds[i] :
		    p->limits_ro[i]);
	give(c, GIVE_PINS, 0, p->pins_fd);
	for (unsigned i = 0; i < p->settings.n_listeners; i++)
		give(c, GIVE_LISTENER, i, p->listeners[i]);
	if (resolver->pid > 0) {
		give_ask(c, resolver);
	} else if (ipc_pair(pair) == 0) {
		/* The resolver is away: a socket that says so, until it is
		 * back and a pair is made for both. */
		give(c, GIVE_ASK, c->index, pair[0]);
		close(pair[0]);
		close(pair[1]);
	}
}

/* Without a file the recorder ends, and is started again. */
void
child_give_ledger(struct child *c)
{
	int fd = shared_ledger_file(c->parent);

	if (fd < 0)
		return;
	child_give(c, GIVE_LEDGER_FILE, 0, fd);
	close(fd);
}

static void
give_recorder(struct child *c)
{
	struct parent *p = c->parent;

	give(c, GIVE_STATE, 0, p->state);
	give(c, GIVE_WAKE, 0, p->wake);
	if (p->ledger_own)
		child_give_ledger(c);
	else
		give(c, GIVE_LEDGER_DIR, 0, p->ledger_dir);
	for (unsigned i = 0; i < COLUMN_ENGINE + p->n_engines; i++)
		give(c, GIVE_RING, i, p->rings[i]);
}

static void
give_admin(struct child *c)
{
	struct parent *p = c->parent;

	give(c, GIVE_HEALTH, 0, p->health_ro);
	give(c, GIVE_LISTENER, 0, p->admin_fd);
	give(c, GIVE_FIGURES, 0, p->figures_ro);
	give(c, GIVE_PINS, 0, p->pins_fd);
	give_flush(c, &p->children[CHILD_RESOLVER]);
	for (unsigned i = 0; i < COLUMN_ENGINE + p->n_engines; i++)
		if (i != c->column)
			give(c, GIVE_COUNTS, i, p->counts_ro[i]);
}

static void
give_all(struct child *c)
{
	struct parent *p = c->parent;

	if (c->kind == ROLE_COMPILE) {
		give(c, GIVE_CONFIG_DIR, 0, p->config_dir);
		return;
	}
	give(c, GIVE_POLICY, 0, p->image_fd);
	give(c, GIVE_COUNTS, c->column, p->counts_fds[c->column]);
	switch (c->kind) {
	case ROLE_RESOLVER:
		give_resolver(c);
		break;
	case ROLE_ENGINE:
		give_engine(c);
		break;
	case ROLE_RECORDER:
		give_recorder(c);
		break;
	case ROLE_ADMIN:
		give_admin(c);
		break;
	case ROLE_WARDEN:
		break;
	case ROLE_PARENT:
	case ROLE_COMPILE:
	case ROLE_COUNT:
		break;
	}
	child_send(c, IPC_RUN);
}

/* ---- what a role says ---- */

static void
take_pins(struct child *c, struct ipc_message *m)
{
	struct parent *p = c->parent;
	struct ipc_give g;

	if (c->kind != ROLE_RESOLVER || m->len != sizeof(g) || m->n_fds != 1) {
		ipc_discard(m);
		return;
	}
	memcpy(&g, m->body, sizeof(g));
	if (g.what != GIVE_PINS) {
		ipc_discard(m);
		return;
	}
	if (p->pins_fd >= 0)
		close(p->pins_fd);
	p->pins_fd = m->fds[0];
	for (unsigned i = 0; i < p->n_engines; i++)
		child_give(&p->children[CHILD_ENGINE + i], GIVE_PINS, 0,
		    p->pins_fd);
	child_give(&p->children[CHILD_ADMIN], GIVE_PINS, 0, p->pins_fd);
}

static void
take_rules(struct parent *p, struct ipc_message *m)
{
	struct ipc_rules r;

	if (m->len == sizeof(r)) {
		memcpy(&r, m->body, sizeof(r));
		told_rules(p, &r);
	}
	ipc_discard(m);
}

static void
take_message(struct child *c, struct ipc_message *m)
{
	struct parent *p = c->parent;

	if (m->type == IPC_GIVE) {
		take_pins(c, m);
	} else if (m->type == IPC_RULES && c->kind == ROLE_WARDEN) {
		take_rules(p, m);
	} else if (m->type == IPC_COMPILED && c->kind == ROLE_COMPILE) {
		reload_compiled(p, m);
	} else {
		ipc_discard(m);
		if (m->type == IPC_READY)
			c->ready = c->served = true;
		if (m->type == IPC_WROTE && c->kind == ROLE_RECORDER)
			c->wrote = true;
	}
	parent_advance(p);
}

static void
on_message(evutil_socket_t fd, short what, void *arg)
{
	static struct ipc_message m;
	struct child *c = arg;
	int n = ipc_receive((int)fd, &m);

	(void)what;
	if (n == -EAGAIN)
		return;
	if (n == 1) {
		take_message(c, &m);
	} else {
		/* A role closes its socket by ending, which SIGCHLD tells;
		 * one that closed it and lives could not be given a new
		 * policy. */
		event_del(c->readable);
		if (c->pid > 0)
			kill(c->pid, SIGKILL);
	}
}

/* ---- the end of a role, and the next start ---- */

static void
forget(struct child *c)
{
	struct parent *p = c->parent;

	if (p->counts != NULL)
		count_forget(p->counts, c->column);
	if (c->kind == ROLE_ENGINE && p->limits != NULL)
		limit_forget(p->limits, c->index);
}

/* The rules stand when it ends, so that the answer stays deny. */
static void
give_up(struct child *c)
{
	log_line(LOG_ERROR_, "role does not stay role=%s index=%u: %u starts "
	    "in a row failed or ended within %d s; the daemon ends, and has "
	    "to be started anew", role_word(c->kind), c->index, c->unsteady,
	    STEADY_MS / 1000);
	told_note(c->parent, RECORD_ROLE, "%s %u does not stay: the daemon "
	    "ends", role_word(c->kind), c->index);
	parent_fail(c->parent, 1);
}

static unsigned
backoff_ms(const struct child *c)
{
	unsigned ms = BACKOFF_FIRST_MS;

	if (c->unsteady == 0)
		return 0;
	for (unsigned i = 1; i < c->unsteady && ms < BACKOFF_MAX_MS; i++)
		ms *= 2;
	return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

/* In a drain the recorder alone is started again, as often as its time
 * allows. */
static void
schedule(struct child *c, bool steady)
{
	struct timeval wait;

	c->unsteady = steady ? 0 : c->unsteady + 1;
	if (c->unsteady >= UNSTEADY_MAX &&
	    c->parent->phase == PHASE_SERVING) {
		give_up(c);
		return;
	}
	wait.tv_sec = backoff_ms(c) / 1000;
	wait.tv_usec = (int)(backoff_ms(c) % 1000) * 1000;
	if (c->again == NULL)
		c->again = evtimer_new(c->parent->base, on_again, c);
	if (c->again == NULL || event_add(c->again, &wait) != 0)
		parent_fail(c->parent, 1);
}

static void
say_ended(struct child *c, pid_t pid, int status)
{
	const char *how = WIFSIGNALED(status) ? "signal" : "status";
	int number = WIFSIGNALED(status) ? WTERMSIG(status) :
	    WEXITSTATUS(status);

	told_note(c->parent, RECORD_ROLE, "%s %u ended pid=%d %s=%d",
	    role_word(c->kind), c->index, (int)pid, how, number);
	log_line(LOG_ERROR_, "role ended role=%s index=%u pid=%d %s=%d",
	    role_word(c->kind), c->index, (int)pid, how, number);
}

/* The recorder is needed until all is written. */
static bool
is_needed(const struct child *c)
{
	const struct parent *p = c->parent;

	return p->phase == PHASE_SERVING || (p->phase >= PHASE_DRAIN &&
	    c->kind == ROLE_RECORDER && c->served && !p->flushed &&
	    !p->given_up);
}

void
child_ended(struct child *c, int status)
{
	struct parent *p = c->parent;
	bool steady = c->ready && clock_mono_ms() - c->started_ms > STEADY_MS;
	pid_t pid = c->pid;

	child_stop_event(c);
	c->pid = 0;
	c->ready = c->wrote = false;
	forget(c);
	shared_guard(p);
	if (p->phase == PHASE_FLUSH && c->kind == ROLE_RECORDER)
		p->flushed = status == 0;
	if (p->phase < PHASE_DRAIN || status != 0)
		say_ended(c, pid, status);
	if (c->kind == ROLE_WARDEN)
		told_rules(p, NULL);
	if (p->phase < PHASE_SERVING)
		parent_fail(p, 1);	/* it never served: say so, once */
	else if (is_needed(c))
		schedule(c, steady);
	if (c->kind == ROLE_ENGINE)
		tell_lost(c);
}

static void
on_again(evutil_socket_t fd, short what, void *arg)
{
	struct child *c = arg;
	int rc;

	(void)fd;
	(void)what;
	if (!is_needed(c) || c->pid > 0)
		return;
	c->restarts++;
	rc = child_start(c);
	if (rc != 0) {
		log_line(LOG_ERROR_, "role not started role=%s error=%s",
		    role_word(c->kind), strerror(-rc));
		schedule(c, false);
		return;
	}
	told_note(c->parent, RECORD_ROLE, "%s %u started again pid=%d",
	    role_word(c->kind), c->index, (int)c->pid);
	if (c->parent->phase == PHASE_FLUSH)
		child_send(c, IPC_STOP);
}
