/* perplexity.c - how well a model predicts texts: the sum of -log p of their tokens.
 *
 *     tokens     0 . . . . . . . . . . . 12         n_ctx 6, stride 4
 *     window 0   g s s s s s                        g given, s scored, c context only
 *     window 1           c c s s s s
 *     window 2                   c c s s s
 *
 * With a token B before each window there is room for 5 tokens of text; with stride 5:
 *
 *     window 0 B s s s s s
 *     window 1           B s s s s s
 *
 * Tokens after a window take room but are not fed, since no scored row sees them.
 *
 * A window goes through the model in two feeds: the context without logits, then the rows that
 * predict a scored token.  Its last token predicts nothing and is not fed.  The session computes
 * the losses, so logits are not copied. */
#include "measure/perplexity.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/generate.h"
#include "model/model.h"
#include "stats/exact.h"

enum { DEFAULT_ROWS = 512, MAX_BATCH = 4096 };

typedef struct text_sums {
    hl_ratio_sums texts;
    hl_ratio_sums windows;
    int64_t       n_tokens;
    int64_t       n_bytes;
    int64_t       n_broken;
    int64_t       first_broken; /* valid if there are any */
    bool          bytes_known;
} text_sums;

struct hl_perplexity {
    const hl_model       *model;
    hl_perplexity_options options; /* with all defaults filled in */
    hl_session           *session;
    hl_window_cut         cut;
    int64_t              *tokens;  /* (n_batch, n_ctx) tokens of a feed */
    int64_t              *targets; /* (n_batch, n_ctx) the tokens to predict */
    int64_t              *lengths; /* (n_batch) */
    hl_window            *windows; /* (n_batch) windows of the current feed */
    double               *nll;     /* (n_batch, n_ctx) loss of the token at each place */
    text_sums             total;
};

/* -------------------------------------------------------------------- windows */

hl_status hl_window_cut_make(hl_window_cut *out, int64_t n_ctx, int64_t stride,
                             const hl_around_tokens *around, int64_t d_vocab, const char *who)
{
    size_t n_around = around->n_before + around->n_after;

    *out = (hl_window_cut){ n_ctx - (int64_t)n_around, stride, *around };
    if (out->n_text < 1)
        return hl_fail(HL_BAD_ARGUMENT,
                       "%s: windows of %lld tokens leave no room for text beside the %zu special "
                       "tokens; use --context %zu or more",
                       who, (long long)n_ctx, n_around, n_around + 1);
    if (out->stride > out->n_text)
        out->stride = out->n_text;
    for (size_t i = 0; i < n_around; i++) {
        int64_t id = i < around->n_before ? around->before[i] : around->after[i - around->n_before];
        if (id < 0 || id >= d_vocab)
            return hl_fail(
                HL_BAD_ARGUMENT,
                "%s: special token %lld of each window is not an id of the model, 0 to %lld", who,
                (long long)id, (long long)d_vocab - 1);
    }
    return HL_OK;
}

/* Returns how many first tokens of a text are not scored: none if a token precedes them. */
static int64_t n_given(const hl_window_cut *cut)
{
    return cut->around.n_before > 0 ? 0 : 1;
}

int64_t hl_window_count(const hl_window_cut *cut, int64_t n_tokens)
{
    if (n_tokens <= n_given(cut))
        return 0;
    return n_tokens <= cut->n_text ? 1
                                   : 1 + (n_tokens - cut->n_text + cut->stride - 1) / cut->stride;
}

hl_window hl_window_at(const hl_window_cut *cut, int64_t n_tokens, int64_t index)
{
    hl_window window = { .begin = index * cut->stride };
    int64_t   before = index > 0 ? window.begin - cut->stride + cut->n_text : 0; /* end of the
                                                                                  * previous
                                                                                  * window */

    window.end   = window.begin + cut->n_text < n_tokens ? window.begin + cut->n_text : n_tokens;
    window.first = before > window.begin ? before : window.begin + n_given(cut);
    return window;
}

int64_t hl_window_token(const hl_window_cut *cut, const hl_window *window, const int64_t *tokens,
                        int64_t at)
{
    int64_t n_before = (int64_t)cut->around.n_before;

    return at < n_before ? cut->around.before[at] : tokens[window->begin + at - n_before];
}

int64_t hl_window_context(const hl_window_cut *cut, const hl_window *window)
{
    return window->first - window->begin + (int64_t)cut->around.n_before - 1;
}

/* -------------------------------------------------------------- open and close */

static hl_status check_model(const hl_model *model)
{
    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "perplexity: model is NULL");
    if (model->config->is_encoder)
        return hl_fail(
            HL_UNSUPPORTED,
            "%s is an encoder (%s), which sees the tokens that follow, so it has no perplexity",
            model->path, model->config->family);
    return HL_OK;
}

static hl_status complete_options(hl_perplexity_options *options, const hl_model *model)
{
    options->n_ctx  = hl_config_ctx(model->config, options->n_ctx);
    options->stride = options->stride != 0 ? options->stride : options->n_ctx;
    if (options->n_ctx < 2)
        return hl_fail(HL_BAD_ARGUMENT, "perplexity: windows of %lld tokens, wanted 2 or more",
                       (long long)options->n_ctx);
    if (options->stride < 1 || options->stride > options->n_ctx)
        return hl_fail(HL_BAD_ARGUMENT, "perplexity: a stride of %lld, wanted 1 to %lld",
                       (long long)options->stride, (long long)options->n_ctx);
    if (options->n_batch == 0)
        options->n_batch = options->n_ctx < DEFAULT_ROWS ? DEFAULT_ROWS / options->n_ctx : 1;
    if (options->n_batch < 1 || options->n_batch > MAX_BATCH)
        return hl_fail(HL_BAD_ARGUMENT, "perplexity: batches of %lld windows, wanted 1 to %d",
                       (long long)options->n_batch, MAX_BATCH);
    return HL_OK;
}

static hl_status open_session(hl_perplexity *perplexity)
{
    hl_session_options options = {
        .n_ctx     = perplexity->options.n_ctx,
        .n_batch   = perplexity->options.n_batch,
        .wants     = HL_WANT_LOSSES,
        .n_threads = perplexity->options.n_threads,
        .repack    = true,
    };
    return hl_session_open(&perplexity->session, perplexity->model, &options);
}

hl_status hl_perplexity_open(hl_perplexity **out, const hl_model *model,
                             const hl_perplexity_options *options)
{
    HL_CLOSED(hl_perplexity_close) hl_perplexity *perplexity = NULL;

    *out = NULL;
    HL_NEED(check_model(model));
    HL_NEED(HL_ALLOC_ZEROED(&perplexity, 1));
    perplexity->model = model;
    if (options != NULL)
        perplexity->options = *options;
    HL_NEED(complete_options(&perplexity->options, model));
    HL_NEED(hl_window_cut_make(&perplexity->cut, perplexity->options.n_ctx,
                               perplexity->options.stride, &perplexity->options.around,
                               model->config->d_vocab, "perplexity"));
    HL_NEED(open_session(perplexity)); /* fails if the context is too long */

    size_t n_batch = (size_t)perplexity->options.n_batch;
    size_t n_rows  = n_batch * (size_t)perplexity->options.n_ctx;
    HL_NEED(HL_ALLOC_ZEROED(&perplexity->tokens, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&perplexity->targets, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&perplexity->nll, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&perplexity->lengths, n_batch));
    HL_NEED(HL_ALLOC_ZEROED(&perplexity->windows, n_batch));
    perplexity->total.bytes_known = true;
    *out                          = hl_taken(&perplexity);
    return HL_OK;
}

void hl_perplexity_close(hl_perplexity *perplexity)
{
    if (perplexity == NULL)
        return;
    hl_session_close(perplexity->session);
    hl_free(perplexity->tokens);
    hl_free(perplexity->targets);
    hl_free(perplexity->nll);
    hl_free(perplexity->lengths);
    hl_free(perplexity->windows);
    hl_free(perplexity);
}

int64_t hl_perplexity_n_ctx(const hl_perplexity *perplexity, int64_t *stride)
{
    if (stride != NULL)
        *stride = perplexity->options.stride;
    return perplexity->options.n_ctx;
}

/* -------------------------------------------------------------------- scoring */

/* The context of the tap's callback. */
typedef struct scoring {
    hl_perplexity        *perplexity;
    const hl_scored_text *text;
} scoring;

/* Row i is at position start + i and predicts the next token. */
static hl_status score_rows(void *context, const hl_final_rows *rows)
{
    const scoring   *s        = context;
    const hl_window *window   = &s->perplexity->windows[rows->sequence];
    int64_t          n_before = (int64_t)s->perplexity->cut.around.n_before;
    double          *nll      = s->perplexity->nll + rows->sequence * s->perplexity->options.n_ctx;

    for (int64_t row = 0; row < rows->n_rows; row++) {
        int64_t place = rows->start + row + 1 - n_before; /* place in the window's text */

        nll[place] = rows->losses[row];
        if (s->text->top != NULL)
            s->text->top[window->begin + place] = rows->tops[row];
    }
    return HL_OK;
}

/* Feeds every window's context, or the rows that predict what is scored. */
static hl_status feed_part(scoring *s, int64_t n_windows, bool is_scored)
{
    hl_perplexity *p       = s->perplexity;
    int64_t        longest = 0;
    hl_tap         tap     = { .context = s, .final = score_rows, .wants = HL_WANT_LOSSES };

    for (int64_t i = 0; i < p->options.n_batch; i++) {
        const hl_window *window = &p->windows[i];

        p->lengths[i] = 0;
        if (i < n_windows)
            p->lengths[i] =
                is_scored ? window->end - window->first : hl_window_context(&p->cut, window);
        longest = p->lengths[i] > longest ? p->lengths[i] : longest;
    }
    for (int64_t i = 0; i < n_windows; i++) {
        const hl_window *window = &p->windows[i];
        int64_t          from   = is_scored ? hl_window_context(&p->cut, window) : 0;
        for (int64_t j = from; j < from + p->lengths[i]; j++) {
            int64_t to = i * longest + j - from;

            p->tokens[to]  = hl_window_token(&p->cut, window, s->text->tokens, j);
            p->targets[to] = hl_window_token(&p->cut, window, s->text->tokens, j + 1);
        }
    }
    return hl_session_feed(p->session, &(hl_feed){ .tokens   = p->tokens,
                                                   .n_tokens = longest,
                                                   .lengths  = p->lengths,
                                                   .targets  = p->targets,
                                                   .gates    = p->options.gates,
                                                   .tap      = is_scored ? &tap : NULL });
}

static hl_status run_windows(scoring *s, int64_t n_windows)
{
    for (int64_t i = 0; i < s->perplexity->options.n_batch; i++)
        HL_NEED(hl_session_rewind(s->perplexity->session, i, 0));
    HL_NEED(feed_part(s, n_windows, false));
    return feed_part(s, n_windows, true);
}

/* --------------------------------------------------------------------- adding */

void hl_ratio_add(hl_ratio_sums *sums, double sum, double count)
{
    hl_ratio_merge(sums, &(hl_ratio_sums){ 1,
                                           sum,
                                           count,
                                           sum * sum,
                                           sum * count,
                                           count * count,
                                           { sum * sum * sum, sum * sum * count,
                                             sum * count * count, count * count * count },
                                           { { sum, count }, { sum, count } } });
}

void hl_ratio_merge(hl_ratio_sums *sums, const hl_ratio_sums *more)
{
    sums->n += more->n;
    sums->sum += more->sum;
    sums->count += more->count;
    sums->squares += more->squares;
    sums->cross += more->cross;
    sums->counts2 += more->counts2;
    for (int i = 0; i < 4; i++)
        sums->cubes[i] += more->cubes[i];
    if (more->most[0][0] > sums->most[0][0])
        memcpy(sums->most[0], more->most[0], sizeof sums->most[0]);
    if (more->most[1][0] * sums->most[1][1] > sums->most[1][0] * more->most[1][1] ||
        sums->most[1][1] == 0.0)
        memcpy(sums->most[1], more->most[1], sizeof sums->most[1]);
}

hl_interval hl_ratio_interval(const hl_ratio_sums *windows, const hl_ratio_sums *texts,
                              hl_error_scale scale)
{
    bool                 by_text = texts->n >= HL_MIN_UNITS;
    const hl_ratio_sums *sums    = by_text ? texts : windows;
    hl_units             units   = by_text ? HL_UNITS_DOCUMENTS : HL_UNITS_WINDOWS;
    double               n = (double)sums->n, mean = sums->sum / sums->count;
    double residual = sums->squares - 2.0 * mean * sums->cross + mean * mean * sums->counts2;

    if (sums->n < HL_MIN_UNITS)
        return hl_no_interval(sums->n, units);
    hl_error error = { n / (n - 1.0) * fmax(residual, 0.0) / (sums->count * sums->count),
                       fmax(sums->count * sums->count / sums->counts2 - 1.0, 1.0),
                       hl_mean_skewness(residual,
                                        sums->cubes[0] - 3.0 * mean * sums->cubes[1] +
                                            3.0 * mean * mean * sums->cubes[2] -
                                            mean * mean * mean * sums->cubes[3],
                                        n),
                       mean + n *
                                  fmax(sums->most[0][0] - mean * sums->most[0][1],
                                       sums->most[1][0] - mean * sums->most[1][1]) /
                                  sums->count };
    return hl_interval_of(mean, error, scale, sums->n, units);
}

/* Adds the losses of a window, token by token. */
static void add_window(text_sums *sums, const scoring *s, int64_t index)
{
    const hl_window *window = &s->perplexity->windows[index];
    const double    *nll    = s->perplexity->nll + index * s->perplexity->options.n_ctx;
    double           sum    = 0.0;

    for (int64_t i = window->first; i < window->end; i++) {
        double value = nll[i - window->begin];

        if (hl_fixed_fits(value))
            sum += value;
        else if (sums->n_broken++ == 0)
            sums->first_broken = i;
        if (s->text->nll != NULL)
            s->text->nll[i] = value;
        if (s->text->n_bytes != NULL)
            sums->n_bytes += s->text->n_bytes[i];
    }
    if (window->first < window->end) /* excludes a last window of one token */
        hl_ratio_add(&sums->windows, sum, (double)(window->end - window->first));
}

static void add_text(text_sums *total, const text_sums *text)
{
    const hl_ratio_sums *windows = &text->windows;

    hl_ratio_merge(&total->windows, windows);
    if (windows->n > 0)
        hl_ratio_add(&total->texts, windows->sum, windows->count);
    total->n_tokens += text->n_tokens;
    total->n_bytes += text->n_bytes;
    total->n_broken += text->n_broken;
    total->bytes_known = total->bytes_known && text->bytes_known;
}

static hl_nll summarize(const text_sums *sums)
{
    hl_nll nll = { .sum       = sums->windows.sum,
                   .n_scored  = (int64_t)sums->windows.count,
                   .n_tokens  = sums->n_tokens,
                   .n_bytes   = sums->bytes_known ? sums->n_bytes : 0,
                   .n_windows = sums->windows.n,
                   .n_texts   = sums->texts.n,
                   .n_broken  = sums->n_broken,
                   .first_broken =
                       sums->n_broken > 0 && sums->texts.n <= 1 ? sums->first_broken : -1 };

    if (nll.n_broken > 0)
        nll.sum = NAN;
    nll.mean          = nll.n_scored > 0 ? nll.sum / (double)nll.n_scored : NAN;
    nll.perplexity    = exp(nll.mean);
    nll.bits_per_byte = nll.n_bytes > 0 ? nll.sum / ((double)nll.n_bytes * log(2.0)) : NAN;
    nll.interval      = hl_ratio_interval(&sums->windows, &sums->texts, HL_SCALE_PLAIN);
    if (nll.n_broken > 0)
        nll.interval = hl_no_interval(nll.interval.n, nll.interval.units);
    return nll;
}

/* ---------------------------------------------------------------------- texts */

/* Checks the last token of each window, which the session does not see. */
static hl_status check_text(const hl_perplexity *perplexity, const hl_scored_text *text)
{
    int64_t d_vocab = perplexity->model->config->d_vocab;

    if (text == NULL || text->n_tokens < 0 || (text->tokens == NULL && text->n_tokens > 0))
        return hl_fail(HL_BAD_ARGUMENT, "perplexity: no tokens");
    for (int64_t i = 0; i < text->n_tokens; i++) {
        if (text->tokens[i] < 0 || text->tokens[i] >= d_vocab)
            return hl_fail(HL_BAD_ARGUMENT,
                           "token %lld of the text is %lld, the model knows 0 to %lld",
                           (long long)i, (long long)text->tokens[i], (long long)d_vocab - 1);
        if (text->nll != NULL)
            text->nll[i] = NAN;
        if (text->top != NULL)
            text->top[i] = -1;
    }
    return HL_OK;
}

/* Reports progress after n_windows, of which `last` is the last. */
static hl_status report_progress(const hl_perplexity *perplexity, const hl_window *last,
                                 int64_t n_windows, int64_t n_tokens)
{
    hl_progress progress = { .share     = (double)last->end / (double)n_tokens,
                             .n_tokens  = last->end,
                             .n_windows = n_windows };

    if (perplexity->options.progress == NULL)
        return HL_OK;
    return perplexity->options.progress(perplexity->options.context, &progress);
}

hl_status hl_perplexity_add(hl_nll *out, hl_perplexity *perplexity, const hl_scored_text *text)
{
    const hl_perplexity_options *options = &perplexity->options;
    scoring                      s       = { perplexity, text };
    text_sums                    sums    = { 0 };

    *out = summarize(&sums);
    HL_NEED(check_text(perplexity, text));
    sums.n_tokens    = text->n_tokens;
    sums.bytes_known = text->n_bytes != NULL;
    int64_t count    = hl_window_count(&perplexity->cut, text->n_tokens);

    for (int64_t done = 0; done < count; done += options->n_batch) {
        int64_t n = count - done < options->n_batch ? count - done : options->n_batch;

        for (int64_t i = 0; i < n; i++)
            perplexity->windows[i] = hl_window_at(&perplexity->cut, text->n_tokens, done + i);
        HL_NEED(run_windows(&s, n));
        for (int64_t i = 0; i < n; i++)
            add_window(&sums, &s, i);
        HL_NEED(report_progress(perplexity, &perplexity->windows[n - 1], done + n, text->n_tokens));
    }
    add_text(&perplexity->total, &sums);
    sums.texts.n = sums.windows.n > 0 ? 1 : 0;
    *out         = summarize(&sums);
    return HL_OK;
}

hl_nll hl_perplexity_total(const hl_perplexity *perplexity)
{
    return summarize(&perplexity->total);
}
