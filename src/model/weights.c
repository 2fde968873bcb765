/* weights.c - resolves roles: finds a role's tensor, checks it, and locates and reads its rows.
 *
 * All parameters are in one array, those of the model first, then layer by layer; `starts` has the
 * index of the first part of every role of the model and of every layer.  roles.c defines which
 * roles exist, and their shapes. */
#include "model/weights.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/family.h"

#define MAX_TENSOR_NAME 256

/* The places to search.  `prefix` is the one with which the embedding was found. */
typedef struct tensor_finder {
    const hl_tensors *tensors;
    const hl_config  *config;
    const hl_family  *family;
    hl_tensors_kind   kind;
    char              prefix[64];
} tensor_finder;

/* Identifies a tensor: a role, a layer (-1: the model) and a part. */
typedef struct wanted_tensor {
    hl_role role;
    int64_t layer;
    int64_t part;
    bool    is_bias;
} wanted_tensor;

typedef struct found_tensor {
    const hl_tensor *tensor;                /* NULL: not found */
    const hl_tensor *scales;                /* the scales of MXFP4 in two tensors */
    hl_role          role;                  /* the role as stored, such as ATTN_QKV for q; if
                                             * there is no tensor, the usual one */
    uint32_t         stored;                /* HL_STORED_... */
    bool             stacked;               /* all parts are in one tensor */
    size_t           n_prefix;              /* length of the family's prefix in the name */
    char             name[MAX_TENSOR_NAME]; /* the tensor's name, or the expected name */
} found_tensor;

#define NONE (-1)

/* A tensor's place in the order of its file, by address. */
typedef struct tensor_index {
    const hl_tensor *tensor;
    size_t           index;
} tensor_index;

struct hl_weights {
    tensor_finder  finder;
    hl_param      *params;
    size_t         n_params;
    int64_t       *starts;     /* (1 + n_layers, HL_N_ROLES) indices into params, or NONE */
    tensor_index  *by_address; /* (n_tensors) sorted by address */
    hl_tensor_use *uses;       /* (n_tensors) */
    size_t         n_tensors;
};

/* --------------------------------------------------------------------------------------- finding */

/* A pattern of a family's table becomes a name by four choices, and all combinations are tried: the
 * spelling (between '|'), the prefix (a folder's names may have that of the base model or not), the
 * ending, and for q the tensor of q alone or that of q, k and v together.  Tables are searched in
 * order; the first tensor that exists is used. */

typedef struct name_buffer {
    char  *text; /* (MAX_TENSOR_NAME) */
    size_t used;
} name_buffer;

static void append(name_buffer *name, const char *text, size_t length)
{
    size_t room = MAX_TENSOR_NAME - 1 - name->used;

    if (length > room)
        length = room;
    memcpy(name->text + name->used, text, length);
    name->used += length;
    name->text[name->used] = '\0';
}

static void append_number(name_buffer *name, int64_t number)
{
    char digits[24];
    append(name, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
}

/* Writes prefix + pattern + ending; the first '*' is the layer, if there is one, the next the part. */
static void make_name(char *out, const char *prefix, size_t n_prefix, const char *pattern,
                      size_t n_pattern, const wanted_tensor *wanted, const char *ending)
{
    name_buffer name      = { out, 0 };
    int64_t     numbers[] = { wanted->layer, wanted->part };
    int         n_stars   = wanted->layer < 0;

    append(&name, prefix, n_prefix);
    for (size_t i = 0; i < n_pattern; i++) {
        if (pattern[i] == '*')
            append_number(&name, numbers[n_stars++ > 0]);
        else
            append(&name, &pattern[i], 1);
    }
    append(&name, ending, strlen(ending));
}

static int count_stars(const char *pattern, size_t n_pattern)
{
    int count = 0;
    for (size_t i = 0; i < n_pattern; i++)
        count += pattern[i] == '*';
    return count;
}

/* Does one tensor of this name hold all parts? */
static bool is_stacked(const char *pattern, size_t n_pattern, const wanted_tensor *wanted)
{
    return count_stars(pattern, n_pattern) < (wanted->layer < 0 ? 1 : 2);
}

/* The endings after a pattern, in up to two spellings. */
typedef struct endings {
    const char *all[2];
    const char *scales; /* ending of the second tensor of MXFP4 */
} endings;

static endings endings_of(const tensor_finder *finder, const hl_family_tensor *entry, bool is_bias)
{
    bool bare   = (entry->stored & HL_STORED_BARE) != 0;
    bool expert = entry->role == HL_ROLE_EXPERT_GATE_UP || entry->role == HL_ROLE_EXPERT_DOWN;

    if (bare && is_bias)
        return (endings){ { "_bias", NULL }, NULL };
    if (bare && expert && finder->config->mxfp4)
        return (endings){ { "_blocks", NULL }, "_scales" };
    if (bare)
        return (endings){ { "", NULL }, NULL };
    /* Old files still use TensorFlow's names for a norm's weight and bias. */
    if (hl_role_is_vector(entry->role))
        return is_bias ? (endings){ { ".bias", ".beta" }, NULL }
                       : (endings){ { ".weight", ".gamma" }, NULL };
    return (endings){ { is_bias ? ".bias" : ".weight", NULL }, NULL };
}

static bool is_gguf(const tensor_finder *finder)
{
    return finder->kind == HL_TENSORS_GGUF;
}

/* Before the family's prefix: what the text model is called in a model of several. */
static const char *const part_prefixes[] = { "", "language_model.", "model.language_model.",
                                             "model.text_model.", "text_model." };

/* Tries one spelling with one prefix and all endings. */
static bool try_prefix(found_tensor *out, const tensor_finder *finder, const wanted_tensor *wanted,
                       const hl_family_tensor *entry, const char *pattern, size_t n_pattern,
                       const char *prefix)
{
    endings ends     = endings_of(finder, entry, wanted->is_bias);
    size_t  n_prefix = strlen(prefix);
    char    name[MAX_TENSOR_NAME];

    for (int i = 0; i < 2 && ends.all[i] != NULL; i++) {
        make_name(name, prefix, n_prefix, pattern, n_pattern, wanted, ends.all[i]);
        out->tensor = hl_tensors_find(finder->tensors, name);
        if (out->tensor == NULL)
            continue;
        strcpy(out->name, name);
        out->n_prefix = n_prefix;
        if (ends.scales != NULL) {
            make_name(name, prefix, n_prefix, pattern, n_pattern, wanted, ends.scales);
            out->scales = hl_tensors_find(finder->tensors, name);
        }
        return true;
    }
    return false;
}

/* Tries one spelling with all prefixes and endings. */
static bool try_spelling(found_tensor *out, const tensor_finder *finder,
                         const wanted_tensor *wanted, const hl_family_tensor *entry,
                         const char *pattern, size_t n_pattern)
{
    const char *of_family = is_gguf(finder) ? "" : finder->family->prefixes;
    size_t n_parts = finder->config->is_part ? sizeof part_prefixes / sizeof *part_prefixes : 1;
    char   prefix[sizeof finder->prefix];

    for (;; of_family++) {
        size_t n = strcspn(of_family, "|");
        for (size_t i = 0; i < n_parts; i++) {
            snprintf(prefix, sizeof prefix, "%s%.*s", part_prefixes[i], (int)n, of_family);
            if (try_prefix(out, finder, wanted, entry, pattern, n_pattern, prefix))
                return true;
        }
        of_family += n;
        if (*of_family == '\0')
            return false;
    }
}

/* For a message about a missing tensor: the first spelling, and how it would be stored. */
static void name_missing(found_tensor *out, const tensor_finder *finder,
                         const wanted_tensor *wanted, const hl_family_tensor *entry)
{
    bool        outside = is_gguf(finder) || wanted->role == HL_ROLE_LM_HEAD;
    const char *prefix  = outside ? "" : finder->prefix;

    make_name(out->name, prefix, strlen(prefix), entry->name, strcspn(entry->name, "|"), wanted,
              endings_of(finder, entry, wanted->is_bias).all[0]);
    out->role    = entry->role;
    out->stored  = entry->stored;
    out->stacked = is_stacked(entry->name, strcspn(entry->name, "|"), wanted);
}

static bool try_entry(found_tensor *out, const tensor_finder *finder, const wanted_tensor *wanted,
                      const hl_family_tensor *entry)
{
    const char *pattern = entry->name;

    if (out->name[0] == '\0')
        name_missing(out, finder, wanted, entry);
    while (*pattern != '\0') {
        size_t n_pattern = strcspn(pattern, "|");
        if (try_spelling(out, finder, wanted, entry, pattern, n_pattern)) {
            out->role    = entry->role;
            out->stored  = entry->stored;
            out->stacked = is_stacked(pattern, n_pattern, wanted);
            return true;
        }
        pattern += n_pattern + (pattern[n_pattern] == '|');
    }
    return false;
}

static bool try_table(found_tensor *out, const tensor_finder *finder, const wanted_tensor *wanted,
                      const hl_family_tensor *table)
{
    for (; table != NULL && table->name != NULL; table++) {
        if (hl_role_holds(table->role, wanted->role) && try_entry(out, finder, wanted, table))
            return true;
    }
    return false;
}

/* Finds the tensor of a role's weight or bias, by the family's tables. */
static found_tensor find_tensor(const tensor_finder *finder, const wanted_tensor *wanted)
{
    const hl_family_tensor *const *tables =
        is_gguf(finder) ? finder->family->gguf : finder->family->tensors;
    found_tensor found = { .role = wanted->role };

    if (finder->kind == HL_TENSORS_LLAMA2C && try_table(&found, finder, wanted, hl_llama2c_tensors))
        return found;
    for (int i = 0; i < HL_MAX_TABLES && tables[i] != NULL; i++) {
        if (try_table(&found, finder, wanted, tables[i]))
            return found;
    }
    if (is_gguf(finder))
        try_table(&found, finder, wanted, hl_gguf_tensors);
    return found;
}

/* Sets the prefix from the embedding's name. */
static void learn_prefix(tensor_finder *finder)
{
    wanted_tensor embedding = { HL_ROLE_EMBED, -1, 0, false };
    found_tensor  found     = find_tensor(finder, &embedding);

    /* Without an embedding, the first prefix is used. */
    if (found.tensor != NULL)
        snprintf(finder->prefix, sizeof finder->prefix, "%.*s", (int)found.n_prefix, found.name);
    else
        snprintf(finder->prefix, sizeof finder->prefix, "%.*s",
                 (int)strcspn(finder->family->prefixes, "|"), finder->family->prefixes);
}

/* Whether a model's code computes this tensor itself: masks, frequencies, indices. */
static bool is_buffer(const hl_tensor *tensor)
{
    static const char *const known[] = {
        ".masked_bias",
        ".inv_freq",
        "position_ids",
        "token_type_ids",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (hl_ends_with(tensor->name, known[i]))
            return true;
    }
    /* The causal mask of GPT-2, GPT-Neo, GPT-J and GPT-NeoX. */
    return tensor->n_dims == 4 && (hl_ends_with(tensor->name, ".attn.bias") ||
                                   hl_ends_with(tensor->name, ".attention.bias"));
}

/* ---------------------------------------------------------------------------------------- layout */

static void place_qkv(hl_weight *weight, hl_role role, const found_tensor *found,
                      const hl_layer_config *layer)
{
    int64_t d_head  = layer->d_head;
    int64_t queries = layer->n_heads / layer->n_kv_heads * d_head; /* queries per KV head */
    int64_t q_rows  = layer->n_heads * d_head;
    int64_t kv_rows = layer->n_kv_heads * d_head;

    if ((found->stored & HL_STORED_GROUPED) != 0) {
        weight->stride = queries + 2 * d_head;
        weight->block  = role == HL_ROLE_ATTN_Q ? queries : d_head;
        weight->first  = role == HL_ROLE_ATTN_Q ? 0 : queries;
        weight->first += role == HL_ROLE_ATTN_V ? d_head : 0;
    } else if ((found->stored & HL_STORED_QUARTERS) != 0) {
        weight->block  = q_rows / 4;
        weight->stride = 3 * weight->block;
        weight->first  = role == HL_ROLE_ATTN_Q   ? 0
                         : role == HL_ROLE_ATTN_V ? weight->block
                                                  : 2 * weight->block;
    } else if (role != HL_ROLE_ATTN_Q) {
        weight->first = role == HL_ROLE_ATTN_K ? q_rows : q_rows + kv_rows;
    }
}

/* q and the gate of a head lie side by side. */
static void place_q_gate(hl_weight *weight, hl_role role, int64_t d_head)
{
    weight->block  = d_head;
    weight->stride = 2 * d_head;
    weight->first  = role == HL_ROLE_ATTN_GATE ? d_head : 0;
}

/* The rows of a mixer's fused projections: one part after the other, or group by group. */
static void place_mixer(hl_weight *weight, hl_role role, hl_role stored,
                        const hl_mixer_config *mixer)
{
    int64_t keys    = mixer->n_groups * mixer->d_state;
    int64_t heads   = mixer->n_heads / mixer->n_groups;
    int64_t values  = heads * mixer->d_head;
    int64_t index   = (int64_t)role - HL_ROLE_MIX_Q; /* q, k, v, z */
    bool    is_wide = role >= HL_ROLE_MIX_V;

    if (stored == HL_ROLE_MIX_QKV) {
        weight->first = index * keys;
    } else if (stored == HL_ROLE_MIX_BA) {
        weight->block  = heads;
        weight->stride = 2 * heads;
        weight->first  = role == HL_ROLE_MIX_A ? heads : 0;
    } else {
        weight->block  = is_wide ? values : mixer->d_state;
        weight->stride = 2 * (mixer->d_state + values);
        weight->first =
            is_wide ? 2 * mixer->d_state + (index - 2) * values : index * mixer->d_state;
    }
}

static void place_gate_up(hl_weight *weight, hl_role role, const found_tensor *found)
{
    bool is_up = role == HL_ROLE_MLP_UP || role == HL_ROLE_EXPERT_UP || role == HL_ROLE_SHARED_UP;

    if ((found->stored & HL_STORED_INTERLEAVED) != 0) {
        weight->block  = 1;
        weight->stride = 2;
        weight->first  = is_up;
    } else {
        weight->first = is_up ? weight->n_rows : 0;
    }
}

/* Determines which stored rows belong to the weight. */
static void place_rows(hl_weight *weight, const hl_weights *weights, const wanted_tensor *wanted,
                       const found_tensor *found)
{
    const hl_config *config = weights->finder.config;
    bool             turned = wanted->role == HL_ROLE_ATTN_Q || wanted->role == HL_ROLE_ATTN_K;

    weight->first  = 0;
    weight->block  = weight->n_rows;
    weight->stride = weight->n_rows;
    if (found->role == HL_ROLE_ATTN_QKV)
        place_qkv(weight, wanted->role, found, &config->layers[wanted->layer]);
    else if (found->role == HL_ROLE_ATTN_Q_GATE)
        place_q_gate(weight, wanted->role, config->layers[wanted->layer].d_head);
    else if (found->role != wanted->role && wanted->role >= HL_ROLE_MIX_Q &&
             wanted->role <= HL_ROLE_MIX_A)
        place_mixer(weight, wanted->role, found->role, &config->mixer);
    else if (found->role == HL_ROLE_LATENT_AND_ROPE)
        weight->first = wanted->role == HL_ROLE_LATENT_ROPE ? config->latent.d_latent : 0;
    else if (found->role != wanted->role && found->role != HL_ROLE_LATENT_KV)
        place_gate_up(weight, wanted->role, found);
    if ((found->stored & HL_STORED_OFFSET) != 0)
        weight->first = config->position_offset;
    if ((found->stored & HL_STORED_PAIRED) != 0 && turned)
        weight->pairs = config->layers[wanted->layer].d_head;
}

/* ---------------------------------------------------------------------------------------- shapes */

typedef struct shape {
    int64_t sizes[HL_MAX_TENSOR_DIMS];
    int     n_dims;
} shape;

static void shape_add(shape *out, int64_t size)
{
    out->sizes[out->n_dims++] = size;
}

/* Formats a shape, such as "[4,64,128]". */
static void shape_text(char *out, size_t n_bytes, const int64_t *sizes, int n_dims)
{
    size_t used = (size_t)snprintf(out, n_bytes, "[");

    for (int i = 0; i < n_dims && used < n_bytes; i++)
        used += (size_t)snprintf(out + used, n_bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)sizes[i]);
    if (used < n_bytes)
        snprintf(out + used, n_bytes - used, "]");
}

/* Whether shapes are equal except for dimensions of 1, which files add and drop. */
static bool shapes_agree(const shape *wanted, const hl_tensor *tensor)
{
    int i = 0;
    int j = 0;

    for (;;) {
        while (i < wanted->n_dims && wanted->sizes[i] == 1)
            i++;
        while (j < tensor->n_dims && tensor->shape[j] == 1)
            j++;
        if (i == wanted->n_dims || j == tensor->n_dims)
            return i == wanted->n_dims && j == tensor->n_dims;
        if (wanted->sizes[i++] != tensor->shape[j++])
            return false;
    }
}

static hl_status check_shape(const hl_tensor *tensor, const shape *wanted)
{
    char seen_text[128];
    char wanted_text[128];

    if (shapes_agree(wanted, tensor))
        return HL_OK;
    shape_text(seen_text, sizeof seen_text, tensor->shape, tensor->n_dims);
    shape_text(wanted_text, sizeof wanted_text, wanted->sizes, wanted->n_dims);
    return hl_fail(HL_BAD_INPUT, "tensor '%s' has shape %s, wanted %s", tensor->name, seen_text,
                   wanted_text);
}

/* The expected shape of the tensor, from that of its role. */
static shape stored_shape(const hl_weight *weight, const wanted_tensor *wanted,
                          const found_tensor *found, int64_t n_parts)
{
    bool  is_vector = hl_role_is_vector(found->role) || wanted->is_bias;
    shape out       = { 0 };

    if (found->stacked && n_parts > 1)
        shape_add(&out, n_parts);
    if (weight->transposed)
        shape_add(&out, weight->n_columns);
    shape_add(&out, weight->n_stored);
    if (!weight->transposed && !is_vector)
        shape_add(&out, weight->n_columns);
    if ((found->stored & HL_STORED_FLAT) != 0 && out.n_dims == 3) {
        out.sizes[0] *= out.sizes[1];
        out.sizes[1] = out.sizes[2];
        out.n_dims   = 2;
    }
    return out;
}

/* --------------------------------------------------------------------------------- one parameter */

static hl_status check_dtype(const hl_tensor *tensor, bool is_vector)
{
    bool is_float = tensor->dtype == HL_DTYPE_F32 || tensor->dtype == HL_DTYPE_F16 ||
                    tensor->dtype == HL_DTYPE_BF16 || tensor->dtype == HL_DTYPE_F64;

    if (is_float || (hl_dtype_is_block(tensor->dtype) && !is_vector))
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED, "tensor '%s' is stored as %s, wanted %s", tensor->name,
                   hl_dtype_name(tensor->dtype),
                   is_vector ? "F32, F16, BF16 or F64"
                             : "F32, F16, BF16, F64 or one of GGUF's block types");
}

/* Takes experts in MXFP4 from two tensors of bytes: blocks (experts, rows, columns/32, 16) and
 * scales (experts, rows, columns/32). */
static hl_status take_mxfp4(hl_weight *weight, const wanted_tensor *wanted,
                            const found_tensor *found, int64_t n_parts)
{
    shape blocks = { .sizes  = { n_parts, weight->n_stored, weight->n_columns / 32, 16 },
                     .n_dims = 4 };
    shape scales = { .sizes = { n_parts, weight->n_stored, weight->n_columns / 32 }, .n_dims = 3 };

    weight->transposed = false;
    if (found->scales == NULL)
        return hl_fail(HL_BAD_INPUT, "tensor '%s' has no scales beside it", found->name);
    HL_NEED(check_shape(found->tensor, &blocks));
    HL_NEED(check_shape(found->scales, &scales));
    if (weight->n_columns % 32 != 0 || found->tensor->dtype != HL_DTYPE_U8 ||
        found->scales->dtype != HL_DTYPE_U8)
        return hl_fail(HL_UNSUPPORTED, "tensor '%s' is not MXFP4: blocks of 32 in bytes",
                       found->name);
    weight->scales = (const uint8_t *)found->scales->data +
                     (size_t)wanted->part * (found->scales->n_bytes / (size_t)n_parts);
    return HL_OK;
}

/* The sizes of a weight and of its tensor, whether the tensor was found or not. */
static hl_weight describe_weight(const hl_config *config, const wanted_tensor *wanted,
                                 const found_tensor *found)
{
    bool      is_vector = hl_role_is_vector(wanted->role) || wanted->is_bias;
    hl_weight weight    = {
           .n_rows     = hl_role_rows(wanted->role, config, wanted->layer),
           .n_columns  = wanted->is_bias ? 1 : hl_role_columns(wanted->role, config, wanted->layer),
           .n_stored   = hl_role_rows(found->role, config, wanted->layer),
           .transposed = (found->stored & HL_STORED_TRANSPOSED) != 0 && !is_vector,
           .plus_one   = (found->stored & HL_STORED_MINUS_ONE) != 0 && !wanted->is_bias,
           .is_log     = (found->stored & HL_STORED_LOG) != 0,
    };

    if ((found->stored & HL_STORED_OFFSET) != 0)
        weight.n_stored += config->position_offset;
    return weight;
}

/* A head's part of the tensor of keys and values of latent attention, whose rows are those of the
 * keys, then of the values.  Queries are multiplied by the keys' part as it is, so it is read as the
 * transpose of a matrix. */
static hl_status take_latent(hl_weight *weight, const hl_config *config,
                             const wanted_tensor *wanted, const found_tensor *found)
{
    const hl_latent_config *latent = &config->latent;
    int64_t                 first  = wanted->part * (latent->d_nope + latent->d_value);
    shape stored = { .sizes = { weight->n_stored, latent->d_latent }, .n_dims = 2 };

    HL_NEED(check_dtype(found->tensor, wanted->role == HL_ROLE_LATENT_K));
    HL_NEED(check_shape(found->tensor, &stored));
    if (wanted->role == HL_ROLE_LATENT_V) {
        weight->first = first + latent->d_nope;
        return HL_OK;
    }
    weight->data = (const uint8_t *)weight->data +
                   (size_t)(first * latent->d_latent) * (hl_dtype_bits(weight->dtype) / 8);
    weight->transposed = true;
    weight->n_stored   = latent->d_latent;
    return HL_OK;
}

/* Fills in a weight from its tensor, and checks that tensor. */
static hl_status take_tensor(hl_weight *weight, const hl_weights *weights,
                             const wanted_tensor *wanted, const found_tensor *found)
{
    const hl_config *config    = weights->finder.config;
    int64_t          n_parts   = hl_role_parts(wanted->role, config, wanted->layer);
    bool             is_vector = hl_role_is_vector(wanted->role) || wanted->is_bias;

    *weight        = describe_weight(config, wanted, found);
    weight->tensor = found->tensor;
    weight->data   = found->tensor->data;
    weight->dtype  = found->tensor->dtype;
    place_rows(weight, weights, wanted, found);
    if (found->role == HL_ROLE_LATENT_KV)
        return take_latent(weight, config, wanted, found);
    if (weight->pairs % 2 != 0)
        return hl_fail(HL_BAD_INPUT, "tensor '%s': a head of %lld has no rotary pairs", found->name,
                       (long long)weight->pairs);
    if (config->mxfp4 && !wanted->is_bias && found->tensor->dtype == HL_DTYPE_U8) {
        HL_NEED(take_mxfp4(weight, wanted, found, n_parts));
    } else {
        shape wanted_shape = stored_shape(weight, wanted, found, n_parts);
        HL_NEED(check_dtype(found->tensor, is_vector || hl_role_is_floats(wanted->role)));
        /* GGUF stores the norm of a mixer as (groups, values of a group). */
        if (wanted->role == HL_ROLE_MIX_NORM && hl_tensor_count(found->tensor) == weight->n_rows)
            return HL_OK;
        HL_NEED(check_shape(found->tensor, &wanted_shape));
    }
    if (found->stacked)
        weight->data = (const uint8_t *)weight->data +
                       (size_t)wanted->part * (found->tensor->n_bytes / (size_t)n_parts);
    return HL_OK;
}

/* ------------------------------------------------------------------------------------------ uses */

static int compare_address(const void *left, const void *right)
{
    const tensor_index *a = left;
    const tensor_index *b = right;
    if (a->tensor == b->tensor)
        return 0;
    return (uintptr_t)a->tensor < (uintptr_t)b->tensor ? -1 : 1;
}

static hl_status list_tensors(hl_weights *weights)
{
    const hl_tensors *tensors = weights->finder.tensors;

    weights->n_tensors = hl_tensors_count(tensors);
    HL_NEED(HL_ALLOC(&weights->by_address, weights->n_tensors));
    HL_NEED(HL_ALLOC_ZEROED(&weights->uses, weights->n_tensors));
    for (size_t i = 0; i < weights->n_tensors; i++) {
        const hl_tensor *tensor = hl_tensors_at(tensors, i);
        weights->by_address[i]  = (tensor_index){ tensor, i };
        weights->uses[i]        = (hl_tensor_use){ .tensor    = tensor,
                                                   .role      = HL_N_STORED_ROLES,
                                                   .is_buffer = is_buffer(tensor) };
    }
    qsort(weights->by_address, weights->n_tensors, sizeof *weights->by_address, compare_address);
    return HL_OK;
}

static hl_tensor_use *use_of(hl_weights *weights, const hl_tensor *tensor)
{
    tensor_index  key = { tensor, 0 };
    tensor_index *entry =
        bsearch(&key, weights->by_address, weights->n_tensors, sizeof key, compare_address);
    return entry != NULL ? &weights->uses[entry->index] : NULL;
}

static void note_use(hl_weights *weights, const found_tensor *found, bool is_bias)
{
    hl_tensor_use *use = use_of(weights, found->tensor);

    if (use != NULL)
        *use = (hl_tensor_use){ found->tensor, found->role, is_bias, false };
    use = found->scales != NULL ? use_of(weights, found->scales) : NULL;
    if (use != NULL)
        *use = (hl_tensor_use){ found->scales, found->role, false, true };
}

/* ------------------------------------------------------------------------------------- resolving */

/* Whether such a tensor exists in any layer. */
static bool is_anywhere(const hl_weights *weights, wanted_tensor wanted)
{
    int64_t n_layers = wanted.layer >= 0 ? weights->finder.config->n_layers : 0;

    for (wanted.layer = 0; wanted.layer < n_layers; wanted.layer++) {
        if (find_tensor(&weights->finder, &wanted).tensor != NULL)
            return true;
    }
    return false;
}

/* Norms of the whole model have biases if those of the layers have. */
static bool has_norm_bias(const hl_weights *weights, hl_role role)
{
    bool is_norm = role == HL_ROLE_FINAL_NORM || role == HL_ROLE_EMBED_NORM;

    return is_norm && (is_anywhere(weights, (wanted_tensor){ HL_ROLE_ATTN_NORM, 0, 0, true }) ||
                       is_anywhere(weights, (wanted_tensor){ HL_ROLE_ATTN_POST_NORM, 0, 0, true }));
}

/* A model trained without biases, in a family that has them, is stored without them: if no layer
 * has a bias they are zero.  It is an error if only some layers have one. */
static bool is_left_out(const hl_weights *weights, const wanted_tensor *wanted, const char *name)
{
    if (!wanted->is_bias || is_anywhere(weights, *wanted) || has_norm_bias(weights, wanted->role))
        return false;
    hl_log(HL_LOG_WARNING, "tensor '%s' is missing in every layer; it is taken as zero", name);
    return true;
}

static hl_status refuse_missing(const hl_weights *weights, const wanted_tensor *wanted,
                                const found_tensor *found)
{
    const hl_config *config  = weights->finder.config;
    hl_weight        weight  = describe_weight(config, wanted, found);
    int64_t          n_parts = hl_role_parts(wanted->role, config, wanted->layer);
    shape            sizes   = stored_shape(&weight, wanted, found, n_parts);
    char             text[128];

    shape_text(text, sizeof text, sizes.sizes, sizes.n_dims);
    return hl_fail(HL_BAD_INPUT, "tensor '%s' is missing, wanted %s (%s of a %s)", found->name,
                   text, hl_role_name(wanted->role), config->family);
}

static hl_status resolve_one(hl_weight *out, hl_weights *weights, const wanted_tensor *wanted,
                             hl_role_need need)
{
    if (need == HL_ROLE_ABSENT)
        return HL_OK;
    found_tensor found = find_tensor(&weights->finder, wanted);
    if (found.tensor == NULL && need == HL_ROLE_REQUIRED &&
        !is_left_out(weights, wanted, found.name))
        return refuse_missing(weights, wanted, &found);
    if (found.tensor == NULL)
        return HL_OK;
    note_use(weights, &found, wanted->is_bias);
    return take_tensor(out, weights, wanted, &found);
}

static hl_status resolve_part(hl_weights *weights, hl_role role, int64_t layer, int64_t part)
{
    const hl_config *config = weights->finder.config;
    hl_param     *param = &weights->params[weights->starts[(layer + 1) * HL_N_ROLES + role] + part];
    wanted_tensor weight = { role, layer, part, false };
    wanted_tensor bias   = { role, layer, part, true };

    HL_NEED(
        resolve_one(&param->weight, weights, &weight, hl_role_weight_need(role, config, layer)));
    if (param->weight.tensor != NULL || (role == HL_ROLE_LM_HEAD && config->tied))
        HL_NEED(resolve_one(&param->bias, weights, &bias, hl_role_bias_need(role, config)));
    return HL_OK;
}

static hl_status resolve_layer(hl_weights *weights, int64_t layer)
{
    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        int64_t n_parts = hl_role_parts(role, weights->finder.config, layer);
        if (weights->starts[(layer + 1) * HL_N_ROLES + role] == NONE)
            continue;
        for (int64_t part = 0; part < n_parts; part++) {
            HL_NEED(resolve_part(weights, role, layer, part));
        }
    }
    return HL_OK;
}

/* A tied head is the embedding.  A copy of it that a file still has is neither used nor counted. */
static void tie_head(hl_weights *weights)
{
    wanted_tensor head  = { HL_ROLE_LM_HEAD, -1, 0, false };
    int64_t       from  = weights->starts[HL_ROLE_EMBED];
    int64_t       to    = weights->starts[HL_ROLE_LM_HEAD];
    found_tensor  found = find_tensor(&weights->finder, &head);

    weights->params[to].weight = weights->params[from].weight;
    if (found.tensor == NULL || found.tensor == weights->params[from].weight.tensor)
        return;
    note_use(weights, &found, false);
    use_of(weights, found.tensor)->is_buffer = true;
}

/* Counts the parts of all roles, and gives each its index. */
static hl_status lay_out(hl_weights *weights)
{
    const hl_config *config = weights->finder.config;
    size_t           n_rows = (size_t)config->n_layers + 1;

    HL_NEED(HL_ALLOC(&weights->starts, n_rows * HL_N_ROLES));
    for (int64_t layer = -1; layer < config->n_layers; layer++) {
        int64_t *starts = weights->starts + (layer + 1) * HL_N_ROLES;
        for (hl_role role = 0; role < HL_N_ROLES; role++) {
            bool here    = hl_role_is_of_layer(role) == (layer >= 0);
            bool head    = role == HL_ROLE_LM_HEAD; /* the head may be the embedding */
            starts[role] = NONE;
            if (!here || (!head && hl_role_weight_need(role, config, layer) == HL_ROLE_ABSENT))
                continue;
            starts[role] = (int64_t)weights->n_params;
            weights->n_params += (size_t)hl_role_parts(role, config, layer);
        }
    }
    return HL_ALLOC_ZEROED(&weights->params, weights->n_params);
}

static void log_strangers(const hl_weights *weights)
{
    for (size_t i = 0; i < weights->n_tensors; i++) {
        const hl_tensor_use *use = &weights->uses[i];
        if (use->role == HL_N_STORED_ROLES && !use->is_buffer)
            hl_log(HL_LOG_INFO, "tensor '%s' does not belong to a %s and is not used",
                   use->tensor->name, weights->finder.config->family);
    }
}

hl_status hl_weights_resolve(hl_weights **out, const hl_config *config, const hl_tensors *tensors)
{
    HL_CLOSED(hl_weights_free) hl_weights *weights = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&weights, 1));
    weights->finder = (tensor_finder){ .tensors = tensors,
                                       .config  = config,
                                       .family  = hl_family_named(config->family),
                                       .kind    = hl_tensors_kind_of(tensors) };
    learn_prefix(&weights->finder);
    HL_NEED(list_tensors(weights));
    HL_NEED(lay_out(weights));
    for (int64_t layer = -1; layer < config->n_layers; layer++)
        HL_NEED(resolve_layer(weights, layer));
    if (config->tied)
        tie_head(weights);
    log_strangers(weights);
    *out = hl_taken(&weights);
    return HL_OK;
}

void hl_weights_free(hl_weights *weights)
{
    if (weights == NULL)
        return;
    hl_free(weights->params);
    hl_free(weights->starts);
    hl_free(weights->by_address);
    hl_free(weights->uses);
    hl_free(weights);
}

/* ---------------------------------------------------------------------------------------- asking */

const hl_param *hl_weights_get(const hl_weights *weights, hl_role role, int64_t layer, int64_t part)
{
    int64_t start = weights->starts[(layer + 1) * HL_N_ROLES + role];

    assert(role < HL_N_ROLES && layer >= -1 && layer < weights->finder.config->n_layers);
    assert(start == NONE || part < hl_role_parts(role, weights->finder.config, layer));
    if (start == NONE || weights->params[start + part].weight.tensor == NULL)
        return NULL;
    return &weights->params[start + part];
}

void hl_weights_put(hl_weights *weights, hl_role role, int64_t layer, const hl_param *param)
{
    weights->params[weights->starts[(layer + 1) * HL_N_ROLES + role]] = *param;
}

hl_tensor_use hl_weights_use(const hl_weights *weights, size_t index)
{
    return weights->uses[index];
}

int64_t hl_weights_n_params(const hl_weights *weights)
{
    int64_t total = 0;

    for (size_t i = 0; i < weights->n_tensors; i++) {
        const hl_tensor_use *use      = &weights->uses[i];
        bool                 is_other = use->role == HL_N_STORED_ROLES;

        if (use->is_buffer || (is_other && weights->finder.config->is_part))
            continue;
        /* A byte of MXFP4's blocks holds two numbers. */
        bool packed = weights->finder.config->mxfp4 && use->tensor->dtype == HL_DTYPE_U8;
        total += hl_tensor_count(use->tensor) * (packed ? 2 : 1);
    }
    return total;
}

/* --------------------------------------------------------------------------------------- reading */

hl_matrix hl_weight_matrix(const hl_weight *weight)
{
    return (hl_matrix){ .data       = weight->data,
                        .scales     = weight->scales,
                        .dtype      = weight->dtype,
                        .n_rows     = weight->n_rows,
                        .n_columns  = weight->n_columns,
                        .n_stored   = weight->n_stored,
                        .transposed = weight->transposed,
                        .first      = weight->first,
                        .block      = weight->block,
                        .stride     = weight->stride,
                        .pairs      = weight->pairs };
}

hl_status hl_weight_read_row(float *out, const hl_weight *weight, int64_t row)
{
    hl_matrix matrix = hl_weight_matrix(weight);

    HL_NEED(hl_matrix_read_row(out, &matrix, row));
    for (int64_t i = 0; weight->plus_one && i < weight->n_columns; i++)
        out[i] += 1.0f;
    for (int64_t i = 0; weight->is_log && i < weight->n_columns; i++)
        out[i] = -expf(out[i]);
    return HL_OK;
}

hl_status hl_weight_read(float *out, const hl_weight *weight)
{
    for (int64_t row = 0; row < weight->n_rows; row++)
        HL_NEED(hl_weight_read_row(out + row * weight->n_columns, weight, row));
    return HL_OK;
}
