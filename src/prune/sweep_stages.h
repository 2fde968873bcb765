/* sweep_stages.h - the inside of hl_sweep: what its stages share.
 *
 *     sweep.c          options, the stages of the work, last words, what others may ask
 *     sweep_orders.c   rankings on one text, once or after every ratio: settings of gates
 *     sweep_state.c    what a killed run goes on from
 *     sweep_verdict.c  what the settings cost, with intervals: numbers, tables, sentences */
#ifndef HL_PRUNE_SWEEP_STAGES_H
#define HL_PRUNE_SWEEP_STAGES_H

#include "analysis/numbers.h"
#include "base/memory.h"
#include "headlight/sweep.h"
#include "prune/sweep_state.h"

/* An order in which heads go: of a ranker, of a ranker that looks again after every ratio, or
 * of one seed. */
typedef struct hl_sweep_order {
    hl_ranker   ranker;
    bool        is_iterative;
    uint64_t    seed;    /* of random */
    hl_ranking *ranking; /* of an iterative one: the first */
    int64_t     first;   /* the setting of ratio 0; those of the other ratios follow */
} hl_sweep_order;

/* A number with its interval of 95%. */
typedef struct hl_sweep_value {
    double value;
    double low;
    double high;
} hl_sweep_value;

/* An order at a ratio. */
typedef struct hl_sweep_point {
    hl_sweep_value nll;       /* mean, nats a token */
    hl_sweep_value rise;      /* above the dense model's */
    hl_sweep_value vs_random; /* above the mean of all seeds */
    int64_t        n_beaten;  /* seeds with a higher NLL */
    double         kl;        /* mean */
    double         same;      /* share of rows with the dense model's likeliest token */
    double         word;      /* share of last words foretold; NaN: none were asked for */
} hl_sweep_point;

/* The seeds at a ratio. */
typedef struct hl_sweep_band {
    double least, quarter, median, three_quarters, most, mean;
    double word; /* mean share of last words */
} hl_sweep_band;

struct hl_sweep {
    hl_model           *model;
    const hl_tokenizer *tokenizer;
    const hl_corpus    *rank_corpus;
    const hl_corpus    *test_corpus;
    hl_sweep_options    options; /* complete; what it points to is ours */
    hl_ranker          *rankers;
    hl_ranker          *iterative;
    double             *ratios;

    hl_sweep_state *state;
    double          saved_at; /* seconds of a clock */
    const char     *stage;

    int64_t         n_gates; /* n_layers * n_heads */
    hl_sweep_order *orders;  /* (n_orders) rankers, then iterative ones, then seeds */
    int64_t         n_orders;
    int64_t         n_fixed; /* of them: not random */
    int64_t        *n_off;   /* (n_ratios) heads */
    float          *gates;   /* (n_settings, n_gates) */
    int64_t         n_settings;
    int64_t         first_single; /* settings from here on: a head alone */
    int64_t         n_singles;
    hl_head        *heads; /* (n_singles) */

    hl_evaluation *test;
    double        *n_right; /* (first_single) last words foretold, or NULL */

    /* (n_settings + 2, HL_RESAMPLES): mean NLL; the dense model's; mean tokens of a unit. */
    double         *draws;
    hl_sweep_point *points;       /* (n_fixed, n_ratios) */
    hl_sweep_band  *bands;        /* (n_ratios) */
    double         *rises;        /* (n_singles) of the mean NLL without that head */
    hl_sweep_value *correlations; /* (n_rankers) Spearman's, of score and rise */

    hl_sheet *tables[5];
    char    **verdict; /* (n_verdict) */
    size_t    n_verdict;
    hl_status said; /* the first error in making it */
};

HL_CLOSES(hl_sweep_free, hl_sweep)

/* Evaluates on a text; what is done lies in the state under `name` and is not done again. */
hl_status hl_sweep_evaluate(hl_evaluation **out, hl_sweep *s, const hl_corpus *corpus,
                            const float *gates, int64_t n_settings, int64_t max_tokens,
                            const char *name);
/* Saves the state if it is time, or in any case. */
hl_status hl_sweep_save(hl_sweep *s, bool now);

/* sweep_orders.c: orders, gates, heads. */
hl_status hl_sweep_make_orders(hl_sweep *s);
/* "entropy", "entropy, iterative". */
void hl_sweep_order_name(char *out, size_t n_bytes, const hl_sweep_order *order);
/* Does the ranker look at a text, so that looking again can change its mind? */
bool hl_sweep_can_iterate(hl_ranker ranker);

/* sweep_verdict.c: draws, points, bands, rises, correlations; tables; verdict. */
hl_status hl_sweep_conclude(hl_sweep *s);
/* Of these the verdict alone: sentences behind those that are there. */
hl_status hl_sweep_make_verdict(hl_sweep *s);

#endif
