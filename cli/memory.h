/* memory.h - memory that the program shows things with, and whether it ran out.
 *
 * Output is made of hundreds of small strings and JSON values.  Where there is no memory for
 * one it is left out, and remembered here: the command then fails (hl_command_run), instead of
 * printing less than there is and calling it a success.
 *
 * Values of JSON may be as many as a file has: they count for --max-memory. */
#ifndef HL_CLI_MEMORY_H
#define HL_CLI_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* As malloc and calloc, but remembered. */
void *hl_memory_take(size_t n_bytes);
void *hl_memory_take_zeroed(size_t count, size_t size);
/* jansson's memory is taken in this way from now on, and what its json_dumps returns is released with
 * hl_free. */
void hl_memory_watch(void);
bool hl_memory_ran_out(void);
void hl_memory_forget(void);

#endif
