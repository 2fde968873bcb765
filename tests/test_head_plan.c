/* test_head_plan.c - which heads are removed and which are zeroed, so that groups stay equal. */
#include "support.h"

#include "model/head_plan.h"

/* Checks a plan of one layer, given as a picture: in "ABx.|..", each part is a group and x is
 * pruned. `after` is the picture of the result: g removed, 0 zeroed, . kept; then the counts. */
static void check(const char *before, const char *after, int64_t n_heads, int64_t n_kv)
{
    hl_layer_config layer  = { 0 };
    hl_config       config = { .n_layers = 1, .layers = &layer };
    hl_head_plan   *plan   = NULL;
    char            seen[64];
    int             length = 0;

    layer.n_kv_heads = 1;
    for (const char *c = before; *c != '\0'; c++) {
        layer.n_heads += *c != '|';
        layer.n_kv_heads += *c == '|';
    }
    config.n_heads    = layer.n_heads;
    config.n_kv_heads = layer.n_kv_heads;
    assert_ok(hl_head_plan_new(&plan, &config));
    for (int i = 0, head = 0; before[i] != '\0'; i++) {
        if (before[i] == 'x')
            hl_head_plan_zero(plan, 0, head);
        head += before[i] != '|';
    }
    hl_head_plan_compact(plan, &config);
    for (int i = 0, head = 0; before[i] != '\0'; i++)
        seen[length++] = before[i] == '|' ? '|' : ".0g"[plan->layers[0].heads[head++]];
    seen[length] = '\0';
    assert_string_equal(seen, after);
    assert_int_equal(plan->layers[0].n_heads, n_heads);
    assert_int_equal(plan->layers[0].n_kv_heads, n_kv);

    hl_head_plan_expand(plan, &config);
    assert_false(hl_head_plan_is_compact(plan, &config));
    assert_int_equal(plan->layers[0].n_heads, layer.n_heads);
    assert_int_equal(plan->layers[0].n_kv_heads, layer.n_kv_heads);
    hl_head_plan_free(plan);
}

static void groups_stay_equal(void **state)
{
    (void)state;
    check("..x.|xx..|xxxx", "..g.|g0..|gggg", 6, 2);
    check("....|x...|....", "....|0...|....", 12, 3); /* no head can be removed */
    check("x...|.x..", "g...|.g..", 6, 2);
    check("xx|..", "gg|..", 2, 1);
    check(".|x|.|x", ".|g|.|g", 2, 2); /* one KV head per query head */
    check(".x.x", ".g.g", 2, 1);       /* one KV head for all */
    check("..|..", "..|..", 4, 2);
}

static void an_empty_layer_keeps_one_head_zeroed(void **state)
{
    (void)state;
    check("xx|xx", "g0|gg", 1, 1);
    check("x|x|x", "0|g|g", 1, 1);
    check("xxx", "gg0", 1, 1);
    check("x", "0", 1, 1);
}

static void layers_are_alike_or_not(void **state)
{
    hl_layer_config layers[] = { { .n_heads = 4, .n_kv_heads = 4 },
                                 { .n_heads = 4, .n_kv_heads = 4 } };
    hl_config       config   = { .n_layers = 2, .n_heads = 4, .n_kv_heads = 4, .layers = layers };
    hl_head_plan   *plan     = NULL;
    int64_t         n_zeroed, n_gone;
    (void)state;

    assert_ok(hl_head_plan_new(&plan, &config));
    assert_true(hl_head_plan_is_uniform(plan));
    hl_head_plan_zero(plan, 0, 3);
    hl_head_plan_count(&n_zeroed, &n_gone, plan, &config);
    assert_int_equal(n_zeroed, 1);
    assert_int_equal(n_gone, 0);
    hl_head_plan_compact(plan, &config);
    hl_head_plan_count(&n_zeroed, &n_gone, plan, &config);
    assert_int_equal(n_zeroed, 0);
    assert_int_equal(n_gone, 1);
    assert_false(hl_head_plan_is_uniform(plan));
    hl_head_plan_zero(plan, 1, 0);
    hl_head_plan_compact(plan, &config); /* a second time, with one more head */
    assert_true(hl_head_plan_is_uniform(plan));
    hl_head_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_stay_equal),
        cmocka_unit_test(an_empty_layer_keeps_one_head_zeroed),
        cmocka_unit_test(layers_are_alike_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
