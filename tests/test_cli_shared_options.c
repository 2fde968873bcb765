/* test_cli_shared_options.c - the options for texts, parsed as a command does. */
#include "support.h"

#include "command.h"
#include "shared_options.h"

enum { MAX_WORDS = 48 };

typedef struct parsed {
    hl_corpus_arguments text;
    hl_common           common;
    hl_arguments        rest;
    char                words[1024];
    char               *argv[MAX_WORDS];
} parsed;

/* Parses "measure" and a line that is split at spaces. */
static int parse(parsed *out, const char *line)
{
    hl_option options[] = { HL_CORPUS_OPTIONS(&out->text), { 0 } };
    hl_usage  usage     = { "measure", "TEXT...", "", options };
    int       argc      = 0;

    memset(out, 0, sizeof *out);
    snprintf(out->words, sizeof out->words, "measure %s", line);
    for (char *word = strtok(out->words, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(argc < MAX_WORDS);
        out->argv[argc++] = word;
    }
    int code = hl_options_parse(&out->rest, &out->common, &usage, argc, out->argv);
    if (code != HL_EXIT_OK)
        return code;
    return hl_corpus_options_finish(&out->text, &usage, &out->common, out->rest.items,
                                    out->rest.count);
}

static void everything_arrives(void **state)
{
    (void)state;
    parsed p;

    assert_int_equal(parse(&p, "a.txt -c 512 --stride=256 --batch 4 --max-tokens 1000 --pack "
                               "--part 2/8 --sample 10 --seed 7 --field body --format jsonl "
                               "--type a=x --type b=y b.txt"),
                     HL_EXIT_OK);
    const hl_window_options *windows = &p.text.windows;
    const hl_corpus_options *corpus  = &p.text.corpus;
    assert_int_equal(windows->n_ctx, 512);
    assert_int_equal(windows->stride, 256);
    assert_int_equal(windows->n_batch, 4);
    assert_int_equal(windows->max_tokens, 1000);
    assert_true(windows->pack);
    assert_int_equal(windows->part, 1);
    assert_int_equal(windows->n_parts, 8);
    assert_int_equal(corpus->n_sample, 10);
    assert_int_equal(corpus->seed, 7);
    assert_string_equal(corpus->field, "body");
    assert_int_equal(corpus->format, HL_TEXT_JSONL);
    assert_int_equal(corpus->n_types, 2);
    assert_string_equal(corpus->types[0], "a=x");
    assert_string_equal(corpus->types[1], "b=y");
    assert_int_equal(corpus->n_inputs, 2);
    assert_string_equal(corpus->inputs[1], "b.txt");
}

static void nothing_is_the_default(void **state)
{
    (void)state;
    parsed p;

    assert_int_equal(parse(&p, "-"), HL_EXIT_OK);
    assert_int_equal(p.text.windows.n_ctx, 0);
    assert_int_equal(p.text.windows.n_parts, 0);
    assert_int_equal(p.text.corpus.format, HL_TEXT_AUTO);
    assert_string_equal(p.text.corpus.inputs[0], "-");
    assert_int_equal(parse(&p, "--token-ids ids.npy"), HL_EXIT_OK);
    assert_string_equal(p.text.corpus.token_ids, "ids.npy");
    assert_int_equal(p.text.corpus.n_inputs, 0);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "a.txt --token-ids b",
        "a.txt --part 0/4",
        "a.txt --part 5/4",
        "a.txt --part 1",
        "a.txt --part x/4",
        "a.txt --part 1/4x",
        "a.txt --part 1/99999999999999999999",
        "a.txt --context 8 --stride 9",
        "a.txt --context 0",
        "a.txt --sample 0",
        "a.txt --format json",
    };
    char   many[1024] = "a.txt";
    parsed p;

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(parse(&p, lines[i]), HL_EXIT_USAGE);
    for (int i = 0; i <= HL_MAX_OPTION_LIST; i++)
        strcat(many, " --type=a=b");
    assert_int_equal(parse(&p, many), HL_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives),
        cmocka_unit_test(nothing_is_the_default),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
