/* test_tokenize_text.c - long texts, encoded and decoded.
 *
 * Byte-level tokenizers give any input back.  Decoding token by token gives the same text as
 * decoding at once, in whole characters. */
#include "tokenize_support.h"

#include "base/utf8.h"

static void check_round_trip(const hl_tokenizer *tokenizer, const char *text, size_t n_bytes,
                             const char *name)
{
    hl_encoding *encoding  = encode(tokenizer, text, n_bytes, false);
    char        *decoded   = NULL;
    size_t       n_decoded = 0;

    assert_ok(hl_tokenizer_decode(&decoded, &n_decoded, tokenizer, encoding->ids,
                                  encoding->n_tokens, NULL));
    if (n_decoded != n_bytes || memcmp(decoded, text, n_bytes) != 0)
        fail_msg("%s: %zu bytes became %zu others", name, n_bytes, n_decoded);
    hl_free(decoded);
    hl_encoding_free(encoding);
}

/* Checks that spans are inside the text, in order, and leave nothing out. */
static void check_spans(const hl_tokenizer *tokenizer, const char *text, size_t n_bytes)
{
    hl_encoding *encoding = encode(tokenizer, text, n_bytes, false);
    size_t       covered  = 0;

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        hl_span span = encoding->spans[i];
        assert_true(span.begin < span.end && span.end <= n_bytes);
        assert_true(span.begin <= covered && span.end >= covered);
        covered = span.end;
    }
    assert_int_equal(covered, n_bytes);
    hl_encoding_free(encoding);
}

/* Decodes token by token: no character is cut, and the text is the same. */
static void check_stream(const hl_tokenizer *tokenizer, const char *text, size_t n_bytes)
{
    hl_encoding      *encoding  = encode(tokenizer, text, n_bytes, true);
    hl_decode_stream *stream    = NULL;
    char             *whole     = NULL;
    size_t            n_whole   = 0;
    size_t            n_written = 0;
    const char       *piece;
    size_t            n_piece;

    assert_ok(
        hl_tokenizer_decode(&whole, &n_whole, tokenizer, encoding->ids, encoding->n_tokens, NULL));
    assert_ok(hl_decode_stream_open(&stream, tokenizer, NULL));
    for (size_t i = 0; i <= encoding->n_tokens; i++) {
        if (i < encoding->n_tokens)
            assert_ok(hl_decode_stream_push(&piece, &n_piece, stream, encoding->ids[i]));
        else
            assert_ok(hl_decode_stream_finish(&piece, &n_piece, stream));
        assert_int_equal(hl_utf8_find_bad(piece, n_piece), n_piece);
        if (n_piece > n_whole - n_written || memcmp(whole + n_written, piece, n_piece) != 0)
            fail_msg("token %zu: '%.*s' does not go on '%.*s'", i, (int)n_piece, piece,
                     (int)(n_written > 40 ? 40 : n_written), whole);
        n_written += n_piece;
    }
    assert_int_equal(n_written, n_whole);
    hl_decode_stream_close(stream);
    hl_free(whole);
    hl_encoding_free(encoding);
}

/* ------------------------------------------------------------- with own data */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static void random_bytes_come_back(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");
    uint32_t      seed      = 1;
    char          text[300];

    for (int round = 0; round < 500; round++) {
        size_t n_bytes = next_random(&seed) % sizeof text;
        for (size_t i = 0; i < n_bytes; i++)
            text[i] =
                (char)(round % 2 == 0
                           ? next_random(&seed)
                           : (unsigned char)"ab \xc3\xa9\xe2\x82\xac\xf0"[next_random(&seed) % 9]);
        check_round_trip(tokenizer, text, n_bytes, "random bytes");
        check_spans(tokenizer, text, n_bytes);
    }
    hl_tokenizer_close(tokenizer);
}

static size_t random_characters(char *out, size_t n_characters, uint32_t *seed)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < n_characters; i++) {
        uint32_t c = next_random(seed) % (next_random(seed) % 3 == 0 ? 0x110000 : 0x3000);
        if (c < 0xd800 || c >= 0xe000)
            n_bytes += hl_utf8_encode(out + n_bytes, c);
    }
    return n_bytes;
}

static void random_characters_stream(void **state)
{
    (void)state;
    static const char *const names[] = { "small-bpe", "small-wordpiece", "small-unigram" };
    uint32_t                 seed    = 7;
    char                     text[4 * 100];

    for (size_t i = 0; i < 3; i++) {
        hl_tokenizer *tokenizer = open_tokenizer(in_folder(SMALL_TOKENIZERS, names[i]));
        for (int round = 0; round < 200; round++) {
            size_t n_bytes = random_characters(text, next_random(&seed) % 100, &seed);
            check_stream(tokenizer, text, n_bytes);
        }
        hl_tokenizer_close(tokenizer);
    }
}

/* Cached results must equal computed ones: encodes twice, with other texts between. */
static void caching_changes_nothing(void **state)
{
    (void)state;
    hl_tokenizer *one  = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");
    uint32_t      seed = 3;
    char          text[4 * 100];

    for (int round = 0; round < 300; round++) {
        size_t       n_bytes = random_characters(text, 60, &seed);
        hl_encoding *first   = encode(one, text, n_bytes, false);
        hl_encoding *second  = encode(one, text, n_bytes, false);
        assert_int_equal(first->n_tokens, second->n_tokens);
        assert_memory_equal(first->ids, second->ids, first->n_tokens * sizeof *first->ids);
        assert_memory_equal(first->spans, second->spans, first->n_tokens * sizeof *first->spans);
        hl_encoding_free(first);
        hl_encoding_free(second);
    }
    hl_tokenizer_close(one);
}

static void streams_hold_back_half_characters(void **state)
{
    (void)state;
    hl_tokenizer     *tokenizer = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");
    hl_encoding      *encoding  = encode(tokenizer, "\xe2\x82\xac\xe2", 4, false);
    hl_decode_stream *stream    = NULL;
    const char       *text;
    size_t            n_bytes;

    assert_int_equal(encoding->n_tokens, 4); /* the vocabulary has no euro sign */
    assert_ok(hl_decode_stream_open(&stream, tokenizer, NULL));
    static const size_t wanted[] = { 0, 0, 3, 0 };
    for (size_t i = 0; i < 4; i++) {
        assert_ok(hl_decode_stream_push(&text, &n_bytes, stream, encoding->ids[i]));
        assert_int_equal(n_bytes, wanted[i]);
    }
    assert_ok(hl_decode_stream_finish(&text, &n_bytes, stream));
    assert_int_equal(n_bytes, 1);
    assert_int_equal((unsigned char)text[0], 0xe2);
    assert_fails(HL_BAD_INPUT, "no id 5000", hl_decode_stream_push(&text, &n_bytes, stream, 5000));
    hl_decode_stream_close(stream);
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
}

static void special_tokens_can_be_skipped(void **state)
{
    (void)state;
    hl_tokenizer     *tokenizer = open_tokenizer(SMALL_TOKENIZERS "/small-wordpiece");
    hl_decode_options skip      = { .skip_special = true };
    hl_encoding      *encoding  = encode(tokenizer, "the man", 7, true);
    char             *text      = NULL;
    size_t            n_bytes   = 0;

    assert_ok(
        hl_tokenizer_decode(&text, &n_bytes, tokenizer, encoding->ids, encoding->n_tokens, NULL));
    assert_string_equal(text, "[CLS] the man [SEP]");
    hl_free(text);
    assert_ok(
        hl_tokenizer_decode(&text, &n_bytes, tokenizer, encoding->ids, encoding->n_tokens, &skip));
    assert_string_equal(text, "the man");
    hl_free(text);
    hl_encoding_free(encoding);

    hl_encode_options plain = { .plain = true };
    assert_ok(hl_tokenizer_encode(&encoding, tokenizer, "[CLS]", 5, &plain));
    assert_true(encoding->n_tokens > 1);
    hl_encoding_free(encoding);
    assert_ids(tokenizer, "[CLS]", IDS(2));
    hl_tokenizer_close(tokenizer);
}

/* ---------------------------------------------------- with the shared material */

static void check_all_text(const char *path)
{
    static const char *const languages[] = {
        "amh", "arb", "ben", "cmn_hans", "cmn_hant", "deu_1996", "eng",    "fin",
        "fra", "heb", "hin", "hun",      "hye",      "ita",      "jpn",    "kat",
        "khm", "kor", "mya", "nld",      "pes_1",    "pol",      "por_BR", "rus",
        "spa", "swh", "tam", "tha",      "tur",      "ukr",      "urd",    "vie",
    };
    hl_tokenizer *tokenizer = open_tokenizer(path);
    char          name[64];
    size_t        n_bytes = 0;

    assert_int_equal(sizeof languages / sizeof *languages, 32);
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        snprintf(name, sizeof name, "corpora/udhr/%s.txt", languages[i]);
        char *text = read_file(shared_path(name), &n_bytes);
        check_round_trip(tokenizer, text, n_bytes, languages[i]);
        check_spans(tokenizer, text, n_bytes);
        check_stream(tokenizer, text, hl_utf8_find_bad(text, n_bytes > 3000 ? 3000 : n_bytes));
        free(text);
    }
    char *text = read_file(shared_path("corpora/wikitext-2-raw/wiki.test.raw"), &n_bytes);
    check_round_trip(tokenizer, text, n_bytes, "wikitext-2");
    check_spans(tokenizer, text, n_bytes);
    free(text);
    hl_tokenizer_close(tokenizer);
}

static void gpt2_gives_everything_back(void **state)
{
    (void)state;
    check_all_text(shared_path("tokenizers/gpt2"));
}

static void llama3_gives_everything_back(void **state)
{
    (void)state;
    check_all_text(shared_path("tokenizers/llama3_2"));
}

static void llama2_streams(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = open_tokenizer(shared_path("tokenizers/llama2"));
    size_t        n_bytes   = 0;
    char         *text      = read_file(shared_path("corpora/udhr/kat.txt"), &n_bytes);
    check_round_trip(tokenizer, text, n_bytes, "kat");
    check_stream(tokenizer, text, hl_utf8_find_bad(text, 3000));
    free(text);
    text = read_file(shared_path("corpora/udhr/mya.txt"), &n_bytes);
    check_round_trip(tokenizer, text, n_bytes, "mya");
    check_stream(tokenizer, text, hl_utf8_find_bad(text, 3000));
    free(text);
    hl_tokenizer_close(tokenizer);
}

/* A hidden token between two words does not remove a space. */
static void hidden_tokens_keep_spaces(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer =
        parse_tokenizer("{\"added_tokens\":[{\"id\":0,\"content\":\"[MASK]\",\"special\":true}],"
                        "\"pre_tokenizer\":{\"type\":\"Whitespace\"},"
                        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false},"
                        "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\","
                        "\"vocab\":{\"[MASK]\":0,\"?\":1,\"Y\":2,\"T\":3,\"##s\":4,\"\":5}}}");
    static const int64_t texts[][6] = {
        { 2, 0, 3, -1 }, { 0, 2, 0, 0, 3, -1 }, { 2, 0, 4, 0, 3, -1 }, { 2, 5, 0, 3, -1 }
    };
    hl_decode_options options = { .skip_special = true };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hl_decode_stream *stream   = NULL;
        char              seen[64] = "";
        char             *whole    = NULL;
        const char       *piece;
        size_t            n_ids = 0, n_piece, n_whole;

        assert_ok(hl_decode_stream_open(&stream, tokenizer, &options));
        for (; texts[i][n_ids] >= 0; n_ids++) {
            assert_ok(hl_decode_stream_push(&piece, &n_piece, stream, texts[i][n_ids]));
            strncat(seen, piece, n_piece);
        }
        assert_ok(hl_decode_stream_finish(&piece, &n_piece, stream));
        strncat(seen, piece, n_piece);
        assert_ok(hl_tokenizer_decode(&whole, &n_whole, tokenizer, texts[i], n_ids, &options));
        assert_string_equal(seen, whole);
        if (i == 0)
            assert_string_equal(seen, "Y T");
        hl_free(whole);
        hl_decode_stream_close(stream);
    }
    hl_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_tokens_keep_spaces),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(random_characters_stream),
        cmocka_unit_test(caching_changes_nothing),
        cmocka_unit_test(streams_hold_back_half_characters),
        cmocka_unit_test(special_tokens_can_be_skipped),
        cmocka_unit_test(gpt2_gives_everything_back),
        cmocka_unit_test(llama3_gives_everything_back),
        cmocka_unit_test(llama2_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
