/* tokenizer_vocab_txt.c - a vocab.txt without a tokenizer.json.
 *
 *     [PAD]        one piece per line; the number of the line is its id
 *     [UNK]
 *     [CLS]
 *     hello
 *     ##ing        a piece inside a word
 *
 * The file does not say what to do with it.  Who does, in this order:
 *
 *     tokenizer_config.json   tokenizer_class of BERT's kind: WordPiece, as transformers does it
 *     the vocabulary          pieces with ## are WordPiece; single characters and names in brackets
 *                             are a vocabulary of characters (proteins), each of which is a token
 *
 * Anything else is refused with a word on how to convert it.  Letters become lower case as
 * do_lower_case says; without it, unless a piece has a capital, which lower-cased text could never
 * reach.  [CLS] and [SEP] go around texts of encoders: model_type in config.json says which models
 * are none. */
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/tokenizer_json.h"
#include "tokenize/unicode.h"
#include "tokenize/vocab.h"
#include "tokenize/vocab_source.h"

/* Members of tokenizer_config.json, in the order of the table in read_settings. */
enum { CLASS, LOWER_CASE, STRIP_ACCENTS, CHINESE, EXTRA, ADDITIONAL, N_MEMBERS };

typedef struct vocab_text {
    const char *path;   /* path of vocab.txt */
    hl_bytes   *tokens; /* (n_tokens) bytes in the file */
    int32_t    *types;  /* (n_tokens) */
    size_t      n_tokens;
    size_t      capacity;
    bool        has_inner;    /* there is a piece that starts with ## */
    bool        has_capitals; /* a piece other than a name in brackets has a capital letter */
    bool        has_words;    /* a piece other than a name in brackets has several characters */
    hl_bytes    class_name;   /* owned; data NULL: not given */
    hl_bytes    model_type;   /* owned; data NULL: not given */

    hl_vocab_source source;
} vocab_text;

static bool is_bracketed(hl_bytes piece)
{
    return piece.n_bytes > 2 && piece.data[0] == '[' && piece.data[piece.n_bytes - 1] == ']';
}

/* ------------------------------------------------------------------- the pieces */

static void look_at_piece(vocab_text *text, hl_bytes piece)
{
    if (piece.n_bytes > 2 && memcmp(piece.data, "##", 2) == 0)
        text->has_inner = true;
    if (is_bracketed(piece))
        return;
    for (size_t at = 0, count = 0; at < piece.n_bytes;) {
        uint32_t lower[2];
        uint32_t c = hl_utf8_next(piece.data, &at);
        text->has_words |= count++ > 0;
        text->has_capitals |= hl_char_lowercase(lower, c) != 1 || lower[0] != c;
    }
}

static hl_status split_lines(vocab_text *text, hl_bytes file)
{
    if (hl_utf8_find_bad(file.data, file.n_bytes) < file.n_bytes)
        return hl_fail(HL_BAD_INPUT, "%s: not UTF-8, at byte %zu", text->path,
                       hl_utf8_find_bad(file.data, file.n_bytes));
    for (size_t at = 0; at < file.n_bytes;) {
        const char *end    = memchr(file.data + at, '\n', file.n_bytes - at);
        size_t      length = end != NULL ? (size_t)(end - file.data) - at : file.n_bytes - at;
        hl_bytes    piece  = { file.data + at, length };
        at += length + 1;
        if (piece.n_bytes > 0 && piece.data[piece.n_bytes - 1] == '\r')
            piece.n_bytes--;
        if (text->n_tokens >= HL_MAX_VOCAB)
            return hl_fail(HL_BAD_INPUT, "%s: more than %d lines", text->path, HL_MAX_VOCAB);
        HL_NEED(HL_GROW(&text->tokens, &text->capacity, text->n_tokens, 1));
        text->tokens[text->n_tokens++] = piece;
        look_at_piece(text, piece);
    }
    HL_NEED(HL_ALLOC(&text->types, text->n_tokens));
    for (size_t i = 0; i < text->n_tokens; i++)
        text->types[i] = HL_PIECE_NORMAL;
    return HL_OK;
}

/* Makes a piece special and returns its id; -1 if there is none. */
static int32_t mark_special(vocab_text *text, const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < text->n_tokens; i++) {
        if (text->tokens[i].n_bytes != n_bytes || memcmp(text->tokens[i].data, name, n_bytes) != 0)
            continue;
        text->types[i] = HL_PIECE_CONTROL;
        return (int32_t)i;
    }
    return -1;
}

/* ---------------------------------------------------------------- what lies beside */

/* Reads extra tokens, a list of names; other values in it are ignored. */
static hl_status read_extra(vocab_text *text, const char *file, const hl_member *part)
{
    hl_bytes                                       name;
    char                                           where[256];
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };

    if (part->text.data == NULL || part->text.data[0] != '[')
        return HL_OK;
    hl_member_open(&reader, where, file, part);
    HL_NEED(hl_json_enter(&reader, '['));
    while (hl_json_next(&reader, ']')) {
        if (hl_json_peek(&reader) != '"') {
            HL_NEED(hl_json_skip(&reader, &name));
            continue;
        }
        HL_NEED(hl_json_read_string(&reader, &name));
        (void)mark_special(text, name.data, name.n_bytes);
    }
    return hl_json_reader_finish(&reader);
}

/* Reads a flag; -1 if it is absent or null. */
static hl_status read_choice(int *out, const char *file, const hl_member *part)
{
    bool flag = false;

    HL_NEED(hl_member_flag(&flag, file, part));
    if (part->text.data != NULL)
        *out = flag ? 1 : 0;
    return HL_OK;
}

/* Checks the text once, and finds members in it. */
static hl_status find_members(hl_member *members, size_t n_members, hl_bytes json, const char *file)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader whole = { 0 };

    HL_NEED(hl_json_reader_open(&whole, json.data, json.n_bytes, file));
    return hl_members_find(members, n_members, json, file);
}

static hl_status read_settings(void *context, hl_bytes json, const char *file)
{
    vocab_text *text               = context;
    hl_member   members[N_MEMBERS] = {
          { "tokenizer_class", { 0 } },      { "do_lower_case", { 0 } },
          { "strip_accents", { 0 } },        { "tokenize_chinese_chars", { 0 } },
          { "extra_special_tokens", { 0 } }, { "additional_special_tokens", { 0 } },
    };
    int lower = -1;

    HL_NEED(find_members(members, N_MEMBERS, json, file));
    HL_NEED(hl_member_text(&text->class_name, file, &members[CLASS]));
    HL_NEED(read_choice(&lower, file, &members[LOWER_CASE]));
    HL_NEED(read_choice(&text->source.strip_accents, file, &members[STRIP_ACCENTS]));
    HL_NEED(read_choice(&text->source.space_chinese, file, &members[CHINESE]));
    HL_NEED(read_extra(text, file, &members[EXTRA]));
    HL_NEED(read_extra(text, file, &members[ADDITIONAL]));
    text->source.keep_case = lower < 0 ? text->has_capitals : lower == 0;
    return HL_OK;
}

static hl_status read_model_type(void *context, hl_bytes json, const char *file)
{
    vocab_text *text   = context;
    hl_member   member = { .name = "model_type" };

    HL_NEED(find_members(&member, 1, json, file));
    return hl_member_text(&text->model_type, file, &member);
}

/* ------------------------------------------------------------------------ deciding */

static bool starts_with(hl_bytes text, const char *word)
{
    return text.n_bytes >= strlen(word) && memcmp(text.data, word, strlen(word)) == 0;
}

/* True for tokenizers that transformers runs as it runs BERT's. */
static bool is_wordpiece_class(hl_bytes name)
{
    static const char *const names[] = { "BertTokenizer",       "DistilBertTokenizer",
                                         "ElectraTokenizer",    "MobileBertTokenizer",
                                         "LayoutLMTokenizer",   "ConvBertTokenizer",
                                         "FunnelTokenizer",     "LxmertTokenizer",
                                         "SqueezeBertTokenizer" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (starts_with(name, names[i]))
            return true;
    }
    return false;
}

static hl_status cannot_tell(const vocab_text *text)
{
    return hl_fail(
        HL_UNSUPPORTED,
        "%s: this vocabulary is neither WordPiece (no ## pieces) nor a list of characters%s%.*s, "
        "and there is no tokenizer.json; load the model's tokenizer with its own library and call "
        "tokenizer.save_pretrained(FOLDER), which writes one",
        text->path, text->class_name.data != NULL ? ", tokenizer_class is " : "",
        (int)text->class_name.n_bytes, text->class_name.data != NULL ? text->class_name.data : "");
}

/* Decides how the text is split, or returns the reason why it cannot be. */
static hl_status decide(vocab_text *text)
{
    bool said = is_wordpiece_class(text->class_name);
    bool open = text->class_name.data == NULL;

    if (text->source.special[HL_SPECIAL_UNK] < 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: no piece [UNK], so this is not a vocabulary of BERT's kind",
                       text->path);
    if (!said && !(open && (text->has_inner || !text->has_words)))
        return cannot_tell(text);
    text->source.characters = !said && !text->has_inner;
    for (size_t i = 0; i < text->n_tokens && text->source.characters; i++) {
        if (is_bracketed(text->tokens[i]))
            text->types[i] = HL_PIECE_CONTROL;
    }
    return HL_OK;
}

static hl_status describe(vocab_text *text)
{
    static const struct {
        const char *name;
        hl_special  which;
    } names[] = {
        { "[UNK]", HL_SPECIAL_UNK }, { "[CLS]", HL_SPECIAL_CLS },   { "[SEP]", HL_SPECIAL_SEP },
        { "[PAD]", HL_SPECIAL_PAD }, { "[MASK]", HL_SPECIAL_MASK },
    };
    hl_vocab_source *source = &text->source;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        source->special[names[i].which] = mark_special(text, names[i].name, strlen(names[i].name));
    if (source->special[HL_SPECIAL_UNK] >= 0)
        text->types[source->special[HL_SPECIAL_UNK]] = HL_PIECE_UNKNOWN;
    source->model       = "bert";
    source->inner_marks = true;
    source->tokens      = text->tokens;
    source->types       = text->types;
    source->n_tokens    = text->n_tokens;
    source->where       = text->path;
    /* A decoder continues the text, so nothing is added after it. */
    bool encoder = text->model_type.data == NULL || strstr(text->model_type.data, "bert") != NULL ||
                   strstr(text->model_type.data, "electra") != NULL ||
                   is_wordpiece_class(text->class_name);
    if (starts_with(text->model_type, "gpt"))
        encoder = false;
    source->add_bos = source->add_eos = encoder ? 1 : 0;
    return decide(text);
}

static void free_vocab_text(vocab_text *text)
{
    hl_free(text->tokens);
    hl_free(text->types);
    hl_bytes_free(&text->class_name);
    hl_bytes_free(&text->model_type);
}

hl_status hl_tokenizer_open_vocab_text(hl_tokenizer **out, const char *path, const char *folder)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };
    HL_SCOPED(free_vocab_text)
    vocab_text text = { .path = path, .source = hl_vocab_source_empty() };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(split_lines(&text, (hl_bytes){ (const char *)file.bytes, file.n_bytes }));
    text.source.keep_case = text.has_capitals;
    HL_NEED(hl_sibling_read(&text, folder, "tokenizer_config.json", read_settings));
    HL_NEED(hl_sibling_read(&text, folder, "config.json", read_model_type));
    HL_NEED(describe(&text));
    return hl_tokenizer_from_source(out, &text.source);
}
