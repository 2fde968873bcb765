/* axis.c - ticks and labels. */
#include "render/figure.h"

#include <math.h>
#include <stdio.h>

/* Tolerance for rounding when steps are counted. */
#define SLACK 1e-9

/* ------------------------------------------------------------------------ even ticks */

static double step_for(double low, double high, int n_steps)
{
    double range = high - low > 0.0 ? high - low : fmax(fabs(high), 1.0);
    double power = pow(10.0, floor(log10(range / n_steps)));
    double parts = range / n_steps / power; /* between 1 and 10 */

    return (parts <= 1.0 ? 1.0 : parts <= 2.0 ? 2.0 : parts <= 5.0 ? 5.0 : 10.0) * power;
}

static hl_axis even(double low, double high, double step, double first, double last)
{
    return (hl_axis){ .low      = low,
                      .high     = high,
                      .step     = step,
                      .n_steps  = (int64_t)(last - first),
                      .decimals = (int)fmax(0.0, -floor(log10(step) + SLACK)),
                      .first    = (int64_t)first };
}

hl_axis hl_axis_around(double low, double high, int n_steps)
{
    double step  = step_for(low, high, n_steps);
    double first = floor(low / step + SLACK), last = ceil(high / step - SLACK);

    if (last <= first)
        last = first + 1.0;
    return even(first * step, last * step, step, first, last);
}

hl_axis hl_axis_within(double low, double high, int n_steps)
{
    if (!(high > low))
        return hl_axis_around(low, high, n_steps);
    double step = step_for(low, high, n_steps);
    return even(low, high, step, ceil(low / step - SLACK), floor(high / step + SLACK));
}

/* ----------------------------------------------------------------------- logarithms */

/* Returns the value of a rung: rung 0 is 1, the next are 2, 5, 10, 20 ...; those below 0.5, 0.2
 * ... */
static double rung(int64_t number)
{
    static const double parts[] = { 1.0, 2.0, 5.0 };
    int64_t             part    = (number % 3 + 3) % 3;

    return parts[part] * pow(10.0, (double)(number - part) / 3.0);
}

static double climb(const hl_axis *axis, int64_t number)
{
    return axis->ticks == HL_TICKS_POWERS ? pow(10.0, (double)number) : rung(number);
}

/* Makes an axis from the rung at or below `low` to the one at or above `high`. */
static hl_axis ladder(double low, double high, hl_ticks ticks)
{
    hl_axis axis  = { .ticks = ticks, .logarithmic = true };
    double  each  = ticks == HL_TICKS_POWERS ? 1.0 : 3.0;
    int64_t first = (int64_t)floor(each * log10(low)) - 1;

    while (climb(&axis, first + 1) <= low * (1.0 + SLACK))
        first++;
    int64_t last = first + 1;
    while (climb(&axis, last) < high * (1.0 - SLACK))
        last++;
    axis.first   = first;
    axis.n_steps = last - first;
    axis.low     = climb(&axis, first);
    axis.high    = climb(&axis, last);
    axis.step    = axis.low;
    return axis;
}

hl_axis hl_axis_log(double low, double high, int n_steps)
{
    double decades = log10(high / low);

    /* There are too few rungs, and the data would fill only a small part between two of them. */
    if (3.0 * decades < 2.5) {
        hl_axis axis     = hl_axis_around(low, high, n_steps);
        axis.logarithmic = true;
        if (axis.low > 0.0)
            return axis;
    }
    return ladder(low, high, 3.0 * decades > 2.0 * n_steps ? HL_TICKS_POWERS : HL_TICKS_RUNGS);
}

/* -------------------------------------------------------------------- values, labels */

double hl_axis_tick(const hl_axis *axis, int64_t index)
{
    if (axis->ticks == HL_TICKS_EVEN)
        return (double)(axis->first + index) * axis->step;
    return climb(axis, axis->first + index);
}

double hl_axis_share(const hl_axis *axis, double value)
{
    if (axis->logarithmic)
        return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

const char *hl_axis_label(char room[HL_NUMBER_BYTES], const hl_axis *axis, double value)
{
    double rounded  = fabs(value) < axis->step * 1e-6 ? 0.0 : value;
    int    decimals = axis->decimals;

    if (axis->ticks != HL_TICKS_EVEN) {
        double power = floor(log10(value) + SLACK);
        if (power < -4.0 || power > 5.0) {
            snprintf(room, HL_NUMBER_BYTES, "%.0e", value);
            return room;
        }
        decimals = (int)fmax(0.0, -power);
    }
    snprintf(room, HL_NUMBER_BYTES, "%s%.*f", rounded < 0.0 ? "\u2212" : "", decimals,
             fabs(rounded));
    return room;
}

int64_t hl_label_every(double distance, double width)
{
    static const int64_t steps[] = { 1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256 };
    enum { N_STEPS = sizeof steps / sizeof *steps };

    for (int i = 0; i < N_STEPS; i++) {
        if ((double)steps[i] * distance >= width)
            return steps[i];
    }
    return 512;
}
