/* palette.c - Oklab, and the color maps and themes computed in it. */
#include "render/palette.h"

#include <math.h>

#include "analysis/head_kinds.h"

static const double degree = 3.14159265358979323846 / 180.0;

/* -------------------------------------------------------------------- Oklab
 *
 * sRGB to linear light, to the responses of three cones, whose cube roots are turned
 * into lightness and two opponent axes; and back. */

static double to_linear(double part)
{
    return part <= 0.04045 ? part / 12.92 : pow((part + 0.055) / 1.055, 2.4);
}

static double from_linear(double part)
{
    return part <= 0.0031308 ? 12.92 * part : 1.055 * pow(part, 1.0 / 2.4) - 0.055;
}

hl_oklab hl_oklab_of(hl_color color)
{
    double red   = to_linear(color.red / 255.0);
    double green = to_linear(color.green / 255.0);
    double blue  = to_linear(color.blue / 255.0);
    double l     = cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
    double m     = cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
    double s     = cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);

    return (hl_oklab){
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    };
}

/* Converts to linear light; values outside 0 to 1 cannot be shown on a screen. */
static void linear_of(double out[3], hl_oklab lab)
{
    double l = pow(lab.l + 0.3963377774 * lab.a + 0.2158037573 * lab.b, 3.0);
    double m = pow(lab.l - 0.1055613458 * lab.a - 0.0638541728 * lab.b, 3.0);
    double s = pow(lab.l - 0.0894841775 * lab.a - 1.2914855480 * lab.b, 3.0);

    out[0] = +4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s;
    out[1] = -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s;
    out[2] = -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s;
}

static bool can_be_shown(hl_oklab lab)
{
    double linear[3];

    linear_of(linear, lab);
    for (int i = 0; i < 3; i++) {
        if (linear[i] < -1e-6 || linear[i] > 1.0 + 1e-6)
            return false;
    }
    return true;
}

static uint8_t to_byte(double linear)
{
    return (uint8_t)lround(255.0 * from_linear(fmin(fmax(linear, 0.0), 1.0)));
}

/* Converts to a color.  Colors that a screen cannot show lose chroma, but keep their lightness. */
static hl_color color_of(hl_oklab lab)
{
    double linear[3];
    double kept = 1.0; /* share of the chroma that is kept */
    double step = 0.5;

    if (!can_be_shown(lab)) {
        kept = 0.0;
        for (int i = 0; i < 16; i++, step /= 2.0) {
            double more = kept + step;
            if (can_be_shown((hl_oklab){ lab.l, more * lab.a, more * lab.b }))
                kept = more;
        }
    }
    linear_of(linear, (hl_oklab){ lab.l, kept * lab.a, kept * lab.b });
    return (hl_color){ to_byte(linear[0]), to_byte(linear[1]), to_byte(linear[2]) };
}

hl_color hl_mix(hl_color a, hl_color b, double share)
{
    hl_oklab from = hl_oklab_of(a), to = hl_oklab_of(b);

    return color_of((hl_oklab){
        from.l + share * (to.l - from.l),
        from.a + share * (to.a - from.a),
        from.b + share * (to.b - from.b),
    });
}

/* --------------------------------------------------------------------- maps */

static hl_color polar(double lightness, double chroma, double hue)
{
    return color_of(
        (hl_oklab){ lightness, chroma * cos(hue * degree), chroma * sin(hue * degree) });
}

hl_color hl_map_color(hl_map map, double share)
{
    double t = round(fmin(fmax(share, 0.0), 1.0) * (HL_MAP_LEVELS - 1)) / (HL_MAP_LEVELS - 1);

    switch (map) {
    case HL_MAP_BLUES:
        return polar(0.975 - 0.65 * t, 0.012 + 0.36 * t * (1.0 - t) + 0.09 * t * t,
                     248.0 + 14.0 * t);
    case HL_MAP_BLUES_DARK: /* the reversed map: low values have the color of a dark page */
        return polar(0.27 + 0.66 * t, 0.03 + 0.36 * t * (1.0 - t) + 0.01 * t * t, 264.0 - 22.0 * t);
    case HL_MAP_DIFFERENCE: { /* both arms have equal lightness and chroma, so neither looks
                               * stronger */
        double far = fabs(2.0 * t - 1.0);
        return polar(0.965 - 0.49 * far, 0.14 * far, t < 0.5 ? 252.0 : 32.0);
    }
    case HL_MAP_ENTROPY:
        break;
    }
    /* On a screen, teal reaches the least chroma of all hues: a larger one would cause a kink in
     * the map. */
    return polar(0.26 + 0.66 * t, 0.095 + 0.15 * (t - 0.5) * (t - 0.5), 308.0 - 205.0 * t);
}

/* Black and white have equal contrast at a luminance of 0.179, the luminance of a gray of this
 * lightness. */
bool hl_color_is_light(hl_color color)
{
    return hl_oklab_of(color).l > 0.5636;
}

/* ------------------------------------------------------------------- themes
 *
 * Series were found by a search that kept hues and moved lightness: any two of them are at least
 * 0.12 apart in OKLab, also as eyes without red or without green cones see them. */

static const hl_theme_colors light = {
    .background = { 255, 255, 255 },
    .text       = { 28, 30, 36 },
    .muted      = { 92, 96, 106 },
    .axis       = { 128, 132, 142 },
    .grid       = { 228, 230, 235 },
    .bar        = { 138, 150, 172 },
    .hatch      = { 150, 153, 161 },
    .series     = { { 37, 84, 160 },
                    { 208, 98, 36 },
                    { 73, 164, 144 },
                    { 101, 25, 87 },
                    { 89, 79, 0 },
                    { 158, 128, 250 },
                    { 35, 46, 0 },
                    { 15, 129, 169 } },
};

static const hl_theme_colors dark = {
    .background = { 22, 24, 29 },
    .text       = { 232, 234, 239 },
    .muted      = { 164, 169, 180 },
    .axis       = { 122, 127, 139 },
    .grid       = { 49, 53, 62 },
    .bar        = { 112, 125, 150 },
    .hatch      = { 110, 115, 126 },
    .series     = { { 122, 172, 245 },
                    { 240, 150, 90 },
                    { 194, 255, 211 },
                    { 189, 126, 149 },
                    { 222, 233, 29 },
                    { 173, 64, 168 },
                    { 100, 124, 42 },
                    { 155, 218, 253 } },
};

const hl_theme_colors *hl_theme_colors_of(hl_theme theme)
{
    return theme == HL_THEME_DARK ? &dark : &light;
}

/* There is a series color for every head type that a rule can give; unmeasured heads are gray. */
_Static_assert((int)HL_HEAD_UNKNOWN == (int)HL_N_SERIES, "a series for every type of heads");

hl_color hl_head_kind_color(hl_theme theme, int kind)
{
    const hl_theme_colors *colors = hl_theme_colors_of(theme);

    return kind >= 0 && kind < HL_N_SERIES ? colors->series[kind] : colors->hatch;
}
