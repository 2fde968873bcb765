/* info_print.h - what `headlight info` shows: a screen, or JSON. */
#ifndef HL_CLI_INFO_PRINT_H
#define HL_CLI_INFO_PRINT_H

#include "headlight.h"

typedef struct hl_info_request {
    const char         *path;
    const hl_model     *model;
    const hl_tokenizer *tokenizer;         /* NULL: none, or none that can be read */
    const char         *tokenizer_problem; /* why that is; "" where there is none  */
    bool                tensors;           /* a line (an object) for every tensor  */
    hl_session_memory   memory;            /* of a session with a cache in f16     */
} hl_info_request;

void hl_info_print(const hl_info_request *request);
void hl_info_print_json(const hl_info_request *request);

#endif
