/* terminal.c - colours and columns of terminals.
 *
 * The 6 x 6 x 6 cube of 256-colour terminals has too few colours near the maps, and the
 * nearest ones often look grey; so nine of it were picked for each map that go the same way,
 * with lightness always rising or falling as the map's does. */
#include "render/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "render/palette.h"

/* --------------------------------------------------------------------------- colours */

enum { N_PICKED = 9 };

static const uint8_t picked[][N_PICKED] = {
    [HL_MAP_ENTROPY]    = { 53, 55, 25, 30, 36, 77, 149, 185, 227 },
    [HL_MAP_BLUES]      = { 255, 189, 153, 117, 75, 69, 26, 25, 18 },
    [HL_MAP_DIFFERENCE] = { 25, 67, 110, 152, 255, 217, 174, 131, 124 },
    [HL_MAP_BLUES_DARK] = { 234, 237, 24, 25, 32, 68, 75, 117, 195 },
};

static int picked_of(hl_map map, double share)
{
    return picked[map][lround(fmin(fmax(share, 0.0), 1.0) * (N_PICKED - 1))];
}

/* 16 + 36 red + 6 green + blue, and 24 greys behind the cube. */
static hl_colour colour_of_256(int index)
{
    static const uint8_t levels[] = { 0, 95, 135, 175, 215, 255 };

    if (index >= 232) {
        uint8_t grey = (uint8_t)(8 + 10 * (index - 232));
        return (hl_colour){ grey, grey, grey };
    }
    return (hl_colour){ levels[(index - 16) / 36], levels[(index - 16) / 6 % 6],
                        levels[(index - 16) % 6] };
}

static int put_colour(char *out, size_t n_bytes, hl_depth depth, int kind, hl_map map, double share)
{
    hl_colour colour = hl_map_colour(map, share);

    if (depth == HL_DEPTH_TRUE)
        return snprintf(out, n_bytes, "\033[%d;2;%d;%d;%dm", kind, colour.red, colour.green,
                        colour.blue);
    return snprintf(out, n_bytes, "\033[%d;5;%dm", kind, picked_of(map, share));
}

const char *hl_terminal_cell(char out[HL_ESCAPE_BYTES], hl_depth depth, hl_map map, double share)
{
    out[0] = '\0';
    if (depth == HL_DEPTH_NONE)
        return out;
    hl_colour seen =
        depth == HL_DEPTH_TRUE ? hl_map_colour(map, share) : colour_of_256(picked_of(map, share));
    /* 16 and 231 are the black and the white of the cube: themes leave them alone. */
    int used = snprintf(out, HL_ESCAPE_BYTES, "\033[38;5;%dm", hl_colour_is_light(seen) ? 16 : 231);
    put_colour(out + used, HL_ESCAPE_BYTES - (size_t)used, depth, 48, map, share);
    return out;
}

const char *hl_terminal_text(char out[HL_ESCAPE_BYTES], hl_depth depth, hl_map map, double share)
{
    out[0] = '\0';
    if (depth != HL_DEPTH_NONE)
        put_colour(out, HL_ESCAPE_BYTES, depth, 38, map, share);
    return out;
}

const char *hl_terminal_end(hl_depth depth)
{
    return depth != HL_DEPTH_NONE ? "\033[0m" : "";
}

void hl_terminal_ramp(hl_output *output, hl_depth depth, hl_map map, int width)
{
    char escape[HL_ESCAPE_BYTES];

    for (int i = 0; i < width && depth != HL_DEPTH_NONE; i++)
        hl_output_print(output, "%s ", hl_terminal_cell(escape, depth, map, i / (width - 1.0)));
    hl_output_print(output, "%s", hl_terminal_end(depth));
}

/* --------------------------------------------------------------------------- columns */

typedef struct range {
    uint32_t first;
    uint32_t last;
} range;

/* Blocks that terminals show two columns wide; enough for labels, not all of Unicode. */
static const range wide[] = {
    { 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x23e9, 0x23ec },   { 0x2e80, 0x303e },
    { 0x3041, 0x33ff },   { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xa000, 0xa4cf },
    { 0xa960, 0xa97f },   { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
    { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },   { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff },
    { 0x1f900, 0x1f9ff }, { 0x1fa70, 0x1faff }, { 0x20000, 0x3fffd },
};

/* Marks upon other characters, joiners, variation selectors, skin tones. */
static const range narrow[] = {
    { 0x300, 0x36f },   { 0x483, 0x489 },   { 0x591, 0x5bd },     { 0x610, 0x61a },
    { 0x64b, 0x65f },   { 0x6d6, 0x6dc },   { 0x900, 0x902 },     { 0x93c, 0x93c },
    { 0x941, 0x948 },   { 0x94d, 0x94d },   { 0xe31, 0xe31 },     { 0xe34, 0xe3a },
    { 0xe47, 0xe4e },   { 0x200b, 0x200f }, { 0x20d0, 0x20ff },   { 0xfe00, 0xfe0f },
    { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff }, { 0x1f3fb, 0x1f3ff },
};

static bool is_among(uint32_t c, const range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    }
    return false;
}

/* The columns of the character at the start, and how many bytes it has. */
static int columns_of(const char *text, size_t n_bytes, size_t *length)
{
    size_t at = 0;

    *length = hl_utf8_length(text, n_bytes);
    if (*length == 0) {
        *length = 1;
        return 1;
    }
    uint32_t c = hl_utf8_next(text, &at);
    if (is_among(c, narrow, sizeof narrow / sizeof *narrow))
        return 0;
    return is_among(c, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

int hl_terminal_width_of(const char *text)
{
    int    width   = 0;
    size_t n_bytes = strlen(text), length;

    for (size_t at = 0; at < n_bytes; at += length)
        width += columns_of(text + at, n_bytes - at, &length);
    return width;
}

/* How many bytes fit into `width` columns, and how many columns they take. */
static size_t fitting(const char *text, int width, int *taken)
{
    size_t n_bytes = strlen(text), at = 0, length;

    *taken = 0;
    while (at < n_bytes) {
        int columns = columns_of(text + at, n_bytes - at, &length);
        if (*taken + columns > width)
            break;
        *taken += columns;
        at += length;
    }
    return at;
}

void hl_terminal_put(hl_output *output, const char *text, int width, hl_align align)
{
    int    taken  = 0;
    size_t length = fitting(text, width, &taken);
    bool   cut    = text[length] != '\0';

    if (cut) {
        length = fitting(text, width - 1, &taken);
        taken++;
    }
    if (align == HL_ALIGN_RIGHT)
        hl_output_print(output, "%*s", width - taken, "");
    hl_output_add(output, text, length);
    hl_output_print(output, "%s", cut ? "\u2026" : "");
    if (align == HL_ALIGN_LEFT)
        hl_output_print(output, "%*s", width - taken, "");
}
