/* alike.c - how alike the heads of each layer write, as a picture.
 *
 *     alike <PROFILE >OUT.ppm
 *
 * A square for every layer, side by side: head by head, the darker the more alike is what they write
 * (linear CKA).  The profile is read from standard input, the picture is a PPM. */
#include <stdio.h>

#include <headlight.h>

enum { PIXELS = 8 }; /* of a cell, each way */

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
            put(0.0); /* between layers */
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
