/* profile_tables.h - the inside of a profile: one block of memory, by table.
 *
 * Everything that is summed up lies in one block, cut into tables.  What a table is
 * called in a file, its dtype and shape and how two of them become one stands in one
 * list (profile_tables.c); merging, writing and reading walk over it, and MPI reduces
 * the block as it is.
 *
 * Letters of shapes: L layers, H the most heads of a layer, Q quantities, P position
 * buckets, T token types, K sequences kept, 2 the halves of a 128-bit sum. */
#ifndef HL_STATS_PROFILE_TABLES_H
#define HL_STATS_PROFILE_TABLES_H

#include "stats/exact.h"
#include "stats/profile.h"

/* Of rows by position: ENTROPY, FAIR; by type: RENYI2 too; of sequences: ENTROPY, FAIR,
 * NOSINK. */
enum { HL_N_BY_POSITION = 2, HL_N_BY_TYPE = 3, HL_N_OF_SEQUENCE = 3 };

typedef enum hl_table {
    HL_TABLE_COUNT = 0, /* (L, H, Q) */
    HL_TABLE_SUM,       /* (L, H, Q) wide */
    HL_TABLE_SQUARES,   /* (L, H, Q) wide */
    HL_TABLE_MIN,       /* (L, H, Q) F32 */
    HL_TABLE_MAX,       /* (L, H, Q) F32 */
    HL_TABLE_HISTOGRAM, /* (L, H, 3, 64) */
    HL_TABLE_BROKEN,    /* (L, H) */
    HL_TABLE_PLACE,     /* (L, H, 2) document and token of the first; -1: none */
    HL_TABLE_POSITION_COUNT,
    HL_TABLE_POSITION_SUM,
    HL_TABLE_POSITION_SQUARES, /* (L, H, P, 2) each */
    HL_TABLE_TYPE_COUNT,
    HL_TABLE_TYPE_SUM,
    HL_TABLE_TYPE_SQUARES, /* (L, H, T, 3) each */
    HL_TABLE_LOOKBACK,     /* (L, H, T, T) units; over the count of the first type */
    HL_TABLE_PATTERN_COUNT,
    HL_TABLE_PATTERN_SUM,
    HL_TABLE_PATTERN_SQUARES, /* (L, H, 11, 2) each, units; second: without key 0 */
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
    HL_TABLE_NLL_SQUARES,    /* (1) each */
    HL_TABLE_NLL_BROKEN,     /* (1) in files only where it is not 0 */
    HL_TABLE_PROBE,          /* (L, H, 3) F64 */
    HL_TABLE_TOTALS,         /* (2) tokens, sequences */
    HL_TABLE_TEXT,           /* (1) U64: the sum of the sequences' hashes */
    HL_TABLE_HASHES,         /* (K) U64, rising */
    HL_TABLE_MEANS,          /* (K, L, H, 3) F32 */
    HL_TABLE_KEPT_POSITIONS, /* (K, L, P, 2) F32: over the heads of the layer */
    HL_TABLE_KEPT_COUNTS,    /* (K, P, 2): over the heads of all layers */
    HL_N_TABLES
} hl_table;

/* Tables of kept sequences come last; those that files of the first format lack, at the end. */
#define HL_FIRST_KEPT        HL_TABLE_HASHES
#define HL_N_KEPT            (HL_N_TABLES - HL_FIRST_KEPT)
#define HL_FIRST_OF_FORMAT_2 HL_TABLE_KEPT_POSITIONS

/* How two tables become one. */
typedef enum hl_table_kind {
    HL_KIND_COUNT = 0, /* add; from 0 to HL_MAX_COUNT */
    HL_KIND_WIDE,      /* add 128 bits; held by the count before it in the list */
    HL_KIND_SQUARES,   /* the same, not negative */
    HL_KIND_UNIT,      /* add */
    HL_KIND_MIN,
    HL_KIND_MAX,
    HL_KIND_PLACE, /* the smaller pair */
    HL_KIND_SCORE, /* the smaller, NaN being none: runs of a probe all say the same */
    HL_KIND_HASH,  /* add, modulo 2^64 */
    HL_KIND_KEPT,  /* sorted by hash, the first K */
} hl_table_kind;

#define HL_TABLE_DIMS 5

typedef struct hl_table_form {
    const char   *name; /* of the tensor */
    hl_dtype      dtype;
    hl_table_kind kind;
    hl_table      counts;              /* of WIDE, SQUARES and UNIT: what bounds it */
    int           dims[HL_TABLE_DIMS]; /* numbers, or negative letters; 0 ends */
} hl_table_form;

const hl_table_form *hl_table_form_of(hl_table table);

/* Of work that is not done a file has this setting: where to go on. */
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
    int64_t  n_kept; /* K */
    int64_t *heads;  /* (n_layers) */
    char    *type_names[HL_PROFILE_MAX_TYPES];

    hl_setting *settings; /* (n_settings) sorted by key */
    size_t      n_settings;

    uint8_t *block; /* (n_block_bytes) all tables */
    size_t   n_block_bytes;
    void    *tables[HL_N_TABLES];

    struct hl_profile_flight *flight; /* profile_add.c; NULL before the first batch */
};

/* The shape of a table: how many dimensions, and their sizes.  Of the tables of kept
 * sequences the first is K. */
int hl_table_shape(int64_t out[HL_TABLE_DIMS], const hl_profile *profile, hl_table table);
/* The number of its elements; a wide sum is two of them. */
int64_t hl_table_count(const hl_profile *profile, hl_table table);
/* Sequences that are kept now. */
int64_t hl_profile_kept(const hl_profile *profile);

/* Gives the profile its block: from the sizes, with every table as if nothing had been
 * measured. */
hl_status hl_profile_allocate(hl_profile *profile);
/* The bytes of all tables. */
size_t hl_profile_block_bytes(const hl_profile *profile);
/* A profile without tables; hl_profile_allocate follows. */
hl_status hl_profile_new_shape(hl_profile **out, const hl_profile_shape *shape, int64_t n_buckets,
                               int64_t n_kept);

/* Adds the tables of `from` to those of `to`; both of the same shape. */
void hl_profile_add_tables(hl_profile *to, const hl_profile *from);

/* One sequence of those kept: its part of each of their tables, the hash first. */
typedef struct hl_kept_sequence {
    const void *parts[HL_N_KEPT];
} hl_kept_sequence;

/* Part `i` of a kept sequence, and its size. */
size_t hl_kept_bytes(const hl_profile *profile, int i);
void  *hl_kept_part(const hl_profile *profile, int i, int64_t sequence);
/* Adds one sequence to those kept, if it is among the first K.  n_before: sequences that the
 * profile has counted, this one not among them. */
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
/* Of a pair a < b, and of a pair a <= b, among those of a layer. */
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
