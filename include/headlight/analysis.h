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
 * Results computed from profiles are tables, which can be read cell by cell or rendered whole:
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
    HL_COLUMN_LIST, /* integers, such as a shape */
} hl_column_type;

typedef enum hl_sheet_format {
    HL_SHEET_TEXT = 0, /* aligned columns, for people */
    HL_SHEET_CSV,      /* RFC 4180, full precision; an empty field: not measured */
    HL_SHEET_JSON,     /* { "table", "title", "facts", "rows" }; null: not measured */
} hl_sheet_format;

HL_API void hl_sheet_free(hl_sheet *table);
/* Renders a table as text.  Release *out with hl_free. */
HL_API hl_status hl_sheet_render(char **out, const hl_sheet *table, hl_sheet_format format);

/* Results are borrowed from the table; rows and columns must exist. */
HL_API const char    *hl_sheet_name(const hl_sheet *table);
HL_API const char    *hl_sheet_title(const hl_sheet *table);
HL_API int64_t        hl_sheet_n_rows(const hl_sheet *table);
HL_API int64_t        hl_sheet_n_columns(const hl_sheet *table);
HL_API const char    *hl_sheet_column_name(const hl_sheet *table, int64_t column);
HL_API hl_column_type hl_sheet_column_type(const hl_sheet *table, int64_t column);
/* Returns the column of that name, or -1. */
HL_API int64_t hl_sheet_find(const hl_sheet *table, const char *name);
/* Returns a number.  Booleans are 0 and 1.  The result is NaN for text, for missing values and
 * for column -1. */
HL_API double hl_sheet_number(const hl_sheet *table, int64_t row, int64_t column);
/* Returns a text, and a list as "576,1536"; "" for other columns, and for column -1. */
HL_API const char *hl_sheet_text(const hl_sheet *table, int64_t row, int64_t column);
/* Returns a number that describes the whole table; NaN if there is no such number. */
HL_API double hl_sheet_fact(const hl_sheet *table, const char *name);

/* A table is made cell after cell, row after row:
 *
 *     if (hl_sheet_new(&table, "heads", "Every head", "head:t normalized:3 peak:3 | loss:6") == HL_OK) {
 *         hl_sheet_put_text(table, "L%dH%d", 3, 1);
 *         hl_sheet_put_reals(table, 0.25, 0.5, 3.125);
 *         hl_sheet_fact_real(table, "context", 512);
 *         status = hl_sheet_hand_over(out, table, HL_OK);
 *     }
 *
 * Columns are "NAME:TYPE NAME:TYPE ...". The type is t (text), i (integer), b (boolean), l (list), or,
 * for a real number, its number of decimals in text; CSV and JSON have all digits. Columns after
 * a "|" are in CSV and JSON only. Name and title are borrowed literals.
 *
 * A table keeps its first error and turns later calls into nothing; hl_sheet_finish reports it. */
HL_API hl_status hl_sheet_new(hl_sheet **out, const char *name, const char *title,
                              const char *columns);
/* Each call adds a cell, which must have its column's type. NaN and HL_NO_INT make empty cells. */
#define HL_NO_INT INT64_MIN
HL_API void hl_sheet_put_int(hl_sheet *table, int64_t value);
HL_API void hl_sheet_put_real(hl_sheet *table, double value);
HL_API void hl_sheet_put_bool(hl_sheet *table, bool value);
HL_API void hl_sheet_put_list(hl_sheet *table, const int64_t *values, size_t count);
HL_API void hl_sheet_put_text(hl_sheet *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Add several neighboring real numbers. */
HL_API void hl_sheet_add_reals(hl_sheet *table, const double *values, size_t count);
#define hl_sheet_put_reals(table, ...)                                                             \
    hl_sheet_add_reals(table, (const double[]){ __VA_ARGS__ },                                     \
                       sizeof(const double[]){ __VA_ARGS__ } / sizeof(double))
/* Facts describe the whole table, in the order in which they are added. Names are literals. */
HL_API void hl_sheet_fact_real(hl_sheet *table, const char *name, double value);
HL_API void hl_sheet_fact_text(hl_sheet *table, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds three facts: how the table's intervals were made (or why there are none), their level,
 * and the number of units. */
HL_API void hl_sheet_fact_interval(hl_sheet *table, const hl_interval *interval);
/* Text has only the first rows; CSV and JSON have all of them. */
HL_API void hl_sheet_shorten(hl_sheet *table, int64_t n_rows);
/* Returns the first error; HL_INTERNAL if the last row is incomplete. */
HL_API hl_status hl_sheet_finish(hl_sheet *table);
/* Ends a function that makes a table: passes it to the caller, or releases it if `status` or
 * hl_sheet_finish is an error. */
HL_API hl_status hl_sheet_hand_over(hl_sheet **out, hl_sheet *table, hl_status status);

/* ---------------------------------------------------------------- analyses
 *
 *     hl_sheet *table = NULL;
 *     if (hl_analyze(&table, profile, "layers", NULL) == HL_OK) ...
 *
 * Each question has one table; doc/metrics.md defines every number in them. */

/* The names of the tables, and one line on each; NULL past the last. */
HL_API const char *hl_analysis_name(size_t index);
HL_API const char *hl_analysis_summary(size_t index);

typedef struct hl_analysis_options {
    uint64_t seed;       /* random seed of clustering */
    int64_t  n_extremes; /* number of heads (or pairs of heads) listed at each end; 0: 10 (20 for
                          * pairs) */
} hl_analysis_options;

/* Returns HL_BAD_ARGUMENT if there is no table of that name. */
HL_API hl_status hl_analyze(hl_sheet **out, const hl_profile *profile, const char *name,
                            const hl_analysis_options *options);

/* Tables of a trace: "kinds" (prompt against generated tokens), "entities" (names and numbers) and
 * "repetition".  Names and summaries are NULL past the last; there is HL_BAD_ARGUMENT if there is no
 * table of that name. */
HL_API const char *hl_trace_table_name(size_t index);
HL_API const char *hl_trace_table_summary(size_t index);
HL_API hl_status   hl_trace_analyze(hl_sheet **out, const hl_trace *trace, const char *name);

/* The definition of a column in the tables, or a heading between definitions. */
typedef struct hl_definition {
    const char *name;  /* the column's name, or the text of a heading */
    const char *text;  /* the definition; NULL for a heading */
    const char *key;   /* key in the JSON data of reports; NULL if it is not in reports */
    const char *title; /* title in reports, such as "Shannon entropy"; NULL if key is NULL */
    const char *unit;  /* unit, such as "nats"; "" if it has none; NULL if key is NULL */
} hl_definition;

/* Returns the definitions in the order of `headlight help metrics`; NULL past the last. */
HL_API const hl_definition *hl_definition_at(size_t index);

/* --------------------------------------------------------------- diagnoses
 *
 * Checks of attention: alarms, which a person should act on, and observations.  Each result has
 * the check's rule, the size of the effect, its finding, the evidence against it, possible causes,
 * and what to do. */

/* The thresholds of the checks; hl_threshold_name returns their names. */
typedef enum hl_threshold {
    HL_T_COLLAPSE_SHARE = 0, /* collapse: share of heads that must count */
    HL_T_COLLAPSE_ENTROPY,   /* collapse: a head counts if its median normalized entropy without
                              * the first token is below this */
    HL_T_COLLAPSE_DROP,      /* collapse: fall of the mean normalized entropy since earlier
                              * checkpoints that matters */
    HL_T_COLLAPSE_ERRORS,    /* collapse: the same drop in robust standard deviations */
    HL_T_COLLAPSE_NEW,       /* collapse: share of heads that became one-hot since then */
    HL_T_OVERLOAD_SHARE,     /* overload: share of heads that must count */
    HL_T_OVERLOAD_ENTROPY,   /* overload: a head counts only if its median normalized entropy is
                              * at least this */
    HL_T_OVERLOAD_CHANGE,    /* overload: a head counts only if its standard deviation over
                              * sequences is below this */
    HL_T_LOCKING_WINDOW,     /* locking: length of a window, tokens */
    HL_T_LOCKING_CHANGE,     /* locking: total variation between consecutive rows */
    HL_T_LOCKING_SPREAD,     /* locking: standard deviation and drift of the entropy in a window */
    HL_T_LOCKING_LOOP,     /* locking: mean change of heads' normalized entropies from one period of
                              * a loop to the next */
    HL_T_LOCKING_TOKENS,   /* locking: length of a loop of the text, tokens */
    HL_T_FLAT_RANGE,       /* flat: range of the layers' normalized entropies that matters */
    HL_T_FLAT_ERRORS,      /* flat: number of standard errors that tell a range from none */
    HL_T_REDUNDANCY_SHARE, /* redundancy: share of heads that must have a twin */
    HL_T_REDUNDANCY_SIMILARITY, /* redundancy, alike-heads, alike-sinks: similarity of twins */
    HL_T_INACTIVE_NORM,         /* inactive: output norm relative to the layer's mean */
    HL_T_DRIFT_LOSS,            /* drift: rise of the loss, nats per token */
    HL_T_DRIFT_ENTROPY,         /* drift: change of a head's normalized entropy */
    HL_T_SINK_MASS,             /* sink heads: mean attention to the first key */
    HL_T_PREVIOUS_MASS,         /* previous-token heads: mean attention to the previous token */
    HL_T_BROKEN_ROWS,           /* broken: found if there are more rows than this */
    HL_N_THRESHOLDS
} hl_threshold;

typedef struct hl_thresholds {
    double values[HL_N_THRESHOLDS];
} hl_thresholds;

HL_API hl_thresholds hl_thresholds_default(void);
/* The name of a threshold: "collapse-share", ...; NULL past the last. */
HL_API const char *hl_threshold_name(size_t index);
/* Returns HL_BAD_ARGUMENT if there is no such name, or if the value is negative or not a number. */
HL_API hl_status hl_threshold_set(hl_thresholds *thresholds, const char *name, double value);

typedef enum hl_verdict {
    HL_VERDICT_NOT_FOUND = 0, /* the check ran and found nothing */
    HL_VERDICT_FOUND,         /* the check found it */
    HL_VERDICT_NOT_RUN,       /* the check did not run: the profile does not hold what it needs */
} hl_verdict;

/* An alarm is something that a person should act on.  An observation describes a model and says
 * what is usual; trained models that are in good order have sink heads, for example. */
typedef enum hl_check_kind {
    HL_CHECK_ALARM = 0,
    HL_CHECK_OBSERVATION,
} hl_check_kind;

/* A possible cause of a finding: a hypothesis, with the evidence that the profiles hold. */
typedef struct hl_cause {
    const char *name;     /* "overfitting" */
    char       *supports; /* measured here, and speaks for it; "": nothing */
    char       *against;  /* measured here, and speaks against it; "": nothing */
    char       *command;  /* what would tell it from the other causes */
} hl_cause;

typedef struct hl_shown_by {
    int64_t layer;
    int64_t head;
    double  value;
} hl_shown_by;

typedef struct hl_diagnosis {
    const char   *name; /* "entropy-collapse" */
    hl_check_kind kind;
    hl_verdict    verdict;
    double        value;      /* size of the effect that the rule compares; NaN: not measured, or
                              * no single number decides */
    double        threshold;  /* smallest effect that matters; `below` gives the side */
    const char   *unit;       /* of both: "share of heads", "normalized entropy", ... */
    double        errors;     /* the effect in standard errors, or in robust standard deviations
                              * of sequences; NaN: not tested */
    bool          below;      /* true: a problem is a value below the threshold; false: above it */
    const char   *evidence;   /* "literature" or "heuristic" */
    const char   *source;     /* publication that describes it; "" for a heuristic */
    const char   *mitigation; /* what can be done; "" for an observation */
    char         *measure;    /* how to measure what is missing; "" if nothing is missing */
    char         *rule;       /* the rule in words, with the thresholds in use */
    char         *finding;    /* the finding in words */
    char         *against;    /* evidence against the finding, or what is unknown; "" if there is
                              * none */
    char         *usual;      /* the same share in released models of the kind; "": not known */
    hl_shown_by  *heads;      /* (n_heads) heads that show the problem, the clearest first */
    int64_t       n_heads;
    hl_cause     *causes; /* (n_causes) possible causes; none unless an alarm was found */
    int64_t       n_causes;
} hl_diagnosis;

enum { HL_N_DIAGNOSES = 12 };

typedef struct hl_diagnoses {
    hl_diagnosis items[HL_N_DIAGNOSES];
} hl_diagnoses;

/* Runs all checks.  `before` is a profile of the same model at an earlier time or with random
 * weights; NULL: none.  thresholds NULL: the defaults. */
HL_API hl_status hl_diagnose(hl_diagnoses **out, const hl_profile *profile,
                             const hl_profile *before, const hl_thresholds *thresholds);
HL_API void      hl_diagnoses_free(hl_diagnoses *diagnoses);
/* Checks a trace for attention-locking, which profiles cannot show, and replaces that entry of
 * `found`. */
HL_API hl_status hl_diagnose_trace(hl_diagnoses *found, const hl_trace *trace,
                                   const hl_thresholds *thresholds);
/* The name of a check, "dead-or-broken", ..., in the order of hl_diagnoses; NULL past the last. */
HL_API const char *hl_diagnosis_name(size_t index);
/* Whether that check raises alarms or describes. */
HL_API hl_check_kind hl_diagnosis_kind(size_t index);
/* Further evidence for the causes of what was found.  `training` is a profile of the same model on
 * its training text, with the loss; the gap between the two losses is evidence of overfitting. */
HL_API hl_status hl_diagnose_training(hl_diagnoses *found, const hl_profile *profile,
                                      const hl_profile *training);
/* Gradients (n_layers, n_heads) of the heads' `of`, "queries" or "keys", NaN where there is no head:
 * hl_gradients.weight_norms has them.  A layer under a hundredth of the largest layer's mean speaks for
 * vanishing gradients. */
HL_API hl_status hl_diagnose_gradients(hl_diagnoses *found, const char *of, const double *gradients,
                                       int64_t n_layers, int64_t n_heads);
/* The name of a verdict: "not found", "found", "not run". */
HL_API const char *hl_verdict_name(hl_verdict verdict);

/* ----------------------------------------------------------------- summary
 *
 * What was found in a profile, in three sentences: which layers are the most focused, what the clearest
 * heads do, and what the checks say.  A sentence is made of parts, and a part that claims something names
 * what shows it, so that a page can link there. */

typedef struct hl_summary_part {
    int64_t sentence;  /* from 0 */
    char   *text;      /* the sentence is the texts of its parts, one after the other */
    char    shows[32]; /* evidence: "L7H3", a head; "L4" or "L3-L6", layers; "type sink", heads of a
                        * type; the name of a check, or "checks" for all of them; "": none */
} hl_summary_part;

typedef struct hl_summary {
    hl_summary_part *parts; /* (n_parts) */
    int64_t          n_parts;
    int64_t          n_sentences;
} hl_summary;

/* Summarizes a profile.  `found` is the result of its checks; NULL: they are run with the default
 * thresholds. */
HL_API hl_status hl_summary_new(hl_summary **out, const hl_profile *profile,
                                const hl_diagnoses *found);
/* Writes one sentence as text, in UTF-8.  Release *out with hl_free. */
HL_API hl_status hl_summary_sentence(char **out, const hl_summary *summary, int64_t sentence);
HL_API void      hl_summary_free(hl_summary *summary);

/* -------------------------------------------------------------------- one head
 *
 * All that a profile holds of one head, beside the other heads.  Strings are literals; the tables
 * belong to the card. */

typedef struct hl_head_card {
    int64_t     layer;
    int64_t     head;
    const char *type;         /* "induction" */
    const char *rule;         /* what the rule of the type compares, in words */
    double      value;        /* the number that it compares; NaN: no rule holds */
    double      threshold;    /* with this */
    bool        is_uncertain; /* other sampled rows could give another type */
    hl_sheet   *numbers;      /* each number with its interval, and its rank from the lowest */
    hl_sheet   *positions;    /* entropy by position, in powers of two */
    hl_sheet   *similar;      /* the most similar heads of the layer */
} hl_head_card;

/* Returns HL_BAD_ARGUMENT for a head that the profile does not have. */
HL_API hl_status hl_head_card_new(hl_head_card **out, const hl_profile *profile, int64_t layer,
                                  int64_t head);
HL_API void      hl_head_card_free(hl_head_card *card);

/* Attention-locking during generation.  hl_find_locking takes two numbers per new token: entropy
 * (n_tokens), the normalized entropy, mean over heads; and change (n_tokens), the total
 * variation between the row and the previous one, mean over heads, NaN where it was not
 * measured.  A window is locked if its entropy neither drifts nor spreads and its rows do not
 * change, while the rows of an earlier window did. */
typedef struct hl_locking {
    bool    locked;
    int64_t first;  /* first token of the first locked window; -1: no window is locked */
    double  slope;  /* slope of the entropy over that window, per token; NaN: no window */
    double  spread; /* standard deviation of the entropy in that window */
    double  change; /* mean change of the rows in that window */
    int64_t n_windows;
} hl_locking;

/* A loop of rows: from one period to the next the normalized entropies of all heads come back, and
 * within a period they do not stay.  rows (n_tokens, n_values), NaN where there is no head; periods
 * from 2 to HL_LOOP_MAX_PERIOD, since rows with a period of 1 are what hl_find_locking looks for. */
typedef struct hl_row_loop {
    int64_t period; /* 0: there is no loop */
    int64_t first;  /* first token of the first window that repeats the one before; -1: none */
    double  change; /* mean change of the values over a period, in that window; without a loop the
                     * smallest of all windows and periods; NaN: too few tokens */
    double  step;   /* mean change of the values from one token to the next */
} hl_row_loop;

HL_API hl_status hl_find_locking(hl_locking *out, const double *entropy, const double *change,
                                 int64_t n_tokens, const hl_thresholds *thresholds);

/* ---------------------------------------------------------------- comparing
 *
 * Compares two profiles of models with the same number of layers and heads.  Sequences
 * that both profiles hold are left out of both at once for the intervals of differences; if there
 * are none, each profile's own are left out and the two errors are added. */

typedef enum hl_comparison_kind {
    HL_COMPARE_SAME_TOKENS = 0, /* the profiles have sequences in common */
    HL_COMPARE_TWO_TEXTS,       /* one model, no sequences in common: are the ranks of its heads
                                 * stable? */
    HL_COMPARE_APART,           /* different models, no sequences in common */
} hl_comparison_kind;

typedef struct hl_comparison {
    hl_comparison_kind kind;
    bool               same_model;    /* both profiles have the same model hash */
    int64_t            n_shared;      /* number of sequences in both profiles */
    int64_t            n_heads;       /* number of heads compared */
    int64_t            n_significant; /* heads whose normalized entropy differs, at a false
                                       * discovery rate below 5% */
    /* The tables are owned by the comparison. */
    hl_sheet *ranks;         /* is the order of the heads the same? */
    hl_sheet *metrics;       /* each metric over all heads */
    hl_sheet *diagonal;      /* weights on the diagonal and off it, with a test */
    hl_sheet *layer_metrics; /* each metric of each layer */
    hl_sheet *peaks;         /* heads with the highest peaks of each side */
    hl_sheet *pairs;         /* how alike the heads of a layer are, all pairs */
    hl_sheet *layers;        /* normalized entropy of each layer */
    hl_sheet *heads;       /* normalized entropy of each head, with confidence interval, p and q */
    hl_sheet *differences; /* each metric of each head, B - A */
    hl_sheet *matching;    /* pairs of heads of A and B that correspond to each other, by layer */
    hl_sheet *rows;        /* distances between complete rows; NULL until hl_comparison_add_rows */
} hl_comparison;

HL_API hl_status hl_compare(hl_comparison **out, const hl_profile *a, const hl_profile *b,
                            const hl_analysis_options *options);
HL_API void      hl_comparison_free(hl_comparison *comparison);
/* Adds distances between complete rows, which profiles do not hold: the rows of two models on
 * the same tokens, head by head, and with the heads of a layer matched so that the sum of their
 * total variations is smallest. */
HL_API hl_status hl_comparison_add_rows(hl_comparison *comparison, const hl_row_distances *rows,
                                        const hl_analysis_options *options);
/* Renders the whole comparison as one JSON object, with the names of the two profiles.  Release
 * *out with hl_free. */
HL_API hl_status hl_comparison_render(char **out, const hl_comparison *comparison,
                                      const char *name_a, const char *name_b);
/* hl_comparison_table_name returns the names of the tables, "ranks", "metrics", ...; NULL past
 * the last.  hl_comparison_table returns the table of that name, or NULL if there is none:
 * "rows" exists only after hl_comparison_add_rows. */
HL_API const char     *hl_comparison_table_name(size_t index);
HL_API const hl_sheet *hl_comparison_table(const hl_comparison *comparison, const char *name);

#ifdef __cplusplus
}
#endif
#endif
