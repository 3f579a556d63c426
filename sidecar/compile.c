/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sidecar/beneath.h"
#include "sidecar/own.h"

#define ENV_POLICY_NAME "RUNEWARD_EGRESS_POLICY"

/* One file that was read; its name outlives the problems. */
struct source {
	char *name;
	uint8_t *bytes;			/* NULL: a list, which went by */
	size_t len;
	uint8_t hash[POLICY_DIGEST_BYTES];
	struct charter *charter[2];	/* as a later file, as the base */
};

struct compile {
	int dir;
	char *name;
	struct config_env env;
	struct source *sources;
	size_t n_sources;
	struct config *config;
	int image_fd;			/* the image is built in its memory */
	uint8_t *image;
	size_t image_len, image_size;	/* used, and mapped */
	uint8_t digest[POLICY_DIGEST_BYTES];
	struct own own;
	int own_err;			/* 0, or why the host's are not known */
	bool missing;			/* something could not be read at all,
					 * or the configuration is wrong */
	const struct charter **charters;	/* of all cells, in a row */
};

static int load_config(struct compile *c, struct problems *ps);
static int load_charters(struct compile *c, struct problems *ps);
static void make_digest(struct compile *c);
static void need_own(struct compile *c, struct problems *ps);
static void need_mode(struct compile *c, struct problems *ps);
static void need_outside(struct compile *c, struct problems *ps);
static void need_resolvers(struct compile *c, struct problems *ps);
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
	c->image_fd = -1;
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
	if (c->image != NULL)
		munmap(c->image, c->image_size);
	if (c->image_fd >= 0)
		close(c->image_fd);
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
	if (rc != 0)
		return rc;
	/* From here on all is told that is wrong with them; where the mode is
	 * none, or there is no cell, nothing of what depends on it. */
	if (!c->config->wrong || c->config->mode_known)
		need_mode(c, ps);
	need_resolvers(c, ps);
	make_digest(c);
	if (!c->config->wrong) {
		need_own(c, ps);
		need_outside(c, ps);
	}
	rc = build(c, generation, now_s, ps);
	if (rc == 0 && (c->missing || problem_count(ps, PROBLEM_ERROR) > 0))
		rc = -EINVAL;
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

/* What is gathered of one file; the rest of its bytes go by. */
struct gather {
	crypto_generichash_state hash;
	uint8_t *bytes;
	size_t len, cap;
	int (*take)(void *to, struct span piece);	/* or NULL: keep them */
	void *to;
};

static int
gather_keep(struct gather *g, struct span piece)
{
	size_t cap = g->cap;
	uint8_t *grown;

	while (cap < g->len + piece.len + 1)
		cap = cap == 0 ? 4096 : 2 * cap;
	grown = cap == g->cap ? g->bytes : realloc(g->bytes, cap);
	if (grown == NULL)
		return -ENOMEM;
	g->bytes = grown;
	g->cap = cap;
	memcpy(g->bytes + g->len, piece.data, piece.len);
	g->bytes[g->len + piece.len] = '\0';
	return 0;
}

static int
gather_take(void *to, struct span piece)
{
	struct gather *g = to;
	int rc = g->take != NULL ? g->take(g->to, piece) :
	    gather_keep(g, piece);

	crypto_generichash_update(&g->hash, piece.data, piece.len);
	g->len += piece.len;
	return rc;
}

static struct source *
find_source(struct compile *c, const char *name)
{
	for (size_t i = 0; i < c->n_sources; i++)
		if (strcmp(c->sources[i].name, name) == 0)
			return &c->sources[i];
	return NULL;
}

/* A new one, or what is known of it: then it must be the same still. */
static int
put_source(struct compile *c, const char *name, struct gather *g,
    struct source **out)
{
	uint8_t hash[POLICY_DIGEST_BYTES];
	struct source *s = find_source(c, name);

	crypto_generichash_final(&g->hash, hash, sizeof(hash));
	if (s != NULL && memcmp(s->hash, hash, sizeof(hash)) != 0)
		return -ESTALE;
	if (s == NULL) {
		if (c->n_sources == COMPILE_FILES_MAX)
			return -EMFILE;
		s = &c->sources[c->n_sources];
		s->name = strdup(name);
		if (s->name == NULL)
			return -ENOMEM;
		memcpy(s->hash, hash, sizeof(hash));
		s->len = g->len;
		c->n_sources++;
	}
	if (s->bytes == NULL) {
		s->bytes = g->bytes;
		g->bytes = NULL;
	}
	*out = s;
	return 0;
}

/* A text that stands in no file. */
static int
add_source(struct compile *c, const char *name, const char *text,
    struct source **out)
{
	struct gather g = { .len = 0 };
	int rc;

	crypto_generichash_init(&g.hash, NULL, 0, POLICY_DIGEST_BYTES);
	rc = gather_take(&g, span_str(text));
	if (rc == 0)
		rc = put_source(c, name, &g, out);
	free(g.bytes);
	return rc;
}

static int
read_source(struct compile *c, const char *name,
    int (*take)(void *to, struct span piece), void *to, struct source **out)
{
	struct gather g = { .take = take, .to = to };
	int rc = take != NULL ? 0 : gather_keep(&g, span_str(""));

	crypto_generichash_init(&g.hash, NULL, 0, POLICY_DIGEST_BYTES);
	if (rc == 0)
		rc = beneath_read(c->dir, name, COMPILE_FILE_BYTES,
		    gather_take, &g);
	if (rc == 0)
		rc = put_source(c, name, &g, out);
	free(g.bytes);
	return rc;
}

static int
get_source(struct compile *c, const char *name, struct source **out)
{
	*out = find_source(c, name);
	return *out != NULL && (*out)->bytes != NULL ? 0 :
	    read_source(c, name, NULL, NULL, out);
}

static void
unreadable(struct problems *ps, struct place at, const char *name, int rc)
{
	problem_add(ps, PROBLEM_ERROR, at, rc == -EXDEV ?
	    "put it beneath the configuration's directory" : NULL,
	    "cannot read %s: %s", name, rc == -EXDEV ?
	    "it leads out of the directory" : rc == -EBADF ?
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
		rc = add_source(c, shown, config_sidecar_text, &s);
	}
	if (rc != 0) {
		unreadable(ps, (struct place){ c->name, 0, 0 }, shown, rc);
		return -EINVAL;
	}
	c->config = config_load(s->name, span_of(s->bytes, s->len), &c->env,
	    ps);
	/* what it names is looked at all the same */
	c->missing |= c->config == NULL || c->config->wrong;
	return c->config == NULL ? -EINVAL : 0;
}

/* A list is read once for each charter that names it, and not held. */
static int
read_list(void *arg, const char *name,
    int (*take)(void *to, struct span piece), void *to)
{
	struct source *s;

	return read_source(arg, name, take, to, &s);
}

static void
load_charter(struct compile *c, struct source *s, bool base,
    struct problems *ps)
{
	struct charter_reader reader = { read_list, c };

	if (s->charter[base] == NULL)
		s->charter[base] = charter_load(s->name,
		    span_of(s->bytes, s->len), base, &reader, ps);
	c->missing |= s->charter[base] == NULL;
}

static int
load_charters(struct compile *c, struct problems *ps)
{
	struct source *s;

	if (c->config->egress_policy != NULL) {
		if (add_source(c, ENV_POLICY_NAME, c->config->egress_policy,
		    &s) != 0)
			return -ENOMEM;
		load_charter(c, s, true, ps);
	}
	for (size_t i = 0; i < c->config->n_cells; i++) {
		const struct config_cell *cell = &c->config->cells[i];

		for (size_t k = 0; k < cell->n_files; k++) {
			int rc = get_source(c, cell->files[k], &s);

			c->missing |= rc != 0;
			if (rc != 0)
				unreadable(ps, cell->at, cell->files[k], rc);
			else
				load_charter(c, s, k == 0, ps);
		}
	}
	return 0;
}

/* A policy that asks for more than the mode gives is not taken for less. */
static void
need_mode(struct compile *c, struct problems *ps)
{
	if (c->config->settings.mode != MODE_COOPERATIVE)
		return;
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
}

/* resolvers: [system] stands for those that this host has now; they are
 * pinned as others are, and told when they are others at a reload. */
static void
use_system(struct compile *c, struct problems *ps)
{
	struct settings *s = &c->config->settings;

	for (size_t i = 0; i < c->n_sources && s->n_resolvers == 0; i++) {
		const struct charter *base = c->sources[i].charter[1];

		if (base == NULL || !charter_scalars(base)->resolvers_system)
			continue;
		s->n_resolvers = (uint32_t)config_system_servers(
		    c->env.resolv_conf, s->resolvers);
		s->resolvers_system = true;
		if (s->n_resolvers == 0)
			problem_add(ps, PROBLEM_ERROR,
			    charter_scalars(base)->resolvers_at,
			    "name the resolvers by their addresses",
			    "/etc/resolv.conf names no server");
	}
}

/* Without a pinned resolver no name can be dialled. */
static void
need_resolvers(struct compile *c, struct problems *ps)
{
	use_system(c, ps);
	if (c->config->settings.n_resolvers > 0 || c->missing)
		return;
	for (size_t i = 0; i < c->n_sources; i++) {
		const struct charter *base = c->sources[i].charter[1];

		/* those that are no addresses are told of, so not absent */
		if (base != NULL && (charter_scalars(base)->partly ||
		    charter_scalars(base)->resolvers_at.line != 0))
			return;
	}
	problem_add(ps, PROBLEM_ERROR, c->config->cells[0].at, "write "
	    "resolvers: under network:, or set RUNEWARD_DNS_RESOLVERS",
	    "there is no resolver");
}

/* ---- the digest: of all that was read, with its names and lengths; each
 * by its hash, since lists are not held ---- */

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
	hash_text(&h, "penstock-bundle 2\n");
	for (size_t i = 0; i < c->n_sources; i++) {
		const struct source *s = &c->sources[i];

		snprintf(lengths, sizeof(lengths), "%zu %zu\n",
		    strlen(s->name), s->len);
		hash_text(&h, lengths);
		hash_text(&h, s->name);
		hash_text(&h, "\n");
		crypto_generichash_update(&h, s->hash, sizeof(s->hash));
	}
	crypto_generichash_final(&h, c->digest, sizeof(c->digest));
}

/* ---- what is this host's own, and not dialled through us ---- */

/* One that is not on the list would be dialled as anybody's. */
static void
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
}

/* The container engine's, which the kernel's rules keep the agent off. */
static bool
is_engines(const struct endpoint *e)
{
	char text[ADDR_TEXT_BYTES];

	return strcmp(endpoint_text(e, text), "127.0.0.11:53") == 0;
}

static bool
is_inside(const struct compile *c, const struct endpoint *e)
{
	if (addr_class(&e->addr) == ADDR_LOOPBACK)
		return true;
	for (size_t i = 0; i + c->own.n_gateways < c->own.n; i++)
		if (addr_eq(&c->own.at[i].addr, &e->addr))
			return true;
	return false;
}

/* In a zone the engine's may stand, for the names that it gives itself. */
enum for_what { FOR_A_ZONE, FOR_ALL };

static void
refuse_inside(const struct compile *c, const struct server *list, size_t n,
    enum for_what what, struct place at, struct problems *ps)
{
	char text[ADDR_TEXT_BYTES];

	for (size_t i = 0; i < n; i++) {
		if (!is_inside(c, &list[i].at))
			continue;
		if (!is_engines(&list[i].at))
			problem_add(ps, PROBLEM_ERROR, at, "name the resolver "
			    "that it asks", "the agent is in the same network "
			    "namespace as the resolver %s: it could ask it "
			    "itself, or take its place",
			    endpoint_text(&list[i].at, text));
		else if (what == FOR_ALL)
			problem_add(ps, PROBLEM_ERROR, at, "name the resolver "
			    "that it asks, and 127.0.0.11 in dns.zones for "
			    "names of containers", "the container engine's "
			    "resolver %s asks others for what it does not "
			    "know: from this network namespace, where that "
			    "comes back to penstock, or from the host's, past "
			    "its rules", endpoint_text(&list[i].at, text));
	}
}

/* Mode shared: what serves beside the agent is the agent's as well. */
static void
need_outside(struct compile *c, struct problems *ps)
{
	const struct settings *s = &c->config->settings;
	struct place here = c->config->cells[0].at;

	if (s->mode != MODE_SHARED)
		return;
	refuse_inside(c, s->resolvers, s->n_resolvers, FOR_ALL, here, ps);
	for (size_t i = 0; i < c->n_sources && s->n_resolvers == 0; i++)
		if (c->sources[i].charter[1] != NULL) {
			const struct charter_scalars *of = charter_scalars(
			    c->sources[i].charter[1]);

			refuse_inside(c, of->resolvers, of->n_resolvers,
			    FOR_ALL, of->resolvers_at, ps);
		}
	for (uint32_t i = 0; i < s->n_zones; i++)
		refuse_inside(c, s->zones[i].servers, s->zones[i].n_servers,
		    FOR_A_ZONE, here, ps);
}

/* ---- the image ---- */

static const struct charter *
charter_of(struct compile *c, const struct config_cell *cell, size_t k)
{
	struct source *s = find_source(c, c->config->egress_policy != NULL ?
	    ENV_POLICY_NAME : cell->files[k]);

	return s != NULL ? s->charter[k == 0] : NULL;
}

/* False when a file of the cell could not be read at all, or it has none. */
static bool
cell_source(struct compile *c, const struct config_cell *from,
    const struct charter **charters, struct policy_cell_source *to)
{
	size_t n = c->config->egress_policy != NULL ? 1 : from->n_files;

	memcpy(to->id, from->id, sizeof(to->id));
	memcpy(to->labels, from->labels, sizeof(to->labels));
	to->n_labels = from->n_labels;
	to->from = from->from;
	to->at = from->at;
	to->charters = charters;
	to->n_charters = n;
	if (c->config->wrong) {
		/* its ids may be none, or the same, and that was told */
		snprintf(to->id, sizeof(to->id), "%zu",
		    (size_t)(from - c->config->cells));
		if (n == 0)
			return false;
	}
	for (size_t k = 0; k < n; k++) {
		charters[k] = charter_of(c, from, k);
		if (charters[k] == NULL)
			return false;
	}
	return true;
}

/* Those that can be looked at; they are all, or c->missing is true. */
static size_t
cell_sources(struct compile *c, struct policy_cell_source *to)
{
	size_t n = 0;

	for (size_t i = 0; i < c->config->n_cells; i++)
		if (cell_source(c, &c->config->cells[i], c->charters +
		    i * CONFIG_FILES_MAX, &to[n]))
			n++;
		else
			c->missing = true;
	return n;
}

/* Memory that can be handed on as it is; what is not written takes none. */
static uint8_t *
image_grow(void *arg, uint8_t *bytes, size_t old, size_t size)
{
	struct compile *c = arg;
	void *grown;

	if (c->image_fd < 0)
		c->image_fd = memfd_create("penstock-image",
		    MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (c->image_fd < 0 || ftruncate(c->image_fd, (off_t)size) != 0)
		return NULL;
	grown = bytes == NULL ? mmap(NULL, size, PROT_READ | PROT_WRITE,
	    MAP_SHARED, c->image_fd, 0) :
	    mremap(bytes, old, size, MREMAP_MAYMOVE);
	if (grown == MAP_FAILED)
		return NULL;
	c->image = grown;
	c->image_size = size;
	return grown;
}

int
compile_sealed(struct compile *c)
{
	int fd = c->image_fd;

	/* A writable mapping keeps the seal away. */
	if (c->image == NULL || munmap(c->image, c->image_size) != 0)
		return -EINVAL;
	c->image = NULL;
	if (ftruncate(fd, (off_t)c->image_len) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_WRITE | F_SEAL_SEAL) != 0)
		return -errno;
	c->image_len = 0;
	c->image_fd = -1;
	return fd;
}

static int
build(struct compile *c, uint64_t generation, int64_t now_s,
    struct problems *ps)
{
	const struct policy_memory memory = { image_grow, c };
	uint8_t *image;
	size_t n = c->config->n_cells;
	struct policy_cell_source *cells = calloc(n, sizeof(*cells));
	struct policy_source src = {
		.cells = cells, .generation = generation,
		.own = c->own.at, .n_own = c->own.n,
		.n_gateways = c->own.n_gateways, .now_s = now_s,
		.memory = &memory, .spend_names = true,
		.settings = span_of(&c->config->settings,
		    sizeof(c->config->settings)),
	};
	int rc = -ENOMEM;

	if (c->config->settings.front.denied == FRONT_SINKHOLE)
		memcpy(src.sinkhole, c->config->settings.front.sinkhole,
		    sizeof(src.sinkhole));
	c->charters = calloc(n * CONFIG_FILES_MAX, sizeof(*c->charters));
	if (cells != NULL && c->charters != NULL) {
		memcpy(src.digest, c->digest, sizeof(src.digest));
		src.n_cells = cell_sources(c, cells);
		rc = src.n_cells == 0 && c->missing ? -EINVAL :
		    policy_build(&src, &image, &c->image_len, ps);
	}
	free(cells);
	return rc;
}
