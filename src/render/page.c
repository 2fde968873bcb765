/* page.c - the page, included in the program by the assembler.
 *
 * HL_PAGE_FILE is a path relative to the compiler's working directory; the Makefile makes this
 * object depend on it. */
#include "render/page.h"

#include <string.h>

#include "base/status.h"

/* In Mach-O, names begin with an underscore, and sections have other names. */
#ifdef __APPLE__
#define SYMBOL  "_"
#define SECTION ".const_data"
#define HIDDEN  ".private_extern"
#define BACK    ".text"
#else
#define SYMBOL  ""
#define SECTION ".section .rodata"
#define HIDDEN  ".hidden"
#define BACK    ".previous"
#endif

/* clang-format off */
__asm__(SECTION "\n"
        ".balign 64\n"
        ".globl " SYMBOL "hl_page_begin\n"
        HIDDEN " " SYMBOL "hl_page_begin\n"
        SYMBOL "hl_page_begin:\n"
        ".incbin \"" HL_PAGE_FILE "\"\n"
        ".globl " SYMBOL "hl_page_end\n"
        HIDDEN " " SYMBOL "hl_page_end\n"
        SYMBOL "hl_page_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        BACK "\n");
/* clang-format on */

extern const char hl_page_begin[];
extern const char hl_page_end[];

static const char mark[] = "<script type=\"application/json\" id=\"headlight-data\">null</script>";

/* Returns the next place of the mark; NULL if there is none. */
static const char *find_mark(const char *at, const char *end)
{
    size_t length = sizeof mark - 1;

    while ((size_t)(end - at) >= length) {
        const char *next = memchr(at, '<', (size_t)(end - at));
        if (next == NULL || (size_t)(end - next) < length)
            return NULL;
        if (memcmp(next, mark, length) == 0)
            return next;
        at = next + 1;
    }
    return NULL;
}

hl_status hl_page_split(hl_page *out)
{
    const char *begin = hl_page_begin;
    const char *end   = hl_page_end;
    const char *found = find_mark(begin, end);

    if (found == NULL || find_mark(found + 1, end) != NULL)
        return hl_fail(HL_INTERNAL, "the built-in page has %s place for data",
                       found == NULL ? "no" : "more than one");
    const char *data = found + strlen(mark) - strlen("null</script>");
    *out             = (hl_page){ .before   = begin,
                                  .n_before = (size_t)(data - begin),
                                  .after    = data + strlen("null"),
                                  .n_after  = (size_t)(end - data) - strlen("null") };
    return HL_OK;
}
