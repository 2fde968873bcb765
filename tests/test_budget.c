/* test_budget.c - heads to keep, ranking again, sizes before they are written, budgets, two models in
 * turns. */
#include "model_support.h"

#include <string.h>

#include "headlight/budget.h"
#include "headlight/eval.h"
#include "kernels/gemm.h"
#include "prune/gates.h"
#include "prune/repair.h"
#include "prune/write.h"

#define LLAMA "tests/data/families/llama3" /* 3 layers of 4 heads, 2 to a KV head */

static hl_corpus *open_ids(const hl_model *model, const char *folder)
{
    const char *path   = in_folder(folder, "ids.jsonl");
    hl_corpus  *corpus = NULL;
    char        text[4096];
    size_t      used = 0;

    for (int line = 0; line < 8; line++) {
        for (int i = 0; i < 32; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i > 0 ? "," : "[",
                                     (line * 71 + i * i * 13 + 5) % 256);
        used += (size_t)snprintf(text + used, sizeof text - used, "]\n");
    }
    write_file(path, text, used);
    assert_ok(hl_corpus_open(&corpus, model, NULL, &(hl_corpus_options){ .token_ids = path }));
    return corpus;
}

/* ------------------------------------------------------------------------ keep */

static hl_ranking *rank_places(const hl_model *model)
{
    double      scores[12];
    hl_ranking *ranking = NULL;

    for (int i = 0; i < 12; i++)
        scores[i] = i;
    assert_ok(hl_rank(&ranking, HL_RANKER_ABLATION,
                      &(hl_rank_inputs){ .model = model, .ablation = scores }, NULL));
    return ranking;
}

static void assert_choice(const hl_ranking *ranking, hl_choice choice, const char *wanted)
{
    hl_head_list *list = NULL;
    char         *text = NULL;

    assert_ok(hl_ranking_choose(&list, ranking, &choice));
    assert_ok(hl_head_list_text(&text, list));
    assert_string_equal(text, wanted);
    hl_free(text);
    hl_head_list_free(list);
}

static void test_keep(void **state)
{
    hl_model     *model   = open_model(LLAMA);
    hl_ranking   *ranking = rank_places(model);
    hl_head_list *keep = NULL, *list = NULL;
    int64_t       room = 0;
    bool          types;
    (void)state;

    assert_ok(hl_head_list_select(&keep, model, NULL, "L0H1, L2"));
    assert_int_equal(keep->n_heads, 5);
    hl_choice choice = { .count = 4, .keep = keep };
    assert_ok(hl_ranking_room(&room, ranking, &choice));
    assert_int_equal(room, 3 + 3); /* L0H1 stays in layer 0, one of its own in layer 1 */
    assert_choice(ranking, choice, "L0H0,L0H2,L0H3,L1H0");
    choice.count = 7;
    assert_fails(HL_BAD_ARGUMENT,
                 "7 of 12 heads are to be removed, but only 6 can be: every layer keeps one "
                 "(--empty-layers allows "
                 "more); heads to keep stay",
                 hl_ranking_choose(&list, ranking, &choice));
    choice = (hl_choice){ .count = 4, .keep = keep };
    assert_ok(hl_ranking_group(ranking, model)); /* a head keeps its group */
    assert_ok(hl_ranking_room(&room, ranking, &choice));
    assert_int_equal(room, 2 + 2);
    assert_choice(ranking, choice, "L0H2,L0H3,L1H0,L1H1");
    hl_head_list_free(keep);

    assert_ok(hl_head_words_need_profile(&types, model, "L0H1,L2"));
    assert_false(types);
    assert_ok(hl_head_words_need_profile(&types, model, "L0H1 sink"));
    assert_true(types);
    assert_fails(HL_BAD_ARGUMENT, "types of heads need a profile",
                 hl_head_list_select(&keep, model, NULL, "sink"));
    assert_fails(HL_BAD_ARGUMENT, "'sinks' is neither a head",
                 hl_head_list_select(&keep, model, NULL, "sinks"));
    assert_fails(HL_BAD_ARGUMENT, "L3: the model has layers L0 to L2",
                 hl_head_list_select(&keep, model, NULL, "L3"));
    assert_null(keep);
    hl_ranking_free(ranking);
    hl_model_close(model);
}

/* ------------------------------------------------------------------ ranking again */

/* Disables and repairs for the heads whose gates are 0; the repair is the caller's. */
static hl_repair *repair_for(hl_model *model, const hl_corpus *corpus, const hl_gates *gates,
                             const hl_window_options *windows)
{
    hl_repair *repair = NULL;
    hl_head    heads[12];
    int64_t    n = 0;

    for (int64_t i = 0; i < 12; i++) {
        if (gates->values[i] == 0.0f)
            heads[n++] = (hl_head){ i / 4, i % 4 };
    }
    assert_ok(hl_model_set_gates(model, NULL));
    assert_ok(hl_repair_heads(&repair, model, corpus, &(hl_head_list){ heads, n },
                              &(hl_repair_options){ .windows = *windows, .n_threads = 1 }));
    assert_ok(hl_model_set_repair(model, repair));
    assert_ok(hl_model_set_gates(model, gates->values));
    return repair;
}

/* The next head is the first, of those that are left, of a ranking of the model without the others,
 * which may be repaired. */
static void check_reselect(bool repaired)
{
    const char         *folder  = new_folder();
    hl_model           *model   = open_model(LLAMA);
    hl_corpus          *corpus  = open_ids(model, folder);
    hl_ranking         *ranking = NULL, *once = NULL;
    hl_gates           *gates   = NULL;
    int                 n_moved = 0;
    hl_reselect_options options = { .evidence = { .windows = { .n_ctx = 32 }, .n_threads = 1 },
                                    .choice   = { .count = 5, .empty_layers = true },
                                    .repair   = repaired };

    assert_ok(hl_rank_reselected(&ranking, model, HL_RANKER_GNORM, NULL, corpus, &options));
    assert_int_equal(ranking->n_heads, 12);
    assert_ok(hl_gates_new(&gates, model));
    for (int step = 0; step < 5; step++) {
        hl_evidence evidence = { 0 };
        int64_t     first    = 0;
        hl_repair  *repair   = NULL;

        assert_ok(hl_model_set_gates(model, gates->values));
        if (repaired && step > 0)
            repair = repair_for(model, corpus, gates, &options.evidence.windows);
        hl_ranking_free(once);
        assert_ok(
            hl_evidence_take(&evidence, HL_RANKER_GNORM, model, NULL, corpus, &options.evidence));
        assert_ok(hl_evidence_rank(&once, &evidence, HL_RANKER_GNORM, model, NULL));
        hl_evidence_free(&evidence);
        assert_ok(hl_model_set_repair(model, NULL));
        hl_repair_free(repair);
        while (gates->values[once->heads[first].layer * 4 + once->heads[first].head] == 0.0f)
            first++;
        assert_memory_equal(&ranking->heads[step], &once->heads[first], sizeof *once->heads);
        gates->values[once->heads[first].layer * 4 + once->heads[first].head] = 0.0f;
    }
    assert_ok(hl_model_set_gates(model, NULL));
    hl_ranking_free(once);
    options.n_steps = 1; /* at once */
    assert_ok(hl_rank_reselected(&once, model, HL_RANKER_GNORM, NULL, corpus, &options));
    for (int i = 0; i < 5; i++)
        n_moved += once->heads[i].score != ranking->heads[i].score;
    assert_true(n_moved > 0); /* reselection changes scores */
    hl_ranking_free(once);
    assert_fails(HL_BAD_ARGUMENT, "weight looks at no text",
                 hl_rank_reselected(&once, model, HL_RANKER_WEIGHT, NULL, corpus, &options));
    assert_null(once);
    assert_null(model->replaced); /* the model is what it was */
    hl_gates_free(gates);
    hl_ranking_free(ranking);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

static void test_reselect(void **state)
{
    (void)state;
    check_reselect(false);
    if (hl_lapack_check() == HL_OK)
        check_reselect(true);
}

/* ----------------------------------------------------------------------- sizes */

static void check_size(const char *path, const char *heads, hl_prune_form form, bool exact)
{
    const char     *folder = new_folder();
    char           *out    = strdup(in_folder(folder, form == HL_PRUNE_GGUF ? "out.gguf" : "out"));
    hl_model       *model  = open_model(path);
    hl_head_list   *list   = NULL;
    hl_prune_report report;
    size_t          bytes = 0;

    assert_ok(hl_head_list_parse(&list, model, heads));
    assert_ok(hl_prune_size(&bytes, model, list, &(hl_prune_options){ .form = form }, out));
    assert_ok(hl_prune_write(&report, model, list, &(hl_prune_options){ .form = form }, out));
    if (exact)
        assert_int_equal(bytes, report.tensor_bytes);
    assert_true(fabs((double)bytes / (double)report.tensor_bytes - 1.0) < 0.05);
    hl_prune_report_clear(&report);
    hl_head_list_free(list);
    hl_model_close(model);
    if (form != HL_PRUNE_GGUF)
        remove_folder(out);
    free(out);
    remove_folder(folder);
}

static void test_sizes(void **state)
{
    (void)state;
    check_size(LLAMA, "L0H1,L1,L2H0", HL_PRUNE_COMPACT, true);
    check_size(LLAMA, "L0H1,L1,L2H0", HL_PRUNE_MASKED, true);
    check_size("tests/data/families/gpt_neox", "L0H1,L1H0,L1H2", HL_PRUNE_COMPACT, true);
    check_size("tests/data/families/phi3", "L0,L1,L2H0", HL_PRUNE_COMPACT, true);
    check_size("tests/data/gguf/llama3.gguf", "L0H0,L0H1,L1H0,L1H1,L2H0,L2H1", HL_PRUNE_GGUF,
               false);
}

/* --------------------------------------------------------------------- budgets */

static void check_points(const hl_frontier *f)
{
    const hl_frontier_point *best = &f->points[f->recommended];

    for (int64_t i = 0; i < f->n_points; i++) {
        const hl_frontier_point *p = &f->points[i];

        assert_true(p->rise_low <= p->rise && p->rise <= p->rise_high);
        assert_true(p->kl >= 0.0 && p->tensor_bytes <= f->tensor_bytes);
        if (p->fits)
            assert_true(p->tensor_bytes >= best->tensor_bytes || f->budget.until_bytes > 0);
    }
    assert_true(best->fits);
    assert_int_equal(f->heads->n_heads, best->n_off);
}

static void test_budgets(void **state)
{
    const char       *folder   = new_folder();
    hl_model         *model    = open_model(LLAMA);
    hl_corpus        *corpus   = open_ids(model, folder);
    hl_frontier      *frontier = NULL;
    hl_sheet         *table    = NULL;
    const hl_ranker   one      = HL_RANKER_WANDA;
    hl_budget_options options  = { .until_loss = 1000.0,
                                   .windows    = { .n_ctx = 16 },
                                   .n_threads  = 1 };
    (void)state;

    /* A budget that is not reached: all that may go. */
    assert_ok(hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    assert_true(frontier->all_went);
    assert_int_equal(frontier->heads->n_heads, 9); /* one stays in each of 3 layers */
    assert_int_equal(frontier->n_windows, 8);      /* every second of 16 */
    check_points(frontier);
    assert_ok(hl_frontier_sheet(&table, frontier));
    assert_int_equal(hl_sheet_n_rows(table), frontier->n_points);
    hl_sheet_free(table);
    hl_frontier_free(frontier);

    /* Both halves of the text as two texts: all windows of each. */
    options.rankers    = &one;
    options.n_rankers  = 1;
    options.until_loss = 0.0;
    options.until_kl   = 1000.0;
    assert_ok(hl_frontier_find(&frontier, model, NULL, corpus, corpus, &options));
    assert_int_equal(frontier->n_windows, 16);
    assert_int_equal(frontier->points[0].ranker, HL_RANKER_WANDA);
    check_points(frontier);
    size_t least = frontier->points[frontier->recommended].tensor_bytes;
    hl_frontier_free(frontier);

    options.until_kl    = 0.0;
    options.until_bytes = least + 1;
    assert_ok(hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    assert_true(frontier->points[frontier->recommended].tensor_bytes <= least + 1);
    check_points(frontier);
    hl_frontier_free(frontier);
    options.until_bytes = 1;
    assert_fails(HL_BAD_ARGUMENT, "no number of heads makes the model as small as 1 bytes",
                 hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    options.until_bytes = 1000000000;
    assert_fails(HL_BAD_ARGUMENT, "there is nothing to remove",
                 hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    options.until_bytes = 0;
    options.until_kl    = 1e-12;
    assert_fails(HL_BAD_ARGUMENT, "no number of heads is within a KL of 1e-12",
                 hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    options.until_kl = -1.0;
    assert_fails(HL_BAD_ARGUMENT, "wanted more than 0",
                 hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    options.until_kl           = 0.1;
    options.windows.n_ctx      = 32; /* 8 windows, of which 4 are held out */
    options.windows.max_tokens = 128;
    assert_fails(HL_BAD_INPUT, "has 2 windows of 32 tokens, wanted 4 or more",
                 hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    assert_null(frontier);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* What the held-out half costs is what hl_evaluate says of that half. */
static void test_held_out(void **state)
{
    const char       *folder   = new_folder();
    hl_model         *model    = open_model(LLAMA);
    hl_corpus        *corpus   = open_ids(model, folder);
    hl_frontier      *frontier = NULL;
    hl_gates         *gates    = NULL;
    hl_evaluation    *found    = NULL;
    const hl_ranker   one      = HL_RANKER_OUTPUT_NORM;
    hl_budget_options options  = {
         .until_loss = 1000.0, .rankers = &one, .n_rankers = 1, .windows = { .n_ctx = 16 }
    };
    (void)state;

    assert_ok(hl_frontier_find(&frontier, model, NULL, corpus, NULL, &options));
    assert_ok(hl_gates_new(&gates, model));
    hl_gates_set(gates, frontier->heads, 0.0f);
    assert_ok(
        hl_evaluate(&found, model, corpus, gates->values, 1,
                    &(hl_evaluate_options){ .windows = { .n_ctx = 16, .part = 1, .n_parts = 2 } }));
    assert_int_equal(found->n_scored, frontier->n_scored);
    assert_float_equal((hl_evaluation_total(found, 0).nll - hl_evaluation_total(found, -1).nll) /
                           (double)found->n_scored,
                       frontier->points[frontier->recommended].rise, 1e-12);
    hl_evaluation_free(found);
    hl_gates_free(gates);
    hl_frontier_free(frontier);
    hl_corpus_close(corpus);
    hl_model_close(model);
    remove_folder(folder);
}

/* -------------------------------------------------------------- two models in turns */

static void test_speeds(void **state)
{
    hl_model     *model = open_model(LLAMA);
    hl_speed_pair pair;
    int64_t       tokens[64];
    (void)state;

    for (int i = 0; i < 64; i++)
        tokens[i] = i;
    assert_ok(hl_measure_speeds(&pair, model, model, tokens, 64,
                                &(hl_speed_options){ .n_decode = 4, .n_rounds = 3 }));
    assert_int_equal(pair.n_rounds, 3);
    assert_int_equal(pair.before.n_prefill, 64);
    assert_int_equal(pair.after.n_decode, 4);
    assert_true(pair.prefill.low > 0.0 && pair.prefill.low <= pair.prefill.median &&
                pair.prefill.median <= pair.prefill.high);
    assert_int_equal(pair.before.session_bytes, pair.after.session_bytes);
    assert_int_equal(pair.before.weight_bytes, hl_model_get_info(model)->tensor_bytes);
    assert_ok(hl_measure_speeds(&pair, model, model, tokens, 64,
                                &(hl_speed_options){ .n_decode = -1, .n_rounds = 2 }));
    assert_int_equal(pair.before.n_decode, 0);
    assert_true(pair.decode.median == 0.0 && pair.prefill.median > 0.0);
    assert_fails(
        HL_BAD_ARGUMENT, "in -1 rounds",
        hl_measure_speeds(&pair, model, model, tokens, 64, &(hl_speed_options){ .n_rounds = -1 }));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep),     cmocka_unit_test(test_reselect),
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_held_out), cmocka_unit_test(test_speeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
