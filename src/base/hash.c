/* hash.c - XXH64, from its published description.
 *
 * Input is split into stripes of 32 bytes for four lanes of 8 bytes.  Each lane multiplies
 * and rotates by itself, so that a CPU can work on all four at once:
 *
 *     lane = rotate(lane + word * PRIME_2, 31) * PRIME_1
 *
 * At the end the lanes are folded into one number, the rest of the input (under 32 bytes)
 * is added in words of 8, 4 and 1 bytes, and the bits are mixed once more.  Inputs shorter
 * than a stripe do not use the lanes. */
#include "base/hash.h"

#include <string.h>

#define PRIME_1 0x9e3779b185ebca87U
#define PRIME_2 0xc2b2ae3d27d4eb4fU
#define PRIME_3 0x165667b19e3779f9U
#define PRIME_4 0x85ebca77c2b2ae63U
#define PRIME_5 0x27d4eb2f165667c5U

enum { STRIPE = 32 };

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* Reads a little-endian word at any alignment. */
static uint64_t read_u64(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint64_t read_u32(const uint8_t *bytes)
{
    uint32_t word;

    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static uint64_t add_word(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * PRIME_2, 31) * PRIME_1;
}

static uint64_t fold_lane(uint64_t hash, uint64_t lane)
{
    return (hash ^ add_word(0, lane)) * PRIME_1 + PRIME_4;
}

/* Adds whole stripes; the lanes stay in registers meanwhile. */
static void add_stripes(uint64_t lanes[4], const uint8_t *bytes, size_t n_stripes)
{
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];

    for (; n_stripes > 0; n_stripes--, bytes += STRIPE) {
        a = add_word(a, read_u64(bytes));
        b = add_word(b, read_u64(bytes + 8));
        c = add_word(c, read_u64(bytes + 16));
        d = add_word(d, read_u64(bytes + 24));
    }
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
}

void hl_hash_start(hl_hasher *hasher, uint64_t seed)
{
    *hasher = (hl_hasher){
        .lanes = { seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1 },
        .seed  = seed,
    };
}

void hl_hash_add(hl_hasher *hasher, const void *bytes, size_t n_bytes)
{
    const uint8_t *next = bytes;
    size_t         held = hasher->n_bytes % STRIPE;

    if (n_bytes == 0)
        return;
    hasher->n_bytes += n_bytes;
    if (held + n_bytes < STRIPE) {
        memcpy(hasher->partial + held, next, n_bytes);
        return;
    }
    if (held > 0) {
        memcpy(hasher->partial + held, next, STRIPE - held);
        add_stripes(hasher->lanes, hasher->partial, 1);
        next += STRIPE - held;
        n_bytes -= STRIPE - held;
    }
    add_stripes(hasher->lanes, next, n_bytes / STRIPE);
    memcpy(hasher->partial, next + n_bytes / STRIPE * STRIPE, n_bytes % STRIPE);
}

static uint64_t fold_lanes(const hl_hasher *hasher)
{
    const uint64_t *lanes = hasher->lanes;

    if (hasher->n_bytes < STRIPE)
        return hasher->seed + PRIME_5;
    uint64_t hash =
        rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (int i = 0; i < 4; i++)
        hash = fold_lane(hash, lanes[i]);
    return hash;
}

static uint64_t add_tail(uint64_t hash, const uint8_t *bytes, size_t n_bytes)
{
    for (; n_bytes >= 8; n_bytes -= 8, bytes += 8)
        hash = rotate(hash ^ add_word(0, read_u64(bytes)), 27) * PRIME_1 + PRIME_4;
    for (; n_bytes >= 4; n_bytes -= 4, bytes += 4)
        hash = rotate(hash ^ read_u32(bytes) * PRIME_1, 23) * PRIME_2 + PRIME_3;
    for (; n_bytes > 0; n_bytes--, bytes++)
        hash = rotate(hash ^ *bytes * PRIME_5, 11) * PRIME_1;
    return hash;
}

uint64_t hl_hash_end(const hl_hasher *hasher)
{
    uint64_t hash = fold_lanes(hasher) + hasher->n_bytes;

    hash = add_tail(hash, hasher->partial, hasher->n_bytes % STRIPE);
    hash ^= hash >> 33;
    hash *= PRIME_2;
    hash ^= hash >> 29;
    hash *= PRIME_3;
    return hash ^ hash >> 32;
}

uint64_t hl_hash(const void *bytes, size_t n_bytes, uint64_t seed)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, seed);
    hl_hash_add(&hasher, bytes, n_bytes);
    return hl_hash_end(&hasher);
}

static void add_number(hl_hasher *hasher, uint64_t value, int n_bytes)
{
    uint8_t bytes[8];

    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    hl_hash_add(hasher, bytes, (size_t)n_bytes);
}

void hl_hash_add_u64(hl_hasher *hasher, uint64_t value)
{
    add_number(hasher, value, 8);
}

void hl_hash_add_u32(hl_hasher *hasher, uint32_t value)
{
    add_number(hasher, value, 4);
}

uint64_t hl_hash_pair(uint64_t a, uint64_t b)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, a);
    hl_hash_add_u64(&hasher, b);
    return hl_hash_end(&hasher);
}

uint32_t hl_crc32c(const void *bytes, size_t n_bytes)
{
    const uint8_t *at  = bytes;
    uint32_t       crc = 0xffffffffU;

    /* A bit-by-bit CRC is fast enough: a record of a training run is short. */
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    return ~crc;
}
