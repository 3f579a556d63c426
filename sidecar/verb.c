/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/config.h"

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

int
verb_usage(const struct verb *v, int status)
{
	FILE *to = status == 0 ? stdout : stderr;

	fprintf(to, "usage: penstock %s [option ...]%s%s\n%s", v->name,
	    v->operands[0] != '\0' ? " " : "", v->operands, v->what);
	for (size_t i = 0; i < v->n_options; i++)
		option_print(&v->options[i], to);
	option_print(&asked_help, to);
	fprintf(to, "Exit: %s.\n", v->exits);
	return status;
}

/* False when a list is full. */
static bool
take(const struct verb_option *o, const char *value)
{
	if (o->flag != NULL) {
		*o->flag = true;
	} else if (o->count == NULL) {
		*o->text = value;
	} else {
		if (*o->count == o->max) {
			fprintf(stderr, "penstock: --%s: at most %zu\n",
			    o->name, o->max);
			return false;
		}
		o->text[(*o->count)++] = value;
	}
	return true;
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
	char letters[2 * VERB_OPTIONS_MAX + 2] = "h";
	size_t at = 1;
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
	optind = 0;
	while ((c = getopt_long(argc, argv, letters, longs, &which)) != -1) {
		const struct verb_option *o = c == 0 ? &v->options[which] :
		    by_letter(v, c);

		if (c == 'h')
			return verb_usage(v, 0);
		if (o == NULL || !take(o, optarg))
			return verb_usage(v, EXIT_USAGE);
	}
	c = argc - optind;
	return c < v->operands_min || c > v->operands_max ?
	    verb_usage(v, EXIT_USAGE) : VERB_GO;
}

/* One byte more than is allowed, so that too much shows. */
static int
file_text(const char *path, uint8_t **text, size_t *len)
{
	FILE *f = fopen(path, "re");
	int err = f == NULL ? -errno : 0;

	*text = malloc(CONFIG_BYTES_MAX + 1);
	if (err == 0 && *text == NULL)
		err = -ENOMEM;
	if (err == 0) {
		*len = fread(*text, 1, CONFIG_BYTES_MAX + 1, f);
		err = ferror(f) != 0 ? -EIO : *len > CONFIG_BYTES_MAX ?
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
		fprintf(stderr, "penstock: %s: %s\n", path, strerror(-err));
	else
		*out = config_load(path, span_of(text, len), &env, ps);
	if (err == 0 && *out == NULL)
		problem_print(ps, stderr);
	problem_free(ps);
	free(text);
	return *out == NULL ? EXIT_CONFIG : 0;
}
