/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_RULES_H
#define SIDECAR_RULES_H

#include "sidecar/settings.h"

/*
 * The kernel's part of the gate: one nftables table, "inet penstock", that
 * sends what the agent opens to the listeners and drops the rest; in gateway
 * mode also a routing rule for each of the agents' interfaces and one local route
 * for each family.  libnftables is opened where it is used, so that no role
 * maps it.
 */
#define RULES_TABLE "penstock"
#define RULES_UIDS_MAX 8u
#define RULES_TEXT_BYTES 16384u
#define RULES_WHY_BYTES 512u
#define RULES_MARK 0x1u			/* gateway: goes to the listener */
#define RULES_ROUTE_TABLE 15001u
#define RULES_ROUTE_PRIORITY 100u

struct rules_spec {
	enum settings_mode mode;	/* shared or gateway */
	uid_t uids[RULES_UIDS_MAX];	/* shared: exempt */
	size_t n_uids;
	uint16_t tcp_port, dns_port;
	uint16_t dns_more[4];	/* gateway: where else questions are taken */
	size_t n_dns_more;
	char interfaces[8][16];		/* gateway: the agents' side */
	size_t n_interfaces;
	bool ipv6_drop;
	uint16_t inbound[SETTINGS_INBOUND_MAX];	/* shared: served */
	size_t n_inbound;
	uint16_t admin_port;		/* shared: closed to the agent; 0 */
	/* gateway: where clients connect by themselves */
	struct endpoint offered[SETTINGS_LISTENERS_MAX];
	size_t n_offered;
};

/* What stands when nothing is said, for shared or gateway. */
void rules_default(struct rules_spec *r, enum settings_mode mode);

/* The rules that these settings need. */
void rules_from_settings(struct rules_spec *r, const struct settings *s);

/* True when rules can be made of it; otherwise `why` says what is missing. */
MUST_USE bool rules_valid(const struct rules_spec *r, char *why, size_t size);

/* rules_text.c: the rule set as nft(8) reads it, NUL-terminated; its length, or -ENOSPC. */
MUST_USE int rules_text(const struct rules_spec *r, char *out, size_t size);

/* The same for a table of another name that is switched off (dormant: not
 * hooked). */
MUST_USE int rules_text_beside(const struct rules_spec *r, const char *table,
    char *out, size_t size);

/*
 * Load in one transaction, replacing what an earlier call loaded, set the
 * gateway's routes, read everything back and compare.  0, or -errno with one
 * line in `why`: -EPERM (no CAP_NET_ADMIN), -ENOPKG (no libnftables),
 * -EBADMSG (what was read back is not what was loaded), -EINVAL.
 */
MUST_USE int rules_apply(const struct rules_spec *r, char *why, size_t size);

/* The same comparison alone: 0 when exactly these rules stand; -ENOENT when
 * there are none, -EBADMSG with the name of the rule that differs. */
MUST_USE int rules_check(const struct rules_spec *r, char *why, size_t size);

/* The same again and again, over one context of libnftables that is opened
 * before a process is confined.  What stood once as it should is remembered,
 * so that a comparison which finds it again changes nothing in the kernel. */
struct rules_watch;
MUST_USE int rules_watch_new(struct rules_watch **out, char *why,
    size_t size);
void rules_watch_free(struct rules_watch *w);
MUST_USE int rules_watch_check(struct rules_watch *w,
    const struct rules_spec *r, char *why, size_t size);

/* Take away all that any mode loads; nothing there is success. */
MUST_USE int rules_remove(char *why, size_t size);

/* rules_route.c: the gateway's routing rules, one for each of the agents'
 * interfaces, and its local route, v4 and v6.  A kernel or namespace without
 * IPv6 counts as done.  Those of any interface are removed. */
MUST_USE int rules_route_add(const struct rules_spec *r, char *why,
    size_t size);
MUST_USE int rules_route_check(const struct rules_spec *r, char *why,
    size_t size);
MUST_USE int rules_route_remove(char *why, size_t size);
/* -EPROTO with a reason while the kernel forwards packets by itself. */
MUST_USE int rules_route_forwarding(char *why, size_t size);

#endif
