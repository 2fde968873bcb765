/* pre_names.c - pre-tokenizer names and the expressions behind them.
 *
 * A GGUF file does not hold the expressions that split text into words, only a
 * name for them.  Here are the expressions as the models' own tokenizer.json
 * files write them, each list applied in turn to what the ones before left
 * whole.  An unknown name must not be guessed at: the tokens would be wrong
 * without anybody noticing. */
#include "tokenize/pre_names.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define GPT2  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define MARKS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"

#define LLAMA3 CONTRACTIONS WORDS "|\\p{N}{1,3}" MARKS SPACES
#define QWEN2  CONTRACTIONS WORDS "|\\p{N}" MARKS SPACES
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                                   \
                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES

/* Words that start with a capital, as GPT-4o has them. */
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

static const hl_pre table[] = {
    { "gpt-2 gpt2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
      "mpt olmo jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe",
      { GPT2 },
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
    { "falcon", { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" }, false, false },
    { "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
      { "\\p{N}", GPT2 },
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
        "[\\p{P}!-/:-@\\[-`{-~]", GPT2 },
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
    /* What files had before they named it. */
    { "default",
      { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" },
      false,
      false },
};

/* Is the word one of a list separated by spaces? */
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
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (is_listed(table[i].names, name))
            return &table[i];
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
    for (size_t i = 0; i < sizeof table / sizeof *table && n_patterns <= HL_MAX_PRE_PATTERNS; i++) {
        if (table[i].ignore_merges == ignore_merges &&
            has_patterns(&table[i], patterns, n_patterns))
            return &table[i];
    }
    return NULL;
}
