/* prune_support.h - runs models with and without heads, for tests of pruned models. */
#ifndef HL_TESTS_PRUNE_SUPPORT_H
#define HL_TESTS_PRUNE_SUPPORT_H

#include "model_support.h"

#include <math.h>

enum { N_TOKENS = 24, MAX_HEADS = 64 };

/* ---------------------------------------------------------------------- running */

typedef struct run {
    float  *values; /* (n_tokens, width) logits, or an encoder's output; release with free */
    int64_t n_tokens;
    int64_t width;
} run;

static hl_status keep_rows(void *context, const hl_final_rows *rows)
{
    run *r = context;

    r->width = rows->logits != NULL ? rows->d_vocab : rows->d_model;
    if (r->values == NULL)
        r->values = malloc(sizeof(float) * (size_t)(r->n_tokens * r->width));
    assert_non_null(r->values);
    memcpy(r->values + rows->start * r->width, rows->logits != NULL ? rows->logits : rows->hidden,
           sizeof(float) * (size_t)(rows->n_rows * r->width));
    return HL_OK;
}

/* Runs a model with these gates, or without gates if NULL. */
static inline run run_ids(const hl_model *model, const float *gates, const int64_t *ids,
                          int64_t n_tokens)
{
    uint32_t    wants   = model->info.is_encoder ? HL_WANT_HIDDEN : HL_WANT_LOGITS;
    run         out     = { .n_tokens = n_tokens };
    hl_session *session = NULL;
    hl_tap      tap     = { .context = &out, .final = keep_rows, .wants = wants };

    assert_ok(
        hl_session_open(&session, model, &(hl_session_options){ .wants = wants, .n_threads = 1 }));
    assert_ok(hl_session_feed(
        session, &(hl_feed){ .tokens = ids, .n_tokens = n_tokens, .gates = gates, .tap = &tap }));
    hl_session_close(session);
    return out;
}

/* Runs the first n_tokens of a fixed sequence. */
static inline run run_tokens(const hl_model *model, const float *gates, int64_t n_tokens)
{
    int64_t ids[N_TOKENS];

    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (i * 37 + 5) % (model->info.d_vocab < 200 ? model->info.d_vocab : 200);
    return run_ids(model, gates, ids, n_tokens);
}

static inline run run_file(const char *path)
{
    hl_model *model = open_model(path);
    run       out   = run_tokens(model, NULL, N_TOKENS);

    hl_model_close(model);
    return out;
}

/* Returns the largest difference, in units of the largest value. */
static inline double difference(const run *a, const run *b, int64_t n_tokens)
{
    double worst = 0.0, largest = 0.0;

    assert_int_equal(a->width, b->width);
    for (int64_t i = 0; i < n_tokens * a->width; i++) {
        worst   = fmax(worst, fabs((double)a->values[i] - (double)b->values[i]));
        largest = fmax(largest, fabs((double)a->values[i]));
    }
    return worst / largest;
}

/* ---------------------------------------------------------------------- choosing */

typedef struct choice {
    hl_head      heads[MAX_HEADS];
    hl_head_list list;
} choice;

/* Adds a head unless it has been chosen before. */
static inline void choose(choice *c, int64_t layer, int64_t head)
{
    for (int64_t i = 0; i < c->list.n_heads; i++) {
        if (c->heads[i].layer == layer && c->heads[i].head == head)
            return;
    }
    assert_true(c->list.n_heads < MAX_HEADS);
    c->heads[c->list.n_heads++] = (hl_head){ layer, head };
    c->list.heads               = c->heads;
}

/* Chooses the second head of every group, or every second head if groups have one. */
static inline void choose_uniform(choice *c, const hl_model *model)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 1; head < model->config->layers[layer].n_heads; head += 2)
            choose(c, layer, head);
    }
}

/* Makes layers lose 1, 2 and 3 heads: within a group, a whole group, all but one. */
static inline void choose_ragged(choice *c, const hl_model *model)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < layer % 3 + 1 && model->config->layers[layer].n_heads > 0;
             head++)
            choose(c, layer, (head + layer + 2) % model->config->layers[layer].n_heads);
    }
}

/* Runs the model with the gates of these heads at 0. */
static inline run run_gated(const hl_model *model, const choice *c)
{
    size_t count = (size_t)(model->info.n_layers * model->info.n_heads);
    float *gates = malloc(sizeof *gates * count);
    run    out;

    assert_non_null(gates);
    for (size_t i = 0; i < count; i++)
        gates[i] = 1.0f;
    for (int64_t i = 0; i < c->list.n_heads; i++)
        gates[c->heads[i].layer * model->info.n_heads + c->heads[i].head] = 0.0f;
    out = run_tokens(model, gates, N_TOKENS);
    free(gates);
    return out;
}

#endif
