/* test_patterns.c - complete matrices of attention, against transformers. */
#include "analysis_support.h"
#include "model_support.h"

#include <string.h>

#include "formats/safetensors.h"

static const char *const folders[] = { "tests/data/families/gpt_neox", "tests/data/families/llama3",
                                       "tests/data/families/phi3",
                                       "tests/data/families/starcoder2" };
enum { N_FOLDERS = sizeof folders / sizeof *folders };

typedef struct golden {
    int64_t tokens[64];           /* (2, n) */
    float   pattern[8 * 32 * 32]; /* (n_heads, n, n) of layer 0 and sequence 0 */
    int64_t n_heads;
    int64_t n;
} golden;

static void read_golden(golden *out, const char *folder)
{
    hl_safetensors *file = NULL;

    assert_ok(hl_safetensors_open(&file, in_folder(folder, "expected.safetensors")));
    const hl_tensor *pattern = hl_safetensors_find(file, "pattern0");
    const hl_tensor *tokens  = hl_safetensors_find(file, "tokens");
    assert_true(pattern->n_bytes <= sizeof out->pattern && tokens->n_bytes <= sizeof out->tokens);
    memcpy(out->pattern, pattern->data, pattern->n_bytes);
    memcpy(out->tokens, tokens->data, tokens->n_bytes);
    out->n_heads = pattern->shape[0];
    out->n       = pattern->shape[1];
    hl_safetensors_close(file);
}

static void check_family(const char *folder)
{
    static golden g;
    hl_model     *model    = NULL;
    hl_patterns  *patterns = NULL;

    read_golden(&g, folder);
    assert_ok(hl_model_open(&model, folder));
    assert_ok(hl_patterns_of(&patterns, model, g.tokens, g.n, 1));
    assert_int_equal(patterns->n_tokens, g.n);
    assert_int_equal(patterns->n_heads, g.n_heads);
    assert_memory_equal(patterns->tokens, g.tokens, (size_t)g.n * sizeof *g.tokens);
    for (int64_t i = 0; i < g.n_heads * g.n * g.n; i++) {
        if (!(fabsf(patterns->values[i] - g.pattern[i]) <= 1e-5f))
            fail_msg("%s: %g at %lld, wanted %g", folder, (double)patterns->values[i], (long long)i,
                     (double)g.pattern[i]);
    }
    hl_patterns_free(patterns);
    hl_model_close(model);
}

static void test_golden(void **state)
{
    (void)state;
    for (int i = 0; i < N_FOLDERS; i++)
        check_family(folders[i]);
}

/* Families with encoders, windows, sinks, ALiBi and soft-caps. */
static void test_other_families(void **state)
{
    static const char *const names[] = { "bert",    "bloom",   "gemma2", "gpt_oss", "mistral",
                                         "mixtral", "gpt_neo", "falcon", "qwen3" };

    (void)state;
    if (!path_exists(in_shared("golden/families")))
        skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_family(in_folder(in_shared("golden/families"), names[i]));
}

/* Every row of every layer sums to 1, with 0 for later keys. */
static void test_rows(void **state)
{
    static golden g;
    hl_model     *model    = NULL;
    hl_patterns  *patterns = NULL;

    (void)state;
    read_golden(&g, folders[1]);
    assert_ok(hl_model_open(&model, folders[1]));
    assert_ok(hl_patterns_of(&patterns, model, g.tokens, 17, 2));
    for (int64_t row = 0; row < patterns->n_layers * patterns->n_heads * 17; row++) {
        double total = 0.0;
        for (int64_t key = 0; key < 17; key++) {
            total += (double)patterns->values[row * 17 + key];
            assert_true(key <= row % 17 || patterns->values[row * 17 + key] == 0.0f);
        }
        assert_near(total, 1.0, 1e-5);
    }
    hl_patterns_free(patterns);
    assert_fails(HL_BAD_ARGUMENT, "patterns of 0 tokens",
                 hl_patterns_of(&patterns, model, g.tokens, 0, 1));
    assert_null(patterns);
    assert_fails(HL_BAD_ARGUMENT, "wanted 1 to 512",
                 hl_patterns_of(&patterns, model, g.tokens, 513, 1));
    hl_model_close(model);
}

/* The first tokens of a text are those of its tokenizer. */
static void test_corpus(void **state)
{
    const char       *text      = "models/text/alice.txt";
    hl_model         *model     = NULL;
    hl_tokenizer     *tokenizer = NULL;
    hl_corpus        *corpus    = NULL;
    hl_patterns      *patterns = NULL, *same = NULL;
    hl_corpus_options options  = { .inputs = &text, .n_inputs = 1 };
    int64_t           known[2] = { 0 };

    (void)state;
    assert_ok(hl_model_open(&model, "models/demo"));
    assert_ok(hl_tokenizer_open(&tokenizer, "models/demo"));
    assert_ok(hl_corpus_open(&corpus, model, tokenizer, &options));
    assert_ok(hl_patterns_measure(&patterns, model, corpus, NULL));
    assert_int_equal(patterns->n_tokens, 32);
    hl_safetensors *file = NULL;
    assert_ok(hl_safetensors_open(&file, "models/demo/expected.safetensors"));
    memcpy(known, hl_safetensors_find(file, "tokens")->data, sizeof known);
    assert_memory_equal(patterns->tokens, known, sizeof known);
    assert_ok(hl_patterns_of(&same, model, patterns->tokens, 32, 1));
    assert_memory_equal(patterns->values, same->values,
                        (size_t)(8 * 8 * 32 * 32) * sizeof *same->values);
    hl_safetensors_close(file);
    hl_patterns_free(same);
    hl_patterns_free(patterns);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_other_families),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_corpus),
    };

    return cmocka_run_group_tests_name("patterns", tests, NULL, NULL);
}
