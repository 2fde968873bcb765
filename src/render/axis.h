/* axis.h - where an axis begins and ends, and which of its values get a label. */
#ifndef HL_RENDER_AXIS_H
#define HL_RENDER_AXIS_H

#include "headlight/base.h"

/* Ticks are evenly apart or, on a logarithmic axis that is long enough, the rungs 1, 2 and 5 of
 * every power of ten, or those powers alone. */
typedef enum hl_ticks { HL_TICKS_EVEN = 0, HL_TICKS_RUNGS, HL_TICKS_POWERS } hl_ticks;

typedef struct hl_axis {
    double   low;
    double   high;
    double   step;     /* of even ticks: 1, 2 or 5 times a power of ten */
    int64_t  n_steps;  /* one less than ticks */
    int      decimals; /* of labels, where ticks are even */
    int64_t  first;    /* tick: first * step, or the number of a rung (power) counted from 1 */
    hl_ticks ticks;
    bool     logarithmic;
} hl_axis;

/* From a whole number of steps at or below `low` to one at or above `high`, in about `n_steps`. */
hl_axis hl_axis_around(double low, double high, int n_steps);
/* From low to high themselves, with the ticks that lie between. */
hl_axis hl_axis_within(double low, double high, int n_steps);
/* The same with equal ratios equally far apart; 0 < low. */
hl_axis hl_axis_log(double low, double high, int n_steps);

double hl_axis_tick(const hl_axis *axis, int64_t index); /* 0 ... n_steps */
/* 0 at the low end, 1 at the high one. */
double hl_axis_share(const hl_axis *axis, double value);

enum { HL_NUMBER_BYTES = 32 };
/* With the axis' decimals, and a real minus sign; returns `room`. */
const char *hl_axis_label(char room[HL_NUMBER_BYTES], const hl_axis *axis, double value);

/* Every how many-th of things that are `distance` apart can have a label `width` wide: 1, 2, 4, 5,
 * 8, 10, 16, 20 ... */
int64_t hl_label_every(double distance, double width);

#endif
