/* test_attention_arguments.c - invalid problems are refused with the name of the argument. */
#include "attention_support.h"

/* --------------------------------------------------------------- bad arguments */

/* The call must fail with a message that names the argument. */
static void refused(hl_status wanted, const char *name, hl_attention_result result,
                    hl_attention problem)
{
    hl_status status = hl_attention_forward(&result, &problem);
    if (status != wanted || strstr(hl_error_message(), name) == NULL)
        fail_msg("%s: status \"%s\", message \"%s\"", name, hl_status_name(status),
                 status == HL_OK ? "" : hl_error_message());
}

#define REFUSED_SIZE(field, value)                                                                 \
    do {                                                                                           \
        hl_attention p = plain_problem();                                                          \
        p.field        = (value);                                                                  \
        refused(HL_BAD_ARGUMENT, #field, plain_result(), p);                                       \
    } while (0)

static void impossible_sizes_are_refused_by_name(void **unused)
{
    (void)unused;
    REFUSED_SIZE(n_batch, -1);
    REFUSED_SIZE(n_heads, 0);
    REFUSED_SIZE(n_heads, -4);
    REFUSED_SIZE(n_kv_heads, 0);
    REFUSED_SIZE(n_kv_heads, 3);
    REFUSED_SIZE(n_queries, -1);
    REFUSED_SIZE(n_queries, INT64_MAX);
    REFUSED_SIZE(n_keys, -1);
    REFUSED_SIZE(n_keys, INT64_MAX);
    REFUSED_SIZE(d_head, 0);
    REFUSED_SIZE(d_head, HL_MAX_HEAD_DIM + 1);
    REFUSED_SIZE(d_value, -1);
    REFUSED_SIZE(d_value, HL_MAX_HEAD_DIM + 1);
    REFUSED_SIZE(n_threads, -1);
    REFUSED_SIZE(n_segments, HL_MAX_SEGMENTS + 1);
    REFUSED_SIZE(softcap, -1.0);
    REFUSED_SIZE(softcap, (double)NAN);
    REFUSED_SIZE(scale, (double)INFINITY);

    hl_attention p = plain_problem();
    p.n_heads      = 3;
    refused(HL_BAD_ARGUMENT, "n_heads", plain_result(), p);
    p         = plain_problem();
    p.n_batch = p.n_heads = p.n_kv_heads = (int64_t)1 << 30;
    refused(HL_LIMIT, "n_batch", plain_result(), p);
}

static void impossible_rows_are_refused_by_name(void **unused)
{
    hl_attention p = plain_problem();

    (void)unused;
    p.q.data = NULL;
    refused(HL_BAD_ARGUMENT, "q.data", plain_result(), p);
    p        = plain_problem();
    p.k.data = NULL;
    refused(HL_BAD_ARGUMENT, "k.data", plain_result(), p);
    p         = plain_problem();
    p.v.dtype = HL_DTYPE_I32;
    refused(HL_BAD_ARGUMENT, "v.dtype", plain_result(), p);
    p        = plain_problem();
    p.q.data = (char *)q + 1;
    refused(HL_BAD_ARGUMENT, "q.data", plain_result(), p);
    p              = plain_problem();
    p.k.row_stride = -D;
    refused(HL_BAD_ARGUMENT, "k has strides", plain_result(), p);
    p              = plain_problem();
    p.k.row_stride = INT64_MAX / 2;
    refused(HL_LIMIT, "k spans", plain_result(), p);

    hl_attention_result r = plain_result();
    r.out.row_stride      = 1; /* rows overlap */
    refused(HL_BAD_ARGUMENT, "out has strides", r, plain_problem());
    assert_int_equal(hl_attention_forward(NULL, &p), HL_BAD_ARGUMENT);
    assert_int_equal(hl_attention_forward(&r, NULL), HL_BAD_ARGUMENT);
}

static void received_refuses_by_name(void **unused)
{
    hl_attention p               = plain_problem();
    float        received[H * S] = { 0 };
    const struct {
        float       *received;
        const float *lse;
        int64_t      n_last;
        const char  *words;
    } bad[] = {
        { NULL, lse, 0, "received" },
        { received, NULL, 0, "lse" },
        { received, lse, S + 1, "n_last is 25, wanted 0 to 24" },
        { received, lse, -1, "n_last is -1" },
        { lse, lse, 0, "received overlaps lse" },
        { q, lse, 0, "received overlaps q" },
    };

    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hl_attention_received(bad[i].received, &p, bad[i].lse, bad[i].n_last),
                         HL_BAD_ARGUMENT);
        if (strstr(hl_error_message(), bad[i].words) == NULL)
            fail_msg("'%s' is not in '%s'", bad[i].words, hl_error_message());
    }
    p.v.data = NULL; /* is not read */
    assert_int_equal(hl_attention_received(received, &p, lse, 0), HL_OK);
}

static void overlapping_memory_is_refused_by_name(void **unused)
{
    hl_attention_result r = plain_result();

    (void)unused;
    r.out.data = q + 3;
    refused(HL_BAD_ARGUMENT, "out overlaps q", r, plain_problem());
    r         = plain_result();
    r.entropy = v + H * S * D - H * S;
    refused(HL_BAD_ARGUMENT, "entropy overlaps v", r, plain_problem());
    r        = plain_result();
    r.renyi2 = entropy;
    refused(HL_BAD_ARGUMENT, "renyi2 overlaps entropy", r, plain_problem());

    hl_attention          p = plain_problem();
    hl_attention_upstream u = { .grad_out = { .data = grad }, .out = { .data = out }, .lse = lse };
    hl_attention_gradient g = { .dq = { .data = grad } };
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "dq overlaps grad_out"));
}

static void impossible_masks_are_refused_by_name(void **unused)
{
    int64_t      bad[1]      = { S + 1 };
    uint8_t      segments[S] = { 0 };
    hl_attention p           = plain_problem();

    (void)unused;
    p.key_length = bad;
    refused(HL_BAD_ARGUMENT, "key_length", plain_result(), p);
    bad[0] = -1;
    refused(HL_BAD_ARGUMENT, "key_length", plain_result(), p);
    bad[0]        = INT64_MIN;
    p             = plain_problem();
    p.query_start = bad;
    refused(HL_BAD_ARGUMENT, "query_start", plain_result(), p);
    p             = plain_problem();
    p.flags       = HL_ATTENTION_WINDOW_LEFT;
    p.window_left = -1;
    refused(HL_BAD_ARGUMENT, "window_left", plain_result(), p);
    p.window_left = 3;
    p.window_sink = -1;
    refused(HL_BAD_ARGUMENT, "window_sink", plain_result(), p);

    float               mass[H * S * 2];
    hl_attention_result r = plain_result();
    r.segment_mass        = mass;
    p                     = plain_problem();
    p.n_segments          = 2;
    refused(HL_BAD_ARGUMENT, "segments", r, p);
    segments[S - 1] = 2;
    p.segments      = segments;
    refused(HL_BAD_ARGUMENT, "segments[23]", r, p);
    bad[0]       = S;
    p.key_length = bad;
    refused(HL_BAD_ARGUMENT, "segments[23]", r, p);
    bad[0] = S - 1; /* no row sees that key */
    assert_int_equal(hl_attention_forward(&r, &p), HL_OK);
}

static void backward_needs_what_forward_said(void **unused)
{
    hl_attention          p = plain_problem();
    hl_attention_gradient g = { 0 };
    hl_attention_upstream u = { .grad_out = { .data = grad }, .out = { .data = out } };

    (void)unused;
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "lse"));
    u.lse          = lse;
    u.grad_entropy = entropy;
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "entropy is NULL"));
    u = (hl_attention_upstream){ .grad_out = { .data = grad }, .lse = lse };
    assert_int_equal(hl_attention_backward(&g, &p, &u), HL_BAD_ARGUMENT);
    assert_non_null(strstr(hl_error_message(), "out.data"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_sizes_are_refused_by_name),
        cmocka_unit_test(impossible_rows_are_refused_by_name),
        cmocka_unit_test(received_refuses_by_name),
        cmocka_unit_test(overlapping_memory_is_refused_by_name),
        cmocka_unit_test(impossible_masks_are_refused_by_name),
        cmocka_unit_test(backward_needs_what_forward_said),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
