/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The verbs, called as main calls them, over files of a directory of ours;
 * what they print is read back. */
static char dir[] = "/tmp/test_verbs.XXXXXX";
static char out[1 << 16], err[1 << 16];

static int
redirect(int fd, const char *name)
{
	int to = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int old = dup(fd);

	dup2(to, fd);
	close(to);
	return old;
}

static void
restore(int fd, int old, const char *name, char *text)
{
	FILE *f;

	fflush(fd == 1 ? stdout : stderr);
	dup2(old, fd);
	close(old);
	f = fopen(name, "r");
	text[fread(text, 1, (1 << 16) - 1, f)] = '\0';
	fclose(f);
}

/* The words are split at blanks. */
static int
run(int (*verb)(int, char **), const char *words)
{
	char copy[1024], *argv[32] = { copy }, *save;
	int argc = 0, rc, o, e;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *w = strtok_r(copy, " ", &save); w != NULL;
	    w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	fflush(stdout);
	o = redirect(1, "out");
	e = redirect(2, "err");
	rc = verb(argc, argv);
	restore(1, o, "out", out);
	restore(2, e, "err", err);
	return rc;
}

static void
write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

#define HEX_32 "0123456789abcdef0123456789abcdef"
#define HEAD "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
    "  lab: [198.18.0.0/15]\n  rule:\n"
#define A_443 "  - {verdict: allow, hostname: a.example.com}\n"
#define B_DENY "  - {verdict: deny, hostname: b.example.com, id: no-b}\n"
#define WILD "  - {verdict: allow, hostname: '*.w.example.com'}\n"

static int
make_files(void **state)
{
	char config[256];

	(void)state;
	if (mkdtemp(dir) == NULL || chdir(dir) != 0)
		return -1;
	write_file("p.yaml", HEAD A_443 B_DENY);
	write_file("git.yaml", HEAD
	    "  - {verdict: allow, cidr: 9.9.9.9, ports: [22]}\n"
	    "  - {verdict: allow, hostname: git.example.com, ports: [22, "
	    "8443]}\n"
	    "  - {verdict: allow, hostname: ssh.example.com, ports: [2222], "
	    "protocol: tcp}\n"
	    "expect: [{deny: 'git.example.com:22'}, {allow: "
	    "'git.example.com:8443'}, {allow: 'ssh.example.com:2222'}]\n");
	write_file("wide.yaml", HEAD A_443 B_DENY WILD);
	write_file("bad.yaml", HEAD "  - {verdict: maybe, hostname: a.b}\n");
	write_file("met.yaml", HEAD A_443 B_DENY
	    "expect: [{allow: 'a.example.com:443'}, "
	    "{deny: b.example.com}]\n");
	write_file("unmet.yaml", HEAD A_443 B_DENY
	    "expect: [{allow: 'a.example.com:443'}, "
	    "{allow: b.example.com}]\n");
	snprintf(config, sizeof(config), "version: 1\nmode: shared\n"
	    "ledger: {dir: %s}\ncells:\n  - {id: one, policy: [p.yaml]}\n",
	    dir);
	write_file("penstock.yaml", config);
	write_file("env.yaml", "version: 1\nmode: cooperative\nlisteners:\n"
	    "  - {name: wide, kind: explicit, address: '0.0.0.0:15080'}\n"
	    "  - {name: second, kind: explicit, address: "
	    "'127.0.0.1:15081'}\n"
	    "  - {name: shut, kind: explicit, address: '[::1]:15082', "
	    "credential: true}\ncells:\n"
	    "  - {id: one, policy: [p.yaml], from: {cidr: 10.0.0.0/8}}\n"
	    "  - {id: two, policy: [p.yaml], from: {listener: second}}\n"
	    "  - {id: 't/a@b', policy: [p.yaml], from: {credential: "
	    "'blake2b:" HEX_32 HEX_32 "'}}\n"
	    "  - {id: 'a:b', policy: [p.yaml], from: {credential: "
	    "'blake2b:" HEX_32 "00000000000000000000000000000001'}}\n");
	write_file("cells.yaml", "version: 1\nmode: cooperative\ncells:\n"
	    "  - {id: one, policy: [met.yaml], from: {cidr: 10.0.0.0/8}}\n"
	    "  - {id: two, policy: [met.yaml], from: {cidr: 11.0.0.0/8}}\n");
	write_file("only.yaml", "version: 1\nmode: cooperative\n"
	    "cells: [{id: one, policy: [p.yaml]}]\n");
	write_file("records.jsonl",
	    "{\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"start\","
	    "\"detail\":\"version=9\\u001b mode=shared\"}\n"
	    "{\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"decision\","
	    "\"verdict\":\"deny\",\"reason\":\"no_rule\",\"cell\":\"one\","
	    "\"name\":\"x\\u001b[2J.example\",\"port\":443}\n"
	    "{\"time\":\"2026-01-01T00:00:01Z\",\"kind\":\"end\","
	    "\"verdict\":\"allow\",\"reason\":\"none\",\"cell\":\"two\","
	    "\"name\":\"y.example\",\"dialled\":\"192.0.2.1:443\","
	    "\"how\":\"eof\",\"bytes_up\":3,\"bytes_down\":5}\n"
	    "{\"time\":\"2026-01-01T00:00:02Z\",\"kind\":\"end\","
	    "\"verdict\":\"deny\",\"reason\":\"no_rule\",\"cell\":\"one\","
	    "\"name\":\"told.example\",\"port\":443,\"how\":\"refused\"}\n"
	    "{\"time\":\"2026-01-01T00:00:03Z\",\"kind\":\"decision\","
	    "\"verdict\":\"deny\",\"reason\":\"rule_deny\",\"cell\":\"one\","
	    "\"other_name\":\"z\\u0007.example\",\"rule\":\"r\",\"count\":72}\n"
	    "{\"time\":\"2026-01-01T00:00:04Z\",\"kind\":\"gap\","
	    "\"count\":9}\n"
	    "{\"time\":\"2026-01-01T00:00:05Z\",\"kind\":\"dns\","
	    "\"verdict\":\"deny\",\"reason\":\"rule_deny\",\"cell\":\"one\","
	    "\"client\":\"192.0.2.7:53\",\"name\":\"q.example\","
	    "\"qtype\":28,\"rule\":\"no-q\",\"rule_at\":\"p.yaml:4\","
	    "\"rule_reason\":\"use\\u0007ours\"}\n"
	    "no record\n{\"torn\":");
	return 0;
}

static int
remove_files(void **state)
{
	static const char *const names[] = { "p.yaml", "wide.yaml",
	    "bad.yaml", "met.yaml", "unmet.yaml", "penstock.yaml",
	    "env.yaml", "cells.yaml", "only.yaml", "records.jsonl",
	    "git.yaml", "gw.yaml", "out",
	    "err", "sock" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(names[i]);
	return chdir("/") != 0 || rmdir(dir) != 0;
}

/* ---- check, explain, test, diff ---- */

static void
check_says_what_would_run_and_what_is_wrong(void **state)
{
	(void)state;
	assert_int_equal(run(verb_check, "check wide.yaml"), 0);
	assert_non_null(strstr(out, "cell policy: default deny, enforce "
	    "strict, 3 rules"));
	assert_non_null(strstr(out, "*.w.example.com matches "
	    "a.w.example.com, not w.example.com"));
	assert_int_equal(run(verb_check, "check -q wide.yaml"), 0);
	assert_string_equal(out, "");
	assert_null(strstr(err, "good"));
	/* what captures nothing is not shown as strict */
	assert_int_equal(run(verb_check, "check env.yaml"), 0);
	assert_non_null(strstr(out, "cell one: default deny, enforce "
	    "cooperative, 2 rules"));
	assert_null(strstr(out, "strict"));
	assert_int_equal(run(verb_check, "check bad.yaml"), EXIT_CONFIG);
	assert_non_null(strstr(err, "bad.yaml:6:"));
	assert_int_equal(run(verb_check, "check none.yaml"), EXIT_FAILURE);
	assert_non_null(strstr(err, "name a policy or a penstock.yaml"));
}

static void
what_is_no_file_is_said_by_each_verb(void **state)
{
	(void)state;
	assert_int_equal(run(verb_check, "check ."), EXIT_FAILURE);
	assert_non_null(strstr(err, "penstock check: .: Is a directory"));
	assert_int_equal(run(verb_check, "check /dev/null"), EXIT_FAILURE);
	assert_non_null(strstr(err, "no regular file"));
	assert_int_equal(run(verb_test, "test ."), EXIT_FAILURE);
	assert_non_null(strstr(err, "Is a directory"));
	assert_int_equal(run(verb_explain, "explain -c . a.b"), EXIT_FAILURE);
	assert_non_null(strstr(err, "Is a directory"));
	assert_int_equal(run(verb_diff, "diff p.yaml ."), EXIT_FAILURE);
	assert_non_null(strstr(err, "Is a directory"));
	assert_int_equal(run(verb_status, "status -c ."), EXIT_CONFIG);
	assert_non_null(strstr(err, "Is a directory"));
	assert_int_equal(run(verb_status, "status -c none"), EXIT_CONFIG);
	assert_non_null(strstr(err, "name the configuration with -c"));
}

static void
a_wrong_command_line_is_told_what_is_wrong(void **state)
{
	static const struct {
		int (*verb)(int, char **);
		const char *words, *said;
	} rows[] = {
		{ verb_explain, "explain", "HOST[:PORT] is missing" },
		{ verb_explain, "explain a.b 443", "\"443\" is one operand "
		    "too many" },
		{ verb_check, "check --quite", "--quite is not taken here" },
		{ verb_check, "check -x p.yaml", "-x is not taken here" },
		{ verb_check, "check --quiet=1", "--quiet=1 is not taken" },
		{ verb_tail, "tail --once --cell", "--cell needs a value" },
		{ verb_tail, "tail -c", "-c needs a value" },
		{ verb_health, "health", "one of --live and --ready" },
		{ verb_schema, "schema x\033[2J", "no schema x.[2J" },
		{ verb_rules, "rules frob", "there is no task \"frob\"" },
		{ verb_rules, "rules remove --mode gatway", "there is no mode "
		    "\"gatway\"" },
		{ verb_rules, "rules print -c env.yaml", "the mode is "
		    "cooperative" },
		{ verb_diff, "diff p.yaml penstock.yaml", "p.yaml is a "
		    "policy and penstock.yaml a penstock.yaml" },
		{ verb_diff, "diff env.yaml p.yaml", "p.yaml is a policy and "
		    "env.yaml a penstock.yaml" },
		{ verb_explain, "explain -c env.yaml a.b", "name one with "
		    "--cell: one, two, t/a@b, a:b" },
		{ verb_explain, "explain -c p.yaml http://a.b/", "no "
		    "destination; write a name" },
		{ verb_env, "env -c env.yaml", "name one with --cell: one, "
		    "two, t/a@b, a:b" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(run(rows[i].verb, rows[i].words),
		    EXIT_USAGE);
		if (strstr(err, rows[i].said) == NULL)
			fail_msg("no \"%s\" in: %s", rows[i].said, err);
		assert_string_equal(out, "");
	}
}

static void
explain_answers_by_its_exit_status(void **state)
{
	(void)state;
	assert_int_equal(run(verb_explain, "explain -c p.yaml "
	    "a.example.com"), 0);
	assert_int_equal(run(verb_explain, "explain -c p.yaml "
	    "a.example.com:22"), EXIT_DENY);
	assert_int_equal(run(verb_explain, "explain -c p.yaml "
	    "b.example.com"), EXIT_DENY);
	assert_non_null(strstr(out, "no-b"));
	assert_int_equal(run(verb_explain, "explain -c p.yaml --ip "
	    "169.254.169.254 a.example.com"), EXIT_DENY);
	assert_int_equal(run(verb_explain, "explain -c p.yaml --ip "
	    "8.8.8.8 a.example.com"), 0);
	/* SSH shows no name: only protocol: tcp carries it */
	assert_int_equal(run(verb_explain, "explain -c git.yaml "
	    "git.example.com:22"), EXIT_DENY);
	assert_non_null(strstr(out, "SSH shows no name"));
	assert_non_null(strstr(out, "deny: not_tls"));
	assert_int_equal(run(verb_explain, "explain -c git.yaml --ip "
	    "8.8.8.8 git.example.com:22"), EXIT_DENY);
	assert_int_equal(run(verb_explain, "explain -c git.yaml --ip "
	    "9.9.9.9 git.example.com:22"), 0);
	assert_int_equal(run(verb_explain, "explain -c git.yaml "
	    "git.example.com:8443"), 0);
	assert_non_null(strstr(out, "shows the name, in TLS or HTTP"));
	assert_int_equal(run(verb_explain, "explain -c git.yaml "
	    "ssh.example.com:2222"), 0);
	assert_int_equal(run(verb_test, "test git.yaml"), 0);
	assert_int_equal(run(verb_check, "check git.yaml"), 0);
	assert_non_null(strstr(err, "git.yaml:7:5: warning: allow "
	    "git.example.com on port 22 carries TLS and HTTP only; SSH"));
	assert_null(strstr(err, "git.yaml:8:"));
	assert_int_equal(run(verb_explain, "explain -c p.yaml a..b"),
	    EXIT_USAGE);
	assert_int_equal(run(verb_explain, "explain -c p.yaml --cell none "
	    "a.example.com"), EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "no cell \"none\"; there is policy\n"));
	assert_int_equal(run(verb_explain, "explain -c bad.yaml a.b"),
	    EXIT_CONFIG);
}

static void
test_counts_what_is_not_met(void **state)
{
	(void)state;
	assert_int_equal(run(verb_test, "test met.yaml"), 0);
	assert_non_null(strstr(out, "ok 2 - deny b.example.com"));
	assert_non_null(strstr(out, "1..2"));
	/* the same expectation of two cells is told apart */
	assert_int_equal(run(verb_test, "test cells.yaml"), 0);
	assert_non_null(strstr(out, "ok 1 - one: allow a.example.com:443\n"));
	assert_non_null(strstr(out, "ok 4 - two: deny b.example.com\n"));
	assert_int_equal(run(verb_test, "test unmet.yaml"), EXIT_FAILURE);
	assert_non_null(strstr(out, "not ok 2 - allow b.example.com"));
	/* no expectation is not an expectation met */
	assert_int_equal(run(verb_test, "test p.yaml"), EXIT_FAILURE);
	assert_int_equal(run(verb_test, "test bad.yaml"), EXIT_CONFIG);
}

static void
diff_tells_wider_from_narrower_and_from_failed(void **state)
{
	(void)state;
	assert_int_equal(run(verb_diff, "diff p.yaml p.yaml"), 0);
	assert_int_equal(run(verb_diff, "diff p.yaml wide.yaml"), EXIT_DENY);
	assert_non_null(strstr(out, "+ *.w.example.com:443"));
	assert_int_equal(run(verb_diff, "diff wide.yaml p.yaml"),
	    EXIT_NARROWER);
	assert_non_null(strstr(out, "- *.w.example.com:443"));
	assert_int_equal(run(verb_diff, "diff p.yaml bad.yaml"),
	    EXIT_CONFIG);
	assert_int_equal(run(verb_diff, "diff p.yaml none.yaml"),
	    EXIT_FAILURE);
	assert_int_equal(run(verb_diff, "diff p.yaml"), EXIT_USAGE);
}

/* ---- env ---- */

#define ENV "env -c env.yaml --cell "

static void
env_names_the_listener_of_the_cell(void **state)
{
	(void)state;
	assert_int_equal(run(verb_env, ENV "two"), 0);
	assert_non_null(strstr(out, "export HTTPS_PROXY="
	    "'http://127.0.0.1:15081'\n"));
	assert_non_null(strstr(out, "export no_proxy="
	    "'localhost,127.0.0.1,::1'\n"));
	assert_int_equal(run(verb_env, ENV "two --format docker"), 0);
	assert_non_null(strstr(out, "\nhttps_proxy=http://127.0.0.1:15081\n"));
	assert_int_equal(run(verb_env, ENV "two --format yaml"), EXIT_USAGE);
	assert_int_equal(run(verb_env, ENV "none"), EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "there is one, two, t/a@b, a:b"));
	/* the only cell needs no name */
	assert_int_equal(run(verb_env, "env -c only.yaml"), 0);
	assert_non_null(strstr(out, "'http://127.0.0.1:15080'"));
	assert_int_equal(run(verb_env, "env -c p.yaml --cell one"),
	    EXIT_CONFIG);
}

#define GATEWAY "version: 1\nmode: gateway\ninterfaces: [ag0, ag1]\n"
#define GIVEN "listeners:\n" \
    "  - {name: t, kind: tproxy, address: '0.0.0.0:15001'}\n" \
    "  - {name: l, kind: explicit, address: '127.0.0.1:3127'}\n" \
    "  - {name: u, kind: explicit, address: '192.0.2.1:3128'}\n" \
    "  - {name: a, kind: explicit, address: '10.1.0.2:3129'}\n" \
    "  - {name: b, kind: explicit, address: '10.2.0.2:3130'}\n"
#define ONE(from) "cells: [{id: one, policy: [p.yaml], from: {" from "}}]\n"

/* A gateway's listener is where the cell's clients are, as far as this
 * machine's interfaces tell. */
static void
env_finds_a_gateways_address_on_the_cells_side(void **state)
{
	static const struct {
		const char *config, *url;
	} rows[] = {
		{ GATEWAY ONE("interface: ag1"), "10.2.0.2:15080" },
		{ GATEWAY ONE("cidr: 10.2.0.0/25"), "10.2.0.2:15080" },
		{ GATEWAY ONE("interface: ag0, cidr: 10.3.0.9/32"),
		    "10.3.0.2:15080" },
		{ GATEWAY ONE("cidr: 10.9.0.9/32"), "10.1.0.2:15080" },
		{ GATEWAY "cells: [{id: one, policy: [p.yaml]}]\n",
		    "10.1.0.2:15080" },
		{ GATEWAY "ipv6: proxy\n" ONE("cidr: 'fd02::/64'"),
		    "10.1.0.2:15080" },
		{ GATEWAY "ipv6: proxy\n" ONE("interface: ag2"),
		    "[fd02::2]:15080" },
		{ GATEWAY ONE("interface: ag2"), NULL },
		{ GATEWAY ONE("interface: ag9"), NULL },
		{ GATEWAY GIVEN ONE("interface: ag1"), "10.2.0.2:3130" },
		{ GATEWAY GIVEN ONE("interface: ag0"), "10.1.0.2:3129" },
		{ GATEWAY GIVEN ONE("interface: ag9"), "192.0.2.1:3128" },
		{ GATEWAY GIVEN ONE("listener: l"), "127.0.0.1:3127" },
	};

	(void)state;
	if (unshare(CLONE_NEWNET) != 0)
		skip();
	assert_int_equal(system("ip link add ag0 type veth peer name ag1 && "
	    "ip link add ag2 type veth peer name ag3 && "
	    "ip addr add 10.1.0.2/24 dev ag0 && "
	    "ip addr add 10.3.0.2/24 dev ag0 && "
	    "ip addr add 10.2.0.2/24 dev ag1 && "
	    "ip addr add fd02::2/64 dev ag2"), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char want[64];

		write_file("gw.yaml", rows[i].config);
		if (rows[i].url == NULL) {
			assert_int_equal(run(verb_env, "env -c gw.yaml"),
			    EXIT_FAILURE);
			assert_string_equal(out, "");
			assert_non_null(strstr(err, "explicit is on all "
			    "addresses (0.0.0.0:15080), and here no "
			    "interface"));
			continue;
		}
		assert_int_equal(run(verb_env, "env -c gw.yaml"), 0);
		snprintf(want, sizeof(want), "='http://%s'\n", rows[i].url);
		if (strstr(out, want) == NULL)
			fail_msg("row %zu, not %s: %s", i, want, out);
	}
}

static void
env_prints_no_address_that_nobody_can_reach(void **state)
{
	(void)state;
	assert_int_equal(run(verb_env, ENV "one"), EXIT_FAILURE);
	assert_non_null(strstr(err, "wide is on all addresses"));
	assert_string_equal(out, "");
	assert_int_equal(run(verb_env, ENV "one --address 10.0.0.1:15080"),
	    0);
	assert_non_null(strstr(out, "'http://10.0.0.1:15080'"));
}

static void
env_takes_an_address_and_nothing_else(void **state)
{
	static const char *const good[] = { "proxy:1", "a.example.com:15080",
	    "10.0.0.1:65535", "[fd00::1]:15080" };
	static const char *const bad[] = { "x", ":1", "x:", "x:0", "x:01",
	    "x:65536", "x:99999999999", "10.0.0.1", "::1:15080", "[::1]",
	    "[::1]:", "[::1]:0", "[x]:1", "x:1'y", "x:1\"y", "$(id):1",
	    "x;id:1", "x:1/y", "http://x:1", "u@x:1", "0.0.0.0:1",
	    "[::]:1", "a..b:1", "010.0.0.1:1", "x:1\ny", "-" };
	char words[256];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(words, sizeof(words), ENV "one --address %s",
		    good[i]);
		assert_int_equal(run(verb_env, words), 0);
		assert_non_null(strstr(out, good[i]));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(words, sizeof(words), ENV "one --address %s",
		    bad[i]);
		assert_int_equal(run(verb_env, words), EXIT_USAGE);
		assert_string_equal(out, "");
		assert_non_null(strstr(err, bad[i]));
	}
}

static void
env_needs_a_token_that_a_url_can_carry(void **state)
{
	(void)state;
	unsetenv("PENSTOCK_TOKEN");
	assert_int_equal(run(verb_env, ENV "t/a@b"), EXIT_FAILURE);
	assert_non_null(strstr(err, "set PENSTOCK_TOKEN"));
	setenv("PENSTOCK_TOKEN", "to-k_e.n~", 1);
	assert_int_equal(run(verb_env, ENV "t/a@b"), 0);
	assert_non_null(strstr(out,
	    "'http://t%2Fa%40b:to-k_e.n~@[::1]:15082'"));
	assert_int_equal(run(verb_env, ENV "a:b"), EXIT_FAILURE);
	assert_non_null(strstr(err, "has a colon"));
	setenv("PENSTOCK_TOKEN", "a'; id; '", 1);
	assert_int_equal(run(verb_env, ENV "t/a@b"), EXIT_FAILURE);
	assert_non_null(strstr(err, "PENSTOCK_TOKEN has a byte"));
	assert_null(strstr(err, "id;"));
	assert_string_equal(out, "");
	unsetenv("PENSTOCK_TOKEN");
}

/* ---- tail ---- */

static void
tail_shows_each_whole_record_and_no_raw_bytes(void **state)
{
	(void)state;
	assert_int_equal(run(verb_tail, "tail --once -c penstock.yaml"), 0);
	assert_non_null(strstr(out, "x.[2J.example:443 cell=one"));
	assert_non_null(strstr(out,
	    "2026-01-01T00:00:00Z start    version=9. mode=shared\n"));
	assert_non_null(strstr(out, "192.0.2.1:443 cell=two"));
	assert_non_null(strstr(out, "how=eof up=3 down=5"));
	/* one that stands for many says so, and the name that did not fit */
	assert_non_null(strstr(out, "rule=r other_name=z..example count=72\n"));
	assert_non_null(strstr(out, "gap      - count=9\n"));
	/* why it was refused: the question, who asked, the rule's words */
	assert_non_null(strstr(out, "q.example AAAA cell=one "
	    "client=192.0.2.7:53 rule=no-q at=p.yaml:4 (use.ours)\n"));
	assert_null(strstr(out, "torn"));
	assert_null(strchr(out, 0x1b));
	assert_non_null(strstr(err, "a line is no record"));
}

static void
tail_keeps_to_what_was_asked(void **state)
{
	(void)state;
	assert_int_equal(run(verb_tail, "tail --once --file records.jsonl "
	    "--denied"), 0);
	assert_null(strstr(out, "y.example"));
	assert_null(strstr(out, "told.example"));	/* once */
	assert_non_null(strstr(out, ".example:443"));
	assert_null(strstr(out, "start"));
	assert_int_equal(run(verb_tail, "tail --once --file records.jsonl "
	    "--cell two --json"), 0);
	assert_int_equal(out[0], '{');
	assert_null(strstr(out, "\"one\""));
	/* a cell with records, none of them a refusal, is not unknown */
	assert_int_equal(run(verb_tail, "tail --once --file records.jsonl "
	    "--cell two --denied"), 0);
	assert_string_equal(out, "");
}

static void
tail_says_that_there_is_no_such_cell(void **state)
{
	(void)state;
	assert_int_equal(run(verb_tail, "tail -c penstock.yaml --cell nope"),
	    EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "has no cell \"nope\""));
	assert_int_equal(run(verb_tail, "tail --once --file records.jsonl "
	    "--cell nope"), EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "no record of that cell"));
	assert_int_equal(run(verb_tail, "tail --once --file none.jsonl"),
	    EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "penstock serve makes it"));
}

/* ---- status and health, against an answer of ours ---- */

static int listener = -1;

static void *
answer_once(void *text)
{
	char got[1024];
	int fd = accept(listener, NULL, NULL);

	if (recv(fd, got, sizeof(got), 0) > 0)
		(void)!write(fd, text, strlen(text));
	close(fd);
	return NULL;
}

static int
run_against(const char *answer, int (*verb)(int, char **),
    const char *words)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX,
	    .sun_path = "sock" };
	char text[4096];
	pthread_t t;
	int rc;

	unlink("sock");
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&sun,
	    sizeof(sun)), 0);
	assert_int_equal(listen(listener, 1), 0);
	snprintf(text, sizeof(text), "%s", answer);
	assert_int_equal(pthread_create(&t, NULL, answer_once, text), 0);
	rc = run(verb, words);
	pthread_join(t, NULL);
	close(listener);
	return rc;
}

#define OK "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
#define NO "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n"

static void
status_shows_what_is_not_well(void **state)
{
	(void)state;
	assert_int_equal(run_against(OK "{\"version\":\"9\",\"ready\":false,"
	    "\"mode\":\"shared\",\"enforcing\":false,\"not_enforcing\":"
	    "\"a cell only reports\",\"generation\":4,"
	    "\"digest\":\"abcd\",\"checks\":{\"policy\":true,"
	    "\"recorder\":false},\"denied\":{\"no_rule\":7},"
	    "\"roles\":[{\"role\":\"engine\",\"index\":1,\"pid\":42,"
	    "\"ready\":true,\"restarts\":0},{\"role\":\"recorder\","
	    "\"index\":0,\"pid\":0,\"ready\":false,\"restarts\":3}]}\n",
	    verb_status,
	    "status --admin unix:sock"), 0);
	assert_non_null(strstr(out, "NOT READY"));
	assert_non_null(strstr(out, "NOT ENFORCING: a cell only reports\n"));
	assert_non_null(strstr(out, "generation 4"));
	assert_non_null(strstr(out, "recorder               failed"));
	assert_null(strstr(out, "policy                 failed"));
	assert_non_null(strstr(out, "no_rule                7"));
	assert_non_null(strstr(out, "engine 1  pid 42\n"));
	assert_non_null(strstr(out, "recorder 0  away, NOT READY, "
	    "restarted 3\n"));
	assert_int_equal(run_against(OK "{}\n", verb_status,
	    "status --json --admin unix:sock"), 0);
	assert_string_equal(out, "{}\n");
}

static void
an_answer_that_is_none_is_no_status(void **state)
{
	(void)state;
	assert_int_equal(run_against(NO "{}", verb_status,
	    "status --admin unix:sock"), EXIT_UNAVAILABLE);
	assert_int_equal(run_against(OK "{\"a\":", verb_status,
	    "status --admin unix:sock"), EXIT_UNAVAILABLE);
	assert_int_equal(run_against("garbage\r\n\r\n", verb_status,
	    "status --admin unix:sock"), EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "does not answer as penstock does"));
	assert_int_equal(run(verb_status, "status --admin unix:gone"),
	    EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "no daemon answers at unix:gone: No such "
	    "file or directory; does it run"));
	assert_int_equal(run(verb_status, "status --admin nonsense"),
	    EXIT_UNAVAILABLE);
	assert_non_null(strstr(err, "write ADDRESS:PORT or unix:/PATH"));
	assert_int_equal(run(verb_status, "status -c bad.yaml"),
	    EXIT_CONFIG);
}

static void
health_is_yes_only_on_a_200(void **state)
{
	(void)state;
	assert_int_equal(run_against(OK "ready\n", verb_health,
	    "health --ready --admin unix:sock"), 0);
	assert_string_equal(out, "ready\n");
	assert_int_equal(run_against(NO "not ready\n", verb_health,
	    "health --ready --admin unix:sock"), 1);
	assert_int_equal(run_against("", verb_health,
	    "health --live --admin unix:sock"), 1);
	assert_int_equal(run(verb_health, "health --live --admin unix:gone"),
	    1);
	assert_int_equal(run(verb_health, "health --admin unix:sock"),
	    EXIT_USAGE);
	assert_int_equal(run(verb_health, "health --live --ready"),
	    EXIT_USAGE);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_says_what_would_run_and_what_is_wrong),
		cmocka_unit_test(what_is_no_file_is_said_by_each_verb),
		cmocka_unit_test(a_wrong_command_line_is_told_what_is_wrong),
		cmocka_unit_test(explain_answers_by_its_exit_status),
		cmocka_unit_test(test_counts_what_is_not_met),
		cmocka_unit_test(diff_tells_wider_from_narrower_and_from_failed),
		cmocka_unit_test(env_names_the_listener_of_the_cell),
		cmocka_unit_test(
		    env_finds_a_gateways_address_on_the_cells_side),
		cmocka_unit_test(env_prints_no_address_that_nobody_can_reach),
		cmocka_unit_test(env_takes_an_address_and_nothing_else),
		cmocka_unit_test(env_needs_a_token_that_a_url_can_carry),
		cmocka_unit_test(tail_shows_each_whole_record_and_no_raw_bytes),
		cmocka_unit_test(tail_keeps_to_what_was_asked),
		cmocka_unit_test(tail_says_that_there_is_no_such_cell),
		cmocka_unit_test(status_shows_what_is_not_well),
		cmocka_unit_test(an_answer_that_is_none_is_no_status),
		cmocka_unit_test(health_is_yes_only_on_a_200),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
