/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ledger-client/clock.h"

static int notify_fd = -1;
static bool watched;

static bool
is_watched(void)
{
	const char *usec = getenv("WATCHDOG_USEC");
	const char *pid = getenv("WATCHDOG_PID");

	return usec != NULL && strtoll(usec, NULL, 10) > 0 &&
	    (pid == NULL || strtoll(pid, NULL, 10) == getpid());
}

void
notify_init(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path == NULL ? 0 : strlen(path);

	if (n < 2 || n >= sizeof(sa.sun_path) ||
	    (path[0] != '/' && path[0] != '@'))
		return;
	watched = is_watched();
	memcpy(sa.sun_path, path, n);
	if (path[0] == '@')
		sa.sun_path[0] = '\0';
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (notify_fd >= 0 && connect(notify_fd, (struct sockaddr *)&sa,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) != 0) {
		close(notify_fd);
		notify_fd = -1;
	}
}

void
notify_send(const char *state)
{
	if (notify_fd < 0)
		return;
	if (send(notify_fd, state, strlen(state),
	    MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;		/* nobody listens: nothing depends on it */
}

void
notify_status(const char *state, const char *fmt, ...)
{
	char status[200], text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(status, sizeof(status), fmt, ap);
	va_end(ap);
	/* a newline would begin another variable */
	for (char *p = status; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	snprintf(text, sizeof(text), "%s%sSTATUS=%s",
	    state == NULL ? "" : state, state == NULL ? "" : "\n", status);
	notify_send(text);
}

void
notify_reloading(void)
{
	char text[80];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld\n",
	    (long long)clock_mono_us());
	notify_send(text);
}

bool
notify_is_watched(void)
{
	return watched;
}

void
notify_alive(void)
{
	if (watched)
		notify_send("WATCHDOG=1");
}
