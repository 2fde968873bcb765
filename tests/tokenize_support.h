/* tokenize_support.h - what the tokenizer tests share: paths of data, golden vectors, and
 * comparisons of encodings with lists. */
#ifndef HL_TESTS_TOKENIZE_SUPPORT_H
#define HL_TESTS_TOKENIZE_SUPPORT_H

#include "support.h"

#include "base/json.h"

#define SMALL_TOKENIZERS "tests/data/tokenizers"

/* A path below the shared material, in one of four static buffers; skips the test if the material
 * is missing. */
static inline const char *shared_path(const char *path)
{
    const char *shared = getenv("HEADLIGHT_SHARED");
    const char *full   = in_folder(shared != NULL ? shared : "../shared", path);

    if (access(full, R_OK) != 0)
        skip();
    return full;
}

static inline hl_tokenizer *open_tokenizer(const char *path)
{
    hl_tokenizer *tokenizer = NULL;
    assert_ok(hl_tokenizer_open(&tokenizer, path));
    assert_non_null(tokenizer);
    return tokenizer;
}

static inline hl_encoding *encode(const hl_tokenizer *tokenizer, const char *text, size_t n_bytes,
                                  bool add_special)
{
    hl_encode_options options  = { .add_special = add_special };
    hl_encoding      *encoding = NULL;
    assert_ok(hl_tokenizer_encode(&encoding, tokenizer, text, n_bytes, &options));
    return encoding;
}

/* Parses a tokenizer from text. */
static inline hl_tokenizer *parse_tokenizer(const char *json)
{
    hl_tokenizer *tokenizer = NULL;
    assert_ok(hl_tokenizer_parse(&tokenizer, json, strlen(json), "test"));
    return tokenizer;
}

/* Checks that the ids of a text are exactly these; ids end with -1. */
static inline void assert_ids(const hl_tokenizer *tokenizer, const char *text, const int64_t *ids)
{
    hl_encoding *encoding = encode(tokenizer, text, strlen(text), false);
    size_t       count    = 0;

    while (ids[count] >= 0)
        count++;
    for (size_t i = 0; i < encoding->n_tokens && i < count; i++) {
        if (encoding->ids[i] != ids[i])
            fail_msg("'%s': token %zu is %d, wanted %d", text, i, (int)encoding->ids[i],
                     (int)ids[i]);
    }
    if (encoding->n_tokens != count)
        fail_msg("'%s': %zu tokens, wanted %zu", text, encoding->n_tokens, count);
    hl_encoding_free(encoding);
}
#define IDS(...) ((const int64_t[]){ __VA_ARGS__, -1 })
#define NO_IDS   ((const int64_t[]){ -1 })

#endif
