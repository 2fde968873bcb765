/* test_measure_maps.c - profiles of attention maps: golden means, order, broken rows. */
#include "support.h"

#include <math.h>

#include "base/hash.h"
#include "formats/safetensors.h"
#include "stats/profile.h"

static const char *folder;

static const char *here(const char *name)
{
    return in_folder(folder, name);
}

static void write_tensor(const char *name, const hl_tensor *given)
{
    hl_safetensors_writer *writer = NULL;
    hl_tensor              tensor = *given;

    assert_ok(hl_safetensors_writer_new(&writer));
    assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    hl_safetensors_add(writer, &tensor);
    assert_ok(hl_safetensors_write(writer, here(name)));
    hl_safetensors_writer_free(writer);
}

/* Returns the mean of a golden statistic over the rows of layer 0, sequence 0 and one head. */
static double golden_mean(const hl_safetensors *golden, const char *name, int64_t head)
{
    const hl_tensor *tensor = hl_safetensors_find(golden, name); /* (L,B,H,S) F64 */
    double           sum    = 0.0;

    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, HL_DTYPE_F64);
    for (int64_t row = 0; row < tensor->shape[3]; row++) {
        double value;
        memcpy(&value, (const char *)tensor->data + (head * tensor->shape[3] + row) * 8, 8);
        sum += value;
    }
    return sum / (double)tensor->shape[3];
}

static void means_are_the_golden_ones(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt_neox", "llama3", "phi3" };

    for (size_t i = 0; i < 3; i++) {
        char            path[256];
        hl_safetensors *golden  = NULL;
        hl_profile     *profile = NULL;

        snprintf(path, sizeof path, "tests/data/families/%s/expected.safetensors", names[i]);
        assert_ok(hl_safetensors_open(&golden, path));
        assert_ok(hl_measure_maps(&profile, path, NULL)); /* finds `pattern0` */
        assert_int_equal(hl_profile_n_layers(profile), 1);
        assert_int_equal(hl_profile_all_sequences(profile), 1);
        for (int64_t head = 0; head < hl_profile_n_heads(profile); head++) {
            assert_true(fabs(hl_profile_mean(profile, 0, head, HL_Q_ENTROPY) -
                             golden_mean(golden, "entropy", head)) < 1e-6);
            assert_true(fabs(hl_profile_mean(profile, 0, head, HL_Q_PEAK) -
                             golden_mean(golden, "peak", head)) < 1e-6);
            assert_int_equal(hl_profile_broken(profile, 0, head), 0);
            assert_true(hl_profile_pattern(profile, 0, head, HL_PM_PEAK, false).count > 0);
            assert_true(isnan(hl_profile_output_norm(profile, 0, head)));
        }
        hl_profile_free(profile);
        hl_safetensors_close(golden);
    }
}

enum { B = 3, H = 2, S = 24 };

/* Makes random rows over all keys, or over those up to the row's own. */
static void make_maps(float *out, int64_t n_maps, bool causal, uint64_t seed)
{
    for (int64_t row = 0; row < n_maps * S; row++) {
        double sum = 0.0, values[S];
        for (int64_t key = 0; key < S; key++) {
            seed        = hl_hash_pair(seed, 3);
            values[key] = causal && key > row % S ? 0.0 : (double)(seed >> 40) + 1.0;
            sum += values[key];
        }
        for (int64_t key = 0; key < S; key++)
            out[row * S + key] = (float)(values[key] / sum);
    }
}

/* Sequences in another order, or measured one by one and merged, give the same bytes. */
static void order_and_parts_do_not_matter(void **state)
{
    (void)state;
    static float data[B][H * S * S], turned[B][H * S * S];
    hl_tensor    tensor  = { "attn", HL_DTYPE_F32, 5, { 1, B, H, S, S }, data, 0 };
    hl_profile  *profile = NULL, *sum = NULL;
    size_t       n_first = 0, n_second = 0;

    make_maps(data[0], B * H, true, 5);
    for (int i = 0; i < B; i++)
        memcpy(turned[i], data[B - 1 - i], sizeof data[i]);
    write_tensor("a.safetensors", &tensor);
    assert_ok(hl_measure_maps(&profile, here("a.safetensors"), NULL));
    assert_ok(hl_profile_write(profile, here("first")));
    hl_profile_free(profile);
    char *first = read_file(here("first"), &n_first);

    tensor.data = turned;
    write_tensor("a.safetensors", &tensor);
    assert_ok(hl_measure_maps(&profile, here("a.safetensors"), NULL));
    assert_ok(hl_profile_write(profile, here("second")));
    hl_profile_free(profile);
    char *second = read_file(here("second"), &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    free(second);

    tensor.shape[1] = 1;
    for (int i = 0; i < B; i++) {
        tensor.data = data[i];
        write_tensor("a.safetensors", &tensor);
        assert_ok(hl_measure_maps(&profile, here("a.safetensors"), NULL));
        if (sum == NULL) {
            sum = profile;
            continue;
        }
        assert_ok(hl_profile_merge(sum, profile));
        hl_profile_free(profile);
    }
    assert_ok(hl_profile_write(sum, here("second")));
    hl_profile_free(sum);
    second = read_file(here("second"), &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    free(first);
    free(second);
}

/* The number of visible keys determines what counts as uniform. */
static void masks_decide_about_normalized_entropies(void **state)
{
    (void)state;
    static float data[S * S];
    hl_tensor    tensor  = { "attn", HL_DTYPE_F32, 3, { 1, S, S }, data, 0 };
    hl_profile  *profile = NULL;

    for (int row = 0; row < S; row++) {
        for (int key = 0; key <= row; key++)
            data[row * S + key] = 1.0f / (float)(row + 1);
    }
    write_tensor("a.safetensors", &tensor);
    assert_ok(hl_measure_maps(&profile, here("a.safetensors"), NULL));
    hl_moments normalized = hl_profile_moments(profile, 0, 0, HL_Q_NORMALIZED);
    assert_int_equal(normalized.count, S - 15); /* rows that see 16 keys or more */
    assert_true(fabs(normalized.mean - 1.0) < 1e-6);
    hl_profile_free(profile);
    hl_maps_options full = { .mask = HL_MAPS_MASK_FULL };
    assert_ok(hl_measure_maps(&profile, here("a.safetensors"), &full));
    normalized = hl_profile_moments(profile, 0, 0, HL_Q_NORMALIZED);
    assert_int_equal(normalized.count, S);
    assert_true(normalized.mean < 0.9);
    hl_profile_free(profile);
}

static void broken_rows_are_counted(void **state)
{
    (void)state;
    static float data[H * S * S];
    hl_tensor    tensor  = { "attn", HL_DTYPE_F32, 3, { H, S, S }, data, 0 };
    hl_profile  *profile = NULL;

    make_maps(data, H, false, 6);
    data[S * S + 7 * S] = NAN;
    write_tensor("a.safetensors", &tensor);
    assert_ok(hl_measure_maps(&profile, here("a.safetensors"), NULL));
    assert_int_equal(hl_profile_broken(profile, 0, 0), 0);
    assert_int_equal(hl_profile_broken(profile, 0, 1), 1);
    assert_int_equal(hl_profile_moments(profile, 0, 1, HL_Q_ENTROPY).count, S - 1);
    hl_profile_free(profile);
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    static float data[4] = { 1, 1, 1, 1 };
    hl_tensor    tensor  = { "attn", HL_DTYPE_F32, 3, { 1, 4, 1 }, data, 0 };
    hl_profile  *profile = NULL;

    write_tensor("a.safetensors", &tensor);
    assert_fails(HL_UNSUPPORTED, "4 queries of 1 keys",
                 hl_measure_maps(&profile, here("a.safetensors"), NULL));
    assert_null(profile);
    assert_fails(HL_NOT_FOUND, "nowhere", hl_measure_maps(&profile, here("nowhere"), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_the_golden_ones),
        cmocka_unit_test(order_and_parts_do_not_matter),
        cmocka_unit_test(masks_decide_about_normalized_entropies),
        cmocka_unit_test(broken_rows_are_counted),
        cmocka_unit_test(what_cannot_be_measured_is_refused),
    };
    folder   = new_folder();
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(folder);
    return code;
}
