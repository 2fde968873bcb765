/* session_limit.h - how much memory all sessions of the process may take together. */
#ifndef HL_MODEL_SESSION_LIMIT_H
#define HL_MODEL_SESSION_LIMIT_H

#include "headlight.h"

/* HL_LIMIT, with the numbers, where there is a bound (hl_session_limit_memory) and this does not
 * fit under it. */
hl_status hl_session_limit_check(const hl_model *model, const hl_session_options *options);
/* A session holds so much; and, with the same number, no longer. */
void hl_session_limit_take(size_t n_bytes);
void hl_session_limit_give(size_t n_bytes);

#endif
