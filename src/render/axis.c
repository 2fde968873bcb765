/* axis.c - ticks and labels. */
#include "render/axis.h"

#include <math.h>
#include <stdio.h>

hl_axis hl_axis_around(double low, double high, int n_steps)
{
    double range = high - low > 0.0 ? high - low : fmax(fabs(high), 1.0);
    double power = pow(10.0, floor(log10(range / n_steps)));
    double parts = range / n_steps / power; /* 1 to 10 */
    double step  = (parts <= 1.0 ? 1.0 : parts <= 2.0 ? 2.0 : parts <= 5.0 ? 5.0 : 10.0) * power;
    double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);

    if (last <= first)
        last = first + 1.0;
    return (hl_axis){ first * step, last * step, step, (int64_t)(last - first),
                      (int)fmax(0.0, -floor(log10(step) + 1e-9)) };
}

double hl_axis_tick(const hl_axis *axis, int64_t index)
{
    return axis->low + (double)index * axis->step;
}

double hl_axis_share(const hl_axis *axis, double value)
{
    return (value - axis->low) / (axis->high - axis->low);
}

const char *hl_axis_label(char room[HL_NUMBER_BYTES], const hl_axis *axis, double value)
{
    double rounded = fabs(value) < axis->step * 1e-6 ? 0.0 : value;

    snprintf(room, HL_NUMBER_BYTES, "%s%.*f", rounded < 0.0 ? "\u2212" : "", axis->decimals,
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
