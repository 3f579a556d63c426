/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_CLIENT_LOG_H
#define LEDGER_CLIENT_LOG_H

#include <stdbool.h>

/*
 * The operator log: one logfmt line on stderr for what an operator must
 * know (start, reload, role died).  Decisions are records, not log lines.
 */
enum log_level { LOG_ERROR_ = 0, LOG_WARN, LOG_INFO_, LOG_DEBUG_ };

/* Name of the role, in every line; level from the settings. */
void log_init(const char *role, enum log_level level);

/* At most LOG_PER_SECOND lines a second a process; what is left out is
 * counted and said in the next line.  Bytes outside printable ASCII are
 * escaped here, so a line cannot be forged. */
__attribute__((format(printf, 2, 3)))
void log_line(enum log_level level, const char *fmt, ...);
#define LOG_PER_SECOND 20

#endif
