/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "policy/yaml.h"
#include "sidecar/config_part.h"

const char config_sidecar_text[] = "version: 1\nmode: shared\n";

static bool read_root(struct read *r);
static void read_env(struct read *r, const struct config_env *env);
static void check_whole(struct read *r);

/* NULL where there is none. */
static const char *
resolv_conf(void)
{
	static char text[CONFIG_RESOLV_BYTES + 1];
	FILE *f = fopen("/etc/resolv.conf", "re");

	if (f == NULL)
		return NULL;
	text[fread(text, 1, CONFIG_RESOLV_BYTES, f)] = '\0';
	fclose(f);
	return text;
}

struct config_env
config_env_read(void)
{
	return (struct config_env){
		.resolv_conf = resolv_conf(),
		.cell = getenv("PENSTOCK_CELL"),
		.labels = getenv("PENSTOCK_LABELS"),
		.egress_policy = getenv("RUNEWARD_EGRESS_POLICY"),
		.dns_resolvers = getenv("RUNEWARD_DNS_RESOLVERS"),
	};
}

struct config *
config_load(const char *file, struct span text, const struct config_env *env,
    struct problems *ps)
{
	struct read r = { .file = file, .env = env, .ps = ps };
	struct yaml *y = yaml_parse(file, text, ps);

	if (y == NULL)
		return NULL;
	r.c = calloc(1, sizeof(*r.c));
	if (r.c != NULL) {
		r.s = &r.c->settings;
		r.root = yaml_root(y);
		r.c->wrong = !read_root(&r);
		if (!r.c->wrong) {
			r.s->accept_shared_segment |=
			    env->accept_shared_segment;
			read_env(&r, env);
			check_whole(&r);
		}
	} else {
		problem_add(ps, PROBLEM_ERROR, (struct place){ file, 0, 0 },
		    NULL, "no memory");
	}
	yaml_close(y);
	if (r.c != NULL) {
		r.c->wrong |= problem_count(ps, PROBLEM_ERROR) > 0;
		r.c->mode_known = r.mode_known;
	}
	return r.c;
}

void
config_free(struct config *c)
{
	if (c == NULL)
		return;
	for (size_t i = 0; i < c->n_cells; i++)
		for (size_t k = 0; k < c->cells[i].n_files; k++)
			free(c->cells[i].files[k]);
	free(c->cells);
	free(c->egress_policy);
	free(c);
}

/* ---- the keys of the top level ---- */

static void read_version(struct read *r, const struct yaml_node *n);
static void read_mode(struct read *r, const struct yaml_node *n);
static void read_interfaces(struct read *r, const struct yaml_node *n);
static void read_inbound(struct read *r, const struct yaml_node *n);
static void read_ipv6(struct read *r, const struct yaml_node *n);
static void read_engines(struct read *r, const struct yaml_node *n);
static void read_ledger(struct read *r, const struct yaml_node *n);
static void read_admin(struct read *r, const struct yaml_node *n);
static void read_users(struct read *r, const struct yaml_node *n);
static void read_drain(struct read *r, const struct yaml_node *n);
static void read_grace(struct read *r, const struct yaml_node *n);
static void read_log(struct read *r, const struct yaml_node *n);
static void read_instance(struct read *r, const struct yaml_node *n);

/* mode stands before the rest: it sets what absent keys mean. */
static const struct config_key keys[] = {
	{ "version", read_version },
	{ "mode", read_mode },
	{ "listeners", config_read_listeners },
	{ "dns", config_read_dns },
	{ "interfaces", read_interfaces },
	{ "cells", config_read_cells },
	{ "inbound", read_inbound },
	{ "ipv6", read_ipv6 },
	{ "limits", config_read_limits },
	{ "engines", read_engines },
	{ "ledger", read_ledger },
	{ "admin", read_admin },
	{ "users", read_users },
	{ "drain_timeout", read_drain },
	{ "reload_grace", read_grace },
	{ "log", read_log },
	{ "instance", read_instance },
	{ NULL, NULL },
};

static bool
read_root(struct read *r)
{
	const struct yaml_node *root = r->root, *mode;
	enum settings_mode m = MODE_SHARED;

	if (root->kind != YAML_MAPPING) {
		/* where reading ended before the first key, that was told */
		if (!root->lacks)
			config_error(r, root, "write keys and values",
			    "the file is not a mapping");
		return false;
	}
	mode = yaml_get(root, "mode");
	r->mode_known = mode != NULL && mode->kind == YAML_SCALAR &&
	    settings_mode_parse(&m, mode->text);
	if (!r->mode_known)
		m = MODE_SHARED;	/* read_mode says so */
	settings_default(r->s, m);
	if (gethostname(r->s->instance, sizeof(r->s->instance) - 1) != 0)
		snprintf(r->s->instance, sizeof(r->s->instance), "penstock");
	if (yaml_get(root, "version") == NULL && !root->lacks)
		config_error(r, root, "add \"version: 1\"",
		    "version is missing");
	if (mode == NULL && !root->lacks)
		config_error(r, root, "add \"mode: shared\", gateway, "
		    "isolated or cooperative", "mode is missing");
	config_read_map(r, root, keys, "the file");
	return true;
}

static void
read_version(struct read *r, const struct yaml_node *n)
{
	uint64_t v;

	if (!yaml_uint(n, UINT32_MAX, &v) || v != 1)
		config_error(r, n, "write \"version: 1\"",
		    "this version of the file is not known");
}

static void
read_mode(struct read *r, const struct yaml_node *n)
{
	enum settings_mode m;

	if (n->kind != YAML_SCALAR || !settings_mode_parse(&m, n->text))
		config_error(r, n,
		    "write shared, gateway, isolated or cooperative",
		    "mode is none of the known ones");
	else if (m == MODE_ISOLATED && !r->env->accept_not_proven)
		problem_add(r->ps, r->env->serves ? PROBLEM_ERROR :
		    PROBLEM_WARNING, n->at, "take mode shared or gateway, or "
		    "start with --accept-risk not-proven, which is told as "
		    "not enforcing", "mode isolated: nothing checks that the "
		    "agents' network reaches only penstock");
}

static void
read_interfaces(struct read *r, const struct yaml_node *n)
{
	CONFIG_EACH(r, n, item) {
		if (r->s->n_interfaces == 8) {
			config_error(r, item, NULL, "more than 8 interfaces");
			return;
		}
		if (config_text(r, item,
		    r->s->interfaces[r->s->n_interfaces], 16))
			r->s->n_interfaces++;
	}
}

static void
read_inbound(struct read *r, const struct yaml_node *n)
{
	CONFIG_EACH(r, n, item) {
		uint64_t port;

		if (!yaml_uint(item, 65535, &port) || port == 0) {
			config_error(r, item, "write 1 to 65535",
			    "this is no port");
			continue;
		}
		if (r->s->n_inbound == SETTINGS_INBOUND_MAX) {
			config_error(r, item, NULL, "more than %u ports",
			    SETTINGS_INBOUND_MAX);
			return;
		}
		r->s->inbound[r->s->n_inbound++] = (uint16_t)port;
	}
}

static void
read_ipv6(struct read *r, const struct yaml_node *n)
{
	if (yaml_is(n, "drop"))
		r->s->ipv6_drop = true;
	else if (yaml_is(n, "proxy"))
		r->s->ipv6_drop = false;
	else
		config_error(r, n, "write drop or proxy",
		    "ipv6 is none of the known words");
}

static void
read_engines(struct read *r, const struct yaml_node *n)
{
	uint64_t v;

	if (!yaml_uint(n, LIMIT_ENGINES_MAX, &v))
		config_error(r, n, "write 0 (as many as cores) to 64",
		    "this is no number of engines");
	else
		r->s->engines = (uint32_t)v;
}

static void
read_ledger_dir(struct read *r, const struct yaml_node *n)
{
	if (config_text(r, n, r->s->ledger_dir, sizeof(r->s->ledger_dir)) &&
	    r->s->ledger_dir[0] != '/')
		config_error(r, n, "write an absolute path",
		    "ledger.dir is relative");
}

static void
read_ledger_ring(struct read *r, const struct yaml_node *n)
{
	uint64_t v;

	if (!yaml_uint(n, 1u << 30, &v) || v < (64u << 10))
		config_error(r, n, "write 65536 to 1073741824",
		    "ring_bytes is out of range");
	else
		r->s->ring_bytes = (uint32_t)v;
}

static void
read_ledger(struct read *r, const struct yaml_node *n)
{
	static const struct config_key in[] = {
		{ "dir", read_ledger_dir },
		{ "ring_bytes", read_ledger_ring },
		{ NULL, NULL },
	};

	config_read_map(r, n, in, "ledger");
}

static void
read_admin(struct read *r, const struct yaml_node *n)
{
	struct endpoint e;

	if (yaml_is(n, "off")) {
		r->s->admin[0] = '\0';
		return;
	}
	if (!config_text(r, n, r->s->admin, sizeof(r->s->admin)))
		return;
	if (strncmp(r->s->admin, "unix:/", 6) == 0) {
		if (strlen(r->s->admin) - 5 > 107)
			config_error(r, n, "shorten it to 107 bytes",
			    "the path is too long for a socket");
		return;
	}
	if (!config_endpoint(r, n, 0, &e))
		return;
	if (addr_class(&e.addr) != ADDR_LOOPBACK)
		config_error(r, n, "write 127.0.0.1:PORT, [::1]:PORT or "
		    "unix:/PATH", "the admin listener has no authentication "
		    "and stays on this machine");
}

static void
user(struct read *r, const struct yaml_node *n, uid_t *out)
{
	uint64_t v;

	if (!yaml_uint(n, 0xfffffffdu, &v) || v == 0)
		config_error(r, n, "write a numeric uid above 0",
		    "this is no uid for a role");
	else
		*out = (uid_t)v;
}

static void
user_engine(struct read *r, const struct yaml_node *n)
{
	user(r, n, &r->s->uid_engine);
}

static void
user_resolver(struct read *r, const struct yaml_node *n)
{
	user(r, n, &r->s->uid_resolver);
}

static void
user_recorder(struct read *r, const struct yaml_node *n)
{
	user(r, n, &r->s->uid_recorder);
}

static void
user_admin(struct read *r, const struct yaml_node *n)
{
	user(r, n, &r->s->uid_admin);
}

static void
user_warden(struct read *r, const struct yaml_node *n)
{
	user(r, n, &r->s->uid_warden);
}

static void
read_users(struct read *r, const struct yaml_node *n)
{
	static const struct config_key in[] = {
		{ "engine", user_engine },
		{ "resolver", user_resolver },
		{ "recorder", user_recorder },
		{ "admin", user_admin },
		{ "warden", user_warden },
		{ NULL, NULL },
	};

	if (n->kind == YAML_SCALAR) {
		/* One number: a Kubernetes sidecar has one uid. */
		user(r, n, &r->s->uid_engine);
		r->s->uid_resolver = r->s->uid_recorder = r->s->uid_admin =
		    r->s->uid_warden = r->s->uid_engine;
		return;
	}
	config_read_map(r, n, in, "users");
}

static void
read_drain(struct read *r, const struct yaml_node *n)
{
	config_duration(r, n, 3600000, &r->s->drain_timeout_ms);
}

static void
read_grace(struct read *r, const struct yaml_node *n)
{
	uint32_t ms;

	if (config_duration(r, n, 3600000, &ms))
		r->s->limits.reload_grace_ms = ms;
}

static void
read_log(struct read *r, const struct yaml_node *n)
{
	static const char *const words[] =
	    { "error", "warn", "info", "debug" };

	for (uint8_t i = 0; i < 4; i++)
		if (yaml_is(n, words[i])) {
			r->s->log_level = i;
			return;
		}
	config_error(r, n, "write error, warn, info or debug",
	    "log is none of the known words");
}

static void
read_instance(struct read *r, const struct yaml_node *n)
{
	memset(r->s->instance, 0, sizeof(r->s->instance));
	config_text(r, n, r->s->instance, sizeof(r->s->instance));
}

/* ---- the environment ---- */

static void env_cell(struct read *r, const struct config_env *env);
static void env_resolvers(struct read *r, const char *text);
static void env_policy(struct read *r, const char *text);

/* By that key; what could not be read is something. */
static bool
says_nothing(const struct read *r, const char *key)
{
	const struct yaml_node *n = yaml_get(r->root, key);

	if (n == NULL)
		return !r->root->lacks;
	return n->kind == YAML_SEQUENCE && n->n_children == 0 && !n->lacks &&
	    !n->refused;
}

static void
env_error(struct read *r, const char *name, const char *fix, const char *what)
{
	problem_add(r->ps, PROBLEM_ERROR, (struct place){ name, 0, 0 }, fix,
	    "%s", what);
}

static void
read_env(struct read *r, const struct config_env *env)
{
	/* A file without cells is a sidecar of one. */
	if (says_nothing(r, "cells") && r->c->cells == NULL &&
	    (env->cell != NULL || env->egress_policy != NULL)) {
		r->c->cells = calloc(1, sizeof(*r->c->cells));
		if (r->c->cells != NULL) {
			r->c->n_cells = 1;
			r->c->cells[0].at = (struct place){ r->file, 0, 0 };
		}
	}
	env_cell(r, env);
	if (env->dns_resolvers != NULL)
		r->c->used_env |= CONFIG_USED_RESOLVERS;
	if (env->egress_policy != NULL)
		r->c->used_env |= CONFIG_USED_POLICY;
	if (env->dns_resolvers != NULL)
		env_resolvers(r, env->dns_resolvers);
	if (env->egress_policy != NULL)
		env_policy(r, env->egress_policy);
}

static void
env_cell(struct read *r, const struct config_env *env)
{
	struct config_cell *c = r->c->cells;

	if (r->c->n_cells != 1 || c->id[0] != '\0')
		return;
	if (c->wrong)
		return;
	if (env->cell == NULL || env->cell[0] == '\0') {
		problem_add(r->ps, PROBLEM_ERROR, c->at,
		    "write id: or set PENSTOCK_CELL", "the cell has no id");
		return;
	}
	if (!config_word(span_str(env->cell)))
		env_error(r, "PENSTOCK_CELL", "use at most 63 of "
		    "[A-Za-z0-9._:/@-]", "this is no cell id");
	else
		snprintf(c->id, sizeof(c->id), "%s", env->cell);
	r->c->used_env |= CONFIG_USED_CELL;
	if (env->labels != NULL)
		r->c->used_env |= CONFIG_USED_LABELS;
	if (env->labels != NULL && !config_labels_text(env->labels, c))
		env_error(r, "PENSTOCK_LABELS", "write key=value, separated "
		    "by commas or lines, at most 8",
		    "these are no labels");
}

static void
env_resolvers(struct read *r, const char *text)
{
	while (*text != '\0') {
		size_t n = strcspn(text, ",");
		struct server e;

		if (!server_parse(&e, span_of(text, n)) ||
		    r->s->n_resolvers == POLICY_RESOLVERS_MAX) {
			env_error(r, "RUNEWARD_DNS_RESOLVERS", "write 1 to 8 "
			    "addresses separated by commas, without blanks",
			    "an item is no address");
			return;
		}
		r->s->resolvers[r->s->n_resolvers++] = e;
		text += n;
		if (*text == ',' && *++text == '\0') {
			env_error(r, "RUNEWARD_DNS_RESOLVERS", NULL,
			    "the last item is empty");
			return;
		}
	}
	if (r->s->n_resolvers == 0)
		env_error(r, "RUNEWARD_DNS_RESOLVERS",
		    "unset it, or write addresses", "it is empty");
}

/* The proxy policy {"default", "rules"} as a policy file's network table. */
static json_t *
policy_network(json_t *in, const struct settings *s)
{
	json_t *net = json_deep_copy(in);
	json_t *rules = json_object_get(in, "rules");
	json_t *list;

	if (net == NULL)
		return NULL;
	if (rules != NULL) {
		json_object_set(net, "rule", rules);
		json_object_del(net, "rules");
	}
	if (json_object_get(net, "default") == NULL)
		json_object_set_new(net, "default", json_string("deny"));
	if (s->n_resolvers == 0)
		return net;
	list = json_array();
	for (uint32_t i = 0; i < s->n_resolvers; i++) {
		char at[SERVER_TEXT_BYTES];

		json_array_append_new(list,
		    json_string(server_text(&s->resolvers[i], at)));
	}
	json_object_set_new(net, "resolvers", list);
	return net;
}

/* As a policy file: one with a network table is one already, and whatever
 * stands beside the table is judged with it. */
static json_t *
policy_file(json_t *in, const struct settings *s)
{
	json_t *out;

	if (json_object_get(in, "network") == NULL)
		return json_pack("{s:i, s:o*}", "version", 1, "network",
		    policy_network(in, s));
	out = json_deep_copy(in);
	if (json_object_get(in, "version") == NULL)
		json_object_set_new(out, "version", json_integer(1));
	return out;
}

static void
env_policy(struct read *r, const char *text)
{
	json_error_t at;
	json_t *in = json_loads(text, JSON_REJECT_DUPLICATES, &at), *out;

	if (r->c->n_cells == 0 && !says_nothing(r, "cells")) {
		;	/* and told why */
	} else if (r->c->n_cells != 1 || r->c->cells[0].n_files > 0) {
		env_error(r, "RUNEWARD_EGRESS_POLICY",
		    "unset it, or leave policy: out",
		    "it is the policy of one cell without policy files");
	} else if (in == NULL || !json_is_object(in)) {
		env_error(r, "RUNEWARD_EGRESS_POLICY", "write "
		    "{\"default\":\"deny\",\"rules\":[...]}",
		    in == NULL ? at.text : "it is no JSON object");
	} else {
		out = policy_file(in, r->s);
		r->c->egress_policy = json_dumps(out, JSON_INDENT(1));
		json_decref(out);
		if (r->c->egress_policy == NULL)
			env_error(r, "RUNEWARD_EGRESS_POLICY", NULL,
			    "no memory");
	}
	json_decref(in);
}

/* ---- what keys say together ---- */

static void check_cell(struct read *r, const struct config_cell *c, size_t i);
static void check_segment(struct read *r);
static void check_interfaces(struct read *r);
static void check_addresses(struct read *r);
static void check_captured(struct read *r);
static void check_inside(struct read *r);
static void check_gateway(struct read *r);

static void
check_mode(struct read *r)
{
	struct place top = { r->file, 0, 0 };

	if (r->s->mode == MODE_GATEWAY && r->s->n_interfaces == 0 &&
	    says_nothing(r, "interfaces"))
		problem_add(r->ps, PROBLEM_ERROR, top,
		    "write interfaces: [NAME]",
		    "mode gateway needs the agents' interfaces");
	if (r->mode_known && r->s->mode != MODE_GATEWAY &&
	    r->s->n_interfaces > 0)
		problem_add(r->ps, PROBLEM_ERROR,
		    yaml_get(r->root, "interfaces")->key->at, "remove it",
		    "interfaces: is of mode gateway only");
}

static void
check_whole(struct read *r)
{
	struct place top = { r->file, 0, 0 };

	if (r->c->n_cells == 0 && says_nothing(r, "cells"))
		problem_add(r->ps, PROBLEM_ERROR, top,
		    "list them under cells:, or set PENSTOCK_CELL",
		    "there is no cell");
	if (r->s->n_listeners == 0 && says_nothing(r, "listeners"))
		problem_add(r->ps, PROBLEM_ERROR, top,
		    "leave listeners: out for the mode's own",
		    "there is no listener");
	check_mode(r);
	for (size_t i = 0; i < r->c->n_cells; i++)
		check_cell(r, &r->c->cells[i], i);
	if (r->s->mode == MODE_GATEWAY)
		check_gateway(r);
	check_interfaces(r);
	if (r->mode_known)
		check_addresses(r);
	check_captured(r);
}

static void
check_gateway(struct read *r)
{
	if (!r->s->accept_shared_segment)
		check_segment(r);
	/* without any, that is what is wrong */
	if (r->s->n_interfaces > 0)
		check_inside(r);
}

/* As far as can be told: the mode has its own ones. */
static bool
listener_unknown(const struct read *r, const char *name)
{
	for (uint32_t i = 0; i < r->s->n_listeners; i++)
		if (strcmp(r->s->listeners[i].name, name) == 0)
			return false;
	return r->mode_known && !r->listeners_wrong;
}

static void
check_cell(struct read *r, const struct config_cell *c, size_t i)
{
	for (size_t k = 0; k < i && c->id[0] != '\0'; k++)
		if (strcmp(r->c->cells[k].id, c->id) == 0)
			problem_add(r->ps, PROBLEM_ERROR, c->at,
			    "give each its own", "two cells have the id %s",
			    c->id);
	/* what was refused is not missing as well */
	if (c->wrong)
		return;
	if (c->id[0] == '\0' && r->c->n_cells > 1)
		problem_add(r->ps, PROBLEM_ERROR, c->at, "write id:",
		    "the cell has no id");
	if (c->n_files == 0 && r->c->egress_policy == NULL)
		problem_add(r->ps, PROBLEM_ERROR, c->at,
		    "write policy: [FILE]", "the cell has no policy");
	if (!c->has_from && r->c->n_cells > 1)
		problem_add(r->ps, PROBLEM_ERROR, c->at,
		    "write from: {interface | cidr | listener | credential}",
		    "several cells, and nothing tells who is of this one");
	if (c->has_from && c->from.kind == CELL_FROM_LISTENER &&
	    listener_unknown(r, c->from.listener))
		problem_add(r->ps, PROBLEM_ERROR, c->at, NULL,
		    "there is no listener %s", c->from.listener);
}

/* A raw socket takes a neighbour's address: on one segment an address alone
 * identifies nobody. */
static void
check_segment(struct read *r)
{
	for (size_t i = 0; i < r->c->n_cells; i++)
		for (size_t k = 0; k < i; k++) {
			const struct cell_from *a = &r->c->cells[i].from;
			const struct cell_from *b = &r->c->cells[k].from;

			if (a->kind != CELL_FROM_NET ||
			    b->kind != CELL_FROM_NET ||
			    (a->interface[0] != '\0' &&
			    b->interface[0] != '\0' &&
			    strcmp(a->interface, b->interface) != 0))
				continue;
			problem_add(r->ps, r->env->serves ? PROBLEM_ERROR :
			    PROBLEM_WARNING,
			    r->c->cells[i].at, "give each its interface, or "
			    "start with --accept-risk shared-segment",
			    "cells %s and %s are told apart by address "
			    "alone, which a neighbour can take",
			    r->c->cells[k].id, r->c->cells[i].id);
			return;
		}
}

/* Whoever looks for a cell by address first must find the same one as who
 * looks by interface. */
static void
check_interfaces(struct read *r)
{
	const struct config_cell *with = NULL, *without = NULL;

	for (size_t i = 0; i < r->c->n_cells; i++) {
		const struct config_cell *c = &r->c->cells[i];

		if (c->from.kind != CELL_FROM_NET)
			continue;
		if (c->from.interface[0] != '\0')
			with = c;
		else
			without = c;
	}
	if (with != NULL && without != NULL)
		problem_add(r->ps, PROBLEM_ERROR, without->at,
		    "write interface: for each, or for none",
		    "cell %s is known by its interface and cell %s is not",
		    with->id, without->id);
}

/* An address that penstock serves at, and the key that says so. */
struct served {
	char what[64];
	struct endpoint at;
};
#define SERVED_MAX (SETTINGS_LISTENERS_MAX + 5u)

static size_t
served_list(const struct settings *s, struct served out[static SERVED_MAX])
{
	size_t n = 0;

	for (uint32_t i = 0; i < s->n_listeners; i++) {
		snprintf(out[n].what, sizeof(out[n].what), "listener %s",
		    s->listeners[i].name);
		out[n++].at = s->listeners[i].at;
	}
	for (uint32_t i = 0; i < s->n_dns; i++) {
		snprintf(out[n].what, sizeof(out[n].what), "dns");
		out[n++].at = s->dns[i];
	}
	snprintf(out[n].what, sizeof(out[n].what), "admin");
	if (config_endpoint_text(span_str(s->admin), 0, &out[n].at))
		n++;
	return n;
}

/* The kernel gives one port on all addresses and on one of them to nobody
 * twice. */
static bool
overlap(const struct endpoint *a, const struct endpoint *b)
{
	if (a->port != b->port || a->port == 0 ||
	    addr_is_v4(&a->addr) != addr_is_v4(&b->addr))
		return false;
	return addr_eq(&a->addr, &b->addr) ||
	    addr_class(&a->addr) == ADDR_UNSPECIFIED ||
	    addr_class(&b->addr) == ADDR_UNSPECIFIED;
}

/* Two of ours at one address would take each for another process. */
static void
check_addresses(struct read *r)
{
	struct served all[SERVED_MAX];
	size_t n = served_list(r->s, all);
	char a[ADDR_TEXT_BYTES], b[ADDR_TEXT_BYTES];
	struct place top = { r->file, 0, 0 };

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			if (endpoint_eq(&all[i].at, &all[k].at) &&
			    all[i].at.port != 0)
				problem_add(r->ps, PROBLEM_ERROR, top,
				    "give each its own",
				    "%s and %s have the address %s",
				    all[k].what, all[i].what,
				    endpoint_text(&all[i].at, a));
			else if (overlap(&all[i].at, &all[k].at))
				problem_add(r->ps, PROBLEM_ERROR, top,
				    "give each its own port",
				    "%s has the address %s and %s has %s, of "
				    "which one is all addresses",
				    all[k].what, endpoint_text(&all[k].at, a),
				    all[i].what, endpoint_text(&all[i].at,
				    b));
}

/* What a rule sends to one port finds nobody at another; the rest would be
 * refused, and nobody would know why. */
static void
check_captured(struct read *r)
{
	const struct settings_listener *first = NULL;

	for (uint32_t i = 0; i < r->s->n_listeners; i++) {
		const struct settings_listener *l = &r->s->listeners[i];

		if (l->kind != LISTEN_TPROXY && l->kind != LISTEN_REDIRECT)
			continue;
		if (first == NULL)
			first = l;
		if (l->at.port == first->at.port)
			continue;
		problem_add(r->ps, PROBLEM_ERROR,
		    (struct place){ r->file, 0, 0 },
		    "give both the same port, each on addresses of its own",
		    "listener %s has port %u and listener %s has port %u, "
		    "but the kernel's rules send all that they capture to "
		    "one port", first->name, first->at.port, l->name,
		    l->at.port);
		return;
	}
}

static bool
is_interface(const struct settings *s, const char *name)
{
	for (uint32_t i = 0; i < s->n_interfaces; i++)
		if (strcmp(s->interfaces[i], name) == 0)
			return true;
	return false;
}

/* Elsewhere nothing is captured: only a listener on one address answers. */
static void
check_inside(struct read *r)
{
	for (size_t i = 0; i < r->c->n_cells; i++) {
		const struct config_cell *c = &r->c->cells[i];

		if (c->from.kind == CELL_FROM_NET &&
		    c->from.interface[0] != '\0' &&
		    !is_interface(r->s, c->from.interface))
			problem_add(r->ps, PROBLEM_WARNING, c->at, "add it, "
			    "unless its clients are to use a listener on one "
			    "address only", "cell %s is known by the "
			    "interface %s, which is none of interfaces: "
			    "nothing is captured there", c->id,
			    c->from.interface);
	}
}
