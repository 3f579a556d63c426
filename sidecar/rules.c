/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rules.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <net/if.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sidecar/rules_differ.h"

/* libnftables, by name. */
struct nft {
	void *lib;
	struct nft_ctx *ctx;
	struct nft_ctx *(*new)(uint32_t);
	void (*free)(struct nft_ctx *);
	int (*buffer_output)(struct nft_ctx *);
	int (*buffer_error)(struct nft_ctx *);
	const char *(*output)(struct nft_ctx *);
	const char *(*error)(struct nft_ctx *);
	void (*flags)(struct nft_ctx *, unsigned);
	int (*run)(struct nft_ctx *, const char *);
};

static int nft_open(struct nft *n, char *why, size_t size);
static void nft_close(struct nft *n);
static int nft_do(struct nft *n, const char *cmd, char *why, size_t size);
static json_t *nft_table(struct nft *n, int *error, char *why, size_t size);
static json_t *nft_chains(struct nft *n, const char *table, const char *text,
    int *error, char *why, size_t size);
static int table_compare(struct nft *n, const struct rules_spec *r, char *why,
    size_t size);

void
rules_default(struct rules_spec *r, enum settings_mode mode)
{
	memset(r, 0, sizeof(*r));
	r->mode = mode;
	r->tcp_port = 15001;
	r->dns_port = mode == MODE_SHARED ? 15053 : 53;
	r->ipv6_drop = true;
}

static void
add_uid(struct rules_spec *r, uid_t uid)
{
	if (uid == SETTINGS_UID_KEEP)
		uid = geteuid();
	for (size_t i = 0; i < r->n_uids; i++)
		if (r->uids[i] == uid)
			return;
	if (r->n_uids < RULES_UIDS_MAX)
		r->uids[r->n_uids++] = uid;
}

static uint16_t
local_port(const char *admin)
{
	const char *colon = strrchr(admin, ':');

	if (strncmp(admin, "unix:", 5) == 0 || colon == NULL)
		return 0;
	return (uint16_t)strtoul(colon + 1, NULL, 10);
}

static void
add_listener(struct rules_spec *r, const struct settings_listener *l)
{
	switch (l->kind) {
	case LISTEN_TPROXY:
	case LISTEN_REDIRECT:
		r->tcp_port = l->at.port;
		break;
	case LISTEN_EXPLICIT:
	case LISTEN_NAMED:
		if (addr_class(&l->at.addr) != ADDR_LOOPBACK)
			r->offered[r->n_offered++] = l->at;
		break;
	}
}

void
rules_from_settings(struct rules_spec *r, const struct settings *s)
{
	rules_default(r, s->mode);
	r->ipv6_drop = s->ipv6_drop;
	r->admin_port = local_port(s->admin);
	if (s->n_dns > 0)
		r->dns_port = s->dns[0].port;
	for (uint32_t i = 1; i < s->n_dns; i++)
		if (addr_class(&s->dns[i].addr) != ADDR_LOOPBACK)
			r->dns_more[r->n_dns_more++] = s->dns[i].port;
	for (uint32_t i = 0; i < s->n_listeners; i++)
		add_listener(r, &s->listeners[i]);
	for (uint32_t i = 0; i < s->n_interfaces; i++)
		memcpy(r->interfaces[r->n_interfaces++], s->interfaces[i],
		    sizeof(r->interfaces[0]));
	for (uint32_t i = 0; i < s->n_inbound; i++)
		r->inbound[r->n_inbound++] = s->inbound[i];
	/* The two roles that open connections, and no other. */
	add_uid(r, s->uid_engine);
	add_uid(r, s->uid_resolver);
}

static bool
name_is_plain(const char *name)
{
	size_t n = strnlen(name, IF_NAMESIZE);

	return n > 0 && n < IF_NAMESIZE && strcmp(name, "lo") != 0 &&
	    strspn(name, "abcdefghijklmnopqrstuvwxyz"
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

static const char *
shared_lacks(const struct rules_spec *r)
{
	if (r->n_uids == 0)
		return "shared mode needs the uid of penstock: --uid U";
	for (size_t i = 0; i < r->n_uids; i++)
		if (r->uids[i] == 0)
			return "uid 0 cannot be exempt: an agent that is root "
			    "would be";
	return NULL;
}

static const char *
gateway_lacks(const struct rules_spec *r)
{
	if (r->n_interfaces == 0)
		return "gateway mode needs the agents' interface: "
		    "--interface I";
	if (r->n_inbound != 0)
		return "inbound ports are for shared mode";
	for (size_t i = 0; i < r->n_interfaces; i++)
		if (!name_is_plain(r->interfaces[i]))
			return "not the name of an agents' interface";
	return NULL;
}

bool
rules_valid(const struct rules_spec *r, char *why, size_t size)
{
	const char *no;

	if (r->mode != MODE_SHARED && r->mode != MODE_GATEWAY)
		no = "rules are for the modes shared and gateway";
	else if (r->tcp_port == 0 || r->dns_port == 0)
		no = "a port is 0";
	else
		no = r->mode == MODE_SHARED ? shared_lacks(r) :
		    gateway_lacks(r);
	if (no != NULL)
		snprintf(why, size, "%s", no);
	return no == NULL;
}

static bool
nft_symbols(struct nft *n)
{
	const struct {
		void *to;
		const char *name;
	} want[] = {
		{ &n->new, "nft_ctx_new" },
		{ &n->free, "nft_ctx_free" },
		{ &n->buffer_output, "nft_ctx_buffer_output" },
		{ &n->buffer_error, "nft_ctx_buffer_error" },
		{ &n->output, "nft_ctx_get_output_buffer" },
		{ &n->error, "nft_ctx_get_error_buffer" },
		{ &n->flags, "nft_ctx_output_set_flags" },
		{ &n->run, "nft_run_cmd_from_buffer" },
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		void *at = dlsym(n->lib, want[i].name);

		if (at == NULL)
			return false;
		/* object to function pointer, as POSIX dlsym has it */
		memcpy(want[i].to, &at, sizeof(at));
	}
	return true;
}

static int
nft_open(struct nft *n, char *why, size_t size)
{
	memset(n, 0, sizeof(*n));
	n->lib = dlopen("libnftables.so.1", RTLD_NOW | RTLD_LOCAL);
	if (n->lib == NULL || !nft_symbols(n)) {
		snprintf(why, size, "libnftables.so.1 cannot be loaded: "
		    "install the package libnftables1");
		nft_close(n);
		return -ENOPKG;
	}
	n->ctx = n->new(NFT_CTX_DEFAULT);
	if (n->ctx == NULL || n->buffer_output(n->ctx) != 0 ||
	    n->buffer_error(n->ctx) != 0) {
		snprintf(why, size, "libnftables gives no context");
		nft_close(n);
		return -ENOMEM;
	}
	return 0;
}

static void
nft_close(struct nft *n)
{
	if (n->ctx != NULL)
		n->free(n->ctx);
	if (n->lib != NULL)
		dlclose(n->lib);
	memset(n, 0, sizeof(*n));
}

/* libnftables says in words only what went wrong, so they are read. */
static int
nft_errno(const char *text)
{
	if (strstr(text, "Operation not permitted") != NULL)
		return -EPERM;
	if (strstr(text, "No such file or directory") != NULL)
		return -ENOENT;
	return -EPROTO;
}

static int
nft_do(struct nft *n, const char *cmd, char *why, size_t size)
{
	const char *text;
	int error;

	if (n->run(n->ctx, cmd) == 0)
		return 0;
	text = n->error(n->ctx);
	error = nft_errno(text);
	if (error == -EPERM)
		snprintf(why, size, "nftables: CAP_NET_ADMIN is missing");
	else
		snprintf(why, size, "nftables: %.*s",
		    (int)strcspn(text, "\n"), text);
	return error;
}

/* What a command lists, as JSON; NULL with *error and why. */
static json_t *
nft_list(struct nft *n, const char *cmd, int *error, char *why, size_t size)
{
	json_t *all, *list = NULL;

	n->flags(n->ctx, NFT_CTX_OUTPUT_JSON);
	*error = nft_do(n, cmd, why, size);
	n->flags(n->ctx, 0);
	if (*error != 0)
		return NULL;
	all = json_loads(n->output(n->ctx), 0, NULL);
	list = json_incref(json_object_get(all, "nftables"));
	json_decref(all);
	if (!json_is_array(list)) {
		snprintf(why, size, "nftables: the answer is not its JSON");
		json_decref(list);
		*error = -EPROTO;
		return NULL;
	}
	return list;
}

/*
 * Our table.  One that is switched off has all of its rules and none of its
 * effect; that is looked for in the plain listing, as libnftables 1.0.6 frees
 * the flags of a table before it writes them as JSON.
 */
static json_t *
nft_table(struct nft *n, int *error, char *why, size_t size)
{
	static const char cmd[] = "list table inet " RULES_TABLE;

	*error = nft_do(n, cmd, why, size);
	if (*error != 0)
		return NULL;
	if (strstr(n->output(n->ctx), "\n\tflags ") != NULL) {
		snprintf(why, size, "table inet " RULES_TABLE ": switched off "
		    "(its flags are not empty), so that no rule of it counts");
		*error = -EBADMSG;
		return NULL;
	}
	return nft_list(n, cmd, error, why, size);
}

/* The chains that the text makes, of a table that cannot be listed whole
 * because it has flags: see nft_table. */
static json_t *
nft_chains(struct nft *n, const char *table, const char *text, int *error,
    char *why, size_t size)
{
	static const char word[] = "\tchain ";
	json_t *all = json_array(), *list;
	char cmd[128];

	for (text = strstr(text, word); text != NULL;
	    text = strstr(text, word)) {
		text += strlen(word);
		snprintf(cmd, sizeof(cmd), "list chain inet %s %.*s", table,
		    (int)strcspn(text, " "), text);
		list = nft_list(n, cmd, error, why, size);
		if (list == NULL) {
			json_decref(all);
			return NULL;
		}
		json_array_extend(all, list);
		json_decref(list);
	}
	return all;
}

/* The first line of a listing that holds these words, without what is around
 * it and without the comment that names it; empty when there is none. */
static void
line_with(const char *list, const char *words, char *out, size_t size)
{
	static const char *const tails[] = { " # handle ",
	    " comment \"" RULES_TABLE " " };
	const char *from = strstr(list, words);

	out[0] = '\0';
	if (from == NULL)
		return;
	while (from > list && from[-1] != '\n')
		from--;
	from += strspn(from, "\t ");
	snprintf(out, size, "%.*s", (int)strcspn(from, "\n"), from);
	for (size_t i = 0; i < 2; i++)
		if (strstr(out, tails[i]) != NULL)
			*strstr(out, tails[i]) = '\0';
}

/* As nft(8) shows it: the rule of that handle, or how the chain is hooked. */
static void
text_in(struct nft *n, const char *table, const struct rules_difference *d,
    long long handle, char *out, size_t size)
{
	char cmd[96 + RULES_NAME_BYTES], words[48], why[RULES_WHY_BYTES];
	int error;

	out[0] = '\0';
	if (d->rule ? handle == 0 : strcmp(d->type, "chain") != 0)
		return;
	snprintf(cmd, sizeof(cmd), "list chain inet %s %s", table, d->chain);
	n->flags(n->ctx, NFT_CTX_OUTPUT_HANDLE);
	error = nft_do(n, cmd, why, sizeof(why));
	n->flags(n->ctx, 0);
	if (error != 0)
		return;
	snprintf(words, sizeof(words), d->rule ? " # handle %lld\n" :
	    "\ttype ", handle);
	line_with(n->output(n->ctx), words, out, size);
}

/* `beside`: the name of the table that is as it should be. */
static int
lists_compare(struct nft *n, json_t *have, json_t *want, const char *beside,
    char *why, size_t size)
{
	char found[RULES_WHY_BYTES], wanted[RULES_WHY_BYTES];
	struct rules_difference d;

	if (!rules_differ(have, want, &d))
		return 0;
	text_in(n, RULES_TABLE, &d, d.handle, found, sizeof(found));
	text_in(n, beside, &d, d.wanted_handle, wanted, sizeof(wanted));
	rules_differ_text(&d, found, wanted, why, size);
	return -EBADMSG;
}

/*
 * What the kernel and the library make of the text depends on both, so the
 * same text is loaded beside, switched off (dormant: not hooked), under a
 * name of this process, read back by the same path, and taken away.
 */
static int
table_compare(struct nft *n, const struct rules_spec *r, char *why,
    size_t size)
{
	char name[32], text[RULES_TEXT_BYTES], gone[64];
	json_t *have, *want = NULL;
	int error, len;

	have = nft_table(n, &error, why, size);
	if (error == -ENOENT)
		snprintf(why, size, "there is no table inet " RULES_TABLE);
	if (have == NULL)
		return error;
	snprintf(name, sizeof(name), RULES_TABLE "_check_%ld", (long)getpid());
	snprintf(gone, sizeof(gone), "delete table inet %s", name);
	len = rules_text_beside(r, name, text, sizeof(text));
	error = len < 0 ? len : nft_do(n, text, why, size);
	if (error == 0) {
		want = nft_chains(n, name, text, &error, why, size);
		if (want != NULL)
			error = lists_compare(n, have, want, name, why, size);
		if (n->run(n->ctx, gone) != 0 && error == 0) {
			snprintf(why, size, "table inet %s cannot be deleted",
			    name);
			error = -EPROTO;
		}
	}
	json_decref(want);
	json_decref(have);
	return error;
}

static int
routes_compare(const struct rules_spec *r, char *why, size_t size)
{
	int error = 0;

	if (r->mode == MODE_GATEWAY)
		error = rules_route_check(r, why, size);
	if (error == 0 && r->mode == MODE_GATEWAY)
		error = rules_route_forwarding(why, size);
	return error;
}

static int
compare_all(struct nft *n, const struct rules_spec *r, char *why, size_t size)
{
	int error = table_compare(n, r, why, size);

	return error == 0 ? routes_compare(r, why, size) : error;
}

int
rules_check(const struct rules_spec *r, char *why, size_t size)
{
	struct nft n;
	int error;

	if (!rules_valid(r, why, size))
		return -EINVAL;
	error = nft_open(&n, why, size);
	if (error != 0)
		return error;
	error = compare_all(&n, r, why, size);
	nft_close(&n);
	return error;
}

struct rules_watch {
	struct nft nft;
	struct rules_spec spec;		/* of what is remembered */
	json_t *good;			/* the table as it should be; or NULL */
};

int
rules_watch_new(struct rules_watch **out, char *why, size_t size)
{
	struct rules_watch *w = calloc(1, sizeof(*w));
	int error;

	if (w == NULL) {
		snprintf(why, size, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	error = nft_open(&w->nft, why, size);
	if (error != 0) {
		free(w);
		return error;
	}
	*out = w;
	return 0;
}

void
rules_watch_free(struct rules_watch *w)
{
	if (w == NULL)
		return;
	json_decref(w->good);
	nft_close(&w->nft);
	free(w);
}

/* Its things in order, without what differs between two loads. */
static json_t *
table_things(struct nft *n, int *error, char *why, size_t size)
{
	json_t *list = nft_table(n, error, why, size), *out;

	if (list == NULL)
		return NULL;
	out = rules_differ_things(list);
	json_decref(list);
	return out;
}

static bool
stands_still(struct rules_watch *w, const struct rules_spec *r, char *why,
    size_t size)
{
	json_t *now;
	bool same;
	int error;

	if (w->good == NULL || memcmp(r, &w->spec, sizeof(*r)) != 0)
		return false;
	now = table_things(&w->nft, &error, why, size);
	same = now != NULL && json_equal(now, w->good);
	json_decref(now);
	return same;
}

int
rules_watch_check(struct rules_watch *w, const struct rules_spec *r,
    char *why, size_t size)
{
	int error;

	if (stands_still(w, r, why, size))
		return routes_compare(r, why, size);
	error = compare_all(&w->nft, r, why, size);
	json_decref(w->good);
	w->good = NULL;
	if (error == 0) {
		int ignored;

		w->good = table_things(&w->nft, &ignored, why, size);
		w->spec = *r;
	}
	return error;
}

int
rules_apply(const struct rules_spec *r, char *why, size_t size)
{
	char text[RULES_TEXT_BYTES];
	struct nft n;
	int error;

	if (!rules_valid(r, why, size))
		return -EINVAL;
	error = rules_text(r, text, sizeof(text));
	if (error < 0) {
		snprintf(why, size, "more rules than fit");
		return error;
	}
	error = nft_open(&n, why, size);
	if (error != 0)
		return error;
	/* Closed first: the rules stand before anything is routed to us. */
	error = nft_do(&n, text, why, size);
	if (error == 0 && r->mode == MODE_GATEWAY)
		error = rules_route_add(r, why, size);
	if (error == 0)
		error = compare_all(&n, r, why, size);
	nft_close(&n);
	return error;
}

int
rules_remove(char *why, size_t size)
{
	struct nft n;
	int error = nft_open(&n, why, size), route;

	if (error != 0)
		return error;
	error = nft_do(&n, "table inet " RULES_TABLE " {\n}\n"
	    "delete table inet " RULES_TABLE "\n", why, size);
	nft_close(&n);
	route = rules_route_remove(why, size);
	return error != 0 ? error : route;
}
