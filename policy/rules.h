/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_RULES_H
#define POLICY_RULES_H

#include "policy/addr.h"
#include "policy/charter.h"
#include "policy/chunks.h"
#include "policy/host.h"
#include "policy/names.h"
#include "policy/problem.h"
#include "policy/verdict.h"
#include "policy/yaml.h"

/*
 * The typed rules of one policy file: what the image is built from.  Only
 * the compile role has them.
 */
#define RULES_MAX 200000u	/* of one file; more is an error */
#define RULES_PORTS_MAX 64u	/* ranges of one rule */
#define RULES_ID_BYTES 64u	/* as POLICY_ID_BYTES */
#define RULES_TEXT_BYTES 256u	/* reason:, help: */
#define RULES_FILE_BYTES (64u << 20)	/* of one hostnames_file */
#define RULES_LINE_BYTES 1024u	/* of it before a comment; more is an error */

struct rule_ports {
	uint16_t lo, hi;	/* both included */
};

struct rule {
	struct place at;
	enum verdict verdict;
	bool opaque;		/* protocol: tcp */
	bool allow_private;
	bool report;
	bool from_file;		/* hostnames_file */
	bool default_id;
	bool default_ports;
	bool has_prefix;
	bool wrong;		/* it had an error: not what was meant */
	struct prefix prefix;
	char id[RULES_ID_BYTES];
	char owner[RULES_ID_BYTES];
	char *reason;		/* NULL: none */
	char *subject;		/* "*.a.b", "10.0.0.0/8", "file allow.txt" */
	struct chunks *names;	/* of the file: kinds, length, name; again
				 * and again */
	size_t names_from, names_to;	/* this rule's */
	size_t n_patterns;
	struct rule_ports *ports;
	uint32_t n_ports;
	uint32_t qtypes;	/* dns: (policy/qtype) */
	int64_t until_s;	/* off from this second on; 0: never */
};

/* The rules of a file, in order. */
struct rules {
	struct rule *rule;
	size_t n, cap;
	struct chunks *names;	/* of all of them */
	bool partly;		/* a rule is wrong, or could not be read */
};

/*
 * Read the sequence under `rule:` into `out`.  Everything that is wrong goes
 * to `ps`.  `file` is borrowed.  -ENOMEM, or 0 (look at ps).
 */
MUST_USE int rules_load(struct rules *out, const struct yaml_node *list,
    const struct charter_reader *reader, struct problems *ps);
void rules_done(struct rules *r);

/*
 * Step through the patterns: *at is 0 at first.  False at the end.
 */
bool rules_pattern(const struct rule *r, size_t *at, struct host *name,
    unsigned *kinds);

/*
 * Give back the memory of the patterns before *at, of this rule and of those
 * before it in its file, as far as that goes; they cannot be stepped through
 * any more.
 */
void rules_forget(const struct rule *r, size_t at);

/* True when the rule covers the port. */
bool rules_covers_port(const struct rule *r, uint16_t port);

/* Text for people: printable UTF-8 on one line, at most max bytes. */
MUST_USE bool rules_text_ok(struct span text, size_t max);

/* An id, an owner, a label: [A-Za-z0-9._:/@-], 1 to 63 bytes. */
MUST_USE bool rules_word_ok(struct span text);

#endif
