/* eval_print.c - a table, or one JSON object.
 *
 * The range is mean ± 1.96 standard errors.  Perplexity and bits are functions of the
 * mean, so their ranges are the images of its ends. */
#include "eval_print.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "printable.h"
#include "terminal.h"
#include "values.h"

#define HALF_WIDTH 1.96 /* standard errors: 95% of a normal distribution */

/* 1,234,567 in one of four static buffers. */
static const char *grouped(int64_t number)
{
    static char buffers[4][32];
    static int  next;
    char        digits[24];
    char       *out    = buffers[next++ % 4];
    int         length = snprintf(digits, sizeof digits, "%lld", (long long)number);
    int         used   = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

/* ------------------------------------------------------------------------ text */

/* The value and, where there is one, its range; `scale` makes bits of nats. */
static void print_line(const char *name, double value, double low, double high)
{
    printf("  %-11s %10.4f", name, value);
    if (!isnan(low))
        printf("   %.4f to %.4f", low, high);
    printf("\n");
}

static void print_total(const hl_nll *nll)
{
    double half = HALF_WIDTH * nll->standard_error;
    double bits = nll->bits_per_byte / nll->mean;

    if (nll->n_scored == 0) {
        printf("  nothing to score: a text needs two tokens\n");
        return;
    }
    if (nll->n_broken > 0) {
        printf("  not finite: %s of the losses\n", grouped(nll->n_broken));
        return;
    }
    print_line("nats/token", nll->mean, nll->mean - half, nll->mean + half);
    print_line("perplexity", nll->perplexity, exp(nll->mean - half), exp(nll->mean + half));
    if (!isnan(bits))
        print_line("bits/byte", nll->bits_per_byte, bits * (nll->mean - half),
                   bits * (nll->mean + half));
}

/* The score interval of Wilson: stays within 0 and 1 also for few words. */
static void accuracy_range(double *low, double *high, const hl_eval_last_word *words)
{
    double n      = (double)words->n_words;
    double share  = (double)words->n_right / n;
    double z2     = HALF_WIDTH * HALF_WIDTH;
    double centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    double half =
        HALF_WIDTH / (1.0 + z2 / n) * sqrt(share * (1.0 - share) / n + z2 / (4.0 * n * n));

    *low  = centre - half;
    *high = centre + half;
}

static void print_last_word(const hl_eval_last_word *words)
{
    double low;
    double high;

    if (words->n_words == 0) {
        printf("\n  no document ends in a word that can be scored\n");
        return;
    }
    accuracy_range(&low, &high, words);
    printf("\n");
    print_line("last word", (double)words->n_right / (double)words->n_words, low, high);
    printf("  %-11s %10.4f   of the last word, over %s documents\n", "perplexity",
           exp(words->nll / (double)words->n_words), grouped(words->n_words));
}

static void print_agreement(const hl_agreement_total *total, const char *reference)
{
    double half = HALF_WIDTH * total->kl_error;

    printf("\n  against %s, %s predictions:\n", hl_shown(reference), grouped(total->n_tokens));
    printf("  %-11s %10.6f", "KL, nats", total->kl);
    if (!isnan(half))
        printf("   %.6f to %.6f", total->kl - half, total->kl + half);
    printf("\n");
    print_line("same top-1", total->top1, NAN, NAN);
}

static void print_speed(const hl_eval_speed *s)
{
    printf("\n  %-11s %10.1f tokens/s, %s tokens at once\n", "prefill",
           (double)s->speed.n_prefill / s->speed.prefill_seconds, grouped(s->speed.n_prefill));
    printf("  %-11s %10.1f tokens/s, %s tokens one by one\n", "decode",
           (double)s->speed.n_decode / s->speed.decode_seconds, grouped(s->speed.n_decode));
    printf("  %-11s %10s bytes, the most that this process held\n", "memory",
           grouped((int64_t)s->peak_bytes));
    printf("  %-11s %10s bytes\n", "files", grouped((int64_t)s->file_bytes));
    printf("  %-11s %10s bytes a token, as f32\n", "K/V cache", grouped((int64_t)s->kv_bytes));
}

static void print_range_note(const hl_colours *colours, const hl_nll *nll)
{
    if (isnan(nll->standard_error))
        return;
    printf("\n%s  Ranges of 95%%, from the spread over %s %s.%s\n", colours->dim,
           grouped(nll->over_texts ? nll->n_texts : nll->n_windows),
           nll->over_texts ? "texts" : "windows", colours->plain);
}

/* The hardest first: the mean decides, and what has none comes last. */
static int compare_texts(const void *left, const void *right)
{
    const hl_nll *a = &((const hl_eval_text *)left)->nll;
    const hl_nll *b = &((const hl_eval_text *)right)->nll;

    if (isnan(a->mean) || isnan(b->mean))
        return isnan(a->mean) - isnan(b->mean);
    return a->mean > b->mean ? -1 : a->mean < b->mean;
}

static void print_texts(const hl_colours *colours, const hl_eval_report *report)
{
    printf("\n%s  %11s %11s %11s %10s  %s%s\n", colours->dim, "scored", "nats/token", "perplexity",
           "bits/byte", "text", colours->plain);
    for (int i = 0; i < report->n_texts; i++) {
        const hl_nll *nll = &report->texts[i].nll;

        if (nll->n_scored == 0 || nll->n_broken > 0)
            printf("  %11s %11s %11s %10s  %s\n", grouped(nll->n_scored), "-", "-", "-",
                   hl_shown(report->texts[i].name));
        else
            printf("  %11s %11.4f %11.2f %10.4f  %s\n", grouped(nll->n_scored), nll->mean,
                   nll->perplexity, nll->bits_per_byte, hl_shown(report->texts[i].name));
    }
}

static void sort_texts(const hl_eval_report *report)
{
    if (report->per_document)
        qsort(report->texts, (size_t)report->n_texts, sizeof *report->texts, compare_texts);
}

void hl_eval_print(const hl_eval_report *report)
{
    hl_colours    colours = hl_terminal_colours(stdout);
    const hl_nll *total   = &report->total;

    sort_texts(report);

    printf("%s%s%s  %s text%s, %s tokens, %s scored; windows of %s", colours.bold,
           hl_shown(report->model), colours.plain, grouped(report->n_texts),
           report->n_texts == 1 ? "" : "s", grouped(total->n_tokens), grouped(total->n_scored),
           grouped(report->n_ctx));
    if (report->stride != report->n_ctx)
        printf(", stride %s", grouped(report->stride));
    if (report->special != NULL)
        printf(", special tokens: %s", report->special);
    printf("\n\n");
    print_total(total);
    if (report->last_word != NULL)
        print_last_word(report->last_word);
    if (report->agreement != NULL)
        print_agreement(report->agreement, report->reference);
    if (report->speed != NULL)
        print_speed(report->speed);
    if (report->per_document)
        print_texts(&colours, report);
    print_range_note(&colours, total);
}

/* ------------------------------------------------------------------------ JSON */

static json_t *make_nll(const hl_nll *nll)
{
    bool known = !isnan(nll->standard_error);

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "nats_per_token",
                     hl_value_number(nll->mean), "perplexity", hl_value_number(nll->perplexity),
                     "bits_per_byte", hl_value_number(nll->bits_per_byte), "standard_error",
                     hl_value_number(nll->standard_error), "standard_error_over",
                     known ? json_string(nll->over_texts ? "texts" : "windows") : json_null(),
                     "nll_sum", hl_value_number(nll->sum), "scored_tokens",
                     (json_int_t)nll->n_scored, "tokens", (json_int_t)nll->n_tokens, "scored_bytes",
                     (json_int_t)nll->n_bytes, "windows", (json_int_t)nll->n_windows,
                     "broken_losses", (json_int_t)nll->n_broken);
}

static json_t *make_texts(const hl_eval_report *report)
{
    json_t *texts = json_array();

    for (int i = 0; i < report->n_texts; i++) {
        json_t *object = make_nll(&report->texts[i].nll);
        json_object_set_new(object, "name", hl_value_name(report->texts[i].name));
        json_array_append_new(texts, object);
    }
    return texts;
}

static json_t *make_last_word(const hl_eval_last_word *words)
{
    double n    = (double)words->n_words;
    double low  = NAN;
    double high = NAN;

    if (words->n_words > 0)
        accuracy_range(&low, &high, words);
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "accuracy",
                     hl_value_number(n > 0.0 ? (double)words->n_right / n : NAN), "low",
                     hl_value_number(low), "high", hl_value_number(high), "perplexity",
                     hl_value_number(n > 0.0 ? exp(words->nll / n) : NAN), "right",
                     (json_int_t)words->n_right, "words", (json_int_t)words->n_words);
}

static json_t *make_agreement(const hl_agreement_total *total, const char *reference)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "reference", hl_value_name(reference), "kl",
                     hl_value_number(total->kl), "kl_standard_error",
                     hl_value_number(total->kl_error), "top1_agreement",
                     hl_value_number(total->top1), "tokens", (json_int_t)total->n_tokens, "windows",
                     (json_int_t)total->n_windows);
}

static json_t *make_speed(const hl_eval_speed *s)
{
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "prefill_tokens_per_second",
                     hl_value_number((double)s->speed.n_prefill / s->speed.prefill_seconds),
                     "decode_tokens_per_second",
                     hl_value_number((double)s->speed.n_decode / s->speed.decode_seconds),
                     "prefill_tokens", (json_int_t)s->speed.n_prefill, "decode_tokens",
                     (json_int_t)s->speed.n_decode, "peak_bytes", (json_int_t)s->peak_bytes,
                     "session_bytes", (json_int_t)s->speed.session_bytes, "file_bytes",
                     (json_int_t)s->file_bytes, "kv_bytes_per_token", (json_int_t)s->kv_bytes);
}

bool hl_eval_print_json(const hl_eval_report *report)
{
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:i, s:o}", "model", hl_value_name(report->model), "context",
                  (json_int_t)report->n_ctx, "stride", (json_int_t)report->stride, "texts",
                  report->n_texts, "total", make_nll(&report->total));

    sort_texts(report);
    if (root != NULL && report->special != NULL)
        json_object_set_new(root, "special", json_string(report->special));
    if (root != NULL && report->last_word != NULL)
        json_object_set_new(root, "last_word", make_last_word(report->last_word));
    if (root != NULL && report->agreement != NULL)
        json_object_set_new(root, "agreement",
                            make_agreement(report->agreement, report->reference));
    if (root != NULL && report->speed != NULL)
        json_object_set_new(root, "speed", make_speed(report->speed));
    if (root != NULL && report->per_document)
        json_object_set_new(root, "documents", make_texts(report));
    bool good = hl_put_json(root, JSON_INDENT(1));
    printf("\n");
    json_decref(root);
    return good;
}
