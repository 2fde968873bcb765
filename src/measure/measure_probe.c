/* measure_probe.c - which heads attend to what followed the same token before.
 *
 * Random tokens, repeated once, have no meaning and no related neighbors: what a head does in the
 * second half can only come from the first.  With n tokens, position i of the second half attends
 * to
 *
 *     i - n + 1   the token that followed at that time (induction)
 *     i - n       the same token                        (duplicate)
 *     i - 1       the previous token                    (previous)
 *
 * The scores are the mean probabilities of these. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/measure.h"

typedef struct probe_run {
    hl_measuring *m;
    int64_t       n_tokens;  /* number of tokens before they repeat */
    int64_t       first;     /* position of the first random token: 1 after a begin-of-text token */
    int64_t      *tokens;    /* (first + 2 n_tokens) */
    int64_t      *positions; /* (n_tokens) positions of the second half */
    double       *sums;      /* (L, H, 3) */
} probe_run;

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    static const int64_t keys_before[HL_N_PROBES] = { 1, 0, -1 }; /* offsets of the keys; -n is
                                                                   * added to all but the last */
    probe_run           *run                      = context;
    int64_t              n                        = run->n_tokens;

    for (int64_t i = 0; i < rows->n_heads * rows->n_patterns; i++) {
        int64_t head     = i / rows->n_patterns;
        int64_t position = rows->pattern_rows[i % rows->n_patterns] + rows->start[0];
        double *sums     = run->sums + (rows->layer * run->m->config->n_heads + head) * HL_N_PROBES;

        for (int probe = 0; probe < HL_N_PROBES; probe++) {
            int64_t key = position + keys_before[probe] - (probe == HL_PROBE_PREVIOUS ? 0 : n);
            sums[probe] += (double)rows->pattern[i * rows->n_keys + key];
        }
    }
    return HL_OK;
}

static void draw_tokens(probe_run *run, int64_t repeat)
{
    uint64_t d_vocab = (uint64_t)run->m->config->d_vocab;
    uint64_t seed    = hl_hash_pair(run->m->options.seed, (uint64_t)repeat);

    if (run->first > 0)
        run->tokens[0] = run->m->config->generation.bos_id;
    for (int64_t i = 0; i < 2 * run->n_tokens; i++) {
        uint64_t hash               = hl_hash_pair(seed, (uint64_t)(i % run->n_tokens));
        run->tokens[run->first + i] = (int64_t)(hash % d_vocab);
    }
}

static hl_status feed_repeats(probe_run *run, hl_session *session)
{
    hl_tap  tap  = { .context             = run,
                     .layer               = watch_layer,
                     .wants               = HL_WANT_PATTERN,
                     .pattern_positions   = run->positions,
                     .n_pattern_positions = run->n_tokens };
    hl_feed feed = { .tokens   = run->tokens,
                     .n_tokens = run->first + 2 * run->n_tokens,
                     .tap      = &tap };

    for (int64_t repeat = 0; repeat < HL_PROBE_REPEATS; repeat++) {
        draw_tokens(run, repeat);
        HL_NEED(hl_session_rewind(session, 0, 0));
        HL_NEED(hl_session_feed(session, &feed));
    }
    return HL_OK;
}

static void keep_scores(const probe_run *run)
{
    const hl_config *config = run->m->config;
    double           count  = (double)(run->n_tokens * HL_PROBE_REPEATS);

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        for (int64_t i = 0; i < config->layers[layer].n_heads * HL_N_PROBES; i++) {
            double score = run->sums[layer * config->n_heads * HL_N_PROBES + i] / count;
            /* NaN is not added: the rows of such a head count as broken anyway. */
            if (score >= 0.0)
                hl_profile_set_probe(run->m->profile, layer, i / HL_N_PROBES,
                                     (hl_probe)(i % HL_N_PROBES), fmin(score, 1.0));
        }
    }
}

static hl_status run_probe(probe_run *run)
{
    hl_status          status  = HL_OK;
    hl_session        *session = NULL;
    int64_t            length  = run->first + 2 * run->n_tokens;
    hl_session_options options = { .n_ctx      = length,
                                   .n_patterns = run->n_tokens,
                                   .wants      = HL_WANT_PATTERN,
                                   .n_chunk    = length,
                                   .n_threads  = run->m->options.n_threads };
    size_t cells = (size_t)(run->m->config->n_layers * run->m->config->n_heads) * HL_N_PROBES;

    HL_TRY(HL_ALLOC(&run->tokens, (size_t)length));
    HL_TRY(HL_ALLOC(&run->positions, (size_t)run->n_tokens));
    HL_TRY(HL_ALLOC_ZEROED(&run->sums, cells));
    for (int64_t i = 0; i < run->n_tokens; i++)
        run->positions[i] = run->first + run->n_tokens + i;
    HL_TRY(hl_session_open(&session, run->m->model, &options));
    HL_TRY(feed_repeats(run, session));
    keep_scores(run);

done:
    hl_session_close(session);
    hl_free(run->tokens);
    hl_free(run->positions);
    hl_free(run->sums);
    return status;
}

hl_status hl_measure_probe(hl_measuring *m)
{
    int64_t   bos   = m->config->generation.bos_id;
    probe_run run   = { .m = m, .n_tokens = HL_PROBE_TOKENS };
    int64_t   n_ctx = m->config->n_ctx;

    run.first = bos >= 0 && bos < m->config->d_vocab ? 1 : 0;
    if (n_ctx > 0 && run.first + 2 * run.n_tokens > n_ctx)
        run.n_tokens = (n_ctx - run.first) / 2;
    return run.n_tokens >= 2 ? run_probe(&run) : HL_OK;
}
