/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/parent_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "ledger-client/log.h"
#include "sidecar/change.h"
#include "sidecar/compile.h"
#include "sidecar/own.h"
#include "sidecar/rtnl.h"
#include "sidecar/verb.h"

#define PROBLEMS_MAX_BYTES (256u << 10)
/* Many changes, one look; and where nothing is heard, a look each so often. */
#define OWN_SOON_MS 200
#define OWN_PAUSE_MS 1000
#define OWN_DEAF_MS 5000

static void on_limit(evutil_socket_t fd, short what, void *arg);
static void refuse(struct parent *p, const char *why);
static int adopt(struct parent *p, int fd, char *why, size_t size);
static void say_problems(struct parent *p, int fd, bool refused);
static void say_adopted(struct parent *p, const struct ipc_compiled *c,
    uint64_t before);

/* Compile what is there now; one at a time. */
int
reload_start(struct parent *p)
{
	struct timeval limit = { .tv_sec = COMPILE_LIMIT_MS / 1000 };
	int rc;

	if (p->compile.pid > 0) {
		p->reload_again = true;
		return 0;
	}
	p->reload_again = false;
	p->last_generation++;
	p->compile.parent = p;
	p->compile.kind = ROLE_COMPILE;
	p->compile.fd = -1;
	rc = child_start(&p->compile);
	if (rc != 0)
		return rc;
	if (p->compile_limit == NULL)
		p->compile_limit = evtimer_new(p->base, on_limit, p);
	if (p->compile_limit == NULL ||
	    event_add(p->compile_limit, &limit) != 0)
		kill(p->compile.pid, SIGKILL);
	return 0;
}

void
reload_now(struct parent *p)
{
	char why[120];
	int rc = reload_start(p);

	if (rc == 0)
		return;
	snprintf(why, sizeof(why), "the role compile cannot be started: %s",
	    strerror(-rc));
	refuse(p, why);
}

static void
on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct parent *p = arg;

	(void)fd;
	(void)what;
	if (p->compile.pid > 0)
		kill(p->compile.pid, SIGKILL);
}

void
reload_compiled(struct parent *p, struct ipc_message *m)
{
	struct ipc_compiled c;
	char why[160];
	uint64_t before = p->generation;

	if (m->len != sizeof(c) || m->n_fds < 1) {
		ipc_discard(m);
		return;
	}
	memcpy(&c, m->body, sizeof(c));
	say_problems(p, m->fds[0], c.status != 0 || m->n_fds != 2);
	p->compile.ready = true;	/* it has answered */
	if (c.status != 0 || m->n_fds != 2) {
		snprintf(why, sizeof(why), "it did not compile, errors=%u",
		    c.errors);
		refuse(p, why);
	} else {
		int fd = m->fds[1];

		m->fds[1] = -1;
		if (adopt(p, fd, why, sizeof(why)) == 0)
			say_adopted(p, &c, before);
		else
			refuse(p, why);
	}
	ipc_discard(m);
}

/* The compile role has ended. */
void
reload_ended(struct parent *p)
{
	bool answered = p->compile.ready;

	child_stop_event(&p->compile);
	p->compile.pid = 0;
	p->compile.ready = false;
	if (p->compile_limit != NULL)
		event_del(p->compile_limit);
	if (!answered && p->phase < PHASE_DRAIN)
		refuse(p, "the role compile ended without an answer");
	else if (!answered)
		log_line(LOG_INFO_, "reload given up: the daemon stops");
	if (p->reload_again && p->phase == PHASE_SERVING)
		reload_now(p);
	reload_own(p);
}

/* At the start there is nothing to keep: the daemon ends. */
static void
refuse(struct parent *p, const char *why)
{
	if (p->phase == PHASE_COMPILE) {
		parent_fail(p, EXIT_CONFIG);
		return;
	}
	p->stale = true;
	log_line(LOG_ERROR_, "policy refused, generation %" PRIu64
	    " stays: %s", p->generation, why);
	told_note(p, RECORD_POLICY, "refused: %s", why);
}

static int
open_image(int fd, struct policy **policy, void **image, size_t *bytes,
    struct settings *s)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat st;
	int rc;

	/* What is checked here must stay so in every role. */
	if (fstat(fd, &st) != 0 || st.st_size == 0 ||
	    (fcntl(fd, F_GET_SEALS) & seals) != seals)
		return -EBADMSG;
	*bytes = (size_t)st.st_size;
	*image = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (*image == MAP_FAILED)
		return -errno;
	rc = policy_open(policy, span_of(*image, *bytes));
	if (rc == 0 && !settings_from(s, *policy)) {
		policy_free(*policy);
		rc = -EBADMSG;
	}
	if (rc != 0)
		munmap(*image, *bytes);
	return rc;
}

static int
write_all(int fd, const uint8_t *at, size_t n)
{
	while (n > 0) {
		ssize_t put = write(fd, at, n);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		at += put;
		n -= (size_t)put;
	}
	return 0;
}

/* The same image with other settings in it, for all roles, as sealed as the
 * one before: a descriptor or -errno. */
static int
with_settings(const uint8_t *image, size_t bytes, const struct policy *policy,
    const struct settings *s)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE |
	    F_SEAL_SEAL;
	off_t at = policy_settings(policy).data - image;
	int fd = memfd_create("penstock-policy", MFD_CLOEXEC |
	    MFD_ALLOW_SEALING), rc;

	if (fd < 0)
		return -errno;
	rc = write_all(fd, image, bytes);
	if (rc == 0 && (pwrite(fd, s, sizeof(*s), at) !=
	    (ssize_t)sizeof(*s) || fcntl(fd, F_ADD_SEALS, seals) != 0))
		rc = errno != 0 ? -errno : -EIO;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/* What one image holds. */
struct opened {
	int fd;
	struct policy *policy;
	void *image;
	size_t bytes;
	struct settings s;
};

static int
open_all(struct opened *o)
{
	return open_image(o->fd, &o->policy, &o->image, &o->bytes, &o->s);
}

static void
close_all(struct opened *o)
{
	policy_free(o->policy);
	munmap(o->image, o->bytes);
	close(o->fd);
}

/* What needs a new start stays as it is, in every role; all else is taken
 * into use.  Nothing fits another mode. */
static int
keep_fixed(struct parent *p, struct opened *o, char *why, size_t size)
{
	char keys[SETTINGS_KEYS_BYTES];
	int fd, rc;

	if (o->s.mode != p->settings.mode) {
		snprintf(why, size, "mode changed: that needs a new start");
		return -EINVAL;
	}
	settings_keep_fixed(&o->s, &p->settings, keys);
	if (keys[0] != '\0') {
		fd = with_settings(o->image, o->bytes, o->policy, &o->s);
		if (fd < 0) {
			snprintf(why, size, "the image cannot be made: %s",
			    strerror(-fd));
			return fd;
		}
		close_all(o);
		o->fd = fd;
		rc = open_all(o);
		if (rc != 0) {
			snprintf(why, size, "the image cannot be used: %s",
			    strerror(-rc));
			close(fd);
			o->fd = -1;
			return rc;
		}
	}
	memcpy(p->waits_for_start, keys, sizeof(keys));
	return 0;
}

static void
say_change(void *arg, const char *line)
{
	(void)arg;
	log_line(LOG_INFO_, "policy change %s", line);
}

/* Takes the image's descriptor. */
static int
adopt(struct parent *p, int fd, char *why, size_t size)
{
	struct opened o = { .fd = fd };
	int rc = open_all(&o);

	if (rc != 0) {
		snprintf(why, size, "the image cannot be used: %s",
		    strerror(-rc));
		close(fd);
		return rc;
	}
	rc = p->policy == NULL ? 0 : keep_fixed(p, &o, why, size);
	if (rc != 0) {
		if (o.fd >= 0)
			close_all(&o);
		return rc;
	}
	if (p->policy != NULL) {
		p->change = change_find(p->policy, o.policy, say_change, NULL);
		policy_free(p->policy);
		munmap(p->image, p->image_bytes);
		close(p->image_fd);
	}
	p->policy = o.policy;
	p->image = o.image;
	p->image_bytes = o.bytes;
	p->image_fd = o.fd;
	p->settings = o.s;
	p->generation = policy_generation(o.policy);
	p->stale = false;
	log_init("parent", (enum log_level)o.s.log_level);
	for (unsigned i = 0; i < p->n_children; i++)
		child_give(&p->children[i], GIVE_POLICY, 0, o.fd);
	return 0;
}

/* Escaped by problem_print in the role that read the files. */
static void
say_problems(struct parent *p, int fd, bool refused)
{
	static char text[PROBLEMS_MAX_BYTES + 1];
	ssize_t n = pread(fd, text, PROBLEMS_MAX_BYTES, 0);
	char *line = text, *end = NULL;

	if (n <= 0)
		return;
	text[n] = '\0';
	if (p->phase == PHASE_COMPILE) {
		fputs(text, stderr);
		return;
	}
	while ((line = strtok_r(line, "\n", &end)) != NULL) {
		log_line(refused && strstr(line, "error: ") != NULL ?
		    LOG_ERROR_ : LOG_WARN, "%s", line);
		line = NULL;
	}
}

static void
say_adopted(struct parent *p, const struct ipc_compiled *c, uint64_t before)
{
	char digest[2 * POLICY_DIGEST_BYTES + 1], lab[256], asked[256];
	const char *why;

	told_lab(p->policy, lab, sizeof(lab));
	for (size_t i = 0; i < POLICY_DIGEST_BYTES; i++)
		snprintf(digest + 2 * i, 3, "%02x",
		    policy_digest(p->policy)[i]);
	if (p->phase == PHASE_COMPILE) {
		if (c->used_env != 0)
			log_line(LOG_INFO_, "configuration from the "
			    "environment:%s%s%s%s",
			    c->used_env & CONFIG_USED_CELL ?
			    " PENSTOCK_CELL" : "",
			    c->used_env & CONFIG_USED_LABELS ?
			    " PENSTOCK_LABELS" : "",
			    c->used_env & CONFIG_USED_POLICY ?
			    " RUNEWARD_EGRESS_POLICY" : "",
			    c->used_env & CONFIG_USED_RESOLVERS ?
			    " RUNEWARD_DNS_RESOLVERS" : "");
		return;
	}
	why = settings_unenforced_text(told_unenforced(p));
	log_line(LOG_INFO_, "policy in use generation=%" PRIu64
	    " before=%" PRIu64 " digest=%s cells=%zu warnings=%u %s%s%s%s",
	    p->generation, before, digest, policy_cells(p->policy),
	    c->warnings, why[0] == '\0' ? "enforcing" : "NOT ENFORCING: ",
	    why, lab[0] != '\0' ? " lab=" : "", lab);
	if (p->waits_for_start[0] != '\0')
		log_line(LOG_WARN, "NOT IN USE before a new start, as changed: "
		    "%s; everything else is in use", p->waits_for_start);
	told_resolvers(p, asked, sizeof(asked));
	log_line(LOG_INFO_, "names are asked of %s", asked);
	told_note(p, RECORD_POLICY, "in use: rules +%u -%u ~%u, orders ~%u, "
	    "keys ~%u, cells +%u -%u, names in files +%u -%u; %s%s; names are "
	    "asked of %s",
	    p->change.rules_added, p->change.rules_removed,
	    p->change.rules_changed, p->change.orders, p->change.keys,
	    p->change.cells_added, p->change.cells_removed,
	    p->change.names_added, p->change.names_removed,
	    why[0] == '\0' ? "enforcing" : "not enforcing: ", why, asked);
	if (p->waits_for_start[0] != '\0')
		told_note(p, RECORD_POLICY, "not in use before a new start: "
		    "%s", p->waits_for_start);
}

/* ---- what is this host's own ---- */

static void
own_arm(struct parent *p, int64_t ms)
{
	const struct timeval t = { .tv_sec = ms / 1000,
	    .tv_usec = ms % 1000 * 1000 };

	if (!evtimer_pending(p->own_look, NULL) &&
	    event_add(p->own_look, &t) != 0)
		parent_fail(p, 1);
}

static void
on_heard(evutil_socket_t fd, short what, void *arg)
{
	struct parent *p = arg;

	(void)what;
	rtnl_forget((int)fd);
	own_arm(p, clock_mono_ms() - p->own_ms < OWN_PAUSE_MS ?
	    OWN_PAUSE_MS : OWN_SOON_MS);
}

static void
on_look(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	reload_own(arg);
}

/* From before the first list is made, so that no change falls between. */
int
reload_watch(struct parent *p)
{
	p->own_look = evtimer_new(p->base, on_look, p);
	if (p->own_look == NULL)
		return -ENOMEM;
	p->own_fd = rtnl_listen();
	if (p->own_fd < 0) {
		log_line(LOG_WARN, "changes of this host's addresses and "
		    "routes are not heard of, and looked for each %d s "
		    "error=%s", OWN_DEAF_MS / 1000, strerror(-p->own_fd));
		return 0;
	}
	p->own_heard = event_new(p->base, p->own_fd, EV_READ | EV_PERSIST,
	    on_heard, p);
	return p->own_heard == NULL || event_add(p->own_heard, NULL) != 0 ?
	    -ENOMEM : 0;
}

/* The policy in use with another list: nothing else of it is read anew. */
static int
own_adopt(struct parent *p, const struct own *o, char *why, size_t size)
{
	const bool stale = p->stale;
	char waits[sizeof(p->waits_for_start)];
	uint8_t *copy = malloc(p->image_bytes);
	int fd, rc;

	snprintf(why, size, "no memory");
	if (copy == NULL)
		return -ENOMEM;
	memcpy(copy, p->image, p->image_bytes);
	policy_set_own(copy, o->at, o->n, o->n_gateways,
	    ++p->last_generation);
	fd = ipc_sealed("penstock-image", span_of(copy, p->image_bytes));
	free(copy);
	if (fd < 0)
		return fd;
	memcpy(waits, p->waits_for_start, sizeof(waits));
	rc = adopt(p, fd, why, size);
	p->stale = stale;	/* the files were not looked at */
	memcpy(p->waits_for_start, waits, sizeof(waits));
	return rc;
}

static void
own_say(struct parent *p, const struct own *o)
{
	log_line(LOG_INFO_, "policy in use generation=%" PRIu64 ": this "
	    "host has other addresses or gateways addresses=%zu "
	    "gateways=%zu", p->generation, o->n - o->n_gateways -
	    p->settings.n_listeners - p->settings.n_dns, o->n_gateways);
	told_note(p, RECORD_POLICY, "in use: this host has other "
	    "addresses or gateways");
}

/* What cannot be refused is said, once for each time that it changes. */
void
reload_own(struct parent *p)
{
	char why[160];
	struct own o;
	int rc;

	if (p->phase != PHASE_SERVING || p->compile.pid > 0)
		return;		/* its end comes back here */
	p->own_ms = clock_mono_ms();
	rc = own_list(&o);
	if (rc == 0)
		rc = own_add(&o, &p->settings);
	if (rc == 0 && !policy_own_is(p->policy, o.at, o.n, o.n_gateways)) {
		rc = own_adopt(p, &o, why, sizeof(why));
		if (rc == 0)
			own_say(p, &o);
	}
	if (rc != 0 && rc != p->own_err) {
		snprintf(why, sizeof(why), "this host's addresses and "
		    "gateways cannot be taken into it: %s", strerror(-rc));
		refuse(p, why);
	}
	p->own_err = rc;
	if (p->own_fd < 0 || rc != 0)
		own_arm(p, OWN_DEAF_MS);
}
