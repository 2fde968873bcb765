/* tokenizer_open.c - finding the tokenizer of a path, and the files beside it.
 *
 *     FOLDER/tokenizer.json            the tokenizer
 *     FOLDER/vocab.txt                 used if tokenizer.json is missing (tokenizer_vocab_txt.c)
 *     FOLDER/tokenizer_config.json     which tokens are special; the chat template
 *     FOLDER/special_tokens_map.json   the same, in old folders
 *     FOLDER/chat_template.jinja       the template, in new folders; it has priority
 *     FOLDER/chat_template.json        the template of models with images, if no other file has one
 *
 * For a path to a model's weights, the tokenizer is in the same folder. tokenizer_config.json goes
 * through the pull reader: it often contains an integer of thirty digits, which jansson refuses. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/llama2c.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocab_source.h"

#define MAX_TEMPLATE_BYTES ((size_t)1 << 20)

/* ------------------------------------------------------------ special tokens */

static const struct {
    const char *key;
    hl_special  which;
} special_keys[] = {
    { "bos_token", HL_SPECIAL_BOS },   { "eos_token", HL_SPECIAL_EOS },
    { "unk_token", HL_SPECIAL_UNK },   { "sep_token", HL_SPECIAL_SEP },
    { "pad_token", HL_SPECIAL_PAD },   { "cls_token", HL_SPECIAL_CLS },
    { "mask_token", HL_SPECIAL_MASK },
};

/* Reads "<s>" or {"content": "<s>", ...}; for anything else the name is empty. */
static hl_status read_token_name(hl_buffer *out, hl_json_reader *reader)
{
    hl_bytes key, text;
    char     first = hl_json_peek(reader);

    out->n_bytes = 0;
    if (first == '"') {
        HL_NEED(hl_json_read_string(reader, &text));
        return hl_buffer_append(out, text.data, text.n_bytes);
    }
    if (first != '{')
        return hl_json_skip(reader, &text);
    HL_NEED(hl_json_enter(reader, '{'));
    while (hl_json_next_key(reader, &key)) {
        if (hl_bytes_equal(key, "content") && hl_json_peek(reader) == '"') {
            HL_NEED(hl_json_read_string(reader, &text));
            HL_NEED(hl_buffer_append(out, text.data, text.n_bytes));
        } else {
            HL_NEED(hl_json_skip(reader, &text));
        }
    }
    return reader->status;
}

static hl_status read_special(hl_tokenizer *tokenizer, hl_json_reader *reader, hl_special which)
{
    HL_SCOPED(hl_buffer_free) hl_buffer name = { 0 };

    HL_NEED(read_token_name(&name, reader));
    if (name.n_bytes > 0 && tokenizer->special[which] < 0)
        tokenizer->special[which] = hl_vocab_find(&tokenizer->vocab, hl_buffer_bytes(&name));
    return HL_OK;
}

/* -------------------------------------------------------------- chat template */

static hl_status keep_template(hl_tokenizer *tokenizer, hl_bytes text, const char *where)
{
    HL_FREED char *copy = NULL;

    if (tokenizer->chat_template != NULL)
        return HL_OK;
    if (text.n_bytes > MAX_TEMPLATE_BYTES)
        return hl_fail(HL_BAD_INPUT, "%s: a chat template of %zu bytes, at most %zu", where,
                       text.n_bytes, MAX_TEMPLATE_BYTES);
    HL_NEED(hl_strndup(&copy, text.data, text.n_bytes));
    return hl_tokenizer_set_chat_template(tokenizer, copy);
}

/* Reads {"name": "default", "template": "..."}; of several templates the default one is used. */
static hl_status read_named_template(hl_tokenizer *tokenizer, hl_json_reader *reader)
{
    bool                                is_default = false;
    hl_bytes                            key, value;
    HL_SCOPED(hl_buffer_free) hl_buffer text = { 0 };

    HL_NEED(hl_json_enter(reader, '{'));
    while (hl_json_next_key(reader, &key)) {
        bool name = hl_bytes_equal(key, "name");
        bool body = hl_bytes_equal(key, "template");
        if (hl_json_peek(reader) != '"' || (!name && !body)) {
            HL_NEED(hl_json_skip(reader, &value));
            continue;
        }
        HL_NEED(hl_json_read_string(reader, &value));
        if (name)
            is_default = hl_bytes_equal(value, "default");
        else
            HL_NEED(hl_buffer_append(&text, value.data, value.n_bytes));
    }
    HL_NEED(reader->status);
    if (is_default && text.n_bytes > 0)
        HL_NEED(keep_template(tokenizer, hl_buffer_bytes(&text), reader->where));
    return HL_OK;
}

static hl_status read_chat_template(hl_tokenizer *tokenizer, hl_json_reader *reader)
{
    hl_bytes text;

    switch (hl_json_peek(reader)) {
    case '"':
        HL_NEED(hl_json_read_string(reader, &text));
        return keep_template(tokenizer, text, reader->where);
    case '[':
        HL_NEED(hl_json_enter(reader, '['));
        while (hl_json_next(reader, ']'))
            HL_NEED(read_named_template(tokenizer, reader));
        return reader->status;
    default:
        return hl_json_skip(reader, &text);
    }
}

/* ------------------------------------------------------------------- siblings */

static hl_status read_config_member(hl_tokenizer *tokenizer, hl_json_reader *reader, hl_bytes key)
{
    hl_bytes value;

    if (hl_bytes_equal(key, "chat_template"))
        return read_chat_template(tokenizer, reader);
    for (size_t i = 0; i < sizeof special_keys / sizeof *special_keys; i++) {
        if (hl_bytes_equal(key, special_keys[i].key))
            return read_special(tokenizer, reader, special_keys[i].which);
    }
    return hl_json_skip(reader, &value);
}

static hl_status read_config(void *tokenizer, hl_bytes json, const char *where)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    hl_bytes                                       key;

    HL_NEED(hl_json_reader_open(&reader, json.data, json.n_bytes, where));
    HL_NEED(hl_json_enter(&reader, '{'));
    while (hl_json_next_key(&reader, &key))
        HL_NEED(read_config_member(tokenizer, &reader, key));
    return hl_json_reader_finish(&reader);
}

static hl_status read_jinja(void *tokenizer, hl_bytes text, const char *where)
{
    return keep_template(tokenizer, text, where);
}

hl_status hl_sibling_read(void *context, const char *folder, const char *name,
                          hl_status (*read)(void *, hl_bytes, const char *))
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };
    HL_SCOPED(hl_text_free) hl_text  path = { 0 };

    hl_text_addf(&path, "%s%s", folder, name);
    HL_NEED(path.status);
    hl_status status = hl_file_map(&file, path.bytes);
    if (status != HL_OK)
        return status == HL_NOT_FOUND ? HL_OK : status;
    return read(context, (hl_bytes){ (const char *)file.bytes, file.n_bytes }, path.bytes);
}

/* Finds the end-of-turn token.  No file names it, but only a few spellings are in use. */
static void find_end_of_turn(hl_tokenizer *tokenizer)
{
    static const char *const names[] = { "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = hl_vocab_find(&tokenizer->vocab, (hl_bytes){ names[i], strlen(names[i]) });
        if (id >= 0 && tokenizer->special[HL_SPECIAL_EOT] < 0 &&
            tokenizer->vocab.pieces[id].type == HL_TOKEN_SPECIAL)
            tokenizer->special[HL_SPECIAL_EOT] = id;
    }
}

/* `folder` ends in a slash, or is empty. */
static hl_status read_siblings(hl_tokenizer *tokenizer, const char *folder)
{
    HL_NEED(hl_sibling_read(tokenizer, folder, "chat_template.jinja", read_jinja));
    HL_NEED(hl_sibling_read(tokenizer, folder, "tokenizer_config.json", read_config));
    HL_NEED(hl_sibling_read(tokenizer, folder, "special_tokens_map.json", read_config));
    HL_NEED(hl_sibling_read(tokenizer, folder, "chat_template.json", read_config));
    find_end_of_turn(tokenizer);
    return HL_OK;
}

/* -------------------------------------------------------------------- opening */

static hl_status open_json(hl_tokenizer **out, const char *path, const char *folder)
{
    HL_SCOPED(hl_file_unmap) hl_file            file      = { 0 };
    HL_CLOSED(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_tokenizer_parse(&tokenizer, file.bytes, file.n_bytes, path));
    HL_NEED(read_siblings(tokenizer, folder));
    *out = hl_taken(&tokenizer);
    return HL_OK;
}

/* Joins the first n_folder bytes of the path and a name. */
static hl_status join_path(hl_text *out, const char *path, size_t n_folder, const char *name)
{
    bool bare = n_folder > 0 && path[n_folder - 1] != '/';

    out->n_bytes = 0;
    hl_text_addf(out, "%.*s%s%s", (int)n_folder, path, bare ? "/" : "", name);
    return out->status;
}

static hl_status open_vocab_text(hl_tokenizer **out, const char *path, const char *folder)
{
    HL_CLOSED(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;

    HL_NEED(hl_tokenizer_open_vocab_text(&tokenizer, path, folder));
    HL_NEED(read_siblings(tokenizer, folder));
    *out = hl_taken(&tokenizer);
    return HL_OK;
}

/* Opens a folder: its tokenizer.json, or else its vocab.txt. */
static hl_status open_folder(hl_tokenizer **out, const char *path, size_t n_folder)
{
    HL_SCOPED(hl_text_free) hl_text folder = { 0 };
    HL_SCOPED(hl_text_free) hl_text file   = { 0 };

    HL_NEED(join_path(&folder, path, n_folder, ""));
    HL_NEED(join_path(&file, path, n_folder, "tokenizer.json"));
    hl_status status = open_json(out, file.bytes, folder.bytes);
    if (status == HL_NOT_FOUND) {
        HL_NEED(join_path(&file, path, n_folder, "vocab.txt"));
        status = open_vocab_text(out, file.bytes, folder.bytes);
    }
    if (status == HL_NOT_FOUND)
        hl_fail(status, "%s: no tokenizer.json in this folder",
                folder.bytes[0] != '\0' ? folder.bytes : ".");
    return status;
}

/* Opens a .bin file of llama2.c: a tokenizer, or a checkpoint with tokenizer.bin beside it. */
static hl_status open_bin(hl_tokenizer **out, const char *path, size_t n_folder)
{
    HL_SCOPED(hl_file_unmap) hl_file file   = { 0 };
    HL_SCOPED(hl_text_free) hl_text  beside = { 0 };

    HL_NEED(hl_file_map(&file, path));
    bool checkpoint = hl_llama2c_recognize(file.bytes, file.n_bytes);
    HL_NEED(join_path(&beside, path, n_folder, "tokenizer.bin"));
    return hl_tokenizer_open_llama2c(out, checkpoint ? beside.bytes : path);
}

/* GGUF files are known by their first bytes: other programs keep them under names without an ending. */
static bool is_gguf(const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    return hl_ends_with(path, ".gguf") || (hl_file_map(&file, path) == HL_OK && file.n_bytes >= 4 &&
                                           memcmp(file.bytes, "GGUF", 4) == 0);
}

/* Opens a file; for a tokenizer.json the files beside it are read too. */
static hl_status open_file(hl_tokenizer **out, const char *path)
{
    const char    *slash    = strrchr(path, '/');
    size_t         n_folder = slash != NULL ? (size_t)(slash + 1 - path) : 0;
    HL_FREED char *folder   = NULL;

    if (hl_ends_with(path, ".bin"))
        return open_bin(out, path, n_folder);
    if (is_gguf(path))
        return hl_tokenizer_open_gguf(out, path);
    if (hl_ends_with(path, ".safetensors"))
        return open_folder(out, path, n_folder);
    HL_NEED(hl_strndup(&folder, path, n_folder));
    return hl_ends_with(path, ".txt") ? open_vocab_text(out, path, folder)
                                      : open_json(out, path, folder);
}

hl_status hl_tokenizer_open(hl_tokenizer **out, const char *path)
{
    struct stat info;

    *out = NULL;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return open_folder(out, path, strlen(path));
    return open_file(out, path);
}
