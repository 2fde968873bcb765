/* test_session_memory.c - the memory of a session is known before it opens, does not grow with the
 * context except for the cache, and is complete: 32768 tokens are fed to a small model, and a model
 * in the shape of an 8B Llama is measured, from a file with a hole for its weights. */
#include "model_support.h"

#include <fcntl.h>
#include <limits.h>

#include "../bench/memory_probe.h"
#include "model/sample.h"

#define MIB ((size_t)1 << 20)

/* ------------------------------------------------------------ models without weights */

typedef struct shape {
    int n_layers, d_model, n_heads, n_kv_heads, d_head, d_mlp, d_vocab, n_ctx;
} shape;

typedef struct header {
    char   text[1 << 16];
    size_t used;
    size_t offset; /* offset of the next tensor's data */
} header;

static void add_tensor(header *h, const char *name, int rows, int columns)
{
    size_t n_bytes = 2 * (size_t)rows * (size_t)(columns > 0 ? columns : 1);
    char   shape_text[64];

    snprintf(shape_text, sizeof shape_text, columns > 0 ? "%d,%d" : "%d", rows, columns);
    h->used +=
        (size_t)snprintf(h->text + h->used, sizeof h->text - h->used,
                         "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         h->used > 1 ? "," : "", name, shape_text, h->offset, h->offset + n_bytes);
    assert_true(h->used < sizeof h->text - 16);
    h->offset += n_bytes;
}

static void add_layer(header *h, const shape *s, int layer)
{
    const struct {
        const char *name;
        int         rows, columns;
    } parts[] = {
        { "input_layernorm", s->d_model, 0 },
        { "self_attn.q_proj", s->n_heads * s->d_head, s->d_model },
        { "self_attn.k_proj", s->n_kv_heads * s->d_head, s->d_model },
        { "self_attn.v_proj", s->n_kv_heads * s->d_head, s->d_model },
        { "self_attn.o_proj", s->d_model, s->n_heads * s->d_head },
        { "post_attention_layernorm", s->d_model, 0 },
        { "mlp.gate_proj", s->d_mlp, s->d_model },
        { "mlp.up_proj", s->d_mlp, s->d_model },
        { "mlp.down_proj", s->d_model, s->d_mlp },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, parts[i].name);
        add_tensor(h, name, parts[i].rows, parts[i].columns);
    }
}

static void write_config(const char *folder, const shape *s)
{
    char text[1024];
    int  length = snprintf(text, sizeof text,
                           "{\"model_type\":\"llama\",\"num_hidden_layers\":%d,\"hidden_size\":%d,"
                            "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
                            "\"intermediate_size\":%d,\"vocab_size\":%d,"
                            "\"max_position_embeddings\":%d,\"tie_word_embeddings\":false}",
                           s->n_layers, s->d_model, s->n_heads, s->n_kv_heads, s->d_head, s->d_mlp,
                           s->d_vocab, s->n_ctx);
    write_file(in_folder(folder, "config.json"), text, (size_t)length);
}

/* Fills weights with small bf16 numbers, for models that are run. */
static void fill_weights(int file, size_t begin, size_t n_bytes)
{
    uint16_t *values = malloc(n_bytes);

    assert_non_null(values);
    for (size_t i = 0; i < n_bytes / 2; i++) {
        float    number = 0.2f * (float)hl_random_unit(1, i) - 0.1f;
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        values[i] = (uint16_t)(bits >> 16);
    }
    assert_int_equal(pwrite(file, values, n_bytes, (off_t)begin), n_bytes);
    free(values);
}

/* Makes a model of this shape; returns false if the file system has no room for the file. */
static bool make_model(const char *folder, const shape *s, bool filled)
{
    static header h;
    uint64_t      length;

    h = (header){ .text = "{", .used = 1 };
    add_tensor(&h, "model.embed_tokens.weight", s->d_vocab, s->d_model);
    for (int layer = 0; layer < s->n_layers; layer++)
        add_layer(&h, s, layer);
    add_tensor(&h, "model.norm.weight", s->d_model, 0);
    add_tensor(&h, "lm_head.weight", s->d_vocab, s->d_model);
    h.text[h.used++] = '}';
    length           = h.used;
    write_config(folder, s);

    int file = open(in_folder(folder, "model.safetensors"), O_CREAT | O_WRONLY, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, &length, sizeof length), sizeof length);
    assert_int_equal(write(file, h.text, h.used), h.used);
    bool fits = ftruncate(file, (off_t)(sizeof length + h.used + h.offset)) == 0;
    if (fits && filled)
        fill_weights(file, sizeof length + h.used, h.offset);
    close(file);
    return fits;
}

/* -------------------------------------------------------------------- exactness */

static void check_model(const char *path, hl_session_options options)
{
    hl_model         *model   = open_model(path);
    hl_session       *session = NULL;
    hl_session_memory memory;
    size_t            cache_bytes = 0;

    if (hl_session_open(&session, model, &options) == HL_OK) {
        assert_ok(hl_session_measure(&memory, model, &options));
        assert_int_equal(hl_session_bytes(session, &cache_bytes),
                         memory.cache_bytes + memory.work_bytes);
        assert_int_equal(cache_bytes, memory.cache_bytes);
        if (options.n_batch == 0 && options.cache_dtype == HL_DTYPE_F16 &&
            !hl_model_get_info(model)->is_encoder)
            assert_int_equal(memory.cache_bytes,
                             hl_model_get_info(model)->kv_bytes_f16 * (size_t)memory.n_ctx);
    } else {
        assert_int_equal(hl_session_measure(&memory, model, &options), HL_UNSUPPORTED);
    }
    hl_session_close(session);
    hl_model_close(model);
}

static void measured_is_allocated(void **state)
{
    static const char *const        others[] = { "bert",   "bloom",   "falcon_rw", "gpt2",
                                                 "gemma3", "gpt_oss", "opt",       "qwen3_moe" };
    static const hl_session_options all[]    = {
           { .cache_dtype = HL_DTYPE_F16, .n_threads = 1 },
           { .n_batch = 3, .n_ctx = 40, .wants = HL_WANT_LAST_LOGITS, .n_threads = 4 },
           { .n_ctx      = 64,
             .n_chunk    = 7,
             .n_patterns = 5,
             .n_threads  = 2,
             .wants      = HL_WANT_PATTERN | HL_WANT_LENS | HL_WANT_RESID_MID | HL_WANT_RESID_PRE },
    };
    (void)state;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_model("tests/data/families/llama3", all[i]);
        check_model("tests/data/gguf/starcoder2.gguf", all[i]);
        check_model("models/demo", all[i]);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            const char *path = in_folder(in_shared("golden/families"), others[k]);
            if (path_exists(path))
                check_model(path, all[i]);
        }
    }
}

/* Copies of weights count as memory of the session.  They are left out where they are not allowed, and
 * before a session is refused by a limit. */
static void copies_of_weights_are_counted(void **state)
{
    hl_model          *model   = open_model("models/demo");
    hl_session_options options = { .n_ctx = 64, .n_threads = 1 };
    hl_session        *session = NULL;
    hl_session_memory  without, with;
    (void)state;

    assert_ok(hl_session_measure(&without, model, &options));
    options.repack = true;
    assert_ok(hl_session_measure(&with, model, &options));
    /* Only AVX-512 has strips.  models/demo is f16, and its copy f32. */
    if (strcmp(hl_backend_name(), "avx512") == 0)
        assert_true(with.work_bytes > without.work_bytes + hl_model_get_info(model)->tensor_bytes);
    else
        assert_true(with.work_bytes >= without.work_bytes);
    assert_ok(hl_session_open(&session, model, &options));
    assert_int_equal(hl_session_bytes(session, NULL), with.cache_bytes + with.work_bytes);
    hl_session_close(session);

    hl_memory_limit(hl_memory_held() + hl_model_get_info(model)->tensor_bytes +
                    without.cache_bytes + without.work_bytes);
    assert_ok(hl_session_open(&session, model, &options));
    assert_int_equal(hl_session_bytes(session, NULL), without.cache_bytes + without.work_bytes);
    hl_session_close(session);
    hl_memory_limit(0);

    hl_repack_allow(false);
    assert_ok(hl_session_measure(&with, model, &options));
    assert_int_equal(with.work_bytes, without.work_bytes);
    hl_repack_allow(true);
    hl_model_close(model);
}

/* ------------------------------------------------------------------ long contexts */

static void a_large_model_reads_32768_tokens_in_under_1_gib(void **state)
{
    static const shape llama_8b = { 32, 4096, 32, 8, 128, 14336, 128256, 131072 };
    hl_session_memory  short_one, long_one;
    const char        *folder = new_folder();
    (void)state;

    if (!make_model(folder, &llama_8b, false)) {
        remove_folder(folder);
        skip();
    }
    hl_model          *model   = open_model(folder);
    hl_session_options options = { .n_ctx       = 32768,
                                   .wants       = HL_WANT_LAST_LOGITS | HL_WANT_LOGITS,
                                   .cache_dtype = HL_DTYPE_F16,
                                   .n_threads   = 16 };
    assert_ok(hl_session_measure(&long_one, model, &options));
    options.n_ctx = 1024;
    assert_ok(hl_session_measure(&short_one, model, &options));
    print_message("# 8B at 32768 tokens: cache %zu MiB, work %zu MiB\n", long_one.cache_bytes / MIB,
                  long_one.work_bytes / MIB);
    assert_int_equal(long_one.work_bytes, short_one.work_bytes);
    assert_int_equal(long_one.cache_bytes, (size_t)2 * 2 * 32 * 8 * 128 * 32768);
    assert_true(long_one.work_bytes < 1024 * MIB);
    hl_model_close(model);
    remove_folder(folder);
}

/* Returns, from a child process, the KiB by which the process grew from before the session to after
 * the feed, minus the memory that the session reports; or LONG_MIN. */
static long feed_in_child(const char *folder, int64_t n_tokens)
{
    hl_model          *model   = NULL;
    hl_session        *session = NULL;
    hl_session_options options = {
        .n_ctx = n_tokens, .wants = HL_WANT_LAST_LOGITS, .cache_dtype = HL_DTYPE_F16, .n_threads = 2
    };
    int64_t *tokens = calloc((size_t)n_tokens, sizeof *tokens);

    for (int64_t i = 0; i < n_tokens && tokens != NULL; i++)
        tokens[i] = i * 7 % 250;
    if (tokens == NULL || hl_model_open(&model, folder) != HL_OK)
        return LONG_MIN;
    long before = hl_memory_high_water();
    if (hl_session_open(&session, model, &options) != HL_OK ||
        hl_session_feed(session, &(hl_feed){ .tokens = tokens, .n_tokens = n_tokens }) != HL_OK)
        return LONG_MIN;
    return hl_memory_high_water() - before - (long)(hl_session_bytes(session, NULL) / 1024);
}

static long probe_feed(const char *folder, int64_t n_tokens)
{
    int  ends[2];
    long kib = LONG_MIN;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        kib = feed_in_child(folder, n_tokens);
        _exit(write(ends[1], &kib, sizeof kib) == (ssize_t)sizeof kib ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &kib, sizeof kib) != (ssize_t)sizeof kib)
        kib = LONG_MIN;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return kib;
}

/* The tolerance covers memory outside the session: the model's mapped pages, the kernels' scratch
 * memory, OpenBLAS with its buffers, and the stacks of threads. */
static void a_feed_of_32768_tokens_takes_what_was_said(void **state)
{
    static const shape small = { 1, 64, 1, 1, 16, 64, 256, 32768 };
    (void)state;

    if (SANITIZED || strcmp(hl_backend_name(), "scalar") == 0 || hl_memory_high_water() == 0)
        skip();
    const char *folder = new_folder();
    assert_true(make_model(folder, &small, true));
    long kib = probe_feed(folder, 32768);
    print_message("# %ld KiB beyond the session's own\n", kib);
    assert_int_not_equal(kib, LONG_MIN);
    assert_true(kib < 64 * 1024);
    remove_folder(folder);
}

int main(void)
{
    /* First what forks: OpenMP's threads do not survive it. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_feed_of_32768_tokens_takes_what_was_said),
        cmocka_unit_test(a_large_model_reads_32768_tokens_in_under_1_gib),
        cmocka_unit_test(measured_is_allocated),
        cmocka_unit_test(copies_of_weights_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
