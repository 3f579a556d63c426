/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_OWN_H
#define SIDECAR_OWN_H

#include "policy/policy.h"
#include "sidecar/settings.h"

/*
 * What this host is: its interfaces' addresses and penstock's listeners,
 * which nobody dials through us, and the next hops of its default routes,
 * which no name opens.  In the form that a policy takes: the gateways last.
 */
struct own {
	struct endpoint at[POLICY_OWN_MAX];
	size_t n, n_gateways;
};

/*
 * Ask the kernel; sorted, each once, so that equal lists are equal bytes.  0,
 * -E2BIG when there are more than a policy holds, or another -errno.
 */
MUST_USE int own_list(struct own *o);

/*
 * An address that this interface has, of one family and not a link-local one;
 * when `near` is not NULL, one on whose network that is.  False: it has none.
 */
MUST_USE bool own_address(const char *interface, bool v6,
    const struct addr *near, struct addr *out);

/* And the listeners of these settings; 0 or -E2BIG. */
MUST_USE int own_add(struct own *o, const struct settings *s);

#endif
