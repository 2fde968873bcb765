/* profile_tables.c - the list of tables, and the block that holds them.
 *
 * Size in bytes per head, for an 80 x 64 model with a context of 2^17 (18 buckets) and the largest
 * number of token types, 8:
 *
 *     9 quantities     9 (8 + 16 + 16 + 4 + 4)  =  432    and their means   72
 *     3 histograms     3 * 64 * 8               = 1536
 *     by position      18 * 2 (8 + 16 + 16)     = 1440
 *     by type          8 * 3 (8 + 16 + 16)      =  960    lookback         512
 *     patterns         22 (8 + 8 + 8)           =  528
 *     pairs            63/2 * 8 + 65/2 * 8      =  512
 *     norm, probe, broken   40 + 24 + 24        =   88
 *     32 sequences     32 * 10 * 4              = 1280
 *                                          in all 7360,   times 5120: 35.9 MiB
 *     32 sequences by position, per layer  32 * 18 * 2 * 4,  times 80:  0.4 MiB
 *
 * For this reason pairs and shares take 64 bits, a large model keeps fewer sequences than a small
 * one, and curves by position are kept per layer, not per head. */
#include "stats/profile_tables.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

/* Letters are negative, 0 ends a shape, and positive values are numbers. */
enum { L = -1, H = -2, P = -3, T = -4, PAIRS = -5, SELF_PAIRS = -6, K = -7 };

#define I64 HL_DTYPE_I64
#define F32 HL_DTYPE_F32
#define U64 HL_DTYPE_U64
#define F64 HL_DTYPE_F64
#define Q   HL_N_QUANTITIES

/* One table; `counts` is the table whose counts bound it, or 0. */
#define TABLE(ROLE, name, dtype, kind, counts, ...)                                                \
    [HL_TABLE_##ROLE] = { name, dtype, HL_KIND_##kind, counts, { __VA_ARGS__ } }

/* A count, and the 128-bit sums and squares that it bounds, stored as two 64-bit halves each. */
#define WIDE_SUMS(N, SUM_OF, SQUARES_OF, prefix, ...)                                              \
    TABLE(N, prefix "count", I64, COUNT, 0, __VA_ARGS__),                                          \
        TABLE(SUM_OF, prefix "sum", I64, WIDE, HL_TABLE_##N, __VA_ARGS__, 2),                      \
        TABLE(SQUARES_OF, prefix "squares", I64, SQUARES, HL_TABLE_##N, __VA_ARGS__, 2)
#define WIDES(NAME, prefix, ...)                                                                   \
    WIDE_SUMS(NAME##_COUNT, NAME##_SUM, NAME##_SQUARES, prefix, __VA_ARGS__)

static const hl_table_form forms[HL_N_TABLES] = {
    WIDE_SUMS(COUNT, SUM, SQUARES, "", L, H, Q),
    TABLE(MIN, "min", F32, MIN, HL_TABLE_COUNT, L, H, Q),
    TABLE(MAX, "max", F32, MAX, HL_TABLE_COUNT, L, H, Q),
    TABLE(HISTOGRAM, "histogram", I64, COUNT, 0, L, H, HL_N_HISTOGRAMS, HL_N_BINS),
    TABLE(BROKEN, "broken", I64, COUNT, 0, L, H),
    TABLE(PLACE, "broken_place", I64, PLACE, HL_TABLE_BROKEN, L, H, 2),

    WIDES(POSITION, "position.", L, H, P, HL_N_BY_POSITION),
    WIDES(TYPE, "type.", L, H, T, HL_N_BY_TYPE),
    TABLE(LOOKBACK, "type.lookback", I64, UNIT, HL_TABLE_TYPE_COUNT, L, H, T, T),

    TABLE(PATTERN_COUNT, "pattern.count", I64, COUNT, 0, L, H, HL_N_PATTERN_METRICS, 2),
    TABLE(PATTERN_SUM, "pattern.sum", I64, UNIT, HL_TABLE_PATTERN_COUNT, L, H, HL_N_PATTERN_METRICS,
          2),
    TABLE(PATTERN_SQUARES, "pattern.squares", I64, UNIT, HL_TABLE_PATTERN_COUNT, L, H,
          HL_N_PATTERN_METRICS, 2),
    TABLE(DISTANCE_COUNT, "distance.count", I64, COUNT, 0, L),
    TABLE(DISTANCE_SUM, "distance.sum", I64, UNIT, HL_TABLE_DISTANCE_COUNT, L, PAIRS),
    TABLE(KERNEL_COUNT, "kernel.count", I64, COUNT, 0, L),
    TABLE(KERNEL_SUM, "kernel.sum", I64, UNIT, HL_TABLE_KERNEL_COUNT, L, SELF_PAIRS),

    WIDES(NORM, "norm.", L, H),
    WIDES(INFLUENCE, "influence.", L),
    WIDES(NLL, "nll.", 1),
    TABLE(NLL_BROKEN, "nll.broken", I64, COUNT, 0, 1),

    WIDES(RECALL, "recall.", L, H),

    TABLE(PROBE, "probe", F64, SCORE, 0, L, H, HL_N_PROBES),
    TABLE(TOTALS, "totals", I64, COUNT, 0, 2),
    TABLE(TEXT, "text", U64, HASH, 0, 1),
    TABLE(HASHES, "sequence.hash", U64, KEPT, 0, K),
    TABLE(MEANS, "sequence.mean", F32, KEPT, 0, K, L, H, HL_N_OF_SEQUENCE),
    TABLE(KEPT_POSITIONS, "sequence.position", F32, KEPT, 0, K, L, P, HL_N_BY_POSITION),
    TABLE(KEPT_COUNTS, "sequence.position.count", I64, KEPT, 0, K, P, HL_N_BY_POSITION),
    TABLE(DOCUMENTS, "sequence.document", U64, KEPT, 0, K),
    TABLE(MORE, "sequence.more", F32, KEPT, 0, K, L, H, HL_N_MORE),
};

const hl_table_form *hl_table_form_of(hl_table table)
{
    return &forms[table];
}

static int64_t size_of(const hl_profile *profile, int dim)
{
    int64_t n_heads = profile->n_heads;

    switch (dim) {
    case L:
        return profile->n_layers;
    case H:
        return n_heads;
    case P:
        return profile->n_buckets;
    case T:
        return profile->n_types;
    case PAIRS:
        return n_heads * (n_heads - 1) / 2;
    case SELF_PAIRS:
        return n_heads * (n_heads + 1) / 2;
    case K:
        return profile->n_kept;
    default:
        return dim;
    }
}

int hl_table_shape(int64_t out[HL_TABLE_DIMS], const hl_profile *profile, hl_table table)
{
    const int *dims   = forms[table].dims;
    int        n_dims = 0;

    while (n_dims < HL_TABLE_DIMS && dims[n_dims] != 0) {
        out[n_dims] = size_of(profile, dims[n_dims]);
        n_dims++;
    }
    return n_dims;
}

int64_t hl_table_count(const hl_profile *profile, hl_table table)
{
    int64_t shape[HL_TABLE_DIMS];
    int     n_dims = hl_table_shape(shape, profile, table);
    int64_t count  = 1;

    for (int i = 0; i < n_dims; i++)
        count *= shape[i];
    return count;
}

static size_t table_bytes(const hl_profile *profile, hl_table table)
{
    return (size_t)hl_table_count(profile, table) * (hl_dtype_bits(forms[table].dtype) / 8);
}

/* Tables begin at multiples of a cache line, so that the sums of two threads share none. */
static size_t padded(size_t n_bytes)
{
    return (n_bytes + HL_ALIGNMENT - 1) / HL_ALIGNMENT * HL_ALIGNMENT;
}

size_t hl_profile_block_bytes(const hl_profile *profile)
{
    size_t n_bytes = 0;

    for (hl_table table = 0; table < HL_N_TABLES; table++)
        n_bytes += padded(table_bytes(profile, table));
    return n_bytes;
}

/* Sets a table to its values before anything has been measured, if these are not 0. */
static void clear_table(hl_profile *profile, hl_table table)
{
    int64_t count = hl_table_count(profile, table);
    void   *data  = profile->tables[table];

    for (int64_t i = 0; i < count; i++) {
        switch (forms[table].kind) {
        case HL_KIND_MIN:
            ((float *)data)[i] = INFINITY;
            break;
        case HL_KIND_MAX:
            ((float *)data)[i] = -INFINITY;
            break;
        case HL_KIND_PLACE:
            ((int64_t *)data)[i] = -1;
            break;
        case HL_KIND_SCORE:
            ((double *)data)[i] = (double)NAN;
            break;
        default:
            return;
        }
    }
}

hl_status hl_profile_allocate(hl_profile *profile)
{
    size_t offset = 0;

    profile->n_block_bytes = hl_profile_block_bytes(profile);
    HL_NEED(HL_ALLOC_ZEROED(&profile->block, profile->n_block_bytes));
    for (hl_table table = 0; table < HL_N_TABLES; table++) {
        profile->tables[table] = profile->block + offset;
        offset += padded(table_bytes(profile, table));
        clear_table(profile, table);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- sequences */

size_t hl_kept_bytes(const hl_profile *profile, int i)
{
    return table_bytes(profile, (hl_table)(HL_FIRST_KEPT + i)) / (size_t)profile->n_kept;
}

void *hl_kept_part(const hl_profile *profile, int i, int64_t sequence)
{
    char *table = profile->tables[HL_FIRST_KEPT + i];
    return table + (size_t)sequence * hl_kept_bytes(profile, i);
}

int64_t hl_profile_kept(const hl_profile *profile)
{
    int64_t n_sequences = hl_counts(profile, HL_TABLE_TOTALS)[1];
    return n_sequences < profile->n_kept ? n_sequences : profile->n_kept;
}
