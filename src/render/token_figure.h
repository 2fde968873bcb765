/* token_figure.h - pictures of a prompt, on a canvas that has no page yet; for hl_draw_tokens
 * and for tests. */
#ifndef HL_RENDER_TOKEN_FIGURE_H
#define HL_RENDER_TOKEN_FIGURE_H

#include "render/canvas.h"

hl_status hl_token_figure_draw(hl_canvas *canvas, const hl_token_view *view,
                               const hl_token_figure *options);

#endif
