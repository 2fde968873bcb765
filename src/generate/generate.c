/* generate.c - one token after another.
 *
 *     prompt  ->  logits  ->  token  ->  fed when the next is asked for  ->  logits ...
 *
 * A token is fed only when the next one is asked for.  So the last token costs no pass, and a
 * context of N holds N + 1 tokens, as the last need not be fed. */
#include "generate/generate.h"

#include <math.h>

#include "base/status.h"
#include "model/model.h"
#include "model/sample.h"
#include "model/session.h"

struct hl_generator {
    hl_session  *session;
    hl_draft     draft;
    hl_tap       tap;     /* this generator's tap, which calls the tap of the options */
    hl_generated next;    /* the token that the last row predicts; incomplete until it is drawn */
    int64_t      n_since; /* tokens drawn since the last insertion: the limit for going back */
    int64_t      waiting; /* the last token if it is not fed yet; else -1 */
    bool         has_prompt;
};

const char *hl_stop_name(hl_stop stop)
{
    static const char *const names[] = {
        [HL_STOP_NONE] = "",           [HL_STOP_END] = "end",   [HL_STOP_LENGTH] = "length",
        [HL_STOP_CONTEXT] = "context", [HL_STOP_WORD] = "stop", [HL_STOP_SPIKE] = "spike"
    };

    return stop >= HL_STOP_NONE && stop <= HL_STOP_SPIKE ? names[stop] : "?";
}

/* --------------------------------------------------------------------- drafts */

hl_status hl_draft_open(hl_draft *out, const hl_session *session,
                        const hl_generate_options *options)
{
    *out = (hl_draft){ .config  = session->config,
                       .options = *options,
                       .n_ctx   = session->options.n_ctx };
    return hl_sampler_new(&out->sampler, session->config->d_vocab, &options->sample);
}

hl_status hl_draft_accept(hl_draft *draft, const int64_t *tokens, int64_t n_tokens)
{
    for (int64_t i = 0; i < n_tokens; i++)
        HL_NEED(hl_sampler_accept(draft->sampler, tokens[i]));
    return HL_OK;
}

void hl_draft_watch(hl_generated *token, const hl_layer_rows *rows, int64_t sequence, int64_t row)
{
    for (int64_t head = 0; head < rows->n_heads; head++)
        token->attention_entropy +=
            (double)rows->rows->entropy[(sequence * rows->n_heads + head) * rows->n_rows + row];
}

void hl_draft_describe(hl_generated *token, const hl_config *config, const hl_pick *pick)
{
    int64_t n_heads = 0;

    for (int64_t layer = 0; layer < config->n_layers; layer++)
        n_heads += config->layers[layer].n_heads;
    token->id         = pick->token;
    token->logprob    = pick->logprob;
    token->entropy    = pick->row.entropy;
    token->varentropy = pick->row.varentropy;
    if (n_heads > 0)
        token->attention_entropy /= (double)n_heads;
}

static bool is_among(const int64_t *ids, int n_ids, int64_t token)
{
    for (int i = 0; i < n_ids; i++) {
        if (ids[i] == token)
            return true;
    }
    return false;
}

static hl_stop find_stop(const hl_draft *draft, int64_t token, int64_t n_fed)
{
    const hl_generate_options *options = &draft->options;
    const hl_generation       *known   = &draft->config->generation;

    if (!options->ignore_end && (is_among(known->eos_ids, known->n_eos_ids, token) ||
                                 is_among(options->end_ids, options->n_end_ids, token)))
        return HL_STOP_END;
    if (draft->n_drawn == options->max_tokens)
        return HL_STOP_LENGTH;
    return n_fed == draft->n_ctx ? HL_STOP_CONTEXT : HL_STOP_NONE;
}

hl_status hl_draft_draw(hl_generated *token, hl_draft *draft, hl_pick *pick, int64_t n_fed)
{
    HL_NEED(hl_pick_token(pick));
    HL_NEED(hl_sampler_accept(draft->sampler, pick->token));
    draft->n_drawn++;
    draft->stop = find_stop(draft, pick->token, n_fed);
    hl_draft_describe(token, draft->config, pick);
    token->stop = draft->stop;
    return HL_OK;
}

/* ------------------------------------------------------------------------ tap */

/* Observes the last row of each chunk; the values of the last chunk remain. */
static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    hl_generator *generator = context;
    const hl_tap *other     = generator->draft.options.tap;

    if (rows->layer == 0)
        generator->next = (hl_generated){ 0 };
    hl_draft_watch(&generator->next, rows, 0, rows->lengths[0] - 1);
    return other != NULL && other->layer != NULL ? other->layer(other->context, rows) : HL_OK;
}

static hl_status watch_final(void *context, const hl_final_rows *rows)
{
    const hl_tap *other = ((const hl_generator *)context)->draft.options.tap;
    return other->final(other->context, rows);
}

static void make_tap(hl_generator *generator)
{
    const hl_tap *other = generator->draft.options.tap;

    if (other != NULL)
        generator->tap = *other;
    generator->tap.context = generator;
    generator->tap.layer   = watch_layer;
    if (other != NULL && other->final != NULL)
        generator->tap.final = watch_final;
}

/* -------------------------------------------------------------- open and close */

static hl_status check_session(const hl_session *session)
{
    if (session == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "generate: session is NULL");
    if (session->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder (%s): it cannot generate text",
                       session->model->path, session->config->family);
    if ((session->options.wants & (HL_WANT_LAST_DRAW | HL_WANT_LAST_LOGITS)) == 0)
        return hl_fail(HL_BAD_ARGUMENT, "generate: the session lacks HL_WANT_LAST_DRAW");
    if (session->options.n_batch != 1)
        return hl_fail(HL_BAD_ARGUMENT, "generate: the session has %lld sequences, wanted 1",
                       (long long)session->options.n_batch);
    return HL_OK;
}

hl_status hl_generator_open(hl_generator **out, hl_session *session,
                            const hl_generate_options *options)
{
    HL_CLOSED(hl_generator_close) hl_generator *generator = NULL;
    hl_generate_options                         defaults  = { 0 };

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    HL_NEED(check_session(session));
    if (options->max_tokens < 0)
        return hl_fail(HL_BAD_ARGUMENT, "generate: max_tokens is %lld, wanted 0 or more",
                       (long long)options->max_tokens);
    HL_NEED(HL_ALLOC_ZEROED(&generator, 1));
    generator->session = session;
    generator->waiting = -1;
    HL_NEED(hl_draft_open(&generator->draft, session, options));
    make_tap(generator);
    *out = hl_taken(&generator);
    return HL_OK;
}

void hl_generator_close(hl_generator *generator)
{
    if (generator == NULL)
        return;
    hl_sampler_free(generator->draft.sampler);
    hl_free(generator);
}

/* --------------------------------------------------------------------- tokens */

static hl_status feed(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    const hl_generate_options *options = &generator->draft.options;
    hl_feed                    what    = { .tokens     = tokens,
                                           .n_tokens   = n_tokens,
                                           .gates      = options->gates,
                                           .segments   = options->segments,
                                           .n_segments = options->n_segments,
                                           .tap        = &generator->tap };

    return hl_session_feed(generator->session, &what);
}

static hl_status feed_waiting(hl_generator *generator)
{
    if (generator->waiting < 0)
        return HL_OK;
    HL_NEED(feed(generator, &generator->waiting, 1));
    generator->waiting = -1;
    return HL_OK;
}

/* Number of tokens of the text, including the one not fed yet. */
static int64_t text_length(const hl_generator *generator)
{
    return generator->session->length[0] + (generator->waiting >= 0 ? 1 : 0);
}

static hl_status check_room(const hl_generator *generator, int64_t n_tokens)
{
    int64_t n_ctx = generator->draft.n_ctx;
    int64_t room  = n_ctx - text_length(generator);

    if (n_tokens <= room)
        return HL_OK;
    return hl_fail(HL_LIMIT,
                   "the prompt has %lld tokens, but a context of %lld has room for only %lld",
                   (long long)n_tokens, (long long)n_ctx, (long long)(room > 0 ? room : 0));
}

hl_status hl_generator_insert(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    if (n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "generate: a prompt of %lld tokens, wanted 1 or more",
                       (long long)n_tokens);
    HL_NEED(check_room(generator, n_tokens));
    HL_NEED(feed_waiting(generator));
    HL_NEED(feed(generator, tokens, n_tokens));
    HL_NEED(hl_draft_accept(&generator->draft, tokens, n_tokens));
    generator->has_prompt = true;
    generator->n_since    = 0;
    generator->draft.stop = HL_STOP_NONE;
    return HL_OK;
}

hl_status hl_generator_prompt(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    HL_NEED(hl_generator_insert(generator, tokens, n_tokens));
    generator->draft.n_drawn = 0;
    return HL_OK;
}

hl_status hl_generator_rewind(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    int64_t n_back = text_length(generator) - n_tokens;

    if (n_back < 0 || n_back > generator->n_since || n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "generate: back by %lld tokens, wanted 0 to %lld",
                       (long long)n_back, (long long)generator->n_since);
    if (n_back == 0)
        return HL_OK;
    /* The last token is fed again to get its logits. */
    HL_NEED(hl_session_rewind(generator->session, 0, n_tokens - 1));
    generator->waiting = tokens[n_tokens - 1];
    generator->n_since -= n_back;
    generator->draft.n_drawn -= n_back;
    generator->draft.stop = HL_STOP_NONE;
    hl_sampler_forget(generator->draft.sampler);
    return hl_draft_accept(&generator->draft, tokens, n_tokens);
}

hl_status hl_generator_next(hl_generated *out, hl_generator *generator)
{
    hl_pick pick = { .sampler = generator->draft.sampler };

    *out = (hl_generated){ .id = -1 };
    if (!generator->has_prompt || generator->draft.stop != HL_STOP_NONE)
        return hl_fail(HL_BAD_ARGUMENT, "generate: %s",
                       generator->has_prompt ? "the text has ended" : "no prompt yet");
    HL_NEED(feed_waiting(generator));
    /* Checked before the logits, which are then NaN as well: the NaN arose here. */
    if (!isfinite(generator->next.attention_entropy))
        return hl_fail(HL_BAD_INPUT,
                       "%s: after %lld tokens attention is NaN; headlight measure and headlight "
                       "diagnose say in which heads",
                       generator->session->model->path, (long long)generator->session->length[0]);
    HL_NEED(hl_session_look(generator->session, &pick, 1));
    HL_NEED(
        hl_draft_draw(&generator->next, &generator->draft, &pick, generator->session->length[0]));
    generator->n_since++;
    generator->waiting = pick.token;
    *out               = generator->next;
    return HL_OK;
}
