/* shared_options.c - evaluates the options that several commands share. */
#include "shared_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "held.h"

/* ----------------------------------------- choice of the text, and its windows */

/* Parses "2/8": part 1 of 8, counted from 0. */
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
    corpus->seed     = common->seed;
    if (arguments->format != NULL)
        corpus->format = strcmp(arguments->format, "jsonl") == 0 ? HL_TEXT_JSONL : HL_TEXT_PLAIN;
    if (n_texts > 0 && corpus->token_ids != NULL)
        return hl_options_refuse(usage, "TEXT and --token-ids cannot be combined");
    if (n_texts <= 0 && corpus->token_ids == NULL)
        return hl_options_refuse(usage, "no TEXT given ('-' is standard input)");
    if (arguments->part != NULL && !parse_part(windows, arguments->part))
        return hl_options_refuse(usage, "--part: '%s' is not I/N with I from 1 to N",
                                 arguments->part);
    if (windows->n_ctx > 0 && windows->stride > windows->n_ctx)
        return hl_options_refuse(usage, "--stride: %lld is more than --context, %lld",
                                 (long long)windows->stride, (long long)windows->n_ctx);
    return HL_EXIT_OK;
}

hl_status hl_corpus_options_open(hl_corpus **out, hl_tokenizer **tokenizer, const hl_model *model,
                                 const hl_corpus_arguments *arguments, const char *tokenizer_path)
{
    if (tokenizer_path != NULL || arguments->corpus.token_ids == NULL)
        HL_NEED(hl_tokenizer_option(tokenizer, model, tokenizer_path));
    return hl_corpus_open(out, model, *tokenizer, &arguments->corpus);
}

void hl_corpus_options_report(const char *command, const hl_corpus *corpus)
{
    const hl_corpus_info *info = hl_corpus_get_info(corpus);

    if (info->n_skipped == 1)
        hl_complain(command, "skipped %s: it does not look like text", info->first_skipped);
    else if (info->n_skipped > 1)
        hl_complain(command, "skipped %s and %lld more files: they do not look like text",
                    info->first_skipped, (long long)info->n_skipped - 1);
    if (info->n_empty > 0)
        hl_complain(command, "skipped %lld document%s without text", (long long)info->n_empty,
                    info->n_empty == 1 ? "" : "s");
}

/* ------------------------------------------ heads that are disabled, or scaled */

/* Reports the gates, since a disabled head is still computed and saves no time. */
static void report_gates(const hl_gates *gates, const char *command)
{
    int64_t n_changed = hl_gates_n_changed(gates);
    int64_t n_off     = 0;

    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++)
        n_off += gates->values[i] == 0.0f;
    char scaled[48] = "";

    if (n_changed > n_off)
        snprintf(scaled, sizeof scaled, ", %lld scaled", (long long)(n_changed - n_off));
    hl_complain(command,
                "%lld head%s disabled%s (disabling heads does not speed up inference; "
                "'headlight prune' does)",
                (long long)n_off, n_off == 1 ? "" : "s", scaled);
}

bool hl_gate_options_given(const hl_gate_arguments *arguments)
{
    return arguments->path != NULL || arguments->off != NULL;
}

hl_status hl_gate_options_apply(hl_model *model, const hl_gate_arguments *arguments,
                                const char *command, bool quiet)
{
    HL_HELD(hl_gates_free) hl_gates         *gates = NULL;
    HL_HELD(hl_head_list_free) hl_head_list *off   = NULL;

    if (!hl_gate_options_given(arguments))
        return HL_OK;
    HL_NEED(arguments->path != NULL ? hl_gates_load(&gates, model, arguments->path)
                                    : hl_gates_new(&gates, model));
    if (arguments->off != NULL) {
        HL_NEED(hl_head_list_parse(&off, model, arguments->off));
        hl_gates_set(gates, off, 0.0f);
    }
    HL_NEED(hl_model_set_gates(model, gates->values));
    if (!quiet)
        report_gates(gates, command);
    return HL_OK;
}

/* ---------------------------------------- choice of the model and the tokenizer */

hl_status hl_model_open_on(hl_model **out, const char *path, const char *device)
{
    HL_NEED(hl_model_open(out, path));
    return device != NULL && strcmp(device, "cpu") != 0 ? hl_model_set_device(*out, device) : HL_OK;
}

hl_status hl_model_options_open(hl_model **out, const char *path, const char *device,
                                const hl_gate_arguments *gates, const char *command, bool quiet)
{
    HL_NEED(hl_model_open_on(out, path, device));
    return hl_gate_options_apply(*out, gates, command, quiet);
}

int hl_model_must_write(const hl_model *model, const char *path, const char *command)
{
    const hl_model_info *info = hl_model_get_info(model);

    if (!info->is_encoder)
        return HL_EXIT_OK;
    return hl_give_up(HL_EXIT_INPUT, command, "%s is an encoder (%s): it cannot generate text",
                      path, info->family);
}

hl_status hl_tokenizer_option(hl_tokenizer **out, const hl_model *model, const char *asked)
{
    return hl_tokenizer_open(out, asked != NULL ? asked : hl_model_get_info(model)->tokenizer_path);
}

int hl_tokenizer_needed(hl_tokenizer **out, const hl_model *model, const char *asked,
                        const char *command)
{
    hl_status status = hl_tokenizer_option(out, model, asked);

    if (status == HL_NOT_FOUND && asked == NULL)
        return hl_give_up(HL_EXIT_INPUT, command, "%s (name one with --tokenizer PATH)",
                          hl_error_message());
    return hl_finish(command, status);
}

/* -------------------------------------- a model that runs otherwise than trained */

bool hl_adjust_options_given(const hl_adjustment *a)
{
    return a->temperature != 0.0 || a->window != 0 || a->rope_base != 0.0 || a->rope_factor != 0.0;
}

hl_adjustment hl_adjust_options_of(const hl_adjust_arguments *arguments)
{
    hl_adjustment out = arguments->adjustment;

    out.window_sink = arguments->window_sink > 0 ? arguments->window_sink : -1;
    return out;
}

/* ----------------------------- a list of heads, before there is a model to ask */

bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad)
{
    *out = (hl_head_choices){ 0 };
    for (*bad = text;; (*bad)++) {
        size_t length = strcspn(*bad, ",");

        if (out->count == HL_MOST_HEADS || !hl_head_read(&out->items[out->count], *bad, length))
            return false;
        out->count++;
        *bad += length;
        if (**bad == '\0')
            return true;
    }
}

/* ------------------ the ranker of a name, or the name that may have been meant */

int hl_ranker_option(hl_ranker *out, const hl_usage *usage, const char *option, const char *name)
{
    if (hl_ranker_find(out, name) == HL_OK)
        return HL_EXIT_OK;
    return hl_options_check_name(usage, option, "ranker", name, hl_ranker_name,
                                 "; 'headlight rank --by list' prints all");
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
