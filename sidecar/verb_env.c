/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/compile.h"

/*
 * The variables that make clients use the explicit listener.  A client that
 * ignores them is captured all the same where a mode enforces.
 */
enum format { FORMAT_SH, FORMAT_DOCKER, FORMAT_COMPOSE, FORMAT_K8S };

struct asked {
	const char *config, *cell, *address;
	enum format format;
};

static int read_options(int argc, char **argv, struct asked *a);
static int proxy_url(const struct asked *a, char *url, size_t size);
static void print(enum format f, const char *name, const char *value);

int
verb_env(int argc, char **argv)
{
	static const char *const proxies[] = {
		"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy",
	};
	static const char local[] = "localhost,127.0.0.1,::1";
	struct asked a = { .config = VERB_CONFIG };
	char url[1024];
	int rc = read_options(argc, argv, &a);

	if (rc != VERB_GO)
		return rc;
	rc = proxy_url(&a, url, sizeof(url));
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < 4; i++)
		print(a.format, proxies[i], url);
	print(a.format, "NO_PROXY", local);
	print(a.format, "no_proxy", local);
	/* Node reads the variables only when told to. */
	print(a.format, "NODE_USE_ENV_PROXY", "1");
	return fflush(stdout) == 0 ? 0 : 1;
}

static int
read_format(const char *word, enum format *out)
{
	static const char *const words[] =
	    { "sh", "docker", "compose", "k8s" };

	for (unsigned i = 0; i < 4; i++)
		if (strcmp(word, words[i]) == 0) {
			*out = (enum format)i;
			return VERB_GO;
		}
	fprintf(stderr, "penstock env: there is no format %s\n", word);
	return EXIT_USAGE;
}

static int
read_options(int argc, char **argv, struct asked *a)
{
	const char *format = "sh";
	const struct verb_option options[] = {
		{ "config", 'c', "FILE", "the configuration, or "
		    VERB_CONFIG, .text = &a->config },
		{ "cell", 0, "ID", "the cell", .text = &a->cell },
		{ "format", 0, "FORMAT", "sh (the default), docker, compose "
		    "or k8s", .text = &format },
		{ "address", 0, "HOST:PORT", "the listener, as the clients "
		    "see it", .text = &a->address },
	};
	const struct verb v = {
		"env", "--cell ID",
		"Print the variables that make programs use the explicit "
		"listener.\n",
		"0, 2 usage, 78 bad configuration, 1 failure",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	if (rc == VERB_GO && a->cell == NULL)
		return verb_usage(&v, EXIT_USAGE);
	return rc == VERB_GO ? read_format(format, &a->format) : rc;
}

static struct compile *
load(const char *file)
{
	const char *slash = strrchr(file, '/');
	struct config_env env = config_env_read();
	struct problems *ps = problem_new();
	struct compile *c = NULL;
	char dir[4096] = ".";
	int fd, rc = -ENOMEM;

	env.accept_shared_segment = true;
	if (slash != NULL)
		snprintf(dir, sizeof(dir), "%.*s",
		    slash == file ? 1 : (int)(slash - file), file);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ps != NULL && fd >= 0)
		rc = compile_new(&c, fd, slash == NULL ? file : slash + 1,
		    &env);
	if (rc == 0)
		rc = compile_run(c, 1, (int64_t)time(NULL), ps);
	if (rc != 0) {
		if (ps != NULL)
			problem_print(ps, stderr);
		fprintf(stderr, "penstock env: cannot use %s\n", file);
		problem_free(ps);
		compile_free(c);
		return NULL;
	}
	problem_free(ps);
	return c;
}

static const struct settings_listener *
explicit_listener(const struct settings *s)
{
	for (uint32_t i = 0; i < s->n_listeners; i++)
		if (s->listeners[i].kind == LISTEN_EXPLICIT)
			return &s->listeners[i];
	return NULL;
}

/* user:token@ for a cell that is known by its credential. */
static int
credential(const struct config *c, const char *cell, char *out, size_t size)
{
	const char *token = getenv("PENSTOCK_TOKEN");
	size_t i = 0;

	while (i < c->n_cells && strcmp(c->cells[i].id, cell) != 0)
		i++;
	if (i == c->n_cells) {
		fprintf(stderr, "penstock env: there is no cell %s\n", cell);
		return 1;
	}
	out[0] = '\0';
	if (c->cells[i].from.kind != CELL_FROM_CREDENTIAL)
		return 0;
	if (token == NULL || token[strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	    "abcdefghijklmnopqrstuvwxyz0123456789-_.~")] != '\0') {
		fprintf(stderr, "penstock env: cell %s has a credential: set "
		    "PENSTOCK_TOKEN to its token\n", cell);
		return 1;
	}
	if (strpbrk(cell, ":/@") != NULL) {
		fprintf(stderr, "penstock env: the id %s cannot stand in a "
		    "URL\n", cell);
		return 1;
	}
	return snprintf(out, size, "%s:%s@", cell, token) < (int)size ? 0 : 1;
}

static int
proxy_url(const struct asked *a, char *url, size_t size)
{
	struct compile *c = load(a->config);
	const struct settings_listener *l;
	char user[640], at[ADDR_TEXT_BYTES];
	int rc;

	if (c == NULL)
		return EXIT_CONFIG;
	l = explicit_listener(&compile_config(c)->settings);
	rc = credential(compile_config(c), a->cell, user, sizeof(user));
	if (rc == 0 && l == NULL && a->address == NULL) {
		fprintf(stderr, "penstock env: there is no explicit "
		    "listener\n");
		rc = 1;
	}
	if (rc == 0)
		snprintf(url, size, "http://%s%s", user, a->address != NULL ?
		    a->address : endpoint_text(&l->at, at));
	compile_free(c);
	return rc;
}

static void
print(enum format f, const char *name, const char *value)
{
	switch (f) {
	case FORMAT_SH:
		printf("export %s='%s'\n", name, value);
		break;
	case FORMAT_DOCKER:
		printf("%s=%s\n", name, value);
		break;
	case FORMAT_COMPOSE:
		printf("      %s: \"%s\"\n", name, value);
		break;
	case FORMAT_K8S:
		printf("        - {name: %s, value: \"%s\"}\n", name, value);
		break;
	}
}
