/* sweep_words.c - how often a setting of gates foretells the last word of a text, as LAMBADA asks.
 *
 * A word is right if each of its tokens is the likeliest where it stands, the words before it
 * given.  Each text is run whole under every setting of an order and ratio; equal settings once.
 * What is counted lies in the state, -1 where it is still to come. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "prune/sweep.h"

#define STATE_NAME "words"

static hl_status check_text(const hl_word_text *text, int64_t index)
{
    if (text->first < 1 || text->n_word < 1 || text->first > text->n_tokens - text->n_word)
        return hl_fail(HL_BAD_ARGUMENT,
                       "last word %lld: %lld tokens from %lld on, in a text of %lld: wanted some, "
                       "and one before them",
                       (long long)index, (long long)text->n_word, (long long)text->first,
                       (long long)text->n_tokens);
    return HL_OK;
}

static hl_status longest_text(int64_t *out, const hl_sweep *s)
{
    hl_status status = HL_OK;

    *out = 0;
    for (int64_t i = 0; i < s->options.n_words && status == HL_OK; i++) {
        const hl_word_text *text = &s->options.words[i];
        status                   = check_text(text, i);
        if (text->n_tokens > *out)
            *out = text->n_tokens;
    }
    return status;
}

static bool is_right(const hl_word_text *text, const int64_t *top)
{
    for (int64_t i = text->first; i < text->first + text->n_word; i++) {
        if (top[i] != text->tokens[i])
            return false;
    }
    return true;
}

/* How many words come out right; top has room for the longest text. */
static hl_status count_right(double *out, const hl_sweep *s, const float *gates, int64_t *top)
{
    hl_status             status     = HL_OK;
    hl_perplexity        *perplexity = NULL;
    hl_perplexity_options options    = { .n_ctx     = s->options.n_ctx,
                                         .gates     = gates,
                                         .n_threads = s->options.n_threads };
    hl_nll                unasked;

    *out = 0.0;
    if (s->options.around == HL_AROUND_WINDOW && s->tokenizer != NULL)
        options.around = hl_tokenizer_around(s->tokenizer);
    HL_TRY(hl_perplexity_open(&perplexity, s->model, &options));
    for (int64_t i = 0; i < s->options.n_words; i++) {
        const hl_word_text *text = &s->options.words[i];
        HL_TRY(hl_perplexity_add(
            &unasked, perplexity,
            &(hl_scored_text){ .tokens = text->tokens, .n_tokens = text->n_tokens, .top = top }));
        *out += is_right(text, top);
    }

done:
    hl_perplexity_close(perplexity);
    return status;
}

/* An earlier setting with these gates, or -1. */
static int64_t find_equal(const hl_sweep *s, int64_t setting)
{
    const float *gates   = s->gates + setting * s->n_gates;
    size_t       n_bytes = (size_t)s->n_gates * sizeof *gates;

    for (int64_t i = 0; i < setting; i++) {
        if (memcmp(s->gates + i * s->n_gates, gates, n_bytes) == 0)
            return i;
    }
    return -1;
}

/* A file may say anything: counts that can be. */
static void restore(hl_sweep *s)
{
    int64_t       n    = s->first_single;
    const double *kept = hl_sweep_state_get(s->state, STATE_NAME, n);

    for (int64_t i = 0; i < n; i++) {
        bool good     = kept != NULL && kept[i] >= 0.0 && kept[i] <= (double)s->options.n_words;
        s->n_right[i] = good ? kept[i] : -1.0;
    }
}

static hl_status count_setting(hl_sweep *s, int64_t setting, int64_t *top)
{
    int64_t equal = find_equal(s, setting);

    if (s->n_right[setting] >= 0.0)
        return HL_OK;
    if (equal >= 0) {
        s->n_right[setting] = s->n_right[equal];
        return HL_OK;
    }
    HL_NEED(count_right(&s->n_right[setting], s, s->gates + setting * s->n_gates, top));
    HL_NEED(hl_sweep_state_put(s->state, STATE_NAME, s->n_right, s->first_single));
    return hl_sweep_save(s, false);
}

hl_status hl_sweep_count_words(hl_sweep *s)
{
    hl_status status  = HL_OK;
    int64_t  *top     = NULL;
    int64_t   longest = 0;

    if (s->options.n_words == 0)
        return HL_OK;
    HL_TRY(longest_text(&longest, s));
    HL_TRY(HL_ALLOC(&top, (size_t)longest));
    HL_TRY(HL_ALLOC(&s->n_right, (size_t)s->first_single));
    restore(s);
    for (int64_t i = 0; i < s->first_single; i++) {
        HL_TRY(count_setting(s, i, top));
        if (s->options.progress != NULL)
            HL_TRY(s->options.progress(
                s->options.context,
                &(hl_sweep_progress){ s->stage, (double)(i + 1) / (double)s->first_single,
                                      (i + 1) * s->options.n_words }));
    }

done:
    hl_free(top);
    return status;
}

double hl_sweep_word_share(const hl_sweep *s, int64_t setting)
{
    return s->n_right != NULL ? s->n_right[setting] / (double)s->options.n_words : NAN;
}
