/* corpus_record.h - one line of a JSONL file: a text with spans, or a chat.
 *
 *     {"text": "...", "spans": [{"start": 0, "end": 9, "type": "question"}]}
 *     {"messages": [{"role": "user", "content": "..."}, ...]}
 *
 * A message's content is a string, null, or an array of parts { "type": "text", "text" }. */
#ifndef HL_MEASURE_CORPUS_RECORD_H
#define HL_MEASURE_CORPUS_RECORD_H

#include "base/json.h"
#include "base/json_reader.h"
#include "headlight.h"

typedef struct hl_record_span {
    hl_span     span; /* of the text, in bytes */
    const char *type; /* borrowed from the value */
} hl_record_span;

typedef struct hl_record {
    json_t          *value;
    hl_bytes         text; /* data is NULL for a chat */
    hl_record_span  *spans;
    size_t           n_spans;
    hl_chat_message *messages; /* contents are owned, roles the value's */
    size_t           n_messages;
} hl_record;

/* `field` as in hl_corpus_options; `where` names the line in messages. */
hl_status hl_record_parse(hl_record *out, hl_bytes line, const char *field, const char *where);
void      hl_record_free(hl_record *record);

/* Of the text, or of the messages' roles and contents. */
uint64_t hl_record_hash(const hl_record *record);
/* Bytes of text or of contents. */
size_t hl_record_bytes(const hl_record *record);

#endif
