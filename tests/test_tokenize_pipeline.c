/* test_tokenize_pipeline.c - every normalizer, pre-tokenizer and decoder by itself.
 *
 * The expected values are those of the reference implementation: from its documentation, its own
 * tests, or its source for special cases. */
#include "tokenize_support.h"

#include "tokenize/tokenizer_json.h"

static json_t *parse(const char *json)
{
    json_t *value = NULL;
    assert_ok(hl_json_parse(&value, json, strlen(json), "test"));
    return value;
}

/* -------------------------------------------------------------- normalizers */

/* Checks the normalized text, and that its origins are in order and inside the input. */
static void normalizes(const char *json, const char *text, const char *wanted)
{
    json_t                *value       = parse(json);
    hl_normalizer          normalizer  = { 0 };
    hl_mapped_text_builder given       = { 0 };
    hl_mapped_text_builder builders[2] = { { 0 }, { 0 } };
    hl_matcher            *matcher     = NULL;
    hl_mapped_text         seen;

    assert_ok(hl_normalizer_from_json(&normalizer, value, "test"));
    assert_ok(hl_matcher_new(&matcher));
    assert_ok(hl_mapped_text_from_bytes(&seen, &given, text, strlen(text)));
    assert_ok(hl_normalizer_run(&seen, &normalizer, builders, matcher));
    if (seen.n_bytes != strlen(wanted) || memcmp(seen.bytes, wanted, seen.n_bytes) != 0)
        fail_msg("%s: '%s' became '%.*s', wanted '%s'", json, text, (int)seen.n_bytes, seen.bytes,
                 wanted);
    for (size_t i = 0; i < seen.n_bytes; i++) {
        hl_span span = hl_mapped_text_origin(&seen, i, i + 1);
        assert_true(span.begin <= span.end && span.end <= strlen(text));
    }
    hl_matcher_free(matcher);
    hl_mapped_text_builder_free(&given);
    hl_mapped_text_builder_free(&builders[0]);
    hl_mapped_text_builder_free(&builders[1]);
    hl_normalizer_free(&normalizer);
    json_decref(value);
}

static void unicode_forms(void **state)
{
    (void)state;
    normalizes("{\"type\":\"NFC\"}", "e\u0301 \u1e9b\u0323 \u212b", "\u00e9 \u1e9b\u0323 \u00c5");
    normalizes("{\"type\":\"NFD\"}", "\u00e9\u1e69", "e\u0301s\u0323\u0307");
    normalizes("{\"type\":\"NFKC\"}", "\ufb01 \u00bd \u2167 \uff21", "fi 1\u20442 VIII A");
    normalizes("{\"type\":\"NFKD\"}", "\ufb01\u00e9", "fie\u0301");
    /* Marks are sorted, and a mark blocks another one of its class. */
    normalizes("{\"type\":\"NFC\"}", "a\u0301\u0323", "\u1ea1\u0301");
    normalizes("{\"type\":\"NFC\"}", "a\u0308\u0301", "\u00e4\u0301");
    normalizes("{\"type\":\"NFC\"}", "\u1100\u1161\u11a8", "\uac01");
    normalizes("{\"type\":\"NFD\"}", "\uac01", "\u1100\u1161\u11a8");
    normalizes("{\"type\":\"NFC\"}", "\u0301a", "\u0301a");
    normalizes("{\"type\":\"NFC\"}", "", "");
}

/* Characters that the fast path leaves unchanged must also be unchanged by the slow one: after a
 * mark, which ends a fast run, and before a mark that composes with nothing. */
static void quiet_characters_are_quiet(void **state)
{
    (void)state;
    static const uint32_t ranges[][2] = {
        { 0x1, 0x2ff },     { 0x400, 0x482 },   { 0x5d0, 0x5ea },   { 0x621, 0x64a },
        { 0x2010, 0x2027 }, { 0x2030, 0x205e }, { 0x3041, 0x3096 }, { 0x30a1, 0x30fa },
        { 0x4e00, 0x4f00 }, { 0xac00, 0xad00 },
    };
    static const char *const before[] = { "e\u20dd", "\u00e9\u20dd", "\u1100\u20dd", "\u093c" };

    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        for (uint32_t c = ranges[r][0]; c <= ranges[r][1]; c++) {
            hl_buffer text = { 0 };
            assert_ok(hl_buffer_append_text(&text, before[c % 4]));
            assert_ok(hl_buffer_append_code_point(&text, c));
            assert_ok(hl_buffer_append(&text, "\u20dd", sizeof "\u20dd"));
            normalizes("{\"type\":\"NFC\"}", text.data, text.data);
            hl_buffer_free(&text);
        }
    }
}

static void simple_normalizers(void **state)
{
    (void)state;
    normalizes("{\"type\":\"Lowercase\"}", "ABC \u00c4 \u0130 \u03a3", "abc \u00e4 i\u0307 \u03c3");
    normalizes("{\"type\":\"StripAccents\"}", "e\u0301\u0903x", "ex");
    normalizes("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", " \u00a0 a b \n",
               "a b \n");
    normalizes("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \t a b \u3000",
               "a b");
    normalizes("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", "  ", "");
    normalizes("{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}", "Hello", "\u2581Hello");
    normalizes("{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}", "", "");
    normalizes("{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"__\"}", " a b ",
               "__a__b__");
    normalizes("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \"}",
               "a \t\n b", "a b");
    normalizes("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\"}", "ab",
               "-a-b-");
    normalizes("{\"type\":\"Nmt\"}",
               "a\x01"
               "b\t\u200bc\u2581"
               "d",
               "ab  c d");
    normalizes("{\"type\":\"ByteLevel\"}", "a \u00e9", "a\u0120\u00c3\u00a9");
    normalizes("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}", "a", "a");
}

static void bert_normalizer(void **state)
{
    (void)state;
    const char *all = "{\"type\":\"BertNormalizer\",\"clean_text\":true,"
                      "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true}";
    normalizes(all, "H\u00e9llo\tW\u00f6rld\x01!\u00ad", "hello world!");
    normalizes(all, "ab\u91ce\u53e3\u771fcd", "ab \u91ce  \u53e3  \u771f cd");
    normalizes(all, "\ufffd\u200d", "");
    const char *cased =
        "{\"type\":\"BertNormalizer\",\"clean_text\":false,"
        "\"handle_chinese_chars\":false,\"strip_accents\":null,\"lowercase\":false}";
    normalizes(cased, "H\u00e9llo\t\u91ce", "H\u00e9llo\t\u91ce");
    const char *strip =
        "{\"type\":\"BertNormalizer\",\"clean_text\":false,"
        "\"handle_chinese_chars\":false,\"strip_accents\":true,\"lowercase\":false}";
    normalizes(strip, "H\u00e9LLO", "HeLLO");
}

static void sequences_are_flattened(void **state)
{
    (void)state;
    normalizes(
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\"},{\"type\":\"Sequence\","
        "\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"}]},"
        "{\"type\":\"Lowercase\"}]}",
        "  \u00c9T\u00c9 ", "ete");
    normalizes("null", "x", "x");
}

/* Builds a charsmap with a few rules: a trie in which every node has 256 units of its own. */
typedef struct map_builder {
    uint32_t units[256 * 64];
    size_t   n_blocks;
    char     text[256];
    size_t   n_text;
} map_builder;

static void add_rule(map_builder *map, const char *from, const char *to)
{
    size_t base   = 0x100; /* children of the root */
    map->units[0] = 0x100U << 10;
    for (size_t i = 0; from[i] != '\0'; i++) {
        size_t at = base ^ (unsigned char)from[i];
        if (map->units[at] == 0) {
            size_t next    = 0x100 * ++map->n_blocks + 0x100;
            map->units[at] = (unsigned char)from[i] | (uint32_t)(at ^ next) << 10;
        }
        base = at ^ (map->units[at] >> 10);
        if (from[i + 1] == '\0') {
            map->units[at] |= 1U << 8;
            map->units[base] = (uint32_t)map->n_text | 1U << 31;
        }
    }
    strcpy(map->text + map->n_text, to);
    map->n_text += strlen(to) + 1;
}

static void precompiled_rules(void **state)
{
    (void)state;
    map_builder *map = calloc(1, sizeof *map);
    assert_non_null(map);
    add_rule(map, "\ufb01", "fi");
    add_rule(map, "\u00e9", "e\u0301"); /* one character becomes two */
    add_rule(map, "X", "");             /* the character is removed */
    add_rule(map, "e", "E");            /* a mark after it is removed */
    size_t   n_units = 256 * 64;
    size_t   n_blob  = 4 + 4 * n_units + map->n_text;
    uint8_t *blob    = malloc(n_blob);
    uint32_t n_trie  = (uint32_t)(4 * n_units);
    memcpy(blob, &n_trie, 4);
    memcpy(blob + 4, map->units, 4 * n_units);
    memcpy(blob + 4 + 4 * n_units, map->text, map->n_text);

    static const char *const cases[][2] = {
        { "o\ufb01x", "ofix" }, { "\u00e9", "e\u0301" }, { "aXb", "ab" }, { "Xb", "b" },
        { "e\u0301a", "Ea" },   { "abc", "abc" },        { "", "" },      { "X", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_charsmap           *rules   = NULL;
        hl_mapped_text_builder given   = { 0 };
        hl_mapped_text_builder builder = { 0 };
        hl_mapped_text         text, seen;
        assert_ok(hl_charsmap_new(&rules, blob, n_blob));
        assert_ok(hl_mapped_text_from_bytes(&text, &given, cases[i][0], strlen(cases[i][0])));
        assert_ok(hl_charsmap_apply(&seen, &builder, &text, rules));
        if (seen.n_bytes != strlen(cases[i][1]) ||
            memcmp(seen.bytes, cases[i][1], seen.n_bytes) != 0)
            fail_msg("'%s' became '%.*s'", cases[i][0], (int)seen.n_bytes, seen.bytes);
        hl_mapped_text_builder_free(&builder);
        hl_charsmap_free(rules);
    }
    hl_charsmap *rules = NULL;
    n_trie             = 1U << 30;
    memcpy(blob, &n_trie, 4);
    assert_fails(HL_BAD_INPUT, "with a trie of", hl_charsmap_new(&rules, blob, n_blob));
    assert_fails(HL_BAD_INPUT, "at least 4", hl_charsmap_new(&rules, blob, 3));
    assert_fails(HL_BAD_INPUT, "not base64, at 2", hl_charsmap_from_base64(&rules, "AA*A"));
    free(blob);
    free(map);
}

/* ----------------------------------------------------------- pre-tokenizers */

/* Checks the parts, joined with bars. */
static void splits(const char *json, const char *text, const char *wanted)
{
    json_t                *value   = parse(json);
    hl_pretokenizer        pre     = { 0 };
    hl_split_space         space   = { 0 };
    hl_mapped_text_builder given   = { 0 };
    hl_matcher            *matcher = NULL;
    const hl_parts        *parts   = NULL;
    hl_buffer              joined  = { 0 };
    hl_mapped_text         seen;

    assert_ok(hl_pretokenizer_from_json(&pre, value, "test"));
    assert_ok(hl_matcher_new(&matcher));
    assert_ok(hl_mapped_text_from_bytes(&seen, &given, text, strlen(text)));
    assert_ok(hl_pretokenizer_run(&parts, &seen, &pre, &space, matcher));
    for (size_t i = 0; i < parts->count; i++) {
        hl_part part = parts->items[i];
        assert_ok(hl_buffer_append(&joined, "|", i > 0));
        assert_ok(hl_buffer_append(&joined, seen.bytes + part.begin, part.end - part.begin));
    }
    if (joined.n_bytes != strlen(wanted) ||
        memcmp(hl_buffer_bytes(&joined).data, wanted, joined.n_bytes) != 0)
        fail_msg("%s: '%s' became '%.*s', wanted '%s'", json, text, (int)joined.n_bytes,
                 joined.data, wanted);
    hl_buffer_free(&joined);
    hl_mapped_text_builder_free(&given);
    hl_matcher_free(matcher);
    hl_split_space_free(&space);
    hl_pretokenizer_free(&pre);
    json_decref(value);
}

#define SPLIT(pattern, behavior, invert)                                                           \
    "{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":" invert \
    "}"

static void split_behaviors(void **state)
{
    (void)state;
    const char *text = "the-final--countdown";
#define DASH "{\"String\":\"-\"}"
    splits(SPLIT(DASH, "Removed", "false"), text, "the|final|countdown");
    splits(SPLIT(DASH, "Isolated", "false"), text, "the|-|final|-|-|countdown");
    splits(SPLIT(DASH, "MergedWithPrevious", "false"), text, "the-|final-|-|countdown");
    splits(SPLIT(DASH, "MergedWithNext", "false"), text, "the|-final|-|-countdown");
    splits(SPLIT(DASH, "Contiguous", "false"), text, "the|-|final|--|countdown");
    splits(SPLIT("{\"Regex\":\"[a-z]+\"}", "Removed", "true"), text, "the|final|countdown");
    splits(SPLIT("{\"Regex\":\"-\"}", "MergedWithNext", "false"), "-a-", "-a|-");
    splits(SPLIT("{\"Regex\":\"-\"}", "MergedWithPrevious", "false"), "-a-", "-|a-");
    /* Empty matches cut, but remove nothing. */
    splits(SPLIT("{\"Regex\":\"(?=(\\\\d{3})+(?!\\\\d))\"}", "Isolated", "false"), "1234567",
           "1|234|567");
    splits(SPLIT("{\"Regex\":\"\"}", "Isolated", "false"), "a\u00e9b", "a|\u00e9|b");
    splits(SPLIT("{\"String\":\"\"}", "Isolated", "false"), "ab", "ab");
    splits(SPLIT(DASH, "Isolated", "false"), "", "");
}

static void simple_pre_tokenizers(void **state)
{
    (void)state;
    splits("{\"type\":\"Whitespace\"}", "Hey man! a_b\u0301 \u00bd", "Hey|man|!|a_b\u0301|\u00bd");
    splits("{\"type\":\"WhitespaceSplit\"}", " Hey, man! \u3000Good?", "Hey,|man!|Good?");
    splits("{\"type\":\"BertPreTokenizer\"}", "Hey friend!     How are you?!?",
           "Hey|friend|!|How|are|you|?|!|?");
    splits("{\"type\":\"Digits\",\"individual_digits\":false}", "Hey 123 friend!",
           "Hey |123| friend!");
    splits("{\"type\":\"Digits\",\"individual_digits\":true}", "Hey 12\u2167", "Hey |1|2|\u2167");
    splits("{\"type\":\"Punctuation\"}", "Hey friend!?", "Hey friend|!|?");
    splits("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "a$\u3002!b", "a|$\u3002!|b");
    splits("{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"-\"}", "a-b--c", "a|b|c");
    splits("{\"type\":\"FixedLength\",\"length\":5}", "Hello w\u00f6rld", "Hello| w\u00f6rl|d");
    splits("{\"type\":\"UnicodeScripts\"}", "\u3069\u3053\u3067\u751f\u308c\u3002Yes",
           "\u3069\u3053\u3067\u751f\u308c|\u3002|Yes");
    splits("{\"type\":\"UnicodeScripts\"}", "Apples are \u308a\u3093\u3054 \u6797\u6a8e",
           "Apples are |\u308a\u3093\u3054 \u6797\u6a8e");
    splits("null", "as it is", "as it is");
}

static void metaspace(void **state)
{
    (void)state;
    splits("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"add_prefix_space\":true}",
           "Hey   friend!", "\u2581Hey|\u2581|\u2581|\u2581friend!");
    splits("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"never\"}",
           "Hey friend", "Hey|\u2581friend");
    splits("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\","
           "\"split\":false}",
           "Hey friend", "\u2581Hey\u2581friend");
    splits("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}", " Hey", "\u2581Hey");
    splits("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
           "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\"}]}",
           "a  b",
           "\u2581"
           "a|b");
}

static void byte_level(void **state)
{
    (void)state;
    splits("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
           "Hello my friend, how is your day going?",
           "Hello|\u0120my|\u0120friend|,|\u0120how|\u0120is|\u0120your|\u0120day|\u0120going|?");
    splits("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "Hello", "\u0120Hello");
    splits("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}", "a b",
           "\u0120a\u0120b");
    splits("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "i\u2b62j",
           "i|\u00e2\u0143\u00a2|j");
    splits("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "a   b\n\nc d's",
           "a|\u0120\u0120|\u0120b|\u010a|\u010a|c|\u0120d|'s");
    /* A byte that is not valid UTF-8 is spelled as itself. */
    splits("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "\xff", "\u00ff");
}

/* ----------------------------------------------------------------- patterns */

static void rewrites_to(const char *expression, const char *wanted)
{
    char  *seen    = NULL;
    size_t n_bytes = 0;
    assert_ok(hl_pattern_rewrite(&seen, &n_bytes, expression, strlen(expression)));
    assert_string_equal(seen, wanted);
    assert_int_equal(n_bytes, strlen(wanted));
    hl_free(seen);
}

static void patterns_are_rewritten(void **state)
{
    (void)state;
#define SPACE                                                                                      \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"
    rewrites_to("a\\s+", "a[" SPACE "]+");
    rewrites_to("\\S", "[^" SPACE "]");
    rewrites_to("[^\\s\\p{L}]", "[^" SPACE "\\p{L}]");
    rewrites_to("\\\\s", "\\\\s");
    rewrites_to("[]\\s]", "[]" SPACE "]");
    rewrites_to("[^]\\s]x\\s", "[^]" SPACE "]x[" SPACE "]");
    rewrites_to("[[:alpha:]\\s]", "[[:alpha:]" SPACE "]");
    rewrites_to("[\\]\\s]", "[\\]" SPACE "]");
    rewrites_to("\\", "\\");
    rewrites_to("", "");
    hl_pattern *pattern = NULL;
    assert_fails(HL_UNSUPPORTED, "class intersection", hl_pattern_new(&pattern, "[a&&b]", 6));
    assert_fails(HL_BAD_INPUT, "regular expression '(a', at 2", hl_pattern_new(&pattern, "(a", 2));
    assert_fails(HL_BAD_INPUT, "regular expression", hl_pattern_new(&pattern, "a\\C", 3));
    assert_null(pattern);
}

/* U+180E is no longer white space, except in PCRE2. */
static void white_space_is_white_space(void **state)
{
    (void)state;
    hl_pattern *space = NULL, *other = NULL, *inside = NULL;
    hl_matcher *matcher = NULL;

    assert_ok(hl_pattern_new(&space, "^\\s$", 4));
    assert_ok(hl_pattern_new(&other, "^\\S$", 4));
    assert_ok(hl_pattern_new(&inside, "^[\\S]$", 6));
    assert_ok(hl_matcher_new(&matcher));
    for (uint32_t c = 0; c < 0x110000; c++) {
        hl_buffer text = { 0 };
        bool      is_space, is_other, is_inside;
        hl_span   span;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        assert_ok(hl_buffer_append_code_point(&text, c));
        assert_ok(hl_pattern_find(&span, &is_space, space, matcher, text.data, text.n_bytes, 0));
        assert_ok(hl_pattern_find(&span, &is_other, other, matcher, text.data, text.n_bytes, 0));
        assert_ok(hl_pattern_find(&span, &is_inside, inside, matcher, text.data, text.n_bytes, 0));
        bool wanted = (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                      (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                      c == 0x205f || c == 0x3000;
        if (is_space != wanted || is_other == wanted || is_inside == wanted)
            fail_msg("U+%04X: %d %d %d", c, is_space, is_other, is_inside);
        hl_buffer_free(&text);
    }
    hl_pattern_free(space);
    hl_pattern_free(other);
    hl_pattern_free(inside);
    hl_matcher_free(matcher);
}

static void endless_patterns_are_stopped(void **state)
{
    (void)state;
    hl_pattern *pattern = NULL;
    hl_matcher *matcher = NULL;
    bool        found   = false;
    hl_span     span;
    char        text[64];

    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '!';
    assert_ok(hl_pattern_new(&pattern, "^(a+)+$", 7));
    assert_ok(hl_matcher_new(&matcher));
    assert_fails(HL_LIMIT, "takes too long on this text",
                 hl_pattern_find(&span, &found, pattern, matcher, text, sizeof text, 0));
    hl_pattern_free(pattern);
    hl_matcher_free(matcher);
}

/* ----------------------------------------------------------------- decoders */

/* Decodes `pieces`, which are separated by bars. */
static void decodes(const char *json, const char *pieces, const char *wanted)
{
    json_t    *value   = parse(json);
    hl_decoder decoder = { 0 };
    hl_strings strings = { 0 };
    hl_buffer  text    = { 0 };

    assert_ok(hl_decoder_from_json(&decoder, value, "test"));
    for (const char *at = pieces;;) {
        size_t length = strcspn(at, "|");
        assert_ok(hl_strings_add(&strings, (hl_bytes){ at, length }));
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    assert_ok(hl_decoder_run(&text, &decoder, &strings, NULL));
    if (text.n_bytes != strlen(wanted) ||
        memcmp(hl_buffer_bytes(&text).data, wanted, text.n_bytes) != 0)
        fail_msg("%s: '%s' became '%.*s', wanted '%s'", json, pieces, (int)text.n_bytes, text.data,
                 wanted);
    hl_buffer_free(&text);
    hl_strings_free(&strings);
    hl_decoder_free(&decoder);
    json_decref(value);
}

static void decoders(void **state)
{
    (void)state;
    decodes("null", "a|b", "a b");
    decodes("{\"type\":\"ByteLevel\"}", "Hello|\u0120w\u00c3|\u00b6|rld", "Hello w\u00f6rld");
    decodes("{\"type\":\"ByteLevel\"}", "a b|\u0120", "a b "); /* not a spelling: unchanged */
    decodes("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}", "\u2581Hey|\u2581you",
            "Hey you");
    decodes("{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"never\"}",
            "\u2581Hey|\u2581you", " Hey you");
    decodes("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", "##uelo|Ara|##\u00fa|j",
            "##uelo Ara\u00fa j");
    decodes("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", "it|'s|fine|!|do|not",
            "it's fine! do not");
    decodes("{\"type\":\"ByteFallback\"}", "Hey|friend!", "Heyfriend!");
    decodes("{\"type\":\"ByteFallback\"}", "<0x61>", "a");
    decodes("{\"type\":\"ByteFallback\"}", "<0xE5>|<0x8f>", "\ufffd\ufffd");
    decodes("{\"type\":\"ByteFallback\"}", "<0xE5>|<0x8f>|<0xab>|a",
            "\u53eb"
            "a");
    decodes("{\"type\":\"ByteFallback\"}", "<0xE5>|<0x8f>|a|<0x6g>",
            "\ufffd\ufffd"
            "a<0x6g>");
    decodes("{\"type\":\"Strip\",\"content\":\"H\",\"start\":1,\"stop\":0}", "Hey|HHH", "eyHH");
    decodes("{\"type\":\"Strip\",\"content\":\"y\",\"start\":0,\"stop\":1}", "Hey| friend!|y",
            "He friend!");
    decodes("{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}", "a_b|_c",
            "a b c");
    decodes("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[xy]+\"},\"content\":\"-\"}", "axyb|y",
            "a-b-");
    decodes("{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", "my</w>|frie|nd</w>", "my friend");
    decodes("{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"/\","
            "\"cleanup\":true}",
            "<pad>|<pad>|h|e|e|l|l|<pad>|l|o|o|o|<pad>|/|y", "hello y");
    decodes("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
            "\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
            "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
            "\u2581\u2581Hey|<0xC3>|<0xA9>", " Hey\u00e9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unicode_forms),
        cmocka_unit_test(quiet_characters_are_quiet),
        cmocka_unit_test(simple_normalizers),
        cmocka_unit_test(bert_normalizer),
        cmocka_unit_test(sequences_are_flattened),
        cmocka_unit_test(precompiled_rules),
        cmocka_unit_test(split_behaviors),
        cmocka_unit_test(simple_pre_tokenizers),
        cmocka_unit_test(metaspace),
        cmocka_unit_test(byte_level),
        cmocka_unit_test(patterns_are_rewritten),
        cmocka_unit_test(white_space_is_white_space),
        cmocka_unit_test(endless_patterns_are_stopped),
        cmocka_unit_test(decoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
