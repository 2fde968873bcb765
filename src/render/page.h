/* page.h - the page that reports are made of: web/dist/headlight.html, built into the library.
 *
 * web/ has its source.  Exactly once there is the element
 *
 *     <script type="application/json" id="headlight-data">null</script>
 *
 * whose content is the page's data. */
#ifndef HL_RENDER_PAGE_H
#define HL_RENDER_PAGE_H

#include "headlight/base.h"

/* The page before the data's first byte and from behind its last; static, not NUL-ended. */
typedef struct hl_page {
    const char *before;
    size_t      n_before;
    const char *after;
    size_t      n_after;
} hl_page;

/* HL_INTERNAL if the page that was built in has no such place, or several. */
hl_status hl_page_split(hl_page *out);

#endif
