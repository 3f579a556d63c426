/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_IMAGE_H
#define POLICY_IMAGE_H

#include "policy/policy.h"

/*
 * The layout of a compiled policy.  It is made and read on one machine by
 * one program, so integers are native; every offset counts from the start of
 * the image and is checked once, in image_check.  Tables are 8-byte aligned.
 *
 *   header | strings, ports | per rule set: rules, deny list, port maps,
 *   names index, cidr index | cells | settings
 *
 * Cells with the same files share one rule set.
 */
#define IMAGE_MAGIC UINT64_C(0x31474d494b545350)	/* "PSTKIMG1" */
#define IMAGE_VERSION 4u
#define IMAGE_MAX_BYTES UINT32_C(0xfffffff0)
#define IMAGE_PORT_BYTES 8192u		/* a bit for each port */
#define IMAGE_PREFIXES_MAX CHARTER_PREFIXES_MAX

struct image_part {
	uint32_t at;		/* bytes from the start of the image */
	uint32_t len;		/* bytes, or items of a table */
};

struct image_ports {
	uint16_t lo, hi;
};

enum image_rule_flag {
	IMAGE_RULE_ALLOW = 1,
	IMAGE_RULE_OPAQUE = 2,
	IMAGE_RULE_ALLOW_PRIVATE = 4,
	IMAGE_RULE_REPORT = 8,
	IMAGE_RULE_FLAGS = 15,
};

struct image_rule {
	int64_t until_s;	/* off from then on; 0: never */
	struct image_part id, file, reason, owner, subject;
	struct image_part ports;	/* items: struct image_ports */
	struct prefix prefix;
	uint8_t pad[3];
	uint32_t flags;
	uint32_t line;
	uint32_t qtypes;	/* policy/qtype */
};

struct image_set {
	struct image_part rules;	/* items: struct image_rule */
	struct image_part denies;	/* items: uint32_t, rising: the rules
					 * that deny a name */
	struct image_part names;	/* bytes: policy/names */
	struct image_part cidrs;	/* bytes: policy/cidr */
	uint32_t named_ports;		/* bit set: a rule opens this port to
					 * a name that must be read */
	uint32_t opaque_ports;		/* bit set: a rule dials this port
					 * without a look */
	int64_t report_until_s;		/* default: report; 0: deny */
	struct image_part help;
	struct prefix lab[IMAGE_PREFIXES_MAX];
	struct prefix nat64[IMAGE_PREFIXES_MAX];
	uint32_t n_lab, n_nat64;
	uint8_t strict, no_sni_pinned, ech_denied, pad[5];
};

struct image_cell {
	struct image_part id;
	struct { struct image_part key, value; } labels[POLICY_LABELS_MAX];
	uint32_t n_labels;
	uint32_t set;
	struct cell_from from;
	uint32_t pad;
};

struct image_header {
	uint64_t magic;
	uint32_t version;
	uint32_t size;			/* of the whole image */
	uint64_t generation;
	uint8_t digest[POLICY_DIGEST_BYTES];
	struct image_part cells;	/* items: struct image_cell */
	struct image_part sets;		/* items: struct image_set */
	struct image_part settings;	/* bytes */
	struct image_part own;		/* items: struct endpoint, with room
					 * for POLICY_OWN_MAX */
	struct server resolvers[POLICY_RESOLVERS_MAX];
	uint32_t n_resolvers;
	uint32_t n_gateways;		/* the last of own */
	struct addr sinkhole[2];	/* ::: none */
};

/* ---- reading ---- */

/* True when every offset, count and index in the bytes is in bounds. */
MUST_USE bool image_check(struct span image);

/* After image_check these never fail. */
const struct image_header *image_head(struct span image);
const struct image_cell *image_cells(struct span image);
const struct image_set *image_sets(struct span image);
const struct image_rule *image_rules(struct span image,
    const struct image_set *set);
const struct image_ports *image_ports(struct span image,
    const struct image_rule *r);
struct span image_text(struct span image, struct image_part p);
bool image_port_bit(struct span image, uint32_t map, uint16_t port);

/* ---- writing ---- */

struct image_writer {
	uint8_t *bytes;
	size_t len, cap;
	const struct policy_memory *memory;	/* NULL: the heap */
	int err;		/* -ENOMEM, -EFBIG; then all calls do nothing */
};

/* Zeroed room of n bytes, aligned to 8; its offset, 0 after an error. */
uint32_t image_room(struct image_writer *w, size_t n);
struct image_part image_put(struct image_writer *w, const void *data,
    size_t n);
struct image_part image_put_text(struct image_writer *w, const char *text);

#endif
