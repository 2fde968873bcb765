/* pick.c - draws tokens from the last logits of sequences, on the CPU or with a device's help. */
#include "model/pick.h"

#include "base/status.h"
#include "model/forward.h"
#include "model/sample.h"

hl_status hl_session_look(hl_session *session, hl_pick *picks, int64_t n)
{
    int64_t d_vocab = session->config->d_vocab;

    for (int64_t i = 0; i < n; i++) {
        picks[i].d_vocab = d_vocab;
        picks[i].logits  = session->last + picks[i].sequence * d_vocab;
    }
    if (session->device->ops->is_near || (session->options.wants & HL_WANT_LAST_DRAW) == 0)
        return HL_OK;
    return hl_device_look(session, picks, n);
}

static hl_status draw_on_host(hl_pick *pick)
{
    HL_NEED(hl_sampler_draw(&pick->token, pick->sampler, pick->logits));
    pick->row     = hl_logits_read(pick->logits, pick->d_vocab);
    pick->logprob = (double)pick->logits[pick->token] - pick->row.lse;
    return HL_OK;
}

hl_status hl_pick_token(hl_pick *pick)
{
    const hl_pick_result *result = pick->result;
    float                 logit  = 0.0f;

    if (pick->logits != NULL)
        return draw_on_host(pick);
    hl_sampler_draw_among(&pick->token, &logit, pick->sampler, result, pick->candidates);
    pick->row = (hl_logits_row){
        .top = -1, .lse = result->lse, .entropy = result->entropy, .varentropy = result->varentropy
    };
    pick->logprob = (double)logit - result->lse;
    return HL_OK;
}
