/* least_squares.h - the weights that turn some rows into others, with a ridge.
 *
 *     HL_NEED(hl_squares_new(&s, n_in, n_out, n_threads));
 *     hl_squares_add(s, z, wanted, had, NULL, n_rows, 1.0);      any number of times
 *     HL_NEED(hl_squares_solve(s, 1e-3, true));
 *     ... s->change, s->shift ...
 *     hl_squares_free(s);
 *
 * With rows z (n_in) and r = (wanted - had) / scale (n_out), each of a weight w, it minimizes
 *
 *     sum w |D z + b - r|^2  +  lambda |D|^2,      lambda = ridge * mean diagonal of sum w z z'
 *
 * over D (n_out, n_in) and, where there is a bias, over b, which has no ridge.  With Z the rows
 * sqrt(w) z, the sums are gram = Z'Z and cross = R'Z, in double precision; solving centers both, which
 * eliminates b.  They are added up tile by tile, each tile by one thread in the order of the rows, so
 * the number of threads does not change a byte.  lambda > 0 defines D even with fewer rows than
 * n_in. */
#ifndef HL_PRUNE_LEAST_SQUARES_H
#define HL_PRUNE_LEAST_SQUARES_H

#include "base/memory.h"
#include "headlight/base.h"

typedef struct hl_squares {
    int64_t n_in;
    int64_t n_out; /* 0: the Gram matrix alone */
    int64_t n_rows;
    int     n_threads;
    double *gram;      /* (n_in, n_in) lower triangle */
    double *cross;     /* (n_out, n_in) */
    double  weight;    /* sum of w */
    double *sums;      /* (n_in + n_out) of w z and w r */
    double *r_squares; /* (n_out) sums of w r^2 */
    double *panel;     /* rows as doubles: the rows that are added at a time */

    /* Set by hl_squares_solve. */
    double  lambda;
    double *factor; /* (n_in, n_in) */
    double *change; /* (n_out, n_in) D */
    double *shift;  /* (n_out) b; zeros without a bias */
    double  before; /* sum w |r|^2 */
    double  after;  /* sum w |D z + b - r|^2 */
} hl_squares;

/* Returns HL_UNSUPPORTED without LAPACK. */
hl_status hl_squares_new(hl_squares **out, int64_t n_in, int64_t n_out, int n_threads);
void      hl_squares_free(hl_squares *squares);
HL_CLOSES(hl_squares_free, hl_squares)
/* Returns the number of bytes that hl_squares_new allocates. */
size_t hl_squares_bytes(int64_t n_in, int64_t n_out);
/* Adds rows: z (n_rows, n_in), wanted and had (n_rows, n_out), which are NULL where n_out is 0, and
 * the square roots of the weights (n_rows), NULL: all 1. */
void hl_squares_add(hl_squares *squares, const float *z, const float *wanted, const float *had,
                    const double *roots, int64_t n_rows, double scale);
/* Adds the sums of `other`, which has the same shape. */
void hl_squares_join(hl_squares *squares, const hl_squares *other);
/* Solves for change and shift.  Returns HL_BAD_INPUT if a sum is not finite. */
hl_status hl_squares_solve(hl_squares *squares, double ridge, bool has_bias);
/* Chooses, of at most 8 ridges, the one whose solution leaves the least on the rows of `held`, which has
 * the same shape; up to 128 outputs, evenly spaced, decide. */
hl_status hl_squares_choose(double *out, const hl_squares *squares, const hl_squares *held,
                            const double *ridges, int n_ridges, bool has_bias);
/* Computes the increase of `after` if D becomes D + error; error is (n_out, n_in). */
hl_status hl_squares_loss(double *out, const hl_squares *squares, const double *error);

#endif
