/* headlight/model.h - opening a model, and what it is.
 * Part of headlight.h, which see for the conventions. */
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
 * Any number of threads may use one model at once: read what it is, open sessions of it, measure it.
 * hl_model_adjust, hl_model_set_gates, hl_model_set_device and hl_model_close need it alone: no session
 * of it may be at work in any thread. */

typedef struct hl_model hl_model;

/* How many tokens a model sees at once is called n_ctx in every struct that has it.  In options 0
 * stands for the model's own n_ctx, and for this number where that is larger or not known. */
#define HL_DEFAULT_CTX 4096

/* A Hugging Face folder (or the .safetensors file in it, with config.json beside it),
 * a .gguf file, or a .bin of llama2.c.  Weights are mapped, not read: opening takes
 * no longer for a large model than for a small one. */
HL_API hl_status hl_model_open(hl_model **out, const char *path);
HL_API void      hl_model_close(hl_model *model);

/* A head of a model, and where the call says so with .head = -1 all heads of a layer. */
typedef struct hl_head {
    int64_t layer;
    int64_t head;
} hl_head;

/* What a model is.  Texts are static or the model's. */
typedef struct hl_model_info {
    const char *family;         /* "llama", "gpt2", ... */
    const char *format;         /* "safetensors", "gguf", "llama2.c" */
    const char *tokenizer_path; /* where its tokenizer would be, for hl_tokenizer_open */
    bool        is_encoder;

    int64_t n_layers;
    int64_t n_heads; /* the most that a layer has, as the next two */
    int64_t n_kv_heads;
    int64_t d_mlp; /* 0: only experts */
    int64_t d_model;
    int64_t d_head;
    int64_t d_vocab;
    int64_t n_ctx; /* 0: the file does not say */
    int64_t n_experts;
    int64_t n_experts_used; /* a token */
    int64_t d_expert;

    const char *norm;       /* "RMSNorm", "LayerNorm" */
    const char *norm_place; /* "before", "after", ... the branches */
    const char *residual;   /* "sequential", "parallel" */
    const char *position;   /* "rope", "learned", "alibi", "none" */
    const char *rope;       /* "default", "llama3", ...; "" without rope */
    double      rope_base;
    const char *activation;
    bool        is_gated;
    bool        is_tied;   /* the output head is the embedding */
    bool        has_head;  /* an output head, tied or of its own, is there: logits can be had */
    bool        has_sinks; /* learned, one a head */

    int64_t bos_id; /* -1: none */
    int64_t pad_id;
    int64_t eos_ids[16];
    int     n_eos_ids;
    /* Tokens that the files name to begin, end or fill up texts and the vocabulary does not have: they
     * are not among the three above. */
    int64_t foreign_ids[18];
    int     n_foreign_ids;

    int64_t n_params; /* numbers that were learned */
    int64_t n_tensors;
    size_t  tensor_bytes;
    size_t  kv_bytes_f32; /* of the K/V cache, a token; 0 for an encoder */
    size_t  kv_bytes_f16;
} hl_model_info;

/* Borrowed from the model. */
HL_API const hl_model_info *hl_model_get_info(const hl_model *model);

typedef struct hl_layer_info {
    int64_t n_heads; /* 0: no attention */
    int64_t n_kv_heads;
    int64_t d_mlp; /* of one expert in a mixture; 0: no MLP */
    int64_t n_experts;
    int64_t window; /* keys that a row sees at most; 0: all */
    bool    has_rope;
    double  rope_base;
} hl_layer_info;

/* HL_BAD_ARGUMENT past the last. */
HL_API hl_status hl_model_get_layer(hl_layer_info *out, const hl_model *model, int64_t layer);

typedef struct hl_tensor_info {
    const char *name; /* as in the file */
    const char *role; /* "attn.qkv", ...; "" for what plays no part */
    bool        is_bias;
    hl_dtype    dtype;
    int         n_dims;
    int64_t     shape[8];
    size_t      n_bytes;
} hl_tensor_info;

/* In the order of the file; HL_BAD_ARGUMENT past the last. */
HL_API hl_status hl_model_get_tensor(hl_tensor_info *out, const hl_model *model, int64_t index);

/* A hash of all tensors: names, dtypes, shapes and every byte, whatever files they lie in.
 * Reads the whole model. */
HL_API hl_status hl_model_hash(uint64_t *out, const hl_model *model, int32_t n_threads);

/* Running a model otherwise than it was trained, to see what that does.  Zero: as it is. */
typedef struct hl_adjustment {
    double  temperature; /* of attention: q.k is divided by it */
    int64_t window;      /* a row sees so many keys, itself and those before it, and the first */
    double  rope_base;   /* theta, in all layers that turn */
    double  rope_factor; /* positions are divided by it */
    int64_t window_sink; /* so many first keys; 0: 1, since models lean on it; -1: none */
} hl_adjustment;

/* Before a session of the model is opened, and once.  HL_UNSUPPORTED if the model has nothing
 * of the kind: positions that do not turn or are scaled already, an encoder and a window.
 * Profiles say that the model was adjusted. */
HL_API hl_status hl_model_adjust(hl_model *model, const hl_adjustment *adjustment);

/* Gates, (n_layers, n_heads), for all that is run with the model from now on, but for feeds that
 * bring their own: they multiply heads' outputs.  Copied; NULL: all heads as they are.
 * HL_BAD_ARGUMENT for a value that is not from 0 to 1.  Not while a session runs.  Profiles say
 * that gates were set. */
HL_API hl_status hl_model_set_gates(hl_model *model, const float *gates);

#ifdef __cplusplus
}
#endif
#endif
