/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_BUILD_H
#define POLICY_BUILD_H

#include "policy/image.h"

/* policy_build does its work here: the same contract, and the same result in
 * the writer. */
MUST_USE int build_image(const struct policy_source *src,
    struct image_writer *w, struct problems *ps);

#endif
