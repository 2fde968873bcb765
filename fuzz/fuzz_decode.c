/* fuzz_decode.c - a text fed at once, in pieces and token by token gives the same logits.
 *
 * The input chooses a family, the sizes of a tiny model and where the text is cut; weights are
 * noise.  Prefill and decode take different paths through attention, caches and windows, and must
 * agree within rounding. */
#include <math.h>

#include "formats/safetensors.h"
#include "fuzz_choices.h"
#include "fuzz_file.h"

enum { N_TOKENS = 12, D_VOCAB = 11, MAX_TENSOR = 1 << 14 };

typedef struct shape {
    int64_t n_layers, n_heads, n_kv_heads, d_head, d_mlp, window;
} shape;

/* ------------------------------------------------------------------- a tiny model */

/* Families whose tensors have the same names; each ignores the tensors that it does not have. */
static const char *const families[] = { "llama", "mistral", "qwen2", "qwen3", "gemma2", "olmo2" };

static void write_config(const shape *s, const char *family)
{
    char text[1024];
    int  length = snprintf(
         text, sizeof text,
         "{\"model_type\":\"%s\",\"hidden_size\":%d,\"num_hidden_layers\":%d,"
          "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
          "\"intermediate_size\":%d,\"vocab_size\":%d,\"max_position_embeddings\":64,"
          "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"sliding_window\":%d,"
          "\"query_pre_attn_scalar\":%d,\"attn_logit_softcapping\":20.0,"
          "\"final_logit_softcapping\":20.0,\"hidden_activation\":\"gelu_pytorch_tanh\","
          "\"hidden_act\":\"silu\",\"attention_bias\":false,\"tie_word_embeddings\":false}",
         family, (int)(s->n_heads * s->d_head), (int)s->n_layers, (int)s->n_heads,
         (int)s->n_kv_heads, (int)s->d_head, (int)s->d_mlp, D_VOCAB, (int)s->window, (int)s->d_head);
    fuzz_file("config.json", (const uint8_t *)text, (size_t)length);
}

typedef struct maker {
    hl_safetensors_writer *writer;
    choices               *from;
    float                 *values; /* (MAX_TENSOR) shared by all tensors */
} maker;

/* Adds a tensor.  The writer borrows the data: all tensors begin with the same noise. */
static void add(maker *to, int64_t layer, const char *name, int64_t n_rows, int64_t n_columns)
{
    char      full[96];
    hl_tensor tensor = { .name    = full,
                         .n_dims  = n_columns > 0 ? 2 : 1,
                         .shape   = { n_rows, n_columns },
                         .data    = to->values + choose(to->from, 0, 63),
                         .n_bytes = (size_t)(n_rows * (n_columns > 0 ? n_columns : 1)) * 4 };

    PROMISE(tensor.n_bytes / 4 + 64 <= MAX_TENSOR);
    if (layer >= 0)
        snprintf(full, sizeof full, "model.layers.%d.%s.weight", (int)layer, name);
    else
        snprintf(full, sizeof full, "%s.weight", name);
    hl_safetensors_add(to->writer, &tensor);
}

static void add_layer(maker *to, const shape *s, int64_t layer, bool norm_whole)
{
    static const char *const norms[] = { "input_layernorm", "post_attention_layernorm",
                                         "pre_feedforward_layernorm",
                                         "post_feedforward_layernorm" };
    int64_t                  d       = s->n_heads * s->d_head;
    int64_t                  d_kv    = s->n_kv_heads * s->d_head;

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        add(to, layer, norms[i], d, 0);
    add(to, layer, "self_attn.q_norm", norm_whole ? d : s->d_head, 0);
    add(to, layer, "self_attn.k_norm", norm_whole ? d_kv : s->d_head, 0);
    add(to, layer, "self_attn.q_proj", d, d);
    add(to, layer, "self_attn.k_proj", d_kv, d);
    add(to, layer, "self_attn.v_proj", d_kv, d);
    add(to, layer, "self_attn.o_proj", d, d);
    add(to, layer, "mlp.gate_proj", s->d_mlp, d);
    add(to, layer, "mlp.up_proj", s->d_mlp, d);
    add(to, layer, "mlp.down_proj", d, s->d_mlp);
}

static void make_model(const shape *s, const char *family, choices *from)
{
    static float values[MAX_TENSOR];
    maker        to = { .from = from, .values = values };
    char         path[FUZZ_PATH_BYTES];
    int64_t      d = s->n_heads * s->d_head;

    write_config(s, family);
    choose_seed(from);
    for (size_t i = 0; i < MAX_TENSOR; i++)
        values[i] = choose_noise(from) * 0.7f;
    PROMISE(hl_safetensors_writer_new(&to.writer) == HL_OK);
    add(&to, -1, "model.embed_tokens", D_VOCAB, d);
    add(&to, -1, "model.norm", d, 0);
    add(&to, -1, "lm_head", D_VOCAB, d);
    for (int64_t layer = 0; layer < s->n_layers; layer++)
        add_layer(&to, s, layer, strcmp(family, "olmo2") == 0);
    snprintf(path, sizeof path, "%s/model.safetensors", fuzz_folder());
    PROMISE(hl_safetensors_write(to.writer, path) == HL_OK);
    hl_safetensors_writer_free(to.writer);
}

/* ---------------------------------------------------------------------- two ways */

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    float *all = context; /* (N_TOKENS, D_VOCAB) */

    memcpy(all + rows->start * D_VOCAB, rows->logits,
           (size_t)(rows->n_rows * D_VOCAB) * sizeof *all);
    return HL_OK;
}

/* Feeds the text in pieces of 1 to `most` tokens. */
static void run(float *logits, const hl_model *model, int64_t most, choices *from)
{
    static const int64_t tokens[N_TOKENS] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8 };
    hl_session_options   options          = { .n_ctx     = N_TOKENS,
                                              .n_chunk   = choose(from, 1, N_TOKENS),
                                              .wants     = HL_WANT_LOGITS,
                                              .n_threads = 1 };
    hl_tap               tap = { .context = logits, .final = keep_logits, .wants = HL_WANT_LOGITS };
    hl_session          *session = NULL;

    PROMISE(hl_session_open(&session, model, &options) == HL_OK);
    for (int64_t at = 0; at < N_TOKENS;) {
        int64_t n    = most == N_TOKENS ? most : choose(from, 1, most);
        n            = n < N_TOKENS - at ? n : N_TOKENS - at;
        hl_feed feed = { .tokens = tokens + at, .n_tokens = n, .tap = &tap };
        PROMISE(hl_session_feed(session, &feed) == HL_OK);
        at += n;
    }
    hl_session_close(session);
}

static void compare(const float *a, const float *b)
{
    float most = 0.0f;

    for (int i = 0; i < N_TOKENS * D_VOCAB; i++) {
        PROMISE(isfinite(a[i]) && isfinite(b[i]));
        most = fmaxf(most, fabsf(a[i]));
    }
    for (int i = 0; i < N_TOKENS * D_VOCAB; i++)
        PROMISE(fabsf(a[i] - b[i]) <= 1e-4f * (1.0f + most));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static float whole[N_TOKENS * D_VOCAB], pieces[N_TOKENS * D_VOCAB], steps[N_TOKENS * D_VOCAB];
    choices      from   = { bytes, n_bytes, 1 };
    hl_model    *model  = NULL;
    const char  *family = families[choose(&from, 0, 5)];
    shape        s      = { .n_layers = choose(&from, 1, 3), .n_kv_heads = choose(&from, 1, 2) };

    s.n_heads = s.n_kv_heads * choose(&from, 1, 3);
    s.d_head  = 2 * choose(&from, 1, 6);
    s.d_mlp   = choose(&from, 1, 24);
    s.window  = choose(&from, 1, N_TOKENS);
    make_model(&s, family, &from);
    PROMISE(hl_model_open(&model, fuzz_folder()) == HL_OK);
    run(whole, model, N_TOKENS, &from);
    run(pieces, model, 5, &from);
    run(steps, model, 1, &from);
    compare(whole, pieces);
    compare(whole, steps);
    hl_model_close(model);
    return 0;
}
