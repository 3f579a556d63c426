/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/trust.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>

#define SYSTEM "/etc/ssl/certs/ca-certificates.crt"

struct trust {
	FILE *file;		/* NULL: none, or read already */
	SSL_CTX *context;
};

struct trust *
trust_new(const char *path)
{
	struct trust *t = calloc(1, sizeof(*t));

	if (t != NULL)
		t->file = fopen(path[0] != '\0' ? path : SYSTEM, "re");
	return t;
}

void
trust_free(struct trust *t)
{
	if (t == NULL)
		return;
	if (t->file != NULL)
		fclose(t->file);
	SSL_CTX_free(t->context);
	free(t);
}

/* How many certificates of the file are in the store now. */
static unsigned
read_all(FILE *file, X509_STORE *store)
{
	unsigned n = 0;
	X509 *x;

	while ((x = PEM_read_X509(file, NULL, NULL, NULL)) != NULL) {
		n += X509_STORE_add_cert(store, x) == 1;
		X509_free(x);
	}
	ERR_clear_error();	/* of the end of the file */
	return n;
}

SSL_CTX *
trust_context(struct trust *t)
{
	SSL_CTX *c;

	if (t->context != NULL || t->file == NULL)
		return t->context;
	c = SSL_CTX_new(TLS_client_method());
	if (c != NULL && (SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) !=
	    1 || read_all(t->file, SSL_CTX_get_cert_store(c)) == 0)) {
		SSL_CTX_free(c);
		c = NULL;
	}
	if (c != NULL)
		SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
	fclose(t->file);
	t->file = NULL;
	t->context = c;
	return c;
}
