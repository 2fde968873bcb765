/* test_falcon.c - Falcon with ALiBi, in shapes that no published model has.
 *
 * Each test makes a small model with random weights and computes it again in double precision, from
 * the formulas alone: LayerNorm, (q.k + bf16(slope * key)) / sqrt(d), softmax, GELU.  The result is
 * written as an expected.safetensors beside the model, so every back end is compared with it, in
 * one piece, in chunks and token by token.  The device "host" is compared by its logits. */
#include "model_support.h"

#include <math.h>

#include "base/dtype.h"
#include "formats/safetensors.h"
#include "measure/verify.h"

enum { N_LAYERS = 2, D_VOCAB = 50, N_TOKENS = 40, MAX_TENSORS = 32 };

typedef struct shape {
    int  n_heads;
    int  n_kv_heads;
    int  d_head;
    bool new_decoder; /* 40b's form: groups, and two parallel norms */
    bool multi_query;
    bool parallel;
} shape;

typedef struct made_model {
    shape     shape;
    int       d_model;
    int       d_mlp;
    hl_tensor tensors[MAX_TENSORS];
    char      names[MAX_TENSORS][80];
    int       n_tensors;
    uint64_t  random;
    int64_t   tokens[N_TOKENS];
    /* Results of the formulas. */
    float *logits;  /* (N_TOKENS, D_VOCAB) */
    float *entropy; /* (N_LAYERS, n_heads, N_TOKENS) */
    float *first;   /* shaped like entropy */
} made_model;

static double next_uniform(made_model *m) /* returns a number in [-1, 1) */
{
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(m->random >> 11) / 4503599627370496.0 - 1.0;
}

/* Adds a tensor with values center + size * uniform; n_columns 0: a vector. */
static void add_tensor(made_model *m, int layer, const char *name, int n_rows, int n_columns,
                       double center, double size)
{
    int     index  = m->n_tensors++;
    int64_t count  = (int64_t)n_rows * (n_columns > 0 ? n_columns : 1);
    float  *values = malloc((size_t)count * sizeof *values);

    assert_true(index < MAX_TENSORS && values != NULL);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(center + size * next_uniform(m));
    if (layer < 0)
        snprintf(m->names[index], sizeof m->names[index], "transformer.%s", name);
    else
        snprintf(m->names[index], sizeof m->names[index], "transformer.h.%d.%s", layer, name);
    m->tensors[index] = (hl_tensor){ .name    = m->names[index],
                                     .dtype   = HL_DTYPE_F32,
                                     .n_dims  = n_columns > 0 ? 2 : 1,
                                     .shape   = { n_rows, n_columns },
                                     .data    = values,
                                     .n_bytes = (size_t)count * sizeof *values };
}

static const float *tensor(const made_model *m, int layer, const char *name)
{
    char full[80];

    if (layer < 0)
        snprintf(full, sizeof full, "transformer.%s", name);
    else
        snprintf(full, sizeof full, "transformer.h.%d.%s", layer, name);
    for (int i = 0; i < m->n_tensors; i++) {
        if (strcmp(m->names[i], full) == 0)
            return m->tensors[i].data;
    }
    return NULL;
}

static void add_map(made_model *m, int layer, const char *name, int n_out, int n_in, double size)
{
    char weight[64], bias[64];

    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    add_tensor(m, layer, weight, n_out, n_in, 0.0, size);
    add_tensor(m, layer, bias, n_out, 0, 0.0, 0.3);
}

static void add_norm(made_model *m, int layer, const char *name)
{
    char weight[64], bias[64];

    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    add_tensor(m, layer, weight, m->d_model, 0, 1.0, 0.3);
    add_tensor(m, layer, bias, m->d_model, 0, 0.0, 0.3);
}

static const char *attention_norm(const shape *s)
{
    return s->new_decoder ? "ln_attn" : "input_layernorm";
}

static const char *mlp_norm(const shape *s)
{
    if (s->new_decoder)
        return "ln_mlp";
    return s->parallel ? "input_layernorm" : "post_attention_layernorm";
}

static void make_weights(made_model *m)
{
    const shape *s     = &m->shape;
    int          width = (s->n_heads + 2 * s->n_kv_heads) * s->d_head;
    double       size  = 2.0 / sqrt(m->d_model);

    add_tensor(m, -1, "word_embeddings.weight", D_VOCAB, m->d_model, 0.0, 1.0);
    for (int layer = 0; layer < N_LAYERS; layer++) {
        add_norm(m, layer, attention_norm(s));
        if (strcmp(attention_norm(s), mlp_norm(s)) != 0)
            add_norm(m, layer, mlp_norm(s));
        add_map(m, layer, "self_attention.query_key_value", width, m->d_model, size);
        add_map(m, layer, "self_attention.dense", m->d_model, m->d_model, size);
        add_map(m, layer, "mlp.dense_h_to_4h", m->d_mlp, m->d_model, size);
        add_map(m, layer, "mlp.dense_4h_to_h", m->d_model, m->d_mlp, size / 2.0);
    }
    add_norm(m, -1, "ln_f");
    for (int i = 0; i < N_TOKENS; i++)
        m->tokens[i] = (int64_t)((next_uniform(m) + 1.0) / 2.0 * D_VOCAB);
}

/* ---------------------------------------------------------------- the formulas */

/* Computes out (N_TOKENS, n_out) = x (N_TOKENS, n_in) W' + b. */
static double *map_of(const made_model *m, int layer, const char *name, const double *x, int n_out,
                      int n_in)
{
    char    full[64];
    double *out = malloc(sizeof *out * (size_t)(N_TOKENS * n_out));

    assert_non_null(out);
    snprintf(full, sizeof full, "%s.weight", name);
    const float *weight = tensor(m, layer, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const float *bias = tensor(m, layer, full);
    for (int t = 0; t < N_TOKENS; t++) {
        for (int i = 0; i < n_out; i++) {
            double sum = (double)bias[i];
            for (int j = 0; j < n_in; j++)
                sum += (double)weight[i * n_in + j] * x[t * n_in + j];
            out[t * n_out + i] = sum;
        }
    }
    return out;
}

static double *norm_of(const made_model *m, int layer, const char *name, const double *x)
{
    char    full[64];
    int     d   = m->d_model;
    double *out = malloc(sizeof *out * (size_t)(N_TOKENS * d));

    assert_non_null(out);
    snprintf(full, sizeof full, "%s.weight", name);
    const float *weight = tensor(m, layer, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const float *bias = tensor(m, layer, full);
    for (int t = 0; t < N_TOKENS; t++) {
        double mean = 0.0, variance = 0.0;
        for (int i = 0; i < d; i++)
            mean += x[t * d + i] / d;
        for (int i = 0; i < d; i++)
            variance += (x[t * d + i] - mean) * (x[t * d + i] - mean) / d;
        for (int i = 0; i < d; i++)
            out[t * d + i] =
                (x[t * d + i] - mean) / sqrt(variance + 1e-5) * (double)weight[i] + (double)bias[i];
    }
    return out;
}

static double rounded_to_bf16(double value)
{
    return (double)hl_bf16_to_f32(hl_f32_to_bf16((float)value));
}

/* The slopes of 8 heads are 1/2, 1/4 ... 1/256.  Another power of two has as many steps between 1
 * and 1/256.  Other numbers have the slopes of the next lower power, and then every second slope of
 * the next higher one. */
static double slope_of(int head, int n_heads)
{
    int below = 1;

    while (2 * below <= n_heads)
        below *= 2;
    return head < below ? pow(2.0, -8.0 / below * (head + 1))
                        : pow(2.0, -8.0 / (2 * below) * (2 * (head - below) + 1));
}

static double *attention_of(made_model *m, int layer, const double *x)
{
    const shape *s     = &m->shape;
    int          d     = s->d_head;
    int          group = s->n_heads / s->n_kv_heads;
    int          width = (s->n_heads + 2 * s->n_kv_heads) * d;
    double      *qkv   = map_of(m, layer, "self_attention.query_key_value", x, width, m->d_model);
    double      *z     = calloc((size_t)(N_TOKENS * m->d_model), sizeof *z);

    assert_non_null(z);
    for (int head = 0; head < s->n_heads; head++) {
        /* Blocks of d rows: the queries of a KV head, its key, its value. */
        int    block = head / group * (group + 2);
        int    q_at = (block + head % group) * d, k_at = (block + group) * d, v_at = k_at + d;
        double slope = rounded_to_bf16(slope_of(head, s->n_heads));
        for (int t = 0; t < N_TOKENS; t++) {
            double p[N_TOKENS], largest = -INFINITY, sum = 0.0, entropy = 0.0;
            for (int j = 0; j <= t; j++) {
                double dot = 0.0;
                for (int i = 0; i < d; i++)
                    dot += qkv[t * width + q_at + i] * qkv[j * width + k_at + i];
                p[j]    = (dot + rounded_to_bf16(slope * rounded_to_bf16(j))) / sqrt(d);
                largest = p[j] > largest ? p[j] : largest;
            }
            for (int j = 0; j <= t; j++)
                sum += p[j] = exp(p[j] - largest);
            for (int j = 0; j <= t; j++) {
                p[j] /= sum;
                entropy -= p[j] > 0.0 ? p[j] * log(p[j]) : 0.0;
                for (int i = 0; i < d; i++)
                    z[t * m->d_model + head * d + i] += p[j] * qkv[j * width + v_at + i];
            }
            int at         = (layer * s->n_heads + head) * N_TOKENS + t;
            m->entropy[at] = (float)entropy;
            m->first[at]   = (float)p[0];
        }
    }
    double *out = map_of(m, layer, "self_attention.dense", z, m->d_model, m->d_model);
    free(qkv);
    free(z);
    return out;
}

static double *mlp_of(const made_model *m, int layer, const double *x)
{
    double *inner = map_of(m, layer, "mlp.dense_h_to_4h", x, m->d_mlp, m->d_model);

    for (int i = 0; i < N_TOKENS * m->d_mlp; i++)
        inner[i] *= 0.5 * (1.0 + erf(inner[i] / sqrt(2.0)));
    double *out = map_of(m, layer, "mlp.dense_4h_to_h", inner, m->d_model, m->d_mlp);
    free(inner);
    return out;
}

static void add_to(double *x, double *added, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += added[i];
    free(added);
}

static void compute(made_model *m)
{
    int          n     = N_TOKENS * m->d_model;
    const float *embed = tensor(m, -1, "word_embeddings.weight");
    double      *x     = malloc(sizeof *x * (size_t)n);

    assert_non_null(x);
    for (int i = 0; i < n; i++)
        x[i] = (double)embed[m->tokens[i / m->d_model] * m->d_model + i % m->d_model];
    for (int layer = 0; layer < N_LAYERS; layer++) {
        double *normed   = norm_of(m, layer, attention_norm(&m->shape), x);
        double *attended = attention_of(m, layer, normed);
        free(normed);
        if (!m->shape.parallel)
            add_to(x, attended, n);
        normed          = norm_of(m, layer, mlp_norm(&m->shape), x);
        double *written = mlp_of(m, layer, normed);
        free(normed);
        if (m->shape.parallel)
            add_to(x, attended, n);
        add_to(x, written, n);
    }
    double *final = norm_of(m, -1, "ln_f", x);
    for (int i = 0; i < N_TOKENS * D_VOCAB; i++) {
        double sum = 0.0;
        for (int j = 0; j < m->d_model; j++)
            sum +=
                final[i / D_VOCAB * m->d_model + j] * (double)embed[i % D_VOCAB * m->d_model + j];
        m->logits[i] = (float)sum;
    }
    free(final);
    free(x);
}

/* ---------------------------------------------------------------------- files */

static void write_tensors(const char *path, const hl_tensor *tensors, int n_tensors)
{
    hl_safetensors_writer *writer = NULL;

    assert_ok(hl_safetensors_writer_new(&writer));
    for (int i = 0; i < n_tensors; i++)
        hl_safetensors_add(writer, &tensors[i]);
    assert_ok(hl_safetensors_write(writer, path));
    hl_safetensors_writer_free(writer);
}

static void write_model(const made_model *m, const char *folder)
{
    const shape *s = &m->shape;
    char         config[1024];
    int64_t      n_heads = s->n_heads;

    snprintf(config, sizeof config,
             "{\"model_type\": \"falcon\", \"architectures\": [\"FalconForCausalLM\"], "
             "\"alibi\": true, \"bias\": true, \"activation\": \"gelu\", "
             "\"layer_norm_epsilon\": 1e-05, \"hidden_size\": %d, \"ffn_hidden_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_kv_heads\": %d, "
             "\"new_decoder_architecture\": %s, \"multi_query\": %s, \"parallel_attn\": %s, "
             "\"vocab_size\": %d, \"tie_word_embeddings\": true}",
             m->d_model, m->d_mlp, N_LAYERS, s->n_heads, s->n_kv_heads,
             s->new_decoder ? "true" : "false", s->multi_query ? "true" : "false",
             s->parallel ? "true" : "false", D_VOCAB);
    write_file(in_folder(folder, "config.json"), config, strlen(config));
    write_tensors(in_folder(folder, "model.safetensors"), m->tensors, m->n_tensors);

    size_t    n_rows     = (size_t)(N_LAYERS * s->n_heads * N_TOKENS) * sizeof(float);
    hl_tensor expected[] = {
        { "tokens", HL_DTYPE_I64, 2, { 1, N_TOKENS }, m->tokens, sizeof m->tokens },
        { "logits",
          HL_DTYPE_F32,
          3,
          { 1, N_TOKENS, D_VOCAB },
          m->logits,
          N_TOKENS * D_VOCAB * sizeof(float) },
        { "entropy", HL_DTYPE_F32, 4, { N_LAYERS, 1, n_heads, N_TOKENS }, m->entropy, n_rows },
        { "first", HL_DTYPE_F32, 4, { N_LAYERS, 1, n_heads, N_TOKENS }, m->first, n_rows },
    };
    write_tensors(in_folder(folder, "expected.safetensors"), expected, 4);
}

static void expect_agreement(const char *folder, const shape *s, const hl_verify_options *options)
{
    hl_verify_report *report = NULL;

    assert_ok(hl_verify_model(&report, folder, options));
    assert_true(report->n_entries >= 3);
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];
        if (!(entry->error <= entry->tolerance))
            fail_msg("%d heads of %d, %d K/V: %s on %s: %.2e, allowed %.2e", s->n_heads, s->d_head,
                     s->n_kv_heads, entry->output, entry->backend, entry->error, entry->tolerance);
    }
    hl_verify_report_free(report);
}

/* Feeds one token at a time, so that the logits of every position are compared. */
static void expect_device_agrees(const char *folder, const made_model *m)
{
    hl_model          *model   = open_model(folder);
    hl_session        *session = NULL;
    hl_session_options options = { .n_ctx       = N_TOKENS,
                                   .wants       = HL_WANT_LAST_LOGITS,
                                   .n_threads   = 1,
                                   .device      = "host",
                                   .cache_dtype = HL_DTYPE_F32 };

    assert_ok(hl_session_open(&session, model, &options));
    for (int t = 0; t < N_TOKENS; t++) {
        assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = m->tokens + t, .n_tokens = 1 }));
        const float *logits = hl_session_logits(session, 0);
        assert_non_null(logits);
        for (int i = 0; i < D_VOCAB; i++) {
            double error = fabs((double)logits[i] - (double)m->logits[t * D_VOCAB + i]);
            if (!(error < 1e-3))
                fail_msg("%d heads of %d on host: logit %d of token %d is off by %.2e",
                         m->shape.n_heads, m->shape.d_head, i, t, error);
        }
    }
    hl_session_close(session);
    hl_model_close(model);
}

static const shape shapes[] = {
    { 12, 12, 6, false, false, false }, /* rw with another width */
    { 3, 3, 20, false, false, false },  /* rw with a number of heads that is not a power of two */
    { 2, 2, 64, false, false, false },  /* rw with the published width */
    { 16, 16, 4, false, false, false }, /* a width at which doubled biases would not be noticed */
    { 1, 1, 10, false, false, false },  /* one head: its slope is 1/256           */
    { 5, 1, 8, false, true, true },     /* 7b's one KV head                      */
    { 6, 1, 12, false, true, false },   /* 7b with sequential branches */
    { 12, 4, 6, true, true, true },     /* 40b's groups                           */
    { 20, 10, 2, true, false, true },   /* groups of two; the number of heads is not a power of
                                         * two */
};

static void every_shape_is_the_formula(void **state)
{
    const char *folder = *state;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        made_model m = { .shape = shapes[i], .random = i + 1 };

        m.d_model = shapes[i].n_heads * shapes[i].d_head;
        m.d_mlp   = 3 * m.d_model + 1;
        m.logits  = calloc(N_TOKENS * D_VOCAB, sizeof(float));
        m.entropy = calloc((size_t)(N_LAYERS * shapes[i].n_heads * N_TOKENS), sizeof(float));
        m.first   = calloc((size_t)(N_LAYERS * shapes[i].n_heads * N_TOKENS), sizeof(float));
        assert_true(m.logits != NULL && m.entropy != NULL && m.first != NULL);
        make_weights(&m);
        compute(&m);
        write_model(&m, folder);
        expect_agreement(folder, &shapes[i], NULL);
        expect_agreement(folder, &shapes[i], &(hl_verify_options){ .n_chunk = 7 });
        expect_agreement(folder, &shapes[i], &(hl_verify_options){ .decode = true });
        expect_device_agrees(folder, &m);
        for (int t = 0; t < m.n_tensors; t++)
            free((void *)(uintptr_t)m.tensors[t].data);
        free(m.first);
        free(m.entropy);
        free(m.logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_shape_is_the_formula, open_folder, close_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
