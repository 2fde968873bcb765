/* test_trace_tables.c - tables of a trace whose numbers were made by rule. */
#include "analysis_support.h"
#include "support.h"

#include <math.h>

#include "stats/trace_parts.h"

enum { N_PROMPT = 6, N_NEW = 40, N_LAYERS = 2, N_HEADS = 3 };

/* What a token adds to the text, of which kind it is, and whether an entity begins with it. */
static const char *text_of(int token)
{
    static const char *const words[] = { " the",    " Que", "en",  "'s", " of",
                                         " France", "!",    " 18", "65", " and" };
    return words[token % 10];
}

static bool is_entity(int token)
{
    int place = token % 10;
    return place == 1 || place == 5 || place == 7;
}

/* Entropies are the token's number over 100, plus 1 for generated ones. */
static hl_trace *made(void)
{
    hl_trace *trace = NULL;

    assert_ok(hl_trace_new(&trace, N_LAYERS, N_HEADS, 0));
    assert_ok(hl_trace_reserve(trace, N_PROMPT + N_NEW));
    for (int i = 0; i < N_PROMPT + N_NEW; i++) {
        hl_token_kind kind = i < N_PROMPT ? HL_KIND_PROMPT : HL_KIND_GENERATED;

        for (int cell = 0; i > 0 && cell < N_LAYERS * N_HEADS; cell++) {
            hl_trace_at(trace, i, HL_TRACE_ENTROPY)[cell] =
                (float)i / 100.0f + (kind == HL_KIND_GENERATED ? 1.0f : 0.0f);
            hl_trace_at(trace, i, HL_TRACE_NORMALIZED)[cell] = 0.5f;
        }
        /* From token 20 on a loop of 7. */
        assert_ok(hl_trace_push(trace, i < 20 ? 100 + i : 500 + (i - 20) % 7, kind));
        assert_ok(hl_trace_append_text(trace, text_of(i), strlen(text_of(i))));
        trace->entities[i] = is_entity(i);
        if (kind == HL_KIND_GENERATED) {
            trace->numbers[HL_TRACE_LOGPROB][i]    = -2.0;
            trace->numbers[HL_TRACE_VOCABULARY][i] = 3.0;
            trace->numbers[HL_TRACE_SPIKE][i]      = i == 25 ? 4.0 : 0.0;
        }
    }
    return trace;
}

static hl_sheet *table_of(const hl_trace *trace, const char *name)
{
    hl_sheet *table = NULL;

    assert_ok(hl_trace_analyze(&table, trace, name));
    return table;
}

static double number_in(const hl_sheet *table, int64_t row, const char *column)
{
    assert_true(hl_sheet_find(table, column) >= 0);
    return hl_sheet_number(table, row, hl_sheet_find(table, column));
}

static const char *text_in(const hl_sheet *table, int64_t row, const char *column)
{
    return hl_sheet_text(table, row, hl_sheet_find(table, column));
}

static void prompt_against_generated(void **state)
{
    hl_trace *trace    = made();
    hl_sheet *table    = table_of(trace, "kinds");
    double    old_mean = (1 + 2 + 3 + 4 + 5) / 500.0; /* the first token has no row */
    double    new_mean = 1.0 + (6 + 45) / 200.0;
    (void)state;

    assert_int_equal(hl_sheet_n_rows(table), 5);
    assert_string_equal(text_in(table, 0, "tokens"), "prompt");
    assert_string_equal(text_in(table, 1, "tokens"), "generated");
    assert_near(number_in(table, 0, "count"), N_PROMPT, 0.0);
    assert_near(number_in(table, 0, "entropy"), old_mean, 1e-6);
    assert_near(number_in(table, 1, "entropy"), new_mean, 1e-6);
    assert_near(number_in(table, 2, "entropy"), new_mean - old_mean, 1e-6);
    assert_near(number_in(table, 2, "normalized"), 0.0, 1e-6);
    assert_near(number_in(table, 1, "surprise"), 2.0, 0.0);
    assert_true(isnan(number_in(table, 0, "surprise")));
    assert_near(number_in(table, 1, "spikes"), 1.0, 0.0);
    /* Entities and the other generated tokens make up all of them. */
    assert_near(number_in(table, 3, "count"), 12.0, 0.0);
    assert_near(number_in(table, 3, "count") + number_in(table, 4, "count"), N_NEW, 0.0);
    hl_sheet_free(table);
    hl_trace_free(trace);
}

static void entities_are_whole_words(void **state)
{
    hl_trace *trace = made();
    hl_sheet *table = table_of(trace, "entities");
    (void)state;

    assert_int_equal(hl_sheet_n_rows(table), 2 + 12);
    assert_string_equal(text_in(table, 0, "text"), "Queen's");
    assert_string_equal(text_in(table, 1, "text"), "France");
    assert_string_equal(text_in(table, 2, "text"), "1865");
    assert_string_equal(text_in(table, 0, "kind"), "prompt");
    assert_string_equal(text_in(table, 2, "kind"), "generated");
    assert_near(number_in(table, 2, "token"), 7, 0.0);
    assert_near(number_in(table, 2, "entropy"), 1.07, 1e-6);
    assert_near(number_in(table, 7, "is_spike"), 1.0, 0.0); /* token 25 */
    hl_sheet_free(table);

    /* Bytes of a trace are anybody's: a terminal's commands and bad UTF-8 are not shown. */
    hl_trace *bad = NULL;
    assert_ok(hl_trace_new(&bad, 1, 1, 0));
    assert_ok(hl_trace_reserve(bad, 2));
    for (int i = 0; i < 2; i++) {
        static const char *const texts[] = { " A\xff"
                                             "b\xc2\x9b"
                                             "31m",
                                             "X\x1b[2J" };
        assert_ok(hl_trace_push(bad, i, HL_KIND_PROMPT));
        assert_ok(hl_trace_append_text(bad, texts[i], strlen(texts[i])));
        bad->entities[i] = 1;
    }
    table = table_of(bad, "entities");
    assert_string_equal(text_in(table, 0, "text"), "A\xef\xbf\xbd"
                                                   "b");
    assert_string_equal(text_in(table, 1, "text"), "X");
    hl_sheet_free(table);
    hl_trace_free(bad);
    hl_trace_free(trace);
}

static void loops_count_all_tokens(void **state)
{
    hl_trace *trace = made();
    hl_sheet *table = table_of(trace, "repetition");
    (void)state;

    assert_near(number_in(table, 0, "tokens"), N_NEW, 0.0);
    assert_near(number_in(table, 0, "period"), 7, 0.0);
    assert_near(number_in(table, 0, "loop_first"), 20, 0.0);
    assert_near(number_in(table, 0, "loop_tokens"), 26, 0.0);
    assert_near(number_in(table, 0, "distinct_1"), 21.0 / 40.0, 1e-12);
    assert_near(number_in(table, 0, "suffix"), 19, 0.0);
    assert_near(number_in(table, 0, "distance"), 7, 0.0);
    hl_sheet_free(table);
    assert_fails(HL_BAD_ARGUMENT, "'nothing'", hl_trace_analyze(&table, trace, "nothing"));
    assert_null(table);
    assert_null(hl_trace_table_name(3));
    assert_non_null(hl_trace_table_summary(2));
    hl_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_against_generated),
        cmocka_unit_test(entities_are_whole_words),
        cmocka_unit_test(loops_count_all_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
