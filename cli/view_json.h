/* view_json.h - views of a prompt as JSON, on standard output.
 *
 * Written number by number: the tree of a long prompt would take gigabytes. */
#ifndef HL_CLI_VIEW_JSON_H
#define HL_CLI_VIEW_JSON_H

#include "headlight.h"

/* Rows of attention end with the last token they can see.  HL_NO_MEMORY is the only failure. */
hl_status hl_view_json_tokens(const hl_token_view *view);
hl_status hl_view_json_lens(const hl_lens_view *view);

#endif
