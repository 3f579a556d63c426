/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidecar/confine.h"

#define CONFIG "version: 1\nmode: shared\n" \
	"cells: [{id: a, policy: [p.yaml]}]\n"
#define POLICY "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  rule:\n    - {verdict: allow, hostname: a.example.com}\n"

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
	uint8_t one[32], known[32];
	struct compile *c;
	char text[512];

	(void)state;
	snprintf(text, sizeof(text), "penstock-bundle 1\n6 %zu\nc.yaml\n%s\n"
	    "6 %zu\np.yaml\n%s\n", strlen(CONFIG), CONFIG, strlen(POLICY),
	    POLICY);
	put("c.yaml", CONFIG);
	put("p.yaml", POLICY);
	c = run("c.yaml", 0);
	memcpy(one, compile_digest(c), 32);
	crypto_generichash(known, sizeof(known), (const uint8_t *)text,
	    strlen(text), NULL, 0);
	assert_memory_equal(one, known, 32);
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
	(void)state;
	free(said);
	unlinkat(dir_fd, "c.yaml", 0);
	unlinkat(dir_fd, "p.yaml", 0);
	close(dir_fd);
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    an_image_carries_policy_settings_and_generation),
		cmocka_unit_test(
		    W42_a_strict_policy_is_not_taken_for_a_cooperative_one),
		cmocka_unit_test(the_digest_is_of_every_byte_that_was_read),
		cmocka_unit_test(nothing_outside_the_directory_is_read),
		cmocka_unit_test(a_link_beneath_the_directory_is_followed),
		cmocka_unit_test(
		    a_configuration_without_a_resolver_is_refused),
		cmocka_unit_test(
		    the_host_s_addresses_are_in_a_confined_role_s_image),
		cmocka_unit_test(
		    more_addresses_than_can_be_refused_are_an_error),
		cmocka_unit_test(W40_the_environment_alone_makes_a_sidecar),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
