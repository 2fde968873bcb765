/* test_sheet.c - a table in its three forms, character by character. */
#include "analysis_support.h"

#include "analysis/sheet.h"

static const char columns[] = "head:t rows:i normalized:3 sink:b why:t";

static hl_sheet *small_table(void)
{
    hl_sheet *table = NULL;

    assert_ok(hl_sheet_new(&table, "heads", "Some heads", columns));
    hl_sheet_put_text(table, "L%dH%d", 0, 1);
    hl_sheet_put_int(table, 12345);
    hl_sheet_put_real(table, 0.1);
    hl_sheet_put_bool(table, true);
    hl_sheet_put_text(table, "says \"no\", twice");
    hl_sheet_put_text(table, "L10H31");
    hl_sheet_put_int(table, HL_NO_INT);
    hl_sheet_put_real(table, NAN);
    hl_sheet_put_bool(table, false);
    hl_sheet_put_text(table, "a reason that goes on for so long that it has to be wrapped at the "
                             "edge of the page");
    hl_sheet_put_text(table, "\xc4\xa4");
    hl_sheet_put_int(table, -7);
    hl_sheet_put_real(table, 0.00004);
    hl_sheet_put_bool(table, false);
    hl_sheet_put_text(table, "%s", "");
    hl_sheet_fact_real(table, "k", 3);
    hl_sheet_fact_text(table, "evidence", "%d trials", 20);
    assert_ok(hl_sheet_finish(table));
    return table;
}

static void check(hl_sheet_format format, const char *wanted)
{
    hl_sheet *table = small_table();
    char     *text  = NULL;

    assert_ok(hl_sheet_render(&text, table, format));
    assert_string_equal(text, wanted);
    hl_free(text);
    hl_sheet_free(table);
}

/* Parameters are for people: whole numbers of any size, without exponents. */
static void test_large_numbers(void **state)
{
    static const char counts[] = "params:0 score:3";
    hl_sheet         *table    = NULL;
    char             *text     = NULL;

    (void)state;
    assert_ok(hl_sheet_new(&table, "counts", "Counts", counts));
    hl_sheet_put_real(table, 10616832.0);
    hl_sheet_put_real(table, 12345678.9);
    hl_sheet_put_real(table, 999.0);
    hl_sheet_put_real(table, 1234.5);
    hl_sheet_put_real(table, -1000.0);
    hl_sheet_put_real(table, 2e20);
    hl_sheet_fact_real(table, "all", 134515008.0);
    hl_sheet_fact_real(table, "tokens", 16384.0);
    assert_ok(hl_sheet_finish(table));
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_TEXT));
    assert_string_equal(text, "Counts\n"
                              "\n"
                              "    params       score\n"
                              "10,616,832  12,345,679\n"
                              "       999    1234.500\n"
                              "    -1,000       2e+20\n"
                              "\n"
                              "all     134,515,008\n"
                              "tokens  16384\n");
    hl_free(text);
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_CSV));
    assert_non_null(strstr(text, "10616832,12345678.9")); /* for programs */
    hl_free(text);
    hl_sheet_free(table);
}

static void test_text(void **state)
{
    (void)state;
    check(HL_SHEET_TEXT,
          "Some heads\n"
          "\n"
          "head     rows  normalized  sink  why\n"
          "L0H1    12345       0.100   yes  says \"no\", twice\n"
          "L10H31      -           -    no  a reason that goes on for so long that it has\n"
          "                                 to be wrapped at the edge of the page\n"
          "\xc4\xa4          -7       4e-05    no\n"
          "\n"
          "k         3\n"
          "evidence  20 trials\n");
}

static void test_csv(void **state)
{
    (void)state;
    check(HL_SHEET_CSV, "head,rows,normalized,sink,why\r\n"
                        "L0H1,12345,0.1,true,\"says \"\"no\"\", twice\"\r\n"
                        "L10H31,,,false,a reason that goes on for so long that it has to be "
                        "wrapped at the edge of the page\r\n"
                        "\xc4\xa4,-7,4e-05,false,\r\n");
}

static void test_json(void **state)
{
    hl_sheet *table = small_table();
    char     *text  = NULL;

    (void)state;
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_JSON));
    assert_non_null(strstr(text, "\"table\": \"heads\""));
    assert_non_null(strstr(text, "\"rows\": null,\n   \"normalized\": null,\n   \"sink\": false"));
    assert_non_null(strstr(text, "\"k\": 3.0"));
    assert_non_null(strstr(text, "\"evidence\": \"20 trials\""));
    hl_free(text);
    hl_sheet_free(table);
}

static void test_reading(void **state)
{
    hl_sheet *table = small_table();

    (void)state;
    assert_int_equal(hl_sheet_n_rows(table), 3);
    assert_int_equal(hl_sheet_n_columns(table), 5);
    assert_int_equal(hl_sheet_find(table, "normalized"), 2);
    assert_int_equal(hl_sheet_find(table, "nothing"), -1);
    assert_true(isnan(hl_sheet_number(table, 0, -1)));
    assert_string_equal(hl_sheet_text(table, 0, -1), "");
    assert_near(hl_sheet_number(table, 0, 2), 0.1, 0.0);
    assert_near(hl_sheet_number(table, 0, 1), 12345.0, 0.0);
    assert_near(hl_sheet_number(table, 0, 3), 1.0, 0.0);
    assert_true(isnan(hl_sheet_number(table, 1, 1)) && isnan(hl_sheet_number(table, 1, 2)));
    assert_true(isnan(hl_sheet_number(table, 0, 0)));
    assert_string_equal(hl_sheet_text(table, 1, 0), "L10H31");
    assert_string_equal(hl_sheet_text(table, 1, 1), "");
    assert_near(hl_sheet_fact(table, "k"), 3.0, 0.0);
    assert_true(isnan(hl_sheet_fact(table, "evidence")));
    hl_sheet_free(table);
}

/* Columns after a bar are for programs; a list is one cell; a path is never broken. */
static void test_lists_and_columns_for_programs(void **state)
{
    static const char path[] =
        "a/path/that/is/longer/than/the/last/column/of/a/page/of/eighty/is/wide/"
        "and/more.txt";
    hl_sheet *table = NULL;
    char     *text  = NULL;

    (void)state;
    assert_ok(hl_sheet_new(&table, "tensors", "Tensors", "shape:l name:t | sum:2 note:t"));
    hl_sheet_put_list(table, (const int64_t[]){ 576, -1 }, 2);
    hl_sheet_put_text(table, "%s", path);
    hl_sheet_put_real(table, 0.5);
    hl_sheet_put_text(table, "hidden");
    hl_sheet_put_list(table, NULL, 0);
    hl_sheet_put_text(table, "b");
    hl_sheet_put_real(table, NAN);
    hl_sheet_put_text(table, "hidden");
    assert_ok(hl_sheet_finish(table));
    assert_string_equal(hl_sheet_text(table, 0, 0), "576,-1");
    assert_int_equal(hl_sheet_column_type(table, 0), HL_COLUMN_LIST);
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_TEXT));
    assert_non_null(strstr(text, path));
    assert_null(strstr(text, "sum"));
    assert_null(strstr(text, "hidden"));
    hl_free(text);
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_CSV));
    assert_non_null(strstr(text, "shape,name,sum,note\r\n\"576,-1\","));
    assert_non_null(strstr(text, "\r\n,b,,hidden\r\n"));
    hl_free(text);
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_JSON));
    assert_non_null(strstr(text, "\"shape\": [\n    576,\n    -1\n   ]"));
    assert_non_null(strstr(text, "\"shape\": []"));
    hl_free(text);
    hl_sheet_free(table);
    assert_fails(HL_BAD_ARGUMENT, "no columns", hl_sheet_new(&table, "t", "T", " | "));
    assert_fails(HL_BAD_ARGUMENT, "column b has no type", hl_sheet_new(&table, "t", "T", "a:1 b"));
}

static void test_digits_survive_csv(void **state)
{
    static const char one[]  = "x:1";
    hl_random         random = { 4 };
    hl_sheet         *table  = NULL;
    char             *text   = NULL;

    (void)state;
    assert_ok(hl_sheet_new(&table, "x", "x", one));
    for (int i = 0; i < 1000; i++)
        hl_sheet_put_real(table, exp(20.0 * uniform(&random) - 10.0));
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_CSV));
    const char *line = text;
    for (int i = 0; i < 1000; i++) {
        line = strchr(line, '\n') + 1;
        assert_true(strtod(line, NULL) == hl_sheet_number(table, i, 0));
    }
    hl_free(text);
    hl_sheet_free(table);
}

static void test_mistakes_are_kept(void **state)
{
    hl_sheet *table = NULL;

    (void)state;
    assert_ok(hl_sheet_new(&table, "heads", "", columns));
    hl_sheet_put_int(table, 3);
    hl_sheet_put_text(table, "more");
    assert_fails(HL_INTERNAL, "column head", hl_sheet_finish(table));
    hl_sheet_free(table);

    assert_ok(hl_sheet_new(&table, "heads", "", columns));
    hl_sheet_put_text(table, "one cell");
    assert_fails(HL_INTERNAL, "1 of 5", hl_sheet_finish(table));
    hl_sheet_free(table);
    hl_sheet_free(NULL);
}

static void test_no_rows(void **state)
{
    hl_sheet *table = NULL;
    char     *text  = NULL;

    (void)state;
    assert_ok(hl_sheet_new(&table, "heads", "Nobody", columns));
    assert_ok(hl_sheet_finish(table));
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_TEXT));
    assert_string_equal(text, "Nobody\n\nnothing to show\n");
    hl_free(text);
    hl_sheet_free(table);
}

/* Names in cells come from files: neither a terminal nor a spreadsheet may interpret them. */
static void foreign_text_is_harmless(void **state)
{
    (void)state;
    static const char  one[]   = "name:t";
    static const char *names[] = {
        "=1+2", "+a,b", "-x", "@y", "\tz", "\x1b[2J", "\u202eabc", "a=b"
    };
    hl_sheet *table = NULL;
    char     *text  = NULL;

    assert_ok(hl_sheet_new(&table, "t", "T", one));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hl_sheet_put_text(table, "%s", names[i]);
    hl_sheet_fact_text(table, "context", "%s", "5\n\xc2\x9b");
    assert_ok(hl_sheet_finish(table));
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_CSV));
    assert_string_equal(text, "name\r\n'=1+2\r\n\"'+a,b\"\r\n'-x\r\n'@y\r\n\\x09z\r\n\\x1b[2J\r\n"
                              "\\u202eabc\r\na=b\r\n");
    hl_free(text);
    assert_ok(hl_sheet_render(&text, table, HL_SHEET_TEXT));
    assert_string_equal(text, "T\n\nname\n=1+2\n+a,b\n-x\n@y\n\\x09z\n\\x1b[2J\n\\u202eabc\na=b\n"
                              "\ncontext  5\\x0a\\x9b\n");
    hl_free(text);
    hl_sheet_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_text),
        cmocka_unit_test(foreign_text_is_harmless),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_lists_and_columns_for_programs),
        cmocka_unit_test(test_digits_survive_csv),
        cmocka_unit_test(test_mistakes_are_kept),
        cmocka_unit_test(test_no_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
