/* stop.h - Ctrl-C, for commands that save their work first. */
#ifndef HL_CLI_STOP_H
#define HL_CLI_STOP_H

#include <stdbool.h>

/* From now on the first Ctrl-C (or SIGTERM) only asks; the second ends the program as ever. */
void hl_stop_watch(void);
/* Has it been asked for? */
bool hl_stop_asked(void);

#endif
