/* headlight/generate.h - sampling, generating, and how well a model predicts texts.
 * Part of headlight.h, which see for the conventions. */
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
 * From logits to a token, in this order, which is that of transformers:
 *
 *     repeat_penalty   logits of tokens among the last repeat_last: l / penalty where
 *                      l > 0, l * penalty where l < 0; once, however often they came
 *     temperature      l / temperature; 0 takes the largest and the rest is skipped
 *     top_k            the k largest, and what equals the k-th
 *     top_p            of those, by falling probability, as few as hold a mass of p: a
 *                      token stays where less than p lies before it
 *     min_p            of those, what has at least p of the likeliest one's probability
 *
 * The draw is by the probabilities of what is left.  Draw number n of a seed is a
 * function of both and of nothing else, so one seed gives one text on every machine
 * and with any number of threads, as far as the logits are the same.
 *
 * A sampler is for one thread at a time. */

typedef struct hl_sample_options {
    double   temperature;    /* 0: always the likeliest token, the lowest of equals */
    int64_t  top_k;          /* 0: all */
    double   top_p;          /* 0: all, as 1 */
    double   min_p;          /* 0: all */
    double   repeat_penalty; /* 0: none, as 1 */
    int64_t  repeat_last;    /* 0: all tokens so far */
    uint64_t seed;
} hl_sample_options;

typedef struct hl_sampler hl_sampler;

typedef struct hl_candidate {
    int64_t token;
    double  probability; /* after all of the above */
} hl_candidate;

/* All memory is taken here, none by a draw. */
HL_API hl_status hl_sampler_new(hl_sampler **out, int64_t d_vocab,
                                const hl_sample_options *options);
HL_API void      hl_sampler_free(hl_sampler *sampler);
/* logits (d_vocab); -inf is a token that cannot be.  HL_BAD_INPUT, naming the token,
 * where one is NaN or +inf. */
HL_API hl_status hl_sampler_draw(int64_t *token, hl_sampler *sampler, const float *logits);
/* A token is part of the text now, drawn or given: repeat_penalty looks at these. */
HL_API hl_status hl_sampler_accept(hl_sampler *sampler, int64_t token);
/* Those that the last draw chose among; borrowed until the next.  By falling
 * probability with top_k or top_p, else by token. */
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
 * Tokens only; hl_decode_stream turns them into text and hl_stop_words looks for the
 * words that end it.
 *
 * A generator and its session are for one thread at a time, together; so is an hl_stop_words.  Texts
 * that are generated at once have sessions of their own. */

typedef enum hl_stop {
    HL_STOP_NONE = 0, /* it goes on */
    HL_STOP_END,      /* the model said so, with one of its eos_ids or of end_ids */
    HL_STOP_LENGTH,   /* max_tokens */
    HL_STOP_CONTEXT,  /* the session's context is full */
    HL_STOP_WORD,     /* hl_stop_words found one; never from a generator, nor is */
    HL_STOP_SPIKE,    /* a spike, where it was to end the text */
} hl_stop;

/* "end", "length", "context", "stop", "spike"; "" for HL_STOP_NONE. */
HL_API const char *hl_stop_name(hl_stop stop);

typedef struct hl_generate_options {
    hl_sample_options sample;
    int64_t           max_tokens; /* 0: as many as the context holds */
    bool              ignore_end; /* tokens that end a text are tokens like others */
    const int64_t    *end_ids;    /* (n_end_ids) such tokens, beside the model's eos_ids */
    int               n_end_ids;
    const float      *gates;      /* (n_layers, n_heads), as in hl_feed */
    const uint8_t    *segments;   /* (n_ctx) as in hl_feed, for rows' segment_mass; NULL: none */
    int64_t           n_segments; /* ... */
    const hl_tap     *tap;        /* also watches; borrowed, as gates, end_ids and segments */
} hl_generate_options;

/* A new token and what the model was like as it chose.  Both describe the model's own
 * distribution, before temperature and filters. */
typedef struct hl_generated {
    int64_t id;
    double  logprob;           /* of this token */
    double  entropy;           /* of the next token, over the vocabulary */
    double  varentropy;        /* ... */
    double  attention_entropy; /* mean over all heads of the row that led to it */
    hl_stop stop;              /* not HL_STOP_NONE: this is the last; HL_STOP_END: the token
                                * is the model's sign and not text */
} hl_generated;

typedef struct hl_generator hl_generator;

/* The session needs HL_WANT_LAST_DRAW, or HL_WANT_LAST_LOGITS to draw on the host, and one
 * sequence; it is borrowed, and what it has been fed before stays before the prompt. */
HL_API hl_status hl_generator_open(hl_generator **out, hl_session *session,
                                   const hl_generate_options *options);
HL_API void      hl_generator_close(hl_generator *generator);
/* At least one token.  May be called again, also after the last token: text that others
 * wrote, after which max_tokens counts anew. */
HL_API hl_status hl_generator_prompt(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);
/* The same in the middle of a text: max_tokens goes on counting, and these do not count. */
HL_API hl_status hl_generator_insert(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);
/* HL_BAD_ARGUMENT before the first prompt and after the last token. */
HL_API hl_status hl_generator_next(hl_generated *out, hl_generator *generator);
/* Back to the first n_tokens of all that the text has, prompt included; `tokens` are these, as
 * far as the session was fed by this generator.  What is drawn next is drawn with the next
 * random number, not with that of the first time.  Takes back at most what was generated since
 * the last prompt or insertion; HL_BAD_ARGUMENT otherwise. */
HL_API hl_status hl_generator_rewind(hl_generator *generator, const int64_t *tokens,
                                     int64_t n_tokens);

/* Words that end a text that comes in pieces.  push returns what can be shown: not what
 * may be the beginning of such a word, and nothing from the first one on; then *found is
 * true and the text is over.  finish returns what was held back.  What they return is
 * borrowed until the next call. */
typedef struct hl_stop_words hl_stop_words;

/* words are not empty and are copied. */
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
 * How well a model predicts texts.  A text is cut into windows: window k is the tokens
 * from k * stride on, n_ctx of them (less what `around` has) or as many as there are; the
 * last one is the first that reaches the end.  Windows never cross texts, and each starts at
 * position 0.  A token is scored in the first window that has it with a token before it,
 * given all that stand before it there.  With something to put before each window every token
 * of the text is scored once.  Without, every token but the first is if stride < n_ctx, and
 * if stride = n_ctx, the default, the first of each window is given, not scored.
 *
 * An hl_perplexity is for one thread at a time. */

typedef struct hl_perplexity hl_perplexity;

typedef struct hl_perplexity_options {
    int64_t      n_ctx;     /* tokens of a window; 0: the default (HL_DEFAULT_CTX) */
    int64_t      stride;    /* 1 to n_ctx; 0: n_ctx */
    int64_t      n_batch;   /* windows of a text that are worked on together; 0: 512 rows' worth */
    const float *gates;     /* (n_layers, n_heads), as in hl_feed; borrowed */
    int32_t      n_threads; /* 0: all cores */
    hl_progress_callback progress; /* after every batch of windows, of the text at hand */
    void                *context;  /* of progress */
    /* What stands around each window beside the text's tokens, as hl_tokenizer_around has it; it
     * takes room of n_ctx and is not scored.  Borrowed.  All zero: nothing. */
    hl_around_tokens around;
} hl_perplexity_options;

typedef struct hl_scored_text {
    const int64_t *tokens;
    int64_t        n_tokens;
    const int64_t *n_bytes; /* (n_tokens) of the text that each stands for; NULL: not known */
    double        *nll; /* (n_tokens) gets -log p of each, NaN where it is not scored; or NULL */
    int64_t       *top; /* (n_tokens) gets the likeliest in its place, -1 as above; or NULL */
} hl_scored_text;

typedef struct hl_nll {
    double  sum;            /* nats */
    int64_t n_scored;       /* tokens */
    int64_t n_tokens;       /* those of the texts */
    int64_t n_bytes;        /* of the scored tokens; 0: not known */
    int64_t n_windows;      /* that score a token */
    int64_t n_texts;        /* ... */
    double  mean;           /* sum / n_scored; NaN where nothing was scored, as what follows */
    double  perplexity;     /* e^mean */
    double  bits_per_byte;  /* sum / (n_bytes ln 2) */
    double  standard_error; /* of the mean: of a ratio of sums over texts, or else windows */
    bool    over_texts;     /* there were at least HL_MIN_TEXTS; windows are less independent */
    int64_t n_broken;       /* scored tokens whose loss is NaN, infinite or beyond 2^23 nats; if
                             * there are any, sum and all that comes of it is NaN */
    int64_t first_broken;   /* token of the text; -1: none, or of several texts */
} hl_nll;

#define HL_MIN_TEXTS 8

/* The model must have an output head and see no token that follows: an encoder is
 * HL_UNSUPPORTED.  Borrows it. */
HL_API hl_status hl_perplexity_open(hl_perplexity **out, const hl_model *model,
                                    const hl_perplexity_options *options);
HL_API void      hl_perplexity_close(hl_perplexity *perplexity);
/* One more text; *out is of it alone.  A text of no token, or of one that has none before it, scores
 * nothing. */
HL_API hl_status hl_perplexity_add(hl_nll *out, hl_perplexity *perplexity,
                                   const hl_scored_text *text);
/* Of all texts so far. */
HL_API hl_nll hl_perplexity_total(const hl_perplexity *perplexity);
/* What the options became. */
HL_API int64_t hl_perplexity_n_ctx(const hl_perplexity *perplexity, int64_t *stride);

#ifdef __cplusplus
}
#endif
#endif
