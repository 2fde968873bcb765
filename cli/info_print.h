/* info_print.h - what `headlight info` shows: a screen, or JSON. */
#ifndef HL_CLI_INFO_PRINT_H
#define HL_CLI_INFO_PRINT_H

#include "headlight.h"

/* `tensors` adds a line (an object) for every tensor. */
void hl_info_print(const hl_model *model, const char *path, bool tensors);
void hl_info_print_json(const hl_model *model, const char *path, bool tensors);

#endif
