/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/decide.h"
#include "sidecar/confine.h"

#define CONFIG "version: 1\nmode: shared\n" \
	"cells: [{id: a, policy: [p.yaml]}]\n"
#define POLICY "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  rule:\n    - {verdict: allow, hostname: a.example.com}\n"
#define LIST_POLICY POLICY \
	"    - {verdict: allow, hostnames_file: list.txt, id: list}\n"

static char dir[] = "/tmp/penstock-test-XXXXXX";
static int dir_fd;
static struct config_env env;
static char *said;

static void
put(const char *name, const char *text)
{
	int fd = openat(dir_fd, name, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static struct compile *
run(const char *name, int want)
{
	struct problems *ps = problem_new();
	struct compile *c;
	size_t n;
	FILE *f;
	int rc;

	assert_int_equal(compile_new(&c, dir_fd, name, &env), 0);
	rc = compile_run(c, 7, 1800000000, ps);
	free(said);
	f = open_memstream(&said, &n);
	problem_print(ps, f);
	fclose(f);
	problem_free(ps);
	if (rc != want)
		fail_msg("%d, not %d: %s", rc, want, said);
	return c;
}

/* What serves beside the agent is the agent's as well. */
static void
W15_a_resolver_inside_is_refused_in_mode_shared(void **state)
{
	static const char beside[] = "the agent is in the same network",
	    engine[] = "127.0.0.11:53 asks others";
	static const struct {
		const char *resolvers, *system, *zone, *said;	/* NULL: taken */
	} cases[] = {
		{ "127.0.0.53", "", "", beside },
		{ "127.0.0.1:5353", "", "", beside },
		{ "127.0.0.11:5353", "", "", beside },
		{ "\"[::1]:53\"", "", "", beside },
		{ "127.0.0.11", "", "", engine },
		{ "system", "nameserver 127.0.0.11\n", "", engine },
		{ "system", "nameserver 127.0.0.53\n", "", beside },
		{ "system", "nameserver 198.18.0.53\n", "", NULL },
		{ "198.18.0.53", "", "127.0.0.53", beside },
		{ "198.18.0.53", "", "127.0.0.11", NULL },
		{ "198.18.0.53", "nameserver 127.0.0.11\n", "", NULL } };
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), CONFIG "%s%s%s",
		    cases[i].zone[0] ? "dns: {zones: [{suffix: db, "
		    "resolvers: [" : "", cases[i].zone,
		    cases[i].zone[0] ? "]}]}\n" : "");
		put("c.yaml", text);
		snprintf(text, sizeof(text), "version: 1\nnetwork:\n"
		    "  resolvers: [%s]\n  rule:\n"
		    "    - {verdict: allow, hostname: a.example.com}\n",
		    cases[i].resolvers);
		put("p.yaml", text);
		env.resolv_conf = cases[i].system;
		compile_free(run("c.yaml", cases[i].said ? -EINVAL : 0));
		if (cases[i].said != NULL &&
		    strstr(said, cases[i].said) == NULL)
			fail_msg("%zu: %s", i, said);
	}
	env.resolv_conf = NULL;
}

static void
an_image_carries_policy_settings_and_generation(void **state)
{
	struct settings s;
	struct policy *p;
	struct compile *c;

	(void)state;
	put("c.yaml", CONFIG);
	put("p.yaml", POLICY);
	c = run("c.yaml", 0);
	assert_int_equal(policy_open(&p, compile_image(c)), 0);
	assert_int_equal(policy_generation(p), 7);
	assert_memory_equal(policy_digest(p), compile_digest(c), 32);
	assert_true(settings_from(&s, p));
	assert_int_equal(s.mode, MODE_SHARED);
	assert_int_equal(policy_cells(p), 1);
	assert_int_equal(settings_unenforced(&s, p, 1800000000),
	    UNENFORCED_NOTHING);
	s.mode = MODE_COOPERATIVE;
	assert_int_equal(settings_unenforced(&s, p, 1800000000),
	    UNENFORCED_COOPERATIVE);
	policy_free(p);
	compile_free(c);
}

/* Absent it is what the mode gives; written down it is what was asked for. */
static void
W42_a_strict_policy_is_not_taken_for_a_cooperative_one(void **state)
{
#define COOP "version: 1\nmode: cooperative\n" \
	"cells: [{id: a, policy: [p.yaml]}]\n"
	static const struct {
		const char *enforce;
		int rc;
	} cases[] = { { "", 0 }, { "  enforce: cooperative\n", 0 },
	    { "  enforce: strict\n", -EINVAL },
	    { "  enforce: l3\n", -EINVAL } };
	char text[1024];

	(void)state;
	put("c.yaml", COOP);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "%s%s", POLICY, cases[i].enforce);
		put("p.yaml", text);
		compile_free(run("c.yaml", cases[i].rc));
		if (cases[i].rc != 0)
			assert_non_null(strstr(said, "write enforce: "
			    "cooperative, or use mode gateway or shared"));
	}
}

static void
the_digest_is_of_every_byte_that_was_read(void **state)
{
	static const struct {
		const char *name, *text;
	} files[] = { { "c.yaml", CONFIG }, { "p.yaml", LIST_POLICY },
	    { "list.txt", "b.example.com\n" } };
	uint8_t one[32], known[32], hash[32];
	crypto_generichash_state h;
	struct compile *c;
	char text[64];

	(void)state;
	crypto_generichash_init(&h, NULL, 0, sizeof(known));
	crypto_generichash_update(&h, (const uint8_t *)
	    "penstock-bundle 2\n", 18);
	for (size_t i = 0; i < 3; i++) {
		const int n = snprintf(text, sizeof(text), "%zu %zu\n%s\n",
		    strlen(files[i].name), strlen(files[i].text),
		    files[i].name);

		put(files[i].name, files[i].text);
		crypto_generichash(hash, sizeof(hash), (const uint8_t *)
		    files[i].text, strlen(files[i].text), NULL, 0);
		crypto_generichash_update(&h, (const uint8_t *)text,
		    (unsigned long long)n);
		crypto_generichash_update(&h, hash, sizeof(hash));
	}
	crypto_generichash_final(&h, known, sizeof(known));
	c = run("c.yaml", 0);
	memcpy(one, compile_digest(c), 32);
	assert_memory_equal(one, known, 32);
	compile_free(c);
	put("list.txt", "c.example.com\n");
	c = run("c.yaml", 0);
	assert_memory_not_equal(one, compile_digest(c), 32);
	compile_free(c);
	put("p.yaml", POLICY);
	c = run("c.yaml", 0);
	memcpy(one, compile_digest(c), 32);
	compile_free(c);
	c = run("c.yaml", 0);
	assert_memory_equal(one, compile_digest(c), 32);
	compile_free(c);
	put("p.yaml", POLICY "# a comment\n");
	c = run("c.yaml", 0);
	assert_memory_not_equal(one, compile_digest(c), 32);
	compile_free(c);
	put("c.yaml", CONFIG "# a comment\n");
	put("p.yaml", POLICY);
	c = run("c.yaml", 0);
	assert_memory_not_equal(one, compile_digest(c), 32);
	compile_free(c);
}

static void
nothing_outside_the_directory_is_read(void **state)
{
	static const char *const names[] =
	    { "../etc/passwd", "out", "sub/../../x" };
	char text[256];

	(void)state;
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "out"), 0);
	for (size_t i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), "version: 1\nmode: shared\n"
		    "cells: [{id: a, policy: [\"%s\"]}]\n", names[i]);
		put("c.yaml", text);
		compile_free(run("c.yaml", -EINVAL));
		assert_non_null(strstr(said, "cannot read"));
	}
	unlinkat(dir_fd, "out", 0);
	assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
	put("c.yaml", "version: 1\nmode: shared\n"
	    "cells: [{id: a, policy: [fifo]}]\n");
	compile_free(run("c.yaml", -EINVAL));
	assert_non_null(strstr(said, "no regular file"));
	unlinkat(dir_fd, "fifo", 0);
	compile_free(run("missing.yaml", -EINVAL));
}

static void
a_link_beneath_the_directory_is_followed(void **state)
{
	(void)state;
	/* as Kubernetes mounts a ConfigMap */
	assert_int_equal(mkdirat(dir_fd, "..v1", 0700), 0);
	put("..v1/p.yaml", POLICY);
	unlinkat(dir_fd, "p.yaml", 0);
	assert_int_equal(symlinkat("..v1", dir_fd, "..data"), 0);
	assert_int_equal(symlinkat("..data/p.yaml", dir_fd, "p.yaml"), 0);
	put("c.yaml", CONFIG);
	compile_free(run("c.yaml", 0));
	unlinkat(dir_fd, "p.yaml", 0);
	unlinkat(dir_fd, "..data", 0);
	unlinkat(dir_fd, "..v1/p.yaml", 0);
	unlinkat(dir_fd, "..v1", AT_REMOVEDIR);
}

static void
W40_the_environment_alone_makes_a_sidecar(void **state)
{
	struct compile *c;
	struct policy *p;

	(void)state;
	env.cell = "pod";
	env.dns_resolvers = "198.18.0.53";
	env.egress_policy = "{\"default\":\"deny\",\"rules\":[{\"verdict\":"
	    "\"allow\",\"hostname\":\"a.example.com\"}]}";
	c = run(NULL, 0);
	assert_int_equal(policy_open(&p, compile_image(c)), 0);
	assert_int_equal(policy_cell_by_id(p, span_str("pod")), 0);
	policy_free(p);
	compile_free(c);
	env.egress_policy = "{\"default\":\"allow\",\"rules\":[]}";
	compile_free(run(NULL, -EINVAL));
	assert_non_null(strstr(said, "RUNEWARD_EGRESS_POLICY"));
	memset(&env, 0, sizeof(env));
}

/* Of one file, of another, of rules in two of them, of files and mode. */
static void
errors_of_all_files_are_told_at_once(void **state)
{
	static const char *const lines[] = {
		"base.yaml:5:8: error: unknown key \"vredict\"",
		"base.yaml:5:7: error: a rule has no verdict",
		"more.yaml:4:7: error: allow a.example can never match: the "
		    "rule allow a.example in base.yaml:4",
		"more.yaml:5:34: error: anchors are not accepted",
		"penstock.yaml:3:9: error: cannot read gone.yaml",
		"more.yaml:2:3: error: resolvers stands in a file that is not",
		"base.yaml:2:12: error: enforce: strict cannot be had",
	};

	(void)state;
	put("penstock.yaml", "version: 1\nmode: cooperative\n"
	    "cells: [{id: b, policy: [gone.yaml, more.yaml], from: {listener: "
	    "explicit}}, {id: a, policy: [base.yaml, more.yaml], from: {cidr: "
	    "10.0.0.0/8}}]\n");
	put("base.yaml", "network:\n  enforce: strict\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {vredict: allow, hostname: b.example}\n");
	put("more.yaml", "network:\n  resolvers: [198.18.0.53]\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example, ports: [80]}\n"
	    "    - {verdict: allow, hostname: &c c.example}\n");
	compile_free(run("penstock.yaml", -EINVAL));
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (strstr(said, lines[i]) == NULL)
			fail_msg("no %s in: %s", lines[i], said);
	/* nor is anything told twice, or of what only was not read */
	assert_null(strstr(said, "there is no resolver"));
	assert_null(strstr(said, "no rule allows"));
	assert_null(strstr(strstr(said, "anchors") + 1, "anchors"));
	assert_int_equal(unlinkat(dir_fd, "base.yaml", 0), 0);
	assert_int_equal(unlinkat(dir_fd, "more.yaml", 0), 0);
}

/* What a wrong penstock.yaml names is looked at, and nothing comes of it. */
static void
a_wrong_configuration_hides_no_error_of_a_policy(void **state)
{
	static const struct { const char *config; bool looked; } t[] = {
		{ "version: 1\nmode: shared\nbogus: 1\n"
		    "cells: [{id: a, policy: [base.yaml]}]\n", true },
		{ "version: 1\nmode: sharde\n"
		    "cells: [{id: a, policy: [base.yaml]}]\n", true },
		{ "version: 1\nmode: shared\n"
		    "cells: [{id: \"a b\", policy: [base.yaml]}]\n", true },
		{ "version: 1\nmode: cooperative\nlisteners: [{name: l, kind: "
		    "explicit, address: \"127.0.0.1:1\"}]\ncells: [{id: a, "
		    "policy: [base.yaml], from: {listener: l}}, {id: a, "
		    "policy: [base.yaml], from: {cidr: 10.0.0.0/8}}]\n", true },
		{ "version: 1\nmode: shared\ncells: [{id: a, policy: "
		    "[/base.yaml]}]\n", false },
		{ "version: 1\nmode: shared\n", false },
		{ "5\n", false },
	};

	(void)state;
	put("base.yaml", "network:\n  resolvers: [198.18.0.53]\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: a.example, ports: [80]}\n");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		size_t errors = 0;

		put("penstock.yaml", t[i].config);
		compile_free(run("penstock.yaml", -EINVAL));
		for (const char *at = said; (at = strstr(at, ": error: ")) !=
		    NULL; at++)
			errors++;
		if ((strstr(said, "base.yaml:5:7: error: allow a.example can "
		    "never match") != NULL) != t[i].looked ||
		    errors != 1u + t[i].looked)
			fail_msg("of %s: %s", t[i].config, said);
	}
	assert_int_equal(unlinkat(dir_fd, "base.yaml", 0), 0);
}

static void
a_configuration_without_a_resolver_is_refused(void **state)
{
	(void)state;
	put("c.yaml", CONFIG);
	put("p.yaml", "version: 1\nnetwork:\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example.com}\n");
	compile_free(run("c.yaml", -EINVAL));
	assert_non_null(strstr(said, "there is no resolver"));
	env.dns_resolvers = "198.18.0.53";
	compile_free(run("c.yaml", 0));
	memset(&env, 0, sizeof(env));
}

/* An interface with an address, and no socket to ask for it once confined. */
static int
in_a_network_of_its_own(int addresses)
{
	FILE *ip;

	if (unshare(CLONE_NEWNET) != 0)
		return -1;
	ip = popen("ip -batch -", "w");
	if (ip == NULL)
		return -1;
	fputs("link add own0 type veth peer name own1\nlink set own0 up\n"
	    "link set lo up\naddr add 203.0.113.77/32 dev lo\n"
	    "route add default via 203.0.113.99 dev own0 onlink\n"
	    "addr add 127.7.7.7/32 dev own0\n", ip);
	for (int i = 0; i < addresses; i++)
		fprintf(ip, "addr add 198.51.%d.%d/32 dev own0\n",
		    100 + i / 250, 1 + i % 250);
	return pclose(ip);
}

static bool
has(const struct compile *c, const char *text)
{
	struct addr a;

	return addr_parse(&a, span_str(text)) && memmem(compile_image(c).data,
	    compile_image(c).len, &a, sizeof(a)) != NULL;
}

/* 0 when the image has them, also one of lo's; those of loopback's class,
 * which nothing opens, need no place. */
static int
compile_confined(void)
{
	struct problems *ps = problem_new();
	struct compile *c;

	if (compile_new(&c, dir_fd, "c.yaml", &env) != 0 ||
	    confine_compile(dir_fd) != 0)
		return 2;
	if (compile_run(c, 7, 1800000000, ps) != 0)
		return 3;
	if (!has(c, "198.51.100.1"))
		return 4;
	if (!has(c, "203.0.113.99"))
		return 6;
	return has(c, "203.0.113.77") && !has(c, "127.7.7.7") ? 0 : 5;
}

static int
in_a_child(int addresses, int (*what)(void))
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(in_a_network_of_its_own(addresses) != 0 ? 99 : what());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void
the_host_s_addresses_are_in_a_confined_role_s_image(void **state)
{
	(void)state;
	put("c.yaml", CONFIG);
	put("p.yaml", POLICY);
	assert_int_equal(in_a_child(1, compile_confined), 0);
}

static int
compile_refused(void)
{
	struct problems *ps = problem_new();
	struct compile *c;

	if (compile_new(&c, dir_fd, "c.yaml", &env) != 0)
		return 2;
	return compile_run(c, 7, 1800000000, ps) != -EINVAL ||
	    problem_count(ps, PROBLEM_ERROR) != 1;
}

static void
more_addresses_than_can_be_refused_are_an_error(void **state)
{
	(void)state;
	put("c.yaml", CONFIG);
	put("p.yaml", POLICY);
	assert_int_equal(in_a_child(256, compile_refused), 0);
}

static int
make_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
	return dir_fd < 0;
}

static int
remove_dir(void **state)
{
	static const char *const names[] = { "c.yaml", "p.yaml", "q.yaml",
	    "penstock.yaml", "list.txt" };

	(void)state;
	free(said);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(dir_fd, names[i], 0);
	close(dir_fd);
	return rmdir(dir);
}

/* ---- a million names ---- */

static void
put_list(unsigned n)
{
	int fd = openat(dir_fd, "list.txt", O_CREAT | O_TRUNC | O_WRONLY,
	    0600);
	FILE *f = fdopen(fd, "w");

	assert_non_null(f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "n%07u.service.example\n", i);
	assert_int_equal(fclose(f), 0);
}

/* The most that the process had, in MiB, with the image sealed; 0: failed. */
static long
list_costs(void)
{
	int fd, status;
	struct rusage u;
	pid_t pid = fork();

	if (pid == 0) {
		struct problems *ps = problem_new();
		struct compile *c;

		mallopt(M_MMAP_THRESHOLD, 32768);
		if (compile_new(&c, dir_fd, "c.yaml", &env) != 0 ||
		    compile_run(c, 1, 1800000000, ps) != 0)
			_exit(1);
		fd = compile_sealed(c);
		_exit(fd < 0 || compile_image(c).len != 0 ||
		    ftruncate(fd, 1) == 0 ||
		    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0) != MAP_FAILED);
	}
	assert_int_equal(wait4(pid, &status, 0, &u), pid);
	return status == 0 ? u.ru_maxrss / 1024 : 0;
}

/* Two of these stand beside each other while a new list comes into use, and
 * the daemon itself has 20 MB. */
static void
a_million_names_cost_little_more_than_their_image(void **state)
{
	long mib;

	(void)state;
	put("c.yaml", CONFIG);
	put("p.yaml", LIST_POLICY);
	put_list(1000000);
	mib = list_costs();
	assert_true(mib > 0);
#ifndef __SANITIZE_ADDRESS__
	if (mib > 65)
		fail_msg("%ld MiB", mib);
#endif
}

/* The names are given back while the last of two images takes them. */
static void
cells_of_other_rules_share_a_list(void **state)
{
	struct decide_at at = { .now_s = 1800000000 };
	struct compile *c;
	struct policy *p;
	struct host h;

	(void)state;
	put("c.yaml", "version: 1\nmode: cooperative\ncells:\n"
	    "  - {id: a, policy: [q.yaml, p.yaml], from: {listener: a}}\n"
	    "  - {id: b, policy: [p.yaml], from: {listener: b}}\n"
	    "  - {id: c, policy: [q.yaml, p.yaml], from: {listener: c}}\n"
	    "listeners:\n"
	    "  - {name: a, kind: explicit, address: \"127.0.0.1:1081\"}\n"
	    "  - {name: b, kind: explicit, address: \"127.0.0.1:1082\"}\n"
	    "  - {name: c, kind: explicit, address: \"127.0.0.1:1083\"}\n");
	put("q.yaml", "version: 1\nnetwork:\n  rule:\n"
	    "    - {verdict: deny, hostname: n0000007.service.example}\n");
	put("p.yaml", "version: 1\nnetwork:\n  rule:\n    - {verdict: "
	    "allow, hostnames_file: list.txt, id: list}\n");
	put_list(100000);
	env.dns_resolvers = "198.18.0.53";
	c = run("c.yaml", 0);
	env.dns_resolvers = NULL;
	assert_int_equal(policy_open(&p, compile_image(c)), 0);
	at.policy = p;
	for (at.cell = 0; at.cell < 3; at.cell++)
		for (unsigned i = 0; i < 100000; i += i < 9 ? 1 : 111) {
			char name[64];

			snprintf(name, sizeof(name),
			    "n%07u.service.example", i);
			assert_int_equal(host_parse(&h, span_str(name)), 0);
			assert_int_equal(decide_name(&at, &h, 443, NULL).
			    verdict, i == 7 && at.cell != 1 ? VERDICT_DENY :
			    VERDICT_ALLOW);
		}
	policy_free(p);
	compile_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    W15_a_resolver_inside_is_refused_in_mode_shared),
		cmocka_unit_test(
		    an_image_carries_policy_settings_and_generation),
		cmocka_unit_test(
		    W42_a_strict_policy_is_not_taken_for_a_cooperative_one),
		cmocka_unit_test(the_digest_is_of_every_byte_that_was_read),
		cmocka_unit_test(nothing_outside_the_directory_is_read),
		cmocka_unit_test(a_link_beneath_the_directory_is_followed),
		cmocka_unit_test(errors_of_all_files_are_told_at_once),
		cmocka_unit_test(
		    a_wrong_configuration_hides_no_error_of_a_policy),
		cmocka_unit_test(
		    a_configuration_without_a_resolver_is_refused),
		cmocka_unit_test(
		    the_host_s_addresses_are_in_a_confined_role_s_image),
		cmocka_unit_test(
		    more_addresses_than_can_be_refused_are_an_error),
		cmocka_unit_test(
		    a_million_names_cost_little_more_than_their_image),
		cmocka_unit_test(cells_of_other_rules_share_a_list),
		cmocka_unit_test(W40_the_environment_alone_makes_a_sidecar),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
