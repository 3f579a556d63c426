/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/date.h"

static bool
digits(struct span s, size_t from, size_t n, int64_t *out)
{
	size_t i;

	*out = 0;
	for (i = from; i < from + n; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
		*out = *out * 10 + (s.data[i] - '0');
	}
	return true;
}

/* Days since 1970-01-01 in the proleptic Gregorian calendar; years begin in
 * March here, so that the leap day is the last one. */
static int64_t
days_from_date(int64_t y, int64_t m, int64_t d)
{
	int64_t era, yoe, doy;

	if (m <= 2)
		y--;
	era = y / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool
is_leap(int64_t y)
{
	return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

bool
date_parse(struct span text, int64_t *out_s)
{
	static const uint8_t month[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30,
	    31, 30, 31 };
	int64_t y, m, d, last;

	if (text.len != 10 || text.data[4] != '-' || text.data[7] != '-')
		return false;
	if (!digits(text, 0, 4, &y) || !digits(text, 5, 2, &m) ||
	    !digits(text, 8, 2, &d) || y < 1970 || m < 1 || m > 12)
		return false;
	last = month[m - 1] + (m == 2 && is_leap(y));
	if (d < 1 || d > last)
		return false;
	*out_s = days_from_date(y, m, d) * 86400;
	return true;
}
