/* headlight/analysis.h - tables, analyses, diagnoses and comparisons of profiles.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_ANALYSIS_H
#define HEADLIGHT_ANALYSIS_H

#include "measure.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ tables
 *
 * What follows from profiles comes as tables, which can be read cell by cell or
 * rendered whole:
 *
 *     char *text = NULL;
 *     if (hl_sheet_render(&text, table, HL_SHEET_CSV) == HL_OK)
 *         fputs(text, stdout);
 *     hl_free(text);
 *
 * Any number of threads may read a table at once. */

typedef struct hl_sheet hl_sheet;

typedef enum hl_column_type {
    HL_COLUMN_TEXT = 0,
    HL_COLUMN_INT,
    HL_COLUMN_REAL,
    HL_COLUMN_BOOL,
} hl_column_type;

typedef enum hl_sheet_format {
    HL_SHEET_TEXT = 0, /* for people */
    HL_SHEET_CSV,      /* RFC 4180, all digits; empty: not measured */
    HL_SHEET_JSON,     /* { "table", "title", "facts", "rows" }; null: not measured */
} hl_sheet_format;

HL_API void hl_sheet_free(hl_sheet *table);
/* *out is released with hl_free. */
HL_API hl_status hl_sheet_render(char **out, const hl_sheet *table, hl_sheet_format format);

/* What is returned is borrowed from the table; rows and columns must exist. */
HL_API const char    *hl_sheet_name(const hl_sheet *table);
HL_API const char    *hl_sheet_title(const hl_sheet *table);
HL_API int64_t        hl_sheet_n_rows(const hl_sheet *table);
HL_API int64_t        hl_sheet_n_columns(const hl_sheet *table);
HL_API const char    *hl_sheet_column_name(const hl_sheet *table, int64_t column);
HL_API hl_column_type hl_sheet_column_type(const hl_sheet *table, int64_t column);
/* The column of that name, or -1. */
HL_API int64_t hl_sheet_find(const hl_sheet *table, const char *name);
/* NaN of text, of what was not measured and of column -1; booleans are 0 and 1. */
HL_API double hl_sheet_number(const hl_sheet *table, int64_t row, int64_t column);
/* "" of what is no text, and of column -1. */
HL_API const char *hl_sheet_text(const hl_sheet *table, int64_t row, int64_t column);
/* What holds for the whole table; NaN if there is no such number. */
HL_API double hl_sheet_fact(const hl_sheet *table, const char *name);

/* ---------------------------------------------------------------- analyses
 *
 *     hl_sheet *table = NULL;
 *     if (hl_analyze(&table, profile, "layers", NULL) == HL_OK) ...
 *
 * One table a question; doc/metrics.md defines every number in them. */

/* The names of the tables, and a line on each; NULL past the last. */
HL_API const char *hl_analysis_name(size_t index);
HL_API const char *hl_analysis_summary(size_t index);

typedef struct hl_analysis_options {
    uint64_t seed;       /* of the bootstrap and of the clusters' trials */
    int64_t  n_extremes; /* how many heads (pairs) at each end; 0: 10 (20) */
} hl_analysis_options;

/* HL_BAD_ARGUMENT if there is no table of that name. */
HL_API hl_status hl_analyze(hl_sheet **out, const hl_profile *profile, const char *name,
                            const hl_analysis_options *options);

/* What every number in them means. */
typedef struct hl_definition {
    const char *name;  /* as columns are called; of a heading, what it says */
    const char *text;  /* NULL: a heading */
    const char *key;   /* in the data of reports; NULL: not there, as the next two */
    const char *title; /* "Shannon entropy" */
    const char *unit;  /* "nats"; "" of none */
} hl_definition;

/* In the order of `headlight help metrics`; NULL past the last. */
HL_API const hl_definition *hl_definition_at(size_t index);

/* --------------------------------------------------------------- diagnoses
 *
 * Eight things that can be wrong with attention, each with its rule, what was
 * found, what speaks against it, and what to do. */

/* The thresholds of the rules; hl_threshold_name has their names. */
typedef enum hl_threshold {
    HL_T_COLLAPSE_SHARE = 0, /* of heads with */
    HL_T_COLLAPSE_ENTROPY,   /* a median normalized entropy without the sink below this */
    HL_T_COLLAPSE_FALL,      /* robust standard deviations */
    HL_T_OVERLOAD_SHARE,     /* of heads with */
    HL_T_OVERLOAD_ENTROPY,   /* a median normalized entropy of at least this, and */
    HL_T_OVERLOAD_CHANGE,    /* a standard deviation over sequences below this */
    HL_T_LOCKING_WINDOW,     /* tokens */
    HL_T_LOCKING_CHANGE,     /* total variation between consecutive rows */
    HL_T_LOCKING_SPREAD,     /* standard deviation and drift of the entropy in a window */
    HL_T_FLAT_ERRORS,        /* standard errors */
    HL_T_REDUNDANCY_SIMILARITY,
    HL_T_INACTIVE_NORM, /* of the layer's mean */
    HL_T_SINK_MASS,
    HL_T_BROKEN_ROWS, /* more than so many */
    HL_N_THRESHOLDS
} hl_threshold;

typedef struct hl_thresholds {
    double values[HL_N_THRESHOLDS];
} hl_thresholds;

HL_API hl_thresholds hl_thresholds_default(void);
/* "collapse-share", ...; NULL past the last. */
HL_API const char *hl_threshold_name(size_t index);
/* HL_BAD_ARGUMENT if there is no such name, or if the value is below 0 or no number. */
HL_API hl_status hl_threshold_set(hl_thresholds *thresholds, const char *name, double value);

typedef enum hl_verdict {
    HL_VERDICT_NOT_FOUND = 0, /* the check ran and found nothing */
    HL_VERDICT_FOUND,         /* the check found it */
    HL_VERDICT_NOT_RUN,       /* the check did not run: the profile does not hold what it needs */
} hl_verdict;

typedef struct hl_shown_by {
    int64_t layer;
    int64_t head;
    double  value;
} hl_shown_by;

typedef struct hl_diagnosis {
    const char *name; /* "entropy-collapse" */
    hl_verdict  verdict;
    double      value;     /* what the rule compares; NaN: not measured, or no one number decides */
    double      threshold; /* found where the value is beyond this, on the side that `below` says */
    bool        below;     /* found where the value is below the threshold, not above */
    const char *evidence;  /* "literature" or "heuristic" */
    const char *source;    /* who described it; "" of a heuristic */
    const char *mitigation; /* what can be done */
    char       *measure;    /* how to measure what is missing; "" where nothing is */
    char       *rule;       /* with the thresholds in force */
    char       *finding;    /* what was found, in words */
    char       *against;    /* what speaks against it, or is not known; "" if nothing */
    hl_shown_by *heads;     /* (n_heads) that show it, the clearest first */
    int64_t      n_heads;
} hl_diagnosis;

enum { HL_N_DIAGNOSES = 8 };

typedef struct hl_diagnoses {
    hl_diagnosis items[HL_N_DIAGNOSES];
} hl_diagnoses;

/* `before` is the same model's profile at an earlier time, or at random weights; NULL: none.
 * thresholds NULL: the defaults. */
HL_API hl_status hl_diagnose(hl_diagnoses **out, const hl_profile *profile,
                             const hl_profile *before, const hl_thresholds *thresholds);
HL_API void      hl_diagnoses_free(hl_diagnoses *diagnoses);
/* Attention-locking, which profiles cannot tell, from a trace: takes the place of what `found`
 * said of it. */
HL_API hl_status hl_diagnose_trace(hl_diagnoses *found, const hl_trace *trace,
                                   const hl_thresholds *thresholds);
/* "dead-or-broken", ..., in the order of hl_diagnoses; NULL past the last. */
HL_API const char *hl_diagnosis_name(size_t index);
/* "not found", "found", "not run". */
HL_API const char *hl_verdict_name(hl_verdict verdict);

/* Attention-locking, from what was seen of each new token while generating: entropy (n_tokens)
 * normalized, mean over heads; change (n_tokens) total variation between the row and the one
 * before it, mean over heads, NaN where that was not looked at.  A window is locked if its
 * entropy neither drifts nor spreads and its rows do not change, while the rows of an earlier
 * window did. */
typedef struct hl_locking {
    bool    locked;
    int64_t first;  /* token of the first locked window; -1: none */
    double  slope;  /* of the entropy over that window, a token; NaN: no window */
    double  spread; /* its standard deviation */
    double  change; /* mean */
    int64_t n_windows;
} hl_locking;

HL_API hl_status hl_find_locking(hl_locking *out, const double *entropy, const double *change,
                                 int64_t n_tokens, const hl_thresholds *thresholds);

/* ---------------------------------------------------------------- comparing
 *
 * Two profiles of models with equally many layers and heads.  Sequences that both hold
 * are drawn together (the paired bootstrap); without any the two are drawn apart. */

typedef enum hl_comparison_kind {
    HL_COMPARE_SAME_TOKENS = 0, /* sequences in common */
    HL_COMPARE_TWO_TEXTS,       /* one model, nothing in common: are its heads' ranks stable? */
    HL_COMPARE_APART,           /* neither model nor text in common */
} hl_comparison_kind;

typedef struct hl_comparison {
    hl_comparison_kind kind;
    bool               same_model;    /* both profiles say so, by hash */
    int64_t            n_shared;      /* sequences */
    int64_t            n_heads;       /* compared */
    int64_t            n_significant; /* heads whose fair entropy differs, false discovery < 5% */
    /* Owned by the comparison. */
    hl_sheet *ranks;       /* is the order of the heads the same? */
    hl_sheet *metrics;     /* every metric over all heads */
    hl_sheet *layers;      /* fair entropy of every layer */
    hl_sheet *heads;       /* fair entropy of every head, with interval, p and q */
    hl_sheet *differences; /* every metric of every head, B - A */
    hl_sheet *matching;    /* which head of B is which of A, layer by layer */
    hl_sheet *rows;        /* how unlike whole rows are; NULL until hl_comparison_add_rows */
} hl_comparison;

HL_API hl_status hl_compare(hl_comparison **out, const hl_profile *a, const hl_profile *b,
                            const hl_analysis_options *options);
HL_API void      hl_comparison_free(hl_comparison *comparison);
/* What profiles do not hold: the rows of two models on the same tokens, head by head and with the
 * heads of a layer matched so that the sum of their total variations is least. */
HL_API hl_status hl_comparison_add_rows(hl_comparison *comparison, const hl_row_distances *rows,
                                        const hl_analysis_options *options);
/* All of it as one JSON object, with what the two are called; *out is released with hl_free. */
HL_API hl_status hl_comparison_render(char **out, const hl_comparison *comparison,
                                      const char *name_a, const char *name_b);
/* "ranks", "metrics", ...; NULL past the last.  And the table of that name, NULL if there is
 * none: "rows" is there only once it was added. */
HL_API const char     *hl_comparison_table_name(size_t index);
HL_API const hl_sheet *hl_comparison_table(const hl_comparison *comparison, const char *name);

#ifdef __cplusplus
}
#endif
#endif
