/* slices.c - from fates of heads to rows and columns of stored tensors.
 *
 * What belongs to a head is known by role: rows of q, k and v, columns of the output
 * projection, an entry of the sinks, a norm of its own.  Where that lies in a file is what
 * a hl_weight says (fused or not, by head or one after the other, transposed), so a slice
 * is made in two steps, and neither knows any family:
 *
 *     marks   a fate for every index of the tensor's one axis that heads lie along
 *     cut     the tensor without what is gone, and with zeros for what is zeroed
 *
 * One tensor may get marks from several roles: q, k and v in one. */
#include "prune/slices.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

/* One tensor that changes. */
typedef struct slice {
    const hl_tensor *tensor; /* as it was */
    hl_tensor        cut;    /* as it is; data and name are ours */
    int              axis;   /* that heads lie along */
    uint8_t         *fates;  /* (shape[axis]) */
    const float     *added;  /* (shape[0]) to a bias, or NULL */
    bool             gone;   /* all of it */
    char            *name;
} slice;

struct hl_slices {
    const hl_model     *model;
    const hl_head_plan *plan;
    slice              *slices;
    size_t              n_slices;
    size_t              capacity;
    const hl_tensor   **tensors; /* what is written */
    size_t              n_tensors;
};

/* ------------------------------------------------------------------------ marks */

/* The slice of a tensor: the one there is, or a new one without marks. */
static hl_status slice_of(slice **out, hl_slices *slices, const hl_tensor *tensor, int axis)
{
    for (size_t i = slices->n_slices; i-- > 0;) {
        *out = &slices->slices[i];
        if (slices->slices[i].tensor == tensor)
            return HL_OK;
    }
    if (tensor->n_dims <= axis || tensor->n_dims > 2)
        return hl_fail(HL_UNSUPPORTED,
                       "tensor '%s' has %d dimensions, wanted 1 or 2: no heads can "
                       "be taken out of it",
                       tensor->name, tensor->n_dims);
    if (hl_dtype_is_block(tensor->dtype))
        return hl_fail(HL_UNSUPPORTED, "tensor '%s' is stored as %s, whose blocks span heads",
                       tensor->name, hl_dtype_name(tensor->dtype));
    if (slices->n_slices == slices->capacity) {
        size_t more = 2 * slices->capacity + 32;
        HL_NEED(
            hl_realloc((void **)&slices->slices, slices->capacity, more, sizeof *slices->slices));
        slices->capacity = more;
    }
    *out  = &slices->slices[slices->n_slices];
    **out = (slice){ .tensor = tensor, .axis = axis };
    slices->n_slices++;
    return HL_ALLOC_ZEROED(&(*out)->fates, (size_t)tensor->shape[axis]);
}

/* Rows of a weight (or a bias) that belong to heads, `n_each` rows a head. */
static hl_status mark_rows(hl_slices *slices, const hl_weight *weight, const uint8_t *fates,
                           int64_t n_each)
{
    slice *s = NULL;

    if (weight->tensor == NULL)
        return HL_OK;
    hl_status status = slice_of(&s, slices, weight->tensor, weight->transposed ? 1 : 0);
    for (int64_t r = 0; status == HL_OK && r < weight->n_rows; r++) {
        if (fates[r / n_each] == HL_HEAD_GONE)
            s->fates[hl_weight_row(weight, r)] = HL_HEAD_GONE;
    }
    return status;
}

/* Columns of the output projection, which is never fused with another. */
static hl_status mark_output(hl_slices *slices, const hl_weight *weight, const uint8_t *fates,
                             int64_t d_head)
{
    slice    *s      = NULL;
    hl_status status = slice_of(&s, slices, weight->tensor, weight->transposed ? 0 : 1);

    for (int64_t c = 0; status == HL_OK && c < weight->n_columns; c++)
        s->fates[c] = fates[c / d_head];
    return status;
}

/* Norms of single heads: rows of one tensor, or a tensor each, then numbered anew. */
static hl_status mark_norms(hl_slices *slices, hl_role role, int64_t layer, const uint8_t *fates)
{
    const hl_config *config = slices->model->config;
    int64_t          n      = hl_role_parts(role, config, layer);
    int64_t          kept   = 0;

    for (int64_t part = 0; part < n; part++) {
        const hl_param *param = hl_weights_get(slices->model->weights, role, layer, part);
        slice          *s     = NULL;
        hl_status       status;

        if (param == NULL)
            return HL_OK;
        status = slice_of(&s, slices, param->weight.tensor, 0);
        if (status != HL_OK)
            return status;
        if (param->weight.tensor->n_dims == 2) {
            s->fates[part] = fates[part] == HL_HEAD_GONE ? HL_HEAD_GONE : HL_HEAD_KEPT;
            continue;
        }
        /* "...norms.7.weight" becomes "...norms.5.weight" where two before it went. */
        const char *name = param->weight.tensor->name;
        const char *end  = strrchr(name, '.');
        int         stem = (int)(end - name);
        size_t      room = strlen(name) + 24;

        s->gone = fates[part] == HL_HEAD_GONE;
        if (s->gone)
            continue;
        while (stem > 0 && name[stem - 1] != '.')
            stem--;
        status = HL_ALLOC(&s->name, room);
        if (status != HL_OK)
            return status;
        snprintf(s->name, room, "%.*s%lld%s", stem, name, (long long)kept++, end);
    }
    return HL_OK;
}

/* Everything of a layer that is gone. */
static hl_status mark_gone(hl_slices *slices, int64_t layer)
{
    const hl_weights    *weights = slices->model->weights;
    int64_t              d_head  = slices->model->config->d_head;
    const hl_layer_plan *plan    = &slices->plan->layers[layer];
    const struct {
        hl_role        role;
        const uint8_t *fates;
        int64_t        n_each;
    } parts[] = {
        { HL_ROLE_ATTN_Q, plan->heads, d_head },
        { HL_ROLE_ATTN_K, plan->kv, d_head },
        { HL_ROLE_ATTN_V, plan->kv, d_head },
        { HL_ROLE_SINKS, plan->heads, 1 },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const hl_param *param = hl_weights_get(weights, parts[i].role, layer, 0);
        if (param == NULL)
            continue;
        HL_NEED(mark_rows(slices, &param->weight, parts[i].fates, parts[i].n_each));
        HL_NEED(mark_rows(slices, &param->bias, parts[i].fates, parts[i].n_each));
    }
    if (slices->model->config->qk_norm == HL_QK_NORM_EACH) {
        HL_NEED(mark_norms(slices, HL_ROLE_Q_NORM, layer, plan->heads));
        HL_NEED(mark_norms(slices, HL_ROLE_K_NORM, layer, plan->kv));
    }
    return HL_OK;
}

static bool has_fate(const uint8_t *fates, int64_t n, hl_head_fate wanted)
{
    for (int64_t i = 0; i < n; i++) {
        if (fates[i] == wanted)
            return true;
    }
    return false;
}

static hl_status mark_layer(hl_slices *slices, int64_t layer)
{
    const hl_config     *config  = slices->model->config;
    const hl_layer_plan *plan    = &slices->plan->layers[layer];
    const hl_param      *output  = hl_weights_get(slices->model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t              n_heads = config->layers[layer].n_heads;
    bool                 gone    = has_fate(plan->heads, n_heads, HL_HEAD_GONE);
    slice               *bias    = NULL;

    if (output == NULL)
        return HL_OK;
    if (gone)
        HL_NEED(mark_gone(slices, layer));
    if (gone || has_fate(plan->heads, n_heads, HL_HEAD_ZEROED))
        HL_NEED(mark_output(slices, &output->weight, plan->heads, config->d_head));
    if (plan->bias != NULL && output->bias.tensor != NULL) {
        HL_NEED(slice_of(&bias, slices, output->bias.tensor, 0));
        bias->added = plan->bias;
    }
    return HL_OK;
}

/* -------------------------------------------------------------------------- cut */

static int64_t count_left(const slice *s)
{
    int64_t count = 0;

    for (int64_t i = 0; i < s->tensor->shape[s->axis]; i++)
        count += s->fates[i] != HL_HEAD_GONE;
    return count;
}

/* (n_outer, shape[axis], n_inner bytes) without what is gone. */
static void copy_cut(uint8_t *out, const slice *s, int64_t n_outer, size_t n_inner)
{
    const uint8_t *from = s->tensor->data;

    for (int64_t i = 0; i < n_outer * s->tensor->shape[s->axis]; i++, from += n_inner) {
        hl_head_fate fate = (hl_head_fate)s->fates[i % s->tensor->shape[s->axis]];

        if (fate == HL_HEAD_GONE)
            continue;
        if (fate == HL_HEAD_ZEROED)
            memset(out, 0, n_inner);
        else
            memcpy(out, from, n_inner);
        out += n_inner;
    }
}

/* A bias with the means of removed heads on top, in its own type. */
static hl_status add_means(uint8_t *out, const slice *s)
{
    hl_status status = HL_OK;
    size_t    count  = (size_t)s->tensor->shape[0];
    float    *values = NULL;

    HL_TRY(HL_ALLOC(&values, count));
    HL_TRY(hl_dtype_to_f32(values, s->tensor->data, s->tensor->dtype, count));
    for (size_t i = 0; i < count; i++)
        values[i] += s->added[i];
    HL_TRY(hl_dtype_from_f32(out, s->tensor->dtype, values, count));

done:
    hl_free(values);
    return status;
}

static hl_status cut_tensor(slice *s)
{
    uint8_t *data    = NULL;
    size_t   n_inner = hl_dtype_block_of(s->tensor->dtype).n_bytes;
    int64_t  n_outer = 1;

    s->cut                = *s->tensor;
    s->cut.data           = NULL; /* until it is ours */
    s->cut.shape[s->axis] = count_left(s);
    if (s->name != NULL)
        s->cut.name = s->name;
    HL_NEED(hl_tensor_bytes(&s->cut.n_bytes, &s->cut));
    HL_NEED(HL_ALLOC(&data, s->cut.n_bytes));
    s->cut.data = data;
    for (int i = 0; i < s->axis; i++)
        n_outer *= s->tensor->shape[i];
    for (int i = s->axis + 1; i < s->tensor->n_dims; i++)
        n_inner *= (size_t)s->tensor->shape[i];
    if (s->added != NULL)
        HL_NEED(add_means(data, s));
    else
        copy_cut(data, s, n_outer, n_inner);
    return HL_OK;
}

/* -------------------------------------------------------------------- the whole */

static hl_status list_tensors(hl_slices *slices)
{
    const hl_tensors *tensors = slices->model->tensors;
    size_t            count   = hl_tensors_count(tensors);

    HL_NEED(HL_ALLOC(&slices->tensors, count));
    for (size_t i = 0; i < count; i++) {
        const hl_tensor *tensor = hl_tensors_at(tensors, i);
        const slice     *found  = NULL;

        for (size_t k = 0; k < slices->n_slices && found == NULL; k++) {
            if (slices->slices[k].tensor == tensor)
                found = &slices->slices[k];
        }
        if (found != NULL && found->gone)
            continue;
        slices->tensors[slices->n_tensors++] = found != NULL ? &found->cut : tensor;
    }
    return HL_OK;
}

hl_status hl_slices_new(hl_slices **out, const hl_model *model, const hl_head_plan *plan)
{
    hl_status  status = HL_OK;
    hl_slices *slices = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&slices, 1));
    slices->model = model;
    slices->plan  = plan;
    for (int64_t layer = 0; layer < plan->n_layers; layer++)
        HL_TRY(mark_layer(slices, layer));
    for (size_t i = 0; i < slices->n_slices; i++) {
        if (!slices->slices[i].gone)
            HL_TRY(cut_tensor(&slices->slices[i]));
    }
    HL_TRY(list_tensors(slices));
    *out   = slices;
    slices = NULL;

done:
    hl_slices_free(slices);
    return status;
}

void hl_slices_free(hl_slices *slices)
{
    if (slices == NULL)
        return;
    for (size_t i = 0; i < slices->n_slices; i++) {
        hl_free(slices->slices[i].fates);
        hl_free(slices->slices[i].name);
        hl_free((void *)slices->slices[i].cut.data);
    }
    hl_free(slices->slices);
    hl_free((void *)slices->tensors);
    hl_free(slices);
}

size_t hl_slices_count(const hl_slices *slices)
{
    return slices->n_tensors;
}

const hl_tensor *hl_slices_at(const hl_slices *slices, size_t index)
{
    return slices->tensors[index];
}
