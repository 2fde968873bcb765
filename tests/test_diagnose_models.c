/* test_diagnose_models.c - edits the demo model so that it has each problem in turn, and measures
 * it on a text; the unchanged model must not have them.  Prints what was found. */
#include "analysis_support.h"
#include "model_support.h"

#include "base/dtype.h"
#include "formats/safetensors.h"

#define DEMO "models/demo"

enum { D_MODEL = 256, D_HEAD = 32, N_LAYERS = 8, N_HEADS = 8, CONTEXT = 128 };

/* --------------------------------------------------------------------- editing */

typedef struct weights {
    hl_safetensors *file;
    float          *values[256]; /* values of tensor i, f32; NULL: unchanged */
} weights;

static weights open_weights(void)
{
    weights w = { 0 };

    assert_ok(hl_safetensors_open(&w.file, DEMO "/model.safetensors"));
    assert_in_range(hl_safetensors_count(w.file), 1, 256);
    return w;
}

/* Returns a tensor's values, to be changed. */
static float *edit(weights *w, int layer, const char *name)
{
    char full[96];

    snprintf(full, sizeof full, "transformer.h.%d.%s", layer, name);
    for (size_t i = 0; i < hl_safetensors_count(w->file); i++) {
        const hl_tensor *tensor = hl_safetensors_at(w->file, i);
        size_t           count  = 1;

        if (strcmp(tensor->name, full) != 0)
            continue;
        for (int d = 0; d < tensor->n_dims; d++)
            count *= (size_t)tensor->shape[d];
        if (w->values[i] == NULL) {
            w->values[i] = malloc(sizeof(float) * count);
            assert_non_null(w->values[i]);
            assert_ok(hl_dtype_to_f32(w->values[i], tensor->data, tensor->dtype, count));
        }
        return w->values[i];
    }
    fail_msg("no tensor %s", full);
    return NULL;
}

/* Writes the model to a folder with the demo's other files, and releases the weights. */
static void save(weights *w, const char *folder)
{
    hl_safetensors_writer *writer = NULL;

    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < hl_safetensors_count(w->file); i++) {
        hl_tensor tensor = *hl_safetensors_at(w->file, i);
        size_t    count  = 1;

        for (int d = 0; d < tensor.n_dims; d++)
            count *= (size_t)tensor.shape[d];
        if (w->values[i] != NULL) {
            tensor.dtype   = HL_DTYPE_F32;
            tensor.data    = w->values[i];
            tensor.n_bytes = sizeof(float) * count;
        }
        hl_safetensors_add(writer, &tensor);
    }
    assert_ok(hl_safetensors_write(writer, in_folder(folder, "model.safetensors")));
    hl_safetensors_writer_free(writer);
    for (size_t i = 0; i < 256; i++)
        free(w->values[i]);
    hl_safetensors_close(w->file);

    size_t n_bytes = 0;
    char  *config  = read_file(DEMO "/config.json", &n_bytes);
    write_file(in_folder(folder, "config.json"), config, n_bytes);
    free(config);
}

/* Multiplies the queries of all heads. */
static void scale_queries(weights *w, float factor)
{
    for (int layer = 0; layer < N_LAYERS; layer++) {
        float *weight = edit(w, layer, "attn.c_attn.weight"); /* (256 in, 768 out): q, k, v */
        float *bias   = edit(w, layer, "attn.c_attn.bias");
        for (int i = 0; i < D_MODEL * D_MODEL; i++)
            weight[i / D_MODEL * 3 * D_MODEL + i % D_MODEL] *= factor;
        for (int i = 0; i < D_MODEL; i++)
            bias[i] *= factor;
    }
}

static void sharp(weights *w)
{
    scale_queries(w, 50.0f);
}

static void blind(weights *w)
{
    scale_queries(w, 0.0f);
}

/* Head 5 of layer 4 gets the queries, keys and values of head 3. */
static void copied(weights *w)
{
    float *weight = edit(w, 4, "attn.c_attn.weight");
    float *bias   = edit(w, 4, "attn.c_attn.bias");

    for (int row = 0; row <= D_MODEL; row++) {
        float *line = row < D_MODEL ? weight + row * 3 * D_MODEL : bias;
        for (int part = 0; part < 3; part++)
            memcpy(line + part * D_MODEL + 5 * D_HEAD, line + part * D_MODEL + 3 * D_HEAD,
                   sizeof(float) * D_HEAD);
    }
}

/* Head 6 of layer 2 has no output. */
static void silent(weights *w)
{
    float *weight = edit(w, 2, "attn.c_proj.weight"); /* (256 in, 256 out) */

    memset(weight + 6 * D_HEAD * D_MODEL, 0, sizeof(float) * D_HEAD * D_MODEL);
}

/* One damaged weight in the queries of head 1 of layer 5: finite, but so large that it
 * overflows. */
static void damaged(weights *w)
{
    edit(w, 5, "attn.c_attn.weight")[17 * 3 * D_MODEL + D_HEAD + 3] = 3e38f;
}

/* All layers have the first one's attention, and none changes the input of the next. */
static void equal(weights *w)
{
    static const char *const same[]  = { "ln_1.weight", "ln_1.bias", "attn.c_attn.weight",
                                         "attn.c_attn.bias" };
    static const int         sizes[] = { D_MODEL, D_MODEL, 3 * D_MODEL * D_MODEL, 3 * D_MODEL };
    static const char *const zero[]  = { "attn.c_proj.weight", "attn.c_proj.bias",
                                         "mlp.c_proj.weight", "mlp.c_proj.bias" };
    static const int zeros[] = { D_MODEL * D_MODEL, D_MODEL, 4 * D_MODEL * D_MODEL, D_MODEL };

    for (int layer = 0; layer < N_LAYERS; layer++) {
        for (int i = 0; i < 4; i++) {
            memcpy(edit(w, layer, same[i]), edit(w, 0, same[i]), sizeof(float) * (size_t)sizes[i]);
            memset(edit(w, layer, zero[i]), 0, sizeof(float) * (size_t)zeros[i]);
        }
    }
}

/* -------------------------------------------------------------------- measuring */

static hl_profile *measure(const char *folder)
{
    const char        *inputs[]  = { "models/text/alice.txt" };
    hl_corpus_options  text      = { .inputs = inputs, .n_inputs = 1 };
    hl_measure_options options   = { .windows   = { .n_ctx = CONTEXT, .max_tokens = 12 * CONTEXT },
                                     .no_probe  = true,
                                     .n_threads = 1 };
    hl_model          *model     = open_model(folder);
    hl_tokenizer      *tokenizer = NULL;
    hl_corpus         *corpus    = NULL;
    hl_profile        *profile   = NULL;

    assert_ok(hl_tokenizer_open(&tokenizer, DEMO));
    assert_ok(hl_corpus_open(&corpus, model, tokenizer, &text));
    assert_ok(hl_measure(&profile, model, tokenizer, corpus, &options));
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return profile;
}

static void print_row(const char *name, const hl_diagnoses *found)
{
    static const char *const short_names[HL_N_DIAGNOSES] = { "broken",   "collapse", "overload",
                                                             "locking",  "flat",     "redundancy",
                                                             "inactive", "sinks",    "drift",
                                                             "previous", "alike",    "alikesinks" };

    printf("# %-10s", name);
    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        printf(" %-10s", found->items[i].verdict == HL_VERDICT_FOUND     ? short_names[i]
                         : found->items[i].verdict == HL_VERDICT_NOT_RUN ? "?"
                                                                         : "-");
    printf("\n");
}

static hl_diagnoses *examine(const char *name, void (*change)(weights *w))
{
    const char   *folder  = change != NULL ? new_folder() : DEMO;
    hl_diagnoses *found   = NULL;
    hl_profile   *profile = NULL;

    if (change != NULL) {
        weights w = open_weights();
        change(&w);
        save(&w, folder);
    }
    profile = measure(folder);
    assert_ok(hl_diagnose(&found, profile, NULL, NULL));
    print_row(name, found);
    hl_profile_free(profile);
    if (change != NULL)
        remove_folder(folder);
    return found;
}

enum {
    BROKEN = 0,
    COLLAPSE,
    OVERLOAD,
    LOCKING,
    FLAT,
    REDUNDANCY,
    INACTIVE,
    SINKS,
    DRIFT,
    PREVIOUS,
    ALIKE
};

static void assert_verdict(const hl_diagnoses *found, int which, hl_verdict verdict)
{
    if (found->items[which].verdict != verdict)
        fail_msg("%s is %s, wanted %s: %s", found->items[which].name,
                 hl_verdict_name(found->items[which].verdict), hl_verdict_name(verdict),
                 found->items[which].finding);
}

static bool shows(const hl_diagnosis *item, int64_t layer, int64_t head)
{
    for (int64_t i = 0; i < item->n_heads; i++) {
        if (item->heads[i].layer == layer && item->heads[i].head == head)
            return true;
    }
    return false;
}

static void test_as_it_is(void **state)
{
    hl_diagnoses *found = examine("demo", NULL);

    (void)state;
    assert_verdict(found, COLLAPSE, HL_VERDICT_NOT_FOUND);
    assert_verdict(found, OVERLOAD, HL_VERDICT_NOT_FOUND);
    assert_verdict(found, LOCKING, HL_VERDICT_NOT_RUN);
    assert_verdict(found, FLAT, HL_VERDICT_NOT_FOUND);
    assert_false(shows(&found->items[REDUNDANCY], 4, 5));
    assert_false(shows(&found->items[INACTIVE], 2, 6));
    assert_verdict(found, BROKEN, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
}

static void test_sharp(void **state)
{
    hl_diagnoses *found = examine("Q x 50", sharp);

    (void)state;
    assert_verdict(found, COLLAPSE, HL_VERDICT_FOUND);
    assert_verdict(found, OVERLOAD, HL_VERDICT_NOT_FOUND);
    assert_verdict(found, BROKEN, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
}

static void test_blind(void **state)
{
    hl_diagnoses *found = examine("Q x 0", blind);

    (void)state;
    assert_verdict(found, OVERLOAD, HL_VERDICT_FOUND);
    assert_int_equal(found->items[OVERLOAD].n_heads, N_LAYERS * N_HEADS);
    assert_verdict(found, COLLAPSE, HL_VERDICT_NOT_FOUND);
    assert_verdict(found, REDUNDANCY, HL_VERDICT_FOUND); /* all heads look alike */
    hl_diagnoses_free(found);
}

static void test_copied(void **state)
{
    hl_diagnoses *found = examine("copy", copied);

    (void)state;
    assert_verdict(found, ALIKE, HL_VERDICT_FOUND);
    assert_true(shows(&found->items[ALIKE], 4, 5) || shows(&found->items[ALIKE], 4, 3));
    assert_near(found->items[ALIKE].heads[0].value, 1.0, 1e-6);
    assert_verdict(found, REDUNDANCY, HL_VERDICT_NOT_FOUND); /* one head of 64 */
    assert_verdict(found, COLLAPSE, HL_VERDICT_NOT_FOUND);
    assert_verdict(found, BROKEN, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
}

static void test_silent(void **state)
{
    hl_diagnoses *found = examine("W_O = 0", silent);

    (void)state;
    assert_verdict(found, INACTIVE, HL_VERDICT_FOUND);
    assert_true(shows(&found->items[INACTIVE], 2, 6));
    assert_near(found->items[INACTIVE].value, 0.0, 1e-9);
    assert_verdict(found, COLLAPSE, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
}

static void test_damaged(void **state)
{
    hl_diagnoses *found = examine("damaged", damaged);

    (void)state;
    assert_verdict(found, BROKEN, HL_VERDICT_FOUND);
    assert_true(shows(&found->items[BROKEN], 5, 1));
    for (int layer = 0; layer < 5; layer++) /* layers below the damage are not broken */
        assert_false(shows(&found->items[BROKEN], layer, 1));
    assert_false(shows(&found->items[BROKEN], 5, 0));
    hl_diagnoses_free(found);
}

static void test_equal(void **state)
{
    hl_diagnoses *found = examine("equal", equal);

    (void)state;
    assert_verdict(found, FLAT, HL_VERDICT_FOUND);
    assert_near(found->items[FLAT].value, 0.0, 1e-6);
    assert_verdict(found, COLLAPSE, HL_VERDICT_NOT_FOUND);
    hl_diagnoses_free(found);
}

/* --------------------------------------------------------------------- locking */

/* Statistics of a new token's rows, over all heads. */
typedef struct watcher {
    float  rows[N_LAYERS][N_HEADS][2 * CONTEXT]; /* rows of the previous token */
    double entropy;
    double change;
} watcher;

static hl_status watch(void *context, const hl_layer_rows *layer)
{
    watcher *w = context;

    for (int64_t head = 0; head < layer->n_heads; head++) {
        const float *row      = layer->pattern + head * layer->n_patterns * layer->n_keys;
        float       *previous = w->rows[layer->layer][head];
        int64_t      n_keys   = layer->start[0] + 1;

        w->entropy += (double)layer->rows->entropy[head * layer->n_rows] / log((double)n_keys + 1) /
                      (N_LAYERS * N_HEADS);
        for (int64_t key = 0; key < n_keys; key++)
            w->change +=
                0.5 * fabs((double)row[key] - (double)previous[key]) / (N_LAYERS * N_HEADS);
        memcpy(previous, row, sizeof *row * (size_t)n_keys);
    }
    return HL_OK;
}

/* Feeds tokens one at a time; from `frozen` on always the same token at the same place, as if the
 * cache had stopped growing. */
static void decode(double *entropy, double *change, const int64_t *tokens, int n_tokens, int frozen)
{
    hl_model          *model   = open_model(DEMO);
    hl_session        *session = NULL;
    hl_session_options options = {
        .n_ctx = 2 * CONTEXT, .n_patterns = 1, .wants = HL_WANT_PATTERN, .n_threads = 1
    };
    static watcher w;

    memset(&w, 0, sizeof w);
    assert_ok(hl_session_open(&session, model, &options));
    for (int i = 0; i < n_tokens; i++) {
        int     place    = i < frozen ? i : frozen - 1;
        int64_t position = place;
        hl_tap  tap      = { .context             = &w,
                             .layer               = watch,
                             .wants               = HL_WANT_PATTERN,
                             .pattern_positions   = &position,
                             .n_pattern_positions = 1 };
        hl_feed feed     = { .tokens = tokens + place, .n_tokens = 1, .tap = &tap };

        w.entropy = w.change = 0.0;
        if (place < i)
            assert_ok(hl_session_rewind(session, 0, place));
        assert_ok(hl_session_feed(session, &feed));
        entropy[i] = w.entropy;
        change[i]  = w.change;
    }
    hl_session_close(session);
    hl_model_close(model);
}

static void test_frozen_cache_is_locked(void **state)
{
    enum { N_TOKENS = 220, FROZEN = 130 };
    hl_tokenizer *tokenizer = NULL;
    hl_encoding  *encoding  = NULL;
    size_t        n_bytes   = 0;
    char         *text      = read_file("models/text/alice.txt", &n_bytes);
    int64_t       tokens[N_TOKENS];
    double        entropy[N_TOKENS], change[N_TOKENS];
    hl_locking    found;

    (void)state;
    assert_ok(hl_tokenizer_open(&tokenizer, DEMO));
    assert_ok(hl_tokenizer_encode(&encoding, tokenizer, text, 4096, NULL));
    assert_true(encoding->n_tokens >= N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = encoding->ids[i];
    decode(entropy, change, tokens, N_TOKENS, N_TOKENS);
    assert_ok(hl_find_locking(&found, entropy, change, N_TOKENS, NULL));
    printf("# reading: %s, %lld windows\n", found.locked ? "LOCKED" : "not locked",
           (long long)found.n_windows);
    assert_false(found.locked);
    decode(entropy, change, tokens, N_TOKENS, FROZEN);
    assert_ok(hl_find_locking(&found, entropy, change, N_TOKENS, NULL));
    printf("# cache frozen at token %d: %s at %lld, change %.4f, spread %.4f\n", FROZEN,
           found.locked ? "LOCKED" : "not locked", (long long)found.first, found.change,
           found.spread);
    assert_true(found.locked);
    /* A window may begin with a few tokens that still moved. */
    assert_in_range(found.first, FROZEN - 20, FROZEN);
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_it_is), cmocka_unit_test(test_sharp),
        cmocka_unit_test(test_blind),    cmocka_unit_test(test_copied),
        cmocka_unit_test(test_silent),   cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_equal),    cmocka_unit_test(test_frozen_cache_is_locked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
