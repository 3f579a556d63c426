/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/beneath.h"
#include "sidecar/own.h"

#define ENV_POLICY_NAME "RUNEWARD_EGRESS_POLICY"

/* One file that was read; its name outlives the problems. */
struct source {
	char *name;
	uint8_t *bytes;
	size_t len;
	struct charter *charter[2];	/* as a later file, as the base */
};

struct compile {
	int dir;
	char *name;
	struct config_env env;
	struct source *sources;
	size_t n_sources;
	struct config *config;
	uint8_t *image;
	size_t image_len;
	uint8_t digest[POLICY_DIGEST_BYTES];
	struct own own;
	int own_err;			/* 0, or why the host's are not known */
	const struct charter **charters;	/* of all cells, in a row */
};

static int load_config(struct compile *c, struct problems *ps);
static int load_charters(struct compile *c, struct problems *ps);
static void make_digest(struct compile *c);
static int need_own(struct compile *c, struct problems *ps);
static int need_mode(struct compile *c, struct problems *ps);
static int need_resolvers(struct compile *c, struct problems *ps);
static int build(struct compile *c, uint64_t generation, int64_t now_s,
    struct problems *ps);

int
compile_new(struct compile **out, int dir, const char *name,
    const struct config_env *env)
{
	struct compile *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	c->dir = dir;
	c->env = *env;
	c->sources = calloc(COMPILE_FILES_MAX, sizeof(*c->sources));
	if (name != NULL)
		c->name = strdup(name);
	if (c->sources == NULL || (name != NULL && c->name == NULL)) {
		compile_free(c);
		return -ENOMEM;
	}
	/* Now: after its confinement the role has no socket to ask with. */
	c->own_err = own_list(&c->own);
	*out = c;
	return 0;
}

void
compile_free(struct compile *c)
{
	if (c == NULL)
		return;
	for (size_t i = 0; i < c->n_sources; i++) {
		struct source *s = &c->sources[i];

		charter_free(s->charter[0]);
		charter_free(s->charter[1]);
		free(s->name);
		free(s->bytes);
	}
	free(c->sources);
	free(c->charters);
	config_free(c->config);
	free(c->image);
	free(c->name);
	free(c);
}

int
compile_run(struct compile *c, uint64_t generation, int64_t now_s,
    struct problems *ps)
{
	int rc = sodium_init() < 0 ? -EIO : 0;

	if (rc == 0)
		rc = load_config(c, ps);
	if (rc == 0)
		rc = load_charters(c, ps);
	if (rc == 0)
		rc = need_mode(c, ps);
	if (rc == 0)
		rc = need_resolvers(c, ps);
	if (rc == 0)
		make_digest(c);
	if (rc == 0)
		rc = need_own(c, ps);
	if (rc == 0)
		rc = build(c, generation, now_s, ps);
	return rc;
}

struct span
compile_image(const struct compile *c)
{
	return span_of(c->image, c->image_len);
}

const uint8_t *
compile_digest(const struct compile *c)
{
	return c->digest;
}

const struct config *
compile_config(const struct compile *c)
{
	return c->config;
}

/* ---- files ---- */

static int
read_all(int fd, uint8_t **out, size_t *len)
{
	struct stat st;
	uint8_t *b;
	size_t at = 0;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > (off_t)COMPILE_FILE_BYTES)
		return -EFBIG;
	b = malloc((size_t)st.st_size + 1);
	if (b == NULL)
		return -ENOMEM;
	while (at < (size_t)st.st_size) {
		ssize_t n = read(fd, b + at, (size_t)st.st_size - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	b[at] = '\0';
	*out = b;
	*len = at;
	return 0;
}

static struct source *
find_source(struct compile *c, const char *name)
{
	for (size_t i = 0; i < c->n_sources; i++)
		if (strcmp(c->sources[i].name, name) == 0)
			return &c->sources[i];
	return NULL;
}

/* Takes the bytes, also when it fails. */
static int
add_source(struct compile *c, const char *name, uint8_t *bytes, size_t len,
    struct source **out)
{
	struct source *s = &c->sources[c->n_sources];

	if (c->n_sources == COMPILE_FILES_MAX) {
		free(bytes);
		return -EMFILE;
	}
	s->name = strdup(name);
	s->bytes = bytes;
	s->len = len;
	if (s->name == NULL || bytes == NULL) {
		free(s->name);
		free(bytes);
		memset(s, 0, sizeof(*s));
		return -ENOMEM;
	}
	c->n_sources++;
	*out = s;
	return 0;
}

static int
get_source(struct compile *c, const char *name, struct source **out)
{
	uint8_t *bytes = NULL;
	size_t len = 0;
	int fd, rc;

	*out = find_source(c, name);
	if (*out != NULL)
		return 0;
	fd = beneath_open(c->dir, name);
	if (fd < 0)
		return fd;
	rc = read_all(fd, &bytes, &len);
	close(fd);
	return rc == 0 ? add_source(c, name, bytes, len, out) : rc;
}

static void
unreadable(struct problems *ps, struct place at, const char *name, int rc)
{
	problem_add(ps, PROBLEM_ERROR, at, rc == -EXDEV ?
	    "put it beneath the configuration's directory" : NULL,
	    "cannot read %s: %s", name, rc == -EXDEV ?
	    "it leads out of the directory" : rc == -EINVAL ?
	    "it is no regular file" : strerror(-rc));
}

static int
load_config(struct compile *c, struct problems *ps)
{
	struct source *s;
	const char *shown = c->name != NULL ? c->name : "environment";
	int rc;

	if (c->name != NULL) {
		rc = get_source(c, c->name, &s);
	} else {
		rc = add_source(c, shown,
		    (uint8_t *)strdup(config_sidecar_text),
		    strlen(config_sidecar_text), &s);
	}
	if (rc != 0) {
		unreadable(ps, (struct place){ c->name, 0, 0 }, shown, rc);
		return -EINVAL;
	}
	c->config = config_load(s->name, span_of(s->bytes, s->len), &c->env,
	    ps);
	return c->config == NULL ? -EINVAL : 0;
}

static int
read_list(void *arg, const char *name, uint8_t **bytes, size_t *len)
{
	struct compile *c = arg;
	struct source *s;
	int rc = get_source(c, name, &s);

	if (rc != 0)
		return rc;
	*bytes = malloc(s->len + 1);
	if (*bytes == NULL)
		return -ENOMEM;
	memcpy(*bytes, s->bytes, s->len + 1);
	*len = s->len;
	return 0;
}

static void
load_charter(struct compile *c, struct source *s, bool base,
    struct problems *ps)
{
	struct charter_reader reader = { read_list, c };

	if (s->charter[base] == NULL)
		s->charter[base] = charter_load(s->name,
		    span_of(s->bytes, s->len), base, &reader, ps);
}

static int
load_charters(struct compile *c, struct problems *ps)
{
	struct source *s;

	if (c->config->egress_policy != NULL) {
		const char *text = c->config->egress_policy;

		if (add_source(c, ENV_POLICY_NAME, (uint8_t *)strdup(text),
		    strlen(text), &s) != 0)
			return -ENOMEM;
		load_charter(c, s, true, ps);
	}
	for (size_t i = 0; i < c->config->n_cells; i++) {
		const struct config_cell *cell = &c->config->cells[i];

		for (size_t k = 0; k < cell->n_files; k++) {
			int rc = get_source(c, cell->files[k], &s);

			if (rc != 0)
				unreadable(ps, cell->at, cell->files[k], rc);
			else
				load_charter(c, s, k == 0, ps);
		}
	}
	return problem_count(ps, PROBLEM_ERROR) > 0 ? -EINVAL : 0;
}

/* A policy that asks for more than the mode gives is not taken for less. */
static int
need_mode(struct compile *c, struct problems *ps)
{
	if (c->config->settings.mode != MODE_COOPERATIVE)
		return 0;
	for (size_t i = 0; i < c->n_sources; i++) {
		const struct charter *base = c->sources[i].charter[1];

		if (base == NULL || charter_scalars(base)->strict_at.file ==
		    NULL)
			continue;
		problem_add(ps, PROBLEM_ERROR,
		    charter_scalars(base)->strict_at, "write enforce: "
		    "cooperative, or use mode gateway or shared",
		    "enforce: strict cannot be had in mode cooperative, "
		    "which captures nothing");
	}
	return problem_count(ps, PROBLEM_ERROR) > 0 ? -EINVAL : 0;
}

/* Without a pinned resolver no name can be dialled; the system's own are
 * never asked. */
static int
need_resolvers(struct compile *c, struct problems *ps)
{
	if (c->config->settings.n_resolvers > 0)
		return 0;
	for (size_t i = 0; i < c->n_sources; i++)
		if (c->sources[i].charter[1] != NULL && charter_scalars(
		    c->sources[i].charter[1])->n_resolvers > 0)
			return 0;
	problem_add(ps, PROBLEM_ERROR, c->config->cells[0].at, "write "
	    "resolvers: under network:, or set RUNEWARD_DNS_RESOLVERS",
	    "there is no resolver");
	return -EINVAL;
}

/* ---- the digest: of all that was read, with its names and lengths ---- */

static void
hash_text(crypto_generichash_state *h, const char *text)
{
	crypto_generichash_update(h, (const uint8_t *)text, strlen(text));
}

static void
make_digest(struct compile *c)
{
	crypto_generichash_state h;
	char lengths[64];

	crypto_generichash_init(&h, NULL, 0, sizeof(c->digest));
	hash_text(&h, "penstock-bundle 1\n");
	for (size_t i = 0; i < c->n_sources; i++) {
		const struct source *s = &c->sources[i];

		snprintf(lengths, sizeof(lengths), "%zu %zu\n",
		    strlen(s->name), s->len);
		hash_text(&h, lengths);
		hash_text(&h, s->name);
		hash_text(&h, "\n");
		crypto_generichash_update(&h, (const uint8_t *)s->bytes,
		    s->len);
		hash_text(&h, "\n");
	}
	crypto_generichash_final(&h, c->digest, sizeof(c->digest));
}

/* ---- what is this host's own, and not dialled through us ---- */

/* One that is not on the list would be dialled as anybody's. */
static int
need_own(struct compile *c, struct problems *ps)
{
	const struct settings *s = &c->config->settings;
	int rc = c->own_err;

	if (rc == 0)
		rc = own_add(&c->own, s);
	if (rc == -E2BIG)
		problem_add(ps, PROBLEM_ERROR, c->config->cells[0].at,
		    "run penstock in a network namespace with fewer",
		    "this host has more than %u addresses and gateways, and "
		    "each has to be refused", POLICY_OWN_MAX);
	else if (rc != 0)
		problem_add(ps, PROBLEM_ERROR, c->config->cells[0].at,
		    "let penstock open netlink sockets", "the addresses and "
		    "routes of this host cannot be listed: %s", strerror(-rc));
	return rc == 0 ? 0 : -EINVAL;
}

/* ---- the image ---- */

static const struct charter *
charter_of(struct compile *c, const struct config_cell *cell, size_t k)
{
	struct source *s = find_source(c, c->config->egress_policy != NULL ?
	    ENV_POLICY_NAME : cell->files[k]);

	return s->charter[k == 0];
}

static void
cell_sources(struct compile *c, struct policy_cell_source *to)
{
	size_t at = 0;

	for (size_t i = 0; i < c->config->n_cells; i++) {
		const struct config_cell *from = &c->config->cells[i];
		size_t n = c->config->egress_policy != NULL ? 1 :
		    from->n_files;

		memcpy(to[i].id, from->id, sizeof(to[i].id));
		memcpy(to[i].labels, from->labels, sizeof(to[i].labels));
		to[i].n_labels = from->n_labels;
		to[i].from = from->from;
		to[i].at = from->at;
		to[i].charters = c->charters + at;
		to[i].n_charters = n;
		for (size_t k = 0; k < n; k++)
			c->charters[at++] = charter_of(c, from, k);
	}
}

static int
build(struct compile *c, uint64_t generation, int64_t now_s,
    struct problems *ps)
{
	size_t n = c->config->n_cells;
	struct policy_cell_source *cells = calloc(n, sizeof(*cells));
	struct policy_source src = {
		.cells = cells, .n_cells = n, .generation = generation,
		.own = c->own.at, .n_own = c->own.n,
		.n_gateways = c->own.n_gateways, .now_s = now_s,
		.settings = span_of(&c->config->settings,
		    sizeof(c->config->settings)),
	};
	int rc = -ENOMEM;

	c->charters = calloc(n * CONFIG_FILES_MAX, sizeof(*c->charters));
	if (cells != NULL && c->charters != NULL) {
		memcpy(src.digest, c->digest, sizeof(src.digest));
		cell_sources(c, cells);
		rc = policy_build(&src, &c->image, &c->image_len, ps);
	}
	free(cells);
	return rc;
}
