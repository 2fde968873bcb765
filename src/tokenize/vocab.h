/* vocab.h - the pieces of a vocabulary, found by id, by spelling, or as prefixes of a text.
 *
 * Ids need not be dense: an id may have no piece.  Pieces are bytes, almost
 * always UTF-8, and may hold NUL. */
#ifndef HL_TOKENIZE_VOCAB_H
#define HL_TOKENIZE_VOCAB_H

#include "base/json_reader.h"
#include "headlight/tokenizer.h"

#define HL_MAX_VOCAB       (1 << 22) /* largest number of ids */
#define HL_MAX_PIECE_BYTES (1 << 20)

typedef struct hl_piece {
    uint32_t at; /* offset in hl_vocab.bytes */
    uint32_t n_bytes;
    float    score;
    uint8_t  type; /* hl_token_type */
    bool     present;
    bool     special; /* left out when decoding without special tokens */
} hl_piece;

typedef struct hl_vocab {
    hl_piece *pieces; /* (n_ids) */
    size_t    n_ids;  /* one more than the largest id */
    size_t    n_pieces;
    size_t    longest; /* bytes of the longest piece */
    size_t    pieces_capacity;
    char     *bytes;
    size_t    n_bytes;
    size_t    bytes_capacity;
    int32_t  *slots; /* (n_slots) ids by hash of their spelling, -1 where empty */
    size_t    n_slots;
    uint64_t  n_probes; /* slots examined while pieces were added */
} hl_vocab;

/* Adds a piece under an id that has none.  If two ids have the same spelling, looking it up finds
 * the later one; `*replaced` (may be NULL) says whether that happened. */
hl_status hl_vocab_add(hl_vocab *vocab, int64_t id, hl_bytes spelling, hl_token_type type,
                       bool *replaced);
void      hl_vocab_free(hl_vocab *vocab);

/* The id with that spelling; -1 if there is none. */
int32_t hl_vocab_find(const hl_vocab *vocab, hl_bytes spelling);
/* The piece <0xNN> that stands for a byte; -1 if there is none. */
int32_t hl_vocab_find_byte(const hl_vocab *vocab, uint8_t byte);
/* The spelling of an id; {NULL, 0} if the id has no piece. */
hl_bytes hl_vocab_spelling(const hl_vocab *vocab, int64_t id);

uint64_t hl_hash_bytes(const char *bytes, size_t n_bytes);

/* ----------------------------------------- strings that are prefixes of a text
 *
 *     hl_prefix_walk walk = hl_prefixes_begin(&set);
 *     while (i < n && hl_prefixes_step(&set, &walk, text[i++])) {
 *         int32_t id = hl_prefixes_match(&set, &walk);
 *         if (id >= 0) ... text[0 .. i) is that string ...
 *     } */

typedef struct hl_prefix {
    hl_bytes text; /* borrowed */
    int32_t  id;
} hl_prefix;

typedef struct hl_prefixes {
    hl_prefix *items; /* (count) sorted */
    size_t     count;
    size_t     capacity;
    uint32_t   first[257]; /* where the strings with this first byte begin */
} hl_prefixes;

/* Adds a non-empty string.  After the last one, hl_prefixes_sort sorts them; of equal strings the
 * last added stays. */
hl_status hl_prefixes_add(hl_prefixes *set, hl_bytes text, int32_t id);
void      hl_prefixes_sort(hl_prefixes *set);
void      hl_prefixes_free(hl_prefixes *set);

typedef struct hl_prefix_walk {
    size_t low;
    size_t high;
    size_t depth; /* number of bytes so far */
} hl_prefix_walk;

hl_prefix_walk hl_prefixes_begin(const hl_prefixes *set);
/* False when no string continues with this byte. */
bool hl_prefixes_step(const hl_prefixes *set, hl_prefix_walk *walk, char byte);
/* The id of the string that ends here; -1 if none does. */
int32_t hl_prefixes_match(const hl_prefixes *set, const hl_prefix_walk *walk);

#endif
