/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/beneath.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/openat2.h>

/* The directory is "in", so that there is something to lead out to. */
static char around[] = "/tmp/penstock-test-XXXXXX";
static int outer = -1, dir = -1;

static void
file(int at, const char *name, const char *text)
{
	int fd = openat(at, name, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int
up(void **state)
{
	char deep[400] = "";

	(void)state;
	assert_non_null(mkdtemp(around));
	outer = open(around, O_RDONLY | O_DIRECTORY);
	assert_int_equal(mkdirat(outer, "in", 0700), 0);
	assert_int_equal(mkdirat(outer, "in/sub", 0700), 0);
	assert_int_equal(mkdirat(outer, "in/..data", 0700), 0);
	dir = openat(outer, "in", O_RDONLY | O_DIRECTORY);
	file(outer, "secret", "secret");
	file(dir, "a", "a");
	file(dir, "sub/b", "b");
	file(dir, "..data/c", "c");
	assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
	static const char *const links[][2] = {
		{ "to-a", "a" }, { "to-b", "sub/b" }, { "to-sub", "sub" },
		{ "sub/up", "../a" }, { "sub/round", "../to-sub/../a" },
		{ "sub/out", "../../secret" }, { "out", "../secret" },
		{ "out-dir", ".." }, { "root", "/etc/passwd" },
		{ "root-dir", "/etc" }, { "loop", "loop" },
		{ "ping", "pong/x" }, { "pong", "ping" },
		{ "gone", "nothing" }, { "data", "..data" },
		{ "dot", "./sub/./b" }, { "to-dir", "sub/" },
	};
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		assert_int_equal(symlinkat(links[i][1], dir, links[i][0]), 0);
	for (int i = 0; i < 35; i++) {
		strcat(deep, i == 0 ? "d" : "/d");
		assert_int_equal(mkdirat(dir, deep, 0700), 0);
	}
	return 0;
}

static int
down(void **state)
{
	char words[64];

	(void)state;
	snprintf(words, sizeof(words), "rm -r %s", around);
	return system(words);
}

static const char *const names[] = {
	"a", "to-a", "sub/b", "to-b", "to-sub/b", "sub/up", "sub/round",
	"./a", "sub/../a", "sub/./../sub/b", "..data/c", "data/c", "dot",
	"//a", "sub//b", "", ".", "..", "sub", "sub/", "a/", "a/b", "to-dir",
	"to-a/", "to-a/b", "../in/a", "../secret", "sub/out", "out",
	"out-dir/secret", "root", "root-dir/passwd", "/etc/passwd", "loop",
	"loop/x", "ping", "gone", "gone/x", "nothing", "sub/../../secret",
	"sub/../../in/a",
};

static int
by_the_kernel(const char *name)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* Directories the kernel opens for reading, as compile then refuses. */
static bool
is_file(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void
the_same_is_opened_as_by_the_kernel(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int want = by_the_kernel(names[i]);
		int got = beneath_open(dir, names[i]);
		struct stat a, b;

		if (is_file(want) != is_file(got))
			fail_msg("\"%s\": %d, the kernel %d", names[i], got,
			    want);
		if (want < 0 && got != want && names[i][0] != '\0')
			fail_msg("\"%s\": %s, the kernel: %s", names[i],
			    strerror(-got), strerror(-want));
		if (is_file(want)) {
			fstat(want, &a);
			fstat(got, &b);
			assert_int_equal(a.st_ino, b.st_ino);
		}
		if (want >= 0)
			close(want);
		if (got >= 0)
			close(got);
	}
}

static void
what_leads_out_is_told_apart(void **state)
{
	(void)state;
	assert_int_equal(beneath_open(dir, "out"), -EXDEV);
	assert_int_equal(beneath_open(dir, "root-dir/passwd"), -EXDEV);
	assert_int_equal(beneath_open(dir, "sub/../.."), -EXDEV);
	/* the file is there: not beneath this directory */
	assert_true(is_file(openat(dir, "out", O_RDONLY)));
}

static void
nobody_is_waited_for(void **state)
{
	int fd = beneath_open(dir, "fifo");

	(void)state;
	assert_true(fd >= 0);
	close(fd);
}

static void
bounds_hold(void **state)
{
	char name[5000];
	int before = dup(dir), after;

	(void)state;
	memset(name, 'x', sizeof(name));
	name[300] = '\0';
	assert_int_equal(beneath_open(dir, name), -ENAMETOOLONG);
	name[300] = 'x';
	name[4999] = '\0';
	assert_int_equal(beneath_open(dir, name), -ENAMETOOLONG);
	name[0] = '\0';
	for (int i = 0; i < 35; i++)
		strcat(name, "d/");
	strcat(name, "x");
	assert_int_equal(beneath_open(dir, name), -ELOOP);
	/* and nothing stays open */
	close(before);
	after = dup(dir);
	assert_int_equal(after, before);
	close(after);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_is_opened_as_by_the_kernel),
		cmocka_unit_test(what_leads_out_is_told_apart),
		cmocka_unit_test(nobody_is_waited_for),
		cmocka_unit_test(bounds_hold),
	};

	return cmocka_run_group_tests(tests, up, down);
}
