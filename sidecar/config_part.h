/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_CONFIG_PART_H
#define SIDECAR_CONFIG_PART_H

#include "policy/yaml.h"
#include "sidecar/config.h"
#include "proxy/hello.h"
#include "proxy/http.h"

/*
 * Inside config*.c only: the reading in progress, and readers of single
 * values.  A reader that returns false has added its problem.
 */
struct read {
	const char *file;
	const struct config_env *env;
	struct problems *ps;
	struct config *c;
	struct settings *s;
	const struct yaml_node *root;	/* a mapping */
	bool mode_known;	/* otherwise what depends on it is not told */
	bool listeners_wrong;	/* one of them had an error */
};

struct config_key {
	const char *name;
	void (*read)(struct read *r, const struct yaml_node *value);
};

/* At a node that was refused nothing is said: why was told. */
__attribute__((format(printf, 4, 5)))
void config_error(struct read *r, const struct yaml_node *n, const char *fix,
    const char *what, ...);

/* Each key by its reader; unknown ones are errors; in the table's order. */
void config_read_map(struct read *r, const struct yaml_node *map,
    const struct config_key *keys, const char *where);

/* The items of a sequence; another kind is an error and has no items. */
const struct yaml_node *config_items(struct read *r,
    const struct yaml_node *n);
/* From this one on the first that was not refused, or NULL. */
const struct yaml_node *config_item(const struct yaml_node *item);
#define CONFIG_EACH(r, n, item) \
	for (const struct yaml_node *item = config_items(r, n); \
	    item != NULL; item = config_item(item->next))

/* True when every key of the map is one of these. */
bool config_keys_are(struct read *r, const struct yaml_node *map,
    const char *const *names, const char *where);

/* A non-empty printable text into out[size]. */
bool config_text(struct read *r, const struct yaml_node *n, char *out,
    size_t size);
/* "250ms", "5s", "2m", "1h". */
bool config_duration(struct read *r, const struct yaml_node *n,
    uint32_t max_ms, uint32_t *out);
/* a.b.c.d:port, [v6]:port, or without a port when `port` is not 0. */
bool config_endpoint(struct read *r, const struct yaml_node *n,
    uint16_t port, struct endpoint *out);
bool config_endpoint_text(struct span text, uint16_t port,
    struct endpoint *out);
/* A cell id or label: 1 to 63 of [A-Za-z0-9._:/@-]. */
bool config_word(struct span text);
/* "team=a,run=7", commas or lines, values maybe in double quotes. */
bool config_labels_text(const char *text, struct config_cell *c);

void config_read_listeners(struct read *r, const struct yaml_node *n);
void config_read_cells(struct read *r, const struct yaml_node *n);
void config_read_dns(struct read *r, const struct yaml_node *n);
void config_read_limits(struct read *r, const struct yaml_node *n);

#endif
