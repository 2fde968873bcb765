/* fuzz_tokenizer.c - any bytes at all, as a tokenizer.json.
 *
 * They are refused with a message, or they make a tokenizer.  What it does with a
 * fixed text must keep the promises of headlight.h: ids have pieces, spans lie inside
 * the text, and what was encoded can be decoded, at once and as a stream.  GGUF takes its
 * vocabulary or refuses it. */
#include <string.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "tokenize/vocab_export.h"

static const char text[] =
    "Hello, w\xc3\xb6rld! ab abc  <s>\n1234 e\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac \xff";

static void check_decoding(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
{
    hl_decode_stream *stream  = NULL;
    char             *decoded = NULL;
    const char       *part;
    size_t            n_decoded, n_part;

    if (hl_tokenizer_decode(&decoded, &n_decoded, tokenizer, encoding->ids, encoding->n_tokens,
                            NULL) != HL_OK)
        return; /* a pattern of the decoder may run into its limit */
    PROMISE(decoded[n_decoded] == '\0');
    PROMISE(hl_decode_stream_open(&stream, tokenizer, NULL) == HL_OK);
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        if (hl_decode_stream_push(&part, &n_part, stream, encoding->ids[i]) != HL_OK)
            break;
        PROMISE(part != NULL);
    }
    hl_decode_stream_close(stream);
    hl_free(decoded);
}

static void check_encoding(const hl_tokenizer *tokenizer, bool add_special)
{
    hl_encode_options options  = { .add_special = add_special };
    hl_encoding      *encoding = NULL;

    if (hl_tokenizer_encode(&encoding, tokenizer, text, sizeof text - 1, &options) != HL_OK) {
        refused(encoding);
        return;
    }
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        PROMISE(hl_tokenizer_piece(tokenizer, encoding->ids[i], NULL) != NULL);
        PROMISE(encoding->spans[i].begin <= encoding->spans[i].end);
        PROMISE(encoding->spans[i].end <= sizeof text - 1);
    }
    check_decoding(tokenizer, encoding);
    hl_encoding_free(encoding);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_tokenizer *tokenizer = NULL;
    hl_vocab_export *export = NULL;

    if (hl_tokenizer_parse(&tokenizer, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(tokenizer);
    check_encoding(tokenizer, false);
    check_encoding(tokenizer, true);
    if (hl_vocab_export_new(&export, tokenizer, hl_tokenizer_size(tokenizer)) != HL_OK)
        refused(export);
    hl_vocab_export_free(export);
    hl_tokenizer_close(tokenizer);
    return 0;
}
