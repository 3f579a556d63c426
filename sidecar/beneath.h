/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_BENEATH_H
#define SIDECAR_BENEATH_H

#include "policy/span.h"

/*
 * Open a file for reading that lies beneath a directory: symbolic links are
 * followed, but never out of it, whoever changes them meanwhile.  As
 * openat2(2) with RESOLVE_BENEATH, which service managers and containers
 * take away (RestrictSUIDSGID= in systemd.exec(5)), since a filter cannot
 * see its flags; of openat(2) ours can, and lets compile read only.
 *
 * A descriptor, -EXDEV for what leads out, or another -errno.  A FIFO is
 * opened without waiting.
 */
MUST_USE int beneath_open(int dir, const char *name);

#endif
