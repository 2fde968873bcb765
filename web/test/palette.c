/* palette.c - every level of every map, the colors of lines, and the colors of types of heads in both
 * themes, one per line: the page must have the same. */
#include <stdio.h>

#include "analysis/head_kinds.h"
#include "headlight.h"
#include "render/palette.h"

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
            hl_color color = hl_map_color(maps[i].map, level / (HL_MAP_LEVELS - 1.0));
            printf("%s %d %d %d %d\n", maps[i].name, level, color.red, color.green, color.blue);
        }
    }
    for (int i = 0; i < HL_N_SERIES; i++) {
        hl_color light = hl_theme_colors_of(HL_THEME_LIGHT)->series[i];
        hl_color dark  = hl_theme_colors_of(HL_THEME_DARK)->series[i];

        printf("series %d %d %d %d %d %d %d\n", i, light.red, light.green, light.blue, dark.red,
               dark.green, dark.blue);
    }
    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++) {
        hl_color light = hl_head_kind_color(HL_THEME_LIGHT, kind);
        hl_color dark  = hl_head_kind_color(HL_THEME_DARK, kind);

        printf("type %s %d %d %d %d %d %d\n", hl_head_kind_name((hl_head_kind)kind), light.red,
               light.green, light.blue, dark.red, dark.green, dark.blue);
    }
    return 0;
}
