/* fuzz_profile.c - arbitrary bytes as a profile.
 *
 * They are accepted or refused with a message.  An accepted profile answers every query, can be
 * written and read again, and merges with a copy of itself, which doubles its counts. */
#include "fuzz_file.h"
#include "stats/profile.h"

static void ask_head(const hl_profile *profile, int64_t layer, int64_t head)
{
    int64_t document;
    int64_t token;

    for (int i = 0; i < HL_N_QUANTITIES; i++) {
        hl_moments moments = hl_profile_moments(profile, layer, head, (hl_quantity)i);
        PROMISE(moments.count >= 0 && !(moments.variance < 0.0));
    }
    for (int i = 0; i < HL_N_HISTOGRAMS; i++)
        (void)hl_profile_quantile(profile, layer, head, (hl_histogram)i, 0.5);
    for (int i = 0; i < HL_N_PATTERN_METRICS; i++)
        (void)hl_profile_pattern(profile, layer, head, (hl_pattern_metric)i, i % 2 == 0);
    for (int64_t i = 0; i < hl_profile_n_buckets(profile); i++)
        (void)hl_profile_by_position(profile, layer, head, i, HL_Q_NORMALIZED);
    for (int64_t i = 0; i < hl_profile_n_types(profile); i++) {
        (void)hl_profile_by_type(profile, layer, head, i, HL_Q_RENYI2);
        (void)hl_profile_lookback(profile, layer, head, i, 0);
    }
    for (int64_t i = 0; i < hl_profile_n_sequences(profile); i++)
        (void)hl_profile_sequence_mean(profile, i, layer, head, HL_Q_ENTROPY_NOSINK);
    for (int64_t i = 0; i < hl_profile_n_sequences(profile) * hl_profile_n_buckets(profile); i++) {
        int64_t sequence = i / hl_profile_n_buckets(profile);
        int64_t bucket   = i % hl_profile_n_buckets(profile);
        (void)hl_profile_sequence_position(profile, sequence, layer, bucket, HL_Q_NORMALIZED);
        PROMISE(hl_profile_sequence_rows(profile, sequence, bucket, HL_Q_NORMALIZED) >= 0);
    }
    (void)hl_profile_similarity(profile, layer, head, 0);
    (void)hl_profile_cka(profile, layer, head, 0);
    (void)hl_profile_probe(profile, layer, head, HL_PROBE_PREVIOUS);
    (void)hl_profile_output_norm(profile, layer, head);
    PROMISE(hl_profile_broken_place(&document, &token, profile, layer, head) ==
            (hl_profile_broken(profile, layer, head) > 0));
}

static void write_and_read(const hl_profile *profile)
{
    char        path[FUZZ_PATH_BYTES];
    hl_profile *again = NULL;

    snprintf(path, sizeof path, "%s/again.profile", fuzz_folder());
    PROMISE(hl_profile_write(profile, path) == HL_OK);
    PROMISE(hl_profile_load(&again, path) == HL_OK);
    PROMISE(hl_profile_n_tokens(again) == hl_profile_n_tokens(profile));
    hl_profile_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_profile *profile = NULL;
    hl_profile *twin    = NULL;
    char       *state   = NULL;

    if (hl_profile_parse(&profile, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(profile);
    int64_t n_layers = hl_profile_n_layers(profile);
    for (int64_t i = 0; i < n_layers * hl_profile_n_heads(profile); i++)
        ask_head(profile, i % n_layers, i / n_layers);
    (void)hl_profile_block_influence(profile, n_layers - 1);
    (void)hl_profile_nll(profile);
    write_and_read(profile);

    int64_t n_tokens = hl_profile_n_tokens(profile);
    if (hl_profile_load_state(&twin, &state, fuzz_file("profile", bytes, n_bytes)) != HL_OK) {
        refused(twin); /* refused only if it is a state of the first format */
        PROMISE(hl_profile_load(&twin, fuzz_file("profile", bytes, n_bytes)) == HL_OK);
    }
    if (hl_profile_merge(profile, twin) == HL_OK)
        PROMISE(hl_profile_n_tokens(profile) == 2 * n_tokens);
    hl_free(state);
    hl_profile_free(profile);
    hl_profile_free(twin);
    return 0;
}
