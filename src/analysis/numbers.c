/* numbers.c - means, ranks, a parabola, distances between distributions, multiple tests. */
#include "analysis/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* A normal distribution's standard deviation, relative to its median absolute deviation. */
#define MAD_TO_SIGMA 1.4826

/* ---------------------------------------------------------- mean and spread */

double hl_mean(const double *values, int64_t count)
{
    double  sum    = 0.0;
    int64_t n_real = 0;

    for (int64_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            sum += values[i];
            n_real++;
        }
    }
    return n_real > 0 ? sum / (double)n_real : NAN;
}

double hl_variance(const double *values, int64_t count)
{
    double  mean   = hl_mean(values, count);
    double  sum    = 0.0;
    int64_t n_real = 0;

    for (int64_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            sum += (values[i] - mean) * (values[i] - mean);
            n_real++;
        }
    }
    return n_real > 0 ? sum / (double)n_real : NAN;
}

double hl_sorted_quantile(const double *sorted, int64_t count, double q)
{
    if (count == 0)
        return NAN;
    double  place = q * (double)(count - 1);
    int64_t below = (int64_t)floor(place);
    int64_t above = below + 1 < count ? below + 1 : count - 1;

    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

int64_t hl_sort(double *values, int64_t count)
{
    int64_t n_real = count;

    qsort(values, (size_t)count, sizeof *values, compare_numbers);
    while (n_real > 0 && isnan(values[n_real - 1]))
        n_real--;
    return n_real;
}

hl_robust hl_robust_spread(const double *values, int64_t count, double *work)
{
    hl_robust spread = { NAN, NAN };

    for (int64_t i = 0; i < count; i++)
        work[i] = values[i];
    spread.median = hl_sorted_quantile(work, hl_sort(work, count), 0.5);
    for (int64_t i = 0; i < count; i++)
        work[i] = fabs(values[i] - spread.median);
    spread.sigma = MAD_TO_SIGMA * hl_sorted_quantile(work, hl_sort(work, count), 0.5);
    return spread;
}

/* -------------------------------------------------------------------- ranks */

typedef struct ranked {
    double  value;
    int64_t place; /* index before sorting */
} ranked;

static int compare_ranked(const void *left, const void *right)
{
    return compare_numbers(&((const ranked *)left)->value, &((const ranked *)right)->value);
}

hl_status hl_ranks(double *out, const double *values, int64_t count)
{
    HL_FREED ranked *items = NULL;

    HL_NEED(HL_ALLOC(&items, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        items[i] = (ranked){ values[i], i };
    qsort(items, (size_t)count, sizeof *items, compare_ranked);
    for (int64_t first = 0, end = 0; first < count; first = end) {
        for (end = first + 1; end < count && items[end].value == items[first].value;)
            end++; /* equal values are neighbors */
        double rank = 0.5 * (double)(first + 1 + end);
        for (int64_t i = first; i < end; i++)
            out[items[i].place] = isnan(items[i].value) ? NAN : rank;
    }
    return HL_OK;
}

/* Computes the correlation of pairs without NaN; NaN for fewer than two pairs, or for a
 * constant. */
static double pearson(const double *x, const double *y, int64_t count)
{
    double  mean_x = 0.0, mean_y = 0.0;
    double  xx = 0.0, yy = 0.0, xy = 0.0;
    int64_t n_pairs = 0;

    for (int64_t i = 0; i < count; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            continue;
        mean_x += x[i];
        mean_y += y[i];
        n_pairs++;
    }
    mean_x /= (double)n_pairs;
    mean_y /= (double)n_pairs;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            continue;
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        yy += (y[i] - mean_y) * (y[i] - mean_y);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    return xx > 0.0 && yy > 0.0 ? xy / sqrt(xx * yy) : NAN;
}

hl_status hl_spearman(double *out, const double *x, const double *y, int64_t count)
{
    HL_FREED double *work = NULL; /* (4, count) x and y of complete pairs, and their ranks */

    *out = NAN;
    HL_NEED(HL_ALLOC(&work, 4 * (size_t)count));
    /* A pair with a NaN must not take a rank on its other side. */
    for (int64_t i = 0; i < count; i++) {
        bool whole      = !isnan(x[i]) && !isnan(y[i]);
        work[i]         = whole ? x[i] : NAN;
        work[count + i] = whole ? y[i] : NAN;
    }
    HL_NEED(hl_ranks(work + 2 * count, work, count));
    HL_NEED(hl_ranks(work + 3 * count, work + count, count));
    *out = pearson(work + 2 * count, work + 3 * count, count);
    return HL_OK;
}

/* ----------------------------------------------------------------- parabola */

/* Sum of w(u)^2 and of w(u) y over the points, with w = u^2 - slope u - level and u = x - center:
 * the last of three polynomials that are orthogonal on these x. */
typedef struct projections {
    double norm;
    double product;
} projections;

static projections project(const double *x, const double *y, int64_t count, double center,
                           const double coefficients[3])
{
    projections sums = { 0.0, 0.0 };

    for (int64_t i = 0; i < count; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            continue;
        double u = x[i] - center;
        double w = (coefficients[2] * u + coefficients[1]) * u + coefficients[0];
        sums.norm += w * w;
        sums.product += w * y[i];
    }
    return sums;
}

/* Sums of u^k, k = 0 ... 3, over the points that count. */
static void power_sums(double out[4], const double *x, const double *y, int64_t count,
                       double center)
{
    for (int k = 0; k < 4; k++)
        out[k] = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            continue;
        double u = x[i] - center;
        out[0] += 1.0;
        out[1] += u;
        out[2] += u * u;
        out[3] += u * u * u;
    }
}

hl_parabola hl_fit_parabola(const double *x, const double *y, int64_t count)
{
    const hl_parabola none = { NAN, NAN, NAN };
    double            sums[4];

    power_sums(sums, x, y, count, 0.0);
    if (sums[0] < 3.0)
        return none;
    double center = sums[1] / sums[0];
    power_sums(sums, x, y, count, center);
    if (sums[2] <= 0.0)
        return none;

    const double one[3]    = { 1.0, 0.0, 0.0 };
    const double line[3]   = { 0.0, 1.0, 0.0 };
    const double bow[3]    = { -sums[2] / sums[0], -sums[3] / sums[2], 1.0 };
    projections  constant  = project(x, y, count, center, one);
    projections  linear    = project(x, y, count, center, line);
    projections  quadratic = project(x, y, count, center, bow);

    /* With only two different x, the quadratic term is 0 on both. */
    if (quadratic.norm <= 1e-24 * sums[2] * sums[2])
        return none;
    double c = quadratic.product / quadratic.norm;
    double b = linear.product / linear.norm + c * bow[1];
    double a = constant.product / constant.norm + c * bow[0];
    return (hl_parabola){
        .constant  = a - b * center + c * center * center,
        .linear    = b - 2.0 * c * center,
        .quadratic = c,
    };
}

/* ------------------------------------------------------------ distributions */

enum { N_BINS = 64 };

/* Computes the shares of the bins; returns false if nothing was counted. */
static bool shares_of(double out[N_BINS], const int64_t *counts)
{
    double weight = 0.0;

    for (int i = 0; i < N_BINS; i++)
        weight += (double)counts[i];
    for (int i = 0; i < N_BINS; i++)
        out[i] = (double)counts[i] / weight;
    return weight > 0.0;
}

double hl_histogram_variation(const int64_t *p, const int64_t *q)
{
    double a[N_BINS], b[N_BINS], sum = 0.0;

    if (!shares_of(a, p) || !shares_of(b, q))
        return NAN;
    for (int i = 0; i < N_BINS; i++)
        sum += fabs(a[i] - b[i]);
    return 0.5 * sum;
}

/* Returns p ln(p / middle), and 0 if p is 0, even if the middle is 0, too. */
static double divergence_term(double p, double middle)
{
    return p > 0.0 ? p * log(p / middle) : 0.0;
}

double hl_histogram_divergence(const int64_t *p, const int64_t *q)
{
    double a[N_BINS], b[N_BINS], sum = 0.0;

    if (!shares_of(a, p) || !shares_of(b, q))
        return NAN;
    for (int i = 0; i < N_BINS; i++) {
        double middle = 0.5 * (a[i] + b[i]);
        sum += 0.5 * (divergence_term(a[i], middle) + divergence_term(b[i], middle));
    }
    return sum > 0.0 ? sum : 0.0; /* rounding may make the sum slightly negative */
}

/* --------------------------------------------------------------- many tests */

hl_status hl_false_discovery(double *out, const double *p_values, int64_t count)
{
    HL_FREED ranked *items   = NULL;
    int64_t          n_tests = 0;

    HL_NEED(HL_ALLOC(&items, (size_t)count));
    for (int64_t i = 0; i < count; i++) {
        out[i] = NAN;
        if (!isnan(p_values[i]))
            items[n_tests++] = (ranked){ p_values[i], i };
    }
    qsort(items, (size_t)n_tests, sizeof *items, compare_ranked);
    /* Goes from the largest p-value down: a test is significant wherever a weaker one is. */
    double rate = 1.0;
    for (int64_t i = n_tests - 1; i >= 0; i--) {
        rate                = fmin(rate, items[i].value * (double)n_tests / (double)(i + 1));
        out[items[i].place] = rate;
    }
    return HL_OK;
}

/* ------------------------------------------------- certainty of a rank correlation */

/* Reads column `unit` of numbers (n_items, n + 1), without item `skipped`. */
static void read_column(double *out, const double *numbers, int64_t n_items, int64_t n,
                        int64_t unit, int64_t skipped)
{
    for (int64_t i = 0; i < n_items; i++)
        out[i] = i == skipped ? NAN : numbers[i * (n + 1) + unit];
}

/* Computes the ranks of both columns at one unit, over items that have both. */
static hl_status read_ranks(double *rank_x, double *rank_y, double *work, const double *x,
                            const double *y, int64_t n_items, int64_t n, int64_t unit,
                            int64_t skipped)
{
    read_column(work, x, n_items, n, unit, skipped);
    read_column(work + n_items, y, n_items, n, unit, skipped);
    for (int64_t i = 0; i < n_items; i++) {
        if (isnan(work[i]) || isnan(work[n_items + i]))
            work[i] = work[n_items + i] = NAN;
    }
    HL_NEED(hl_ranks(rank_x, work, n_items));
    return hl_ranks(rank_y, work + n_items, n_items);
}

static double covariance(const double *x, const double *y, int64_t n)
{
    double  mean_x = hl_mean(x, n), mean_y = hl_mean(y, n), sum = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            continue;
        sum += (x[i] - mean_x) * (y[i] - mean_y);
        count++;
    }
    return count > 0 ? sum / (double)count : NAN;
}

static double correlation(const double *x, const double *y, int64_t n)
{
    return covariance(x, y, n) / sqrt(covariance(x, x, n) * covariance(y, y, n));
}

hl_status hl_rank_noise_add(hl_rank_noise *noise, const double *x, const double *y, int64_t n_items,
                            int64_t n)
{
    HL_FREED double *room =
        NULL; /* (2, n_items, n + 1) ranks of both by unit, then working space */
    HL_FREED double *rhos  = NULL; /* (n + 1) correlations without each unit */
    bool             first = noise->n == 0;

    HL_NEED(HL_ALLOC(&room, (size_t)(2 * n_items * (n + 2))));
    HL_NEED(HL_ALLOC(&rhos, (size_t)n + 1));
    double *work = room + 2 * n_items * (n + 1);
    for (int64_t unit = 0; unit <= n; unit++) {
        double *ranks = room + 2 * n_items * unit;

        HL_NEED(read_ranks(ranks, ranks + n_items, work, x, y, n_items, n, unit, -1));
        rhos[unit] = correlation(ranks, ranks + n_items, n_items);
    }
    const double *all = room + 2 * n_items * n;
    noise->rho        = rhos[n];
    noise->xx         = covariance(all, all, n_items);
    noise->xy         = covariance(all, all + n_items, n_items);
    noise->yy         = covariance(all + n_items, all + n_items, n_items);

    hl_error error = hl_jackknife_error(rhos[n], rhos, n, HL_SCALE_CORRELATION);
    noise->error   = first ? error : hl_error_add(noise->error, error);
    noise->n       = first || n < noise->n ? n : noise->n;
    /* The noise of an item is the variance of its ranks over the units. */
    double factor  = (1.0 + 4.0 / (double)(n - 1)) * (double)(n - 1) / (double)n;
    double sums[3] = { 0 };
    for (int64_t i = 0; i < n_items && n > 1; i++) {
        double mean_x = 0.0, mean_y = 0.0;

        if (isnan(all[i]))
            continue;
        for (int64_t unit = 0; unit < n; unit++) {
            mean_x += room[2 * n_items * unit + i] / (double)n;
            mean_y += room[2 * n_items * unit + n_items + i] / (double)n;
        }
        for (int64_t unit = 0; unit < n && !isnan(mean_x); unit++) {
            double dx = room[2 * n_items * unit + i] - mean_x;
            double dy = room[2 * n_items * unit + n_items + i] - mean_y;
            sums[0] += dx * dx;
            sums[1] += dx * dy;
            sums[2] += dy * dy;
        }
    }
    double n_real = 0.0;
    for (int64_t i = 0; i < n_items; i++)
        n_real += !isnan(all[i]);
    noise->noise_xx += factor * sums[0] / n_real;
    noise->noise_xy += factor * sums[1] / n_real;
    noise->noise_yy += factor * sums[2] / n_real;
    return HL_OK;
}

hl_status hl_rank_noise_add_items(hl_rank_noise *noise, const double *x, const double *y,
                                  int64_t n_items, int64_t n)
{
    HL_FREED double *work = NULL; /* (4, n_items) */
    HL_FREED double *rhos = NULL; /* (n_items) */

    HL_NEED(HL_ALLOC(&work, 4 * (size_t)n_items));
    HL_NEED(HL_ALLOC(&rhos, (size_t)n_items));
    for (int64_t i = 0; i < n_items; i++) {
        HL_NEED(read_ranks(work, work + n_items, work + 2 * n_items, x, y, n_items, n, n, i));
        rhos[i] = correlation(work, work + n_items, n_items);
    }
    noise->error = hl_error_add(
        noise->error, hl_jackknife_error(noise->rho, rhos, n_items, HL_SCALE_CORRELATION));
    return HL_OK;
}

hl_interval hl_rank_interval(const hl_rank_noise *noise, hl_units units)
{
    const double least = 0.05; /* smallest share of a column's variance that is taken to be signal
                                * */
    hl_interval  out =
        hl_interval_of(noise->rho, noise->error, HL_SCALE_CORRELATION, noise->n, units);
    double xx = noise->xx - noise->noise_xx, yy = noise->yy - noise->noise_yy;
    double xy = noise->xy - noise->noise_xy;

    if (isnan(out.low))
        return out;
    double rho        = xx > least * noise->xx && yy > least * noise->yy ? xy / sqrt(xx * yy)
                                                                         : (xy > 0.0 ? 1.0 : -1.0);
    rho               = fmin(fmax(rho, -0.9999), 0.9999);
    hl_interval other = hl_interval_of(rho, noise->error, HL_SCALE_CORRELATION, noise->n, units);
    out.low           = fmin(out.low, other.low);
    out.high          = fmax(out.high, other.high);
    out.error         = 0.25 * (out.high - out.low);
    return out;
}
