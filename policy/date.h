/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_DATE_H
#define POLICY_DATE_H

#include "policy/span.h"

/* A date "YYYY-MM-DD" as the first second of that day (UTC). */
MUST_USE bool date_parse(struct span text, int64_t *out_s);

#endif
