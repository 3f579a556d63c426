/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/compile_role.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ledger-client/log.h"
#include "sidecar/compile.h"
#include "sidecar/confine.h"
#include "sidecar/role.h"

static int get_order(struct ipc_give *order, int *dir);
static int report(struct compile *c, int status, struct problems *ps);

int
compile_main(void)
{
	struct ipc_give order;
	struct config_env env = config_env_read();
	struct problems *ps = problem_new();
	struct compile *c = NULL;
	int dir = -1, rc;

	if (ps == NULL || get_order(&order, &dir) != 0)
		return 1;
	/* Large pieces are given back as soon as they are free. */
	(void)mallopt(M_MMAP_THRESHOLD, 32768);
	env.accept_shared_segment =
	    (order.flags & COMPILE_ORDER_SHARED_SEGMENT) != 0;
	env.accept_not_proven = (order.flags & COMPILE_ORDER_NOT_PROVEN) != 0;
	env.serves = true;
	rc = compile_new(&c, dir, order.text[0] != '\0' ? order.text : NULL,
	    &env);
	if (confine_compile(dir) != 0)
		return 1;
	if (rc == 0)
		rc = compile_run(c, order.number, (int64_t)time(NULL), ps);
	rc = report(c, rc, ps);
	problem_free(ps);
	compile_free(c);
	return rc == 0 ? 0 : 1;
}

static int
get_order(struct ipc_give *order, int *dir)
{
	struct pollfd p = { .fd = ROLE_PARENT_FD, .events = POLLIN };
	struct ipc_message m;

	if (poll(&p, 1, COMPILE_LIMIT_MS) != 1 ||
	    ipc_receive(ROLE_PARENT_FD, &m) != 1)
		return -EPIPE;
	if (m.type != IPC_GIVE || m.len != sizeof(*order) || m.n_fds != 1) {
		ipc_discard(&m);
		return -EBADMSG;
	}
	memcpy(order, m.body, sizeof(*order));
	order->text[sizeof(order->text) - 1] = '\0';
	*dir = m.fds[0];
	return 0;
}

static int
problems_memfd(struct problems *ps)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int fd = -ENOMEM;

	if (f == NULL)
		return fd;
	problem_print(ps, f);
	if (fclose(f) == 0)
		fd = ipc_sealed("penstock-problems", span_of(text, len));
	free(text);
	return fd;
}

static int
report(struct compile *c, int status, struct problems *ps)
{
	struct ipc_compiled out = {
		.status = status,
		.errors = (uint32_t)problem_count(ps, PROBLEM_ERROR),
		.warnings = (uint32_t)problem_count(ps, PROBLEM_WARNING),
	};
	int fds[2] = { problems_memfd(ps), -1 };
	size_t n = 1;

	if (fds[0] < 0)
		return fds[0];
	if (status == 0) {
		out.used_env = compile_config(c)->used_env;
		fds[1] = compile_sealed(c);
		if (fds[1] < 0)
			return fds[1];
		n = 2;
	}
	return ipc_send(ROLE_PARENT_FD, IPC_COMPILED,
	    span_of(&out, sizeof(out)), fds, n);
}
