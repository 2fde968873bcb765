/* interval.c - Student's t and the jackknife.
 *
 * The probability beyond t is an incomplete beta function,
 *
 *     P(|T| >= t) = I_x(v / 2, 1 / 2),   x = v / (v + t^2)
 *
 * computed by its continued fraction (modified Lentz).  I_x(a, b) = 1 - I_(1-x)(b, a) is used where
 * the fraction converges slowly. */
#include "base/interval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { MAX_TERMS = 300, MAX_STEPS = 100 };

/* ------------------------------------------------------------------ Student's t */

/* Gamma(a) Gamma(1/2) / Gamma(a + 1/2) */
static double beta_half(double a)
{
    const double root_pi = 1.772453850905516027;

    if (a < 80.0)
        return root_pi * tgamma(a) / tgamma(a + 0.5);
    /* The asymptotic series of the ratio: 1e-14 from 80 on. */
    double r = 1.0 / a;
    return root_pi * sqrt(r) *
           (1.0 + r * (1.0 / 8.0 + r * (1.0 / 128.0 - r * (5.0 / 1024.0 + r * 21.0 / 32768.0))));
}

/* The continued fraction of the incomplete beta function. */
static double fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double       c = 1.0, d = 1.0 - (a + b) * x / (a + 1.0);

    d            = 1.0 / (fabs(d) < tiny ? tiny : d);
    double value = d;
    for (int m = 1; m <= MAX_TERMS; m++) {
        double even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        double odd  = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));

        d = 1.0 + even * d;
        c = 1.0 + even / c;
        d = 1.0 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        value *= c * d;
        d           = 1.0 + odd * d;
        c           = 1.0 + odd / c;
        d           = 1.0 / (fabs(d) < tiny ? tiny : d);
        c           = fabs(c) < tiny ? tiny : c;
        double step = c * d;
        value *= step;
        if (fabs(step - 1.0) < 1e-15)
            break;
    }
    return value;
}

double hl_student_p_value(double t, double freedom)
{
    double a = 0.5 * freedom, x = freedom / (freedom + t * t);

    if (isnan(t) || !(freedom > 0.0))
        return NAN;
    if (isinf(t))
        return 0.0;
    double front = pow(x, a) * sqrt(t * t / (freedom + t * t)) / beta_half(a);
    return x < (a + 1.0) / (a + 2.5) ? front * fraction(x, a, 0.5) / a
                                     : 1.0 - front * fraction(1.0 - x, 0.5, a) / 0.5;
}

/* Newton's method, within a bracket that every step narrows. */
double hl_student_quantile(double level, double freedom)
{
    double low = 0.0, high = 1.0, t = 2.0;

    if (!(freedom > 0.0))
        return NAN;
    while (hl_student_p_value(high, freedom) > 1.0 - level && high < 1e12)
        high *= 2.0;
    for (int i = 0; i < MAX_STEPS; i++) {
        double beyond  = hl_student_p_value(t, freedom) - (1.0 - level);
        double density = pow(1.0 + t * t / freedom, -0.5 * (freedom + 1.0)) /
                         (sqrt(freedom) * beta_half(0.5 * freedom));
        double step = beyond / (2.0 * density);

        if (beyond > 0.0)
            low = t;
        else
            high = t;
        if (fabs(step) <= 1e-13 * t)
            break;
        t = t + step > low && t + step < high ? t + step : 0.5 * (low + high);
    }
    return t;
}

/* ---------------------------------------------------------------------- scales */

static double within(double value, double low, double high)
{
    return isnan(value) ? value : fmin(fmax(value, low), high);
}

double hl_to_scale(double value, hl_error_scale scale)
{
    const double edge = 1e-9;

    switch (scale) {
    case HL_SCALE_SHARE:
        value = within(value, edge, 1.0 - edge);
        return log(value / (1.0 - value));
    case HL_SCALE_CORRELATION:
        return atanh(within(value, edge - 1.0, 1.0 - edge));
    default: /* POSITIVE and KL have their errors on the plain scale */
        return value;
    }
}

double hl_from_scale(double value, hl_error_scale scale)
{
    switch (scale) {
    case HL_SCALE_SHARE:
        return 1.0 / (1.0 + exp(-value));
    case HL_SCALE_CORRELATION:
        return tanh(value);
    default:
        return value;
    }
}

/* ---------------------------------------------------------------------- errors */

hl_error hl_jackknife_error(double value, const double *without, int64_t n, hl_error_scale scale)
{
    double  center = hl_to_scale(value, scale), sum = 0.0, cubes = 0.0, least = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        double off = hl_to_scale(without[i], scale) - center;
        if (isnan(off))
            continue;
        sum += off * off;
        cubes -= off * off * off; /* what a unit has more, the rest has less */
        least = fmin(least, off);
        count++;
    }
    if (count < HL_MIN_UNITS)
        return (hl_error){ NAN, NAN, NAN, NAN };
    return (hl_error){ (double)(count - 1) / (double)count * sum, (double)(count - 1),
                       hl_mean_skewness(sum, cubes, (double)count),
                       center - (double)(count - 1) * least };
}

double hl_mean_skewness(double squares, double cubes, double n)
{
    double sigma = sqrt(squares / (n - 1.0));

    return sigma > 0.0 ? cubes / n / pow(sigma, 3.0) * n * n / ((n - 1.0) * (n - 2.0)) / sqrt(n)
                       : 0.0;
}

hl_error hl_error_add(hl_error a, hl_error b)
{
    double sum = a.variance + b.variance;
    double by  = a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom;

    double skew = a.skewness * pow(a.variance, 1.5) + b.skewness * pow(b.variance, 1.5);

    return (hl_error){ sum, by > 0.0 ? sum * sum / by : a.freedom + b.freedom,
                       sum > 0.0 ? skew / pow(sum, 1.5) : 0.0, 0.0 };
}

double hl_error_p_value(double value, hl_error error)
{
    if (error.variance == 0.0 && value == 0.0)
        return 1.0;
    return hl_student_p_value(value / sqrt(error.variance), error.freedom);
}

/* ------------------------------------------------------------------- intervals */

/* By how much a number may be larger than n units show, since some kind of unit is not among them. */
static double unseen(double value, double largest, int64_t n)
{
    const double times_as_far = 5.0;
    double       share        = 1.0 - pow(1.0 - HL_LEVEL, 1.0 / (double)n);

    return share * times_as_far * fmax(largest - value, 0.0);
}

hl_interval hl_no_interval(int64_t n, hl_units units)
{
    return (hl_interval){ NAN, NAN, NAN, HL_LEVEL, n, units };
}

hl_interval hl_interval_of(double value, hl_error error, hl_error_scale scale, int64_t n,
                           hl_units units)
{
    hl_interval out    = hl_no_interval(n, units);
    double      center = hl_to_scale(value, scale), s = sqrt(error.variance);
    double      t     = hl_student_quantile(HL_LEVEL, error.freedom);
    double      more  = s * error.skewness * (1.0 + 2.0 * t * t) / 6.0;
    double      below = t * s + fmax(-more, 0.0), above = t * s + fmax(more, 0.0);

    if (isnan(value) || isnan(below))
        return out;
    out.low   = hl_from_scale(center - below, scale);
    out.high  = hl_from_scale(center + above, scale);
    out.error = s;
    if (scale == HL_SCALE_POSITIVE || scale == HL_SCALE_KL) {
        out.low  = fmax(out.low, 0.0);
        out.high = value > 0.0 ? value * exp(above / value) : above;
        if (scale == HL_SCALE_KL)
            out.high = value + hypot(out.high - value, unseen(value, error.largest, n));
    } else if (scale == HL_SCALE_SHARE) {
        double slope = value * (1.0 - value); /* of the scale's inverse */
        out.low      = fmin(out.low, fmax(value - below * slope, 0.0));
        out.high     = fmax(out.high, fmin(value + above * slope, 1.0));
    }
    if (scale == HL_SCALE_SHARE || scale == HL_SCALE_CORRELATION)
        out.error = 0.25 * (out.high - out.low);
    return out;
}

hl_interval hl_jackknife(double value, const double *without, int64_t n, hl_error_scale scale,
                         hl_units units)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += !isnan(without[i]);
    return hl_interval_of(value, hl_jackknife_error(value, without, n, scale), scale, count, units);
}

const char *hl_units_name(hl_units units)
{
    static const char *const names[HL_N_UNITS] = { "windows", "documents", "spans" };

    return units >= HL_UNITS_WINDOWS && units < HL_N_UNITS ? names[units] : "?";
}

const char *hl_interval_method(hl_units units)
{
    static const char *const methods[HL_N_UNITS] = { "Student's t, jackknife over windows",
                                                     "Student's t, jackknife over documents",
                                                     "Student's t, jackknife over spans" };

    return units >= HL_UNITS_WINDOWS && units < HL_N_UNITS ? methods[units] : "?";
}

void hl_interval_reason(char *out, size_t n_bytes, const hl_interval *interval)
{
    char name[16];

    if (n_bytes > 0)
        out[0] = '\0';
    if (!isnan(interval->low))
        return;
    snprintf(name, sizeof name, "%s", hl_units_name(interval->units));
    if (interval->n == 1)
        name[strlen(name) - 1] = '\0';
    snprintf(out, n_bytes, "%lld %s: an interval needs %d or more", (long long)interval->n, name,
             HL_MIN_UNITS);
}

/* -------------------------------------------------------------- without a unit */

/* Adds a row's weights and weighted values to the sums (2, n_columns) of its group. */
static void add_row(double *sums, const hl_unit_rows *rows, int64_t row)
{
    for (int64_t c = 0; c < rows->n_columns; c++) {
        int64_t at     = row * rows->n_columns + c;
        double  weight = rows->weights != NULL ? rows->weights[at] : 1.0;

        if (isnan(rows->values[at]) || !(weight > 0.0))
            continue;
        sums[c] += weight * rows->values[at];
        sums[rows->n_columns + c] += weight;
    }
}

hl_status hl_left_out(double **out, const hl_unit_rows *rows)
{
    int64_t          n_columns = rows->n_columns, n = rows->n_groups;
    HL_FREED double *sums = NULL; /* (n_groups, 2, n_columns) */

    HL_NEED(hl_alloc_zeroed((void **)&sums, (size_t)n + 1, 2 * (size_t)n_columns * sizeof *sums));
    HL_NEED(hl_alloc((void **)out, (size_t)n_columns, ((size_t)n + 1) * sizeof **out));
    for (int64_t row = 0; row < rows->n_rows; row++)
        add_row(sums + 2 * n_columns * (rows->groups != NULL ? rows->groups[row] : row), rows, row);
    for (int64_t c = 0; c < n_columns; c++) {
        double *means = *out + c * (n + 1);
        double  sum = 0.0, weight = 0.0;

        for (int64_t g = 0; g < n; g++) {
            sum += sums[2 * n_columns * g + c];
            weight += sums[2 * n_columns * g + n_columns + c];
        }
        for (int64_t g = 0; g < n; g++) {
            double its = sums[2 * n_columns * g + n_columns + c];
            means[g]   = its > 0.0 && weight - its > 0.0
                             ? (sum - sums[2 * n_columns * g + c]) / (weight - its)
                             : NAN;
        }
        means[n] = weight > 0.0 ? sum / weight : NAN;
    }
    return HL_OK;
}

hl_interval hl_left_out_interval(const double *column, const hl_unit_rows *rows,
                                 hl_error_scale scale)
{
    return hl_jackknife(column[rows->n_groups], column, rows->n_groups, scale, rows->units);
}
