/* session_limit.h - does a session fit into the memory that may be taken? */
#ifndef HL_MODEL_SESSION_LIMIT_H
#define HL_MODEL_SESSION_LIMIT_H

#include "headlight.h"

/* HL_LIMIT, with the numbers, where there is a bound (hl_memory_limit) and this does not fit
 * under it beside what is held. */
hl_status hl_session_limit_check(const hl_model *model, const hl_session_options *options);

#endif
