/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "proxy/conn.h"

size_t
pinned_names(const struct conn *c, const struct addr *a,
    struct host out[static PIN_NAMES_MAX],
    const struct host *ptr[static PIN_NAMES_MAX])
{
	struct pin_cell cell;
	size_t n = 0;

	if (c->proxy->pins != NULL &&
	    pin_cell_of(c->proxy->policy, c->cell, &cell))
		n = pin_names(c->proxy->pins, &cell, a, conn_now_ms(), out);
	if (n > PIN_NAMES_MAX)
		n = 0;
	for (size_t i = 0; i < n; i++)
		ptr[i] = &out[i];
	return n;
}

bool
pinned_has(const struct conn *c, const struct host *name,
    const struct addr *a)
{
	struct pin_cell cell;

	return c->proxy->pins != NULL &&
	    pin_cell_of(c->proxy->policy, c->cell, &cell) &&
	    pin_has(c->proxy->pins, &cell, name, a, conn_now_ms());
}

size_t
pinned_addrs(const struct conn *c, const struct host *name,
    struct addr out[static PIN_ADDRS_MAX])
{
	struct pin_cell cell;

	if (c->proxy->pins == NULL ||
	    !pin_cell_of(c->proxy->policy, c->cell, &cell))
		return 0;
	return pin_addrs(c->proxy->pins, &cell, name, conn_now_ms(), out);
}

/* Each with its end, and an empty one behind the last: a flow has one name,
 * mostly, and has it for hours. */
bool
pinned_keep(struct conn *c, const struct host *const *names, size_t n)
{
	size_t bytes = 1;
	char *at;

	free(c->names);
	c->names = NULL;
	if (n == 0)
		return true;
	for (size_t i = 0; i < n; i++)
		bytes += names[i]->len + 1u;
	at = c->names = malloc(bytes);
	if (at == NULL)
		return false;
	for (size_t i = 0; i < n; i++) {
		memcpy(at, names[i]->name, names[i]->len);
		at += names[i]->len;
		*at++ = '\0';
	}
	*at = '\0';
	return true;
}

size_t
pinned_kept(const struct conn *c, struct host out[static PIN_NAMES_MAX],
    const struct host *ptr[static PIN_NAMES_MAX])
{
	size_t n = 0;

	for (const char *s = c->names; s != NULL && *s != '\0';
	    s += strlen(s) + 1) {
		if (n == PIN_NAMES_MAX ||
		    host_parse(&out[n], span_str(s)) != REASON_NONE)
			return 0;		/* not so: they were names */
		ptr[n] = &out[n];
		n++;
	}
	return n;
}
