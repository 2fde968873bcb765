/* profile_add.h - the state of a batch that is being added to a profile: what its rows see, and the
 * sums of its sequences so far. */
#ifndef HL_STATS_PROFILE_ADD_H
#define HL_STATS_PROFILE_ADD_H

#include "kernels/row_sums.h"
#include "stats/exact.h"
#include "stats/profile.h"
#include "stats/profile_tables.h"

/* maximum number of rows of a run */
enum { HL_RUN_ROWS = 512 };

/* What is known about rows before any head has been read. */
typedef struct hl_row_plans {
    /* (n_batch, n_rows) log of the number of visible keys, a learned sink included */
    double *log_n;
    double *inverse; /* 1 / log_n where n >= 2, else 0 */
    /* 1 / log of the keys without the first one and without the sink, else 0 */
    double *inverse_other;
    hl_run *runs; /* runs of all sequences, one after the other */
    /* (n_batch + 1) first run of each sequence; the last entry is their number */
    int64_t *first_run;
    size_t   n_rows; /* allocated rows */
    size_t   n_sequences;
    /* The fields below say what the plan was made for. Most layers share it. */
    bool            is_made;
    hl_profile_mask mask;
    int64_t         stride; /* rows of a sequence, including padding */
    int64_t        *places; /* (n_batch, 2) first row of a sequence and number of rows */
    size_t          n_places;
    uint64_t        version; /* increases with every new plan */
} hl_row_plans;

/* Place of a quantity among those of a sequence: in HL_TABLE_MEANS and, from HL_N_OF_SEQUENCE on, in
 * HL_TABLE_MORE.  The norm of outputs comes last and is HL_Q_OUTPUT. */
static inline int hl_place_of_sequence(int quantity)
{
    switch (quantity) {
    case HL_Q_ENTROPY:
        return 0;
    case HL_Q_NORMALIZED:
        return 1;
    case HL_Q_ENTROPY_NOSINK:
        return 2;
    case HL_Q_RENYI2:
        return 3;
    case HL_Q_VARENTROPY:
        return 4;
    case HL_Q_PEAK:
        return 5;
    case HL_Q_SELF:
        return 6;
    case HL_Q_PREVIOUS:
        return 7;
    case HL_Q_FIRST:
        return 8;
    default:
        return 9; /* HL_Q_OUTPUT */
    }
}

/* Sums of one sequence and head, by those places. */
typedef struct hl_sequence_sums {
    hl_wide sum[HL_N_SEQUENCE];
    int64_t count[HL_N_SEQUENCE];
} hl_sequence_sums;

/* Sums of ENTROPY and NORMALIZED over the rows of one bucket. */
typedef struct hl_bucket_sums {
    hl_wide sum[2];
    int64_t count[2];
} hl_bucket_sums;

/* A row of a layer that is examined whole, for all heads. */
typedef struct hl_sampled_row {
    const hl_layer_rows *rows;
    int64_t              index; /* index into (n_batch, n_patterns) */
    hl_pattern_place     place;
    bool                 has_sink;
    bool                 is_cross;   /* no key is the row's own */
    bool                 leaves_out; /* an indexer chose among its keys */
} hl_sampled_row;

typedef struct hl_profile_flight {
    const hl_profile_batch *batch;
    hl_row_plans            plans; /* plans of the current layer */
    /* (n_logs) logarithms of whole numbers from 0; the first entry is 0 */
    double           *logs;
    size_t            n_logs;
    hl_sequence_sums *sequences; /* (n_batch, L, H) */
    size_t            n_sequences;
    hl_bucket_sums   *by_head; /* (n_batch, H, P) sums of the current rows */
    size_t            n_by_head;
    hl_bucket_sums   *by_layer; /* (n_batch, L, P) sums over heads */
    size_t            n_by_layer;
    float            *means;     /* (L, H, 3) means of one sequence, made when it ends */
    float            *more;      /* (L, H, 7) */
    float            *positions; /* (L, P, 2) means by position of one sequence */
    int64_t          *counts;    /* (P, 2) number of rows by position of one sequence */
    /* (n_batch, n_heads, ...) prepared kernels of the current layer */
    double           *kernels;
    size_t            n_kernels;
    int64_t           kernel_rows; /* maximum number of rows of a kernel */
    float            *row;         /* (n_threads, n_keys) whole rows, for sorting */
    size_t            n_row;
    hl_sampled_row   *samples; /* sampled rows of the current layer */
    size_t            n_samples;
    hl_pattern_place *places; /* (n_batch, n_patterns) listed for a plan */
    size_t            n_places;
    int64_t           n_found; /* number of sampled rows */
    double           *totals;  /* (n_samples, n_heads) totals of whole rows */
    size_t            n_totals;
} hl_profile_flight;

void hl_profile_flight_free(hl_profile_flight *flight);

/* Decides which rows of a layer count, and what they see. */
hl_status hl_profile_plan(hl_profile_flight *flight, const hl_layer_rows *rows,
                          const hl_profile_mask *mask);
/* The number of keys of a layer, for a sequence of n_tokens. */
int64_t         hl_profile_keys_of(const hl_profile_mask *mask, int64_t n_tokens);
hl_visible_keys hl_profile_seen(const hl_profile_mask *mask, int64_t position, int64_t n_keys);

#endif
