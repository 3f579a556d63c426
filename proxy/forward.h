/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_FORWARD_H
#define PROXY_FORWARD_H

#include "proxy/conn.h"
#include "proxy/http.h"

/*
 * Plain HTTP requests on one client connection: each is judged on its own
 * (NAME, DECIDE), sent in origin form, answered, and the next one begins at
 * NAME again.  An upstream connection is kept for a next request to the same
 * place.
 */
#define FORWARD_STATE_BYTES 1024u
#define FORWARD_BODY_BYTES 65536u	/* that wait in one direction at most */
#define FORWARD_HEAD_MORE_BYTES 512u	/* a head written out is no longer */

/* NAME: a request begins.  It has its number from its first byte on, so that a
 * refusal of what is no whole request has one too; inside a tunnel what was
 * told of the CONNECT ends here. */
void forward_begin(struct conn *c);
/* NAME: read a request or CONNECT head from c->in. */
MUST_USE enum parse forward_head(struct conn *c, enum reason *why);
/* NAME: a request that was not judged is refused: what can be read of it is
 * what it has shown. */
void forward_glance(struct conn *c);
/* NAME: what could have become a request is none, and has no number. */
void forward_no_request(struct conn *c);
/* DECIDE: may the upstream connection at hand serve this request? */
bool forward_reuses(const struct conn *c);
/* DIAL: a new upstream connection is there. */
void forward_dialled(struct conn *c);
/* RELAY */
enum step forward_step(struct conn *c);
unsigned forward_wants(const struct conn *c, bool client);
/* True once a part of an answer to this request was written. */
bool forward_answered(const struct conn *c);
/* Now and then, while the answer is waited for: has the client left?  May end
 * and free the connection. */
void forward_look_at_client(struct conn *c);
void forward_free(struct conn *c);

#endif
