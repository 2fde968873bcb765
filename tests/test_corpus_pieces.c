/* test_corpus_pieces.c - a text tokenized in pieces has the tokens of the whole. */
#include "tokenize_support.h"

#include "base/hash.h"
#include "measure/corpus_parts.h"

/* Joins all pieces and compares them, token by token, with the whole. */
static void compare(const hl_tokenizer *tokenizer, const hl_text_input *input, const char *text,
                    size_t n_bytes, size_t n_overlap, int *n_pieces)
{
    hl_encoding    *whole  = encode(tokenizer, text, input->n_bytes, false);
    hl_text_pieces *pieces = NULL;
    hl_text_piece   piece  = { 0 };
    size_t          n      = 0;

    assert_ok(
        hl_text_pieces_new(&pieces, tokenizer, &(hl_encode_options){ 0 }, n_bytes, n_overlap));
    for (int round = 0; round < 2; round++) { /* the second round reuses all buffers */
        hl_text_pieces_start(pieces, input);
        *n_pieces = 0;
        n         = 0;
        do {
            assert_ok(hl_text_pieces_next(&piece, pieces));
            for (size_t i = piece.begin; i < piece.end; i++, n++) {
                hl_span span = piece.encoding->spans[i];
                assert_true(n < whole->n_tokens);
                if (piece.encoding->ids[i] != whole->ids[n] ||
                    piece.at + span.end != whole->spans[n].end)
                    fail_msg("token %zu, byte %zu: %d, wanted %d", n, whole->spans[n].begin,
                             piece.encoding->ids[i], whole->ids[n]);
                assert_memory_equal(piece.text + span.begin, text + whole->spans[n].begin,
                                    span.end - span.begin);
            }
            ++*n_pieces;
        } while (!piece.last);
        assert_int_equal(n, whole->n_tokens);
        assert_true(hl_text_pieces_hash(pieces) == hl_hash(text, input->n_bytes, 0));
    }
    hl_text_pieces_free(pieces);
    hl_encoding_free(whole);
}

static int compare_text(const hl_tokenizer *tokenizer, const char *text, size_t n_text,
                        size_t n_bytes, size_t n_overlap)
{
    hl_text_input input    = { .memory = text, .n_bytes = n_text };
    int           n_pieces = 0;

    compare(tokenizer, &input, text, n_bytes, n_overlap, &n_pieces);
    return n_pieces;
}

/* Makes words of all lengths and kinds from a fixed generator. */
static size_t make_text(char *out, size_t n_bytes)
{
    static const char *const words[] = {
        "the",     " and",  "  ",   "\n",     "\n\n",          "Hello",       ", ",
        "1234567", "don't", "über", " 世界 ", " мир",          "☃",           "\t",
        "e\u0301", ". ",    " a",   "-----",  "<|endoftext|>", " wordpieces", "[CLS]",
        " \u00a0", "🙂",  "ﬁ",    "x=y",    "    return",
    };
    uint64_t state = 12345;
    size_t   n     = 0;

    for (;;) {
        state            = hl_hash_pair(state, 1);
        const char *word = words[state % (sizeof words / sizeof *words)];
        if (n + strlen(word) > n_bytes)
            return n;
        memcpy(out + n, word, strlen(word));
        n += strlen(word);
        if (state >> 32 & 1)
            out[n - 1 + (n < n_bytes)] = ' ', n += n < n_bytes;
    }
}

static const char *const small[] = { SMALL_TOKENIZERS "/small-bpe",
                                     SMALL_TOKENIZERS "/small-unigram",
                                     SMALL_TOKENIZERS "/small-wordpiece", "models/demo" };

static void every_small_tokenizer(void **state)
{
    (void)state;
    char  *text   = malloc(60000);
    size_t n_text = make_text(text, 60000);

    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        hl_tokenizer *tokenizer = open_tokenizer(small[i]);
        assert_true(compare_text(tokenizer, text, n_text, 4096, 1024) > 10);
        assert_true(compare_text(tokenizer, text, n_text, 1021, 509) > 10);
        assert_int_equal(compare_text(tokenizer, text, n_text, 100000, 1024), 1);
        hl_tokenizer_close(tokenizer);
    }
    free(text);
}

static void short_texts_and_edges(void **state)
{
    (void)state;
    static const char text[]    = "a bc déf gh. ijk lmnop qrs tuv wxyz ☃☃ end";
    hl_tokenizer     *tokenizer = open_tokenizer(small[0]);

    for (size_t n = 0; n < sizeof text; n++) {
        if (n < sizeof text - 1 && ((unsigned char)text[n] & 0xc0) == 0x80)
            continue; /* skips places inside a character */
        compare_text(tokenizer, text, n, 8, 4);
        compare_text(tokenizer, text, n, 40, 20);
    }
    hl_tokenizer_close(tokenizer);
}

/* A word without an end: no two pieces can agree, and one piece takes all of it. */
static void a_word_as_long_as_the_text(void **state)
{
    (void)state;
    char *text = malloc(20000);

    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        hl_tokenizer *tokenizer = open_tokenizer(small[i]);
        for (size_t k = 0; k < 20000; k++)
            text[k] = (char)('a' + hl_hash_pair(k, 9) % 26);
        compare_text(tokenizer, text, 20000, 1024, 256);
        memset(text, '7', 20000);
        compare_text(tokenizer, text, 20000, 1024, 256);
        hl_tokenizer_close(tokenizer);
    }
    free(text);
}

static void from_a_file_behind_other_bytes(void **state)
{
    (void)state;
    const char    *folder   = new_folder();
    char          *text     = malloc(30000);
    hl_text_file   file     = { .path = (char *)in_folder(folder, "text"), .descriptor = -1 };
    hl_text_source source   = { 0 };
    int            n_pieces = 0;

    memcpy(text, "123", 3);
    size_t n_text = make_text(text + 3, 29997);
    write_file(file.path, text, n_text + 3);
    assert_ok(hl_text_source_open(&source, &file));
    hl_text_input input     = { .source = &source, .at = 3, .n_bytes = n_text };
    hl_tokenizer *tokenizer = open_tokenizer(small[0]);
    compare(tokenizer, &input, text + 3, 4096, 1024, &n_pieces);
    assert_true(n_pieces > 5);
    hl_tokenizer_close(tokenizer);
    hl_text_source_close(&source);
    remove_folder(folder);
    free(text);
}

static void what_is_not_utf8_is_refused(void **state)
{
    (void)state;
    hl_tokenizer   *tokenizer = open_tokenizer(small[0]);
    hl_text_pieces *pieces    = NULL;
    hl_text_piece   piece     = { 0 };
    hl_text_input   input     = { .memory = "ab\xff", .n_bytes = 3 };

    assert_ok(hl_text_pieces_new(&pieces, tokenizer, &(hl_encode_options){ 0 }, 64, 16));
    hl_text_pieces_start(pieces, &input);
    assert_fails(HL_BAD_INPUT, "byte 2 is no longer UTF-8", hl_text_pieces_next(&piece, pieces));
    hl_text_pieces_free(pieces);
    hl_text_pieces_free(NULL);
    hl_tokenizer_close(tokenizer);
}

/* Real tokenizers on real text of many languages, at the real sizes and at small ones. */
static void real_tokenizers_on_real_text(void **state)
{
    (void)state;
    static const char *const real[]  = { "tokenizers/gpt2", "tokenizers/llama2",
                                         "tokenizers/llama3_2", "tokenizers/qwen2_5" };
    static const char *const texts[] = { "corpora/tinyshakespeare/input.txt",
                                         "corpora/udhr/tha.txt", "corpora/udhr/jpn.txt",
                                         "corpora/udhr/arb.txt", "corpora/udhr/hin.txt" };
    shared_path(texts[0]);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        hl_tokenizer *tokenizer = open_tokenizer(shared_path(real[i]));
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            size_t n_text = 0;
            char  *text   = read_file(shared_path(texts[k]), &n_text);
            if (k == 0)
                compare_text(tokenizer, text, n_text, HL_PIECE_BYTES, HL_PIECE_OVERLAP);
            size_t n_some = n_text < 20000 ? n_text : 20000;
            while (n_some < n_text && ((unsigned char)text[n_some] & 0xc0) == 0x80)
                n_some++; /* whole characters only */
            compare_text(tokenizer, text, n_some, 4096, 1024);
            free(text);
        }
        hl_tokenizer_close(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_tokenizer),
        cmocka_unit_test(short_texts_and_edges),
        cmocka_unit_test(a_word_as_long_as_the_text),
        cmocka_unit_test(from_a_file_behind_other_bytes),
        cmocka_unit_test(what_is_not_utf8_is_refused),
        cmocka_unit_test(real_tokenizers_on_real_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
