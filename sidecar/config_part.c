/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/config_part.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "dns/ask.h"

/* ---- single values ---- */

void
config_error(struct read *r, const struct yaml_node *n, const char *fix,
    const char *what, ...)
{
	char text[PROBLEM_TEXT_BYTES];
	va_list ap;

	if (n->refused)
		return;
	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	problem_add(r->ps, PROBLEM_ERROR, n->at, fix, "%s", text);
}

static bool
key_known(const struct config_key *keys, const struct yaml_node *key)
{
	for (; keys->name != NULL; keys++)
		if (span_eq(key->text, span_str(keys->name)))
			return true;
	return false;
}

void
config_read_map(struct read *r, const struct yaml_node *map,
    const struct config_key *keys, const char *where)
{
	if (map->kind != YAML_MAPPING) {
		config_error(r, map, "write {key: value}",
		    "%s takes keys and values", where);
		return;
	}
	for (const struct yaml_node *n = map->child; n != NULL; n = n->next)
		if (!key_known(keys, n->key)) {
			char name[80];

			config_error(r, n->key, "see penstock.yaml(5)",
			    "%s has no key %s", where,
			    span_print(n->key->text, name, sizeof(name)));
		}
	for (; keys->name != NULL; keys++) {
		const struct yaml_node *n = yaml_get(map, keys->name);

		if (n != NULL && !n->refused)
			keys->read(r, n);
	}
}

const struct yaml_node *
config_items(struct read *r, const struct yaml_node *n)
{
	if (n->kind == YAML_SEQUENCE)
		return config_item(n->child);
	config_error(r, n, "write [a, b]", "a list is needed here");
	return NULL;
}

const struct yaml_node *
config_item(const struct yaml_node *item)
{
	while (item != NULL && item->refused)
		item = item->next;
	return item;
}

bool
config_text(struct read *r, const struct yaml_node *n, char *out,
    size_t size)
{
	if (n->kind != YAML_SCALAR || n->text.len == 0 ||
	    n->text.len >= size) {
		config_error(r, n, NULL, "a text of 1 to %zu bytes is needed",
		    size - 1);
		return false;
	}
	for (size_t i = 0; i < n->text.len; i++)
		if (n->text.data[i] <= ' ' || n->text.data[i] > '~') {
			config_error(r, n, NULL,
			    "a byte that is not printable stands here");
			return false;
		}
	memcpy(out, n->text.data, n->text.len);
	out[n->text.len] = '\0';
	return true;
}

static bool
uint_text(struct span *s, uint64_t max, uint64_t *out)
{
	size_t i = 0;

	*out = 0;
	while (i < s->len && s->data[i] >= '0' && s->data[i] <= '9') {
		*out = *out * 10 + (uint64_t)(s->data[i++] - '0');
		if (*out > max)
			return false;
	}
	if (i == 0 || (s->data[0] == '0' && i > 1))
		return false;
	s->data += i;
	s->len -= i;
	return true;
}

static bool
duration_text(struct span s, uint32_t max_ms, uint32_t *out)
{
	static const struct { const char *unit; uint32_t ms; } units[] = {
		{ "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 },
	};
	uint64_t v;

	if (!uint_text(&s, UINT32_MAX, &v))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (span_eq(s, span_str(units[i].unit))) {
			v *= units[i].ms;
			*out = (uint32_t)v;
			return v <= max_ms;
		}
	return false;
}

bool
config_duration(struct read *r, const struct yaml_node *n, uint32_t max_ms,
    uint32_t *out)
{
	if (n->kind == YAML_SCALAR && duration_text(n->text, max_ms, out))
		return true;
	if (n->kind == YAML_SCALAR && duration_text(n->text, UINT32_MAX, out))
		config_error(r, n, "write less",
		    "this is more than the %u s that are possible here",
		    max_ms / 1000);
	else
		config_error(r, n, "write 250ms, 5s, 2m or 1h",
		    "this is no time of at most %u s", max_ms / 1000);
	return false;
}

static bool
address_text(struct addr *out, struct span s)
{
	static const uint8_t zero[4];

	if (addr_parse(out, s))
		return true;
	if (!span_eq(s, span_str("0.0.0.0")))
		return false;
	*out = addr_from_v4(zero);
	return true;
}

bool
config_endpoint_text(struct span s, uint16_t port, struct endpoint *out)
{
	struct span host = s, rest = { NULL, 0 };
	uint64_t v = port;
	const uint8_t *end;

	if (s.len > 0 && s.data[0] == '[') {
		end = memchr(s.data, ']', s.len);
		if (end == NULL)
			return false;
		host = span_of(s.data + 1, (size_t)(end - s.data) - 1);
		rest = span_of(end + 1, s.len - host.len - 2);
		if (memchr(host.data, ':', host.len) == NULL)
			return false;
	} else if (s.len > 0 && (end = memchr(s.data, ':', s.len)) != NULL &&
	    memchr(end + 1, ':', s.len - (size_t)(end - s.data) - 1) == NULL) {
		host = span_of(s.data, (size_t)(end - s.data));
		rest = span_of(end, s.len - host.len);
	}
	if (rest.len > 0) {
		rest.data++;
		rest.len--;
		if (rest.data[-1] != ':' || !uint_text(&rest, 65535, &v) ||
		    rest.len > 0)
			return false;
	}
	out->port = (uint16_t)v;
	return v > 0 && address_text(&out->addr, host);
}

bool
config_endpoint(struct read *r, const struct yaml_node *n, uint16_t port,
    struct endpoint *out)
{
	if (n->kind == YAML_SCALAR &&
	    config_endpoint_text(n->text, port, out))
		return true;
	config_error(r, n, "write 127.0.0.1:15001 or \"[::1]:15001\"",
	    "this is no address and port");
	return false;
}

bool
config_word(struct span s)
{
	if (s.len == 0 || s.len >= POLICY_ID_BYTES)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.data[i];

		if (c == '\0' || (!((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
		    !(c >= '0' && c <= '9') &&
		    strchr("._:/@-", c) == NULL))
			return false;
	}
	return true;
}

static bool
add_label(struct config_cell *c, struct span key, struct span value)
{
	struct cell_label *l = &c->labels[c->n_labels];

	if (c->n_labels == POLICY_LABELS_MAX || !config_word(key) ||
	    !config_word(value))
		return false;
	for (size_t i = 0; i < c->n_labels; i++)
		if (span_eq(key, span_str(c->labels[i].key)))
			return false;
	memcpy(l->key, key.data, key.len);
	memcpy(l->value, value.data, value.len);
	c->n_labels++;
	return true;
}

bool
config_labels_text(const char *text, struct config_cell *c)
{
	while (*text != '\0') {
		size_t n = strcspn(text, ",\n");
		const char *eq = memchr(text, '=', n);
		struct span value;

		if (n > 0) {
			if (eq == NULL)
				return false;
			value = span_of(eq + 1, n - (size_t)(eq - text) - 1);
			if (value.len >= 2 && value.data[0] == '"' &&
			    value.data[value.len - 1] == '"')
				value = span_of(value.data + 1,
				    value.len - 2);
			if (!add_label(c, span_of(text, (size_t)(eq - text)),
			    value))
				return false;
		}
		text += n;
		if (*text != '\0')
			text++;
	}
	return true;
}

/* ---- listeners ---- */

static bool
captures_nothing(enum settings_mode m)
{
	return m == MODE_COOPERATIVE || m == MODE_ISOLATED;
}

static bool
listener_kind(struct read *r, const struct yaml_node *n,
    struct settings_listener *l)
{
	static const char *const words[] = {
		[LISTEN_TPROXY] = "tproxy", [LISTEN_REDIRECT] = "redirect",
		[LISTEN_EXPLICIT] = "explicit", [LISTEN_NAMED] = "named",
	};

	for (unsigned i = 0; i < 4; i++)
		if (yaml_is(n, words[i])) {
			l->kind = (enum listen_kind)i;
			if (r->mode_known && captures_nothing(r->s->mode) &&
			    (i == LISTEN_TPROXY || i == LISTEN_REDIRECT))
				config_error(r, n, "write kind: explicit, or "
				    "take mode gateway or shared",
				    "kind: %s takes what is captured, and "
				    "mode %s captures nothing", words[i],
				    settings_mode_word(r->s->mode));
			return true;
		}
	config_error(r, n, "write tproxy, redirect, explicit or named",
	    "this is no kind of listener");
	return false;
}

bool
config_keys_are(struct read *r, const struct yaml_node *map,
    const char *const *names, const char *where)
{
	bool ok = true;

	if (map->kind != YAML_MAPPING) {
		config_error(r, map, "write {key: value}",
		    "%s takes keys and values", where);
		return false;
	}
	for (const struct yaml_node *n = map->child; n != NULL; n = n->next) {
		const char *const *k = names;
		char name[80];

		while (*k != NULL && !span_eq(n->key->text, span_str(*k)))
			k++;
		if (*k != NULL)
			continue;
		config_error(r, n->key, "see penstock.yaml(5)",
		    "%s has no key %s", where,
		    span_print(n->key->text, name, sizeof(name)));
		ok = false;
	}
	return ok;
}

static void
read_listener(struct read *r, const struct yaml_node *n,
    struct settings_listener *l)
{
	static const char *const names[] =
	    { "name", "kind", "address", "credential", NULL };
	const struct yaml_node *name, *kind, *address, *credential;
	bool good = config_keys_are(r, n, names, "a listener");
	bool kind_known = false;

	if (n->kind != YAML_MAPPING)
		return;
	name = yaml_get(n, "name");
	kind = yaml_get(n, "kind");
	address = yaml_get(n, "address");
	credential = yaml_get(n, "credential");
	if (good && !n->lacks &&
	    (name == NULL || kind == NULL || address == NULL))
		config_error(r, n, "write {name, kind, address}",
		    "a listener needs all three");
	if (name != NULL)
		config_text(r, name, l->name, sizeof(l->name));
	if (kind != NULL)
		kind_known = listener_kind(r, kind, l);
	if (address != NULL)
		config_endpoint(r, address, 0, &l->at);
	if (credential != NULL && !yaml_bool(credential, &l->credential))
		config_error(r, credential, "write true or false",
		    "credential is neither");
	if (l->credential && kind_known && l->kind != LISTEN_EXPLICIT)
		config_error(r, credential, "use kind: explicit",
		    "only an explicit listener can ask for a credential");
}

void
config_read_listeners(struct read *r, const struct yaml_node *n)
{
	const size_t before = problem_count(r->ps, PROBLEM_ERROR);

	r->s->n_listeners = 0;
	memset(r->s->listeners, 0, sizeof(r->s->listeners));
	CONFIG_EACH(r, n, item) {
		struct settings_listener *l =
		    &r->s->listeners[r->s->n_listeners];

		if (r->s->n_listeners == SETTINGS_LISTENERS_MAX) {
			config_error(r, item, NULL, "more than %u listeners",
			    SETTINGS_LISTENERS_MAX);
			return;
		}
		read_listener(r, item, l);
		for (uint32_t i = 0; i < r->s->n_listeners; i++)
			if (strcmp(r->s->listeners[i].name, l->name) == 0 &&
			    l->name[0] != '\0')
				config_error(r, item, "name each apart",
				    "two listeners have this name");
		r->s->n_listeners++;
	}
	r->listeners_wrong = n->doubtful ||
	    problem_count(r->ps, PROBLEM_ERROR) > before;
}

/* ---- cells ---- */

static void
cell_id(struct read *r, const struct yaml_node *n, struct config_cell *c)
{
	if (n == NULL)
		return;
	if (n->kind != YAML_SCALAR || !config_word(n->text)) {
		config_error(r, n,
		    "use at most 63 of [A-Za-z0-9._:/@-]",
		    "this is no cell id");
		return;
	}
	memcpy(c->id, n->text.data, n->text.len);
}

static void
cell_labels(struct read *r, const struct yaml_node *n, struct config_cell *c)
{
	if (n == NULL)
		return;
	if (n->kind != YAML_MAPPING) {
		config_error(r, n, "write {team: a}", "labels are a mapping");
		return;
	}
	for (n = n->child; n != NULL; n = n->next)
		if (n->kind != YAML_SCALAR ||
		    !add_label(c, n->key->text, n->text))
			config_error(r, n, "at most 8, of at most 63 of "
			    "[A-Za-z0-9._:/@-]", "this is no label");
}

static bool
file_name_ok(struct span s)
{
	if (s.len == 0 || s.len > 255 || s.data[0] == '/')
		return false;
	for (size_t i = 0; i < s.len; i++)
		if (s.data[i] < ' ' || s.data[i] == 0x7f)
			return false;
	return true;
}

static void
cell_policy(struct read *r, const struct yaml_node *n, struct config_cell *c)
{
	if (n == NULL)
		return;
	CONFIG_EACH(r, n, item) {
		if (item->kind != YAML_SCALAR || !file_name_ok(item->text)) {
			config_error(r, item, "write a path relative to this "
			    "file's directory, beneath it",
			    "this is no policy file name");
			continue;
		}
		if (c->n_files == CONFIG_FILES_MAX) {
			config_error(r, item, NULL,
			    "more than %u policy files", CONFIG_FILES_MAX);
			return;
		}
		c->files[c->n_files] = strndup((const char *)item->text.data,
		    item->text.len);
		if (c->files[c->n_files] != NULL)
			c->n_files++;
		else
			config_error(r, item, NULL, "no memory");
	}
}

static bool
token_hash(struct span s, uint8_t out[static 32])
{
	static const char head[] = "blake2b:";
	size_t at = sizeof(head) - 1;

	if (s.len != at + 64 || memcmp(s.data, head, at) != 0)
		return false;
	for (size_t i = 0; i < 64; i++) {
		uint8_t c = s.data[at + i], v;

		if (c >= '0' && c <= '9')
			v = (uint8_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = (uint8_t)(c - 'a' + 10);
		else
			return false;
		out[i / 2] = (uint8_t)(out[i / 2] << 4 | v);
	}
	return true;
}

static void
from_net(struct read *r, const struct yaml_node *interface,
    const struct yaml_node *cidr, struct cell_from *f)
{
	f->kind = CELL_FROM_NET;
	if (interface != NULL)
		config_text(r, interface, f->interface, sizeof(f->interface));
	if (cidr == NULL)
		return;
	f->has_prefix = cidr->kind == YAML_SCALAR &&
	    prefix_parse(&f->prefix, cidr->text);
	if (!f->has_prefix)
		config_error(r, cidr, "write 10.1.0.0/16",
		    "this is no prefix");
}

static void
cell_from(struct read *r, const struct yaml_node *n, struct config_cell *c)
{
	static const char *const names[] =
	    { "interface", "cidr", "listener", "credential", NULL };
	const struct yaml_node *interface, *cidr, *listener, *credential;
	bool good;

	if (n == NULL)
		return;
	good = config_keys_are(r, n, names, "from") && !n->lacks;
	interface = yaml_get(n, "interface");
	cidr = yaml_get(n, "cidr");
	listener = yaml_get(n, "listener");
	credential = yaml_get(n, "credential");
	c->has_from = true;
	if ((interface != NULL || cidr != NULL) + (listener != NULL) +
	    (credential != NULL) != 1) {
		if (good)
			config_error(r, n, "write interface and cidr, or "
			    "listener, or credential",
			    "from says nothing, or two things");
	} else if (listener != NULL) {
		c->from.kind = CELL_FROM_LISTENER;
		config_text(r, listener, c->from.listener,
		    sizeof(c->from.listener));
	} else if (credential != NULL) {
		c->from.kind = CELL_FROM_CREDENTIAL;
		if (credential->kind != YAML_SCALAR ||
		    !token_hash(credential->text, c->from.token_hash))
			config_error(r, credential,
			    "paste what \"penstock token\" prints",
			    "this is no hashed token");
	} else {
		from_net(r, interface, cidr, &c->from);
	}
}

void
config_read_cells(struct read *r, const struct yaml_node *n)
{
	static const char *const names[] =
	    { "id", "labels", "policy", "from", NULL };

	if (n->kind == YAML_SEQUENCE && n->n_children > POLICY_CELLS_MAX) {
		config_error(r, n, NULL, "more than %u cells",
		    POLICY_CELLS_MAX);
		return;
	}
	r->c->cells = calloc(n->n_children + 1, sizeof(*r->c->cells));
	if (r->c->cells == NULL) {
		config_error(r, n, NULL, "no memory");
		return;
	}
	CONFIG_EACH(r, n, item) {
		struct config_cell *c = &r->c->cells[r->c->n_cells++];
		const size_t before = problem_count(r->ps, PROBLEM_ERROR);

		c->at = item->at;
		c->from.kind = CELL_FROM_ANY;
		if (!config_keys_are(r, item, names, "a cell") &&
		    item->kind != YAML_MAPPING) {
			c->wrong = true;
			continue;
		}
		cell_id(r, yaml_get(item, "id"), c);
		cell_labels(r, yaml_get(item, "labels"), c);
		cell_policy(r, yaml_get(item, "policy"), c);
		cell_from(r, yaml_get(item, "from"), c);
		c->wrong = item->doubtful ||
		    problem_count(r->ps, PROBLEM_ERROR) > before;
	}
}

/* ---- limits ---- */

#define LIMIT_AT(field) offsetof(struct settings, limits.field)
#define DNS_AT(field) offsetof(struct settings, front.field)

static const struct limit_key {
	const char *name;
	size_t at;
	bool is_time, is_size;
	uint32_t min, max;
} limit_keys[] = {
	{ "hello_timeout", LIMIT_AT(hello_ms), true, false, 100, 60000 },
	/* no longer than the question to the resolver is waited for */
	{ "resolve_timeout", LIMIT_AT(resolve_ms), true, false, 100,
	    ASK_TIMEOUT_MS },
	{ "connect_timeout", LIMIT_AT(connect_ms), true, false, 100, 300000 },
	{ "connect_stagger", LIMIT_AT(stagger_ms), true, false, 10, 10000 },
	{ "idle_timeout", LIMIT_AT(idle_ms), true, false, 1000, 604800000 },
	{ "half_closed_timeout", LIMIT_AT(half_closed_ms), true, false, 1000,
	    604800000 },
	{ "keepalive_timeout", LIMIT_AT(keepalive_ms), true, false, 100,
	    3600000 },
	{ "linger_timeout", LIMIT_AT(linger_ms), true, false, 1, 60000 },
	{ "linger_bytes", LIMIT_AT(linger_bytes), false, true, 1, 1 << 30 },
	{ "hello_bytes", LIMIT_AT(hello_bytes), false, true, 512,
	    HELLO_MAX_BYTES },
	{ "head_bytes", LIMIT_AT(head_bytes), false, true, 1024,
	    HTTP_HEAD_MAX_BYTES },
	{ "header_count", LIMIT_AT(header_count), false, false, 8,
	    HTTP_FIELDS_MAX },
	{ "connections", LIMIT_AT(connections), false, false, 1, 1000000 },
	{ "per_cell", LIMIT_AT(per_cell), false, false, 1, 1000000 },
	{ "per_client", LIMIT_AT(per_client), false, false, 1, 1000000 },
	{ "pipe_share_percent", LIMIT_AT(pipe_share_percent), false, false,
	    0, 100 },
	{ "copy_buffer_bytes", LIMIT_AT(copy_buffer_bytes), false, true, 4096,
	    16 << 20 },
	{ "dns_questions", DNS_AT(pending_max), false, false, 4, 65536 },
	{ "dns_per_client", DNS_AT(client_max), false, false, 1, 65536 },
	{ "dns_connections", DNS_AT(tcp_max), false, false, 4, 4096 },
	{ "dns_idle_timeout", DNS_AT(tcp_idle_ms), true, false, 100, 3600000 },
};

static void
read_limit(struct read *r, const struct yaml_node *n,
    const struct limit_key *k)
{
	uint8_t *at = (uint8_t *)r->s + k->at;
	uint64_t v = 0;
	uint32_t ms;

	if (k->is_time) {
		if (!config_duration(r, n, k->max, &ms))
			return;
		v = ms;
	} else if (!yaml_uint(n, k->max, &v)) {
		config_error(r, n, NULL, "a number from %u to %u is needed",
		    k->min, k->max);
		return;
	}
	if (v < k->min)
		config_error(r, n, NULL, "%s is at least %u%s", k->name,
		    k->min, k->is_time ? "ms" : "");
	else if (k->is_size)
		memcpy(at, &(size_t){ v }, sizeof(size_t));
	else
		memcpy(at, &(unsigned){ (unsigned)v }, sizeof(unsigned));
	if (k->at == LIMIT_AT(connections))
		r->s->connections_asked = true;
}

void
config_read_limits(struct read *r, const struct yaml_node *n)
{
	const size_t n_keys = sizeof(limit_keys) / sizeof(limit_keys[0]);

	if (n->kind != YAML_MAPPING) {
		config_error(r, n, "write {key: value}",
		    "limits takes keys and values");
		return;
	}
	for (n = n->child; n != NULL; n = n->next) {
		size_t i = 0;
		char name[80];

		while (i < n_keys &&
		    !span_eq(n->key->text, span_str(limit_keys[i].name)))
			i++;
		if (i < n_keys)
			read_limit(r, n, &limit_keys[i]);
		else
			config_error(r, n->key, "see penstock.yaml(5)",
			    "limits has no key %s",
			    span_print(n->key->text, name, sizeof(name)));
	}
}
