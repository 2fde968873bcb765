/* test_corpus.c - from names to documents, and from documents to tokens and types. */
#include "corpus_support.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "measure/corpus_parts.h"

/* ----------------------------------------------------------------------- inputs */

static void a_file_is_a_document(void **state)
{
    (void)state;
    put("a.bin", "Some text.\nOf two lines.\n"); /* a file's name does not matter */
    hl_corpus            *corpus = open_input(here("a.bin"));
    const hl_corpus_info *info   = hl_corpus_get_info(corpus);

    assert_names(corpus, "a.bin");
    assert_int_equal(info->n_bytes, 25);
    assert_int_equal(info->n_files, 1);
    assert_true(info->hash == hl_hash("Some text.\nOf two lines.\n", 25, 0));
    assert_int_equal(info->n_types, 2);
    assert_string_equal(info->type_names[HL_TYPE_PROMPT], "prompt");
    assert_string_equal(info->type_names[HL_TYPE_SPECIAL], "special");
    assert_tokens(corpus, 0, "Some text.\nOf two lines.\n");
    hl_corpus_close(corpus);
    hl_corpus_close(NULL);
}

static void a_folder_is_its_text_files_sorted(void **state)
{
    (void)state;
    put("b.txt", "b");
    put("a.md", "a");
    put("Z.txt", "Z");
    put("picture.png", "no text");
    put("noending", "no text");
    put(".hidden.txt", "hidden");
    put("lines.jsonl", "{\"text\": \"1\"}\n\n{\"text\": \"\"}\n{\"text\": \"2\"}");
    put("empty.txt", "");
    assert_int_equal(mkdir(here("c"), 0777), 0);
    put("c/d.text", "d");
    assert_int_equal(symlink("..", here("c/loop")), 0);
    assert_int_equal(symlink("../b.txt", here("c/e.txt")), 0);

    hl_corpus            *corpus = open_input(folder);
    const hl_corpus_info *info   = hl_corpus_get_info(corpus);
    assert_names(corpus, "Z.txt a.md b.txt c/d.text c/e.txt lines.jsonl:1 lines.jsonl:4");
    assert_int_equal(info->n_empty, 2);
    assert_int_equal(info->n_skipped, 3);
    assert_non_null(strstr(info->first_skipped, "c/loop"));
    hl_corpus_close(corpus);
    assert_int_equal(unlink(here("c/d.text")) | unlink(here("c/loop")) | unlink(here("c/e.txt")),
                     0);
}

static void a_pattern_is_what_it_matches(void **state)
{
    (void)state;
    put("b.txt", "b");
    put("a.txt", "a");
    put("c.md", "c");
    put("[x].txt", "x");
    hl_corpus *corpus = open_input(here("*.txt"));
    assert_names(corpus, "[x].txt a.txt b.txt");
    hl_corpus_close(corpus);
    corpus = open_input(here("[ac].*"));
    assert_names(corpus, "a.txt c.md");
    hl_corpus_close(corpus);
    corpus = open_input(here("[x].txt")); /* a file of exactly that name has priority */
    assert_names(corpus, "[x].txt");
    hl_corpus_close(corpus);
    refuse(here("*.rst"), HL_NOT_FOUND, "*.rst: no such file, and no file matches");
    refuse(here("none/*.txt"), HL_NOT_FOUND, "none/*.txt: no such file, and no file matches");
}

static void inputs_keep_their_order(void **state)
{
    (void)state;
    put("a.txt", "a");
    put("b.txt", "b");
    char              first[128], second[128];
    const char *const inputs[] = { strcpy(first, here("b.txt")), strcpy(second, here("a.txt")),
                                   first };
    hl_corpus_options options  = { .inputs = inputs, .n_inputs = 3 };
    hl_corpus        *corpus   = NULL;

    assert_ok(hl_corpus_open(&corpus, NULL, tokenizer, &options));
    assert_names(corpus, "b.txt a.txt b.txt");
    assert_true(hl_corpus_get_info(corpus)->hash == 2 * hl_hash("b", 1, 0) + hl_hash("a", 1, 0));
    hl_corpus_close(corpus);
}

static void standard_input_is_copied(void **state)
{
    (void)state;
    int ends[2], kept = dup(STDIN_FILENO);

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "from a pipe", 11), 11);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    hl_corpus *corpus = open_input("-");
    assert_names(corpus, "standard input");
    assert_tokens(corpus, 0, "from a pipe");
    assert_tokens(corpus, 0, "from a pipe"); /* a document can be read any number of times */
    hl_corpus_close(corpus);
    refuse("-", HL_BAD_INPUT, "standard input: no text in this file");
    dup2(kept, STDIN_FILENO);
    close(kept);
}

static void bytes_in_memory_are_a_file(void **state)
{
    static const char lines[] =
        "\xef\xbb\xbf{\"text\": \"1\"}\n\n{\"text\": \"\"}\n{\"text\": \"2 3\"}";
    hl_corpus        *corpus  = NULL;
    hl_corpus_options options = { .format = HL_TEXT_JSONL };
    const char       *input   = here("a.jsonl");
    (void)state;

    put("a.jsonl", lines);
    hl_corpus *stored = open_input(input);
    assert_ok(
        hl_corpus_open_bytes(&corpus, NULL, tokenizer, lines, strlen(lines), "input", &options));
    assert_names(corpus, "input:1 input:4");
    assert_true(hl_corpus_get_info(corpus)->hash == hl_corpus_get_info(stored)->hash);
    assert_int_equal(hl_corpus_get_info(corpus)->n_empty, 1);
    assert_tokens(corpus, 1, "2 3");
    hl_corpus_close(stored);
    hl_corpus_close(corpus);

    assert_fails(HL_BAD_INPUT, "input: line 1, byte 1: 0xff is not UTF-8",
                 hl_corpus_open_bytes(&corpus, NULL, tokenizer, "a\xff", 2, "input",
                                      &(hl_corpus_options){ 0 }));
    assert_fails(
        HL_BAD_INPUT, "input: no text in this file",
        hl_corpus_open_bytes(&corpus, NULL, tokenizer, "", 0, "input", &(hl_corpus_options){ 0 }));
    options.inputs   = &input;
    options.n_inputs = 1;
    assert_fails(
        HL_BAD_ARGUMENT, "not both",
        hl_corpus_open_bytes(&corpus, NULL, tokenizer, lines, strlen(lines), "input", &options));
    assert_fails(HL_BAD_ARGUMENT, "no bytes",
                 hl_corpus_open_bytes(&corpus, NULL, tokenizer, NULL, 0, "input", &options));
    assert_null(corpus);
}

static void a_byte_order_mark_is_dropped(void **state)
{
    (void)state;
    put("a.txt", "\xef\xbb\xbftext");
    put("b.jsonl", "\xef\xbb\xbf{\"text\": \"text\"}");
    hl_corpus *corpus = open_input(here("?.*"));
    assert_tokens(corpus, 0, "text");
    assert_tokens(corpus, 1, "text");
    assert_true(hl_corpus_get_info(corpus)->hash == 2 * hl_hash("text", 4, 0));
    hl_corpus_close(corpus);
}

/* ------------------------------------------------------------------- JSONL, types */

static void the_field_can_be_chosen(void **state)
{
    (void)state;
    put("a.jsonl",
        "{\"text\": \"one\", \"body\": \"two\"}\r\n{\"body\": \"three\", \"text\": \"\"}\n");
    hl_corpus *corpus = open_input(here("a.jsonl"));
    assert_names(corpus, "a.jsonl:1");
    assert_tokens(corpus, 0, "one");
    hl_corpus_close(corpus);
    corpus = open_with((hl_corpus_options){ .field = "body" }, here("a.jsonl"));
    assert_tokens(corpus, 0, "two");
    assert_tokens(corpus, 1, "three");
    hl_corpus_close(corpus);
    corpus = open_with((hl_corpus_options){ .format = HL_TEXT_PLAIN }, here("a.jsonl"));
    assert_names(corpus, "a.jsonl");
    hl_corpus_close(corpus);
    refuse_with((hl_corpus_options){ .field = "title" }, here("a.jsonl"), HL_BAD_INPUT,
                "a.jsonl:1: no 'title' in this line");
}

static void spans_give_types(void **state)
{
    (void)state;
    put("a.jsonl",
        "{\"text\": \"é a b c\", \"spans\": [{\"start\": 4, \"end\": 5, \"type\": \"question\"},"
        "{\"start\": 2, \"end\": 7, \"type\": \"answer\"}]}\n");
    hl_corpus            *corpus = open_input(here("a.jsonl"));
    const hl_corpus_info *info   = hl_corpus_get_info(corpus);
    assert_int_equal(info->n_types, 4);
    assert_string_equal(info->type_names[2], "answer"); /* in alphabetical order, not as found */
    assert_string_equal(info->type_names[3], "question");
    assert_types(corpus, 0, "ppaqa"); /* é is two tokens */
    hl_corpus_close(corpus);
}

static void rules_give_types(void **state)
{
    (void)state;
    static const char *const rules[] = { "digits=[0-9]+", "word=b.*" };
    hl_corpus_options        options = { .types = rules, .n_types = 2 };

    put("a.txt", "a 1 b 2 c<|endoftext|>");
    hl_corpus *corpus = open_with(options, here("a.txt"));
    assert_types(corpus, 0, "ppdwwdws"); /* a special token has no other type */
    hl_corpus_close(corpus);
    options.plain = true;
    corpus        = open_with(options, here("a.txt"));
    assert_types(corpus, 0, "ppdwwdwwwwwwwwww");
    hl_corpus_close(corpus);
}

static void chats_have_roles(void **state)
{
    (void)state;
    put("a.jsonl",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}, {\"role\": \"user\","
        " \"content\": [{\"type\": \"text\", \"text\": \"a \"}, {\"type\": \"text\", \"text\": "
        "\"b\"}]},"
        "{\"role\": \"assistant\", \"content\": \"y\"}, {\"role\": \"user\", \"content\": "
        "null}]}\n");
    hl_corpus            *corpus = open_input(here("a.jsonl"));
    const hl_corpus_info *info   = hl_corpus_get_info(corpus);
    hl_token_reader      *reader = NULL;
    hl_token_piece        piece;
    int                   seen[5] = { 0 };

    assert_int_equal(info->n_types, 5);
    assert_int_equal(info->n_bytes, 5);
    assert_string_equal(info->type_names[2], "system");
    assert_string_equal(info->type_names[4], "assistant");
    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    assert_ok(hl_token_reader_next(&piece, reader));
    for (size_t i = 0; i < piece.n_tokens; i++)
        seen[piece.types[i]]++;
    assert_int_equal(seen[0], 0);
    assert_true(seen[1] > 0 && seen[2] == 1 && seen[3] == 2 && seen[4] == 1);
    assert_ok(hl_token_reader_next(&piece, reader));
    assert_int_equal(piece.n_tokens, 0);
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
}

/* The markers of a llama3-like template are special tokens; contents cannot imitate them. */
static void chats_go_through_the_template(void **state)
{
    (void)state;
    hl_tokenizer *own = tokenizer;

    tokenizer = open_tokenizer(shared_path("tokenizers/qwen2_5"));
    put("a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|> b\"}]}\n");
    hl_corpus *corpus = open_with((hl_corpus_options){ .field = "messages" }, here("a.jsonl"));
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;
    int64_t          end    = hl_tokenizer_id(tokenizer, "<|im_end|>", 10);
    int              n_ends = 0;

    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    assert_ok(hl_token_reader_next(&piece, reader));
    for (size_t i = 0; i < piece.n_tokens; i++) {
        n_ends += piece.ids[i] == end && piece.types[i] == HL_TYPE_SPECIAL;
        assert_true(piece.ids[i] != end || piece.types[i] == HL_TYPE_SPECIAL);
    }
    assert_true(n_ends == 1 || n_ends == 2); /* with or without a default system message */
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    tokenizer = own;
}

static void special_tokens_stand_around_a_text(void **state)
{
    (void)state;
    hl_tokenizer *own = tokenizer;

    tokenizer = open_tokenizer(SMALL_TOKENIZERS "/small-wordpiece");
    put("a.txt", "hello");
    hl_corpus *corpus = open_input(here("a.txt"));
    assert_tokens(corpus, 0, "hello"); /* [CLS] hel ##l ##o [SEP] */
    assert_types(corpus, 0, "sppps");
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    tokenizer = own;
}

/* A text of several pieces, with a type at every join. */
static void a_long_text_comes_in_pieces(void **state)
{
    (void)state;
    static const char *const rules[] = { "number=[0-9]+" };
    hl_corpus_options        options = { .types = rules, .n_types = 1 };
    size_t                   n_bytes = 3 * HL_PIECE_BYTES + 12345, n = 0;
    char                    *text = malloc(n_bytes + 32);

    while (n < n_bytes)
        n += (size_t)sprintf(text + n, n % 7 == 0 ? "%zu\n" : "word ", n);
    write_file(here("a.txt"), text, n);
    hl_corpus       *corpus = open_with(options, here("a.txt"));
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;
    int              n_pieces = 0;
    uint64_t         passed   = 0;

    assert_tokens(corpus, 0, text);
    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    for (;; n_pieces++) {
        assert_ok(hl_token_reader_next(&piece, reader));
        if (piece.n_tokens == 0)
            break;
        passed += piece.n_bytes;
        for (size_t i = 0; i < piece.n_tokens; i++) {
            const char *spelling = hl_tokenizer_piece(tokenizer, piece.ids[i], NULL);
            assert_int_equal(piece.types[i] == 2, spelling[0] >= '0' && spelling[0] <= '9');
        }
    }
    assert_true(n_pieces > 2);
    assert_int_equal(passed, n);
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
    free(text);
}

/* --------------------------------------------------------------------- token ids */

static void refuse_ids(const char *path, hl_status status, const char *fragment)
{
    hl_corpus_options options = { .token_ids = path };
    hl_corpus        *corpus  = NULL;

    assert_fails(status, fragment, hl_corpus_open(&corpus, NULL, tokenizer, &options));
    assert_null(corpus);
}

static hl_corpus *open_ids(const char *path)
{
    hl_corpus_options options = { .token_ids = path };
    hl_corpus        *corpus  = NULL;

    assert_ok(hl_corpus_open(&corpus, NULL, tokenizer, &options));
    return corpus;
}

static void assert_ids_of(const hl_corpus *corpus, int64_t document, size_t n, const int64_t *ids)
{
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;

    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, document));
    assert_ok(hl_token_reader_next(&piece, reader));
    assert_int_equal(piece.n_tokens, n);
    assert_memory_equal(piece.ids, ids, n * sizeof *ids);
    hl_token_reader_close(reader);
}

static void ids_in_lines(void **state)
{
    (void)state;
    put("ids", "[5, 6]\n[]\n[7,8,9]\n");
    hl_corpus *corpus = open_ids(here("ids"));
    assert_names(corpus, "ids:1 ids:3");
    assert_ids_of(corpus, 0, 2, (int64_t[]){ 5, 6 });
    assert_ids_of(corpus, 1, 3, (int64_t[]){ 7, 8, 9 });
    hl_corpus_close(corpus);
    put("ids", "[5]\n[1, 9999]\n");
    refuse_ids(here("ids"), HL_BAD_INPUT, "ids:2: token 1 is 9999, wanted 0 to 1023");
    put("ids", "[-1]\n");
    refuse_ids(here("ids"), HL_BAD_INPUT, "ids:1: token 0 is -1, wanted 0 to 1023");
    put("ids", "{}\n");
    refuse_ids(here("ids"), HL_BAD_INPUT, "ids:1: wanted an array of token ids");
    put("ids", "[1.5]\n");
    refuse_ids(here("ids"), HL_BAD_INPUT, "ids:1: JSON");
    put("ids", "[]\n");
    refuse_ids(here("ids"), HL_BAD_INPUT, "ids: no token ids in this file");
}

/* Writes a .npy file of this descr with shape (2, 3). */
static void ids_in_tables(void **state)
{
    (void)state;
    static const int64_t  wide[6]   = { 1, 2, 3, 4, 5, 6 };
    static const uint16_t narrow[2] = { 300, 7 };
    static const int8_t   negative  = -2;

    write_npy(here("a.npy"), "<i8", "(2, 3)", wide, sizeof wide);
    hl_corpus *corpus = open_ids(here("a.npy"));
    assert_names(corpus, "a.npy:1 a.npy:2");
    assert_ids_of(corpus, 1, 3, (int64_t[]){ 4, 5, 6 });
    hl_corpus_close(corpus);
    write_npy(here("a.npy"), "<u2", "(2,)", narrow, sizeof narrow);
    corpus = open_ids(here("a.npy"));
    assert_ids_of(corpus, 0, 2, (int64_t[]){ 300, 7 });
    hl_corpus_close(corpus);
    write_npy(here("a.npy"), "|i1", "(1,)", &negative, 1);
    refuse_ids(here("a.npy"), HL_BAD_INPUT, "a.npy:1: token 0 is -2, wanted 0 to 1023");
    write_npy(here("a.npy"), "<f4", "(2, 1)", wide, 8);
    refuse_ids(here("a.npy"), HL_BAD_INPUT, "a.npy: token ids of type F32, wanted integers");
    write_npy(here("a.npy"), "<i4", "(1, 1, 1)", wide, 4);
    refuse_ids(here("a.npy"), HL_BAD_INPUT, "3 dimensions, wanted 1 or 2");
}

/* The tokens of the golden files. */
static void ids_of_a_golden_file(void **state)
{
    (void)state;
    hl_model  *model  = NULL;
    hl_corpus *corpus = NULL;

    assert_ok(hl_model_open(&model, "models/demo"));
    hl_corpus_options options = { .token_ids = "models/demo/expected.safetensors" };
    assert_ok(hl_corpus_open(&corpus, model, NULL, &options)); /* ids need no tokenizer */
    assert_true(hl_corpus_get_info(corpus)->n_documents >= 1);
    assert_int_equal(hl_corpus_separator(corpus), hl_model_get_info(model)->eos_ids[0]);
    hl_corpus_close(corpus);
    options = (hl_corpus_options){ .token_ids = "models/demo/model.safetensors" };
    assert_fails(HL_BAD_INPUT, "no tensor 'tokens' in it",
                 hl_corpus_open(&corpus, model, NULL, &options));
    hl_model_close(model);
}

/* ---------------------------------------------------------------------- sampling */

static void a_sample_does_not_depend_on_order(void **state)
{
    (void)state;
    hl_corpus_options options = { .n_sample = 10, .seed = 3 };
    uint64_t          hashes[2];

    for (int round = 0; round < 2; round++) {
        FILE *file = fopen(here("a.jsonl"), "w");
        for (int i = 0; i < 50; i++)
            fprintf(file, "{\"text\": \"document %d\"}\n", round == 0 ? i : 49 - i);
        fclose(file);
        hl_corpus *corpus = open_with(options, here("a.jsonl"));
        assert_int_equal(hl_corpus_get_info(corpus)->n_documents, 10);
        hashes[round] = hl_corpus_get_info(corpus)->hash;
        hl_corpus_close(corpus);
    }
    assert_true(hashes[0] == hashes[1]);
    options.seed      = 4;
    hl_corpus *corpus = open_with(options, here("a.jsonl"));
    assert_true(hl_corpus_get_info(corpus)->hash != hashes[0]);
    hl_document_info before, after;
    assert_ok(hl_corpus_get_document(&before, corpus, 0));
    for (int64_t i = 1; i < 10; i++) { /* the order of the file is kept */
        assert_ok(hl_corpus_get_document(&after, corpus, i));
        assert_true(atoi(strrchr(before.name, ':') + 1) < atoi(strrchr(after.name, ':') + 1));
        before = after;
    }
    assert_fails(HL_BAD_ARGUMENT, "document 10, wanted 0 to 9",
                 hl_corpus_get_document(&after, corpus, 10));
    hl_corpus_close(corpus);
    options.n_sample = 1000;
    corpus           = open_with(options, here("a.jsonl"));
    assert_int_equal(hl_corpus_get_info(corpus)->n_documents, 50);
    hl_corpus_close(corpus);
}

/* ------------------------------------------------------------------------- memory */

static long peak_kib(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void read_all(const char *path, size_t n_words)
{
    FILE *file = fopen(path, "w");
    for (size_t i = 0; i < n_words; i++)
        fprintf(file, "word%zu%s", i % 977, i % 12 == 11 ? "\n" : " ");
    fclose(file);

    hl_corpus       *corpus = open_input(path);
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;
    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    do {
        assert_ok(hl_token_reader_next(&piece, reader));
    } while (piece.n_tokens > 0);
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
}

/* Ten times the text takes the same peak memory. */
static void memory_does_not_grow_with_the_text(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    read_all(here("a.txt"), 125000); /* 1 MB */
    long before = peak_kib();
    read_all(here("a.txt"), 1250000);
    long grown = peak_kib() - before;
    if (grown > 1024)
        fail_msg("%ld KiB more for ten times the text", grown);
}

/* ------------------------------------------------------- files that change while in use */

enum { LONG_BYTES = 3 << 18 }; /* more than two pieces */

static void put_long(const char *name)
{
    char *text = malloc(LONG_BYTES);

    assert_non_null(text);
    for (size_t i = 0; i < LONG_BYTES; i++)
        text[i] = "a cat sat on the mat. "[i % 22];
    write_file(here(name), text, LONG_BYTES);
    free(text);
}

/* Begins to read a document, lets `change` modify the file, and continues; returns the number of
 * tokens. */
static hl_status read_changing(size_t *out, const char *name, void (*change)(const char *path))
{
    hl_corpus       *corpus = open_input(here(name));
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;

    *out = 0;
    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    assert_ok(hl_token_reader_next(&piece, reader));
    assert_true(piece.n_tokens > 0);
    if (change != NULL)
        change(here(name));
    hl_status status = HL_OK;
    while (status == HL_OK && piece.n_tokens > 0) {
        *out += piece.n_tokens;
        status = hl_token_reader_next(&piece, reader);
    }
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
    return status;
}

static void append(const char *path)
{
    FILE *file = fopen(path, "a");

    assert_non_null(file);
    for (int i = 0; i < 100000; i++)
        fputs("and more ", file);
    fclose(file);
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, LONG_BYTES / 2), 0);
}

static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void spoil(const char *path)
{
    FILE *file = fopen(path, "r+");

    assert_non_null(file);
    assert_int_equal(fseek(file, LONG_BYTES - 100, SEEK_SET), 0);
    fputs("\xff\xfe", file);
    fclose(file);
}

/* Text that is appended during reading is ignored: the text ends where it ended at opening. */
static void a_text_that_grows_ends_where_it_did(void **state)
{
    size_t wanted = 0, seen = 0;
    (void)state;

    put_long("a.txt");
    assert_ok(read_changing(&wanted, "a.txt", NULL));
    assert_ok(read_changing(&seen, "a.txt", append));
    assert_int_equal(seen, wanted);
    assert_ok(read_changing(&seen, "a.txt", NULL)); /* the next corpus includes it */
    assert_true(seen > wanted);
    put("b.jsonl", "{\"text\": \"one\"}\n");
    hl_corpus *corpus = open_input(here("b.jsonl"));
    append(here("b.jsonl"));
    assert_tokens(corpus, 0, "one");
    assert_int_equal(hl_corpus_get_info(corpus)->n_documents, 1);
    hl_corpus_close(corpus);
}

/* A text that was truncated, or is no longer UTF-8, is refused by name, not measured in part. */
static void a_text_that_shrinks_is_refused(void **state)
{
    size_t n_tokens = 0;
    (void)state;

    put_long("a.txt");
    assert_fails(HL_BAD_INPUT, ", but had 786432 bytes: it shrank while in use",
                 read_changing(&n_tokens, "a.txt", cut));
    put_long("a.txt");
    assert_fails(HL_BAD_INPUT, "it shrank while in use", read_changing(&n_tokens, "a.txt", empty));
    put_long("a.txt");
    assert_fails(HL_BAD_INPUT,
                 "a.txt: byte 786332 is no longer UTF-8: the file changed while in use",
                 read_changing(&n_tokens, "a.txt", spoil));
}

/* ------------------------------------------------------------------------ stopping */

static bool stops_later(void *context)
{
    return --*(int *)context < 0;
}

/* Reads a document of a corpus that is stopped after n_questions calls. */
static hl_status read_stopped(const char *name, int n_questions)
{
    hl_corpus *corpus =
        open_with((hl_corpus_options){ .stop = stops_later, .context = &n_questions }, here(name));
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;

    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    hl_status status = hl_token_reader_start(reader, 0);
    do {
        if (status == HL_OK)
            status = hl_token_reader_next(&piece, reader);
    } while (status == HL_OK && piece.n_tokens > 0);
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
    return status;
}

static void a_corpus_can_be_stopped(void **state)
{
    (void)state;
    put_long("a.txt");
    assert_fails(HL_CANCELLED, "", read_stopped("a.txt", 0));
    assert_fails(HL_CANCELLED, "", read_stopped("a.txt", 20));
    assert_ok(read_stopped("a.txt", INT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_a_document),
        TEST(a_folder_is_its_text_files_sorted),
        TEST(a_pattern_is_what_it_matches),
        TEST(inputs_keep_their_order),
        TEST(standard_input_is_copied),
        TEST(bytes_in_memory_are_a_file),
        TEST(a_byte_order_mark_is_dropped),
        TEST(the_field_can_be_chosen),
        TEST(spans_give_types),
        TEST(rules_give_types),
        TEST(chats_have_roles),
        TEST(chats_go_through_the_template),
        TEST(special_tokens_stand_around_a_text),
        TEST(a_long_text_comes_in_pieces),
        TEST(ids_in_lines),
        TEST(ids_in_tables),
        TEST(ids_of_a_golden_file),
        TEST(a_sample_does_not_depend_on_order),
        TEST(memory_does_not_grow_with_the_text),
        TEST(a_text_that_grows_ends_where_it_did),
        TEST(a_text_that_shrinks_is_refused),
        TEST(a_corpus_can_be_stopped),
    };
    return RUN_GROUP(tests);
}
