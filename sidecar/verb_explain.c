/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <time.h>

#include "policy/decide.h"
#include "sidecar/source.h"

#define SHOWN_BYTES 512

struct explain {
	const char *config, *cell, *ip, *target;
	struct host name;
	struct addr addr;
	struct endpoint to;
	bool has_to;
};

static int target_read(struct explain *x);
static int explain_run(const struct explain *x, const struct source *s);

int
verb_explain(int argc, char **argv)
{
	struct explain x = { .config = VERB_CONFIG };
	const struct verb_option options[] = {
		{ "config", 'c', "FILE", "a penstock.yaml or a policy, or "
		    VERB_CONFIG, .text = &x.config },
		{ "cell", 0, "ID", "the cell that asks; needed with several",
		    .text = &x.cell },
		{ "ip", 0, "ADDRESS", "judge this address for the name too",
		    .text = &x.ip },
	};
	const struct verb v = {
		"explain", "HOST[:PORT]",
		"Say what the policy decides and why. The port is 443 when "
		"absent.\n",
		"0 allow, 10 deny, 2 usage, 69 no such cell, "
		"78 bad configuration,\n1 failure",
		1, 1, options, sizeof(options) / sizeof(options[0])
	};
	struct source *s = NULL;
	struct problems *ps;
	int err, rc = verb_read(&v, argc, argv);

	if (rc != VERB_GO)
		return rc;
	x.target = argv[optind];
	rc = target_read(&x);
	if (rc != 0)
		return rc;
	ps = problem_new();
	if (ps == NULL)
		return EXIT_FAILURE;
	err = source_open(&s, x.config, (int64_t)time(NULL), ps);
	if (err == -EINVAL)
		problem_print(ps, stderr);
	else if (err != 0)
		source_say("explain", x.config, err);
	rc = err == 0 ? explain_run(&x, s) :
	    err == -EINVAL ? EXIT_CONFIG : EXIT_FAILURE;
	problem_free(ps);
	source_free(s);
	return rc;
}

static int
target_read(struct explain *x)
{
	char shown[SHOWN_BYTES];

	x->to.port = 443;
	if (!source_target(x->target, &x->name, &x->addr, &x->to.port)) {
		fprintf(stderr, "penstock explain: \"%s\" is no "
		    "destination; write a name or an address, and perhaps a "
		    "port of 1 to 65535: HOST:PORT, [IPv6]:PORT\n",
		    span_print(span_str(x->target), shown, sizeof(shown)));
		return EXIT_USAGE;
	}
	x->has_to = x->name.len == 0;
	if (x->has_to)
		x->to.addr = x->addr;
	if (x->ip == NULL)
		return 0;
	if (x->has_to || !addr_parse(&x->to.addr, span_str(x->ip))) {
		fprintf(stderr, "penstock explain: --ip takes an address, "
		    "and a name to judge it for\n");
		return EXIT_USAGE;
	}
	x->has_to = true;
	return 0;
}

static void
on_step(void *arg, const char *line)
{
	(void)arg;
	printf("  %s\n", line);
}

static void
cells_say(const struct policy *p)
{
	struct cell_view v;

	for (uint32_t i = 0; i < policy_cells(p); i++)
		if (policy_cell(p, i, 0, &v))
			fprintf(stderr, "%s %.*s", i > 0 ? "," : "",
			    (int)v.id.len, (const char *)v.id.data);
	fputc('\n', stderr);
}

/* CELL_NONE after words on stderr. */
static uint32_t
cell_pick(const struct policy *p, const char *id)
{
	char shown[SHOWN_BYTES];
	uint32_t cell = 0;

	if (id != NULL)
		cell = policy_cell_by_id(p, span_str(id));
	else if (policy_cells(p) != 1)
		cell = CELL_NONE;
	if (cell != CELL_NONE)
		return cell;
	if (id != NULL)
		fprintf(stderr, "penstock explain: there is no cell \"%s\"; "
		    "there is", span_print(span_str(id), shown,
		    sizeof(shown)));
	else
		fprintf(stderr, "penstock explain: there are several cells; "
		    "name one with --cell:");
	cells_say(p);
	return cell;
}

static void
rule_line(const struct decide_at *at, uint32_t rule, const char *what)
{
	struct rule_view v;
	char file[SHOWN_BYTES], owner[SHOWN_BYTES];

	if (!policy_rule(at->policy, at->cell, rule, &v))
		return;
	printf("%s: rule %u, %s %.*s, %s:%u, id %.*s", what, rule + 1,
	    verdict_word(v.verdict), (int)v.subject.len,
	    (const char *)v.subject.data,
	    span_print(v.file, file, sizeof(file)), v.line, (int)v.id.len,
	    (const char *)v.id.data);
	if (v.owner.len > 0)
		printf(", owner %s", span_print(v.owner, owner,
		    sizeof(owner)));
	if (v.reason.len > 0)
		printf(" (%.*s)", (int)v.reason.len,
		    (const char *)v.reason.data);
	printf("\n");
}

/* A name opens its port to who shows it; the usual client of some ports does
 * not, and what it meets is the answer. */
static struct decision
ask_bytes(const struct explain *x, const struct decide_at *at,
    const struct decision *flow)
{
	const char *protocol = decide_nameless_protocol(x->to.port);

	if (flow->verdict != VERDICT_ALLOW || flow->opaque ||
	    flow->original_only || x->to.port == 80 || x->to.port == 443)
		return *flow;
	printf("  allowed to a client that shows the name, in TLS or HTTP\n");
	if (protocol == NULL)
		return *flow;
	printf("  %s shows no name on this port: it needs a rule with "
	    "protocol: tcp\n", protocol);
	return decide_bytes(at, flow, x->has_to ? &x->to : NULL);
}

static struct decision
ask(const struct explain *x, const struct decide_at *at)
{
	struct decision d, question;
	struct decide_at quiet = *at;

	if (x->name.len == 0) {
		printf("a connection to an address that no name is pinned "
		    "to:\n");
		return decide_nameless(at, &x->to, NULL, 0);
	}
	quiet.trace = NULL;
	printf("name %s, port %u:\n", x->name.name, x->to.port);
	printf("  the DNS question is %s\n",
	    decide_question(&quiet, &x->name, &question) ? "asked upstream" :
	    "refused here; nothing leaves");
	d = decide_name(at, &x->name, x->to.port,
	    x->has_to ? &x->to : NULL);
	if (d.verdict == VERDICT_ALLOW && x->has_to)
		d = decide_addr(at, &d, &x->to);
	else if (d.verdict == VERDICT_ALLOW)
		printf("  each address that is dialled is judged too: "
		    "see --ip\n");
	return ask_bytes(x, at, &d);
}

static int
explain_run(const struct explain *x, const struct source *s)
{
	const struct decide_trace trace = { on_step, NULL };
	struct decide_at at = { .policy = source_policy(s),
	    .now_s = (int64_t)time(NULL), .trace = &trace };
	struct decision d;
	uint32_t near_rule = RULE_NONE;

	at.cell = cell_pick(at.policy, x->cell);
	if (at.cell == CELL_NONE)
		return x->cell != NULL ? EXIT_UNAVAILABLE : EXIT_USAGE;
	d = ask(x, &at);
	printf("%s: %s: %s\n", verdict_word(d.verdict),
	    reason_word(d.reason), reason_text(d.reason));
	if (d.would != d.verdict)
		printf("under enforcement: %s\n", verdict_word(d.would));
	rule_line(&at, d.rule, "decided by");
	if (d.would == VERDICT_DENY)
		near_rule = x->name.len > 0 ? decide_nearest(&at, &x->name) :
		    decide_nearest_addr(&at, &x->to);
	if (near_rule != RULE_NONE)
		rule_line(&at, near_rule, "nearest");
	return d.verdict == VERDICT_ALLOW ? 0 : EXIT_DENY;
}
