/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/source.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/charter.h"
#include "policy/yaml.h"
#include "sidecar/beneath.h"
#include "sidecar/compile.h"
#include "sidecar/config.h"

#define FILE_MAX_BYTES (256u << 20)

/* The charters of one cell. */
struct source_cell {
	const struct charter *charters[CONFIG_FILES_MAX];
	size_t n;
};

struct source {
	int dir;
	char *dir_path, *base;
	struct compile *compile;	/* NULL for a policy file */
	uint8_t *image;			/* of a policy file */
	struct policy *policy;
	struct source_cell *cells;
	size_t n_cells;
};

static int file_read(void *arg, const char *name, uint8_t **bytes,
    size_t *len);
static int list_read(void *arg, const char *name,
    int (*take)(void *to, struct span piece), void *to);
static bool is_config(const char *path, struct span text);
static int open_policy(struct source *s, const char *path, struct span text,
    int64_t now_s, struct problems *ps);
static int open_config(struct source *s, int64_t now_s,
    struct problems *ps);

int
source_open(struct source **out, const char *path, int64_t now_s,
    struct problems *ps)
{
	struct source *s = calloc(1, sizeof(*s));
	char *slash = strdup(path);
	uint8_t *bytes = NULL;
	size_t len = 0;
	int err = -ENOMEM;

	if (s == NULL || slash == NULL)
		goto out;
	s->dir = -1;
	s->dir_path = strdup(dirname(slash));
	s->base = strdup(strrchr(path, '/') != NULL ?
	    strrchr(path, '/') + 1 : path);
	if (s->dir_path == NULL || s->base == NULL)
		goto out;
	err = strcmp(path, "-") == 0 ? -ENOTSUP : 0;
	if (err != 0)
		goto out;
	s->dir = open(s->dir_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	err = s->dir < 0 ? -errno : file_read(s, s->base, &bytes, &len);
	if (err != 0)
		goto out;
	err = is_config(path, span_of(bytes, len)) ?
	    open_config(s, now_s, ps) :
	    open_policy(s, path, span_of(bytes, len), now_s, ps);
out:
	free(bytes);
	free(slash);
	if (err == 0)
		*out = s;
	else
		source_free(s);
	return err;
}

void
source_free(struct source *s)
{
	size_t i, k;

	if (s == NULL)
		return;
	policy_free(s->policy);
	for (i = 0; i < s->n_cells; i++)
		for (k = 0; k < s->cells[i].n; k++)
			charter_free((struct charter *)(uintptr_t)
			    s->cells[i].charters[k]);
	free(s->cells);
	if (s->compile != NULL)
		compile_free(s->compile);
	free(s->image);
	free(s->dir_path);
	free(s->base);
	if (s->dir >= 0)
		(void)close(s->dir);
	free(s);
}

void
source_say(const char *verb, const char *path, int err)
{
	if (err == -ENOTSUP)
		fprintf(stderr, "penstock %s: %s: it is no regular file; "
		    "write a policy or a penstock.yaml into one, since what "
		    "it names is read beside it\n", verb, path);
	else
		fprintf(stderr, "penstock %s: %s: %s; name a policy or a "
		    "penstock.yaml\n", verb, path, strerror(-err));
}

const struct settings *
source_settings(const struct source *s)
{
	return s->compile == NULL ? NULL :
	    &compile_config(s->compile)->settings;
}

const struct cell_from *
source_from(const struct source *s, uint32_t cell)
{
	return s->compile == NULL || cell >= s->n_cells ? NULL :
	    &compile_config(s->compile)->cells[cell].from;
}

const struct policy *
source_policy(const struct source *s)
{
	return s->policy;
}

size_t
source_charters(const struct source *s, uint32_t cell,
    const struct charter *const **out)
{
	if (cell >= s->n_cells)
		return 0;
	*out = s->cells[cell].charters;
	return s->cells[cell].n;
}

/* ---- files ---- */

static int
fd_read(int fd, uint8_t **bytes, size_t *len)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) != 0)
		return -errno;
	/* -EINVAL would say that the problems tell what is wrong */
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTSUP;
	if (st.st_size > (off_t)FILE_MAX_BYTES)
		return -EFBIG;
	*bytes = malloc((size_t)st.st_size + 1);
	if (*bytes == NULL)
		return -ENOMEM;
	*len = 0;
	while (*len < (size_t)st.st_size) {
		n = read(fd, *bytes + *len, (size_t)st.st_size - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		*len += (size_t)n;
	}
	if (*len == (size_t)st.st_size)
		return 0;
	free(*bytes);
	*bytes = NULL;
	return -EIO;
}

static int
file_read(void *arg, const char *name, uint8_t **bytes, size_t *len)
{
	const struct source *s = arg;
	int err, fd;

	/* What the command line names may be a link to anywhere. */
	fd = strcmp(name, s->base) == 0 ? openat(s->dir, name, O_RDONLY |
	    O_CLOEXEC | O_NONBLOCK) : beneath_open(s->dir, name);
	if (fd < 0)
		return fd == -1 ? -errno : fd;
	err = fd_read(fd, bytes, len);
	(void)close(fd);
	return err;
}

static int
list_read(void *arg, const char *name,
    int (*take)(void *to, struct span piece), void *to)
{
	const struct source *s = arg;

	return beneath_read(s->dir, name, FILE_MAX_BYTES, take, to);
}

/* A policy has `network` or `rules`; whatever is broken is read as a policy,
 * which says what is wrong with it. */
static bool
is_config(const char *path, struct span text)
{
	static const char *const keys[] = { "cells", "mode", "listeners" };
	struct problems *ps = problem_new();
	const struct yaml_node *root;
	struct yaml *y;
	bool config = false;
	size_t i;

	if (ps == NULL)
		return false;
	y = yaml_parse(path, text, ps);
	root = y != NULL ? yaml_root(y) : NULL;
	if (root != NULL && root->kind == YAML_MAPPING)
		for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			config |= yaml_get(root, keys[i]) != NULL;
	yaml_close(y);
	problem_free(ps);
	return config;
}

/* ---- the two forms ---- */

static int
open_policy(struct source *s, const char *path, struct span text,
    int64_t now_s, struct problems *ps)
{
	const struct charter_reader reader = { list_read, s };
	struct policy_cell_source cell = { .id = "policy" };
	struct policy_source src = { .cells = &cell, .n_cells = 1,
	    .now_s = now_s };
	struct charter *c;
	size_t len;
	int err;

	s->cells = calloc(1, sizeof(*s->cells));
	if (s->cells == NULL)
		return -ENOMEM;
	c = charter_load(path, text, true, &reader, ps);
	if (c == NULL)
		return -EINVAL;
	s->cells[0].charters[0] = c;
	s->cells[0].n = s->n_cells = 1;
	cell.charters = s->cells[0].charters;
	cell.n_charters = 1;
	err = policy_build(&src, &s->image, &len, ps);
	return err != 0 ? err :
	    policy_open(&s->policy, span_of(s->image, len));
}

/* The files were compiled already; this time they are read for their names
 * and places, and what they say of problems was said. */
static int
cell_charters(struct source *s, const struct config_cell *from,
    struct source_cell *to)
{
	const struct charter_reader reader = { list_read, s };
	struct problems *ps = problem_new();
	struct charter *c;
	uint8_t *bytes;
	size_t i, len;
	int err = ps == NULL ? -ENOMEM : 0;

	for (i = 0; i < from->n_files && err == 0; i++) {
		err = file_read(s, from->files[i], &bytes, &len);
		if (err != 0)
			break;
		c = charter_load(from->files[i], span_of(bytes, len), i == 0,
		    &reader, ps);
		free(bytes);
		if (c != NULL)
			to->charters[to->n++] = c;
		if (c == NULL || charter_wrong(c))
			err = -EINVAL;
	}
	problem_free(ps);
	return err;
}

static int
open_config(struct source *s, int64_t now_s, struct problems *ps)
{
	const struct config_env env = config_env_read();
	const struct config *config;
	size_t i;
	int err;

	err = compile_new(&s->compile, s->dir, s->base, &env);
	if (err == 0)
		err = compile_run(s->compile, 0, now_s, ps);
	if (err == 0)
		err = policy_open(&s->policy, compile_image(s->compile));
	if (err != 0)
		return err;
	config = compile_config(s->compile);
	s->cells = calloc(config->n_cells + 1, sizeof(*s->cells));
	if (s->cells == NULL)
		return -ENOMEM;
	s->n_cells = config->n_cells;
	for (i = 0; i < config->n_cells && err == 0; i++)
		err = cell_charters(s, &config->cells[i], &s->cells[i]);
	return err;
}

/* ---- targets ---- */

static bool
port_text(const char *text, uint16_t *port)
{
	unsigned long v;
	char *end;

	if (text[0] < '1' || text[0] > '9' || strlen(text) > 5)
		return false;
	v = strtoul(text, &end, 10);
	*port = (uint16_t)v;
	return *end == '\0' && v <= 65535;
}

bool
source_target(const char *text, struct host *name, struct addr *addr,
    uint16_t *port)
{
	struct span s = span_str(text);
	const char *colon = strrchr(text, ':');

	memset(name, 0, sizeof(*name));
	if (addr_parse(addr, s))
		return true;
	if (text[0] == '[') {
		const char *close_at = strchr(text, ']');

		if (close_at == NULL || !addr_parse(addr, span_of(text + 1,
		    (size_t)(close_at - text - 1))))
			return false;
		return close_at[1] == '\0' || (close_at[1] == ':' &&
		    port_text(close_at + 2, port));
	}
	if (colon != NULL) {
		if (!port_text(colon + 1, port))
			return false;
		s.len = (size_t)(colon - text);
	}
	if (addr_parse(addr, s))
		return true;
	return host_parse_policy(name, s) == REASON_NONE;
}
