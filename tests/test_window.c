/* test_window.c - every token counts once, in whatever windows, batches and parts.
 *
 * Documents are lines of ids in which each id is unlike its neighbours, so that a
 * token's place can be told from the outside.  What windows should be is computed here
 * from the lengths alone. */
#include "tokenize_support.h"

#include "base/hash.h"
#include "measure/window.h"

enum { N_DOCUMENTS = 23, MAX_LENGTH = 60, N_IDS = 1000 };

static const char   *folder;
static hl_tokenizer *tokenizer;
static int64_t       lengths[N_DOCUMENTS];

static int32_t id_of(int64_t document, int64_t token)
{
    return 100 + (int32_t)(hl_hash_pair((uint64_t)document, (uint64_t)token) % N_IDS);
}

static hl_corpus *open_corpus(int64_t n_documents)
{
    const char       *path    = in_folder(folder, "ids.jsonl");
    FILE             *file    = fopen(path, "w");
    hl_corpus        *corpus  = NULL;
    hl_corpus_options options = { .token_ids = path };

    assert_non_null(file);
    for (int64_t d = 0; d < n_documents; d++) {
        lengths[d] = 1 + (int64_t)(hl_hash_pair(77, (uint64_t)d) % MAX_LENGTH);
        fprintf(file, "[");
        for (int64_t i = 0; i < lengths[d]; i++)
            fprintf(file, "%s%d", i > 0 ? ", " : "", id_of(d, i));
        fprintf(file, "]\n\n"); /* blank lines do not matter */
    }
    fclose(file);
    assert_ok(hl_corpus_open(&corpus, NULL, tokenizer, &options));
    assert_int_equal(hl_corpus_get_info(corpus)->n_documents, n_documents);
    return corpus;
}

/* -------------------------------------------------------- what windows should be */

enum { MAX_WINDOWS = 4096 };

typedef struct wanted_window {
    int64_t document;
    int64_t start;
    int64_t length;
    int64_t first_row;
} wanted_window;

static size_t plan_document(wanted_window *out, int64_t document, int64_t length, int64_t context,
                            int64_t stride)
{
    size_t n = 0;

    for (int64_t start = 0, counted = 0; counted < length; start += stride) {
        int64_t end = start + context < length ? start + context : length;
        out[n++]    = (wanted_window){ document, start, end - start, counted - start };
        counted     = end;
    }
    return n;
}

static size_t plan(wanted_window *out, int64_t n_documents, const hl_window_options *options)
{
    int64_t stride = options->stride > 0 ? options->stride : options->context;
    size_t  n      = 0;

    for (int64_t d = 0; d < n_documents; d++)
        n += plan_document(out + n, d, lengths[d], options->context, stride);
    int64_t left = options->max_tokens;
    for (size_t i = 0; i < n && options->max_tokens > 0; i++) {
        int64_t n_new = out[i].length - out[i].first_row;
        if (n_new >= left) {
            out[i].length = out[i].first_row + left;
            return i + 1;
        }
        left -= n_new;
    }
    return n;
}

/* ------------------------------------------------------------------- comparing */

static void check_window(const hl_batch *batch, int64_t b, const wanted_window *wanted)
{
    assert_int_equal(batch->documents[b], wanted->document);
    assert_int_equal(batch->starts[b], wanted->start);
    assert_int_equal(batch->lengths[b], wanted->length);
    assert_int_equal(batch->first_row[b], wanted->first_row);
    for (int64_t i = 0; i < batch->context; i++) {
        int64_t token = batch->tokens[b * batch->context + i];
        bool    real  = i < wanted->length;
        assert_int_equal(token, real ? id_of(wanted->document, wanted->start + i) : 0);
        assert_int_equal(batch->types[b * batch->context + i], HL_TYPE_PROMPT);
    }
}

/* All batches of some options, each followed by a fresh start from where it ended. */
static void compare(const hl_corpus *corpus, int64_t n_documents, hl_window_options options)
{
    static wanted_window wanted[MAX_WINDOWS];
    size_t               n_wanted = plan(wanted, n_documents, &options);
    size_t               next     = 0;
    hl_windows          *windows  = NULL;
    hl_window_place      place    = { 0 };
    hl_batch             batch;
    double               progress = 0.0;

    do {
        assert_ok(hl_windows_open(&windows, corpus, &options));
        assert_ok(hl_windows_seek(windows, &place));
        assert_ok(hl_windows_next(&batch, windows));
        assert_int_equal(batch.n_batch, options.n_batch);
        for (int64_t b = 0; b < batch.n_windows; b++)
            check_window(&batch, b, &wanted[next++]);
        for (int64_t b = batch.n_windows; b < batch.n_batch; b++)
            assert_int_equal(batch.lengths[b], 0);
        hl_windows_place(&place, windows);
        assert_true(hl_windows_progress(windows) >= progress - 1e-12);
        progress = hl_windows_progress(windows);
        hl_windows_close(windows);
    } while (batch.n_windows > 0);
    assert_int_equal(next, n_wanted);
    assert_true(progress == 1.0);
    assert_int_equal(place.n_windows, n_wanted);
}

static void windows_are_what_they_should_be(void **state)
{
    (void)state;
    static const int64_t contexts[] = { 1, 2, 7, 16, 60, 100 };
    hl_corpus           *corpus     = open_corpus(N_DOCUMENTS);

    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
        for (int64_t stride = 0; stride <= contexts[c]; stride += 1 + contexts[c] / 5) {
            compare(corpus, N_DOCUMENTS,
                    (hl_window_options){ contexts[c], stride, 3, 0, false, 0, 0 });
            compare(corpus, N_DOCUMENTS,
                    (hl_window_options){ contexts[c], stride, 2, 111, false, 0, 0 });
        }
    }
    for (int64_t limit = 1; limit < 130; limit += 3)
        compare(corpus, N_DOCUMENTS, (hl_window_options){ 16, 9, 1, limit, false, 0, 0 });
    hl_corpus_close(corpus);
}

/* The hashes of all windows of a part, in order. */
static size_t hash_part(uint64_t *out, const hl_corpus *corpus, hl_window_options options)
{
    hl_windows *windows = NULL;
    hl_batch    batch;
    size_t      n = 0;

    assert_ok(hl_windows_open(&windows, corpus, &options));
    do {
        assert_ok(hl_windows_next(&batch, windows));
        for (int64_t b = 0; b < batch.n_windows; b++)
            out[n++] = hl_hash_pair(batch.hashes[b],
                                    (uint64_t)batch.documents[b] << 32 | (uint64_t)batch.starts[b]);
    } while (batch.n_windows > 0);
    hl_windows_close(windows);
    return n;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void parts_make_the_whole(void **state)
{
    (void)state;
    static uint64_t whole[MAX_WINDOWS], parts[MAX_WINDOWS];

    for (int round = 0; round < 6; round++) {
        hl_corpus        *corpus  = open_corpus(round < 3 ? N_DOCUMENTS : 5);
        hl_window_options options = { 9, 5, 2, 0, false, 0, 0 };
        options.pack              = round % 3 == 1;
        options.max_tokens        = round % 3 == 2 ? 100 : 0;
        size_t n                  = hash_part(whole, corpus, options);
        options.n_batch           = 7; /* which does not matter */
        assert_int_equal(hash_part(parts, corpus, options), n);
        assert_memory_equal(whole, parts, n * sizeof *whole);
        qsort(whole, n, sizeof *whole, compare_u64);
        for (options.n_parts = 1; options.n_parts < 5; options.n_parts++) {
            size_t n_parts = 0;
            for (options.part = 0; options.part < options.n_parts; options.part++)
                n_parts += hash_part(parts + n_parts, corpus, options);
            assert_int_equal(n_parts, n);
            qsort(parts, n, sizeof *parts, compare_u64);
            assert_memory_equal(whole, parts, n * sizeof *whole);
        }
        hl_corpus_close(corpus);
    }
}

/* Packed, the windows run through all documents with the end-of-text token between. */
static void packed_windows_are_full(void **state)
{
    (void)state;
    hl_corpus        *corpus  = open_corpus(N_DOCUMENTS);
    hl_window_options options = { 10, 0, 1, 0, true, 0, 0 };
    int64_t           stream[N_DOCUMENTS * (MAX_LENGTH + 1)];
    int64_t           n = 0, at = 0;
    int64_t           eos     = hl_tokenizer_special(tokenizer, HL_SPECIAL_EOS);
    hl_windows       *windows = NULL;
    hl_window_place   place   = { 0 };
    hl_batch          batch;

    for (int64_t d = 0; d < N_DOCUMENTS; d++) {
        if (d > 0)
            stream[n++] = eos;
        for (int64_t i = 0; i < lengths[d]; i++)
            stream[n++] = id_of(d, i);
    }
    for (;;) { /* every window after a fresh start */
        assert_ok(hl_windows_open(&windows, corpus, &options));
        assert_ok(hl_windows_seek(windows, &place));
        assert_ok(hl_windows_next(&batch, windows));
        hl_windows_place(&place, windows);
        if (batch.n_windows == 0)
            break;
        assert_int_equal(batch.lengths[0], n - at < 10 ? n - at : 10);
        for (int64_t i = 0; i < batch.lengths[0]; i++) {
            assert_int_equal(batch.tokens[i], stream[at + i]);
            assert_int_equal(batch.types[i],
                             stream[at + i] == eos ? HL_TYPE_SPECIAL : HL_TYPE_PROMPT);
        }
        at += batch.lengths[0];
        hl_windows_close(windows);
    }
    hl_windows_close(windows);
    assert_int_equal(at, n);
    assert_int_equal(place.n_counted, n);
    hl_corpus_close(corpus);
}

static void equal_windows_have_equal_hashes(void **state)
{
    (void)state;
    const char       *path    = in_folder(folder, "ids.jsonl");
    static const char text[]  = "[1, 2, 3]\n[1, 2, 3]\n[1, 2, 4]\n";
    hl_corpus_options options = { .token_ids = path };
    hl_corpus        *corpus  = NULL;
    hl_windows       *windows = NULL;
    hl_batch          batch;

    write_file(path, text, strlen(text));
    assert_ok(hl_corpus_open(&corpus, NULL, tokenizer, &options));
    assert_ok(
        hl_windows_open(&windows, corpus, &(hl_window_options){ .context = 8, .n_batch = 4 }));
    assert_ok(hl_windows_next(&batch, windows));
    assert_int_equal(batch.n_windows, 3);
    assert_int_equal(batch.n_counted, 9);
    assert_true(batch.hashes[0] == batch.hashes[1] && batch.hashes[0] != batch.hashes[2]);
    hl_windows_close(windows);
    hl_windows_close(NULL);
    hl_corpus_close(corpus);
}

/* The same tokens of which some have counted before are another window: a second one of context 4
 * and stride 2, and a first one. */
static void windows_of_other_overlaps_have_other_hashes(void **state)
{
    (void)state;
    const char       *path    = in_folder(folder, "ids.jsonl");
    static const char text[]  = "[7, 8, 1, 2, 3, 4]\n[1, 2, 3, 4]\n";
    hl_corpus_options options = { .token_ids = path };
    hl_corpus        *corpus  = NULL;
    hl_windows       *windows = NULL;
    hl_batch          batch;

    write_file(path, text, strlen(text));
    assert_ok(hl_corpus_open(&corpus, NULL, tokenizer, &options));
    assert_ok(hl_windows_open(&windows, corpus,
                              &(hl_window_options){ .context = 4, .stride = 2, .n_batch = 4 }));
    assert_ok(hl_windows_next(&batch, windows));
    assert_int_equal(batch.n_windows, 3);
    assert_int_equal(batch.first_row[1], 2);
    assert_memory_equal(batch.tokens + 4, batch.tokens + 8, 4 * sizeof *batch.tokens);
    assert_true(batch.hashes[1] != batch.hashes[2]);
    hl_windows_close(windows);
    hl_corpus_close(corpus);
}

static void impossible_options_are_refused(void **state)
{
    (void)state;
    static const struct {
        hl_window_options options;
        const char       *fragment;
    } cases[] = {
        { { .context = 0 }, "context is 0, wanted 1 to" },
        { { .context = 8, .stride = 9 }, "stride is 9, wanted 1 to 8" },
        { { .context = 8, .stride = -1 }, "stride is -1" },
        { { .context = 8, .n_batch = -1 }, "batch is -1" },
        { { .context = 8, .n_parts = 3, .part = 3 }, "part is 3, wanted 0 to 2" },
        { { .context = 8, .n_parts = -1 }, "number of parts is -1" },
        { { .context = 8, .max_tokens = -5 }, "max_tokens is -5" },
    };
    hl_corpus  *corpus  = open_corpus(3);
    hl_windows *windows = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(HL_BAD_ARGUMENT, cases[i].fragment,
                     hl_windows_open(&windows, corpus, &cases[i].options));
        assert_null(windows);
    }
    hl_corpus_close(corpus);
}

static void impossible_places_are_refused(void **state)
{
    (void)state;
    hl_corpus      *corpus   = open_corpus(3);
    hl_windows     *windows  = NULL;
    hl_window_place places[] = {
        { .document = 4 }, { .document = -1 }, { .document = 1, .token = 1000 },
        { .token = -1 },   { .overlap = 3 },   { .n_counted = -1 },
    };

    assert_ok(hl_windows_open(&windows, corpus, &(hl_window_options){ .context = 8, .stride = 6 }));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        assert_int_equal(hl_windows_seek(windows, &places[i]), HL_BAD_INPUT);
    hl_windows_close(windows);
    hl_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_what_they_should_be),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(packed_windows_are_full),
        cmocka_unit_test(equal_windows_have_equal_hashes),
        cmocka_unit_test(windows_of_other_overlaps_have_other_hashes),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(impossible_places_are_refused),
    };
    folder = new_folder();
    if (hl_tokenizer_open(&tokenizer, "models/demo") != HL_OK)
        return 1;
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    hl_tokenizer_close(tokenizer);
    remove_folder(folder);
    return code;
}
