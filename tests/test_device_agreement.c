/* test_device_agreement.c - the GPU's operations against those of the device "host", which define
 * them, on random rows of ragged and of usual sizes, in every type.  Skipped without a GPU. */
#include "device_twins.h"

#include "kernels/attention.h"
#include "kernels/quant.h"

/* ------------------------------------------------------------------ products */

static void linear_case(hl_dtype dtype, hl_dtype out_dtype, int64_t n_rows, int64_t n_in,
                        int64_t n_out, bool has_bias)
{
    twin x = twin_rows(dtype, n_rows * n_in), w = twin_rows(dtype, n_out * n_in);
    twin bias = twin_rows(HL_DTYPE_F32, n_out), out = twin_rows(out_dtype, n_rows * n_out);
    char what[64];

    EACH_SIDE(side)
    {
        hl_device_linear l = { .out        = out.at[side],
                               .out_dtype  = out_dtype,
                               .out_stride = n_out,
                               .x          = x.at[side],
                               .x_stride   = n_in,
                               .weight     = w.at[side],
                               .bias       = has_bias ? bias.at[side] : NULL,
                               .dtype      = dtype,
                               .n_rows     = n_rows,
                               .n_in       = n_in,
                               .n_out      = n_out };
        check_call(side, ops[side]->linear(devices[side], &l));
    }
    snprintf(what, sizeof what, "linear %lld %lld %lld", (long long)n_rows, (long long)n_in,
             (long long)n_out);
    compare(what, &out, out_dtype, dtype == HL_DTYPE_F32 ? dtype : HL_DTYPE_BF16);
    twin_free(&x);
    twin_free(&w);
    twin_free(&bias);
    twin_free(&out);
}

static void test_linear(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        linear_case(*dtype, *dtype, 1, 2048, 257, true);
        linear_case(*dtype, HL_DTYPE_F32, 2, 64, 30, false);
        linear_case(*dtype, *dtype, 3, 96, 130, true);
        linear_case(*dtype, *dtype, 8, 256, 64, false);
        linear_case(*dtype, *dtype, 300, 256, 192, true);
        linear_case(*dtype, HL_DTYPE_F32, 70, 64, 256, true);
        linear_case(*dtype, *dtype, 5, 12, 20, true); /* not aligned to sixteen bytes */
    }
}

static void experts_case(hl_dtype dtype, int64_t n_rows, int64_t n_experts, int64_t n_used,
                         bool is_gated, hl_router rule)
{
    int64_t d_model = 72, d_expert = 96, width = is_gated ? 2 * d_expert : d_expert;
    twin    x = twin_rows(dtype, n_rows * d_model), out = twin_rows(dtype, n_rows * d_model);
    twin    router     = twin_rows(HL_DTYPE_F32, n_rows * n_experts);
    twin    up         = twin_rows(dtype, n_experts * width * d_model);
    twin    down       = twin_rows(dtype, n_experts * d_model * d_expert);
    twin    up_bias    = twin_rows(HL_DTYPE_F32, n_experts * width);
    twin    down_bias  = twin_rows(HL_DTYPE_F32, n_experts * d_model);
    twin    correction = twin_rows(HL_DTYPE_F32, n_experts);

    EACH_SIDE(side)
    {
        hl_device_experts e       = { .out        = out.at[side],
                                      .x          = x.at[side],
                                      .router     = router.at[side],
                                      .up         = up.at[side],
                                      .up_bias    = up_bias.at[side],
                                      .down       = down.at[side],
                                      .down_bias  = down_bias.at[side],
                                      .dtype      = dtype,
                                      .n_rows     = n_rows,
                                      .d_model    = d_model,
                                      .d_expert   = d_expert,
                                      .n_experts  = n_experts,
                                      .n_used     = n_used,
                                      .rule       = rule,
                                      .correction = correction.at[side],
                                      .is_gated   = is_gated,
                                      .activation = HL_ACTIVATION_SILU };
        size_t            n_bytes = ops[side]->experts_bytes(devices[side], &e);
        check_call(side, ops[side]->alloc(devices[side], &e.work, n_bytes));
        check_call(side, ops[side]->experts(devices[side], &e));
        check_call(side, ops[side]->wait(devices[side]));
        ops[side]->free(devices[side], e.work);
    }
    compare("experts", &out, dtype, dtype == HL_DTYPE_F32 ? dtype : HL_DTYPE_BF16);
    twin *all[] = { &x, &out, &router, &up, &down, &up_bias, &down_bias, &correction };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void test_experts(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        experts_case(*dtype, 1, 4, 2, true, (hl_router){ .normed = true, .scale = 1.0 });
        experts_case(*dtype, 150, 8, 2, true, (hl_router){ .scale = 1.7 });
        experts_case(*dtype, 67, 5, 5, false, (hl_router){ .normed = true, .scale = 1.0 });
        experts_case(*dtype, 70, 40, 3, true,
                     (hl_router){ .score          = HL_ROUTER_SIGMOID,
                                  .normed         = true,
                                  .has_correction = true,
                                  .groups_by_two  = true,
                                  .n_groups       = 8,
                                  .n_groups_used  = 3,
                                  .added          = 1e-20,
                                  .scale          = 2.5 });
        experts_case(*dtype, 33, 12, 4, true,
                     (hl_router){ .n_groups = 3, .n_groups_used = 2, .scale = 1.0 });
        experts_case(*dtype, 65, 6, 2, true,
                     (hl_router){ .score = HL_ROUTER_SPARSEMIXER, .margin = 0.4, .scale = 1.0 });
        experts_case(*dtype, 66, 4, 1, true,
                     (hl_router){ .score = HL_ROUTER_SIGMOID, .scales_input = true, .scale = 1.0 });
    }
}

/* ---------------------------------------------------------------- row by row */

static void norm_case(hl_dtype dtype, int64_t n_rows, int64_t n, hl_norm_kind kind, bool adds,
                      bool plain)
{
    twin x = twin_rows(HL_DTYPE_F32, n_rows * n), out = twin_rows(dtype, n_rows * n);
    twin a = twin_rows(dtype, n_rows * n), b = twin_rows(dtype, n_rows * n);
    twin weight = twin_rows(HL_DTYPE_F32, n), bias = twin_rows(HL_DTYPE_F32, n);
    twin kept = twin_rows(HL_DTYPE_F32, n_rows * n);

    EACH_SIDE(side)
    {
        hl_device_norm o = { .out       = out.at[side],
                             .out_dtype = dtype,
                             .kept      = kept.at[side],
                             .x         = x.at[side],
                             .add       = { adds ? a.at[side] : NULL, adds ? b.at[side] : NULL },
                             .dtype     = dtype,
                             .add_scale = 0.5f,
                             .is_plain  = plain,
                             .norm      = { kind, 1e-5f, weight.at[side],
                                       kind == HL_NORM_LAYER ? bias.at[side] : NULL },
                             .n_rows    = n_rows,
                             .n         = n };
        check_call(side, ops[side]->norm(devices[side], &o));
    }
    compare("norm", &out, dtype, dtype);
    compare("norm, kept", &kept, HL_DTYPE_F32, HL_DTYPE_F32);
    compare("norm, x", &x, HL_DTYPE_F32, HL_DTYPE_F32);
    twin *all[] = { &x, &out, &a, &b, &weight, &bias, &kept };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void test_norm(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        norm_case(*dtype, 5, 2048, HL_NORM_RMS, true, false);
        norm_case(*dtype, 3, 20000, HL_NORM_LAYER, true, false);
        norm_case(*dtype, 4, 67, HL_NORM_LAYER, false, false);
        norm_case(*dtype, 2, 64, HL_NORM_RMS, false, true);
    }
}

static void test_activate(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        for (int activation = 0; activation < HL_N_ACTIVATIONS; activation++) {
            for (int64_t n = 33; n <= 64; n += 31) {
                twin x = twin_rows(*dtype, 7 * 2 * n), out = twin_rows(*dtype, 7 * n);

                EACH_SIDE(side)
                {
                    uint8_t           *gate = x.at[side];
                    hl_device_activate o    = { .out        = out.at[side],
                                                .gate       = gate,
                                                .up         = gate + n * hl_dtype_bits(*dtype) / 8,
                                                .x_stride   = 2 * n,
                                                .dtype      = *dtype,
                                                .activation = (hl_activation)activation,
                                                .numbers    = { 1.0f, 0.7f, 0.5f, -1e-6f },
                                                .is_sparse  = n == 64,
                                                .deviations = 0.5f,
                                                .n_rows     = 7,
                                                .n          = n };
                    check_call(side, ops[side]->activate(devices[side], &o));
                }
                compare("activate", &out, *dtype, *dtype);
                twin_free(&x);
                twin_free(&out);
            }
        }
    }
}

/* Two sequences of three rows, one of which is padding. */
enum { BATCH = 2, ROWS = 3, CONTEXT = 16 };

static hl_device_places places_of(const twin *places, int side)
{
    const int64_t *at = places->at[side];

    return (hl_device_places){ BATCH, ROWS, at, at + BATCH, at + 2 * BATCH };
}

static twin twin_places(void)
{
    return twin_indices((const int64_t[]){ 4, 9, ROWS, ROWS - 1, 1, 0 }, 3 * BATCH);
}

static void streams_case(hl_dtype dtype, int64_t n, int64_t n_streams, bool corrects, bool scales)
{
    int64_t n_rows = BATCH * ROWS, n_c = corrects ? n_streams : n_streams * n_streams;
    twin    x    = twin_rows(HL_DTYPE_F32, n_streams * n_rows * n);
    twin    kept = twin_rows(HL_DTYPE_F32, n_rows * n), out = twin_rows(dtype, n_rows * n);
    twin    logits = twin_rows(HL_DTYPE_F32, n_rows * n_streams), places = twin_places();
    twin    weight = twin_rows(HL_DTYPE_F32, n_c * n_streams), scale = twin_rows(HL_DTYPE_F32, n);

    EACH_SIDE(side)
    {
        hl_device_streams o = { .x         = x.at[side],
                                .kept      = kept.at[side],
                                .stride    = n_rows * n,
                                .logits    = logits.at[side],
                                .weight    = weight.at[side],
                                .corrects  = corrects,
                                .out       = corrects ? out.at[side] : NULL,
                                .scale     = scales ? scale.at[side] : NULL,
                                .dtype     = dtype,
                                .n_streams = n_streams,
                                .n         = n,
                                .places    = places_of(&places, side) };
        hl_device_match   m = { .out    = kept.at[side],
                                .x      = x.at[side],
                                .like   = (float *)x.at[side] + n_rows * n,
                                .adds   = scales,
                                .n      = n,
                                .places = places_of(&places, side) };

        check_call(side, ops[side]->streams(devices[side], &o));
        if (corrects)
            check_call(side, ops[side]->match(devices[side], &m));
    }
    for (int64_t s = 0; s < n_streams; s++) { /* the last row of the second sequence is padding */
        compare_part("streams", &x, HL_DTYPE_F32, s * n_rows * n, (n_rows - 1) * n);
    }
    compare_part("streams, kept or matched", &kept, HL_DTYPE_F32, 0, (n_rows - 1) * n);
    compare_part("streams, out", &out, dtype, 0, (n_rows - 1) * n);
    twin *all[] = { &x, &kept, &out, &logits, &places, &weight, &scale };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void test_streams(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        streams_case(*dtype, 2048, 4, false, true);
        streams_case(*dtype, 2048, 4, true, true);
        streams_case(*dtype, 67, 2, true, false);
        streams_case(*dtype, 33, 8, false, false);
    }
}

/* ------------------------------------------------------ mixers with a state */

/* Two sequences: one that begins, and one that continues and has padding. */
enum { MIX_ROWS = 70 };

static hl_device_places mix_places(const twin *places, int side)
{
    const int64_t *at = places->at[side];

    return (hl_device_places){ BATCH, MIX_ROWS, at, at + BATCH, at + 2 * BATCH };
}

static twin twin_mix_places(void)
{
    return twin_indices((const int64_t[]){ 0, 9, MIX_ROWS, MIX_ROWS - 3, 1, 0 }, 3 * BATCH);
}

static void conv_case(hl_dtype dtype, int64_t n, int64_t width, bool bare)
{
    int64_t stride = (width - 1) * n + 5, n_rows = BATCH * MIX_ROWS;
    twin    x = twin_rows(dtype, n_rows * 3 * n), out = twin_rows(dtype, n_rows * n);
    twin    weight = twin_rows(HL_DTYPE_F32, width * n), bias = twin_rows(HL_DTYPE_F32, n);
    twin    state = twin_rows(HL_DTYPE_F32, BATCH * stride), places = twin_mix_places();
    size_t  size = hl_dtype_bits(dtype) / 8;

    EACH_SIDE(side)
    {
        uint8_t       *rows = x.at[side];
        hl_device_conv c    = { .out      = out.at[side],
                                .x        = rows,
                                .times    = bare ? rows + (size_t)n * size : NULL,
                                .after    = bare ? rows + (size_t)(2 * n) * size : NULL,
                                .x_stride = 3 * n,
                                .weight   = weight.at[side],
                                .bias     = bare ? NULL : bias.at[side],
                                .state    = state.at[side],
                                .stride   = stride,
                                .width    = width,
                                .n        = n,
                                .is_silu  = !bare,
                                .dtype    = dtype,
                                .places   = mix_places(&places, side) };
        check_call(side, ops[side]->conv(devices[side], &c));
    }
    compare("convolution", &out, dtype, dtype);
    compare("its state", &state, HL_DTYPE_F32, dtype);
    twin *all[] = { &x, &out, &weight, &bias, &state, &places };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void scan_case(hl_dtype dtype, hl_scan_kind kind, int64_t d_state, int64_t d_head,
                      int64_t n_groups, bool is_tiled)
{
    bool    each    = kind == HL_SCAN_CHANNEL;
    int64_t n_heads = each ? 1 : 2 * n_groups, n_rows = BATCH * MIX_ROWS;
    int64_t stride = n_heads * d_state * d_head + 3, n_dt = each ? d_head : n_heads;
    int64_t n_a = each ? d_state * d_head : n_heads;
    twin    x   = twin_rows(dtype, n_rows * n_heads * d_head),
         out    = twin_rows(dtype, n_rows * n_heads * d_head);
    twin kq     = twin_rows(dtype, n_rows * 2 * n_groups * d_state),
         dt     = twin_rows(dtype, n_rows * n_dt);
    twin   beta = twin_rows(dtype, n_rows * n_heads), bias = twin_rows(HL_DTYPE_F32, n_dt);
    twin   skip = twin_rows(HL_DTYPE_F32, n_dt), state = twin_rows(HL_DTYPE_F32, BATCH * stride);
    twin   places = twin_mix_places();
    float *falls  = malloc((size_t)n_a * sizeof *falls);

    for (int64_t i = 0; i < n_a; i++)
        falls[i] = -0.05f - fabsf(random_value());
    twin a = twin_of(falls, (size_t)n_a * sizeof *falls);
    free(falls);
    EACH_SIDE(side)
    {
        uint8_t       *keys = kq.at[side];
        hl_device_scan s    = {
               .kind        = kind,
               .out         = out.at[side],
               .x           = x.at[side],
               .k           = keys,
               .q           = keys + (size_t)(n_groups * d_state) * (hl_dtype_bits(dtype) / 8),
               .dt          = dt.at[side],
               .beta        = beta.at[side],
               .x_stride    = n_heads * d_head,
               .k_stride    = 2 * n_groups * d_state,
               .dt_stride   = n_dt,
               .beta_stride = n_heads,
               .dt_scale    = 0.9f,
               .dt_low      = 0.01f,
               .dt_high     = 2.0f,
               .a           = a.at[side],
               .dt_bias     = bias.at[side],
               .skip        = kind == HL_SCAN_DELTA ? NULL : skip.at[side],
               .state       = state.at[side],
               .stride      = stride,
               .n_heads     = n_heads,
               .n_groups    = n_groups,
               .is_tiled    = is_tiled,
               .d_state     = d_state,
               .d_head      = d_head,
               .dtype       = dtype,
               .places      = mix_places(&places, side),
        };
        check_call(side, ops[side]->scan(devices[side], &s));
    }
    compare("recurrence", &out, dtype, dtype);
    compare_scaled("its state", &state, HL_DTYPE_F32, HL_DTYPE_F32, 8.0f);
    twin *all[] = { &x, &out, &kq, &dt, &beta, &bias, &skip, &state, &places, &a };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void gate_case(hl_dtype dtype, int64_t n, int64_t d_group, hl_activation activation,
                      bool has_norm, bool norm_first)
{
    int64_t n_rows = BATCH * MIX_ROWS;
    twin    x = twin_rows(dtype, n_rows * (n + 3)), z = twin_rows(dtype, n_rows * (n + 2));
    twin    out = twin_rows(dtype, n_rows * n), weight = twin_rows(HL_DTYPE_F32, n);
    twin    places = twin_mix_places();

    EACH_SIDE(side)
    {
        hl_device_gate g = { .out        = out.at[side],
                             .x          = x.at[side],
                             .z          = norm_first && !has_norm ? NULL : z.at[side],
                             .x_stride   = n + 3,
                             .z_stride   = n + 2,
                             .activation = activation,
                             .z_scale    = 0.8f,
                             .scale      = 1.3f,
                             .has_norm   = has_norm,
                             .norm_first = norm_first,
                             .d_group    = d_group,
                             .weight     = weight.at[side],
                             .is_shared  = n != d_group && norm_first,
                             .eps        = 1e-5f,
                             .dtype      = dtype,
                             .n_rows     = n_rows,
                             .n          = n,
                             .places     = mix_places(&places, side) };
        check_call(side, ops[side]->gate(devices[side], &g));
    }
    compare("gate", &out, dtype, dtype);
    twin *all[] = { &x, &z, &out, &weight, &places };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void test_mixers(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        conv_case(*dtype, 200, 4, false);
        conv_case(*dtype, 33, HL_MAX_CONV, true);
        conv_case(*dtype, 129, 1, false);
        for (hl_scan_kind kind = HL_SCAN_SSM; kind <= HL_SCAN_DELTA; kind++) {
            int64_t n_groups = kind == HL_SCAN_CHANNEL ? 1 : 3;

            scan_case(*dtype, kind, 16, 33, n_groups, true);
            scan_case(*dtype, kind, 12, 20, n_groups, false);
            scan_case(*dtype, kind, 128, 64, n_groups, false);
            scan_case(*dtype, kind, HL_MAX_STATE, 5, n_groups, true);
        }
        gate_case(*dtype, 600, 600, HL_ACTIVATION_SILU, true, false);
        gate_case(*dtype, 96, 24, HL_ACTIVATION_SILU, true, true);
        gate_case(*dtype, 96, 24, HL_ACTIVATION_SILU, true, false);
        gate_case(*dtype, 1030, 1030, HL_ACTIVATION_SIGMOID, false, false);
        gate_case(*dtype, 40, 40, HL_ACTIVATION_SIGMOID, false, true);
    }
}

static void heads_case(hl_dtype dtype, int64_t d, hl_head_norm norm, bool interleaved,
                       int64_t n_pairs, const hl_device_heads *more)
{
    int64_t n_heads = 4, n_kv = more->n_kv_heads, width = (n_heads + 2 * n_kv) * d;
    twin    qkv    = twin_rows(dtype, BATCH * ROWS * width);
    twin    k      = twin_rows(dtype, BATCH * n_kv * CONTEXT * d);
    twin    v      = twin_rows(dtype, BATCH * n_kv * CONTEXT * d);
    twin    weight = twin_rows(HL_DTYPE_F32, n_heads * d), places = twin_places();
    twin    cosine      = twin_rows(HL_DTYPE_F32, BATCH * ROWS * (n_pairs + 1));
    twin    sine        = twin_rows(HL_DTYPE_F32, BATCH * ROWS * (n_pairs + 1));
    twin    frequencies = twin_rows(HL_DTYPE_F32, BATCH * (n_pairs + 1));
    twin    factors     = twin_rows(HL_DTYPE_F32, BATCH);

    EACH_SIDE(side)
    {
        hl_device_angles angles = { .cosine      = cosine.at[side],
                                    .sine        = sine.at[side],
                                    .frequencies = frequencies.at[side],
                                    .factors     = factors.at[side],
                                    .n_pairs     = n_pairs,
                                    .places      = places_of(&places, side) };
        hl_norm          one    = { HL_NORM_RMS, 1e-6f, weight.at[side], NULL };
        hl_device_heads  h      = { .qkv           = qkv.at[side],
                                    .k_cache       = k.at[side],
                                    .v_cache       = v.at[side],
                                    .dtype         = dtype,
                                    .n_heads       = n_heads,
                                    .n_kv_heads    = n_kv,
                                    .d_head        = d,
                                    .n_ctx         = CONTEXT,
                                    .norm          = norm,
                                    .q_norm        = one,
                                    .k_norm        = one,
                                    .cosine        = n_pairs > 0 ? cosine.at[side] : NULL,
                                    .sine          = sine.at[side],
                                    .n_pairs       = n_pairs,
                                    .interleaved   = interleaved,
                                    .norm_last     = more->norm_last,
                                    .v_normed      = more->v_normed,
                                    .limit         = more->limit,
                                    .temper        = more->temper,
                                    .temper_first  = 1,
                                    .temper_period = 2,
                                    .places        = places_of(&places, side) };
        if (n_pairs > 0)
            check_call(side, ops[side]->angles(devices[side], &angles));
        check_call(side, ops[side]->heads(devices[side], &h));
    }
    compare("angles", &cosine, HL_DTYPE_F32, HL_DTYPE_F32);
    /* The last row is padding: with a norm over all heads it may be computed. */
    compare_part("heads, qkv", &qkv, dtype, 0, (BATCH * ROWS - 1) * width);
    compare("heads, k", &k, dtype, dtype);
    compare("heads, v", &v, dtype, dtype);
    twin *all[] = { &qkv, &k, &v, &weight, &places, &cosine, &sine, &frequencies, &factors };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void test_heads(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        const hl_device_heads plain = { .n_kv_heads = 2 }, none = { .n_kv_heads = 0 };
        const hl_device_heads other = { .n_kv_heads = 2, .v_normed = true, .limit = 0.5f };
        const hl_device_heads last  = { .n_kv_heads = 2, .norm_last = true, .temper = 0.3f };

        heads_case(*dtype, 64, HL_HEAD_NORM_NONE, false, 32, &plain);
        heads_case(*dtype, 80, HL_HEAD_NORM_SHARED, true, 16, &plain);
        heads_case(*dtype, 33, HL_HEAD_NORM_EACH, false, 8, &plain);
        heads_case(*dtype, 128, HL_HEAD_NORM_ALL, false, 0, &plain);
        heads_case(*dtype, 64, HL_HEAD_NORM_NONE, false, 32, &other);
        heads_case(*dtype, 512, HL_HEAD_NORM_SHARED, false, 256, &other);
        heads_case(*dtype, 64, HL_HEAD_NORM_SHARED, false, 32, &last);
        heads_case(*dtype, 64, HL_HEAD_NORM_SHARED, false, 32, &none);
    }
}

static void test_embed(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        int64_t n     = 72;
        twin    table = twin_rows(*dtype, 50 * n), positions = twin_rows(*dtype, CONTEXT * n);
        twin    kinds = twin_rows(*dtype, 2 * n), places = twin_places();
        twin    tokens   = twin_indices((const int64_t[]){ 3, 49, 0, 7, 7, 1 }, BATCH * ROWS);
        twin    types_of = twin_indices((const int64_t[]){ 0, 1, 0, 1, 1, 0 }, BATCH * ROWS);
        twin    out      = twin_rows(HL_DTYPE_F32, BATCH * ROWS * n);

        EACH_SIDE(side)
        {
            hl_device_embed e = { .out            = out.at[side],
                                  .table          = table.at[side],
                                  .tokens         = tokens.at[side],
                                  .scale          = 3.0f,
                                  .position_table = positions.at[side],
                                  .type_table     = kinds.at[side],
                                  .types          = types_of.at[side],
                                  .dtype          = *dtype,
                                  .n              = n,
                                  .places         = places_of(&places, side) };
            check_call(side, ops[side]->embed(devices[side], &e));
        }
        compare("embed", &out, HL_DTYPE_F32, HL_DTYPE_F32);
        twin *all[] = { &table, &positions, &kinds, &places, &tokens, &types_of, &out };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            twin_free(all[i]);
    }
}

/* ---------------------------------------------------------------------- ends */

static void test_logits(void **state)
{
    int64_t n_rows = 3, n = 32007;
    twin    logits = twin_rows(HL_DTYPE_F32, n_rows * n), top = twin_of(NULL, 8 * 3);
    twin    entropy = twin_of(NULL, 4 * 3), gap = twin_of(NULL, 4 * 3);
    twin    losses = twin_of(NULL, 8 * 3), flag = twin_of(NULL, 4);
    twin    targets = twin_indices((const int64_t[]){ 5, -1, 32006 }, 3);
    (void)state;

    EACH_SIDE(side)
    {
        hl_device_cap    cap = { logits.at[side], n_rows * n, 4.0f, 5.0f };
        hl_device_logits l   = { .logits  = logits.at[side],
                                 .n_rows  = n_rows,
                                 .n       = n,
                                 .targets = targets.at[side],
                                 .top     = top.at[side],
                                 .entropy = entropy.at[side],
                                 .gap     = gap.at[side],
                                 .losses  = losses.at[side],
                                 .flag    = flag.at[side] };
        check_call(side, ops[side]->cap(devices[side], &cap));
        check_call(side, ops[side]->logits(devices[side], &l));
    }
    compare("soft-cap", &logits, HL_DTYPE_F32, HL_DTYPE_F32);
    compare("logits, top", &top, HL_DTYPE_I64, HL_DTYPE_F32);
    compare("logits, entropy", &entropy, HL_DTYPE_F32, HL_DTYPE_F32);
    compare_scaled("logits, gap", &gap, HL_DTYPE_F32, HL_DTYPE_F32, 5.0f);
    compare("logits, losses", &losses, HL_DTYPE_F64, HL_DTYPE_F32);
    compare_bytes("logits, flag", &flag);
}

/* Every type of blocks, made from values so that scales are finite. */
static void test_values(void **state)
{
    static uint8_t bytes[64 * 256];
    (void)state;

    for (int dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        hl_dtype_block block = hl_dtype_block_of((hl_dtype)dtype);
        if (!hl_dtype_is_block((hl_dtype)dtype))
            continue;
        for (size_t i = 0; i < sizeof bytes; i++) /* none of these is an infinite or NaN f16 */
            bytes[i] = (uint8_t)((uint32_t)(random_value() * 0x1p20f) & 0x6b);
        int64_t n   = (int64_t)(sizeof bytes / block.n_bytes * block.n_values);
        twin    out = twin_of(NULL, (size_t)n * 4);
        EACH_SIDE(side)
        check_call(side, ops[side]->put_values(devices[side], out.at[side], HL_DTYPE_F32, bytes,
                                               (hl_dtype)dtype, n));
        compare_bytes(hl_dtype_name((hl_dtype)dtype), &out);
        twin_free(&out);
    }
}

/* ----------------------------------------------------------------------- sums */

static void test_reduce(void **state)
{
    enum { HEADS = 3, LENGTH = 300, N = 2 * HEADS * LENGTH, TYPES = 2 };
    twin values        = twin_rows(HL_DTYPE_F32, HL_ROW_STATISTICS * N),
         mass          = twin_rows(HL_DTYPE_F32, N * TYPES);
    twin          sums = twin_of(NULL, HEADS * 4 * sizeof(hl_run_sums));
    twin          bins = twin_of(NULL, HEADS * HL_N_HISTOGRAMS * 64 * 8);
    twin          look = twin_of(NULL, HEADS * TYPES * TYPES * 8);
    static double logs[2 * LENGTH], inverse[2 * LENGTH];
    const hl_run  runs[] = { { 0, 0, 1, 0xfff, 0, 0 },
                             { 0, 1, 257, 0xabc, 1, 0 },
                             { 1, 3, 290, 0xfff, 0, 0 },
                             { 1, 290, 300, 0x001, 1, 0 } };
    (void)state;

    for (int i = 0; i < 2 * LENGTH; i++) {
        logs[i]    = i < 2 * LENGTH - 4 ? 8.0 : -9.0; /* the last run has impossible entropies */
        inverse[i] = 1.0 / (1.0 + i);
    }
    twin log_n = twin_of(logs, sizeof logs), by = twin_of(inverse, sizeof inverse);
    twin list = twin_of(runs, sizeof runs);
    EACH_SIDE(side)
    {
        hl_attention_result rows = hl_attention_result_in(values.at[side], N);
        rows.segment_mass        = mass.at[side];
        hl_device_reduce r       = { .sums          = sums.at[side],
                                     .histogram     = bins.at[side],
                                     .lookback      = look.at[side],
                                     .rows          = &rows,
                                     .runs          = list.at[side],
                                     .n_runs        = 4,
                                     .log_n         = log_n.at[side],
                                     .inverse       = by.at[side],
                                     .inverse_other = by.at[side],
                                     .n_types       = TYPES,
                                     .n_heads       = HEADS,
                                     .batch_rows    = LENGTH };
        check_call(side, ops[side]->reduce(devices[side], 0, &r));
    }
    compare_bytes("histograms", &bins);
    compare_bytes("lookback", &look);
    hl_run_sums *host = fetch(HOST, &sums), *cuda = fetch(CUDA, &sums);
    for (int i = 0; i < HEADS * 4; i++) {
        assert_int_equal(host[i].is_small, cuda[i].is_small);
        if (host[i].is_small)
            assert_memory_equal(&host[i], &cuda[i], offsetof(hl_run_sums, is_small));
    }
    free(host);
    free(cuda);
}

/* -------------------------------------------------------------------- attention */

enum { SEGMENT_KEYS = 200, N_SEGMENTS = 3 };

/* Segments of one sequence with many numbers, and of one with a single number except for its first
 * key. */
static twin twin_segments(void)
{
    static uint8_t segments[BATCH * SEGMENT_KEYS];

    for (int key = 0; key < SEGMENT_KEYS; key++) {
        segments[key]                = (uint8_t)(key / 7 % N_SEGMENTS);
        segments[SEGMENT_KEYS + key] = key > 0 ? 1 : 2;
    }
    return twin_of(segments, sizeof segments);
}

/* Complete rows: the first and last of both sequences, one of a middle head, and one unused. */
typedef struct whole_rows {
    twin items;
    twin out;
    twin statistics;
} whole_rows;

enum { WHOLE_ROWS = 6 };

static whole_rows open_whole_rows(int64_t n_queries)
{
    const int64_t items[] = { 0, 0, 0, 0, 3, n_queries - 1, 0, 2, n_queries / 2,
                              1, 1, 0, 1, 0, n_queries - 1, 1, 2, -1 };

    return (whole_rows){ twin_indices(items, 3 * WHOLE_ROWS),
                         twin_of(NULL, WHOLE_ROWS * (SEGMENT_KEYS + 3) * sizeof(float)),
                         twin_of(NULL, WHOLE_ROWS * sizeof(hl_pattern_row)) };
}

static void make_whole_rows(int side, const whole_rows *rows, const hl_attention *problem)
{
    check_call(side, ops[side]->patterns(devices[side], &(hl_device_patterns){
                                                            .out        = rows->out.at[side],
                                                            .out_stride = SEGMENT_KEYS + 3,
                                                            .statistics = rows->statistics.at[side],
                                                            .problem    = problem,
                                                            .items      = rows->items.at[side],
                                                            .n_items    = WHOLE_ROWS }));
}

/* The same rows from the operator's lse: some rows of every head, one of them unused. */
enum { QUICK_ROWS = 3 };

static void make_quick_rows(int side, const twin *items, const twin *out, const float *lse,
                            const hl_attention *problem)
{
    check_call(side, ops[side]->patterns(devices[side],
                                         &(hl_device_patterns){
                                             .out        = out->at[side],
                                             .out_stride = SEGMENT_KEYS + 3,
                                             .lse        = lse,
                                             .problem    = problem,
                                             .items      = items->at[side],
                                             .n_items = BATCH * problem->n_heads * QUICK_ROWS }));
}

static twin list_quick_rows(int64_t n_heads, int64_t n_queries)
{
    int64_t items[BATCH * 8 * QUICK_ROWS][3];
    int64_t rows[QUICK_ROWS] = { n_queries - 1, -1, n_queries / 3 };

    for (int64_t i = 0; i < BATCH * n_heads * QUICK_ROWS; i++) {
        items[i][0] = i / QUICK_ROWS / n_heads;
        items[i][1] = i / QUICK_ROWS % n_heads;
        items[i][2] = rows[i % QUICK_ROWS];
    }
    return twin_indices(items[0], (size_t)(3 * BATCH * n_heads * QUICK_ROWS));
}

static void compare_whole_rows(whole_rows *rows)
{
    compare("whole rows", &rows->out, HL_DTYPE_F32, HL_DTYPE_F32);
    compare_doubles("whole rows, statistics", &rows->statistics, 1e-6);
    twin_free(&rows->items);
    twin_free(&rows->out);
    twin_free(&rows->statistics);
}

static void attention_case(hl_dtype dtype, int64_t n_queries, int64_t d, double softcap)
{
    int64_t n_heads = 4, n_kv = 2, n_keys = SEGMENT_KEYS, n = BATCH * n_heads * n_queries;
    twin    q = twin_rows(dtype, n * d), out = twin_rows(dtype, n * d);
    twin    k       = twin_rows(dtype, BATCH * n_kv * n_keys * d);
    twin    v       = twin_rows(dtype, BATCH * n_kv * n_keys * d);
    twin    places  = twin_indices((const int64_t[]){ 200 - n_queries, 0, 200, n_queries }, 4);
    twin    numbers = twin_of(NULL, (size_t)(HL_ROW_STATISTICS * n) * 4);
    twin    mass = twin_of(NULL, (size_t)(n * N_SEGMENTS) * 4), segments = twin_segments();
    twin    sinks = twin_rows(HL_DTYPE_F32, n_heads);

    whole_rows rows  = open_whole_rows(n_queries);
    twin       items = list_quick_rows(n_heads, n_queries);
    twin quick = twin_of(NULL, (size_t)(BATCH * n_heads * QUICK_ROWS * (SEGMENT_KEYS + 3)) * 4);

    EACH_SIDE(side)
    {
        const int64_t      *at  = places.at[side];
        hl_rows             row = { q.at[side], dtype, n_heads * n_queries * d, d, n_heads * d };
        hl_rows             key = { k.at[side], dtype, n_kv * n_keys * d, n_keys * d, d };
        hl_attention        p   = { .n_batch        = BATCH,
                                    .n_heads        = n_heads,
                                    .n_kv_heads     = n_kv,
                                    .n_queries      = n_queries,
                                    .n_keys         = n_keys,
                                    .d_head         = d,
                                    .d_value        = d,
                                    .q              = row,
                                    .k              = key,
                                    .v              = key,
                                    .flags          = HL_ATTENTION_CAUSAL | HL_ATTENTION_SCALE,
                                    .scale          = 0.25,
                                    .softcap        = softcap,
                                    .query_start    = at,
                                    .key_length     = at + 2,
                                    .sinks          = sinks.at[side],
                                    .segments       = segments.at[side],
                                    .n_segments     = N_SEGMENTS,
                                    .segment_stride = n_keys };
        hl_attention_result o   = hl_attention_result_in(numbers.at[side], n);
        o.out                   = row;
        o.segment_mass          = mass.at[side];
        p.v.data                = v.at[side];
        o.out.data              = out.at[side];
        check_call(side,
                   ops[side]->attention(devices[side],
                                        &(hl_device_attention){ .result = o, .problem = p }, 1));
        make_whole_rows(side, &rows, &p);
        make_quick_rows(side, &items, &quick, o.lse, &p);
    }
    compare("attention", &out, dtype, dtype);
    compare("attention, statistics", &numbers, HL_DTYPE_F32, HL_DTYPE_F32);
    compare("attention, segments", &mass, HL_DTYPE_F32, HL_DTYPE_F32);
    compare_whole_rows(&rows);
    compare("whole rows from lse", &quick, HL_DTYPE_F32, HL_DTYPE_F32);
    twin *all[] = { &q, &out, &k, &v, &places, &numbers, &mass, &segments, &sinks, &items, &quick };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        twin_free(all[i]);
}

static void test_attention(void **state)
{
    (void)state;
    EACH_TYPE(dtype)
    {
        attention_case(*dtype, 150, 64, 0.0);
        attention_case(*dtype, 150, 128, 0.0);
        attention_case(*dtype, 150, 64, 20.0);
        attention_case(*dtype, 1, 64, 0.0);
        attention_case(*dtype, 40, 20, 0.0);
    }
}

/* ------------------------------------------------------------------------ main */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),    cmocka_unit_test(test_experts),
        cmocka_unit_test(test_norm),      cmocka_unit_test(test_activate),
        cmocka_unit_test(test_streams),   cmocka_unit_test(test_heads),
        cmocka_unit_test(test_embed),     cmocka_unit_test(test_logits),
        cmocka_unit_test(test_values),    cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_mixers),
    };

    if (!open_twins())
        return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_twins();
    return failed;
}
