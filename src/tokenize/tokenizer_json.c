/* tokenizer_json.c - a tokenizer.json.
 *
 *     { "added_tokens": [ {"id": 0, "content": "<s>", ...} ],
 *       "normalizer": {...}, "pre_tokenizer": {...},
 *       "post_processor": {...}, "decoder": {...},
 *       "model": ... }
 *
 * and its model one of
 *
 *     { "type": "BPE", "vocab": {"a": 0, ...}, "merges": [ "a b" or ["a", "b"], ... ], ... }
 *     { "type": "Unigram", "vocab": [ ["a", -1.5], ... ], "unk_id": 0 }
 *     { "type": "WordPiece" or "WordLevel", "vocab": {...}, "unk_token": "[UNK]", ... }
 *
 * The file is read twice.  The first time only remembers where each member lies,
 * since they may come in any order.  Then the pipeline, which is small, goes
 * through jansson (pipeline_json.c), and the model, most of it vocabulary and
 * merges, through the pull reader. */
#include "tokenize/tokenizer_json.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/tokenizer.h"

#define MAX_FILE_BYTES     ((size_t)1 << 28)
#define MAX_WORDPIECE_WORD 4096 /* largest number of characters; the file may set a lower limit */

/* ----------------------------------------------------------------- members */

hl_status hl_members_find(hl_member *members, size_t n_members, hl_bytes object, const char *where)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    hl_bytes                                       key, value;

    hl_json_reader_open_part(&reader, object, where);
    HL_NEED(hl_json_enter(&reader, '{'));
    while (hl_json_next_key(&reader, &key)) {
        hl_member *found = NULL;
        for (size_t i = 0; i < n_members; i++) {
            if (hl_bytes_equal(key, members[i].name))
                found = &members[i];
        }
        if (found != NULL && found->text.data != NULL)
            return hl_json_reader_fail(&reader, "'%s' twice", found->name);
        HL_NEED(hl_json_skip(&reader, &value));
        if (found != NULL && !hl_bytes_equal(value, "null"))
            found->text = value;
    }
    return hl_json_reader_finish(&reader);
}

void hl_member_open(hl_json_reader *out, char where[256], const char *file, const hl_member *part)
{
    snprintf(where, 256, "%s: %s", file, part->name);
    hl_json_reader_open_part(out, part->text, where);
}

/* Reads one value into `out`, whose type the caller knows. */
typedef hl_status (*read_value)(void *out, hl_json_reader *reader);

static hl_status read_flag(void *out, hl_json_reader *reader)
{
    return hl_json_read_bool(reader, out);
}

static hl_status read_integer(void *out, hl_json_reader *reader)
{
    return hl_json_read_int(reader, out);
}

static hl_status read_text(void *out, hl_json_reader *reader)
{
    hl_bytes text;

    HL_NEED(hl_json_read_string(reader, &text));
    return hl_bytes_copy(out, text.data, text.n_bytes);
}

static hl_status read_member(void *out, read_value read, const char *file, const hl_member *part)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    char                                           where[256];

    if (part->text.data == NULL)
        return HL_OK;
    hl_member_open(&reader, where, file, part);
    return read(out, &reader);
}

hl_status hl_member_flag(bool *out, const char *file, const hl_member *part)
{
    return read_member(out, read_flag, file, part);
}

static hl_status member_integer(int64_t *out, const char *file, const hl_member *part)
{
    return read_member(out, read_integer, file, part);
}

hl_status hl_member_text(hl_bytes *out, const char *file, const hl_member *part)
{
    *out = (hl_bytes){ NULL, 0 };
    return read_member(out, read_text, file, part);
}

/* --------------------------------------------------- the model: vocabulary */

/* Members of the model, in the order of the table in read_model. */
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
    N_MODEL_MEMBERS
};

typedef struct model_loader {
    hl_tokenizer *tokenizer;
    const char   *where;
    hl_member     members[N_MODEL_MEMBERS];
} model_loader;

/* {"piece": id, ...} */
static hl_status read_vocab_object(const model_loader *load, hl_json_reader *reader)
{
    bool     twice = false;
    hl_bytes piece;
    int64_t  id = 0;

    HL_NEED(hl_json_enter(reader, '{'));
    while (hl_json_next_key(reader, &piece)) {
        /* Reading the number does not touch the bytes of the piece. */
        HL_NEED(hl_json_read_int(reader, &id));
        HL_NEED(hl_vocab_add(&load->tokenizer->vocab, id, piece, HL_TOKEN_NORMAL, &twice));
        if (twice)
            return hl_json_reader_fail(reader, "the piece with id %lld was there before",
                                       (long long)id);
    }
    return hl_json_reader_finish(reader);
}

/* [["piece", score], ...]; scores (n_ids) are released by the caller. */
static hl_status read_vocab_list(double **scores, const model_loader *load, hl_json_reader *reader)
{
    hl_vocab *vocab    = &load->tokenizer->vocab;
    size_t    capacity = 0;
    hl_bytes  piece;
    double    score = 0;

    HL_NEED(hl_json_enter(reader, '['));
    while (hl_json_next(reader, ']')) {
        size_t id = vocab->n_ids;
        HL_NEED(hl_json_enter(reader, '['));
        (void)hl_json_next(reader, ']');
        HL_NEED(hl_json_read_string(reader, &piece));
        HL_NEED(hl_vocab_add(vocab, (int64_t)id, piece, HL_TOKEN_NORMAL, NULL));
        (void)hl_json_next(reader, ']');
        HL_NEED(hl_json_read_double(reader, &score));
        if (hl_json_next(reader, ']'))
            return hl_json_reader_fail(reader, "more than a piece and its score");
        HL_NEED(HL_GROW(scores, &capacity, id, 1));
        (*scores)[id]           = score;
        vocab->pieces[id].score = (float)score;
    }
    return hl_json_reader_finish(reader);
}

static hl_status read_vocab(double **scores, const model_loader *load)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    char                                           where[256];

    if (load->members[VOCAB].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: the model has no vocabulary", load->where);
    hl_member_open(&reader, where, load->where, &load->members[VOCAB]);
    hl_status status = hl_json_peek(&reader) == '[' ? read_vocab_list(scores, load, &reader)
                                                    : read_vocab_object(load, &reader);
    return reader.status == HL_OK ? hl_fail_within(status, "%s", where) : status;
}

/* Finds the id of unk_token; -1 if the file does not name one. */
static hl_status find_unknown(int32_t *out, const model_loader *load)
{
    HL_SCOPED(hl_bytes_free) hl_bytes text = { NULL, 0 };

    *out = -1;
    HL_NEED(hl_member_text(&text, load->where, &load->members[UNK_TOKEN]));
    if (text.data != NULL)
        *out = hl_vocab_find(&load->tokenizer->vocab, text);
    return HL_OK;
}

/* Marks the <0xNN> pieces as bytes. */
static void mark_bytes(hl_vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        int32_t id = hl_vocab_find_byte(vocab, (uint8_t)byte);
        if (id >= 0)
            vocab->pieces[id].type = HL_TOKEN_BYTE;
    }
}

/* ----------------------------------------------- the model: what it is for */

/* Reads "a b", with one space. */
static hl_status add_joined_merge(hl_bpe *bpe, hl_json_reader *reader)
{
    hl_bytes text;
    HL_NEED(hl_json_read_string(reader, &text));
    const char *space = text.n_bytes > 0 ? memchr(text.data, ' ', text.n_bytes) : NULL;
    size_t      left  = space != NULL ? (size_t)(space - text.data) : 0;
    if (left == 0 || left + 1 == text.n_bytes ||
        memchr(space + 1, ' ', text.n_bytes - left - 1) != NULL)
        return hl_json_reader_fail(reader, "a merge that is not two pieces and a space");
    return hl_bpe_add_merge(bpe, (hl_bytes){ text.data, left },
                            (hl_bytes){ space + 1, text.n_bytes - left - 1 });
}

/* Reads ["a", "b"].  The first is copied, since reading the second may overwrite it. */
static hl_status add_split_merge(hl_bpe *bpe, hl_json_reader *reader, hl_buffer *left)
{
    hl_bytes text, right;

    HL_NEED(hl_json_enter(reader, '['));
    (void)hl_json_next(reader, ']');
    HL_NEED(hl_json_read_string(reader, &text));
    left->n_bytes = 0;
    HL_NEED(hl_buffer_append(left, text.data, text.n_bytes));
    (void)hl_json_next(reader, ']');
    HL_NEED(hl_json_read_string(reader, &right));
    if (left->n_bytes == 0 || right.n_bytes == 0)
        return hl_json_reader_fail(reader, "a merge with an empty piece");
    HL_NEED(hl_bpe_add_merge(bpe, hl_buffer_bytes(left), right));
    if (hl_json_next(reader, ']'))
        return hl_json_reader_fail(reader, "a merge of more than two pieces");
    return reader->status;
}

static hl_status read_merges(hl_bpe *bpe, const model_loader *load)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    HL_SCOPED(hl_buffer_free) hl_buffer            left   = { 0 };
    char                                           where[256];

    if (load->members[MERGES].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: a BPE model without merges", load->where);
    hl_member_open(&reader, where, load->where, &load->members[MERGES]);
    HL_NEED(hl_json_enter(&reader, '['));
    while (hl_json_next(&reader, ']')) {
        hl_status status = hl_json_peek(&reader) == '[' ? add_split_merge(bpe, &reader, &left)
                                                        : add_joined_merge(bpe, &reader);
        HL_NEED(reader.status); /* the message names the place already */
        HL_NEED(hl_fail_within(status, "%s", where));
    }
    return hl_json_reader_finish(&reader);
}

/* Bytes need not be spelled as characters if that would be the last step and the model can read
 * bytes. */
static bool keep_bytes(hl_pretokenizer *pre, const hl_bpe_options *options)
{
    hl_split_step *last = pre->n_steps > 0 ? &pre->steps[pre->n_steps - 1] : NULL;

    if (last == NULL || last->kind != HL_SPLIT_BYTE_LEVEL || options->prefix.n_bytes > 0 ||
        options->suffix.n_bytes > 0)
        return false;
    for (size_t i = 0; i + 1 < pre->n_steps; i++) {
        if (pre->steps[i].kind == HL_SPLIT_BYTE_LEVEL)
            return false; /* a second spelling step would spell the result again */
    }
    last->keep_bytes = true;
    return true;
}

static hl_status build_bpe(model_loader *load)
{
    hl_tokenizer                     *tokenizer = load->tokenizer;
    hl_bpe_options                    options   = { 0 };
    HL_SCOPED(hl_bytes_free) hl_bytes prefix    = { NULL, 0 };
    HL_SCOPED(hl_bytes_free) hl_bytes suffix    = { NULL, 0 };
    HL_FREED double                  *scores    = NULL;

    HL_NEED(read_vocab(&scores, load));
    HL_NEED(find_unknown(&options.unknown, load));
    HL_NEED(hl_member_text(&prefix, load->where, &load->members[SUBWORD_PREFIX]));
    HL_NEED(hl_member_text(&suffix, load->where, &load->members[WORD_SUFFIX]));
    HL_NEED(hl_member_flag(&options.fuse_unknown, load->where, &load->members[FUSE_UNK]));
    HL_NEED(hl_member_flag(&options.byte_fallback, load->where, &load->members[BYTE_FALLBACK]));
    HL_NEED(hl_member_flag(&options.ignore_merges, load->where, &load->members[IGNORE_MERGES]));
    options.prefix                     = prefix;
    options.suffix                     = suffix;
    options.byte_level                 = keep_bytes(&tokenizer->pretokenizer, &options);
    tokenizer->special[HL_SPECIAL_UNK] = options.unknown;
    tokenizer->kind                    = HL_MODEL_BPE;
    if (options.byte_fallback)
        mark_bytes(&tokenizer->vocab);
    HL_NEED(hl_bpe_new(&tokenizer->bpe, &tokenizer->vocab, &options));
    HL_NEED(read_merges(tokenizer->bpe, load));
    return hl_bpe_finish(tokenizer->bpe);
}

static hl_status build_unigram(model_loader *load)
{
    hl_tokenizer    *tokenizer     = load->tokenizer;
    int64_t          unknown       = -1;
    bool             byte_fallback = false;
    HL_FREED double *scores        = NULL;

    HL_NEED(read_vocab(&scores, load));
    if (tokenizer->vocab.n_ids == 0 || scores == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: a Unigram model needs a list of pieces with scores",
                       load->where);
    HL_NEED(member_integer(&unknown, load->where, &load->members[UNK_ID]));
    if (unknown < -1 || unknown >= (int64_t)tokenizer->vocab.n_ids)
        return hl_fail(HL_BAD_INPUT, "%s: unk_id %lld, but there are %zu pieces", load->where,
                       (long long)unknown, tokenizer->vocab.n_ids);
    HL_NEED(hl_member_flag(&byte_fallback, load->where, &load->members[BYTE_FALLBACK]));
    tokenizer->special[HL_SPECIAL_UNK] = (int32_t)unknown;
    tokenizer->kind                    = HL_MODEL_UNIGRAM;
    if (byte_fallback)
        mark_bytes(&tokenizer->vocab);
    return hl_unigram_new(&tokenizer->unigram, &tokenizer->vocab, scores, (int32_t)unknown,
                          byte_fallback);
}

static hl_status build_wordpiece(model_loader *load)
{
    hl_tokenizer    *tokenizer = load->tokenizer;
    hl_wordpiece    *model     = &tokenizer->wordpiece;
    int64_t          longest   = 100;
    HL_FREED double *scores    = NULL;

    HL_NEED(read_vocab(&scores, load));
    model->vocab = &tokenizer->vocab;
    HL_NEED(find_unknown(&model->unknown, load));
    HL_NEED(hl_member_text(&model->prefix, load->where, &load->members[SUBWORD_PREFIX]));
    if (model->prefix.data == NULL)
        HL_NEED(hl_bytes_copy(&model->prefix, "##", 2));
    HL_NEED(member_integer(&longest, load->where, &load->members[MAX_CHARS]));
    model->max_characters =
        longest >= 0 && longest < MAX_WORDPIECE_WORD ? (size_t)longest : MAX_WORDPIECE_WORD;
    tokenizer->special[HL_SPECIAL_UNK] = model->unknown;
    tokenizer->kind = model->whole_words ? HL_MODEL_WORDLEVEL : HL_MODEL_WORDPIECE;
    return HL_OK;
}

/* Old files do not name the model; its members show which one it is. */
static const char *guess_type(const model_loader *load)
{
    if (load->members[MERGES].text.data != NULL)
        return "BPE";
    if (load->members[UNK_ID].text.data != NULL)
        return "Unigram";
    return load->members[SUBWORD_PREFIX].text.data != NULL ? "WordPiece" : "WordLevel";
}

/* Fills the tokenizer's vocabulary and model; its pretokenizer must exist already.  json.data NULL:
 * the file has no such member. */
static hl_status read_model(hl_tokenizer *tokenizer, hl_bytes json, const char *where)
{
    HL_SCOPED(hl_bytes_free) hl_bytes type = { NULL, 0 };

    model_loader load = {
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
    HL_NEED(hl_members_find(load.members, N_MODEL_MEMBERS, json, where));
    HL_NEED(hl_member_text(&type, where, &load.members[TYPE]));
    hl_bytes name = type;
    if (name.data == NULL)
        name = (hl_bytes){ guess_type(&load), strlen(guess_type(&load)) };

    tokenizer->wordpiece.whole_words = hl_bytes_equal(name, "WordLevel");
    if (hl_bytes_equal(name, "BPE"))
        return build_bpe(&load);
    if (hl_bytes_equal(name, "Unigram"))
        return build_unigram(&load);
    if (hl_bytes_equal(name, "WordPiece") || hl_bytes_equal(name, "WordLevel"))
        return build_wordpiece(&load);
    return hl_fail(HL_UNSUPPORTED, "%s: the model type '%s' is not known", where, name.data);
}

/* ------------------------------------------------------------ added tokens */

/* Members of the file, in the order of the table in hl_tokenizer_parse. */
enum { ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, N_FILE_MEMBERS };

typedef struct loader {
    hl_tokenizer *tokenizer;
    const char   *where;
    hl_member     file[N_FILE_MEMBERS];
} loader;

static hl_status read_added_fields(hl_added_token *token, hl_json_reader *reader)
{
    const struct {
        const char *key;
        bool       *flag;
    } flags[] = {
        { "single_word", &token->single_word }, { "lstrip", &token->strip_left },
        { "rstrip", &token->strip_right },      { "normalized", &token->normalized },
        { "special", &token->special },
    };
    hl_bytes key, text;
    int64_t  id = -1;

    HL_NEED(hl_json_enter(reader, '{'));
    while (hl_json_next_key(reader, &key)) {
        bool *flag = NULL;
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
            if (hl_bytes_equal(key, flags[i].key))
                flag = flags[i].flag;
        }
        if (flag != NULL) {
            HL_NEED(hl_json_read_bool(reader, flag));
        } else if (hl_bytes_equal(key, "id")) {
            HL_NEED(hl_json_read_int(reader, &id));
        } else if (hl_bytes_equal(key, "content")) {
            HL_NEED(hl_json_read_string(reader, &text));
            hl_bytes_free(&token->content);
            HL_NEED(hl_bytes_copy(&token->content, text.data, text.n_bytes));
        } else {
            HL_NEED(hl_json_skip(reader, &text));
        }
    }
    HL_NEED(reader->status);
    if (id < 0 || id >= HL_MAX_VOCAB || token->content.data == NULL)
        return hl_json_reader_fail(reader, "an added token without content or with id %lld",
                                   (long long)id);
    token->id = (int32_t)id;
    return HL_OK;
}

static hl_status read_added_tokens(const loader *load)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    char                                           where[256];

    if (load->file[ADDED].text.data == NULL)
        return HL_OK;
    hl_member_open(&reader, where, load->where, &load->file[ADDED]);
    HL_NEED(hl_json_enter(&reader, '['));
    while (hl_json_next(&reader, ']')) {
        hl_added_token token  = { .normalized = true };
        hl_status      status = read_added_fields(&token, &reader);
        if (status == HL_OK)
            status = hl_fail_within(hl_tokenizer_add_token(load->tokenizer, token), "%s", where);
        hl_bytes_free(&token.content);
        HL_NEED(status);
    }
    return hl_json_reader_finish(&reader);
}

/* ------------------------------------------------------------------ the whole */

/* Puts the place before messages that lack it: some limits know only their number. */
static hl_status name_place(hl_status status, const char *where)
{
    if (strncmp(hl_error_message(), where, strlen(where)) == 0)
        return status;
    return hl_fail_within(status, "%s", where);
}

/* Parses a part of the pipeline; null if the file has none. */
static hl_status read_part(const loader *load, int which)
{
    hl_tokenizer                  *tokenizer = load->tokenizer;
    const hl_member               *part      = &load->file[which];
    hl_status                      status    = HL_OK;
    HL_CLOSED(json_decref) json_t *value     = NULL;
    char                           where[256];

    snprintf(where, sizeof where, "%s: %s", load->where, part->name);
    if (part->text.data != NULL)
        HL_NEED(hl_json_parse(&value, part->text.data, part->text.n_bytes, where));
    if (which == NORMALIZER)
        status = hl_normalizer_from_json(&tokenizer->normalizer, value, where);
    else if (which == PRE_TOKENIZER)
        status = hl_pretokenizer_from_json(&tokenizer->pretokenizer, value, where);
    else if (which == POST_PROCESSOR)
        status = hl_postprocessor_from_json(&tokenizer->postprocessor, value, where);
    else
        status = hl_decoder_from_json(&tokenizer->decoder, value, where);
    return name_place(status, where);
}

/* Checks the text once, for all readers. */
static hl_status check_text(const char *text, size_t n_bytes, const char *where)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };

    return hl_json_reader_open(&reader, text, n_bytes, where);
}

/* Checks that every id that is put around texts has a piece. */
static hl_status check_around(const loader *load)
{
    const hl_postprocessor *post = &load->tokenizer->postprocessor;

    for (size_t i = 0; i < post->n_before + post->n_after; i++) {
        int64_t id = i < post->n_before ? post->before[i] : post->after[i - post->n_before];
        if (hl_vocab_spelling(&load->tokenizer->vocab, id).data == NULL)
            return hl_fail(HL_BAD_INPUT, "%s: post_processor: no piece has the id %lld",
                           load->where, (long long)id);
    }
    return HL_OK;
}

hl_status hl_tokenizer_parse(hl_tokenizer **out, const void *json, size_t n_bytes,
                             const char *where)
{
    HL_CLOSED(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;

    loader load = {
        .where = where,
        .file  = { [ADDED]          = { .name = "added_tokens" },
                   [NORMALIZER]     = { .name = "normalizer" },
                   [PRE_TOKENIZER]  = { .name = "pre_tokenizer" },
                   [POST_PROCESSOR] = { .name = "post_processor" },
                   [DECODER]        = { .name = "decoder" },
                   [MODEL]          = { .name = "model" } },
    };

    *out = NULL;
    if (n_bytes > MAX_FILE_BYTES)
        return hl_fail(HL_LIMIT, "%s: %zu bytes, a tokenizer has at most %zu", where, n_bytes,
                       MAX_FILE_BYTES);
    HL_NEED(hl_tokenizer_new(&tokenizer, where));
    load.tokenizer = tokenizer;
    HL_NEED(check_text(json, n_bytes, where));
    HL_NEED(hl_members_find(load.file, N_FILE_MEMBERS, (hl_bytes){ json, n_bytes }, where));
    for (int part = NORMALIZER; part <= DECODER; part++)
        HL_NEED(read_part(&load, part));
    HL_NEED(read_model(tokenizer, load.file[MODEL].text, where));
    HL_NEED(read_added_tokens(&load));
    HL_NEED(check_around(&load));
    HL_NEED(hl_tokenizer_finish(tokenizer));
    *out = hl_taken(&tokenizer);
    return HL_OK;
}
