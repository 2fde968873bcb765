/* test_record.c - a profile of rows that the caller computes is the one that hl_profile_layer makes of
 * them, and one that cross-attention has no own keys in. */
#include "support.h"

#include <math.h>

#include "stats/profile.h"

enum { LAYERS = 2, HEADS = 3, TOKENS = 20, KEYS = 7 };

/* Statistics of uniform attention over n keys. */
typedef struct uniform_rows {
    float               entropy[HEADS * TOKENS];
    float               zero[HEADS * TOKENS];
    float               share[HEADS * TOKENS];
    hl_attention_result result;
} uniform_rows;

static void fill(uniform_rows *rows, bool is_causal, int64_t n_keys)
{
    for (int i = 0; i < HEADS * TOKENS; i++) {
        double n         = (double)(is_causal ? i % TOKENS + 1 : n_keys);
        rows->entropy[i] = (float)log(n);
        rows->share[i]   = (float)(1.0 / n);
        rows->zero[i]    = 0.0f;
    }
    rows->result = (hl_attention_result){ .entropy        = rows->entropy,
                                          .renyi2         = rows->entropy,
                                          .varentropy     = rows->zero,
                                          .entropy_nosink = rows->zero,
                                          .peak           = rows->share,
                                          .self           = rows->share,
                                          .previous       = rows->share,
                                          .first          = rows->share };
}

static hl_recorder *open_recorder(void)
{
    static const int64_t           heads[LAYERS] = { HEADS, HEADS };
    static const hl_record_setting settings[]    = { { "model", "none" }, { "layers", "L0 X0" } };
    hl_recorder                   *recorder      = NULL;

    assert_ok(hl_recorder_open(&recorder, &(hl_record_options){ .n_layers   = LAYERS,
                                                                .heads      = heads,
                                                                .context    = TOKENS,
                                                                .settings   = settings,
                                                                .n_settings = 2,
                                                                .n_threads  = 1 }));
    return recorder;
}

static void own_and_other_keys(void **state)
{
    (void)state;
    int64_t        tokens[TOKENS] = { 3, 1, 4 };
    float          whole[HEADS * 2 * TOKENS];
    uniform_rows   own, other;
    hl_profile    *profile   = NULL;
    const int64_t *positions = NULL;
    hl_recorder   *recorder  = open_recorder();

    fill(&own, true, TOKENS);
    fill(&other, false, KEYS);
    assert_ok(hl_recorder_begin(
        recorder, &(hl_record_window){ .tokens = tokens, .n_tokens = TOKENS, .in_pieces = true }));
    assert_int_equal(hl_recorder_whole_rows(&positions, recorder), 2);
    assert_true(positions[0] < TOKENS / 2 && positions[1] >= TOKENS / 2);
    assert_int_equal(hl_recorder_output_rows(&positions, recorder), TOKENS);
    for (int i = 0; i < HEADS * 2 * TOKENS; i++)
        whole[i] = 1.0f / TOKENS; /* not what a causal row has, but it sums to at most 1 */
    assert_ok(hl_recorder_layer(recorder, &(hl_record_layer){ .layer     = 0,
                                                              .n_keys    = TOKENS,
                                                              .rows      = &own.result,
                                                              .whole     = whole,
                                                              .is_causal = true }));
    assert_ok(hl_recorder_layer(
        recorder,
        &(hl_record_layer){ .layer = 1, .n_keys = KEYS, .rows = &other.result, .is_cross = true }));
    assert_ok(hl_recorder_losses(recorder, (const float[]){ 2.0f, 4.0f }, 2));
    assert_ok(hl_recorder_end(recorder));
    assert_ok(hl_recorder_finish(&profile, recorder));

    double wanted = 0.0;
    for (int n = 1; n <= TOKENS; n++)
        wanted += log((double)n) / TOKENS;
    assert_float_equal(hl_profile_mean(profile, 0, 1, HL_Q_ENTROPY), wanted, 1e-6);
    assert_int_equal(hl_profile_moments(profile, 0, 0, HL_Q_PREVIOUS).count, TOKENS - 1);
    assert_float_equal(hl_profile_mean(profile, 1, 2, HL_Q_ENTROPY), log(KEYS), 1e-6);
    assert_int_equal(hl_profile_moments(profile, 1, 0, HL_Q_SELF).count, 0);
    assert_int_equal(hl_profile_moments(profile, 1, 0, HL_Q_FIRST).count, TOKENS);
    assert_int_equal(hl_profile_broken(profile, 1, 0), 0);
    assert_int_equal(hl_profile_pattern(profile, 0, 0, HL_PM_PEAK, false).count, 2);
    assert_float_equal(hl_profile_nll(profile).mean, 3.0, 1e-9);
    assert_string_equal(hl_profile_setting(profile, "layers"), "L0 X0");
    assert_int_equal(hl_profile_n_tokens(profile), TOKENS);
    hl_profile_free(profile);
    hl_recorder_close(recorder);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    int64_t      tokens[TOKENS] = { 0 };
    uniform_rows own;
    hl_profile  *profile  = NULL;
    hl_recorder *recorder = open_recorder();

    fill(&own, true, TOKENS);
    hl_record_layer layer = { .layer = 0, .n_keys = TOKENS, .rows = &own.result };
    assert_fails(HL_BAD_ARGUMENT, "no window", hl_recorder_layer(recorder, &layer));
    assert_fails(HL_BAD_ARGUMENT, "no window", hl_recorder_end(recorder));
    hl_record_window window = { .tokens = tokens, .n_tokens = TOKENS + 1 };
    assert_fails(HL_BAD_ARGUMENT, "number of tokens", hl_recorder_begin(recorder, &window));
    window.n_tokens = TOKENS;
    assert_ok(hl_recorder_begin(recorder, &window));
    layer.layer = LAYERS;
    assert_fails(HL_BAD_ARGUMENT, "layer", hl_recorder_layer(recorder, &layer));
    layer.layer  = 0;
    layer.n_keys = KEYS;
    assert_fails(HL_BAD_ARGUMENT, "7 keys, wanted the window's 20",
                 hl_recorder_layer(recorder, &layer));
    assert_fails(HL_BAD_ARGUMENT, "has not ended", hl_recorder_finish(&profile, recorder));
    assert_null(profile);
    hl_recorder_close(recorder);
    hl_recorder_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_and_other_keys),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
