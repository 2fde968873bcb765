/* fuzz_encode.c - arbitrary bytes as text for the small tokenizers.
 *
 * All tokenizers accept it, within the time for n bytes.  Spans are in order and inside the text;
 * the byte-level tokenizer gives the text back. */
#include <string.h>

#include "fuzz.h"

enum { BYTE_LEVEL, N_TOKENIZERS = 3 };

static const char *const paths[N_TOKENIZERS] = {
    "tests/data/tokenizers/small-bpe",
    "tests/data/tokenizers/small-wordpiece",
    "tests/data/tokenizers/small-unigram",
};

static hl_tokenizer *tokenizers[N_TOKENIZERS];

static void check(int which, const char *text, size_t n_bytes, bool plain)
{
    hl_encode_options options   = { .plain = plain };
    hl_encoding      *encoding  = NULL;
    char             *decoded   = NULL;
    size_t            n_decoded = 0;
    double            begin     = fuzz_seconds();

    PROMISE(hl_tokenizer_encode(&encoding, tokenizers[which], text, n_bytes, &options) == HL_OK);
    PROMISE(fuzz_in_time(begin, n_bytes) && fuzz_in_bounds(encoding->n_tokens, n_bytes));
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        hl_span span = encoding->spans[i];
        PROMISE(span.begin <= span.end && span.end <= n_bytes);
        PROMISE(i == 0 || span.begin >= encoding->spans[i - 1].begin);
    }
    PROMISE(hl_tokenizer_decode(&decoded, &n_decoded, tokenizers[which], encoding->ids,
                                encoding->n_tokens, NULL) == HL_OK);
    if (which == BYTE_LEVEL)
        PROMISE(n_decoded == n_bytes && (n_bytes == 0 || memcmp(decoded, text, n_bytes) == 0));
    hl_free(decoded);
    hl_encoding_free(encoding);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    for (int i = 0; i < N_TOKENIZERS; i++) {
        if (tokenizers[i] == NULL)
            PROMISE(hl_tokenizer_open(&tokenizers[i], paths[i]) == HL_OK);
        check(i, (const char *)bytes, n_bytes, false);
        check(i, (const char *)bytes, n_bytes, true);
    }
    return 0;
}
