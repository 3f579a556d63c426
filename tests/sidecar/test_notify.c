/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager is told, and that nothing of it holds us up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "sidecar/notify.h"

static char dir[] = "/tmp/test_notify.XXXXXX", path[64];
static char text[1024];
static int manager = -1;

/* The manager's socket; '@': an abstract one. */
static void
listen_at(const char *name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t n = strlen(name);

	memcpy(sa.sun_path, name, n);
	if (name[0] == '@')
		sa.sun_path[0] = '\0';
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(manager >= 0);
	assert_int_equal(bind(manager, (struct sockaddr *)&sa,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	notify_init();
}

static int
up(void **state)
{
	(void)state;
	unlink(path);
	listen_at(path);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(manager);
	unlink(path);
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return 0;
}

static const char *
heard(void)
{
	ssize_t n = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static unsigned
open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* First of all: later nothing would tell that no socket was made. */
static void
without_a_socket_nothing_is_told(void **state)
{
	static const char *const names[] = { NULL, "", "/", "@", "relative",
	    "unix:/run/notify", "/nobody/listens/there" };
	unsigned before = open_descriptors();
	char far[200];

	(void)state;
	setenv("WATCHDOG_USEC", "1000000", 1);
	memset(far, 'x', sizeof(far) - 1);
	far[0] = '/';
	far[sizeof(far) - 1] = '\0';
	for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
		const char *name = i < sizeof(names) / sizeof(names[0]) ?
		    names[i] : far;

		if (name == NULL)
			unsetenv("NOTIFY_SOCKET");
		else
			setenv("NOTIFY_SOCKET", name, 1);
		notify_init();
		notify_send("READY=1");
		notify_status("READY=1", "serving");
		notify_reloading();
		notify_alive();
		assert_int_equal(open_descriptors(), before);
	}
	unsetenv("WATCHDOG_USEC");
}

static void
a_state_is_one_datagram(void **state)
{
	(void)state;
	notify_send("READY=1");
	notify_send("STOPPING=1");
	assert_string_equal(heard(), "READY=1");
	assert_string_equal(heard(), "STOPPING=1");
	assert_string_equal(heard(), "");
}

static void
an_abstract_socket_is_told_too(void **state)
{
	char name[64];

	(void)state;
	close(manager);
	snprintf(name, sizeof(name), "@test_notify.%d", (int)getpid());
	listen_at(name);
	notify_send("READY=1");
	assert_string_equal(heard(), "READY=1");
}

/* Whatever the line says, it is one line of one variable. */
static void
a_status_begins_no_other_variable(void **state)
{
	(void)state;
	notify_status("READY=1", "serving, mode %s", "shared");
	assert_string_equal(heard(), "READY=1\nSTATUS=serving, mode shared");
	notify_status(NULL, "%u engines", 3u);
	assert_string_equal(heard(), "STATUS=3 engines");
	notify_status("READY=1", "a\nMAINPID=1\r\t\x1b[1m\x7f\xc3\xa4");
	assert_string_equal(heard(),
	    "READY=1\nSTATUS=a?MAINPID=1???[1m???");
}

static void
a_long_status_is_cut(void **state)
{
	char words[5000];

	(void)state;
	memset(words, 'w', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	notify_status("READY=1", "%s", words);
	assert_int_equal(strlen(heard()), strlen("READY=1\nSTATUS=") + 199);
	assert_memory_equal(text, "READY=1\nSTATUS=www", 18);
}

static void
a_reload_has_its_time(void **state)
{
	long long at = 0, before = clock_mono_us();

	(void)state;
	notify_reloading();
	assert_int_equal(sscanf(heard(), "RELOADING=1\nMONOTONIC_USEC=%lld\n",
	    &at), 1);
	assert_in_range(at, before, clock_mono_us());
}

/* It is full, and then it is gone: neither waits, nor ends us. */
static void
a_manager_that_does_not_read_holds_nothing_up(void **state)
{
	unsigned n = 0;

	(void)state;
	alarm(20);
	for (unsigned i = 0; i < 100000; i++)
		notify_send("WATCHDOG=1");
	while (heard()[0] != '\0')
		n++;
	assert_in_range(n, 1, 99999);
	notify_send("READY=1");
	assert_string_equal(heard(), "READY=1");
	close(manager);
	notify_send("READY=1");
	notify_status("READY=1", "serving");
	alarm(0);
	manager = -1;
}

static void
only_who_is_meant_is_watched(void **state)
{
	char own[32];
	const struct {
		const char *usec, *pid;
		bool watched;
	} t[] = {
		{ NULL, NULL, false }, { "30000000", NULL, true },
		{ "30000000", own, true }, { "30000000", "1", false },
		{ "0", NULL, false }, { "-1", NULL, false },
		{ "", NULL, false }, { "soon", own, false },
		{ NULL, own, false }, { "30000000", "", false },
	};

	(void)state;
	snprintf(own, sizeof(own), "%d", (int)getpid());
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		unsetenv("WATCHDOG_USEC");
		unsetenv("WATCHDOG_PID");
		if (t[i].usec != NULL)
			setenv("WATCHDOG_USEC", t[i].usec, 1);
		if (t[i].pid != NULL)
			setenv("WATCHDOG_PID", t[i].pid, 1);
		notify_init();
		if (notify_is_watched() != t[i].watched)
			fail_msg("case %zu", i);
		notify_alive();
		assert_string_equal(heard(), t[i].watched ? "WATCHDOG=1" :
		    "");
	}
}

static int
make_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/notify", dir);
	return 0;
}

static int
remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_socket_nothing_is_told),
		T(a_state_is_one_datagram),
		T(an_abstract_socket_is_told_too),
		T(a_status_begins_no_other_variable),
		T(a_long_status_is_cut),
		T(a_reload_has_its_time),
		T(a_manager_that_does_not_read_holds_nothing_up),
		T(only_who_is_meant_is_watched),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
