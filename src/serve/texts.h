/* texts.h - the texts of a request as a corpus.
 *
 *     hl_served_texts texts = { 0 };
 *     status = hl_served_texts_open(&texts, server, json_object_get(root, "input"));
 *     ... texts.corpus ...
 *     hl_served_texts_close(&texts);
 *
 * They go through a file of JSON lines, which is gone afterwards; messages of failures say `input`
 * in place of its name once it is closed. */
#ifndef HL_SERVE_TEXTS_H
#define HL_SERVE_TEXTS_H

#include "serve/server.h"

#define HL_SERVED_MAX_TEXTS 1024

typedef struct hl_served_texts {
    char       path[4096]; /* of the file; "": there is none */
    hl_corpus *corpus;
} hl_served_texts;

/* A text or an array of 1 to HL_SERVED_MAX_TEXTS.  To be closed whatever it said. */
hl_status hl_served_texts_open(hl_served_texts *out, const hl_server *server, const json_t *input);
void      hl_served_texts_close(hl_served_texts *texts);

#endif
