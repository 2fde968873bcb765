/* prune_repair.c - heads that stay, repaired on the text that the others were ranked on. */
#include "prune_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "progress.h"
#include "shared_options.h"
#include "values.h"

int hl_repair_refuse(const hl_repair_work *work, const hl_usage *usage)
{
    const hl_repair_request *request = work->request;

    if (request->wanted == HL_REPAIR_ATTENTION && work->texts->count == 0)
        return hl_options_refuse(usage, "--repair needs --text FILE to solve weights on");
    if (request->wanted == HL_REPAIR_ATTENTION && work->mean)
        return hl_options_refuse(usage, "--mean and --repair: a repair makes up for means, too");
    if ((request->resume || request->state != NULL) && request->wanted == HL_REPAIR_NONE)
        return hl_options_refuse(usage, "--state and --resume are for a repair");
    return HL_EXIT_OK;
}

static bool is_wanted(const hl_repair_work *work)
{
    return work->request->wanted != HL_REPAIR_NONE && !work->mean && work->texts->count > 0;
}

bool hl_repair_is_planned(const hl_repair_work *work)
{
    return is_wanted(work) && work->why[0] == '\0';
}

/* Unless it was asked for, a repair that is not possible is left out, and why is said. */
hl_status hl_repair_prepare(hl_repair_work *work, const hl_model *model)
{
    if (!is_wanted(work))
        return HL_OK;
    hl_status status = hl_repair_check(model);
    if (status != HL_UNSUPPORTED || work->request->wanted == HL_REPAIR_ATTENTION)
        return status;
    snprintf(work->why, sizeof work->why, "%s", hl_error_message());
    return HL_OK;
}

/* OUT.part, where no state is named. */
static hl_status name_state(hl_repair_work *work)
{
    const char *base   = work->request->state != NULL ? work->request->state : work->output;
    size_t      length = strlen(base);

    while (length > 1 && base[length - 1] == '/')
        length--;
    work->state_path = malloc(length + 8);
    if (work->state_path == NULL)
        return HL_NO_MEMORY;
    snprintf(work->state_path, length + 8, "%.*s%s", (int)length, base,
             work->request->state != NULL ? "" : ".part");
    return HL_OK;
}

static hl_status solve(hl_repair_work *work, const hl_model *model, const hl_corpus *corpus,
                       const hl_head_list *heads)
{
    hl_progress_bar   bar;
    hl_repair_options options = { .windows    = work->windows,
                                  .n_threads  = work->n_threads,
                                  .state_path = work->state_path,
                                  .resume     = work->request->resume,
                                  .progress   = hl_progress_show,
                                  .context    = &bar };

    hl_progress_start(&bar, stderr, "repairing", work->quiet);
    hl_status status = hl_repair_heads(&work->repair, model, corpus, heads, &options);
    hl_progress_end(&bar);
    return status;
}

hl_status hl_repair_run(hl_repair_work *work, const hl_model *model, const hl_head_list *heads)
{
    hl_corpus_options text      = { .inputs   = work->texts->items,
                                    .n_inputs = (size_t)work->texts->count };
    hl_tokenizer     *tokenizer = NULL;
    hl_corpus        *corpus    = NULL;

    if (!hl_repair_is_planned(work) || heads->n_heads == 0)
        return HL_OK;
    hl_status status = name_state(work);
    if (status == HL_OK)
        status = hl_tokenizer_option(&tokenizer, model, work->tokenizer_path);
    if (status == HL_OK)
        status = hl_corpus_open(&corpus, model, tokenizer, &text);
    if (status == HL_OK)
        status = solve(work, model, corpus, heads);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    return status;
}

/* ---------------------------------------------------------------------- in words */

/* Of the layers' squared errors behind attention, the share that is left, on average. */
static double share_left(const hl_repair_info *info)
{
    double sum = 0.0;

    for (int64_t i = 0; i < info->n_layers; i++)
        sum += info->layers[i].before > 0.0 ? info->layers[i].after / info->layers[i].before : 0.0;
    return info->n_layers > 0 ? sum / (double)info->n_layers : 0.0;
}

/* Layers whose stored type would have lost too much of the repair. */
static void print_types(const hl_repair_info *info)
{
    int64_t n_promoted = 0;
    double  lost = 0.0, worst = 0.0;

    for (int64_t i = 0; i < info->n_layers; i++) {
        const hl_repair_layer *layer = &info->layers[i];

        if (layer->dtype != layer->stored) {
            n_promoted++;
            worst = layer->first_rounding > worst ? layer->first_rounding : worst;
        }
        lost = layer->rounding > lost ? layer->rounding : lost;
    }
    if (info->layers[0].stored != HL_DTYPE_F32)
        printf("  Stored as %s; rounding loses up to %.2g%% of what is gained.\n",
               hl_dtype_name(info->layers[0].dtype), 100.0 * lost);
    if (n_promoted > 0)
        printf("  %lld of these were stored as %s, which %s.\n", (long long)n_promoted,
               hl_dtype_name(info->layers[0].stored),
               worst > 0.1 ? "would lose more than a tenth of it" : "is not written here");
}

void hl_repair_print(const hl_repair_work *work)
{
    if (work->repair == NULL) {
        if (work->why[0] != '\0')
            printf("  Not repaired: %s.\n", hl_shown(work->why));
        return;
    }
    const hl_repair_info *info = hl_repair_get_info(work->repair);
    printf("\n  Repaired on %lld tokens: the output projections of %lld layers were solved again.\n"
           "  Behind attention, %.0f%% of the squared error is left on average.  --repair none\n"
           "  leaves them as they were.  Memory: %.0f MiB.\n",
           (long long)info->n_tokens, (long long)info->n_layers, 100.0 * share_left(info),
           (double)info->n_bytes / 0x1p20);
    if (info->n_layers > 0)
        print_types(info);
    if (info->n_short > 0)
        printf("  In %lld layers there are more unknowns per output than tokens: the ridge keeps\n"
               "  the solution defined, but a longer text gives a better one.\n",
               (long long)info->n_short);
    if (info->n_empty > 0)
        printf("  %lld layers lost all their heads: what they wrote is left to the layers above.\n",
               (long long)info->n_empty);
}

static json_t *layers_json(const hl_repair_info *info)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < info->n_layers; i++) {
        const hl_repair_layer *layer = &info->layers[i];

        json_array_append_new(
            list,
            HL_OBJECT(HL_IS("layer", layer->layer), HL_IS("kept", layer->n_kept),
                      HL_IS("unknowns", layer->n_unknowns), HL_IS("before", layer->before),
                      HL_IS("after", layer->after), HL_IS("stored", hl_dtype_name(layer->stored)),
                      HL_IS("written", hl_dtype_name(layer->dtype)),
                      HL_IS("rounding", layer->rounding)));
    }
    return list;
}

json_t *hl_repair_json(const hl_repair_work *work)
{
    if (work->repair == NULL && work->why[0] == '\0')
        return NULL;
    if (work->repair == NULL)
        return HL_OBJECT(HL_IS("why_not", work->why));
    const hl_repair_info *info = hl_repair_get_info(work->repair);
    return HL_OBJECT(HL_IS("tokens", info->n_tokens), HL_IS("memory_bytes", info->n_bytes),
                     HL_IS("error_left", share_left(info)), HL_IS("short_layers", info->n_short),
                     HL_IS("empty_layers", info->n_empty), HL_IS("layers", layers_json(info)));
}

void hl_repair_done(hl_repair_work *work)
{
    if (work->state_path != NULL)
        unlink(work->state_path);
}

void hl_repair_close(hl_repair_work *work)
{
    hl_repair_free(work->repair);
    free(work->state_path);
}
