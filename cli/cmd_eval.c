/* cmd_eval.c - headlight eval: how well a model predicts texts, and at what cost.
 *
 *     files  ->  documents (input.c)  ->  tokens  ->  perplexity and, if requested, last words and
 *     agreement with a reference model; then speed on the first tokens of the texts. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "progress.h"
#include "prompt.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

typedef struct eval_text {
    char  *name; /* name of the document */
    hl_nll nll;
} eval_text;

/* Results on documents that end in a word after other text. */
typedef struct eval_last_word {
    int64_t n_words;
    int64_t n_right; /* number of words of which every token was the most likely one */
    double  nll;     /* sum of the losses of all words, nats */
} eval_last_word;

typedef struct eval_speed {
    hl_speed speed;
    size_t   peak_bytes; /* peak memory of this process */
    size_t   file_bytes; /* size of the files that hold the weights */
    size_t   kv_bytes;   /* KV-cache bytes per token */
} eval_speed;

enum { SPEED_TOKENS = 512 };

typedef struct eval_request {
    hl_common         common;
    hl_arguments      arguments; /* the model, then texts */
    const char       *tokenizer_path;
    const char       *reference_path;
    hl_around         special;
    int64_t           n_ctx;
    int64_t           stride;
    int64_t           max_tokens;
    bool              per_document;
    bool              last_word;
    bool              speed;
    hl_gate_arguments gates;
} eval_request;

typedef struct evaluation {
    const eval_request *request;
    hl_model           *model;
    hl_model           *reference; /* NULL: no agreement is computed */
    hl_agreement       *agreement;
    hl_tokenizer       *tokenizer;
    hl_around_tokens    around; /* tokens around each window, with --special window */
    hl_perplexity      *perplexity;
    eval_text          *texts; /* (n_texts); --per-document sorts them */
    int                 n_texts;
    eval_last_word      last_word;
    int64_t             first[SPEED_TOKENS]; /* first tokens of the texts, for --speed */
    int64_t             n_first;
    eval_speed          speed; /* results of --speed */
    hl_progress_bar     progress;
    double              before; /* share of the file before the current document */
    double              part;   /* share of the file that is the current document */
} evaluation;

/* The tokens of a document, and the results for each. */
typedef struct eval_tokens {
    const int64_t *ids;     /* (n) ids of the encoding */
    int64_t       *n_bytes; /* (n) bytes of text per token */
    double        *nll;     /* (n) */
    int64_t       *top;     /* (n) */
    int64_t        n;
} eval_tokens;

static const char description[] =
    "Measures how well a model predicts texts: mean negative log-likelihood in nats\n"
    "per token, perplexity, and bits per byte, with 95% confidence intervals.  Each\n"
    "TEXT is a file; \"-\" is standard input; each line of a .jsonl file,\n"
    "{ \"text\": ... }, is a document.  Windows never cross documents.\n"
    "\n"
    "A document is read in windows of --context tokens.  Each window begins and ends\n"
    "with the special tokens that the tokenizer adds (such as <bos>); they take room\n"
    "and are not scored (--special).  Each token is scored once, in the first window\n"
    "that contains it, given the tokens before it in that window.  With --stride below\n"
    "--context, windows overlap: this is slower, and every token has at least\n"
    "context - stride tokens before it.  Without overlap, the first token of a window\n"
    "is scored only if a special token precedes it.\n"
    "\n"
    "With --reference, predictions are compared with those of the reference model;\n"
    "with --off or --gates, with those of the same model with all heads enabled: KL\n"
    "divergence, and how often both rank the same token first.";

static int check_request(const eval_request *request, const hl_usage *usage)
{
    if (request->arguments.count < 2)
        return hl_options_refuse(usage, request->arguments.count == 0 ? "no MODEL given"
                                                                      : "no TEXT given");
    if (request->n_ctx != 0 && request->stride > request->n_ctx)
        return hl_options_refuse(usage,
                                 "--stride %lld leaves gaps between windows of %lld tokens; use at "
                                 "most the window's length",
                                 (long long)request->stride, (long long)request->n_ctx);
    if (request->common.csv && !request->per_document)
        return hl_options_refuse(usage, "--csv needs --per-document: it prints one line per text");
    return HL_EXIT_OK;
}

static int parse_request(eval_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_INT("context", 'c', &request->n_ctx, "N",
               "tokens per window (the model's context, at most 4096)", 2, 1 << 30),
        HL_INT("stride", 's', &request->stride, "N",
               "tokens from one window to the next (--context)", 1, 1 << 30),
        HL_INT("max-tokens", 'n', &request->max_tokens, "N",
               "score only the first N tokens of every text (all)", 1, INT64_MAX),
        HL_SPECIAL_OPTION(&request->special),
        HL_FLAG("per-document", 'd', &request->per_document,
                "print one line per text, the hardest first"),
        HL_CSV_OPTION(&request->common, "print the lines of --per-document as CSV"),
        HL_FLAG("last-word", 0, &request->last_word,
                "print how often the last word of a text is predicted, as LAMBADA"),
        HL_TEXT("reference", 'r', &request->reference_path, "MODEL",
                "compare predictions with those of this reference model"),
        HL_FLAG("speed", 0, &request->speed,
                "measure prefill and decode throughput, memory, file and cache size"),
        HL_TOKENIZER_OPTION(&request->tokenizer_path),
        HL_GATE_OPTIONS(&request->gates),
        { 0 },
    };
    const hl_usage usage = { "eval", "MODEL TEXT...", description, options };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* --------------------------------------------------------------------- opening */

static hl_status show_progress(void *context, const hl_progress *progress)
{
    evaluation *e = context;

    hl_progress_update(&e->progress, e->before + progress->share * e->part, progress->n_tokens);
    return HL_OK;
}

/* Opens the reference model: another model, or the same one without gates. */
static hl_status open_reference(evaluation *e)
{
    const eval_request  *request = e->request;
    const char          *path    = request->reference_path;
    hl_agreement_options options = { .n_threads = request->common.n_threads };

    if (path == NULL && hl_gate_options_given(&request->gates))
        path = request->arguments.items[0];
    if (path == NULL)
        return HL_OK;
    options.n_ctx  = hl_perplexity_n_ctx(e->perplexity, &options.stride);
    options.around = e->around;
    HL_NEED(hl_model_open_on(&e->reference, path, request->common.device));
    return hl_agreement_open(&e->agreement, e->model, e->reference, &options);
}

static int open_evaluation(evaluation *e)
{
    const eval_request   *request = e->request;
    hl_perplexity_options options = { .n_ctx     = request->n_ctx,
                                      .stride    = request->stride,
                                      .n_threads = request->common.n_threads,
                                      .progress  = show_progress,
                                      .context   = e };

    HL_CALL("eval",
            hl_model_options_open(&e->model, request->arguments.items[0], request->common.device,
                                  &request->gates, "eval", request->common.quiet));
    if (hl_model_get_info(e->model)->is_encoder) /* the error of hl_perplexity_open says why
                                                  * encoders are refused */
        HL_CALL("eval", hl_perplexity_open(&e->perplexity, e->model, &options));
    HL_PASS(hl_tokenizer_needed(&e->tokenizer, e->model, request->tokenizer_path, "eval"));
    if (request->special == HL_AROUND_WINDOW)
        e->around = hl_tokenizer_around(e->tokenizer);
    options.around = e->around;
    HL_CALL("eval", hl_perplexity_open(&e->perplexity, e->model, &options));
    return hl_finish("eval", open_reference(e));
}

static void close_evaluation(evaluation *e)
{
    for (int i = 0; i < e->n_texts; i++)
        free(e->texts[i].name);
    free(e->texts);
    hl_agreement_close(e->agreement);
    hl_perplexity_close(e->perplexity);
    hl_tokenizer_close(e->tokenizer);
    hl_model_close(e->reference);
    hl_model_close(e->model);
}

/* ---------------------------------------------------------------------- tokens */

/* A token stands for the bytes from the end of all earlier tokens to its own end.  Every byte then
 * counts once, even in characters that several tokens share. */
static void count_bytes(int64_t *n_bytes, const hl_encoding *encoding)
{
    size_t end = 0;

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        size_t to  = encoding->spans[i].end > end ? encoding->spans[i].end : end;
        n_bytes[i] = (int64_t)(to - end);
        end        = to;
    }
}

static void free_tokens(eval_tokens *tokens)
{
    free(tokens->n_bytes);
    free(tokens->nll);
    free(tokens->top);
}

static int make_tokens(eval_tokens *out, const hl_encoding *encoding, int64_t most)
{
    size_t n = encoding->n_tokens;

    *out = (eval_tokens){ .ids     = encoding->ids,
                          .n_bytes = malloc((n + 1) * sizeof *out->n_bytes),
                          .nll     = malloc((n + 1) * sizeof *out->nll),
                          .top     = malloc((n + 1) * sizeof *out->top),
                          .n       = most > 0 && most < (int64_t)n ? most : (int64_t)n };
    if (out->n_bytes == NULL || out->nll == NULL || out->top == NULL)
        return hl_finish("eval", HL_NO_MEMORY);
    count_bytes(out->n_bytes, encoding);
    return HL_EXIT_OK;
}

/* ------------------------------------------------------------------- last word */

/* All tokens of the word must be scored; the word is right if each was the most likely one. */
static void judge_last_word(eval_last_word *out, const eval_tokens *tokens,
                            const hl_encoding *encoding, const hl_input_document *document)
{
    double nll   = 0.0;
    bool   right = true;
    size_t first = 0, count = 0;

    if (tokens->n != (int64_t)encoding->n_tokens ||
        !hl_last_word_find(&first, &count, encoding, document->text, document->n_bytes))
        return;
    for (size_t i = first; i < first + count; i++) {
        if (tokens->top[i] < 0)
            return;
        right = right && tokens->top[i] == tokens->ids[i];
        nll += tokens->nll[i];
    }
    out->n_words++;
    out->n_right += right;
    out->nll += nll;
}

/* ----------------------------------------------------------------------- texts */

static void keep_first(evaluation *e, const eval_tokens *tokens)
{
    for (size_t i = 0; e->n_first < SPEED_TOKENS && i < e->around.n_before && tokens->n > 0; i++)
        e->first[e->n_first++] = e->around.before[i];
    for (int64_t i = 0; i < tokens->n && e->n_first < SPEED_TOKENS; i++)
        e->first[e->n_first++] = tokens->ids[i];
}

static int score_document(hl_nll *out, evaluation *e, const hl_input_document *document)
{
    const eval_request *request = e->request;
    hl_encode_options   options = { .add_special = request->special == HL_AROUND_DOCUMENT };

    HL_HELD(hl_encoding_free) hl_encoding *encoding = NULL;
    HL_KEPT(free_tokens) eval_tokens       tokens   = { 0 };

    HL_CALL("eval", hl_tokenizer_encode(&encoding, e->tokenizer, document->text, document->n_bytes,
                                        &options));
    HL_PASS(hl_check_encoding(encoding, e->model, request->tokenizer_path, "eval"));
    HL_PASS(make_tokens(&tokens, encoding, request->max_tokens));
    HL_CALL("eval",
            hl_perplexity_add(out, e->perplexity,
                              &(hl_scored_text){ .tokens   = tokens.ids,
                                                 .n_tokens = tokens.n,
                                                 .n_bytes  = tokens.n_bytes,
                                                 .nll      = tokens.nll,
                                                 .top = request->last_word ? tokens.top : NULL }));
    if (e->agreement != NULL && out->n_broken == 0)
        HL_CALL("eval", hl_agreement_add(e->agreement, tokens.ids, tokens.n));
    if (request->last_word)
        judge_last_word(&e->last_word, &tokens, encoding, document);
    keep_first(e, &tokens);
    return HL_EXIT_OK;
}

/* The texts take over the documents' names. */
static int score_documents(evaluation *e, hl_input_documents *documents)
{
    size_t     count = (size_t)e->n_texts + (size_t)documents->count;
    eval_text *texts = realloc(e->texts, (count + 1) * sizeof *texts);

    if (texts == NULL)
        return hl_finish("eval", HL_NO_MEMORY);
    e->texts = texts;
    e->part  = 1.0 / documents->count;
    for (int i = 0; i < documents->count; i++) {
        eval_text *text = &e->texts[e->n_texts++];

        *text                    = (eval_text){ .name = documents->items[i].name };
        documents->items[i].name = NULL;
        e->before                = (double)i / documents->count;
        HL_PASS(score_document(&text->nll, e, &documents->items[i]));
        if (text->nll.n_broken > 0)
            hl_complain("eval",
                        "%s: %lld of %lld losses are NaN or infinite, the first at token %lld; "
                        "headlight diagnose finds the heads",
                        text->name, (long long)text->nll.n_broken, (long long)text->nll.n_scored,
                        (long long)text->nll.first_broken);
    }
    return HL_EXIT_OK;
}

static int score_file(evaluation *e, const char *path)
{
    HL_KEPT(hl_input_documents_free) hl_input_documents documents = { 0 };

    HL_PASS(hl_input_documents_read(&documents, path, "eval"));
    hl_progress_start(&e->progress, stderr, "scoring", e->request->common.quiet);
    int code = score_documents(e, &documents);
    hl_progress_end(&e->progress);
    return code;
}

/* -------------------------------------------------------------- bytes of files */

/* True for "model.safetensors" and "model-00001-of-00002.safetensors". */
static bool holds_weights(const char *name)
{
    const char *ending = strrchr(name, '.');

    return strncmp(name, "model", 5) == 0 && ending != NULL && strcmp(ending, ".safetensors") == 0;
}

static size_t size_of(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISREG(about.st_mode) ? (size_t)about.st_size : 0;
}

/* Returns the bytes of a file, or of a folder's model*.safetensors; 0 if there are none. */
static size_t file_bytes_of(const char *path)
{
    size_t sum    = size_of(path);
    DIR   *folder = sum == 0 ? opendir(path) : NULL;

    if (folder == NULL)
        return sum;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char name[4096];

        if (holds_weights(entry->d_name) &&
            snprintf(name, sizeof name, "%s/%s", path, entry->d_name) < (int)sizeof name)
            sum += size_of(name);
    }
    closedir(folder);
    return sum;
}

/* --------------------------------------------------------------------- numbers */

/* Perplexity and bits are functions of the mean, so their intervals are the images of its ends. */

/* --------------------------------------------------------------------- as text */

/* Adds a number with its confidence interval; NaN: it has none. */
static void put_score(hl_sheet *table, const char *name, double value, double low, double high)
{
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_reals(table, value, low, high);
}

static void put_total(hl_sheet *table, const hl_nll *nll)
{
    double low = nll->interval.low, high = nll->interval.high;
    double bits = nll->bits_per_byte / nll->mean;

    put_score(table, "nats/token", nll->mean, low, high);
    put_score(table, "perplexity", nll->perplexity, exp(low), exp(high));
    if (!isnan(bits))
        put_score(table, "bits/byte", nll->bits_per_byte, bits * low, bits * high);
}

/* Computes Wilson's score interval, which stays within 0 and 1 even for few words. */
static void accuracy_range(double *low, double *high, const eval_last_word *words)
{
    const double z = 1.959963984540054; /* 97.5% of a normal distribution */

    double n      = (double)words->n_words;
    double share  = (double)words->n_right / n;
    double z2     = z * z;
    double center = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    double half   = z / (1.0 + z2 / n) * sqrt(share * (1.0 - share) / n + z2 / (4.0 * n * n));

    *low  = center - half;
    *high = center + half;
}

static void put_last_word(hl_sheet *table, const eval_last_word *words)
{
    double low, high;

    accuracy_range(&low, &high, words);
    put_score(table, "last word, share predicted", (double)words->n_right / (double)words->n_words,
              low, high);
    put_score(table, "last word, perplexity", exp(words->nll / (double)words->n_words), NAN, NAN);
}

static void put_agreement(hl_sheet *table, const hl_agreement_total *total)
{
    put_score(table, "KL, nats", total->kl, total->kl_interval.low, total->kl_interval.high);
    put_score(table, "same top-1", total->top1, NAN, NAN);
}

static hl_status print_speed(const eval_speed *s)
{
    HL_HELD(hl_sheet_free) hl_sheet *table  = NULL;
    double                           once   = s->speed.prefill_seconds;
    double                           single = s->speed.decode_seconds;

    HL_NEED(hl_sheet_new(&table, "speed", "Speed and memory", "what:t value:0 unit:t"));
    const struct {
        const char *what, *unit;
        double      value;
    } rows[] = {
        { "prefill", "tokens/s, all at once", (double)s->speed.n_prefill / once },
        { "decode", "tokens/s, one by one", (double)s->speed.n_decode / single },
        { "memory", "bytes, peak of this process", (double)s->peak_bytes },
        { "files", "bytes", (double)s->file_bytes },
        { "KV cache", "bytes per token (f32)", (double)s->kv_bytes },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hl_sheet_put_text(table, "%s", rows[i].what);
        hl_sheet_put_real(table, rows[i].value);
        hl_sheet_put_text(table, "%s", rows[i].unit);
    }
    HL_NEED(hl_sheet_finish(table));
    printf("\n");
    return hl_print_sheet(table, HL_SHEET_TEXT);
}

static void print_range_note(const hl_colors *colors, const hl_nll *nll)
{
    char reason[80];

    hl_interval_reason(reason, sizeof reason, &nll->interval);
    if (reason[0] != '\0' && nll->n_scored > 0 && nll->n_broken == 0)
        printf("\n%sNo confidence interval: %s.%s%s\n", colors->dim, reason,
               nll->interval.units == HL_UNITS_WINDOWS
                   ? "  More text or a smaller --context\ngives more windows."
                   : "",
               colors->plain);
    if (reason[0] == '\0')
        printf("\n%s95%% confidence intervals, over %s %s.%s\n", colors->dim,
               hl_grouped(nll->interval.n), hl_units_name(nll->interval.units), colors->plain);
}

/* Orders texts by falling mean loss; texts without one come last. */
static int compare_texts(const void *left, const void *right)
{
    const hl_nll *a = &((const eval_text *)left)->nll;
    const hl_nll *b = &((const eval_text *)right)->nll;

    if (isnan(a->mean) || isnan(b->mean))
        return isnan(a->mean) - isnan(b->mean);
    return a->mean > b->mean ? -1 : a->mean < b->mean;
}

static hl_status make_documents(hl_sheet **out, const evaluation *e)
{
    hl_sheet *table = NULL;

    HL_NEED(hl_sheet_new(&table, "documents", "Each text, the hardest first",
                         "scored_tokens:i nats_per_token:4 perplexity:2 bits_per_byte:4 name:t | "
                         "nats_per_token_low:4 nats_per_token_high:4 interval:t interval_n:i "
                         "standard_error:4 nll_sum:4 tokens:i scored_bytes:i windows:i "
                         "broken_losses:i"));
    for (int i = 0; i < e->n_texts; i++) {
        const hl_nll      *nll  = &e->texts[i].nll;
        const hl_interval *over = &nll->interval;
        char               reason[80];

        hl_interval_reason(reason, sizeof reason, over);
        hl_sheet_put_int(table, nll->n_scored);
        hl_sheet_put_reals(table, nll->mean, nll->perplexity, nll->bits_per_byte);
        hl_sheet_put_text(table, "%s", e->texts[i].name);
        hl_sheet_put_reals(table, over->low, over->high);
        hl_sheet_put_text(table, "%s",
                          reason[0] != '\0' ? reason : hl_interval_method(over->units));
        hl_sheet_put_int(table, over->n);
        hl_sheet_put_reals(table, over->error, nll->sum);
        hl_sheet_put_int(table, nll->n_tokens);
        hl_sheet_put_int(table, nll->n_bytes);
        hl_sheet_put_int(table, nll->n_windows);
        hl_sheet_put_int(table, nll->n_broken);
    }
    return hl_sheet_hand_over(out, table, HL_OK);
}

static hl_status print_documents(const evaluation *e, hl_sheet_format format)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

    HL_NEED(make_documents(&table, e));
    return hl_print_sheet(table, format);
}

/* Returns the way of adding tokens; NULL if the tokenizer adds none, so that all ways are the
 * same. */
static const char *special_of(const evaluation *e)
{
    hl_around_tokens around = hl_tokenizer_around(e->tokenizer);

    return around.n_before + around.n_after > 0 ? hl_around_name((size_t)e->request->special)
                                                : NULL;
}

/* Returns the name of the reference model. */
static const char *reference_of(const eval_request *request)
{
    return request->reference_path != NULL ? request->reference_path
                                           : "the model with all heads enabled";
}

/* Prints the scores, or why there are none. */
static hl_status print_scores(const evaluation *e, const hl_nll *total)
{
    HL_HELD(hl_sheet_free) hl_sheet *table   = NULL;
    const eval_request              *request = e->request;
    bool                             ends    = request->last_word && e->last_word.n_words > 0;

    if (total->n_scored == 0)
        printf("\nNothing to score: a text needs at least two tokens.\n");
    else if (total->n_broken > 0)
        printf("\nNaN or infinite: %s of the losses.\n", hl_grouped(total->n_broken));
    HL_NEED(hl_sheet_new(&table, "scores", "Scores", "number:t value:4 low:4 high:4"));
    if (total->n_scored > 0 && total->n_broken == 0)
        put_total(table, total);
    if (ends)
        put_last_word(table, &e->last_word);
    if (e->agreement != NULL) {
        hl_agreement_total agreement = hl_agreement_get(e->agreement);

        put_agreement(table, &agreement);
        hl_sheet_fact_text(table, "compared with", "%s", reference_of(request));
        hl_sheet_fact_real(table, "predictions", (double)agreement.n_tokens);
    }
    if (ends)
        hl_sheet_fact_real(table, "last words", (double)e->last_word.n_words);
    HL_NEED(hl_sheet_finish(table));
    if (hl_sheet_n_rows(table) > 0) {
        printf("\n");
        HL_NEED(hl_print_sheet(table, HL_SHEET_TEXT));
    }
    if (request->last_word && !ends)
        printf("\nLast word: no document ends with a word that can be scored.\n");
    return HL_OK;
}

static hl_status print_text(const evaluation *e)
{
    const eval_request *request = e->request;
    hl_colors           colors  = hl_terminal_colors(stdout);
    hl_nll              total   = hl_perplexity_total(e->perplexity);
    int64_t             stride  = 0;
    int64_t             n_ctx   = hl_perplexity_n_ctx(e->perplexity, &stride);

    printf("%s%s%s  %s text%s, %s tokens, ", colors.bold, hl_shown(request->arguments.items[0]),
           colors.plain, hl_grouped(e->n_texts), e->n_texts == 1 ? "" : "s",
           hl_grouped(total.n_tokens));
    printf("%s scored; windows of %s", hl_grouped(total.n_scored), hl_grouped(n_ctx));
    if (stride != n_ctx)
        printf(", stride %s", hl_grouped(stride));
    if (special_of(e) != NULL)
        printf(", special tokens: %s", special_of(e));
    printf("\n");
    HL_NEED(print_scores(e, &total));
    if (request->speed)
        HL_NEED(print_speed(&e->speed));
    print_range_note(&colors, &total);
    if (!request->per_document)
        return HL_OK;
    printf("\n");
    return print_documents(e, HL_SHEET_TEXT);
}

/* --------------------------------------------------------------------- as JSON */

static json_t *make_nll(const hl_nll *nll)
{
    return HL_OBJECT(HL_IS("nats_per_token", nll->mean), HL_IS("perplexity", nll->perplexity),
                     HL_IS("bits_per_byte", nll->bits_per_byte),
                     HL_IS("interval", hl_value_interval(&nll->interval)),
                     HL_IS("standard_error", nll->interval.error), HL_IS("nll_sum", nll->sum),
                     HL_IS("scored_tokens", nll->n_scored), HL_IS("tokens", nll->n_tokens),
                     HL_IS("scored_bytes", nll->n_bytes), HL_IS("windows", nll->n_windows),
                     HL_IS("broken_losses", nll->n_broken));
}

static json_t *make_last_word(const eval_last_word *words)
{
    double n    = (double)words->n_words;
    double low  = NAN;
    double high = NAN;

    if (words->n_words > 0)
        accuracy_range(&low, &high, words);
    json_t *interval = json_null();
    if (n > 0.0)
        interval = HL_OBJECT(HL_IS("low", low), HL_IS("high", high), HL_IS("level", 0.95),
                             HL_IS("method", "Wilson's score"), HL_IS("n", words->n_words));
    return HL_OBJECT(HL_IS("accuracy", n > 0.0 ? (double)words->n_right / n : NAN),
                     HL_IS("perplexity", n > 0.0 ? exp(words->nll / n) : NAN),
                     HL_IS("right", words->n_right), HL_IS("words", words->n_words),
                     HL_IS("interval", interval));
}

static json_t *make_agreement(const evaluation *e)
{
    hl_agreement_total total = hl_agreement_get(e->agreement);

    return HL_OBJECT(HL_IS("reference", hl_value_name(reference_of(e->request))),
                     HL_IS("kl", total.kl),
                     HL_IS("kl_interval", hl_value_interval(&total.kl_interval)),
                     HL_IS("top1_agreement", total.top1), HL_IS("tokens", total.n_tokens),
                     HL_IS("windows", total.n_windows));
}

static json_t *make_speed(const eval_speed *s)
{
    return HL_OBJECT(
        HL_IS("prefill_tokens_per_second", (double)s->speed.n_prefill / s->speed.prefill_seconds),
        HL_IS("decode_tokens_per_second", (double)s->speed.n_decode / s->speed.decode_seconds),
        HL_IS("prefill_tokens", s->speed.n_prefill), HL_IS("decode_tokens", s->speed.n_decode),
        HL_IS("peak_bytes", s->peak_bytes), HL_IS("session_bytes", s->speed.session_bytes),
        HL_IS("file_bytes", s->file_bytes), HL_IS("kv_bytes_per_token", s->kv_bytes));
}

static hl_status print_json(const evaluation *e)
{
    const eval_request *request = e->request;
    const char         *special = special_of(e);
    hl_nll              total   = hl_perplexity_total(e->perplexity);
    int64_t             stride  = 0;
    int64_t             n_ctx   = hl_perplexity_n_ctx(e->perplexity, &stride);
    hl_sheet           *table   = NULL;

    if (request->per_document)
        HL_NEED(make_documents(&table, e));
    hl_print_json(
        HL_OBJECT(HL_IS("model", hl_value_name(request->arguments.items[0])),
                  HL_IS("context", n_ctx), HL_IS("stride", stride), HL_IS("texts", e->n_texts),
                  HL_IS("total", make_nll(&total)),
                  HL_IS("special", special != NULL ? json_string(special) : NULL),
                  HL_IS("last_word", request->last_word ? make_last_word(&e->last_word) : NULL),
                  HL_IS("agreement", e->agreement != NULL ? make_agreement(e) : NULL),
                  HL_IS("speed", request->speed ? make_speed(&e->speed) : NULL),
                  HL_IS("documents", hl_value_rows(table))),
        JSON_INDENT(1));
    return HL_OK;
}

/* ----------------------------------------------------------------- the command */

static int measure_speed(evaluation *e)
{
    hl_speed_options options = { .n_threads = e->request->common.n_threads,
                                 .n_decode  = e->n_first < 32 ? e->n_first : 32 };
    struct rusage    usage;

    if (e->n_first < 2)
        return hl_give_up(HL_EXIT_INPUT, "eval",
                          "--speed needs texts of 2 tokens or more; these have %lld",
                          (long long)e->n_first);
    HL_CALL("eval", hl_measure_speed(&e->speed.speed, e->model, e->first, e->n_first, &options));
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        e->speed.peak_bytes = (size_t)usage.ru_maxrss * 1024; /* ru_maxrss is in KiB */
    e->speed.file_bytes = file_bytes_of(e->request->arguments.items[0]);
    e->speed.kv_bytes   = hl_model_get_info(e->model)->kv_bytes_f32;
    return HL_EXIT_OK;
}

static int evaluate(evaluation *e)
{
    const eval_request *request = e->request;

    HL_PASS(open_evaluation(e));
    for (int i = 1; i < request->arguments.count; i++)
        HL_PASS(score_file(e, request->arguments.items[i]));
    if (request->speed)
        HL_PASS(measure_speed(e));
    if (request->per_document)
        qsort(e->texts, (size_t)e->n_texts, sizeof *e->texts, compare_texts);
    if (request->common.csv)
        HL_CALL("eval", print_documents(e, HL_SHEET_CSV));
    else if (request->common.json)
        HL_CALL("eval", print_json(e));
    else if (!request->common.quiet)
        HL_CALL("eval", print_text(e));
    /* Losses that are not finite have been reported for each text already. */
    return hl_perplexity_total(e->perplexity).n_broken > 0 ? HL_EXIT_INPUT : HL_EXIT_OK;
}

int hl_command_eval(int argc, char **argv)
{
    eval_request                         request = { 0 };
    HL_KEPT(close_evaluation) evaluation e       = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    return evaluate(&e);
}
