/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <sodium.h>
#include <stdio.h>

#define TOKEN_BYTES 32u
#define HASH_BYTES 32u
#define TEXT_BYTES 64u

/*
 * A new random token, and its hash for from: {credential} of a cell.  The
 * daemon keeps only the hash; with --hash a token is read from stdin.
 */
static int
print_hash(const char *token, size_t len)
{
	unsigned char hash[HASH_BYTES];
	char hex[2 * HASH_BYTES + 1];

	crypto_generichash(hash, sizeof(hash), (const unsigned char *)token,
	    len, NULL, 0);
	sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
	printf("credential: blake2b:%s\n", hex);
	return fflush(stdout) == 0 ? 0 : 1;
}

static int
hash_stdin(void)
{
	char token[512];
	size_t n = fread(token, 1, sizeof(token), stdin);

	if (n > 0 && token[n - 1] == '\n')
		n--;
	if (n == 0 || n == sizeof(token)) {
		fprintf(stderr, "penstock token: stdin has no token of 1 to "
		    "511 bytes\n");
		return 1;
	}
	return print_hash(token, n);
}

int
verb_token(int argc, char **argv)
{
	bool hash = false;
	const struct verb_option options[] = {
		{ "hash", 0, NULL, "read the token from standard input",
		    .flag = &hash },
	};
	const struct verb v = {
		"token", "", "Make a proxy credential for a cell: a token, "
		"and its hash for credential:\n",
		"0, 2 usage, 1 failure", 0, 0, options, 1
	};
	unsigned char random[TOKEN_BYTES];
	char token[TEXT_BYTES];
	int c = verb_read(&v, argc, argv);

	if (c != VERB_GO)
		return c;
	if (sodium_init() < 0)
		return 1;
	if (hash)
		return hash_stdin();
	randombytes_buf(random, sizeof(random));
	sodium_bin2base64(token, sizeof(token), random, sizeof(random),
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	printf("token: %s\n", token);
	c = print_hash(token,
	    sodium_base64_ENCODED_LEN(TOKEN_BYTES,
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING) - 1);
	sodium_memzero(token, sizeof(token));
	return c;
}
