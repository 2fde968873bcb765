/* speed.c - the time for a prompt, and for the tokens after it: of one model, or of two in turns. */
#include <stdlib.h>

#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/eval.h"
#include "model/model.h"
#include "model/session.h"

enum { PREFILL = 512, DECODE = 32, ROUNDS = 3, MAX_ROUNDS = 1000 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* Tokens one by one; none for n_decode -1. */
static int64_t decoded(const hl_speed_options *options)
{
    return options->n_decode > 0 ? options->n_decode : 0;
}

static hl_status complete_options(hl_speed_options *options, const hl_model *model,
                                  int64_t n_tokens)
{
    int64_t n_ctx = model->config->n_ctx;

    if (options->n_prefill == 0)
        options->n_prefill = n_tokens < PREFILL ? n_tokens : PREFILL;
    if (options->n_decode == 0)
        options->n_decode = DECODE;
    if (n_ctx > 0 && options->n_prefill + decoded(options) > n_ctx && decoded(options) < n_ctx)
        options->n_prefill = n_ctx - decoded(options);
    if (options->n_rounds == 0)
        options->n_rounds = ROUNDS;
    if (options->n_prefill < 1 || options->n_prefill > n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "speed: a prompt of %lld tokens, there are %lld",
                       (long long)options->n_prefill, (long long)n_tokens);
    if (options->n_decode < -1 || options->n_decode > n_tokens || options->n_rounds < 1 ||
        options->n_rounds > MAX_ROUNDS)
        return hl_fail(HL_BAD_ARGUMENT,
                       "speed: %lld tokens after the prompt in %lld rounds, there "
                       "are %lld tokens",
                       (long long)options->n_decode, (long long)options->n_rounds,
                       (long long)n_tokens);
    return HL_OK;
}

static hl_status run_round(double *prefill, double *decode, hl_session *session,
                           const int64_t *tokens, const hl_speed_options *options)
{
    double start = hl_clock_seconds();

    HL_NEED(hl_session_rewind(session, 0, 0));
    HL_NEED(
        hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = options->n_prefill }));
    double middle = hl_clock_seconds();
    for (int64_t i = 0; i < options->n_decode; i++)
        HL_NEED(hl_session_feed(session, &(hl_feed){ .tokens = tokens + i, .n_tokens = 1 }));
    *prefill = middle - start;
    *decode  = hl_clock_seconds() - middle;
    return HL_OK;
}

/* A model at work. */
typedef struct runner {
    hl_session *session;
    double     *times; /* (2, n_rounds) prefill, decode */
} runner;

static void close_runner(runner *r)
{
    hl_session_close(r->session);
    hl_free(r->times);
}

static hl_status open_runner(runner *r, const hl_model *model, const hl_speed_options *options)
{
    HL_NEED(hl_session_open(
        &r->session, model,
        &(hl_session_options){ .n_ctx     = options->n_prefill + decoded(options),
                               .wants     = model->config->is_encoder ? 0 : HL_WANT_LAST_DRAW,
                               .n_threads = options->n_threads }));
    return HL_ALLOC(&r->times, 2 * (size_t)options->n_rounds);
}

/* Sorts the times. */
static void conclude(hl_speed *out, runner *r, const hl_model *model,
                     const hl_speed_options *options)
{
    *out               = (hl_speed){ .n_prefill       = options->n_prefill,
                                     .n_decode        = decoded(options),
                                     .prefill_seconds = median(r->times, options->n_rounds),
                                     .decode_seconds  = median(r->times + options->n_rounds, options->n_rounds),
                                     .weight_bytes    = model->info.tensor_bytes };
    out->session_bytes = hl_session_bytes(r->session, &out->cache_bytes);
}

hl_status hl_measure_speed(hl_speed *out, const hl_model *model, const int64_t *tokens,
                           int64_t n_tokens, const hl_speed_options *given)
{
    hl_speed_options               options = given != NULL ? *given : (hl_speed_options){ 0 };
    HL_SCOPED(close_runner) runner r       = { 0 };

    *out = (hl_speed){ 0 };
    HL_NEED(complete_options(&options, model, n_tokens));
    HL_NEED(open_runner(&r, model, &options));
    for (int64_t i = 0; i < options.n_rounds; i++)
        HL_NEED(
            run_round(&r.times[i], &r.times[options.n_rounds + i], r.session, tokens, &options));
    conclude(out, &r, model, &options);
    return HL_OK;
}

static hl_speed_ratio ratio_of(double *ratios, const double *before, const double *after, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ratios[i] = after[i] > 0.0 ? before[i] / after[i] : 0.0;
    double middle = median(ratios, n); /* and sorted */
    return (hl_speed_ratio){ middle, ratios[0], ratios[n - 1] };
}

hl_status hl_measure_speeds(hl_speed_pair *out, const hl_model *before, const hl_model *after,
                            const int64_t *tokens, int64_t n_tokens, const hl_speed_options *given)
{
    hl_speed_options               options = given != NULL ? *given : (hl_speed_options){ 0 };
    HL_SCOPED(close_runner) runner a       = { 0 };
    HL_SCOPED(close_runner) runner b       = { 0 };
    HL_FREED double               *ratios  = NULL;

    *out = (hl_speed_pair){ 0 };
    HL_NEED(complete_options(&options, before, n_tokens));
    HL_NEED(complete_options(&options, after, n_tokens)); /* one context that both have */
    HL_NEED(open_runner(&a, before, &options));
    HL_NEED(open_runner(&b, after, &options));
    HL_NEED(HL_ALLOC(&ratios, (size_t)options.n_rounds));
    int64_t n = options.n_rounds;
    for (int64_t i = -1; i < n; i++) { /* the first round is overwritten */
        int64_t at = i >= 0 ? i : 0;

        HL_NEED(run_round(&a.times[at], &a.times[n + at], a.session, tokens, &options));
        HL_NEED(run_round(&b.times[at], &b.times[n + at], b.session, tokens, &options));
    }
    out->n_rounds = n;
    out->prefill  = ratio_of(ratios, a.times, b.times, n);
    if (options.n_decode > 0)
        out->decode = ratio_of(ratios, a.times + n, b.times + n, n);
    conclude(&out->before, &a, before, &options);
    conclude(&out->after, &b, after, &options);
    return HL_OK;
}
