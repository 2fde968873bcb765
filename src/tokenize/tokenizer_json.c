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
 * through jansson (pipeline_json.c), and the model, which is everything else,
 * through the pull reader (model_json.c). */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "tokenize/json_members.h"
#include "tokenize/model_json.h"
#include "tokenize/pipeline_json.h"
#include "tokenize/tokenizer.h"

#define MAX_FILE_BYTES ((size_t)1 << 28)

/* Members of the file, in the order of the table in hl_tokenizer_parse. */
enum { ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, N_MEMBERS };

typedef struct loader {
    hl_tokenizer *tokenizer;
    const char   *where;
    hl_member     file[N_MEMBERS];
} loader;

/* ------------------------------------------------------------- added tokens */

static hl_status read_added_fields(hl_added_token *token, hl_json_reader *reader, char **content)
{
    bool     more = false;
    hl_bytes key, text;
    int64_t  id = -1;

    HL_NEED(hl_json_enter(reader, '{'));
    while (hl_json_next(reader, '}', &more) == HL_OK && more) {
        HL_NEED(hl_json_read_key(reader, &key));
        if (hl_bytes_equal(key, "id")) {
            HL_NEED(hl_json_read_int(reader, &id));
        } else if (hl_bytes_equal(key, "content")) {
            HL_NEED(hl_json_read_string(reader, &text));
            hl_free(*content);
            HL_NEED(hl_strndup(content, text.data, text.n_bytes));
            token->content = (hl_bytes){ *content, text.n_bytes };
        } else if (hl_bytes_equal(key, "single_word")) {
            HL_NEED(hl_json_read_bool(reader, &token->single_word));
        } else if (hl_bytes_equal(key, "lstrip")) {
            HL_NEED(hl_json_read_bool(reader, &token->strip_left));
        } else if (hl_bytes_equal(key, "rstrip")) {
            HL_NEED(hl_json_read_bool(reader, &token->strip_right));
        } else if (hl_bytes_equal(key, "normalized")) {
            HL_NEED(hl_json_read_bool(reader, &token->normalized));
        } else if (hl_bytes_equal(key, "special")) {
            HL_NEED(hl_json_read_bool(reader, &token->special));
        } else {
            HL_NEED(hl_json_skip(reader, &text));
        }
    }
    HL_NEED(hl_json_reader_status(reader));
    if (id < 0 || id >= HL_MAX_VOCAB || token->content.data == NULL)
        HL_NEED(hl_json_reader_fail(reader, "an added token without content or with id %lld",
                                    (long long)id));
    token->id = (int32_t)id;
    return HL_OK;
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
    hl_member_open(&reader, where, load->where, &load->file[ADDED]);
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

static hl_status parse_part(json_t **out, char where[256], const loader *load,
                            const hl_member *part)
{
    *out = NULL;
    snprintf(where, 256, "%s: %s", load->where, part->name);
    if (part->text.data == NULL)
        return HL_OK;
    return hl_json_parse(out, part->text.data, part->text.n_bytes, where);
}

/* Puts the place before messages that do not begin with it: some limits know only their number. */
static hl_status name_place(hl_status status, const char *where)
{
    if (status == HL_OK || strncmp(hl_error_message(), where, strlen(where)) == 0)
        return status;
    return hl_fail_within(status, "%s", where);
}

static hl_status read_pipeline(loader *load)
{
    hl_status     status    = HL_OK;
    hl_tokenizer *tokenizer = load->tokenizer;
    json_t       *parts[4]  = { NULL };
    char          where[256];

    HL_TRY(parse_part(&parts[0], where, load, &load->file[NORMALIZER]));
    HL_TRY(name_place(hl_normalizer_from_json(&tokenizer->normalizer, parts[0], where), where));
    HL_TRY(parse_part(&parts[1], where, load, &load->file[PRE_TOKENIZER]));
    HL_TRY(name_place(hl_pretokenizer_from_json(&tokenizer->pretokenizer, parts[1], where), where));
    HL_TRY(parse_part(&parts[2], where, load, &load->file[POST_PROCESSOR]));
    HL_TRY(
        name_place(hl_postprocessor_from_json(&tokenizer->postprocessor, parts[2], where), where));
    HL_TRY(parse_part(&parts[3], where, load, &load->file[DECODER]));
    HL_TRY(name_place(hl_decoder_from_json(&tokenizer->decoder, parts[3], where), where));

done:
    for (int i = 0; i < 4; i++)
        json_decref(parts[i]);
    return status;
}

/* Once, for all the readers. */
static hl_status check_text(const char *text, size_t n_bytes, const char *where)
{
    hl_json_reader reader;
    hl_status      status = hl_json_reader_open(&reader, text, n_bytes, where);

    hl_json_reader_close(&reader);
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
    };

    *out = NULL;
    if (n_bytes > MAX_FILE_BYTES)
        return hl_fail(HL_LIMIT, "%s: %zu bytes, a tokenizer has at most %zu", where, n_bytes,
                       MAX_FILE_BYTES);
    HL_TRY(hl_tokenizer_new(&load.tokenizer, where));
    HL_TRY(check_text(json, n_bytes, where));
    HL_TRY(hl_members_find(load.file, N_MEMBERS, (hl_bytes){ json, n_bytes }, where));
    HL_TRY(read_pipeline(&load));
    HL_TRY(hl_tokenizer_model_from_json(load.tokenizer, load.file[MODEL].text, where));
    HL_TRY(read_added_tokens(&load));
    HL_TRY(check_around(&load));
    HL_TRY(hl_tokenizer_finish(load.tokenizer));
    *out           = load.tokenizer;
    load.tokenizer = NULL;

done:
    hl_tokenizer_close(load.tokenizer);
    return status;
}
