/* logits.c - a model's logits after every token, as an array for NumPy.
 *
 *     logits MODEL OUT.npy ID ID ID ...
 *
 * Runs the model on these token ids and writes an array [tokens, vocabulary] of float32: the logits
 * or, for an encoder, the last hidden states.  tools/interop compares them with what other software
 * computes from the same files. */
#include <stdio.h>
#include <stdlib.h>

#include <headlight.h>

typedef struct rows {
    FILE   *file;
    int64_t n_tokens;
    bool    failed;
} rows;

/* Writes the header of NumPy's format: a magic number, the header's length, and the header padded
 * to 64 bytes. */
static void write_header(FILE *file, int64_t n_rows, int64_t n_columns)
{
    char     text[119];
    unsigned n_bytes = sizeof text - 1;

    snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
             (long long)n_rows, (long long)n_columns);
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc((int)(n_bytes & 255), file);
    fputc((int)(n_bytes >> 8), file);
    fprintf(file, "%-*s\n", (int)n_bytes - 1, text);
}

/* Writes rows as they arrive, in order. */
static hl_status write_rows(void *context, const hl_final_rows *final)
{
    rows        *r      = context;
    const float *values = final->logits != NULL ? final->logits : final->hidden;
    int64_t      width  = final->logits != NULL ? final->d_vocab : final->d_model;
    size_t       count  = (size_t)(final->n_rows * width);

    if (final->start == 0)
        write_header(r->file, r->n_tokens, width);
    r->failed = r->failed || fwrite(values, sizeof *values, count, r->file) != count;
    return HL_OK;
}

static hl_status run(const char *path, rows *r, const int64_t *tokens)
{
    hl_model   *model   = NULL;
    hl_session *session = NULL;
    hl_tap      tap     = { .context = r, .final = write_rows, .wants = HL_WANT_LOGITS };
    hl_status   status  = hl_model_open(&model, path);

    if (status == HL_OK && hl_model_get_info(model)->is_encoder)
        tap.wants = HL_WANT_HIDDEN;
    if (status == HL_OK)
        status = hl_session_open(&session, model, &(hl_session_options){ .wants = tap.wants });
    if (status == HL_OK)
        status = hl_session_feed(
            session, &(hl_feed){ .tokens = tokens, .n_tokens = r->n_tokens, .tap = &tap });
    hl_session_close(session);
    hl_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: logits MODEL OUT.npy ID...\n");
        return 2;
    }
    int64_t *tokens = malloc((size_t)argc * sizeof *tokens);
    rows     r      = { .file = fopen(argv[2], "wb"), .n_tokens = argc - 3 };
    if (tokens == NULL || r.file == NULL) {
        perror(argv[2]);
        return 4;
    }
    for (int i = 3; i < argc; i++)
        tokens[i - 3] = strtoll(argv[i], NULL, 10);
    hl_status status = run(argv[1], &r, tokens);
    if (status != HL_OK)
        fprintf(stderr, "%s\n", hl_error_message());
    r.failed = fclose(r.file) != 0 || r.failed;
    if (r.failed)
        fprintf(stderr, "%s: cannot be written\n", argv[2]);
    free(tokens);
    return status == HL_OK && !r.failed ? 0 : 3;
}
