/* test_device.c - sessions on the device "host" against the CPU's own, and against golden files.
 *
 * The device implements kernels/device.h with the CPU, so these tests are for the driver: places,
 * lanes, chunks, chosen sequences, gates, complete rows, the lens, steps. */
#include "model_support.h"

#include <math.h>

#include "measure/verify.h"
#include "model/forward.h"

#define LLAMA "tests/data/families/llama3"
#define PHI3  "tests/data/families/phi3"
#define NEOX  "tests/data/families/gpt_neox"

enum { N_TOKENS = 20, N_BATCH = 3, N_CTX = 32, MAX_VALUES = 1 << 20 };

static int64_t tokens[N_BATCH * N_TOKENS];
static int64_t targets[N_BATCH * N_TOKENS]; /* the next tokens; -1: none */

static const char *const families[] = {
    "bert",      "bloom",      "cohere",  "cohere2", "distilbert", "falcon",      "falcon_new",
    "falcon_rw", "gemma",      "gemma2",  "gemma3",  "gpt2",       "gpt_bigcode", "gpt_neo",
    "gpt_neox",  "gpt_oss",    "gptj",    "granite", "llama",      "llama3",      "mistral",
    "mixtral",   "modernbert", "olmo2",   "opt",     "phi",        "phi3",        "qwen2",
    "qwen3",     "qwen3_moe",  "roberta", "smollm3", "stablelm",   "starcoder2",
};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* ------------------------------------------------------------------ recording */

/* Everything that a tap received of rows that count, in order. */
typedef struct record {
    float  values[MAX_VALUES];
    size_t count;
    int    n_layers;
    bool   sampled; /* the tap has sampled positions */
} record;

static record on_cpu, on_host;

static const int64_t positions[N_BATCH * 3] = { 0, 5, 13, 2, 5, 10, 1, 6, 12 };

static void keep(record *r, const float *values, int64_t n)
{
    assert_true(r->count + (size_t)n <= MAX_VALUES);
    memcpy(r->values + r->count, values, (size_t)n * sizeof *values);
    r->count += (size_t)n;
}

static bool is_looked_at(const record *r, const hl_layer_rows *rows, int64_t sequence, int64_t row)
{
    bool found = !r->sampled;

    for (int i = 0; i < 3 && !found; i++)
        found = positions[sequence * 3 + i] == rows->start[sequence] + row;
    return found && row < rows->lengths[sequence];
}

/* Keeps rows of (n_batch, n_rows or n_sampled, width). */
static void keep_rows(record *r, const hl_layer_rows *rows, const float *values, int64_t width)
{
    for (int64_t i = 0; i < rows->n_batch * rows->n_sampled && values != NULL; i++) {
        int64_t row = positions[i] - rows->start[i / rows->n_sampled];

        if (row >= 0 && row < rows->lengths[i / rows->n_sampled])
            keep(r, values + i * width, width);
    }
    if (rows->n_sampled > 0)
        return;
    for (int64_t i = 0; i < rows->n_batch * rows->n_rows && values != NULL; i++) {
        if (is_looked_at(r, rows, i / rows->n_rows, i % rows->n_rows))
            keep(r, values + i * width, width);
    }
}

static void keep_statistics(record *r, const hl_layer_rows *rows)
{
    const hl_attention_result *s = rows->rows;
    const float *const all[] = { s->lse,  s->entropy, s->renyi2,   s->varentropy, s->entropy_nosink,
                                 s->peak, s->self,    s->previous, s->first };

    for (int64_t i = 0; i < rows->n_batch * rows->n_heads * rows->n_rows; i++) {
        if (i % rows->n_rows >= rows->lengths[i / rows->n_rows / rows->n_heads])
            continue;
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            keep(r, all[j] + i, 1);
        if (rows->n_segments > 0)
            keep(r, s->segment_mass + i * rows->n_segments, rows->n_segments);
    }
}

static void keep_patterns(record *r, const hl_layer_rows *rows)
{
    for (int64_t i = 0; i < rows->n_batch * rows->n_heads * rows->n_patterns; i++) {
        int64_t sequence = i / rows->n_patterns / rows->n_heads;
        int64_t place    = i % rows->n_patterns;
        int64_t row =
            rows->pattern_rows[rows->patterns_differ ? sequence * rows->n_patterns + place : place];

        if (row >= 0)
            keep(r, rows->pattern + i * rows->n_keys, rows->n_keys);
    }
}

static hl_status see_layer(void *context, const hl_layer_rows *rows)
{
    record *r = context;

    r->n_layers++;
    keep_statistics(r, rows);
    keep_patterns(r, rows);
    keep_rows(r, rows, rows->q, rows->n_heads * rows->d_head);
    keep_rows(r, rows, rows->k, rows->n_kv_heads * rows->d_head);
    keep_rows(r, rows, rows->v, rows->n_kv_heads * rows->d_head);
    keep_rows(r, rows, rows->z, rows->n_heads * rows->d_head);
    keep_rows(r, rows, rows->resid_pre, rows->d_model);
    keep_rows(r, rows, rows->resid_mid, rows->d_model);
    keep_rows(r, rows, rows->resid_post, rows->d_model);
    keep_rows(r, rows, rows->lens_entropy, 1);
    keep_rows(r, rows, rows->lens_gap, 1);
    return HL_OK;
}

static hl_status see_final(void *context, const hl_final_rows *rows)
{
    record *r = context;

    assert_true(rows->n_rows <= HL_LOGIT_ROWS);
    if (rows->hidden != NULL)
        keep(r, rows->hidden, rows->n_rows * rows->d_model);
    if (rows->logits != NULL)
        keep(r, rows->logits, rows->n_rows * rows->d_vocab);
    if (rows->lens_entropy != NULL)
        keep(r, rows->lens_entropy, rows->n_rows);
    for (int64_t row = 0; row < rows->n_rows && rows->losses != NULL; row++) {
        if (!isnan(rows->losses[row]))
            keep(r, &(float){ (float)rows->losses[row] }, 1);
        keep(r, &(float){ (float)rows->tops[row] }, 1);
    }
    return HL_OK;
}

/* Sums of f32 in another order; the tolerance is far below the effect of a wrong row. */
static void expect_same(const char *what)
{
    assert_int_equal(on_host.n_layers, on_cpu.n_layers);
    assert_int_equal(on_host.count, on_cpu.count);
    assert_true(on_cpu.count > 0);
    for (size_t i = 0; i < on_cpu.count; i++) {
        double a = (double)on_cpu.values[i];
        double b = (double)on_host.values[i];

        if (!(fabs(a - b) <= 1e-4 + 1e-4 * fabs(a)) && !(isinf(a) && a == b))
            fail_msg("%s: value %zu of %zu is %g on the host device, %g on the CPU", what, i,
                     on_cpu.count, b, a);
    }
}

/* ------------------------------------------------------------------- running */

static void fill_tokens(const hl_model *model)
{
    int64_t d_vocab = hl_model_get_info(model)->d_vocab;

    for (int i = 0; i < N_BATCH * N_TOKENS; i++)
        tokens[i] = (i * 37 + i / N_TOKENS * 5 + 3) % (d_vocab < 60 ? d_vocab : 60);
    for (int i = 0; i < N_BATCH * N_TOKENS; i++)
        targets[i] = i % N_TOKENS < N_TOKENS - 1 && i % 5 != 0 ? tokens[i + 1] : -1;
}

static hl_session *open_on(const char *device, const hl_model *model, hl_session_options options)
{
    hl_session *session = NULL;

    options.device    = device;
    options.n_ctx     = options.n_ctx != 0 ? options.n_ctx : N_CTX;
    options.n_threads = 1;
    assert_ok(hl_session_open(&session, model, &options));
    assert_true(session->device->ops->is_near == (strcmp(device, "cpu") == 0));
    return session;
}

/* What a test does with a session, recorded in `r`. */
typedef void (*scene)(hl_session *session, record *r);

static void compare(const char *path, hl_session_options options, scene play)
{
    hl_model *model = open_model(path);
    record   *to[2] = { &on_cpu, &on_host };

    fill_tokens(model);
    for (int i = 0; i < 2; i++) {
        hl_session *session = open_on(i == 0 ? "cpu" : "host", model, options);

        memset(to[i], 0, sizeof *to[i]);
        play(session, to[i]);
        hl_session_close(session);
    }
    expect_same(path);
    hl_model_close(model);
}

static const uint32_t all_rows = HL_WANT_Q | HL_WANT_K | HL_WANT_V | HL_WANT_Z | HL_WANT_RESID_PRE |
                                 HL_WANT_RESID_MID | HL_WANT_RESID_POST;

/* ---------------------------------------------------------------------- tests */

static void feed_everything(hl_session *session, record *r)
{
    const int64_t lengths[N_BATCH] = { N_TOKENS, 11, 17 };
    uint8_t       segments[N_BATCH * N_CTX];
    hl_tap        tap  = { .context             = r,
                           .layer               = see_layer,
                           .final               = see_final,
                           .wants               = session->options.wants & ~HL_WANT_LAST_LOGITS,
                           .pattern_positions   = positions,
                           .n_pattern_positions = 3,
                           .patterns_differ     = true };
    hl_feed       feed = { .tokens     = tokens,
                           .n_tokens   = N_TOKENS,
                           .lengths    = lengths,
                           .targets    = targets,
                           .segments   = segments,
                           .n_segments = 3,
                           .tap        = &tap };

    for (int i = 0; i < N_BATCH * N_CTX; i++)
        segments[i] = (uint8_t)(i * 7 % 3);
    assert_ok(hl_session_feed(session, &feed));
    for (int i = 0; i < N_BATCH; i++) {
        assert_int_equal(hl_session_length(session, i), lengths[i]);
        keep(r, hl_session_logits(session, i), session->config->d_vocab);
    }
}

static const hl_session_options everything = {
    .n_batch    = N_BATCH,
    .n_chunk    = 7,
    .n_patterns = 3,
    .wants = HL_WANT_Q | HL_WANT_K | HL_WANT_V | HL_WANT_Z | HL_WANT_RESID_PRE | HL_WANT_RESID_MID |
             HL_WANT_RESID_POST | HL_WANT_PATTERN | HL_WANT_LENS | HL_WANT_HIDDEN | HL_WANT_LOGITS |
             HL_WANT_LAST_LOGITS | HL_WANT_LOSSES,
};

static void all_that_a_tap_can_want(void **state)
{
    (void)state;
    compare(LLAMA, everything, feed_everything);
    compare(PHI3, everything, feed_everything);
    compare(NEOX, everything, feed_everything);
}

static void all_that_a_tap_can_want_of_mixtures_and_sinks(void **state)
{
    (void)state;
    if (!path_exists(in_shared("golden/families/gpt_oss")))
        skip();
    compare(in_shared("golden/families/gpt_oss"), everything, feed_everything);
    compare(in_shared("golden/families/qwen3_moe"), everything, feed_everything);
}

/* Gates, single steps, a rewind, and further steps. */
static void decode(hl_session *session, record *r)
{
    float   gates[64 * 64];
    hl_tap  tap  = { .context = r, .layer = see_layer };
    hl_feed feed = { .tokens = tokens, .n_tokens = 1, .gates = gates, .tap = &tap };
    int64_t each[N_BATCH];

    assert_true(session->config->n_layers * session->config->n_heads <= 64 * 64);
    for (int i = 0; i < 64 * 64; i++)
        gates[i] = (float)(i % 3) / 2.0f;
    for (int step = 0; step < 8; step++) {
        if (step == 5)
            assert_ok(hl_session_rewind(session, 1, 2));
        for (int i = 0; i < N_BATCH; i++)
            each[i] = tokens[i * N_TOKENS + step];
        feed.tokens = each;
        feed.gates  = step % 2 == 0 ? gates : NULL;
        feed.tap    = step < 6 ? &tap : NULL;
        assert_ok(hl_session_feed(session, &feed));
        for (int i = 0; i < N_BATCH; i++)
            keep(r, hl_session_logits(session, i), session->config->d_vocab);
    }
    assert_int_equal(hl_session_length(session, 0), 8);
    assert_int_equal(hl_session_length(session, 1), 5);
}

static void steps_gates_and_rewinding(void **state)
{
    const hl_session_options options = { .n_batch = N_BATCH, .wants = HL_WANT_LAST_LOGITS };
    (void)state;

    compare(LLAMA, options, decode);
    compare(NEOX, options, decode);
}

/* The most likely tokens, fed one after another; logits are not requested. */
static void follow_tops(hl_session *session, record *r)
{
    hl_feed feed = { .tokens = tokens, .n_tokens = N_TOKENS / 2 };
    int64_t next[N_BATCH];

    for (int step = 0; step < 4; step++) {
        assert_ok(hl_session_feed(session, &feed));
        for (int i = 0; i < N_BATCH; i++) {
            next[i] = hl_session_top(session, i);
            assert_in_range(next[i], 0, session->config->d_vocab - 1);
            keep(r, &(float){ (float)next[i] }, 1);
        }
        feed = (hl_feed){ .tokens = next, .n_tokens = 1 };
    }
    assert_int_equal(hl_session_top(session, N_BATCH), -1);
}

static void likeliest_tokens(void **state)
{
    (void)state;
    compare(LLAMA, (hl_session_options){ .n_batch = N_BATCH, .wants = HL_WANT_LAST_TOP },
            follow_tops);
}

/* Some sequences of three, each with its own gates. */
static void choose(hl_session *session, record *r)
{
    float        gates[64 * 64];
    const float *each[2]  = { gates, NULL };
    int64_t      chosen[] = { 0, 2 };
    hl_tap       tap      = { .context = r, .layer = see_layer };
    hl_feed      feed     = { .tokens      = tokens,
                              .n_tokens    = N_TOKENS / 2,
                              .sequences   = chosen,
                              .n_sequences = 2,
                              .tap         = &tap };

    for (int i = 0; i < 64 * 64; i++)
        gates[i] = (float)(i % 5) / 4.0f;
    assert_ok(hl_session_feed(session, &feed));
    feed.gates_each = each;
    feed.n_tokens   = 1;
    assert_ok(hl_session_feed(session, &feed));
    chosen[0]       = 1;
    feed.gates_each = NULL;
    assert_ok(hl_session_feed(session, &feed));
    assert_ok(hl_session_feed(session, &feed));
    assert_int_equal(hl_session_length(session, 0), 11);
    assert_int_equal(hl_session_length(session, 1), 2);
    assert_int_equal(hl_session_length(session, 2), 13);
    for (int i = 0; i < N_BATCH; i++)
        keep(r, hl_session_logits(session, i), session->config->d_vocab);
}

static void chosen_sequences(void **state)
{
    (void)state;
    compare(LLAMA, (hl_session_options){ .n_batch = N_BATCH, .wants = HL_WANT_LAST_LOGITS },
            choose);
}

static void feed_sampled(hl_session *session, record *r)
{
    hl_tap  tap  = { .context             = r,
                     .layer               = see_layer,
                     .wants               = all_rows,
                     .sampled_positions   = positions,
                     .n_sampled_positions = 3 };
    hl_feed feed = { .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap };

    r->sampled = true;
    assert_ok(hl_session_feed(session, &feed));
}

static void rows_at_some_positions(void **state)
{
    (void)state;
    compare(
        LLAMA,
        (hl_session_options){ .n_batch = N_BATCH, .n_chunk = 8, .n_sampled = 3, .wants = all_rows },
        feed_sampled);
}

/* Feeds another session's residual stream from layer 1 on. */
static void feed_stream(hl_session *session, record *r)
{
    static float stream[N_BATCH * N_TOKENS * 512];
    hl_tap       tap  = { .context = r, .layer = see_layer };
    hl_feed      feed = {
             .tokens = tokens, .n_tokens = N_TOKENS, .stream = stream, .first_layer = 1, .tap = &tap
    };

    assert_true(session->config->d_model <= 512);
    for (int i = 0; i < N_BATCH * N_TOKENS * 512; i++)
        stream[i] = sinf((float)i * 0.37f);
    assert_ok(hl_session_feed(session, &feed));
}

static void streams_from_a_layer_on(void **state)
{
    (void)state;
    compare(LLAMA, (hl_session_options){ .n_batch = N_BATCH, .n_chunk = 6 }, feed_stream);
}

/* The second session of a model takes no memory for weights, and stays valid after the first is
 * closed. */
static void weights_for_all_sessions(void **state)
{
    const hl_session_options options = { .device = "host", .wants = HL_WANT_LAST_TOP };
    hl_feed                  feed    = { .tokens = tokens, .n_tokens = N_TOKENS };
    hl_session_memory        alone, beside, other;
    hl_model                *model = NULL;
    hl_session              *first = NULL, *second = NULL;
    (void)state;

    assert_ok(hl_model_open(&model, LLAMA));
    assert_ok(hl_session_measure(&alone, model, &options));
    assert_ok(hl_session_open(&first, model, &options));
    assert_ok(hl_session_measure(&beside, model, &options));
    assert_true(beside.work_bytes + (size_t)hl_model_get_info(model)->n_params * 4 <=
                alone.work_bytes + 4096);
    assert_ok(hl_session_measure(
        &other, model, &(hl_session_options){ .device = "host:bf16", .wants = HL_WANT_LAST_TOP }));
    assert_true(other.work_bytes > beside.work_bytes); /* each type has its own copy */
    assert_ok(hl_session_open(&second, model, &options));
    assert_ok(hl_session_feed(first, &feed));
    int64_t top = hl_session_top(first, 0);
    hl_session_close(first);
    assert_ok(hl_session_feed(second, &feed));
    assert_int_equal(hl_session_top(second, 0), top);
    hl_session_close(second);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- golden */

static void expect_golden(const char *path, const hl_verify_options *options)
{
    hl_verify_report *report = NULL;

    assert_ok(hl_verify_model(&report, path, options));
    assert_true(report->n_entries > 0);
    for (size_t i = 0; i < report->n_entries; i++) {
        if (!report->entries[i].passed)
            fail_msg("%s: %s: %.2e, allowed %.2e", report->name, report->entries[i].output,
                     report->entries[i].error, report->entries[i].tolerance);
    }
    hl_verify_report_free(report);
}

static void expect_golden_in_all_ways(const char *path)
{
    hl_verify_options options = { .backend = hl_backend_name(), .n_threads = 1 };

    expect_golden(path, &options);
    options.n_chunk = 5;
    expect_golden(path, &options);
    options.n_chunk = 0;
    options.decode  = true;
    expect_golden(path, &options);
}

static void golden_families(void **state)
{
    (void)state;
    assert_ok(select_device("host"));
    expect_golden_in_all_ways(LLAMA);
    expect_golden_in_all_ways(PHI3);
    expect_golden_in_all_ways(NEOX);
    for (int i = 0; i < N_FAMILIES && path_exists(in_shared("golden/families")); i++)
        expect_golden_in_all_ways(in_folder(in_shared("golden/families"), families[i]));
    assert_ok(select_device(NULL));
}

static void demo_models(void **state)
{
    const hl_verify_options options = { .backend = hl_backend_name(), .n_threads = 1 };
    (void)state;

    assert_ok(select_device("host"));
    expect_golden("models/demo", &options);
    expect_golden("models/demo-sparse", &options);
    assert_ok(select_device(NULL));
}

static double largest_difference(void)
{
    double most = 0.0;

    assert_int_equal(on_host.count, on_cpu.count);
    for (size_t i = 0; i < on_cpu.count; i++)
        most = fmax(most, fabs((double)on_cpu.values[i] - (double)on_host.values[i]));
    return most;
}

/* Logits in 16 bits have larger errors than in f32, but no larger than their precision explains. */
static void other_types(void **state)
{
    hl_model          *model   = open_model(LLAMA);
    const char *const  names[] = { "host", "host:f16", "host:bf16" };
    const double       least[] = { 0.0, 1e-5, 1e-4 };
    const double       most[]  = { 1e-4, 0.05, 0.4 };
    hl_session_options options = { .wants = HL_WANT_LOGITS };
    hl_tap             tap  = { .context = &on_cpu, .final = see_final, .wants = HL_WANT_LOGITS };
    hl_feed            feed = { .tokens = tokens, .n_tokens = N_TOKENS, .tap = &tap };
    (void)state;

    fill_tokens(model);
    memset(&on_cpu, 0, sizeof on_cpu);
    hl_session *cpu = open_on("cpu", model, options);
    assert_ok(hl_session_feed(cpu, &feed));
    hl_session_close(cpu);
    for (int i = 0; i < 3; i++) {
        hl_session *host = open_on(names[i], model, options);

        memset(&on_host, 0, sizeof on_host);
        tap.context = &on_host;
        assert_ok(hl_session_feed(host, &feed));
        assert_in_range((int64_t)(largest_difference() * 1e9), (int64_t)(least[i] * 1e9),
                        (int64_t)(most[i] * 1e9));
        hl_session_close(host);
    }
    hl_model_close(model);
}

/* -------------------------------------------------------------------- refusals */

static void what_does_not_fit_is_refused(void **state)
{
    hl_model          *model   = open_model(LLAMA);
    hl_session        *session = NULL;
    hl_session_options options = { .n_ctx      = 1 << 28,
                                   .n_batch    = 1 << 10,
                                   .n_chunk    = 16,
                                   .n_rows     = 16,
                                   .device     = "host",
                                   .beyond_ctx = true };
    (void)state;

    assert_fails(HL_NO_MEMORY, "host: a session of 1024 sequences of 268435456 tokens, 16 rows",
                 hl_session_open(&session, model, &options));
    assert_non_null(strstr(hl_error_message(), "GiB are free: "));
    assert_non_null(strstr(hl_error_message(), "would fit"));
    assert_null(session);
    hl_model_close(model);
}

static void memory_is_counted_before_it_is_had(void **state)
{
    hl_model          *model   = open_model(LLAMA);
    hl_session_options options = everything;
    hl_session_memory  memory;
    size_t             cache = 0;
    (void)state;

    options.n_ctx     = N_CTX;
    options.n_threads = 1;
    options.device    = "host";
    assert_ok(hl_session_measure(&memory, model, &options));
    hl_session *session = open_on("host", model, everything);
    size_t      all     = hl_session_bytes(session, &cache);
    assert_int_equal(memory.cache_bytes, cache);
    assert_int_equal(memory.cache_bytes + memory.work_bytes, all);
    hl_session_close(session);
    hl_model_close(model);
}

static void devices_by_name(void **state)
{
    (void)state;
    assert_fails(HL_NOT_FOUND, "no device \"tpu\"; there are: cpu cuda cuda:f16 cuda:f32",
                 hl_device_check("tpu"));
    assert_fails(HL_NOT_FOUND, "no device \"cpu:f16\"", hl_device_check("cpu:f16"));
    assert_ok(hl_device_check("cpu"));
    assert_ok(hl_device_check("host:bf16"));
}

/* A model's device has priority over that of the environment. */
static void models_have_a_device(void **state)
{
    hl_model   *model   = open_model(LLAMA);
    hl_session *session = NULL;
    (void)state;

    assert_fails(HL_NOT_FOUND, "no device \"tpu\"", hl_model_set_device(model, "tpu"));
    for (int i = 0; i < 3; i++) {
        assert_ok(hl_model_set_device(model, i == 0 ? "host:f16" : i == 1 ? "cpu" : NULL));
        assert_ok(select_device(i == 0 ? NULL : "host"));
        assert_ok(hl_session_open(&session, model, NULL));
        assert_string_equal(session->device->ops->name, i == 1 ? "cpu" : "host");
        assert_int_equal(session->device->dtype, i == 0 ? HL_DTYPE_F16 : HL_DTYPE_F32);
        hl_session_close(session);
    }
    assert_ok(select_device(NULL));
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_a_tap_can_want),
        cmocka_unit_test(all_that_a_tap_can_want_of_mixtures_and_sinks),
        cmocka_unit_test(steps_gates_and_rewinding),
        cmocka_unit_test(likeliest_tokens),
        cmocka_unit_test(chosen_sequences),
        cmocka_unit_test(rows_at_some_positions),
        cmocka_unit_test(streams_from_a_layer_on),
        cmocka_unit_test(weights_for_all_sessions),
        cmocka_unit_test(golden_families),
        cmocka_unit_test(demo_models),
        cmocka_unit_test(other_types),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(memory_is_counted_before_it_is_had),
        cmocka_unit_test(devices_by_name),
        cmocka_unit_test(models_have_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
