/* test_tables.c - a table in its three forms, letter by letter. */
#include "analysis_support.h"

#include "analysis/tables.h"

static const hl_column columns[] = {
    { "head", HL_COLUMN_TEXT, 0 }, { "rows", HL_COLUMN_INT, 0 }, { "fair", HL_COLUMN_REAL, 3 },
    { "sink", HL_COLUMN_BOOL, 0 }, { "why", HL_COLUMN_TEXT, 0 }, { 0 },
};

static hl_table *small_table(void)
{
    hl_table *table = NULL;

    assert_ok(hl_table_new(&table, "heads", "Some heads", columns));
    hl_table_put_text(table, "L%dH%d", 0, 1);
    hl_table_put_int(table, 12345);
    hl_table_put_real(table, 0.1);
    hl_table_put_bool(table, true);
    hl_table_put_text(table, "says \"no\", twice");
    hl_table_put_text(table, "L10H31");
    hl_table_put_int(table, HL_NO_INT);
    hl_table_put_real(table, NAN);
    hl_table_put_bool(table, false);
    hl_table_put_text(table, "a reason that goes on for so long that it has to be wrapped at the "
                             "edge of the page");
    hl_table_put_text(table, "\xc4\xa4");
    hl_table_put_int(table, -7);
    hl_table_put_real(table, 0.00004);
    hl_table_put_bool(table, false);
    hl_table_put_text(table, "%s", "");
    hl_table_fact_real(table, "k", 3);
    hl_table_fact_text(table, "evidence", "%d trials", 20);
    assert_ok(hl_table_finish(table));
    return table;
}

static void check(hl_table_format format, const char *wanted)
{
    hl_table *table = small_table();
    char     *text  = NULL;

    assert_ok(hl_table_render(&text, table, format));
    assert_string_equal(text, wanted);
    hl_free(text);
    hl_table_free(table);
}

static void test_text(void **state)
{
    (void)state;
    check(HL_TABLE_TEXT,
          "Some heads\n"
          "\n"
          "head     rows   fair  sink  why\n"
          "L0H1    12345  0.100   yes  says \"no\", twice\n"
          "L10H31      -      -    no  a reason that goes on for so long that it has to be\n"
          "                            wrapped at the edge of the page\n"
          "\xc4\xa4          -7  4e-05    no\n"
          "\n"
          "k         3\n"
          "evidence  20 trials\n");
}

static void test_csv(void **state)
{
    (void)state;
    check(HL_TABLE_CSV, "head,rows,fair,sink,why\r\n"
                        "L0H1,12345,0.1,true,\"says \"\"no\"\", twice\"\r\n"
                        "L10H31,,,false,a reason that goes on for so long that it has to be "
                        "wrapped at the edge of the page\r\n"
                        "\xc4\xa4,-7,4e-05,false,\r\n");
}

static void test_json(void **state)
{
    hl_table *table = small_table();
    char     *text  = NULL;

    (void)state;
    assert_ok(hl_table_render(&text, table, HL_TABLE_JSON));
    assert_non_null(strstr(text, "\"table\": \"heads\""));
    assert_non_null(strstr(text, "\"rows\": null,\n   \"fair\": null,\n   \"sink\": false"));
    assert_non_null(strstr(text, "\"k\": 3.0"));
    assert_non_null(strstr(text, "\"evidence\": \"20 trials\""));
    hl_free(text);
    hl_table_free(table);
}

static void test_reading(void **state)
{
    hl_table *table = small_table();

    (void)state;
    assert_int_equal(hl_table_n_rows(table), 3);
    assert_int_equal(hl_table_n_columns(table), 5);
    assert_int_equal(hl_table_find(table, "fair"), 2);
    assert_int_equal(hl_table_find(table, "nothing"), -1);
    assert_near(hl_table_number(table, 0, 2), 0.1, 0.0);
    assert_near(hl_table_number(table, 0, 1), 12345.0, 0.0);
    assert_near(hl_table_number(table, 0, 3), 1.0, 0.0);
    assert_true(isnan(hl_table_number(table, 1, 1)) && isnan(hl_table_number(table, 1, 2)));
    assert_true(isnan(hl_table_number(table, 0, 0)));
    assert_string_equal(hl_table_text(table, 1, 0), "L10H31");
    assert_string_equal(hl_table_text(table, 1, 1), "");
    assert_near(hl_table_fact(table, "k"), 3.0, 0.0);
    assert_true(isnan(hl_table_fact(table, "evidence")));
    hl_table_free(table);
}

static void test_digits_survive_csv(void **state)
{
    static const hl_column one[]  = { { "x", HL_COLUMN_REAL, 1 }, { 0 } };
    hl_random              random = { 4 };
    hl_table              *table  = NULL;
    char                  *text   = NULL;

    (void)state;
    assert_ok(hl_table_new(&table, "x", "x", one));
    for (int i = 0; i < 1000; i++)
        hl_table_put_real(table, exp(20.0 * uniform(&random) - 10.0));
    assert_ok(hl_table_render(&text, table, HL_TABLE_CSV));
    const char *line = text;
    for (int i = 0; i < 1000; i++) {
        line = strchr(line, '\n') + 1;
        assert_true(strtod(line, NULL) == hl_table_number(table, i, 0));
    }
    hl_free(text);
    hl_table_free(table);
}

static void test_mistakes_are_kept(void **state)
{
    hl_table *table = NULL;

    (void)state;
    assert_ok(hl_table_new(&table, "heads", "", columns));
    hl_table_put_int(table, 3);
    hl_table_put_text(table, "more");
    assert_fails(HL_INTERNAL, "column head", hl_table_finish(table));
    hl_table_free(table);

    assert_ok(hl_table_new(&table, "heads", "", columns));
    hl_table_put_text(table, "one cell");
    assert_fails(HL_INTERNAL, "1 of 5", hl_table_finish(table));
    hl_table_free(table);
    hl_table_free(NULL);
}

static void test_no_rows(void **state)
{
    hl_table *table = NULL;
    char     *text  = NULL;

    (void)state;
    assert_ok(hl_table_new(&table, "heads", "Nobody", columns));
    assert_ok(hl_table_finish(table));
    assert_ok(hl_table_render(&text, table, HL_TABLE_TEXT));
    assert_string_equal(text, "Nobody\n\nnothing to show\n");
    hl_free(text);
    hl_table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_digits_survive_csv),
        cmocka_unit_test(test_mistakes_are_kept),
        cmocka_unit_test(test_no_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
