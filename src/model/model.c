/* model.c - opens a model (tensors, description, weights) and adjusts it afterwards.
 *
 * formats/tensors finds out what a path holds.  The description comes from the file itself (GGUF,
 * llama2.c) or from the config.json in the folder. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

/* ----------------------------------------------------------------------------------- config.json */

/* Returns folder/name for the folder of the weights. */
static hl_status beside(char **out, const hl_model *model, const char *name)
{
    const char *folder  = hl_tensors_folder(model->tensors);
    size_t      n_bytes = strlen(folder) + strlen(name) + 2;
    hl_status   status  = HL_ALLOC(out, n_bytes);

    if (status == HL_OK)
        snprintf(*out, n_bytes, "%s/%s", folder, name);
    return status;
}

static hl_status read_config(hl_model *model)
{
    HL_FREED char                   *path = NULL;
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    HL_NEED(beside(&path, model, "config.json"));
    HL_NEED(hl_file_map(&file, path));
    return hl_config_parse(&model->config, (const char *)file.bytes, file.n_bytes, path);
}

/* Reads generation_config.json, if it exists. */
static hl_status read_generation(hl_model *model)
{
    HL_FREED char                   *path = NULL;
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };
    struct stat                      about;

    HL_NEED(beside(&path, model, "generation_config.json"));
    if (stat(path, &about) != 0)
        return HL_OK;
    HL_NEED(hl_file_map(&file, path));
    return hl_config_parse_generation(model->config, (const char *)file.bytes, file.n_bytes, path);
}

static hl_status read_description(hl_model *model)
{
    const hl_gguf    *gguf    = hl_tensors_gguf(model->tensors);
    const hl_llama2c *llama2c = hl_tensors_llama2c(model->tensors);

    if (gguf != NULL)
        return hl_config_of_gguf(&model->config, gguf, model->tensors);
    if (llama2c != NULL)
        return hl_config_of_llama2c(&model->config, hl_llama2c_config_of(llama2c), model->path);
    hl_status status = read_config(model);
    return status == HL_OK ? read_generation(model) : status;
}

/* Whether the id is a token of the model.  If not, it is recorded with a warning. */
static bool keep_id(hl_model *model, int64_t id, const char *what)
{
    hl_generation *generation = &model->config->generation;

    if (id < model->config->d_vocab)
        return true;
    generation->foreign_ids[generation->n_foreign_ids++] = id;
    hl_log(HL_LOG_WARNING,
           "%s: the %s is %lld, but the vocabulary has only %lld tokens; it is ignored",
           model->path, what, (long long)id, (long long)model->config->d_vocab);
    return false;
}

/* Drops ids outside the vocabulary, which occur in configurations copied from other models. */
static void drop_foreign_ids(hl_model *model)
{
    hl_generation *generation = &model->config->generation;
    int            n_kept     = 0;

    if (!keep_id(model, generation->bos_id, "token that begins texts"))
        generation->bos_id = -1;
    if (!keep_id(model, generation->pad_id, "token that fills up texts"))
        generation->pad_id = -1;
    for (int i = 0; i < generation->n_eos_ids; i++) {
        if (keep_id(model, generation->eos_ids[i], "token that ends texts"))
            generation->eos_ids[n_kept++] = generation->eos_ids[i];
    }
    generation->n_eos_ids = n_kept;
}

static hl_status describe(hl_model *model)
{
    hl_status status = read_description(model);

    if (status == HL_OK)
        drop_foreign_ids(model);
    return status;
}

/* ------------------------------------------------------------------------------------------ info */

static void name_parts(hl_model_info *info, const hl_config *config)
{
    static const char *const places[]    = { [HL_NORM_PRE]      = "before",
                                             [HL_NORM_POST]     = "after",
                                             [HL_NORM_BRANCH]   = "on the branches of",
                                             [HL_NORM_SANDWICH] = "before and after" };
    static const char *const positions[] = { [HL_POSITION_NONE]         = "none",
                                             [HL_POSITION_LEARNED]      = "learned",
                                             [HL_POSITION_ROPE]         = "rope",
                                             [HL_POSITION_ALIBI]        = "alibi",
                                             [HL_POSITION_ALIBI_FALCON] = "alibi" };
    const hl_rope           *rope        = &config->ropes[HL_ROPE_MAIN];

    info->family     = config->family;
    info->norm       = config->norm == HL_NORM_RMS ? "RMSNorm" : "LayerNorm";
    info->norm_place = places[config->norm_place];
    info->residual   = config->residual == HL_RESIDUAL_SEQUENTIAL ? "sequential" : "parallel";
    info->position   = config->sinusoids ? "sinusoids" : positions[config->position];
    info->rope       = config->position == HL_POSITION_ROPE ? hl_rope_kind_name(rope->kind) : "";
    info->rope_base  = rope->base;
    info->activation = hl_activation_name(config->activation);
    info->is_gated   = config->gated;
    info->is_tied    = config->tied;
    info->has_sinks  = config->sinks;
    info->is_encoder = config->is_encoder;
}

static void copy_sizes(hl_model_info *info, const hl_config *config)
{
    bool has_dense = false;

    for (int64_t i = 0; i < config->n_layers; i++)
        has_dense = has_dense || config->layers[i].n_experts == 0;
    info->n_layers       = config->n_layers;
    info->n_heads        = config->n_heads;
    info->n_kv_heads     = config->n_kv_heads;
    info->d_mlp          = has_dense ? config->d_mlp : 0;
    info->d_model        = config->d_model;
    info->d_head         = config->d_head;
    info->d_vocab        = config->d_vocab;
    info->n_ctx          = config->n_ctx;
    info->n_experts      = config->n_experts;
    info->n_experts_used = config->n_experts_used;
    info->d_expert       = config->n_experts > 0 ? config->d_expert : 0;
    info->bos_id         = config->generation.bos_id;
    info->pad_id         = config->generation.pad_id;
    info->n_eos_ids      = config->generation.n_eos_ids;
    memcpy(info->eos_ids, config->generation.eos_ids, sizeof info->eos_ids);
    info->n_foreign_ids = config->generation.n_foreign_ids;
    memcpy(info->foreign_ids, config->generation.foreign_ids, sizeof info->foreign_ids);
}

/* The number of cached values of K and V per token, in all layers. */
static int64_t cache_values(const hl_config *config)
{
    int64_t values = 0;

    for (int64_t i = 0; i < config->n_layers && config->latent.d_latent > 0; i++)
        values += config->layers[i].n_heads > 0 ? hl_latent_key_size(config) : 0;
    if (values > 0)
        return values;
    for (int64_t i = 0; i < config->n_layers && !config->is_encoder; i++)
        values += 2 * hl_config_own_kv_heads(config, i) * config->layers[i].d_head;
    return values;
}

static void fill_info(hl_model *model)
{
    static const char *const formats[] = { [HL_TENSORS_SAFETENSORS] = "safetensors",
                                           [HL_TENSORS_GGUF]        = "gguf",
                                           [HL_TENSORS_LLAMA2C]     = "llama2.c" };
    const hl_gguf           *gguf      = hl_tensors_gguf(model->tensors);
    hl_model_info           *info      = &model->info;

    name_parts(info, model->config);
    copy_sizes(info, model->config);
    info->tokenizer_path = gguf != NULL ? hl_gguf_where(gguf) : hl_tensors_folder(model->tensors);
    info->format         = formats[hl_tensors_kind_of(model->tensors)];
    info->has_head       = hl_weights_get(model->weights, HL_ROLE_LM_HEAD, -1, 0) != NULL;
    info->n_params       = hl_weights_n_params(model->weights);
    info->n_tensors      = (int64_t)hl_tensors_count(model->tensors);
    info->kv_bytes_f32   = (size_t)cache_values(model->config) * 4;
    info->kv_bytes_f16   = (size_t)cache_values(model->config) * 2;
    for (int64_t i = 0; i < info->n_tensors; i++)
        info->tensor_bytes += hl_tensors_at(model->tensors, (size_t)i)->n_bytes;
}

/* ------------------------------------------------------------------------------- stored numbers */

/* Reads the single number of a role; *out is unchanged if the model does not have it. */
static hl_status read_number(float *out, const hl_model *model, hl_role role, int64_t layer)
{
    const hl_param *param = hl_weights_get(model->weights, role, layer, 0);

    if (param == NULL || param->weight.tensor == NULL)
        return HL_OK;
    HL_NEED(hl_weight_read(out, &param->weight));
    if (!isfinite(*out))
        return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is %g, wanted a finite number", model->path,
                       param->weight.tensor->name, (double)*out);
    return HL_OK;
}

static float softplus(float x)
{
    return x > 20.0f ? x : (float)log1p(exp((double)x));
}

/* Files store p and n - b before a softplus. */
static hl_status read_xielu(hl_layer_config *at, const hl_model *model, int64_t layer)
{
    static const hl_role roles[] = { HL_ROLE_XIELU_P, HL_ROLE_XIELU_N, HL_ROLE_XIELU_B,
                                     HL_ROLE_XIELU_E };

    for (int i = 0; i < HL_ACTIVATION_NUMBERS; i++)
        HL_NEED(read_number(&at->numbers[i], model, roles[i], layer));
    at->numbers[0] = softplus(at->numbers[0]);
    at->numbers[1] = softplus(at->numbers[1]) + at->numbers[2];
    return HL_OK;
}

/* Completes the description with numbers that are stored as tensors. */
static hl_status read_numbers(hl_model *model)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        float scale = 0.0f;

        HL_NEED(read_number(&scale, model, HL_ROLE_LAYER_SCALE, layer));
        model->config->layers[layer].scale = (double)scale;
        if (model->config->activation == HL_ACTIVATION_XIELU)
            HL_NEED(read_xielu(&model->config->layers[layer], model, layer));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------------------ computed tables */

/* Makes the table of positions of a model that computes it, as its code does: in floats. */
static hl_status make_sinusoids(hl_model *model)
{
    static const hl_tensor computed = { .name = (char *)"(sinusoids)", .dtype = HL_DTYPE_F32 };
    const hl_config       *config   = model->config;
    int64_t                half     = config->d_model / 2;
    hl_param               param    = { 0 };

    if (!config->sinusoids)
        return HL_OK;
    HL_NEED(HL_ALLOC_ZEROED(&model->positions, (size_t)(config->n_ctx * config->d_model)));
    for (int64_t i = 0; i < config->n_ctx * half; i++) {
        int64_t row = i / half;
        float   frequency =
            (float)exp(-(double)(i % half) * (double)(float)(log(10000.0) / (double)(half - 1)));
        float  angle = (float)(row + config->position_offset) * frequency;
        float *out   = model->positions + row * config->d_model + i % half;

        out[0]    = (float)sin((double)angle);
        out[half] = (float)cos((double)angle);
    }
    param.weight = (hl_weight){ .tensor    = &computed,
                                .data      = model->positions,
                                .dtype     = HL_DTYPE_F32,
                                .n_rows    = config->n_ctx,
                                .n_columns = config->d_model,
                                .n_stored  = config->n_ctx,
                                .block     = config->n_ctx,
                                .stride    = config->n_ctx };
    hl_weights_put(model->weights, HL_ROLE_POSITION, -1, &param);
    return HL_OK;
}

/* ---------------------------------------------------------------------------------------- public */

hl_status hl_model_open(hl_model **out, const char *path)
{
    HL_CLOSED(hl_model_close) hl_model *model = NULL;

    *out = NULL;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_model_open: no path");
    HL_NEED(HL_ALLOC_ZEROED(&model, 1));
    HL_NEED(hl_strdup(&model->path, path));
    HL_NEED(hl_tensors_open(&model->tensors, path));
    HL_NEED(describe(model));
    HL_NEED(hl_fail_within(hl_weights_resolve(&model->weights, model->config, model->tensors), "%s",
                           path));
    HL_NEED(read_numbers(model));
    HL_NEED(make_sinusoids(model));
    HL_NEED(hl_device_copies_new(&model->copies));
    fill_info(model);
    *out = hl_taken(&model);
    return HL_OK;
}

void hl_model_close(hl_model *model)
{
    if (model == NULL)
        return;
    hl_device_copies_free(model->copies);
    hl_weights_free(model->weights);
    hl_config_free(model->config);
    hl_tensors_close(model->tensors);
    hl_free(model->gates);
    hl_free(model->positions);
    hl_free(model->replaced);
    hl_free(model->path);
    hl_free(model);
}

const hl_model_info *hl_model_get_info(const hl_model *model)
{
    return &model->info;
}

hl_status hl_model_get_layer(hl_layer_info *out, const hl_model *model, int64_t layer)
{
    if (layer < 0 || layer >= model->config->n_layers)
        return hl_fail(HL_BAD_ARGUMENT, "layer %lld, wanted 0 to %lld", (long long)layer,
                       (long long)model->config->n_layers - 1);
    const hl_layer_config *from = &model->config->layers[layer];
    const hl_rope         *rope = &model->config->ropes[from->rope];
    *out                        = (hl_layer_info){
                               .n_heads    = from->n_heads,
                               .mixer      = hl_mixer_name(from->mixer),
                               .n_kv_heads = from->n_kv_heads,
                               .d_mlp      = from->d_mlp,
                               .n_experts  = from->n_experts,
                               .window =
            from->is_local ? from->window_left + 1 + from->window_right + from->window_sink : 0,
                               .has_rope  = from->rope != HL_ROPE_NONE,
                               .rope_base = rope->base,
    };
    return HL_OK;
}

hl_status hl_model_get_tensor(hl_tensor_info *out, const hl_model *model, int64_t index)
{
    if (index < 0 || index >= model->info.n_tensors)
        return hl_fail(HL_BAD_ARGUMENT, "tensor %lld, wanted 0 to %lld", (long long)index,
                       (long long)model->info.n_tensors - 1);
    hl_tensor_use    use    = hl_weights_use(model->weights, (size_t)index);
    const hl_tensor *tensor = use.tensor;
    bool             known  = use.role != HL_N_STORED_ROLES;
    *out                    = (hl_tensor_info){
                           .name    = tensor->name,
                           .role    = known ? hl_role_name(use.role) : "",
                           .is_bias = use.is_bias,
                           .dtype   = tensor->dtype,
                           .n_dims  = tensor->n_dims,
                           .n_bytes = tensor->n_bytes,
    };
    memcpy(out->shape, tensor->shape, sizeof out->shape);
    return HL_OK;
}

hl_status hl_model_hash(uint64_t *out, const hl_model *model, int32_t n_threads)
{
    *out = 0;
    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hash: model is NULL");
    *out = hl_tensors_hash(model->tensors, n_threads);
    return HL_OK;
}

/* ------------------------------------------------------------------------------------- adjusting */

/* Mitigations to try, and gates.  The forward pass and measurements read only the description, so
 * nothing else needs to know of mitigations.  Gates are stored beside it, because a session's feed
 * may have its own. */

static bool is_positive(double value)
{
    return isfinite(value) && value > 0.0;
}

static bool turns(const hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].rope != HL_ROPE_NONE)
            return true;
    }
    return false;
}

static hl_status check_adjustment(const hl_model *model, const hl_adjustment *wanted)
{
    const hl_config *config = model->config;
    const hl_rope   *main   = &config->ropes[HL_ROPE_MAIN];
    bool             rope   = wanted->rope_base != 0.0 || wanted->rope_factor != 0.0;

    if (wanted->temperature != 0.0 && !is_positive(wanted->temperature))
        return hl_fail(HL_BAD_ARGUMENT, "an attention temperature of %g, wanted more than 0",
                       wanted->temperature);
    if (wanted->window < 0)
        return hl_fail(HL_BAD_ARGUMENT, "a window of %lld keys, wanted at least 1",
                       (long long)wanted->window);
    if ((wanted->rope_base != 0.0 && !is_positive(wanted->rope_base)) ||
        (wanted->rope_factor != 0.0 && !is_positive(wanted->rope_factor)))
        return hl_fail(HL_BAD_ARGUMENT, "RoPE with base %g and factor %g, wanted more than 0",
                       wanted->rope_base, wanted->rope_factor);
    if (wanted->window_sink < -1)
        return hl_fail(HL_BAD_ARGUMENT, "%lld first keys beside a window, wanted -1 or more",
                       (long long)wanted->window_sink);
    if (wanted->window > 0 && config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s: an encoder cannot be given a window", model->path);
    if (rope && !turns(config))
        return hl_fail(HL_UNSUPPORTED, "%s: this model has no RoPE, so RoPE cannot be changed",
                       model->path);
    if (wanted->rope_factor != 0.0 && main->kind != HL_ROPE_DEFAULT)
        return hl_fail(HL_UNSUPPORTED, "%s: this model's RoPE is already scaled (%s)", model->path,
                       hl_rope_kind_name(main->kind));
    return HL_OK;
}

static void adjust_layer(hl_layer_config *layer, const hl_adjustment *wanted)
{
    if (wanted->temperature != 0.0)
        layer->attn_scale /= wanted->temperature;
    if (wanted->window > 0 && (!layer->is_local || layer->window_left > wanted->window - 1)) {
        layer->is_local      = true;
        layer->window_blocks = false;
        layer->window_left   = wanted->window - 1;
        layer->window_sink   = wanted->window_sink;
    }
}

static void adjust_rope(hl_rope *rope, const hl_adjustment *wanted)
{
    if (wanted->rope_base != 0.0 && rope->base != 0.0)
        rope->base = wanted->rope_base;
    if (wanted->rope_factor != 0.0 && rope->kind == HL_ROPE_DEFAULT) {
        rope->kind   = HL_ROPE_LINEAR;
        rope->factor = wanted->rope_factor;
    }
}

/* The number of first keys that stay visible beside the window: 1 by default, for models need
 * it. */
static int64_t kept_keys(const hl_adjustment *wanted)
{
    if (wanted->window == 0 || wanted->window_sink < 0)
        return 0;
    return wanted->window_sink == 0 ? 1 : wanted->window_sink;
}

hl_status hl_model_adjust(hl_model *model, const hl_adjustment *adjustment)
{
    hl_adjustment wanted = *adjustment;

    HL_NEED(check_adjustment(model, &wanted));
    wanted.window_sink = kept_keys(&wanted);
    for (int64_t i = 0; i < model->config->n_layers; i++)
        adjust_layer(&model->config->layers[i], &wanted);
    for (int i = HL_ROPE_MAIN; i < HL_N_ROPES; i++)
        adjust_rope(&model->config->ropes[i], &wanted);
    model->adjusted = wanted;
    return HL_OK;
}

static hl_status check_gates(bool *all_open, const hl_config *config, const float *gates)
{
    *all_open = true;
    for (int64_t i = 0; i < config->n_layers * config->n_heads; i++) {
        int64_t layer = i / config->n_heads;
        int64_t head  = i % config->n_heads;

        if (!(gates[i] >= 0.0f && gates[i] <= 1.0f))
            return hl_fail(HL_BAD_ARGUMENT, "the gate of L%lldH%lld is %g, wanted 0 to 1",
                           (long long)layer, (long long)head, (double)gates[i]);
        if (head < config->layers[layer].n_heads && gates[i] != 1.0f)
            *all_open = false;
    }
    return HL_OK;
}

hl_status hl_model_set_gates(hl_model *model, const float *gates)
{
    float *copy     = NULL;
    bool   all_open = true;
    size_t count    = (size_t)(model->config->n_layers * model->config->n_heads);

    if (gates != NULL)
        HL_NEED(check_gates(&all_open, model->config, gates));
    if (!all_open) {
        HL_NEED(HL_ALLOC(&copy, count));
        memcpy(copy, gates, count * sizeof *copy);
    }
    hl_free(model->gates);
    model->gates = copy;
    return HL_OK;
}
