/* headlight/generate.h - sampling, generation and perplexity. Part of headlight.h, which see for
 * the conventions. */
#ifndef HEADLIGHT_GENERATE_H
#define HEADLIGHT_GENERATE_H

#include "session.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- sampling
 *
 *     hl_sampler       *sampler = NULL;
 *     hl_sample_options options = { .temperature = 0.8, .top_k = 40, .seed = 7 };
 *     hl_sampler_new(&sampler, d_vocab, &options);
 *     hl_sampler_draw(&token, sampler, logits);
 *     hl_sampler_accept(sampler, token);
 *
 * Sampling turns logits into a token in these steps, in the order that transformers uses:
 *
 *     repeat_penalty   logits of tokens among the last repeat_last: l / penalty where
 *                      l > 0, l * penalty where l < 0; once, however often they occur
 *     temperature      l / temperature; 0 takes the largest and the rest is skipped
 *     top_k            the k largest, and those equal to the k-th
 *     top_p            of those, by falling probability, the fewest that hold a mass of p: a
 *                      token stays if the mass before it is less than p
 *     min_p            of those, tokens with at least p of the most likely one's probability
 *
 * The token is then drawn by the remaining probabilities.  Draw number n of a seed depends only on
 * the seed and n, so the same seed gives the same text on every machine and with any number of
 * threads, provided that the logits are the same.
 *
 * A sampler is for one thread at a time. */

typedef struct hl_sample_options {
    double   temperature;    /* 0: always the most likely token, the lowest id if several are
                              * equal */
    int64_t  top_k;          /* 0: all */
    double   top_p;          /* 0 and 1: all */
    double   min_p;          /* 0: all */
    double   repeat_penalty; /* 0 and 1: no penalty */
    int64_t  repeat_last;    /* 0: all tokens so far */
    uint64_t seed;
} hl_sample_options;

typedef struct hl_sampler hl_sampler;

typedef struct hl_candidate {
    int64_t token;
    double  probability; /* after penalty, temperature and filters */
} hl_candidate;

/* Creates a sampler.  All memory is allocated here; drawing allocates nothing. */
HL_API hl_status hl_sampler_new(hl_sampler **out, int64_t d_vocab,
                                const hl_sample_options *options);
HL_API void      hl_sampler_free(hl_sampler *sampler);
/* Draws a token from logits (d_vocab).  A logit of -inf excludes the token.  Returns
 * HL_BAD_INPUT, with a message that names the token, if a logit is NaN or +inf. */
HL_API hl_status hl_sampler_draw(int64_t *token, hl_sampler *sampler, const float *logits);
/* Adds a token to the text, whether drawn or given; repeat_penalty applies to these tokens. */
HL_API hl_status hl_sampler_accept(hl_sampler *sampler, int64_t token);
/* Returns the candidates of the last draw, borrowed until the next draw.  With top_k or top_p
 * they are sorted by decreasing probability, otherwise by token. */
HL_API const hl_candidate *hl_sampler_candidates(const hl_sampler *sampler, int64_t *count);

/* ------------------------------------------------------------- generating
 *
 *     hl_generator *generator = NULL;
 *     hl_generated  token     = { 0 };
 *     hl_generator_open(&generator, session, &(hl_generate_options){ .max_tokens = 100 });
 *     hl_generator_prompt(generator, tokens, n_tokens);
 *     while (token.stop == HL_STOP_NONE && hl_generator_next(&token, generator) == HL_OK)
 *         hl_decode_stream_push(&text, &n_bytes, stream, token.id);
 *
 * A generator produces tokens only; hl_decode_stream turns them into text and hl_stop_words looks
 * for the words that end it.
 *
 * A generator together with its session is for one thread at a time; so is an hl_stop_words.
 * Texts that are generated at the same time need separate sessions. */

typedef enum hl_stop {
    HL_STOP_NONE = 0, /* the text continues */
    HL_STOP_END,      /* the model generated one of its eos_ids or of end_ids */
    HL_STOP_LENGTH,   /* max_tokens were generated */
    HL_STOP_CONTEXT,  /* the session's context is full */
    HL_STOP_WORD,     /* hl_stop_words found a word; a generator never returns this */
    HL_STOP_SPIKE,    /* a spike ended the text; a generator never returns this */
} hl_stop;

/* The name of a reason to stop: "end", "length", "context", "stop", "spike"; "" for
 * HL_STOP_NONE. */
HL_API const char *hl_stop_name(hl_stop stop);

typedef struct hl_generate_options {
    hl_sample_options sample;
    int64_t           max_tokens; /* 0: as many as the context holds */
    bool              ignore_end; /* treat tokens that end a text like other tokens */
    const int64_t    *end_ids;    /* (n_end_ids) tokens that end a text, in addition to the
                                   * model's eos_ids; borrowed */
    int               n_end_ids;
    const float      *gates;      /* (n_layers, n_heads), as in hl_feed; borrowed */
    const uint8_t    *segments;   /* (n_ctx) as in hl_feed, for rows' segment_mass; borrowed;
                                   * NULL: none */
    int64_t           n_segments; /* number of segments in `segments` */
    const hl_tap     *tap;        /* receives intermediate results; borrowed; NULL: none */
} hl_generate_options;

/* A new token and the model's state when it was chosen.  Log-probability and entropies describe
 * the model's own distribution, before temperature and filters. */
typedef struct hl_generated {
    int64_t id;
    double  logprob;           /* log-probability of this token */
    double  entropy;           /* entropy of the distribution over the vocabulary */
    double  varentropy;        /* variance of -log p over the vocabulary */
    double  attention_entropy; /* mean over all heads of the entropy of the row that predicted it */
    hl_stop stop;              /* not HL_STOP_NONE: this is the last token; HL_STOP_END: the
                                * token is an end marker and not text */
} hl_generated;

typedef struct hl_generator hl_generator;

/* Opens a generator.  The session must have one sequence and HL_WANT_LAST_DRAW, or
 * HL_WANT_LAST_LOGITS to sample on the host.  It is borrowed, and tokens that it was fed earlier
 * stay before the prompt. */
HL_API hl_status hl_generator_open(hl_generator **out, hl_session *session,
                                   const hl_generate_options *options);
HL_API void      hl_generator_close(hl_generator *generator);
/* Feeds a prompt of at least one token.  It may be called again, even after the last token, to
 * add text from elsewhere; max_tokens then starts counting anew. */
HL_API hl_status hl_generator_prompt(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);
/* Feeds tokens in the middle of a text: the count for max_tokens continues, and these tokens are
 * not counted. */
HL_API hl_status hl_generator_insert(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);
/* Generates the next token.  Returns HL_BAD_ARGUMENT before the first prompt and after the last
 * token. */
HL_API hl_status hl_generator_next(hl_generated *out, hl_generator *generator);
/* Shortens the text to its first n_tokens tokens, prompt included; `tokens` are these tokens, as
 * far as this generator fed them to the session.  The next draw uses the next random number, not
 * the one used the first time.  Only tokens generated since the last prompt or insertion can be
 * removed; HL_BAD_ARGUMENT otherwise. */
HL_API hl_status hl_generator_rewind(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);

/* Finds words that end a text while the text arrives in pieces.  push returns the text that can
 * be shown: it holds back what may be the beginning of such a word.  At the first such word it
 * sets *found to true and returns the text before it; the text is then finished.  finish returns
 * the text that was held back.  Results are borrowed until the next call. */
typedef struct hl_stop_words hl_stop_words;

/* Creates a search for words, which must not be empty and are copied. */
HL_API hl_status hl_stop_words_new(hl_stop_words **out, const char *const *words, size_t n_words);
HL_API void      hl_stop_words_free(hl_stop_words *stop);
HL_API hl_status hl_stop_words_push(const char **text, size_t *n_bytes, bool *found,
                                    hl_stop_words *stop, const char *more, size_t n_more);
HL_API hl_status hl_stop_words_finish(const char **text, size_t *n_bytes, hl_stop_words *stop);

/* -------------------------------------------------------------- perplexity
 *
 *     hl_perplexity *perplexity = NULL;
 *     hl_nll         nll;
 *     hl_perplexity_open(&perplexity, model, &(hl_perplexity_options){ .stride = 256 });
 *     for each text
 *         hl_perplexity_add(&nll, perplexity, &(hl_scored_text){ .tokens = ..., .n_tokens = n });
 *     nll = hl_perplexity_total(perplexity);
 *
 * Measures how well a model predicts texts.  A text is cut into windows: window k holds the tokens
 * from k * stride on, at most n_ctx of them (less the tokens of `around`); the last window is the
 * first one that reaches the end.  Windows never cross texts, and each starts at position 0.  A
 * token is scored in the first window that contains it and a token before it, given all tokens
 * before it in that window.  With tokens added before each window, every token of the text is
 * scored once.  Without, every token but the first is scored if stride < n_ctx; if stride = n_ctx,
 * the default, the first token of each window is not scored.
 *
 * An hl_perplexity is for one thread at a time. */

typedef struct hl_perplexity hl_perplexity;

typedef struct hl_perplexity_options {
    int64_t      n_ctx;     /* tokens per window; 0: the default (HL_DEFAULT_CTX) */
    int64_t      stride;    /* 1 to n_ctx; 0: n_ctx */
    int64_t      n_batch;   /* windows of a text that are computed together; 0: as many as hold
                             * 512 rows */
    const float *gates;     /* (n_layers, n_heads), as in hl_feed; borrowed */
    int32_t      n_threads; /* 0: all cores */
    hl_progress_callback progress; /* called after every batch of windows, for the current text */
    void                *context;  /* passed to `progress` */
    /* Tokens added around each window, as from hl_tokenizer_around.  They count toward n_ctx and
     * are not scored.  Borrowed.  All zero: none. */
    hl_around_tokens around;
} hl_perplexity_options;

typedef struct hl_scored_text {
    const int64_t *tokens;
    int64_t        n_tokens;
    const int64_t *n_bytes; /* (n_tokens) bytes of text per token; NULL: unknown */
    double        *nll;     /* (n_tokens) output: -log p of each token, NaN if it is not scored; or
                             * NULL */
    int64_t       *top; /* (n_tokens) output: the most likely token in its place, -1 if it is not
                         * scored; or NULL */
} hl_scored_text;

typedef struct hl_nll {
    double      sum;           /* sum of -log p over scored tokens, nats */
    int64_t     n_scored;      /* number of scored tokens */
    int64_t     n_tokens;      /* number of tokens in the texts */
    int64_t     n_bytes;       /* bytes of text of the scored tokens; 0: unknown */
    int64_t     n_windows;     /* number of windows with a scored token */
    int64_t     n_texts;       /* number of texts with a scored token */
    double      mean;          /* sum / n_scored; NaN if nothing was scored */
    double      perplexity;    /* e^mean; NaN if nothing was scored */
    double      bits_per_byte; /* sum / (n_bytes ln 2); NaN if nothing was scored */
    hl_interval interval;      /* of the mean */
    int64_t     n_broken;      /* scored tokens whose loss is NaN, infinite or beyond 2^23 nats; if
                             * there are any, sum and all numbers derived from it are NaN */
    int64_t first_broken; /* first such token of the text; -1: none, or there are several texts */
} hl_nll;

/* Opens a measurement.  The model is borrowed.  It must have an output head and must not see
 * later tokens: HL_UNSUPPORTED for an encoder. */
HL_API hl_status hl_perplexity_open(hl_perplexity **out, const hl_model *model,
                                    const hl_perplexity_options *options);
HL_API void      hl_perplexity_close(hl_perplexity *perplexity);
/* Scores one more text; *out is the result of this text alone.  An empty text, or a single token
 * with no token before it, scores nothing. */
HL_API hl_status hl_perplexity_add(hl_nll *out, hl_perplexity *perplexity,
                                   const hl_scored_text *text);
/* Returns the result over all texts so far. */
HL_API hl_nll hl_perplexity_total(const hl_perplexity *perplexity);
/* Returns n_ctx, and stores the stride, after defaults are applied. */
HL_API int64_t hl_perplexity_n_ctx(const hl_perplexity *perplexity, int64_t *stride);

#ifdef __cplusplus
}
#endif
#endif
