/* repair.c - new output projections that bring the stream after the attention back to the original's.
 *
 * Two streams of the whole text are kept, those of the original and of the pruned model, and moved
 * from the attention of one layer to that of the next (stream_walk.h).  At layer l the pruned model's
 * stream is x + r (Z W0 + b0), with r the scale of residual sums.  If the original's is y, the problem
 * for D = W - W0 is
 *
 *     min sum over tokens |z D - (y - x - r (z W0 + b0)) / r|^2 / |y|^2 + lambda |D|^2
 *
 * (least_squares.h).  A norm reads the stream, so an error matters as far as it is large beside the
 * stream of its token.  Without |y|^2 the few tokens whose streams are hundreds of times larger than
 * the others', mostly the first, decide alone: wanda's half of SmolLM2-135M then costs six times as
 * much.  The new attention adds r Z D to the pruned model's stream, so nothing is run
 * twice.  Where both branches of a block read the same stream, x and y are the streams after the
 * block, and the same formulas hold.
 *
 * There must not be a norm between output projection and stream.
 *
 * Several cases, each with its own heads removed, can be walked side by side: the original's stream is
 * then moved once for all of them, and a case begins a stream of its own only at the layer in which it
 * first differs from every case before it.  A second text can go along, on which nothing is solved:
 * its streams are those of the repaired models, and hl_evaluate_cases scores them.  So no repaired
 * model has to be made, or loaded, to know what it costs. */
#include "prune/repair.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "kernels/quant.h"
#include "model/session.h"
#include "prune/gates.h"
#include "prune/least_squares.h"
#include "prune/stream_walk.h"
#include "prune/sweep_state.h"

enum { MAX_KEY = 256, NAME_BYTES = 48, PANEL_ROWS = 512 };
#define DEFAULT_MEMORY ((size_t)8 << 30)
#define DEFAULT_SAVE   30.0
#define MOST_LOSS      0.1 /* share of the gain that rounding may lose */

struct hl_repair {
    int64_t          n_layers; /* layers of the model */
    int64_t          d_model;
    uint64_t         heads;   /* hash of the removed heads */
    hl_repaired     *values;  /* (n_layers) */
    hl_tensor       *tensors; /* (n_layers, 2) weight and bias as tensors */
    hl_repair_layer *layers;  /* (info.n_layers) */
    hl_repair_info   info;
};

/* A set of removed heads, and what is done about them. */
typedef struct repair_case {
    hl_repair *out;
    float     *gates;  /* (n_layers, n_heads) 0 for removed heads */
    float     *stream; /* (n_tokens, d_model); NULL as long as it is that of another case, or the
                        * original's */
    int64_t    first;  /* first layer that loses a head */
    bool       means;  /* the heads' mean outputs are kept, and nothing is solved */
} repair_case;

/* Cases are solved side by side, each in a lane: a layer's systems are small, and one thread per case
 * keeps more cores busy than many threads on one. */
typedef struct repair_lane {
    repair_case  *c;
    float        *z;     /* (n_tokens, most kept heads * d_head) */
    int64_t      *heads; /* (n_heads) heads kept in the current layer */
    int64_t       n_kept;
    hl_kept_error error;
} repair_lane;

typedef struct repair_work {
    const hl_model   *model;
    const hl_config  *config;
    hl_repair_options options; /* complete */
    int               n_threads;
    repair_case      *cases;
    int64_t           n_cases;
    bool              scores; /* the results are losses, and no weights are kept */
    hl_walk          *walk;
    hl_sweep_state   *state;
    double            saved_at;
    float            *original; /* (n_tokens, d_model) */
    double           *roots; /* (n_tokens) d_model^0.5 / |y|: square roots of the weights of rows */
    float            *means; /* (H d) mean outputs of the original's heads in the current layer */
    int64_t           n_tokens; /* of all texts */
    int64_t           n_solved; /* of the first, on which weights are solved */
    repair_lane      *lanes;
    int64_t           n_lanes;
    int64_t           layer; /* the current one */
} repair_work;

/* ---------------------------------------------------------------------- results */

static void free_values(hl_repaired *values)
{
    hl_free(values->weight);
    hl_free(values->bias);
    *values = (hl_repaired){ 0 };
}

void hl_repair_free(hl_repair *repair)
{
    if (repair == NULL)
        return;
    for (int64_t i = 0; i < repair->n_layers && repair->values != NULL; i++)
        free_values(&repair->values[i]);
    hl_free(repair->values);
    hl_free(repair->tensors);
    hl_free(repair->layers);
    hl_free(repair);
}

const hl_repair_info *hl_repair_get_info(const hl_repair *repair)
{
    return &repair->info;
}

const hl_repaired *hl_repair_at(const hl_repair *repair, int64_t layer)
{
    return repair->values[layer].weight != NULL ? &repair->values[layer] : NULL;
}

/* Hashes a set of heads; the order does not matter. */
static uint64_t hash_heads(const hl_head_list *heads)
{
    uint64_t sum = (uint64_t)heads->n_heads;

    for (int64_t i = 0; i < heads->n_heads; i++)
        sum += hl_hash_pair((uint64_t)heads->heads[i].layer, (uint64_t)heads->heads[i].head);
    return sum;
}

static hl_status new_repair(hl_repair **out, const hl_model *model, const hl_head_list *heads)
{
    HL_CLOSED(hl_repair_free) hl_repair *repair = NULL;
    size_t                               count  = (size_t)model->config->n_layers;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&repair, 1));
    repair->n_layers = model->config->n_layers;
    repair->d_model  = model->config->d_model;
    repair->heads    = hash_heads(heads);
    HL_NEED(HL_ALLOC_ZEROED(&repair->values, count));
    HL_NEED(HL_ALLOC_ZEROED(&repair->tensors, 2 * count));
    HL_NEED(HL_ALLOC_ZEROED(&repair->layers, count));
    repair->info.layers = repair->layers;
    *out                = hl_taken(&repair);
    return HL_OK;
}

static const hl_param *output_of(const hl_model *model, int64_t layer)
{
    return hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0);
}

static hl_status check_shape(const hl_repair *repair, const hl_model *model)
{
    if (repair->n_layers == model->config->n_layers && repair->d_model == model->config->d_model)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT,
                   "the repair is of a model of %lld layers of %lld values, this one has %lld of "
                   "%lld",
                   (long long)repair->n_layers, (long long)repair->d_model,
                   (long long)model->config->n_layers, (long long)model->config->d_model);
}

hl_status hl_repair_check_heads(const hl_repair *repair, const hl_model *model,
                                const hl_head_list *heads)
{
    HL_NEED(check_shape(repair, model));
    if (repair->heads != hash_heads(heads))
        return hl_fail(HL_BAD_ARGUMENT, "the repair is for other heads than these");
    return HL_OK;
}

/* ----------------------------------------------------------------- set in a model */

/* Describes contiguous floats (n_rows, n_columns) as a weight. */
static hl_weight weight_of(hl_tensor *tensor, const float *values, int64_t n_rows,
                           int64_t n_columns, const char *name)
{
    *tensor = (hl_tensor){ .name    = name,
                           .dtype   = HL_DTYPE_F32,
                           .n_dims  = 2,
                           .shape   = { n_rows, n_columns },
                           .data    = values,
                           .n_bytes = (size_t)(n_rows * n_columns) * sizeof *values };
    return (hl_weight){ .tensor    = tensor,
                        .data      = values,
                        .dtype     = HL_DTYPE_F32,
                        .n_rows    = n_rows,
                        .n_columns = n_columns,
                        .n_stored  = n_rows,
                        .block     = n_rows,
                        .stride    = n_rows };
}

/* Restores the model's own parameters. */
static void take_back(hl_model *model)
{
    for (int64_t i = 0; i < model->config->n_layers && model->replaced != NULL; i++) {
        if (model->replaced[i].weight.tensor != NULL)
            hl_weights_put(model->weights, HL_ROLE_ATTN_O, i, &model->replaced[i]);
    }
    hl_free(model->replaced);
    model->replaced = NULL;
}

hl_status hl_model_set_repair(hl_model *model, const hl_repair *repair)
{
    hl_device_copies *copies = NULL;

    if (repair != NULL)
        HL_NEED(check_shape(repair, model));
    if (repair == NULL && model->replaced == NULL)
        return HL_OK;
    HL_NEED(hl_device_copies_new(&copies)); /* the copies so far have other weights */
    hl_device_copies_free(model->copies);
    model->copies = copies;
    take_back(model);
    if (repair == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC_ZEROED(&model->replaced, (size_t)repair->n_layers));
    for (int64_t i = 0; i < repair->n_layers; i++) {
        const hl_repaired *values  = hl_repair_at(repair, i);
        hl_tensor         *tensors = repair->tensors + 2 * i;

        if (values == NULL)
            continue;
        hl_param param     = *output_of(model, i);
        model->replaced[i] = param;
        param.weight       = weight_of(&tensors[0], values->weight, param.weight.n_rows,
                                       param.weight.n_columns, param.weight.tensor->name);
        if (values->bias != NULL)
            param.bias = weight_of(&tensors[1], values->bias, param.weight.n_rows, 1,
                                   param.weight.tensor->name);
        hl_weights_put(model->weights, HL_ROLE_ATTN_O, i, &param);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ heads of layers */

static bool is_kept(const repair_work *w, const repair_case *c, int64_t layer, int64_t head)
{
    return c->gates[layer * w->config->n_heads + head] != 0.0f;
}

static int64_t count_kept(const repair_work *w, const repair_case *c, int64_t layer)
{
    int64_t n = 0;

    for (int64_t head = 0; head < w->config->layers[layer].n_heads; head++)
        n += is_kept(w, c, layer, head);
    return n;
}

/* Gives the lane to a case, and lists the heads that it keeps in the current layer. */
static void begin_lane(repair_lane *lane, const repair_work *w, repair_case *c)
{
    lane->c      = c;
    lane->n_kept = 0;
    lane->error  = (hl_kept_error){ 0 };
    for (int64_t head = 0; head < w->config->layers[w->layer].n_heads; head++) {
        if (is_kept(w, c, w->layer, head))
            lane->heads[lane->n_kept++] = head;
    }
}

static hl_status mark_heads(repair_work *w, repair_case *c, const hl_head_list *heads)
{
    const hl_config *config = w->config;
    int64_t          n_left = 0, n_gates = config->n_layers * config->n_heads;

    HL_NEED(HL_ALLOC(&c->gates, (size_t)n_gates));
    for (int64_t i = 0; i < n_gates; i++)
        c->gates[i] = 1.0f;
    c->first = config->n_layers;
    for (int64_t i = 0; i < heads->n_heads; i++) {
        hl_head head = heads->heads[i];

        HL_NEED(hl_head_check(config, head));
        c->gates[head.layer * config->n_heads + head.head] = 0.0f;
        c->first = head.layer < c->first ? head.layer : c->first;
    }
    for (int64_t layer = 0; layer < config->n_layers; layer++)
        n_left += count_kept(w, c, layer);
    return n_left > 0 ? HL_OK
                      : hl_fail(HL_BAD_ARGUMENT, "all heads of the model are removed: nothing is "
                                                 "left to repair");
}

/* Do two cases have the same stream after the layer?  NULL is the original. */
static bool is_same(const repair_work *w, const repair_case *a, const repair_case *b, int64_t layer)
{
    size_t n_bytes = (size_t)((layer + 1) * w->config->n_heads) * sizeof *a->gates;

    if (b == NULL)
        return layer < a->first;
    return (a->means == b->means || layer < a->first) && memcmp(a->gates, b->gates, n_bytes) == 0;
}

/* Finds the first earlier case with the same stream after the layer, or the original: then *out is NULL.
 * Returns false if there is none. */
static bool find_same(const repair_case **out, const repair_work *w, const repair_case *c,
                      int64_t layer)
{
    *out = NULL;
    if (layer < 0 || is_same(w, c, NULL, layer))
        return true;
    for (*out = w->cases; *out < c; (*out)++) {
        if (is_same(w, c, *out, layer))
            return true;
    }
    return false;
}

/* ----------------------------------------------------------------------- a layer */

/* The least-squares problem of one layer. */
typedef struct solving {
    const repair_lane *lane;
    repair_case       *of;
    int64_t            layer;
    const hl_param    *param;     /* the output projection */
    int64_t            n_columns; /* n_heads d_head */
    int64_t           *columns;   /* (n_in) columns of kept heads */
    int64_t            n_in;
    float             *before; /* (d_model, n_columns) W0 */
    float             *bias;   /* (d_model) b0 or NULL */
    hl_squares        *squares;
    hl_repaired       *values;
    hl_repair_layer   *info;
} solving;

static void free_solving(solving *s)
{
    hl_free(s->columns);
    hl_free(s->before);
    hl_free(s->bias);
    hl_squares_free(s->squares);
}

/* Reads W0, with zeros for removed heads, and b0. */
static hl_status read_output(solving *s, const repair_work *w)
{
    const hl_weight *weight = &s->param->weight;

    HL_NEED(hl_alloc((void **)&s->before, (size_t)weight->n_rows,
                     (size_t)weight->n_columns * sizeof *s->before));
    for (int64_t row = 0; row < weight->n_rows; row++) {
        float *at = s->before + row * weight->n_columns;

        HL_NEED(hl_weight_read_row(at, weight, row));
        for (int64_t i = 0; i < weight->n_columns; i++) {
            if (!is_kept(w, s->of, s->layer, i / w->config->layers[s->layer].d_head))
                at[i] = 0.0f;
        }
    }
    if (s->param->bias.tensor == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC(&s->bias, (size_t)weight->n_rows));
    return hl_weight_read(s->bias, &s->param->bias);
}

static hl_status begin_layer(solving *s, const repair_work *w)
{
    int64_t    d_head = w->config->layers[w->layer].d_head;
    hl_repair *out    = s->of->out;

    s->layer     = w->layer;
    s->param     = output_of(w->model, s->layer);
    s->n_columns = s->param->weight.n_columns;
    s->n_in      = s->lane->n_kept * d_head;
    s->values    = &out->values[s->layer];
    s->info      = &out->layers[out->info.n_layers];
    *s->info     = (hl_repair_layer){ .layer      = s->layer,
                                      .n_kept     = s->lane->n_kept,
                                      .n_unknowns = s->n_in + (s->param->bias.tensor != NULL),
                                      .stored     = s->param->weight.dtype };
    HL_NEED(HL_ALLOC(&s->columns, (size_t)s->n_in));
    for (int64_t i = 0; i < s->n_in; i++)
        s->columns[i] = s->lane->heads[i / d_head] * d_head + i % d_head;
    HL_NEED(read_output(s, w));
    HL_NEED(hl_alloc((void **)&s->values->weight, (size_t)w->config->d_model,
                     (size_t)s->n_columns * sizeof *s->values->weight));
    return hl_squares_new(&s->squares, s->n_in, w->config->d_model, w->n_threads);
}

/* -------------------------------------------------------------------- as it is stored */

/* Lists the types in which new values can be written, the smallest first: the stored type if values
 * can be encoded in it and its blocks do not span heads, else Q8_0; then F16, then F32. */
enum { MOST_TYPES = 3 };

static int list_types(hl_dtype out[MOST_TYPES], hl_dtype stored, int64_t d_head)
{
    int n = 0;

    if (hl_dtype_is_block(stored) || stored == HL_DTYPE_U8) {
        if (d_head % (int64_t)hl_dtype_block_of(HL_DTYPE_Q8_0).n_values == 0)
            out[n++] = stored == HL_DTYPE_Q4_0 ? stored : HL_DTYPE_Q8_0;
        out[n++] = HL_DTYPE_F16;
    } else if (stored == HL_DTYPE_F16 || stored == HL_DTYPE_BF16) {
        out[n++] = stored;
    }
    out[n++] = HL_DTYPE_F32;
    return n;
}

static hl_status round_values(float *values, hl_dtype dtype, size_t count)
{
    HL_FREED uint8_t *stored = NULL;
    hl_dtype_block    block  = hl_dtype_block_of(dtype);

    if (dtype == HL_DTYPE_F32)
        return HL_OK;
    HL_NEED(hl_alloc((void **)&stored, count / block.n_values, block.n_bytes));
    HL_NEED(hl_quantize(stored, dtype, values, count));
    return hl_dequantize(values, dtype, stored, count);
}

/* Sets values->weight to W0 + D, rounded to dtype, and *loss to the squared error added by rounding. */
static hl_status round_output(double *loss, const solving *s, hl_dtype dtype)
{
    const hl_squares *squares = s->squares;
    int64_t           n_out   = squares->n_out;
    float            *out     = s->values->weight;
    HL_FREED double  *error   = NULL;

    *loss = 0.0;
    memcpy(out, s->before, (size_t)(n_out * s->n_columns) * sizeof *out);
    for (int64_t row = 0; row < n_out; row++) {
        for (int64_t i = 0; i < s->n_in; i++) {
            int64_t at = row * s->n_columns + s->columns[i];
            out[at]    = (float)((double)s->before[at] + squares->change[row * s->n_in + i]);
        }
    }
    if (dtype == HL_DTYPE_F32)
        return HL_OK;
    HL_NEED(round_values(out, dtype, (size_t)(n_out * s->n_columns)));
    HL_NEED(hl_alloc((void **)&error, (size_t)n_out, (size_t)s->n_in * sizeof *error));
    for (int64_t row = 0; row < n_out; row++) {
        for (int64_t i = 0; i < s->n_in; i++) {
            int64_t at = row * s->n_columns + s->columns[i];
            error[row * s->n_in + i] =
                (double)out[at] - (double)s->before[at] - squares->change[row * s->n_in + i];
        }
    }
    return hl_squares_loss(loss, squares, error);
}

/* Chooses the type of the layer's new weights, and stores the weights, and the bias if the family has
 * one. */
static hl_status store_layer(const solving *s, int64_t d_head)
{
    const hl_squares *squares = s->squares;
    hl_repaired      *out     = s->values;
    double            gain = squares->before - squares->after, loss = 0.0;
    hl_dtype          types[MOST_TYPES], of_bias[MOST_TYPES];
    int               n = list_types(types, s->info->stored, d_head);

    for (int i = 0; i < n; i++) {
        out->dtype = types[i];
        HL_NEED(round_output(&loss, s, types[i]));
        s->info->rounding = gain > 0.0 ? loss / gain : 0.0;
        if (i == 0)
            s->info->first_rounding = s->info->rounding;
        if (s->info->rounding <= MOST_LOSS)
            break;
    }
    s->info->first = types[0];
    s->info->dtype = out->dtype;
    if (s->bias == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC(&out->bias, (size_t)squares->n_out));
    for (int64_t i = 0; i < squares->n_out; i++)
        out->bias[i] = (float)((double)s->bias[i] + squares->shift[i]);
    (void)list_types(of_bias, s->param->bias.dtype, 1);
    return round_values(out->bias, of_bias[0], (size_t)squares->n_out);
}

/* --------------------------------------------------------- the stream after it */

typedef struct change_job {
    float        *stream; /* (n_rows, n_out) */
    const float  *z;      /* (n_rows, n_in) */
    const float  *change; /* (n_out, n_in) */
    const float  *shift;  /* (n_out) */
    const float  *original;
    const double *roots;    /* (n_rows) */
    double       *errors;   /* (n_panels) */
    float        *products; /* (n_threads, PANEL_ROWS, n_out) */
    int64_t       n_rows, n_in, n_out;
    int64_t       n_solved; /* rows whose errors count */
    float         scale;
} change_job;

static void change_panels(void *context, int64_t first, int64_t end, int member)
{
    const change_job *job     = context;
    float            *product = job->products + (int64_t)member * PANEL_ROWS * job->n_out;

    for (int64_t panel = first; panel < end; panel++) {
        int64_t row   = panel * PANEL_ROWS;
        int64_t count = job->n_rows - row < PANEL_ROWS ? job->n_rows - row : PANEL_ROWS;
        double  error = 0.0;

        memset(product, 0, (size_t)(count * job->n_out) * sizeof *product);
        if (job->n_in > 0)
            hl_gemm(&(hl_gemm_operands){ .c            = product,
                                         .c_stride     = job->n_out,
                                         .a            = job->z + row * job->n_in,
                                         .a_stride     = job->n_in,
                                         .b            = job->change,
                                         .b_stride     = job->n_in,
                                         .b_transposed = true,
                                         .m            = count,
                                         .n            = job->n_out,
                                         .k            = job->n_in });
        for (int64_t i = 0; i < count * job->n_out; i++) {
            int64_t at = row * job->n_out + i;

            job->stream[at] += job->scale * (product[i] + job->shift[i % job->n_out]);
            double left = (double)job->original[at] - (double)job->stream[at];
            left *= job->roots[row + i / job->n_out];
            if (row + i / job->n_out < job->n_solved)
                error += left * left;
        }
        job->errors[panel] = error;
    }
}

/* Adds r (Z D + b) to the case's stream, with D (d_model, n_in) and b (d_model); *left is the squared
 * error that remains, relative to the stream. */
static hl_status add_change(double *left, const repair_work *w, const repair_lane *lane,
                            const float *change, int64_t n_in, const float *shift)
{
    int64_t          d_model  = w->config->d_model;
    int64_t          n_panels = (w->n_tokens + PANEL_ROWS - 1) / PANEL_ROWS;
    HL_FREED float  *products = NULL;
    HL_FREED double *errors   = NULL;

    HL_NEED(HL_ALLOC(&errors, (size_t)n_panels));
    HL_NEED(hl_alloc((void **)&products, (size_t)w->n_threads * PANEL_ROWS,
                     (size_t)d_model * sizeof *products));
    change_job job = { .stream   = lane->c->stream,
                       .z        = lane->z,
                       .change   = change,
                       .shift    = shift,
                       .original = w->original,
                       .roots    = w->roots,
                       .errors   = errors,
                       .products = products,
                       .n_rows   = w->n_tokens,
                       .n_in     = n_in,
                       .n_out    = d_model,
                       .n_solved = w->n_solved,
                       .scale    = (float)w->config->residual_scale };
    hl_parallel(w->n_threads, n_panels, 1, change_panels, &job);
    *left = 0.0;
    for (int64_t i = 0; i < n_panels; i++)
        *left += errors[i] / (double)(w->n_solved * d_model);
    return HL_OK;
}

/* Changes the stream by the new weights, as they are written. */
static hl_status change_stream(const solving *s, const repair_work *w)
{
    int64_t         d_model = w->config->d_model;
    HL_FREED float *change = NULL, *shift = NULL;

    HL_NEED(hl_alloc((void **)&change, (size_t)d_model, (size_t)s->n_in * sizeof *change));
    HL_NEED(HL_ALLOC_ZEROED(&shift, (size_t)d_model));
    for (int64_t row = 0; row < d_model; row++) {
        for (int64_t i = 0; i < s->n_in; i++) {
            int64_t at                = row * s->n_columns + s->columns[i];
            change[row * s->n_in + i] = s->values->weight[at] - s->before[at];
        }
        if (s->bias != NULL)
            shift[row] = s->values->bias[row] - s->bias[row];
    }
    return add_change(&s->info->after, w, s->lane, change, s->n_in, shift);
}

/* ------------------------------------------------------------------ layer by layer */

/* Candidates for the ridge.  One that is too small for the text fits its noise; one that is too large
 * repairs less than is possible.  So the problem is solved on the first three quarters of the text with
 * each of these, and the error on the last quarter decides. */
static const double ridges[] = { 1e-3, 1e-2, 1e-1, 1.0 };

static void add_rows(const solving *s, hl_squares *sums, const repair_work *w, int64_t first,
                     int64_t end)
{
    int64_t d_model = w->config->d_model;

    hl_squares_add(sums, s->lane->z + first * s->n_in, w->original + first * d_model,
                   s->of->stream + first * d_model, w->roots + first, end - first,
                   w->config->residual_scale);
}

static hl_status solve(const solving *s, const repair_work *w)
{
    HL_CLOSED(hl_squares_free) hl_squares *held  = NULL;
    double                                 ridge = w->options.ridge;

    int64_t n_first = w->n_solved - w->n_solved / 4;

    add_rows(s, s->squares, w, 0, ridge == 0.0 ? n_first : w->n_solved);
    if (ridge == 0.0) {
        HL_NEED(hl_squares_new(&held, s->n_in, w->config->d_model, w->n_threads));
        add_rows(s, held, w, n_first, w->n_solved);
        HL_NEED(hl_squares_choose(&ridge, s->squares, held, ridges,
                                  (int)(sizeof ridges / sizeof *ridges), s->bias != NULL));
        hl_squares_join(s->squares, held);
    }
    s->info->ridge = ridge;
    return hl_squares_solve(s->squares, ridge, s->bias != NULL);
}

static hl_status solve_layer(const repair_work *w, const repair_lane *lane)
{
    HL_SCOPED(free_solving) solving s     = { .lane = lane, .of = lane->c };
    hl_repair_info                 *info  = &s.of->out->info;
    double                          scale = w->config->residual_scale;

    HL_NEED(begin_layer(&s, w));
    HL_NEED(hl_fail_within(solve(&s, w), "layer %lld", (long long)w->layer));
    s.info->before = s.squares->before * scale * scale / (double)(w->n_solved * w->config->d_model);
    HL_NEED(store_layer(&s, w->config->layers[w->layer].d_head));
    HL_NEED(change_stream(&s, w));
    info->n_layers++;
    info->n_short += s.info->n_unknowns > w->n_solved;
    if (w->scores)
        free_values(s.values);
    return HL_OK;
}

/* What the heads that are removed in a layer write on average: out (d_model), from the mean outputs
 * of all its heads. */
static hl_status mean_output(double *out, const repair_work *w, const repair_case *c, int64_t layer,
                             const float *means)
{
    const hl_weight *weight = &output_of(w->model, layer)->weight;
    int64_t          d_head = w->config->layers[layer].d_head;
    HL_FREED float  *row    = NULL;

    HL_NEED(HL_ALLOC(&row, (size_t)weight->n_columns));
    for (int64_t i = 0; i < weight->n_rows; i++) {
        HL_NEED(hl_weight_read_row(row, weight, i));
        out[i] = 0.0;
        for (int64_t k = 0; k < weight->n_columns; k++) {
            if (!is_kept(w, c, layer, k / d_head))
                out[i] += (double)row[k] * (double)means[k];
        }
    }
    return HL_OK;
}

/* Adds the mean outputs of the heads removed in this layer. */
static hl_status add_means(const repair_work *w, const repair_lane *lane)
{
    size_t           d_model = (size_t)w->config->d_model;
    HL_FREED float  *shift   = NULL;
    HL_FREED double *sums    = NULL;
    double           left;

    HL_NEED(HL_ALLOC(&shift, d_model));
    HL_NEED(HL_ALLOC(&sums, d_model));
    HL_NEED(mean_output(sums, w, lane->c, w->layer, w->means));
    for (size_t i = 0; i < d_model; i++)
        shift[i] = (float)sums[i];
    return add_change(&left, w, lane, NULL, 0, shift);
}

/* Sets the weights of rows from the original's stream. */
static void weigh_rows(void *context, int64_t first, int64_t end, int member)
{
    const repair_work *w = context;
    int64_t            n = w->config->d_model;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        double sum = 0.0;

        for (int64_t i = 0; i < n; i++)
            sum += (double)w->original[row * n + i] * (double)w->original[row * n + i];
        w->roots[row] = 1.0 / sqrt(sum / (double)n + 1e-30);
    }
}

/* Moves the original's stream; sets w->means if a case that has begun needs them. */
static hl_status run_original(repair_work *w)
{
    const hl_layer_config *config   = &w->config->layers[w->layer];
    int64_t                width    = config->n_heads * config->d_head;
    hl_walk_stream         original = { .x = w->original };
    const repair_lane     *lane     = &w->lanes[0];
    bool                   wanted   = false;

    for (int64_t i = 0; i < w->n_cases; i++)
        wanted = wanted || (w->cases[i].means && w->cases[i].stream != NULL);
    if (wanted) {
        for (int64_t i = 0; i < config->n_heads; i++)
            lane->heads[i] = i;
        original.z       = lane->z;
        original.heads   = lane->heads;
        original.n_heads = config->n_heads;
    }
    HL_NEED(hl_walk_step(w->walk, &original, w->layer));
    hl_parallel(w->n_threads, w->n_tokens, PANEL_ROWS, weigh_rows, w);
    for (int64_t i = 0; i < width && wanted; i++) {
        double sum = 0.0;

        for (int64_t row = 0; row < w->n_solved; row++)
            sum += (double)lane->z[row * width + i];
        w->means[i] = (float)(sum / (double)w->n_solved);
    }
    return HL_OK;
}

/* Moves the stream of the lane's case. */
static hl_status walk_lane(repair_work *w, repair_lane *lane)
{
    hl_walk_stream pruned = { .x       = lane->c->stream,
                              .gates   = lane->c->gates,
                              .z       = lane->c->means ? NULL : lane->z,
                              .heads   = lane->heads,
                              .n_heads = lane->n_kept };

    HL_NEED(hl_walk_step(w->walk, &pruned, w->layer));
    lane->c->out->info.n_empty += w->config->layers[w->layer].n_heads > 0 && lane->n_kept == 0;
    return HL_OK;
}

/* Compensates for the heads that the cases of lanes [first, end) lack. */
static void mend_lanes(void *context, int64_t first, int64_t end, int member)
{
    const repair_work *w = context;
    (void)member;

    for (repair_lane *lane = w->lanes + first; lane < w->lanes + end; lane++)
        hl_keep_error(&lane->error, lane->c->means ? add_means(w, lane) : solve_layer(w, lane));
}

/* Takes a layer with as many cases as there are lanes, from *next on. */
static hl_status run_cases(repair_case **next, repair_work *w)
{
    int64_t n = 0;

    for (; *next < w->cases + w->n_cases && n < w->n_lanes; (*next)++) {
        if ((*next)->stream == NULL)
            continue;
        begin_lane(&w->lanes[n], w, *next);
        HL_NEED(walk_lane(w, &w->lanes[n++]));
    }
    if (w->config->layers[w->layer].n_heads == 0)
        return HL_OK;
    if (n == 1) /* the solver has all threads */
        mend_lanes(w, 0, 1, 0);
    else
        hl_parallel(w->n_threads, n, 1, mend_lanes, w);
    for (int64_t i = 0; i < n; i++)
        HL_NEED(hl_fail_kept(&w->lanes[i].error));
    return HL_OK;
}

/* Gives streams to cases that differ from all others from this layer on. */
static hl_status part_streams(repair_work *w)
{
    size_t count = (size_t)(w->n_tokens * w->config->d_model);

    for (repair_case *c = w->cases; c < w->cases + w->n_cases; c++) {
        const repair_case *same = NULL;

        if (c->stream != NULL || find_same(&same, w, c, w->layer))
            continue;
        HL_NEED(HL_ALLOC(&c->stream, count));
        (void)find_same(&same, w, c, w->layer - 1);
        memcpy(c->stream, same != NULL ? same->stream : w->original, count * sizeof *c->stream);
    }
    return HL_OK;
}

static hl_status run_layer(repair_work *w, int64_t layer)
{
    w->layer = layer;
    HL_NEED(part_streams(w));
    HL_NEED(run_original(w));
    for (repair_case *next = w->cases; next < w->cases + w->n_cases;)
        HL_NEED(run_cases(&next, w));
    return HL_OK;
}

/* ------------------------------------------------------------------------ the state
 *
 * Of a single case. */

/* Stores floats bit by bit, two per number of the list. */
static hl_status put_floats(repair_work *w, const char *name, const float *values, int64_t count)
{
    HL_FREED double *list   = NULL;
    int64_t          length = (count + 1) / 2;

    HL_NEED(HL_ALLOC_ZEROED(&list, (size_t)length));
    memcpy(list, values, (size_t)count * sizeof *values);
    return hl_sweep_state_put(w->state, name, list, length);
}

static bool get_floats(float *out, const repair_work *w, const char *name, int64_t count)
{
    const double *list = hl_sweep_state_get(w->state, name, (count + 1) / 2);

    if (list != NULL)
        memcpy(out, list, (size_t)count * sizeof *out);
    return list != NULL;
}

enum { ROW_LENGTH = 9 };

/* Stores a solved layer: its numbers, its weights, its bias. */
static hl_status put_layer(repair_work *w, const hl_repair_layer *info)
{
    const hl_repaired *values  = &w->cases[0].out->values[info->layer];
    int64_t            d_model = w->config->d_model;
    int64_t            n       = output_of(w->model, info->layer)->weight.n_columns;
    double row[ROW_LENGTH]     = { (double)info->n_kept, (double)info->n_unknowns, info->before,
                                   info->after,          (double)values->dtype,    info->rounding,
                                   (double)info->first,  info->first_rounding,     info->ridge };
    char   name[NAME_BYTES];

    snprintf(name, sizeof name, "repair.%" PRId64, info->layer);
    HL_NEED(hl_sweep_state_put(w->state, name, row, ROW_LENGTH));
    snprintf(name, sizeof name, "repair.%" PRId64 ".weight", info->layer);
    HL_NEED(put_floats(w, name, values->weight, d_model * n));
    if (values->bias == NULL)
        return HL_OK;
    snprintf(name, sizeof name, "repair.%" PRId64 ".bias", info->layer);
    return put_floats(w, name, values->bias, d_model);
}

/* Saves the results of the layers up to this one, and both streams after it. */
static hl_status save(repair_work *w, int64_t layer)
{
    double  done  = (double)(layer + 1);
    int64_t count = w->n_tokens * w->config->d_model;

    if (w->options.state_path == NULL)
        return HL_OK;
    for (int64_t i = 0; i < w->cases[0].out->info.n_layers; i++)
        HL_NEED(put_layer(w, &w->cases[0].out->layers[i]));
    HL_NEED(put_floats(w, "repair.original", w->original, count));
    if (w->cases[0].stream != NULL)
        HL_NEED(put_floats(w, "repair.pruned", w->cases[0].stream, count));
    HL_NEED(hl_sweep_state_put(w->state, "repair.done", &done, 1));
    HL_NEED(hl_sweep_state_save(w->state));
    w->saved_at = hl_clock_seconds();
    return HL_OK;
}

static hl_status bad_state(const repair_work *w, const char *name)
{
    return hl_fail(HL_BAD_INPUT, "%s: '%s' is missing or cannot be", w->options.state_path, name);
}

/* Is the number one of the types that the layer's weights can have? */
static bool is_type(double number, const hl_param *param, int64_t d_head)
{
    hl_dtype types[MOST_TYPES];
    int      n = list_types(types, param->weight.dtype, d_head);

    for (int i = 0; i < n; i++) {
        if (number == (double)types[i])
            return true;
    }
    return false;
}

static hl_status restore_layer(repair_work *w, int64_t layer)
{
    hl_repaired     *values  = &w->cases[0].out->values[layer];
    hl_repair_info  *info    = &w->cases[0].out->info;
    const hl_param  *param   = output_of(w->model, layer);
    int64_t          d_model = w->config->d_model;
    int64_t          d_head  = w->config->layers[layer].d_head;
    char             name[NAME_BYTES];
    hl_repair_layer *out = &w->cases[0].out->layers[info->n_layers];

    snprintf(name, sizeof name, "repair.%" PRId64, layer);
    const double *row    = hl_sweep_state_get(w->state, name, ROW_LENGTH);
    int64_t       n_kept = count_kept(w, &w->cases[0], layer);
    if (row == NULL || row[0] != (double)n_kept || !is_type(row[4], param, d_head) ||
        !is_type(row[6], param, d_head))
        return bad_state(w, name);
    values->dtype = (hl_dtype)row[4];
    *out =
        (hl_repair_layer){ .layer      = layer,
                           .n_kept     = n_kept,
                           .n_unknowns = (int64_t)(n_kept * d_head) + (param->bias.tensor != NULL),
                           .before     = row[2],
                           .after      = row[3],
                           .stored     = param->weight.dtype,
                           .dtype      = values->dtype,
                           .rounding   = row[5],
                           .first      = (hl_dtype)row[6],
                           .first_rounding = row[7],
                           .ridge          = row[8] };
    HL_NEED(hl_alloc((void **)&values->weight, (size_t)d_model,
                     (size_t)param->weight.n_columns * sizeof *values->weight));
    snprintf(name, sizeof name, "repair.%" PRId64 ".weight", layer);
    if (!get_floats(values->weight, w, name, d_model * param->weight.n_columns))
        return bad_state(w, name);
    info->n_layers++;
    info->n_empty += n_kept == 0;
    info->n_short += out->n_unknowns > w->n_tokens;
    if (param->bias.tensor == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC(&values->bias, (size_t)d_model));
    snprintf(name, sizeof name, "repair.%" PRId64 ".bias", layer);
    return get_floats(values->bias, w, name, d_model) ? HL_OK : bad_state(w, name);
}

/* Restores saved work; *next is the first layer that is still to be run. */
static hl_status restore(int64_t *next, repair_work *w)
{
    const double *done  = hl_sweep_state_get(w->state, "repair.done", 1);
    int64_t       count = w->n_tokens * w->config->d_model;

    *next = 0;
    if (done == NULL)
        return HL_OK;
    if (!(done[0] >= 1.0 && done[0] <= (double)w->config->n_layers))
        return bad_state(w, "repair.done");
    *next = (int64_t)done[0];
    for (int64_t layer = w->cases[0].first; layer < *next; layer++) {
        if (w->config->layers[layer].n_heads > 0)
            HL_NEED(restore_layer(w, layer));
    }
    if (!get_floats(w->original, w, "repair.original", count))
        return bad_state(w, "repair.original");
    if (*next <= w->cases[0].first)
        return HL_OK;
    HL_NEED(HL_ALLOC(&w->cases[0].stream, (size_t)count));
    return get_floats(w->cases[0].stream, w, "repair.pruned", count)
               ? HL_OK
               : bad_state(w, "repair.pruned");
}

static hl_status open_state(repair_work *w)
{
    uint64_t model = 0;
    char     key[MAX_KEY];

    if (w->options.state_path == NULL)
        return HL_OK;
    HL_NEED(hl_model_hash(&model, w->model, w->options.n_threads));
    snprintf(key, sizeof key,
             "repair model %016" PRIx64 " text %016" PRIx64 " heads %016" PRIx64 " ridge %g", model,
             hl_walk_hash(w->walk), w->cases[0].out->heads, w->options.ridge);
    HL_NEED(hl_sweep_state_new(&w->state, w->options.state_path, key));
    w->saved_at = hl_clock_seconds();
    return w->options.resume ? hl_sweep_state_load(w->state) : HL_OK;
}

/* ------------------------------------------------------------------------- the whole */

hl_status hl_repair_check(const hl_model *model)
{
    const hl_config *config = model->config;

    HL_NEED(hl_lapack_check());
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].n_heads > 0 && config->layers[i].mixer != HL_MIXER_NONE)
            return hl_fail(HL_UNSUPPORTED,
                           "a %s cannot be repaired: the stream behind its attention also has what "
                           "a %s beside it writes",
                           config->family, hl_mixer_name(config->layers[i].mixer));
    }
    if (config->is_encoder || config->norm_place == HL_NORM_POST)
        return hl_fail(HL_UNSUPPORTED,
                       "a %s cannot be repaired: the sum of its stream and its attention goes "
                       "through a norm before anything reads it",
                       config->family);
    if (config->norm_place != HL_NORM_PRE && config->residual == HL_RESIDUAL_SEQUENTIAL)
        return hl_fail(HL_UNSUPPORTED,
                       "a %s cannot be repaired: a norm stands between its output projection and "
                       "the stream, so what is to be solved is not linear",
                       config->family);
    return HL_OK;
}

/* Counts everything allocated beside the session; results are floats. */
static double count_memory(const repair_work *w, int64_t n_cases, int64_t n_lanes)
{
    const hl_config *config = w->config;
    double           width = 0.0, results = 0.0;

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        double n_in = (double)(config->layers[layer].n_heads * config->layers[layer].d_head);

        width = fmax(width, n_in);
        results += w->scores ? 0.0 : 2.0 * (double)config->d_model * n_in * sizeof(float);
    }
    double streams = (double)w->n_tokens * sizeof(float) *
                     ((double)(1 + n_cases) * (double)config->d_model + (double)n_lanes * width);
    double sums = 2.0 * (double)n_lanes * (double)hl_squares_bytes((int64_t)width, config->d_model);
    double work = (double)(n_lanes * config->d_model) *
                  (4.0 * width + (double)w->n_threads * PANEL_ROWS) * sizeof(float);

    if (w->options.state_path != NULL)
        streams *= 3.0;
    return streams + sums + work + results + (double)hl_walk_bytes(w->walk);
}

static hl_status make_lanes(repair_work *w, size_t width)
{
    HL_NEED(HL_ALLOC_ZEROED(&w->lanes, (size_t)w->n_lanes));
    for (int64_t i = 0; i < w->n_lanes; i++) {
        HL_NEED(HL_ALLOC(&w->lanes[i].heads, (size_t)w->config->n_heads));
        HL_NEED(hl_alloc((void **)&w->lanes[i].z, (size_t)w->n_tokens, width * sizeof(float)));
    }
    return HL_OK;
}

/* Chooses the number of lanes: one per thread, as far as the memory allows. */
static void choose_lanes(repair_work *w)
{
    w->n_lanes = w->n_cases < w->n_threads ? w->n_cases : w->n_threads;
    while (w->n_lanes > 1 &&
           count_memory(w, w->n_cases, w->n_lanes) > (double)w->options.memory_bytes)
        w->n_lanes--;
}

static hl_status begin_streams(repair_work *w)
{
    const hl_config *config = w->config;
    int64_t          width  = 0;

    choose_lanes(w);
    double total = count_memory(w, w->n_cases, w->n_lanes);

    if (total > (double)w->options.memory_bytes)
        return hl_fail(
            HL_LIMIT, "repair: %.0f MiB for %lld tokens, at most %.0f MiB: fewer tokens take less",
            total / 0x1p20, (long long)w->n_tokens, (double)w->options.memory_bytes / 0x1p20);
    for (int64_t i = 0; i < w->n_cases; i++)
        w->cases[i].out->info.n_bytes = (size_t)total;
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        int64_t n_in = config->layers[layer].n_heads * config->layers[layer].d_head;
        width        = n_in > width ? n_in : width;
    }
    HL_NEED(HL_ALLOC(&w->means, (size_t)width));
    HL_NEED(HL_ALLOC(&w->roots, (size_t)w->n_tokens));
    HL_NEED(hl_alloc((void **)&w->original, (size_t)w->n_tokens,
                     (size_t)config->d_model * sizeof *w->original));
    return make_lanes(w, (size_t)width);
}

static hl_status report_progress(const repair_work *w, int64_t n_done)
{
    int64_t     n_layers = w->config->n_layers;
    double      done = (double)n_done, all = (double)n_layers;
    hl_progress progress = { .stage    = "repairing",
                             .n_tokens = n_done == n_layers ? w->n_tokens : 0 };

    for (int64_t i = 0; i < w->n_cases; i++) {
        done += n_done > w->cases[i].first ? (double)(n_done - w->cases[i].first) : 0.0;
        all += (double)(n_layers - w->cases[i].first);
    }
    progress.share = done / all;
    return w->options.progress == NULL ? HL_OK : w->options.progress(w->options.context, &progress);
}

static hl_status run_layers(repair_work *w)
{
    int64_t n_layers = w->config->n_layers, next = 0;

    if (w->options.state_path != NULL) {
        HL_NEED(open_state(w));
        HL_NEED(restore(&next, w));
    }
    for (int64_t layer = next; layer < n_layers; layer++) {
        HL_NEED(run_layer(w, layer));
        hl_status status = report_progress(w, layer + 1);
        if (layer + 1 < n_layers && w->options.state_path != NULL &&
            (status == HL_CANCELLED || hl_clock_seconds() - w->saved_at >= w->options.save_every)) {
            hl_status saved = save(w, layer);
            status          = status != HL_OK ? status : saved;
        }
        HL_NEED(status);
    }
    return HL_OK;
}

static void free_cases(repair_work *w)
{
    for (int64_t i = 0; i < w->n_cases && w->cases != NULL; i++) {
        hl_repair_free(w->cases[i].out);
        hl_free(w->cases[i].gates);
        hl_free(w->cases[i].stream);
    }
    for (int64_t i = 0; i < w->n_lanes && w->lanes != NULL; i++) {
        hl_free(w->lanes[i].heads);
        hl_free(w->lanes[i].z);
    }
    hl_free(w->cases);
    hl_free(w->lanes);
    hl_free(w->original);
    hl_free(w->means);
    hl_free(w->roots);
    w->cases    = NULL;
    w->lanes    = NULL;
    w->roots    = NULL;
    w->original = w->means = NULL;
}

static void free_work(repair_work *w)
{
    free_cases(w);
    hl_walk_close(w->walk);
    hl_sweep_state_free(w->state);
}

static hl_status complete_options(repair_work *w, const hl_repair_options *options)
{
    hl_repair_options *o = &w->options;

    if (options != NULL)
        *o = *options;
    o->memory_bytes = o->memory_bytes != 0 ? o->memory_bytes : DEFAULT_MEMORY;
    o->save_every   = o->save_every > 0.0 ? o->save_every : DEFAULT_SAVE;
    w->n_threads    = hl_threads(o->n_threads);
    if (o->ridge != 0.0)
        HL_NEED(hl_check_number("repair: ridge", o->ridge, 1e-12, 1e12));
    if (o->windows.stride != 0 || o->windows.n_batch != 0)
        return hl_fail(HL_BAD_ARGUMENT,
                       "repair: stride %lld and n_batch %lld, wanted 0: windows lie side by side",
                       (long long)o->windows.stride, (long long)o->windows.n_batch);
    return HL_OK;
}

static hl_status open_walk(repair_work *w, const hl_corpus *corpus, const hl_scored_windows *scored)
{
    HL_NEED(hl_walk_open(&w->walk, w->model, corpus, &w->options.windows, scored,
                         w->options.n_threads));
    w->n_tokens = hl_walk_n_tokens(w->walk);
    w->n_solved = hl_walk_n_first(w->walk);
    return HL_OK;
}

/* Makes the cases; `ways` NULL: all are repaired. */
static hl_status make_cases(repair_work *w, const hl_head_list *heads, const bool *means, int64_t n)
{
    HL_NEED(HL_ALLOC_ZEROED(&w->cases, (size_t)n));
    w->n_cases = n;
    for (int64_t i = 0; i < n; i++) {
        repair_case *c = &w->cases[i];

        c->means = means != NULL && means[i];
        HL_NEED(mark_heads(w, c, &heads[i]));
        HL_NEED(new_repair(&c->out, w->model, &heads[i]));
        c->out->info.n_tokens = w->n_solved;
    }
    return HL_OK;
}

hl_status hl_repair_heads(hl_repair **out, const hl_model *model, const hl_corpus *corpus,
                          const hl_head_list *heads, const hl_repair_options *options)
{
    HL_SCOPED(free_work) repair_work w = { .model = model };

    *out = NULL;
    if (model == NULL || corpus == NULL || heads == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "repair: no model, no text or no list of heads");
    w.config = model->config;
    HL_NEED(complete_options(&w, options));
    HL_NEED(hl_repair_check(model));
    HL_NEED(open_walk(&w, corpus, NULL));
    HL_NEED(make_cases(&w, heads, NULL, 1));
    HL_NEED(begin_streams(&w));
    if (heads->n_heads > 0)
        HL_NEED(run_layers(&w));
    *out = hl_taken(&w.cases[0].out);
    return HL_OK;
}

/* ------------------------------------------------------------------ what it costs */

/* How many of the cases fit into memory side by side; 0 becomes 1, which then fails with the reason. */
static int64_t count_fitting(const repair_work *w, int64_t n_cases)
{
    while (n_cases > 1 && count_memory(w, n_cases, 1) > (double)w->options.memory_bytes)
        n_cases--;
    return n_cases;
}

/* Cases without a stream of their own have the scores of the case, or of the original, that they are
 * equal to. */
static void copy_scores(hl_evaluation *out, const repair_work *w)
{
    for (int64_t i = 0; i < w->n_cases; i++) {
        const repair_case *same = NULL;
        hl_scores         *own  = out->scores + i * out->n_windows;

        if (w->cases[i].stream != NULL)
            continue;
        (void)find_same(&same, w, &w->cases[i], w->config->n_layers - 1);
        memcpy(own, same != NULL ? out->scores + (same - w->cases) * out->n_windows : out->dense,
               (size_t)out->n_windows * sizeof *own);
    }
}

static hl_status score_cases(hl_scores *dense, hl_scores *scores, repair_work *w,
                             const hl_scored_windows *text)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found   = NULL;
    HL_FREED float                             **streams = NULL;
    size_t                                       n       = (size_t)text->n_windows;

    HL_NEED(hl_evaluation_new(&found, text, w->n_cases));
    HL_NEED(HL_ALLOC(&streams, (size_t)w->n_cases));
    for (int64_t i = 0; i < w->n_cases; i++)
        streams[i] = w->cases[i].stream;
    HL_NEED(hl_walk_score(found, w->walk, w->original, streams));
    copy_scores(found, w);
    memcpy(dense, found->dense, n * sizeof *dense);
    memcpy(scores, found->scores, n * (size_t)w->n_cases * sizeof *scores);
    return HL_OK;
}

hl_status hl_evaluate_cases(hl_evaluation **out, const hl_model *model, const hl_corpus *corpus,
                            const hl_corpus *test_corpus, const hl_head_list *heads,
                            const bool *means, int64_t n_cases, const hl_repair_options *options,
                            const hl_window_options *test_windows)
{
    HL_SCOPED(free_work) repair_work                    w     = { .model = model, .scores = true };
    HL_SCOPED(hl_scored_windows_free) hl_scored_windows text  = { 0 };
    HL_CLOSED(hl_evaluation_free) hl_evaluation        *found = NULL;
    hl_window_options                                   test  = *test_windows;

    *out     = NULL;
    w.config = model->config;
    HL_NEED(complete_options(&w, options));
    test.n_ctx = hl_config_ctx(w.config, test.n_ctx);
    HL_NEED(hl_scored_windows_read(&text, test_corpus, &test));
    HL_NEED(open_walk(&w, corpus, &text));
    HL_NEED(hl_evaluation_new(&found, &text, n_cases));
    found->n_ctx = test.n_ctx;
    for (int64_t i = 0, n; i < n_cases; i += n) {
        n = count_fitting(&w, n_cases - i);
        HL_NEED(make_cases(&w, heads + i, means != NULL ? means + i : NULL, n));
        HL_NEED(begin_streams(&w));
        HL_NEED(run_layers(&w));
        HL_NEED(score_cases(found->dense, found->scores + i * found->n_windows, &w, &text));
        free_cases(&w);
    }
    *out = hl_taken(&found);
    return HL_OK;
}

/* ------------------------------------------------------------------- means instead */

hl_status hl_repair_by_means(hl_repair **out, const hl_model *model, const hl_head_list *heads,
                             const float *means)
{
    HL_SCOPED(free_work) repair_work w    = { .model = model, .config = model->config };
    int64_t                          each = model->config->n_heads * model->config->d_head;

    *out = NULL;
    HL_NEED(make_cases(&w, heads, NULL, 1));
    repair_case *c = &w.cases[0];
    for (int64_t layer = c->first; layer < w.config->n_layers; layer++) {
        HL_SCOPED(free_solving) solving s      = { .of = c, .layer = layer };
        hl_repaired                    *values = &c->out->values[layer];
        HL_FREED double                *sums   = NULL;

        s.param = output_of(model, layer);
        if (s.param == NULL)
            continue;
        HL_NEED(read_output(&s, &w));
        HL_NEED(HL_ALLOC(&sums, (size_t)w.config->d_model));
        HL_NEED(HL_ALLOC(&values->bias, (size_t)w.config->d_model));
        HL_NEED(mean_output(sums, &w, c, layer, means + layer * each));
        for (int64_t row = 0; row < w.config->d_model; row++)
            values->bias[row] = (float)(sums[row] + (s.bias != NULL ? (double)s.bias[row] : 0.0));
        values->weight = hl_taken(&s.before);
        values->dtype  = HL_DTYPE_F32;
    }
    *out = hl_taken(&c->out);
    return HL_OK;
}
