/* model_json.h - the member "model" of a tokenizer.json: a vocabulary, and what it is for. */
#ifndef HL_TOKENIZE_MODEL_JSON_H
#define HL_TOKENIZE_MODEL_JSON_H

#include "base/json_reader.h"
#include "tokenize/tokenizer.h"

/* Fills the tokenizer's vocabulary and model; its pretokenizer must be there.  json.data NULL:
 * the file has no such member, which is an error that names `where`. */
hl_status hl_tokenizer_model_from_json(hl_tokenizer *tokenizer, hl_bytes json, const char *where);

#endif
