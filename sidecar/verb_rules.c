/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sidecar/config.h"
#include "sidecar/rules.h"

/* What was said on the command line; it stands above the file. */
struct given {
	const char *config, *mode, *uid, *tcp_port, *dns_port, *ipv6,
	    *admin_port;
	enum settings_mode mode_is;
	const char *interfaces[8];
	size_t n_interfaces;
	const char *inbound[SETTINGS_INBOUND_MAX];
	size_t n_inbound;
};

#define N_INTERFACES (sizeof((struct given){ 0 }.interfaces) / \
	sizeof(const char *))

static int read_options(struct given *g, int argc, char **argv);
static bool spec_from(struct rules_spec *r, const struct given *g,
    int *status);
static int run(const char *what, const struct rules_spec *r);
static void say_apply(int argc, char **argv, int task);

int
verb_rules(int argc, char **argv)
{
	struct given g = { 0 };
	struct rules_spec r;
	const char *what;
	int status = read_options(&g, argc, argv);

	if (status != VERB_GO)
		return status;
	what = argv[optind];
	/* Taking away needs to know nothing, so that it always works. */
	if (strcmp(what, "remove") == 0)
		return run(what, NULL);
	if (!spec_from(&r, &g, &status))
		return status;
	status = run(what, &r);
	if (strcmp(what, "check") == 0 &&
	    (status == EXIT_FAILURE || status == EXIT_OPEN_END))
		say_apply(argc, argv, optind);
	return status;
}

/* The same command line with another task. */
static void
say_apply(int argc, char **argv, int task)
{
	char shown[256];

	fprintf(stderr, "penstock rules check: to load what is expected: "
	    "penstock rules apply");
	for (int i = 1; i < argc; i++)
		if (i != task)
			fprintf(stderr, " %s", span_print(span_str(argv[i]),
			    shown, sizeof(shown)));
	fputc('\n', stderr);
}

static bool
is_task(const char *word)
{
	static const char *const tasks[] = { "print", "apply", "check",
	    "remove" };

	for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
		if (strcmp(word, tasks[i]) == 0)
			return true;
	return false;
}

static int
read_options(struct given *g, int argc, char **argv)
{
	const struct verb_option options[] = {
		{ "mode", 0, "MODE", "shared or gateway", .text = &g->mode },
		{ "uid", 0, "U[,U...]", "shared: who is exempt",
		    .text = &g->uid },
		{ "interface", 0, "NAME", "gateway: where the agents are; "
		    "may be repeated", .text = g->interfaces,
		    .count = &g->n_interfaces, .max = N_INTERFACES },
		{ "inbound", 0, "PORT", "shared: a port that agents "
		    "serve; may be repeated", .text = g->inbound,
		    .count = &g->n_inbound, .max = SETTINGS_INBOUND_MAX },
		{ "tcp-port", 0, "PORT", "penstock's TCP listener (15001)",
		    .text = &g->tcp_port },
		{ "dns-port", 0, "PORT", "and its DNS front (15053; gateway "
		    "53)", .text = &g->dns_port },
		{ "ipv6", 0, "drop|proxy", "what becomes of IPv6 (drop)",
		    .text = &g->ipv6 },
		{ "admin-port", 0, "PORT", "a port of ours closed to agents",
		    .text = &g->admin_port },
		{ "config", 'c', "FILE", "the configuration, or " VERB_CONFIG,
		    .text = &g->config },
	};
	const struct verb v = {
		"rules", "print|apply|check|remove",
		"Print, apply, check, remove the kernel rules. Options stand "
		"above the file;\nwith --mode and no -c no file is read.\n",
		"0 done, 1 failure or they differ, 2 usage, 3 none to check,\n"
		"69 no libnftables, 77 CAP_NET_ADMIN is missing, "
		"78 bad configuration",
		1, 1, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	g->mode_is = MODE_SHARED;
	if (rc != VERB_GO)
		return rc;
	if (!is_task(argv[optind]))
		return verb_wrong(&v, "there is no task \"%s\"",
		    argv[optind]);
	if (g->mode != NULL &&
	    !settings_mode_parse(&g->mode_is, span_str(g->mode)))
		return verb_wrong(&v, "there is no mode \"%s\"; write "
		    "shared or gateway", g->mode);
	return VERB_GO;
}

/* Digits only, up to max; false for anything else. */
static bool
number(const char *text, size_t len, uint32_t max, uint32_t *out)
{
	uint64_t n = 0;

	if (len == 0 || len > 10)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(text[i] - '0');
	}
	*out = (uint32_t)n;
	return n <= max;
}

static bool
port(const char *text, uint16_t *out)
{
	uint32_t n;

	if (text == NULL)
		return true;
	if (!number(text, strlen(text), 65535, &n) || n == 0) {
		fprintf(stderr, "penstock rules: %s: not a port (1 to 65535)\n",
		    text);
		return false;
	}
	*out = (uint16_t)n;
	return true;
}

static bool
uids(struct rules_spec *r, const char *list)
{
	r->n_uids = 0;
	for (const char *at = list; ; at++) {
		size_t len = strcspn(at, ",");
		uint32_t n;

		if (r->n_uids == RULES_UIDS_MAX ||
		    !number(at, len, UINT32_MAX - 1, &n)) {
			fprintf(stderr, "penstock rules: --uid %s: numbers "
			    "with commas between, at most %u\n", list,
			    RULES_UIDS_MAX);
			return false;
		}
		r->uids[r->n_uids++] = (uid_t)n;
		at += len;
		if (*at == '\0')
			return true;
	}
}

static bool
overlay(struct rules_spec *r, const struct given *g)
{
	if (!port(g->tcp_port, &r->tcp_port) ||
	    !port(g->dns_port, &r->dns_port) ||
	    !port(g->admin_port, &r->admin_port) ||
	    (g->uid != NULL && !uids(r, g->uid)))
		return false;
	if (g->n_interfaces > 0)
		r->n_interfaces = 0;
	for (size_t i = 0; i < g->n_interfaces; i++)
		snprintf(r->interfaces[r->n_interfaces++],
		    sizeof(r->interfaces[0]), "%s",
		    strlen(g->interfaces[i]) < sizeof(r->interfaces[0]) ?
		    g->interfaces[i] : "");
	if (g->n_inbound > 0)
		r->n_inbound = 0;
	for (size_t i = 0; i < g->n_inbound; i++)
		if (!port(g->inbound[i], &r->inbound[r->n_inbound++]))
			return false;
	if (g->ipv6 == NULL)
		return true;
	r->ipv6_drop = strcmp(g->ipv6, "drop") == 0;
	if (r->ipv6_drop || strcmp(g->ipv6, "proxy") == 0)
		return true;
	fprintf(stderr, "penstock rules: --ipv6 %s: drop or proxy\n", g->ipv6);
	return false;
}

/* A --mode beside a file only says the same again. */
static bool
from_file(struct rules_spec *r, const struct given *g, int *status)
{
	const char *path = g->config != NULL ? g->config : VERB_CONFIG;
	struct config *c;
	int rc = verb_config(path, &c);

	if (rc != 0) {
		*status = rc;
		return false;
	}
	rules_from_settings(r, &c->settings);
	config_free(c);
	if (g->mode == NULL || r->mode == g->mode_is)
		return true;
	*status = EXIT_CONFIG;
	fprintf(stderr, "penstock rules: --mode %s: %s says %s\n", g->mode,
	    path, settings_mode_word(r->mode));
	return false;
}

static bool
spec_from(struct rules_spec *r, const struct given *g, int *status)
{
	char why[RULES_WHY_BYTES];

	*status = EXIT_USAGE;
	if (g->config == NULL && g->mode != NULL) {
		struct settings s;

		settings_default(&s, g->mode_is);
		rules_from_settings(r, &s);
	} else if (!from_file(r, g, status)) {
		return false;
	}
	if (!overlay(r, g))
		return false;
	if (rules_valid(r, why, sizeof(why)))
		return true;
	fprintf(stderr, "penstock rules: %s; the mode is %s\n", why,
	    settings_mode_word(r->mode));
	return false;
}

static int
status_of(int error)
{
	switch (error) {
	case 0:
		return 0;
	case -ENOENT:
		return EXIT_OPEN_END;
	case -EPERM:
	case -EACCES:
		return EXIT_PRIVILEGE;
	case -ENOPKG:
		return EXIT_UNAVAILABLE;
	default:
		return EXIT_FAILURE;
	}
}

/* Rules for one that is to come are rules; for one that is misspelt, too. */
static void
miss_interfaces(const struct rules_spec *r)
{
	for (size_t i = 0; i < r->n_interfaces; i++)
		if (if_nametoindex(r->interfaces[i]) == 0)
			fprintf(stderr, "penstock rules apply: warning: no "
			    "interface of this host has the name %s; until "
			    "there is one nothing is captured there\n",
			    r->interfaces[i]);
}

static int
run(const char *what, const struct rules_spec *r)
{
	char text[RULES_TEXT_BYTES], why[RULES_WHY_BYTES] = "";
	int error;

	if (strcmp(what, "print") == 0) {
		error = rules_text(r, text, sizeof(text));
		if (error < 0) {
			fprintf(stderr, "penstock rules: more than fit\n");
			return EXIT_FAILURE;
		}
		return fputs(text, stdout) < 0 || fflush(stdout) != 0 ?
		    EXIT_FAILURE : 0;
	}
	if (strcmp(what, "apply") == 0)
		error = rules_apply(r, why, sizeof(why));
	else if (strcmp(what, "check") == 0)
		error = rules_check(r, why, sizeof(why));
	else
		error = rules_remove(why, sizeof(why));
	if (error != 0)
		fprintf(stderr, "penstock rules %s: %s\n", what, why);
	else if (strcmp(what, "apply") == 0)
		miss_interfaces(r);
	return status_of(error);
}
