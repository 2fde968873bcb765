/* test_tokenize_budget.c - tokenizers that need too much are stopped soon, with a message that
 * names the file and the step; others are never stopped, for texts of any length. */
#include "tokenize_support.h"

#include <time.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "tokenize/vocab.h"
#include "tokenize/word_models.h"

/* Enough for a busy machine and for builds with sanitizers: without a budget, these sizes take
 * minutes. */
#define MOST_SECONDS 10.0

#define WORDS "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"aa\":2}}"

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes a tokenizer.json: `where`, with %s replaced by `count` copies of the step, separated by
 * commas. */
static void write_repeated(hl_buffer *out, const char *where, const char *step, int count,
                           const char *model)
{
    const char *mark = strstr(where, "%s");

    assert_ok(hl_buffer_append_text(out, "{"));
    assert_ok(hl_buffer_append(out, where, (size_t)(mark - where)));
    for (int i = 0; i < count; i++) {
        assert_ok(hl_buffer_append_text(out, i > 0 ? "," : ""));
        assert_ok(hl_buffer_append_text(out, step));
    }
    assert_ok(hl_buffer_append_text(out, mark + 2));
    assert_ok(hl_buffer_append_text(out, ",\"model\":"));
    assert_ok(hl_buffer_append_text(out, model));
    assert_ok(hl_buffer_append_text(out, "}"));
}

static hl_tokenizer *parse_repeated(const char *where, const char *step, int count,
                                    const char *model)
{
    hl_buffer     json = { 0 };
    hl_tokenizer *t    = NULL;

    write_repeated(&json, where, step, count, model);
    assert_ok(hl_tokenizer_parse(&t, json.data, json.n_bytes, "hostile.json"));
    hl_buffer_free(&json);
    return t;
}

static char *repeat(const char *word, size_t n_bytes)
{
    char *text = malloc(n_bytes + 1);

    assert_non_null(text);
    for (size_t i = 0; i < n_bytes; i++)
        text[i] = word[i % strlen(word)];
    text[n_bytes] = '\0';
    return text;
}

/* Checks that encoding n bytes of repeated words fails in time with HL_LIMIT, and that the message
 * names the file and this text. */
static void gives_up(hl_tokenizer *t, const char *word, size_t n_bytes, const char *named)
{
    hl_encoding *encoding = NULL;
    char        *text     = repeat(word, n_bytes);
    double       begin    = cpu_seconds();
    size_t       held     = hl_memory_held();

    assert_fails(HL_LIMIT,
                 "hostile.json: ", hl_tokenizer_encode(&encoding, t, text, n_bytes, NULL));
    if (strstr(hl_error_message(), named) == NULL)
        fail_msg("'%s' is not in '%s'", named, hl_error_message());
    assert_null(encoding);
    assert_true(cpu_seconds() - begin < MOST_SECONDS);
    /* The tokenizer keeps its buffers: an origin takes eight bytes per byte of text, and buffers
     * double in size. */
    assert_true(hl_memory_held() < held + 64 * (64 * n_bytes + (1 << 20)));
    hl_tokenizer_close(t);
    free(text);
}

#define SPLIT(regex)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\","         \
    "\"invert\":false}"
#define REPLACE(pattern, content)                                                                  \
    "{\"type\":\"Replace\",\"pattern\":{" pattern "},\"content\":\"" content "\"}"

static void patterns_that_backtrack(void **state)
{
    (void)state;
    const char *pre = "\"pre_tokenizer\":%s";

    gives_up(parse_repeated(pre, SPLIT("a*a*b|."), 1, WORDS), "a", 8000, "a*a*b|.");
    gives_up(parse_repeated(pre, SPLIT("(a|aa)+c|."), 1, WORDS), "a", 8000, "(a|aa)+c|.");
    /* There is no match: one search tries every place. */
    gives_up(parse_repeated(pre, SPLIT("a*a*a*[bc]"), 1, WORDS), "a", 20000, "a*a*a*[bc]");
    gives_up(
        parse_repeated("\"normalizer\":%s", REPLACE("\"Regex\":\"a*a*a*[bc]|.\"", "a"), 1, WORDS),
        "a", 8000, "normalizer 0 (Replace): regular expression 'a*a*a*[bc]|.'");
}

static void texts_that_grow(void **state)
{
    (void)state;
    const char *list       = "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]}";
    char       *long_piece = repeat("x", 1000);
    hl_buffer   step       = { 0 };

    gives_up(parse_repeated(list, REPLACE("\"String\":\"a\"", "aa"), 40, WORDS), "a", 1,
             "(Replace 'a'): makes ");
    gives_up(parse_repeated(list, REPLACE("\"Regex\":\"a\"", "aa"), 40, WORDS), "a", 1,
             "(Replace): ");
    gives_up(parse_repeated(list, "{\"type\":\"ByteLevel\"}", 40, WORDS), "\xc3\xa9", 2,
             "(ByteLevel): makes ");
    /* A thousand bytes are put before every stretch between two added tokens, of which there are
     * many. */
    assert_ok(hl_buffer_append_text(&step, "{\"type\":\"Prepend\",\"prepend\":\""));
    assert_ok(hl_buffer_append_text(&step, long_piece));
    assert_ok(hl_buffer_append(&step, "\"}", 3));
    gives_up(parse_repeated("\"added_tokens\":[{\"id\":9,\"content\":\"b\",\"normalized\":false}],"
                            "\"normalizer\":%s",
                            step.data, 1, WORDS),
             "ab", 20000, "makes ");
    hl_buffer_free(&step);
    free(long_piece);
}

static void words_that_are_searched_for_ever(void **state)
{
    (void)state;
    char     *piece = repeat("a", 60000);
    hl_buffer model = { 0 };

    /* WordPiece tries the longest piece first, at every place. */
    assert_ok(hl_buffer_append_text(
        &model, "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"\","
                "\"max_input_chars_per_word\":1000000000,\"vocab\":{\"?\":0,\"a\":1,\""));
    assert_ok(hl_buffer_append_text(&model, piece));
    assert_ok(hl_buffer_append(&model, "b\":2}}", 7));
    gives_up(parse_repeated("\"pre_tokenizer\":%s", "null", 1, model.data), "a", 4000,
             "takes too long");
    /* Unigram follows a piece as far as it goes. */
    model.n_bytes = 0;
    assert_ok(hl_buffer_append_text(&model, "{\"type\":\"Unigram\",\"unk_id\":0,"
                                            "\"vocab\":[[\"?\",0],[\"a\",-1],[\""));
    assert_ok(hl_buffer_append_text(&model, piece));
    assert_ok(hl_buffer_append(&model, "b\",-2]]}", 9));
    gives_up(parse_repeated("\"pre_tokenizer\":%s", "null", 1, model.data), "a", 200000,
             "takes too long");
    /* Added tokens do the same. */
    model.n_bytes = 0;
    assert_ok(hl_buffer_append_text(&model, "{\"id\":7,\"content\":\""));
    assert_ok(hl_buffer_append_text(&model, piece));
    assert_ok(hl_buffer_append(&model, "b\"}", 4));
    gives_up(parse_repeated("\"added_tokens\":[%s]", model.data, 1, WORDS), "a", 200000,
             "takes too long");
    hl_buffer_free(&model);
    free(piece);
}

/* The normalized forms of added tokens are made when a file is read. */
static void files_that_take_too_long_to_read(void **state)
{
    (void)state;
    hl_tokenizer *t    = NULL;
    hl_buffer     json = { 0 };

    assert_ok(hl_buffer_append_text(
        &json, "{\"added_tokens\":[{\"id\":3,\"content\":\"aaaa\",\"normalized\":true}],"
               "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["));
    for (int i = 0; i < 40; i++)
        assert_ok(hl_buffer_append_text(&json, i > 0 ? "," REPLACE("\"String\":\"a\"", "aa")
                                                     : REPLACE("\"String\":\"a\"", "aa")));
    assert_ok(hl_buffer_append_text(&json, "]},\"model\":" WORDS "}"));
    assert_fails(HL_LIMIT, "hostile.json: added_tokens: normalizer ",
                 hl_tokenizer_parse(&t, json.data, json.n_bytes, "hostile.json"));
    assert_null(t);
    hl_buffer_free(&json);
}

static void decoders_that_grow_or_backtrack(void **state)
{
    (void)state;
    const char   *list    = "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s]}";
    char         *text    = NULL;
    size_t        n_bytes = 0;
    int64_t       ids[8000];
    double        begin = cpu_seconds();
    hl_tokenizer *t     = parse_repeated(list, REPLACE("\"String\":\"a\"", "aa"), 40, WORDS);

    for (int i = 0; i < 8000; i++)
        ids[i] = 1;
    assert_fails(HL_LIMIT, "hostile.json: decoder 2",
                 hl_tokenizer_decode(&text, &n_bytes, t, ids, 1, NULL));
    assert_null(text);
    hl_tokenizer_close(t);
    t = parse_repeated(list, "{\"type\":\"Fuse\"}," REPLACE("\"Regex\":\"a*a*[bc]|.\"", "x"), 1,
                       WORDS);
    assert_fails(HL_LIMIT, "hostile.json: decoder 1: regular expression 'a*a*[bc]|.'",
                 hl_tokenizer_decode(&text, &n_bytes, t, ids, 8000, NULL));
    assert_null(text);
    assert_true(cpu_seconds() - begin < MOST_SECONDS);
    hl_tokenizer_close(t);
}

/* Limits that know only their number get the file's name from its reader. */
static void limits_name_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *where, *step, *message;
    } cases[] = {
        { "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]}", "{\"type\":\"NFC\"}",
          "hostile.json: normalizer: more than 64 normalizers" },
        { "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s]}",
          "{\"type\":\"Whitespace\"}", "hostile.json: pre_tokenizer: more than 64 pre-tokenizers" },
        { "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s]}", "{\"type\":\"Fuse\"}",
          "hostile.json: decoder: more than 64 decoders" },
        { "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[%s],\"pair\":[],"
          "\"special_tokens\":{\"a\":{\"id\":\"a\",\"ids\":[1],\"tokens\":[\"a\"]}}}",
          "{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}}",
          "hostile.json: post_processor: more than 64 special tokens" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_buffer     json = { 0 };
        hl_tokenizer *t    = NULL;
        write_repeated(&json, cases[i].where, cases[i].step, 65, WORDS);
        assert_fails(HL_BAD_INPUT, cases[i].message,
                     hl_tokenizer_parse(&t, json.data, json.n_bytes, "hostile.json"));
        assert_int_equal(strncmp(hl_error_message(), "hostile.json", 12), 0);
        hl_buffer_free(&json);
    }
}

/* ------------------------------------------------------------------ collisions */

/* Makes two blocks of eight bytes that hl_hash_bytes mixes in the same way, after any text: the
 * upper bit passes the multiplication, is shifted down by 32, and the second block cancels it. */
static void put_pair(uint8_t *out, bool other)
{
    uint64_t blocks[2] = { 0x6161616161616161U, 0x6262626262626262U };

    if (other) {
        blocks[0] ^= UINT64_C(1) << 63;
        blocks[1] ^= UINT64_C(1) << 63 | UINT64_C(1) << 31;
    }
    memcpy(out, blocks, sizeof blocks);
}

static void pieces_that_collide_are_refused(void **state)
{
    (void)state;
    enum { PAIRS = 12 };
    hl_vocab  vocab  = { 0 };
    hl_status status = HL_OK;
    uint8_t   piece[16 * PAIRS];

    for (int i = 0; i < 1 << PAIRS && status == HL_OK; i++) {
        for (int k = 0; k < PAIRS; k++)
            put_pair(piece + 16 * k, (i >> k & 1) != 0);
        hl_bytes bytes = { (const char *)piece, sizeof piece };
        if (i > 0)
            assert_true(hl_hash_bytes(bytes.data, bytes.n_bytes) ==
                        hl_hash_bytes(vocab.bytes, sizeof piece));
        status = hl_vocab_add(&vocab, i, bytes, HL_TOKEN_NORMAL, NULL);
    }
    assert_fails(HL_BAD_INPUT, "collide", status);
    hl_vocab_free(&vocab);
}

/* Pairs of ids whose products with bpe.c's factor have equal bits where the slot is chosen. */
static void merges_that_collide_are_refused(void **state)
{
    (void)state;
    const uint64_t inverse = UINT64_C(0xf1de83e19937733d); /* inverse of the factor, modulo 2^64 */
    hl_merges      merges  = { 0 };
    hl_status      status  = HL_OK;

    assert_true(inverse * UINT64_C(0x9e3779b97f4a7c15) == 1);
    for (uint64_t i = 1; i < 20000 && status == HL_OK; i++) {
        uint64_t hash = i << 32 | (i & UINT32_MAX); /* the upper and the lower half cancel */
        uint64_t pair = hash * inverse;
        status = hl_merges_add(&merges, (int32_t)(pair >> 32), (int32_t)(pair & UINT32_MAX), 0, 0);
    }
    assert_fails(HL_BAD_INPUT, "collide", status);
    hl_merges_free(&merges);
}

/* ----------------------------------------------------------------------- the caller */

static bool stop_at(void *context)
{
    int *n_left = context;

    return --*n_left <= 0;
}

static void callers_can_stop(void **state)
{
    (void)state;
    hl_tokenizer     *t        = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");
    int               n_left   = 3;
    hl_encode_options options  = { .stop = stop_at, .context = &n_left };
    hl_encoding      *encoding = NULL;
    char             *text     = repeat("some words ", 1 << 20);

    assert_fails(HL_CANCELLED, "stopped",
                 hl_tokenizer_encode(&encoding, t, text, 1 << 20, &options));
    assert_null(encoding);
    assert_int_equal(n_left, 0); /* the callback is not called again */
    n_left = 1 << 30;
    assert_ok(hl_tokenizer_encode(&encoding, t, text, 1 << 20, &options));
    assert_true(n_left < (1 << 30) - 10);
    hl_encoding_free(encoding);
    hl_tokenizer_close(t);
    free(text);
}

/* --------------------------------------------------------------------- real texts */

/* Checks that long texts of one kind, and long runs, are decoded to the same text. */
static void comes_back(const hl_tokenizer *t, const char *word, size_t n_bytes)
{
    hl_encoding *encoding  = NULL;
    char        *text      = repeat(word, n_bytes);
    char        *decoded   = NULL;
    size_t       n_decoded = 0;

    assert_ok(hl_tokenizer_encode(&encoding, t, text, n_bytes, NULL));
    assert_ok(
        hl_tokenizer_decode(&decoded, &n_decoded, t, encoding->ids, encoding->n_tokens, NULL));
    assert_int_equal(n_decoded, n_bytes);
    assert_memory_equal(decoded, text, n_bytes);
    hl_free(decoded);
    hl_encoding_free(encoding);
    free(text);
}

/* Returns the length of a text: more than two million only for spaces, where an expression may
 * examine each of them; the other kinds take equal time. */
static size_t length_of(size_t kind)
{
    return kind == 0 ? 3 << 20 : 1 << 18;
}

static const char *const kinds[] = { " ",
                                     "a",
                                     "A",
                                     "\n",
                                     " \n",
                                     "a ",
                                     "1",
                                     "'",
                                     "\xe4\xb8\xad",
                                     "\xf0\x9f\x99\x82",
                                     "\xff",
                                     "Aa",
                                     "The quick brown fox. " };

/* GPT-2's and Llama 3's expressions, in the small byte-level tokenizer. */
static void long_texts_pass(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "'(?:[sdmt]|ll|ve|re)| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|"
        "\\\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+",
    };
    hl_tokenizer *t = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        comes_back(t, kinds[i], length_of(i));
    hl_tokenizer_close(t);
    for (size_t p = 0; p < 2; p++) {
        char         step[1024];
        hl_encoding *encoding = NULL;
        snprintf(step, sizeof step,
                 "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"}",
                 patterns[p]);
        t = parse_repeated("\"pre_tokenizer\":%s", step, 1, WORDS);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            char *text = repeat(kinds[i], length_of(i));
            assert_ok(hl_tokenizer_encode(&encoding, t, text, length_of(i), NULL));
            hl_encoding_free(encoding);
            free(text);
        }
        hl_tokenizer_close(t);
    }
}

/* The tokenizers of real models. */
static void long_texts_pass_real_tokenizers(void **state)
{
    (void)state;
    static const char *const names[] = { "tokenizers/gpt2", "tokenizers/llama2",
                                         "tokenizers/llama3_2", "tokenizers/qwen2_5",
                                         "golden/tokenizers/small-unigram" };

    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        hl_tokenizer *t = open_tokenizer(shared_path(names[n]));
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            hl_encoding *encoding = NULL;
            char        *text     = repeat(kinds[i], length_of(i));
            assert_ok(hl_tokenizer_encode(&encoding, t, text, length_of(i), NULL));
            hl_encoding_free(encoding);
            free(text);
        }
        hl_tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_that_backtrack),
        cmocka_unit_test(texts_that_grow),
        cmocka_unit_test(words_that_are_searched_for_ever),
        cmocka_unit_test(files_that_take_too_long_to_read),
        cmocka_unit_test(decoders_that_grow_or_backtrack),
        cmocka_unit_test(limits_name_the_file),
        cmocka_unit_test(pieces_that_collide_are_refused),
        cmocka_unit_test(merges_that_collide_are_refused),
        cmocka_unit_test(callers_can_stop),
        cmocka_unit_test(long_texts_pass),
        cmocka_unit_test(long_texts_pass_real_tokenizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
