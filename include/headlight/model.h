/* headlight/model.h - opening and describing a model. Part of headlight.h, which see for the
 * conventions. */
#ifndef HEADLIGHT_MODEL_H
#define HEADLIGHT_MODEL_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- models
 *
 *     hl_model *model = NULL;
 *     if (hl_model_open(&model, "gpt2") == HL_OK)
 *         printf("%lld parameters\n", (long long)hl_model_get_info(model)->n_params);
 *     hl_model_close(model);
 *
 * Any number of threads may use one model at once: read its description, open sessions, measure
 * it. hl_model_adjust, hl_model_set_gates, hl_model_set_device and hl_model_close need it
 * alone: none of its sessions may be running in any thread. */

typedef struct hl_model hl_model;

/* The default context length.  The number of tokens that a model sees at once is called n_ctx in
 * every struct.  In options, n_ctx 0 stands for the model's own n_ctx, or for HL_DEFAULT_CTX if
 * the model's is larger or unknown. */
#define HL_DEFAULT_CTX 4096

/* Opens a Hugging Face folder (or the .safetensors file in it, with config.json beside it), a
 * .gguf file, or a .bin file of llama2.c.  Weights are mapped, not read: opening takes no longer
 * for a large model than for a small one. */
HL_API hl_status hl_model_open(hl_model **out, const char *path);
/* Finds a model on this machine: a path as it is, or the name of a model in the Hugging Face cache
 * (OWNER/NAME, NAME), in Ollama's folder (NAME, NAME:TAG) or in LM Studio's (PUBLISHER/NAME, NAME).
 * Nothing is downloaded.  Release *out, a path, with hl_free.  HL_NOT_FOUND: there is none. */
HL_API hl_status hl_model_find(char **out, const char *name);
HL_API void      hl_model_close(hl_model *model);

/* Description of a model.  Texts are static or owned by the model. */
typedef struct hl_model_info {
    const char *family;         /* "llama", "gpt2", ... */
    const char *format;         /* "safetensors", "gguf", "llama2.c" */
    const char *tokenizer_path; /* where the model's tokenizer is expected, for hl_tokenizer_open */
    bool        is_encoder;

    int64_t n_layers;
    int64_t n_heads; /* largest number in any layer */
    int64_t n_kv_heads;
    int64_t d_mlp; /* largest of any layer; 0: all layers are mixtures of experts */
    int64_t d_model;
    int64_t d_head;
    int64_t d_vocab;
    int64_t n_ctx; /* 0: not given in the file */
    int64_t n_experts;
    int64_t n_experts_used; /* per token */
    int64_t d_expert;

    const char *norm;       /* "RMSNorm", "LayerNorm" */
    const char *norm_place; /* "before", "after", ... the branches */
    const char *residual;   /* "sequential", "parallel" */
    const char *position;   /* "rope", "learned", "alibi", "none" */
    const char *rope;       /* "default", "llama3", ...; "" without rope */
    double      rope_base;
    const char *activation;
    bool        is_gated;
    bool        is_tied;   /* the output head shares the embedding's weights */
    bool        has_head;  /* the model has an output head, tied or separate, so it can compute
                            * logits */
    bool        has_sinks; /* learned sinks, one per head */

    int64_t bos_id; /* -1: none */
    int64_t pad_id;
    int64_t eos_ids[16];
    int     n_eos_ids;
    /* Ids that the files give as begin, end or padding tokens but that are outside the
     * vocabulary.  They are not included in bos_id, pad_id and eos_ids. */
    int64_t foreign_ids[18];
    int     n_foreign_ids;

    int64_t n_params; /* number of learned parameters */
    int64_t n_tensors;
    size_t  tensor_bytes;
    size_t  kv_bytes_f32; /* KV-cache bytes per token in F32; 0 for an encoder */
    size_t  kv_bytes_f16;
} hl_model_info;

/* The result is borrowed from the model. */
HL_API const hl_model_info *hl_model_get_info(const hl_model *model);

typedef struct hl_layer_info {
    int64_t     n_heads; /* 0: the layer has no attention */
    const char *mixer;   /* what it has instead of attention or beside it: "Mamba-2", ...; "" */
    int64_t     n_kv_heads;
    int64_t     d_mlp; /* in a mixture of experts, the size of one expert; 0: no MLP */
    int64_t     n_experts;
    int64_t     window; /* largest number of keys that a row sees; 0: all */
    bool        has_rope;
    double      rope_base;
} hl_layer_info;

/* Returns HL_BAD_ARGUMENT if the layer does not exist. */
HL_API hl_status hl_model_get_layer(hl_layer_info *out, const hl_model *model, int64_t layer);

typedef struct hl_tensor_info {
    const char *name; /* as in the file */
    const char *role; /* "attn.qkv", ...; "" for tensors that are not used */
    bool        is_bias;
    hl_dtype    dtype;
    int         n_dims;
    int64_t     shape[8];
    size_t      n_bytes;
} hl_tensor_info;

/* Tensors are numbered in the order of the file.  Returns HL_BAD_ARGUMENT past the last one. */
HL_API hl_status hl_model_get_tensor(hl_tensor_info *out, const hl_model *model, int64_t index);

/* Computes a hash of all tensors: names, dtypes, shapes and every byte, independent of the files
 * that they are stored in.  This reads the whole model. */
HL_API hl_status hl_model_hash(uint64_t *out, const hl_model *model, int32_t n_threads);

/* Settings that run a model differently from how it was trained, to study the effect.  Zero
 * leaves a setting unchanged. */
typedef struct hl_adjustment {
    double  temperature; /* temperature of attention: q.k is divided by it */
    int64_t window;      /* number of keys that a row sees: its own and those before it, in
                          * addition to the first window_sink keys */
    double  rope_base;   /* RoPE theta, in all layers with RoPE */
    double  rope_factor; /* RoPE positions are divided by it */
    int64_t window_sink; /* number of first keys that stay visible outside the window; 0: 1,
                          * since models rely on the first key; -1: none */
} hl_adjustment;

/* Applies an adjustment.  Call this at most once, before a session of the model is opened.
 * Returns HL_UNSUPPORTED if the model cannot be adjusted so: it has no RoPE, its RoPE is already
 * scaled, or a window is requested for an encoder.  Profiles record that the model was adjusted. */
HL_API hl_status hl_model_adjust(hl_model *model, const hl_adjustment *adjustment);

/* Sets gates (n_layers, n_heads), which multiply the outputs of heads.  They apply to everything
 * that is run with the model from now on, except feeds that have their own gates.  The values
 * are copied; NULL: all gates are 1.  Returns HL_BAD_ARGUMENT for a value outside 0 to 1.  Do
 * not call this while a session is running.  Profiles record that gates were set. */
HL_API hl_status hl_model_set_gates(hl_model *model, const float *gates);

#ifdef __cplusplus
}
#endif
#endif
