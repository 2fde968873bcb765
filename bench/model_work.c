/* model_work.c - opens sessions on the four files, feeds and times them. */
#include "model_work.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "gpt2_files.h"
#include "model/forward.h"
#include "series.h"

/* One file: the model, and one session per use, because a session that keeps last logits computes
 * them in every feed. */
typedef struct opened {
    hl_model   *model;
    hl_session *prefill;
    hl_session *decode;
} opened;

struct hl_model_work {
    char    folder[256];
    int     n_threads;
    opened  files[HL_DTYPE_COUNT];
    int64_t tokens[HL_GPT2_CTX];
    float   logits[HL_GPT2_VOCAB];
    float  *hidden; /* where the tap copies to, or NULL */
    double  heard;  /* sum over the values that the tap got, so that they are read */
};

hl_status hl_model_work_new(hl_model_work **out, const char *folder, int n_threads)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status != HL_OK)
        return status;
    snprintf((*out)->folder, sizeof(*out)->folder, "%s", folder);
    (*out)->n_threads = n_threads;
    for (int64_t i = 0; i < HL_GPT2_CTX; i++) /* as in bench/peers/onnx_gpt2.js */
        (*out)->tokens[i] = (i * 31337 + 17) % HL_GPT2_VOCAB;
    return HL_OK;
}

void hl_model_work_free(hl_model_work *work)
{
    for (int i = 0; work != NULL && i < HL_DTYPE_COUNT; i++) {
        hl_session_close(work->files[i].prefill);
        hl_session_close(work->files[i].decode);
        hl_model_close(work->files[i].model);
    }
    hl_free(work);
}

static hl_status open_session(hl_session **session, hl_model_work *work, hl_dtype dtype,
                              uint32_t wants)
{
    hl_status          status  = HL_OK;
    opened            *file    = &work->files[dtype];
    hl_session_options options = { .n_ctx     = HL_GPT2_CTX,
                                   .wants     = wants,
                                   .n_threads = work->n_threads };
    char               path[512];

    if (*session != NULL)
        return HL_OK;
    hl_gpt2_file(path, sizeof path, work->folder, dtype);
    if (file->model == NULL)
        HL_TRY(hl_model_open(&file->model, path));
    HL_TRY(hl_session_open(session, file->model, &options));

done:
    return status;
}

/* ----------------------------------------------------------------------- tap */

static hl_status hear_layer(void *context, const hl_layer_rows *rows)
{
    hl_model_work *work = context;

    work->heard += (double)rows->rows->entropy[rows->n_rows - 1];
    return HL_OK;
}

static hl_status hear_final(void *context, const hl_final_rows *rows)
{
    hl_model_work *work = context;

    work->heard += (double)rows->hidden[0];
    if (work->hidden != NULL)
        memcpy(work->hidden + rows->start * rows->d_model, rows->hidden,
               (size_t)(rows->n_rows * rows->d_model) * sizeof(float));
    return HL_OK;
}

static hl_tap tap_of(hl_model_work *work, hl_pass pass)
{
    hl_tap tap = { .context = work };

    if (pass != HL_PASS_PLAIN)
        tap.layer = hear_layer;
    if (pass != HL_PASS_LAST) {
        tap.final = hear_final;
        tap.wants = HL_WANT_HIDDEN;
    }
    return tap;
}

/* ------------------------------------------------------------------- passes */

/* Unembeds one row; the choice of the row does not affect the time. */
static hl_status unembed_row(hl_model_work *work, const hl_session *session)
{
    const hl_session_param *head   = hl_session_param_of(session, HL_ROLE_LM_HEAD, -1, 0);
    int64_t                 n_rows = 1;
    hl_linear_rows          rows   = { .out        = work->logits,
                                       .out_stride = head->matrix.n_rows,
                                       .x          = session->device->rows.x,
                                       .x_stride   = head->matrix.n_columns,
                                       .n_batch    = 1,
                                       .batch_rows = 1,
                                       .n_rows     = &n_rows };

    return hl_linear(&rows, &head->matrix, NULL, &session->pool);
}

hl_status hl_model_work_prefill(double *seconds, hl_model_work *work, hl_dtype dtype, hl_pass pass,
                                int64_t n_tokens)
{
    hl_status status = HL_OK;
    opened   *file   = &work->files[dtype];
    hl_tap    tap    = tap_of(work, pass);
    hl_feed   feed   = { .tokens = work->tokens, .n_tokens = n_tokens, .tap = &tap };

    HL_TRY(open_session(&file->prefill, work, dtype, HL_WANT_HIDDEN));
    HL_TRY(hl_session_rewind(file->prefill, 0, 0));
    double start = hl_bench_now();
    HL_TRY(hl_session_feed(file->prefill, &feed));
    if (pass == HL_PASS_LAST)
        HL_TRY(unembed_row(work, file->prefill));
    *seconds = hl_bench_now() - start;

done:
    return status;
}

hl_status hl_model_work_decode(double *seconds, hl_model_work *work, hl_dtype dtype,
                               int64_t n_before, int64_t n_tokens)
{
    hl_status status = HL_OK;
    opened   *file   = &work->files[dtype];
    hl_tap    tap    = tap_of(work, HL_PASS_LAST);
    hl_feed   feed   = { .tokens = work->tokens, .n_tokens = n_before, .tap = &tap };

    HL_TRY(open_session(&file->decode, work, dtype, HL_WANT_LAST_LOGITS));
    HL_TRY(hl_session_rewind(file->decode, 0, 0));
    HL_TRY(hl_session_feed(file->decode, &feed));
    double start  = hl_bench_now();
    feed.n_tokens = 1;
    for (int64_t i = 0; i < n_tokens; i++) {
        feed.tokens = &work->tokens[n_before + i];
        HL_TRY(hl_session_feed(file->decode, &feed));
    }
    *seconds = hl_bench_now() - start;

done:
    return status;
}

hl_status hl_model_work_hidden(float *out, hl_model_work *work, int64_t n_tokens)
{
    double seconds = 0.0;

    work->hidden     = out;
    hl_status status = hl_model_work_prefill(&seconds, work, HL_DTYPE_F32, HL_PASS_ALL, n_tokens);
    work->hidden     = NULL;
    return status;
}

/* ------------------------------------------------------------------- memory */

/* Memory of this process that is not mapped from files, in KiB. */
static long anonymous_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char  line[256];
    long  kib = 0;

    while (file != NULL && kib == 0 && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "RssAnon: %ld", &kib);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* Runs in the child.  A session releases nothing before it is closed, so its memory after the pass
 * is the maximum. */
static long measure_memory(const char *folder, hl_dtype dtype, int n_threads)
{
    hl_model_work *work    = NULL;
    long           before  = anonymous_kib();
    double         seconds = 0.0;
    size_t         cache   = 0;

    if (before == 0 || hl_model_work_new(&work, folder, n_threads) != HL_OK ||
        hl_model_work_prefill(&seconds, work, dtype, HL_PASS_ALL, HL_GPT2_CTX) != HL_OK)
        return -1;
    hl_session_bytes(work->files[dtype].prefill, &cache);
    return anonymous_kib() - before - (long)(cache / 1024);
}

long hl_model_work_memory(const char *folder, hl_dtype dtype, int n_threads)
{
    int  ends[2];
    long kib = -1;

    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        kib = measure_memory(folder, dtype, n_threads);
        _exit(write(ends[1], &kib, sizeof kib) == (ssize_t)sizeof kib ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &kib, sizeof kib) != (ssize_t)sizeof kib)
        kib = -1;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return kib;
}
