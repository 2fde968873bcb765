/* alike.c - a picture of how similar the outputs of a layer's heads are.
 *
 *     alike <PROFILE >OUT.ppm
 *
 * Draws one square per layer, side by side, with a cell for each pair of heads: darker cells have
 * more similar outputs (linear CKA).  Reads a profile from standard input and writes a PPM
 * picture. */
#include <stdio.h>

#include <headlight.h>

enum { PIXELS = 8 }; /* width and height of a cell */

static void put(double share)
{
    hl_color color = hl_map_color(HL_MAP_BLUES, share);

    for (int i = 0; i < PIXELS; i++)
        printf("%c%c%c", color.red, color.green, color.blue);
}

static void draw(const hl_profile *profile)
{
    int64_t n_layers = hl_profile_n_layers(profile), n_heads = hl_profile_n_heads(profile);

    printf("P6 %lld %lld 255\n", (long long)(n_layers * (n_heads + 1) * PIXELS),
           (long long)(n_heads * PIXELS));
    for (int64_t line = 0; line < n_heads * PIXELS; line++)
        for (int64_t layer = 0; layer < n_layers; layer++) {
            for (int64_t head = 0; head < n_heads; head++)
                put(hl_profile_cka(profile, layer, line / PIXELS, head));
            put(0.0); /* a gap between layers */
        }
}

int main(void)
{
    static char bytes[1 << 26];
    hl_profile *profile = NULL;
    size_t      n_bytes = fread(bytes, 1, sizeof bytes, stdin);
    hl_status   status  = hl_profile_parse(&profile, bytes, n_bytes, "standard input");

    if (status == HL_OK)
        draw(profile);
    else
        fprintf(stderr, "%s\n", hl_error_message());
    hl_profile_free(profile);
    return status == HL_OK ? 0 : 3;
}
