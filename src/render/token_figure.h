/* token_figure.h - pictures of a prompt, on a canvas that has no page yet; for hl_draw_tokens,
 * hl_draw_lens and for tests. */
#ifndef HL_RENDER_TOKEN_FIGURE_H
#define HL_RENDER_TOKEN_FIGURE_H

#include "render/canvas.h"

hl_status hl_token_figure_draw(hl_canvas *canvas, const hl_token_view *view,
                               const hl_token_figure *options);
hl_status hl_lens_figure_draw(hl_canvas *canvas, const hl_lens_view *view,
                              const hl_draw_options *options);

#endif
