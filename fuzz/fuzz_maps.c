/* fuzz_maps.c - arbitrary bytes as attention maps: a .npy and a .safetensors file.
 *
 * They are refused with a message, or measured as probabilities and as scores, with any numbers.
 * Every head of the profile can be queried. */
#include "fuzz_file.h"

static void ask(const hl_profile *profile)
{
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        for (int64_t head = 0; head < hl_profile_n_heads(profile); head++) {
            hl_moments moments = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY);
            PROMISE(moments.count >= 0 && !(moments.variance < 0.0));
        }
    }
}

static void measure(const char *path, bool scores)
{
    hl_maps_options options = { .scores = scores, .n_threads = 1 };
    hl_profile     *profile = NULL;

    if (hl_measure_maps(&profile, path, &options) != HL_OK) {
        refused(profile);
        return;
    }
    ask(profile);
    hl_profile_free(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static const char *const names[] = { "maps.npy", "maps.safetensors" };

    for (int i = 0; i < 2; i++) {
        const char *path = fuzz_file(names[i], bytes, n_bytes);
        measure(path, false);
        measure(path, true);
    }
    return 0;
}
