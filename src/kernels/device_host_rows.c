/* device_host_rows.c - what the device "host" does a row at a time: embedding, norms, RoPE,
 * the cache, activations. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/device_host.h"

/* Room for n floats in device->values. */
static hl_status make_rows(hl_device *device, int64_t n)
{
    return hl_device_host_grow(&device->values, &device->n_values, n);
}

static int64_t count_rows(const hl_device_places *places)
{
    return places->n_batch * places->batch_rows;
}

static int64_t position_of(const hl_device_places *places, int64_t row)
{
    return places->start[row / places->batch_rows] + row % places->batch_rows;
}

static bool counts(const hl_device_places *places, int64_t row)
{
    return row % places->batch_rows < places->lengths[row / places->batch_rows];
}

/* ----------------------------------------------------------------- embedding */

static void add_table_row(float *out, float *room, const void *table, hl_dtype dtype, int64_t row,
                          int64_t n)
{
    if (table == NULL)
        return;
    hl_device_host_load(room, table, dtype, row * n, n);
    for (int64_t i = 0; i < n; i++)
        out[i] += room[i];
}

static void embed_row(const hl_device_embed *e, float *x, int64_t row)
{
    float *room = x + e->n;

    if (e->base != NULL) {
        hl_device_host_load(x, e->base, e->dtype, row * e->n, e->n);
    } else {
        hl_device_host_load(x, e->table, e->dtype, e->tokens[row] * e->n, e->n);
        for (int64_t i = 0; i < e->n; i++)
            x[i] *= e->scale;
    }
    add_table_row(x, room, e->position_table, e->dtype, position_of(&e->places, row), e->n);
    add_table_row(x, room, e->type_table, e->dtype, e->type_table != NULL ? e->types[row] : 0,
                  e->n);
    hl_device_host_store(e->out, e->out_dtype, row * e->n, x, e->n);
}

hl_status hl_device_host_embed(hl_device *device, const hl_device_embed *embed)
{
    hl_status status = make_rows(device, 2 * embed->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < count_rows(&embed->places); row++) {
        if (counts(&embed->places, row))
            embed_row(embed, device->values, row);
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- norms */

static void norm_row(const hl_device *device, const hl_device_norm *norm, float *x, int64_t row)
{
    float  *room  = x + norm->n;
    int64_t first = row * norm->n;

    hl_device_host_load(x, norm->x, norm->x_dtype, first, norm->n);
    for (int part = 0; part < 2; part++) {
        if (norm->add[part] == NULL)
            continue;
        hl_device_host_load(room, norm->add[part], norm->dtype, first, norm->n);
        for (int64_t i = 0; i < norm->n; i++)
            x[i] += norm->add_scale * room[i];
        hl_device_host_store(norm->x, norm->x_dtype, first, x, norm->n);
    }
    if (!norm->is_plain)
        device->dense->norm(x, x, norm->n, &norm->norm);
    if (norm->out != NULL)
        hl_device_host_store(norm->out, norm->out_dtype, first, x, norm->n);
    if (norm->kept != NULL)
        memcpy(norm->kept + first, x, (size_t)norm->n * sizeof *x);
}

hl_status hl_device_host_norm(hl_device *device, const hl_device_norm *norm)
{
    hl_status status = make_rows(device, 2 * norm->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < norm->n_rows; row++)
        norm_row(device, norm, device->values, row);
    return HL_OK;
}

/* ------------------------------------------------------------------- q, k, v */

hl_status hl_device_host_angles(hl_device *device, const hl_device_angles *angles)
{
    const hl_device_places *places = &angles->places;
    (void)device;

    for (int64_t i = 0; i < count_rows(places) * angles->n_pairs; i++) {
        int64_t row       = i / angles->n_pairs;
        int64_t pair      = i % angles->n_pairs;
        float   frequency = angles->frequencies[row / places->batch_rows * angles->n_pairs + pair];
        double  angle     = (double)((float)position_of(places, row) * frequency);

        angles->cosine[i] = (float)cos(angle) * angles->factor;
        angles->sine[i]   = (float)sin(angle) * angles->factor;
    }
    return HL_OK;
}

static hl_norm part_of(const hl_norm *norm, int64_t first)
{
    hl_norm part = *norm;

    part.weight = norm->weight != NULL ? norm->weight + first : NULL;
    part.bias   = norm->bias != NULL ? norm->bias + first : NULL;
    return part;
}

/* Norm and RoPE of all heads of a row: q, or k. */
static void finish_heads(const hl_device *device, const hl_device_heads *h, const hl_norm *norm,
                         float *x, int64_t n_heads, int64_t row)
{
    if (h->norm == HL_HEAD_NORM_ALL)
        device->dense->norm(x, x, n_heads * h->d_head, norm);
    for (int64_t head = 0; head < n_heads; head++) {
        float  *at   = x + head * h->d_head;
        hl_norm each = part_of(norm, h->norm == HL_HEAD_NORM_EACH ? head * h->d_head : 0);

        if (h->norm == HL_HEAD_NORM_SHARED || h->norm == HL_HEAD_NORM_EACH)
            device->dense->norm(at, at, h->d_head, &each);
        if (h->cosine != NULL)
            device->dense->rotate(at, h->cosine + row * h->n_pairs, h->sine + row * h->n_pairs,
                                  h->n_pairs, h->interleaved);
    }
}

static void cache_row(const hl_device_heads *h, void *cache, const float *x, int64_t row)
{
    int64_t sequence = h->places.sequences[row / h->places.batch_rows];
    int64_t position = position_of(&h->places, row);

    for (int64_t head = 0; head < h->n_kv_heads; head++)
        hl_device_host_store(cache, h->dtype,
                             ((sequence * h->n_kv_heads + head) * h->n_ctx + position) * h->d_head,
                             x + head * h->d_head, h->d_head);
}

static void heads_row(const hl_device *device, const hl_device_heads *h, float *x, int64_t row)
{
    int64_t q_width = h->n_heads * h->d_head;
    int64_t k_width = h->n_kv_heads * h->d_head;
    int64_t width   = q_width + 2 * k_width;
    float  *k       = x + q_width;

    hl_device_host_load(x, h->qkv, h->dtype, row * width, width);
    finish_heads(device, h, &h->q_norm, x, h->n_heads, row);
    finish_heads(device, h, &h->k_norm, k, h->n_kv_heads, row);
    hl_device_host_store(h->qkv, h->dtype, row * width, x, q_width + k_width);
    cache_row(h, h->k_cache, k, row);
    cache_row(h, h->v_cache, k + k_width, row);
}

hl_status hl_device_host_heads(hl_device *device, const hl_device_heads *heads)
{
    int64_t   width  = (heads->n_heads + 2 * heads->n_kv_heads) * heads->d_head;
    hl_status status = make_rows(device, width);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < count_rows(&heads->places); row++) {
        if (counts(&heads->places, row))
            heads_row(device, heads, device->values, row);
    }
    return HL_OK;
}

/* --------------------------------------------------------------- activations */

static void activate_row(const hl_device *device, const hl_device_activate *a, float *x,
                         int64_t row)
{
    float *up = a->up != NULL ? x + a->n : NULL;

    hl_device_host_load(x, a->gate, a->dtype, row * a->x_stride, a->n);
    if (up != NULL)
        hl_device_host_load(up, a->up, a->dtype, row * a->x_stride, a->n);
    device->dense->activate(x, up, a->n, a->activation, a->limit);
    hl_device_host_store(a->out, a->dtype, row * a->n, x, a->n);
}

hl_status hl_device_host_activate(hl_device *device, const hl_device_activate *activate)
{
    hl_status status = make_rows(device, 2 * activate->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < activate->n_rows; row++)
        activate_row(device, activate, device->values, row);
    return HL_OK;
}

/* -------------------------------------------------------------------- copies */

/* x (n) += scale * row `from` of what is to be added. */
static void add_to_copy(float *x, float *room, const hl_device_copy_rows *copy, int64_t from)
{
    for (int part = 0; part < 2; part++) {
        if (copy->add[part] == NULL)
            continue;
        hl_device_host_load(room, copy->add[part], copy->add_dtype, from * copy->x_stride, copy->n);
        for (int64_t i = 0; i < copy->n; i++)
            x[i] += copy->add_scale * room[i];
    }
}

hl_status hl_device_host_copy_rows(hl_device *device, const hl_device_copy_rows *copy)
{
    hl_status status = make_rows(device, 2 * copy->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < copy->n_rows; row++) {
        int64_t from = copy->index != NULL ? copy->index[row] : row;
        float  *x    = device->values;

        if (from < 0)
            continue;
        hl_device_host_load(x, copy->x, copy->x_dtype, from * copy->x_stride, copy->n);
        add_to_copy(x, x + copy->n, copy, from);
        hl_device_host_store(copy->out, copy->out_dtype, row * copy->out_stride, x, copy->n);
    }
    return HL_OK;
}
