/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_RULES_PART_H
#define POLICY_RULES_PART_H

#include <libpsl.h>

#include "policy/rules.h"

/* Inside rules.c and rules_options.c only: the file that is being read. */

#define PRINT_BYTES 128

/* What reading one file needs in every function. */
struct reading {
	const struct charter_reader *reader;
	struct problems *ps;
	const psl_ctx_t *psl;
	int err;		/* -ENOMEM once memory is gone */
	char where[PRINT_BYTES + 16];	/* "names.txt:12: " in a file */
};

/* The keys of one rule; NULL where absent or refused. */
struct rule_keys {
	const struct yaml_node *verdict, *hostname, *cidr, *hostnames_file,
	    *ports, *protocol, *id, *owner, *reason, *until, *force,
	    *allow_private, *report, *dns;
	/* told of, so not absent */
	bool verdict_refused, subject_refused, ports_refused;
};

/* A copy for the rule; NULL and rd->err when there is no memory. */
char *rules_text_copy(struct reading *rd, struct span s);

/* ---- rules_options: what stands beside verdict and subject ---- */
void rules_options_ports(struct reading *rd, const struct rule_keys *k,
    struct rule *r);
/* And what of it would have no effect, or a dangerous one. */
void rules_options_read(struct reading *rd, const struct rule_keys *k,
    struct rule *r);
/* The default id: 8 hex digits of what the rule says, so that it stays when
 * other rules come and go, and when reason, owner or place change. */
void rules_options_id(struct rule *r);

#endif
