/* corpus_reader.c - reads the tokens of documents.
 *
 * Four kinds of documents become ids and types: text of a file or a line, in pieces; a chat,
 * through its template; a line of ids; a row of a table of ids. */
#include "measure/corpus.h"

#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/corpus_parts.h"
#include "tokenize/tokenizer.h"

typedef enum reader_state {
    READER_END = 0, /* the document is finished */
    READER_TEXT,    /* text, read in pieces */
    READER_CHAT,
    READER_IDS,
} reader_state;

struct hl_token_reader {
    const hl_corpus   *corpus;
    hl_around          way;
    hl_around_tokens   around; /* tokens around this document's windows */
    const hl_document *document;
    char               name[256];
    reader_state       state;
    bool               at_start; /* no token of the text has been returned yet */
    hl_text_source     source;   /* the file that was read last */
    uint32_t           file;
    char              *line; /* the line, if the document is a line of the file */
    size_t             line_capacity;
    hl_record          record;
    hl_text_pieces    *pieces;
    hl_matcher        *matcher;
    uint8_t           *marks; /* type of every byte of a piece's text */
    size_t             marks_capacity;
    hl_ids             ids;
    uint8_t           *types; /* (n) types of the ids */
    size_t             types_capacity;
    uint64_t           n_passed; /* bytes of the document before the last token */
};

hl_status hl_token_reader_open(hl_token_reader **out, const hl_corpus *corpus, hl_around around)
{
    HL_CLOSED(hl_token_reader_close) hl_token_reader *reader = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&reader, 1));
    reader->corpus = corpus;
    reader->way    = around;
    HL_NEED(hl_matcher_new(&reader->matcher));
    if (corpus->tokenizer != NULL)
        HL_NEED(hl_text_pieces_new(&reader->pieces, corpus->tokenizer, &corpus->encoding,
                                   HL_PIECE_BYTES, HL_PIECE_OVERLAP));
    *out = hl_taken(&reader);
    return HL_OK;
}

void hl_token_reader_close(hl_token_reader *reader)
{
    if (reader == NULL)
        return;
    hl_text_source_close(&reader->source);
    hl_record_free(&reader->record);
    hl_text_pieces_free(reader->pieces);
    hl_matcher_free(reader->matcher);
    hl_ids_free(&reader->ids);
    hl_free(reader->line);
    hl_free(reader->marks);
    hl_free(reader->types);
    hl_free(reader);
}

static hl_status has_changed(const hl_token_reader *reader)
{
    return hl_fail(HL_BAD_INPUT, "%s: the file changed while in use", reader->name);
}

/* ------------------------------------------------------------------- beginning */

/* Opens the document's file, unless it is open already. */
static hl_status open_file(hl_token_reader *reader)
{
    const hl_document *document = reader->document;

    if (reader->source.path != NULL && reader->file == document->file)
        return HL_OK;
    hl_text_source_close(&reader->source);
    reader->file = document->file;
    return hl_text_source_open(&reader->source, &reader->corpus->files.items[document->file]);
}

static hl_status read_line(hl_bytes *out, hl_token_reader *reader)
{
    size_t n_stored = (size_t)reader->document->n_stored;

    HL_NEED(HL_GROW(&reader->line, &reader->line_capacity, 0, n_stored + 1));
    HL_NEED(hl_text_source_read(reader->line, &reader->source, reader->document->at, n_stored));
    *out = (hl_bytes){ reader->line, n_stored };
    return HL_OK;
}

static hl_status start_ids(hl_token_reader *reader)
{
    const hl_corpus *corpus = reader->corpus;
    hl_bytes         line   = { 0 };

    if (corpus->has_table) {
        HL_NEED(hl_ids_of_row(&reader->ids, &corpus->table, (int64_t)reader->document->at,
                              corpus->n_vocab));
    } else {
        HL_NEED(open_file(reader));
        HL_NEED(read_line(&line, reader));
        HL_NEED(hl_ids_of_line(&reader->ids, line, corpus->n_vocab, reader->name));
    }
    if (hl_ids_hash(reader->ids.items, reader->ids.count) != reader->document->hash)
        HL_NEED(has_changed(reader));
    reader->state = READER_IDS;
    return HL_OK;
}

static hl_status start_record(hl_token_reader *reader)
{
    hl_bytes line = { 0 };

    HL_NEED(read_line(&line, reader));
    HL_NEED(hl_record_parse(&reader->record, line, reader->corpus->field, reader->name));
    if (hl_record_hash(&reader->record) != reader->document->hash)
        HL_NEED(has_changed(reader));
    if (reader->record.text.data == NULL) {
        reader->state = READER_CHAT;
        return HL_OK;
    }
    hl_text_pieces_start(reader->pieces,
                         &(hl_text_input){ .memory  = reader->record.text.data,
                                           .n_bytes = reader->record.text.n_bytes });
    reader->state = READER_TEXT;
    return HL_OK;
}

static hl_status start_file(hl_token_reader *reader)
{
    const hl_document *document = reader->document;

    if (document->at + document->n_stored != reader->source.n_bytes)
        return has_changed(reader);
    hl_text_pieces_start(reader->pieces, &(hl_text_input){ .source  = &reader->source,
                                                           .at      = document->at,
                                                           .n_bytes = document->n_stored });
    reader->state = READER_TEXT;
    return HL_OK;
}

hl_status hl_token_reader_start(hl_token_reader *reader, int64_t document)
{
    hl_document_info info;

    reader->state = READER_END;
    hl_record_free(&reader->record);
    HL_NEED(hl_corpus_get_document(&info, reader->corpus, document));
    memcpy(reader->name, info.name, sizeof reader->name);
    reader->document = &reader->corpus->documents.items[document];
    reader->at_start = true;
    reader->n_passed = 0;
    reader->around   = (hl_around_tokens){ 0 };
    if (reader->corpus->has_ids) {
        HL_NEED(start_ids(reader));
        return HL_OK;
    }
    HL_NEED(open_file(reader));
    HL_NEED(reader->document->line > 0 ? start_record(reader) : start_file(reader));
    return HL_OK;
}

/* ------------------------------------------------------------------ handing out */

static hl_status clear_output(hl_token_reader *reader, size_t n_tokens)
{
    reader->ids.count = 0;
    HL_NEED(HL_GROW(&reader->ids.items, &reader->ids.capacity, 0, n_tokens));
    return HL_GROW(&reader->types, &reader->types_capacity, 0, n_tokens);
}

/* Appends a token; clear_output has reserved the room. */
static hl_status put_token(hl_token_reader *reader, int64_t id, uint8_t type)
{
    const hl_corpus *corpus = reader->corpus;

    if (id < 0 || id >= corpus->n_vocab)
        return hl_fail(HL_BAD_INPUT,
                       "%s: the tokenizer gives id %lld, but the model has only %lld tokens: this "
                       "is the tokenizer of another model",
                       reader->name, (long long)id, (long long)corpus->n_vocab);
    if (hl_tokenizer_type(corpus->tokenizer, id) == HL_TOKEN_SPECIAL)
        type = HL_TYPE_SPECIAL;
    reader->types[reader->ids.count]       = type;
    reader->ids.items[reader->ids.count++] = id;
    return HL_OK;
}

/* Marks a span of the document in its text from byte `at` on. */
static void mark_span(uint8_t *marks, size_t n_bytes, uint64_t at, hl_span span, uint8_t type)
{
    uint64_t begin = span.begin > at ? span.begin - at : 0;
    uint64_t end   = span.end > at ? span.end - at : 0;

    for (uint64_t i = begin; i < end && i < n_bytes; i++) {
        if (marks[i] == HL_NO_TYPE) /* the first span that covers a byte sets its type */
            marks[i] = type;
    }
}

/* Marks the types that the line's spans and the rules give to the bytes of a text. */
static hl_status mark_text(hl_token_reader *reader, const char *text, size_t n_bytes, uint64_t at)
{
    const hl_types *types = &reader->corpus->types;

    HL_NEED(HL_GROW(&reader->marks, &reader->marks_capacity, 0, n_bytes + 1));
    memset(reader->marks, HL_NO_TYPE, n_bytes + 1);
    for (size_t i = 0; i < reader->record.n_spans; i++) {
        const hl_record_span *span = &reader->record.spans[i];
        mark_span(reader->marks, n_bytes, at, span->span, hl_types_find(types, span->type));
    }
    return hl_types_mark(reader->marks, types, reader->matcher, text, n_bytes);
}

/* Returns the type of a token's last byte, or `otherwise`. */
static uint8_t type_at(const hl_token_reader *reader, hl_span span, uint8_t otherwise)
{
    uint8_t mark = reader->marks[span.end > 0 ? span.end - 1 : 0];
    return mark != HL_NO_TYPE ? mark : otherwise;
}

static hl_status put_around(hl_token_reader *reader, const int64_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++)
        HL_NEED(put_token(reader, ids[i], HL_TYPE_SPECIAL));
    return HL_OK;
}

static hl_status put_piece(hl_token_reader *reader, const hl_text_piece *piece)
{
    hl_around_tokens around = hl_tokenizer_around(reader->corpus->tokenizer);

    if (reader->way == HL_AROUND_WINDOW)
        reader->around = around; /* used by the code that cuts windows */
    if (reader->way != HL_AROUND_DOCUMENT)
        around = (hl_around_tokens){ 0 };
    HL_NEED(clear_output(reader, piece->end - piece->begin + around.n_before + around.n_after));
    if (reader->at_start)
        HL_NEED(put_around(reader, around.before, around.n_before));
    for (size_t i = piece->begin; i < piece->end; i++)
        HL_NEED(put_token(reader, piece->encoding->ids[i],
                          type_at(reader, piece->encoding->spans[i], HL_TYPE_PROMPT)));
    if (piece->last)
        HL_NEED(put_around(reader, around.after, around.n_after));
    reader->at_start = false;
    if (piece->end > piece->begin)
        reader->n_passed = piece->at + piece->encoding->spans[piece->end - 1].end;
    return HL_OK;
}

static hl_status next_text(hl_token_reader *reader)
{
    hl_text_piece piece = { 0 };

    HL_NEED(hl_text_pieces_next(&piece, reader->pieces));
    HL_NEED(mark_text(reader, piece.text, piece.n_text, piece.at));
    HL_NEED(put_piece(reader, &piece));
    if (piece.last) {
        reader->state = READER_END;
        if (hl_text_pieces_hash(reader->pieces) != reader->document->hash)
            HL_NEED(has_changed(reader));
    }
    return HL_OK;
}

/* A chat has the tokens of its own template.  If it begins with the tokens that the tokenizer puts
 * before a text, they are skipped, since every window begins with them.  Returns their number. */
static size_t skip_beginning(hl_token_reader *reader, const hl_encoding *coded)
{
    hl_around_tokens around = hl_tokenizer_around(reader->corpus->tokenizer);
    size_t           n      = around.n_before;

    if (reader->way != HL_AROUND_WINDOW || n == 0 || coded->n_tokens <= n ||
        memcmp(coded->ids, around.before, n * sizeof *coded->ids) != 0)
        return 0;
    reader->around = (hl_around_tokens){ .before = around.before, .n_before = n };
    return n;
}

/* The date that templates write: a profile may not depend on the day that it is made.  26 July 2024
 * is what templates of Llama 3 write where they cannot ask. */
#define FIXED_NOW 1721952000

static hl_status next_chat(hl_token_reader *reader)
{
    static const char *const names[]   = { "special", "system", "user", "assistant", "tool" };
    hl_status                status    = HL_OK;
    const hl_corpus         *corpus    = reader->corpus;
    hl_chat                 *chat      = NULL;
    hl_encoding             *coded     = NULL;
    json_t                  *variables = NULL;
    hl_chat_options          options   = { .no_prompt = true, .now = FIXED_NOW };
    hl_encode_options        encode    = corpus->encoding;

    encode.plain  = false; /* a template writes its special tokens as text */
    reader->state = READER_END;
    HL_TRY(hl_record_variables(&variables, &reader->record));
    HL_TRY(
        hl_chat_render_values(&chat, corpus->tokenizer, reader->record.chat, variables, &options));
    HL_TRY(hl_chat_encode(&coded, corpus->tokenizer, chat, &encode));
    HL_TRY(clear_output(reader, coded->n_tokens));
    HL_TRY(mark_text(reader, chat->text, chat->n_bytes, 0));
    for (size_t i = skip_beginning(reader, coded); i < coded->n_tokens; i++) {
        uint8_t role = hl_types_find(&corpus->types, names[coded->roles[i]]);
        if (coded->roles[i] != HL_ROLE_TEMPLATE)
            role = type_at(reader, coded->spans[i], role);
        HL_TRY(put_token(reader, coded->ids[i], role));
    }

done:
    if (status != HL_OK)
        hl_fail_within(status, "%s", reader->name);
    hl_encoding_free(coded);
    hl_chat_free(chat);
    json_decref(variables);
    return status;
}

/* Returns ids that were read already, with their types. */
static hl_status next_ids(hl_token_reader *reader)
{
    const hl_tokenizer *tokenizer = reader->corpus->tokenizer;
    hl_status status = HL_GROW(&reader->types, &reader->types_capacity, 0, reader->ids.count);

    reader->state = READER_END;
    for (size_t i = 0; i < reader->ids.count && status == HL_OK; i++) {
        bool special = tokenizer != NULL &&
                       hl_tokenizer_type(tokenizer, reader->ids.items[i]) == HL_TOKEN_SPECIAL;
        reader->types[i] = special ? HL_TYPE_SPECIAL : HL_TYPE_PROMPT;
    }
    return status;
}

hl_around_tokens hl_token_reader_around(const hl_token_reader *reader)
{
    return reader->around;
}

hl_status hl_token_reader_next(hl_token_piece *out, hl_token_reader *reader)
{
    hl_status status = HL_OK;

    *out = (hl_token_piece){ 0 };
    while (status == HL_OK && out->n_tokens == 0 && reader->state != READER_END) {
        uint64_t before = reader->n_passed;
        switch (reader->state) {
        case READER_TEXT:
            status = next_text(reader);
            break;
        case READER_CHAT:
            status           = next_chat(reader);
            reader->n_passed = reader->document->n_bytes;
            break;
        default:
            status           = next_ids(reader);
            reader->n_passed = reader->document->n_bytes;
            break;
        }
        if (status == HL_OK)
            *out = (hl_token_piece){ .ids      = reader->ids.items,
                                     .types    = reader->types,
                                     .n_tokens = reader->ids.count,
                                     .n_bytes  = reader->n_passed - before };
        else
            reader->state = READER_END;
    }
    return status;
}
