/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/ja4.h"

#include <openssl/evp.h>
#include <stdlib.h>

#define EXT_SERVER_NAME 0
#define EXT_ALPN 16

void
ja4_clear(struct ja4_parts *p)
{
	p->version = 0;
	p->name = false;
	p->alpn = span_of(NULL, 0);
	p->n_ciphers = p->n_extensions = p->n_algorithms = 0;
}

bool
ja4_is_grease(uint16_t v)
{
	return (v & 0x0f0f) == 0x0a0a && v >> 8 == (v & 0xff);
}

static const char hex[] = "0123456789abcdef";

static const char *
version_word(uint16_t v)
{
	switch (v) {
	case 0x0304: return "13";
	case 0x0303: return "12";
	case 0x0302: return "11";
	case 0x0301: return "10";
	case 0x0300: return "s3";
	case 0x0002: return "s2";
	}
	return "00";
}

static bool
is_alnum(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z');
}

/* First and last character of the first protocol; of its hex when one of
 * them is not alphanumeric. */
static void
alpn_word(struct span alpn, char out[static 3])
{
	uint8_t first, last;

	memcpy(out, "00", 3);
	if (alpn.len == 0)
		return;
	first = alpn.data[0];
	last = alpn.data[alpn.len - 1];
	if (is_alnum(first) && is_alnum(last)) {
		out[0] = (char)first;
		out[1] = (char)last;
		return;
	}
	out[0] = hex[first >> 4];
	out[1] = hex[last & 15];
}

static int
by_value(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* "1301,1302" at out; returns the length. */
static size_t
write_list(const uint16_t *v, size_t n, char *out)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			out[at++] = ',';
		for (int shift = 12; shift >= 0; shift -= 4)
			out[at++] = hex[v[i] >> shift & 15];
	}
	return at;
}

/* The algorithm is looked up and the context made once: either costs more
 * than the digest of a hello. */
static bool
sha256(const char *text, size_t len, uint8_t out[static EVP_MAX_MD_SIZE])
{
	static EVP_MD *md;
	static EVP_MD_CTX *ctx;

	if (md == NULL)
		md = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (ctx == NULL)
		ctx = EVP_MD_CTX_new();
	return md != NULL && ctx != NULL &&
	    EVP_DigestInit_ex2(ctx, md, NULL) == 1 &&
	    EVP_DigestUpdate(ctx, text, len) == 1 &&
	    EVP_DigestFinal_ex(ctx, out, NULL) == 1;
}

static void
digest12(const char *text, size_t len, char out[static 13])
{
	uint8_t d[EVP_MAX_MD_SIZE];

	memcpy(out, "000000000000", 13);
	if (len == 0 || !sha256(text, len, d))
		return;
	for (size_t i = 0; i < 6; i++) {
		out[2 * i] = hex[d[i] >> 4];
		out[2 * i + 1] = hex[d[i] & 15];
	}
}

static char *
put_word(char *out, const char *word, size_t n)
{
	memcpy(out, word, n);
	return out + n;
}

/* Two digits; 99 is the largest. */
static char *
put_count(char *out, size_t n)
{
	if (n > 99)
		n = 99;
	*out++ = (char)('0' + n / 10);
	*out++ = (char)('0' + n % 10);
	return out;
}

void
ja4_write(struct ja4_parts *p, char out[static JA4_BYTES])
{
	/* extensions, algorithms and what is between them; or the ciphers */
	static char text[(JA4_EXTENSIONS_MAX + JA4_LIST_MAX) * 5 + 2];
	uint16_t kept[JA4_EXTENSIONS_MAX] = { 0 };
	char ciphers[13], extensions[13], alpn[3];
	size_t n = 0, len;

	qsort(p->ciphers, p->n_ciphers, sizeof(p->ciphers[0]), by_value);
	len = write_list(p->ciphers, p->n_ciphers, text);
	digest12(text, len, ciphers);
	for (size_t i = 0; i < p->n_extensions; i++)
		if (p->extensions[i] != EXT_SERVER_NAME &&
		    p->extensions[i] != EXT_ALPN)
			kept[n++] = p->extensions[i];
	qsort(kept, n, sizeof(kept[0]), by_value);
	len = write_list(kept, n, text);
	if (p->n_algorithms > 0) {
		text[len++] = '_';
		len += write_list(p->algorithms, p->n_algorithms, text + len);
	}
	digest12(text, p->n_extensions > 0 ? len : 0, extensions);
	alpn_word(p->alpn, alpn);
	*out++ = 't';
	out = put_word(out, version_word(p->version), 2);
	*out++ = p->name ? 'd' : 'i';
	out = put_count(out, p->n_ciphers);
	out = put_count(out, p->n_extensions);
	out = put_word(out, alpn, 2);
	*out++ = '_';
	out = put_word(out, ciphers, 12);
	*out++ = '_';
	*put_word(out, extensions, 12) = '\0';
}
