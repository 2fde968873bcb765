/* least_squares.c - sums of products in tiles, a Cholesky factor, and what its solution leaves.
 *
 * At the minimum D (G + lambda) = C; with a bias, G and C are centered.  Without one,
 *
 *     sum |D z + b - r|^2 = sum |r|^2 - <C, D> - lambda |D|^2
 *
 * and with one, sum |r|^2 is centered too.  For D + E, the error is larger by
 * tr(E Z'Z E') - 2 lambda <E, D>. */
#include "prune/least_squares.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"

enum { PANEL_ROWS = 256, TILE = 128, RIDGE_OUTPUTS = 128, MOST_RIDGES = 8 };

size_t hl_squares_bytes(int64_t n_in, int64_t n_out)
{
    size_t a = (size_t)n_in, b = (size_t)n_out;

    return (2 * a * a + 2 * a * b + a + 3 * b + PANEL_ROWS * (a + b)) * sizeof(double);
}

hl_status hl_squares_new(hl_squares **out, int64_t n_in, int64_t n_out, int n_threads)
{
    HL_CLOSED(hl_squares_free) hl_squares *s = NULL;
    size_t                                 a = (size_t)n_in, b = (size_t)n_out;

    *out = NULL;
    HL_NEED(hl_lapack_check());
    HL_NEED(HL_ALLOC_ZEROED(&s, 1));
    *s = (hl_squares){ .n_in = n_in, .n_out = n_out, .n_threads = n_threads };
    HL_NEED(hl_alloc_zeroed((void **)&s->gram, a, a * sizeof *s->gram));
    HL_NEED(hl_alloc((void **)&s->factor, a, a * sizeof *s->factor));
    HL_NEED(hl_alloc_zeroed((void **)&s->cross, b, a * sizeof *s->cross));
    HL_NEED(hl_alloc((void **)&s->change, b, a * sizeof *s->change));
    HL_NEED(HL_ALLOC_ZEROED(&s->sums, a + b));
    HL_NEED(HL_ALLOC_ZEROED(&s->r_squares, b));
    HL_NEED(HL_ALLOC_ZEROED(&s->shift, b));
    HL_NEED(hl_alloc((void **)&s->panel, PANEL_ROWS, (a + b) * sizeof *s->panel));
    *out = hl_taken(&s);
    return HL_OK;
}

void hl_squares_free(hl_squares *s)
{
    if (s == NULL)
        return;
    hl_free(s->gram);
    hl_free(s->factor);
    hl_free(s->cross);
    hl_free(s->change);
    hl_free(s->sums);
    hl_free(s->r_squares);
    hl_free(s->shift);
    hl_free(s->panel);
    hl_free(s);
}

/* ------------------------------------------------------------------------ sums */

typedef struct panel_job {
    hl_squares   *s;
    const float  *z, *wanted, *had;
    const double *roots;  /* (n_rows) or NULL */
    int64_t       n_rows; /* rows of the panel */
    double        scale;
} panel_job;

static double root_of(const panel_job *job, int64_t row)
{
    return job->roots != NULL ? job->roots[row] : 1.0;
}

/* The panel is z (n_rows, n_in), then r (n_rows, n_out). */
static double *panel_r(const hl_squares *s)
{
    return s->panel + PANEL_ROWS * s->n_in;
}

static void convert_rows(void *context, int64_t first, int64_t end, int member)
{
    const panel_job  *job = context;
    const hl_squares *s   = job->s;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        const float *z  = job->z + row * s->n_in;
        double      *zd = s->panel + row * s->n_in;
        double      *rd = panel_r(s) + row * s->n_out;

        for (int64_t i = 0; i < s->n_in; i++)
            zd[i] = root_of(job, row) * (double)z[i];
        for (int64_t i = 0; i < s->n_out; i++) {
            int64_t at = row * s->n_out + i;

            rd[i] =
                root_of(job, row) * ((double)job->wanted[at] - (double)job->had[at]) / job->scale;
        }
    }
}

/* Adds up columns [first, end) of x (n_rows, width), whose rows have their factor already, times that
 * factor, and unless `squares` is NULL their squares. */
static void sum_columns(double *sums, double *squares, const double *x, const panel_job *job,
                        int64_t width, int64_t first, int64_t end)
{
    for (int64_t row = 0; row < job->n_rows; row++) {
        double root = root_of(job, row);

        for (int64_t i = first; i < end; i++) {
            double value = x[row * width + i];

            sums[i] += root * value;
            if (squares != NULL)
                squares[i] += value * value;
        }
    }
}

static int64_t count_tiles(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Adds the panel to tiles of rows: those of gram come first, then those of cross. */
static void add_tiles(void *context, int64_t first, int64_t end, int member)
{
    const panel_job *job    = context;
    hl_squares      *s      = job->s;
    int64_t          n_gram = count_tiles(s->n_in);
    (void)member;

    for (int64_t tile = first; tile < end; tile++) {
        bool        is_gram = tile < n_gram;
        int64_t     width   = is_gram ? s->n_in : s->n_out;
        int64_t     row     = (is_gram ? tile : tile - n_gram) * TILE;
        int64_t     stop    = least(row + TILE, width);
        double     *x       = is_gram ? s->panel : panel_r(s);
        hl_gemm_sum sum     = { .c            = (is_gram ? s->gram : s->cross) + row * s->n_in,
                                .c_stride     = s->n_in,
                                .a            = x + row,
                                .a_stride     = width,
                                .a_transposed = true,
                                .b            = s->panel,
                                .b_stride     = s->n_in,
                                .m            = stop - row,
                                .n            = is_gram ? stop : s->n_in,
                                .k            = job->n_rows,
                                .factor       = 1.0 };

        hl_gemm_add(&sum);
        sum_columns(is_gram ? s->sums : s->sums + s->n_in, is_gram ? NULL : s->r_squares, x, job,
                    width, row, stop);
    }
}

void hl_squares_add(hl_squares *s, const float *z, const float *wanted, const float *had,
                    const double *roots, int64_t n_rows, double scale)
{
    int64_t n_tiles = count_tiles(s->n_in) + count_tiles(s->n_out);

    for (int64_t row = 0; row < n_rows; row += PANEL_ROWS) {
        panel_job job = { .s      = s,
                          .z      = z + row * s->n_in,
                          .wanted = wanted != NULL ? wanted + row * s->n_out : NULL,
                          .had    = had != NULL ? had + row * s->n_out : NULL,
                          .roots  = roots != NULL ? roots + row : NULL,
                          .n_rows = least(PANEL_ROWS, n_rows - row),
                          .scale  = scale };

        hl_parallel(s->n_threads, job.n_rows, 16, convert_rows, &job);
        hl_parallel(s->n_threads, n_tiles, 1, add_tiles, &job);
        for (int64_t i = 0; i < job.n_rows; i++)
            s->weight += root_of(&job, i) * root_of(&job, i);
    }
    s->n_rows += n_rows;
}

/* --------------------------------------------------------------------- solving */

/* Sets factor = gram - n m m' + lambda and change = cross - n mean(r) m', where n is the sum of the
 * weights; without a bias, the terms with m are left out. */
static void set_up(hl_squares *s, bool has_bias)
{
    const double *z = s->sums, *r = s->sums + s->n_in;
    double        n = has_bias && s->weight > 0.0 ? 1.0 / s->weight : 0.0;

    for (int64_t i = 0; i < s->n_in; i++) {
        for (int64_t k = 0; k <= i; k++)
            s->factor[i * s->n_in + k] = s->gram[i * s->n_in + k] - n * z[i] * z[k];
        s->factor[i * s->n_in + i] += s->lambda;
    }
    for (int64_t i = 0; i < s->n_out; i++) {
        for (int64_t k = 0; k < s->n_in; k++)
            s->change[i * s->n_in + k] = s->cross[i * s->n_in + k] - n * r[i] * z[k];
    }
}

static void solve_rows(void *context, int64_t first, int64_t end, int member)
{
    hl_squares *s = context;
    (void)member;

    for (int64_t tile = first; tile < end; tile++) {
        int64_t row = tile * TILE;

        hl_cholesky_solve(s->change + row * s->n_in, least(TILE, s->n_out - row), s->factor,
                          s->n_in);
    }
}

static hl_status check_sums(const hl_squares *s)
{
    double total = 0.0;

    for (int64_t i = 0; i < s->n_in; i++)
        total += s->gram[i * s->n_in + i];
    for (int64_t i = 0; i < s->n_out; i++)
        total += s->r_squares[i];
    return isfinite(total) ? HL_OK
                           : hl_fail(HL_BAD_INPUT, "the activations on this text are not finite");
}

static void choose_lambda(hl_squares *s, double ridge)
{
    double trace = 0.0;

    for (int64_t i = 0; i < s->n_in; i++)
        trace += s->gram[i * s->n_in + i];
    s->lambda = ridge * trace / (double)(s->n_in > 0 ? s->n_in : 1);
    if (!(s->lambda > 0.0)) /* all rows are zero, and so is D */
        s->lambda = 1.0;
}

hl_status hl_squares_solve(hl_squares *s, double ridge, bool has_bias)
{
    double n = has_bias ? s->weight : 0.0;

    HL_NEED(check_sums(s));
    choose_lambda(s, ridge);
    set_up(s, has_bias);
    HL_NEED(hl_cholesky_factor(s->factor, s->n_in));
    hl_parallel(s->n_threads, count_tiles(s->n_out), 1, solve_rows, s);
    s->before = s->after = 0.0;
    for (int64_t i = 0; i < s->n_out; i++) {
        double sum = s->sums[s->n_in + i], gain = 0.0, size = 0.0, shift = 0.0;

        for (int64_t k = 0; k < s->n_in; k++) {
            double d = s->change[i * s->n_in + k];

            gain += s->cross[i * s->n_in + k] * d;
            size += d * d;
            shift -= d * s->sums[k];
        }
        s->shift[i] = n > 0.0 ? (sum + shift) / n : 0.0;
        s->before += s->r_squares[i];
        s->after += s->r_squares[i] - gain - s->lambda * size - s->shift[i] * sum;
    }
    return HL_OK;
}

void hl_squares_join(hl_squares *s, const hl_squares *other)
{
    for (int64_t i = 0; i < s->n_in * s->n_in; i++)
        s->gram[i] += other->gram[i];
    for (int64_t i = 0; i < s->n_out * s->n_in; i++)
        s->cross[i] += other->cross[i];
    for (int64_t i = 0; i < s->n_in + s->n_out; i++)
        s->sums[i] += other->sums[i];
    for (int64_t i = 0; i < s->n_out; i++)
        s->r_squares[i] += other->r_squares[i];
    s->n_rows += other->n_rows;
    s->weight += other->weight;
}

/* The lower triangle of gram with a halved diagonal: e G e' is twice the product of e H with e. */
static hl_status make_half(double **half, const hl_squares *s)
{
    int64_t n = s->n_in;

    HL_NEED(hl_alloc_zeroed((void **)half, (size_t)n, (size_t)n * sizeof **half));
    for (int64_t i = 0; i < n; i++) {
        memcpy(*half + i * n, s->gram + i * n, (size_t)(i + 1) * sizeof **half);
        (*half)[i * n + i] *= 0.5;
    }
    return HL_OK;
}

/* product (n_rows, n) += e (n_rows, n) H (n, n) */
typedef struct half_job {
    double       *product;
    const double *e, *half;
    int64_t       n_rows, n;
} half_job;

static void multiply_tiles(void *context, int64_t first, int64_t end, int member)
{
    const half_job *job = context;
    (void)member;

    for (int64_t tile = first; tile < end; tile++) {
        int64_t row = tile * TILE;

        hl_gemm_add(&(hl_gemm_sum){ .c        = job->product + row * job->n,
                                    .c_stride = job->n,
                                    .a        = job->e + row * job->n,
                                    .a_stride = job->n,
                                    .b        = job->half,
                                    .b_stride = job->n,
                                    .m        = least(TILE, job->n_rows - row),
                                    .n        = job->n,
                                    .k        = job->n,
                                    .factor   = 1.0 });
    }
}

hl_status hl_squares_loss(double *out, const hl_squares *s, const double *error)
{
    HL_FREED double *half = NULL, *product = NULL;

    *out = 0.0;
    HL_NEED(make_half(&half, s));
    HL_NEED(
        hl_alloc_zeroed((void **)&product, (size_t)s->n_out, (size_t)s->n_in * sizeof *product));
    hl_parallel(s->n_threads, count_tiles(s->n_out), 1, multiply_tiles,
                &(half_job){ product, error, half, s->n_out, s->n_in });
    for (int64_t i = 0; i < s->n_out * s->n_in; i++)
        *out += 2.0 * error[i] * (product[i] - s->lambda * s->change[i]);
    return HL_OK;
}

/* ----------------------------------------------------------------- choosing a ridge */

typedef struct ridge_job {
    const hl_squares *s, *held;
    const double     *half; /* of held */
    const double     *ridges;
    bool              has_bias;
    double           *left;   /* (n_ridges) squared error on the held rows */
    hl_status        *states; /* (n_ridges) */
} ridge_job;

/* Solves for some outputs, evenly spaced, and sums the squared error that this leaves on the held
 * rows. */
static hl_status try_ridge(double *out, const ridge_job *job, double ridge)
{
    const hl_squares                      *held    = job->held;
    HL_CLOSED(hl_squares_free) hl_squares *some    = NULL;
    HL_FREED double                       *product = NULL;
    int64_t n = job->s->n_in, every = (job->s->n_out + RIDGE_OUTPUTS - 1) / RIDGE_OUTPUTS;
    int64_t count = (job->s->n_out + every - 1) / every;

    *out = 0.0;
    HL_NEED(hl_squares_new(&some, n, count, 1));
    memcpy(some->gram, job->s->gram, (size_t)(n * n) * sizeof *some->gram);
    memcpy(some->sums, job->s->sums, (size_t)n * sizeof *some->sums);
    some->n_rows = job->s->n_rows;
    some->weight = job->s->weight;
    for (int64_t i = 0; i < count; i++) {
        some->sums[n + i]  = job->s->sums[n + i * every];
        some->r_squares[i] = job->s->r_squares[i * every];
        memcpy(some->cross + i * n, job->s->cross + i * every * n, (size_t)n * sizeof *some->cross);
    }
    HL_NEED(hl_squares_solve(some, ridge, job->has_bias));
    HL_NEED(hl_alloc_zeroed((void **)&product, (size_t)count, (size_t)n * sizeof *product));
    multiply_tiles(&(half_job){ product, some->change, job->half, count, n }, 0, count_tiles(count),
                   0);
    for (int64_t i = 0; i < count; i++) {
        const double *cross = held->cross + i * every * n;
        double        b = some->shift[i], along = 0.0;

        for (int64_t k = 0; k < n; k++) {
            double d = some->change[i * n + k];

            *out += 2.0 * d * (product[i * n + k] - cross[k]);
            along += d * held->sums[k];
        }
        *out += held->r_squares[i * every] +
                b * (2.0 * (along - held->sums[n + i * every]) + held->weight * b);
    }
    return HL_OK;
}

static void try_ridges(void *context, int64_t first, int64_t end, int member)
{
    const ridge_job *job = context;
    (void)member;

    for (int64_t i = first; i < end; i++)
        job->states[i] = try_ridge(&job->left[i], job, job->ridges[i]);
}

hl_status hl_squares_choose(double *out, const hl_squares *s, const hl_squares *held,
                            const double *ridges, int n_ridges, bool has_bias)
{
    HL_FREED double *half = NULL;
    double           left[MOST_RIDGES];
    hl_status        states[MOST_RIDGES];
    int              best = 0;

    HL_NEED(check_sums(s));
    HL_NEED(check_sums(held));
    HL_NEED(make_half(&half, held));
    hl_parallel(s->n_threads, n_ridges, 1, try_ridges,
                &(ridge_job){ s, held, half, ridges, has_bias, left, states });
    for (int i = 0; i < n_ridges; i++) {
        HL_NEED(states[i]);
        best = left[i] < left[best] ? i : best;
    }
    *out = ridges[best];
    return HL_OK;
}
