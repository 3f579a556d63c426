/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sidecar/config.h"
#include "sidecar/rules.h"

/* What was said on the command line; it stands above the file. */
struct given {
	const char *config, *mode, *uid, *tcp_port, *dns_port, *ipv6,
	    *admin_port;
	const char *interfaces[8];
	size_t n_interfaces;
	const char *inbound[SETTINGS_INBOUND_MAX];
	size_t n_inbound;
};

static const char usage[] =
    "usage: penstock rules print|apply|check|remove --mode shared|gateway\n"
    "           [--uid U[,U...]] [--interface I]... [--inbound PORT]...\n"
    "           [--tcp-port 15001] [--dns-port 15053|53]\n"
    "           [--ipv6 drop|proxy] [--admin-port P] [-c penstock.yaml]\n";

static bool options(struct given *g, int argc, char **argv);
static bool spec_from(struct rules_spec *r, const struct given *g,
    int *status);
static int run(const char *what, const struct rules_spec *r);

int
verb_rules(int argc, char **argv)
{
	static const char *const whats[] = { "print", "apply", "check",
	    "remove" };
	struct given g = { 0 };
	struct rules_spec r;
	const char *what = argc > 1 ? argv[1] : "";
	int status = EXIT_USAGE;
	bool known = false;

	if (strcmp(what, "--help") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		known = known || strcmp(what, whats[i]) == 0;
	if (!known || !options(&g, argc - 1, argv + 1)) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	/* Taking away needs to know nothing, so that it always works. */
	if (strcmp(what, "remove") == 0)
		return run(what, NULL);
	if (!spec_from(&r, &g, &status))
		return status;
	return run(what, &r);
}

static bool
options(struct given *g, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "mode", required_argument, NULL, 'm' },
		{ "uid", required_argument, NULL, 'u' },
		{ "tcp-port", required_argument, NULL, 't' },
		{ "dns-port", required_argument, NULL, 'd' },
		{ "interface", required_argument, NULL, 'i' },
		{ "ipv6", required_argument, NULL, '6' },
		{ "inbound", required_argument, NULL, 'n' },
		{ "admin-port", required_argument, NULL, 'a' },
		{ "config", required_argument, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "c:", longs, NULL)) != -1) {
		switch (c) {
		case 'm': g->mode = optarg; break;
		case 'u': g->uid = optarg; break;
		case 't': g->tcp_port = optarg; break;
		case 'd': g->dns_port = optarg; break;
		case '6': g->ipv6 = optarg; break;
		case 'a': g->admin_port = optarg; break;
		case 'c': g->config = optarg; break;
		case 'i':
			if (g->n_interfaces == 8)
				return false;
			g->interfaces[g->n_interfaces++] = optarg;
			break;
		case 'n':
			if (g->n_inbound == SETTINGS_INBOUND_MAX)
				return false;
			g->inbound[g->n_inbound++] = optarg;
			break;
		default:
			return false;
		}
	}
	return optind == argc;
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
		fprintf(stderr, "penstock: %s: not a port (1 to 65535)\n",
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
			fprintf(stderr, "penstock: --uid %s: numbers with "
			    "commas between, at most %u\n", list,
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
	fprintf(stderr, "penstock: --ipv6 %s: drop or proxy\n", g->ipv6);
	return false;
}

/* The whole file, or NULL; the caller's. */
static char *
file_text(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	char *text = malloc(CONFIG_BYTES_MAX + 1);

	*len = 0;
	if (f != NULL && text != NULL)
		*len = fread(text, 1, CONFIG_BYTES_MAX + 1, f);
	if (f == NULL || text == NULL || ferror(f)) {
		fprintf(stderr, "penstock: %s: %s\n", path, strerror(errno));
		free(text);
		text = NULL;
	}
	if (f != NULL)
		fclose(f);
	return text;
}

static bool
from_file(struct rules_spec *r, const char *path)
{
	struct config_env env = config_env_read();
	struct problems *ps = problem_new();
	struct config *c = NULL;
	size_t len;
	char *text = file_text(path, &len);

	if (ps != NULL && text != NULL) {
		c = config_load(path, (struct span){ .data =
		    (const uint8_t *)text, .len = len }, &env, ps);
		problem_print(ps, stderr);
	}
	if (c != NULL)
		rules_from_settings(r, &c->settings);
	config_free(c);
	problem_free(ps);
	free(text);
	return c != NULL;
}

static bool
spec_from(struct rules_spec *r, const struct given *g, int *status)
{
	enum settings_mode mode = MODE_SHARED;
	char why[RULES_WHY_BYTES];

	*status = EXIT_USAGE;
	if (g->mode != NULL &&
	    !settings_mode_parse(&mode, span_str(g->mode))) {
		fprintf(stderr, "penstock: --mode %s: shared or gateway\n",
		    g->mode);
		return false;
	}
	if (g->config != NULL) {
		*status = EXIT_CONFIG;
		if (!from_file(r, g->config))
			return false;
		if (g->mode != NULL && r->mode != mode) {
			fprintf(stderr, "penstock: --mode %s: %s says %s\n",
			    g->mode, g->config, settings_mode_word(r->mode));
			return false;
		}
		*status = EXIT_USAGE;
	} else if (g->mode == NULL) {
		fputs(usage, stderr);
		return false;
	} else {
		struct settings s;

		settings_default(&s, mode);
		rules_from_settings(r, &s);
	}
	if (!overlay(r, g))
		return false;
	if (rules_valid(r, why, sizeof(why)))
		return true;
	fprintf(stderr, "penstock: rules: %s\n", why);
	return false;
}

static int
status_of(int error)
{
	switch (error) {
	case 0:
		return 0;
	case -EPERM:
	case -EACCES:
		return EXIT_PRIVILEGE;
	case -ENOPKG:
		return EXIT_UNAVAILABLE;
	default:
		return EXIT_FAILURE;
	}
}

static int
run(const char *what, const struct rules_spec *r)
{
	char text[RULES_TEXT_BYTES], why[RULES_WHY_BYTES] = "";
	int error;

	if (strcmp(what, "print") == 0) {
		error = rules_text(r, text, sizeof(text));
		if (error < 0) {
			fprintf(stderr, "penstock: rules: more than fit\n");
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
		fprintf(stderr, "penstock: rules %s: %s\n", what, why);
	return status_of(error);
}
