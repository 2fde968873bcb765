/* least_squares.h - the weights that turn some rows into others, with a ridge.
 *
 *     HL_NEED(hl_squares_new(&s, n_in, n_out, n_threads));
 *     HL_NEED(hl_squares_add(s, z, wanted, had, n_rows, 1.0));      any number of times
 *     HL_NEED(hl_squares_solve(s, 1e-3, true));
 *     ... s->change, s->shift ...
 *     hl_squares_free(s);
 *
 * With rows z (n_in) and r = (wanted - had) / scale (n_out), it minimizes
 *
 *     sum |D z + b - r|^2  +  lambda |D|^2,      lambda = ridge * mean diagonal of sum z z'
 *
 * over D (n_out, n_in) and, where there is a bias, b, which has no ridge.  Sums are of doubles: with
 * Z the rows z, gram = Z'Z and cross = R'Z, from which b's part is taken out by centering both where they are solved.  They
 * are made tile by tile, each tile by one thread in the order of the rows, so that the number of
 * threads does not change a byte.  lambda > 0 defines D even where there are fewer rows than
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
    double *sums;      /* (n_in + n_out) of z and r */
    double *r_squares; /* (n_out) sums of r^2 */
    double *panel;     /* rows as doubles, as many as are worked on at a time */

    /* hl_squares_solve */
    double  lambda;
    double *factor; /* (n_in, n_in) */
    double *change; /* (n_out, n_in) D */
    double *shift;  /* (n_out) b; zeros without a bias */
    double  before; /* sum |r|^2 */
    double  after;  /* sum |D z + b - r|^2 */
} hl_squares;

/* HL_UNSUPPORTED without LAPACK. */
hl_status hl_squares_new(hl_squares **out, int64_t n_in, int64_t n_out, int n_threads);
void      hl_squares_free(hl_squares *squares);
HL_CLOSES(hl_squares_free, hl_squares)
/* Bytes that hl_squares_new allocates. */
size_t hl_squares_bytes(int64_t n_in, int64_t n_out);
/* z (n_rows, n_in); wanted and had (n_rows, n_out), NULL where n_out is 0. */
void hl_squares_add(hl_squares *squares, const float *z, const float *wanted, const float *had,
                    int64_t n_rows, double scale);
/* Adds what was added to other sums of the same shape. */
void hl_squares_join(hl_squares *squares, const hl_squares *other);
/* HL_BAD_INPUT if a sum is not finite. */
hl_status hl_squares_solve(hl_squares *squares, double ridge, bool has_bias);
/* sum |D z + b - r|^2 over the rows of these sums, with D and b of those that were solved. */
hl_status hl_squares_test(double *out, const hl_squares *squares, const hl_squares *solved);
/* What is added to `after` if D becomes D + error; error (n_out, n_in). */
hl_status hl_squares_loss(double *out, const hl_squares *squares, const double *error);

#endif
