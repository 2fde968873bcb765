/* corpus_support.h - a corpus of the files in a test's folder, with a small tokenizer. */
#ifndef HL_TESTS_CORPUS_SUPPORT_H
#define HL_TESTS_CORPUS_SUPPORT_H

#include "tokenize_support.h"

#include "measure/corpus.h"

static const char   *folder;
static hl_tokenizer *tokenizer;

static inline const char *here(const char *name)
{
    return in_folder(folder, name);
}

static inline void put(const char *name, const char *text)
{
    write_file(here(name), text, strlen(text));
}

static inline int begin_group(void **state)
{
    (void)state;
    folder = new_folder();
    return hl_tokenizer_open(&tokenizer, SMALL_TOKENIZERS "/small-bpe") == HL_OK ? 0 : -1;
}

static inline int end_group(void **state)
{
    (void)state;
    hl_tokenizer_close(tokenizer);
    remove_folder(folder);
    return 0;
}

static inline int clear_folder(void **state)
{
    (void)state;
    visit_folder(folder, 1);
    return 0;
}

static inline hl_corpus *open_with(hl_corpus_options options, const char *input)
{
    hl_corpus *corpus = NULL;

    options.inputs   = &input;
    options.n_inputs = 1;
    assert_ok(hl_corpus_open(&corpus, NULL, tokenizer, &options));
    return corpus;
}

static inline hl_corpus *open_input(const char *input)
{
    return open_with((hl_corpus_options){ 0 }, input);
}

static inline void refuse_with(hl_corpus_options options, const char *input, hl_status status,
                               const char *fragment)
{
    hl_corpus *corpus = (hl_corpus *)&corpus;

    options.inputs   = &input;
    options.n_inputs = 1;
    assert_fails(status, fragment, hl_corpus_open(&corpus, NULL, tokenizer, &options));
    assert_null(corpus);
}

static inline void refuse(const char *input, hl_status status, const char *fragment)
{
    refuse_with((hl_corpus_options){ 0 }, input, status, fragment);
}

/* Checks the names of all documents, as paths below the folder, in one line. */
static inline void assert_names(const hl_corpus *corpus, const char *wanted)
{
    char             names[1024] = "";
    hl_document_info info;

    for (int64_t i = 0; i < hl_corpus_get_info(corpus)->n_documents; i++) {
        assert_ok(hl_corpus_get_document(&info, corpus, i));
        const char *name = info.name;
        if (strncmp(name, folder, strlen(folder)) == 0)
            name += strlen(folder) + 1;
        strcat(strcat(names, i > 0 ? " " : ""), name);
    }
    assert_string_equal(names, wanted);
}

/* Checks the types of a document's tokens, given as a word with the first letter of each type. */
static inline void assert_types(const hl_corpus *corpus, int64_t document, const char *wanted)
{
    const hl_corpus_info *info   = hl_corpus_get_info(corpus);
    hl_token_reader      *reader = NULL;
    hl_token_piece        piece;
    char                  letters[256] = "";
    size_t                n            = 0;

    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, document));
    do {
        assert_ok(hl_token_reader_next(&piece, reader));
        for (size_t i = 0; i < piece.n_tokens && n < sizeof letters - 1; i++)
            letters[n++] = info->type_names[piece.types[i]][0];
    } while (piece.n_tokens > 0);
    hl_token_reader_close(reader);
    assert_string_equal(letters, wanted);
}

/* Checks that a document has the tokens of its encoded text. */
static inline void assert_tokens(const hl_corpus *corpus, int64_t document, const char *text)
{
    hl_encoding     *wanted = encode(tokenizer, text, strlen(text), true);
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;
    size_t           n = 0;

    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, document));
    do {
        assert_ok(hl_token_reader_next(&piece, reader));
        assert_true(n + piece.n_tokens <= wanted->n_tokens);
        for (size_t i = 0; i < piece.n_tokens; i++, n++)
            assert_int_equal(piece.ids[i], wanted->ids[n]);
    } while (piece.n_tokens > 0);
    assert_int_equal(n, wanted->n_tokens);
    hl_token_reader_close(reader);
    hl_encoding_free(wanted);
}

#define TEST(name)       cmocka_unit_test_setup(name, clear_folder)
#define RUN_GROUP(tests) cmocka_run_group_tests(tests, begin_group, end_group)

#endif
