/* wrap.c - text in columns. */
#include "wrap.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_WIDTH = 80 };

void hl_print_wrapped(const char *text, int start)
{
    int column = start;

    while (*text != '\0') {
        int length = (int)strcspn(text, " ");

        if (column > start && column + 1 + length > PAGE_WIDTH) {
            printf("\n%*s", start, "");
            column = start;
        } else if (column > start) {
            printf(" ");
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    printf("\n");
}
