/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_CONFIG_H
#define SIDECAR_CONFIG_H

#include "policy/policy.h"
#include "policy/problem.h"
#include "proxy/limit.h"
#include "sidecar/settings.h"

/*
 * penstock.yaml, read by its schema (penstock.yaml(5)): the settings and the
 * list of cells with the names of their policy files.  Environment variables
 * that count as configuration are read here and nowhere else.
 */
#define CONFIG_FILES_MAX 16u	/* policy files of one cell */
#define CONFIG_BYTES_MAX (1u << 20)
#define CONFIG_RESOLV_BYTES 65536u

/* What of the environment and the command line counts; NULL: not set. */
struct config_env {
	const char *cell;		/* PENSTOCK_CELL */
	const char *labels;		/* PENSTOCK_LABELS */
	const char *egress_policy;	/* RUNEWARD_EGRESS_POLICY */
	const char *dns_resolvers;	/* RUNEWARD_DNS_RESOLVERS */
	const char *resolv_conf;	/* the text of /etc/resolv.conf, for
					 * resolvers: [system] */
	bool accept_shared_segment;	/* --accept-risk shared-segment */
	bool accept_not_proven;		/* --accept-risk not-proven */
	bool serves;		/* it is to run: what stops a start is an error
				 * and not a warning */
};

struct config_env config_env_read(void);

struct config_cell {
	struct place at;
	char id[POLICY_ID_BYTES];
	struct cell_label labels[POLICY_LABELS_MAX];
	size_t n_labels;
	struct cell_from from;
	bool has_from;
	bool wrong;		/* a key of it was refused */
	char *files[CONFIG_FILES_MAX];	/* beneath the configuration's
					 * directory; owned */
	size_t n_files;
};

#define CONFIG_USED_CELL 1u
#define CONFIG_USED_LABELS 2u
#define CONFIG_USED_POLICY 4u
#define CONFIG_USED_RESOLVERS 8u

struct config {
	struct settings settings;
	struct config_cell *cells;
	size_t n_cells;
	uint32_t used_env;	/* set of CONFIG_USED_* */
	bool wrong;		/* there was an error: good for nothing but
				 * to look at what else is wrong */
	bool mode_known;	/* when wrong: the mode was none of these */
	char *egress_policy;	/* RUNEWARD_EGRESS_POLICY as a policy file's
				 * text, for the only cell; or NULL */
};

/*
 * Read the text.  All problems go to `ps`.  What could be read is returned
 * also when one of them is an error (wrong), so that the policies that it
 * names can be looked at; NULL, with an error, when that is nothing.
 * `file` is borrowed for the life of the configuration.
 */
MUST_USE struct config *config_load(const char *file, struct span text,
    const struct config_env *env, struct problems *ps);
void config_free(struct config *c);

/* The servers that a resolv.conf names, as far as they are addresses; how
 * many. */
size_t config_system_servers(const char *text,
    struct server out[static POLICY_RESOLVERS_MAX]);

/* The text that stands for a missing file when RUNEWARD_EGRESS_POLICY is the
 * whole configuration. */
extern const char config_sidecar_text[];

#endif
