/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/yaml.h"

#include <stdlib.h>
#include <yaml.h>

#define BLOCK_BYTES 65536u

/* Nodes and texts live in blocks that are freed together. */
struct block {
	struct block *next;
	size_t used, size;
	_Alignas(16) uint8_t bytes[];
};

struct yaml {
	struct block *blocks;
	struct yaml_node *root;
	size_t n_nodes;
};

/* A list or mapping whose end is still to come. */
struct open {
	struct yaml_node *node;
	struct yaml_node *last;		/* last child */
	struct yaml_node *key;		/* mapping: waits for its value */
};

struct reader {
	yaml_parser_t parser;
	struct yaml *tree;
	struct problems *ps;
	const char *file;
	struct span text;
	size_t errors;
	bool stop;
	unsigned depth;			/* of the open ones */
	struct open open[YAML_MAX_DEPTH];
};

static void *
take(struct yaml *y, size_t n)
{
	struct block *b = y->blocks;
	void *p;

	n = (n + 15) & ~(size_t)15;
	if (b == NULL || b->size - b->used < n) {
		size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;

		b = malloc(sizeof(*b) + size);
		if (b == NULL)
			return NULL;
		*b = (struct block){ .next = y->blocks, .size = size };
		y->blocks = b;
	}
	p = b->bytes + b->used;
	b->used += n;
	return p;
}

static struct place
place_of(const struct reader *r, const yaml_mark_t *mark)
{
	return (struct place){ .file = r->file,
	    .line = (uint32_t)mark->line + 1,
	    .column = (uint32_t)mark->column + 1 };
}

static void
bad(struct reader *r, struct place at, const char *what, const char *fix)
{
	r->errors++;
	problem_add(r->ps, PROBLEM_ERROR, at, fix, "%s", what);
}

static struct yaml_node *
node_new(struct reader *r, enum yaml_kind kind, const yaml_mark_t *mark)
{
	struct yaml_node *n;

	if (r->tree->n_nodes >= YAML_MAX_NODES) {
		bad(r, place_of(r, mark), "too many values",
		    "use a hostnames_file for long lists");
		r->stop = true;
		return NULL;
	}
	n = take(r->tree, sizeof(*n));
	if (n == NULL) {
		bad(r, place_of(r, mark), "out of memory", NULL);
		r->stop = true;
		return NULL;
	}
	r->tree->n_nodes++;
	*n = (struct yaml_node){ .kind = kind, .at = place_of(r, mark) };
	return n;
}

static struct yaml_node *
scalar_node(struct reader *r, const yaml_event_t *ev)
{
	const uint8_t *value = ev->data.scalar.value;
	size_t len = ev->data.scalar.length;
	struct yaml_node *n = node_new(r, YAML_SCALAR, &ev->start_mark);
	uint8_t *copy;

	if (n == NULL)
		return NULL;
	copy = take(r->tree, len + 1);
	if (copy == NULL) {
		bad(r, n->at, "out of memory", NULL);
		r->stop = true;
		return NULL;
	}
	memcpy(copy, value, len);
	copy[len] = '\0';
	n->text = span_of(copy, len);
	n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	if (memchr(value, 0, len) != NULL || span_has_invisible(n->text))
		bad(r, n->at, "an invisible character in a value",
		    "type the value anew");
	if (ev->data.scalar.anchor != NULL)
		bad(r, n->at, "anchors are not accepted", "write the value");
	if (ev->data.scalar.tag != NULL)
		bad(r, n->at, "tags are not accepted", "remove the !tag");
	return n;
}

/* "*.x" without quotes begins an alias. */
static void
alias(struct reader *r, const char *name, struct place at)
{
	char shown[128];

	span_print(span_str(name), shown, sizeof(shown));
	r->errors++;
	problem_add(r->ps, PROBLEM_ERROR, at, NULL,
	    "\"*%s\" must be quoted in YAML (a leading * starts an alias). "
	    "Write: \"*%s\"", shown, shown);
}

static bool
key_known(const struct yaml_node *map, const struct yaml_node *key)
{
	for (const struct yaml_node *c = map->child; c != NULL; c = c->next)
		if (span_eq(c->key->text, key->text))
			return true;
	return false;
}

static void
take_key(struct reader *r, struct open *in, struct yaml_node *n)
{
	char shown[128];

	in->key = n;
	if (n->kind != YAML_SCALAR) {
		bad(r, n->at, "a key must be a word", NULL);
		return;
	}
	if (!n->quoted && yaml_is(n, "<<"))
		bad(r, n->at, "merge keys are not accepted",
		    "write the keys out");
	if (in->node->n_children >= YAML_MAX_KEYS) {
		bad(r, n->at, "too many keys in one mapping", NULL);
		r->stop = true;
		return;
	}
	if (key_known(in->node, n)) {
		span_print(n->text, shown, sizeof(shown));
		r->errors++;
		problem_add(r->ps, PROBLEM_ERROR, n->at, "remove one",
		    "the key \"%s\" stands twice", shown);
	}
}

/* Put a finished or opened node where it belongs. */
static void
place_node(struct reader *r, struct yaml_node *n)
{
	struct open *in;

	if (r->depth == 0) {
		r->tree->root = n;
		return;
	}
	in = &r->open[r->depth - 1];
	if (in->node->kind == YAML_MAPPING && in->key == NULL) {
		take_key(r, in, n);
		return;
	}
	n->key = in->key;
	in->key = NULL;
	if (in->last == NULL)
		in->node->child = n;
	else
		in->last->next = n;
	in->last = n;
	in->node->n_children++;
}

/* The word with a leading * around this place, as it was written: libyaml
 * stops inside it, at what cannot be an alias. */
static bool
star_at(const struct reader *r, struct place at, char *out, size_t size)
{
	const uint8_t *p = r->text.data, *end = p + r->text.len, *from, *to;

	for (uint32_t line = 1; line < at.line && p < end; p++)
		line += *p == '\n';
	if (at.line == 0 || at.column == 0 || (size_t)(end - p) < at.column)
		return false;
	for (from = p + at.column - 1; from > p && *from != '*';)
		if (strchr(" \t,[{", *--from) != NULL)
			return false;
	if (*from != '*')
		return false;
	for (to = from; to < end && strchr(" \t\r\n,]}", *to) == NULL;)
		to++;
	span_print(span_of(from, (size_t)(to - from)), out, size);
	return true;
}

/* The reader counts bytes. */
static void
unreadable_bytes(struct reader *r, size_t offset, const char *what)
{
	struct place at = { .file = r->file, .line = 1, .column = 1 };

	for (size_t i = 0; i < offset && i < r->text.len; i++) {
		at.column++;
		if (r->text.data[i] == '\n') {
			at.line++;
			at.column = 1;
		}
	}
	r->errors++;
	problem_add(r->ps, PROBLEM_ERROR, at, "save the file as UTF-8, "
	    "without control characters", "not YAML: %s", what);
}

static void
scanner_error(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	struct place at = place_of(r, &p->problem_mark);
	const char *what = p->problem != NULL ? p->problem : "not YAML";
	char shown[128];

	if (p->error == YAML_READER_ERROR) {
		unreadable_bytes(r, p->problem_offset, what);
		return;
	}
	if (star_at(r, at, shown, sizeof(shown))) {
		alias(r, shown + 1, at);
		return;
	}
	if (strstr(what, "found character that cannot start") != NULL) {
		bad(r, at, "a character that cannot start a value here "
		    "(a tab?)", "indent with spaces; quote the value");
		return;
	}
	r->errors++;
	problem_add(r->ps, PROBLEM_ERROR, at, NULL, "not YAML: %s%s%s", what,
	    p->context != NULL ? ", " : "",
	    p->context != NULL ? p->context : "");
}

static const char *
collection_extras(const yaml_event_t *ev)
{
	bool seq = ev->type == YAML_SEQUENCE_START_EVENT;

	if ((seq ? ev->data.sequence_start.anchor :
	    ev->data.mapping_start.anchor) != NULL)
		return "anchors are not accepted";
	if ((seq ? ev->data.sequence_start.tag :
	    ev->data.mapping_start.tag) != NULL)
		return "tags are not accepted";
	return NULL;
}

static void
take_scalar(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *n = scalar_node(r, ev);

	if (n != NULL)
		place_node(r, n);
}

/* Refused, and an empty text stands in its place, so that the rest is read. */
static void
take_alias(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *n;

	alias(r, (const char *)ev->data.alias.anchor,
	    place_of(r, &ev->start_mark));
	n = node_new(r, YAML_SCALAR, &ev->start_mark);
	if (n == NULL)
		return;
	n->text = span_str("");
	place_node(r, n);
}

static void
open_collection(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *n = node_new(r, ev->type ==
	    YAML_MAPPING_START_EVENT ? YAML_MAPPING : YAML_SEQUENCE,
	    &ev->start_mark);
	const char *extra = collection_extras(ev);

	if (n == NULL)
		return;
	if (extra != NULL)
		bad(r, n->at, extra, NULL);
	place_node(r, n);
	if (r->depth == YAML_MAX_DEPTH) {
		bad(r, n->at, "nested too deeply", NULL);
		r->stop = true;
		return;
	}
	r->open[r->depth++] = (struct open){ .node = n };
}

static void
begin_document(struct reader *r, const yaml_event_t *ev)
{
	if (r->tree->root == NULL)
		return;
	bad(r, place_of(r, &ev->start_mark), "a second document",
	    "keep one document a file");
	r->stop = true;
}

static void
take_event(struct reader *r, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		take_scalar(r, ev);
		break;
	case YAML_ALIAS_EVENT:
		take_alias(r, ev);
		break;
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		open_collection(r, ev);
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		r->depth--;
		break;
	case YAML_DOCUMENT_START_EVENT:
		begin_document(r, ev);
		break;
	case YAML_STREAM_END_EVENT:
		r->stop = true;
		break;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		break;
	}
}

static void
read_events(struct reader *r)
{
	yaml_event_t ev;

	while (!r->stop) {
		if (!yaml_parser_parse(&r->parser, &ev)) {
			scanner_error(r);
			return;
		}
		take_event(r, &ev);
		yaml_event_delete(&ev);
	}
}

struct yaml *
yaml_parse(const char *file, struct span text, struct problems *ps)
{
	struct reader r = { .ps = ps, .file = file };

	if (text.len > YAML_MAX_BYTES) {
		problem_add(ps, PROBLEM_ERROR,
		    (struct place){ .file = file },
		    "use a hostnames_file for long lists",
		    "the file is larger than %u bytes", YAML_MAX_BYTES);
		return NULL;
	}
	r.tree = calloc(1, sizeof(*r.tree));
	if (r.tree == NULL || !yaml_parser_initialize(&r.parser)) {
		free(r.tree);
		return NULL;
	}
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	/* libyaml keeps a byte-order mark when the encoding is set */
	if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
		text = span_of(text.data + 3, text.len - 3);
	r.text = text;
	yaml_parser_set_input_string(&r.parser, text.data, text.len);
	read_events(&r);
	yaml_parser_delete(&r.parser);
	if (r.tree->root == NULL && r.errors == 0)
		bad(&r, (struct place){ .file = file }, "the file is empty",
		    "an empty policy allows nothing; write version: 1 first");
	if (r.errors > 0) {
		yaml_close(r.tree);
		return NULL;
	}
	return r.tree;
}

void
yaml_close(struct yaml *y)
{
	if (y == NULL)
		return;
	while (y->blocks != NULL) {
		struct block *next = y->blocks->next;

		free(y->blocks);
		y->blocks = next;
	}
	free(y);
}

const struct yaml_node *
yaml_root(const struct yaml *y)
{
	return y->root;
}

const struct yaml_node *
yaml_get(const struct yaml_node *map, const char *key)
{
	if (map == NULL || map->kind != YAML_MAPPING)
		return NULL;
	for (const struct yaml_node *c = map->child; c != NULL; c = c->next)
		if (yaml_is(c->key, key))
			return c;
	return NULL;
}

bool
yaml_is(const struct yaml_node *scalar, const char *text)
{
	return scalar != NULL && scalar->kind == YAML_SCALAR &&
	    span_eq(scalar->text, span_str(text));
}

bool
yaml_uint(const struct yaml_node *scalar, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;
	struct span s = scalar->text;

	if (scalar->kind != YAML_SCALAR || s.len == 0 || s.len > 19 ||
	    (s.len > 1 && s.data[0] == '0'))
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s.data[i] - '0');
	}
	*out = v;
	return v <= max;
}

bool
yaml_bool(const struct yaml_node *scalar, bool *out)
{
	*out = yaml_is(scalar, "true");
	return !scalar->quoted && (*out || yaml_is(scalar, "false"));
}
