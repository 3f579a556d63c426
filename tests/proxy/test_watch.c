/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MANY 300

struct owner {
	_Alignas(WATCH_TAGS) unsigned calls;
	unsigned tag;
	uint32_t events;
	bool turning;
};

static struct event_base *base;
static struct watch *watch;
static unsigned turns;

static void
seen(void *arg, unsigned tag, uint32_t events)
{
	struct owner *o = arg;

	o->calls++;
	o->tag = tag;
	o->events = events;
	o->turning = watch_turning(watch);
}

static void
over(void *arg)
{
	assert_false(watch_turning(watch));
	++*(unsigned *)arg;
}

static void
loop(void)
{
	event_base_loop(base, EVLOOP_NONBLOCK);
}

static int
up(void **state)
{
	(void)state;
	turns = 0;
	base = event_base_new();
	return watch_new(&watch, base, seen, over, &turns);
}

static int
down(void **state)
{
	(void)state;
	watch_free(watch);
	event_base_free(base);
	return 0;
}

static void
an_owner_hears_his_tag_and_each_edge_once(void **state)
{
	struct owner o = { 0 };
	char got[8];
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
	    fd), 0);
	assert_int_equal(watch_add(watch, fd[0], &o, 5), 0);
	loop();
	assert_int_equal(o.calls, 1);	/* room to write */
	assert_int_equal(o.tag, 5);
	assert_int_equal(o.events, EPOLLOUT);
	assert_true(o.turning);
	assert_int_equal(turns, 1);
	assert_int_equal(write(fd[1], "a", 1), 1);
	loop();
	loop();
	assert_int_equal(o.calls, 2);
	assert_true(o.events & EPOLLIN);
	assert_int_equal(read(fd[0], got, sizeof(got)), 1);
	shutdown(fd[1], SHUT_WR);
	loop();
	assert_int_equal(o.calls, 3);
	assert_true(o.events & EPOLLRDHUP);
	close(fd[0]);
	close(fd[1]);
	loop();
	assert_int_equal(o.calls, 3);
}

static void
input_that_is_not_wanted_wakes_nobody_and_is_told_later(void **state)
{
	struct owner o = { 0 };
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
	    fd), 0);
	assert_int_equal(watch_add(watch, fd[0], &o, 5), 0);
	loop();
	assert_int_equal(watch_input(watch, fd[0], &o, 6, false), 0);
	loop();
	o.calls = 0;
	assert_int_equal(write(fd[1], "a", 1), 1);
	loop();
	assert_int_equal(o.calls, 0);
	assert_int_equal(watch_input(watch, fd[0], &o, 5, true), 0);
	loop();
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.tag, 5);
	assert_true(o.events & EPOLLIN);
	/* the end is told all the while */
	assert_int_equal(watch_input(watch, fd[0], &o, 5, false), 0);
	shutdown(fd[1], SHUT_WR);
	loop();
	assert_true(o.events & EPOLLRDHUP);
	assert_int_equal(watch_input(watch, -1, &o, 0, false), -EBADF);
	close(fd[0]);
	close(fd[1]);
}

/* More than one turn takes: nobody is left out. */
static void
many_are_all_heard(void **state)
{
	static struct owner o[MANY];
	static int fd[MANY][2];

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]),
		    0);
		assert_int_equal(watch_add(watch, fd[i][0], &o[i],
		    i % WATCH_TAGS), 0);
	}
	for (unsigned i = 0; i < MANY; i++)
		loop();
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(o[i].calls, 1);
		assert_int_equal(o[i].tag, i % WATCH_TAGS);
		close(fd[i][0]);
		close(fd[i][1]);
	}
}

static void
what_cannot_be_watched_is_said(void **state)
{
	struct owner o = { 0 };

	(void)state;
	assert_int_equal(watch_add(watch, -1, &o, 0), -EBADF);
}

int
main(void)
{
#define UP(t) cmocka_unit_test_setup_teardown(t, up, down)
	const struct CMUnitTest tests[] = {
		UP(an_owner_hears_his_tag_and_each_edge_once),
		UP(input_that_is_not_wanted_wakes_nobody_and_is_told_later),
		UP(many_are_all_heard),
		UP(what_cannot_be_watched_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
