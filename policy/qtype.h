/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_QTYPE_H
#define POLICY_QTYPE_H

#include "policy/span.h"

/*
 * The types of question that a rule opens with `dns:`, beside the addresses
 * that each name that may be connected to may be asked for.  A set of them is
 * a uint32_t of bits.
 */
#define QTYPE_COUNT 8u

/* The bit of a type (RFC 1035 3.2.2); 0: no rule opens it. */
uint32_t qtype_bit(uint16_t type);
/* The bit of a word as MX; 0: none has this name. */
uint32_t qtype_named(struct span word);
/* "MX TXT"; "" for none; returns out. */
#define QTYPE_TEXT_BYTES 64u
char *qtype_text(uint32_t set, char out[static QTYPE_TEXT_BYTES]);

#endif
