/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_RTNL_H
#define SIDECAR_RTNL_H

#include <libmnl/libmnl.h>

#include "policy/span.h"

/*
 * One question to the kernel about addresses, routes or routing rules
 * (rtnetlink), and its answers, each handed to `cb`.  A dump that a change
 * interrupted is asked for again, so that the same answer may come twice.  0
 * or -errno.
 */
MUST_USE int rtnl_talk(struct nlmsghdr *h, mnl_cb_t cb, void *arg);

/*
 * A non-blocking socket that becomes readable when an address or a route of
 * this host comes or goes, or -errno.
 */
MUST_USE int rtnl_listen(void);
/* What was heard is not read: whoever wants to know asks. */
void rtnl_forget(int fd);

#endif
