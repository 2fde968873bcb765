/* test_vocab_export.c - tokenizers of tokenizer.json files, written to GGUF files and read back:
 * the ids of Hugging Face's tokenizers, and the lists that llama.cpp's converter wrote for the same
 * vocabularies. */
#include "tokenize_support.h"

#include "formats/gguf.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocab_source.h"

#define PREFIX "tokenizer.ggml."

/* ------------------------------------------------------------------ golden ids */

/* Writes the tokenizer to `path` as a GGUF file without tensors. */
static void write_vocab(const char *path, const hl_tokenizer *tokenizer, const char *note)
{
    hl_vocab_export *vocab  = NULL;
    hl_gguf_writer  *writer = NULL;

    assert_ok(hl_vocab_export_new(&vocab, tokenizer, tokenizer->vocab.n_ids));
    assert_string_equal(hl_vocab_export_note(vocab), note);
    assert_ok(hl_gguf_writer_new(&writer));
    assert_ok(hl_gguf_add_vocab(writer, hl_vocab_export_source(vocab)));
    assert_ok(hl_gguf_write(writer, path));
    hl_gguf_writer_free(writer);
    hl_vocab_export_free(vocab);
}

static void check_ids(const hl_tokenizer *tokenizer, const json_t *vector, const char *key,
                      bool add_special)
{
    const json_t *text   = json_object_get(vector, "text");
    const json_t *wanted = json_object_get(vector, key);
    hl_encoding  *encoding =
        encode(tokenizer, json_string_value(text), json_string_length(text), add_special);

    if (encoding->n_tokens != json_array_size(wanted))
        fail_msg("'%s': %zu tokens, wanted %zu", json_string_value(text), encoding->n_tokens,
                 json_array_size(wanted));
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        int id = (int)json_integer_value(json_array_get(wanted, i));
        if (encoding->ids[i] != id)
            fail_msg("'%s': token %zu is %d, wanted %d", json_string_value(text), i,
                     (int)encoding->ids[i], id);
    }
    hl_encoding_free(encoding);
}

/* Returns whether the text is unchanged by the normal form that the file cannot express. */
static bool is_normal(const hl_tokenizer *tokenizer, const json_t *text)
{
    hl_mapped_text_builder builders[2] = { 0 };
    hl_matcher            *matcher     = NULL;
    hl_mapped_text         seen        = { .bytes    = json_string_value(text),
                                           .n_bytes  = json_string_length(text),
                                           .original = json_string_value(text) };

    assert_ok(hl_matcher_new(&matcher));
    assert_ok(hl_normalizer_run(&seen, &tokenizer->normalizer, builders, matcher));
    bool same = seen.n_bytes == json_string_length(text) &&
                memcmp(seen.bytes, json_string_value(text), seen.n_bytes) == 0;
    hl_mapped_text_builder_free(&builders[0]);
    hl_mapped_text_builder_free(&builders[1]);
    hl_matcher_free(matcher);
    return same;
}

/* `kept` is the number of the 119 texts whose ids the file must give. */
static void check_golden(const char *from, const char *vectors_path, const char *note, int kept)
{
    hl_tokenizer *tokenizer = open_tokenizer(from);
    size_t        n_bytes   = 0;
    char         *json      = read_file(vectors_path, &n_bytes);
    json_t       *vectors   = json_loadb(json, n_bytes, JSON_ALLOW_NUL, NULL);
    const char   *folder    = new_folder();
    const char   *path      = in_folder(folder, "vocab.gguf");
    int           count     = 0;

    write_vocab(path, tokenizer, note);
    hl_tokenizer *written = open_tokenizer(path);
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        const json_t *vector = json_array_get(vectors, i);
        if (note[0] != '\0' && !is_normal(tokenizer, json_object_get(vector, "text")))
            continue;
        check_ids(written, vector, "ids", false);
        check_ids(written, vector, "with_special", true);
        count++;
    }
    assert_int_equal(count, kept);
    json_decref(vectors);
    free(json);
    hl_tokenizer_close(written);
    hl_tokenizer_close(tokenizer);
    remove_folder(folder);
}

static void small_bpe(void **state)
{
    (void)state;
    check_golden(SMALL_TOKENIZERS "/small-bpe", SMALL_TOKENIZERS "/small-bpe.json", "", 119);
}

static void small_wordpiece(void **state)
{
    (void)state;
    check_golden(SMALL_TOKENIZERS "/small-wordpiece", SMALL_TOKENIZERS "/small-wordpiece.json", "",
                 119);
}

static void small_unigram(void **state)
{
    (void)state;
    check_golden(SMALL_TOKENIZERS "/small-unigram", SMALL_TOKENIZERS "/small-unigram.json",
                 "a text that begins with a space gets other ids in llama.cpp; "
                 "text that is not in NFKC gets other ids",
                 112);
}

static void gpt2(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/gpt2"), shared_path("golden/tokenizers/gpt2.json"), "",
                 119);
}

static void llama2(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/llama2"), shared_path("golden/tokenizers/llama2.json"), "",
                 119);
}

static void llama3(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/llama3_2"), shared_path("golden/tokenizers/llama3_2.json"),
                 "", 119);
}

static void qwen2(void **state)
{
    (void)state;
    check_golden(shared_path("tokenizers/qwen2_5"), shared_path("golden/tokenizers/qwen2_5.json"),
                 "text that is not in NFC gets other ids", 118);
}

/* ----------------------------------------------------- llama.cpp's converter */

static void check_texts(const hl_gguf *file, const char *key, const hl_bytes *texts, size_t count)
{
    hl_gguf_array array = { 0 };
    hl_bytes      text  = { 0 };

    assert_ok(hl_gguf_get_array(&array, file, key));
    assert_int_equal(array.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(hl_gguf_array_text(&text, &array, i));
        assert_int_equal(text.n_bytes, texts[i].n_bytes);
        assert_memory_equal(text.data, texts[i].data, text.n_bytes);
    }
}

static void check_types(const hl_gguf *file, const hl_vocab_source *source)
{
    hl_gguf_array array = { 0 };
    int64_t       type  = 0;

    assert_ok(hl_gguf_get_array(&array, file, PREFIX "token_type"));
    assert_int_equal(array.count, source->n_tokens);
    for (size_t i = 0; i < source->n_tokens; i++) {
        assert_true(hl_gguf_array_int(&type, &array, i));
        assert_int_equal(type, source->types[i]);
    }
}

static void check_converted(const char *from, const char *converted)
{
    hl_tokenizer    *tokenizer = open_tokenizer(from);
    hl_gguf         *file      = NULL;
    hl_vocab_export *vocab     = NULL;
    hl_bytes         text      = { 0 };

    assert_ok(hl_gguf_open(&file, converted));
    assert_ok(hl_vocab_export_new(&vocab, tokenizer, tokenizer->vocab.n_ids));
    const hl_vocab_source *source = hl_vocab_export_source(vocab);
    assert_ok(hl_gguf_get_text(&text, file, PREFIX "model"));
    assert_true(hl_bytes_equal(text, source->model));
    check_texts(file, PREFIX "tokens", source->tokens, source->n_tokens);
    check_types(file, source);
    if (source->n_merges > 0) {
        check_texts(file, PREFIX "merges", source->merges, source->n_merges);
        assert_ok(hl_gguf_get_text(&text, file, PREFIX "pre"));
        assert_true(hl_bytes_equal(text, source->pre));
    }
    hl_vocab_export_free(vocab);
    hl_gguf_close(file);
    hl_tokenizer_close(tokenizer);
}

static void converter_gpt2(void **state)
{
    (void)state;
    check_converted(shared_path("tokenizers/gpt2"),
                    shared_path("tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf"));
}

/* ------------------------------------------------------------ what is refused */

#define MODEL(text) "\"model\": " text
#define BYTES       "\"pre_tokenizer\": {\"type\":\"ByteLevel\",\"add_prefix_space\":false},"

static void check_refusal(const char *json, const char *reason)
{
    hl_tokenizer    *tokenizer = parse_tokenizer(json);
    hl_vocab_export *vocab     = NULL;

    assert_fails(HL_UNSUPPORTED, reason,
                 hl_vocab_export_new(&vocab, tokenizer, tokenizer->vocab.n_ids));
    assert_null(vocab);
    hl_tokenizer_close(tokenizer);
}

static void refusals(void **state)
{
    const char bpe[] = MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    char       json[1024];
    (void)state;

    snprintf(json, sizeof json, "{%s\"normalizer\":{\"type\":\"Lowercase\"},%s", BYTES, bpe);
    check_refusal(json, "no place for what this tokenizer does to text first");
    snprintf(json, sizeof json,
             "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
             "\"pattern\":{\"Regex\":\"x+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\","
             "\"add_prefix_space\":false,\"use_regex\":false}]},%s",
             bpe);
    check_refusal(json, "no place for these expressions");
    snprintf(json, sizeof json, "{%s", bpe);
    check_refusal(json, "without a piece for every byte");
    check_refusal("{" MODEL("{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},"
                            "\"unk_token\":\"a\"}}"),
                  "no place for a tokenizer of whole words");
}

/* More pieces than embeddings, and fewer pieces. */
static void sizes(void **state)
{
    hl_tokenizer    *tokenizer = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");
    hl_vocab_export *vocab     = NULL;
    (void)state;

    assert_fails(HL_UNSUPPORTED, "the tokenizer has 1024 ids, the model 1000 embeddings",
                 hl_vocab_export_new(&vocab, tokenizer, 1000));
    assert_ok(hl_vocab_export_new(&vocab, tokenizer, 1026));
    const hl_vocab_source *source = hl_vocab_export_source(vocab);
    assert_int_equal(source->n_tokens, 1026);
    assert_int_equal(source->types[1025], HL_PIECE_UNUSED);
    assert_int_equal(source->tokens[1025].n_bytes, 9);
    assert_memory_equal(source->tokens[1025].data, "[PAD1025]", 9);
    assert_int_equal(source->types[0], HL_PIECE_CONTROL);
    hl_vocab_export_free(vocab);
    hl_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_bpe),     cmocka_unit_test(small_wordpiece),
        cmocka_unit_test(small_unigram), cmocka_unit_test(gpt2),
        cmocka_unit_test(llama2),        cmocka_unit_test(llama3),
        cmocka_unit_test(qwen2),         cmocka_unit_test(converter_gpt2),

        cmocka_unit_test(refusals),      cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
