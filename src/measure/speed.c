/* speed.c - the time for a prompt, and for the tokens after it. */
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

static hl_status complete_options(hl_speed_options *options, const hl_model *model,
                                  int64_t n_tokens)
{
    int64_t n_ctx = model->config->n_ctx;

    if (options->n_prefill == 0)
        options->n_prefill = n_tokens < PREFILL ? n_tokens : PREFILL;
    if (options->n_decode == 0)
        options->n_decode = DECODE;
    if (n_ctx > 0 && options->n_prefill + options->n_decode > n_ctx && options->n_decode < n_ctx)
        options->n_prefill = n_ctx - options->n_decode;
    if (options->n_rounds == 0)
        options->n_rounds = ROUNDS;
    if (options->n_prefill < 1 || options->n_prefill > n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "speed: a prompt of %lld tokens, there are %lld",
                       (long long)options->n_prefill, (long long)n_tokens);
    if (options->n_decode < 1 || options->n_decode > n_tokens || options->n_rounds < 1 ||
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

hl_status hl_measure_speed(hl_speed *out, const hl_model *model, const int64_t *tokens,
                           int64_t n_tokens, const hl_speed_options *given)
{
    hl_speed_options options = given != NULL ? *given : (hl_speed_options){ 0 };

    HL_CLOSED(hl_session_close) hl_session *session = NULL;

    HL_FREED double *times = NULL;

    *out = (hl_speed){ 0 };
    HL_NEED(complete_options(&options, model, n_tokens));
    HL_NEED(hl_session_open(&session, model,
                            &(hl_session_options){ .n_ctx = options.n_prefill + options.n_decode,
                                                   .wants = HL_WANT_LAST_DRAW,
                                                   .n_threads = options.n_threads }));
    HL_NEED(HL_ALLOC(&times, 2 * (size_t)options.n_rounds));
    for (int64_t i = 0; i < options.n_rounds; i++)
        HL_NEED(run_round(&times[i], &times[options.n_rounds + i], session, tokens, &options));
    out->n_prefill       = options.n_prefill;
    out->n_decode        = options.n_decode;
    out->prefill_seconds = median(times, options.n_rounds);
    out->decode_seconds  = median(times + options.n_rounds, options.n_rounds);
    out->session_bytes   = hl_session_bytes(session, &out->cache_bytes);
    return HL_OK;
}
