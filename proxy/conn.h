/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_CONN_H
#define PROXY_CONN_H

#include <event2/event.h>
#include <sys/queue.h>

#include "ledger-client/record.h"
#include "proxy/buf.h"
#include "proxy/flight.h"
#include "proxy/hello.h"
#include "proxy/limit.h"
#include "proxy/opening.h"
#include "proxy/proxy.h"
#include "proxy/side.h"
#include "proxy/watch.h"

/*
 * The life of one connection, private to this layer.  The states stand in the
 * order of life; a request on a kept HTTP connection, and the first bytes
 * inside a CONNECT tunnel, begin again at NAME.
 */
enum conn_state {
	CONN_NAME,	/* read until the client has shown where it goes */
	CONN_DECIDE,	/* ask the policy */
	CONN_RESOLVE,	/* the addresses, each judged; then the record */
	CONN_DIAL,	/* connect to one of them */
	CONN_RELAY,	/* both ways, or HTTP messages */
	CONN_END,	/* tell, drain, close */
	CONN_STATES
};

enum step { STEP_NEXT, STEP_WAIT, STEP_GONE };

/* What the client has shown. */
enum shown {
	SHOWN_NOTHING,	/* opaque: nothing was waited for */
	SHOWN_HELLO,
	SHOWN_BYTES,	/* neither TLS nor HTTP */
	SHOWN_REQUEST,
	SHOWN_CONNECT,
};

/* Why the client's bytes do not simply pass in RELAY. */
enum gate {
	GATE_OPEN,
	GATE_OPAQUE,	/* first bytes of an opaque flow: no other name */
	GATE_WATCH,	/* another protocol, which may go over to TLS */
	GATE_HELLO,	/* it does: a hello is being read */
	GATE_FLIGHT,	/* the server's first flight is not yet known */
	GATE_RETRY,	/* a second hello must carry the same name */
};

struct pipes_pair {
	int rd, wr;
	unsigned bytes;			/* as F_GETPIPE_SZ says */
	struct pipes_pair *next;
};

#define DIAL_TRIES_MAX 4u	/* attempts at the same time */

struct dial_try {
	int fd;
	struct endpoint to;
	uint32_t events;	/* EPOLL bits; 0: under way */
	uint8_t tag;
};

/* The sockets of a connection in proxy/watch: the client's, and each attempt
 * at the way up, one of which becomes it.  Attempts take the tags behind the
 * client's in turn: an edge of a socket that was closed in the same turn must
 * not be taken for one of its successor. */
#define TAG_CLIENT 0u
_Static_assert(2 * DIAL_TRIES_MAX < WATCH_TAGS, "old ones and new ones");

/* What is needed until the relay runs, and then given back. */
struct opening {
	TAILQ_ENTRY(opening) untold;
	struct conn *of;
	struct host name;		/* len 0: nameless */
	struct endpoint to;		/* nameless: where; port always */
	enum record_name_from from;
	enum shown shown;
	enum gate gate;
	bool is_addr;			/* an address literal was asked for */
	bool decided;			/* decision was taken by NAME */
	bool port_closed;		/* NAME: no rule opens the port */
	bool json, head_only;		/* how a refusal is told */
	unsigned minor;
	struct hello_reader reader;
	size_t scanned;
	struct hello hello;
	struct host other;		/* the name that does not fit */
	struct decision decision;
	struct addr addrs[PIN_ADDRS_MAX];
	size_t n_addrs, next_addr;
	struct dial_try tries[DIAL_TRIES_MAX];
	unsigned n_tries;
	struct record_try tried[RECORD_TRIES_MAX];	/* in vain */
	unsigned n_tried;
	int64_t next_try_ms;
	struct ask_call *ask;
	enum reason failed;		/* why the last attempt failed */
	enum reason no_cell;		/* why it was accepted for none */
	struct flight_watch flight;
	bool alien;			/* a hello was answered by what is no
					 * flight of TLS */
	struct opening_line line;	/* GATE_WATCH: the first one */
	size_t watched;			/* bytes that passed at that gate */
	size_t passed;			/* of those that are held, at their
					 * front: a hello's beginning */
	char method[32], path[256];
	char cell[POLICY_ID_BYTES];	/* whose request it is; "": whose the
					 * connection is */
	char run[POLICY_ID_BYTES];	/* and its label "run" */
};

struct forward;

struct conn {
	LIST_ENTRY(conn) link;
	TAILQ_ENTRY(conn) later;
	struct proxy *proxy;
	struct side client, up;
	struct event *timer;		/* NULL in an open relay: swept */
	int64_t timer_ms;		/* when the timer fires, 0: not armed */
	int64_t deadline_ms;		/* of the state; 0: none */
	int64_t moved_ms;		/* RELAY, END: a byte moved */
	uint64_t left;			/* END: not yet taken behind a reset */
	uint64_t lost_up, lost_down;	/* END: given up */
	int64_t opened_us;		/* or when the request was judged */
	uint64_t id, request;
	struct buf in;			/* from the client, not yet judged */
	struct opening *open;
	struct forward *forward;	/* HTTP: state of the exchange */
	char *names;			/* of a flow without one: pinned_keep */
	char *shown;			/* shown behind the decision, where no
					 * rule for it let it pass */
	uint64_t token;			/* whose request was last, by that of
					 * its credential; 0: it showed none */
	struct record *end;		/* what the end record begins with; when
					 * that is out: whose it was */
	size_t end_bytes;
	struct endpoint peer, original;
	struct limit_place place;
	uint32_t cell;
	uint32_t drained;
	uint16_t listener;
	uint16_t port;			/* that was asked for */
	uint16_t reason;		/* why it ended */
	uint8_t state, via, how;
	uint8_t up_tag, last_tag;	/* of up, of the last attempt */
	bool is_gone;			/* only its memory is left */
	bool half_closed;		/* at the sweep before */
	bool queued;			/* runs again in the next turn */
	bool is_untold;			/* its place is of those whose cell is
					 * not known */
	bool looked;			/* opaque rules were asked */
	bool inside;			/* in a CONNECT tunnel */
	bool no_sni;			/* a hello without a name passed */
	bool ech;			/* a hello with ECH passed */
	bool bytes;			/* passed as neither TLS nor HTTP, or
					 * none before its end */
	bool shown_pinned;		/* the address was that name's */
	bool up_alive;			/* upstream counted */
	bool told;			/* the answer is in client.out */
	bool end_told;			/* the end is out */
	bool is_dialled;		/* what the end tells of reached
					 * end->dialled */
	bool probed;			/* upstream has keep-alive */
	bool late;			/* it came in a drain */
};

LIST_HEAD(conn_list, conn);
TAILQ_HEAD(conn_queue, conn);
TAILQ_HEAD(opening_queue, opening);

#define PROXY_TIMEOUTS 8u

struct listener {
	struct proxy_listener is;
	struct proxy *proxy;
	struct event *ev;
};

struct pipes {
	struct pipes_pair *idle;
	unsigned n_idle;
	size_t bytes, bytes_max;	/* of all pairs in use or idle */
};

struct proxy {
	struct proxy_parts parts;
	struct proxy_limits limits;
	const struct policy *policy;
	const struct pins *pins;
	struct listener *listeners;
	struct conn_list open;
	struct conn_list gone;		/* in memory to the end of the turn */
	struct conn_queue again;	/* can go on without an edge */
	struct opening_queue untold;	/* of no cell yet; the oldest first */
	struct watch *watch;
	unsigned n_open, n_refusing, n_again;
	unsigned n_late;		/* of those open; no drain waits */
	struct event *flush, *resume, *grace, *sweep, *later;
	struct {
		unsigned ms;
		const struct timeval *tv;
	} timeouts[PROXY_TIMEOUTS];
	int reserve;			/* a descriptor for a full table */
	size_t pipe_bytes;		/* that the kernel gives one engine */
	uint64_t next_id;
	uint8_t *buffer;		/* shared by all relays */
	struct pipes pipes;
	struct fold *fold;		/* records of refusals */
	bool draining, paused;
	void (*drained)(void *arg);
	void *drained_arg;
};

int64_t conn_now_ms(void);

/* Take an accepted socket (owned from here on) and run it.  `refused` other
 * than REASON_NONE: it gets an answer and no place. */
void conn_new(struct listener *l, int fd, const struct endpoint *peer,
    const struct endpoint *original, enum reason refused);
void conn_run(struct conn *c);
/* An edge of one of its sockets (watch_fn). */
void conn_edge(void *owner, unsigned tag, uint32_t events);
/* The turn is over: what has gone leaves the memory. */
void conn_forget(struct proxy *p);
/* The only place that sets the state. */
void conn_enter(struct conn *c, enum conn_state state);
/* Refuse: one decision record, an answer that the client can read, END. */
enum step conn_refuse(struct conn *c, enum reason why);
/* End without an answer. */
enum step conn_cut(struct conn *c, enum record_how how, enum reason why);
/* Run it again at this time (monotonic ms) or before. */
void conn_timer(struct conn *c, int64_t at);
void conn_close_up(struct conn *c);
/* The cell of a client by its socket, and by its credential where it shows
 * one; CELL_NONE and why. */
uint32_t conn_cell_of(const struct listener *l, int fd,
    const struct endpoint *peer, const char *user, struct span token,
    enum reason *why);
void conn_cell(struct conn *c, const char *user, struct span token,
    enum reason *why);
/* It counts as its cell's from here on, when that has room. */
MUST_USE enum reason conn_count_cell(struct conn *c);
struct decide_at conn_at(const struct conn *c);
enum record_via conn_via(enum listen_kind kind);
void conn_reset(int fd);
/* A hello that was let pass: a new policy may forbid what it hides. */
void conn_keep_hello(struct conn *c, const struct hello *h);
/* What is pinned for its cell. */
/* The live names of an address: how many, 0 when there are too many. */
size_t pinned_names(const struct conn *c, const struct addr *a,
    struct host out[static PIN_NAMES_MAX],
    const struct host *ptr[static PIN_NAMES_MAX]);
size_t pinned_addrs(const struct conn *c, const struct host *name,
    struct addr out[static PIN_ADDRS_MAX]);
bool pinned_has(const struct conn *c, const struct host *name,
    const struct addr *a);
/* A flow without a name was judged by these, or by none: a new policy judges
 * it by them again.  False: no memory. */
MUST_USE bool pinned_keep(struct conn *c, const struct host *const *names,
    size_t n);
size_t pinned_kept(const struct conn *c, struct host out[static PIN_NAMES_MAX],
    const struct host *ptr[static PIN_NAMES_MAX]);

/* The steps, in the order of life. */
enum step name_step(struct conn *c);
enum step weigh_step(struct conn *c);
enum step dial_resolve(struct conn *c);
enum step dial_step(struct conn *c);
/* An edge of an attempt. */
void dial_edge(struct conn *c, unsigned tag, uint32_t events);
void dial_cancel(struct conn *c);
/* The decision is a new policy's: attempts that it forbids end, and so do
 * questions that it does not ask.  False: nothing is left. */
MUST_USE bool dial_judge_again(struct conn *c);
enum step relay_step(struct conn *c);
unsigned relay_wants(const struct conn *c, bool client);
enum step end_step(struct conn *c);

/* What is judged as it comes has the names that live; what is judged again,
 * by a new policy, those that it was allowed with.  A pin that ended, or one
 * that came, takes nothing from what is open: only a policy does. */
enum weigh_when { WEIGH_FIRST, WEIGH_AGAIN };

/* What the client has shown; of a request or CONNECT, a name or an address
 * literal. */
struct decision weigh_shown(struct conn *c, enum weigh_when when);
struct decision weigh_asked(struct conn *c, enum weigh_when when);
/* A flow without a name, to an address; `pinned`: names on it may count. */
struct decision weigh_nameless(struct conn *c, const struct endpoint *to,
    bool pinned, enum weigh_when when);
/* An address for a flow: that of an address rule is the one the client
 * chose. */
struct decision weigh_dialled(const struct conn *c,
    const struct decision *flow, const struct endpoint *to);
/* Where the client wanted to go; NULL: it has not said by an address. */
const struct endpoint *weigh_original(const struct conn *c);
/* Judge one address, by the decision at hand; false leaves *d as the denial. */
bool weigh_addr(struct conn *c, const struct endpoint *to,
    struct decision *d);

/* After a new policy: cut it when that forbids it. */
void again_judge(struct conn *c);
/* The same without cutting what is open: what it asks next is judged for its
 * cell in the new policy. */
void again_renumber(struct conn *c);
/* The request at hand is this cell's, by a credential or by where it comes
 * from: a new policy finds it again by that. */
void again_keep_cell(struct conn *c, bool by_credential);
/* This name was let pass behind the decision, and has none of its own: a new
 * policy may forbid it.  False: no memory. */
MUST_USE bool again_keep_shown(struct conn *c, const struct host *name);

/* Records.  Of denials that are too many the rest is counted (fold_takes). */
int account_decision(struct conn *c, const struct decision *d,
    enum reason why);
/* A flow to an address shows a name behind its decision, which `d` lets pass:
 * a second decision, whose name and rule the end has too. */
MUST_USE int account_inner(struct conn *c, const struct host *name,
    enum record_name_from from, const struct decision *d);
/* An address by the decision for another name than the flow's. */
MUST_USE bool weigh_fits(const struct conn *c, const struct decision *d,
    const struct endpoint *to);
/* A hello that came behind the decision, let pass: the end tells of it, and of
 * a name that is not the flow's. */
void account_hello(struct conn *c);
/* The status that its client is told, for its end. */
void account_status(struct conn *c, unsigned status);
/* The end tells of the addresses that were dialled in vain. */
void account_tried(struct conn *c);
/* A request has begun that has shown nothing yet: what is known is of the
 * request before. */
bool account_is_unread(const struct conn *c);
/* The end of what was decided last, once: it has the bytes since the end
 * before. */
void account_end(struct conn *c, enum record_how how, enum reason why);
/* True when that is yet to come. */
bool account_is_open(const struct conn *c);
/* A client that is reset without an answer and becomes no connection: counted,
 * and told in a record.  Equal ones are folded, so that a flood of them takes
 * no room from decisions. */
void account_turned_away(const struct listener *l, const struct endpoint *peer,
    const struct endpoint *original, uint32_t cell, enum reason why);

/* relay, tunnel */
int tunnel_begin(struct conn *c);	/* after DIAL: -errno or 0 */
enum step tunnel_gate(struct conn *c);
void tunnel_saw_server(struct conn *c, struct span bytes);
/* What comes at the gate is looked at as what comes at once: back to NAME.
 * False: the server has gone already. */
MUST_USE bool tunnel_reads_first(struct conn *c);

void pipes_init(struct pipes *p, size_t bytes_max);
void pipes_done(struct pipes *p);
struct pipes_pair *pipes_get(struct pipes *p);
void pipes_put(struct pipes *p, struct pipes_pair *pair, bool clean);

int listen_start(struct listener *l);
void listen_pause(struct proxy *p);
void proxy_gone(struct proxy *p);
/* An event-loop turn in which a record was put. */
void proxy_put(struct proxy *p);

#endif
