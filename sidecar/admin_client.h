/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_ADMIN_CLIENT_H
#define SIDECAR_ADMIN_CLIENT_H

#include "sidecar/settings.h"
#include "sidecar/verb.h"

/*
 * How the verbs reach the role admin of a running daemon: "ADDRESS:PORT" or
 * "unix:PATH", from --admin or from the `admin:` of a penstock.yaml.
 */
#define ADMIN_CLIENT_BODY_BYTES 524288u

/* The rows of struct verb_option for a verb that asks the daemon; `a` has
 * the texts admin and config. */
#define ADMIN_CLIENT_OPTIONS(a) \
	{ "admin", 0, "WHERE", "the daemon's listener, ADDRESS:PORT or " \
	    "unix:PATH", .text = &(a)->admin }, \
	{ "config", 'c', "FILE", "else its configuration, or " VERB_CONFIG, \
	    .text = &(a)->config }

/*
 * Where the daemon listens: *admin as it is, or, when NULL, as the
 * configuration says, in memory that stays until the next call.  0, or an
 * exit status after a message on stderr.
 */
MUST_USE int admin_client_where(const char **admin, const char *config);

/*
 * GET a path.  Returns the HTTP status with the body, terminated, in out; or
 * a negative errno.  Waits 5 s at most, whatever the other side does.
 */
MUST_USE int admin_client_get(const char *admin, const char *path,
    char out[static ADMIN_CLIENT_BODY_BYTES]);

/* POST to it, with nothing but the path; otherwise the same. */
MUST_USE int admin_client_post(const char *admin, const char *path,
    char out[static ADMIN_CLIENT_BODY_BYTES]);
/* What the daemon says to a status other than 200: on stderr, as the exit
 * status to end with. */
MUST_USE int admin_client_refused(const char *verb, const char *admin,
    int status, const char *body);
/* As a value of a query. */
#define ADMIN_CLIENT_VALUE_BYTES (3u * 255u + 1)
void admin_client_value(const char *text,
    char out[static ADMIN_CLIENT_VALUE_BYTES]);

/* Words on stderr for a result other than the one that was wanted. */
void admin_client_say(const char *verb, const char *admin, int rc);

#endif
