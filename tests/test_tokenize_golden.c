/* test_tokenize_golden.c - exactly the results of Hugging Face's tokenizers.
 *
 * NAME.json holds texts with ids, pieces, spans (in characters), the decoded text and the ids with
 * special tokens around them. */
#include "tokenize_support.h"

#include "base/utf8.h"

/* Counts the characters before this byte. */
static size_t count_characters(const char *text, size_t n_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < n_bytes; i++)
        count += !hl_utf8_is_continuation(text[i]);
    return count;
}

static json_int_t integer_at(const json_t *array, size_t index)
{
    return json_integer_value(json_array_get(array, index));
}

static void check_ids(const hl_encoding *encoding, const json_t *wanted, const char *text)
{
    size_t n_wanted = json_array_size(wanted);

    for (size_t i = 0; i < encoding->n_tokens && i < n_wanted; i++) {
        if (encoding->ids[i] != integer_at(wanted, i))
            fail_msg("'%s': token %zu is %d, wanted %d", text, i, (int)encoding->ids[i],
                     (int)integer_at(wanted, i));
    }
    if (encoding->n_tokens != n_wanted)
        fail_msg("'%s': %zu tokens, wanted %zu", text, encoding->n_tokens, n_wanted);
}

static void check_spans(const hl_encoding *encoding, const json_t *wanted, const char *text)
{
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        const json_t *pair  = json_array_get(wanted, i);
        size_t        begin = count_characters(text, encoding->spans[i].begin);
        size_t        end   = count_characters(text, encoding->spans[i].end);
        if ((json_int_t)begin != integer_at(pair, 0) || (json_int_t)end != integer_at(pair, 1))
            fail_msg("'%s': token %zu spans [%zu, %zu], wanted [%d, %d]", text, i, begin, end,
                     (int)integer_at(pair, 0), (int)integer_at(pair, 1));
    }
}

static void check_decoded(const hl_tokenizer *tokenizer, const hl_encoding *encoding,
                          const json_t *wanted, const char *text)
{
    char  *decoded = NULL;
    size_t n_bytes = 0;

    assert_ok(hl_tokenizer_decode(&decoded, &n_bytes, tokenizer, encoding->ids, encoding->n_tokens,
                                  NULL));
    if (n_bytes != json_string_length(wanted) ||
        memcmp(decoded, json_string_value(wanted), n_bytes) != 0)
        fail_msg("'%s': decoded as '%s', wanted '%s'", text, decoded, json_string_value(wanted));
    hl_free(decoded);
}

/* Compares pieces: they are spelled as in the vocabulary, an unknown one as the text that it stands
 * for. */
static void check_pieces(const hl_tokenizer *tokenizer, const hl_encoding *encoding,
                         const json_t *wanted, const char *text)
{
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        const json_t *piece   = json_array_get(wanted, i);
        size_t        n_bytes = 0;
        const char   *seen    = hl_tokenizer_piece(tokenizer, encoding->ids[i], &n_bytes);
        if (encoding->types[i] == HL_TOKEN_UNKNOWN || encoding->types[i] == HL_TOKEN_SPECIAL)
            continue;
        if (n_bytes != json_string_length(piece) ||
            memcmp(seen, json_string_value(piece), n_bytes) != 0)
            fail_msg("'%s': piece %zu is '%s', wanted '%s'", text, i, seen,
                     json_string_value(piece));
    }
}

static void check_vector(const hl_tokenizer *tokenizer, const json_t *vector)
{
    const json_t *text     = json_object_get(vector, "text");
    const char   *bytes    = json_string_value(text);
    size_t        n_bytes  = json_string_length(text);
    hl_encoding  *encoding = encode(tokenizer, bytes, n_bytes, false);

    check_ids(encoding, json_object_get(vector, "ids"), bytes);
    check_spans(encoding, json_object_get(vector, "offsets"), bytes);
    check_pieces(tokenizer, encoding, json_object_get(vector, "tokens"), bytes);
    check_decoded(tokenizer, encoding, json_object_get(vector, "decoded"), bytes);
    hl_encoding_free(encoding);

    encoding = encode(tokenizer, bytes, n_bytes, true);
    check_ids(encoding, json_object_get(vector, "with_special"), bytes);
    hl_encoding_free(encoding);
}

static void check_golden(const char *tokenizer_path, const char *vectors_path)
{
    size_t        n_bytes   = 0;
    char         *json      = read_file(vectors_path, &n_bytes);
    hl_tokenizer *tokenizer = open_tokenizer(tokenizer_path);
    json_error_t  error;
    json_t       *vectors = json_loadb(json, n_bytes, JSON_ALLOW_NUL, &error);

    assert_non_null(vectors);
    assert_int_equal(json_array_size(vectors), 119);
    for (size_t i = 0; i < json_array_size(vectors); i++)
        check_vector(tokenizer, json_array_get(vectors, i));
    json_decref(vectors);
    free(json);
    hl_tokenizer_close(tokenizer);
}

static void small_bpe(void **state)
{
    (void)state;
    check_golden(SMALL_TOKENIZERS "/small-bpe", SMALL_TOKENIZERS "/small-bpe.json");
}

static void small_wordpiece(void **state)
{
    (void)state;
    check_golden(SMALL_TOKENIZERS "/small-wordpiece", SMALL_TOKENIZERS "/small-wordpiece.json");
}

static void small_unigram(void **state)
{
    (void)state;
    check_golden(SMALL_TOKENIZERS "/small-unigram", SMALL_TOKENIZERS "/small-unigram.json");
}

static void gpt2(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/gpt2"), shared_path("golden/tokenizers/gpt2.json"));
}

static void llama2(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/llama2"), shared_path("golden/tokenizers/llama2.json"));
}

static void llama3(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/llama3_2"),
                 shared_path("golden/tokenizers/llama3_2.json"));
}

static void qwen2(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/qwen2_5"), shared_path("golden/tokenizers/qwen2_5.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_bpe),     cmocka_unit_test(small_wordpiece),
        cmocka_unit_test(small_unigram), cmocka_unit_test(gpt2),
        cmocka_unit_test(llama2),        cmocka_unit_test(llama3),
        cmocka_unit_test(qwen2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
