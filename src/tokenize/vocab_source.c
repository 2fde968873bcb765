/* vocab_source.c - a pipeline around a list of pieces.
 *
 * Builds what the tokenizer.json of the same model would describe, from the name of the
 * vocabulary's kind (vocab_source.h). */
#include "tokenize/vocab_source.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/tokenizer.h"
#include "tokenize/unicode.h"

#define MARK           "\xe2\x96\x81" /* ▁ */
#define MARK_BYTES     3
#define WORDPIECE_MARK "##"
#define WORDPIECE_WORD 100

/* ------------------------------------------------------ names of pre-tokenizers
 *
 * A GGUF file does not hold the expressions that split text into words, only a name for them.
 * Here are the expressions as the models' own tokenizer.json files write them, each list applied
 * in turn to what the ones before left whole.  An unknown name must not be guessed at: the tokens
 * would be wrong without anybody noticing. */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define MARKS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"

#define LLAMA3 CONTRACTIONS WORDS "|\\p{N}{1,3}" MARKS SPACES
#define QWEN2  CONTRACTIONS WORDS "|\\p{N}" MARKS SPACES
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                                   \
                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES

/* Words that start with a capital letter, as in GPT-4o's expression. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail)                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER    \
    "*" tail "|"
#define SLASHES "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
#define GPT4O   CASED(CONTRACTIONS "?") "\\p{N}{1,3}" SLASHES SPACES

#define IDEOGRAPHS  "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define CJK         "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define PROSE       " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define DEEPSEEK3                                                                                  \
    PUNCTUATION "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES

/* Letters of the alphabets that have capitals. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}"                          \
    "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"                  \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                         \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"                 \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"                 \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                 \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"                            \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"                           \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                 \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}"                  \
    "\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"                   \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"                  \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"                  \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"                              \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const hl_pre pre_names[] = {
    { "gpt-2 gpt2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
      "mpt olmo jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe",
      { HL_GPT2_PATTERN },
      false,
      false },
    { "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
      { LLAMA3 },
      true,
      true },
    { "dbrx smaug-bpe glm4 chatglm-bpe", { LLAMA3 }, false, false },
    { "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan megrez grok-2 solar-open",
      { QWEN2 },
      false,
      false },
    { "qwen35", { QWEN35 }, false, false },
    { "minicpm5", { "\\p{N}{1,3}", CONTRACTIONS WORDS "|\\p{N}+" MARKS SPACES }, true, false },
    { "gpt-4o llama4 kanana2 talkie minimax-m2", { GPT4O }, false, false },
    { "tekken", { CASED("") "\\p{N}" SLASHES SPACES }, true, true },
    { "tiny_aya cohere2moe", { "\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O }, false, false },
    { "falcon",
      { "[\\p{P}\\$\\+<=>\\^~\\|`]+", HL_GPT2_PATTERN, "[0-9][0-9][0-9]" },
      false,
      false },
    { "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
      { "\\p{N}", HL_GPT2_PATTERN },
      false,
      false },
    { "deepseek-llm",
      { "[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
        "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
        "\\s+$", CJK, "\\p{N}+" },
      false,
      false },
    { "deepseek-coder", { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}" }, false, false },
    { "deepseek-v3 hunyuan-dense joyai-llm",
      { "\\p{N}{1,3}", IDEOGRAPHS, DEEPSEEK3 },
      false,
      false },
    { "bloom poro-chat gpt3-finnish", { PROSE }, false, false },
    { "viking", { PROSE, "\\p{N}" }, false, false },
    { "chameleon",
      { "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
        "[\\p{P}!-/:-@\\[-`{-~]", HL_GPT2_PATTERN },
      false,
      true },
    { "superbpe", { "\\p{N}+", "(?=(\\d{3})+(?!\\d))" }, false, false },
    { "bailingmoe bailingmoe2 llada-moe",
      { "'(?i:[sdmt]|ll|ve|re)" WORDS "|\\p{N}" MARKS "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" },
      false,
      false },
    { "seed-coder",
      { CONTRACTIONS WORDS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES },
      false,
      false },
    /* For files from before the name was stored. */
    { "default",
      { "[\\p{P}\\$\\+<=>\\^~\\|]+", HL_GPT2_PATTERN, "\\p{N}+", "[0-9][0-9][0-9]" },
      false,
      false },
};

/* Returns true if the word is in a list separated by spaces. */
static bool is_listed(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; length > 0 && (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == list || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

const hl_pre *hl_pre_find(const char *name)
{
    if (strchr(name, ' ') != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof pre_names / sizeof *pre_names; i++) {
        if (is_listed(pre_names[i].names, name))
            return &pre_names[i];
    }
    return NULL;
}

static bool has_patterns(const hl_pre *pre, const char *const *patterns, size_t n_patterns)
{
    for (size_t i = 0; i < n_patterns; i++) {
        if (pre->patterns[i] == NULL || strcmp(pre->patterns[i], patterns[i]) != 0)
            return false;
    }
    return pre->patterns[n_patterns] == NULL;
}

const hl_pre *hl_pre_match(const char *const *patterns, size_t n_patterns, bool ignore_merges)
{
    for (size_t i = 0;
         i < sizeof pre_names / sizeof *pre_names && n_patterns <= HL_MAX_PRE_PATTERNS; i++) {
        if (pre_names[i].ignore_merges == ignore_merges &&
            has_patterns(&pre_names[i], patterns, n_patterns))
            return &pre_names[i];
    }
    return NULL;
}

/* ---------------------------------------------------------------- a source */

hl_vocab_source hl_vocab_source_empty(void)
{
    hl_vocab_source source = { .add_bos             = -1,
                               .add_eos             = -1,
                               .add_space_prefix    = -1,
                               .remove_extra_spaces = -1,
                               .strip_accents       = -1,
                               .space_chinese       = -1 };
    for (int i = 0; i < HL_SPECIAL_COUNT; i++)
        source.special[i] = -1;
    return source;
}

static bool choose(int choice, bool usual)
{
    return choice < 0 ? usual : choice > 0;
}

/* ------------------------------------------------------------------- pieces */

static int piece_type(const hl_vocab_source *source, size_t id)
{
    return source->types != NULL ? source->types[id] : HL_PIECE_NORMAL;
}

static hl_token_type token_type(int type)
{
    switch (type) {
    case HL_PIECE_UNKNOWN:
        return HL_TOKEN_UNKNOWN;
    case HL_PIECE_CONTROL:
        return HL_TOKEN_SPECIAL;
    case HL_PIECE_USER_DEFINED:
        return HL_TOKEN_ADDED;
    case HL_PIECE_BYTE:
        return HL_TOKEN_BYTE;
    default:
        return HL_TOKEN_NORMAL;
    }
}

/* Respells a piece: GGUF marks the pieces that begin words; WordPiece marks the others. */
static hl_status respell_bert(hl_buffer *out, hl_bytes piece)
{
    bool special =
        piece.n_bytes >= 2 && piece.data[0] == '[' && piece.data[piece.n_bytes - 1] == ']';
    bool begins = piece.n_bytes >= MARK_BYTES && memcmp(piece.data, MARK, MARK_BYTES) == 0;

    out->n_bytes = 0;
    if (begins)
        return hl_buffer_append(out, piece.data + MARK_BYTES, piece.n_bytes - MARK_BYTES);
    if (!special)
        HL_NEED(hl_buffer_append_text(out, WORDPIECE_MARK));
    return hl_buffer_append(out, piece.data, piece.n_bytes);
}

static hl_status add_pieces(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    bool bert = strcmp(source->model, "bert") == 0 && !source->inner_marks;
    HL_SCOPED(hl_buffer_free) hl_buffer buffer = { 0 };

    for (size_t id = 0; id < source->n_tokens; id++) {
        hl_bytes piece = source->tokens[id];
        int      type  = piece_type(source, id);
        if (bert) {
            HL_NEED(respell_bert(&buffer, piece));
            piece = hl_buffer_bytes(&buffer);
        }
        HL_NEED(hl_vocab_add(&tokenizer->vocab, (int64_t)id, piece, token_type(type), NULL));
        if (source->scores != NULL)
            tokenizer->vocab.pieces[id].score = source->scores[id];
    }
    return HL_OK;
}

/* Adds the tokens.  Control, unknown and user-defined ones are searched for in the text first. */
static hl_status add_tokens(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    for (size_t id = 0; id < source->n_tokens; id++) {
        int type = piece_type(source, id);
        if (type != HL_PIECE_CONTROL && type != HL_PIECE_UNKNOWN && type != HL_PIECE_USER_DEFINED)
            continue;
        HL_NEED(hl_tokenizer_add_token(
            tokenizer,
            (hl_added_token){ .id      = (int32_t)id,
                              .content = hl_vocab_spelling(&tokenizer->vocab, (int64_t)id),
                              .special = type != HL_PIECE_USER_DEFINED }));
    }
    return HL_OK;
}

static hl_status copy_special(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        int32_t id = source->special[i];
        if (id >= 0 && (size_t)id >= source->n_tokens)
            return hl_fail(HL_BAD_INPUT, "%s: special token %d, but there are %zu tokens",
                           source->where, id, source->n_tokens);
        tokenizer->special[i] = id < 0 ? -1 : id;
    }
    return HL_OK;
}

static hl_status add_around(hl_tokenizer *tokenizer, bool bos, bool eos, hl_special first,
                            hl_special last)
{
    if (bos && tokenizer->special[first] >= 0)
        HL_NEED(hl_postprocessor_add(&tokenizer->postprocessor, false, tokenizer->special[first]));
    if (eos && tokenizer->special[last] >= 0)
        HL_NEED(hl_postprocessor_add(&tokenizer->postprocessor, true, tokenizer->special[last]));
    return HL_OK;
}

static hl_status copy_bytes(hl_bytes *out, const char *text)
{
    return hl_bytes_copy(out, text, strlen(text));
}

/* Adds a step that owns nothing. */
static hl_status add_normalizer(hl_tokenizer *tokenizer, hl_normalize_step step)
{
    return hl_normalizer_add(&(hl_normalize_step *){ NULL }, &tokenizer->normalizer, step);
}

static hl_status add_decoder(hl_tokenizer *tokenizer, hl_decode_step step)
{
    return hl_decoder_add(&(hl_decode_step *){ NULL }, &tokenizer->decoder, step);
}

static hl_status add_class(hl_tokenizer *tokenizer, hl_char_class char_class,
                           hl_split_behavior behavior)
{
    return hl_pretokenizer_add(&(hl_split_step *){ NULL }, &tokenizer->pretokenizer,
                               (hl_split_step){ .kind       = HL_SPLIT_CLASS,
                                                .char_class = (int)char_class,
                                                .behavior   = behavior });
}

/* --------------------------------------------------------------------- gpt2 */

static hl_status add_patterns(hl_pretokenizer *out, const hl_pre *pre)
{
    hl_split_step *step = NULL;

    for (const char *const *pattern = pre->patterns; *pattern != NULL; pattern++) {
        HL_NEED(hl_pretokenizer_add(&step, out, (hl_split_step){ .behavior = HL_SPLIT_ISOLATED }));
        HL_NEED(hl_pattern_new(&step->pattern, *pattern, strlen(*pattern)));
    }
    return hl_pretokenizer_add(&step, out,
                               (hl_split_step){ .kind       = HL_SPLIT_BYTE_LEVEL,
                                                .behavior   = HL_SPLIT_ISOLATED,
                                                .keep_bytes = true });
}

static hl_status add_merges(hl_bpe *bpe, const hl_vocab_source *source)
{
    for (size_t i = 0; i < source->n_merges; i++) {
        hl_bytes    text  = source->merges[i];
        const char *space = text.n_bytes > 1 ? memchr(text.data + 1, ' ', text.n_bytes - 1) : NULL;
        size_t      left  = space != NULL ? (size_t)(space - text.data) : 0;
        if (space == NULL || left + 1 == text.n_bytes)
            return hl_fail(HL_BAD_INPUT, "%s: merge %zu is not two pieces and a space",
                           source->where, i);
        HL_NEED(hl_fail_within(hl_bpe_add_merge(bpe, (hl_bytes){ text.data, left },
                                                (hl_bytes){ space + 1, text.n_bytes - left - 1 }),
                               "%s", source->where));
    }
    return HL_OK;
}

static hl_status build_gpt2(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    const char   *name = source->pre != NULL && source->pre[0] != '\0' ? source->pre : "default";
    const hl_pre *pre  = hl_pre_find(name);

    if (pre == NULL)
        return hl_fail(HL_UNSUPPORTED, "%s: the pre-tokenizer '%s' is not known", source->where,
                       name);
    if (strcmp(name, "default") == 0)
        hl_log(HL_LOG_WARNING, "%s: no pre-tokenizer is named; words may be split wrongly",
               source->where);
    hl_bpe_options options = { .byte_level    = true,
                               .ignore_merges = pre->ignore_merges,
                               .unknown       = -1 };
    tokenizer->kind        = HL_MODEL_BPE;
    HL_NEED(add_patterns(&tokenizer->pretokenizer, pre));
    HL_NEED(hl_bpe_new(&tokenizer->bpe, &tokenizer->vocab, &options));
    HL_NEED(add_merges(tokenizer->bpe, source));
    HL_NEED(hl_bpe_finish(tokenizer->bpe));
    tokenizer->decoder.present = true;
    HL_NEED(add_decoder(tokenizer, (hl_decode_step){ .kind = HL_DECODE_BYTE_LEVEL }));
    return add_around(tokenizer, choose(source->add_bos, pre->add_bos),
                      choose(source->add_eos, false), HL_SPECIAL_BOS, HL_SPECIAL_EOS);
}

/* -------------------------------------------------------------------- llama */

static hl_status add_spm_normalizer(hl_normalizer *out, const hl_vocab_source *source)
{
    hl_normalize_step *step = NULL;

    if (choose(source->add_space_prefix, true)) {
        HL_NEED(hl_normalizer_add(&step, out, (hl_normalize_step){ .kind = HL_NORMALIZE_PREPEND }));
        HL_NEED(copy_bytes(&step->content, source->plain_spaces ? " " : MARK));
    }
    if (source->plain_spaces)
        return HL_OK;
    HL_NEED(hl_normalizer_add(&step, out, (hl_normalize_step){ .kind = HL_NORMALIZE_REPLACE }));
    HL_NEED(copy_bytes(&step->needle, " "));
    return copy_bytes(&step->content, MARK);
}

/* Adds the decoder: ▁ becomes a space, <0xNN> a byte, and the space put in front is removed. */
static hl_status add_spm_decoder(hl_decoder *out, const hl_vocab_source *source)
{
    hl_decode_step *step = NULL;

    out->present = true;
    if (!source->plain_spaces) {
        HL_NEED(hl_decoder_add(&step, out, (hl_decode_step){ .kind = HL_DECODE_REPLACE }));
        HL_NEED(copy_bytes(&step->content, MARK));
        HL_NEED(copy_bytes(&step->other, " "));
    }
    HL_NEED(hl_decoder_add(&step, out, (hl_decode_step){ .kind = HL_DECODE_BYTE_FALLBACK }));
    HL_NEED(hl_decoder_add(&step, out, (hl_decode_step){ .kind = HL_DECODE_FUSE }));
    if (!choose(source->add_space_prefix, true))
        return HL_OK;
    HL_NEED(hl_decoder_add(&step, out, (hl_decode_step){ .kind = HL_DECODE_STRIP, .start = 1 }));
    return copy_bytes(&step->content, " ");
}

static hl_status build_llama(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_bpe_options options = { .byte_fallback = true,
                               .fuse_unknown  = true,
                               .unknown       = tokenizer->special[HL_SPECIAL_UNK] };

    tokenizer->kind = HL_MODEL_BPE;
    HL_NEED(hl_bpe_new(&tokenizer->bpe, &tokenizer->vocab, &options));
    HL_NEED(hl_bpe_add_scored_merges(tokenizer->bpe));
    HL_NEED(hl_bpe_finish(tokenizer->bpe));
    HL_NEED(add_spm_normalizer(&tokenizer->normalizer, source));
    HL_NEED(add_spm_decoder(&tokenizer->decoder, source));
    return add_around(tokenizer, choose(source->add_bos, true), choose(source->add_eos, false),
                      HL_SPECIAL_BOS, HL_SPECIAL_EOS);
}

/* --------------------------------------------------------------------- bert */

static hl_status add_bert_normalizer(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    HL_NEED(add_normalizer(tokenizer, (hl_normalize_step){ .kind = HL_NORMALIZE_CLEAN }));
    if (choose(source->space_chinese, true))
        HL_NEED(add_normalizer(tokenizer, (hl_normalize_step){ .kind = HL_NORMALIZE_CHINESE }));
    if (choose(source->strip_accents, !source->keep_case)) {
        HL_NEED(add_normalizer(tokenizer, (hl_normalize_step){ .kind = HL_NORMALIZE_FORM }));
        HL_NEED(add_normalizer(tokenizer, (hl_normalize_step){ .kind       = HL_NORMALIZE_REMOVE,
                                                               .char_class = HL_CHAR_ACCENT }));
    }
    if (!source->keep_case)
        HL_NEED(add_normalizer(tokenizer, (hl_normalize_step){ .kind = HL_NORMALIZE_LOWERCASE }));
    return HL_OK;
}

static hl_status build_bert(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_wordpiece   *model  = &tokenizer->wordpiece;
    hl_split_step  *step   = NULL;
    hl_decode_step *decode = NULL;

    tokenizer->kind       = HL_MODEL_WORDPIECE;
    model->vocab          = &tokenizer->vocab;
    model->unknown        = tokenizer->special[HL_SPECIAL_UNK];
    model->max_characters = WORDPIECE_WORD;
    HL_NEED(copy_bytes(&model->prefix, WORDPIECE_MARK));
    HL_NEED(add_bert_normalizer(tokenizer, source));
    HL_NEED(add_class(tokenizer, HL_CHAR_WHITESPACE, HL_SPLIT_REMOVED));
    HL_NEED(add_class(tokenizer, HL_CHAR_PUNCTUATION, HL_SPLIT_ISOLATED));
    if (source->characters)
        HL_NEED(hl_pretokenizer_add(&step, &tokenizer->pretokenizer,
                                    (hl_split_step){ .kind     = HL_SPLIT_LENGTH,
                                                     .length   = 1,
                                                     .behavior = HL_SPLIT_ISOLATED }));
    tokenizer->decoder.present = true;
    HL_NEED(hl_decoder_add(&decode, &tokenizer->decoder,
                           (hl_decode_step){ .kind = HL_DECODE_WORDPIECE, .cleanup = true }));
    HL_NEED(copy_bytes(&decode->content, WORDPIECE_MARK));
    hl_special first = tokenizer->special[HL_SPECIAL_CLS] >= 0 ? HL_SPECIAL_CLS : HL_SPECIAL_BOS;
    return add_around(tokenizer, choose(source->add_bos, true), choose(source->add_eos, true),
                      first, HL_SPECIAL_SEP);
}

/* ----------------------------------------------------------------------- t5 */

static hl_status add_t5_splits(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    bool            prefix = choose(source->add_space_prefix, true);
    hl_split_step  *spaces = NULL;
    hl_decode_step *decode = NULL;

    if (choose(source->remove_extra_spaces, true))
        HL_NEED(add_class(tokenizer, HL_CHAR_WHITESPACE, HL_SPLIT_REMOVED));
    HL_NEED(hl_pretokenizer_add(
        &spaces, &tokenizer->pretokenizer,
        (hl_split_step){ .kind    = HL_SPLIT_METASPACE,
                         .split   = true,
                         .prepend = prefix ? HL_PREPEND_ALWAYS : HL_PREPEND_NEVER }));
    HL_NEED(copy_bytes(&spaces->literal, MARK));
    tokenizer->decoder.present = true;
    HL_NEED(hl_decoder_add(&decode, &tokenizer->decoder,
                           (hl_decode_step){ .kind = HL_DECODE_METASPACE, .keep_first = !prefix }));
    return copy_bytes(&decode->content, MARK);
}

static hl_status build_t5(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_normalize_step *rules  = NULL;
    HL_FREED double   *scores = NULL;

    tokenizer->kind = HL_MODEL_UNIGRAM;
    HL_NEED(HL_ALLOC_ZEROED(&scores, source->n_tokens));
    for (size_t id = 0; id < source->n_tokens && source->scores != NULL; id++)
        scores[id] = source->scores[id];
    HL_NEED(hl_unigram_new(&tokenizer->unigram, &tokenizer->vocab, scores,
                           tokenizer->special[HL_SPECIAL_UNK], false));
    if (source->charsmap.n_bytes > 0) {
        HL_NEED(hl_normalizer_add(&rules, &tokenizer->normalizer,
                                  (hl_normalize_step){ .kind = HL_NORMALIZE_CHARSMAP }));
        HL_NEED(hl_charsmap_new(&rules->charsmap, (const uint8_t *)source->charsmap.data,
                                source->charsmap.n_bytes));
    }
    HL_NEED(add_t5_splits(tokenizer, source));
    return add_around(tokenizer, choose(source->add_bos, false), choose(source->add_eos, true),
                      HL_SPECIAL_BOS, HL_SPECIAL_EOS);
}

/* ---------------------------------------------------------------- the whole */

static hl_status build(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    static const struct {
        const char *model;
        hl_status (*build)(hl_tokenizer *, const hl_vocab_source *);
    } kinds[] = {
        { "gpt2", build_gpt2 }, { "llama", build_llama }, { "bert", build_bert }, { "t5", build_t5 }
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(source->model, kinds[i].model) == 0)
            return kinds[i].build(tokenizer, source);
    }
    return hl_fail(HL_UNSUPPORTED, "%s: the tokenizer model '%s' is not known", source->where,
                   source->model);
}

hl_status hl_tokenizer_from_source(hl_tokenizer **out, const hl_vocab_source *source)
{
    HL_CLOSED(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;

    *out = NULL;
    HL_NEED(hl_tokenizer_new(&tokenizer, source->where));
    HL_NEED(hl_fail_within(add_pieces(tokenizer, source), "%s", source->where));
    HL_NEED(copy_special(tokenizer, source));
    HL_NEED(build(tokenizer, source));
    HL_NEED(add_tokens(tokenizer, source));
    if (source->chat_template != NULL)
        HL_NEED(hl_tokenizer_set_chat_template(tokenizer, source->chat_template));
    HL_NEED(hl_tokenizer_finish(tokenizer));
    *out = hl_taken(&tokenizer);
    return HL_OK;
}
