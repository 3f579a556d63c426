/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_ADMIN_PART_H
#define SIDECAR_ADMIN_PART_H

/* The role admin, for admin.c and admin_dns.c only. */
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "dns/pin.h"
#include "proxy/http.h"
#include "sidecar/admin.h"
#include "sidecar/figures.h"
#include "sidecar/role.h"

#define ADMIN_BODY_BYTES (1u << 19)

struct admin_conn;

struct admin {
	struct role *role;
	struct health_page *health;
	struct figures_page *figures;	/* NULL: not given */
	struct pins *pins;		/* NULL: no resolver was there yet */
	struct event *flushed;		/* on the pair with the resolver; NULL:
					 * there is none */
	uint64_t flush_number;		/* of the last order */
	uid_t daemon;			/* of the start */
	struct event *accept;
	int fd;
	unsigned n;
	struct admin_conn *conns;
	size_t len;
	char body[ADMIN_BODY_BYTES];
};

struct admin_conn {
	struct admin *admin;
	struct admin_conn *next, **prev;
	struct bufferevent *bev;
	struct event *limit;	/* from its accept to its end */
	size_t scanned;
	uint64_t waits_for;	/* number of an order; 0: none */
	bool answered;
};

/* ---- admin.c ---- */
/* At the end of the body; what does not fit is cut. */
__attribute__((format(printf, 2, 3)))
void admin_say(struct admin *a, const char *fmt, ...);
/* Text of others as a JSON string. */
void admin_say_text(struct admin *a, struct span text);
/* The body, once for each connection. */
void admin_reply(struct admin_conn *c, unsigned status, const char *type,
    bool head_only);
bool admin_is_path(const struct http_request *rq, const char *path);

/* ---- admin_dns.c: what concerns DNS ---- */
/* After admin_start's own; 0 or -errno. */
MUST_USE int admin_dns_start(struct admin *a);
void admin_dns_stop(struct admin *a);
/* GIVE_PINS or GIVE_FLUSH that came later; owned. */
void admin_dns_gift(struct admin *a, enum give what, int fd);
void admin_dns_metrics(struct admin *a, bool openmetrics);
/* /status/dns, with the cells for whoever may know of them.  Returns the
 * status. */
unsigned admin_dns_status(const struct admin_conn *c);
/* /pins and /cache/flush, which not everybody may.  True: it is answered, or
 * will be. */
bool admin_dns_guarded(struct admin_conn *c, const struct http_request *rq);

#endif
