/* profile_add.h - a batch on its way into a profile: what its rows see, and the sums
 * of its sequences so far. */
#ifndef HL_STATS_PROFILE_ADD_H
#define HL_STATS_PROFILE_ADD_H

#include "kernels/row_sums.h"
#include "stats/exact.h"
#include "stats/profile.h"

/* The most rows of a run. */
enum { HL_RUN_ROWS = 512 };

/* What is known of rows before any head has looked at them. */
typedef struct hl_row_plans {
    double  *log_n;         /* (n_batch, n_rows) of the visible keys, a learned sink among them */
    double  *inverse;       /* 1 / log_n where n >= 2, else 0 */
    double  *inverse_other; /* the same without key 0 and without the sink */
    hl_run  *runs;          /* of all sequences, one after the other */
    int64_t *first_run;     /* (n_batch + 1) of each sequence; then how many there are */
    size_t   n_rows;        /* there is room for so many */
    size_t   n_sequences;
    /* What they were made for: most layers have the same. */
    bool            is_made;
    hl_profile_mask mask;
    int64_t         stride; /* rows of a sequence, padding among them */
    int64_t        *places; /* (n_batch, 2) where the rows of a sequence begin, and how many */
    size_t          n_places;
    uint64_t        version; /* counts what was planned */
} hl_row_plans;

/* ENTROPY, FAIR and NOSINK of one sequence and head. */
typedef struct hl_sequence_sums {
    hl_wide sum[3];
    int64_t count[3];
} hl_sequence_sums;

/* ENTROPY and FAIR of the rows of one bucket. */
typedef struct hl_bucket_sums {
    hl_wide sum[2];
    int64_t count[2];
} hl_bucket_sums;

/* A row of a layer that is looked at whole: all heads of it. */
typedef struct hl_sampled_row {
    const hl_layer_rows *rows;
    int64_t              index; /* among (n_batch, n_patterns) */
    hl_pattern_place     place;
    bool                 has_sink;
} hl_sampled_row;

typedef struct hl_profile_flight {
    const hl_profile_batch *batch;
    hl_row_plans            plans; /* of the layer at hand */
    double                 *logs;  /* (n_logs) of whole numbers from 0 on, the first being 0 */
    size_t                  n_logs;
    hl_sequence_sums       *sequences; /* (n_batch, L, H) */
    size_t                  n_sequences;
    hl_bucket_sums         *by_head; /* (n_batch, H, P) of the rows at hand */
    size_t                  n_by_head;
    hl_bucket_sums         *by_layer; /* (n_batch, L, P) over heads */
    size_t                  n_by_layer;
    float                  *means;     /* (L, H, 3) of one sequence, when it ends */
    float                  *positions; /* (L, P, 2) the same */
    int64_t                *counts;    /* (P, 2) the same */
    double                 *kernels;   /* (n_batch, n_heads, ...) prepared, of the layer at hand */
    size_t                  n_kernels;
    int64_t                 kernel_rows; /* the most that they have */
    float                  *row;         /* (n_threads, n_keys) whole rows, to be sorted */
    size_t                  n_row;
    hl_sampled_row         *samples; /* of the layer at hand */
    size_t                  n_samples;
    hl_pattern_place       *places; /* (n_batch, n_patterns) listed for a plan */
    size_t                  n_places;
    int64_t                 n_found; /* so many are there */
    double                 *totals;  /* (n_samples, n_heads) of whole rows */
    size_t                  n_totals;
} hl_profile_flight;

void hl_profile_flight_free(hl_profile_flight *flight);

/* Which rows of a layer count, and what they see. */
hl_status       hl_profile_plan(hl_profile_flight *flight, const hl_layer_rows *rows,
                                const hl_profile_mask *mask);
hl_visible_keys hl_profile_seen(const hl_profile_mask *mask, int64_t position, int64_t n_keys);

#endif
