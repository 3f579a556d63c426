/* SPDX-License-Identifier: Apache-2.0 */
/* dns: where the workloads' questions are taken, and what they are told. */
#include "sidecar/config_part.h"

#include <stdio.h>

/* ---- servers ---- */

size_t
config_system_servers(const char *text,
    struct server out[static POLICY_RESOLVERS_MAX])
{
	static const char word[] = "nameserver";
	const size_t len = sizeof(word) - 1;
	size_t n = 0;

	while (text != NULL && *text != '\0') {
		size_t line = strcspn(text, "\n"), from, to;

		from = len + strspn(text + (line < len ? line : len), " \t");
		to = from + strcspn(text + (line < from ? line : from),
		    " \t\r\n#;");
		if (line > len && from > len && to <= line &&
		    strncmp(text, word, len) == 0 &&
		    n < POLICY_RESOLVERS_MAX &&
		    server_parse(&out[n], span_of(text + from, to - from)))
			n++;
		text += line + (text[line] == '\n');
	}
	return n;
}

static void
read_servers(struct read *r, const struct yaml_node *n,
    struct settings_zone *z)
{
	CONFIG_EACH(r, n, item) {
		if (z->n_servers == POLICY_RESOLVERS_MAX) {
			config_error(r, item, NULL, "more than %u resolvers",
			    (unsigned)POLICY_RESOLVERS_MAX);
			return;
		}
		if (item->kind == YAML_SCALAR && server_parse(
		    &z->servers[z->n_servers], item->text))
			z->n_servers++;
		else
			config_error(r, item, SERVER_FORMS,
			    "this is no resolver");
	}
	if (n->kind == YAML_SEQUENCE && n->child == NULL)
		config_error(r, n, "name one at least",
		    "a zone without resolvers");
}

/* ---- names ---- */

/* A suffix with or without its leading dot. */
static bool
suffix(struct read *r, const struct yaml_node *n, struct host *out)
{
	struct span s = n->text;

	if (n->kind == YAML_SCALAR && s.len > 1 && s.data[0] == '.')
		s = span_of(s.data + 1, s.len - 1);
	if (n->kind == YAML_SCALAR &&
	    host_parse_policy(out, s) == REASON_NONE)
		return true;
	config_error(r, n, "write corp.example", "this is no domain name");
	return false;
}

static void
read_zone(struct read *r, const struct yaml_node *n)
{
	static const char *const names[] = { "suffix", "resolvers", NULL };
	struct settings *s = r->s;
	struct settings_zone *z = &s->zones[s->n_zones];
	const struct yaml_node *at, *servers;

	if (!config_keys_are(r, n, names, "a zone"))
		return;
	at = yaml_get(n, "suffix");
	servers = yaml_get(n, "resolvers");
	if (at == NULL || servers == NULL) {
		config_error(r, n, "write {suffix: corp.example, resolvers: "
		    "[10.0.0.53]}", "a zone needs both");
		return;
	}
	memset(z, 0, sizeof(*z));
	if (!suffix(r, at, &z->suffix))
		return;
	for (uint32_t i = 0; i < s->n_zones; i++)
		if (host_eq(&s->zones[i].suffix, &z->suffix)) {
			config_error(r, at, "write it once",
			    "two zones with this suffix");
			return;
		}
	read_servers(r, servers, z);
	s->n_zones++;
}

static void
read_zones(struct read *r, const struct yaml_node *n)
{
	CONFIG_EACH(r, n, item) {
		if (r->s->n_zones == SETTINGS_ZONES_MAX) {
			config_error(r, item, NULL, "more than %u zones",
			    SETTINGS_ZONES_MAX);
			return;
		}
		read_zone(r, item);
	}
}

static void
read_search(struct read *r, const struct yaml_node *n)
{
	struct front_settings *f = &r->s->front;

	CONFIG_EACH(r, n, item) {
		if (f->n_search == FRONT_SEARCH_MAX) {
			config_error(r, item, NULL, "more than %u suffixes",
			    FRONT_SEARCH_MAX);
			return;
		}
		if (suffix(r, item, &f->search[f->n_search]))
			f->n_search++;
	}
}

/* ---- what is told ---- */

/* The place of the word in the list; false with a problem when it is none. */
static bool
one_of(struct read *r, const struct yaml_node *n, const char *const *words,
    const char *fix, unsigned *out)
{
	for (*out = 0; words[*out] != NULL; (*out)++)
		if (n->kind == YAML_SCALAR && yaml_is(n, words[*out]))
			return true;
	config_error(r, n, fix, "this word is not known here");
	return false;
}

static void
read_denied(struct read *r, const struct yaml_node *n)
{
	static const char *const words[] = { [FRONT_NXDOMAIN] = "nxdomain",
	    [FRONT_REFUSED] = "refused", [FRONT_SINKHOLE] = "sinkhole",
	    NULL };
	unsigned i;

	if (!one_of(r, n, words, "write sinkhole, nxdomain or refused", &i))
		return;
	r->s->front.denied = (enum front_denied)i;
	if (i == FRONT_SINKHOLE && !settings_captures(r->s))
		config_error(r, n, "write nxdomain", "denied_names: sinkhole "
		    "leads to an address that mode %s does not capture",
		    settings_mode_word(r->s->mode));
}

/* One address of each family at most; what is dialled for a name is none. */
static void
read_sinkhole(struct read *r, const struct yaml_node *n)
{
	struct addr *to = r->s->front.sinkhole, a;
	enum addr_class c;

	memset(to, 0, 2 * sizeof(*to));
	CONFIG_EACH(r, n, item) {
		if (item->kind != YAML_SCALAR || !addr_parse(&a, item->text)) {
			config_error(r, item, "write 192.0.2.1",
			    "this is no address");
			continue;
		}
		c = addr_class(&a);
		if (c != ADDR_DOCUMENTATION && c != ADDR_BENCHMARK) {
			config_error(r, item, "take one of 192.0.2.0/24 or "
			    "3fff::/20", "a sinkhole is an address of "
			    "documentation or benchmarks; others may be "
			    "somebody's");
			continue;
		}
		to[addr_is_v4(&a) ? 0 : 1] = a;
	}
}

static void
read_svcb(struct read *r, const struct yaml_node *n)
{
	static const char *const words[] = { "empty", "strip-ech", NULL };
	unsigned i;

	if (one_of(r, n, words, "write empty or strip-ech", &i))
		r->s->front.svcb_strip = i == 1;
}

static void
tunnel_action(struct read *r, const struct yaml_node *n)
{
	static const char *const words[] = { "record", "deny", NULL };
	unsigned i;

	if (one_of(r, n, words, "write record or deny", &i))
		r->s->front.tunnel_deny = i == 1;
}

static void
tunnel_window(struct read *r, const struct yaml_node *n)
{
	uint32_t ms;

	if (!config_duration(r, n, 3600000, &ms))
		return;
	if (ms < 2000)
		config_error(r, n, "write 60s", "a window of less than 2 s");
	else
		r->s->front.tunnel.window_s = ms / 1000;
}

/* From 1 on. */
static void
number(struct read *r, const struct yaml_node *n, uint64_t max, unsigned *out)
{
	uint64_t v;

	if (yaml_uint(n, max, &v) && v > 0)
		*out = (unsigned)v;
	else
		config_error(r, n, NULL, "write a number from 1 to %llu",
		    (unsigned long long)max);
}

static void
tunnel_score(struct read *r, const struct yaml_node *n)
{
	number(r, n, 100, &r->s->front.tunnel.score);
}

static void
tunnel_names(struct read *r, const struct yaml_node *n)
{
	number(r, n, 10000, &r->s->front.tunnel.names_min);
}

static void
read_tunnel(struct read *r, const struct yaml_node *n)
{
	static const struct config_key keys[] = {
		{ "action", tunnel_action },
		{ "window", tunnel_window },
		{ "score", tunnel_score },
		{ "names", tunnel_names },
		{ NULL, NULL },
	};

	/* a word alone is the action */
	if (n->kind == YAML_MAPPING)
		config_read_map(r, n, keys, "tunnel");
	else
		tunnel_action(r, n);
}

static void
read_tls_ca(struct read *r, const struct yaml_node *n)
{
	if (config_text(r, n, r->s->tls_ca, sizeof(r->s->tls_ca)) &&
	    r->s->tls_ca[0] != '/')
		config_error(r, n, "write an absolute path",
		    "tls_ca is no absolute path");
}

/* ---- the table ---- */

static void
read_listen(struct read *r, const struct yaml_node *n)
{
	r->s->n_dns = 0;
	CONFIG_EACH(r, n, item) {
		if (r->s->n_dns == sizeof(r->s->dns) / sizeof(r->s->dns[0])) {
			config_error(r, item, NULL,
			    "more than 4 dns addresses");
			return;
		}
		if (config_endpoint(r, item, 53, &r->s->dns[r->s->n_dns]))
			r->s->n_dns++;
	}
}

void
config_read_dns(struct read *r, const struct yaml_node *n)
{
	static const struct config_key keys[] = {
		{ "listen", read_listen },
		{ "zones", read_zones },
		{ "search", read_search },
		{ "denied_names", read_denied },
		{ "sinkhole", read_sinkhole },
		{ "svcb", read_svcb },
		{ "tunnel", read_tunnel },
		{ "tls_ca", read_tls_ca },
		{ NULL, NULL },
	};

	/* a list alone is where it listens */
	if (n->kind == YAML_MAPPING)
		config_read_map(r, n, keys, "dns");
	else
		read_listen(r, n);
}
