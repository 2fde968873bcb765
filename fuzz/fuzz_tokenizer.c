/* fuzz_tokenizer.c - arbitrary bytes as a tokenizer.json.
 *
 * They are refused with a message, or they make a tokenizer.  Its results on a fixed text keep the
 * promises of headlight/tokenizer.h: ids have pieces, spans are inside the text, and encoded text
 * can be decoded, at once and as a stream.  No call takes more time or makes more text than its
 * input allows, even for long runs of one letter.  GGUF accepts the vocabulary or refuses it. */
#include <string.h>

#include "base/utf8.h"
#include "formats/gguf.h"
#include "fuzz.h"
#include "tokenize/vocab_source.h"

static const char words[] =
    "Hello, w\xc3\xb6rld! ab abc  <s>\n1234 e\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac \xff";

/* After the words there is a run in which expressions may backtrack. */
enum { N_RUN = 8000, N_TEXT = sizeof words - 1 + N_RUN };

static char text[N_TEXT];

/* Every message names the file, which is called "fuzz" here. */
static void names_the_file(void)
{
    PROMISE(strncmp(hl_error_message(), "fuzz: ", 6) == 0);
}

static void check_decoding(const hl_tokenizer *tokenizer, const hl_encoding *encoding)
{
    hl_decode_stream *stream  = NULL;
    char             *decoded = NULL;
    const char       *part;
    size_t            n_decoded, n_part;
    size_t            n_spelled = 0;
    double            begin     = fuzz_seconds();

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        (void)hl_tokenizer_piece(tokenizer, encoding->ids[i], &n_part);
        n_spelled += n_part;
    }
    hl_status status = hl_tokenizer_decode(&decoded, &n_decoded, tokenizer, encoding->ids,
                                           encoding->n_tokens, NULL);
    PROMISE(fuzz_in_time(begin, n_spelled));
    if (status != HL_OK) { /* a step of the decoder has reached its limit */
        names_the_file();
        return;
    }
    PROMISE(decoded[n_decoded] == '\0' && fuzz_in_bounds(n_decoded, n_spelled));
    PROMISE(hl_decode_stream_open(&stream, tokenizer, NULL) == HL_OK);
    for (size_t i = 0; i < encoding->n_tokens && i < 64; i++) {
        begin = fuzz_seconds();
        if (hl_decode_stream_push(&part, &n_part, stream, encoding->ids[i]) != HL_OK)
            break;
        PROMISE(part != NULL && fuzz_in_time(begin, 2 * n_spelled));
    }
    hl_decode_stream_close(stream);
    hl_free(decoded);
}

static void check_encoding(const hl_tokenizer *tokenizer, size_t n_text, bool add_special)
{
    hl_encode_options options  = { .add_special = add_special };
    hl_encoding      *encoding = NULL;
    double            begin    = fuzz_seconds();
    hl_status         status   = hl_tokenizer_encode(&encoding, tokenizer, text, n_text, &options);

    PROMISE(fuzz_in_time(begin, n_text));
    if (status != HL_OK) {
        names_the_file();
        refused(encoding);
        return;
    }
    PROMISE(fuzz_in_bounds(encoding->n_tokens, n_text));
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        PROMISE(hl_tokenizer_piece(tokenizer, encoding->ids[i], NULL) != NULL);
        PROMISE(encoding->spans[i].begin <= encoding->spans[i].end);
        PROMISE(encoding->spans[i].end <= n_text);
    }
    check_decoding(tokenizer, encoding);
    hl_encoding_free(encoding);
}

static void check_export(const hl_tokenizer *tokenizer)
{
    hl_vocab_export *export = NULL;
    hl_gguf_writer *writer  = NULL;

    if (hl_vocab_export_new(&export, tokenizer, hl_tokenizer_size(tokenizer)) != HL_OK) {
        refused(export);
        return;
    }
    PROMISE(hl_gguf_writer_new(&writer) == HL_OK);
    PROMISE(hl_gguf_add_vocab(writer, hl_vocab_export_source(export)) == HL_OK);
    hl_gguf_writer_free(writer);
    hl_vocab_export_free(export);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_tokenizer *tokenizer = NULL;

    memcpy(text, words, sizeof words - 1);
    memset(text + sizeof words - 1, 'a', N_RUN);
    double    begin  = fuzz_seconds();
    hl_status status = hl_tokenizer_parse(&tokenizer, bytes, n_bytes, "fuzz");
    PROMISE(fuzz_in_time(begin, n_bytes));
    if (status != HL_OK) {
        names_the_file();
        return refused(tokenizer);
    }
    check_encoding(tokenizer, sizeof words - 1, false);
    check_encoding(tokenizer, N_TEXT, true);
    check_export(tokenizer);
    hl_tokenizer_close(tokenizer);
    return 0;
}
