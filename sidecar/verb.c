/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/config.h"

#define WRONG_BYTES 256
#define LEFT_BYTES 64
#define LEFT_SHOWN 26		/* a longer one has a line of its own */
#define LEFT_FORMAT "  %-26s "

static const struct verb_option asked_help = {
	.name = "help", .letter = 'h', .help = "print this and end"
};

static void
option_print(const struct verb_option *o, FILE *to)
{
	char left[LEFT_BYTES];

	(void)snprintf(left, sizeof(left), "%c%c%s--%s%s%s",
	    o->letter != 0 ? '-' : ' ', o->letter != 0 ? o->letter : ' ',
	    o->letter != 0 ? ", " : "  ", o->name,
	    o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
	fprintf(to, LEFT_FORMAT, left);
	if (strlen(left) > LEFT_SHOWN)
		fprintf(to, "\n" LEFT_FORMAT, "");
	fprintf(to, "%s\n", o->help);
}

static void
usage_line(const struct verb *v, FILE *to)
{
	fprintf(to, "usage: penstock %s [option ...]%s%s\n", v->name,
	    v->operands[0] != '\0' ? " " : "", v->operands);
}

static int
help(const struct verb *v)
{
	usage_line(v, stdout);
	fputs(v->what, stdout);
	for (size_t i = 0; i < v->n_options; i++)
		option_print(&v->options[i], stdout);
	option_print(&asked_help, stdout);
	printf("Exit: %s.\n", v->exits);
	return 0;
}

int
verb_wrong(const struct verb *v, const char *what, ...)
{
	char text[WRONG_BYTES];
	va_list ap;

	va_start(ap, what);
	(void)vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	for (char *c = text; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '.';
	fprintf(stderr, "penstock %s: %s\n", v->name, text);
	usage_line(v, stderr);
	fprintf(stderr, "\"penstock %s -h\" prints the options\n", v->name);
	return EXIT_USAGE;
}

/* False when a list is full. */
static bool
take(const struct verb_option *o, const char *value)
{
	if (o->flag != NULL)
		*o->flag = true;
	else if (o->count == NULL)
		*o->text = value;
	else if (*o->count < o->max)
		o->text[(*o->count)++] = value;
	else
		return false;
	return true;
}

/* What getopt did not take; inside a cluster it has not moved on. */
static int
option_wrong(const struct verb *v, int c, char **argv)
{
	const char *word = argv[optind - 1];

	if (word[0] != '-' && argv[optind] != NULL)
		word = argv[optind];
	return c == ':' ? verb_wrong(v, "%s needs a value", word) :
	    verb_wrong(v, "%s is not taken here", word);
}

static const struct verb_option *
by_letter(const struct verb *v, int c)
{
	for (size_t i = 0; i < v->n_options; i++)
		if (v->options[i].letter == c)
			return &v->options[i];
	return NULL;
}

int
verb_read(const struct verb *v, int argc, char **argv)
{
	struct option longs[VERB_OPTIONS_MAX + 2] = { 0 };
	char letters[2 * VERB_OPTIONS_MAX + 3] = ":h";
	size_t at = 2;
	int c, which = -1;

	for (size_t i = 0; i <= v->n_options; i++) {
		const struct verb_option *o = i < v->n_options ?
		    &v->options[i] : &asked_help;

		longs[i] = (struct option){ o->name, o->value != NULL ?
		    required_argument : no_argument, NULL, o->letter };
		if (o->letter == 0 || o == &asked_help)
			continue;
		letters[at++] = o->letter;
		if (o->value != NULL)
			letters[at++] = ':';
	}
	optind = opterr = 0;
	while ((c = getopt_long(argc, argv, letters, longs, &which)) != -1) {
		const struct verb_option *o = c == 0 ? &v->options[which] :
		    by_letter(v, c);

		if (c == 'h')
			return help(v);
		if (o == NULL)
			return option_wrong(v, c, argv);
		if (!take(o, optarg))
			return verb_wrong(v, "--%s stands more than %zu "
			    "times", o->name, o->max);
	}
	c = argc - optind;
	if (c > v->operands_max)
		return verb_wrong(v, "\"%s\" is one operand too many",
		    argv[optind + v->operands_max]);
	return c < v->operands_min ? verb_wrong(v, "%s is missing",
	    v->operands) : VERB_GO;
}

/* One byte more than is allowed, so that too much shows. */
static int
file_text(const char *path, uint8_t **text, size_t *len)
{
	FILE *f = fopen(path, "re");
	int err = f == NULL ? -errno : 0;

	errno = EIO;
	*text = malloc(CONFIG_BYTES_MAX + 1);
	if (err == 0 && *text == NULL)
		err = -ENOMEM;
	if (err == 0) {
		*len = fread(*text, 1, CONFIG_BYTES_MAX + 1, f);
		err = ferror(f) != 0 ? -errno : *len > CONFIG_BYTES_MAX ?
		    -EFBIG : 0;
	}
	if (f != NULL)
		(void)fclose(f);
	return err;
}

int
verb_config(const char *path, struct config **out)
{
	struct config_env env = config_env_read();
	struct problems *ps = problem_new();
	uint8_t *text = NULL;
	size_t len = 0;
	int err = ps == NULL ? -ENOMEM : file_text(path, &text, &len);

	*out = NULL;
	env.accept_shared_segment = env.accept_not_proven = true;
	if (err != 0)
		fprintf(stderr, "penstock: %s: %s%s\n", path, strerror(-err),
		    err == -ENOENT ? "; name the configuration with -c" : "");
	else
		*out = config_load(path, span_of(text, len), &env, ps);
	if (*out != NULL && (*out)->wrong) {
		config_free(*out);
		*out = NULL;
	}
	if (err == 0 && *out == NULL)
		problem_print(ps, stderr);
	problem_free(ps);
	free(text);
	return *out == NULL ? EXIT_CONFIG : 0;
}
