/* linear.c - panels for long sequences, dot products for short ones.
 *
 * W's rows are cut into panels.  If there are few panels, long sequences are also cut into blocks
 * of rows.  Threads take pairs of a panel and a block as they become free.  A thread multiplies its
 * panel with all sequences: long ones by packed strips of it where the back end has them, else by
 * hl_gemm on the panel as f32 (in place, if it is stored as f32), short ones by dot products on the
 * stored type.  The bounds of panels do not change dot products or packed ones; for hl_gemm they
 * depend on the matrix alone.  Contiguous short sequences, as when many
 * texts are decoded, are multiplied as one: each part of W is then read once for all. */
#include "kernels/linear.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"

enum {
    MAX_PANEL      = 384, /* largest number of rows of W per panel */
    MIN_PANEL      = HL_STRIP,
    PANEL_FLOATS   = 2048 * 1024, /* fewer, if a thread would need more floats than this */
    ROW_BLOCK      = 256,         /* rows of x per block */
    MANY_PANELS    = 16,          /* with at least this many panels, x is not cut into blocks */
    FEW_PANEL      = 512,         /* rows of W per call of dot products */
    FEW_BYTES      = 1 << 20,     /* bytes of W that a thread takes at a time if no panel is made */
    FEW_STEP       = 8,           /* a thread takes a multiple of this many rows */
    SHARES_EACH    = 4,           /* each thread takes rows at least this many times */
    ALONE_PRODUCTS = 64 * 1024,
    LINE_FLOATS    = 16, /* floats of a cache line */
    ROUND_ROWS     = 8,  /* rows of x that a thread rounds at a time */
};

static int64_t panel_rows(const hl_matrix *matrix)
{
    int64_t n_rows = PANEL_FLOATS / (matrix->n_columns + 1) / MIN_PANEL * MIN_PANEL;

    n_rows = n_rows > MAX_PANEL ? MAX_PANEL : n_rows;
    return n_rows < MIN_PANEL ? MIN_PANEL : n_rows;
}

int64_t hl_linear_scratch(const hl_matrix *matrix)
{
    const hl_kernels *kernels = NULL;
    int64_t           panel   = (panel_rows(matrix) + 1) * matrix->n_columns;
    int64_t           strip =
        (HL_STRIP + 1) * matrix->n_columns + LINE_FLOATS + hl_packed_floats(matrix->n_columns);
    bool is_packed = hl_kernels_current(&kernels) == HL_OK && kernels->packed != NULL;

    return is_packed || strip > panel ? strip : panel;
}

/* Rows per panel where scratch was made for strips and another back end has been selected since. */
static int64_t panel_rows_in(const hl_linear_pool *pool, const hl_matrix *matrix)
{
    int64_t most = pool->thread_floats / matrix->n_columns - 1;
    int64_t rows = panel_rows(matrix);

    return rows < most ? rows : most;
}

/* -------------------------------------------------------------------- panels */

typedef struct linear_task {
    const hl_linear_rows *rows;
    const hl_matrix      *matrix;
    const float          *bias;
    const hl_kernels     *kernels;
    const hl_linear_low  *low;      /* x as it was rounded, or NULL */
    bool                  together; /* all sequences have few rows and are contiguous */
    int64_t               width;    /* rows of W per panel */
    int64_t               height;   /* rows of x per block */
    int64_t               n_panels;
    int64_t               n_shares; /* panels times blocks */
} linear_task;

/* Rows of x that are multiplied together, from one sequence or from all. */
typedef struct row_range {
    int64_t first;
    int64_t n;
} row_range;

/* Rows [begin, end) of W. */
typedef struct panel {
    int64_t      begin;
    int64_t      end;
    float       *scratch; /* scratch for the panel */
    float       *row;     /* scratch for one row */
    const float *values;  /* NULL until they are converted */
    int64_t      stride;  /* the distance of its rows or, in a transposed panel, of its columns */
} panel;

static bool is_aligned(const hl_matrix *matrix)
{
    size_t size = hl_dtype_bits(matrix->dtype) / 8;
    return size > 0 && (uintptr_t)matrix->data % size == 0;
}

/* Whether the stored bytes can be used in place, as elements of their type. */
static bool is_direct(const hl_matrix *matrix)
{
    return matrix->scales == NULL && is_aligned(matrix) &&
           (matrix->dtype == HL_DTYPE_F32 || matrix->dtype == HL_DTYPE_F16 ||
            matrix->dtype == HL_DTYPE_BF16);
}

static hl_status make_panel(panel *p, const hl_matrix *matrix)
{
    hl_status status = HL_OK;

    if (p->values != NULL)
        return HL_OK;
    p->values = p->scratch;
    p->stride = matrix->transposed ? p->end - p->begin : matrix->n_columns;
    if (matrix->dtype == HL_DTYPE_F32 && is_direct(matrix) &&
        hl_matrix_run(matrix, p->begin) >= p->end - p->begin) {
        p->values = (const float *)(const void *)hl_matrix_at(matrix, p->begin);
        p->stride = matrix->transposed ? matrix->n_stored : matrix->n_columns;
        return HL_OK;
    }
    if (matrix->transposed)
        return hl_matrix_read_part(p->scratch, matrix, p->begin, p->end);
    for (int64_t row = p->begin; row < p->end && status == HL_OK; row++)
        status = hl_matrix_read_row(p->scratch + (row - p->begin) * p->stride, matrix, row);
    return status;
}

static void multiply_panel(const linear_task *task, const panel *p, row_range range)
{
    const hl_linear_rows *rows = task->rows;

    hl_gemm(&(hl_gemm_operands){
        .c            = rows->out + range.first * rows->out_stride + p->begin,
        .c_stride     = rows->out_stride,
        .a            = rows->x + range.first * rows->x_stride,
        .a_stride     = rows->x_stride,
        .b            = p->values,
        .b_stride     = p->stride,
        .b_transposed = !task->matrix->transposed,
        .m            = range.n,
        .n            = p->end - p->begin,
        .k            = task->matrix->n_columns,
    });
}

/* ------------------------------------------------------------------ few rows */

/* Whether dot products can read rows as they are stored. */
static bool has_dot(const hl_matrix *matrix)
{
    return is_direct(matrix) || (matrix->scales == NULL && hl_dtype_is_block(matrix->dtype));
}

/* Like dot_rows, with x in 8 bits. */
static void dot_int8(const linear_task *task, row_range range, int64_t row, int64_t n,
                     const void *const *w)
{
    const hl_linear_rows *rows      = task->rows;
    int64_t               n_columns = task->matrix->n_columns;
    int64_t               first     = range.first * n_columns;

    task->kernels->int8_dot(&(hl_int8_dot){
        .out        = rows->out + range.first * rows->out_stride + row,
        .out_stride = rows->out_stride,
        .q          = task->low->q + first,
        .scales     = task->low->scales + first / HL_INT8_BLOCK,
        .sums       = task->low->sums + first / HL_INT8_BLOCK,
        .n_rows     = range.n,
        .w          = w,
        .dtype      = task->matrix->dtype,
        .n_weights  = n,
        .n          = n_columns,
    });
}

/* Multiplies with rows [row, row + n) of W, which lie at `w`; n <= FEW_PANEL. */
static void dot_rows(const linear_task *task, row_range range, int64_t row, int64_t n,
                     const void *const *w, hl_dtype dtype)
{
    const hl_linear_rows *rows = task->rows;

    task->kernels->dense->dot(&(hl_dot){
        .out        = rows->out + range.first * rows->out_stride + row,
        .out_stride = rows->out_stride,
        .x          = rows->x + range.first * rows->x_stride,
        .x_stride   = rows->x_stride,
        .n_rows     = range.n,
        .w          = w,
        .dtype      = dtype,
        .n_weights  = n,
        .n          = task->matrix->n_columns,
    });
}

/* Finds the addresses of rows [row, row + n). */
static void find_rows(const void **w, const hl_matrix *matrix, int64_t row, int64_t n)
{
    size_t step = hl_matrix_bytes(matrix, matrix->n_columns);

    for (int64_t i = 0, run; i < n; i += run) {
        const uint8_t *first = hl_matrix_at(matrix, row + i);

        run = hl_matrix_run(matrix, row + i);
        run = run < n - i ? run : n - i;
        for (int64_t k = 0; k < run; k++)
            w[i + k] = first + (size_t)k * step;
    }
}

/* -------------------------------------------------------------------- strips */

/* The mode of long sequences with this matrix, where `wanted` is asked for. */
static hl_math long_math(const hl_kernels *kernels, const hl_matrix *matrix, hl_math wanted)
{
    const hl_packed *packed = kernels->packed;

    if (wanted <= HL_MATH_F32 || !packed->has(wanted))
        return HL_MATH_F32;
    if (wanted == HL_MATH_INT8 && (matrix->scales != NULL || !packed->has_type(matrix->dtype)))
        return HL_MATH_F32;
    return wanted;
}

static hl_math strip_math(const linear_task *task)
{
    return long_math(task->kernels, task->matrix,
                     task->low != NULL ? task->low->math : HL_MATH_F32);
}

/* Packs rows [begin, end) of W, at most HL_STRIP, at `room`; their floats pass through scratch. */
static hl_status pack_strip(hl_strip *out, float *room, const linear_task *task, const panel *p)
{
    const hl_matrix *matrix = task->matrix;
    const hl_packed *packed = task->kernels->packed;
    int64_t          k = matrix->n_columns, n = p->end - p->begin;
    hl_math          math   = strip_math(task);
    const float     *values = p->scratch;
    int64_t          stride = matrix->transposed ? n : k;

    if (math == HL_MATH_INT8) {
        const void *w[HL_STRIP];
        find_rows(w, matrix, p->begin, n);
        packed->blocks(out, room, w, matrix->dtype, n, k);
        return HL_OK;
    }
    if (matrix->dtype == HL_DTYPE_F32 && is_direct(matrix) &&
        hl_matrix_run(matrix, p->begin) >= n) {
        values = (const float *)(const void *)hl_matrix_at(matrix, p->begin);
        stride = matrix->transposed ? matrix->n_stored : k;
    } else if (matrix->transposed) {
        HL_NEED(hl_matrix_read_part(p->scratch, matrix, p->begin, p->end));
    } else {
        for (int64_t row = 0; row < n; row++)
            HL_NEED(hl_matrix_read_row(p->scratch + row * k, matrix, p->begin + row));
    }
    (matrix->transposed ? packed->columns : packed->rows)(out, room, values, stride, n, k, math);
    return HL_OK;
}

/* Takes a strip of the copy, or packs it behind the room for its floats in scratch. */
static hl_status get_strip(hl_strip *out, const linear_task *task, const panel *p)
{
    const hl_repacked *copy = task->matrix->repacked;
    int64_t            k    = task->matrix->n_columns;
    uintptr_t          end  = (uintptr_t)(p->scratch + HL_STRIP * k);
    float             *room = p->scratch + HL_STRIP * k + (64 - end % 64) % 64 / sizeof(float);

    if (copy != NULL && copy->is_made && copy->math == strip_math(task)) {
        *out = copy->strips[p->begin / HL_STRIP];
        return HL_OK;
    }
    return pack_strip(out, room, task, p);
}

static void multiply_strip(const linear_task *task, int64_t begin, row_range range,
                           const hl_strip *strip)
{
    const hl_linear_rows *rows = task->rows;
    const hl_linear_low  *low  = task->low;
    int64_t               k    = strip->k;
    hl_packed_x           x    = { .m      = range.n,
                                   .stride = rows->x_stride,
                                   .f32    = rows->x + range.first * rows->x_stride };

    if (strip->math == HL_MATH_BF16)
        x.bf16 = low->bf16 + range.first * (k + k % 2);
    if (strip->math == HL_MATH_INT8) {
        x.q      = low->q + range.first * k;
        x.scales = low->scales + range.first * (k / HL_INT8_BLOCK);
        x.sums   = low->run_sums + range.first * (k / HL_INT8_RUN);
    }
    task->kernels->packed->multiply(rows->out + range.first * rows->out_stride + begin,
                                    rows->out_stride, &x, strip);
}

/* Whether few rows are multiplied in 8 bits. */
static bool takes_dot_int8(const linear_task *task)
{
    return task->low != NULL && task->low->math == HL_MATH_INT8 &&
           task->kernels->int8_dot != NULL && hl_int8_has(task->matrix->dtype);
}

/* Puts n products, which are in the order of the stored rows, in the order of W's rows. */
static void order_pairs(float *out, int64_t n, int64_t pairs)
{
    float head[FEW_PANEL];

    for (float *end = out + n; out < end; out += pairs) {
        memcpy(head, out, (size_t)pairs * sizeof *head);
        for (int64_t i = 0; i < pairs / 2; i++) {
            out[i]             = head[2 * i];
            out[pairs / 2 + i] = head[2 * i + 1];
        }
    }
}

/* Whether the rows of a panel are whole heads whose rotary pairs are stored side by side.  They are
 * then read as they are stored: memory is faster in order. */
static bool has_whole_pairs(const hl_matrix *matrix, const panel *p)
{
    int64_t pairs = matrix->pairs;

    return pairs > 1 && pairs % 2 == 0 && pairs <= FEW_PANEL && p->begin % pairs == 0 &&
           (p->end - p->begin) % pairs == 0;
}

static void dot_stored(const linear_task *task, const panel *p, row_range range)
{
    const hl_linear_rows *rows   = task->rows;
    hl_matrix             stored = *task->matrix;
    int64_t               step   = FEW_PANEL;
    bool                  orders = has_whole_pairs(&stored, p);

    if (orders) {
        step         = FEW_PANEL / stored.pairs * stored.pairs;
        stored.pairs = 0;
    }
    for (int64_t row = p->begin; row < p->end; row += step) {
        int64_t     n = p->end - row < step ? p->end - row : step;
        const void *w[FEW_PANEL];

        find_rows(w, &stored, row, n);
        if (takes_dot_int8(task))
            dot_int8(task, range, row, n, w);
        else
            dot_rows(task, range, row, n, w, stored.dtype);
        for (int64_t i = 0; i < range.n && orders; i++)
            order_pairs(rows->out + (range.first + i) * rows->out_stride + row, n,
                        task->matrix->pairs);
    }
}

static hl_status dot_panel(const linear_task *task, const panel *p, row_range range)
{
    const void *w = p->row;

    if (has_dot(task->matrix)) {
        dot_stored(task, p, range);
        return HL_OK;
    }
    for (int64_t row = p->begin; row < p->end; row++) {
        HL_NEED(hl_matrix_read_row(p->row, task->matrix, row));
        dot_rows(task, range, row, 1, &w, HL_DTYPE_F32);
    }
    return HL_OK;
}

/* Multiplies with rows [begin, begin + n) of W, which are stored side by side. */
static void combine_run(const linear_task *task, row_range range, int64_t begin, int64_t n)
{
    const hl_linear_rows *rows = task->rows;
    float                *out  = rows->out + range.first * rows->out_stride + begin;

    for (int64_t i = 0; i < range.n; i++)
        memset(out + i * rows->out_stride, 0, (size_t)n * sizeof *out);
    task->kernels->dense->combine(&(hl_combine){
        .out        = out,
        .out_stride = rows->out_stride,
        .x          = rows->x + range.first * rows->x_stride,
        .x_stride   = rows->x_stride,
        .n_outs     = range.n,
        .n_rows     = task->matrix->n_columns,
        .w          = hl_matrix_at(task->matrix, begin),
        .w_stride   = task->matrix->n_stored,
        .dtype      = task->matrix->dtype,
        .n          = n,
    });
}

static void combine_panel(const linear_task *task, const panel *p, row_range range)
{
    for (int64_t begin = p->begin, n; begin < p->end; begin += n) {
        n = hl_matrix_run(task->matrix, begin);
        n = n > p->end - begin ? p->end - begin : n;
        combine_run(task, range, begin, n);
    }
}

/* --------------------------------------------------------------------- whole */

static void add_bias(const linear_task *task, const panel *p, row_range range)
{
    const hl_linear_rows *rows = task->rows;

    if (task->bias == NULL)
        return;
    for (int64_t i = 0; i < range.n; i++) {
        float *out = rows->out + (range.first + i) * rows->out_stride;
        for (int64_t j = p->begin; j < p->end; j++)
            out[j] += task->bias[j];
    }
}

/* Rows of x that take dot products. */
static hl_status run_few(const linear_task *task, const panel *p, row_range range)
{
    if (task->matrix->transposed)
        combine_panel(task, p, range);
    else
        HL_NEED(dot_panel(task, p, range));
    add_bias(task, p, range);
    return HL_OK;
}

/* The rows of a sequence in one block of x; n <= 0 if there are none. */
static row_range rows_in_block(const linear_task *task, int64_t sequence, int64_t block)
{
    int64_t first = block * task->height;
    int64_t left  = task->rows->n_rows[sequence] - first;

    return (row_range){ sequence * task->rows->batch_rows + first,
                        left < task->height ? left : task->height };
}

/* Whether a sequence takes dot products.  A transposed matrix that cannot be read in place does
 * not. */
static bool is_few(const linear_task *task, int64_t sequence)
{
    return task->rows->n_rows[sequence] <= HL_LINEAR_FEW_ROWS &&
           (!task->matrix->transposed || is_direct(task->matrix));
}

/* Multiplies the long sequences with a strip, or with the panel if `strip` is NULL. */
static void run_many(const linear_task *task, const panel *p, int64_t block, const hl_strip *strip)
{
    for (int64_t sequence = 0; sequence < task->rows->n_batch; sequence++) {
        row_range range = rows_in_block(task, sequence, block);

        if (range.n <= 0 || is_few(task, sequence))
            continue;
        if (strip != NULL) {
            multiply_strip(task, p->begin, range, strip);
            continue;
        }
        multiply_panel(task, p, range);
        add_bias(task, p, range);
    }
}

static hl_status run_strips(const linear_task *task, const panel *p, int64_t block)
{
    panel    part = *p;
    hl_strip strip;

    for (int64_t begin = p->begin; begin < p->end; begin += HL_STRIP) {
        part.begin = begin;
        part.end   = p->end - begin < HL_STRIP ? p->end : begin + HL_STRIP;
        HL_NEED(get_strip(&strip, task, &part));
        strip.bias = task->bias != NULL ? task->bias + part.begin : NULL;
        run_many(task, &part, block, &strip);
    }
    return HL_OK;
}

/* Multiplies a panel with one block of rows of every sequence.  A short sequence is multiplied
 * whole, with the first block. */
static hl_status run_panel(const linear_task *task, panel *p, int64_t block)
{
    const hl_linear_rows *rows    = task->rows;
    bool                  is_long = false;

    if (task->together)
        return run_few(task, p, (row_range){ 0, rows->n_batch * rows->batch_rows });
    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++) {
        row_range range = rows_in_block(task, sequence, block);

        if (range.n > 0 && is_few(task, sequence))
            HL_NEED(run_few(task, p, range));
        else
            is_long = is_long || range.n > 0;
    }
    if (!is_long)
        return HL_OK;
    if (task->kernels->packed != NULL)
        return run_strips(task, p, block);
    HL_NEED(make_panel(p, task->matrix));
    run_many(task, p, block, NULL);
    return HL_OK;
}

/* Whether all sequences can be multiplied as one, so that W is read once: each has few rows and no
 * padding, and the products do not depend on the number of rows. */
static bool is_together(const hl_linear_rows *rows, const hl_matrix *matrix)
{
    if (rows->batch_rows > HL_LINEAR_FEW_ROWS || (matrix->transposed && !is_direct(matrix)))
        return false;
    for (int64_t i = 0; i < rows->n_batch; i++) {
        if (rows->n_rows[i] != rows->batch_rows)
            return false;
    }
    return rows->batch_rows > 0;
}

static bool all_few(const hl_linear_rows *rows)
{
    for (int64_t i = 0; i < rows->n_batch; i++) {
        if (rows->n_rows[i] > HL_LINEAR_FEW_ROWS)
            return false;
    }
    return true;
}

/* Rows of W that a thread takes at a time if no panel is made: few enough that every thread gets
 * some, enough that taking them costs little. */
static int64_t few_share(const hl_matrix *matrix, int n_threads)
{
    int64_t most  = FEW_BYTES / ((int64_t)hl_matrix_bytes(matrix, matrix->n_columns) + 1);
    int64_t share = matrix->n_rows / (SHARES_EACH * n_threads);
    int64_t step  = matrix->pairs > FEW_STEP ? matrix->pairs : FEW_STEP; /* whole heads */

    share = share < most ? share : most;
    return share / step * step + step;
}

/* Whole strips: enough shares that every thread gets some, so that x is not cut. */
static int64_t strips_share(const hl_matrix *matrix)
{
    int64_t rows = (matrix->n_rows / MANY_PANELS + HL_STRIP - 1) / HL_STRIP * HL_STRIP;

    return rows < HL_STRIP ? HL_STRIP : (rows > MAX_PANEL ? MAX_PANEL : rows);
}

/* How many rows of W a thread takes at a time.  With few rows of x the results do not depend on it;
 * with many, it must not depend on the number of threads. */
static int64_t share_of(const hl_linear_rows *rows, const hl_matrix *matrix,
                        const hl_linear_pool *pool, bool is_packed)
{
    int n_threads = pool->n_threads;

    if (!all_few(rows) || (matrix->transposed && !is_direct(matrix)))
        return is_packed ? strips_share(matrix) : panel_rows_in(pool, matrix);
    /* Rows of a transposed matrix are columns in memory: larger shares read longer runs. */
    if (matrix->transposed)
        return (matrix->n_rows / n_threads + FEW_PANEL) / FEW_PANEL * FEW_PANEL;
    return few_share(matrix, n_threads);
}

static int64_t longest(const hl_linear_rows *rows)
{
    int64_t most = 1;

    for (int64_t i = 0; i < rows->n_batch; i++)
        most = rows->n_rows[i] > most ? rows->n_rows[i] : most;
    return most;
}

/* The height of a block.  Few panels occupy few threads, so x is cut too, by the matrix alone. */
static int64_t block_rows(const hl_linear_rows *rows, int64_t n_panels)
{
    return all_few(rows) || n_panels >= MANY_PANELS ? longest(rows) : ROW_BLOCK;
}

/* The number of multiplications for all rows. */
static int64_t count_work(const hl_linear_rows *rows, const hl_matrix *matrix)
{
    int64_t n_rows = 0;

    for (int64_t i = 0; i < rows->n_batch; i++)
        n_rows += rows->n_rows[i];
    return n_rows * matrix->n_rows * matrix->n_columns;
}

/* Runs share `index` of the task: one panel with one block of x. */
static hl_status run_share(const linear_task *task, int64_t index, const hl_linear_pool *pool,
                           int member)
{
    int64_t number  = index % task->n_panels;
    int64_t end     = (number + 1) * task->width;
    float  *scratch = pool->scratch + member * pool->thread_floats;
    panel   p       = { .begin   = number * task->width,
                        .end     = end < task->matrix->n_rows ? end : task->matrix->n_rows,
                        .scratch = scratch,
                        .row     = scratch + pool->thread_floats - task->matrix->n_columns };

    return run_panel(task, &p, index / task->n_panels);
}

/* ------------------------------------------------------------------- threads */

/* All tasks of a call.  Their shares are numbered consecutively. */
typedef struct linear_job {
    linear_task           tasks[HL_LINEAR_PRODUCTS];
    int64_t               n_shares;
    int64_t               work;    /* number of multiplications */
    bool                  all_few; /* true if it holds in every task */
    bool                  is_rounded;
    const hl_linear_pool *pool;
    _Atomic(int)          failure; /* HL_OK, or how a thread failed */
    _Atomic(int)          failed;  /* the dtype of the task that failed */
} linear_job;

static void note_failure(linear_job *job, const linear_task *task, hl_status status)
{
    if (status != HL_OK) {
        atomic_store(&job->failure, (int)status);
        atomic_store(&job->failed, (int)task->matrix->dtype);
    }
}

static void run_index(linear_job *job, int64_t index, int member)
{
    const linear_task *task = job->tasks;

    while (index >= task->n_shares) {
        index -= task->n_shares;
        task++;
    }
    note_failure(job, task, run_share(task, index, job->pool, member));
}

static void run_some(void *context, int64_t first, int64_t end, int member)
{
    for (int64_t i = first; i < end; i++)
        run_index(context, i, member);
}

static void run_job(linear_job *job)
{
    /* For less work, waking other threads takes longer than the work itself. */
    int n_threads = job->work < ALONE_PRODUCTS ? 1 : job->pool->n_threads;

    hl_parallel(n_threads, job->n_shares, 1, run_some, job);
}

/* ------------------------------------------------------------------- the copy */

int64_t hl_repacked_floats(int64_t *n_strips, hl_math *math, const hl_matrix *matrix,
                           hl_math wanted)
{
    const hl_kernels *kernels = NULL;

    *n_strips = 0;
    if (hl_kernels_current(&kernels) != HL_OK || kernels->packed == NULL)
        return 0;
    *math     = long_math(kernels, matrix, wanted);
    *n_strips = (matrix->n_rows + HL_STRIP - 1) / HL_STRIP;
    return *n_strips * hl_packed_floats_of(matrix->n_columns, *math);
}

typedef struct repacking {
    linear_job        *job;
    const linear_task *task;
} repacking;

static void repack_some(void *context, int64_t first, int64_t end, int member)
{
    const repacking *r      = context;
    const hl_matrix *matrix = r->task->matrix;
    hl_repacked     *copy   = matrix->repacked;
    int64_t          floats = hl_packed_floats_of(matrix->n_columns, copy->math);

    for (int64_t i = first; i < end; i++) {
        int64_t begin = i * HL_STRIP, left = matrix->n_rows - begin;
        panel   p = { .begin   = begin,
                      .end     = begin + (left < HL_STRIP ? left : HL_STRIP),
                      .scratch = r->job->pool->scratch + member * r->job->pool->thread_floats };
        note_failure(r->job, r->task,
                     pack_strip(&copy->strips[i], copy->room + i * floats, r->task, &p));
    }
}

/* Makes copies for tasks with many rows, when it is time. */
static void repack(linear_job *job, int n_tasks)
{
    for (int i = 0; i < n_tasks; i++) {
        const linear_task *task = &job->tasks[i];
        hl_repacked       *copy = task->matrix->repacked;

        if (copy == NULL || copy->is_made || task->kernels->packed == NULL || all_few(task->rows) ||
            copy->math != strip_math(task) || copy->n_products++ < HL_REPACK_AFTER)
            continue;
        hl_parallel(job->pool->n_threads, (task->matrix->n_rows + HL_STRIP - 1) / HL_STRIP, 1,
                    repack_some, &(repacking){ job, task });
        copy->is_made = atomic_load(&job->failure) == HL_OK;
    }
}

/* Whether x is rounded for this product, and there is room for it. */
static bool takes_low(const hl_linear_product *product, const hl_kernels *kernels,
                      const hl_linear_pool *pool)
{
    const hl_matrix      *matrix = product->matrix;
    const hl_linear_rows *rows   = &product->rows;
    const hl_packed      *packed = kernels->packed;
    int64_t needed = rows->n_batch * rows->batch_rows * (matrix->n_columns + matrix->n_columns % 2);

    if (pool->low == NULL || needed > pool->low->n_values)
        return false;
    if (pool->low->math == HL_MATH_BF16)
        return packed != NULL && packed->has(HL_MATH_BF16) && !all_few(rows);
    if (matrix->scales != NULL)
        return false;
    if (all_few(rows) || packed == NULL || !packed->has(HL_MATH_INT8))
        return kernels->int8_dot != NULL && hl_int8_has(matrix->dtype);
    return packed->has_type(matrix->dtype);
}

/* Rows of x that are rounded. */
typedef struct rounding {
    const hl_linear_low  *low;
    const hl_linear_rows *rows;
    const hl_packed      *packed;
    int64_t               n_columns;
} rounding;

static void round_some(void *context, int64_t first, int64_t end, int member)
{
    const rounding      *r   = context;
    const hl_linear_low *low = r->low;
    int64_t              n   = r->n_columns;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        const float *x = r->rows->x + row * r->rows->x_stride;

        if (row % r->rows->batch_rows >= r->rows->n_rows[row / r->rows->batch_rows])
            continue;
        if (low->math == HL_MATH_BF16)
            r->packed->round(low->bf16 + row * (n + n % 2), x, n);
        else
            hl_int8_quantize(low->q + row * n, low->scales + row * (n / HL_INT8_BLOCK),
                             low->sums + row * (n / HL_INT8_BLOCK),
                             low->run_sums + row * (n / HL_INT8_RUN), x, n);
    }
}

static void round_rows(const hl_linear_pool *pool, const hl_linear_rows *rows,
                       const hl_packed *packed, int64_t n_columns)
{
    rounding r      = { pool->low, rows, packed, n_columns };
    int64_t  n_rows = rows->n_batch * rows->batch_rows;

    hl_parallel(n_rows <= HL_LINEAR_FEW_ROWS ? 1 : pool->n_threads, n_rows, ROUND_ROWS, round_some,
                &r);
}

static void add_task(linear_job *job, linear_task *task, const hl_linear_product *product,
                     const hl_kernels *kernels)
{
    const hl_matrix *matrix = product->matrix;
    int64_t          width  = share_of(&product->rows, matrix, job->pool, kernels->packed != NULL);
    int64_t          panels = (matrix->n_rows + width - 1) / width;
    int64_t          height = block_rows(&product->rows, panels);
    int64_t          blocks = (longest(&product->rows) + height - 1) / height;

    *task = (linear_task){ .rows     = &product->rows,
                           .matrix   = matrix,
                           .bias     = product->bias,
                           .kernels  = kernels,
                           .together = is_together(&product->rows, matrix),
                           .width    = width,
                           .height   = height,
                           .n_panels = panels,
                           .n_shares = panels * blocks };
    if (takes_low(product, kernels, job->pool)) {
        if (!job->is_rounded)
            round_rows(job->pool, &product->rows, kernels->packed, matrix->n_columns);
        job->is_rounded = true;
        task->low       = job->pool->low;
    }
    job->n_shares += task->n_shares;
    job->work += count_work(&product->rows, matrix);
    job->all_few = job->all_few && all_few(&product->rows);
}

hl_status hl_linear_all(const hl_linear_product *products, int n_products,
                        const hl_linear_pool *pool)
{
    linear_job        job     = { .pool = pool, .all_few = true };
    const hl_kernels *kernels = NULL;

    HL_NEED(hl_kernels_current(&kernels));
    assert(n_products <= HL_LINEAR_PRODUCTS);
    for (int i = 0; i < n_products; i++) {
        assert(products[i].rows.x == products[0].rows.x);
        add_task(&job, &job.tasks[i], &products[i], kernels);
    }
    repack(&job, n_products);
    run_job(&job);
    if (atomic_load(&job.failure) != HL_OK) /* reported here, because messages belong to a thread */
        return hl_fail((hl_status)atomic_load(&job.failure), "a weight of type %s cannot be read",
                       hl_dtype_name((hl_dtype)atomic_load(&job.failed)));
    return HL_OK;
}

hl_status hl_linear(const hl_linear_rows *rows, const hl_matrix *matrix, const float *bias,
                    const hl_linear_pool *pool)
{
    return hl_linear_all(&(hl_linear_product){ *rows, matrix, bias }, 1, pool);
}
