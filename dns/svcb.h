/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_SVCB_H
#define DNS_SVCB_H

#include "dns/answer.h"

/*
 * An answer of type SVCB or HTTPS (RFC 9460 2.2) without the parameter `ech`,
 * whose keys let a client hide the name that it connects to.  What cannot be
 * read is left out.
 */
void svcb_strip_ech(const struct answer *from, union answer_room *to);

#endif
