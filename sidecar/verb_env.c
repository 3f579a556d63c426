/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "policy/host.h"
#include "sidecar/compile.h"
#include "sidecar/config_part.h"
#include "sidecar/own.h"

/*
 * The variables that make clients use the explicit listener.  A client that
 * ignores them is captured all the same where a mode enforces.
 */
enum format { FORMAT_SH, FORMAT_DOCKER, FORMAT_COMPOSE, FORMAT_K8S };

struct asked {
	const char *config, *cell, *address;
	enum format format;
};

#define TOKEN_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
    "abcdefghijklmnopqrstuvwxyz0123456789-_.~"

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
	fprintf(stderr, "penstock env: there is no format %s; write sh, "
	    "docker, compose or k8s\n", word);
	return EXIT_USAGE;
}

/* name:port, as a client may have it from its own resolver. */
static bool
is_name_and_port(const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t digits = colon == NULL ? 0 : strspn(colon + 1, "0123456789");
	struct host h;
	long port;

	if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' ||
	    colon[1] == '0')
		return false;
	port = strtol(colon + 1, NULL, 10);
	return port <= 65535 && host_parse(&h, span_of(text,
	    (size_t)(colon - text))) == REASON_NONE;
}

/* Of all addresses none is one that a client can connect to. */
static bool
is_everywhere(const struct endpoint *at)
{
	return addr_class(&at->addr) == ADDR_UNSPECIFIED;
}

/* What is let through here has no byte that a shell or YAML knows. */
static int
check_address(const char *text)
{
	struct endpoint at;

	if (config_endpoint_text(span_str(text), 0, &at)) {
		if (!is_everywhere(&at))
			return VERB_GO;
		fprintf(stderr, "penstock env: %s stands for all addresses; "
		    "say with --address the one that the clients see\n",
		    text);
		return EXIT_USAGE;
	}
	if (is_name_and_port(text))
		return VERB_GO;
	fprintf(stderr, "penstock env: \"%s\" is no address of a listener: "
	    "write HOST:PORT or [IPv6]:PORT, as in proxy.internal:15080 or "
	    "[fd00::1]:15080\n", text);
	return EXIT_USAGE;
}

static int
read_options(int argc, char **argv, struct asked *a)
{
	const char *format = "sh";
	const struct verb_option options[] = {
		{ "config", 'c', "FILE", "the configuration, or "
		    VERB_CONFIG, .text = &a->config },
		{ "cell", 0, "ID", "the cell; needed with several",
		    .text = &a->cell },
		{ "format", 0, "FORMAT", "sh (the default), docker, compose "
		    "or k8s", .text = &format },
		{ "address", 0, "HOST:PORT", "the listener, as the clients "
		    "see it", .text = &a->address },
	};
	const struct verb v = {
		"env", "",
		"Print the variables that make programs use the explicit "
		"listener.\n",
		"0, 2 usage, 69 no such cell, 78 bad configuration, "
		"1 failure",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};
	int rc = verb_read(&v, argc, argv);

	if (rc == VERB_GO)
		rc = read_format(format, &a->format);
	return rc == VERB_GO && a->address != NULL ?
	    check_address(a->address) : rc;
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

	env.accept_shared_segment = env.accept_not_proven = true;
	if (slash != NULL)
		snprintf(dir, sizeof(dir), "%.*s",
		    slash == file ? 1 : (int)(slash - file), file);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		rc = -errno;
	else if (ps != NULL)
		rc = compile_new(&c, fd, slash == NULL ? file : slash + 1,
		    &env);
	if (rc == 0)
		rc = compile_run(c, 1, (int64_t)time(NULL), ps);
	if (rc != 0) {
		if (ps != NULL && problem_count(ps, PROBLEM_ERROR) > 0)
			problem_print(ps, stderr);
		else
			fprintf(stderr, "penstock env: %s: %s; write -c FILE "
			    "with the penstock.yaml that it is served by\n",
			    file, strerror(-rc));
		problem_free(ps);
		compile_free(c);
		return NULL;
	}
	problem_free(ps);
	return c;
}

/* How well a listener serves a cell; 0: not at all. */
static unsigned
fits(const struct settings *s, const struct settings_listener *l,
    const struct cell_from *from)
{
	if (l->kind != LISTEN_EXPLICIT)
		return 0;
	switch (from->kind) {
	case CELL_FROM_LISTENER:
		return strcmp(l->name, from->listener) == 0;
	case CELL_FROM_CREDENTIAL:
		/* clients that wait for a 407 get one only there */
		return l->credential ? 2 : 1;
	case CELL_FROM_ANY:
	case CELL_FROM_NET:
		break;
	}
	/* a gateway's agents are on no loopback of its own */
	return !l->credential && (s->mode != MODE_GATEWAY ||
	    addr_class(&l->at.addr) != ADDR_LOOPBACK);
}

/* The interfaces of a gateway that a cell's clients come in by; NULL: no
 * more. */
static const char *
interface_at(const struct settings *s, const struct cell_from *from,
    uint32_t i)
{
	if (from->kind == CELL_FROM_NET && from->interface[0] != '\0')
		return i == 0 ? from->interface : NULL;
	return i < s->n_interfaces ? s->interfaces[i] : NULL;
}

static bool
address_near(const struct settings *s, const struct cell_from *from,
    bool v6, const struct addr *near, struct addr *out)
{
	const char *name;

	for (uint32_t i = 0; (name = interface_at(s, from, i)) != NULL; i++)
		if (own_address(name, v6, near, out))
			return true;
	return false;
}

/* A gateway's own address where a cell's clients are: best one that is on the
 * network of its prefix. */
static bool
inner_address(const struct settings *s, const struct cell_from *from,
    bool v6, struct addr *out)
{
	if (v6 && s->ipv6_drop)
		return false;
	if (from->kind == CELL_FROM_NET && from->has_prefix &&
	    address_near(s, from, v6, &from->prefix.base, out))
		return true;
	return address_near(s, from, v6, NULL, out);
}

/* Where a cell's clients find a listener, and how sure that is: for a gateway,
 * which answers at an address by the interface that has it. */
static unsigned
found_at(const struct settings *s, const struct settings_listener *l,
    const struct cell_from *from, struct endpoint *out)
{
	const bool v6 = !addr_is_v4(&l->at.addr);
	struct addr inner;

	*out = l->at;
	if (s->mode != MODE_GATEWAY)
		return 0;
	if (!is_everywhere(&l->at))
		return address_near(s, from, v6, &l->at.addr, &inner) ? 2 : 1;
	if (!inner_address(s, from, v6, &inner))
		return 0;
	out->addr = inner;
	return 2;
}

/* The best that serves it, and where; *at is on all addresses when that is
 * not known.  NULL: none does. */
static const struct settings_listener *
listener_of(const struct settings *s, const struct cell_from *from,
    struct endpoint *at)
{
	const struct settings_listener *best = NULL;
	unsigned best_score = 0;

	for (uint32_t i = 0; i < s->n_listeners; i++) {
		const struct settings_listener *l = &s->listeners[i];
		unsigned fit = fits(s, l, from), score;
		struct endpoint here;

		if (fit == 0)
			continue;
		score = 3 * fit + found_at(s, l, from, &here);
		if (score <= best_score)
			continue;
		best = l;
		best_score = score;
		*at = here;
	}
	return best;
}

/* n_cells after words on stderr. */
static size_t
find_cell(const struct config *c, const char *id)
{
	size_t i = 0;

	if (id == NULL && c->n_cells == 1)
		return 0;
	while (i < c->n_cells && (id == NULL ||
	    strcmp(c->cells[i].id, id) != 0))
		i++;
	if (i < c->n_cells)
		return i;
	if (id == NULL)
		fprintf(stderr, "penstock env: there are several cells; "
		    "name one with --cell:");
	else
		fprintf(stderr, "penstock env: there is no cell \"%s\"; "
		    "there is", id);
	for (size_t k = 0; k < c->n_cells; k++)
		fprintf(stderr, "%s %s", k > 0 ? "," : "", c->cells[k].id);
	fputc('\n', stderr);
	return i;
}

/* An id as the user of a URL; a colon would end it, even when escaped. */
static bool
user_text(const char *id, char *out, size_t size)
{
	size_t at = 0;

	for (; *id != '\0'; id++) {
		bool plain = strchr(":/@", *id) == NULL;

		if (*id == ':' || at + 4 > size)
			return false;
		if (plain)
			out[at++] = *id;
		else
			at += (size_t)snprintf(out + at, size - at, "%%%02X",
			    (unsigned)*id);
	}
	out[at] = '\0';
	return true;
}

/* user:token@ for a cell that is known by its credential. */
static int
credential(const char *cell, char *out, size_t size)
{
	const char *token = getenv("PENSTOCK_TOKEN");
	char user[256];

	if (token == NULL || token[0] == '\0') {
		fprintf(stderr, "penstock env: cell %s has a credential: set "
		    "PENSTOCK_TOKEN to its token\n", cell);
		return 1;
	}
	if (token[strspn(token, TOKEN_BYTES)] != '\0') {
		fprintf(stderr, "penstock env: PENSTOCK_TOKEN has a byte "
		    "other than A-Z a-z 0-9 - _ . ~, which no URL carries as "
		    "it is; penstock token makes one without\n");
		return 1;
	}
	if (!user_text(cell, user, sizeof(user))) {
		fprintf(stderr, "penstock env: the id %s has a colon, where "
		    "the user of a proxy credential ends; give the cell "
		    "another id\n", cell);
		return 1;
	}
	if (snprintf(out, size, "%s:%s@", user, token) < (int)size)
		return 0;
	fprintf(stderr, "penstock env: PENSTOCK_TOKEN is too long\n");
	return 1;
}

/* Where the clients find the listener. */
static int
proxy_address(const struct settings *s, const struct cell_from *from,
    const char *cell, char out[static ADDR_TEXT_BYTES])
{
	struct endpoint at;
	const struct settings_listener *l = listener_of(s, from, &at);

	if (l == NULL) {
		fprintf(stderr, "penstock env: no explicit listener serves "
		    "cell %s; configure one, or name it with --address\n",
		    cell);
		return 1;
	}
	endpoint_text(&at, out);
	if (!is_everywhere(&at))
		return 0;
	fprintf(stderr, "penstock env: the listener %s is on all addresses "
	    "(%s)%s; say with --address the one that the clients see\n",
	    l->name, out, s->mode == MODE_GATEWAY ? ", and here no interface "
	    "of the cell's clients has one of its family" : "");
	return 1;
}

static int
url_of(const struct config *c, const struct asked *a, char *url, size_t size)
{
	char user[640] = "", at[ADDR_TEXT_BYTES];
	size_t i = find_cell(c, a->cell);
	const char *id;
	int rc = 0;

	if (i == c->n_cells)
		return a->cell != NULL ? EXIT_UNAVAILABLE : EXIT_USAGE;
	id = c->cells[i].id;
	if (c->cells[i].from.kind == CELL_FROM_CREDENTIAL)
		rc = credential(id, user, sizeof(user));
	if (rc == 0 && a->address == NULL)
		rc = proxy_address(&c->settings, &c->cells[i].from, id, at);
	if (rc == 0)
		snprintf(url, size, "http://%s%s", user, a->address != NULL ?
		    a->address : at);
	return rc;
}

static int
proxy_url(const struct asked *a, char *url, size_t size)
{
	struct compile *c = load(a->config);
	int rc;

	if (c == NULL)
		return EXIT_CONFIG;
	rc = url_of(compile_config(c), a, url, size);
	compile_free(c);
	return rc;
}

/* No value has a byte that is more than itself in one of the forms. */
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
