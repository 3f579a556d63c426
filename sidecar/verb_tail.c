/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "policy/qtype.h"
#include "sidecar/config.h"

/* Follow the record file: a line for a person, or the record as it is. */
#define FILE_NAME "records.jsonl"
#define PAUSE_MS 200

struct asked {
	const char *config, *file, *cell;
	bool denied, json, once;
	size_t of_cell;		/* records of the cell that was asked for */
};

static int
read_options(int argc, char **argv, struct asked *a)
{
	const struct verb_option options[] = {
		{ "denied", 0, NULL, "refusals only, each once",
		    .flag = &a->denied },
		{ "cell", 0, "ID", "one cell only", .text = &a->cell },
		{ "json", 0, NULL, "the records as they are",
		    .flag = &a->json },
		{ "once", 0, NULL, "end at the end of the file",
		    .flag = &a->once },
		{ "file", 0, "FILE", "this file of records",
		    .text = &a->file },
		{ "config", 'c', "FILE", "which configuration, or "
		    VERB_CONFIG, .text = &a->config },
	};
	const struct verb v = {
		"tail", "", "Show records as they are written.\n",
		"0, 2 usage, 69 no such file or cell, 78 bad configuration, "
		"1 failure",
		0, 0, options, sizeof(options) / sizeof(options[0])
	};

	return verb_read(&v, argc, argv);
}

static const char *
text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : "-";
}

static bool
is_of_cell(const struct asked *a, const json_t *o)
{
	return a->cell == NULL || strcmp(text(o, "cell"), a->cell) == 0;
}

/* A refusal is told by its decision; the end that follows tells it again. */
static bool
is_refusal(const json_t *o)
{
	return strcmp(text(o, "verdict"), "deny") == 0 &&
	    strcmp(text(o, "kind"), "end") != 0;
}

static bool
is_wanted(const struct asked *a, const json_t *o)
{
	return is_of_cell(a, o) && (!a->denied || is_refusal(o));
}

/* Bytes of a record are \u escapes in the file, and stay harmless here. */
static void
print_plain(const char *s)
{
	for (; *s != '\0'; s++)
		putchar(*s >= 0x20 && *s < 0x7f ? *s : '.');
}

/* The type of a question, by its name where it has one here. */
static void
print_type(json_int_t type)
{
	char word[QTYPE_TEXT_BYTES];

	qtype_text(qtype_bit((uint16_t)type), word);
	if (type == 1 || type == 28)
		printf(" %s", type == 1 ? "A" : "AAAA");
	else if (type == 64 || type == 65)
		printf(" %s", type == 64 ? "SVCB" : "HTTPS");
	else if (word[0] != '\0')
		printf(" %s", word);
	else
		printf(" TYPE%lld", (long long)type);
}

/* A key that not every record has. */
static void
print_key(const json_t *o, const char *before, const char *key,
    const char *after)
{
	if (json_object_get(o, key) == NULL)
		return;
	fputs(before, stdout);
	print_plain(text(o, key));
	fputs(after, stdout);
}

/* The address, or the port where there is none; of a question its type. */
static void
print_where(const json_t *o)
{
	const json_int_t port = json_integer_value(json_object_get(o, "port"));
	const char *at = text(o, "dialled");

	if (json_object_get(o, "qtype") != NULL) {
		print_type(json_integer_value(json_object_get(o, "qtype")));
		return;
	}
	if (strcmp(at, "-") == 0)
		at = text(o, "candidate");
	if (strcmp(at, "-") == 0)
		at = text(o, "original");
	if (strcmp(at, "-") == 0 && port != 0)
		printf(":%lld", (long long)port);
	else
		printf(" %s", at);
}

/* How many it stands for, where that is more than itself. */
static void
print_count(const json_t *o)
{
	const json_int_t n = json_integer_value(json_object_get(o, "count"));

	if (n > 0)
		printf(" count=%lld", (long long)n);
}

/* A record that is about no destination: the daemon's own words. */
static void
print_words(const json_t *o)
{
	printf("%.19sZ %-8s ", text(o, "time"), text(o, "kind"));
	print_plain(text(o, "detail"));
	print_count(o);
	putchar('\n');
}

static void
print_line(const json_t *o)
{
	const char *name = text(o, "name");

	if (json_object_get(o, "verdict") == NULL) {
		print_words(o);
		return;
	}
	printf("%.19sZ %-8s %-5s %-16s ", text(o, "time"), text(o, "kind"),
	    text(o, "verdict"), text(o, "reason"));
	print_plain(name);
	print_where(o);
	printf(" cell=");
	print_plain(text(o, "cell"));
	print_key(o, " client=", "client", "");
	printf(" rule=");
	print_plain(text(o, "rule"));
	if (is_refusal(o))
		print_key(o, " at=", "rule_at", "");
	print_key(o, " other_name=", "other_name", "");
	print_count(o);
	if (is_refusal(o))
		print_key(o, " (", "rule_reason", ")");
	if (strcmp(text(o, "kind"), "end") == 0)
		printf(" how=%s up=%lld down=%lld", text(o, "how"),
		    (long long)json_integer_value(json_object_get(o,
		    "bytes_up")), (long long)json_integer_value(
		    json_object_get(o, "bytes_down")));
	putchar('\n');
}

/* A line that is no record is said, not skipped. */
static void
show(struct asked *a, const char *line)
{
	json_error_t err;
	json_t *o = json_loads(line,
	    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);

	if (o == NULL) {
		fprintf(stderr, "penstock: a line is no record: %s\n",
		    err.text);
		return;
	}
	a->of_cell += is_of_cell(a, o);
	if (is_wanted(a, o)) {
		if (a->json)
			fputs(line, stdout);
		else
			print_line(o);
		fflush(stdout);
	}
	json_decref(o);
}

/* True when the path names another file than the open one: it was rotated. */
static bool
is_rotated(FILE *f, const char *path)
{
	struct stat now, open;

	return stat(path, &now) == 0 && fstat(fileno(f), &open) == 0 &&
	    (now.st_ino != open.st_ino || now.st_size < ftello(f));
}

/* A file of records, read line by line. */
struct lines {
	FILE *f;
	char *line;
	size_t size;
	off_t at;		/* behind the last whole line */
};

/* False at the end of what is written: a torn last line is read again when
 * it is whole. */
static bool
next_line(struct lines *l)
{
	ssize_t n = getline(&l->line, &l->size, l->f);

	if (n <= 0 || l->line[n - 1] != '\n')
		return false;
	l->at += n;
	return true;
}

/* A file that was rotated away is left when the next one is there. */
static void
wait_for_more(struct lines *l, const char *path)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000l };
	FILE *next;

	clearerr(l->f);
	if (is_rotated(l->f, path)) {
		next = fopen(path, "re");
		if (next != NULL) {
			fclose(l->f);
			l->f = next;
			l->at = 0;
		}
	}
	fseeko(l->f, l->at, SEEK_SET);
	nanosleep(&pause, NULL);
}

static int
follow(struct asked *a, const char *path)
{
	struct lines l = { .f = fopen(path, "re") };

	if (l.f == NULL) {
		fprintf(stderr, "penstock tail: %s: %s%s\n", path,
		    strerror(errno), errno == ENOENT ? "; penstock serve "
		    "makes it when it starts" : "");
		return EXIT_UNAVAILABLE;
	}
	for (;;) {
		while (next_line(&l))
			show(a, l.line);
		if (a->once)
			break;
		wait_for_more(&l, path);
	}
	free(l.line);
	fclose(l.f);
	if (a->cell == NULL || a->of_cell > 0)
		return 0;
	fprintf(stderr, "penstock tail: %s has no record of that cell\n",
	    path);
	return EXIT_UNAVAILABLE;
}

/* A cell without an id takes it from the daemon's environment. */
static bool
has_cell(const struct config *c, const char *id)
{
	for (size_t i = 0; i < c->n_cells; i++)
		if (c->cells[i].id[0] == '\0' ||
		    strcmp(c->cells[i].id, id) == 0)
			return true;
	return false;
}

/* The path of the records, or an exit status after words on stderr. */
static int
find_file(const struct asked *a, char *path, size_t size)
{
	char shown[POLICY_ID_BYTES * 4];
	struct config *c;
	int rc = verb_config(a->config, &c);

	if (rc != 0)
		return rc;
	if (c->settings.ledger_dir[0] == '\0') {
		fprintf(stderr, "penstock tail: %s writes its records to "
		    "stdout; name a file with --file\n", a->config);
		rc = EXIT_UNAVAILABLE;
	} else if (a->cell != NULL && !has_cell(c, a->cell)) {
		fprintf(stderr, "penstock tail: %s has no cell \"%s\"; "
		    "--file shows records of one that is gone\n", a->config,
		    span_print(span_str(a->cell), shown, sizeof(shown)));
		rc = EXIT_UNAVAILABLE;
	}
	snprintf(path, size, "%s/%s", c->settings.ledger_dir, FILE_NAME);
	config_free(c);
	return rc;
}

int
verb_tail(int argc, char **argv)
{
	struct asked a = { .config = VERB_CONFIG };
	char path[SETTINGS_PATH_BYTES + 32];
	int rc = read_options(argc, argv, &a);

	if (rc != VERB_GO)
		return rc;
	if (a.file != NULL)
		return follow(&a, a.file);
	rc = find_file(&a, path, sizeof(path));
	return rc != 0 ? rc : follow(&a, path);
}
