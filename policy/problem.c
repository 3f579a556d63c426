/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/problem.h"

#include <stdarg.h>
#include <stdlib.h>

struct problem {
	enum problem_kind kind;
	struct place at;	/* its file is the copy below, or NULL */
	char file[PROBLEM_FILE_BYTES];
	unsigned order;
	char text[PROBLEM_TEXT_BYTES];
};

struct problems {
	size_t n;
	size_t by_kind[3];
	size_t n_same;		/* of these: what was kept already */
	struct problem list[PROBLEM_MAX];
};

static const char *const kind_word[] = {
	[PROBLEM_ERROR] = "error",
	[PROBLEM_WARNING] = "warning",
	[PROBLEM_NOTE] = "note",
};

struct problems *
problem_new(void)
{
	return calloc(1, sizeof(struct problems));
}

void
problem_free(struct problems *ps)
{
	free(ps);
}

/* Room for one more: an error takes the place of the last lesser one. */
static struct problem *
slot(struct problems *ps, enum problem_kind kind)
{
	if (ps->n < PROBLEM_MAX)
		return &ps->list[ps->n++];
	if (kind != PROBLEM_ERROR)
		return NULL;
	for (size_t i = ps->n; i-- > 0;)
		if (ps->list[i].kind != PROBLEM_ERROR)
			return &ps->list[i];
	return NULL;
}

/* A file that is read twice, or serves two cells, is wrong once. */
static bool
is_kept(const struct problems *ps, const struct problem *p)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct problem *k = &ps->list[i];

		if (k->kind == p->kind && k->at.line == p->at.line &&
		    k->at.column == p->at.column &&
		    strcmp(k->file, p->file) == 0 &&
		    strcmp(k->text, p->text) == 0)
			return true;
	}
	return false;
}

static void
keep(struct problems *ps, const struct problem *p)
{
	struct problem *to;

	if (is_kept(ps, p)) {
		ps->n_same++;
		return;
	}
	to = slot(ps, p->kind);
	if (to == NULL)
		return;
	*to = *p;
	if (p->at.file != NULL)
		to->at.file = to->file;
}

void
problem_add(struct problems *ps, enum problem_kind kind, struct place at,
    const char *fix, const char *what, ...)
{
	struct problem made = { .kind = kind, .at = at }, *p = &made;
	va_list ap;
	size_t used;
	int n;

	ps->by_kind[kind]++;
	/* whoever read the file may be gone when this is printed */
	if (at.file != NULL)
		snprintf(p->file, sizeof(p->file), "%s", at.file);
	p->order = (unsigned)(ps->by_kind[0] + ps->by_kind[1] +
	    ps->by_kind[2]);
	va_start(ap, what);
	n = vsnprintf(p->text, sizeof(p->text), what, ap);
	va_end(ap);
	used = n < 0 ? 0 : (size_t)n;
	if (fix != NULL && used < sizeof(p->text)) {
		n = snprintf(p->text + used, sizeof(p->text) - used, "; %s",
		    fix);
		used += n < 0 ? 0 : (size_t)n;
	}
	if (used >= sizeof(p->text))
		p->text[sizeof(p->text) - 2] = '~';
	keep(ps, p);
}

size_t
problem_count(const struct problems *ps, enum problem_kind kind)
{
	return ps->by_kind[kind];
}

static int
by_place(const void *va, const void *vb)
{
	const struct problem *a = *(const struct problem *const *)va;
	const struct problem *b = *(const struct problem *const *)vb;
	int c;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	c = strcmp(a->file, b->file);	/* what has no file comes first */
	if (c != 0)
		return c;
	if (a->at.line != b->at.line)
		return a->at.line < b->at.line ? -1 : 1;
	if (a->at.column != b->at.column)
		return a->at.column < b->at.column ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static void
print_place(const struct place *at, FILE *to)
{
	if (at->file != NULL)
		fprintf(to, "%s:", at->file);
	if (at->line != 0)
		fprintf(to, "%u:%u:", at->line, at->column);
	if (at->file != NULL || at->line != 0)
		fputc(' ', to);
}

void
problem_print(const struct problems *ps, FILE *to)
{
	const struct problem *sorted[PROBLEM_MAX] = { NULL };
	size_t total = ps->by_kind[0] + ps->by_kind[1] + ps->by_kind[2] -
	    ps->n_same;

	for (size_t i = 0; i < ps->n; i++)
		sorted[i] = &ps->list[i];
	qsort(sorted, ps->n, sizeof(sorted[0]), by_place);
	for (size_t i = 0; i < ps->n; i++) {
		print_place(&sorted[i]->at, to);
		fprintf(to, "%s: %s\n", kind_word[sorted[i]->kind],
		    sorted[i]->text);
	}
	if (total > ps->n)
		fprintf(to, "%zu more not shown\n", total - ps->n);
}
