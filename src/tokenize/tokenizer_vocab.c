/* tokenizer_vocab.c - a pipeline around a list of pieces.
 *
 * What a tokenizer.json would have said for the same model, put together by hand
 * from the name of its kind (vocab_source.h). */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/pre_names.h"
#include "tokenize/tokenizer.h"
#include "tokenize/unicode.h"
#include "tokenize/vocab_source.h"

#define MARK           "\xe2\x96\x81" /* ▁ */
#define MARK_BYTES     3
#define WORDPIECE_MARK "##"
#define WORDPIECE_WORD 100

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

/* GGUF marks the pieces that begin words; WordPiece proper marks the others. */
static hl_status respell_bert(hl_buffer *out, hl_bytes piece)
{
    bool special =
        piece.n_bytes >= 2 && piece.data[0] == '[' && piece.data[piece.n_bytes - 1] == ']';
    bool begins = piece.n_bytes >= MARK_BYTES && memcmp(piece.data, MARK, MARK_BYTES) == 0;

    out->n_bytes = 0;
    if (begins)
        return hl_buffer_append(out, piece.data + MARK_BYTES, piece.n_bytes - MARK_BYTES);
    hl_status status = special ? HL_OK : hl_buffer_append_text(out, WORDPIECE_MARK);
    return status == HL_OK ? hl_buffer_append(out, piece.data, piece.n_bytes) : status;
}

static hl_status add_pieces(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_status status = HL_OK;
    hl_buffer buffer = { 0 };
    bool      bert   = strcmp(source->model, "bert") == 0 && !source->inner_marks;

    for (size_t id = 0; id < source->n_tokens; id++) {
        hl_bytes piece = source->tokens[id];
        int      type  = piece_type(source, id);
        if (bert) {
            HL_TRY(respell_bert(&buffer, piece));
            piece = hl_buffer_bytes(&buffer);
        }
        HL_TRY(hl_vocab_add(&tokenizer->vocab, (int64_t)id, piece, token_type(type), NULL));
        if (source->scores != NULL)
            tokenizer->vocab.pieces[id].score = source->scores[id];
    }

done:
    hl_buffer_free(&buffer);
    return status;
}

/* Control, unknown and user-defined tokens are found in the text before anything else. */
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
        HL_NEED(hl_postprocessor_add_before(&tokenizer->postprocessor, tokenizer->special[first]));
    if (eos && tokenizer->special[last] >= 0)
        HL_NEED(hl_postprocessor_add_after(&tokenizer->postprocessor, tokenizer->special[last]));
    return HL_OK;
}

static hl_status copy_bytes(hl_bytes *out, const char *text)
{
    char     *copy   = NULL;
    hl_status status = hl_strdup(&copy, text);
    if (status == HL_OK)
        *out = (hl_bytes){ copy, strlen(text) };
    return status;
}

/* --------------------------------------------------------------------- gpt2 */

static hl_status add_patterns(hl_tokenizer *tokenizer, const hl_pre *pre)
{
    hl_pretokenizer *out = &tokenizer->pretokenizer;

    for (const char *const *pattern = pre->patterns; *pattern != NULL; pattern++) {
        hl_split_step step = { .behavior = HL_SPLIT_ISOLATED };
        HL_NEED(hl_pattern_new(&step.pattern, *pattern, strlen(*pattern)));
        HL_NEED(hl_pretokenizer_add(out, step));
    }
    return hl_pretokenizer_add(out, (hl_split_step){ .kind       = HL_SPLIT_BYTE_LEVEL,
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
        hl_status status = hl_bpe_add_merge(bpe, (hl_bytes){ text.data, left },
                                            (hl_bytes){ space + 1, text.n_bytes - left - 1 });
        if (status != HL_OK)
            return hl_fail_within(status, "%s", source->where);
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
        hl_log(HL_LOG_WARNING, "%s: names no pre-tokenizer; words may be split wrongly",
               source->where);
    hl_bpe_options options = { .byte_level    = true,
                               .ignore_merges = pre->ignore_merges,
                               .unknown       = -1 };
    tokenizer->kind        = HL_MODEL_BPE;
    HL_NEED(add_patterns(tokenizer, pre));
    HL_NEED(hl_bpe_new(&tokenizer->bpe, &tokenizer->vocab, &options));
    HL_NEED(add_merges(tokenizer->bpe, source));
    HL_NEED(hl_bpe_finish(tokenizer->bpe));
    tokenizer->decoder.present = true;
    HL_NEED(hl_decoder_add(&tokenizer->decoder, (hl_decode_step){ .kind = HL_DECODE_BYTE_LEVEL }));
    return add_around(tokenizer, choose(source->add_bos, pre->add_bos),
                      choose(source->add_eos, false), HL_SPECIAL_BOS, HL_SPECIAL_EOS);
}

/* -------------------------------------------------------------------- llama */

static hl_status add_spm_normalizer(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_status         status  = HL_OK;
    const char       *space   = source->plain_spaces ? " " : MARK;
    hl_normalize_step prepend = { .kind = HL_NORMALIZE_PREPEND };
    hl_normalize_step replace = { .kind = HL_NORMALIZE_REPLACE };

    if (choose(source->add_space_prefix, true)) {
        HL_TRY(copy_bytes(&prepend.content, space));
        HL_TRY(hl_normalizer_add(&tokenizer->normalizer, prepend));
    }
    if (source->plain_spaces)
        return HL_OK;
    HL_TRY(copy_bytes(&replace.needle, " "));
    HL_TRY(copy_bytes(&replace.content, MARK));
    return hl_normalizer_add(&tokenizer->normalizer, replace);

done:
    hl_free((void *)replace.needle.data);
    return status;
}

/* ▁ to spaces, bytes to characters, and the space that was put in front taken off. */
static hl_status add_spm_decoder(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_status      status  = HL_OK;
    hl_decoder    *decoder = &tokenizer->decoder;
    hl_decode_step replace = { .kind = HL_DECODE_REPLACE };
    hl_decode_step strip   = { .kind = HL_DECODE_STRIP, .start = 1 };

    decoder->present = true;
    if (!source->plain_spaces) {
        HL_TRY(copy_bytes(&replace.content, MARK));
        HL_TRY(copy_bytes(&replace.other, " "));
        HL_TRY(hl_decoder_add(decoder, replace));
        replace = (hl_decode_step){ 0 };
    }
    HL_TRY(hl_decoder_add(decoder, (hl_decode_step){ .kind = HL_DECODE_BYTE_FALLBACK }));
    HL_TRY(hl_decoder_add(decoder, (hl_decode_step){ .kind = HL_DECODE_FUSE }));
    if (choose(source->add_space_prefix, true)) {
        HL_TRY(copy_bytes(&strip.content, " "));
        HL_TRY(hl_decoder_add(decoder, strip));
    }
    return HL_OK;

done:
    hl_free((void *)replace.content.data);
    return status;
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
    HL_NEED(add_spm_normalizer(tokenizer, source));
    HL_NEED(add_spm_decoder(tokenizer, source));
    return add_around(tokenizer, choose(source->add_bos, true), choose(source->add_eos, false),
                      HL_SPECIAL_BOS, HL_SPECIAL_EOS);
}

/* --------------------------------------------------------------------- bert */

static hl_status add_bert_normalizer(hl_normalizer *out, const hl_vocab_source *source)
{
    HL_NEED(hl_normalizer_add(out, (hl_normalize_step){ .kind = HL_NORMALIZE_CLEAN }));
    if (choose(source->space_chinese, true))
        HL_NEED(hl_normalizer_add(out, (hl_normalize_step){ .kind = HL_NORMALIZE_CHINESE }));
    if (choose(source->strip_accents, !source->keep_case)) {
        HL_NEED(hl_normalizer_add(out, (hl_normalize_step){ .kind = HL_NORMALIZE_FORM }));
        HL_NEED(hl_normalizer_add(
            out, (hl_normalize_step){ .kind = HL_NORMALIZE_REMOVE, .char_class = HL_CHAR_ACCENT }));
    }
    if (!source->keep_case)
        HL_NEED(hl_normalizer_add(out, (hl_normalize_step){ .kind = HL_NORMALIZE_LOWERCASE }));
    return HL_OK;
}

static hl_status build_bert(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_wordpiece    *model  = &tokenizer->wordpiece;
    hl_pretokenizer *pre    = &tokenizer->pretokenizer;
    hl_decode_step   decode = { .kind = HL_DECODE_WORDPIECE, .cleanup = true };

    tokenizer->kind       = HL_MODEL_WORDPIECE;
    model->vocab          = &tokenizer->vocab;
    model->unknown        = tokenizer->special[HL_SPECIAL_UNK];
    model->max_characters = WORDPIECE_WORD;
    HL_NEED(copy_bytes(&model->prefix, WORDPIECE_MARK));
    HL_NEED(add_bert_normalizer(&tokenizer->normalizer, source));
    HL_NEED(hl_pretokenizer_add(pre, (hl_split_step){ .kind       = HL_SPLIT_CLASS,
                                                      .char_class = HL_CHAR_WHITESPACE,
                                                      .behavior   = HL_SPLIT_REMOVED }));
    HL_NEED(hl_pretokenizer_add(pre, (hl_split_step){ .kind       = HL_SPLIT_CLASS,
                                                      .char_class = HL_CHAR_PUNCTUATION,
                                                      .behavior   = HL_SPLIT_ISOLATED }));
    if (source->characters)
        HL_NEED(hl_pretokenizer_add(pre, (hl_split_step){ .kind     = HL_SPLIT_LENGTH,
                                                          .length   = 1,
                                                          .behavior = HL_SPLIT_ISOLATED }));
    tokenizer->decoder.present = true;
    HL_NEED(copy_bytes(&decode.content, WORDPIECE_MARK));
    HL_NEED(hl_decoder_add(&tokenizer->decoder, decode));
    hl_special first = tokenizer->special[HL_SPECIAL_CLS] >= 0 ? HL_SPECIAL_CLS : HL_SPECIAL_BOS;
    return add_around(tokenizer, choose(source->add_bos, true), choose(source->add_eos, true),
                      first, HL_SPECIAL_SEP);
}

/* ----------------------------------------------------------------------- t5 */

static hl_status add_t5_splits(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_pretokenizer *pre    = &tokenizer->pretokenizer;
    hl_split_step    spaces = { .kind    = HL_SPLIT_METASPACE,
                                .split   = true,
                                .prepend = choose(source->add_space_prefix, true) ? HL_PREPEND_ALWAYS
                                                                                  : HL_PREPEND_NEVER };
    hl_decode_step   decode = { .kind       = HL_DECODE_METASPACE,
                                .keep_first = spaces.prepend == HL_PREPEND_NEVER };

    if (choose(source->remove_extra_spaces, true))
        HL_NEED(hl_pretokenizer_add(pre, (hl_split_step){ .kind       = HL_SPLIT_CLASS,
                                                          .char_class = HL_CHAR_WHITESPACE,
                                                          .behavior   = HL_SPLIT_REMOVED }));
    HL_NEED(copy_bytes(&spaces.literal, MARK));
    HL_NEED(hl_pretokenizer_add(pre, spaces));
    tokenizer->decoder.present = true;
    HL_NEED(copy_bytes(&decode.content, MARK));
    return hl_decoder_add(&tokenizer->decoder, decode);
}

static hl_status build_t5(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    hl_status         status = HL_OK;
    double           *scores = NULL;
    hl_normalize_step rules  = { .kind = HL_NORMALIZE_CHARSMAP };

    tokenizer->kind = HL_MODEL_UNIGRAM;
    HL_TRY(HL_ALLOC_ZEROED(&scores, source->n_tokens));
    for (size_t id = 0; id < source->n_tokens && source->scores != NULL; id++)
        scores[id] = source->scores[id];
    HL_TRY(hl_unigram_new(&tokenizer->unigram, &tokenizer->vocab, scores,
                          tokenizer->special[HL_SPECIAL_UNK], false));
    if (source->charsmap.n_bytes > 0) {
        HL_TRY(hl_charsmap_new(&rules.charsmap, (const uint8_t *)source->charsmap.data,
                               source->charsmap.n_bytes));
        HL_TRY(hl_normalizer_add(&tokenizer->normalizer, rules));
    }
    HL_TRY(add_t5_splits(tokenizer, source));
    HL_TRY(add_around(tokenizer, choose(source->add_bos, false), choose(source->add_eos, true),
                      HL_SPECIAL_BOS, HL_SPECIAL_EOS));

done:
    hl_free(scores);
    return status;
}

/* ---------------------------------------------------------------- the whole */

static hl_status build(hl_tokenizer *tokenizer, const hl_vocab_source *source)
{
    if (strcmp(source->model, "gpt2") == 0)
        return build_gpt2(tokenizer, source);
    if (strcmp(source->model, "llama") == 0)
        return build_llama(tokenizer, source);
    if (strcmp(source->model, "bert") == 0)
        return build_bert(tokenizer, source);
    if (strcmp(source->model, "t5") == 0)
        return build_t5(tokenizer, source);
    return hl_fail(HL_UNSUPPORTED, "%s: the tokenizer model '%s' is not known", source->where,
                   source->model);
}

hl_status hl_tokenizer_from_source(hl_tokenizer **out, const hl_vocab_source *source)
{
    hl_status     status    = HL_OK;
    hl_tokenizer *tokenizer = NULL;

    *out = NULL;
    HL_TRY(hl_tokenizer_new(&tokenizer, source->where));
    status = add_pieces(tokenizer, source);
    if (status != HL_OK)
        HL_TRY(hl_fail_within(status, "%s", source->where));
    HL_TRY(copy_special(tokenizer, source));
    HL_TRY(build(tokenizer, source));
    HL_TRY(add_tokens(tokenizer, source));
    if (source->chat_template != NULL)
        HL_TRY(hl_tokenizer_set_chat_template(tokenizer, source->chat_template));
    HL_TRY(hl_tokenizer_finish(tokenizer));
    *out      = tokenizer;
    tokenizer = NULL;

done:
    hl_tokenizer_close(tokenizer);
    return status;
}
