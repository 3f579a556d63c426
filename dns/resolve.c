/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolve.h"

#include <ares.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#include "ledger-client/clock.h"
#include "policy/policy.h"

#define BUCKETS 1024u
#define PENDING_MAX 4096u

/* One name and type that is being asked for, and everyone who waits. */
struct job {
	struct resolve *resolve;
	struct job *next, **prev;	/* of the bucket */
	struct host name;		/* asked for */
	struct host at;			/* the alias that was come to */
	char cell[POLICY_ID_BYTES];	/* that asked first */
	uint16_t type;
	struct answer *answer;		/* so far; NULL: none */
	struct endpoint server;
	unsigned tries;
	uint64_t us;
	struct resolve_call *first, **last;
	struct event *finish;		/* answers are given from the loop */
};

struct resolve_call {
	struct job *job;
	struct resolve_call *next, **prev;
	resolve_done *done;
	void *arg;
};

struct resolve {
	struct event_base *base;
	struct resolve_settings settings;
	struct upstream *zones[RESOLVE_ZONES_MAX];
	struct cache *cache;
	struct job *buckets[BUCKETS];
	unsigned pending;
	union answer_room room;
};

static void ask(struct job *j);

/* ---- servers ---- */

static void
close_zones(struct upstream **zones)
{
	for (size_t i = 0; i < RESOLVE_ZONES_MAX; i++) {
		upstream_free(zones[i]);
		zones[i] = NULL;
	}
}

static int
open_zones(struct event_base *base, const struct resolve_settings *s,
    struct upstream **zones)
{
	int rc = s->n_zones > 0 && s->n_zones <= RESOLVE_ZONES_MAX &&
	    s->zones[0].suffix.len == 0 ? 0 : -EINVAL;

	for (size_t i = 0; rc == 0 && i < s->n_zones; i++)
		rc = upstream_new(&zones[i], base, &s->zones[i].servers);
	if (rc != 0)
		close_zones(zones);
	return rc;
}

static void
defaults(struct resolve_settings *s)
{
	if (s->pending_max == 0)
		s->pending_max = PENDING_MAX;
}

/* The deepest zone that the name lies in. */
static size_t
zone_by(const struct resolve_settings *s, const struct host *name)
{
	size_t best = 0;

	for (size_t i = 1; i < s->n_zones; i++) {
		const struct host *z = &s->zones[i].suffix;

		if (z->len > s->zones[best].suffix.len &&
		    (host_eq(name, z) || host_under(name, z)))
			best = i;
	}
	return best;
}

static size_t
zone_of(const struct resolve *r, const struct host *name)
{
	return zone_by(&r->settings, name);
}

static bool
has_server(const struct upstream_settings *s, const struct server *is)
{
	for (size_t i = 0; i < s->n_servers; i++)
		if (server_eq(&s->servers[i], is))
			return true;
	return false;
}

/* A server of the one is none of the other. */
static bool
misses(const struct upstream_settings *now,
    const struct upstream_settings *then)
{
	for (size_t i = 0; i < now->n_servers; i++)
		if (!has_server(then, &now->servers[i]))
			return true;
	return false;
}

bool
resolve_forsakes(const struct resolve *r, const struct resolve_settings *s,
    const struct host *name)
{
	size_t now = zone_of(r, name);

	/* an alias may have led out of the zone: see may_follow */
	return misses(&r->settings.zones[now].servers,
	    &s->zones[zone_by(s, name)].servers) || (now > 0 &&
	    misses(&r->settings.zones[0].servers, &s->zones[0].servers));
}

static void
hash_zone(crypto_generichash_state *h, const struct resolve_zone *z)
{
	char text[SERVER_TEXT_BYTES];

	crypto_generichash_update(h, (const uint8_t *)z->suffix.name,
	    z->suffix.len);
	for (size_t i = 0; i < z->servers.n_servers; i++) {
		server_text(&z->servers.servers[i], text);
		crypto_generichash_update(h, (const uint8_t *)" ", 1);
		crypto_generichash_update(h, (const uint8_t *)text,
		    strlen(text));
	}
	crypto_generichash_update(h, (const uint8_t *)"\n", 1);
}

uint64_t
resolve_source(const struct resolve_settings *s)
{
	uint8_t out[crypto_generichash_BYTES_MIN];
	crypto_generichash_state h;
	uint64_t n;

	crypto_generichash_init(&h, NULL, 0, sizeof(out));
	for (size_t i = 0; i < s->n_zones; i++)
		hash_zone(&h, &s->zones[i]);
	crypto_generichash_final(&h, out, sizeof(out));
	memcpy(&n, out, sizeof(n));
	return n;
}

int
resolve_new(struct resolve **out, struct event_base *base,
    const struct resolve_settings *s, struct cache *cache)
{
	struct resolve *r;
	int rc;

	if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
		return -ENOMEM;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->base = base;
	r->cache = cache;
	r->settings = *s;
	defaults(&r->settings);
	rc = open_zones(base, s, r->zones);
	if (rc != 0) {
		resolve_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

static void
job_unlink(struct job *j)
{
	*j->prev = j->next;
	if (j->next != NULL)
		j->next->prev = j->prev;
	j->resolve->pending--;
}

static void
job_free(struct job *j)
{
	event_free(j->finish);
	free(j->answer);
	free(j);
}

void
resolve_free(struct resolve *r)
{
	if (r == NULL)
		return;
	close_zones(r->zones);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (r->buckets[i] != NULL) {
			struct job *j = r->buckets[i];

			while (j->first != NULL)
				resolve_cancel(j->first);
			job_unlink(j);
			job_free(j);
		}
	ares_library_cleanup();
	free(r);
}

static void
ask_all_again(struct resolve *r)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct job *j = r->buckets[i]; j != NULL; j = j->next) {
			event_del(j->finish);
			free(j->answer);
			j->answer = NULL;
			j->at = j->name;
			j->tries = 0;
			ask(j);
		}
}

int
resolve_reconfigure(struct resolve *r, const struct resolve_settings *s)
{
	struct upstream *zones[RESOLVE_ZONES_MAX] = { NULL };
	struct resolve_settings now = *s;
	int rc;

	defaults(&now);
	if (memcmp(&now, &r->settings, sizeof(now)) == 0)
		return 0;
	rc = open_zones(r->base, &now, zones);
	if (rc != 0)
		return rc;
	close_zones(r->zones);
	memcpy(r->zones, zones, sizeof(zones));
	r->settings = now;
	cache_flush(r->cache, NULL);
	ask_all_again(r);
	return 0;
}

/* ---- jobs ---- */

static struct answer *
copy_of(const struct answer *a)
{
	struct answer *copy = malloc(answer_bytes(a));

	if (copy != NULL)
		memcpy(copy, a, answer_bytes(a));
	return copy;
}

static void
give(struct job *j)
{
	event_active(j->finish, EV_TIMEOUT, 0);
}

static void
read_reply(struct job *j, const struct upstream_answer *got)
{
	union answer_room *room = &j->resolve->room;
	bool more = j->answer != NULL;

	if (got->reason != REASON_NONE) {
		answer_none(&room->answer, j->type, got->reason);
		return;
	}
	if (more)
		memcpy(room, j->answer, answer_bytes(j->answer));
	if (!answer_read(got->msg, &j->at, j->type, more, room))
		answer_none(&room->answer, j->type, REASON_DNS_SERVFAIL);
}

/* Out of a zone an alias may lead, not into one: whoever answers for the name
 * that was allowed would else have us ask servers that he cannot reach, for a
 * name that he chose. */
static bool
may_follow(const struct job *j)
{
	size_t zone = zone_of(j->resolve, &j->at);

	return zone == 0 || zone == zone_of(j->resolve, &j->name);
}

/* The servers left an alias open, and it is followed. */
static bool
goes_on(struct job *j)
{
	if (j->answer == NULL || !j->answer->unfinished ||
	    !answer_last_link(j->answer, &j->at))
		return false;
	if (may_follow(j) && j->tries < RESOLVE_TRIES_MAX)
		return true;
	answer_none(j->answer, j->type, REASON_DNS_SERVFAIL);
	return false;
}

static void
on_answer(void *arg, const struct upstream_answer *got)
{
	struct job *j = arg;
	size_t zone = zone_of(j->resolve, &j->at);

	read_reply(j, got);
	free(j->answer);
	j->answer = copy_of(&j->resolve->room.answer);
	j->server = j->resolve->settings.zones[zone].servers.servers[
	    got->server].at;
	j->tries += got->tries;
	j->us += got->us;
	if (goes_on(j))
		ask(j);
	else
		give(j);
}

static void
ask(struct job *j)
{
	struct resolve *r = j->resolve;

	if (r->settings.counts != NULL)
		count_add(r->settings.counts, COUNT_DNS_UPSTREAM, 1);
	upstream_ask(r->zones[zone_of(r, &j->at)], &j->at, j->type,
	    on_answer, j);
}

/* ---- giving answers ---- */

static void
on_finish(evutil_socket_t fd, short what, void *arg)
{
	static struct answer no_memory = { .reason = REASON_LIMIT_MEMORY };
	struct job *j = arg;
	struct resolve_answer a = {
		.records = j->answer != NULL ? j->answer : &no_memory,
		.server = j->server, .tries = j->tries, .us = j->us,
	};

	(void)fd;
	(void)what;
	a.ttl_s = cache_live_s(a.records);
	if (j->answer != NULL)
		cache_put(j->resolve->cache, span_str(j->cell), &j->name,
		    j->answer, clock_mono_ms());
	job_unlink(j);
	while (j->first != NULL) {
		struct resolve_call *c = j->first;
		resolve_done *done = c->done;
		void *user = c->arg;

		resolve_cancel(c);
		done(user, &a);
	}
	job_free(j);
}

static struct job **
bucket(struct resolve *r, const struct host *name, uint16_t type)
{
	uint32_t h = 5381u + type;

	for (size_t i = 0; i < name->len; i++)
		h = h * 33 + (uint8_t)name->name[i];
	return &r->buckets[h % BUCKETS];
}

static struct job *
job_new(struct resolve *r, struct span cell, const struct host *name,
    uint16_t type, enum reason *why)
{
	struct job *j, **head = bucket(r, name, type);

	*why = REASON_LIMIT_TOTAL;
	if (r->pending >= r->settings.pending_max)
		return NULL;
	*why = REASON_LIMIT_MEMORY;
	j = calloc(1, sizeof(*j));
	if (j == NULL)
		return NULL;
	j->finish = event_new(r->base, -1, 0, on_finish, j);
	if (j->finish == NULL) {
		free(j);
		return NULL;
	}
	j->resolve = r;
	j->name = j->at = *name;
	if (cell.len > 0 && cell.len < sizeof(j->cell))
		memcpy(j->cell, cell.data, cell.len);
	j->type = type;
	j->last = &j->first;
	j->next = *head;
	if (j->next != NULL)
		j->next->prev = &j->next;
	j->prev = head;
	*head = j;
	r->pending++;
	ask(j);
	return j;
}

bool
resolve_cached(struct resolve *r, const struct host *name, uint16_t type,
    struct resolve_answer *out)
{
	*out = (struct resolve_answer){ .cached = true };
	out->records = cache_get(r->cache, name, type, clock_mono_ms(),
	    &out->ttl_s);
	return out->records != NULL;
}

struct resolve_call *
resolve_start(struct resolve *r, struct span cell, const struct host *name,
    uint16_t type, resolve_done *done, void *arg, enum reason *why)
{
	struct job *j = *bucket(r, name, type);
	struct resolve_call *c = calloc(1, sizeof(*c));

	*why = REASON_LIMIT_MEMORY;
	if (c == NULL)
		return NULL;
	while (j != NULL && (j->type != type || !host_eq(&j->name, name)))
		j = j->next;
	if (j == NULL)
		j = job_new(r, cell, name, type, why);
	if (j == NULL) {
		free(c);
		return NULL;
	}
	*c = (struct resolve_call){ .job = j, .prev = j->last, .done = done,
	    .arg = arg };
	*j->last = c;
	j->last = &c->next;
	return c;
}

void
resolve_cancel(struct resolve_call *c)
{
	*c->prev = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	else
		c->job->last = c->prev;
	free(c);
}

size_t
resolve_states(const struct resolve *r, size_t zone, struct host *suffix,
    struct upstream_state out[static UPSTREAM_SERVERS_MAX])
{
	if (zone >= r->settings.n_zones)
		return 0;
	*suffix = r->settings.zones[zone].suffix;
	return upstream_states(r->zones[zone], out);
}

unsigned
resolve_pending(const struct resolve *r)
{
	return r->pending;
}
