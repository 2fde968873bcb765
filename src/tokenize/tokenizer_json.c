/* tokenizer_json.c - a tokenizer.json.
 *
 *     { "added_tokens": [ {"id": 0, "content": "<s>", ...} ],
 *       "normalizer": {...}, "pre_tokenizer": {...},
 *       "post_processor": {...}, "decoder": {...},
 *       "model": { "type": "BPE", "vocab": {"a": 0, ...},
 *                  "merges": [ "a b" or ["a", "b"], ... ], ... } }
 *
 * The file is read twice.  The first time only remembers where each member lies,
 * since they may come in any order.  Then the pipeline, which is small, goes
 * through jansson (pipeline_json.c), and the vocabulary and the merges, which
 * are everything else, through the pull reader. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/json_reader.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/pipeline_json.h"
#include "tokenize/tokenizer.h"

#define MAX_FILE_BYTES     ((size_t)1 << 28)
#define MAX_WORDPIECE_WORD 4096 /* characters; the file may ask for less */

typedef struct member {
    const char *name;
    hl_bytes    text; /* data NULL: absent */
} member;

/* Members of the file and of its model, in the order of the two tables below. */
enum { ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, N_MEMBERS };
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

typedef struct loader {
    hl_tokenizer *tokenizer;
    const char   *where;
    member        file[N_MEMBERS];
    member        model[N_MODEL_MEMBERS];
} loader;

/* ----------------------------------------------------------- finding members */

/* Notes where the members of an object lie, those that have a name in the table. */
static hl_status find_members(member *members, size_t n_members, hl_bytes object, const char *where)
{
    hl_status      status = HL_OK;
    hl_json_reader reader;
    bool           more = false;
    hl_bytes       key, value;

    HL_TRY(hl_json_reader_open(&reader, object.data, object.n_bytes, where));
    HL_TRY(hl_json_enter(&reader, '{'));
    while (hl_json_next(&reader, '}', &more) == HL_OK && more) {
        member *found = NULL;
        HL_TRY(hl_json_read_key(&reader, &key));
        for (size_t i = 0; i < n_members; i++) {
            if (hl_bytes_equal(key, members[i].name))
                found = &members[i];
        }
        if (found != NULL && found->text.data != NULL)
            HL_TRY(hl_json_reader_fail(&reader, "'%s' twice", found->name));
        HL_TRY(hl_json_skip(&reader, &value));
        if (found != NULL && !hl_bytes_equal(value, "null"))
            found->text = value;
    }
    HL_TRY(hl_json_reader_finish(&reader));

done:
    hl_json_reader_close(&reader);
    return status;
}

/* A reader at the start of a member, whose errors name it. */
static hl_status open_member(hl_json_reader *out, char where[256], const loader *load,
                             const member *part)
{
    snprintf(where, 256, "%s: %s", load->where, part->name);
    return hl_json_reader_open(out, part->text.data, part->text.n_bytes, where);
}

static hl_status read_flag(bool *out, const loader *load, const member *part)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    char           where[256];

    if (part->text.data == NULL)
        return HL_OK;
    HL_TRY(open_member(&reader, where, load, part));
    HL_TRY(hl_json_read_bool(&reader, out));

done:
    hl_json_reader_close(&reader);
    return status;
}

static hl_status read_integer(int64_t *out, const loader *load, const member *part)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    char           where[256];

    if (part->text.data == NULL)
        return HL_OK;
    HL_TRY(open_member(&reader, where, load, part));
    HL_TRY(hl_json_read_int(&reader, out));

done:
    hl_json_reader_close(&reader);
    return status;
}

/* A copy of a string, released with hl_free; {NULL, 0} if the member is absent. */
static hl_status read_text(hl_bytes *out, const loader *load, const member *part)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    char           where[256];
    char          *copy = NULL;
    hl_bytes       text;

    *out = (hl_bytes){ NULL, 0 };
    if (part->text.data == NULL)
        return HL_OK;
    HL_TRY(open_member(&reader, where, load, part));
    HL_TRY(hl_json_read_string(&reader, &text));
    HL_TRY(hl_strndup(&copy, text.data, text.n_bytes));
    *out = (hl_bytes){ copy, text.n_bytes };

done:
    hl_json_reader_close(&reader);
    return status;
}

/* ---------------------------------------------------------------- vocabulary */

/* {"piece": id, ...} */
static hl_status read_vocab_object(const loader *load, hl_json_reader *reader)
{
    hl_status status = HL_OK;
    bool      more = false, twice = false;
    hl_bytes  piece;
    int64_t   id = 0;

    HL_TRY(hl_json_enter(reader, '{'));
    while (hl_json_next(reader, '}', &more) == HL_OK && more) {
        HL_TRY(hl_json_read_key(reader, &piece));
        /* Reading the number does not touch the bytes of the piece. */
        HL_TRY(hl_json_read_int(reader, &id));
        HL_TRY(hl_vocab_add(&load->tokenizer->vocab, id, piece, HL_TOKEN_NORMAL, &twice));
        if (twice)
            HL_TRY(hl_json_reader_fail(reader, "the piece with id %lld was there before",
                                       (long long)id));
    }
    HL_TRY(hl_json_reader_finish(reader));

done:
    return status;
}

/* [["piece", score], ...]; scores (n_ids) are released by the caller. */
static hl_status read_vocab_list(double **scores, const loader *load, hl_json_reader *reader)
{
    hl_status status   = HL_OK;
    hl_vocab *vocab    = &load->tokenizer->vocab;
    size_t    capacity = 0;
    bool      more = false, inner = false;
    hl_bytes  piece;
    double    score = 0;

    HL_TRY(hl_json_enter(reader, '['));
    while (hl_json_next(reader, ']', &more) == HL_OK && more) {
        size_t id = vocab->n_ids;
        HL_TRY(hl_json_enter(reader, '['));
        HL_TRY(hl_json_next(reader, ']', &inner));
        HL_TRY(hl_json_read_string(reader, &piece));
        HL_TRY(hl_vocab_add(vocab, (int64_t)id, piece, HL_TOKEN_NORMAL, NULL));
        HL_TRY(hl_json_next(reader, ']', &inner));
        HL_TRY(hl_json_read_double(reader, &score));
        HL_TRY(hl_json_next(reader, ']', &inner));
        if (inner)
            HL_TRY(hl_json_reader_fail(reader, "more than a piece and its score"));
        HL_TRY(HL_GROW(scores, &capacity, id, 1));
        (*scores)[id]           = score;
        vocab->pieces[id].score = (float)score;
    }
    HL_TRY(hl_json_reader_finish(reader));

done:
    return status;
}

static hl_status read_vocab(double **scores, const loader *load)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    char           where[256];

    if (load->model[VOCAB].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: the model has no vocabulary", load->where);
    HL_TRY(open_member(&reader, where, load, &load->model[VOCAB]));
    if (hl_json_peek(&reader) == '[')
        status = read_vocab_list(scores, load, &reader);
    else
        status = read_vocab_object(load, &reader);
    if (status != HL_OK && hl_json_reader_status(&reader) == HL_OK)
        hl_fail_within(status, "%s", where);

done:
    hl_json_reader_close(&reader);
    return status;
}

/* The id of unk_token; -1 if the file names none. */
static hl_status find_unknown(int32_t *out, const loader *load)
{
    hl_bytes  text;
    hl_status status = read_text(&text, load, &load->model[UNK_TOKEN]);

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
    hl_status status = HL_OK;
    bool      more   = false;
    hl_bytes  text, right;

    HL_TRY(hl_json_enter(reader, '['));
    HL_TRY(hl_json_next(reader, ']', &more));
    HL_TRY(hl_json_read_string(reader, &text));
    left->n_bytes = 0;
    HL_TRY(hl_buffer_append(left, text.data, text.n_bytes));
    HL_TRY(hl_json_next(reader, ']', &more));
    HL_TRY(hl_json_read_string(reader, &right));
    if (left->n_bytes == 0 || right.n_bytes == 0)
        HL_TRY(hl_json_reader_fail(reader, "a merge with an empty piece"));
    HL_TRY(hl_bpe_add_merge(bpe, hl_buffer_bytes(left), right));
    HL_TRY(hl_json_next(reader, ']', &more));
    if (more)
        HL_TRY(hl_json_reader_fail(reader, "a merge of more than two pieces"));

done:
    return status;
}

static hl_status read_merges(hl_bpe *bpe, const loader *load)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    hl_buffer      left   = { 0 };
    bool           more   = false;
    char           where[256];

    if (load->model[MERGES].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: a BPE model without merges", load->where);
    HL_TRY(open_member(&reader, where, load, &load->model[MERGES]));
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

static hl_status build_bpe(loader *load)
{
    hl_status      status    = HL_OK;
    hl_tokenizer  *tokenizer = load->tokenizer;
    hl_bpe_options options   = { 0 };
    double        *scores    = NULL;

    HL_TRY(read_vocab(&scores, load));
    HL_TRY(find_unknown(&options.unknown, load));
    HL_TRY(read_text(&options.prefix, load, &load->model[SUBWORD_PREFIX]));
    HL_TRY(read_text(&options.suffix, load, &load->model[WORD_SUFFIX]));
    HL_TRY(read_flag(&options.fuse_unknown, load, &load->model[FUSE_UNK]));
    HL_TRY(read_flag(&options.byte_fallback, load, &load->model[BYTE_FALLBACK]));
    HL_TRY(read_flag(&options.ignore_merges, load, &load->model[IGNORE_MERGES]));
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

static hl_status build_unigram(loader *load)
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
    HL_TRY(read_integer(&unknown, load, &load->model[UNK_ID]));
    if (unknown < -1 || unknown >= (int64_t)tokenizer->vocab.n_ids)
        HL_TRY(hl_fail(HL_BAD_INPUT, "%s: unk_id %lld, but there are %zu pieces", load->where,
                       (long long)unknown, tokenizer->vocab.n_ids));
    HL_TRY(read_flag(&byte_fallback, load, &load->model[BYTE_FALLBACK]));
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

static hl_status build_wordpiece(loader *load)
{
    hl_status     status    = HL_OK;
    hl_tokenizer *tokenizer = load->tokenizer;
    hl_wordpiece *model     = &tokenizer->wordpiece;
    int64_t       longest   = 100;
    double       *scores    = NULL;

    HL_TRY(read_vocab(&scores, load));
    model->vocab = &tokenizer->vocab;
    HL_TRY(find_unknown(&model->unknown, load));
    HL_TRY(read_text(&model->prefix, load, &load->model[SUBWORD_PREFIX]));
    if (model->prefix.data == NULL) {
        char *copy = NULL;
        HL_TRY(hl_strdup(&copy, "##"));
        model->prefix = (hl_bytes){ copy, 2 };
    }
    HL_TRY(read_integer(&longest, load, &load->model[MAX_CHARS]));
    model->max_characters =
        longest >= 0 && longest < MAX_WORDPIECE_WORD ? (size_t)longest : MAX_WORDPIECE_WORD;
    tokenizer->special[HL_SPECIAL_UNK] = model->unknown;
    tokenizer->kind = model->whole_words ? HL_MODEL_WORDLEVEL : HL_MODEL_WORDPIECE;

done:
    hl_free(scores);
    return status;
}

/* Old files do not say which model they have; it shows from its members. */
static const char *guess_type(const loader *load)
{
    if (load->model[MERGES].text.data != NULL)
        return "BPE";
    if (load->model[UNK_ID].text.data != NULL)
        return "Unigram";
    return load->model[SUBWORD_PREFIX].text.data != NULL ? "WordPiece" : "WordLevel";
}

static hl_status build_model(loader *load)
{
    hl_status status = HL_OK;
    hl_bytes  type   = { NULL, 0 };

    if (load->file[MODEL].text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: no 'model': is this a tokenizer.json?", load->where);
    HL_TRY(find_members(load->model, N_MODEL_MEMBERS, load->file[MODEL].text, load->where));
    HL_TRY(read_text(&type, load, &load->model[TYPE]));
    hl_bytes name = type;
    if (name.data == NULL)
        name = (hl_bytes){ guess_type(load), strlen(guess_type(load)) };

    load->tokenizer->wordpiece.whole_words = hl_bytes_equal(name, "WordLevel");
    if (hl_bytes_equal(name, "BPE"))
        HL_TRY(build_bpe(load));
    else if (hl_bytes_equal(name, "Unigram"))
        HL_TRY(build_unigram(load));
    else if (hl_bytes_equal(name, "WordPiece") || hl_bytes_equal(name, "WordLevel"))
        HL_TRY(build_wordpiece(load));
    else
        HL_TRY(hl_fail(HL_UNSUPPORTED, "%s: the model type '%s' is not known", load->where,
                       name.data));

done:
    hl_free((void *)type.data);
    return status;
}

/* ------------------------------------------------------------- added tokens */

static hl_status read_added_fields(hl_added_token *token, hl_json_reader *reader, char **content)
{
    hl_status status = HL_OK;
    bool      more   = false;
    hl_bytes  key, text;
    int64_t   id = -1;

    HL_TRY(hl_json_enter(reader, '{'));
    while (hl_json_next(reader, '}', &more) == HL_OK && more) {
        HL_TRY(hl_json_read_key(reader, &key));
        if (hl_bytes_equal(key, "id")) {
            HL_TRY(hl_json_read_int(reader, &id));
        } else if (hl_bytes_equal(key, "content")) {
            HL_TRY(hl_json_read_string(reader, &text));
            hl_free(*content);
            HL_TRY(hl_strndup(content, text.data, text.n_bytes));
            token->content = (hl_bytes){ *content, text.n_bytes };
        } else if (hl_bytes_equal(key, "single_word")) {
            HL_TRY(hl_json_read_bool(reader, &token->single_word));
        } else if (hl_bytes_equal(key, "lstrip")) {
            HL_TRY(hl_json_read_bool(reader, &token->strip_left));
        } else if (hl_bytes_equal(key, "rstrip")) {
            HL_TRY(hl_json_read_bool(reader, &token->strip_right));
        } else if (hl_bytes_equal(key, "normalized")) {
            HL_TRY(hl_json_read_bool(reader, &token->normalized));
        } else if (hl_bytes_equal(key, "special")) {
            HL_TRY(hl_json_read_bool(reader, &token->special));
        } else {
            HL_TRY(hl_json_skip(reader, &text));
        }
    }
    HL_TRY(hl_json_reader_status(reader));
    if (id < 0 || id >= HL_MAX_VOCAB || token->content.data == NULL)
        HL_TRY(hl_json_reader_fail(reader, "an added token without content or with id %lld",
                                   (long long)id));
    token->id = (int32_t)id;

done:
    return status;
}

static hl_status read_added_tokens(const loader *load)
{
    hl_status      status  = HL_OK;
    hl_json_reader reader  = { 0 };
    char          *content = NULL;
    bool           more    = false;
    char           where[256];

    if (load->file[ADDED].text.data == NULL)
        return HL_OK;
    HL_TRY(open_member(&reader, where, load, &load->file[ADDED]));
    HL_TRY(hl_json_enter(&reader, '['));
    while (hl_json_next(&reader, ']', &more) == HL_OK && more) {
        hl_added_token token = { .normalized = true };
        HL_TRY(read_added_fields(&token, &reader, &content));
        status = hl_tokenizer_add_token(load->tokenizer, token);
        if (status != HL_OK)
            HL_TRY(hl_fail_within(status, "%s", where));
    }
    HL_TRY(hl_json_reader_finish(&reader));

done:
    hl_free(content);
    hl_json_reader_close(&reader);
    return status;
}

/* ------------------------------------------------------------------ the whole */

static hl_status parse_part(json_t **out, char where[256], const loader *load, const member *part)
{
    *out = NULL;
    snprintf(where, 256, "%s: %s", load->where, part->name);
    if (part->text.data == NULL)
        return HL_OK;
    return hl_json_parse(out, part->text.data, part->text.n_bytes, where);
}

static hl_status read_pipeline(loader *load)
{
    hl_status     status    = HL_OK;
    hl_tokenizer *tokenizer = load->tokenizer;
    json_t       *parts[4]  = { NULL };
    char          where[256];

    HL_TRY(parse_part(&parts[0], where, load, &load->file[NORMALIZER]));
    HL_TRY(hl_normalizer_from_json(&tokenizer->normalizer, parts[0], where));
    HL_TRY(parse_part(&parts[1], where, load, &load->file[PRE_TOKENIZER]));
    HL_TRY(hl_pretokenizer_from_json(&tokenizer->pretokenizer, parts[1], where));
    HL_TRY(parse_part(&parts[2], where, load, &load->file[POST_PROCESSOR]));
    HL_TRY(hl_postprocessor_from_json(&tokenizer->postprocessor, parts[2], where));
    HL_TRY(parse_part(&parts[3], where, load, &load->file[DECODER]));
    HL_TRY(hl_decoder_from_json(&tokenizer->decoder, parts[3], where));

done:
    for (int i = 0; i < 4; i++)
        json_decref(parts[i]);
    return status;
}

/* Every id that is put around texts must have a piece. */
static hl_status check_around(const loader *load)
{
    const hl_postprocessor *post = &load->tokenizer->postprocessor;

    for (size_t i = 0; i < post->n_before + post->n_after; i++) {
        int32_t id = i < post->n_before ? post->before[i] : post->after[i - post->n_before];
        if (hl_vocab_spelling(&load->tokenizer->vocab, id).data == NULL)
            return hl_fail(HL_BAD_INPUT, "%s: post_processor: no piece has the id %d", load->where,
                           id);
    }
    return HL_OK;
}

hl_status hl_tokenizer_parse(hl_tokenizer **out, const void *json, size_t n_bytes,
                             const char *where)
{
    hl_status status = HL_OK;
    loader    load   = {
             .where = where,
             .file  = { { "added_tokens", { 0 } },
                        { "normalizer", { 0 } },
                        { "pre_tokenizer", { 0 } },
                        { "post_processor", { 0 } },
                        { "decoder", { 0 } },
                        { "model", { 0 } } },
             .model = { { "type", { 0 } },
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

    *out = NULL;
    if (n_bytes > MAX_FILE_BYTES)
        return hl_fail(HL_LIMIT, "%s: %zu bytes, a tokenizer has at most %zu", where, n_bytes,
                       MAX_FILE_BYTES);
    HL_TRY(hl_tokenizer_new(&load.tokenizer));
    HL_TRY(find_members(load.file, N_MEMBERS, (hl_bytes){ json, n_bytes }, where));
    HL_TRY(read_pipeline(&load));
    HL_TRY(build_model(&load));
    HL_TRY(read_added_tokens(&load));
    HL_TRY(check_around(&load));
    HL_TRY(hl_tokenizer_finish(load.tokenizer));
    *out           = load.tokenizer;
    load.tokenizer = NULL;

done:
    hl_tokenizer_close(load.tokenizer);
    return status;
}
