/* clock.h - a clock that only goes forward. */
#ifndef HL_CLI_CLOCK_H
#define HL_CLI_CLOCK_H

/* In seconds. */
double hl_clock_now(void);

#endif
