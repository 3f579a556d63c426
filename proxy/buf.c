/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_BYTES 4096u

/* Room for n more bytes; what was taken makes room first. */
static int
buf_grow(struct buf *b, size_t n)
{
	size_t left = buf_left(b), want = left + n;
	size_t cap = b->cap ? b->cap : BUF_FIRST_BYTES;
	uint8_t *data;

	if (b->at > 0) {
		memmove(b->data, b->data + b->at, left);
		b->at = 0;
		b->len = (uint32_t)left;
	}
	if (want > UINT32_MAX / 2)
		return -ENOMEM;
	while (cap < want)
		cap *= 2;
	if (cap == b->cap)
		return 0;
	data = realloc(b->data, cap);
	if (data == NULL)
		return -ENOMEM;
	b->data = data;
	b->cap = (uint32_t)cap;
	return 0;
}

int
buf_put(struct buf *b, struct span bytes)
{
	if (bytes.len == 0)
		return 0;
	if (b->cap - b->len < bytes.len && buf_grow(b, bytes.len) < 0)
		return -ENOMEM;
	memcpy(b->data + b->len, bytes.data, bytes.len);
	b->len += (uint32_t)bytes.len;
	return 0;
}

void
buf_take(struct buf *b, size_t n)
{
	b->at += (uint32_t)n;
	if (b->at >= b->len)
		buf_free(b);
}

void
buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

void
buf_fit(struct buf *b)
{
	size_t left = buf_left(b);
	uint8_t *data;

	if (left == 0 || left == b->cap)
		return;
	data = malloc(left);
	if (data == NULL)
		return;		/* it is there, if too large */
	memcpy(data, b->data + b->at, left);
	free(b->data);
	b->data = data;
	b->at = 0;
	b->len = b->cap = (uint32_t)left;
}

ssize_t
buf_room(struct buf *b, size_t max, uint8_t **at)
{
	size_t left = buf_left(b), room;

	if (left >= max)
		return -ENOBUFS;
	room = max - left;
	if (b->len == b->cap && buf_grow(b, room < BUF_FIRST_BYTES ? room :
	    BUF_FIRST_BYTES) < 0)
		return -ENOMEM;
	if (room > b->cap - b->len)
		room = b->cap - b->len;
	*at = b->data + b->len;
	return (ssize_t)room;
}

void
buf_grew(struct buf *b, size_t n)
{
	b->len += (uint32_t)n;
	if (b->len == b->at)
		buf_free(b);
}
