/* test_router.c - the choice of experts against values computed by hand, its gradients against
 * differences. */
#include "support.h"

#include <math.h>

#include "kernels/router.h"

enum { MOST = 16 };

static void choose(int64_t *chosen, float *weights, const float *logits, const float *correction,
                   hl_router router, int64_t n_experts, int64_t n_used)
{
    float scores[MOST];

    if (router.scale == 0.0)
        router.scale = 1.0;
    hl_router_choose(chosen, weights, scores, logits, correction, &router, n_experts, n_used);
}

/* logits are the logarithms of 1, 2, 3 and 4 tenths, so that these are the softmax. */
static void softmax_over_all_or_over_the_chosen(void **state)
{
    const float logits[4] = { logf(0.1f), logf(0.2f), logf(0.3f), logf(0.4f) };
    int64_t     chosen[2];
    float       weights[2];
    (void)state;

    choose(chosen, weights, logits, NULL, (hl_router){ 0 }, 4, 2);
    assert_int_equal(chosen[0], 3);
    assert_int_equal(chosen[1], 2);
    assert_float_equal(weights[0], 0.4, 1e-6);
    assert_float_equal(weights[1], 0.3, 1e-6);
    choose(chosen, weights, logits, NULL, (hl_router){ .normed = true, .scale = 2.0 }, 4, 2);
    assert_float_equal(weights[0], 2.0 * 4.0 / 7.0, 1e-6);
    assert_float_equal(weights[1], 2.0 * 3.0 / 7.0, 1e-6);
    choose(chosen, weights, logits, NULL, (hl_router){ .normed = true, .least = 0.8 }, 4, 2);
    assert_float_equal(weights[0], 0.5, 1e-6);
    choose(chosen, weights, logits, NULL, (hl_router){ .normed = true, .added = 0.1 }, 4, 2);
    assert_float_equal(weights[0], 0.5, 1e-6);
}

/* The correction decides which experts are chosen; the weights do not contain it. */
static void a_correction_chooses(void **state)
{
    const float logits[4]     = { 0.0f, logf(3.0f), 0.0f, 0.0f }; /* sigmoids 0.5, 0.75 */
    const float correction[4] = { 0.0f, -0.5f, 0.1f, 0.0f };
    hl_router   router        = { .score = HL_ROUTER_SIGMOID, .has_correction = true };
    int64_t     chosen[4];
    float       weights[4];
    (void)state;

    choose(chosen, weights, logits, correction, router, 4, 4);
    assert_int_equal(chosen[0], 2);
    assert_int_equal(chosen[1], 0); /* of equal ones the first */
    assert_int_equal(chosen[2], 3);
    assert_int_equal(chosen[3], 1);
    assert_float_equal(weights[0], 0.5, 1e-6);
    assert_float_equal(weights[3], 0.75, 1e-6);
}

/* Group 0 has the best expert, group 1 the best two, group 2 neither. */
static void groups_count_by_one_or_by_two(void **state)
{
    const float logits[6] = { 4.0f, -3.0f, 3.0f, 2.5f, 2.0f, 2.0f };
    hl_router   router    = { .score = HL_ROUTER_SIGMOID, .n_groups = 3, .n_groups_used = 1 };
    int64_t     chosen[2];
    float       weights[2];
    (void)state;

    choose(chosen, weights, logits, NULL, router, 6, 2);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 1);
    router.groups_by_two = true;
    choose(chosen, weights, logits, NULL, router, 6, 2);
    assert_int_equal(chosen[0], 2);
    assert_int_equal(chosen[1], 3);
    router.n_groups_used = 2;
    choose(chosen, weights, logits, NULL, router, 6, 2);
    assert_int_equal(chosen[0], 2);
    assert_int_equal(chosen[1], 3);
}

/* Margin 0.3: of 10 and 8, (10 - 8) / 10 is close; of 10 and 6 not.  The second expert's softmax
 * has 8 and 6, since (8 - 6) / 8 is close. */
static void sparsemixer_takes_two(void **state)
{
    const float logits[4] = { 6.0f, 10.0f, -9.0f, 8.0f };
    hl_router   router    = { .score = HL_ROUTER_SPARSEMIXER, .margin = 0.3 };
    int64_t     chosen[2];
    float       weights[2];
    (void)state;

    choose(chosen, weights, logits, NULL, router, 4, 2);
    assert_int_equal(chosen[0], 1);
    assert_int_equal(chosen[1], 3);
    assert_float_equal(weights[0], 1.0 / (1.0 + exp(-2.0)), 1e-6);
    assert_float_equal(weights[1], 1.0 / (1.0 + exp(-2.0)), 1e-6);
}

static double weighted(const float *logits, const float *correction, hl_router router,
                       const float *slopes, int64_t n_experts, int64_t n_used)
{
    int64_t chosen[MOST];
    float   weights[MOST];
    double  sum = 0.0;

    choose(chosen, weights, logits, correction, router, n_experts, n_used);
    for (int64_t i = 0; i < n_used; i++)
        sum += (double)slopes[i] * (double)weights[i];
    return sum;
}

static void gradients_are_differences(void **state)
{
    static const hl_router routers[] = {
        { .scale = 1.5 },
        { .normed = true, .scale = 1.0 },
        { .normed = true, .added = 0.2, .scale = 1.0 },
        { .normed = true, .least = 9.0, .scale = 1.0 },
        { .score = HL_ROUTER_SIGMOID, .scale = 1.0 },
        { .score = HL_ROUTER_SIGMOID, .normed = true, .has_correction = true, .scale = 2.5 },
        { .score = HL_ROUTER_SPARSEMIXER, .margin = 0.6, .scale = 1.0 },
    };
    const float logits[6]     = { 1.0f, 1.7f, 0.2f, 1.4f, -0.6f, 0.9f };
    const float correction[6] = { 0.0f, -0.2f, 0.5f, 0.1f, 0.0f, -0.1f };
    const float slopes[2]     = { 0.7f, -1.3f };
    (void)state;

    for (size_t r = 0; r < sizeof routers / sizeof *routers; r++) {
        int64_t chosen[MOST];
        float   weights[MOST];
        float   gradient[6];

        choose(chosen, weights, logits, correction, routers[r], 6, 2);
        memcpy(gradient, logits, sizeof logits);
        hl_router_gradient(gradient, chosen, slopes, &routers[r], 6, 2);
        for (int e = 0; e < 6; e++) {
            float up[6], down[6];

            memcpy(up, logits, sizeof logits);
            memcpy(down, logits, sizeof logits);
            up[e] += 0.01f;
            down[e] -= 0.01f;
            assert_float_equal((weighted(up, correction, routers[r], slopes, 6, 2) -
                                weighted(down, correction, routers[r], slopes, 6, 2)) /
                                   0.02,
                               gradient[e], 1e-4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_over_all_or_over_the_chosen),
        cmocka_unit_test(a_correction_chooses),
        cmocka_unit_test(groups_count_by_one_or_by_two),
        cmocka_unit_test(sparsemixer_takes_two),
        cmocka_unit_test(gradients_are_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
