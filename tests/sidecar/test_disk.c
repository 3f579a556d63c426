/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon where its records cannot be written. */
#include "tests/sidecar/daemon.h"

#include <sys/mount.h>

/* What a probe sees. */
static int
health_of(const char *admin)
{
	pid_t p = fork();

	assert_true(p >= 0);
	if (p == 0) {
		redirect("health", STDOUT_FILENO);
		redirect("health-err", STDERR_FILENO);
		execl(program, "penstock", "health", "--ready", "--admin",
		    admin, NULL);
		_exit(99);
	}
	return end_of(p);
}

static void
expect_health(const char *admin, int status, const char *words)
{
	char path[128];

	path_of(path, "health");
	for (int i = 0; i < WAIT_MS / 50; i++) {
		if (health_of(admin) == status &&
		    strstr(get(path), words) != NULL)
			return;
		pause_ms(50);
	}
	fail_msg("not %d with \"%s\": %s", status, words, get(path));
}

static void
fill_page(const char *ledger)
{
	char path[256], page[4096] = { 0 };
	int fd;

	snprintf(path, sizeof(path), "%s/filler", ledger);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	close(fd);
}

/* Two pages of disk: one is taken, a record for each reload fills the other.
 * Without records nothing is decided, so a probe must not say ready. */
static void
a_full_disk_is_not_ready_until_there_is_room(void **state)
{
	char text[512], ledger[128], admin[160];

	(void)state;
	path_of(ledger, "ledger");
	assert_int_equal(mkdir(ledger, 0700), 0);
	assert_int_equal(mount("none", ledger, "tmpfs", 0, "size=8k"), 0);
	fill_page(ledger);
	snprintf(admin, sizeof(admin), "unix:%s/admin.sock", dir);
	snprintf(text, sizeof(text), CONFIG "ledger: {dir: %s}\n"
	    "admin: %s\n", ledger, admin);
	put("penstock.yaml", text);
	start_ready(0);
	expect_health(admin, 0, "[+] recorder");
	for (int i = 0; i < 200 && !logged("records cannot be written"); i++) {
		kill(daemon_pid, SIGHUP);
		pause_ms(30);
	}
	expect_log("records cannot be written");
	expect_health(admin, 1, "[-] recorder effect: closed");
	snprintf(text, sizeof(text), "%s/filler", ledger);
	unlink(text);
	expect_health(admin, 0, "[+] recorder");
	assert_int_equal(stop(), 0);
	umount(ledger);
	rmdir(ledger);
	put("penstock.yaml", CONFIG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(a_full_disk_is_not_ready_until_there_is_room),
	};

	return cmocka_run_group_tests(tests, find_program, clean);
}
