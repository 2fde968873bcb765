/* clock.h - a clock that only goes forward. */
#ifndef HL_BASE_CLOCK_H
#define HL_BASE_CLOCK_H

double hl_clock_seconds(void);

#endif
