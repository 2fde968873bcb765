/* page.h - the page that reports are made of: web/dist/headlight.html, built into the library.
 *
 * web/ has its source.  The page has exactly one element
 *
 *     <script type="application/json" id="headlight-data">null</script>
 *
 * whose content is replaced by the page's data. */
#ifndef HL_RENDER_PAGE_H
#define HL_RENDER_PAGE_H

#include "headlight/base.h"

/* The page before the first byte of the data, and after its last one; static, not
 * NUL-terminated. */
typedef struct hl_page {
    const char *before;
    size_t      n_before;
    const char *after;
    size_t      n_after;
} hl_page;

/* Fails with HL_INTERNAL if the built-in page does not have exactly one place for the data. */
hl_status hl_page_split(hl_page *out);

#endif
