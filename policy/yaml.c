/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

#define BLOCK_BYTES 65536u
#define STARS_MAX 32u		/* unquoted ones that are read past; at the
				 * next the file is not read on */

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
	bool drop;			/* which is not kept */
};

/* What an alias could mean. */
struct anchor {
	struct anchor *next;
	char name[64];			/* longer ones are cut */
};

struct reader {
	yaml_parser_t parser;
	struct yaml *tree;
	struct problems *ps;
	const char *file;
	struct span text;		/* as it was written */
	uint8_t *copy;			/* without unquoted stars, or NULL */
	struct place stars[STARS_MAX];	/* where these stood */
	size_t n_stars;
	size_t told, errors;		/* by readings before; by this one */
	bool stop, again, no_memory;
	struct anchor *anchors;
	unsigned deeper;		/* open ones beyond YAML_MAX_DEPTH */
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

static void bad(struct reader *r, struct place at, const char *fix,
    const char *what, ...) __attribute__((format(printf, 4, 5)));

/* A file that is read again says first what it said before. */
static void
bad(struct reader *r, struct place at, const char *fix, const char *what, ...)
{
	char text[PROBLEM_TEXT_BYTES];
	va_list ap;

	if (++r->errors <= r->told)
		return;
	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	problem_add(r->ps, PROBLEM_ERROR, at, fix, "%s", text);
}

/* What is open is not quite as it was written. */
static void
doubt(struct reader *r)
{
	for (unsigned i = 0; i < r->depth; i++)
		r->open[i].node->doubtful = true;
}

/* What was told of is not looked at again. */
static void
refuse(struct reader *r, struct yaml_node *n)
{
	n->refused = n->doubtful = true;
	n->text = span_str("");
	doubt(r);
}

/* Nothing more is read, so much may be absent only here. */
static void
cut(struct reader *r)
{
	struct yaml_node *root = r->tree->root;

	r->stop = true;
	for (unsigned i = 0; i < r->depth; i++)
		r->open[i].node->lacks = true;
	doubt(r);
	if (root != NULL)
		root->lacks = root->doubtful = true;
}

static void
out_of_memory(struct reader *r, struct place at)
{
	bad(r, at, NULL, "out of memory");
	r->stop = r->no_memory = true;
}

static struct yaml_node *
node_new(struct reader *r, enum yaml_kind kind, const yaml_mark_t *mark)
{
	struct yaml_node *n;

	if (r->tree->n_nodes >= YAML_MAX_NODES) {
		bad(r, place_of(r, mark), "use a hostnames_file for long "
		    "lists", "more than %u values", YAML_MAX_NODES);
		cut(r);
		return NULL;
	}
	n = take(r->tree, sizeof(*n));
	if (n == NULL) {
		out_of_memory(r, place_of(r, mark));
		return NULL;
	}
	r->tree->n_nodes++;
	*n = (struct yaml_node){ .kind = kind, .at = place_of(r, mark) };
	return n;
}

/* Its bytes as they were written: lines and columns count characters. */
static const uint8_t *
written_at(const struct reader *r, struct place at)
{
	const uint8_t *p = r->text.data, *end = p + r->text.len;

	for (uint32_t line = 1; line < at.line && p < end; p++)
		line += *p == '\n';
	for (uint32_t column = 1; column < at.column && p < end; column++)
		for (p++; p < end && (*p & 0xc0) == 0x80;)
			p++;
	return p;
}

/* The word that begins there. */
static void
word_at(const struct reader *r, struct place at, char *out, size_t size)
{
	const uint8_t *from = written_at(r, at), *to = from;
	const uint8_t *end = r->text.data + r->text.len;

	while (to < end && strchr(" \t\r\n,]}", *to) == NULL)
		to++;
	span_print(span_of(from, (size_t)(to - from)), out, size);
}

static bool
anchor_known(const struct reader *r, const char *name)
{
	for (const struct anchor *a = r->anchors; a != NULL; a = a->next)
		if (strncmp(a->name, name, sizeof(a->name) - 1) == 0)
			return true;
	return false;
}

static void
take_anchor(struct reader *r, const uint8_t *name, struct place at)
{
	struct anchor *a = NULL;

	if (name == NULL)
		return;
	bad(r, at, "remove the &, and write the value in each place",
	    "anchors are not accepted: what counts stands where it is read");
	if (!anchor_known(r, (const char *)name))
		a = take(r->tree, sizeof(*a));
	if (a == NULL)
		return;
	snprintf(a->name, sizeof(a->name), "%s", (const char *)name);
	a->next = r->anchors;
	r->anchors = a;
}

static void
take_tag(struct reader *r, const uint8_t *tag, struct place at)
{
	if (tag != NULL)
		bad(r, at, "remove the !tag",
		    "tags are not accepted: the schema gives each value its "
		    "type");
}

/* "*.x" without quotes begins an alias. */
static void
star(struct reader *r, struct place at)
{
	char shown[128];

	word_at(r, at, shown, sizeof(shown));
	bad(r, at, NULL, "\"%s\" must be quoted in YAML (a leading * starts an "
	    "alias). Write: \"%s\"", shown, shown);
}

static bool
star_known(const struct reader *r, struct place at)
{
	for (size_t i = 0; i < r->n_stars; i++)
		if (r->stars[i].line == at.line &&
		    r->stars[i].column == at.column)
			return true;
	return false;
}

static bool
scalar_text(struct reader *r, struct yaml_node *n, const uint8_t *value,
    size_t len)
{
	uint8_t *copy = take(r->tree, len + 1);

	if (copy == NULL) {
		out_of_memory(r, n->at);
		return false;
	}
	memcpy(copy, value, len);
	copy[len] = '\0';
	n->text = span_of(copy, len);
	return true;
}

static struct yaml_node *
scalar_node(struct reader *r, const yaml_event_t *ev)
{
	const uint8_t *value = ev->data.scalar.value;
	size_t len = ev->data.scalar.length;
	struct yaml_node *n = node_new(r, YAML_SCALAR, &ev->start_mark);

	if (n == NULL || !scalar_text(r, n, value, len))
		return NULL;
	n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	take_anchor(r, ev->data.scalar.anchor, n->at);
	take_tag(r, ev->data.scalar.tag, n->at);
	if (star_known(r, n->at)) {
		star(r, n->at);
		refuse(r, n);
	} else if (memchr(value, 0, len) != NULL ||
	    span_has_invisible(n->text)) {
		bad(r, n->at, "type the value anew",
		    "an invisible character in a value: it would not be what "
		    "one sees");
		refuse(r, n);
	}
	return n;
}

static const struct yaml_node *
key_known(const struct yaml_node *map, const struct yaml_node *key)
{
	for (const struct yaml_node *c = map->child; c != NULL; c = c->next)
		if (span_eq(c->key->text, key->text))
			return c->key;
	return NULL;
}

static bool
is_merge(const struct yaml_node *key)
{
	return key != NULL && !key->quoted && yaml_is(key, "<<");
}

/* A key that says nothing: its value is not kept, and may have been any. */
static void
drop_key(struct reader *r, struct open *in)
{
	in->drop = true;
	in->node->lacks = true;
	doubt(r);
}

static void
key_twice(struct reader *r, struct open *in, const struct yaml_node *n,
    const struct yaml_node *first)
{
	char shown[128];

	bad(r, n->at, "remove one", "the key \"%s\" stands twice, first in "
	    "line %u: it is not clear which one counts",
	    span_print(n->text, shown, sizeof(shown)), first->at.line);
	in->drop = true;
	doubt(r);
}

static void
take_key(struct reader *r, struct open *in, struct yaml_node *n)
{
	const struct yaml_node *first;

	in->key = n;
	if (n->refused) {
		drop_key(r, in);
	} else if (n->kind != YAML_SCALAR) {
		bad(r, n->at, "write key: value", "a key must be a word");
		drop_key(r, in);
	} else if (is_merge(n)) {
		bad(r, n->at, "write the keys out", "merge keys are not "
		    "accepted: what counts stands where it is read");
		drop_key(r, in);
	} else if (in->node->n_children >= YAML_MAX_KEYS) {
		bad(r, n->at, "see the manual for the keys there are",
		    "more than %u keys in one mapping", YAML_MAX_KEYS);
		cut(r);
	} else {
		first = key_known(in->node, n);
		if (first != NULL)
			key_twice(r, in, n, first);
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
	if (in->drop) {
		in->drop = false;
		return;
	}
	if (in->last == NULL)
		in->node->child = n;
	else
		in->last->next = n;
	in->last = n;
	in->node->n_children++;
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
	bad(r, at, "save the file as UTF-8, without control characters",
	    "not YAML: %s", what);
}

/*
 * libyaml ends at a star that begins no alias, though what was meant is plain,
 * and it is the usual mistake here: the text is read again with another letter
 * in its place, and whatever begins there is refused.  False when that cannot
 * go on.
 */
static bool
read_past_star(struct reader *r, struct place at)
{
	size_t offset = (size_t)(written_at(r, at) - r->text.data);

	if (r->n_stars == STARS_MAX || star_known(r, at) ||
	    offset >= r->text.len || r->text.data[offset] != '*' ||
	    r->text.len * (r->n_stars + 1) > 2 * YAML_MAX_BYTES)
		return false;
	if (r->copy == NULL) {
		r->copy = malloc(r->text.len);
		if (r->copy == NULL)
			return false;
		memcpy(r->copy, r->text.data, r->text.len);
	}
	r->copy[offset] = 'x';
	r->stars[r->n_stars++] = at;
	r->again = true;
	return true;
}

/* What was not ended is noticed only where it cannot go on. */
static void
syntax_error(struct reader *r, struct place at, const char *what)
{
	const char *context = r->parser.context;
	struct place from = place_of(r, &r->parser.context_mark);
	char begun[48] = "";

	if (context != NULL && from.line != at.line)
		snprintf(begun, sizeof(begun), " that begins in line %u",
		    from.line);
	bad(r, at, "mend it first: what follows could not be read",
	    "not YAML: %s%s%s%s", what, context != NULL ? ", " : "",
	    context != NULL ? context : "", begun);
}

static void
scanner_error(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	struct place at = place_of(r, &p->problem_mark);
	const char *what = p->problem != NULL ? p->problem : "not YAML";
	const char *context = p->context != NULL ? p->context : "";

	if (p->error == YAML_MEMORY_ERROR) {
		out_of_memory(r, at);
	} else if (p->error == YAML_READER_ERROR) {
		unreadable_bytes(r, p->problem_offset, what);
	} else if (strstr(context, "scanning an alias") != NULL) {
		at = place_of(r, &p->context_mark);
		if (read_past_star(r, at))
			return;
		star(r, at);
	} else if (strstr(what, "found character that cannot start") != NULL) {
		bad(r, at, "indent with spaces; quote the value",
		    "a character that cannot start a value here (a tab?)");
	} else {
		syntax_error(r, at, what);
	}
	cut(r);
}

static void
take_scalar(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *n = scalar_node(r, ev);

	if (n != NULL)
		place_node(r, n);
}

/* Refused, and nothing stands in its place, so that the rest is read. */
static void
take_alias(struct reader *r, const yaml_event_t *ev)
{
	const char *name = (const char *)ev->data.alias.anchor;
	const struct open *in = r->depth > 0 ? &r->open[r->depth - 1] : NULL;
	struct yaml_node *n = node_new(r, YAML_SCALAR, &ev->start_mark);

	if (n == NULL)
		return;
	if (in != NULL && is_merge(in->key))
		;	/* told already: there it was meant as one */
	else if (anchor_known(r, name))
		bad(r, n->at, "write the value here", "aliases are not "
		    "accepted: what counts stands where it is read");
	else
		star(r, n->at);
	refuse(r, n);
	place_node(r, n);
}

static void
too_deep(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *n = node_new(r, YAML_SEQUENCE, &ev->start_mark);

	if (n == NULL)
		return;
	bad(r, n->at, "write it flatter", "nested too deeply: there is nothing "
	    "to say below %u levels", YAML_MAX_DEPTH);
	refuse(r, n);
	place_node(r, n);
	r->deeper = 1;
}

/* What is too deep is not kept, and not without end. */
static void
pass_by(struct reader *r, yaml_event_type_t type)
{
	if (type == YAML_SEQUENCE_START_EVENT ||
	    type == YAML_MAPPING_START_EVENT)
		r->deeper++;
	else if (type == YAML_SEQUENCE_END_EVENT ||
	    type == YAML_MAPPING_END_EVENT)
		r->deeper--;
	if (r->deeper > YAML_MAX_DEPTH)
		cut(r);
}

static void
open_collection(struct reader *r, const yaml_event_t *ev)
{
	const bool seq = ev->type == YAML_SEQUENCE_START_EVENT;
	struct yaml_node *n;

	if (r->depth == YAML_MAX_DEPTH) {
		too_deep(r, ev);
		return;
	}
	n = node_new(r, seq ? YAML_SEQUENCE : YAML_MAPPING, &ev->start_mark);
	if (n == NULL)
		return;
	take_anchor(r, seq ? ev->data.sequence_start.anchor :
	    ev->data.mapping_start.anchor, n->at);
	take_tag(r, seq ? ev->data.sequence_start.tag :
	    ev->data.mapping_start.tag, n->at);
	place_node(r, n);
	r->open[r->depth++] = (struct open){ .node = n };
}

static void
begin_document(struct reader *r, const yaml_event_t *ev)
{
	if (r->tree->root == NULL)
		return;
	bad(r, place_of(r, &ev->start_mark), "keep one document a file",
	    "a second document: it is not read");
	cut(r);
}

static void
take_event(struct reader *r, const yaml_event_t *ev)
{
	if (r->deeper > 0) {
		pass_by(r, ev->type);
		return;
	}
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

/* From the beginning; false without memory. */
static bool
read_text(struct reader *r)
{
	r->tree = calloc(1, sizeof(*r->tree));
	if (r->tree == NULL || !yaml_parser_initialize(&r->parser)) {
		free(r->tree);
		r->tree = NULL;
		return false;
	}
	r->told = r->errors > r->told ? r->errors : r->told;
	r->errors = 0;
	r->stop = r->again = false;
	r->depth = r->deeper = 0;
	r->anchors = NULL;
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, r->copy != NULL ? r->copy :
	    r->text.data, r->text.len);
	read_events(r);
	yaml_parser_delete(&r->parser);
	return true;
}

struct yaml *
yaml_parse(const char *file, struct span text, struct problems *ps)
{
	struct reader r = { .ps = ps, .file = file, .text = text };
	const struct place whole = { .file = file };

	if (text.len > YAML_MAX_BYTES) {
		problem_add(ps, PROBLEM_ERROR, whole,
		    "use a hostnames_file for long lists",
		    "the file is larger than %u bytes", YAML_MAX_BYTES);
		return NULL;
	}
	/* libyaml keeps a byte-order mark when the encoding is set */
	if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
		r.text = span_of(text.data + 3, text.len - 3);
	do {
		yaml_close(r.tree);
		if (!read_text(&r))
			out_of_memory(&r, whole);
	} while (r.again && !r.no_memory);
	free(r.copy);
	if (!r.no_memory && r.tree->root == NULL && r.errors == 0)
		bad(&r, whole, "an empty policy allows nothing; write "
		    "version: 1 first", "the file is empty");
	if (r.no_memory || r.tree->root == NULL) {
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
