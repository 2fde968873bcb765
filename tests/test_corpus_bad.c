/* test_corpus_bad.c - texts that cannot be read: the message names the file and the place. */
#include "corpus_support.h"

#include <sys/stat.h>

/* --------------------------------------------------------------------- what is bad */

static void bad_files_are_named(void **state)
{
    (void)state;
    put("empty.txt", "");
    refuse(here("empty.txt"), HL_BAD_INPUT, "empty.txt: no text in this file, nothing to measure");
    put("also.txt", "");
    refuse(here("*.txt"), HL_BAD_INPUT, "also.txt and 1 more files: no text in these files");
    refuse(here("nowhere"), HL_NOT_FOUND, "nowhere: No such file");
    put("bad.txt", "good\nbad \xff text");
    refuse(here("bad.txt"), HL_BAD_INPUT, "bad.txt: line 2, byte 9: 0xff is not UTF-8");
    put("cut.txt", "good\n\xe2\x82");
    refuse(here("cut.txt"), HL_BAD_INPUT, "cut.txt: line 2, byte 5: 0xe2 is not UTF-8");
    put("gz.txt", "\x1f\x8b\x08");
    refuse(here("gz.txt"), HL_BAD_INPUT, "byte 1: 0x8b is not UTF-8 (gzip?");
    put("wide.txt", "\xff\xfeh");
    refuse(here("wide.txt"), HL_BAD_INPUT, "(UTF-16?");
    assert_int_equal(mkfifo(here("pipe"), 0666), 0);
    refuse(here("pipe"), HL_BAD_INPUT, "pipe: is a pipe; give a file");
    refuse("/dev/null", HL_BAD_INPUT, "/dev/null: not a regular file");
}

/* An invalid byte, and a character split between two blocks. */
static void places_are_counted_across_blocks(void **state)
{
    (void)state;
    size_t n    = (size_t)1 << 19;
    char  *text = malloc(n);

    for (size_t i = 0; i < n; i++)
        text[i] = i % 64 == 63 ? '\n' : 'x';
    memcpy(text + (n / 2) - 1, "\xe2\x82\xac", 3); /* across the border of two blocks */
    write_file(here("a.txt"), text, n);
    hl_corpus *corpus = open_input(here("a.txt"));
    hl_corpus_close(corpus);
    text[n / 2 + 4096 + 5] = '\x80';
    write_file(here("a.txt"), text, n);
    /* One line end before the error was overwritten. */
    refuse(here("a.txt"), HL_BAD_INPUT, "a.txt: line 4160, byte 266245: 0x80 is not UTF-8");
    free(text);
}

static void bad_folders_are_named(void **state)
{
    (void)state;
    refuse(folder, HL_BAD_INPUT, "no text in this folder");
    put("a.png", "x");
    refuse(folder, HL_BAD_INPUT, "1 other files)");
    put("b.txt", "x");
    if (geteuid() != 0) { /* root may read everything */
        assert_int_equal(chmod(here("b.txt"), 0), 0);
        refuse(folder, HL_IO, "b.txt: Permission denied");
    }
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        hl_status   status;
        const char *fragment;
    } cases[] = {
        { "[1]", HL_BAD_INPUT, "a.jsonl:3: is an array, wanted an object" },
        { "nope", HL_BAD_INPUT, "a.jsonl:3: JSON line 1, column 1: not a value" },
        { "{\"text\": \"\xff\"}", HL_BAD_INPUT, "a.jsonl:3: JSON line 1" },
        { "{}", HL_BAD_INPUT, "a.jsonl:3: no 'text' and no 'messages' in this line" },
        { "{\"text\": 5}", HL_BAD_INPUT,
          "a.jsonl:3: 'text' is an integer, wanted a string or an array of messages" },
        { "{\"text\": \"x\", \"spans\": {}}", HL_BAD_INPUT, "'spans' is an object" },
        { "{\"text\": \"x\", \"spans\": [1]}", HL_BAD_INPUT, "span 0 is an integer" },
        { "{\"text\": \"x\", \"spans\": [{\"start\": 0, \"end\": 1}]}", HL_BAD_INPUT,
          "span 0 has no 'type'" },
        { "{\"text\": \"éx\", \"spans\": [{\"start\": 0, \"end\": 3, \"type\": \"a\"}]}",
          HL_BAD_INPUT, "a.jsonl:3: span 0: characters 0 to 3 of a text of 2" },
        { "{\"text\": \"x\", \"spans\": [{\"start\": 1, \"end\": 0, \"type\": \"a\"}]}",
          HL_BAD_INPUT, "characters 1 to 0" },
        { "{\"text\": \"x\", \"spans\": [{\"start\": 0, \"end\": 1, \"type\": \"a b\"}]}",
          HL_BAD_INPUT, "'a b' is not a name for a token type" },
        { "{\"messages\": [5]}", HL_BAD_INPUT, "message 0 is an integer" },
        { "{\"messages\": [{\"content\": \"x\"}]}", HL_BAD_INPUT, "message 0 has no 'role'" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", HL_BAD_INPUT,
          "message 0: 'content' is an integer" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
          HL_UNSUPPORTED, "message 0: a part of its content is not text" },
    };
    char text[512];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{\"text\": \"fine\"}\n\n%s\n", cases[i].line);
        put("a.jsonl", text);
        refuse(here("a.jsonl"), cases[i].status, cases[i].fragment);
    }
}

static void bad_types_are_named(void **state)
{
    (void)state;
    static const char *const bad[]  = { "digits", "a=(", "a b=x", "=x" };
    static const char *const said[] = { "type 'digits': wanted NAME=EXPRESSION",
                                        "regular expression '(', at", "'a b' is not a name",
                                        "'' is not a name" };
    static const char *const many[] = { "a=x", "b=x", "c=x", "d=x", "e=x", "f=x", "g=x" };

    put("a.txt", "x");
    for (size_t i = 0; i < 4; i++) {
        hl_corpus_options options = { .types = &bad[i], .n_types = 1 };
        refuse_with(options, here("a.txt"), i == 0 ? HL_BAD_ARGUMENT : HL_BAD_INPUT, said[i]);
    }
    refuse_with((hl_corpus_options){ .types = many, .n_types = 7 }, here("a.txt"), HL_LIMIT,
                "'g' is one token type too many beside a, b, c, d, e, f: at most 8");
    put("b.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n");
    refuse_with((hl_corpus_options){ .types = many, .n_types = 4 }, here("b.jsonl"), HL_LIMIT,
                "one token type too many");
}

static void options_must_make_sense(void **state)
{
    (void)state;
    const char *input  = "x";
    hl_corpus  *corpus = NULL;

    assert_fails(HL_BAD_ARGUMENT, "no text given",
                 hl_corpus_open(&corpus, NULL, tokenizer, &(hl_corpus_options){ 0 }));
    hl_corpus_options both = { .inputs = &input, .n_inputs = 1, .token_ids = "y" };
    assert_fails(HL_BAD_ARGUMENT, "cannot be combined",
                 hl_corpus_open(&corpus, NULL, tokenizer, &both));
    hl_corpus_options text = { .inputs = &input, .n_inputs = 1 };
    assert_fails(HL_BAD_ARGUMENT, "needs a tokenizer", hl_corpus_open(&corpus, NULL, NULL, &text));
    assert_fails(HL_BAD_ARGUMENT, "no options", hl_corpus_open(&corpus, NULL, tokenizer, NULL));
    hl_corpus_options ids = { .token_ids = "y" };
    assert_fails(HL_BAD_ARGUMENT, "to be checked by", hl_corpus_open(&corpus, NULL, NULL, &ids));
}

/* Files that change between opening a corpus and reading it. */
static void files_that_change_are_noticed(void **state)
{
    (void)state;
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;

    put("a.txt", "some text");
    put("b.jsonl", "{\"text\": \"some text\"}\n");
    put("c.txt", "some text");
    put("d.txt", "some text");
    hl_corpus *corpus = open_input(folder);
    put("a.txt", "some tent");
    put("b.jsonl", "{\"text\": \"some tent\"}\n");
    put("c.txt", "some");
    assert_int_equal(unlink(here("d.txt")), 0);
    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    assert_fails(HL_BAD_INPUT, "a.txt: the file changed while in use",
                 hl_token_reader_next(&piece, reader));
    assert_fails(HL_BAD_INPUT, "b.jsonl:1: the file changed while in use",
                 hl_token_reader_start(reader, 1));
    assert_fails(HL_BAD_INPUT, "c.txt: the file changed while in use",
                 hl_token_reader_start(reader, 2));
    assert_fails(HL_NOT_FOUND, "d.txt: No such file", hl_token_reader_start(reader, 3));
    assert_fails(HL_BAD_ARGUMENT, "document 4", hl_token_reader_start(reader, 4));
    assert_ok(hl_token_reader_next(&piece, reader)); /* no document is open, so there are no
                                                      * tokens */
    assert_int_equal(piece.n_tokens, 0);
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
}

static void another_models_tokenizer_is_noticed(void **state)
{
    (void)state;
    hl_model        *model  = NULL;
    hl_corpus       *corpus = NULL;
    hl_tokenizer    *large  = open_tokenizer(shared_path("tokenizers/gpt2"));
    hl_token_reader *reader = NULL;
    hl_token_piece   piece;

    put("a.txt", "some unbelievable text");
    assert_ok(hl_model_open(&model, "models/demo"));
    const char       *input   = here("a.txt");
    hl_corpus_options options = { .inputs = &input, .n_inputs = 1 };
    assert_ok(hl_corpus_open(&corpus, model, large, &options));
    assert_ok(hl_token_reader_open(&reader, corpus, HL_AROUND_DOCUMENT));
    assert_ok(hl_token_reader_start(reader, 0));
    assert_fails(HL_BAD_INPUT,
                 "but the model has only 4096 tokens: this is the tokenizer of another model",
                 hl_token_reader_next(&piece, reader));
    hl_token_reader_close(reader);
    hl_corpus_close(corpus);
    hl_tokenizer_close(large);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_files_are_named),           TEST(places_are_counted_across_blocks),
        TEST(bad_folders_are_named),         TEST(bad_lines_are_named),
        TEST(bad_types_are_named),           TEST(options_must_make_sense),
        TEST(files_that_change_are_noticed), TEST(another_models_tokenizer_is_noticed),
    };
    return RUN_GROUP(tests);
}
