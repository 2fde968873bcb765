/* headlight/trace.h - measurements of every token of a generated text. Part of headlight.h, which
 * see for the conventions. */
#ifndef HEADLIGHT_TRACE_H
#define HEADLIGHT_TRACE_H

#include "generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ traces
 *
 * A trace has an entry for every token of a text, including those of the prompt.  An entry holds
 * measurements of the attention row that predicted the token, which is the row of the previous
 * token.  doc/trace.md describes the files.
 *
 * A trace does not change after it has been loaded, and any number of threads may read it at
 * once. */

typedef struct hl_trace hl_trace;

/* The origin of a token. */
typedef enum hl_token_kind {
    HL_KIND_PROMPT = 0,
    HL_KIND_SPECIAL, /* prompt tokens that are special or that a chat template added */
    HL_KIND_GENERATED,
    HL_KIND_CONTEXT, /* tokens inserted during generation */
    HL_N_KINDS
} hl_token_kind;

/* The name of a kind: "prompt", "special", "generated", "context". */
HL_API const char *hl_token_kind_name(hl_token_kind kind);

/* Quantities of every head, in the row that led to the token; NaN for heads that a layer lacks. */
typedef enum hl_trace_rows {
    HL_TRACE_ENTROPY = 0,    /* H, nats */
    HL_TRACE_NORMALIZED,     /* H / ln n, where n is the number of visible keys; 0 if n is 1 */
    HL_TRACE_CHANGE,         /* total variation between this row and the previous one, over the keys
                              * that both see, with all other keys as one outcome; NaN if the
                              * previous row was not examined: in a prompt, and at the first token
                              * after one */
    HL_TRACE_RENYI2,         /* collision entropy, nats */
    HL_TRACE_ENTROPY_NOSINK, /* H without the first key, renormalized; NaN if no other key is
                              * visible */
    HL_TRACE_LOOKBACK,       /* + hl_token_kind: share of attention on tokens of that kind */
    HL_N_TRACE_ROWS = HL_TRACE_LOOKBACK + HL_N_KINDS
} hl_trace_rows;

/* What a trace holds of a token in addition to hl_generated. */
typedef struct hl_traced_token {
    hl_token_kind kind;
    double        spike;   /* score of hl_spikes; NaN in a prompt, or if too few rows have been
                              * learned */
    bool        is_entity; /* the token begins a word that has a capital letter or a digit, not I */
    const char *text;      /* text that the token added; borrowed, not NUL-terminated */
    size_t      n_bytes;
} hl_traced_token;

/* Reads a trace: a safetensors file, or lines of JSON if the name ends in ".jsonl".  Returns
 * HL_BAD_INPUT, naming the tensor or the line, if the file is not a trace. */
HL_API hl_status hl_trace_load(hl_trace **out, const char *path);
HL_API hl_status hl_trace_write(const hl_trace *trace, const char *path);
HL_API void      hl_trace_free(hl_trace *trace);
HL_API int64_t   hl_trace_n_tokens(const hl_trace *trace);
HL_API int64_t   hl_trace_n_layers(const hl_trace *trace);
HL_API int64_t   hl_trace_n_heads(const hl_trace *trace); /* largest number in any layer */
/* In all functions below, token, layer and head must exist.  hl_trace_token does not keep .stop;
 * its numbers are NaN for tokens that were not generated. */
HL_API hl_generated    hl_trace_token(const hl_trace *trace, int64_t token);
HL_API hl_traced_token hl_trace_describe(const hl_trace *trace, int64_t token);
HL_API double hl_trace_row(const hl_trace *trace, int64_t token, int64_t layer, int64_t head,
                           hl_trace_rows which);
/* hl_trace_mean averages over all heads that are not NaN, hl_trace_layer_mean over those of one
 * layer. */
HL_API double hl_trace_mean(const hl_trace *trace, int64_t token, hl_trace_rows which);
HL_API double hl_trace_layer_mean(const hl_trace *trace, int64_t token, int64_t layer,
                                  hl_trace_rows which);

/* -------------------------------------------------------------- repetition */

#define HL_LOOP_MAX_PERIOD 64
#define HL_N_DISTINCT      4

/* How much a text repeats itself. */
typedef struct hl_repetition {
    int64_t n_tokens;               /* tokens that were looked at */
    double distinct[HL_N_DISTINCT]; /* share of different n-grams, n = 1 to 4; NaN: there is none */
    int64_t suffix;                 /* length of the longest suffix that occurs earlier, too */
    int64_t distance;               /* how far back it does; 0: the suffix has length 0 */
    int64_t period;      /* of the longest loop: each of its tokens equals the one so far back,
                          * and it holds at least three periods; 0: there is no loop */
    int64_t loop_tokens; /* length of that loop */
    int64_t first;       /* its first token; -1: there is no loop */
} hl_repetition;

/* Of token ids (n_tokens); and of the generated tokens of a trace, where `first` counts all of its
 * tokens. */
HL_API hl_status hl_repetition_of(hl_repetition *out, const int64_t *ids, int64_t n_tokens);

/* ------------------------------------------------------------------ spikes
 *
 * A spike is a sudden rise of entropy, compared with the same text so far.  The normalized entropy
 * of each head is compared with its own history, and so is the mean over heads:
 *
 *     z     = (x - center) / sigma                  for every head
 *     mean  = mean of z over heads, without the lowest and the highest tenth
 *     score = (mean - its center) / its sigma
 *
 * At first, center and sigma are the median and 1.4826 times the median absolute deviation, over
 * the learned rows.  Each scored row then moves them 1/64 of the way toward itself; a row more than
 * 3 sigma away counts as 3 sigma away, so that a spike does not hide the next one.  sigma stays
 * above 0.01.  The mean has its own sigma because heads rarely move together: on ordinary text it
 * is far below 1.
 *
 * An hl_spikes is for one thread at a time. */

typedef struct hl_spikes hl_spikes;

#define HL_SPIKE_THRESHOLD 3.0
#define HL_SPIKE_MIN_ROWS  16  /* number of rows that must be learned before there are scores */
#define HL_SPIKE_MAX_ROWS  256 /* number of most recent learned rows that are remembered */

/* Creates a detector.  n_back is the largest total count for hl_spikes_rewind. */
HL_API hl_status hl_spikes_new(hl_spikes **out, int64_t n_values, int64_t n_back);
HL_API void      hl_spikes_free(hl_spikes *spikes);
/* Learns a row (n_values) without scoring it; NaN stands for heads that a layer lacks.  Learning
 * ends with the first score. */
HL_API void hl_spikes_learn(hl_spikes *spikes, const float *row);
/* Scores a row.  As long as too few rows have been learned, it learns the row and returns NaN. */
HL_API double hl_spikes_score(hl_spikes *spikes, const float *row);
/* Undoes the last `count` scored rows, or as many as are remembered. */
HL_API void hl_spikes_rewind(hl_spikes *spikes, int64_t count);

/* ------------------------------------------------------------------ tracing
 *
 *     hl_tracer *tracer = NULL;
 *     hl_session_options options = { .wants = HL_WANT_LAST_LOGITS | HL_WANT_PATTERN,
 *                                    .n_patterns = 1, .n_ctx = 1024 };
 *     hl_tracer_open(&tracer, model, &(hl_tracer_options){ .n_ctx = 1024 });
 *     hl_generator_open(&generator, session,
 *                       &(hl_generate_options){ .tap        = hl_tracer_tap(tracer),
 *                                               .segments   = hl_tracer_segments(tracer),
 *                                               .n_segments = HL_N_KINDS });
 *     hl_tracer_prompt(tracer, prompt, NULL, n_prompt);
 *     hl_generator_prompt(generator, prompt, n_prompt);
 *     while (token.stop == HL_STOP_NONE && hl_generator_next(&token, generator) == HL_OK)
 *         hl_tracer_add(tracer, &token);
 *     hl_trace_write(hl_tracer_trace(tracer), "text.trace");
 *
 * A tracer is for one thread at a time, together with its trace and with the session that uses its
 * tap. */

typedef struct hl_tracer hl_tracer;

typedef struct hl_tracer_options {
    int64_t             n_ctx;        /* context length of the session */
    const hl_tokenizer *tokenizer;    /* used for texts and entities; borrowed; NULL: neither is
                                       * recorded */
    int64_t             n_back;       /* largest number of tokens that hl_tracer_rewind will
                                       * remove */
    int64_t             change_every; /* compute HL_TRACE_CHANGE only for one token in change_every,
                                       * since complete rows cost time; 0: for every token */
    bool                no_change;    /* do not compute HL_TRACE_CHANGE; complete rows
                                       * (HL_WANT_PATTERN) are then not needed */
    bool                forget;       /* keep only the rows of the last HL_SPIKE_MAX_ROWS tokens */
} hl_tracer_options;

/* Opens a tracer.  It holds n_layers * n_heads * n_ctx floats for the previous row, unless
 * no_change is set, and n_layers * n_heads * HL_N_TRACE_ROWS floats per token, unless `forget` is
 * set.  It borrows the model. */
HL_API hl_status hl_tracer_open(hl_tracer **out, const hl_model *model,
                                const hl_tracer_options *options);
HL_API void      hl_tracer_close(hl_tracer *tracer);
/* For hl_generate_options or hl_feed; borrowed.  Without the segments, lookback is NaN. */
HL_API const hl_tap  *hl_tracer_tap(const hl_tracer *tracer);
HL_API const uint8_t *hl_tracer_segments(const hl_tracer *tracer); /* (n_ctx) */
/* Announces tokens that are about to be fed, after all earlier ones.  kinds (n_tokens) are
 * hl_token_kind; NULL: HL_KIND_PROMPT. */
HL_API hl_status hl_tracer_prompt(hl_tracer *tracer, const int64_t *tokens, const uint8_t *kinds,
                                  int64_t n_tokens);
/* Adds the token that was generated from the last row. */
HL_API hl_status hl_tracer_add(hl_tracer *tracer, const hl_generated *token);
/* Shortens the trace to n_tokens tokens; call it with hl_generator_rewind. */
HL_API hl_status       hl_tracer_rewind(hl_tracer *tracer, int64_t n_tokens);
HL_API const hl_trace *hl_tracer_trace(const hl_tracer *tracer);
/* Feeds the whole text once more, all at once, and replaces the rows of the trace.  They are then
 * equal to those of hl_measure to the last bit; the rows of decoding steps, which add up sums in
 * another order, differ by about 1e-6.  HL_TRACE_CHANGE and the data of tokens are kept.  `gates`
 * is as in hl_feed.  Returns HL_BAD_ARGUMENT if the tracer forgets, or if tokens were fed without
 * hl_tracer_prompt. */
HL_API hl_status hl_tracer_retrace(hl_tracer *tracer, const hl_model *model, const float *gates,
                                   int32_t n_threads);

#ifdef __cplusplus
}
#endif
#endif
