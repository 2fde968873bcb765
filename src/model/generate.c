/* generate.c - one token after another.
 *
 *     prompt  ->  logits  ->  token  ->  fed when the next is asked for  ->  logits ...
 *
 * A token is fed late, so that the last one costs no pass, and a context of N holds
 * N + 1 tokens with the one that nobody has to read. */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "model/pick.h"
#include "model/session.h"

struct hl_generator {
    hl_session         *session;
    hl_generate_options options;
    hl_sampler         *sampler;
    hl_tap              tap;      /* ours, around options.tap */
    int64_t             n_tokens; /* generated since the last prompt, and */
    int64_t             n_since;  /* since something was inserted; as far back as one can go */
    int64_t             waiting;  /* the last token, not fed yet; -1: none */
    bool                has_prompt;
    hl_stop             stop;
    double              entropy_sum; /* over the heads of the last row */
    int64_t             n_heads;
};

const char *hl_stop_name(hl_stop stop)
{
    static const char *const names[] = {
        [HL_STOP_NONE] = "",           [HL_STOP_END] = "end",   [HL_STOP_LENGTH] = "length",
        [HL_STOP_CONTEXT] = "context", [HL_STOP_WORD] = "stop", [HL_STOP_SPIKE] = "spike"
    };

    return stop >= HL_STOP_NONE && stop <= HL_STOP_SPIKE ? names[stop] : "?";
}

/* ------------------------------------------------------------------------ tap */

/* Adds up the entropies of the chunk's last row; the last chunk is the one that stays. */
static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    hl_generator *generator = context;
    const hl_tap *other     = generator->options.tap;

    if (rows->layer == 0) {
        generator->entropy_sum = 0.0;
        generator->n_heads     = 0;
    }
    for (int64_t head = 0; head < rows->n_heads; head++)
        generator->entropy_sum +=
            (double)rows->rows->entropy[head * rows->n_rows + rows->lengths[0] - 1];
    generator->n_heads += rows->n_heads;
    return other != NULL && other->layer != NULL ? other->layer(other->context, rows) : HL_OK;
}

static hl_status watch_final(void *context, const hl_final_rows *rows)
{
    const hl_tap *other = ((const hl_generator *)context)->options.tap;
    return other->final(other->context, rows);
}

static void make_tap(hl_generator *generator)
{
    const hl_tap *other = generator->options.tap;

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
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder (%s): it sees whole texts and writes none",
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
    hl_status     status    = HL_OK;
    hl_generator *generator = NULL;

    *out = NULL;
    HL_TRY(check_session(session));
    HL_TRY(HL_ALLOC_ZEROED(&generator, 1));
    if (options != NULL)
        generator->options = *options;
    if (generator->options.max_tokens < 0)
        HL_TRY(hl_fail(HL_BAD_ARGUMENT, "generate: max_tokens is %lld, wanted 0 or more",
                       (long long)generator->options.max_tokens));
    generator->session = session;
    generator->waiting = -1;
    make_tap(generator);
    HL_TRY(
        hl_sampler_new(&generator->sampler, session->config->d_vocab, &generator->options.sample));
    *out      = generator;
    generator = NULL;

done:
    hl_generator_close(generator);
    return status;
}

void hl_generator_close(hl_generator *generator)
{
    if (generator == NULL)
        return;
    hl_sampler_free(generator->sampler);
    hl_free(generator);
}

/* --------------------------------------------------------------------- tokens */

static hl_status feed(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    hl_feed what = { .tokens     = tokens,
                     .n_tokens   = n_tokens,
                     .gates      = generator->options.gates,
                     .segments   = generator->options.segments,
                     .n_segments = generator->options.n_segments,
                     .tap        = &generator->tap };

    return hl_session_feed(generator->session, &what);
}

static hl_status feed_waiting(hl_generator *generator)
{
    if (generator->waiting < 0)
        return HL_OK;
    hl_status status = feed(generator, &generator->waiting, 1);
    if (status == HL_OK)
        generator->waiting = -1;
    return status;
}

static hl_status check_room(const hl_generator *generator, int64_t n_tokens)
{
    int64_t n_ctx = generator->session->options.n_ctx;
    int64_t room  = n_ctx - generator->session->length[0] - (generator->waiting >= 0 ? 1 : 0);

    if (n_tokens <= room)
        return HL_OK;
    return hl_fail(HL_LIMIT,
                   "the prompt has %lld tokens, but the context of %lld has room for %lld",
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
    for (int64_t i = 0; i < n_tokens; i++)
        HL_NEED(hl_sampler_accept(generator->sampler, tokens[i]));
    generator->has_prompt = true;
    generator->n_since    = 0;
    generator->stop       = HL_STOP_NONE;
    return HL_OK;
}

hl_status hl_generator_prompt(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    hl_status status = hl_generator_insert(generator, tokens, n_tokens);

    if (status == HL_OK)
        generator->n_tokens = 0;
    return status;
}

static int64_t text_length(const hl_generator *generator)
{
    return generator->session->length[0] + (generator->waiting >= 0 ? 1 : 0);
}

hl_status hl_generator_rewind(hl_generator *generator, const int64_t *tokens, int64_t n_tokens)
{
    int64_t n_back = text_length(generator) - n_tokens;

    if (n_back < 0 || n_back > generator->n_since || n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "generate: back by %lld tokens, wanted 0 to %lld",
                       (long long)n_back, (long long)generator->n_since);
    if (n_back == 0)
        return HL_OK;
    /* The last token is fed again, for its logits. */
    HL_NEED(hl_session_rewind(generator->session, 0, n_tokens - 1));
    generator->waiting = tokens[n_tokens - 1];
    generator->n_tokens -= n_back;
    generator->n_since -= n_back;
    generator->stop = HL_STOP_NONE;
    hl_sampler_forget(generator->sampler);
    for (int64_t i = 0; i < n_tokens; i++)
        HL_NEED(hl_sampler_accept(generator->sampler, tokens[i]));
    return HL_OK;
}

static bool is_end(const hl_generator *generator, int64_t token)
{
    const hl_generation       *known   = &generator->session->config->generation;
    const hl_generate_options *options = &generator->options;

    return !options->ignore_end && hl_ends_text(known, options->end_ids, options->n_end_ids, token);
}

static hl_stop find_stop(const hl_generator *generator, int64_t token)
{
    const hl_session *session = generator->session;

    if (is_end(generator, token))
        return HL_STOP_END;
    if (generator->n_tokens == generator->options.max_tokens)
        return HL_STOP_LENGTH;
    if (session->length[0] == session->options.n_ctx)
        return HL_STOP_CONTEXT;
    return HL_STOP_NONE;
}

static hl_generated describe(const hl_generator *generator, const hl_pick *pick)
{
    return (hl_generated){
        .id         = pick->token,
        .logprob    = pick->logprob,
        .entropy    = pick->row.entropy,
        .varentropy = pick->row.varentropy,
        .attention_entropy =
            generator->n_heads > 0 ? generator->entropy_sum / (double)generator->n_heads : 0.0,
        .stop = generator->stop,
    };
}

hl_status hl_generator_next(hl_generated *out, hl_generator *generator)
{
    hl_pick pick = { .sampler = generator->sampler };

    *out = (hl_generated){ .id = -1 };
    if (!generator->has_prompt || generator->stop != HL_STOP_NONE)
        return hl_fail(HL_BAD_ARGUMENT, "generate: %s",
                       generator->has_prompt ? "the text has ended" : "no prompt yet");
    HL_NEED(feed_waiting(generator));
    /* Before the logits, which are NaN as well then: this is where it began. */
    if (!isfinite(generator->entropy_sum))
        return hl_fail(
            HL_BAD_INPUT,
            "%s: attention is not finite: after %lld tokens the entropies of the last row "
            "are NaN (headlight measure and diagnose say in which heads)",
            generator->session->model->path, (long long)generator->session->length[0]);
    HL_NEED(hl_session_look(generator->session, &pick, 1));
    HL_NEED(hl_pick_token(&pick));
    HL_NEED(hl_sampler_accept(generator->sampler, pick.token));
    generator->n_tokens++;
    generator->n_since++;
    generator->waiting = pick.token;
    generator->stop    = find_stop(generator, pick.token);
    *out               = describe(generator, &pick);
    return HL_OK;
}
