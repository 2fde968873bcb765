/* test_tokenize_gguf.c - tokenizers from GGUF files and from tokenizer.bin.
 *
 * NAME.gguf.inp holds texts, NAME.gguf.out the ids of the models' own tokenizers, one line for each
 * text.  If only these two exist, the vocabulary is one of the tokenizer.json files. */
#include "tokenize_support.h"

#include "tokenize/vocab_source.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static void check_line(const hl_tokenizer *tokenizer, const char *text, size_t n_bytes, char *line)
{
    hl_encoding *encoding = encode(tokenizer, text, n_bytes, false);
    size_t       count    = 0;

    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "), count++) {
        if (count < encoding->n_tokens && encoding->ids[count] != atoi(word))
            fail_msg("'%.*s': token %zu is %d, wanted %s", (int)n_bytes, text, count,
                     (int)encoding->ids[count], word);
    }
    if (encoding->n_tokens != count)
        fail_msg("'%.*s': %zu tokens, wanted %zu", (int)n_bytes, text, encoding->n_tokens, count);
    hl_encoding_free(encoding);
}

/* Compares all texts; returns their number. */
static int check_pairs(const char *tokenizer_path, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tokenizers/gguf-vocab/ggml-vocab-%s.gguf.inp", name);
    size_t n_texts = 0, n_ids = 0;
    char  *texts = read_file(shared_path(path), &n_texts);
    memcpy(path + strlen(path) - 3, "out", 3);
    char         *ids       = read_file(shared_path(path), &n_ids);
    hl_tokenizer *tokenizer = open_tokenizer(tokenizer_path);
    char         *line      = ids;
    int           count     = 0;

    for (char *text = texts; text != NULL; count++) {
        char  *end      = strstr(text, SEPARATOR);
        size_t n_bytes  = end != NULL ? (size_t)(end - text) : n_texts - (size_t)(text - texts);
        char  *line_end = strchr(line, '\n');
        if (line_end == NULL)
            break; /* nothing follows the last separator */
        *line_end = '\0';
        check_line(tokenizer, text, n_bytes, line);
        line = line_end + 1;
        text = end != NULL ? end + strlen(SEPARATOR) : NULL;
    }
    free(texts);
    free(ids);
    hl_tokenizer_close(tokenizer);
    return count;
}

static void check_vocabulary(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tokenizers/gguf-vocab/ggml-vocab-%s.gguf", name);
    assert_true(check_pairs(shared_path(path), name) >= 40);
}

#define VOCABULARY_TEST(function, name)                                                            \
    static void function(void **state)                                                             \
    {                                                                                              \
        (void)state;                                                                               \
        check_vocabulary(name);                                                                    \
    }
VOCABULARY_TEST(gpt_2, "gpt-2")
VOCABULARY_TEST(falcon, "falcon")
VOCABULARY_TEST(starcoder, "starcoder")
VOCABULARY_TEST(llama_spm, "llama-spm")
VOCABULARY_TEST(phi_3, "phi-3")
VOCABULARY_TEST(bert_bge, "bert-bge")

static void llama_bpe(void **state)
{
    (void)state;
    assert_true(check_pairs(shared_path("tokenizers/llama3_2"), "llama-bpe") >= 40);
}

static void qwen2(void **state)
{
    (void)state;
    assert_true(check_pairs(shared_path("tokenizers/qwen2_5"), "qwen2") >= 40);
    assert_true(check_pairs(shared_path("tokenizers/qwen2_5"), "deepseek-r1-qwen") >= 40);
}

/* GPT-2's vocabulary exists in both formats: they must agree on everything. */
static void both_gpt2_files_agree(void **state)
{
    (void)state;
    const char   *gguf    = shared_path("tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf");
    hl_tokenizer *one     = open_tokenizer(gguf);
    hl_tokenizer *two     = open_tokenizer(shared_path("tokenizers/gpt2/tokenizer.json"));
    size_t        n_bytes = 0;
    char         *text    = read_file(shared_path("corpora/tinyshakespeare/input.txt"), &n_bytes);
    hl_encoding  *a       = encode(one, text, n_bytes, false);
    hl_encoding  *b       = encode(two, text, n_bytes, false);

    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
    assert_memory_equal(a->spans, b->spans, a->n_tokens * sizeof *a->spans);
    hl_encoding_free(a);
    hl_encoding_free(b);
    free(text);
    hl_tokenizer_close(one);
    hl_tokenizer_close(two);
}

/* llama2.c's tokenizer.bin and the GGUF file of the same model agree. */
static void stories_agree(void **state)
{
    (void)state;
    hl_tokenizer *bin     = open_tokenizer(shared_path("models/stories260K/tok512.bin"));
    hl_tokenizer *gguf    = open_tokenizer(shared_path("models/stories260K/stories260K.gguf"));
    size_t        n_bytes = 0;
    char         *text =
        read_file(shared_path("corpora/tinystories/tinystories_sample_2MiB.txt"), &n_bytes);
    hl_encoding *a         = encode(bin, text, 100000, true);
    hl_encoding *b         = encode(gguf, text, 100000, true);
    char        *decoded   = NULL;
    size_t       n_decoded = 0;

    assert_int_equal(hl_tokenizer_size(bin), 512);
    assert_int_equal(a->ids[0], 1);
    assert_int_equal(a->types[0], HL_TOKEN_SPECIAL);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
    assert_ok(hl_tokenizer_decode(&decoded, &n_decoded, bin, a->ids, a->n_tokens,
                                  &(hl_decode_options){ .skip_special = true }));
    assert_int_equal(n_decoded, 100000);
    assert_memory_equal(decoded, text, n_decoded);
    hl_free(decoded);
    hl_encoding_free(a);
    hl_encoding_free(b);
    free(text);
    hl_tokenizer_close(bin);
    hl_tokenizer_close(gguf);
}

/* ------------------------------------------------- without the shared material */

static const hl_bytes llama_pieces[] = {
    { "<unk>", 5 },
    { "<s>", 3 },
    { "</s>", 4 },
    { "\xe2\x96\x81", 3 },
    { "a", 1 },
    { "b", 1 },
    { "ab", 2 },
    { "\xe2\x96\x81"
      "a",
      4 },
    { "\xe2\x96\x81"
      "ab",
      5 },
    { "ba", 2 },
};
static const float   llama_scores[] = { 0, 0, 0, -1, -2, -3, -6, -5, -7, -4 };
static const int32_t llama_types[]  = { 2, 3, 3, 1, 1, 1, 1, 1, 1, 1 };

static hl_vocab_source llama_source(void)
{
    hl_vocab_source source         = hl_vocab_source_empty();
    source.model                   = "llama";
    source.tokens                  = llama_pieces;
    source.scores                  = llama_scores;
    source.types                   = llama_types;
    source.n_tokens                = sizeof llama_pieces / sizeof *llama_pieces;
    source.special[HL_SPECIAL_UNK] = 0;
    source.special[HL_SPECIAL_BOS] = 1;
    source.special[HL_SPECIAL_EOS] = 2;
    source.where                   = "test";
    return source;
}

/* The merge with the best score comes first: ba (-4) before ▁a (-5) before ab (-6). */
static void scores_order_the_merges(void **state)
{
    (void)state;
    hl_vocab_source source    = llama_source();
    hl_tokenizer   *tokenizer = NULL;

    assert_ok(hl_tokenizer_from_source(&tokenizer, &source));
    assert_ids(tokenizer, "ab", IDS(8));
    assert_ids(tokenizer, "ba", IDS(3, 9));
    assert_ids(tokenizer, "aba", IDS(7, 9));
    assert_ids(tokenizer, "a ab", IDS(7, 8));
    assert_ids(tokenizer, "a x", IDS(7, 3, 0));
    assert_ids(tokenizer, "<s>ab", IDS(1, 8));
    assert_int_equal(hl_tokenizer_special(tokenizer, HL_SPECIAL_EOS), 2);
    assert_int_equal(hl_tokenizer_special(tokenizer, HL_SPECIAL_MASK), -1);
    hl_tokenizer_close(tokenizer);

    source.add_space_prefix = 0;
    source.add_eos          = 1;
    assert_ok(hl_tokenizer_from_source(&tokenizer, &source));
    assert_ids(tokenizer, "ba", IDS(9));
    hl_encoding *encoding = encode(tokenizer, "ba", 2, true);
    assert_int_equal(encoding->n_tokens, 3);
    assert_int_equal(encoding->ids[0], 1);
    assert_int_equal(encoding->ids[2], 2);
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
}

/* For pieces with equal scores, the leftmost pair is merged first, whatever its id.  Ids from
 * SentencePiece 0.2. */
static void equal_scores_merge_from_the_left(void **state)
{
    (void)state;
    static const char *const spellings[] = { "<unk>", "<s>", "</s>", "\xe2\x96\x81", "a",  "b",
                                             "c",     "ab",  "ba",   "bc",           "abc" };
    static const float       scores[]    = { 0, 0, 0, -1, -2, -3, -3, -4, -4, -4, -9 };
    static const int32_t     types[]     = { 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1 };
    hl_bytes                 pieces[11];
    hl_vocab_source          source    = llama_source();
    hl_tokenizer            *tokenizer = NULL;

    for (int i = 0; i < 11; i++)
        pieces[i] = (hl_bytes){ spellings[i], strlen(spellings[i]) };
    source.tokens           = pieces;
    source.scores           = scores;
    source.types            = types;
    source.n_tokens         = 11;
    source.add_space_prefix = 0;
    assert_ok(hl_tokenizer_from_source(&tokenizer, &source));
    assert_ids(tokenizer, "aba", IDS(7, 4));
    assert_ids(tokenizer, "bab", IDS(8, 5));
    assert_ids(tokenizer, "abc", IDS(10));
    assert_ids(tokenizer, "babc", IDS(8, 9));
    assert_ids(tokenizer, "ababab", IDS(7, 7, 7));
    assert_ids(tokenizer, "cbabc", IDS(6, 8, 9));
    hl_tokenizer_close(tokenizer);
}

static void sources_are_checked(void **state)
{
    (void)state;
    hl_vocab_source source    = llama_source();
    hl_tokenizer   *tokenizer = NULL;

    source.model = "rwkv";
    assert_fails(HL_UNSUPPORTED, "test: the tokenizer model 'rwkv' is not known",
                 hl_tokenizer_from_source(&tokenizer, &source));
    source.model = "gpt2";
    source.pre   = "no-such-thing";
    assert_fails(HL_UNSUPPORTED, "the pre-tokenizer 'no-such-thing' is not known",
                 hl_tokenizer_from_source(&tokenizer, &source));
    source                         = llama_source();
    source.special[HL_SPECIAL_BOS] = 10;
    assert_fails(HL_BAD_INPUT, "special token 10, but there are 10 tokens",
                 hl_tokenizer_from_source(&tokenizer, &source));
    hl_bytes merges[] = { { "ab", 2 } };
    source            = llama_source();
    source.model      = "gpt2";
    source.merges     = merges;
    source.n_merges   = 1;
    assert_fails(HL_BAD_INPUT, "test: merge 0 is not two pieces and a space",
                 hl_tokenizer_from_source(&tokenizer, &source));
    assert_null(tokenizer);
}

static void pre_tokenizers_have_names(void **state)
{
    (void)state;
    static const char *const known[] = {
        "llama-bpe",    "gpt-2",          "qwen2",     "falcon",      "starcoder",
        "refact",       "command-r",      "mpt",       "smollm",      "default",
        "deepseek-llm", "deepseek-coder", "tekken",    "deepseek-v3", "gpt-4o",
        "olmo",         "dbrx",           "stablelm2", "bloom",       "chameleon"
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        hl_vocab_source source    = llama_source();
        hl_tokenizer   *tokenizer = NULL;
        source.model              = "gpt2";
        source.pre                = known[i];
        assert_ok(hl_tokenizer_from_source(&tokenizer, &source));
        hl_tokenizer_close(tokenizer);
    }
    assert_null(hl_pre_find("gpt"));
    assert_null(hl_pre_find(""));
    assert_null(hl_pre_find("gpt-2 gpt2"));
    assert_null(hl_pre_find("llama"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_order_the_merges),
        cmocka_unit_test(equal_scores_merge_from_the_left),
        cmocka_unit_test(sources_are_checked),
        cmocka_unit_test(pre_tokenizers_have_names),
        cmocka_unit_test(gpt_2),
        cmocka_unit_test(falcon),
        cmocka_unit_test(starcoder),
        cmocka_unit_test(llama_spm),
        cmocka_unit_test(phi_3),
        cmocka_unit_test(bert_bge),
        cmocka_unit_test(llama_bpe),
        cmocka_unit_test(qwen2),
        cmocka_unit_test(both_gpt2_files_agree),
        cmocka_unit_test(stories_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
