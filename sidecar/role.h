/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_ROLE_H
#define SIDECAR_ROLE_H

#include <event2/event.h>

#include "policy/policy.h"
#include "sidecar/settings.h"

/*
 * What every role is handed when it starts: its index, its socket to the
 * parent, and the descriptors and memory that its kind needs.  A role file
 * is the event loop of one kind of process and nothing else.
 */
enum role_kind {
	ROLE_PARENT = 0, ROLE_COMPILE, ROLE_RESOLVER, ROLE_ENGINE,
	ROLE_RECORDER, ROLE_ADMIN,
	ROLE_COUNT,
};

const char *role_word(enum role_kind k);

#endif
