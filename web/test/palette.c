/* palette.c - every level of every map, one a line: the page must have the same. */
#include <stdio.h>

#include "headlight.h"

static const struct {
    const char *name;
    hl_map      map;
} maps[] = {
    { "entropy", HL_MAP_ENTROPY },
    { "blues", HL_MAP_BLUES },
    { "difference", HL_MAP_DIFFERENCE },
    { "bluesDark", HL_MAP_BLUES_DARK },
};

int main(void)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        for (int level = 0; level < HL_MAP_LEVELS; level++) {
            hl_colour colour = hl_map_colour(maps[i].map, level / (HL_MAP_LEVELS - 1.0));
            printf("%s %d %d %d %d\n", maps[i].name, level, colour.red, colour.green, colour.blue);
        }
    }
    return 0;
}
