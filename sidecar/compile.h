/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_COMPILE_H
#define SIDECAR_COMPILE_H

#include "policy/policy.h"
#include "policy/problem.h"
#include "sidecar/config.h"

/*
 * From a directory and a file name to an image: reads penstock.yaml and the
 * policies that it names, all beneath the directory, and compiles them.  The
 * role compile does it for the daemon; check, explain, test and diff call it
 * in their own process.
 */
#define COMPILE_FILES_MAX 1024u
#define COMPILE_FILE_BYTES (256u << 20)	/* one file, lists of names too */
#define COMPILE_LIMIT_MS 30000

struct compile;

/* The directory is borrowed. `name` NULL: config_sidecar_text.  Reads nothing
 * but the addresses and routes of this host: call it before confine_compile. */
MUST_USE int compile_new(struct compile **out, int dir, const char *name,
    const struct config_env *env);
/* Names in the problems live until here. */
void compile_free(struct compile *c);

/* 0 or -errno; -EINVAL means that `ps` says why. */
MUST_USE int compile_run(struct compile *c, uint64_t generation,
    int64_t now_s, struct problems *ps);

/* After compile_run: the image, and the digest of all sources. */
struct span compile_image(const struct compile *c);
/* The memory that the image was built in, as a memfd that nobody can change
 * any more, or -errno.  compile_image is empty from then on. */
MUST_USE int compile_sealed(struct compile *c);
const uint8_t *compile_digest(const struct compile *c);
const struct config *compile_config(const struct compile *c);

/* What the role tells the parent; descriptors: problems' text, and with
 * status 0 the image. */
struct ipc_compiled {
	int32_t status;		/* 0 or -errno */
	uint32_t errors, warnings;
	uint32_t used_env;	/* CONFIG_USED_* */
};

#endif
