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

/*
 * Read such a file whole: its bytes go to `take` piece by piece and in order,
 * as long as that returns 0.  0, what `take` returned, as beneath_open, or
 * -EBADF for what is no regular file, -EFBIG above max, -EIO when it was
 * shortened meanwhile.
 */
MUST_USE int beneath_read(int dir, const char *name, size_t max,
    int (*take)(void *to, struct span piece), void *to);

#endif
