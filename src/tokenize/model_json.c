/* model_json.c - the member "model" of a tokenizer.json: a vocabulary, and what it is for.
 *
 *     { "type": "BPE", "vocab": {"a": 0, ...}, "merges": [ "a b" or ["a", "b"], ... ], ... }
 *     { "type": "Unigram", "vocab": [ ["a", -1.5], ... ], "unk_id": 0 }
 *     { "type": "WordPiece" or "WordLevel", "vocab": {...}, "unk_token": "[UNK]", ... }
 *
 * Vocabulary and merges are most of the file, and go through the pull reader. */
#include "tokenize/model_json.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tokenize/json_members.h"

#define MAX_WORDPIECE_WORD 4096 /* characters; the file may ask for less */

/* In the order of the table in hl_tokenizer_model_from_json. */
enum {
    TYPE,
    VOCAB,
    MERGES,
    UNK_TOKEN,
    UNK_ID,
    SUBWORD_PREFIX,
    WORD_SUFFIX,
    FUSE_UNK,
    BYTE_FALLBACK,
    IGNORE_MERGES,
    MAX_CHARS,
    N_MEMBERS
};

typedef struct model_loader {
    hl_tokenizer *tokenizer;
    const char   *where;
    hl_member     members[N_MEMBERS];
} model_loader;

/* ---------------------------------------------------------------- vocabulary */

/* {"piece": id, ...} */
static hl_status read_vocab_object(const model_loader *load, hl_json_reader *reader)
{
    bool     more = false, twice = false;
    hl_bytes piece;
    int64_t  id = 0;

    HL_NEED(hl_json_enter(reader, '{'));
    while (hl_json_next(reader, '}', &more) == HL_OK && more) {
        HL_NEED(hl_json_read_key(reader, &piece));
        /* Reading the number does not touch the bytes of the piece. */
        HL_NEED(hl_json_read_int(reader, &id));
        HL_NEED(hl_vocab_add(&load->tokenizer->vocab, id, piece, HL_TOKEN_NORMAL, &twice));
        if (twice)
            HL_NEED(hl_json_reader_fail(reader, "the piece with id %lld was there before",
                                        (long long)id));
    }
    return hl_json_reader_finish(reader);
}

/* [["piece", score], ...]; scores (n_ids) are released by the caller. */
static hl_status read_vocab_list(double **scores, const model_loader *load, hl_json_reader *reader)
{
    hl_vocab *vocab    = &load->tokenizer->vocab;
    size_t    capacity = 0;
    bool      more = false, inner = false;
    hl_bytes  piece;
    double    score = 0;

    HL_NEED(hl_json_enter(reader, '['));
    while (hl_json_next(reader, ']', &more) == HL_OK && more) {
        size_t id = vocab->n_ids;
        HL_NEED(hl_json_enter(reader, '['));
        HL_NEED(hl_json_next(reader, ']', &inner));
        HL_NEED(hl_json_read_string(reader, &piece));
        HL_NEED(hl_vocab_add(vocab, (int64_t)id, piece, HL_TOKEN_NORMAL, NULL));
        HL_NEED(hl_json_next(reader, ']', &inner));
        HL_NEED(hl_json_read_double(reader, &score));
        HL_NEED(hl_json_next(reader, ']', &inner));
        if (inner)
            HL_NEED(hl_json_reader_fail(reader, "more than a piece and its score"));
        HL_NEED(HL_GROW(scores, &capacity, id, 1));
        (*scores)[id]           = score;
        vocab->pieces[id].score = (float)score;
    }
    return hl_json_reader_finish(reader);
}

static hl_status read_vocab(double **scores, const model_loader *load)
{
    hl_status      status;
    hl_json_reader reader;
    char           where[256];

    if (load->members[VOCAB].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: the model has no vocabulary", load->where);
    hl_member_open(&reader, where, load->where, &load->members[VOCAB]);
    if (hl_json_peek(&reader) == '[')
        status = read_vocab_list(scores, load, &reader);
    else
        status = read_vocab_object(load, &reader);
    if (status != HL_OK && hl_json_reader_status(&reader) == HL_OK)
        hl_fail_within(status, "%s", where);
    hl_json_reader_close(&reader);
    return status;
}

/* The id of unk_token; -1 if the file names none. */
static hl_status find_unknown(int32_t *out, const model_loader *load)
{
    hl_bytes  text;
    hl_status status = hl_member_text(&text, load->where, &load->members[UNK_TOKEN]);

    *out = -1;
    if (status != HL_OK || text.data == NULL)
        return status;
    *out = hl_vocab_find(&load->tokenizer->vocab, text);
    hl_free((void *)text.data);
    return HL_OK;
}

/* The <0xNN> pieces are bytes. */
static void mark_bytes(hl_vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "<0x%02X>", byte);
        int32_t id = hl_vocab_find(vocab, (hl_bytes){ spelling, 6 });
        if (id >= 0)
            vocab->pieces[id].type = HL_TOKEN_BYTE;
    }
}

/* -------------------------------------------------------------------- models */

/* "a b": one space, somewhere in the middle. */
static hl_status add_joined_merge(hl_bpe *bpe, hl_json_reader *reader)
{
    hl_bytes  text;
    hl_status status = hl_json_read_string(reader, &text);
    if (status != HL_OK)
        return status;
    const char *space = text.n_bytes > 0 ? memchr(text.data, ' ', text.n_bytes) : NULL;
    size_t      left  = space != NULL ? (size_t)(space - text.data) : 0;
    if (left == 0 || left + 1 == text.n_bytes ||
        memchr(space + 1, ' ', text.n_bytes - left - 1) != NULL)
        return hl_json_reader_fail(reader, "a merge that is not two pieces and a space");
    return hl_bpe_add_merge(bpe, (hl_bytes){ text.data, left },
                            (hl_bytes){ space + 1, text.n_bytes - left - 1 });
}

/* ["a", "b"].  The first is copied: reading the second may overwrite it. */
static hl_status add_split_merge(hl_bpe *bpe, hl_json_reader *reader, hl_buffer *left)
{
    bool     more = false;
    hl_bytes text, right;

    HL_NEED(hl_json_enter(reader, '['));
    HL_NEED(hl_json_next(reader, ']', &more));
    HL_NEED(hl_json_read_string(reader, &text));
    left->n_bytes = 0;
    HL_NEED(hl_buffer_append(left, text.data, text.n_bytes));
    HL_NEED(hl_json_next(reader, ']', &more));
    HL_NEED(hl_json_read_string(reader, &right));
    if (left->n_bytes == 0 || right.n_bytes == 0)
        HL_NEED(hl_json_reader_fail(reader, "a merge with an empty piece"));
    HL_NEED(hl_bpe_add_merge(bpe, hl_buffer_bytes(left), right));
    HL_NEED(hl_json_next(reader, ']', &more));
    if (more)
        HL_NEED(hl_json_reader_fail(reader, "a merge of more than two pieces"));
    return HL_OK;
}

static hl_status read_merges(hl_bpe *bpe, const model_loader *load)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    hl_buffer      left   = { 0 };
    bool           more   = false;
    char           where[256];

    if (load->members[MERGES].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: a BPE model without merges", load->where);
    hl_member_open(&reader, where, load->where, &load->members[MERGES]);
    HL_TRY(hl_json_enter(&reader, '['));
    while (status == HL_OK && hl_json_next(&reader, ']', &more) == HL_OK && more) {
        if (hl_json_peek(&reader) == '[')
            status = add_split_merge(bpe, &reader, &left);
        else
            status = add_joined_merge(bpe, &reader);
    }
    if (status != HL_OK && hl_json_reader_status(&reader) == HL_OK)
        hl_fail_within(status, "%s", where);
    HL_TRY(status);
    HL_TRY(hl_json_reader_finish(&reader));

done:
    hl_buffer_free(&left);
    hl_json_reader_close(&reader);
    return status;
}

/* Bytes need not be spelled as characters if the step that would do it is the last and
 * the model is told. */
static bool keep_bytes(hl_pretokenizer *pre, const hl_bpe_options *options)
{
    hl_split_step *last = pre->n_steps > 0 ? &pre->steps[pre->n_steps - 1] : NULL;

    if (last == NULL || last->kind != HL_SPLIT_BYTE_LEVEL || options->prefix.n_bytes > 0 ||
        options->suffix.n_bytes > 0)
        return false;
    for (size_t i = 0; i + 1 < pre->n_steps; i++) {
        if (pre->steps[i].kind == HL_SPLIT_BYTE_LEVEL)
            return false; /* twice: spelled, then spelled again */
    }
    last->keep_bytes = true;
    return true;
}

static hl_status build_bpe(model_loader *load)
{
    hl_status      status    = HL_OK;
    hl_tokenizer  *tokenizer = load->tokenizer;
    hl_bpe_options options   = { 0 };
    double        *scores    = NULL;

    HL_TRY(read_vocab(&scores, load));
    HL_TRY(find_unknown(&options.unknown, load));
    HL_TRY(hl_member_text(&options.prefix, load->where, &load->members[SUBWORD_PREFIX]));
    HL_TRY(hl_member_text(&options.suffix, load->where, &load->members[WORD_SUFFIX]));
    HL_TRY(hl_member_flag(&options.fuse_unknown, load->where, &load->members[FUSE_UNK]));
    HL_TRY(hl_member_flag(&options.byte_fallback, load->where, &load->members[BYTE_FALLBACK]));
    HL_TRY(hl_member_flag(&options.ignore_merges, load->where, &load->members[IGNORE_MERGES]));
    options.byte_level                 = keep_bytes(&tokenizer->pretokenizer, &options);
    tokenizer->special[HL_SPECIAL_UNK] = options.unknown;
    tokenizer->kind                    = HL_MODEL_BPE;
    if (options.byte_fallback)
        mark_bytes(&tokenizer->vocab);
    HL_TRY(hl_bpe_new(&tokenizer->bpe, &tokenizer->vocab, &options));
    HL_TRY(read_merges(tokenizer->bpe, load));
    HL_TRY(hl_bpe_finish(tokenizer->bpe));

done:
    hl_free(scores);
    hl_free((void *)options.prefix.data);
    hl_free((void *)options.suffix.data);
    return status;
}

static hl_status build_unigram(model_loader *load)
{
    hl_status     status        = HL_OK;
    hl_tokenizer *tokenizer     = load->tokenizer;
    int64_t       unknown       = -1;
    bool          byte_fallback = false;
    double       *scores        = NULL;

    HL_TRY(read_vocab(&scores, load));
    if (tokenizer->vocab.n_ids == 0 || scores == NULL)
        HL_TRY(hl_fail(HL_BAD_INPUT, "%s: a Unigram model needs a list of pieces with scores",
                       load->where));
    HL_TRY(hl_member_integer(&unknown, load->where, &load->members[UNK_ID]));
    if (unknown < -1 || unknown >= (int64_t)tokenizer->vocab.n_ids)
        HL_TRY(hl_fail(HL_BAD_INPUT, "%s: unk_id %lld, but there are %zu pieces", load->where,
                       (long long)unknown, tokenizer->vocab.n_ids));
    HL_TRY(hl_member_flag(&byte_fallback, load->where, &load->members[BYTE_FALLBACK]));
    tokenizer->special[HL_SPECIAL_UNK] = (int32_t)unknown;
    tokenizer->kind                    = HL_MODEL_UNIGRAM;
    if (byte_fallback)
        mark_bytes(&tokenizer->vocab);
    HL_TRY(hl_unigram_new(&tokenizer->unigram, &tokenizer->vocab, scores, (int32_t)unknown,
                          byte_fallback));

done:
    hl_free(scores);
    return status;
}

static hl_status build_wordpiece(model_loader *load)
{
    hl_status     status    = HL_OK;
    hl_tokenizer *tokenizer = load->tokenizer;
    hl_wordpiece *model     = &tokenizer->wordpiece;
    int64_t       longest   = 100;
    double       *scores    = NULL;

    HL_TRY(read_vocab(&scores, load));
    model->vocab = &tokenizer->vocab;
    HL_TRY(find_unknown(&model->unknown, load));
    HL_TRY(hl_member_text(&model->prefix, load->where, &load->members[SUBWORD_PREFIX]));
    if (model->prefix.data == NULL) {
        char *copy = NULL;
        HL_TRY(hl_strdup(&copy, "##"));
        model->prefix = (hl_bytes){ copy, 2 };
    }
    HL_TRY(hl_member_integer(&longest, load->where, &load->members[MAX_CHARS]));
    model->max_characters =
        longest >= 0 && longest < MAX_WORDPIECE_WORD ? (size_t)longest : MAX_WORDPIECE_WORD;
    tokenizer->special[HL_SPECIAL_UNK] = model->unknown;
    tokenizer->kind = model->whole_words ? HL_MODEL_WORDLEVEL : HL_MODEL_WORDPIECE;

done:
    hl_free(scores);
    return status;
}

/* Old files do not say which model they have; it shows from its members. */
static const char *guess_type(const model_loader *load)
{
    if (load->members[MERGES].text.data != NULL)
        return "BPE";
    if (load->members[UNK_ID].text.data != NULL)
        return "Unigram";
    return load->members[SUBWORD_PREFIX].text.data != NULL ? "WordPiece" : "WordLevel";
}

hl_status hl_tokenizer_model_from_json(hl_tokenizer *tokenizer, hl_bytes json, const char *where)
{
    hl_status    status = HL_OK;
    hl_bytes     type   = { NULL, 0 };
    model_loader load   = {
          .tokenizer = tokenizer,
          .where     = where,
          .members   = { { "type", { 0 } },
                         { "vocab", { 0 } },
                         { "merges", { 0 } },
                         { "unk_token", { 0 } },
                         { "unk_id", { 0 } },
                         { "continuing_subword_prefix", { 0 } },
                         { "end_of_word_suffix", { 0 } },
                         { "fuse_unk", { 0 } },
                         { "byte_fallback", { 0 } },
                         { "ignore_merges", { 0 } },
                         { "max_input_chars_per_word", { 0 } } },
    };

    if (json.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: no 'model': is this a tokenizer.json?", where);
    HL_TRY(hl_members_find(load.members, N_MEMBERS, json, where));
    HL_TRY(hl_member_text(&type, where, &load.members[TYPE]));
    hl_bytes name = type;
    if (name.data == NULL)
        name = (hl_bytes){ guess_type(&load), strlen(guess_type(&load)) };

    tokenizer->wordpiece.whole_words = hl_bytes_equal(name, "WordLevel");
    if (hl_bytes_equal(name, "BPE"))
        HL_TRY(build_bpe(&load));
    else if (hl_bytes_equal(name, "Unigram"))
        HL_TRY(build_unigram(&load));
    else if (hl_bytes_equal(name, "WordPiece") || hl_bytes_equal(name, "WordLevel"))
        HL_TRY(build_wordpiece(&load));
    else
        HL_TRY(hl_fail(HL_UNSUPPORTED, "%s: the model type '%s' is not known", where, name.data));

done:
    hl_free((void *)type.data);
    return status;
}
