/* sweep_stages.h - the inside of hl_sweep: what its stages share.
 *
 *     sweep.c          options, the stages of the work, last words, public calls
 *     sweep_orders.c   rankings on one text, once or after every ratio: settings of gates
 *     sweep_repair.c   the cost with means, and with a repair
 *     sweep_state.c    results so far, from which an interrupted run resumes
 *     sweep_verdict.c  the cost of all settings, with intervals: numbers, tables, sentences */
#ifndef HL_PRUNE_SWEEP_STAGES_H
#define HL_PRUNE_SWEEP_STAGES_H

#include "analysis/numbers.h"
#include "base/memory.h"
#include "headlight/sweep.h"
#include "prune/sweep_state.h"

/* A pruning order: from a ranker, from a ranker that ranks again after every ratio, or random. */
typedef struct hl_sweep_order {
    hl_ranker   ranker;
    bool        is_iterative;
    uint64_t    seed;    /* of a random order */
    hl_ranking *ranking; /* the first ranking of an iterative order */
    int64_t     first;   /* index of its setting at the first ratio; the other ratios follow */
} hl_sweep_order;

/* A number with its 95% confidence interval. */
typedef struct hl_sweep_value {
    double value;
    double low;
    double high;
} hl_sweep_value;

/* The result of one order at one ratio. */
typedef struct hl_sweep_point {
    hl_sweep_value nll;       /* mean, in nats per token */
    hl_sweep_value rise;      /* increase over the reference model */
    hl_sweep_value vs_random; /* increase over the mean of all seeds */
    int64_t        n_beaten;  /* number of seeds with a higher NLL */
    double         kl;        /* mean */
    double         same; /* share of rows with the same most likely token as the reference model */
    double         word; /* share of last words predicted; NaN: not requested */
} hl_sweep_point;

/* The random orders at one ratio. */
typedef struct hl_sweep_band {
    double least, quarter, median, three_quarters, most, mean;
    double word; /* mean share of last words */
} hl_sweep_band;

/* Ways to compensate for removed heads. */
enum { HL_SWEEP_MEAN = 0, HL_SWEEP_REPAIRED, HL_SWEEP_WAYS };

struct hl_sweep {
    hl_model           *model;
    const hl_tokenizer *tokenizer;
    const hl_corpus    *rank_corpus;
    const hl_corpus    *test_corpus;
    hl_sweep_options    options; /* with defaults filled in; owns what it points to */
    hl_ranker          *rankers;
    hl_ranker          *iterative;
    double             *ratios;

    hl_sweep_state *state;
    double          saved_at; /* clock time of the last save, in seconds */
    const char     *stage;

    int64_t         n_gates; /* n_layers * n_heads */
    hl_sweep_order *orders;  /* (n_orders) rankers first, then iterative orders, then seeds */
    int64_t         n_orders;
    int64_t         n_fixed; /* number of orders that are not random */
    int64_t        *n_off;   /* (n_ratios) number of disabled heads */
    float          *gates;   /* (n_settings, n_gates) */
    int64_t         n_settings;
    int64_t         first_single; /* index of the first setting that disables a single head */
    int64_t         n_singles;
    hl_head        *heads; /* (n_singles) */

    hl_evaluation *test;
    /* With options.repair, rows are orders that are not random, then the median of random, by
     * ratio. */
    hl_scores      *mended;       /* (rows, HL_SWEEP_WAYS, n_windows) or NULL */
    int64_t         n_mended;     /* rows; 0 without options.repair */
    bool           *is_mended;    /* (rows, HL_SWEEP_WAYS) scored */
    bool            can_mend;     /* false: HL_SWEEP_REPAIRED is missing */
    char           *why_not;      /* the reason if can_mend is false */
    hl_sweep_value *mended_rises; /* (rows, 1 + HL_SWEEP_WAYS) zeroed heads first; NaN: missing */
    double         *n_right;      /* (first_single) number of last words predicted, or NULL */

    /* (n_settings + 1, n_units + 1) mean NLL per setting, then the reference model's, without each
     * unit and of all. */
    double         *left;
    double         *work; /* (n_units) */
    int64_t         n_units;
    hl_units        units;
    hl_sweep_point *points;       /* (n_fixed, n_ratios) */
    hl_sweep_band  *bands;        /* (n_ratios) */
    double         *rises;        /* (n_singles) rise in mean NLL with that head disabled */
    hl_sweep_value *correlations; /* (n_rankers) Spearman correlation of score and rise */

    hl_sheet *tables[6];
    char    **verdict; /* (n_verdict) */
    size_t    n_verdict;
    hl_status said; /* the first error while the verdict was made */
};

HL_CLOSES(hl_sweep_free, hl_sweep)

/* Evaluates on a text. Finished parts are stored in the state under `name` and are not computed
 * again. */
hl_status hl_sweep_evaluate(hl_evaluation **out, hl_sweep *s, const hl_corpus *corpus,
                            const float *gates, int64_t n_settings, int64_t max_tokens,
                            const char *name);
/* Saves the state if a save is due, or always if `now`. */
hl_status hl_sweep_save(hl_sweep *s, bool now);

/* sweep_orders.c makes the orders, gates and list of heads. */
hl_status hl_sweep_make_orders(hl_sweep *s);
/* Writes a name such as "entropy" or "entropy, iterative". */
void hl_sweep_order_name(char *out, size_t n_bytes, const hl_sweep_order *order);

/* sweep_repair.c evaluates models with means and repairs, if asked to. */
hl_status hl_sweep_run_repairs(hl_sweep *s);
/* The setting of gates that a row of the table of repairs is compared with. */
int64_t hl_sweep_repair_setting(const hl_sweep *s, int64_t row);

/* sweep_verdict.c makes the draws, points, bands, rises, correlations, tables and the verdict. */
hl_status hl_sweep_conclude(hl_sweep *s);
/* Makes the verdict alone; its sentences are appended to the existing ones. */
hl_status hl_sweep_make_verdict(hl_sweep *s);

#endif
