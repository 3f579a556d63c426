/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "sidecar/admin_client.h"

/* Follow the record file: a line for a person, or the record as it is. */
#define FILE_NAME "records.jsonl"
#define PAUSE_MS 200

struct asked {
	const char *config, *file, *cell;
	bool denied, json, once;
};

static int
usage(int status)
{
	fprintf(status == 0 ? stdout : stderr,
	    "usage: penstock tail [--denied] [--cell ID] [--json] "
	    "[--once] [--file FILE] [-c FILE]\n");
	return status;
}

static int
read_options(int argc, char **argv, struct asked *a)
{
	static const struct option options[] = {
		{ "denied", no_argument, NULL, 'd' },
		{ "json", no_argument, NULL, 'j' },
		{ "once", no_argument, NULL, 'o' },
		{ "cell", required_argument, NULL, 'C' },
		{ "file", required_argument, NULL, 'f' },
		{ "config", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		if (c == 'd')
			a->denied = true;
		else if (c == 'j')
			a->json = true;
		else if (c == 'o')
			a->once = true;
		else if (c == 'C')
			a->cell = optarg;
		else if (c == 'f')
			a->file = optarg;
		else if (c == 'c')
			a->config = optarg;
		else if (c == 'h')
			exit(usage(0));
		else
			return usage(EXIT_USAGE);
	}
	return optind == argc ? 0 : usage(EXIT_USAGE);
}

static const char *
text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : "-";
}

static bool
is_wanted(const struct asked *a, const json_t *o)
{
	return (!a->denied || strcmp(text(o, "verdict"), "deny") == 0) &&
	    (a->cell == NULL || strcmp(text(o, "cell"), a->cell) == 0);
}

/* Bytes of a record are \u escapes in the file, and stay harmless here. */
static void
print_plain(const char *s)
{
	for (; *s != '\0'; s++)
		putchar(*s >= 0x20 && *s < 0x7f ? *s : '.');
}

/* The address, or the port where there is none. */
static void
print_where(const json_t *o)
{
	const json_int_t port = json_integer_value(json_object_get(o, "port"));
	const char *at = text(o, "dialled");

	if (strcmp(at, "-") == 0)
		at = text(o, "original");
	if (strcmp(at, "-") == 0 && port != 0)
		printf(" :%lld", (long long)port);
	else
		printf(" %s", at);
}

static void
print_line(const json_t *o)
{
	const char *name = text(o, "name");

	printf("%.19s %-8s %-5s %-16s ", text(o, "time"), text(o, "kind"),
	    text(o, "verdict"), text(o, "reason"));
	print_plain(name);
	print_where(o);
	printf(" cell=");
	print_plain(text(o, "cell"));
	printf(" rule=");
	print_plain(text(o, "rule"));
	if (strcmp(text(o, "kind"), "end") == 0)
		printf(" how=%s up=%lld down=%lld", text(o, "how"),
		    (long long)json_integer_value(json_object_get(o,
		    "bytes_up")), (long long)json_integer_value(
		    json_object_get(o, "bytes_down")));
	putchar('\n');
}

/* A line that is no record is said, not skipped. */
static void
show(const struct asked *a, const char *line)
{
	json_error_t err;
	json_t *o = json_loads(line,
	    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);

	if (o == NULL) {
		fprintf(stderr, "penstock: a line is no record: %s\n",
		    err.text);
		return;
	}
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

static int
follow(const struct asked *a, const char *path)
{
	struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000l };
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	off_t at = 0;

	if (f == NULL) {
		perror(path);
		return EXIT_UNAVAILABLE;
	}
	for (;;) {
		ssize_t n = getline(&line, &size, f);

		if (n > 0 && line[n - 1] == '\n') {
			at += n;
			show(a, line);
			continue;
		}
		if (a->once)
			break;
		/* a torn last line is read again when it is whole */
		clearerr(f);
		if (is_rotated(f, path)) {
			FILE *next = fopen(path, "re");

			if (next != NULL) {
				fclose(f);
				f = next;
				at = 0;
			}
		}
		fseeko(f, at, SEEK_SET);
		nanosleep(&pause, NULL);
	}
	free(line);
	fclose(f);
	return 0;
}

int
verb_tail(int argc, char **argv)
{
	static struct settings s;
	struct asked a = { .config = "/etc/penstock/penstock.yaml" };
	char path[SETTINGS_PATH_BYTES + 32];
	int rc = read_options(argc, argv, &a);

	if (rc != 0)
		return rc;
	if (a.file != NULL)
		return follow(&a, a.file);
	rc = admin_client_settings(a.config, &s);
	if (rc != 0)
		return rc;
	if (s.ledger_dir[0] == '\0') {
		fprintf(stderr, "penstock: %s writes its records to stdout; "
		    "name a file with --file\n", a.config);
		return EXIT_UNAVAILABLE;
	}
	snprintf(path, sizeof(path), "%s/%s", s.ledger_dir, FILE_NAME);
	return follow(&a, path);
}
