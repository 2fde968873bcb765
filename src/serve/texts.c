/* texts.c - texts of a request to a file of JSON lines, and from there to a corpus. */
#include "serve/texts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"

/* {"text": ...} and a line end. */
static hl_status write_text(FILE *file, const json_t *text)
{
    if (!json_is_string(text))
        return hl_fail(HL_BAD_INPUT, "input has %s in it, wanted texts", hl_json_kind(text));
    json_t *line = json_pack("{s:O}", "text", text);
    int     bad  = line == NULL || json_dumpf(line, file, JSON_COMPACT) != 0;

    json_decref(line);
    if (bad || fputc('\n', file) == EOF)
        return hl_fail(HL_IO, "the texts cannot be kept: %s", strerror(errno));
    return HL_OK;
}

static hl_status write_texts(FILE *file, const json_t *input)
{
    hl_status status = HL_OK;
    size_t    n      = json_array_size(input);

    if (json_is_string(input))
        return write_text(file, input);
    if (!json_is_array(input) || n == 0 || n > HL_SERVED_MAX_TEXTS)
        return hl_fail(HL_BAD_INPUT, "input: wanted a text or an array of 1 to %d texts",
                       HL_SERVED_MAX_TEXTS);
    for (size_t i = 0; i < n && status == HL_OK; i++)
        status = write_text(file, json_array_get(input, i));
    return status;
}

static hl_status keep_texts(hl_served_texts *out, const json_t *input)
{
    const char *folder = getenv("TMPDIR");
    int         length = snprintf(out->path, sizeof out->path, "%s/headlight-XXXXXX",
                          folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    int         file   = length < (int)sizeof out->path ? hl_sys_mkstemp(out->path) : -1;
    FILE       *stream = file >= 0 ? fdopen(file, "w") : NULL;

    if (stream == NULL) {
        if (file >= 0)
            close(file);
        else
            out->path[0] = '\0';
        return hl_fail(HL_IO, "the texts cannot be kept: %s", strerror(errno));
    }
    hl_status status = write_texts(stream, input);
    if (fclose(stream) != 0 && status == HL_OK)
        status = hl_fail(HL_IO, "the texts cannot be kept: %s", strerror(errno));
    return status;
}

hl_status hl_served_texts_open(hl_served_texts *out, const hl_server *server, const json_t *input)
{
    const char       *path    = out->path;
    hl_corpus_options options = { .inputs = &path, .n_inputs = 1, .format = HL_TEXT_JSONL };
    hl_status         status  = keep_texts(out, input);

    if (status == HL_OK)
        status = hl_corpus_open(&out->corpus, server->model, server->tokenizer, &options);
    return status;
}

/* What went wrong is told of the request: the file that its texts went through is nobody's
 * business. */
static void name_input(const hl_served_texts *texts)
{
    const char *message = hl_error_message();
    const char *path    = texts->path[0] != '\0' ? strstr(message, texts->path) : NULL;
    char        text[1024];

    if (path == NULL)
        return;
    snprintf(text, sizeof text, "%.*sinput%s", (int)(path - message), message,
             path + strlen(texts->path));
    (void)hl_fail(HL_BAD_INPUT, "%s", text); /* for its message: the status is the caller's */
}

void hl_served_texts_close(hl_served_texts *texts)
{
    name_input(texts);
    hl_corpus_close(texts->corpus);
    if (texts->path[0] != '\0')
        unlink(texts->path);
    *texts = (hl_served_texts){ 0 };
}
