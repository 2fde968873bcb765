/* headlight/trace.h - what was seen of every token while a text was generated.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_TRACE_H
#define HEADLIGHT_TRACE_H

#include "generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ traces
 *
 * A trace has an entry for every token of a text, those of the prompt among them; an entry
 * has what was seen in the attention row that led to the token, which is the row of the
 * token before.  doc/trace.md describes the files.
 *
 * A trace that was loaded does not change, and any number of threads may read it at once. */

typedef struct hl_trace hl_trace;

/* Where a token comes from. */
typedef enum hl_token_kind {
    HL_KIND_PROMPT = 0,
    HL_KIND_SPECIAL, /* of the prompt: special tokens, and what a chat template wrote */
    HL_KIND_GENERATED,
    HL_KIND_CONTEXT, /* inserted while generating */
    HL_N_KINDS
} hl_token_kind;

/* "prompt", "special", "generated", "context". */
HL_API const char *hl_token_kind_name(hl_token_kind kind);

/* Of every head, in the row that led to the token; NaN of heads that a layer lacks. */
typedef enum hl_trace_rows {
    HL_TRACE_ENTROPY = 0, /* H, nats */
    HL_TRACE_NORMALIZED,  /* H / ln n of the n keys it sees; 0 where that is one */
    HL_TRACE_CHANGE,      /* total variation from the row before, over the keys that both see, all
                           * else being one outcome; NaN where the row before was not looked at: in
                           * a prompt, and at the first token after one */
    HL_TRACE_RENYI2,      /* collision entropy, nats */
    HL_TRACE_ENTROPY_NOSINK, /* H over the keys other than key 0; NaN where there is none */
    HL_TRACE_LOOKBACK,       /* + hl_token_kind: the share of attention on tokens of that kind */
    HL_N_TRACE_ROWS = HL_TRACE_LOOKBACK + HL_N_KINDS
} hl_trace_rows;

/* What is known of a token beside what hl_generated says. */
typedef struct hl_traced_token {
    hl_token_kind kind;
    double        spike;     /* the score of hl_spikes; NaN: of a prompt, or too early to say */
    bool          is_entity; /* it begins a word with a capital letter or a digit in it */
    const char   *text;      /* what it added to the text; borrowed, not NUL-ended */
    size_t        n_bytes;
} hl_traced_token;

/* A safetensors file, or lines of JSON if the name ends in ".jsonl".  HL_BAD_INPUT, naming the
 * tensor or the line, of what is no trace. */
HL_API hl_status hl_trace_load(hl_trace **out, const char *path);
HL_API hl_status hl_trace_write(const hl_trace *trace, const char *path);
HL_API void      hl_trace_free(hl_trace *trace);
HL_API int64_t   hl_trace_n_tokens(const hl_trace *trace);
HL_API int64_t   hl_trace_n_layers(const hl_trace *trace);
HL_API int64_t   hl_trace_n_heads(const hl_trace *trace); /* the most of any layer */
/* Token, layer and head must exist.  A token's .stop is not kept; of tokens that were not
 * generated the numbers are NaN. */
HL_API hl_generated    hl_trace_token(const hl_trace *trace, int64_t token);
HL_API hl_traced_token hl_trace_describe(const hl_trace *trace, int64_t token);
HL_API double hl_trace_row(const hl_trace *trace, int64_t token, int64_t layer, int64_t head,
                           hl_trace_rows which);
/* Over all heads that are not NaN; and over those of one layer. */
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
HL_API hl_status hl_trace_repetition(hl_repetition *out, const hl_trace *trace);

/* ------------------------------------------------------------------ spikes
 *
 * Is attention suddenly more diffuse than this text is used to?  Each number (a head's
 * normalized entropy) is compared with its own history, and so is their mean:
 *
 *     z     = (x - center) / sigma                  of every head
 *     mean  = of z over heads, without the lowest and the highest tenth
 *     score = (mean - its center) / its sigma
 *
 * At first center and sigma are the median and 1.4826 times the median distance from it,
 * over the rows that were learned; then each scored row moves them by 1/64 of the way to
 * itself, but as if it lay no more than 3 sigma away, so that a spike does not hide the
 * next.  sigma stays above 0.01.  The mean has a sigma of its own because heads rarely move
 * together: over ordinary text it stays far below 1.
 *
 * An hl_spikes is for one thread at a time. */

typedef struct hl_spikes hl_spikes;

#define HL_SPIKE_THRESHOLD 3.0
#define HL_SPIKE_MIN_ROWS  16  /* that must be learned before there are scores */
#define HL_SPIKE_MAX_ROWS  256 /* learned rows that are remembered: the last */

/* n_back: how far hl_spikes_rewind can go. */
HL_API hl_status hl_spikes_new(hl_spikes **out, int64_t n_values, int64_t n_back);
HL_API void      hl_spikes_free(hl_spikes *spikes);
/* row (n_values); NaN: there is no such head.  Learning ends with the first score. */
HL_API void hl_spikes_learn(hl_spikes *spikes, const float *row);
/* NaN while too few rows have been learned; then the row is learned. */
HL_API double hl_spikes_score(hl_spikes *spikes, const float *row);
/* As if the last `count` rows had not been scored, or as many as are remembered. */
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
 * A tracer is for one thread at a time, together with the session that its tap is fed to; its trace
 * changes with it. */

typedef struct hl_tracer hl_tracer;

typedef struct hl_tracer_options {
    int64_t             n_ctx;        /* of the session */
    const hl_tokenizer *tokenizer;    /* for texts and entities; borrowed.  NULL: none */
    int64_t             n_back;       /* how far hl_tracer_rewind will go */
    int64_t             change_every; /* HL_TRACE_CHANGE of one token in so many, since whole rows
                                       * cost time; 0: of every token */
    bool                no_change;    /* HL_TRACE_CHANGE stays NaN: whole rows, HL_WANT_PATTERN, are
                                       * not needed */
    bool                forget;       /* keep the rows of the last tokens only, HL_SPIKE_MAX_ROWS */
} hl_tracer_options;

/* Holds n_layers * n_heads * n_ctx floats for the row before, unless no_change; and for every
 * token, unless it forgets, n_layers * n_heads * HL_N_TRACE_ROWS.  Borrows the model. */
HL_API hl_status hl_tracer_open(hl_tracer **out, const hl_model *model,
                                const hl_tracer_options *options);
HL_API void      hl_tracer_close(hl_tracer *tracer);
/* For the generator, or for feeds; borrowed.  Without segments lookback is NaN. */
HL_API const hl_tap  *hl_tracer_tap(const hl_tracer *tracer);
HL_API const uint8_t *hl_tracer_segments(const hl_tracer *tracer); /* (n_ctx) */
/* Tokens that are about to be fed, after all that were before.  kinds (n_tokens) are
 * hl_token_kind; NULL: HL_KIND_PROMPT. */
HL_API hl_status hl_tracer_prompt(hl_tracer *tracer, const int64_t *tokens, const uint8_t *kinds,
                                  int64_t n_tokens);
/* The token that the last row led to. */
HL_API hl_status hl_tracer_add(hl_tracer *tracer, const hl_generated *token);
/* Back to so many tokens, as the generator goes back. */
HL_API hl_status       hl_tracer_rewind(hl_tracer *tracer, int64_t n_tokens);
HL_API const hl_trace *hl_tracer_trace(const hl_tracer *tracer);
/* Feeds the whole text once more, all at once, and puts those rows into the trace: they are
 * those of hl_measure to the last bit, where rows of a step of decoding, whose sums are added
 * up in another order, are off by some 1e-6.  HL_TRACE_CHANGE and what was said of tokens stay.
 * gates as in hl_feed.  HL_BAD_ARGUMENT if it forgets, or if tokens were fed that nobody
 * announced. */
HL_API hl_status hl_tracer_retrace(hl_tracer *tracer, const hl_model *model, const float *gates,
                                   int32_t n_threads);

#ifdef __cplusplus
}
#endif
#endif
