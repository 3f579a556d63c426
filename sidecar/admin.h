/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_ADMIN_H
#define SIDECAR_ADMIN_H

#include "sidecar/health.h"

/*
 * The checks of /readyz, /metrics and alerts: one enum with one word each.
 * `effect` says what a failing check does to traffic.  Without LIVE the parent
 * hangs, and the others are as it told them last.
 *
 * X(name, word, effect)
 */
#define ADMIN_CHECKS(X) \
X(SERVING, "serving", "closed") \
X(POLICY, "policy", "closed") \
X(ENGINES, "engines", "closed") \
X(RESOLVER, "resolver", "closed") \
X(RECORDER, "recorder", "closed") \
X(RULES, "rules", "open") \
X(NOT_DRAINING, "not_draining", "closed") \
X(LIVE, "live", "none") \
X(POLICY_STALE, "policy_stale", "none") \
X(SETTINGS_CURRENT, "settings_current", "none") \
X(ENFORCING, "enforcing", "open")

enum admin_check {
#define X(name, word, effect) CHECK_##name,
	ADMIN_CHECKS(X)
#undef X
	CHECK_COUNT
};

const char *admin_check_word(enum admin_check c);
const char *admin_check_effect(enum admin_check c);
bool admin_check_ok(const struct health *h, enum admin_check c);
/* A refused newer policy, keys that wait for a new start and a mode that does
 * not enforce are told, but do not make the daemon unready. */
bool admin_is_ready(const struct health *h);

#endif
