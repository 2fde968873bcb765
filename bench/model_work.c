/* model_work.c - opens sessions on files, feeds and times them. */
#include "model_work.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/forward.h"
#include "series.h"

enum { MAX_FILES = 32 };

/* One file: the model, and one session per mode and use, because a session that keeps last logits
 * computes them in every feed. */
typedef struct opened {
    char        path[512];
    hl_model   *model;
    hl_session *prefill[HL_MATH_COUNT];
    hl_session *decode[HL_MATH_COUNT];
} opened;

struct hl_model_work {
    int     n_threads;
    opened  files[MAX_FILES];
    int64_t tokens[HL_WORK_CTX];
    float  *logits;
    float  *hidden; /* where the tap copies to, or NULL */
    double  heard;  /* sum over the values that the tap got, so that they are read */
};

hl_status hl_model_work_new(hl_model_work **out, int n_threads)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status != HL_OK)
        return status;
    (*out)->n_threads = n_threads;
    return HL_OK;
}

static void close_file(opened *file)
{
    for (int math = 0; math < HL_MATH_COUNT; math++) {
        hl_session_close(file->prefill[math]);
        hl_session_close(file->decode[math]);
    }
    hl_model_close(file->model);
}

void hl_model_work_free(hl_model_work *work)
{
    for (int i = 0; work != NULL && i < MAX_FILES; i++)
        close_file(&work->files[i]);
    if (work != NULL)
        hl_free(work->logits);
    hl_free(work);
}

/* The file of a path; NULL if there is no room. */
static opened *file_of(hl_model_work *work, const char *path)
{
    int i = 0;

    while (i < MAX_FILES && work->files[i].path[0] != '\0' &&
           strcmp(work->files[i].path, path) != 0)
        i++;
    if (i == MAX_FILES)
        return NULL;
    snprintf(work->files[i].path, sizeof work->files[i].path, "%s", path);
    return &work->files[i];
}

static hl_status open_session(hl_session **out, hl_model_work *work, const hl_model_pass *pass)
{
    hl_status          status  = HL_OK;
    bool               decodes = pass->kind == HL_WORK_DECODE;
    opened            *file    = file_of(work, pass->path);
    hl_session_options options = { .n_ctx     = HL_WORK_CTX,
                                   .wants     = decodes ? HL_WANT_LAST_LOGITS : HL_WANT_HIDDEN,
                                   .n_threads = work->n_threads,
                                   .math      = pass->math,
                                   .repack    = !decodes };

    if (file == NULL)
        return hl_fail(HL_UNSUPPORTED, "%s: one file too many", pass->path);
    if (file->model == NULL)
        HL_TRY(hl_model_open(&file->model, pass->path));
    hl_session **session = decodes ? &file->decode[pass->math] : &file->prefill[pass->math];
    if (*session == NULL)
        HL_TRY(hl_session_open(session, file->model, &options));
    int64_t n_vocab = hl_model_get_info(file->model)->d_vocab;
    for (int64_t i = 0; i < HL_WORK_CTX; i++) /* as in bench/peers/gpt2_peer.py */
        work->tokens[i] = (i * 31337 + 17) % n_vocab;
    *out = *session;

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

static hl_tap tap_of(hl_model_work *work, const hl_model_pass *pass)
{
    hl_tap tap = { .context = work };

    if (!pass->is_plain)
        tap.layer = hear_layer;
    if (pass->kind == HL_WORK_BODY) {
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
    hl_status               status = HL_OK;
    int64_t                 n_rows = 1;

    hl_free(work->logits);
    work->logits = NULL;
    HL_TRY(HL_ALLOC(&work->logits, (size_t)head->matrix.n_rows));
    hl_linear_rows rows = { .out        = work->logits,
                            .out_stride = head->matrix.n_rows,
                            .x          = session->device->rows.x,
                            .x_stride   = head->matrix.n_columns,
                            .n_batch    = 1,
                            .batch_rows = 1,
                            .n_rows     = &n_rows };
    HL_TRY(hl_linear(&rows, &head->matrix, NULL, &session->pool));

done:
    return status;
}

hl_status hl_model_work_prefill(double *seconds, hl_model_work *work, const hl_model_pass *pass,
                                int64_t n_tokens)
{
    hl_status   status  = HL_OK;
    hl_session *session = NULL;
    hl_tap      tap     = tap_of(work, pass);
    hl_feed     feed    = { .tokens = work->tokens, .n_tokens = n_tokens, .tap = &tap };

    HL_TRY(open_session(&session, work, pass));
    HL_TRY(hl_session_rewind(session, 0, 0));
    double start = hl_bench_now();
    HL_TRY(hl_session_feed(session, &feed));
    if (pass->kind == HL_WORK_LAST)
        HL_TRY(unembed_row(work, session));
    *seconds = hl_bench_now() - start;

done:
    return status;
}

hl_status hl_model_work_decode(double *seconds, hl_model_work *work, const hl_model_pass *pass,
                               int64_t n_before, int64_t n_tokens)
{
    hl_status   status  = HL_OK;
    hl_session *session = NULL;
    hl_tap      tap     = tap_of(work, pass);
    hl_feed     feed    = { .tokens = work->tokens, .n_tokens = n_before, .tap = &tap };

    HL_TRY(open_session(&session, work, pass));
    HL_TRY(hl_session_rewind(session, 0, 0));
    HL_TRY(hl_session_feed(session, &feed));
    double start  = hl_bench_now();
    feed.n_tokens = 1;
    for (int64_t i = 0; i < n_tokens; i++) {
        feed.tokens = &work->tokens[n_before + i];
        HL_TRY(hl_session_feed(session, &feed));
    }
    *seconds = hl_bench_now() - start;

done:
    return status;
}

hl_status hl_model_work_hidden(float *out, hl_model_work *work, const char *path, int64_t n_tokens)
{
    hl_model_pass pass    = { .path = path, .math = HL_MATH_F32, .kind = HL_WORK_BODY };
    double        seconds = 0.0;

    work->hidden     = out;
    hl_status status = hl_model_work_prefill(&seconds, work, &pass, n_tokens);
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
static long measure_memory(const hl_model_pass *pass, int n_threads)
{
    hl_model_work *work    = NULL;
    long           before  = anonymous_kib();
    double         seconds = 0.0;
    size_t         cache   = 0;

    if (before == 0 || hl_model_work_new(&work, n_threads) != HL_OK ||
        hl_model_work_prefill(&seconds, work, pass, HL_WORK_CTX) != HL_OK)
        return -1;
    hl_session_bytes(file_of(work, pass->path)->prefill[pass->math], &cache);
    return anonymous_kib() - before - (long)(cache / 1024);
}

long hl_model_work_memory(const char *path, hl_math math, int n_threads)
{
    hl_model_pass pass = { .path = path, .math = math, .kind = HL_WORK_BODY };
    int           ends[2];
    long          kib = -1;

    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        kib = measure_memory(&pass, n_threads);
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
