/* test_session.c - promises of sessions beyond right numbers (test_verify_model.c has those):
 * batches, chunks, gates, taps, limits, and damaged files. */
#include "model_support.h"

#include <math.h>

#include "formats/safetensors.h"

#define LLAMA "tests/data/families/llama3"
#define PHI3  "tests/data/families/phi3"

enum { N_TOKENS = 20, MAX_STORED = 100000 };

static const int64_t tokens[2 * N_TOKENS] = {
    5,  17, 200, 3,  99, 41, 7,  8,  120, 64, 33, 21, 90, 255, 0, 12, 77, 31, 6, 140,
    11, 80, 13,  44, 2,  19, 60, 61, 62,  63, 1,  9,  9,  9,   9, 9,  9,  9,  9, 9,
};

/* -------------------------------------------------------------- what was seen */

typedef struct seen {
    float   values[MAX_STORED]; /* values of one sequence, in the order of the tap's calls */
    size_t  count;
    int64_t sequence;
    int     n_layers;
    int     stop_after; /* number of layers; 0: never */
} seen;

static void keep(seen *s, const float *values, int64_t n)
{
    assert_true(s->count + (size_t)n <= MAX_STORED);
    memcpy(s->values + s->count, values, (size_t)n * sizeof *values);
    s->count += (size_t)n;
}

static hl_status see_layer(void *context, const hl_layer_rows *rows)
{
    seen *s = context;

    for (int64_t head = 0; head < rows->n_heads; head++) {
        int64_t first = (s->sequence * rows->n_heads + head) * rows->n_rows;
        keep(s, rows->rows->entropy + first, rows->lengths[s->sequence]);
        keep(s, rows->rows->peak + first, rows->lengths[s->sequence]);
    }
    return ++s->n_layers == s->stop_after ? HL_CANCELLED : HL_OK;
}

static hl_status see_final(void *context, const hl_final_rows *rows)
{
    seen *s = context;

    if (rows->sequence == s->sequence)
        keep(s, rows->logits, rows->n_rows * rows->d_vocab);
    return HL_OK;
}

static hl_session *open_session(const hl_model *model, hl_session_options options)
{
    hl_session *session = NULL;
    assert_ok(hl_session_open(&session, model, &options));
    return session;
}

static void feed(hl_session *session, seen *s, const int64_t *ids, int64_t n,
                 const int64_t *lengths)
{
    hl_tap tap = { .context = s, .layer = see_layer, .final = see_final, .wants = HL_WANT_LOGITS };
    assert_ok(hl_session_feed(
        session, &(hl_feed){ .tokens = ids, .n_tokens = n, .lengths = lengths, .tap = &tap }));
}

/* -------------------------------------------------------------------- batches */

static void a_sequence_does_not_depend_on_its_batch(void **state)
{
    static seen   together[2], alone[2];
    const int64_t lengths[2] = { N_TOKENS, 11 };
    hl_model     *model      = open_model(LLAMA);
    (void)state;

    for (int i = 0; i < 2; i++) {
        hl_session *both = open_session(
            model, (hl_session_options){ .n_batch = 2, .wants = HL_WANT_LOGITS, .n_threads = 2 });
        hl_session *one =
            open_session(model, (hl_session_options){ .wants = HL_WANT_LOGITS, .n_threads = 1 });
        together[i].sequence = i;
        feed(both, &together[i], tokens, N_TOKENS, lengths);
        feed(one, &alone[i], tokens + i * N_TOKENS, lengths[i], NULL);
        assert_int_equal(together[i].count, alone[i].count);
        assert_memory_equal(together[i].values, alone[i].values, alone[i].count * sizeof(float));
        assert_int_equal(hl_session_length(both, 1), 11);
        hl_session_close(both);
        hl_session_close(one);
    }
    hl_model_close(model);
}

static void encoders_do_not_see_padding(void **state)
{
    static seen   together, alone;
    const int64_t lengths[2] = { N_TOKENS, 11 };
    (void)state;

    if (!path_exists(in_shared("golden/families/bert")))
        skip();
    hl_model   *model = open_model(in_shared("golden/families/bert"));
    hl_session *both  = open_session(model, (hl_session_options){ .n_batch = 2 });
    hl_session *one   = open_session(model, (hl_session_options){ 0 });
    hl_tap      tap   = { .context = &together, .layer = see_layer };

    together.sequence = 1;
    assert_ok(hl_session_feed(
        both,
        &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS, .lengths = lengths, .tap = &tap }));
    tap.context = &alone;
    assert_ok(hl_session_feed(
        one, &(hl_feed){ .tokens = tokens + N_TOKENS, .n_tokens = 11, .tap = &tap }));
    assert_int_equal(together.count, alone.count);
    assert_memory_equal(together.values, alone.values, alone.count * sizeof(float));
    hl_session_close(both);
    hl_session_close(one);
    hl_model_close(model);
}

/* ---------------------------------------------------------------------- cache */

static void last_logits(float *out, const hl_model *model, hl_session_options options, bool rewind)
{
    options.wants       = HL_WANT_LAST_LOGITS;
    hl_session *session = open_session(model, options);

    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS - 1 }));
    if (rewind) { /* the rows after the rewind are computed again */
        assert_ok(hl_session_rewind(session, 0, 9));
        assert_ok(hl_session_feed(session,
                                  &(hl_feed){ .tokens = tokens + 9, .n_tokens = N_TOKENS - 10 }));
    }
    assert_ok(
        hl_session_feed(session, &(hl_feed){ .tokens = tokens + N_TOKENS - 1, .n_tokens = 1 }));
    memcpy(out, hl_session_logits(session, 0), 256 * sizeof *out);
    hl_session_close(session);
}

static void caches_agree(void **state)
{
    float     whole[256], other[256];
    hl_model *model = open_model(LLAMA);
    (void)state;

    last_logits(whole, model, (hl_session_options){ 0 }, false);
    last_logits(other, model, (hl_session_options){ .n_chunk = 3 }, true);
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(whole[i] - other[i]) < 1e-4f);
    last_logits(other, model, (hl_session_options){ .cache_dtype = HL_DTYPE_F16 }, false);
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(whole[i] - other[i]) < 3e-2f);
    hl_model_close(model);
}

/* ----------------------------------------------------------------------- steps */

enum { N_LONG = 700, N_SEGMENTS = 3 };

/* Statistics of each sequence's last row, by layer. */
typedef struct last_rows {
    float  values[MAX_STORED];
    size_t count;
} last_rows;

static hl_status see_last_rows(void *context, const hl_layer_rows *rows)
{
    last_rows                 *s = context;
    const hl_attention_result *r = rows->rows;

    for (int64_t i = 0; i < rows->n_batch * rows->n_heads; i++) {
        int64_t at       = i * rows->n_rows + rows->lengths[i / rows->n_heads] - 1;
        float   values[] = { r->entropy[at], r->renyi2[at],   r->varentropy[at],
                             r->peak[at],    r->lse[at],      r->entropy_nosink[at],
                             r->self[at],    r->previous[at], r->first[at] };

        assert_true(s->count + 9 + N_SEGMENTS <= MAX_STORED);
        memcpy(s->values + s->count, values, sizeof values);
        memcpy(s->values + s->count + 9, r->segment_mass + at * N_SEGMENTS,
               N_SEGMENTS * sizeof(float));
        s->count += 9 + N_SEGMENTS;
    }
    return HL_OK;
}

/* Feeds two sequences; if `stepped`, the last token of each in a feed of its own. */
static void feed_long(last_rows *s, const hl_model *model, bool stepped)
{
    static int64_t ids[2 * N_LONG], last[2];
    static uint8_t segments[2 * N_LONG];
    int64_t        lengths[2] = { N_LONG - stepped, N_LONG - 60 - stepped };
    hl_tap         tap        = { .context = s, .layer = see_last_rows };
    hl_feed        first   = { .tokens = ids, .n_tokens = N_LONG, .lengths = lengths, .tap = &tap };
    hl_session    *session = open_session(
           model,
           (hl_session_options){ .n_ctx = N_LONG, .n_batch = 2, .n_threads = 3, .beyond_ctx = true });

    for (int i = 0; i < 2 * N_LONG; i++) {
        ids[i]      = tokens[i * i % (2 * N_TOKENS)];
        segments[i] = (uint8_t)(i / 7 % N_SEGMENTS);
    }
    first.segments   = segments;
    first.n_segments = N_SEGMENTS;
    for (int i = 0; i < 2; i++)
        last[i] = ids[i * N_LONG + lengths[i]];
    first.tap = stepped ? NULL : &tap;
    assert_ok(hl_session_feed(session, &first));
    if (stepped)
        assert_ok(hl_session_feed(session, &(hl_feed){ .tokens     = last,
                                                       .n_tokens   = 1,
                                                       .segments   = segments,
                                                       .n_segments = N_SEGMENTS,
                                                       .tap        = &tap }));
    hl_session_close(session);
}

/* Long enough that the heads of a step are shared among threads. */
static void a_step_agrees_with_a_whole_pass(void **state)
{
    static last_rows whole, step;
    hl_model        *model = open_model(LLAMA);
    (void)state;

    feed_long(&whole, model, false);
    feed_long(&step, model, true);
    /* The chunks of the whole pass arrive one by one; the last one counts. */
    assert_true(whole.count >= step.count && step.count > 0);
    for (size_t i = 0; i < step.count; i++) {
        float wanted = whole.values[whole.count - step.count + i];
        if (!(fabsf(step.values[i] - wanted) <= 1e-4f * fmaxf(1.0f, fabsf(wanted))))
            fail_msg("[%zu] is %.7g, wanted %.7g", i, step.values[i], wanted);
    }
    hl_model_close(model);
}

/* ------------------------------------------------------------------------ tap */

typedef struct stream {
    float post[N_TOKENS * 64];
    int   n_layers;
    bool  gated;
} stream;

static hl_status see_stream(void *context, const hl_layer_rows *rows)
{
    stream *s = context;
    int64_t n = rows->n_rows * rows->d_model;

    assert_true(rows->q != NULL && rows->k != NULL && rows->v != NULL && rows->z != NULL);
    assert_non_null(rows->resid_mid);
    if (rows->layer > 0)
        assert_memory_equal(rows->resid_pre, s->post, (size_t)n * sizeof(float));
    memcpy(s->post, rows->resid_post, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < rows->n_rows * rows->d_head && s->gated; i++)
        assert_true(
            rows->z[(i / rows->d_head * rows->n_heads + 1) * rows->d_head + i % rows->d_head] ==
            0.0f);
    /* Rows 4 and 15; the latter sees 16 keys. */
    assert_int_equal(rows->n_patterns, 2);
    for (int64_t i = 0; i < rows->n_heads * 2; i++) {
        double sum = 0.0;
        for (int64_t key = 0; key < rows->n_keys; key++)
            sum += rows->pattern[i * rows->n_keys + key];
        assert_true(fabs(sum - 1.0) < 1e-6);
        assert_true(rows->pattern[i * rows->n_keys + rows->pattern_rows[i % 2] + 1] == 0.0f);
    }
    s->n_layers++;
    return HL_OK;
}

static void taps_get_what_they_want(void **state)
{
    static stream s;
    const int64_t positions[2] = { 4, 15 };
    float         gates[16 * 16];
    uint32_t      wants = HL_WANT_Q | HL_WANT_K | HL_WANT_V | HL_WANT_Z | HL_WANT_RESID_PRE |
                     HL_WANT_RESID_MID | HL_WANT_RESID_POST | HL_WANT_PATTERN;
    hl_model   *model = open_model(LLAMA);
    hl_session *session =
        open_session(model, (hl_session_options){ .n_ctx = 32, .n_patterns = 2, .wants = wants });
    hl_tap tap = { .context             = &s,
                   .layer               = see_stream,
                   .wants               = wants,
                   .pattern_positions   = positions,
                   .n_pattern_positions = 2 };
    (void)state;

    assert_ok(hl_session_feed(session,
                              &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap }));
    assert_int_equal(s.n_layers, hl_model_get_info(model)->n_layers);
    for (int i = 0; i < 256; i++) /* head 1 of every layer is disabled */
        gates[i] = i % hl_model_get_info(model)->n_heads == 1 ? 0.0f : 1.0f;
    s.gated = true;
    assert_ok(hl_session_rewind(session, 0, 0));
    assert_ok(hl_session_feed(
        session,
        &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS, .gates = gates, .tap = &tap }));
    hl_session_close(session);
    hl_model_close(model);
}

static void a_tap_can_stop(void **state)
{
    static seen s       = { .stop_after = 2 };
    hl_model   *model   = open_model(LLAMA);
    hl_session *session = open_session(model, (hl_session_options){ 0 });
    hl_tap      tap     = { .context = &s, .layer = see_layer };
    (void)state;

    assert_int_equal(
        hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = 4, .tap = &tap }),
        HL_CANCELLED);
    assert_int_equal(s.n_layers, 2);
    assert_int_equal(hl_session_length(session, 0), 0);
    hl_session_close(session);
    hl_model_close(model);
}

static void hooks_have_names(void **state)
{
    char name[64];
    (void)state;

    hl_hook_name(name, sizeof name, HL_HOOK_PATTERN, 5);
    assert_string_equal(name, "blocks.5.attn.hook_pattern");
    hl_hook_name(name, sizeof name, HL_HOOK_RESID_MID, 11);
    assert_string_equal(name, "blocks.11.hook_resid_mid");
    assert_int_equal(hl_hook_name(NULL, 0, HL_HOOK_ENTROPY, 0),
                     strlen("blocks.0.attn.hook_entropy"));
}

/* --------------------------------------------------------------------- limits */

static void limits_are_named(void **state)
{
    hl_model     *model   = open_model(LLAMA);
    hl_session   *session = NULL;
    const int64_t bad[2]  = { 3, 256 };
    (void)state;

    assert_fails(HL_LIMIT, "a context of 1000000 tokens exceeds the model's limit of",
                 hl_session_open(&session, model, &(hl_session_options){ .n_ctx = 1000000 }));
    assert_null(session);
    assert_fails(
        HL_BAD_ARGUMENT, "the cache can be F32 or F16, not Q4_0",
        hl_session_open(&session, model, &(hl_session_options){ .cache_dtype = HL_DTYPE_Q4_0 }));
    assert_fails(HL_BAD_ARGUMENT, "math is 4, wanted 0 to 3",
                 hl_session_open(&session, model, &(hl_session_options){ .math = HL_MATH_COUNT }));
    session = open_session(model, (hl_session_options){ .n_ctx = 8 });
    assert_fails(HL_LIMIT, "20 tokens after 0 are more than the context of 8",
                 hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = N_TOKENS }));
    assert_fails(HL_BAD_ARGUMENT, "token 1 of sequence 0 is 256, the model knows 0 to 255",
                 hl_session_feed(session, &(hl_feed){ .tokens = bad, .n_tokens = 2 }));
    assert_fails(HL_BAD_ARGUMENT, "the session was opened with 0x0",
                 hl_session_feed(session, &(hl_feed){ .tokens   = tokens,
                                                      .n_tokens = 2,
                                                      .tap = &(hl_tap){ .wants = HL_WANT_Q } }));
    assert_fails(HL_BAD_ARGUMENT, "rewind: to 3 tokens", hl_session_rewind(session, 0, 3));
    assert_true(hl_session_bytes(session, NULL) > 0);
    hl_session_close(session);
    hl_session_close(NULL);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- damage */

/* Writes a copy of a model with one element of a tensor replaced by NaN. */
static void damage(const char *folder, const char *tensor_name)
{
    size_t          n_bytes;
    char           *bytes = read_file(in_folder(PHI3, "config.json"), &n_bytes);
    hl_safetensors *file  = NULL;

    write_file(in_folder(folder, "config.json"), bytes, n_bytes);
    free(bytes);
    bytes = read_file(in_folder(PHI3, "model.safetensors"), &n_bytes);
    assert_ok(hl_safetensors_parse(&file, (const uint8_t *)bytes, n_bytes, "model"));
    const hl_tensor *tensor = hl_safetensors_find(file, tensor_name);
    assert_non_null(tensor);
    size_t at = (size_t)((const char *)tensor->data - bytes);
    hl_safetensors_close(file);
    memset(bytes + at, 0xff, 4); /* NaN in F32, and twice NaN in F16 and BF16 */
    write_file(in_folder(folder, "model.safetensors"), bytes, n_bytes);
    free(bytes);
}

static void numbers_that_are_none_are_found(void **state)
{
    const char *folder  = new_folder();
    hl_session *session = NULL;
    (void)state;

    damage(folder, "model.layers.1.mlp.gate_up_proj.weight");
    hl_model *model = open_model(folder);
    session         = open_session(model, (hl_session_options){ 0 });
    assert_fails(HL_BAD_INPUT, "layer 1: tensor 'model.layers.1.mlp.gate_up_proj.weight' has a NaN",
                 hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = 2 }));
    hl_session_close(session);
    hl_model_close(model);

    damage(folder, "model.layers.2.input_layernorm.weight");
    model = open_model(folder);
    assert_fails(HL_BAD_INPUT, "layer 2: tensor 'model.layers.2.input_layernorm.weight' has a NaN",
                 hl_session_open(&session, model, NULL));
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_does_not_depend_on_its_batch),
        cmocka_unit_test(encoders_do_not_see_padding),
        cmocka_unit_test(caches_agree),
        cmocka_unit_test(a_step_agrees_with_a_whole_pass),
        cmocka_unit_test(taps_get_what_they_want),
        cmocka_unit_test(a_tap_can_stop),
        cmocka_unit_test(hooks_have_names),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(numbers_that_are_none_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
