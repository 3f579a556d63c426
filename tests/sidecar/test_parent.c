/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as it is started, in a network namespace of its own: what each
 * role has left, what happens when one dies, reloads, ends.
 */
#include "sidecar/parent.h"

#include "tests/sidecar/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int notify_fd = -1;

static void
expect_status(pid_t pid, const char *key, const char *value)
{
	char path[64], want[128];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	snprintf(want, sizeof(want), "\n%s:\t%s", key, value);
	if (strstr(get(path), want) == NULL)
		fail_msg("no \"%s: %s\" in %s", key, value, get(path));
}

static void
expect_maps_without(pid_t pid, const char *library)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	assert_true(strstr(get(path), "libc.so") != NULL);
	if (strstr(get(path), library) != NULL)
		fail_msg("%d maps %s", (int)pid, library);
}

/* Of what each producer or engine has its own of, a role may write its own, and
 * sees so many more. */
static void
expect_own(pid_t pid, const char *what, unsigned own, unsigned others)
{
	unsigned writable = 0, seen = 0;
	char path[64], *line, *rest;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	for (line = strtok_r((char *)(uintptr_t)get(path), "\n", &rest);
	    line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		if (strstr(line, what) == NULL)
			continue;
		seen++;
		writable += strstr(line, " rw-s") != NULL;
	}
	assert_int_equal(writable, own);
	assert_int_equal(seen, own + others);
}

/* ---- the manual's table ---- */

static const struct {
	const char *role, *uid;
} roles[] = {
	{ "recorder", "1339\t1339\t1339\t1339" },
	{ "resolver", "1338\t1338\t1338\t1338" },
	{ "engine", "1337\t1337\t1337\t1337" },
	{ "admin", "1340\t1340\t1340\t1340" },
};

static void
expect_confined(pid_t pid, const char *uid)
{
	assert_true(pid > 0);
	expect_status(pid, "Uid", uid);
	expect_status(pid, "Groups", " \n");
	expect_status(pid, "CapInh", "0000000000000000");
	expect_status(pid, "CapPrm", "0000000000000000");
	expect_status(pid, "CapEff", "0000000000000000");
	expect_status(pid, "CapBnd", "0000000000000000");
	expect_status(pid, "CapAmb", "0000000000000000");
	expect_status(pid, "NoNewPrivs", "1");
	expect_status(pid, "Seccomp", "2");
	expect_maps_without(pid, "libnftables");
}

static void
each_role_has_left_what_the_manual_says(void **state)
{
	(void)state;
	start_ready(0);
	for (size_t i = 0; i < 4; i++)
		expect_confined(role_pid(roles[i].role, 0), roles[i].uid);
	assert_true(role_pid("engine", 1) > 0);
	/* the admin: of two engines, and each other role */
	for (size_t i = 0; i < 4; i++)
		expect_own(role_pid(roles[i].role, 0), "penstock-counts", 1,
		    i < 3 ? 0 : 6);
	for (size_t i = 0; i < 4; i++)
		expect_own(role_pid(roles[i].role, 0), "penstock-limits",
		    i == 2, i == 2);
	assert_int_equal(role_pid("compile", 0), 0);
	/* SETUID, SETGID and KILL */
	expect_status(daemon_pid, "CapEff", "00000000000000e0");
	expect_status(daemon_pid, "CapBnd", "00000000000000e0");
	expect_status(daemon_pid, "NoNewPrivs", "1");
	expect_maps_without(daemon_pid, "libnftables");
	assert_int_equal(stop(), 0);
}

/* Root's ledger directory does not make a recorder that is root. */
static void
the_recorder_of_a_ledger_of_root_s_has_its_own_uid(void **state)
{
	char text[512], path[256], old[256];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/ledger", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(text, sizeof(text), CONFIG "ledger: {dir: %s}\n", path);
	put("penstock.yaml", text);
	start_ready(0);
	expect_confined(role_pid("recorder", 0), roles[0].uid);
	/* and the file can be put aside */
	snprintf(path, sizeof(path), "%s/ledger/records.jsonl", dir);
	snprintf(old, sizeof(old), "%s/ledger/old", dir);
	pause_ms(300);
	assert_true(strstr(get(path), "\"kind\":\"start\"") != NULL);
	assert_int_equal(rename(path, old), 0);
	kill(daemon_pid, SIGUSR1);
	expect_log("reopened records.jsonl");
	/* one that is started anew goes on in it */
	kill(role_pid("recorder", 0), SIGKILL);
	for (int i = 0; i < WAIT_MS / 20 && (stat(path, &st) != 0 ||
	    strstr(get(path), "recorder 0 started again") == NULL); i++)
		pause_ms(20);
	assert_true(strstr(get(path), "recorder 0 started again") != NULL);
	expect_status(role_pid("recorder", 0), "Uid", roles[0].uid);
	assert_int_equal(stop(), 0);
	assert_true(strstr(get(path), "\"kind\":\"stop\"") != NULL);
	unlink(path);
	unlink(old);
	snprintf(path, sizeof(path), "%s/ledger", dir);
	rmdir(path);
	put("penstock.yaml", CONFIG);
}

static void
remove_ledger(const char *path)
{
	char file[256];

	snprintf(file, sizeof(file), "%s/records.jsonl", path);
	unlink(file);
	rmdir(path);
}

/* Of root's the recorder has the file, of another's the directory. */
static void
with_ledger_of(uid_t owner, void (*then)(void))
{
	char text[512], path[128];

	path_of(path, "ledger");
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chown(path, owner, owner), 0);
	snprintf(text, sizeof(text), CONFIG "ledger: {dir: %s}\n", path);
	put("penstock.yaml", text);
	then();
	remove_ledger(path);
	put("penstock.yaml", CONFIG);
}

static void
expect_one_writer(void)
{
	pid_t first, recorder = 0;

	start_ready(0);
	first = role_pid("recorder", 0);
	assert_true(first > 0);
	assert_int_equal(end_of(start(external, 0)), 78);
	assert_true(logged("ledger.dir is in use by another penstock dir=/"));
	assert_int_equal(role_pid("recorder", 0), first);
	/* a recorder started anew has no need of the lock */
	kill(first, SIGKILL);
	for (int i = 0; i < WAIT_MS / 20; i++) {
		recorder = role_pid("recorder", 0);
		if (recorder > 0 && recorder != first)
			break;
		pause_ms(20);
	}
	assert_true(recorder > 0 && recorder != first);
	assert_int_equal(stop(), 0);
}

/* Also while a role of the dead one lives on. */
static void
expect_free_after_a_kill(void)
{
	pid_t recorder;

	start_ready(0);
	recorder = role_pid("recorder", 0);
	assert_true(recorder > 0);
	kill(recorder, SIGSTOP);
	kill(daemon_pid, SIGKILL);
	assert_int_equal(end_of(daemon_pid), 1000 + SIGKILL);
	start_ready(0);
	kill(recorder, SIGKILL);
	assert_int_equal(stop(), 0);
}

static void
one_ledger_has_one_penstock(void **state)
{
	(void)state;
	with_ledger_of(0, expect_one_writer);
	with_ledger_of(1500, expect_one_writer);
}

static void
one_admin_socket_has_one_penstock(void **state)
{
	char text[512], path[128];
	struct stat first, now;

	(void)state;
	path_of(path, "admin.sock");
	snprintf(text, sizeof(text), CONFIG "admin: unix:%s\n", path);
	put("penstock.yaml", text);
	start_ready(0);
	assert_int_equal(stat(path, &first), 0);
	assert_int_equal(end_of(start(external, 0)), 1);
	snprintf(text, sizeof(text), "cannot listen admin=unix:%s error="
	    "Address already in use: another process serves there", path);
	assert_true(logged(text));
	assert_int_equal(stat(path, &now), 0);
	assert_int_equal(first.st_ino, now.st_ino);
	assert_int_equal(stop(), 0);
	/* what it left is no hindrance */
	start_ready(0);
	assert_int_equal(stop(), 0);
	unlink(path);
}

static void
the_ledger_of_one_that_was_killed_is_free(void **state)
{
	(void)state;
	with_ledger_of(0, expect_free_after_a_kill);
	with_ledger_of(1500, expect_free_after_a_kill);
}

static void
one_uid_without_privilege_serves_too(void **state)
{
	(void)state;
	start_ready(1337);
	for (size_t i = 0; i < 4; i++) {
		pid_t pid = role_pid(roles[i].role, 0);

		expect_status(pid, "Uid", roles[2].uid);
		expect_status(pid, "CapEff", "0000000000000000");
		expect_status(pid, "NoNewPrivs", "1");
		expect_status(pid, "Seccomp", "2");
	}
	assert_int_equal(stop(), 0);
}

static void
a_role_that_dies_is_recorded_and_started_again(void **state)
{
	char path[128], want[64];

	(void)state;
	start_ready(0);
	for (size_t i = 0; i < 4; i++) {
		pid_t before = role_pid(roles[i].role, 0), after = before;

		assert_true(before > 0);
		kill(before, SIGKILL);
		for (int k = 0; k < WAIT_MS / 20 &&
		    (after == before || after == 0); k++) {
			pause_ms(20);
			after = role_pid(roles[i].role, 0);
			if (strcmp(roles[i].role, "engine") == 0 &&
			    role_pid("engine", 1) == 0)
				after = 0;
		}
		assert_true(after > 0 && after != before);
		pause_ms(300);
		after = role_pid(roles[i].role, 0);
		expect_status(after, "Uid", roles[i].uid);
		expect_status(after, "CapPrm", "0000000000000000");
		expect_status(after, "Seccomp", "2");
		snprintf(want, sizeof(want), "role ended role=%s",
		    roles[i].role);
		assert_true(logged(want));
	}
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_non_null(strstr(get(path), "\"kind\":\"role\""));
	assert_non_null(strstr(get(path), "engine 0 started again"));
	assert_non_null(strstr(get(path), "recorder 0 started again"));
}

/* It keeps what is open and can open nothing more. */
static void
take_descriptors(bool take)
{
	static struct rlimit had;
	struct rlimit none;

	if (!take) {
		assert_int_equal(prlimit(daemon_pid, RLIMIT_NOFILE, &had,
		    NULL), 0);
		return;
	}
	assert_int_equal(prlimit(daemon_pid, RLIMIT_NOFILE, NULL, &had), 0);
	none = (struct rlimit){ .rlim_cur = 3, .rlim_max = had.rlim_max };
	assert_int_equal(prlimit(daemon_pid, RLIMIT_NOFILE, &none, NULL), 0);
}

static void
a_role_that_cannot_be_started_is_tried_again(void **state)
{
	(void)state;
	start_ready(0);
	take_descriptors(true);
	kill(role_pid("admin", 0), SIGKILL);
	expect_log("role not started role=admin");
	take_descriptors(false);
	for (int i = 0; i < WAIT_MS / 20 && role_pid("admin", 0) == 0; i++)
		pause_ms(20);
	assert_true(role_pid("admin", 0) > 0);
	assert_int_equal(stop(), 0);
}

/* About 12 seconds: what is tried again with more and more time between. */
static void
a_role_that_does_not_stay_ends_the_daemon(void **state)
{
	char path[128];
	pid_t p;
	int kills = 0, status = 0;

	(void)state;
	start_ready(0);
	for (int i = 0; i < 3 * WAIT_MS / 20 &&
	    waitpid(daemon_pid, &status, WNOHANG) != daemon_pid; i++) {
		p = role_pid("admin", 0);
		if (p > 0 && kill(p, SIGKILL) == 0)
			kills++;
		pause_ms(20);
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	daemon_pid = 0;
	assert_true(kills >= 8);
	assert_true(logged("role does not stay role=admin"));
	path_of(path, "out");
	assert_non_null(strstr(get(path), "admin 0 does not stay"));
	/* in order: the records are out */
	assert_non_null(strstr(get(path), "status=1"));
}

static void
B073_a_policy_that_does_not_compile_changes_nothing(void **state)
{
	static const char *const bad[] = {
		"", "version: 1\n", "version: 1\nnetwork: {}\n", "{",
		POLICY "  bogus: 1\n",
	};

	(void)state;
	start_ready(0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char want[80];

		put("policy.yaml", bad[i]);
		kill(daemon_pid, SIGHUP);
		pause_ms(300);
		snprintf(want, sizeof(want),
		    "policy refused, generation 1 stays");
		expect_log(want);
	}
	assert_true(logged("stays: it did not compile, errors=1"));
	assert_false(logged("policy in use"));
	put("policy.yaml", POLICY "    - {verdict: allow, hostname: "
	    "b.example.com}\n");
	kill(daemon_pid, SIGHUP);
	expect_log("policy in use generation=7 before=1");
	pause_ms(200);
	assert_false(logged("new policy not taken"));
	for (size_t i = 0; i < 4; i++)
		assert_true(role_pid(roles[i].role, 0) > 0);
	assert_false(logged("role ended"));
	assert_int_equal(stop(), 0);
}

/* What counts as public here is told with each policy. */
static void
lab_prefixes_are_shown(void **state)
{
	char path[128];

	(void)state;
	start_ready(0);
	assert_false(logged("lab="));
	put("policy.yaml", POLICY
	    "  lab: [203.0.113.0/24, 198.18.0.0/16]\n");
	kill(daemon_pid, SIGHUP);
	expect_log(" lab=203.0.113.0/24,198.18.0.0/16");
	put("policy.yaml", "{");
	kill(daemon_pid, SIGHUP);
	expect_log("policy refused");
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_null(strstr(get(path), "\"kind\":\"start\",\"lab\""));
	assert_non_null(strstr(get(path), "\"lab\":[\"203.0.113.0/24\","
	    "\"198.18.0.0/16\"],\"detail\":\"in use"));
	assert_non_null(strstr(get(path), "\"lab\":[\"203.0.113.0/24\","
	    "\"198.18.0.0/16\"],\"detail\":\"refused"));
	put("policy.yaml", POLICY "  lab: [203.0.113.0/24]\n");
	start_ready(0);
	assert_true(logged(" lab=203.0.113.0/24"));
	assert_int_equal(stop(), 0);
	assert_non_null(strstr(get(path), "\"lab\":[\"203.0.113.0/24\"],"
	    "\"detail\":\"version="));
}

static void
in_its_network(const char *command)
{
	char all[256];

	snprintf(all, sizeof(all), "nsenter -t %d -n ip %s", (int)daemon_pid,
	    command);
	assert_int_equal(system(all), 0);
}

/* Nothing else of the policy is read anew, and what was refused stays so. */
static void
an_address_that_comes_later_is_the_daemon_s_own(void **state)
{
	(void)state;
	start_ready(0);
	put("policy.yaml", "{");
	in_its_network("link add v0 type veth peer name v1");
	in_its_network("link set v0 addrgenmode none up");
	in_its_network("addr add 203.0.113.7/24 dev v0");
	expect_log("policy in use generation=2: this host has other "
	    "addresses or gateways addresses=1 gateways=0");
	in_its_network("route add default via 203.0.113.1");
	expect_log("generation=3: this host has other addresses or "
	    "gateways addresses=1 gateways=1");
	in_its_network("addr add 203.0.113.8/32 dev lo");
	in_its_network("addr add 203.0.113.9/32 dev lo");
	in_its_network("addr del 203.0.113.9/32 dev lo");
	expect_log("addresses=2 gateways=1");
	pause_ms(1500);
	assert_false(logged("addresses=3"));
	assert_false(logged("new policy not taken"));
	assert_false(logged("policy refused"));
	kill(daemon_pid, SIGHUP);
	expect_log("policy refused, generation 4 stays");
	in_its_network("addr del 203.0.113.8/32 dev lo");
	expect_log("generation=6: this host has other addresses or "
	    "gateways addresses=1 gateways=1");
	for (size_t i = 0; i < 4; i++)
		assert_true(role_pid(roles[i].role, 0) > 0);
	assert_int_equal(stop(), 0);
}

/* One key that cannot change takes nothing else with it, also not for a role
 * that starts later. */
static void
a_reload_takes_what_it_can(void **state)
{
	char path[128];

	(void)state;
	start_ready(0);
	put("penstock.yaml", CONFIG "instance: other\nlimits: {connections: 9, "
	    "per_client: 5, hello_timeout: 1s}\nreload_grace: 2s\n");
	put("policy.yaml", POLICY "    - {verdict: allow, hostname: "
	    "b.example.com}\n");
	kill(daemon_pid, SIGHUP);
	expect_log("policy in use generation=2 before=1");
	expect_log("NOT IN USE before a new start, as changed: "
	    "limits.connections, instance; everything else is in use");
	pause_ms(200);
	assert_false(logged("new policy not taken"));
	assert_false(logged("policy refused"));
	kill(role_pid("engine", 0), SIGKILL);
	expect_log("role ended role=engine");
	kill(role_pid("recorder", 0), SIGKILL);
	expect_log("role ended role=recorder");
	pause_ms(500);
	assert_true(role_pid("engine", 1) > 0);
	assert_true(role_pid("recorder", 0) > 0);
	/* as before: nothing waits any more */
	put("penstock.yaml", CONFIG);
	kill(daemon_pid, SIGHUP);
	expect_log("policy in use generation=3 before=2");
	put("penstock.yaml", "version: 1\nmode: cooperative\n"
	    "cells: [{id: a, policy: [policy.yaml]}]\n");
	kill(daemon_pid, SIGHUP);
	expect_log("generation 3 stays: mode changed: that needs a new start");
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_non_null(strstr(get(path), "not in use before a new start: "
	    "limits.connections, instance"));
	assert_null(strstr(get(path), "\"instance\":\"other"));
}

static void
signals_that_go_to_the_whole_group_end_in_order(void **state)
{
	char path[128];

	(void)state;
	start_ready(0);
	for (size_t i = 0; i < 4; i++)
		kill(role_pid(roles[i].role, 0), SIGTERM);
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_non_null(strstr(get(path), "\"kind\":\"stop\""));
	assert_false(logged("role ended"));
}

/* Nothing was wrong with the policy. */
static void
a_reload_that_an_end_overtakes_is_no_refusal(void **state)
{
	char path[128];

	(void)state;
	start_ready(0);
	kill(daemon_pid, SIGSTOP);
	kill(daemon_pid, SIGHUP);
	kill(daemon_pid, SIGTERM);
	kill(daemon_pid, SIGCONT);
	assert_int_equal(stop(), 0);
	assert_false(logged("level=error"));
	assert_false(logged("policy refused"));
	path_of(path, "out");
	assert_non_null(strstr(get(path), "\"kind\":\"stop\""));
	assert_null(strstr(get(path), "refused:"));
}

static void
a_recorder_that_dies_in_a_drain_is_started_again(void **state)
{
	char path[128];

	(void)state;
	start_ready(0);
	/* both signals are there before the daemon takes one */
	kill(daemon_pid, SIGSTOP);
	kill(role_pid("recorder", 0), SIGKILL);
	pause_ms(50);
	kill(daemon_pid, SIGTERM);
	kill(daemon_pid, SIGCONT);
	assert_int_equal(stop(), 0);
	assert_true(logged("role ended role=recorder"));
	path_of(path, "out");
	assert_non_null(strstr(get(path), "\"kind\":\"stop\""));
}

static void
an_engine_that_hangs_takes_no_records_with_it(void **state)
{
	char path[128];
	pid_t engine;

	(void)state;
	put("penstock.yaml", CONFIG "drain_timeout: 1s\n");
	start_ready(0);
	engine = role_pid("engine", 0);
	kill(engine, SIGSTOP);
	assert_int_equal(stop(), 0);
	assert_true(logged("did not end in time"));
	assert_true(logged("role ended role=engine"));
	assert_false(logged("role ended role=recorder"));
	path_of(path, "out");
	assert_non_null(strstr(get(path), "\"kind\":\"stop\""));
}

/* Which of its mappings of that memory could be made writable. */
static bool
may_write(pid_t pid, const char *memory)
{
	char path[64], *at;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	at = strstr(get(path), memory);
	assert_non_null(at);
	at = strstr(at, "VmFlags:");
	assert_non_null(at);
	*strchrnul(at, '\n') = '\0';
	return strstr(at, " mw") != NULL;
}

static void
only_its_writer_can_write_a_page_of_state(void **state)
{
	(void)state;
	start_ready(0);
	assert_true(may_write(role_pid("recorder", 0), "penstock-recorder"));
	assert_false(may_write(role_pid("engine", 0), "penstock-recorder"));
	assert_false(may_write(role_pid("resolver", 0), "penstock-recorder"));
	assert_false(may_write(role_pid("admin", 0), "penstock-health"));
	assert_int_equal(stop(), 0);
}

static void
the_parent_s_death_ends_every_role(void **state)
{
	char path[64];
	pid_t pids[4];

	(void)state;
	start_ready(0);
	for (size_t i = 0; i < 4; i++)
		pids[i] = role_pid(roles[i].role, 0);
	kill(daemon_pid, SIGKILL);
	assert_int_equal(end_of(daemon_pid), 1000 + SIGKILL);
	daemon_pid = 0;
	pause_ms(500);
	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "/proc/%d/status",
		    (int)pids[i]);
		/* Gone, or waiting for its new parent to take notice. */
		if (strstr(get(path), "State:\t") != NULL &&
		    strstr(get(path), "State:\tZ") == NULL)
			fail_msg("%s outlives its parent", roles[i].role);
	}
}

/* ---- refusals to start ---- */

static void
bad_configuration_ends_with_78(void **state)
{
	(void)state;
	put("penstock.yaml", CONFIG "bogus: 1\n");
	assert_int_equal(end_of(start(external, 0)), 78);
	assert_true(logged("penstock.yaml:5:1: error"));
	put("penstock.yaml", CONFIG);
	put("policy.yaml", "");
	assert_int_equal(end_of(start(external, 0)), 78);
	put("penstock.yaml", "version: 1\nmode: shared\ncells: "
	    "[{id: a, policy: [../x]}]\n");
	assert_int_equal(end_of(start(external, 0)), 78);
	assert_true(logged("leads out of the directory"));
}

static void
a_mode_whose_rules_are_not_in_place_is_refused(void **state)
{
	(void)state;
	assert_int_equal(end_of(start(NULL, 0)), 77);
	assert_true(logged("is not enforced"));
	assert_int_equal(end_of(start(NULL, 1400)), 77);
	assert_true(logged("cannot become another uid"));
}

/* Mode isolated has nothing of its own that could be looked at. */
static void
a_mode_that_nothing_checks_is_refused(void **state)
{
	static const char *const accept[] =
	    { "--accept-risk", "not-proven", NULL };
	char path[128];

	(void)state;
	put("penstock.yaml", "version: 1\nmode: isolated\nengines: 1\n"
	    "cells: [{id: a, policy: [policy.yaml]}]\n");
	assert_int_equal(end_of(start(NULL, 0)), 78);
	assert_true(logged("penstock.yaml:2:7: error: mode isolated: nothing "
	    "checks"));
	assert_true(logged("--accept-risk not-proven"));
	assert_int_equal(end_of(start(external, 0)), 78);
	path_of(path, "err");
	unlink(path);
	daemon_pid = start(accept, 0);
	expect_log("started version=");
	assert_true(logged("mode=isolated NOT ENFORCING"));
	expect_log("not enforcing: nothing checks");
	/* and after a reload */
	kill(daemon_pid, SIGHUP);
	expect_log("NOT ENFORCING: nothing checks");
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_non_null(strstr(get(path), "mode=isolated not enforcing "));
	assert_null(strstr(get(path), "isolated enforcing"));
	assert_non_null(strstr(get(path), "; not enforcing: nothing checks"));
}

static void
rules_of_somebody_else_s_are_not_said_to_enforce(void **state)
{
	char path[128];

	(void)state;
	start_ready(0);
	assert_true(logged("mode=shared NOT ENFORCING"));
	expect_log("not enforcing: the kernel's rules are somebody else's");
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_non_null(strstr(get(path), "mode=shared not enforcing "));
}

/* ---- the service manager ---- */

static void
start_notified(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const struct timeval limit = { .tv_sec = WAIT_MS / 1000 };

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/notify", dir);
	unlink(sa.sun_path);
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(notify_fd, (struct sockaddr *)&sa, sizeof(sa)),
	    0);
	assert_int_equal(setsockopt(notify_fd, SOL_SOCKET, SO_RCVTIMEO,
	    &limit, sizeof(limit)), 0);
	setenv("NOTIFY_SOCKET", sa.sun_path, 1);
	start_ready(0);
	unsetenv("NOTIFY_SOCKET");
}

static const char *
told(void)
{
	static char text[256];
	ssize_t n = recv(notify_fd, text, sizeof(text) - 1, 0);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void
expect_told(const char *words)
{
	const char *text = told();

	if (strncmp(text, words, strlen(words)) != 0)
		fail_msg("\"%s\" is not \"%s\"", text, words);
}

static void
systemd_is_told(void **state)
{
	(void)state;
	start_notified();
	expect_told("READY=1\nSTATUS=serving, mode shared, generation 1");
	kill(daemon_pid, SIGHUP);
	expect_told("RELOADING=1\nMONOTONIC_USEC=");
	expect_told("READY=1\nSTATUS=serving, mode shared, generation 2");
	/* one that is refused */
	put("policy.yaml", "{");
	kill(daemon_pid, SIGHUP);
	expect_told("RELOADING=1\nMONOTONIC_USEC=");
	expect_told("READY=1\nSTATUS=policy refused, generation 2 stays");
	assert_int_equal(stop(), 0);
	expect_told("STOPPING=1");
	close(notify_fd);
}

static void
a_reload_that_cannot_be_started_is_refused_and_ends(void **state)
{
	(void)state;
	start_notified();
	expect_told("READY=1");
	take_descriptors(true);
	kill(daemon_pid, SIGHUP);
	expect_told("RELOADING=1\nMONOTONIC_USEC=");
	expect_told("READY=1\nSTATUS=policy refused, generation 1 stays");
	expect_log("policy refused, generation 1 stays: the role compile "
	    "cannot be started: Too many open files");
	take_descriptors(false);
	kill(daemon_pid, SIGHUP);
	expect_told("RELOADING=1\nMONOTONIC_USEC=");
	expect_told("READY=1\nSTATUS=serving, mode shared, generation ");
	assert_int_equal(stop(), 0);
	expect_told("STOPPING=1");
	close(notify_fd);
}

/* The second HUP comes while the first one's policies are compiled, or, on a
 * slow machine, after that. */
static void
reloads_in_a_row_are_ready_when_the_last_has_ended(void **state)
{
	(void)state;
	start_notified();
	expect_told("READY=1");
	kill(daemon_pid, SIGSTOP);
	kill(role_pid("recorder", 0), SIGKILL);
	kill(daemon_pid, SIGHUP);
	kill(daemon_pid, SIGCONT);
	expect_told("RELOADING=1");
	kill(daemon_pid, SIGHUP);
	if (strncmp(told(), "READY=1", 7) == 0)
		expect_told("RELOADING=1");
	/* not that of the first one; nor waits it for the recorder */
	expect_told("READY=1\nSTATUS=serving, mode shared, generation 3");
	assert_int_equal(stop(), 0);
	expect_told("STOPPING=1");
	close(notify_fd);
}

/* A message each second, but for the first: it may be older. */
static void
expect_alive(void)
{
	while (recv(notify_fd, (char[1]){ 0 }, 1, MSG_DONTWAIT) >= 0)
		continue;
	expect_told("WATCHDOG=1");
}

static void
expect_not_alive(void)
{
	char text[64];

	pause_ms(1200);		/* a beat that was on its way */
	while (recv(notify_fd, text, sizeof(text), MSG_DONTWAIT) >= 0)
		continue;
	pause_ms(1500);
	assert_true(recv(notify_fd, text, sizeof(text), MSG_DONTWAIT) < 0);
}

static void
the_watchdog_is_fed_while_there_is_what_a_decision_needs(void **state)
{
	(void)state;
	setenv("WATCHDOG_USEC", "30000000", 1);
	start_notified();
	expect_told("READY=1");
	expect_alive();
	kill(role_pid("recorder", 0), SIGSTOP);
	expect_not_alive();
	expect_log("everything is denied: the recorder does not turn");
	kill(role_pid("recorder", 0), SIGCONT);
	expect_alive();
	assert_int_equal(stop(), 0);
	close(notify_fd);
	/* somebody else's variables */
	setenv("WATCHDOG_PID", "1", 1);
	start_notified();
	expect_told("READY=1");
	expect_not_alive();
	assert_int_equal(stop(), 0);
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
	close(notify_fd);
}

static void
signal_all(const pid_t *pids, size_t n, int sig)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(kill(pids[i], sig), 0);
}

/* About 18 seconds.  The recorder, whose disk may hang, is let alone; a stall
 * of everything, as of a machine's, is nobody's fault. */
static void
a_role_that_hangs_is_started_anew(void **state)
{
	char path[128];
	pid_t pids[6];

	(void)state;
	setenv("WATCHDOG_USEC", "30000000", 1);
	put("penstock.yaml", CONFIG);
	start_notified();
	unsetenv("WATCHDOG_USEC");
	expect_told("READY=1");
	pids[0] = daemon_pid;
	pids[1] = role_pid("recorder", 0);
	pids[2] = role_pid("resolver", 0);
	pids[3] = role_pid("engine", 0);
	pids[4] = role_pid("engine", 1);
	pids[5] = role_pid("admin", 0);
	signal_all(pids, 6, SIGSTOP);
	pause_ms(4500);
	signal_all(pids, 6, SIGCONT);
	expect_alive();
	assert_false(logged("role does not turn"));
	signal_all(pids + 1, 5, SIGSTOP);
	expect_log("role does not turn role=engine index=1");
	expect_not_alive();
	expect_log("role hangs and is killed role=resolver");
	expect_log("role hangs and is killed role=engine index=1");
	expect_log("role hangs and is killed role=admin");
	pause_ms(1500);
	assert_false(logged("killed role=recorder"));
	assert_int_equal(role_pid("recorder", 0), pids[1]);
	kill(pids[1], SIGCONT);
	expect_alive();
	assert_true(role_pid("engine", 1) > 0);
	assert_int_equal(stop(), 0);
	path_of(path, "out");
	assert_non_null(strstr(get(path), "resolver 0 hangs, killed pid="));
	assert_non_null(strstr(get(path), "engine 1 started again"));
	close(notify_fd);
}

/* ---- around each ---- */

int
main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(each_role_has_left_what_the_manual_says),
		EACH(the_recorder_of_a_ledger_of_root_s_has_its_own_uid),
		EACH(one_ledger_has_one_penstock),
		EACH(one_admin_socket_has_one_penstock),
		EACH(the_ledger_of_one_that_was_killed_is_free),
		EACH(one_uid_without_privilege_serves_too),
		EACH(a_role_that_dies_is_recorded_and_started_again),
		EACH(a_role_that_cannot_be_started_is_tried_again),
		EACH(a_role_that_does_not_stay_ends_the_daemon),
		EACH(B073_a_policy_that_does_not_compile_changes_nothing),
		EACH(a_reload_takes_what_it_can),
		EACH(lab_prefixes_are_shown),
		EACH(an_address_that_comes_later_is_the_daemon_s_own),
		EACH(signals_that_go_to_the_whole_group_end_in_order),
		EACH(a_reload_that_an_end_overtakes_is_no_refusal),
		EACH(a_recorder_that_dies_in_a_drain_is_started_again),
		EACH(an_engine_that_hangs_takes_no_records_with_it),
		EACH(only_its_writer_can_write_a_page_of_state),
		EACH(the_parent_s_death_ends_every_role),
		EACH(bad_configuration_ends_with_78),
		EACH(a_mode_whose_rules_are_not_in_place_is_refused),
		EACH(a_mode_that_nothing_checks_is_refused),
		EACH(rules_of_somebody_else_s_are_not_said_to_enforce),
		EACH(systemd_is_told),
		EACH(the_watchdog_is_fed_while_there_is_what_a_decision_needs),
		EACH(a_role_that_hangs_is_started_anew),
		EACH(a_reload_that_cannot_be_started_is_refused_and_ends),
		EACH(reloads_in_a_row_are_ready_when_the_last_has_ended),
	};

	return cmocka_run_group_tests(tests, find_program, clean);
}
