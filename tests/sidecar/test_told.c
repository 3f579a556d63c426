/* SPDX-License-Identifier: Apache-2.0 */
/* What the parent lets others know of it: records, health, the service
 * manager.  The parent is one that the test has put together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "sidecar/health.h"
#include "sidecar/notify.h"
#include "sidecar/parent_part.h"

#define RULES "network:\n%s  rule:\n" \
	"    - {verdict: allow, hostname: a.example}\n"

static struct parent p;
static struct emit_reader *records;
static struct emit_state *recorder;
static uint8_t *image;
static int manager;
static char text[512];

/* A policy of as many cells as there are texts to put into RULES. */
static void
use_policy(const char *const *more, size_t n)
{
	struct problems *ps = problem_new();
	struct charter *charters[4];
	const struct charter *list[4];
	struct policy_cell_source cells[4] = { { .n_charters = 1 } };
	struct policy_source src = { .cells = cells, .n_cells = n,
	    .generation = 42, .digest = { 7 }, .now_s = time(NULL) };
	char rules[8192];
	size_t len;

	policy_free(p.policy);
	free(image);
	for (size_t i = 0; i < n; i++) {
		snprintf(rules, sizeof(rules), RULES, more[i]);
		charters[i] = charter_load("p.yaml", span_str(rules), true,
		    NULL, ps);
		assert_non_null(charters[i]);
		list[i] = charters[i];
		cells[i].charters = &list[i];
		cells[i].n_charters = 1;
		snprintf(cells[i].id, sizeof(cells[i].id), "c%zu", i);
		cells[i].from.kind = CELL_FROM_LISTENER;
		snprintf(cells[i].from.listener,
		    sizeof(cells[i].from.listener), "l%zu", i);
	}
	if (policy_build(&src, &image, &len, ps) != 0) {
		problem_print(ps, stderr);
		fail();
	}
	assert_int_equal(policy_open(&p.policy, span_of(image, len)), 0);
	for (size_t i = 0; i < n; i++)
		charter_free(charters[i]);
	problem_free(ps);
}

static void
listen_as_manager(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int n = snprintf(text, sizeof(text), "@test_told.%d", (int)getpid());

	memcpy(sa.sun_path + 1, text + 1, (size_t)n - 1);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(manager, (struct sockaddr *)&sa,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
	    (size_t)n)), 0);
	setenv("NOTIFY_SOCKET", text, 1);
	setenv("WATCHDOG_USEC", "1000000", 1);
	notify_init();
}

static const char *
heard(void)
{
	ssize_t n = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void
children(void)
{
	p.n_engines = 2;
	p.n_children = CHILD_ENGINE + 2;
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		struct child *c = &p.children[i];

		c->parent = &p;
		c->kind = i >= CHILD_ENGINE ? ROLE_ENGINE :
		    i == CHILD_RECORDER ? ROLE_RECORDER :
		    i == CHILD_RESOLVER ? ROLE_RESOLVER :
		    i == CHILD_ADMIN ? ROLE_ADMIN : ROLE_WARDEN;
		c->index = i >= CHILD_ENGINE ? i - CHILD_ENGINE : 0;
		c->pid = (pid_t)(1000 + i);
		c->started_ms = 1;
		c->ready = c->wrote = true;
	}
}

/* One that serves, in mode shared, with rules that are watched and stand. */
static int
up(void **state)
{
	static const char *const plain[] = { "" };
	int ring = emit_ring_create(1 << 20), page = emit_state_create();
	int health = health_create();

	(void)state;
	memset(&p, 0, sizeof(p));
	image = NULL;
	p.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(emit_open(&p.emit, ring, page, p.wake), 0);
	assert_int_equal(emit_reader_open(&records, ring), 0);
	assert_int_equal(emit_state_open(&recorder, page), 0);
	emit_state_beat(recorder, true);
	assert_int_equal(health_open(&p.health, health, true), 0);
	close(ring);
	close(page);
	close(health);
	children();
	use_policy(plain, 1);
	p.generation = 42;
	p.phase = PHASE_SERVING;
	p.settings.mode = MODE_SHARED;
	p.ready_due = true;
	p.watched = p.rules_ok = p.rules_told = true;
	p.rules_ms = clock_mono_ms();
	listen_as_manager();
	return 0;
}

static int
down(void **state)
{
	(void)state;
	emit_close(p.emit);
	emit_reader_close(records);
	health_close(p.health);
	policy_free(p.policy);
	free(image);
	close(p.wake);
	close(manager);
	return 0;
}

/* The next record that was put; NULL: none. */
static const struct record *
next(void)
{
	uint64_t lost = 0;
	const struct record *r = emit_next(records, &lost);

	assert_int_equal(lost, 0);
	emit_commit(records);
	return r;
}

static void
is_text(const struct record *r, enum record_text which, const char *want)
{
	struct span s = record_get(r, which);

	if (!span_eq(s, span_str(want)))
		fail_msg("'%.*s' is not '%s'", (int)s.len, s.data, want);
}

/* ---- records ---- */

static void
a_note_is_a_record_with_the_policy_of_now(void **state)
{
	static const char *const lab[] = { "  lab: [203.0.113.0/24]\n" };
	const struct record *r;
	uint64_t woken = 0;

	(void)state;
	use_policy(lab, 1);
	told_note(&p, RECORD_ROLE, "engine %u ended", 3u);
	r = next();
	assert_non_null(r);
	assert_int_equal(r->kind, RECORD_ROLE);
	assert_int_equal(r->generation, 42);
	assert_int_equal(r->digest[0], 7);
	assert_int_not_equal(r->wall_us, 0);
	is_text(r, TEXT_DETAIL, "engine 3 ended");
	is_text(r, TEXT_CELL, "");
	is_text(r, TEXT_LAB, "");
	/* the recorder was woken for it */
	assert_int_equal(read(p.wake, &woken, sizeof(woken)), 8);
	told_note(&p, RECORD_START, "started");
	is_text(next(), TEXT_LAB, "203.0.113.0/24");
	told_note(&p, RECORD_POLICY, "in use");
	is_text(next(), TEXT_LAB, "203.0.113.0/24");
	/* before there is a policy, and before there is a ledger */
	policy_free(p.policy);
	p.policy = NULL;
	told_note(&p, RECORD_START, "started");
	r = next();
	assert_int_equal(r->generation, 0);
	is_text(r, TEXT_LAB, "");
	emit_close(p.emit);
	p.emit = NULL;
	told_note(&p, RECORD_START, "started");
	assert_null(next());
}

static void
who_is_asked_is_told_and_who_said_so(void **state)
{
	static const char *const own[] = { "  resolvers: [198.18.0.53]\n" };
	struct settings *s = &p.settings;
	char said[64];

	(void)state;
	use_policy(own, 1);
	told_resolvers(&p, said, sizeof(said));
	assert_string_equal(said, "198.18.0.53:53 of the policy");
	assert_true(server_parse(&s->resolvers[0], span_str("10.0.0.1")));
	assert_true(server_parse(&s->resolvers[1],
	    span_str("tls://9.9.9.9#dns.test")));
	s->n_resolvers = 2;
	told_resolvers(&p, said, sizeof(said));
	assert_string_equal(said, "10.0.0.1:53, tls://9.9.9.9:853#dns.test "
	    "of RUNEWARD_DNS_RESOLV~");
	s->n_resolvers = 1;
	s->resolvers_system = true;
	told_resolvers(&p, said, sizeof(said));
	assert_string_equal(said, "10.0.0.1:53 of /etc/resolv.conf");
	s->n_resolvers = 0;
	s->resolvers_system = false;
}

static void
a_long_note_is_cut_and_says_so(void **state)
{
	char words[400];

	(void)state;
	for (size_t n = 250; n < 260; n++) {
		struct span s;

		memset(words, 'w', sizeof(words));
		words[n] = '\0';
		told_note(&p, RECORD_RULES, "%s", words);
		s = record_get(next(), TEXT_DETAIL);
		assert_int_equal(s.len, n < 255 ? n : 255);
		assert_int_equal(s.data[s.len - 1], n > 255 ? '~' : 'w');
	}
}

static void
each_lab_prefix_of_any_cell_is_told_once(void **state)
{
	static const char *const lab[] = {
		"  lab: [203.0.113.0/24, \"2001:db8::/32\"]\n", "",
		"  lab: [198.51.100.0/24, 203.0.113.0/24]\n" };
	static const char all[] =
	    "203.0.113.0/24,2001:db8::/32,198.51.100.0/24";
	char out[128];

	(void)state;
	told_lab(p.policy, out, sizeof(out));
	assert_string_equal(out, "");
	use_policy(lab, 3);
	told_lab(p.policy, out, sizeof(out));
	assert_string_equal(out, all);
	/* whole where there is room for it, and otherwise marked */
	for (size_t size = 2; size <= sizeof(all) + 1; size++) {
		memset(out, 'x', sizeof(out));
		told_lab(p.policy, out, size);
		assert_int_equal(out[size], 'x');
		if (size >= sizeof(all)) {
			assert_string_equal(out, all);
			continue;
		}
		assert_int_equal(strlen(out), size - 1);
		assert_int_equal(out[size - 2], '~');
		assert_memory_equal(out, all, size - 2);
	}
}

/* ---- does it enforce? ---- */

static void
why_it_does_not_enforce(void **state)
{
	(void)state;
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOTHING);
	p.rules_ok = false;
	assert_int_equal(told_unenforced(&p), UNENFORCED_RULES_LOST);
	/* a start is not over: it has not been said yet that it does */
	p.phase = PHASE_ENGINES;
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOTHING);
	p.phase = PHASE_SERVING;
	/* a warden that says nothing any more */
	p.rules_ok = true;
	p.rules_ms = clock_mono_ms() - 3 * WARDEN_MS + 1000;
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOTHING);
	p.rules_ms = clock_mono_ms() - 3 * WARDEN_MS;
	assert_int_equal(told_unenforced(&p), UNENFORCED_RULES_LOST);
	/* nobody looks at them */
	p.watched = false;
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOTHING);
	p.o.rules_external = true;
	assert_int_equal(told_unenforced(&p), UNENFORCED_RULES_EXTERNAL);
	p.settings.mode = MODE_GATEWAY;
	assert_int_equal(told_unenforced(&p), UNENFORCED_RULES_EXTERNAL);
	/* rules or none, that says more */
	p.settings.mode = MODE_COOPERATIVE;
	assert_int_equal(told_unenforced(&p), UNENFORCED_COOPERATIVE);
	p.settings.mode = MODE_ISOLATED;
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOT_PROVEN);
	policy_free(p.policy);
	p.policy = NULL;
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOT_STARTED);
}

static void
one_cell_that_reports_is_enough(void **state)
{
	time_t soon = time(NULL) + 30 * 86400;
	char report[128] = "", date[32];
	const char *more[2] = { "", report };
	struct tm tm;

	(void)state;
	use_policy(more, 2);
	assert_int_equal(told_unenforced(&p), UNENFORCED_NOTHING);
	gmtime_r(&soon, &tm);
	strftime(date, sizeof(date), "%Y-%m-%d", &tm);
	snprintf(report, sizeof(report),
	    "  default: report\n  report_until: %s\n", date);
	use_policy(more, 2);
	assert_int_equal(told_unenforced(&p), UNENFORCED_REPORTS);
}

/* ---- the kernel's rules ---- */

static void
lost_rules_are_told_once_and_once_when_they_are_back(void **state)
{
	struct ipc_rules lost = { .why = "table inet penstock is gone" };
	struct ipc_rules there = { .ok = 1 };
	const struct record *r;

	(void)state;
	told_rules(&p, &there);
	assert_null(next());
	for (int i = 0; i < 3; i++)
		told_rules(&p, &lost);
	r = next();
	assert_int_equal(r->kind, RECORD_RULES);
	is_text(r, TEXT_DETAIL, "lost: table inet penstock is gone");
	assert_null(next());
	for (int i = 0; i < 3; i++)
		told_rules(&p, &there);
	is_text(next(), TEXT_DETAIL, "in place again");
	assert_null(next());
	/* the warden ended: that is no assurance either */
	told_rules(&p, NULL);
	is_text(next(), TEXT_DETAIL, "lost: the role warden says nothing");
	told_rules(&p, &there);
	is_text(next(), TEXT_DETAIL, "in place again");
	/* it hangs: the parent's own look tells it */
	p.rules_ms = clock_mono_ms() - 3 * WARDEN_MS;
	told_health(&p);
	is_text(next(), TEXT_DETAIL, "lost: the role warden says nothing");
	assert_null(next());
}

static void
a_word_without_an_end_is_taken_with_one(void **state)
{
	struct ipc_rules lost = { 0 };

	(void)state;
	memset(lost.why, 'w', sizeof(lost.why));
	told_rules(&p, &lost);
	assert_int_equal(strlen(p.rules_why), IPC_WHY_BYTES - 1);
	assert_non_null(next());
}

static void
of_rules_that_nobody_looks_at_nothing_is_told(void **state)
{
	struct ipc_rules lost = { .why = "gone" };

	(void)state;
	p.watched = false;
	told_rules(&p, &lost);
	assert_null(next());
	/* nor before it serves, or while it ends */
	p.watched = true;
	p.phase = PHASE_ENGINES;
	told_rules(&p, &lost);
	p.phase = PHASE_DRAIN;
	told_rules(&p, &lost);
	assert_null(next());
	p.phase = PHASE_SERVING;
	told_health(&p);
	assert_non_null(next());
}

/* ---- health ---- */

static struct health
health(void)
{
	struct health h;

	told_health(&p);
	assert_true(health_read(p.health, &h));
	return h;
}

static void
health_says_what_is(void **state)
{
	int64_t now = clock_mono_ms();
	struct health h;

	(void)state;
	p.started_s = 1790000000;
	p.children[CHILD_ENGINE].restarts = 2;
	p.children[CHILD_RESOLVER].restarts = 3;
	strcpy(p.waits_for_start, "limits.connections");
	h = health();
	assert_int_equal(h.generation, 42);
	assert_int_equal(h.digest[0], 7);
	assert_in_range(h.beat_ms, now, clock_mono_ms());
	assert_int_equal(h.started_s, 1790000000);
	assert_int_equal(h.engines, 2);
	assert_int_equal(h.engines_ready, 2);
	assert_int_equal(h.restarts, 5);
	assert_true(h.serving && h.recorder_ready && h.resolver_ready &&
	    h.rules);
	assert_false(h.stale || h.draining);
	assert_int_equal(h.unenforced, UNENFORCED_NOTHING);
	assert_string_equal(h.waits_for_start, "limits.connections");
	/* the parent and each role that was ever started */
	assert_int_equal(h.n_roles, 7);
	assert_int_equal(h.roles[0].kind, ROLE_PARENT);
	assert_int_equal(h.roles[0].pid, getpid());
	assert_int_equal(h.roles[6].kind, ROLE_ENGINE);
	assert_int_equal(h.roles[6].index, 1);
	assert_int_equal(h.roles[6].pid, 1000 + CHILD_ENGINE + 1);
	p.children[CHILD_WARDEN].started_ms = 0;
	p.compile.kind = ROLE_COMPILE;
	p.compile.pid = 77;
	h = health();
	assert_int_equal(h.n_roles, 7);
	assert_int_equal(h.roles[6].kind, ROLE_COMPILE);
	assert_int_equal(h.roles[6].pid, 77);
}

/* Each of these alone makes it not ready; a role that does not turn is as
 * one that is away. */
static void
health_misses_what_is_away(void **state)
{
	struct health h;

	(void)state;
	p.children[CHILD_ENGINE].ready = false;
	assert_int_equal(health().engines_ready, 1);
	p.children[CHILD_ENGINE + 1].quiet = CHILD_QUIET - 1;
	assert_int_equal(health().engines_ready, 1);
	p.children[CHILD_ENGINE + 1].quiet = CHILD_QUIET;
	h = health();
	assert_int_equal(h.engines_ready, 0);
	assert_true(h.recorder_ready && h.resolver_ready);
	p.children[CHILD_RESOLVER].quiet = CHILD_QUIET;
	assert_false(health().resolver_ready);
	p.children[CHILD_RECORDER].wrote = false;
	assert_false(health().recorder_ready);
	p.children[CHILD_RECORDER].wrote = true;
	assert_true(health().recorder_ready);
	emit_state_beat(recorder, false);	/* its disk is full */
	assert_false(health().recorder_ready);
	p.phase = PHASE_DRAIN;
	h = health();
	assert_true(h.draining && !h.serving);
	p.stale = true;
	assert_true(health().stale);
	p.rules_ok = false;
	p.phase = PHASE_SERVING;
	assert_false(health().rules);
}

/* ---- the service manager ---- */

static void
readiness_is_said_once_when_it_is_so(void **state)
{
	(void)state;
	p.phase = PHASE_ENGINES;
	told_health(&p);
	assert_string_equal(heard(), "");
	/* not before a record is in the file */
	p.phase = PHASE_SERVING;
	p.children[CHILD_RECORDER].wrote = false;
	told_health(&p);
	assert_string_equal(heard(), "");
	p.children[CHILD_RECORDER].wrote = true;
	told_health(&p);
	assert_string_equal(heard(),
	    "READY=1\nSTATUS=serving, mode shared, generation 42");
	told_health(&p);
	assert_string_equal(heard(), "");
}

/* Once for all reloads in a row, and however they ended. */
static void
a_reload_ends_with_ready(void **state)
{
	(void)state;
	told_health(&p);
	(void)heard();
	p.ready_due = true;
	p.compile.pid = 77;
	told_health(&p);
	assert_string_equal(heard(), "");
	p.compile.pid = 0;
	p.reload_again = true;
	told_health(&p);
	assert_string_equal(heard(), "");
	p.reload_again = false;
	p.stale = true;
	/* the recorder that is being started anew has nothing to do with it */
	p.children[CHILD_RECORDER].wrote = false;
	told_health(&p);
	assert_string_equal(heard(), "READY=1\nSTATUS=policy refused, "
	    "generation 42 stays; the log says why");
	told_health(&p);
	assert_string_equal(heard(), "");
}

static void
fed(bool is)
{
	told_alive(&p);
	assert_string_equal(heard(), is ? "WATCHDOG=1" : "");
}

static void
the_watchdog_is_fed_while_something_can_be_allowed(void **state)
{
	(void)state;
	fed(true);
	p.children[CHILD_ENGINE].ready = false;
	fed(true);
	p.children[CHILD_ENGINE + 1].quiet = CHILD_QUIET;
	fed(false);
	assert_string_equal(p.starved, "no engine serves");
	p.children[CHILD_ENGINE].ready = true;
	fed(true);
	assert_null(p.starved);
	p.children[CHILD_RESOLVER].ready = false;
	fed(false);
	assert_string_equal(p.starved, "the resolver is away");
	/* a start, or an end, has limits of its own */
	p.phase = PHASE_DRAIN;
	fed(true);
	p.phase = PHASE_SERVING;
	p.children[CHILD_RESOLVER].ready = true;
	/* one that cannot write is alive: a new one could not either */
	emit_state_beat(recorder, false);
	fed(true);
	p.children[CHILD_RECORDER].ready = false;
	fed(false);
	assert_string_equal(p.starved, "the recorder does not turn");
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_note_is_a_record_with_the_policy_of_now),
		T(who_is_asked_is_told_and_who_said_so),
		T(a_long_note_is_cut_and_says_so),
		T(each_lab_prefix_of_any_cell_is_told_once),
		T(why_it_does_not_enforce),
		T(one_cell_that_reports_is_enough),
		T(lost_rules_are_told_once_and_once_when_they_are_back),
		T(a_word_without_an_end_is_taken_with_one),
		T(of_rules_that_nobody_looks_at_nothing_is_told),
		T(health_says_what_is),
		T(health_misses_what_is_away),
		T(readiness_is_said_once_when_it_is_so),
		T(a_reload_ends_with_ready),
		T(the_watchdog_is_fed_while_something_can_be_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
