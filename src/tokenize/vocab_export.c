/* vocab_export.c - which kind of vocabulary a pipeline is, and its lists.
 *
 *     gpt2    [NFC] -> expressions with a name (vocab_source.h), bytes as characters -> BPE
 *     llama   [▁ in front] -> spaces to ▁ -> BPE over characters, with bytes to fall back on
 *     bert    BERT's normalizer and words -> WordPiece
 *     t5      [charsmap | NFKC] -> [words] -> ▁ -> Unigram
 *
 * A tokenizer.json of the llama kind ranks merges; a GGUF file scores pieces, and its reader
 * merges whatever makes a piece, the best score first.  That is the same if all merges
 * that make one piece follow each other and none is missing: then the piece's score is minus
 * its place among the pieces made. */
#include "tokenize/vocab_source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/tokenizer.h"
#include "tokenize/unicode.h"

#define MARK           "\xe2\x96\x81" /* ▁ */
#define WORDPIECE_MARK "##"
#define WORDPIECE_WORD 100
#define N_BYTE_VALUES  256

enum { MAX_PRE_NAME = 32, MAX_NOTE = 256 };

struct hl_vocab_export {
    const hl_tokenizer *from;
    hl_vocab_source     source;
    hl_buffer           bytes; /* texts of the tokens, then of the merges */
    hl_buffer           charsmap;
    hl_bytes           *tokens; /* (n_tokens) */
    float              *scores; /* (n_tokens) or NULL */
    int32_t            *types;  /* (n_tokens) */
    hl_bytes           *merges; /* (n_merges) or NULL */
    char                pre[MAX_PRE_NAME];
    char                note[MAX_NOTE];
};

/* ------------------------------------------------------------------- steps */

static void add_note(hl_vocab_export *vocab, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_note(hl_vocab_export *vocab, const char *format, ...)
{
    size_t  used = strlen(vocab->note);
    va_list arguments;

    used += (size_t)snprintf(vocab->note + used, MAX_NOTE - used, "%s", used > 0 ? "; " : "");
    va_start(arguments, format);
    if (used < MAX_NOTE)
        vsnprintf(vocab->note + used, MAX_NOTE - used, format, arguments);
    va_end(arguments);
}

static hl_status no_place(const char *what)
{
    return hl_fail(HL_UNSUPPORTED, "a GGUF file has no place for %s", what);
}

static bool is_form(const hl_normalize_step *step, bool compose, bool compatible)
{
    return step->kind == HL_NORMALIZE_FORM && step->compose == compose &&
           step->compatible == compatible;
}

static bool is_class(const hl_split_step *step, int char_class, hl_split_behavior behavior)
{
    return step->kind == HL_SPLIT_CLASS && step->char_class == char_class &&
           step->behavior == behavior && !step->invert;
}

/* -------------------------------------------------------------------- gpt2 */

/* Returns the expression that a step splits by, or NULL. */
static const char *expression_of(const hl_split_step *step)
{
    if (is_class(step, HL_CHAR_NUMERIC, HL_SPLIT_ISOLATED))
        return "\\p{N}";
    if (step->kind != HL_SPLIT_PATTERN || step->behavior != HL_SPLIT_ISOLATED || step->invert)
        return NULL;
    return hl_pattern_text(step->pattern);
}

static hl_status name_expressions(hl_vocab_export *vocab)
{
    const hl_pretokenizer *steps = &vocab->from->pretokenizer;
    const hl_split_step   *last  = &steps->steps[steps->n_steps - 1];
    const char            *patterns[HL_MAX_PRE_PATTERNS + 1];
    size_t                 count = 0;

    if (last->prefix_space || steps->n_steps > HL_MAX_PRE_PATTERNS)
        return no_place("a space in front of every text of bytes");
    for (size_t i = 0; i + 1 < steps->n_steps; i++) {
        patterns[count] = expression_of(&steps->steps[i]);
        if (patterns[count++] == NULL)
            return no_place("one of the steps that split words");
    }
    if (last->pattern != NULL)
        patterns[count++] = hl_pattern_text(last->pattern);
    const hl_pre *pre =
        hl_pre_match(patterns, count, hl_bpe_get_options(vocab->from->bpe)->ignore_merges);
    if (pre == NULL)
        return no_place("these expressions: llama.cpp knows them by name, and has none for them");
    snprintf(vocab->pre, sizeof vocab->pre, "%.*s", (int)strcspn(pre->names, " "), pre->names);
    vocab->source.pre = vocab->pre;
    return HL_OK;
}

static hl_status describe_gpt2(hl_vocab_export *vocab)
{
    const hl_normalizer *steps = &vocab->from->normalizer;

    vocab->source.model = "gpt2";
    if (steps->n_steps == 1 && is_form(&steps->steps[0], true, false))
        add_note(vocab, "text that is not in NFC gets other ids");
    else if (steps->n_steps > 0)
        return no_place("what this tokenizer does to text first");
    return name_expressions(vocab);
}

/* ------------------------------------------------------------------- llama */

static bool is_marking(const hl_normalize_step *step)
{
    return step->kind == HL_NORMALIZE_REPLACE && step->pattern == NULL &&
           hl_bytes_equal(step->needle, " ") && hl_bytes_equal(step->content, MARK);
}

static bool has_all_bytes(const hl_vocab *vocab)
{
    for (unsigned byte = 0; byte < N_BYTE_VALUES; byte++) {
        if (hl_vocab_find_byte(vocab, (uint8_t)byte) < 0)
            return false;
    }
    return true;
}

/* Describes how spaces become ▁: by the normalizer, or by a pre-tokenizer step that does not
 * split. */
static hl_status describe_spaces(hl_vocab_export *vocab)
{
    const hl_normalizer     *first = &vocab->from->normalizer;
    const hl_pretokenizer   *then  = &vocab->from->pretokenizer;
    const hl_normalize_step *step  = first->steps;

    if (then->n_steps == 0 && first->n_steps == 1 && is_marking(&step[0])) {
        vocab->source.add_space_prefix = 0;
        return HL_OK;
    }
    if (then->n_steps == 0 && first->n_steps == 2 && step[0].kind == HL_NORMALIZE_PREPEND &&
        hl_bytes_equal(step[0].content, MARK) && is_marking(&step[1])) {
        vocab->source.add_space_prefix = 1;
        return HL_OK;
    }
    if (first->n_steps > 0 || then->n_steps != 1 || then->steps[0].kind != HL_SPLIT_METASPACE ||
        then->steps[0].split || !hl_bytes_equal(then->steps[0].literal, MARK))
        return no_place("what this tokenizer does to text first");
    vocab->source.add_space_prefix = then->steps[0].prepend != HL_PREPEND_NEVER;
    if (vocab->source.add_space_prefix)
        add_note(vocab, "a text that begins with a space gets other ids");
    return HL_OK;
}

static hl_status describe_llama(hl_vocab_export *vocab)
{
    const hl_bpe_options *options = hl_bpe_get_options(vocab->from->bpe);

    vocab->source.model = "llama";
    if (options->ignore_merges || options->prefix.n_bytes > 0 || options->suffix.n_bytes > 0)
        return no_place("merges that are ignored, or pieces with a prefix or suffix");
    if (!options->byte_fallback || !has_all_bytes(&vocab->from->vocab))
        return no_place("merges of characters without a piece for every byte");
    return describe_spaces(vocab);
}

/* --------------------------------------------------------------- bert, t5 */

static hl_status describe_bert(hl_vocab_export *vocab)
{
    const hl_normalizer     *first = &vocab->from->normalizer;
    const hl_pretokenizer   *then  = &vocab->from->pretokenizer;
    const hl_wordpiece      *words = &vocab->from->wordpiece;
    const hl_normalize_step *step  = first->steps;
    bool                     lower = first->n_steps == 5 && is_form(&step[2], false, false) &&
                 step[3].kind == HL_NORMALIZE_REMOVE && step[3].char_class == HL_CHAR_ACCENT &&
                 step[4].kind == HL_NORMALIZE_LOWERCASE;

    vocab->source.model     = "bert";
    vocab->source.keep_case = !lower;
    if ((!lower && first->n_steps != 2) || step[0].kind != HL_NORMALIZE_CLEAN ||
        step[1].kind != HL_NORMALIZE_CHINESE)
        return no_place("what this tokenizer does to text first");
    if (then->n_steps != 2 || !is_class(&then->steps[0], HL_CHAR_WHITESPACE, HL_SPLIT_REMOVED) ||
        !is_class(&then->steps[1], HL_CHAR_PUNCTUATION, HL_SPLIT_ISOLATED))
        return no_place("words that are not BERT's");
    if (!hl_bytes_equal(words->prefix, WORDPIECE_MARK) || words->max_characters != WORDPIECE_WORD)
        return no_place("a prefix other than ##, or words of more than 100 characters");
    return HL_OK;
}

static hl_status describe_rules(hl_vocab_export *vocab)
{
    const hl_normalizer     *steps = &vocab->from->normalizer;
    const hl_normalize_step *step  = steps->steps;

    if (steps->n_steps == 0)
        return HL_OK;
    if (steps->n_steps > 1)
        return no_place("what this tokenizer does to text first");
    if (step->kind == HL_NORMALIZE_CHARSMAP) {
        HL_NEED(hl_charsmap_write(&vocab->charsmap, step->charsmap));
        vocab->source.charsmap = hl_buffer_bytes(&vocab->charsmap);
    } else if (is_form(step, true, true)) {
        add_note(vocab, "text that is not in NFKC gets other ids");
    } else {
        return no_place("what this tokenizer does to text first");
    }
    return HL_OK;
}

static bool has_byte_pieces(const hl_vocab *vocab)
{
    for (size_t id = 0; id < vocab->n_ids; id++) {
        if (vocab->pieces[id].type == HL_TOKEN_BYTE)
            return true;
    }
    return false;
}

/* Returns the step that marks spaces, after an optional split into words; NULL if the pre-tokenizer
 * is different. */
static const hl_split_step *marks_of(const hl_pretokenizer *then)
{
    if (then->n_steps < 1 || then->n_steps > 2)
        return NULL;
    const hl_split_step *marks = &then->steps[then->n_steps - 1];
    if (then->n_steps == 2 && !is_class(&then->steps[0], HL_CHAR_WHITESPACE, HL_SPLIT_REMOVED))
        return NULL;
    if (marks->kind != HL_SPLIT_METASPACE || !marks->split || marks->prepend == HL_PREPEND_FIRST ||
        !hl_bytes_equal(marks->literal, MARK))
        return NULL;
    return marks;
}

static hl_status describe_t5(hl_vocab_export *vocab)
{
    const hl_pretokenizer *then  = &vocab->from->pretokenizer;
    const hl_split_step   *marks = marks_of(then);
    bool                   words = then->n_steps == 2;

    vocab->source.model               = "t5";
    vocab->source.remove_extra_spaces = words;
    if (has_byte_pieces(&vocab->from->vocab))
        return no_place("a Unigram model that falls back on bytes");
    if (marks == NULL)
        return no_place("one of the steps that split words");
    vocab->source.add_space_prefix = marks->prepend == HL_PREPEND_ALWAYS;
    if (vocab->source.add_space_prefix && !words)
        add_note(vocab, "a text that begins with a space gets other ids in llama.cpp");
    return describe_rules(vocab);
}

/* ------------------------------------------------------------------ pieces */

static int32_t type_of(const hl_vocab *vocab, size_t id)
{
    static const int32_t types[] = {
        [HL_TOKEN_NORMAL] = HL_PIECE_NORMAL,   [HL_TOKEN_UNKNOWN] = HL_PIECE_UNKNOWN,
        [HL_TOKEN_SPECIAL] = HL_PIECE_CONTROL, [HL_TOKEN_ADDED] = HL_PIECE_USER_DEFINED,
        [HL_TOKEN_BYTE] = HL_PIECE_BYTE,
    };
    return id < vocab->n_ids && vocab->pieces[id].present ? types[vocab->pieces[id].type]
                                                          : HL_PIECE_UNUSED;
}

/* Appends a WordPiece as GGUF spells it: pieces that begin words are marked, the others are not. */
static hl_status append_wordpiece(hl_buffer *out, hl_bytes piece)
{
    bool special =
        piece.n_bytes >= 2 && piece.data[0] == '[' && piece.data[piece.n_bytes - 1] == ']';
    bool continues = piece.n_bytes > 2 && memcmp(piece.data, WORDPIECE_MARK, 2) == 0;

    if (continues)
        return hl_buffer_append(out, piece.data + 2, piece.n_bytes - 2);
    if (!special)
        HL_NEED(hl_buffer_append_text(out, MARK));
    return hl_buffer_append(out, piece.data, piece.n_bytes);
}

static hl_status append_piece(hl_vocab_export *vocab, size_t id)
{
    char     filler[32];
    hl_bytes piece = hl_vocab_spelling(&vocab->from->vocab, (int64_t)id);

    if (vocab->types[id] == HL_PIECE_UNUSED) {
        snprintf(filler, sizeof filler, "[PAD%zu]", id);
        return hl_buffer_append_text(&vocab->bytes, filler);
    }
    if (strcmp(vocab->source.model, "bert") == 0)
        return append_wordpiece(&vocab->bytes, piece);
    return hl_buffer_append(&vocab->bytes, piece.data, piece.n_bytes);
}

/* Appends "a b" for two pieces without spaces. */
static hl_status append_merge(hl_vocab_export *vocab, const hl_bpe_merge *merge)
{
    hl_bytes left  = hl_vocab_spelling(&vocab->from->vocab, merge->left);
    hl_bytes right = hl_vocab_spelling(&vocab->from->vocab, merge->right);

    if (memchr(left.data, ' ', left.n_bytes) != NULL ||
        memchr(right.data, ' ', right.n_bytes) != NULL)
        return no_place("a merge of pieces with spaces in them");
    HL_NEED(hl_buffer_append(&vocab->bytes, left.data, left.n_bytes));
    HL_NEED(hl_buffer_append_text(&vocab->bytes, " "));
    return hl_buffer_append(&vocab->bytes, right.data, right.n_bytes);
}

/* Makes texts of `count` consecutive stretches of `bytes`, which start at `begin` and end at
 * `ends`. */
static void cut_bytes(hl_bytes *out, const char *bytes, size_t begin, const size_t *ends,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (hl_bytes){ bytes + begin, ends[i] - begin };
        begin  = ends[i];
    }
}

/* Lists all texts: first they are appended to one buffer, then their places are taken. */
static hl_status list_texts(hl_vocab_export *vocab, const hl_bpe_merge *merges)
{
    hl_vocab_source *source   = &vocab->source;
    const size_t     n_tokens = source->n_tokens;
    const size_t     n_merges = merges != NULL ? source->n_merges : 0;
    HL_FREED size_t *ends     = NULL;

    HL_NEED(HL_ALLOC(&ends, n_tokens + n_merges));
    HL_NEED(HL_ALLOC(&vocab->tokens, n_tokens));
    HL_NEED(HL_ALLOC(&vocab->merges, n_merges));
    for (size_t i = 0; i < n_tokens; i++) {
        HL_NEED(append_piece(vocab, i));
        ends[i] = vocab->bytes.n_bytes;
    }
    size_t middle = vocab->bytes.n_bytes;
    for (size_t i = 0; i < n_merges; i++) {
        HL_NEED(append_merge(vocab, &merges[i]));
        ends[n_tokens + i] = vocab->bytes.n_bytes;
    }
    cut_bytes(vocab->tokens, vocab->bytes.data, 0, ends, n_tokens);
    cut_bytes(vocab->merges, vocab->bytes.data, middle, ends + n_tokens, n_merges);
    source->tokens = vocab->tokens;
    source->merges = vocab->merges;
    return HL_OK;
}

static hl_status add_types(hl_vocab_export *vocab)
{
    HL_NEED(HL_ALLOC(&vocab->types, vocab->source.n_tokens));
    for (size_t id = 0; id < vocab->source.n_tokens; id++)
        vocab->types[id] = type_of(&vocab->from->vocab, id);
    vocab->source.types = vocab->types;
    return HL_OK;
}

/* ------------------------------------------------------------------ scores */

/* Copies the scores of a Unigram model; an unused piece gets the lowest score. */
static void copy_scores(hl_vocab_export *vocab)
{
    const hl_vocab *from  = &vocab->from->vocab;
    float           least = 0.0f;

    for (size_t id = 0; id < from->n_ids; id++)
        least = from->pieces[id].score < least ? from->pieces[id].score : least;
    for (size_t id = 0; id < vocab->source.n_tokens; id++)
        vocab->scores[id] = vocab->types[id] == HL_PIECE_UNUSED ? least : from->pieces[id].score;
}

static hl_status score_merges(hl_vocab_export *vocab, const hl_bpe_merge *merges, size_t n_merges)
{
    int32_t last   = -1;
    float   n_made = 0.0f;

    for (size_t i = 0; i < n_merges; i++) {
        if (merges[i].id == last)
            continue;
        last = merges[i].id;
        if (vocab->scores[last] != 0.0f)
            return no_place("merges that follow no order of their pieces");
        vocab->scores[last] = -(n_made += 1.0f);
    }
    return HL_OK;
}

/* Checks that a reader of the scores would merge exactly what the tokenizer merges. */
static hl_status check_merges(const hl_vocab_export *vocab, const hl_bpe_merge *merges,
                              size_t n_merges)
{
    size_t                                      n_seen = 0;
    HL_CLOSED(hl_tokenizer_close) hl_tokenizer *back   = NULL;
    HL_FREED hl_bpe_merge                      *seen   = NULL;

    HL_NEED(hl_tokenizer_from_source(&back, &vocab->source));
    HL_NEED(hl_bpe_merges(&seen, &n_seen, back->bpe));
    bool same = n_seen == n_merges;
    for (size_t i = 0; i < n_merges && same; i++)
        same = hl_bpe_merged(back->bpe, merges[i].left, merges[i].right) == merges[i].id;
    return same ? HL_OK : no_place("merges that leave out a way to make a piece");
}

static hl_status add_lists(hl_vocab_export *vocab)
{
    bool                   is_gpt2  = strcmp(vocab->source.model, "gpt2") == 0;
    bool                   is_llama = strcmp(vocab->source.model, "llama") == 0;
    size_t                 n_merges = 0;
    HL_FREED hl_bpe_merge *merges   = NULL;

    HL_NEED(add_types(vocab));
    if (is_gpt2 || is_llama)
        HL_NEED(hl_bpe_merges(&merges, &n_merges, vocab->from->bpe));
    vocab->source.n_merges = is_gpt2 ? n_merges : 0;
    HL_NEED(list_texts(vocab, merges));
    if (is_gpt2)
        return HL_OK;
    HL_NEED(HL_ALLOC_ZEROED(&vocab->scores, vocab->source.n_tokens));
    vocab->source.scores = vocab->scores;
    if (is_llama) {
        HL_NEED(score_merges(vocab, merges, n_merges));
        return check_merges(vocab, merges, n_merges);
    }
    if (vocab->from->kind == HL_MODEL_UNIGRAM)
        copy_scores(vocab);
    return HL_OK;
}

/* ---------------------------------------------------------------- settings */

/* Stores the one token before or after texts under the name that readers look for. */
static hl_status add_side(hl_vocab_export *vocab, int *choice, hl_special which, const int64_t *ids,
                          size_t count)
{
    int32_t *known = &vocab->source.special[which];

    *choice = count > 0;
    if (count == 0)
        return HL_OK;
    if (count > 1 || (*known >= 0 && *known != ids[0]))
        return no_place("the tokens that are put around texts");
    *known = (int32_t)ids[0];
    return HL_OK;
}

static hl_status add_settings(hl_vocab_export *vocab)
{
    const hl_tokenizer     *from  = vocab->from;
    const hl_postprocessor *post  = &from->postprocessor;
    bool                    bert  = from->kind == HL_MODEL_WORDPIECE;
    size_t                  count = 0;

    memcpy(vocab->source.special, from->special, sizeof from->special);
    HL_NEED(add_side(vocab, &vocab->source.add_bos, bert ? HL_SPECIAL_CLS : HL_SPECIAL_BOS,
                     post->before, post->n_before));
    HL_NEED(add_side(vocab, &vocab->source.add_eos, bert ? HL_SPECIAL_SEP : HL_SPECIAL_EOS,
                     post->after, post->n_after));
    if (bert && vocab->source.special[HL_SPECIAL_BOS] < 0) /* llama.cpp looks for it here */
        vocab->source.special[HL_SPECIAL_BOS] = vocab->source.special[HL_SPECIAL_CLS];
    for (size_t i = 0; i < from->added.count; i++) {
        const hl_added_token *token = &from->added.items[i];
        count += token->strip_left || token->strip_right || token->single_word;
    }
    if (count > 0)
        add_note(vocab, "%zu added token%s the white space beside %s", count,
                 count == 1 ? " leaves" : "s leave", count == 1 ? "it" : "them");
    vocab->source.chat_template = from->chat_template;
    return HL_OK;
}

/* --------------------------------------------------------------- the whole */

static hl_status describe(hl_vocab_export *vocab)
{
    switch (vocab->from->kind) {
    case HL_MODEL_BPE:
        return hl_bpe_get_options(vocab->from->bpe)->byte_level ? describe_gpt2(vocab)
                                                                : describe_llama(vocab);
    case HL_MODEL_UNIGRAM:
        return describe_t5(vocab);
    case HL_MODEL_WORDPIECE:
        return describe_bert(vocab);
    default:
        return no_place("a tokenizer of whole words");
    }
}

hl_status hl_vocab_export_new(hl_vocab_export **out, const hl_tokenizer *tokenizer, size_t n_ids)
{
    HL_CLOSED(hl_vocab_export_free) hl_vocab_export *vocab = NULL;

    *out = NULL;
    if (tokenizer->vocab.n_ids > n_ids)
        return hl_fail(HL_UNSUPPORTED, "the tokenizer has %zu ids, the model %zu embeddings",
                       tokenizer->vocab.n_ids, n_ids);
    HL_NEED(HL_ALLOC_ZEROED(&vocab, 1));
    vocab->from            = tokenizer;
    vocab->source          = hl_vocab_source_empty();
    vocab->source.where    = "the vocabulary";
    vocab->source.n_tokens = n_ids;
    HL_NEED(describe(vocab));
    HL_NEED(add_settings(vocab));
    HL_NEED(add_lists(vocab));
    *out = hl_taken(&vocab);
    return HL_OK;
}

void hl_vocab_export_free(hl_vocab_export *vocab)
{
    if (vocab == NULL)
        return;
    hl_buffer_free(&vocab->bytes);
    hl_buffer_free(&vocab->charsmap);
    hl_free(vocab->tokens);
    hl_free(vocab->scores);
    hl_free(vocab->types);
    hl_free(vocab->merges);
    hl_free(vocab);
}

hl_vocab_source *hl_vocab_export_source(hl_vocab_export *vocab)
{
    return &vocab->source;
}

const char *hl_vocab_export_note(const hl_vocab_export *vocab)
{
    return vocab->note;
}
