/* test_prune_write.c - models written without heads: masked, compact and as GGUF they give
 * the logits that gates of zero give, in every family, for uniform and other choices. */
#include "model_support.h"

#include <math.h>

#include "base/json.h"
#include "model/head_plan.h"

enum { N_TOKENS = 24, MAX_HEADS = 64 };

/* ---------------------------------------------------------------------- running */

typedef struct run {
    float  *values; /* (N_TOKENS, width) logits, or what an encoder gives */
    int64_t width;
} run;

static hl_status keep_rows(void *context, const hl_final_rows *rows)
{
    run *r = context;

    r->width = rows->logits != NULL ? rows->d_vocab : rows->d_model;
    if (r->values == NULL)
        r->values = malloc(sizeof(float) * (size_t)(N_TOKENS * r->width));
    assert_non_null(r->values);
    memcpy(r->values + rows->start * r->width, rows->logits != NULL ? rows->logits : rows->hidden,
           sizeof(float) * (size_t)(rows->n_rows * r->width));
    return HL_OK;
}

/* With these gates, or NULL. */
static run run_model(const hl_model *model, const float *gates)
{
    int64_t     tokens[N_TOKENS];
    uint32_t    wants   = model->info.is_encoder ? HL_WANT_HIDDEN : HL_WANT_LOGITS;
    run         out     = { 0 };
    hl_session *session = NULL;
    hl_tap      tap     = { .context = &out, .final = keep_rows, .wants = wants };

    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % (model->info.d_vocab < 200 ? model->info.d_vocab : 200);
    assert_ok(
        hl_session_open(&session, model, &(hl_session_options){ .wants = wants, .n_threads = 1 }));
    assert_ok(hl_session_feed(
        session,
        &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS, .gates = gates, .tap = &tap }));
    hl_session_close(session);
    return out;
}

static run run_file(const char *path)
{
    hl_model *model = open_model(path);
    run       out   = run_model(model, NULL);

    hl_model_close(model);
    return out;
}

static double difference(const run *a, const run *b)
{
    double worst = 0.0, big = 0.0;

    assert_int_equal(a->width, b->width);
    for (int64_t i = 0; i < N_TOKENS * a->width; i++)
        { worst = fmax(worst, fabs((double)a->values[i] - (double)b->values[i])); big = fmax(big, fabs((double)a->values[i])); }
    printf("# largest %g: ", big);
    return worst;
}

/* ---------------------------------------------------------------------- choosing */

typedef struct choice {
    hl_head      heads[MAX_HEADS];
    hl_head_list list;
} choice;

static void choose(choice *c, int64_t layer, int64_t head)
{
    assert_true(c->list.n_heads < MAX_HEADS);
    c->heads[c->list.n_heads++] = (hl_head){ layer, head };
    c->list.heads               = c->heads;
}

typedef void (*chooser)(choice *c, const hl_model *model);

/* The second head of every group, or every second head where groups have one. */
static void choose_uniform(choice *c, const hl_model *model)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 1; head < model->config->layers[layer].n_heads; head += 2)
            choose(c, layer, head);
    }
}

/* Layers lose 1, 2 and 3 heads: within a group, a whole group, all but one. */
static void choose_ragged(choice *c, const hl_model *model)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < layer % 3 + 1; head++)
            choose(c, layer, (head + layer + 2) % model->config->layers[layer].n_heads);
    }
}

/* All of the second layer. */
static void choose_layer(choice *c, const hl_model *model)
{
    for (int64_t head = 0; head < model->config->layers[1].n_heads; head++)
        choose(c, 1, head);
}

static const chooser choosers[] = { choose_uniform, choose_ragged, choose_layer };

/* --------------------------------------------------------------------- comparing */

static void remove_all(const char *folder)
{
    if (path_exists(folder))
        remove_folder(folder);
}

static run run_gated(const hl_model *model, const choice *c)
{
    size_t count = (size_t)(model->info.n_layers * model->info.n_heads);
    float *gates = malloc(sizeof *gates * count);
    run    out;

    assert_non_null(gates);
    for (size_t i = 0; i < count; i++)
        gates[i] = 1.0f;
    for (int64_t i = 0; i < c->list.n_heads; i++)
        gates[c->heads[i].layer * model->info.n_heads + c->heads[i].head] = 0.0f;
    out = run_model(model, gates);
    free(gates);
    return out;
}

/* Written in one form, read back, and compared with what gates give. */
static void check_form(const hl_model *model, const char *name, const choice *c, const run *wanted,
                       hl_prune_form form, const char *folder)
{
    char             path[256];
    hl_prune_report  report;
    hl_prune_options options = { .form = form };
    run              seen;
    double           error;

    snprintf(path, sizeof path, "%s/%s", folder, hl_prune_form_name(form));
    assert_ok(hl_prune_write(&report, model, &c->list, &options, path));
    assert_int_equal(report.n_pruned, c->list.n_heads);
    assert_true(form == HL_PRUNE_MASKED ? report.n_gone == 0 : report.n_gone > 0);
    if (form == HL_PRUNE_MASKED)
        assert_int_equal(report.n_params, model->info.n_params);
    else
        assert_true(report.n_params < model->info.n_params);
    seen  = run_file(path);
    error = difference(wanted, &seen);
    printf("# %s %s %.2e\n", name, hl_prune_form_name(form), error);
    if (!(error <= 1e-4))
        fail_msg("%s %s: off by %.2e", name, hl_prune_form_name(form), error);
    free(seen.values);
    remove_all(path);
}

static bool is_masked_only(const char *name)
{
    return strcmp(name, "bloom") == 0 || strcmp(name, "falcon_rw") == 0 ||
           strcmp(name, "olmo2") == 0;
}

static void check_family(const char *family, const char *name, const char *folder)
{
    hl_model *model = open_model(family);

    for (size_t i = 0; i < sizeof choosers / sizeof *choosers; i++) {
        choice c = { 0 };
        choosers[i](&c, model);
        run wanted = run_gated(model, &c);

        check_form(model, name, &c, &wanted, HL_PRUNE_MASKED, folder);
        if (is_masked_only(name))
            assert_fails(HL_UNSUPPORTED, "would change",
                         hl_prune_write(NULL, model, &c.list,
                                        &(hl_prune_options){ .form = HL_PRUNE_COMPACT },
                                        in_folder(folder, "x")));
        else
            check_form(model, name, &c, &wanted, HL_PRUNE_COMPACT, folder);
        free(wanted.values);
    }
    hl_model_close(model);
}

static void every_family_computes_the_same_without_its_heads(void **state)
{
    char           folder[64];
    char           from[1024] = "tests/data/families";
    int            count      = 0;
    struct dirent *entry;
    (void)state;

    snprintf(folder, sizeof folder, "%s", new_folder());
    if (path_exists(in_shared("golden/families")))
        snprintf(from, sizeof from, "%s", in_shared("golden/families"));
    DIR *families = opendir(from);
    assert_non_null(families);
    while ((entry = readdir(families)) != NULL) {
        char path[2048];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", from, entry->d_name);
        check_family(path, entry->d_name, folder);
        count++;
    }
    closedir(families);
    assert_true(count >= 4);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_computes_the_same_without_its_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
