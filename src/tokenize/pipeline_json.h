/* pipeline_json.h - the small parts of a tokenizer.json: everything but the
 * vocabulary.  Each takes a parsed JSON value, which may be null. */
#ifndef HL_TOKENIZE_PIPELINE_JSON_H
#define HL_TOKENIZE_PIPELINE_JSON_H

#include "base/json.h"
#include "tokenize/tokenizer.h"

hl_status hl_normalizer_from_json(hl_normalizer *out, const json_t *value, const char *where);
hl_status hl_pretokenizer_from_json(hl_pretokenizer *out, const json_t *value, const char *where);
hl_status hl_decoder_from_json(hl_decoder *out, const json_t *value, const char *where);
hl_status hl_postprocessor_from_json(hl_postprocessor *out, const json_t *value, const char *where);

#endif
