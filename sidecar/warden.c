/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "sidecar/role.h"
#include "sidecar/rules.h"

/*
 * The warden: compares the kernel's rules with the ones that should be there,
 * in intervals and soon after anybody changed some, and tells the parent.  It
 * holds CAP_NET_ADMIN, hears nothing but the kernel and repairs nothing: who
 * took the rules away had a reason, and readiness is what failed.
 */
#define SOON_MS 200		/* many changes, one comparison */

struct warden {
	struct role *role;
	struct rules_watch *watch;
	struct rules_spec spec;
	struct event *timer, *changed, *soon;
	int fd;			/* what was changed, by the kernel */
};

/* Changes are heard, not read; what our own comparison changed too. */
static void
forget_changes(struct warden *w)
{
	char buf[8192];

	while (recv(w->fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC) > 0 ||
	    errno == ENOBUFS || errno == EINTR)
		errno = 0;
}

static void
look(struct warden *w)
{
	struct ipc_rules told = { 0 };
	int rc = rules_watch_check(w->watch, &w->spec, told.why,
	    sizeof(told.why));

	told.ok = rc == 0;
	rc = ipc_send(w->role->parent, IPC_RULES, span_of(&told,
	    sizeof(told)), NULL, 0);
	if (rc != 0 && rc != -EPIPE)
		log_line(LOG_WARN, "the parent does not read error=%s",
		    strerror(-rc));
	forget_changes(w);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	look(arg);
}

static void
on_changed(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval soon = { .tv_usec = SOON_MS * 1000 };
	struct warden *w = arg;

	(void)fd;
	(void)what;
	forget_changes(w);
	if (!evtimer_pending(w->soon, NULL) && event_add(w->soon, &soon) != 0)
		role_fail(w->role);
}

static int
listen_for_changes(struct warden *w)
{
	struct sockaddr_nl at = { .nl_family = AF_NETLINK };
	const int group = NFNLGRP_NFTABLES;

	w->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
	    NETLINK_NETFILTER);
	if (w->fd < 0 ||
	    bind(w->fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    setsockopt(w->fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group,
	    sizeof(group)) != 0)
		return -errno;
	return 0;
}

static int
make_events(struct role *r, struct warden *w)
{
	const struct timeval each = { .tv_sec = WARDEN_MS / 1000 };

	w->timer = event_new(r->base, -1, EV_PERSIST, on_timer, w);
	w->soon = evtimer_new(r->base, on_timer, w);
	w->changed = event_new(r->base, w->fd, EV_READ | EV_PERSIST,
	    on_changed, w);
	if (w->timer == NULL || w->soon == NULL || w->changed == NULL ||
	    event_add(w->timer, &each) != 0 ||
	    event_add(w->changed, NULL) != 0)
		return -ENOMEM;
	return 0;
}

static int
warden_start(struct role *r)
{
	struct warden *w = calloc(1, sizeof(*w));
	char why[RULES_WHY_BYTES] = "";
	int rc;

	if (w == NULL)
		return -ENOMEM;
	r->self = w;
	w->role = r;
	rules_from_settings(&w->spec, &r->settings);
	rc = rules_watch_new(&w->watch, why, sizeof(why));
	if (rc != 0)
		log_line(LOG_ERROR_, "%s", why);
	if (rc == 0)
		rc = listen_for_changes(w);
	if (rc == 0)
		rc = make_events(r, w);
	if (rc == 0)
		look(w);
	return rc;
}

static void
warden_policy(struct role *r, const struct policy *old)
{
	struct warden *w = r->self;

	(void)old;
	rules_from_settings(&w->spec, &r->settings);
	look(w);
}

static void
warden_order(struct role *r, enum ipc_type order)
{
	if (order == IPC_STOP)
		role_end(r);
}

const struct role_ops warden_ops = {
	.start = warden_start,
	.policy = warden_policy,
	.order = warden_order,
};
