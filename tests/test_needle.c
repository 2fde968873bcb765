/* test_needle.c - needles in texts: which heads retrieve, what disabling them costs. */
#include "model_support.h"

#include <math.h>

#include "headlight/needle.h"

#define DEMO "models/demo"

static const int64_t lengths[] = { 64, 160 };
static const double  depths[]  = { 0.0, 0.5, 1.0 };

static hl_needle_options options_of(hl_needle_task task)
{
    return (hl_needle_options){ .task      = task,
                                .lengths   = lengths,
                                .n_lengths = 2,
                                .depths    = depths,
                                .n_depths  = 3,
                                .n_samples = 2,
                                .n_ranked  = 1,
                                .n_random  = 2,
                                .seed      = 5 };
}

/* The demo model's induction heads, as the probe of `measure` finds them: L7H3 (0.667) and L7H4. */
static void induction_heads_find_the_needle(void **state)
{
    hl_model         *model     = open_model(DEMO);
    hl_tokenizer     *tokenizer = NULL;
    hl_needle        *found     = NULL;
    hl_needle_options options   = options_of(HL_NEEDLE_COPY);
    hl_needle_score   all, top, random;
    (void)state;

    assert_ok(hl_tokenizer_open(&tokenizer, DEMO));
    assert_ok(hl_needle_run(&found, model, tokenizer, &options));
    assert_int_equal(found->n_texts, 12);
    assert_int_equal(found->n_scored, 6);
    assert_int_equal(found->n_ranked, 64);
    assert_int_equal(found->ranked[0].layer, 7);
    assert_true(found->ranked[0].head == 3 || found->ranked[0].head == 4);
    assert_true(found->ranked[0].score > 0.4);
    assert_true(found->ranked[20].score < 0.1);
    for (int64_t i = 1; i < 64; i++)
        assert_true(found->ranked[i - 1].score >= found->ranked[i].score);

    assert_int_equal(found->n_conditions, 3);
    assert_string_equal(found->conditions[1].name, "without the top heads");
    for (int64_t i = 0; i < found->conditions[1].n_disabled; i++)
        assert_int_equal(found->conditions[1].disabled[i].head, found->ranked[i].head);
    assert_int_equal(found->conditions[2].n_sets, 2);
    assert_int_equal(found->conditions[2].n_disabled, found->conditions[1].n_disabled);
    assert_ok(hl_needle_score_of(&all, found, 0, -1, -1));
    assert_ok(hl_needle_score_of(&top, found, 1, -1, -1));
    assert_ok(hl_needle_score_of(&random, found, 2, -1, -1));
    assert_true(top.rise_interval.low > random.rise_interval.high);
    assert_true(fabs(top.loss - all.loss - top.rise) < 1e-12);
    assert_true(top.exact < all.exact);

    /* The mean over the cells is that of all texts. */
    double sum = 0.0;
    for (int64_t cell = 0; cell < 6; cell++) {
        hl_needle_score own;
        assert_ok(hl_needle_score_of(&own, found, 2, cell / 3, cell % 3));
        sum += own.loss / 6.0;
    }
    assert_true(fabs(sum - random.loss) < 1e-12);
    hl_needle_free(found);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
}

/* A set of random heads never holds one of the top heads, nor one twice. */
static void random_heads_are_others(void **state)
{
    hl_model         *model   = open_model(DEMO);
    hl_needle        *found   = NULL;
    hl_needle_options options = options_of(HL_NEEDLE_PAIRS);
    bool              differ  = false;
    (void)state;

    options.n_lengths  = 1;
    options.n_depths   = 1;
    options.n_samples  = 1;
    options.n_disabled = 30;
    assert_ok(hl_needle_run(&found, model, NULL, &options)); /* no tokenizer: any tokens */
    const hl_needle_condition *random = &found->conditions[2];
    for (int64_t i = 0; i < 60; i++) {
        const hl_head *head = &random->disabled[i];

        for (int64_t k = 0; k < 30; k++) {
            const hl_head *other = &random->disabled[i / 30 * 30 + k];
            assert_false(found->ranked[k].layer == head->layer &&
                         found->ranked[k].head == head->head);
            assert_false(k != i % 30 && other->layer == head->layer && other->head == head->head);
        }
        differ = differ || random->disabled[i % 30].head != random->disabled[30 + i % 30].head;
    }
    assert_true(differ);
    hl_needle_free(found);
    hl_model_close(model);
}

/* Another model reads the same texts: the same one has the same losses, and the same run the same
 * bytes. */
static void texts_are_the_same(void **state)
{
    hl_model             *model     = open_model(DEMO);
    hl_tokenizer         *tokenizer = NULL;
    hl_needle            *a = NULL, *b = NULL;
    hl_sheet             *table   = NULL;
    hl_needle_options     options = options_of(HL_NEEDLE_FACTS);
    const hl_needle_other other   = { "the same", model };
    char                  text[4000];
    (void)state;

    for (size_t i = 0; i + 40 < sizeof text; i += 40)
        memcpy(text + i, "It was a cold day, and nobody went out. ", 41);
    assert_ok(hl_tokenizer_open(&tokenizer, DEMO));
    options.n_disabled = -1;
    options.others     = &other;
    options.n_others   = 1;
    options.text       = text;
    options.n_text     = strlen(text);
    assert_ok(hl_needle_run(&a, model, tokenizer, &options));
    assert_int_equal(a->n_conditions, 2);
    assert_memory_equal(a->conditions[0].losses, a->conditions[1].losses, 12 * sizeof(double));
    assert_ok(hl_needle_run(&b, model, tokenizer, &options));
    assert_memory_equal(a->conditions[0].losses, b->conditions[0].losses, 12 * sizeof(double));
    hl_needle_free(b);
    options.seed = 6;
    assert_ok(hl_needle_run(&b, model, tokenizer, &options));
    assert_true(memcmp(a->conditions[0].losses, b->conditions[0].losses, 12 * sizeof(double)) != 0);
    assert_ok(hl_needle_sheet(&table, a, "cells"));
    assert_int_equal(hl_sheet_n_rows(table), 12);
    hl_sheet_free(table);
    assert_fails(HL_BAD_ARGUMENT, "no table 'x'", hl_needle_sheet(&table, a, "x"));
    hl_needle_free(a);
    hl_needle_free(b);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
}

static void refuse(hl_model *model, const hl_needle_options *options, const char *fragment)
{
    hl_needle *found = NULL;

    assert_fails(HL_BAD_ARGUMENT, fragment, hl_needle_run(&found, model, NULL, options));
    assert_null(found);
}

static void bad_options_are_refused(void **state)
{
    hl_model         *model   = open_model(DEMO);
    hl_needle_options options = options_of(HL_NEEDLE_COPY);
    const int64_t     small = 20, large = 513;
    const double      deep = 1.5;
    (void)state;

    options.n_lengths = 1;
    options.lengths   = &small;
    refuse(model, &options, "a text of 20 tokens has no room for the needle; the shortest has 24");
    options.lengths = &large;
    refuse(model, &options, "a length of 513, wanted 2 to 512");
    options          = options_of(HL_NEEDLE_COPY);
    options.depths   = &deep;
    options.n_depths = 1;
    refuse(model, &options, "a depth of 1.5, wanted 0 to 1");
    options           = options_of(HL_NEEDLE_COPY);
    options.n_samples = -1;
    refuse(model, &options, "is negative");
    options            = options_of(HL_NEEDLE_COPY);
    options.n_disabled = 33;
    refuse(model, &options, "33 of 64 heads are to be disabled, at most half can be");
    options = options_of(HL_NEEDLE_FACTS);
    refuse(model, &options, "facts need a tokenizer and a text");
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(induction_heads_find_the_needle),
        cmocka_unit_test(random_heads_are_others),
        cmocka_unit_test(texts_are_the_same),
        cmocka_unit_test(bad_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
