/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_ADMIN_CLIENT_H
#define SIDECAR_ADMIN_CLIENT_H

#include "sidecar/settings.h"

/*
 * How the verbs reach the role admin of a running daemon: "ADDRESS:PORT" or
 * "unix:PATH", from --admin or from the `admin:` of a penstock.yaml.
 */
#define ADMIN_CLIENT_BODY_BYTES 131072u

/* Fill *s from the configuration file.  0, or an exit status after a message
 * on stderr. */
MUST_USE int admin_client_settings(const char *config, struct settings *s);

/*
 * GET a path.  Returns the HTTP status with the body, terminated, in out; or
 * a negative errno.  Waits 5 s at most.
 */
MUST_USE int admin_client_get(const char *admin, const char *path,
    char out[static ADMIN_CLIENT_BODY_BYTES]);

#endif
