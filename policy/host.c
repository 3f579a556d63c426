/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/host.h"

#include <idn2.h>

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* A label that makes the whole name an address to some parser: all digits,
 * or 0x and hex digits. */
static bool
label_is_number(const char *s, size_t len)
{
	size_t i = 0;

	if (len > 1 && s[0] == '0' && s[1] == 'x') {
		for (i = 2; i < len; i++)
			if (!is_digit(s[i]) && !(s[i] >= 'a' && s[i] <= 'f'))
				return false;
		return true;
	}
	for (i = 0; i < len; i++)
		if (!is_digit(s[i]))
			return false;
	return len > 0;
}

/* The folded byte, or 0 when it is not of a host name. */
static char
fold(uint8_t c)
{
	if (c >= 'A' && c <= 'Z')
		return (char)(c + 32);
	if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
	    c == '_' || c == '.')
		return (char)c;
	return 0;
}

static enum reason
refuse(struct host *out, enum reason why)
{
	memset(out, 0, sizeof(*out));
	return why;
}

/* What holds an address rather than a name: brackets, colons, %zone. */
static bool
looks_like_v6(struct span text)
{
	return memchr(text.data, ':', text.len) != NULL &&
	    (text.data[0] == '[' ||
	    memchr(text.data, ':', text.len) !=
	    memrchr(text.data, ':', text.len));
}

enum reason
host_parse(struct host *out, struct span text)
{
	size_t label = 0;

	memset(out, 0, sizeof(*out));
	if (text.len > 0 && text.data[text.len - 1] == '.')
		text.len--;
	if (text.len == 0)
		return REASON_NAME_MALFORMED;
	if (looks_like_v6(text))
		return REASON_ADDRESS_LITERAL;
	if (text.len > HOST_MAX_BYTES)
		return REASON_NAME_MALFORMED;
	for (size_t i = 0; i < text.len; i++) {
		char c = fold(text.data[i]);

		if (c == 0)
			return refuse(out, REASON_NAME_MALFORMED);
		out->name[i] = c;
		if (c != '.')
			continue;
		if (i == label || i - label > HOST_LABEL_MAX_BYTES)
			return refuse(out, REASON_NAME_MALFORMED);
		label = i + 1;
	}
	if (text.len == label || text.len - label > HOST_LABEL_MAX_BYTES)
		return refuse(out, REASON_NAME_MALFORMED);
	if (label_is_number(out->name + label, text.len - label))
		return refuse(out, REASON_ADDRESS_LITERAL);
	out->len = (uint8_t)text.len;
	return REASON_NONE;
}

static bool
is_ascii(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.data[i] >= 0x80)
			return false;
	return true;
}

enum reason
host_parse_policy(struct host *out, struct span text)
{
	char u[4 * HOST_MAX_BYTES + 1];
	char *a = NULL;
	enum reason why;

	if (is_ascii(text))
		return host_parse(out, text);
	memset(out, 0, sizeof(*out));
	/* IDNA would drop a soft hyphen without a word */
	if (text.len >= sizeof(u) || memchr(text.data, 0, text.len) != NULL ||
	    span_has_invisible(text))
		return REASON_NAME_MALFORMED;
	memcpy(u, text.data, text.len);
	u[text.len] = '\0';
	if (idn2_to_ascii_8z(u, &a,
	    IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL) != IDN2_OK)
		return REASON_NAME_MALFORMED;
	why = host_parse(out, span_str(a));
	idn2_free(a);
	return why;
}

bool
host_eq(const struct host *a, const struct host *b)
{
	return a->len == b->len && memcmp(a->name, b->name, a->len) == 0;
}

struct span
host_suffix(const struct host *h, unsigned n)
{
	size_t at = 0;

	if (h->len == 0)
		return span_of(h->name, 0);
	for (; n > 0; n--) {
		const char *dot = memchr(h->name + at, '.', h->len - at);

		if (dot == NULL)
			return span_of(h->name, 0);
		at = (size_t)(dot - h->name) + 1;
	}
	return span_of(h->name + at, h->len - at);
}

unsigned
host_labels(const struct host *h)
{
	unsigned n = h->len > 0;

	for (size_t i = 0; i < h->len; i++)
		n += h->name[i] == '.';
	return n;
}

bool
host_under(const struct host *name, const struct host *parent)
{
	return parent->len > 0 && name->len > parent->len + 1 &&
	    name->name[name->len - parent->len - 1] == '.' &&
	    memcmp(name->name + name->len - parent->len, parent->name,
	    parent->len) == 0;
}
