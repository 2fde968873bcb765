/* sampling_try.c - two passes over the same tokens: a sampler at temperature 1, and at another.
 *
 * A sampling temperature is often advised against collapsed attention.  Attention comes
 * before sampling, so on the same text its rows cannot change; here both are measured. */
#include "sampling_try.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { MOST_TOKENS = 64, MOST_BYTES = 2048 };

typedef struct attention_sum {
    double  sum;
    int64_t count;
} attention_sum;

static hl_status add_layer(void *context, const hl_layer_rows *rows)
{
    attention_sum *total = context;

    for (int64_t head = 0; head < rows->n_heads; head++)
        total->sum += (double)rows->rows->entropy[head * rows->n_rows];
    total->count += rows->n_heads;
    return HL_OK;
}

/* The entropy of what the sampler chose among. */
static hl_status drawn_entropy(double *out, hl_sampler *sampler, const float *logits)
{
    int64_t   token = 0, count = 0;
    hl_status status = hl_sampler_draw(&token, sampler, logits);

    *out = 0.0;
    if (status != HL_OK)
        return status;
    const hl_candidate *among = hl_sampler_candidates(sampler, &count);
    for (int64_t i = 0; i < count; i++)
        *out -= among[i].probability > 0.0 ? among[i].probability * log(among[i].probability) : 0.0;
    return HL_OK;
}

static hl_status read_once(hl_sampling_seen *out, const hl_model *model, const int32_t *ids,
                           int64_t n_tokens, double temperature, int32_t n_threads)
{
    hl_session        *session = NULL;
    hl_sampler        *sampler = NULL;
    attention_sum      total   = { 0.0, 0 };
    hl_session_options options = { .n_ctx     = n_tokens,
                                   .wants     = HL_WANT_LAST_LOGITS,
                                   .n_threads = n_threads };
    hl_sample_options  sample  = { .temperature = temperature };
    hl_tap             tap     = { .context = &total, .layer = add_layer };
    hl_status          status  = hl_session_open(&session, model, &options);

    *out = (hl_sampling_seen){ 0.0, 0.0 };
    if (status == HL_OK)
        status = hl_sampler_new(&sampler, hl_model_get_info(model)->d_vocab, &sample);
    for (int64_t i = 0; i < n_tokens && status == HL_OK; i++) {
        int64_t token   = ids[i];
        double  entropy = 0.0;
        status =
            hl_session_feed(session, &(hl_feed){ .tokens = &token, .n_tokens = 1, .tap = &tap });
        if (status == HL_OK)
            status = drawn_entropy(&entropy, sampler, hl_session_logits(session, 0));
        out->vocabulary += entropy / (double)n_tokens;
    }
    out->attention = total.count > 0 ? total.sum / (double)total.count : 0.0;
    hl_sampler_free(sampler);
    hl_session_close(session);
    return status;
}

/* Without the character that a limit of bytes has cut in two. */
static size_t whole_characters(const char *text, size_t n_bytes)
{
    while (n_bytes > 0 && ((unsigned char)text[n_bytes - 1] & 0xc0) == 0x80)
        n_bytes--;
    if (n_bytes > 0 && ((unsigned char)text[n_bytes - 1] & 0xc0) == 0xc0)
        n_bytes--;
    return n_bytes;
}

/* The first bytes of a plain file; 0 of anything else. */
static size_t read_beginning(char *out, const char *path)
{
    struct stat about;
    size_t      n_bytes = 0;

    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return 0;
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        n_bytes = fread(out, 1, MOST_BYTES, file);
        fclose(file);
    }
    return n_bytes == MOST_BYTES ? whole_characters(out, n_bytes) : n_bytes;
}

static hl_status measure(hl_sampling_trial *out, const hl_model *model, const hl_encoding *encoding,
                         int32_t n_threads)
{
    int64_t   n_ctx  = hl_model_get_info(model)->n_ctx;
    int64_t   most   = n_ctx > 0 && n_ctx < MOST_TOKENS ? n_ctx : MOST_TOKENS;
    int64_t   n      = (int64_t)encoding->n_tokens < most ? (int64_t)encoding->n_tokens : most;
    hl_status status = HL_OK;

    if (n == 0)
        return HL_OK;
    status = read_once(&out->before, model, encoding->ids, n, 1.0, n_threads);
    if (status == HL_OK)
        status = read_once(&out->after, model, encoding->ids, n, out->temperature, n_threads);
    out->n_tokens = status == HL_OK ? n : 0;
    return status;
}

hl_status hl_sampling_try(hl_sampling_trial *out, const char *model_path, const char *text_path,
                          double temperature, int32_t n_threads)
{
    char          text[MOST_BYTES];
    size_t        n_bytes   = read_beginning(text, text_path);
    hl_model     *model     = NULL;
    hl_tokenizer *tokenizer = NULL;
    hl_encoding  *encoding  = NULL;
    hl_status     status    = HL_OK;

    *out = (hl_sampling_trial){ .temperature = temperature };
    if (n_bytes == 0)
        return HL_OK;
    status = hl_model_open(&model, model_path);
    if (status == HL_OK && !hl_model_get_info(model)->is_encoder)
        status = hl_tokenizer_open(&tokenizer, hl_model_get_info(model)->tokenizer_path);
    if (status == HL_OK && tokenizer != NULL)
        status = hl_tokenizer_encode(&encoding, tokenizer, text, n_bytes, NULL);
    if (status == HL_OK && encoding != NULL)
        status = measure(out, model, encoding, n_threads);
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status;
}
