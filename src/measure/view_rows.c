/* view_rows.c - a model is run over a prompt, and whole rows of attention are reported.
 *
 * A session holds the rows of all heads of a layer while it reports them.  That is kept to
 * 16 MiB by asking for some positions at a time. */
#include "base/memory.h"
#include "base/status.h"
#include "measure/view.h"

/* Floats of rows that a session may hold. */
enum { ROWS_AT_ONCE = 4 << 20 };

int64_t hl_view_at_once(const hl_model *model, int64_t n_tokens)
{
    int64_t n_rows = ROWS_AT_ONCE / (hl_model_get_info(model)->n_heads * n_tokens);

    return n_rows < 1 ? 1 : n_rows > n_tokens ? n_tokens : n_rows;
}

/* The piece that begins with position `first`. */
static hl_status run_piece(hl_session *session, const hl_prompt *prompt, const hl_tap *tap,
                           int64_t first, const float *gates, bool is_encoder)
{
    hl_feed feed = { .tokens   = prompt->tokens + first,
                     .n_tokens = tap->n_pattern_positions,
                     .gates    = gates,
                     .tap      = tap };

    if (is_encoder) {
        HL_NEED(hl_session_rewind(session, 0, 0));
        feed.tokens   = prompt->tokens;
        feed.n_tokens = prompt->n_tokens;
    }
    return hl_session_feed(session, &feed);
}

static hl_status run_pieces(hl_session *session, const hl_model *model, const hl_prompt *prompt,
                            const hl_view_rows *rows, int64_t at_once)
{
    hl_status status = HL_OK;
    int64_t  *places = NULL; /* 0, 1, 2 ... */
    hl_tap    tap    = { .context       = rows->context,
                         .layer         = rows->layer,
                         .wants         = HL_WANT_PATTERN,
                         .pattern_heads = rows->heads };

    HL_TRY(HL_ALLOC(&places, (size_t)prompt->n_tokens));
    for (int64_t i = 0; i < prompt->n_tokens; i++)
        places[i] = i;
    for (int64_t first = 0; first < prompt->n_tokens; first += at_once) {
        int64_t left = prompt->n_tokens - first;

        tap.pattern_positions   = places + first;
        tap.n_pattern_positions = left < at_once ? left : at_once;
        HL_TRY(run_piece(session, prompt, &tap, first, rows->gates,
                         hl_model_get_info(model)->is_encoder));
        if (rows->piece != NULL)
            HL_TRY(rows->piece(rows->context, first, tap.n_pattern_positions));
    }

done:
    hl_free(places);
    return status;
}

hl_status hl_view_run(const hl_model *model, const hl_prompt *prompt, const hl_view_rows *rows)
{
    hl_status   status  = HL_OK;
    hl_session *session = NULL;
    int64_t at_once = rows->at_once > 0 ? rows->at_once : hl_view_at_once(model, prompt->n_tokens);

    HL_TRY(hl_session_open(&session, model,
                           &(hl_session_options){ .n_ctx      = prompt->n_tokens,
                                                  .n_patterns = at_once,
                                                  .wants      = HL_WANT_PATTERN,
                                                  .beyond_ctx = rows->beyond_ctx,
                                                  .n_threads  = rows->n_threads }));
    HL_TRY(run_pieces(session, model, prompt, rows, at_once));

done:
    hl_session_close(session);
    return status;
}
