/* device_pick.c - what draws need to know of logits that stay on a device.
 *
 * The last logits of every sequence have a row there, which the pass leaves behind.  A draw sends
 * its rule over and gets back what the row says and some candidates.  The row itself is fetched
 * where somebody wants to see it, where too many candidates are left, and where it holds what is no
 * number: then the sampler says which. */
#include <string.h>

#include "base/status.h"
#include "model/device.h"
#include "model/pick.h"
#include "model/sample.h"

static int64_t n_words(const hl_session *session)
{
    return (session->config->d_vocab + 31) / 32;
}

void hl_device_plan_picks(hl_session *session, hl_arena *rows, hl_arena *host)
{
    hl_device_picks *picks  = &session->device->picks;
    int64_t          n      = session->options.n_batch;
    hl_device_pair  *pair[] = { &picks->rules, &picks->results, &picks->candidates,
                                &picks->repeated };
    const size_t     size[] = { sizeof(hl_pick_rule), sizeof(hl_pick_result),
                                HL_PICK_CANDIDATES * sizeof(hl_pick_candidate),
                                (size_t)n_words(session) * sizeof(uint32_t) };

    if ((session->options.wants & HL_WANT_LAST_DRAW) == 0)
        return;
    picks->logits = hl_arena_take(rows, n * session->config->d_vocab, sizeof(float));
    picks->work   = hl_arena_take(rows, n, HL_PICK_WORK_BYTES);
    for (int i = 0; i < 4; i++) {
        pair[i]->device = hl_arena_take(rows, n, size[i]);
        pair[i]->host   = hl_arena_take(host, n, size[i]);
    }
    if ((session->options.wants & HL_WANT_LAST_LOGITS) == 0)
        session->rows.last = hl_arena_take(host, n * session->config->d_vocab, sizeof(float));
}

hl_status hl_device_keep_last(const hl_session *session)
{
    const hl_device_session *d = session->device;
    int64_t                  n = session->config->d_vocab;

    if (d->inputs.kept == NULL)
        return HL_OK;
    return hl_device_checked(
        d,
        d->ops->copy_rows(d->device, &(hl_device_copy_rows){ .out        = d->picks.logits,
                                                             .out_dtype  = HL_DTYPE_F32,
                                                             .out_stride = n,
                                                             .x          = d->rows.logits,
                                                             .x_dtype    = HL_DTYPE_F32,
                                                             .x_stride   = n,
                                                             .index      = d->inputs.kept,
                                                             .n_rows     = session->options.n_batch,
                                                             .n          = n }),
        "last logits");
}

/* ------------------------------------------------------------------------ looking */

static hl_status send(const hl_device_session *d, const hl_device_pair *pair, size_t n_bytes)
{
    return hl_device_checked(d, d->ops->copy_in(d->device, pair->device, pair->host, n_bytes),
                             "draws");
}

static hl_status receive(const hl_device_session *d, void *to, const void *from, size_t n_bytes)
{
    return hl_device_checked(d, d->ops->copy_out(d->device, 0, to, from, n_bytes), "draws");
}

/* The rules of all draws, and which tokens count as repeated. */
static hl_status send_rules(const hl_session *session, const hl_pick *picks, int64_t n)
{
    const hl_device_session *d          = session->device;
    hl_pick_rule            *rules      = d->picks.rules.host;
    size_t                   row_bytes  = (size_t)n_words(session) * sizeof(uint32_t);
    bool                     any_repeat = false;

    for (int64_t i = 0; i < n; i++) {
        const uint32_t *repeated = hl_sampler_repeated(picks[i].sampler);

        rules[i] = hl_sampler_rule(picks[i].sampler, picks[i].sequence);
        if (repeated != NULL)
            memcpy((uint8_t *)d->picks.repeated.host + (size_t)i * row_bytes, repeated, row_bytes);
        any_repeat = any_repeat || repeated != NULL;
    }
    HL_NEED(send(d, &d->picks.rules, (size_t)n * sizeof *rules));
    if (any_repeat)
        HL_NEED(send(d, &d->picks.repeated, (size_t)n * row_bytes));
    return HL_OK;
}

static hl_status run_draws(const hl_session *session, int64_t n)
{
    const hl_device_session *d     = session->device;
    const hl_device_picks   *all   = &d->picks;
    const hl_pick_rule      *rules = all->rules.host;
    bool                     lists = false;

    for (int64_t i = 0; i < n; i++)
        lists = lists || (rules[i].kind != HL_PICK_GREEDY && rules[i].kind != HL_PICK_ALL);
    HL_NEED(hl_device_checked(
        d,
        d->ops->pick(d->device, &(hl_device_pick){ .out        = all->results.device,
                                                   .candidates = all->candidates.device,
                                                   .logits     = all->logits,
                                                   .rules      = all->rules.device,
                                                   .repeated   = all->repeated.device,
                                                   .n_rows     = n,
                                                   .n          = session->config->d_vocab,
                                                   .work       = all->work }),
        "draws"));
    HL_NEED(receive(d, all->results.host, all->results.device, (size_t)n * sizeof(hl_pick_result)));
    if (lists)
        HL_NEED(receive(d, all->candidates.host, all->candidates.device,
                        (size_t)n * HL_PICK_CANDIDATES * sizeof(hl_pick_candidate)));
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "draws");
}

static bool needs_logits(const hl_pick *pick)
{
    return pick->wants_logits || pick->result->is_bad ||
           pick->result->n_candidates > HL_PICK_CANDIDATES;
}

hl_status hl_device_look(hl_session *session, hl_pick *picks, int64_t n)
{
    const hl_device_session *d       = session->device;
    int64_t                  d_vocab = session->config->d_vocab;

    HL_NEED(send_rules(session, picks, n));
    HL_NEED(run_draws(session, n));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = picks[i].sequence * d_vocab;

        picks[i].result = (const hl_pick_result *)d->picks.results.host + i;
        picks[i].candidates =
            (hl_pick_candidate *)d->picks.candidates.host + i * HL_PICK_CANDIDATES;
        if (needs_logits(&picks[i]))
            HL_NEED(receive(d, session->rows.last + at, d->picks.logits + at,
                            (size_t)d_vocab * sizeof(float)));
        else
            picks[i].logits = NULL;
    }
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "draws");
}
