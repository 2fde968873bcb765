/* axis.h - where an axis begins and ends, and which of its values get a label. */
#ifndef HL_RENDER_AXIS_H
#define HL_RENDER_AXIS_H

#include "headlight/base.h"

/* Ticks are evenly spaced. A logarithmic axis that is long enough has ticks at 1, 2 and 5 times
 * every power of ten, or at the powers alone. */
typedef enum hl_ticks { HL_TICKS_EVEN = 0, HL_TICKS_RUNGS, HL_TICKS_POWERS } hl_ticks;

typedef struct hl_axis {
    double   low;
    double   high;
    double   step;     /* distance of even ticks: 1, 2 or 5 times a power of ten */
    int64_t  n_steps;  /* number of ticks minus 1 */
    int      decimals; /* decimals of labels, for even ticks */
    int64_t  first; /* first tick: first * step, or the number of a rung (power) counted from 1 */
    hl_ticks ticks;
    bool     logarithmic;
} hl_axis;

/* Returns an axis from a multiple of the step at or below `low` to one at or above `high`, with
 * about `n_steps` steps. */
hl_axis hl_axis_around(double low, double high, int n_steps);
/* Returns an axis from exactly low to high, with the ticks that lie between. */
hl_axis hl_axis_within(double low, double high, int n_steps);
/* As hl_axis_within, on a logarithmic scale; 0 < low. */
hl_axis hl_axis_log(double low, double high, int n_steps);

double hl_axis_tick(const hl_axis *axis, int64_t index); /* index: 0 ... n_steps */
/* Returns 0 at the low end, 1 at the high end. */
double hl_axis_share(const hl_axis *axis, double value);

enum { HL_NUMBER_BYTES = 32 };
/* Writes a value with the axis' decimals and a real minus sign; returns `room`. */
const char *hl_axis_label(char room[HL_NUMBER_BYTES], const hl_axis *axis, double value);

/* Returns n such that every n-th of items `distance` apart can have a label `width` wide: 1, 2, 4,
 * 5, 8, 10, 16, 20 ... */
int64_t hl_label_every(double distance, double width);

#endif
