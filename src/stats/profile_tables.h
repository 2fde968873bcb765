/* profile_tables.h - internals of a profile: one block of memory, divided into tables.
 *
 * All sums are in one block, which is divided into tables.  One list (profile_tables.c) has the
 * name of each table in files, its dtype and shape, and how two of them are merged.  Merging,
 * writing and reading iterate over this list, and MPI reduces the whole block.
 *
 * Letters of shapes: L layers, H largest number of heads in a layer, Q quantities, P position
 * buckets, T token types, K kept sequences, 2 halves of a 128-bit sum. */
#ifndef HL_STATS_PROFILE_TABLES_H
#define HL_STATS_PROFILE_TABLES_H

#include "stats/exact.h"
#include "stats/profile.h"

/* Number of quantities per table. By position: ENTROPY, NORMALIZED. By type: also RENYI2. Of
 * sequences: ENTROPY, NORMALIZED, ENTROPY_NOSINK in one table; the other quantities in their order,
 * and the norm of outputs, in another. */
enum {
    HL_N_BY_POSITION = 2,
    HL_N_BY_TYPE     = 3,
    HL_N_OF_SEQUENCE = 3,
    HL_N_MORE        = 7,
    HL_N_SEQUENCE    = HL_N_OF_SEQUENCE + HL_N_MORE
};

typedef enum hl_table {
    HL_TABLE_COUNT = 0, /* (L, H, Q) */
    HL_TABLE_SUM,       /* (L, H, Q) wide */
    HL_TABLE_SQUARES,   /* (L, H, Q) wide */
    HL_TABLE_MIN,       /* (L, H, Q) F32 */
    HL_TABLE_MAX,       /* (L, H, Q) F32 */
    HL_TABLE_HISTOGRAM, /* (L, H, 3, 64) */
    HL_TABLE_BROKEN,    /* (L, H) */
    HL_TABLE_PLACE,     /* (L, H, 2) document and token of the first broken row; -1: none */
    HL_TABLE_POSITION_COUNT,
    HL_TABLE_POSITION_SUM,
    HL_TABLE_POSITION_SQUARES, /* (L, H, P, 2) each */
    HL_TABLE_TYPE_COUNT,
    HL_TABLE_TYPE_SUM,
    HL_TABLE_TYPE_SQUARES, /* (L, H, T, 3) each */
    HL_TABLE_LOOKBACK,     /* (L, H, T, T) units; divided by the count of the first type */
    HL_TABLE_PATTERN_COUNT,
    HL_TABLE_PATTERN_SUM,
    HL_TABLE_PATTERN_SQUARES, /* (L, H, 11, 2) each, units; second: without the first key */
    HL_TABLE_DISTANCE_COUNT,  /* (L) */
    HL_TABLE_DISTANCE_SUM,    /* (L, H(H-1)/2) units: total variation of pairs a < b */
    HL_TABLE_KERNEL_COUNT,    /* (L) */
    HL_TABLE_KERNEL_SUM,      /* (L, H(H+1)/2) units: HSIC of pairs a <= b */
    HL_TABLE_NORM_COUNT,
    HL_TABLE_NORM_SUM,
    HL_TABLE_NORM_SQUARES, /* (L, H) each */
    HL_TABLE_INFLUENCE_COUNT,
    HL_TABLE_INFLUENCE_SUM,
    HL_TABLE_INFLUENCE_SQUARES, /* (L) each */
    HL_TABLE_NLL_COUNT,
    HL_TABLE_NLL_SUM,
    HL_TABLE_NLL_SQUARES,  /* (1) each */
    HL_TABLE_NLL_BROKEN,   /* (1) in files only if it is not 0 */
    HL_TABLE_RECALL_COUNT, /* in files only with layers that have an indexer */
    HL_TABLE_RECALL_SUM,
    HL_TABLE_RECALL_SQUARES, /* (L, H) each */
    HL_TABLE_PROBE,          /* (L, H, 3) F64 */
    HL_TABLE_TOTALS,         /* (2) tokens, sequences */
    HL_TABLE_TEXT,           /* (1) U64: the sum of the sequences' hashes */
    HL_TABLE_HASHES,         /* (K) U64, ascending */
    HL_TABLE_MEANS,          /* (K, L, H, 3) F32 */
    HL_TABLE_KEPT_POSITIONS, /* (K, L, P, 2) F32: means over the heads of the layer */
    HL_TABLE_KEPT_COUNTS,    /* (K, P, 2): number of rows over the heads of all layers */
    HL_TABLE_DOCUMENTS,      /* (K) U64: which document each is of, by a hash; 0: unknown */
    HL_TABLE_MORE,           /* (K, L, H, 7) F32 */
    HL_N_TABLES
} hl_table;

/* Tables of kept sequences come last. Those that files of earlier formats lack are at the end. */
#define HL_FIRST_KEPT        HL_TABLE_HASHES
#define HL_N_KEPT            (HL_N_TABLES - HL_FIRST_KEPT)
#define HL_FIRST_OF_FORMAT_2 HL_TABLE_KEPT_POSITIONS
#define HL_FIRST_OF_FORMAT_3 HL_TABLE_DOCUMENTS
#define HL_FIRST_OF_FORMAT_4 HL_TABLE_MORE

/* How two tables are merged. */
typedef enum hl_table_kind {
    HL_KIND_COUNT = 0, /* add; from 0 to HL_MAX_COUNT */
    HL_KIND_WIDE,      /* add 128 bits; bounded by the count that precedes it in the list */
    HL_KIND_SQUARES,   /* as WIDE, but never negative */
    HL_KIND_UNIT,      /* add */
    HL_KIND_MIN,
    HL_KIND_MAX,
    HL_KIND_PLACE, /* the smaller pair */
    HL_KIND_SCORE, /* the smaller value; NaN: no value. All runs of a probe agree */
    HL_KIND_HASH,  /* add, modulo 2^64 */
    HL_KIND_KEPT,  /* sorted by hash, the first K are kept */
} hl_table_kind;

#define HL_TABLE_DIMS 5

typedef struct hl_table_form {
    const char   *name; /* name of the tensor */
    hl_dtype      dtype;
    hl_table_kind kind;
    hl_table      counts;              /* for WIDE, SQUARES and UNIT: the count that bounds it */
    int           dims[HL_TABLE_DIMS]; /* numbers, or negative letters; 0 ends */
} hl_table_form;

const hl_table_form *hl_table_form_of(hl_table table);

/* Files lack a table of these if all of its counts are 0. */
static inline bool hl_table_is_optional(hl_table table)
{
    return table >= HL_TABLE_NLL_BROKEN && table <= HL_TABLE_RECALL_SQUARES;
}

/* Files of unfinished work have this setting: where to continue. */
#define HL_PROFILE_STATE "state"

typedef struct hl_setting {
    char *key;
    char *value;
} hl_setting;

struct hl_profile {
    int64_t  n_layers;
    int64_t  n_heads;
    int64_t  n_buckets;
    int64_t  n_types;
    int64_t  n_kept; /* K, the limit of kept sequences */
    int64_t *heads;  /* (n_layers) */
    char    *type_names[HL_PROFILE_MAX_TYPES];

    hl_setting *settings; /* (n_settings) sorted by key */
    size_t      n_settings;

    uint8_t *block; /* (n_block_bytes) holds all tables */
    size_t   n_block_bytes;
    void    *tables[HL_N_TABLES];

    struct hl_profile_flight *flight; /* see profile_add.c; NULL before the first batch */
};

/* Writes the shape of a table and returns its number of dimensions. For tables of kept sequences
 * the first dimension is K. */
int hl_table_shape(int64_t out[HL_TABLE_DIMS], const hl_profile *profile, hl_table table);
/* Returns the number of elements; a wide sum counts as two. */
int64_t hl_table_count(const hl_profile *profile, hl_table table);
/* Returns the number of sequences kept now. */
int64_t hl_profile_kept(const hl_profile *profile);

/* Allocates the block for the profile's sizes; every table starts as if nothing had been
 * measured. */
hl_status hl_profile_allocate(hl_profile *profile);
/* Returns the size of all tables in bytes. */
size_t hl_profile_block_bytes(const hl_profile *profile);
/* Creates a profile without tables; call hl_profile_allocate next. */
hl_status hl_profile_new_shape(hl_profile **out, const hl_profile_shape *shape, int64_t n_buckets,
                               int64_t n_kept);

/* Adds the tables of `from` to those of `to`; both have the same shape. */
void hl_profile_add_tables(hl_profile *to, const hl_profile *from);

/* One kept sequence: its part of each of the tables, the hash first. */
typedef struct hl_kept_sequence {
    const void *parts[HL_N_KEPT];
} hl_kept_sequence;

/* Part `i` of a kept sequence, and its size. */
size_t hl_kept_bytes(const hl_profile *profile, int i);
void  *hl_kept_part(const hl_profile *profile, int i, int64_t sequence);
/* Adds one sequence to the kept ones if it is among the first K. n_before: the number of sequences
 * that the profile has counted, without this one. */
void hl_profile_keep(hl_profile *profile, const hl_kept_sequence *sequence, int64_t n_before);

static inline int64_t *hl_counts(const hl_profile *profile, hl_table table)
{
    return (int64_t *)profile->tables[table];
}
static inline hl_wide *hl_wides(const hl_profile *profile, hl_table table)
{
    return (hl_wide *)profile->tables[table];
}
static inline float *hl_floats(const hl_profile *profile, hl_table table)
{
    return (float *)profile->tables[table];
}
/* The cell of a head in a table of (L, H). */
static inline int64_t hl_cell(const hl_profile *profile, int64_t layer, int64_t head)
{
    return layer * profile->n_heads + head;
}
/* Returns the index of a pair a < b, and of a pair a <= b, among the pairs of a layer. */
static inline int64_t hl_pair(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    int64_t n = profile->n_heads;
    return layer * (n * (n - 1) / 2) + a * (2 * n - a - 1) / 2 + (b - a - 1);
}
static inline int64_t hl_self_pair(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    int64_t n = profile->n_heads;
    return layer * (n * (n + 1) / 2) + a * (2 * n - a + 1) / 2 + (b - a);
}

#endif
