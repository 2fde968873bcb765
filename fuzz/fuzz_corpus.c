/* fuzz_corpus.c - arbitrary bytes as a text file and as a JSONL file.
 *
 * A corpus of them is refused with a message, or its windows hold the tokens of all its documents:
 * ids that the tokenizer has, each counted once. */
#include "fuzz_file.h"
#include "measure/corpus.h"
#include "measure/window.h"

enum { CONTEXT = 16, MAX_TEXT = 4096 };

static hl_tokenizer *tokenizer; /* opened once */

static int64_t count_tokens(const hl_corpus *corpus)
{
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;
    int64_t          count = 0;

    PROMISE(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT) == HL_OK);
    for (int64_t i = 0; i < hl_corpus_get_info(corpus)->n_documents; i++) {
        PROMISE(hl_token_reader_start(reader, i) == HL_OK);
        do {
            PROMISE(hl_token_reader_next(&piece, reader) == HL_OK);
            for (size_t k = 0; k < piece.n_tokens; k++)
                PROMISE(hl_tokenizer_piece(tokenizer, piece.ids[k], NULL) != NULL);
            count += (int64_t)piece.n_tokens;
        } while (piece.n_tokens > 0);
    }
    hl_token_reader_close(reader);
    return count;
}

static int64_t count_rows(const hl_corpus *corpus)
{
    hl_window_options options = { .n_ctx = CONTEXT, .stride = 11, .n_batch = 2 };
    hl_windows       *windows = NULL;
    hl_batch          batch;
    int64_t           count = 0;

    PROMISE(hl_windows_open(&windows, corpus, &options) == HL_OK);
    do {
        PROMISE(hl_windows_next(&batch, windows) == HL_OK);
        for (int64_t i = 0; i < batch.n_windows; i++)
            PROMISE(batch.lengths[i] > batch.first_row[i] && batch.lengths[i] <= CONTEXT);
        count += batch.n_counted;
    } while (batch.n_windows > 0);
    hl_windows_close(windows);
    return count;
}

static void read_as(const char *name, int64_t n_sample, const uint8_t *bytes, size_t n_bytes)
{
    static const char *const rules[] = { "digits=[0-9]+", "quoted=\"[^\"]*\"" };
    const char              *path    = fuzz_file(name, bytes, n_bytes);
    hl_corpus_options options = { .inputs = &path, .n_inputs = 1, .types = rules, .n_types = 2 };
    hl_corpus        *corpus  = NULL;

    options.n_sample = n_sample;
    if (hl_corpus_open(&corpus, NULL, tokenizer, &options) != HL_OK) {
        refused(corpus);
        return;
    }
    PROMISE(hl_corpus_get_info(corpus)->n_documents > 0);
    PROMISE(count_rows(corpus) == count_tokens(corpus));
    hl_corpus_close(corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (tokenizer == NULL)
        PROMISE(hl_tokenizer_open(&tokenizer, "tests/data/tokenizers/small-bpe") == HL_OK);
    if (n_bytes > MAX_TEXT)
        return 0;
    read_as("text.txt", 0, bytes, n_bytes);
    read_as("lines.jsonl", 0, bytes, n_bytes);
    read_as("lines.jsonl", 2, bytes, n_bytes);
    return 0;
}
