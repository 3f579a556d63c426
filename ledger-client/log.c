/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/span.h"

#define LINE_BYTES 2048

static const char *role_name = "penstock";
static enum log_level max_level = LOG_INFO_;
static struct {
	time_t second;
	unsigned lines, left_out;
} pace;

static const char *const level_word[] = {
	[LOG_ERROR_] = "error", [LOG_WARN] = "warn", [LOG_INFO_] = "info",
	[LOG_DEBUG_] = "debug",
};

void
log_init(const char *role, enum log_level level)
{
	role_name = role;
	max_level = level;
}

/* False when this second has had its lines. */
static bool
pace_take(time_t now)
{
	if (now != pace.second) {
		pace.second = now;
		pace.lines = 0;
	}
	if (pace.lines >= LOG_PER_SECOND) {
		pace.left_out++;
		return false;
	}
	pace.lines++;
	return true;
}

/* What a short write left of a line: it goes out before the next line. */
static struct {
	char bytes[LINE_BYTES];
	size_t used;
} rest;

/* How many bytes went out; an interrupted or short write is taken up again. */
static size_t
put(const char *bytes, size_t used)
{
	size_t at = 0;

	while (at < used) {
		ssize_t n = write(STDERR_FILENO, bytes + at, used - at);

		if (n > 0)
			at += (size_t)n;
		else if (n == 0 || errno != EINTR)
			break;
	}
	return at;
}

/* False when nothing of the line went out: it is left out as a whole. */
static bool
put_line(const char *line, size_t used)
{
	size_t at = put(rest.bytes, rest.used);

	rest.used -= at;
	memmove(rest.bytes, rest.bytes + at, rest.used);
	if (rest.used > 0)
		return false;
	at = put(line, used);
	if (at == 0)
		return false;
	rest.used = used - at;
	memcpy(rest.bytes, line + at, rest.used);
	return true;
}

/* Inside double quotes, as readers of key="value" take it: what does not print
 * becomes \xNN, and a quote or a backslash has one in front. */
static void
quote(const char *text, char *out, size_t size)
{
	size_t at = 0;

	for (; *text != '\0' && at + 5 < size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			out[at++] = '\\';
		if (c >= ' ' && c <= '~')
			out[at++] = (char)c;
		else
			at += (size_t)snprintf(out + at, size - at, "\\x%02x",
			    c);
	}
	out[at] = '\0';
}

void
log_line(enum log_level level, const char *fmt, ...)
{
	char text[LINE_BYTES / 2], shown[LINE_BYTES - 256];
	char line[LINE_BYTES], stamp[32], missed[48] = "";
	struct timespec ts;
	struct tm tm;
	va_list ap;
	int n;

	if (level > max_level)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (!pace_take(ts.tv_sec))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	quote(text, shown, sizeof(shown));
	gmtime_r(&ts.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	if (pace.left_out > 0)
		snprintf(missed, sizeof(missed), " left_out=%u",
		    pace.left_out);
	n = snprintf(line, sizeof(line),
	    "time=%s.%03ldZ level=%s role=%s pid=%d%s msg=\"%s\"\n", stamp,
	    ts.tv_nsec / 1000000, level_word[level], role_name,
	    (int)getpid(), missed, shown);
	if (n <= 0 || !put_line(line, (size_t)n))
		pace.left_out++;	/* nowhere else to say it */
	else
		pace.left_out = 0;
}
