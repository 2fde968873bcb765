/* test_quant_agreement.c - every back end decodes blocks as the scalar one does.
 *
 * Random bytes are valid blocks of every type: all back ends must give the same bits, except for
 * NaN, and must not write more values than requested. */
#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

enum { MAX_BLOCKS = 37, MAX_VALUES = MAX_BLOCKS * 256, MAX_BYTES = MAX_BLOCKS * 256 };

static uint64_t random_state = 42;

static uint8_t random_byte(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint8_t)(random_state >> 56);
}

static bool is_decoded(hl_dtype dtype)
{
    return hl_dtype_is_block(dtype) || dtype == HL_DTYPE_F16 || dtype == HL_DTYPE_BF16;
}

/* Both values NaN, or the same bits. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static void decode(float *out, const char *backend, hl_dtype dtype, const uint8_t *blocks,
                   size_t n_values)
{
    const hl_kernels *kernels = NULL;

    assert_ok(hl_backend_select(backend));
    assert_ok(hl_kernels_current(&kernels));
    out[n_values] = 12345.0f; /* must not change */
    kernels->dequantize(out, dtype, blocks, n_values / hl_dtype_block_of(dtype).n_values);
    assert_true(out[n_values] == 12345.0f);
}

/* The blocks are at the end of an allocation of their own, at an odd address. */
static void compare(const char *backend, hl_dtype dtype, size_t n_blocks)
{
    static float   wanted[MAX_VALUES + 1], seen[MAX_VALUES + 1];
    hl_dtype_block block    = hl_dtype_block_of(dtype);
    size_t         n_values = n_blocks * block.n_values;
    size_t         n_bytes  = n_blocks * block.n_bytes;
    uint8_t       *blocks   = malloc(n_bytes + 1);

    assert_non_null(blocks);
    for (size_t i = 0; i <= n_bytes; i++)
        blocks[i] = random_byte();
    decode(wanted, "scalar", dtype, blocks + 1, n_values);
    decode(seen, backend, dtype, blocks + 1, n_values);
    for (size_t i = 0; i < n_values; i++) {
        if (!same(wanted[i], seen[i]))
            fail_msg("%s on %s: value %zu is %a, wanted %a", hl_dtype_name(dtype), backend, i,
                     seen[i], wanted[i]);
    }
    free(blocks);
}

static void back_ends_agree(void **state)
{
    static const size_t counts[] = { 0, 1, 2, 7, 8, 9, MAX_BLOCKS };
    (void)state;

    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
            for (size_t i = 0; i < 7 * 20 && is_decoded((hl_dtype)dtype); i++)
                compare(*name, (hl_dtype)dtype, counts[i % 7]);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(back_ends_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
