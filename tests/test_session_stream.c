/* test_session_stream.c - a feed that begins at a layer, from the residual stream of a whole pass,
 * gives the same bytes, for every layer of every golden family; also from the stream that the
 * session kept itself, on the CPU and on a device. */
#include "base/status.h"
#include "model_support.h"

enum { N_BATCH = 2, N_TOKENS = 19, MAX_LAYERS = 16, MAX_MODEL = 256, MAX_VOCAB = 1024 };

/* Results of a pass: the stream before each layer and at the end, and the last rows. */
typedef struct pass {
    float  streams[MAX_LAYERS + 1][N_BATCH * N_TOKENS * MAX_MODEL];
    float  ends[N_BATCH * N_TOKENS * MAX_VOCAB]; /* logits, or the stream after the final norm */
    int    n_layers;                             /* number of reports, one per chunk and layer */
    size_t n_values;
} pass;

static hl_status see_layer(void *context, const hl_layer_rows *rows)
{
    pass *p = context;

    assert_true(rows->layer < MAX_LAYERS && rows->d_model <= MAX_MODEL);
    for (int64_t b = 0; b < N_BATCH; b++)
        memcpy(p->streams[rows->layer + 1] + (b * N_TOKENS + rows->start[b]) * rows->d_model,
               rows->resid_post + b * rows->n_rows * rows->d_model,
               (size_t)(rows->lengths[b] * rows->d_model) * sizeof(float));
    p->n_layers++;
    return HL_OK;
}

static hl_status see_final(void *context, const hl_final_rows *rows)
{
    pass   *p = context;
    int64_t n = rows->n_rows * rows->d_model;

    assert_true(p->n_values + (size_t)n <= sizeof p->ends / sizeof *p->ends);
    memcpy(p->ends + p->n_values, rows->hidden, (size_t)n * sizeof(float));
    p->n_values += (size_t)n;
    return HL_OK;
}

static hl_status run(pass *p, hl_session *session, const float *gates, const float *stream,
                     int64_t first_layer)
{
    int64_t       tokens[N_BATCH * N_TOKENS];
    const int64_t lengths[N_BATCH] = { N_TOKENS, 11 };
    hl_tap        tap              = { .context = p,
                                       .layer   = see_layer,
                                       .final   = see_final,
                                       .wants   = HL_WANT_RESID_POST | HL_WANT_HIDDEN };
    hl_feed       feed             = { .tokens      = tokens,
                                       .n_tokens    = N_TOKENS,
                                       .lengths     = lengths,
                                       .gates       = gates,
                                       .tap         = &tap,
                                       .stream      = stream,
                                       .first_layer = first_layer };

    for (int i = 0; i < N_BATCH * N_TOKENS; i++)
        tokens[i] = (i * 37 + i / N_TOKENS) % 61;
    for (int b = 0; b < N_BATCH; b++)
        assert_ok(hl_session_rewind(session, b, 0));
    p->n_layers = 0;
    p->n_values = 0;
    return hl_session_feed(session, &feed);
}

static void compare(const pass *whole, const pass *part, const hl_model_info *info, int64_t layer,
                    const char *path)
{
    assert_int_equal(part->n_layers * info->n_layers, whole->n_layers * (info->n_layers - layer));
    assert_int_equal(part->n_values, whole->n_values);
    if (memcmp(part->ends, whole->ends, whole->n_values * sizeof(float)) != 0)
        fail_msg("%s: not the same bytes from layer %d on", path, (int)layer);
    for (int64_t l = layer + 1; l <= info->n_layers; l++)
        assert_memory_equal(part->streams[l], whole->streams[l],
                            (size_t)(11 * info->d_model) * sizeof(float));
}

/* Uses gates from the layer on where the second pass starts, as evaluate.c does. */
static void check_family(const char *path)
{
    static pass          whole, part;
    hl_model            *model   = open_model(path);
    const hl_model_info *info    = hl_model_get_info(model);
    hl_session          *session = NULL;
    float                gates[MAX_LAYERS * 64];

    assert_true(info->n_layers * info->n_heads <= MAX_LAYERS * 64);
    assert_ok(
        hl_session_open(&session, model,
                        &(hl_session_options){ .n_ctx   = 32,
                                               .n_batch = N_BATCH,
                                               .n_chunk = 8, /* an encoder's chunk is the whole */
                                               .wants   = HL_WANT_RESID_POST | HL_WANT_HIDDEN }));
    for (int64_t layer = 1; layer <= info->n_layers; layer++) {
        for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
            gates[i] = i / info->n_heads < layer ? 1.0f : (float)(i % 3) / 2.0f;
        assert_ok(run(&whole, session, NULL, NULL, 0));
        memcpy(part.streams, whole.streams, sizeof part.streams);
        assert_ok(run(&whole, session, gates, NULL, 0));
        assert_ok(run(&part, session, gates, part.streams[layer], layer));
        compare(&whole, &part, info, layer, path);
    }
    hl_session_close(session);
    hl_model_close(model);
}

static hl_session *open_keeper(const hl_model *model, const char *device, int64_t every)
{
    hl_session *session = NULL;

    assert_ok(
        hl_session_open(&session, model,
                        &(hl_session_options){ .n_ctx        = 32,
                                               .n_batch      = N_BATCH,
                                               .n_chunk      = 8,
                                               .device       = device,
                                               .stream_every = every,
                                               .wants = HL_WANT_RESID_POST | HL_WANT_HIDDEN }));
    return session;
}

/* Like check_family, with the stream that the session kept from a pass without gates. */
static void check_keeping(const char *path, const char *device, int64_t every)
{
    static pass          whole, part;
    hl_model            *model  = open_model(path);
    const hl_model_info *info   = hl_model_get_info(model);
    hl_session          *plain  = open_keeper(model, device, 0);
    hl_session          *keeper = open_keeper(model, device, every);
    float                gates[MAX_LAYERS * 64];

    for (int64_t layer = every; layer < info->n_layers; layer += every) {
        for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
            gates[i] = i / info->n_heads < layer ? 1.0f : (float)(i % 3) / 2.0f;
        assert_ok(run(&whole, plain, gates, NULL, 0));
        assert_ok(run(&part, keeper, NULL, NULL, 0));
        assert_ok(run(&part, keeper, gates, NULL, layer));
        compare(&whole, &part, info, layer, path);
        assert_ok(run(&part, keeper, gates, NULL, layer)); /* the stream is still kept */
        compare(&whole, &part, info, layer, path);
    }
    hl_session_close(keeper);
    hl_session_close(plain);
    hl_model_close(model);
}

/* The changed stream of a setting is kept too: the next setting continues from it. */
static void check_walk(const char *path, const char *device)
{
    static pass          whole, part;
    hl_model            *model  = open_model(path);
    const hl_model_info *info   = hl_model_get_info(model);
    hl_session          *plain  = open_keeper(model, device, 0);
    hl_session          *keeper = open_keeper(model, device, 1);
    float                gates[MAX_LAYERS * 64];

    for (int64_t i = 0; i < info->n_layers * info->n_heads; i++)
        gates[i] = 1.0f;
    assert_ok(run(&part, keeper, gates, NULL, 0));
    for (int64_t layer = 1; layer < info->n_layers; layer++) {
        gates[layer * info->n_heads] = 0.0f;
        assert_ok(run(&whole, plain, gates, NULL, 0));
        assert_ok(run(&part, keeper, gates, NULL, layer));
        compare(&whole, &part, info, layer, path);
    }
    hl_session_close(keeper);
    hl_session_close(plain);
    hl_model_close(model);
}

static void kept_streams_give_the_same_bytes(void **state)
{
    static const char *const families[] = { "llama3", "gpt_neox", "phi3", "starcoder2" };
    static const char *const devices[]  = { "cpu", "host" };
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 2; j++) {
            const char *path = in_folder("tests/data/families", families[i]);
            check_keeping(path, devices[j], 1);
            check_keeping(path, devices[j], 2);
            check_walk(path, devices[j]);
        }
    }
}

static void streams_that_are_not_kept(void **state)
{
    static pass   p;
    hl_model     *model             = open_model("tests/data/families/llama3");
    hl_session   *session           = open_keeper(model, "cpu", 2);
    const int64_t more[N_BATCH * 5] = { 0 };
    (void)state;

    assert_true(hl_model_get_info(model)->n_layers > 2);
    assert_fails(HL_BAD_ARGUMENT, "layer 2 reads is not kept for positions 0 to 18 of sequence 0",
                 run(&p, session, NULL, NULL, 2));
    assert_ok(run(&p, session, NULL, NULL, 0));
    assert_fails(
        HL_BAD_ARGUMENT, "kept for positions 19 to 23 of sequence 0",
        hl_session_feed(session, &(hl_feed){ .tokens = more, .n_tokens = 5, .first_layer = 2 }));
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = more, .n_tokens = 5 }));
    assert_ok(run(&p, session, NULL, NULL, 2)); /* only a part of the kept positions */
    assert_fails(HL_BAD_ARGUMENT, "from layer 1 on without a residual stream",
                 run(&p, session, NULL, NULL, 1));
    hl_session_close(session);
    hl_model_close(model);
}

static hl_status refuse(void *context, const hl_layer_rows *rows)
{
    (void)context;
    return rows->start[0] == 8 ? hl_fail(HL_CANCELLED, "enough") : HL_OK;
}

/* A failed feed loses the rows that it would have written, except those of finished chunks. */
static void streams_of_a_feed_that_failed(void **state)
{
    static pass   p;
    hl_model     *model          = open_model("tests/data/families/llama3");
    hl_session   *session        = open_keeper(model, "cpu", 2);
    const int64_t tokens[2 * 16] = { 0 };
    hl_tap        tap            = { .layer = refuse };
    (void)state;

    assert_ok(run(&p, session, NULL, NULL, 0));
    for (int b = 0; b < N_BATCH; b++)
        assert_ok(hl_session_rewind(session, b, 0));
    assert_fails(
        HL_CANCELLED, "enough",
        hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = 16, .tap = &tap }));
    assert_fails(HL_BAD_ARGUMENT, "is not kept for positions 0 to 18",
                 run(&p, session, NULL, NULL, 2));
    for (int b = 0; b < N_BATCH; b++)
        assert_ok(hl_session_rewind(session, b, 0));
    assert_ok(
        hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = 8, .first_layer = 2 }));
    hl_session_close(session);
    hl_model_close(model);
}

static void kept_families_give_the_same_bytes(void **state)
{
    (void)state;
    check_family("tests/data/families/llama3");
    check_family("tests/data/families/gpt_neox");
    check_family("tests/data/families/phi3");
    check_family("tests/data/families/starcoder2");
}

static void all_families_give_the_same_bytes(void **state)
{
    DIR *folder = opendir(in_shared("golden/families"));
    int  count  = 0;
    (void)state;

    if (folder == NULL) {
        skip();
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        check_family(in_folder(in_shared("golden/families"), entry->d_name));
        count++;
    }
    closedir(folder);
    assert_true(count >= 34);
}

static void what_cannot_be_is_refused(void **state)
{
    static pass p;
    hl_model   *model   = open_model("tests/data/families/llama3");
    hl_session *session = NULL;
    int64_t     n       = hl_model_get_info(model)->n_layers;
    (void)state;

    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){ .n_batch = N_BATCH, .wants = HL_WANT_RESID_POST | HL_WANT_HIDDEN }));
    assert_fails(HL_BAD_ARGUMENT, "from layer 1 on without a residual stream",
                 run(&p, session, NULL, NULL, 1));
    assert_fails(HL_BAD_ARGUMENT, "first_layer", run(&p, session, NULL, p.streams[0], n + 1));
    assert_fails(HL_BAD_ARGUMENT, "first_layer", run(&p, session, NULL, p.streams[0], -1));
    hl_session_close(session);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_families_give_the_same_bytes),
        cmocka_unit_test(all_families_give_the_same_bytes),
        cmocka_unit_test(kept_streams_give_the_same_bytes),
        cmocka_unit_test(streams_that_are_not_kept),
        cmocka_unit_test(streams_of_a_feed_that_failed),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
