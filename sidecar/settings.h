/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_SETTINGS_H
#define SIDECAR_SETTINGS_H

#include <sys/types.h>

#include "dns/front.h"
#include "proxy/proxy.h"

/*
 * penstock.yaml in its typed form: plain data without pointers, so that it
 * travels inside the compiled image (policy_settings) from the compile role
 * to every other.
 */
#define SETTINGS_VERSION 1u
#define SETTINGS_LISTENERS_MAX 32u
#define SETTINGS_PATH_BYTES 256u
#define SETTINGS_INBOUND_MAX 32u
#define SETTINGS_ZONES_MAX (RESOLVE_ZONES_MAX - 1u)

enum settings_mode {
	MODE_SHARED = 0, MODE_GATEWAY, MODE_ISOLATED, MODE_COOPERATIVE,
};

struct settings_listener {
	char name[32];
	enum listen_kind kind;
	struct endpoint at;
	bool credential;
};

struct settings_zone {
	struct host suffix;
	struct server servers[POLICY_RESOLVERS_MAX];
	uint32_t n_servers;
};

struct settings {
	uint32_t version;
	uint32_t size;			/* sizeof(struct settings) */
	enum settings_mode mode;
	struct settings_listener listeners[SETTINGS_LISTENERS_MAX];
	uint32_t n_listeners;
	struct endpoint dns[4];		/* where the front listens */
	uint32_t n_dns;
	char interfaces[8][16];		/* gateway: the agents' side */
	uint32_t n_interfaces;
	bool ipv6_drop;
	uint16_t inbound[SETTINGS_INBOUND_MAX];
	uint32_t n_inbound;
	struct proxy_limits limits;
	bool connections_asked;		/* limits.connections was written */
	struct front_settings front;	/* ipv6_drop is filled in later */
	uint32_t engines;		/* 0: as many as cores */
	uint32_t ring_bytes;		/* of each producer */
	char admin[SETTINGS_PATH_BYTES];	/* address:port | unix:PATH */
	char ledger_dir[SETTINGS_PATH_BYTES];	/* empty: stdout */
	uid_t uid_engine, uid_resolver, uid_recorder, uid_admin;
	uid_t uid_warden;	/* compile keeps the parent's: confine.h */
	uint32_t drain_timeout_ms;
	uint8_t log_level;
	bool accept_shared_segment;
	char instance[64];
	/* instead of the policy's, when given: by RUNEWARD_DNS_RESOLVERS, or
	 * by resolv.conf for resolvers: [system] */
	struct server resolvers[POLICY_RESOLVERS_MAX];
	uint32_t n_resolvers;
	bool resolvers_system;
	/* names that other resolvers are asked for */
	struct settings_zone zones[SETTINGS_ZONES_MAX];
	uint32_t n_zones;
	char tls_ca[SETTINGS_PATH_BYTES];	/* what tls:// resolvers are
						 * trusted by */
};

/* One uid for a role that keeps the parent's. */
#define SETTINGS_UID_KEEP ((uid_t)-1)

/* Zero, then what stands when a key is absent, for this mode. */
void settings_default(struct settings *s, enum settings_mode mode);

/* On all addresses of a gateway: of whoever comes in by one of `interfaces`,
 * and of nobody else. */
bool settings_for_agents(const struct settings *s,
    const struct settings_listener *l);

/* Is the agents' TCP led here whatever it is for? */
bool settings_captures(const struct settings *s);

/* Two descriptors a connection, a sixteenth for pipes and the rest: so many of
 * limits.connections have room in this many descriptors of each engine. */
unsigned settings_fit(const struct settings *s, uint64_t descriptors);

/* The settings inside a policy image; false when they are of another version
 * or out of bounds. */
MUST_USE bool settings_from(struct settings *out, const struct policy *p);

/*
 * Why it is not said that what the policy denies cannot be reached.  What
 * nothing looks at is not said to be enforced.
 *
 * X(name, why)
 */
#define SETTINGS_UNENFORCED(X) \
X(NOTHING, "") \
X(COOPERATIVE, "mode cooperative enforces nothing") \
X(NOT_PROVEN, "nothing checks that the agents' network reaches only penstock") \
X(REPORTS, "a cell only reports") \
X(NOT_STARTED, "no policy is in use") \
X(RULES_EXTERNAL, "the kernel's rules are somebody else's, and not looked at") \
X(RULES_LOST, "the kernel's rules do not stand")

enum settings_unenforced {
#define X(name, why) UNENFORCED_##name,
	SETTINGS_UNENFORCED(X)
#undef X
	UNENFORCED_COUNT
};

/* By mode and cells alone, so never RULES_*; UNENFORCED_NOTHING: it
 * enforces as far as these say. */
enum settings_unenforced settings_unenforced(const struct settings *s,
    const struct policy *p, int64_t now_s);
/* A few words; empty for UNENFORCED_NOTHING. */
const char *settings_unenforced_text(enum settings_unenforced why);

/* shared, gateway, isolated, cooperative. */
const char *settings_mode_word(enum settings_mode m);
MUST_USE bool settings_mode_parse(enum settings_mode *out, struct span text);

/* The key of the first difference that needs a new start (mode, listeners,
 * dns, ...), or NULL. */
const char *settings_fixed_difference(const struct settings *a,
    const struct settings *b);

/* Whatever needs a new start is in s as in `old`; the keys of it that differed,
 * with commas, are in keys (cut where there are more), which may be empty. */
#define SETTINGS_KEYS_BYTES 256u
void settings_keep_fixed(struct settings *s, const struct settings *old,
    char keys[static SETTINGS_KEYS_BYTES]);

#endif
