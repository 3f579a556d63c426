/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/parent_part.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "ledger-client/log.h"
#include "sidecar/health.h"
#include "sidecar/notify.h"

#define TOLD_LAB_MAX 32u	/* further ones may be told twice */
#define RULES_STALE_MS (3 * WARDEN_MS)

/* Of all cells, each prefix once; what has no room ends in "~", as a text of
 * a record does. */
void
told_lab(const struct policy *p, char *out, size_t size)
{
	struct prefix seen[TOLD_LAB_MAX], lab[CHARTER_PREFIXES_MAX];
	char text[ADDR_TEXT_BYTES];
	size_t n_seen = 0, at = 0, k;

	out[0] = '\0';
	for (uint32_t c = 0; c < policy_cells(p); c++)
		for (size_t n = policy_lab(p, c, lab, CHARTER_PREFIXES_MAX),
		    i = 0; i < n; i++) {
			for (k = 0; k < n_seen; k++)
				if (seen[k].bits == lab[i].bits &&
				    addr_eq(&seen[k].base, &lab[i].base))
					break;
			if (k < n_seen || at >= size)
				continue;
			if (n_seen < TOLD_LAB_MAX)
				seen[n_seen++] = lab[i];
			at += (size_t)snprintf(out + at, size - at, "%s%s",
			    at > 0 ? "," : "", prefix_text(&lab[i], text));
		}
	if (at >= size)
		out[size - 2] = '~';
}

/* What has no room ends as in told_lab. */
void
told_resolvers(const struct parent *p, char *out, size_t size)
{
	struct server list[POLICY_RESOLVERS_MAX];
	const struct settings *s = &p->settings;
	size_t n = s->n_resolvers, at = 0;
	char text[SERVER_TEXT_BYTES];

	if (n > 0)
		memcpy(list, s->resolvers, n * sizeof(list[0]));
	else
		n = policy_resolvers(p->policy, list);
	out[0] = '\0';
	for (size_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s",
		    i > 0 ? ", " : "", server_text(&list[i], text));
	if (at < size)
		at += (size_t)snprintf(out + at, size - at, " of %s",
		    s->resolvers_system ? "/etc/resolv.conf" :
		    s->n_resolvers > 0 ? "RUNEWARD_DNS_RESOLVERS" :
		    "the policy");
	if (at >= size)
		out[size - 2] = '~';
}

void
told_note(struct parent *p, enum record_kind kind, const char *fmt, ...)
{
	static struct record r;
	/* one more than a record takes, so that it marks the cut */
	char text[RECORD_TEXT_MAX_BYTES + 2], lab[RECORD_TEXT_MAX_BYTES + 1];
	va_list ap;

	if (p->emit == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	record_init(&r, kind);
	record_stamp(&r);
	if (p->policy != NULL)
		record_policy(&r, p->policy, CELL_NONE, RULE_NONE);
	record_set(&r, TEXT_DETAIL, span_str(text));
	if (p->policy != NULL &&
	    (kind == RECORD_START || kind == RECORD_POLICY)) {
		told_lab(p->policy, lab, sizeof(lab));
		record_set(&r, TEXT_LAB, span_str(lab));
	}
	emit_note(p->emit, &r);
	emit_flush(p->emit);
}

/* A warden that says nothing is no assurance. */
static bool
rules_stand(const struct parent *p)
{
	return !p->watched || p->phase < PHASE_SERVING || (p->rules_ok &&
	    clock_mono_ms() - p->rules_ms < RULES_STALE_MS);
}

/* What readyz, status, metrics, the log and the records say of it. */
enum settings_unenforced
told_unenforced(const struct parent *p)
{
	enum settings_mode m = p->settings.mode;
	enum settings_unenforced why;

	if (p->policy == NULL)
		return UNENFORCED_NOT_STARTED;
	why = settings_unenforced(&p->settings, p->policy,
	    (int64_t)time(NULL));
	if (why != UNENFORCED_NOTHING)
		return why;
	if (p->o.rules_external && (m == MODE_SHARED || m == MODE_GATEWAY))
		return UNENFORCED_RULES_EXTERNAL;
	return rules_stand(p) ? UNENFORCED_NOTHING : UNENFORCED_RULES_LOST;
}

/* Once when they go and once when they are back; where nobody looks at them
 * nothing is said of them. */
static void
say_rules(struct parent *p)
{
	bool ok = rules_stand(p);
	const char *why = p->rules_ms > 0 && !p->rules_ok ? p->rules_why :
	    "the role warden says nothing";

	if (!p->watched || ok == p->rules_told ||
	    p->phase != PHASE_SERVING)
		return;
	p->rules_told = ok;
	if (ok) {
		log_line(LOG_WARN, "the kernel's rules stand again");
		told_note(p, RECORD_RULES, "in place again");
		return;
	}
	log_line(LOG_ERROR_, "RULES LOST, mode %s is not enforced: %s; once it "
	    "is clear who did it, penstock rules apply loads them again",
	    settings_mode_word(p->settings.mode), why);
	told_note(p, RECORD_RULES, "lost: %s", why);
}

void
told_rules(struct parent *p, const struct ipc_rules *r)
{
	p->rules_ok = r != NULL && r->ok != 0;
	p->rules_ms = r != NULL ? clock_mono_ms() : 0;
	if (r != NULL)
		snprintf(p->rules_why, sizeof(p->rules_why), "%.*s",
		    (int)sizeof(r->why) - 1, r->why);
	say_rules(p);
}

static void
list_role(struct health *h, const struct child *c)
{
	h->roles[h->n_roles++] = (struct health_role){
		.kind = c->kind, .index = c->index, .pid = (int32_t)c->pid,
		.ready = child_turns(c), .restarts = c->restarts,
	};
	h->restarts += c->restarts;
}

static void
list_roles(struct health *h, const struct parent *p)
{
	h->roles[h->n_roles++] = (struct health_role){
		.kind = ROLE_PARENT, .pid = (int32_t)getpid(), .ready = true,
	};
	for (unsigned i = 0; i < p->n_children; i++)
		if (p->children[i].started_ms > 0)
			list_role(h, &p->children[i]);
	if (p->compile.pid > 0)
		list_role(h, &p->compile);
}

/* The service manager hears it first when readyz says it, and then once for
 * all reloads that it was told of, however they ended. */
static void
say_ready(struct parent *p)
{
	if (!p->ready_due || p->phase != PHASE_SERVING ||
	    p->compile.pid > 0 || p->reload_again ||
	    (!p->ready_told && !p->children[CHILD_RECORDER].wrote))
		return;
	p->ready_due = false;
	p->ready_told = true;
	if (p->stale)
		notify_status("READY=1", "policy refused, generation %" PRIu64
		    " stays; the log says why", p->generation);
	else
		notify_status("READY=1", "serving, mode %s, generation %"
		    PRIu64, settings_mode_word(p->settings.mode),
		    p->generation);
}

void
told_health(struct parent *p)
{
	struct health h = {
		.generation = p->generation, .beat_ms = clock_mono_ms(),
		.started_s = p->started_s, .engines = p->n_engines,
		.engines_ready = parent_engines_ready(p),
		.serving = p->phase == PHASE_SERVING,
		.recorder_ready = p->children[CHILD_RECORDER].ready &&
		    p->children[CHILD_RECORDER].wrote &&
		    p->emit != NULL && emit_ready(p->emit),
		.rules = rules_stand(p),
		.resolver_ready = child_turns(&p->children[CHILD_RESOLVER]),
		.stale = p->stale, .draining = p->phase >= PHASE_DRAIN,
		.unenforced = told_unenforced(p),
	};

	memcpy(h.waits_for_start, p->waits_for_start,
	    sizeof(h.waits_for_start));
	list_roles(&h, p);
	say_rules(p);
	if (p->policy != NULL)
		memcpy(h.digest, policy_digest(p->policy), sizeof(h.digest));
	health_write(p->health, &h);
	say_ready(p);		/* who hears it finds readyz say so */
}

/* What everything is denied without, so that a start anew costs nobody
 * anything; NULL: all is there.  How long a start or an end takes has limits
 * of its own. */
static const char *
missing(const struct parent *p)
{
	const struct child *recorder = &p->children[CHILD_RECORDER];

	if (p->phase != PHASE_SERVING)
		return NULL;
	if (!recorder->ready || !emit_recorder_lives(p->emit))
		return "the recorder does not turn";
	if (!child_turns(&p->children[CHILD_RESOLVER]))
		return "the resolver is away";
	return parent_engines_ready(p) > 0 ? NULL : "no engine serves";
}

void
told_alive(struct parent *p)
{
	const char *why = missing(p);

	if (!notify_is_watched())
		return;
	if (why == NULL)
		notify_alive();
	else if (why != p->starved)
		log_line(LOG_ERROR_, "everything is denied: %s; the service "
		    "manager ends the daemon if that lasts", why);
	p->starved = why;
}
