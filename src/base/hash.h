/* hash.h - XXH64, Yann Collet's 64-bit hash: quick, well mixed, not cryptographic.
 *
 *     uint64_t hash = hl_hash(bytes, n_bytes, 0);
 *
 * or in pieces, with the same result however they are cut:
 *
 *     hl_hasher hasher;
 *     hl_hash_start(&hasher, 0);
 *     hl_hash_add(&hasher, bytes, n_bytes);      ... any number of times
 *     uint64_t hash = hl_hash_end(&hasher);      more may be added afterwards
 *
 * The hash decides which documents, windows and rows are sampled: those with the smallest
 * hashes, so that order and machine do not matter.  A profile stores the hashes of its model
 * and its text.  The result is the same on every machine. */
#ifndef HL_BASE_HASH_H
#define HL_BASE_HASH_H

#include "headlight/base.h"

uint64_t hl_hash(const void *bytes, size_t n_bytes, uint64_t seed);

typedef struct hl_hasher {
    uint64_t lanes[4];
    uint64_t seed;
    uint64_t n_bytes;     /* number of bytes added so far */
    uint8_t  partial[32]; /* the last n_bytes % 32 bytes */
} hl_hasher;

void     hl_hash_start(hl_hasher *hasher, uint64_t seed);
void     hl_hash_add(hl_hasher *hasher, const void *bytes, size_t n_bytes);
uint64_t hl_hash_end(const hl_hasher *hasher);

/* Adds a number as its little-endian bytes. */
void hl_hash_add_u64(hl_hasher *hasher, uint64_t value);
void hl_hash_add_u32(hl_hasher *hasher, uint32_t value);
/* The hash of two numbers, such as a seed and a content hash, or a window's hash and a row. */
uint64_t hl_hash_pair(uint64_t a, uint64_t b);

/* CRC-32C, Castagnoli's, as in iSCSI (RFC 3720): the check sum of TensorBoard's files. */
uint32_t hl_crc32c(const void *bytes, size_t n_bytes);

#endif
