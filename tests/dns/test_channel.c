/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/channel.h"

#include <event2/event.h>

#include "dns/message.h"
#include "tests/dns/fake_server.h"

static struct event_base *base;
static struct fake fake;
static struct channels *channels;
static int64_t clock_ahead_ms;

int64_t __real_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void);

int64_t
__wrap_clock_mono_ms(void)
{
	return __real_clock_mono_ms() + clock_ahead_ms;
}

struct event *__real_event_new(struct event_base *base, evutil_socket_t fd,
    short what, event_callback_fn fn, void *arg);
struct event *__wrap_event_new(struct event_base *base, evutil_socket_t fd,
    short what, event_callback_fn fn, void *arg);
static bool no_memory;

struct event *
__wrap_event_new(struct event_base *b, evutil_socket_t fd, short what,
    event_callback_fn fn, void *arg)
{
	return no_memory && fd >= 0 ? NULL :
	    __real_event_new(b, fd, what, fn, arg);
}

struct got {
	unsigned n, ends[4];
	uint8_t msg[512];
	size_t len;
};

static void
on_done(void *arg, enum channel_end end, struct span msg)
{
	struct got *g = arg;

	g->n++;
	g->ends[end]++;
	g->len = msg.len;
	if (msg.len > 0)
		memcpy(g->msg, msg.data, msg.len);
}

static void
up(fake_says *says)
{
	base = event_base_new();
	clock_ahead_ms = 0;
	fake_start(&fake, base, says);
	assert_int_equal(channels_new(&channels, base, &fake.at, 200), 0);
}

static void
down(void)
{
	channels_free(channels);
	fake_stop(&fake);
	event_base_free(base);
}

static void
ask(struct got *g, bool tcp)
{
	static const uint8_t none[32];
	uint8_t query[MESSAGE_ASK_MAX_BYTES];
	struct host name;
	size_t n;

	assert_int_equal(host_parse(&name, span_str("a.example")),
	    REASON_NONE);
	n = message_ask(&name, TYPE_A, 0, none, 0, query);
	channels_ask(channels, query, n, tcp, on_done, g);
}

static void
await(struct got *g, unsigned n)
{
	for (int i = 0; i < 1000 && g->n < n; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g->n, n);
}

static void
a_question_is_answered(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes);
	ask(&g, false);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 1);
	assert_true(g.len > 12);
	assert_int_equal(fake.n_udp, 1);
	assert_int_equal(fake.n_tcp, 0);
	/* EDNS, and c-ares took our bytes as they were */
	assert_int_equal(fake.last[11], 1);
	down();
}

static size_t
cut_over_udp(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	if (!f->over_tcp)
		out[2] |= 2;
	return n;
}

static void
a_cut_answer_comes_over_tcp(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(cut_over_udp);
	ask(&g, false);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 1);
	assert_int_equal(g.msg[2] & 2, 0);
	assert_int_equal(fake.n_tcp, 1);
	down();
}

static void
tcp_alone_where_asked_for(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes);
	ask(&g, true);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 1);
	assert_int_equal(fake.n_udp, 0);
	assert_int_equal(fake.n_tcp, 1);
	down();
}

static void
silence_is_a_time_out_of_one_try(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_nothing);
	ask(&g, false);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_TIMEOUT], 1);
	assert_int_equal(fake.n_udp, 1);
	down();
}

static size_t
says_servfail(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, RCODE_SERVFAIL, out);
}

static void
a_failure_of_the_server_is_an_answer(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(says_servfail);
	ask(&g, false);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 1);
	assert_int_equal(g.msg[3] & 15, RCODE_SERVFAIL);
	assert_int_equal(fake.n_udp, 1);
	down();
}

static size_t
lies_about_the_id(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	out[0] ^= 1;
	return n;
}

static size_t
lies_about_the_name(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	out[13] = 'b';
	return n;
}

static void
answers_to_other_questions_are_none(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(lies_about_the_id);
	ask(&g, false);
	await(&g, 1);
	assert_int_equal(g.ends[CHANNEL_TIMEOUT], 1);
	fake.says = lies_about_the_name;
	ask(&g, false);
	await(&g, 2);
	assert_int_equal(g.ends[CHANNEL_TIMEOUT], 2);
	down();
}

static unsigned
most_from_one_port(unsigned *used)
{
	unsigned most = 0;

	*used = 0;
	for (unsigned i = 0; i < 65536; i++) {
		*used += fake.ports[i] > 0;
		if (fake.ports[i] > most)
			most = fake.ports[i];
	}
	return most;
}

/* While queries overlap a c-ares channel has one port: over 10,000 of them
 * none may carry more than 1 %. */
static void
no_port_carries_many_of_overlapping_questions(void **state)
{
	struct got g = { 0 };
	unsigned used;

	(void)state;
	up(fake_says_nothing);
	channels_free(channels);
	assert_int_equal(channels_new(&channels, base, &fake.at, 60000), 0);
	for (unsigned i = 0; i < 10000; i++) {
		ask(&g, false);
		if (i % 50 == 0)
			event_base_loop(base, EVLOOP_NONBLOCK);
	}
	for (int i = 0; i < 100 && fake.n_udp < 10000; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
	assert_int_equal(fake.n_udp, 10000);
	assert_int_equal(g.n, 0);
	assert_true(most_from_one_port(&used) <= 100);
	assert_true(used >= 10000 / CHANNEL_MESSAGES);
	down();
	assert_int_equal(g.n, 0);	/* nobody is told after the end */
}

/* One after the other, each on a port of its own or nearly so: a channel
 * without open questions has closed its socket. */
static void
questions_in_turn_change_their_port(void **state)
{
	struct got g = { 0 };
	unsigned used;

	(void)state;
	up(fake_says_yes);
	for (unsigned i = 0; i < 500; i++) {
		ask(&g, false);
		await(&g, i + 1);
	}
	assert_true(most_from_one_port(&used) <= 25);
	down();
}

static void
a_channel_is_replaced_after_its_life(void **state)
{
	struct got g = { 0 };
	unsigned before, after;

	(void)state;
	up(fake_says_nothing);
	channels_free(channels);
	assert_int_equal(channels_new(&channels, base, &fake.at, 60000), 0);
	for (unsigned i = 0; i < 200; i++)
		ask(&g, false);
	event_base_loop(base, EVLOOP_NONBLOCK);
	most_from_one_port(&before);
	assert_int_equal(before, CHANNEL_POOL);
	clock_ahead_ms = CHANNEL_LIFE_MS + 1;
	for (unsigned i = 0; i < 200; i++)
		ask(&g, false);
	event_base_loop(base, EVLOOP_NONBLOCK);
	most_from_one_port(&after);
	assert_int_equal(after, 2 * CHANNEL_POOL);
	down();
}

static void
late_answers_of_a_replaced_channel_arrive(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(fake_says_yes);
	for (unsigned i = 0; i < 50; i++)
		ask(&g, false);
	clock_ahead_ms = CHANNEL_LIFE_MS + 1;
	for (unsigned i = 0; i < 50; i++)
		ask(&g, false);
	clock_ahead_ms = 0;
	await(&g, 100);
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 100);
	down();
}

static void
a_socket_that_cannot_be_watched_is_looked_at(void **state)
{
	struct got g = { 0 };

	(void)state;
	up(cut_over_udp);
	no_memory = true;
	ask(&g, false);
	await(&g, 1);
	no_memory = false;
	assert_int_equal(g.ends[CHANNEL_ANSWERED], 1);
	down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_question_is_answered),
		cmocka_unit_test(a_cut_answer_comes_over_tcp),
		cmocka_unit_test(tcp_alone_where_asked_for),
		cmocka_unit_test(silence_is_a_time_out_of_one_try),
		cmocka_unit_test(a_failure_of_the_server_is_an_answer),
		cmocka_unit_test(answers_to_other_questions_are_none),
		cmocka_unit_test(
		    no_port_carries_many_of_overlapping_questions),
		cmocka_unit_test(questions_in_turn_change_their_port),
		cmocka_unit_test(a_channel_is_replaced_after_its_life),
		cmocka_unit_test(
		    a_socket_that_cannot_be_watched_is_looked_at),
		cmocka_unit_test(late_answers_of_a_replaced_channel_arrive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
