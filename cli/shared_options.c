/* shared_options.c - what the options that several commands have come to. */
#include "shared_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* ----------------------------------------------- which text, and how it is cut */

#define MAX_COUNT INT64_MAX

void hl_corpus_options_list(hl_option *out, hl_corpus_arguments *arguments)
{
    hl_window_options *windows                      = &arguments->windows;
    hl_corpus_options *corpus                       = &arguments->corpus;
    const hl_option    options[HL_N_CORPUS_OPTIONS] = {
           { "context", 'c', HL_OPTION_INT, &windows->context, "N", "tokens of a window", 1, 1 << 24 },
           { "stride", 0, HL_OPTION_INT, &windows->stride, "N",
             "from one window to the next (the context)", 1, 1 << 24 },
           { "batch", 'b', HL_OPTION_INT, &windows->n_batch, "N",
             "windows at a time (1; on a device up to 32)", 1, 1 << 16 },
           { "max-tokens", 0, HL_OPTION_INT, &windows->max_tokens, "N", "stop after N tokens", 1,
             MAX_COUNT },
           { "pack", 0, HL_OPTION_FLAG, &windows->pack, NULL,
             "join documents, so that all windows are full", 0, 0 },
           { "part", 0, HL_OPTION_TEXT, &arguments->part, "I/N", "only part I of N, from 1/N to N/N",
             0, 0 },
           { "sample", 0, HL_OPTION_INT, &corpus->n_sample, "N",
             "only N documents, chosen by --seed and content", 1, MAX_COUNT },
           { "field", 0, HL_OPTION_TEXT, &corpus->field, "NAME",
             "of JSONL lines: where the text is (text, messages)", 0, 0 },
           { "format", 0, HL_OPTION_CHOICE, &arguments->format, "text|jsonl",
             "of all TEXTs, whatever their names", 0, 0 },
           { "type", 0, HL_OPTION_LIST, &arguments->types, "NAME=REGEX",
             "a type for tokens that match; may be repeated", 0, 0 },
           { "token-ids", 0, HL_OPTION_TEXT, &corpus->token_ids, "FILE",
             "token ids instead of TEXT: JSON lines, safetensors, npy", 0, 0 },
           HL_SPECIAL_OPTION(&arguments->special),
    };

    memcpy(out, options, sizeof options);
}

hl_around hl_special_option(const char *given)
{
    size_t around = HL_AROUND_WINDOW;

    for (size_t i = 0; given != NULL && hl_around_name(i) != NULL; i++)
        around = strcmp(given, hl_around_name(i)) == 0 ? i : around;
    return (hl_around)around;
}

/* "2/8": part 1 of 8, counted from 0. */
static bool parse_part(hl_window_options *windows, const char *text)
{
    char *end = NULL;

    errno          = 0;
    long long part = strtoll(text, &end, 10);
    if (end == text || *end != '/')
        return false;
    const char *count   = end + 1;
    long long   n_parts = strtoll(count, &end, 10);
    if (end == count || *end != '\0' || errno != 0)
        return false;
    windows->part    = part - 1;
    windows->n_parts = n_parts;
    return part >= 1 && part <= n_parts && n_parts <= 1 << 20;
}

int hl_corpus_options_finish(hl_corpus_arguments *arguments, const hl_usage *usage,
                             const hl_common *common, char **texts, int n_texts)
{
    hl_corpus_options *corpus  = &arguments->corpus;
    hl_window_options *windows = &arguments->windows;

    corpus->inputs   = (const char *const *)texts;
    corpus->n_inputs = n_texts > 0 ? (size_t)n_texts : 0;
    corpus->types    = arguments->types.items;
    corpus->n_types  = (size_t)arguments->types.count;
    corpus->seed     = (uint64_t)common->seed;
    windows->around  = hl_special_option(arguments->special);
    if (arguments->format != NULL)
        corpus->format = strcmp(arguments->format, "jsonl") == 0 ? HL_TEXT_JSONL : HL_TEXT_PLAIN;
    if (n_texts > 0 && corpus->token_ids != NULL)
        return hl_options_refuse(usage, "either TEXT or --token-ids, not both");
    if (n_texts <= 0 && corpus->token_ids == NULL)
        return hl_options_refuse(usage, "no TEXT given ('-' is standard input)");
    if (arguments->part != NULL && !parse_part(windows, arguments->part))
        return hl_options_refuse(usage, "--part: '%s' is not I/N with I from 1 to N",
                                 arguments->part);
    if (windows->context > 0 && windows->stride > windows->context)
        return hl_options_refuse(usage, "--stride: %lld is more than --context, %lld",
                                 (long long)windows->stride, (long long)windows->context);
    return HL_OPTIONS_GO_ON;
}

void hl_corpus_options_report(const char *command, const hl_corpus *corpus)
{
    const hl_corpus_info *info = hl_corpus_get_info(corpus);

    if (info->n_skipped == 1)
        hl_complain(command, "%s was skipped: it does not look like text", info->first_skipped);
    else if (info->n_skipped > 1)
        hl_complain(command, "%s and %lld more files were skipped: they do not look like text",
                    info->first_skipped, (long long)info->n_skipped - 1);
    if (info->n_empty > 0)
        hl_complain(command, "%lld document%s without text", (long long)info->n_empty,
                    info->n_empty == 1 ? "" : "s");
}

/* -------------------------------- which heads are switched off, or turned down */

static hl_status close_listed(hl_gates *gates, const hl_model *model, const char *text)
{
    hl_head_list *heads  = NULL;
    hl_status     status = hl_head_list_parse(&heads, model, text);

    if (status == HL_OK)
        hl_gates_set(gates, heads, 0.0f);
    hl_head_list_free(heads);
    return status;
}

/* A head that is off is computed all the same: nobody should think that it is not. */
static void report_gates(const hl_gates *gates, const char *command)
{
    int64_t n_changed = hl_gates_n_changed(gates);
    int64_t n_off     = 0;

    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++)
        n_off += gates->values[i] == 0.0f;
    hl_complain(command, "%lld head%s off, %lld turned down; a closed gate alone saves no time",
                (long long)n_off, n_off == 1 ? "" : "s", (long long)(n_changed - n_off));
}

hl_status hl_gate_options_apply(hl_model *model, const hl_gate_arguments *arguments,
                                const char *command, bool quiet)
{
    hl_gates *gates  = NULL;
    hl_status status = HL_OK;

    if (arguments->path == NULL && arguments->off == NULL)
        return HL_OK;
    if (arguments->path != NULL)
        status = hl_gates_load(&gates, model, arguments->path);
    else
        status = hl_gates_new(&gates, model);
    if (status == HL_OK && arguments->off != NULL)
        status = close_listed(gates, model, arguments->off);
    if (status == HL_OK)
        status = hl_model_set_gates(model, gates->values);
    if (status == HL_OK && !quiet)
        report_gates(gates, command);
    hl_gates_free(gates);
    return status;
}

/* ----------------------------- a list of heads, before there is a model to ask */

bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad)
{
    *out = (hl_head_choices){ 0 };
    for (*bad = text;; (*bad)++) {
        size_t  length = strcspn(*bad, ",");
        hl_head head;

        if (out->count == HL_MOST_HEADS || !hl_head_read(&head, *bad, length))
            return false;
        out->items[out->count++] = (hl_head_choice){ head.layer, head.head };
        *bad += length;
        if (**bad == '\0')
            return true;
    }
}

/* ------------------ the ranker of a name, or the name that may have been meant */

int hl_ranker_option(hl_ranker *out, const hl_usage *usage, const char *option, const char *name)
{
    hl_nearest nearest = { .wanted = name };

    if (hl_ranker_find(out, name) == HL_OK)
        return HL_OPTIONS_GO_ON;
    for (size_t i = 0; hl_ranker_name(i) != NULL; i++)
        hl_nearest_offer(&nearest, hl_ranker_name(i));
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--%s: no ranker is called '%s' (did you mean '%s'?)",
                                 option, name, nearest.word);
    return hl_options_refuse(
        usage, "--%s: no ranker is called '%s'; 'headlight rank --by list' lists them", option,
        name);
}

/* ------------------------------------------------------------ how figures look */

static void complain(void *command, hl_log_level level, const char *message)
{
    (void)level;
    hl_complain(command, "%s", message);
}

void hl_draw_listen(const char *command)
{
    hl_log_set(complain, (void *)(uintptr_t)command, HL_LOG_WARNING);
}

hl_draw_options hl_draw_options_of(const hl_draw_arguments *arguments)
{
    return (hl_draw_options){
        .title   = arguments->title,
        .caption = arguments->caption,
        .theme   = strcmp(arguments->theme, "dark") == 0 ? HL_THEME_DARK : HL_THEME_LIGHT,
        .width   = arguments->width,
        .dpi     = arguments->dpi,
    };
}
