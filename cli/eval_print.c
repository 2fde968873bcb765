/* eval_print.c - a table, or one JSON object.
 *
 * The range is mean ± 1.96 standard errors.  Perplexity and bits are functions of the
 * mean, so their ranges are the images of its ends. */
#include "eval_print.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "terminal.h"

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
    print_line("nats/token", nll->mean, nll->mean - half, nll->mean + half);
    print_line("perplexity", nll->perplexity, exp(nll->mean - half), exp(nll->mean + half));
    if (!isnan(bits))
        print_line("bits/byte", nll->bits_per_byte, bits * (nll->mean - half),
                   bits * (nll->mean + half));
}

static void print_range_note(const hl_colours *colours, const hl_nll *nll)
{
    if (isnan(nll->standard_error))
        return;
    printf("\n%s  Ranges of 95%%, from the spread over %s %s.%s\n", colours->dim,
           grouped(nll->over_texts ? nll->n_texts : nll->n_windows),
           nll->over_texts ? "texts" : "windows", colours->plain);
}

static void print_texts(const hl_colours *colours, const hl_eval_report *report)
{
    printf("\n%s  %11s %11s %11s %10s  %s%s\n", colours->dim, "scored", "nats/token", "perplexity",
           "bits/byte", "text", colours->plain);
    for (int i = 0; i < report->n_texts; i++) {
        const hl_nll *nll = &report->texts[i].nll;

        if (nll->n_scored == 0)
            printf("  %11d %11s %11s %10s  %s\n", 0, "-", "-", "-", report->texts[i].name);
        else
            printf("  %11s %11.4f %11.2f %10.4f  %s\n", grouped(nll->n_scored), nll->mean,
                   nll->perplexity, nll->bits_per_byte, report->texts[i].name);
    }
}

void hl_eval_print(const hl_eval_report *report)
{
    hl_colours    colours = hl_terminal_colours(stdout);
    const hl_nll *total   = &report->total;

    printf("%s%s%s  %s text%s, %s tokens, %s scored; windows of %s", colours.bold, report->model,
           colours.plain, grouped(report->n_texts), report->n_texts == 1 ? "" : "s",
           grouped(total->n_tokens), grouped(total->n_scored), grouped(report->n_ctx));
    if (report->stride != report->n_ctx)
        printf(", stride %s", grouped(report->stride));
    printf("\n\n");
    print_total(total);
    if (report->per_document)
        print_texts(&colours, report);
    print_range_note(&colours, total);
}

/* ------------------------------------------------------------------------ JSON */

/* JSON has no NaN. */
static json_t *make_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *make_nll(const hl_nll *nll)
{
    bool known = !isnan(nll->standard_error);

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:f, s:I, s:I, s:I, s:I}", "nats_per_token",
                     make_real(nll->mean), "perplexity", make_real(nll->perplexity),
                     "bits_per_byte", make_real(nll->bits_per_byte), "standard_error",
                     make_real(nll->standard_error), "standard_error_over",
                     known ? json_string(nll->over_texts ? "texts" : "windows") : json_null(),
                     "nll_sum", nll->sum, "scored_tokens", (json_int_t)nll->n_scored, "tokens",
                     (json_int_t)nll->n_tokens, "scored_bytes", (json_int_t)nll->n_bytes, "windows",
                     (json_int_t)nll->n_windows);
}

static json_t *make_texts(const hl_eval_report *report)
{
    json_t *texts = json_array();

    for (int i = 0; i < report->n_texts; i++) {
        json_t *object = make_nll(&report->texts[i].nll);
        json_object_set_new(object, "name", json_string(report->texts[i].name));
        json_array_append_new(texts, object);
    }
    return texts;
}

bool hl_eval_print_json(const hl_eval_report *report)
{
    json_t *root = json_pack("{s:s, s:I, s:I, s:i, s:o}", "model", report->model, "context",
                             (json_int_t)report->n_ctx, "stride", (json_int_t)report->stride,
                             "texts", report->n_texts, "total", make_nll(&report->total));

    if (root != NULL && report->per_document)
        json_object_set_new(root, "documents", make_texts(report));
    bool good = root != NULL && json_dumpf(root, stdout, JSON_INDENT(1)) == 0;
    printf("\n");
    json_decref(root);
    return good;
}
