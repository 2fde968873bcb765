/* test_window.c - every token counts once, with any windows, batches and parts.
 *
 * Documents are lines of ids.  Each id differs from its neighbors, so that a token's place is known
 * from its id.  The expected windows are computed here from the lengths alone. */
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
        fprintf(file, "]\n\n"); /* blank lines are ignored */
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
    int64_t stride = options->stride > 0 ? options->stride : options->n_ctx;
    size_t  n      = 0;

    for (int64_t d = 0; d < n_documents; d++)
        n += plan_document(out + n, d, lengths[d], options->n_ctx, stride);
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

/* Reads all batches with some options; after each batch a new reader continues from its end. */
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
            compare(
                corpus, N_DOCUMENTS,
                (hl_window_options){ contexts[c], stride, 3, 0, false, 0, 0, HL_AROUND_WINDOW });
            compare(
                corpus, N_DOCUMENTS,
                (hl_window_options){ contexts[c], stride, 2, 111, false, 0, 0, HL_AROUND_WINDOW });
        }
    }
    for (int64_t limit = 1; limit < 130; limit += 3)
        compare(corpus, N_DOCUMENTS,
                (hl_window_options){ 16, 9, 1, limit, false, 0, 0, HL_AROUND_WINDOW });
    hl_corpus_close(corpus);
}

/* Hashes all windows of a part, in order, with or without their places. */
static size_t hash_windows(uint64_t *out, const hl_corpus *corpus, hl_window_options options,
                           bool with_places)
{
    hl_windows *windows = NULL;
    hl_batch    batch;
    size_t      n = 0;

    assert_ok(hl_windows_open(&windows, corpus, &options));
    do {
        assert_ok(hl_windows_next(&batch, windows));
        for (int64_t b = 0; b < batch.n_windows; b++)
            out[n++] = with_places
                           ? hl_hash_pair(batch.hashes[b], (uint64_t)batch.documents[b] << 32 |
                                                               (uint64_t)batch.starts[b])
                           : batch.hashes[b];
    } while (batch.n_windows > 0);
    hl_windows_close(windows);
    return n;
}

static size_t hash_part(uint64_t *out, const hl_corpus *corpus, hl_window_options options)
{
    return hash_windows(out, corpus, options, true);
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
        hl_window_options options = { 9, 5, 2, 0, false, 0, 0, HL_AROUND_WINDOW };
        options.pack              = round % 3 == 1;
        options.max_tokens        = round % 3 == 2 ? 100 : 0;
        size_t n                  = hash_part(whole, corpus, options);
        options.n_batch           = 7; /* the batch size has no effect */
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

/* With pack, windows run through all documents, with the end-of-text token between them. */
static void packed_windows_are_full(void **state)
{
    (void)state;
    hl_corpus        *corpus  = open_corpus(N_DOCUMENTS);
    hl_window_options options = { 10, 0, 1, 0, true, 0, 0, HL_AROUND_WINDOW };
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
    for (;;) { /* a new reader for every window */
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

/* --------------------------------------------------- tokens around the text
 *
 * Words are tokens here, and the template is that of the case, with pieces before and after
 * "$A". */

enum { N_WORDS = 50, FIRST_WORD = 5 }; /* ids 0 to 4: <unk> <a> <b> <y> <z> */

typedef struct around_case {
    const char *name;
    const char *before; /* JSON of the template's pieces before the text */
    const char *after;
    int64_t     n_before; /* <a>, <b> */
    int64_t     n_after;  /* <y>, <z> */
} around_case;

#define PIECE(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"

static const around_case arounds[] = {
    { "none", "", "", 0, 0 },
    { "bos", PIECE("<a>") ", ", "", 1, 0 },
    { "cls, sep", PIECE("<a>") ", ", ", " PIECE("<y>"), 1, 1 },
    { "two and two", PIECE("<a>") ", " PIECE("<b>") ", ", ", " PIECE("<y>") ", " PIECE("<z>"), 2,
      2 },
    { "eos", "", ", " PIECE("<y>"), 0, 1 },
};
enum { N_AROUNDS = sizeof arounds / sizeof *arounds };

/* Writes the files beside the tokenizer: its chat template, and names of tokens. */
static void put_config(const char *text)
{
    write_file(in_folder(folder, "tokenizer_config.json"), text, strlen(text));
}

/* Makes a tokenizer; `more`, JSON that begins with a comma, may add tokens. */
static hl_tokenizer *make_tokenizer(const around_case *around, const char *more)
{
    static char text[8192];
    size_t      n = 0;
#define PUT(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    static const char *const names[FIRST_WORD] = { "<unk>", "<a>", "<b>", "<y>", "<z>" };

    PUT("{\"added_tokens\": [");
    for (int i = 1; i < FIRST_WORD; i++)
        PUT("%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", i > 1 ? ", " : "", i,
            names[i]);
    PUT("%s], \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"post_processor\": ", more);
    PUT("{\"type\": \"TemplateProcessing\", \"single\": [%s{\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}%s], \"pair\": [], \"special_tokens\": {",
        around->before, around->after);
    for (int i = 1; i < FIRST_WORD; i++)
        PUT("%s\"%s\": {\"id\": \"%s\", \"ids\": [%d], \"tokens\": [\"%s\"]}", i > 1 ? ", " : "",
            names[i], names[i], i, names[i]);
    PUT("}}, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unk>\", \"vocab\": {");
    for (int i = 0; i < FIRST_WORD; i++)
        PUT("\"%s\": %d, ", names[i], i);
    for (int i = 0; i < N_WORDS; i++)
        PUT("%s\"w%d\": %d", i > 0 ? ", " : "", i, FIRST_WORD + i);
    PUT("}}}");
#undef PUT
    assert_true(n < sizeof text);
    write_file(in_folder(folder, "tokenizer.json"), text, n);
    return open_tokenizer(folder);
}

static int32_t word_of(int64_t document, int64_t token)
{
    return FIRST_WORD + id_of(document, token) % N_WORDS;
}

static hl_corpus *open_texts(const hl_tokenizer *own, int64_t n_documents)
{
    const char       *path    = in_folder(folder, "text.jsonl");
    FILE             *file    = fopen(path, "w");
    hl_corpus        *corpus  = NULL;
    hl_corpus_options options = { .inputs = &path, .n_inputs = 1 };

    assert_non_null(file);
    for (int64_t d = 0; d < n_documents; d++) {
        lengths[d] = 1 + (int64_t)(hl_hash_pair(78, (uint64_t)d) % MAX_LENGTH);
        fprintf(file, "{\"text\": \"");
        for (int64_t i = 0; i < lengths[d]; i++)
            fprintf(file, "%sw%d", i > 0 ? " " : "", word_of(d, i) - FIRST_WORD);
        fprintf(file, "\"}\n");
    }
    fclose(file);
    assert_ok(hl_corpus_open(&corpus, NULL, own, &options));
    return corpus;
}

/* Compares one window with its text [start, start + n_text); the first n_overlap tokens have been
 * counted. */
static void check_text_window(const hl_batch *batch, int64_t b, const around_case *around,
                              const wanted_window *wanted)
{
    const int64_t *tokens = batch->tokens + b * batch->context;
    const uint8_t *types  = batch->types + b * batch->context;
    int64_t        begin = around->n_before, end = begin + wanted->length;

    assert_int_equal(batch->documents[b], wanted->document);
    assert_int_equal(batch->starts[b], wanted->start);
    assert_int_equal(batch->lengths[b], end + around->n_after);
    assert_true(batch->lengths[b] <= batch->context);
    assert_int_equal(batch->first_row[b], wanted->first_row > 0 ? begin + wanted->first_row : 0);
    assert_int_equal(batch->text_begin[b], begin);
    assert_int_equal(batch->text_end[b], end);
    for (int64_t i = 0; i < batch->context; i++) {
        bool    is_text = i >= begin && i < end;
        int64_t id      = i < begin ? 1 + i
                          : is_text ? word_of(wanted->document, wanted->start + i - begin)
                          : i < end + around->n_after ? 3 + i - end
                                                      : 0;
        assert_int_equal(tokens[i], id);
        assert_int_equal(types[i], id > 0 && !is_text ? HL_TYPE_SPECIAL : HL_TYPE_PROMPT);
    }
}

/* Computes the expected windows of all documents; n_around rows of each are not text. */
static size_t plan_texts(wanted_window *out, const around_case *around, int64_t n_documents,
                         const hl_window_options *options)
{
    int64_t room   = options->n_ctx - around->n_before - around->n_after;
    int64_t stride = options->stride == 0 || options->stride > room ? room : options->stride;
    int64_t left   = options->max_tokens;
    size_t  n      = 0;

    for (int64_t d = 0; d < n_documents; d++)
        n += plan_document(out + n, d, lengths[d], room, stride);
    for (size_t i = 0; i < n && options->max_tokens > 0; i++) {
        int64_t n_around = around->n_after + (out[i].first_row > 0 ? 0 : around->n_before);
        int64_t n_new    = out[i].length - out[i].first_row + n_around;

        if (n_new >= left) {
            out[i].length -= n_new - left;
            return out[i].length > out[i].first_row ? i + 1 : i;
        }
        left -= n_new;
    }
    return n;
}

/* Compares batches, with a new reader after each; every token of the texts counts once. */
static void compare_texts(const hl_corpus *corpus, const around_case *around, int64_t n_documents,
                          hl_window_options options)
{
    static wanted_window wanted[MAX_WINDOWS];
    size_t               n_wanted = plan_texts(wanted, around, n_documents, &options);
    size_t               next     = 0;
    int64_t              n_text = 0, n_all = 0;
    hl_window_place      place = { 0 };
    hl_batch             batch = { .n_windows = 1 };

    while (batch.n_windows > 0) {
        hl_windows *windows = NULL;

        assert_ok(hl_windows_open(&windows, corpus, &options));
        assert_ok(hl_windows_seek(windows, &place));
        assert_ok(hl_windows_next(&batch, windows));
        for (int64_t b = 0; b < batch.n_windows; b++) {
            assert_true(next < n_wanted);
            check_text_window(&batch, b, around, &wanted[next++]);
            int64_t from =
                batch.first_row[b] > batch.text_begin[b] ? batch.first_row[b] : batch.text_begin[b];
            n_text += batch.text_end[b] - from;
        }
        hl_windows_place(&place, windows);
        hl_windows_close(windows);
    }
    assert_int_equal(next, n_wanted);
    for (int64_t d = 0; d < n_documents; d++)
        n_all += lengths[d];
    if (options.max_tokens == 0)
        assert_int_equal(n_text, n_all);
    else
        assert_true(place.n_counted <= options.max_tokens);
}

static void every_window_begins_and_ends_as_the_template_says(void **state)
{
    (void)state;
    for (int c = 0; c < N_AROUNDS; c++) {
        hl_tokenizer *own     = make_tokenizer(&arounds[c], "");
        hl_corpus    *corpus  = open_texts(own, N_DOCUMENTS);
        int64_t       n_least = arounds[c].n_before + arounds[c].n_after + 1;

        for (int64_t context = n_least; context < n_least + 20; context += 3) {
            for (int64_t stride = 0; stride <= context; stride += 2) {
                hl_window_options options = { .n_ctx = context, .stride = stride, .n_batch = 3 };

                compare_texts(corpus, &arounds[c], N_DOCUMENTS, options);
                options.max_tokens = 40 + stride;
                compare_texts(corpus, &arounds[c], N_DOCUMENTS, options);
            }
        }
        hl_corpus_close(corpus);
        hl_tokenizer_close(own);
    }
}

/* Parts have the windows of the whole, with tokens around them too. */
static void parts_of_texts_make_the_whole(void **state)
{
    (void)state;
    hl_tokenizer     *own     = make_tokenizer(&arounds[2], "");
    hl_corpus        *corpus  = open_texts(own, N_DOCUMENTS);
    hl_window_options options = { .n_ctx = 9, .stride = 3, .n_batch = 2 };
    uint64_t          whole[512], parts[512];
    size_t            n = hash_part(whole, corpus, options), n_parts = 0;

    for (options.n_parts = 3; options.part < 3; options.part++)
        n_parts += hash_part(parts + n_parts, corpus, options);
    assert_int_equal(n_parts, n);
    uint64_t sums[2] = { 0, 0 };
    for (size_t i = 0; i < n; i++) {
        sums[0] += whole[i];
        sums[1] += parts[i];
    }
    assert_true(sums[0] == sums[1]);
    hl_corpus_close(corpus);
    hl_tokenizer_close(own);
}

/* The same windows as documents of ids have the same hashes: rows are sampled by content alone. */
static void windows_are_those_of_the_same_ids(void **state)
{
    (void)state;
    hl_tokenizer     *own     = make_tokenizer(&arounds[2], "");
    hl_corpus        *corpus  = open_texts(own, 5);
    const char       *path    = in_folder(folder, "same.jsonl");
    FILE             *file    = fopen(path, "w");
    hl_corpus_options of_ids  = { .token_ids = path };
    hl_window_options options = { .n_ctx = 9 };
    hl_windows       *windows = NULL;
    uint64_t          texts[512], ids[512];
    hl_batch          batch;

    assert_ok(hl_windows_open(&windows, corpus, &options));
    for (;;) {
        assert_ok(hl_windows_next(&batch, windows));
        if (batch.n_windows == 0)
            break;
        for (int64_t i = 0; i < batch.lengths[0]; i++)
            fprintf(file, "%s%d", i > 0 ? ", " : "[", (int)batch.tokens[i]);
        fprintf(file, "]\n");
    }
    fclose(file);
    hl_windows_close(windows);
    size_t n = hash_windows(texts, corpus, options, false);
    hl_corpus_close(corpus);
    assert_ok(hl_corpus_open(&corpus, NULL, own, &of_ids)); /* nothing is added around these */
    assert_int_equal(hash_windows(ids, corpus, options, false), n);
    assert_memory_equal(texts, ids, n * sizeof *ids);
    hl_corpus_close(corpus);
    hl_tokenizer_close(own);
}

/* The two other ways: around a document, before it is cut; and nowhere. */
static void tokens_may_stand_around_documents_or_nowhere(void **state)
{
    (void)state;
    hl_tokenizer *own    = make_tokenizer(&arounds[2], "");
    hl_corpus    *corpus = open_texts(own, N_DOCUMENTS);

    for (int way = HL_AROUND_DOCUMENT; way <= HL_AROUND_NONE; way++) {
        hl_window_options options = { .n_ctx = 2, .around = (hl_around)way }; /* there is room for
                                                                               * both */
        hl_windows       *windows = NULL;
        hl_batch          batch;
        int64_t           d = 0, at = 0;
        int64_t           n_around = way == HL_AROUND_DOCUMENT ? 2 : 0;

        assert_ok(hl_windows_open(&windows, corpus, &options));
        for (;;) {
            assert_ok(hl_windows_next(&batch, windows));
            if (batch.n_windows == 0)
                break;
            assert_int_equal(batch.documents[0], d);
            assert_int_equal(batch.starts[0], at);
            assert_int_equal(batch.text_begin[0], 0); /* all of it is scored, as before this
                                                       * option */
            assert_int_equal(batch.text_end[0], batch.lengths[0]);
            for (int64_t i = 0; i < batch.lengths[0]; i++, at++) {
                int64_t text = at - n_around / 2;
                int64_t id   = text < 0 ? 1 : text < lengths[d] ? word_of(d, text) : 3;
                assert_int_equal(batch.tokens[i], id);
            }
            if (at == lengths[d] + n_around) {
                d++;
                at = 0;
            }
        }
        assert_int_equal(d, N_DOCUMENTS);
        hl_windows_close(windows);
    }
    hl_corpus_close(corpus);
    hl_tokenizer_close(own);
}

static void packed_texts_have_the_tokens_around_each_window(void **state)
{
    (void)state;
    put_config("{\"eos_token\": \"<z>\"}");
    hl_tokenizer     *own     = make_tokenizer(&arounds[2], "");
    hl_corpus        *corpus  = open_texts(own, N_DOCUMENTS);
    hl_window_options options = { .n_ctx = 9, .pack = true };
    hl_windows       *windows = NULL;
    hl_batch          batch;
    int64_t           stream[N_DOCUMENTS * (MAX_LENGTH + 1)];
    int64_t           n = 0, at = 0;

    for (int64_t d = 0; d < N_DOCUMENTS; d++) {
        if (d > 0)
            stream[n++] = 4;
        for (int64_t i = 0; i < lengths[d]; i++)
            stream[n++] = word_of(d, i);
    }
    assert_ok(hl_windows_open(&windows, corpus, &options));
    for (;;) {
        assert_ok(hl_windows_next(&batch, windows));
        if (batch.n_windows == 0)
            break;
        int64_t n_text = n - at < 7 ? n - at : 7;
        assert_int_equal(batch.lengths[0], n_text + 2);
        assert_int_equal(batch.tokens[0], 1);
        assert_int_equal(batch.tokens[n_text + 1], 3);
        for (int64_t i = 0; i < n_text; i++)
            assert_int_equal(batch.tokens[1 + i], stream[at++]);
    }
    assert_int_equal(at, n);
    hl_windows_close(windows);
    hl_corpus_close(corpus);
    hl_tokenizer_close(own);
    unlink(in_folder(folder, "tokenizer_config.json"));
}

/* A chat begins as its own template does, and so does each of its windows. */
static void windows_of_chats_begin_as_the_chat(void **state)
{
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \" w1 w2 w3 w4 w5 w6 w7 w8 w9 \"}]}\n";
    (void)state;

    write_file(in_folder(folder, "chat.jsonl"), chat, strlen(chat));
    for (int has_bos = 0; has_bos < 2; has_bos++) {
        put_config(has_bos ? "{\"bos_token\": \"<a>\", \"chat_template\": "
                             "\"{{ bos_token }}{% for m in messages %}<start_of_turn>user\\n"
                             "{{ m.content | trim }}<end_of_turn>\\n{% endfor %}\"}"
                           : "{\"chat_template\": \"{% for m in messages %}<start_of_turn>"
                             "{{ m.content }}<end_of_turn>{% endfor %}\"}");
        hl_tokenizer *own =
            make_tokenizer(&arounds[2], ", {\"id\": 55, \"content\": \"<start_of_turn>\", "
                                        "\"special\": true}, {\"id\": 56, \"content\": "
                                        "\"<end_of_turn>\", \"special\": true}");
        hl_corpus  *corpus  = NULL;
        hl_windows *windows = NULL;
        hl_batch    batch;
        int64_t     n_words = 0, n_windows = 0;

        const char *path = in_folder(folder, "chat.jsonl");
        assert_ok(hl_corpus_open(&corpus, NULL, own,
                                 &(hl_corpus_options){ .inputs = &path, .n_inputs = 1 }));
        assert_ok(hl_windows_open(&windows, corpus, &(hl_window_options){ .n_ctx = 5 }));
        for (;;) {
            assert_ok(hl_windows_next(&batch, windows));
            if (batch.n_windows == 0)
                break;
            n_windows++;
            assert_int_equal(batch.text_begin[0], has_bos);
            assert_int_equal(batch.text_end[0], batch.lengths[0]); /* the chat has its own ending */
            for (int64_t i = 0; i < batch.lengths[0]; i++) {
                n_words += batch.tokens[i] > FIRST_WORD && batch.tokens[i] <= FIRST_WORD + 9;
                assert_true((batch.tokens[i] == 1) == (has_bos && i == 0));
            }
        }
        assert_int_equal(n_words, 9);
        assert_true(n_windows > 2);
        hl_windows_close(windows);
        hl_corpus_close(corpus);
        hl_tokenizer_close(own);
    }
    unlink(in_folder(folder, "tokenizer_config.json"));
}

static void windows_need_room_for_text(void **state)
{
    (void)state;
    hl_tokenizer *own     = make_tokenizer(&arounds[3], "");
    hl_corpus    *corpus  = open_texts(own, 2);
    hl_windows   *windows = NULL;

    assert_fails(HL_BAD_ARGUMENT,
                 "a context of 4 leaves no room for text: the tokenizer adds 4 tokens to every "
                 "window; use --context 5 or more",
                 hl_windows_open(&windows, corpus, &(hl_window_options){ .n_ctx = 4 }));
    assert_fails(HL_BAD_ARGUMENT, "no way 3",
                 hl_windows_open(&windows, corpus,
                                 &(hl_window_options){ .n_ctx = 8, .around = (hl_around)3 }));
    assert_null(windows);
    hl_corpus_close(corpus);
    hl_tokenizer_close(own);
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
    assert_ok(hl_windows_open(&windows, corpus, &(hl_window_options){ .n_ctx = 8, .n_batch = 4 }));
    assert_ok(hl_windows_next(&batch, windows));
    assert_int_equal(batch.n_windows, 3);
    assert_int_equal(batch.n_counted, 9);
    assert_true(batch.hashes[0] == batch.hashes[1] && batch.hashes[0] != batch.hashes[2]);
    hl_windows_close(windows);
    hl_windows_close(NULL);
    hl_corpus_close(corpus);
}

/* The same tokens, some of which have been counted before, are a different window: a second one
 * with context 4 and stride 2, and a first one. */
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
                              &(hl_window_options){ .n_ctx = 4, .stride = 2, .n_batch = 4 }));
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
        { { .n_ctx = 0 }, "context is 0, wanted 1 to" },
        { { .n_ctx = 8, .stride = 9 }, "stride is 9, wanted 1 to 8" },
        { { .n_ctx = 8, .stride = -1 }, "stride is -1" },
        { { .n_ctx = 8, .n_batch = -1 }, "batch is -1" },
        { { .n_ctx = 8, .n_parts = 3, .part = 3 }, "part is 3, wanted 0 to 2" },
        { { .n_ctx = 8, .n_parts = -1 }, "number of parts is -1" },
        { { .n_ctx = 8, .max_tokens = -5 }, "max_tokens is -5" },
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

    assert_ok(hl_windows_open(&windows, corpus, &(hl_window_options){ .n_ctx = 8, .stride = 6 }));
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
        cmocka_unit_test(every_window_begins_and_ends_as_the_template_says),
        cmocka_unit_test(parts_of_texts_make_the_whole),
        cmocka_unit_test(windows_are_those_of_the_same_ids),
        cmocka_unit_test(tokens_may_stand_around_documents_or_nowhere),
        cmocka_unit_test(packed_texts_have_the_tokens_around_each_window),
        cmocka_unit_test(windows_of_chats_begin_as_the_chat),
        cmocka_unit_test(windows_need_room_for_text),
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
