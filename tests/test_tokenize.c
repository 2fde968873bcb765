/* test_tokenize.c - short tokenizer.json files: models, added tokens, post-processors, and invalid
 * files. */
#include "tokenize_support.h"

#include <pthread.h>

/* Returns a tokenizer.json with these members, followed by this model. */
static const char *file_with(const char *members, const char *model)
{
    static char text[8192];
    int         length = snprintf(text, sizeof text, "{%s%s\"model\":%s}", members,
                          members[0] != '\0' ? "," : "", model);
    assert_true(length > 0 && length < (int)sizeof text);
    return text;
}

#define ABC_VOCAB                                                                                  \
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"c\":3,\"ab\":4,\"abc\":5,\"bc\":6,\"<0xC3>\":7,"     \
    "\"<0xA9>\":8,\"aa\":9,\"aaa\":10}"
#define ABC_MERGES "\"merges\":[\"a b\",\"b c\",[\"ab\",\"c\"],\"a a\",\"aa a\"]"

/* --------------------------------------------------------------------- models */

static void bpe_merges_by_rank_and_place(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("", "{\"type\":\"BPE\",\"unk_token\":\"<unk>\"," ABC_VOCAB "," ABC_MERGES "}"));

    assert_ids(t, "abc", IDS(5));
    assert_ids(t, "bcab", IDS(6, 4));
    assert_ids(t, "aaaa", IDS(9, 9)); /* leftmost first: aa aa, not aaa a */
    assert_ids(t, "aaaaa", IDS(9, 10));
    assert_ids(t, "xay", IDS(0, 1, 0));
    assert_ids(t, "xya", IDS(0, 0, 1));
    assert_ids(t, "", NO_IDS);
    assert_string_equal(hl_tokenizer_kind(t), "BPE");
    assert_int_equal(hl_tokenizer_size(t), 11);
    assert_int_equal(hl_tokenizer_id(t, "abc", 3), 5);
    assert_int_equal(hl_tokenizer_id(t, "abcd", 4), -1);
    assert_null(hl_tokenizer_piece(t, 11, NULL));
    assert_null(hl_tokenizer_piece(t, -1, NULL));
    assert_int_equal(hl_tokenizer_type(t, 0), HL_TOKEN_UNKNOWN);
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_UNK), 0);
    hl_tokenizer_close(t);
}

static void bpe_options(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("", "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true," ABC_VOCAB
                      "," ABC_MERGES "}"));
    assert_ids(t, "xyzab\xc3\xa9", IDS(0, 4, 0));
    hl_tokenizer_close(t);
    t = parse_tokenizer(file_with("", "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":"
                                      "true," ABC_VOCAB "," ABC_MERGES "}"));
    assert_ids(t, "a\xc3\xa9x", IDS(1, 7, 8, 0));
    assert_int_equal(hl_tokenizer_type(t, 7), HL_TOKEN_BYTE);
    hl_tokenizer_close(t);
    /* Without an unknown token, unknown characters are dropped. */
    t = parse_tokenizer(file_with("", "{\"type\":\"BPE\"," ABC_VOCAB "," ABC_MERGES "}"));
    assert_ids(t, "xaby", IDS(4));
    hl_tokenizer_close(t);
    /* A piece that no merge produces is found as a whole word, if the file requests it. */
    const char *vocab = "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]";
    char        model[256];
    snprintf(model, sizeof model, "{\"type\":\"BPE\",%s}", vocab);
    t = parse_tokenizer(file_with("", model));
    assert_ids(t, "ab", IDS(0, 1));
    hl_tokenizer_close(t);
    snprintf(model, sizeof model, "{\"type\":\"BPE\",\"ignore_merges\":true,%s}", vocab);
    t = parse_tokenizer(file_with("", model));
    assert_ids(t, "ab", IDS(2));
    assert_ids(t, "abb", IDS(0, 1, 1));
    hl_tokenizer_close(t);
    t = parse_tokenizer(file_with(
        "", "{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":\"$\","
            "\"vocab\":{\"a\":0,\"##b\":1,\"##c$\":2,\"ab\":3,\"abc$\":4,\"c$\":5},"
            "\"merges\":[\"a ##b\",\"ab ##c$\"]}"));
    assert_ids(t, "abc", IDS(4));
    assert_ids(t, "c", IDS(5));
    hl_tokenizer_close(t);
}

/* If no piece has a ▁ inside, long texts are cut at spaces, without an effect on the tokens. */
static void cutting_at_spaces_changes_nothing(void **state)
{
    (void)state;
#define MARKED                                                                                     \
    "\"\xe2\x96\x81\":0,\"a\":1,\"b\":2,\"\xe2\x96\x81"                                            \
    "a\":3,\"\xe2\x96\x81\xe2\x96\x81\":4"
    const char   *members = "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                            "\"content\":\"\xe2\x96\x81\"}";
    hl_tokenizer *t = parse_tokenizer(file_with(members, "{\"type\":\"BPE\",\"vocab\":{" MARKED
                                                         "},\"merges\":[\"\xe2\x96\x81 a\","
                                                         "\"\xe2\x96\x81 \xe2\x96\x81\"]}"));
    assert_ids(t, "a ab  a   b", IDS(1, 3, 2, 0, 3, 4, 0, 2));
    hl_tokenizer_close(t);
    t = parse_tokenizer(file_with(
        members,
        "{\"type\":\"BPE\",\"vocab\":{" MARKED ",\"b\xe2\x96\x81\":5},"
        "\"merges\":[\"b \xe2\x96\x81\",\"\xe2\x96\x81 a\",\"\xe2\x96\x81 \xe2\x96\x81\"]}"));
    assert_ids(t, "ab a", IDS(1, 5, 1));
    hl_tokenizer_close(t);
}

/* When a, b and c have become abc, the b after them is not the neighbor of that a any more.  Ids
 * from Hugging Face's tokenizers 0.23. */
static void pairs_that_are_gone_do_not_merge(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"bc\":3,\"abc\":4,"
                      "\"ab\":5},\"merges\":[\"b c\",\"a bc\",\"a b\"]}"));
    assert_ids(t, "abcb", IDS(4, 1));
    assert_ids(t, "abcbab", IDS(4, 1, 5));
    assert_ids(t, "cabcb", IDS(2, 4, 1));
    hl_tokenizer_close(t);
}

static void unigram_takes_the_best_path(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"a\",0.0],"
                      "[\"b\",0.0],[\"c\",0.0],[\"d\",0.0],[\"cd\",1.0],[\"ab\",2.0],[\"abc\",5.0],"
                      "[\"abcd\",10.0]]}"));
    assert_ids(t, "abcdacdxx", IDS(8, 1, 5, 0));
    assert_ids(t, "xax", IDS(0, 1, 0));
    assert_string_equal(hl_tokenizer_kind(t), "Unigram");
    hl_tokenizer_close(t);
    t = parse_tokenizer(
        file_with("", "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,"
                      "\"vocab\":[[\"<unk>\",0],[\"<0xC3>\",0.01],[\"<0xA9>\",0.01]]}"));
    assert_ids(t, "\xc3\xa9", IDS(1, 2));
    assert_ids(t, "\xc3\xa9x", IDS(0));
    hl_tokenizer_close(t);
}

/* Of paths with equal scores, the one whose last piece begins first is kept, at every place of the
 * text.  Ids from Hugging Face's tokenizers 0.23. */
static void unigram_ties(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],"
                      "[\"b\",-1],[\"c\",-1],[\"ab\",-2],[\"bc\",-2],[\"abc\",-3]]}"));
    assert_ids(t, "ab", IDS(4));
    assert_ids(t, "abc", IDS(6));
    assert_ids(t, "bcab", IDS(5, 4));
    assert_ids(t, "cab", IDS(3, 4));
    hl_tokenizer_close(t);
    t = parse_tokenizer(
        file_with("", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-2],"
                      "[\"b\",-2],[\"c\",-2],[\"ab\",-3],[\"bc\",-3]]}"));
    assert_ids(t, "abc", IDS(1, 5));
    assert_ids(t, "aabcc", IDS(1, 1, 5, 3));
    assert_ids(t, "abcabc", IDS(1, 5, 1, 5));
    hl_tokenizer_close(t);
}

/* An unknown character costs 10 more than the worst piece, here -30: p and qr together have -34.5
 * or -35.5, pq and r have -35.  Ids from Hugging Face's tokenizers 0.23. */
static void unigram_unknown_characters_have_a_price(void **state)
{
    (void)state;
#define WITH_QR(score)                                                                             \
    file_with("", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],"                   \
                  "[\"pq\",-20],[\"r\",-15],[\"qr\"," score "]]}")
    hl_tokenizer *t = parse_tokenizer(WITH_QR("-4.5"));
    assert_ids(t, "pqr", IDS(0, 3));
    assert_ids(t, "pqrpqr", IDS(0, 3, 0, 3));
    hl_tokenizer_close(t);
    t = parse_tokenizer(WITH_QR("-5.5"));
    assert_ids(t, "pqr", IDS(1, 2));
    assert_ids(t, "pqrpqr", IDS(1, 2, 1, 2));
    hl_tokenizer_close(t);
#undef WITH_QR
}

static void word_models(void **state)
{
    (void)state;
    const char   *split = "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}";
    hl_tokenizer *t     = parse_tokenizer(file_with(
            split, "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"max_input_chars_per_word\":10,"
                       "\"vocab\":{\"[UNK]\":0,\"un\":1,\"##aff\":2,\"##able\":3,\"##a\":4,\"a\":5}}"));
    assert_ids(t, "unaffable a aa unx", IDS(1, 2, 3, 5, 5, 4, 0));
    assert_ids(t, "aaaaaaaaaa aaaaaaaaaaa", IDS(5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0));
    hl_tokenizer_close(t);
    t = parse_tokenizer(file_with(
        split,
        "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":7,\"the\":1,\"cat\":2}}"));
    assert_ids(t, "the cat sat", IDS(1, 2, 7));
    assert_int_equal(hl_tokenizer_size(t), 8);
    assert_null(hl_tokenizer_piece(t, 3, NULL));
    hl_tokenizer_close(t);
}

/* -------------------------------------------------------------- added tokens */

#define ADDED(id, content, more) "{\"id\":" #id ",\"content\":\"" content "\"" more "}"
#define LETTERS                                                                                    \
    "{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\" \":3,\"<\":4,"    \
    "\">\":5,\"s\":6},\"merges\":[]}"

static void added_tokens_are_found_first(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(file_with(
        "\"added_tokens\":[" ADDED(10, "<s>", ",\"special\":true,\"normalized\":false") "," ADDED(
            11, "<s>>",
            ",\"normalized\":false") "," ADDED(12, "ab",
                                               ",\"single_word\":true") "," ADDED(13, "<b>",
                                                                                  ",\"lstrip\":"
                                                                                  "true,\"rstrip\":"
                                                                                  "true,"
                                                                                  "\"normalized\":"
                                                                                  "false") "]",
        LETTERS));

    assert_ids(t, "a<s>b", IDS(1, 10, 2));
    assert_ids(t, "<s>>", IDS(11)); /* the longest */
    assert_ids(t, "<s>>>", IDS(11, 5));
    assert_ids(t, "<s<s>", IDS(4, 6, 10));
    assert_ids(t, "ab", IDS(12));
    assert_ids(t, "aab b ab", IDS(1, 1, 2, 3, 2, 3, 12));
    assert_ids(t, "a  <b> \n b", IDS(1, 13, 2));
    assert_int_equal(hl_tokenizer_type(t, 10), HL_TOKEN_SPECIAL);
    assert_int_equal(hl_tokenizer_type(t, 11), HL_TOKEN_ADDED);
    assert_int_equal(hl_tokenizer_size(t), 14);
    hl_encoding *encoding = encode(t, "a  <b> b", 8, false);
    assert_int_equal(encoding->spans[1].begin, 1);
    assert_int_equal(encoding->spans[1].end, 7);
    hl_encoding_free(encoding);
    hl_tokenizer_close(t);
}

static void some_are_found_after_normalizing(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[" ADDED(
                      10, "AB", "") "," ADDED(11, "BA", ",\"normalized\":false") "]",
                  LETTERS));
    assert_ids(t, "aAbB", IDS(1, 10, 2));
    assert_ids(t, "ba", IDS(2, 1));
    assert_ids(t, "BA", IDS(11));
    hl_tokenizer_close(t);
}

/* ------------------------------------------------------------ post-processors */

static void with_special_around(const char *post, const int64_t *ids)
{
    char members[1024];
    snprintf(members, sizeof members, "\"post_processor\":%s", post);
    hl_tokenizer *t        = parse_tokenizer(file_with(members, LETTERS));
    hl_encoding  *encoding = encode(t, "a", 1, true);
    for (size_t i = 0; i < encoding->n_tokens; i++)
        assert_int_equal(encoding->ids[i], ids[i]);
    assert_int_equal(ids[encoding->n_tokens], -1);
    hl_encoding_free(encoding);
    hl_tokenizer_close(t);
}

static void post_processors(void **state)
{
    (void)state;
    with_special_around("null", IDS(1));
    with_special_around("{\"type\":\"BertProcessing\",\"sep\":[\"b\",2],\"cls\":[\"s\",6]}",
                        IDS(6, 1, 2));
    with_special_around("{\"type\":\"RobertaProcessing\",\"sep\":[\"b\",2],\"cls\":[\"s\",6],"
                        "\"trim_offsets\":true,\"add_prefix_space\":false}",
                        IDS(6, 1, 2));
    with_special_around("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
                        "\"s\",\"type_id\":0}},"
                        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":"
                        "\"x\",\"type_id\":0}}],"
                        "\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[6],\"tokens\":[\"s\"]},"
                        "\"x\":{\"id\":\"x\",\"ids\":[4,5],\"tokens\":[\"<\",\">\"]}}}",
                        IDS(6, 1, 4, 5));
    with_special_around("{\"type\":\"TemplateProcessing\",\"single\":[\"s:0\",\"$A:0\",\"s\"],"
                        "\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[6]}}}",
                        IDS(6, 1, 6));
    with_special_around("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
                        "{\"type\":\"BertProcessing\",\"sep\":[\"b\",2],\"cls\":[\"s\",6]}]}",
                        IDS(6, 1, 2));
}

static void spans_are_trimmed(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                  "\"post_processor\":{\"type\":\"ByteLevel\",\"trim_offsets\":true,\"add_prefix_"
                  "space\":false}",
                  "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xc4\xa0\":1,\"\xc4\xa0"
                  "a\":2},"
                  "\"merges\":[\"\xc4\xa0 a\"]}"));
    hl_encoding *encoding = encode(t, "a a  a", 6, false);

    assert_int_equal(encoding->n_tokens, 4);
    static const size_t wanted[][2] = { { 0, 1 }, { 2, 3 }, { 4, 4 }, { 5, 6 } };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(encoding->spans[i].begin, wanted[i][0]);
        assert_int_equal(encoding->spans[i].end, wanted[i][1]);
    }
    hl_encoding_free(encoding);
    hl_tokenizer_close(t);
}

/* ------------------------------------------------------------------ bad files */

static void refuse(hl_status status, const char *json, const char *fragment)
{
    hl_tokenizer *tokenizer = (hl_tokenizer *)&tokenizer;
    assert_fails(status, fragment, hl_tokenizer_parse(&tokenizer, json, strlen(json), "x.json"));
    if (strncmp(hl_error_message(), "x.json", 6) != 0)
        fail_msg("'%s' does not name the file", hl_error_message());
    assert_null(tokenizer);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    refuse(HL_BAD_INPUT, "", "the text ends where '{' should be");
    refuse(HL_BAD_INPUT, "[]", "'[' where '{' should be");
    refuse(HL_BAD_INPUT, "{}", "no 'model': is this a tokenizer.json?");
    refuse(HL_BAD_INPUT, "{\"model\":{}} x", "something after the end");
    refuse(HL_BAD_INPUT, "{\"model\":{},\"model\":{}}", "'model' twice");
    refuse(HL_BAD_INPUT, "{\"model\":{\"type\":\"BPE\"}}", "the model has no vocabulary");
    refuse(HL_UNSUPPORTED, "{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}",
           "the model type 'Magic' is not known");
    refuse(HL_BAD_INPUT, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "without merges");
    refuse(HL_BAD_INPUT,
           file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"),
           "id 0 is given to 'a' and to 'b'");
    refuse(HL_BAD_INPUT,
           file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}"),
           "the piece with id 1 was there before");
    refuse(HL_BAD_INPUT, file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"),
           "id -1 of 'a' is not between 0 and 4194303");
    refuse(HL_BAD_INPUT,
           file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":1000000000},\"merges\":[]}"),
           "id 1000000000");
    refuse(HL_BAD_INPUT, file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}"),
           "1.5 is not an integer");
    refuse(HL_BAD_INPUT,
           file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}"),
           "merge 0 needs the piece 'b'");
    refuse(HL_BAD_INPUT,
           file_with("", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}"),
           "merge 0 needs the piece 'ab'");
    static const char *const merges[] = { "\"a\"",        "\" a\"",  "\"a \"",
                                          "\"a b c\"",    "[\"a\"]", "[\"a\",\"b\",\"c\"]",
                                          "[\"\",\"a\"]", "7" };
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        char model[256];
        snprintf(model, sizeof model,
                 "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[%s]}",
                 merges[i]);
        refuse(HL_BAD_INPUT, file_with("", model), "x.json: merges");
    }
    refuse(HL_BAD_INPUT, file_with("", "{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",0]]}"),
           "unk_id 5, but there are 1 pieces");
    refuse(HL_BAD_INPUT, file_with("", "{\"type\":\"Unigram\",\"vocab\":[]}"), "a list of pieces");
    refuse(HL_BAD_INPUT, file_with("", "{\"type\":\"Unigram\",\"vocab\":{\"a\":0}}"),
           "a list of pieces");
}

static void bad_pipelines_are_refused(void **state)
{
    (void)state;
    refuse(HL_UNSUPPORTED, file_with("\"normalizer\":{\"type\":\"Upside\"}", LETTERS),
           "x.json: normalizer: the type 'Upside' is not known");
    refuse(HL_BAD_INPUT, file_with("\"normalizer\":{\"type\":\"Prepend\"}", LETTERS),
           "'prepend' is missing");
    refuse(HL_BAD_INPUT, file_with("\"normalizer\":7", LETTERS), "not an object with a \"type\"");
    refuse(HL_BAD_INPUT, file_with("\"normalizer\":{\"type\":\"Precompiled\"}", LETTERS),
           "without 'precompiled_charsmap'");
    refuse(HL_BAD_INPUT,
           file_with("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
                     "\"behavior\":\"Isolated\",\"invert\":false}",
                     LETTERS),
           "x.json: pre_tokenizer: regular expression '('");
    refuse(HL_BAD_INPUT,
           file_with("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},"
                     "\"behavior\":\"Sideways\"}",
                     LETTERS),
           "no split behavior 'Sideways'");
    refuse(HL_BAD_INPUT,
           file_with("\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}", LETTERS),
           "FixedLength of 0");
    refuse(HL_BAD_INPUT,
           file_with(
               "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
               "{\"id\":\"z\"}}],\"special_tokens\":{}}",
               LETTERS),
           "the template's 'z' is not among its special_tokens");
    refuse(HL_BAD_INPUT,
           file_with("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"b\",99],"
                     "\"cls\":[\"s\",6]}",
                     LETTERS),
           "no piece has the id 99");
    refuse(HL_BAD_INPUT, file_with("\"added_tokens\":[{\"id\":3}]", LETTERS),
           "an added token without content");
    refuse(HL_BAD_INPUT, file_with("\"added_tokens\":[" ADDED(1, "zz", "") "]", LETTERS),
           "id 1 is given to 'a' and to 'zz'");

    char deep[4096] = "\"normalizer\":";
    for (int i = 0; i < 60; i++)
        strcat(deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    strcat(deep, "null");
    for (int i = 0; i < 60; i++)
        strcat(deep, "]}");
    refuse(HL_BAD_INPUT, file_with(deep, LETTERS), "nested");
}

/* A file that is cut anywhere is refused; nothing is read beyond its end. */
static void truncated_files_are_refused(void **state)
{
    (void)state;
    size_t n_bytes = 0;
    char  *json    = read_file(SMALL_TOKENIZERS "/small-wordpiece/tokenizer.json", &n_bytes);

    for (size_t cut = 0; cut + 1 < n_bytes; cut += cut < 3000 ? 7 : 501) {
        hl_tokenizer *tokenizer = NULL;
        char         *copy      = malloc(cut > 0 ? cut : 1);
        memcpy(copy, json, cut);
        assert_int_equal(hl_tokenizer_parse(&tokenizer, copy, cut, "x.json"), HL_BAD_INPUT);
        assert_null(tokenizer);
        free(copy);
    }
    free(json);
}

/* jansson would refuse these keys. */
static void pieces_may_hold_nul(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("", "{\"type\":\"BPE\",\"vocab\":{\"\\u0000\":0,\"a\":1,\"a\\u0000\":2},"
                      "\"merges\":[[\"a\",\"\\u0000\"]]}"));
    hl_encoding *encoding = encode(t, "\0a\0", 3, false);
    size_t       n_bytes  = 0;

    assert_int_equal(encoding->n_tokens, 2);
    assert_int_equal(encoding->ids[0], 0);
    assert_int_equal(encoding->ids[1], 2);
    assert_memory_equal(hl_tokenizer_piece(t, 2, &n_bytes), "a\0", 2);
    assert_int_equal(n_bytes, 2);
    hl_encoding_free(encoding);
    hl_tokenizer_close(t);
}

static void endless_expressions_are_stopped(void **state)
{
    (void)state;
    hl_tokenizer *t = parse_tokenizer(
        file_with("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"^(a+)+$\"},"
                  "\"behavior\":\"Isolated\",\"invert\":false}",
                  LETTERS));
    hl_encoding *encoding = NULL;
    char         text[64];

    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    assert_fails(HL_LIMIT, "takes too long",
                 hl_tokenizer_encode(&encoding, t, text, sizeof text, NULL));
    assert_null(encoding);
    assert_ids(t, "ab", IDS(1, 2)); /* still usable */
    hl_tokenizer_close(t);
}

/* ---------------------------------------------------------- folders, threads */

static void folders_are_read(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const char *json   = file_with(
          "\"added_tokens\":[" ADDED(10, "<s>", ",\"special\":true,\"normalized\":false") "," ADDED(
              11, "<|im_end|>", ",\"special\":true,\"normalized\":false") "]",
          LETTERS);
    hl_tokenizer *t = NULL;
    const char   *config =
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"b\",\"pad_token\":null,"
        "\"model_max_length\":1000000000000000019884624838656,"
        "\"chat_template\":\"<|im_start|>{{x}}<|im_end|>\"}";

    assert_fails(HL_NOT_FOUND, "no tokenizer.json in this folder", hl_tokenizer_open(&t, folder));
    write_file(in_folder(folder, "tokenizer.json"), json, strlen(json));
    write_file(in_folder(folder, "tokenizer_config.json"), config, strlen(config));
    write_file(in_folder(folder, "special_tokens_map.json"), "{\"sep_token\":\"a\"}", 17);
    t = open_tokenizer(folder);
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_BOS), 10);
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_EOS), 2);
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_SEP), 1);
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_PAD), -1);
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_EOT), 11);
    assert_int_equal(hl_tokenizer_chat_format(t), HL_CHAT_TEMPLATE);
    hl_tokenizer_close(t);

    write_file(in_folder(folder, "chat_template.jinja"), "<start_of_turn><end_of_turn>", 28);
    t = open_tokenizer(in_folder(folder, "tokenizer.json"));
    assert_int_equal(hl_tokenizer_chat_format(t), HL_CHAT_TEMPLATE);
    hl_tokenizer_close(t);

    write_file(in_folder(folder, "tokenizer_config.json"), "{\"a\":}", 6);
    assert_fails(HL_BAD_INPUT, "tokenizer_config.json: JSON line 1", hl_tokenizer_open(&t, folder));
    remove_folder(folder);
    assert_fails(HL_NOT_FOUND, "No such file", hl_tokenizer_open(&t, "/nowhere/tokenizer.json"));
}

/* Returns NULL on success. */
static void *encode_often(void *context)
{
    const hl_tokenizer *tokenizer = context;
    const char         *text      = "Threads share a tokenizer, and 3 more words.";

    for (int i = 0; i < 300; i++) {
        hl_encoding *encoding = NULL;
        if (hl_tokenizer_encode(&encoding, tokenizer, text, strlen(text), NULL) != HL_OK)
            return context;
        if (encoding->n_tokens != 22 || encoding->spans[21].end != strlen(text))
            return context;
        hl_encoding_free(encoding);
    }
    return NULL;
}

/* ------------------------------------------------------------------- vocab.txt */

static void write_text(const char *folder, const char *name, const char *text)
{
    write_file(in_folder(folder, name), text, strlen(text));
}

static void assert_around(const hl_tokenizer *t, const char *text, const int64_t *ids)
{
    hl_encoding *encoding = encode(t, text, strlen(text), true);

    for (size_t i = 0; i < encoding->n_tokens; i++)
        assert_int_equal(encoding->ids[i], ids[i]);
    assert_int_equal(ids[encoding->n_tokens], -1);
    hl_encoding_free(encoding);
}

/* The ids are those of BertTokenizer. */
static void vocab_text_is_wordpiece(void **state)
{
    (void)state;
    const char   *folder = new_folder();
    hl_tokenizer *t      = NULL;

    write_text(folder, "vocab.txt",
               "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\r\ncafe\n[unused1]\n[\n]\n!");
    t = open_tokenizer(folder);
    assert_string_equal(hl_tokenizer_kind(t), "WordPiece");
    assert_ids(t, "Unaffable caf\u00e9! [MASK] [unused1] x", IDS(5, 6, 7, 8, 12, 4, 10, 1, 11, 1));
    assert_around(t, "cafe", IDS(2, 8, 3));
    assert_int_equal(hl_tokenizer_special(t, HL_SPECIAL_MASK), 4);
    hl_tokenizer_close(t);
    t = open_tokenizer(in_folder(folder, "vocab.txt"));
    assert_ids(t, "Unaffable", IDS(5, 6, 7));
    hl_tokenizer_close(t);

    /* Settings are followed. */
    write_text(folder, "tokenizer_config.json",
               "{\"tokenizer_class\":\"BertTokenizerFast\",\"do_lower_case\":false,"
               "\"strip_accents\":true,\"additional_special_tokens\":[\"[unused1]\"],"
               "\"model_max_length\":1000000000000000019884624838656}");
    t = open_tokenizer(folder);
    assert_ids(t, "Unaffable unaffable caf\u00e9 [unused1]", IDS(1, 5, 6, 7, 8, 9));
    hl_tokenizer_close(t);
    write_text(folder, "tokenizer_config.json", "{\"do_lower_case\":\"no\"}");
    assert_fails(HL_BAD_INPUT, "tokenizer_config.json: do_lower_case",
                 hl_tokenizer_open(&t, folder));
    remove_folder(folder);
}

static void vocab_text_is_characters(void **state)
{
    (void)state;
    const char   *folder = new_folder();
    hl_tokenizer *t      = NULL;

    /* Text is not lowercased, since lowercased text would never reach these pieces. */
    write_text(folder, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nA\nC\nD\n[HUMAN]\n");
    write_text(folder, "config.json", "{\"model_type\":\"bert\"}");
    t = open_tokenizer(folder);
    assert_ids(t, "A C D", IDS(5, 6, 7));
    assert_ids(t, "[HUMAN]ACDa[MASK]", IDS(8, 5, 6, 7, 1, 4));
    assert_around(t, "A", IDS(2, 5, 3));
    hl_tokenizer_close(t);

    /* A decoder continues the text, so nothing is added after it. */
    write_text(folder, "config.json", "{\"model_type\":\"gpt2\"}");
    t = open_tokenizer(folder);
    assert_around(t, "ACD", IDS(5, 6, 7));
    hl_tokenizer_close(t);

    /* BERT's own class keeps words whole if there are no ## pieces. */
    write_text(folder, "tokenizer_config.json", "{\"tokenizer_class\":\"BertTokenizer\"}");
    t = open_tokenizer(folder);
    assert_ids(t, "A CD", IDS(5, 1));
    hl_tokenizer_close(t);

    /* Whole words without a rule for the text between them, and unknown classes. */
    write_text(folder, "tokenizer_config.json", "{}");
    write_text(folder, "vocab.txt", "[PAD]\n[UNK]\nC\nCl\n>>\n[C@@H]\n");
    assert_fails(HL_UNSUPPORTED, "vocab.txt: this vocabulary is neither WordPiece",
                 hl_tokenizer_open(&t, folder));
    assert_non_null(strstr(hl_error_message(), "save_pretrained"));
    write_text(folder, "tokenizer_config.json", "{\"tokenizer_class\":\"SmilesTokenizer\"}");
    assert_fails(HL_UNSUPPORTED, "tokenizer_class is SmilesTokenizer",
                 hl_tokenizer_open(&t, folder));
    write_text(folder, "vocab.txt", "<unk>\nA\nB\n");
    assert_fails(HL_UNSUPPORTED, "no piece [UNK]", hl_tokenizer_open(&t, folder));
    write_text(folder, "vocab.txt", "[UNK]\n\xff\n");
    assert_fails(HL_BAD_INPUT, "vocab.txt: not UTF-8, at byte 6", hl_tokenizer_open(&t, folder));
    assert_null(t);
    remove_folder(folder);
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    hl_tokenizer *tokenizer = open_tokenizer(SMALL_TOKENIZERS "/small-bpe");
    pthread_t     threads[4];
    void         *problem = NULL;

    assert_null(encode_often(tokenizer));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, tokenizer), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &problem), 0);
        assert_null(problem);
    }
    hl_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_by_rank_and_place),
        cmocka_unit_test(bpe_options),
        cmocka_unit_test(cutting_at_spaces_changes_nothing),
        cmocka_unit_test(pairs_that_are_gone_do_not_merge),
        cmocka_unit_test(unigram_takes_the_best_path),
        cmocka_unit_test(unigram_ties),
        cmocka_unit_test(unigram_unknown_characters_have_a_price),
        cmocka_unit_test(word_models),
        cmocka_unit_test(added_tokens_are_found_first),
        cmocka_unit_test(some_are_found_after_normalizing),
        cmocka_unit_test(post_processors),
        cmocka_unit_test(spans_are_trimmed),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(bad_pipelines_are_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(pieces_may_hold_nul),
        cmocka_unit_test(endless_expressions_are_stopped),
        cmocka_unit_test(folders_are_read),
        cmocka_unit_test(vocab_text_is_wordpiece),
        cmocka_unit_test(vocab_text_is_characters),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
