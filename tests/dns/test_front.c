/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front.h"

#include "tests/dns/front_stage.h"

static void
an_allowed_name_is_answered_and_pinned_before_the_answer(void **state)
{
	struct world *w = world_new();
	struct reply *r = ask(w, "api.team.allowed.test", TYPE_A);

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "9.9.9.1"));
	assert_true(r->ra && r->rd && !r->tc);
	assert_true(pinned(w, "api.team.allowed.test", "9.9.9.1"));
	assert_false(pinned(w, "api.team.allowed.test", "2606:4700::1"));
	r = ask(w, "api.team.allowed.test", TYPE_AAAA);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "2606:4700::1"));
	assert_true(pinned(w, "api.team.allowed.test", "2606:4700::1"));
	assert_int_equal(asked("api.team.allowed.test"), 2);
	/* and now it is known */
	r = ask(w, "api.team.allowed.test", TYPE_A);
	assert_true(holds(r, "9.9.9.1"));
	assert_int_equal(asked("api.team.allowed.test"), 2);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_ASKED_A), 2);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_ASKED_AAAA), 1);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_ALLOWED_NOERROR), 3);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_CACHE_HITS), 1);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_CACHE_MISSES), 2);
	/* each type is one way up */
	assert_int_equal(count_sum(w->counts, COUNT_DNS_UPSTREAM), 2);
	world_free(w);
}

static unsigned
no_to(uint16_t type)
{
	return type == TYPE_NULL ? RCODE_REFUSED : RCODE_NXDOMAIN;
}

static void
B049_W6_a_name_that_is_not_allowed_never_leaves(void **state)
{
	static const uint16_t types[] = { TYPE_A, TYPE_AAAA, TYPE_TXT,
	    TYPE_NULL, TYPE_CNAME, TYPE_MX, TYPE_SRV, TYPE_HTTPS, TYPE_PTR,
	    TYPE_ANY };
	struct world *w = world_new();
	uint8_t msg[512];
	struct reply r;
	int fd = dial(w);

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(ask(w, "q4x0r9secret.x.evil.test",
		    types[i])->rcode, no_to(types[i]));
		write_all(w, fd, msg, framed(msg, 1,
		    "q4x0r9secret.x.evil.test", types[i]));
		assert_true(tcp_get(w, fd, &r));
		assert_int_equal(r.rcode, no_to(types[i]));
		/* and no data in a question of another type */
		assert_int_equal(ask(w, "x1.wild.test", types[i])->rcode,
		    types[i] == TYPE_NULL ? RCODE_REFUSED : RCODE_NOERROR);
	}
	assert_int_equal(ask(w, "no.allowed.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(ask(w, "x1.wild.test.evil.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(ask(w, "xwild.test", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_int_equal(asked("x1.wild.test\""), 2);
	assert_int_equal(asked("evil"), 0);
	assert_int_equal(asked("no.allowed.test"), 0);
	assert_int_equal(asked("xwild"), 0);
	close(fd);
	world_free(w);
}

static void
N17_our_own_no_has_the_shape_that_resolvers_expect(void **state)
{
	static const uint16_t types[] = { TYPE_A, TYPE_NS, TYPE_SOA };
	static const char *const above[] = { "team.allowed.test",
	    "allowed.test", "test", "" };
	struct world *w = world_new();
	struct reply *r;

	(void)state;
	for (size_t t = 0; t < 3; t++) {
		for (size_t i = 0; i < 4; i++) {
			r = ask(w, above[i], types[t]);
			assert_int_equal(r->rcode, RCODE_NOERROR);
			assert_int_equal(r->answers, 0);
			assert_true(r->ra && r->soa && !r->tc);
		}
		r = ask(w, "other.test", types[t]);
		assert_int_equal(r->rcode, RCODE_NXDOMAIN);
		assert_true(r->ra && r->soa && r->answers == 0);
	}
	/* why, for those that read it (RFC 8914) */
	r = ask_sized(w, "no.allowed.test", TYPE_A, 1232);
	assert_non_null(memmem(r->b, r->len, "rule_deny", 9));
	r = ask_sized(w, "other.test", TYPE_A, 1232);
	assert_non_null(memmem(r->b, r->len, "no_rule", 7));
	/* an allowed name under them is not hidden; one that upstream does
	 * not have is a no with SOA too */
	assert_int_equal(ask(w, "api.team.allowed.test", TYPE_A)->answers, 1);
	r = ask(w, "none.allowed.test", TYPE_A);
	assert_int_equal(r->rcode, RCODE_NXDOMAIN);
	assert_true(r->ra && r->soa);
	r = ask(w, "six.allowed.test", TYPE_A);
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_true(r->ra && r->soa && r->answers == 0);
	assert_int_equal(asked("\"team.allowed.test"), 0);
	world_free(w);
}

static void
B044_N14_an_answer_fits_the_client_or_is_asked_for_over_tcp(void **state)
{
	struct world *w = world_new();
	struct reply *r, whole;
	uint8_t msg[512];
	int fd = dial(w);

	(void)state;
	/* 32 addresses: 35 + 32 * 16 bytes */
	r = ask(w, "big.allowed.test", TYPE_A);
	assert_true(r->tc);
	r = ask_sized(w, "big.allowed.test", TYPE_A, 512);
	assert_true(r->tc);
	r = ask_sized(w, "big.allowed.test", TYPE_A, 1232);
	assert_false(r->tc);
	assert_int_equal(r->answers, 32);
	write_all(w, fd, msg, framed(msg, 7, "big.allowed.test", TYPE_A));
	assert_true(tcp_get(w, fd, &whole));
	assert_false(whole.tc);
	assert_int_equal(whole.answers, 32);
	/* and no name is written out again */
	assert_int_equal(whole.len, 34 + 32 * 16);
	close(fd);
	world_free(w);
}

static void
N13_one_connection_carries_many_questions(void **state)
{
	struct world *w = world_new();
	uint8_t msg[65536];
	unsigned n = 0, answered = 0, first = 0;
	struct reply r;
	size_t len = 0;
	int fd = dial(w);

	(void)state;
	/* the slow one first: it does not hold up the others */
	len = framed(msg, 0, "slow.allowed.test", TYPE_A);
	for (n = 1; n < 300; n++)
		len += framed(msg + len, (uint16_t)n, n % 2 == 0 ?
		    "api.team.allowed.test" : "other.test", TYPE_A);
	write_all(w, fd, msg, len);
	for (; answered < n && tcp_get(w, fd, &r); answered++) {
		if (answered == 0)
			first = r.id;
		assert_true(r.id < 300);
		assert_int_equal(r.rcode, r.id == 0 || r.id % 2 == 0 ?
		    RCODE_NOERROR : RCODE_NXDOMAIN);
		if (r.id == 0)
			assert_true(holds(&r, "9.9.9.2"));
	}
	assert_int_equal(answered, 300);
	assert_int_not_equal(first, 0);
	/* and byte by byte */
	len = framed(msg, 9, "api.team.allowed.test", TYPE_A);
	for (size_t i = 0; i < len; i++) {
		write_all(w, fd, msg + i, 1);
		work(w, 1);
	}
	assert_true(tcp_get(w, fd, &r));
	assert_int_equal(r.id, 9);
	close(fd);
	world_free(w);
}

/* More than may be open at once: the rest waits in the input, and is
 * answered though the client has ended its side meanwhile. */
static void
N13_what_came_before_a_half_close_is_answered(void **state)
{
	struct front_settings s = { .pending_max = 1000 };
	struct world *w = world_with(&s);
	unsigned n = 0, total = 3 * FRONT_TCP_OPEN_MAX;
	uint8_t msg[32768];
	size_t len = 0;
	struct reply r;
	int fd = dial(w);

	(void)state;
	for (unsigned i = 0; i < total; i++)
		len += framed(msg + len, (uint16_t)i, "slow.allowed.test",
		    TYPE_A);
	write_all(w, fd, msg, len);
	shutdown(fd, SHUT_WR);
	while (tcp_get(w, fd, &r)) {
		assert_int_equal(r.answers, 1);
		n++;
	}
	assert_int_equal(n, total);
	close(fd);
	world_free(w);
}

/* A question that cannot be asked for want of room is answered inside its
 * own handler; those behind it are still read once each. */
static void
N13_failures_at_once_do_not_garble_the_rest(void **state)
{
	struct front_settings s = { .pending_max = 1000 };
	struct world *w = world_with(&s);
	unsigned seen[200] = { 0 }, failed = 0;
	uint8_t msg[32768];
	char name[32];
	size_t len = 0;
	struct reply r;
	int fd = dial(w), fill[8];

	(void)state;
	/* the resolver's own table (64) fills from several connections */
	for (unsigned k = 0; k < 8; k++) {
		fill[k] = dial(w);
		len = 0;
		for (unsigned i = 0; i < 25; i++) {
			snprintf(name, sizeof(name), "f%u-%u.wild.test", k,
			    i);
			len += framed(msg + len, (uint16_t)(k * 25 + i), name,
			    TYPE_A);
		}
		write_all(w, fill[k], msg, len);
	}
	for (unsigned k = 0; k < 8; k++)
		for (unsigned i = 0; i < 25; i++) {
			assert_true(tcp_get(w, fill[k], &r));
			assert_true(r.id < 200);
			seen[r.id]++;
			failed += r.rcode == RCODE_SERVFAIL;
		}
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(seen[i], 1);
	assert_true(failed > 0 && failed < 200);
	for (unsigned k = 0; k < 8; k++)
		close(fill[k]);
	close(fd);
	world_free(w);
}

static void
two_bytes_and_silence_end_at_the_idle_limit(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 150, .tcp_max = 1 };
	struct world *w = world_with(&s);
	static const uint8_t head[] = { 0, 40 };
	struct reply r;
	uint8_t msg[512];
	int64_t from = now_ms();
	int fd = dial(w), second;

	(void)state;
	write_all(w, fd, head, sizeof(head));
	work(w, 20);
	second = dial(w);		/* one too many */
	assert_false(tcp_get(w, second, &r));
	close(second);
	assert_false(tcp_get(w, fd, &r));
	assert_in_range(now_ms() - from, 140, 2000);
	close(fd);
	fd = dial(w);			/* its place is free */
	write_all(w, fd, msg, framed(msg, 5, "other.test", TYPE_A));
	assert_true(tcp_get(w, fd, &r));
	close(fd);
	world_free(w);
}

/* As many equal questions as fit into msg. */
static unsigned
fill(uint8_t *msg, size_t size, size_t *len)
{
	unsigned n = 0;

	for (*len = 0; *len + 64 < size; n++)
		*len += framed(msg + *len, (uint16_t)n, "other.test", TYPE_A);
	return n;
}

/* A connection with little room for answers on their way. */
static int
dial_narrow(const struct world *w)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(w->port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small,
	    sizeof(small)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* Answers that nobody reads end the connection, and its place is free. */
static void
a_client_that_reads_nothing_is_not_served_for_ever(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 300, .tcp_max = 1 };
	struct world *w = world_with(&s);
	static uint8_t msg[65536];
	struct reply r;
	int64_t end = now_ms() + 10000;
	int fd = dial_narrow(w);
	size_t len, at = 0;
	ssize_t k;

	(void)state;
	(void)fill(msg, sizeof(msg), &len);
	while ((k = send(fd, msg + at, len - at, MSG_DONTWAIT |
	    MSG_NOSIGNAL)) > 0 || errno == EAGAIN) {
		at = k > 0 ? (at + (size_t)k) % len : at;
		work(w, 1);
		assert_true(now_ms() < end);
	}
	close(fd);
	fd = dial(w);
	write_all(w, fd, msg, framed(msg, 5, "other.test", TYPE_A));
	assert_true(tcp_get(w, fd, &r));
	close(fd);
	world_free(w);
}

/* Questions stand back while answers wait to be read; none is lost, and the
 * connection goes on afterwards. */
static void
a_client_that_reads_late_gets_every_answer(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 3000 };
	struct world *w = world_with(&s);
	static uint8_t msg[200000];
	int fd = dial_narrow(w);
	size_t len, at = 0;
	unsigned n = fill(msg, sizeof(msg), &len);
	struct reply r;
	ssize_t k;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		k = at < len ? send(fd, msg + at, len - at, MSG_DONTWAIT) : 0;
		at += k > 0 ? (size_t)k : 0;
		work(w, 1);
	}
	for (unsigned i = 0; i < n; i++) {
		if (at < len) {
			k = send(fd, msg + at, len - at, MSG_DONTWAIT);
			at += k > 0 ? (size_t)k : 0;
		}
		assert_true(tcp_get(w, fd, &r));
		assert_int_equal(r.id, i & 0xffff);
	}
	assert_int_equal(at, len);
	write_all(w, fd, msg, framed(msg, 5, "six.allowed.test", TYPE_AAAA));
	assert_true(tcp_get(w, fd, &r));
	assert_int_equal(r.answers, 1);
	close(fd);
	world_free(w);
}

static void
B046_the_case_of_a_question_is_kept(void **state)
{
	struct world *w = world_new();

	(void)state;
	/* ask() compares the question byte by byte */
	assert_int_equal(ask(w, "aPi.TeAm.AlLoWeD.tEsT", TYPE_A)->answers,
	    1);
	assert_int_equal(ask(w, "API.team.allowed.TEST", TYPE_A)->answers,
	    1);
	assert_int_equal(ask(w, "NO.allowed.TEST", TYPE_A)->rcode,
	    RCODE_NXDOMAIN);
	assert_true(pinned(w, "api.team.allowed.test", "9.9.9.1"));
	world_free(w);
}

static void
an_allowed_name_does_not_lead_inside(void **state)
{
	struct world *w = world_new();
	struct record last;
	struct reply *r = ask_sized(w, "inner.allowed.test", TYPE_A, 1232);

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 0);
	assert_true(r->soa);
	assert_non_null(memmem(r->b, r->len, "dns_special_use", 15));
	assert_int_equal(ask(w, "inner.allowed.test", TYPE_AAAA)->answers, 0);
	assert_false(pinned(w, "inner.allowed.test", "169.254.169.254"));
	assert_int_equal(records(w, REASON_DNS_SPECIAL_USE, &last), 2);
	assert_int_equal(last.verdict, VERDICT_DENY);

	r = ask(w, "mixed.allowed.test", TYPE_A);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "9.9.9.4"));
	assert_false(pinned(w, "mixed.allowed.test", "10.0.0.1"));

	/* private on one port: the answer has it, each dial is judged */
	r = ask(w, "private.allowed.test", TYPE_A);
	assert_int_equal(r->answers, 1);
	assert_true(holds(r, "10.0.0.7"));
	assert_true(pinned(w, "private.allowed.test", "10.0.0.7"));
	assert_false(pinned(w, "private.allowed.test", "169.254.169.254"));
	world_free(w);
}

static void
under_ipv6_drop_aaaa_is_no_data(void **state)
{
	struct front_settings s = { .ipv6_drop = true };
	struct world *w = world_with(&s);
	struct reply *r = ask(w, "six.allowed.test", TYPE_AAAA);
	unsigned before = asked("six.allowed.test");

	(void)state;
	assert_int_equal(r->rcode, RCODE_NOERROR);
	assert_int_equal(r->answers, 0);
	assert_true(r->soa && r->ra);
	assert_int_equal(ask(w, "six.allowed.test", TYPE_AAAA)->answers, 0);
	assert_int_equal(asked("six.allowed.test"), before);
	world_free(w);
}

static void
other_forms_are_told_so(void **state)
{
	struct world *w = world_new();
	struct reply r;
	uint8_t msg[512];
	size_t n;

	(void)state;
	n = query(msg, 1, "api.team.allowed.test", TYPE_A, 0);
	msg[n - 1] = 3;				/* CHAOS */
	put(w, msg, n);
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_REFUSED);
	n = query(msg, 2, "api.team.allowed.test", TYPE_A, 0);
	msg[2] |= 4 << 3;			/* NOTIFY */
	put(w, msg, n);
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_NOTIMP);
	n = query(msg, 3, "api.team.allowed.test", TYPE_A, 1232);
	msg[n - 5] = 1;				/* EDNS 1 */
	put(w, msg, n);
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_BADVERS & 15);
	n = query(msg, 4, "api.team.allowed.test", TYPE_A, 0);
	put(w, msg, n - 1);			/* cut */
	assert_true(get(w, &r, 1000));
	assert_int_equal(r.rcode, RCODE_FORMERR);
	assert_int_equal(r.id, 4);
	/* of UPDATE and NOTIFY the other sections are full */
	for (uint8_t opcode = 4; opcode < 6; opcode++) {
		n = query(msg, 5, "api.team.allowed.test", TYPE_A, 0);
		msg[2] = (uint8_t)(opcode << 3);
		msg[7] = msg[9] = 1;
		put(w, msg, n);
		assert_true(get(w, &r, 1000));
		assert_int_equal(r.rcode, RCODE_NOTIMP);
		assert_int_equal(r.id, 5);
		assert_int_equal(r.b[2] >> 3 & 15, opcode);
	}
	n = query(msg, 4, "api.team.allowed.test", TYPE_A, 0);
	msg[2] |= 0x80;				/* a response, and too short */
	put(w, msg, n);
	put(w, msg, 3);
	assert_false(get(w, &r, 200));
	assert_int_equal(count_denied_sum(w->counts, REASON_DNS_MALFORMED),
	    3);
	world_free(w);
}

static void
equal_refusals_are_one_record(void **state)
{
	struct world *w = world_new();
	struct record last;

	(void)state;
	for (unsigned i = 0; i < 50; i++)
		ask(w, "other.test", TYPE_A);
	ask(w, "another.test", TYPE_A);
	assert_int_equal(records(w, REASON_NO_RULE, &last), 2);
	assert_int_equal(count_denied_sum(w->counts, REASON_NO_RULE), 51);
	assert_int_equal(last.name_from, NAME_FROM_QUESTION);
	assert_int_equal(last.via, VIA_DNS_UDP);
	assert_int_equal(last.qtype, TYPE_A);
	assert_true(record_get(&last, TEXT_NAME).len == 12);
	world_free(w);
}

static void
an_answered_question_is_a_record(void **state)
{
	struct front_settings drop = { .ipv6_drop = true };
	struct world *w = world_new();
	struct record last;

	(void)state;
	ask(w, "api.team.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_RULE, &last), 1);
	assert_int_equal(last.verdict, VERDICT_ALLOW);
	assert_int_equal(last.via, VIA_DNS_UDP);
	assert_int_equal(last.qtype, TYPE_A);
	assert_true(record_get(&last, TEXT_RULE).len > 0);
	/* the same from the cache: counted in; another type is another */
	ask(w, "api.team.allowed.test", TYPE_A);
	ask(w, "api.team.allowed.test", TYPE_AAAA);
	assert_int_equal(records(w, REASON_RULE, &last), 1);
	assert_int_equal(last.qtype, TYPE_AAAA);
	/* what was asked upstream and led to nothing left a trace too */
	ask(w, "none.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_DNS_NXDOMAIN, &last), 1);
	assert_int_equal(last.verdict, VERDICT_ALLOW);
	ask(w, "six.allowed.test", TYPE_A);
	assert_int_equal(records(w, REASON_DNS_NODATA, &last), 1);
	ask(w, "api.team.allowed.test", TYPE_TXT);
	assert_int_equal(records(w, REASON_DNS_TYPE, &last), 1);
	assert_int_equal(last.verdict, VERDICT_DENY);
	world_free(w);

	w = world_with(&drop);
	assert_int_equal(ask(w, "six.allowed.test", TYPE_AAAA)->answers, 0);
	assert_int_equal(records(w, REASON_DNS_NODATA, &last), 1);
	assert_int_equal(last.verdict, VERDICT_ALLOW);
	world_free(w);
}

/* The recorder goes while upstream thinks: no record, no answer. */
static void
an_answer_that_cannot_be_recorded_is_not_given(void **state)
{
	struct world *w = world_new();
	uint8_t msg[512];
	struct reply r;

	(void)state;
	put(w, msg, query(msg, 9, "slow.allowed.test", TYPE_A, 0));
	work(w, 100);
	event_del(w->beat);
	emit_state_beat(w->state, false);
	assert_true(get(w, &r, 3000));
	assert_int_equal(r.rcode, RCODE_SERVFAIL);
	assert_false(pinned(w, "slow.allowed.test", "9.9.9.2"));
	world_free(w);
}

static void
without_a_recorder_nothing_is_asked(void **state)
{
	struct world *w = world_new();
	struct record last;
	unsigned before = asked("slow.allowed.test");

	(void)state;
	event_del(w->beat);
	emit_state_beat(w->state, false);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	assert_int_equal(asked("slow.allowed.test"), before);
	/* a heartbeat that stopped is the same */
	emit_state_beat(w->state, true);
	work(w, EMIT_STALE_MS + 100);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	assert_int_equal(asked("slow.allowed.test"), before);
	assert_int_equal(count_denied_sum(w->counts,
	    REASON_LEDGER_UNAVAILABLE), 2);
	(void)records(w, REASON_NONE, &last);
	emit_state_beat(w->state, true);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->answers, 1);
	world_free(w);
}

static void
one_client_does_not_take_every_connection(void **state)
{
	struct front_settings s = { .tcp_max = 8 };
	struct world *w = world_with(&s);
	struct record last;
	uint8_t msg[512];
	struct reply r;
	int fd[3], other;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		fd[i] = dial(w);
		work(w, 20);
	}
	assert_false(tcp_get(w, fd[2], &r));
	assert_int_equal(records(w, REASON_LIMIT_CLIENT, &last), 1);
	assert_int_equal(last.via, VIA_DNS_TCP);
	other = other_client(w, SOCK_STREAM);
	write_all(w, other, msg, framed(msg, 5, "other.test", TYPE_A));
	assert_true(tcp_get(w, other, &r));
	close(fd[0]);
	work(w, 20);
	close(fd[2]);
	fd[2] = dial(w);
	write_all(w, fd[2], msg, framed(msg, 6, "other.test", TYPE_A));
	assert_true(tcp_get(w, fd[2], &r));
	close(fd[1]);
	close(fd[2]);
	close(other);
	world_free(w);
}

/* Slow clients hold no place that another wants: the one of the oldest of
 * those that hold the most is his. */
static void
a_full_table_makes_room_for_who_has_less(void **state)
{
	struct front_settings s = { .tcp_max = 8 };
	struct world *w = world_with(&s);
	struct record last;
	uint8_t msg[512];
	struct reply r;
	int slow[8], other;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		slow[i] = client_at(w, 10 + i / 2, SOCK_STREAM);
		write_all(w, slow[i], (const uint8_t *)"\0", 1);
		work(w, 20);
	}
	other = client_at(w, 14, SOCK_STREAM);
	write_all(w, other, msg, framed(msg, 5, "other.test", TYPE_A));
	assert_true(tcp_get(w, other, &r));
	assert_int_equal(records(w, REASON_LIMIT_TOTAL, &last), 0);
	for (unsigned i = 0; i < 8; i++)
		close(slow[i]);
	close(other);
	world_free(w);
}

/* A byte now and then is no message. */
static void
who_dribbles_has_no_more_time_than_who_is_silent(void **state)
{
	struct front_settings s = { .tcp_idle_ms = 300 };
	struct world *w = world_with(&s);
	uint8_t msg[512];
	struct reply r;
	size_t n = framed(msg, 5, "other.test", TYPE_A);
	int fd = dial(w);
	ssize_t sent = 1;

	(void)state;
	for (unsigned i = 0; i < 20 && sent == 1; i++) {
		sent = send(fd, msg + i, 1, MSG_NOSIGNAL);
		work(w, 60);
	}
	assert_true(n > 20);
	assert_false(tcp_get(w, fd, &r));
	close(fd);
	world_free(w);
}

static void
upstream_failures_are_servfail(void **state)
{
	struct world *w = world_new();

	(void)state;
	assert_int_equal(ask(w, "fail.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	assert_int_equal(ask(w, "mute.allowed.test", TYPE_A)->rcode,
	    RCODE_SERVFAIL);
	world_free(w);
}

/* All that is recorded of it is the refusal: a record of what was allowed
 * would have been written too soon. */
static void
an_answer_that_cannot_be_pinned_is_not_told(void **state)
{
	const struct record *got;
	struct record last = { 0 };
	uint64_t lost = 0;
	struct world *w;
	struct reply *r;
	unsigned n = 0;

	(void)state;
	pin_names_max = 4;		/* fewer places than addresses */
	w = world_new();
	pin_names_max = 256;
	r = ask_sized(w, "big.allowed.test", TYPE_A, 1232);
	assert_int_equal(r->rcode, RCODE_SERVFAIL);
	assert_int_equal(r->answers, 0);
	while ((got = emit_next(w->reader, &lost)) != NULL) {
		assert_int_equal(got->verdict, VERDICT_DENY);
		last = *got;
		n++;
	}
	assert_int_equal(n, 1);
	assert_int_equal(last.reason, REASON_LIMIT_TOTAL);
	assert_non_null(memmem(r->b, r->len, "limit_total", 11));
	assert_int_equal(count_denied_sum(w->counts, REASON_LIMIT_TOTAL), 1);
	assert_false(pinned(w, "big.allowed.test", "9.8.7.1"));
	world_free(w);
}

static void
without_a_policy_everything_is_refused(void **state)
{
	struct world *w = world_new();
	struct reply *r;

	(void)state;
	front_set_policy(w->front, NULL);
	r = ask(w, "x2.wild.test", TYPE_A);
	assert_int_equal(r->rcode, RCODE_REFUSED);
	assert_int_equal(asked("x2.wild.test"), 0);
	front_set_policy(w->front, w->one.policy);
	assert_int_equal(ask(w, "x2.wild.test", TYPE_A)->answers, 1);
	world_free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    an_allowed_name_is_answered_and_pinned_before_the_answer),
		cmocka_unit_test(
		    B049_W6_a_name_that_is_not_allowed_never_leaves),
		cmocka_unit_test(
		    N17_our_own_no_has_the_shape_that_resolvers_expect),
		cmocka_unit_test(
		    B044_N14_an_answer_fits_the_client_or_is_asked_for_over_tcp),
		cmocka_unit_test(N13_one_connection_carries_many_questions),
		cmocka_unit_test(N13_what_came_before_a_half_close_is_answered),
		cmocka_unit_test(N13_failures_at_once_do_not_garble_the_rest),
		cmocka_unit_test(two_bytes_and_silence_end_at_the_idle_limit),
		cmocka_unit_test(
		    a_client_that_reads_nothing_is_not_served_for_ever),
		cmocka_unit_test(a_client_that_reads_late_gets_every_answer),
		cmocka_unit_test(B046_the_case_of_a_question_is_kept),
		cmocka_unit_test(an_allowed_name_does_not_lead_inside),
		cmocka_unit_test(under_ipv6_drop_aaaa_is_no_data),
		cmocka_unit_test(other_forms_are_told_so),
		cmocka_unit_test(equal_refusals_are_one_record),
		cmocka_unit_test(an_answered_question_is_a_record),
		cmocka_unit_test(
		    an_answer_that_cannot_be_recorded_is_not_given),
		cmocka_unit_test(one_client_does_not_take_every_connection),
		cmocka_unit_test(a_full_table_makes_room_for_who_has_less),
		cmocka_unit_test(
		    who_dribbles_has_no_more_time_than_who_is_silent),
		cmocka_unit_test(without_a_recorder_nothing_is_asked),
		cmocka_unit_test(upstream_failures_are_servfail),
		cmocka_unit_test(an_answer_that_cannot_be_pinned_is_not_told),
		cmocka_unit_test(without_a_policy_everything_is_refused),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
