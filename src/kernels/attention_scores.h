/* attention_scores.h - loads rows from the caller's memory and computes scores, one panel at a
 * time.
 *
 * Rows of one KV head are numbered across all the query heads that share it: row = (head within
 * the group) * n_queries + query.  A panel takes LANES rows in that order, so that one query each
 * of many heads (decoding) fills the lanes as well as many queries of one head do.
 *
 * Scores are in units of ln 2: the factor log2(e) goes into the queries, or, after a soft-cap, into
 * the next step. */
#ifndef HL_KERNELS_ATTENTION_SCORES_H
#define HL_KERNELS_ATTENTION_SCORES_H

#include "kernels/attention_panel.h"
#include "kernels/matrix_tile.h"

/* Keys per tile.  A multiple of TILE_ROWS, so that the products have no remainder, and small enough
 * for a tile of K or V to fit in the first-level cache. */
#define TILE_KEYS 96

/* ------------------------------------------------------------- rows in memory
 * The kernels work on float.  Rows of other types are converted on the way in,
 * a tile at a time; float rows that lie one after the other are used where they
 * are.  Padding up to a whole vector is zero. */

/* n rounded up to whole vectors. */
static inline int64_t padded(int64_t n)
{
    return (n + VL - 1) / VL * VL;
}

/* One row of `width` elements as float, zero up to `stride`. */
static void load_row(float *out, int64_t stride, const void *source, hl_dtype dtype, int64_t width)
{
    const uint16_t *half  = (const uint16_t *)source;
    int64_t         whole = width / VL * VL;
    int64_t         d     = 0;

    if (dtype == HL_DTYPE_F32) {
        memcpy(out, source, (size_t)width * sizeof *out);
        d = width;
    } else if (dtype == HL_DTYPE_BF16) {
        for (; d < whole; d += VL)
            vf_store(out + d, vf_load_bf16(half + d));
    } else if (dtype == HL_DTYPE_F16) {
        for (; d < whole; d += VL)
            vf_store(out + d, vf_load_f16(half + d));
    }
    if (d < width) {
        size_t size = hl_dtype_bits(dtype) / 8;
        (void)hl_dtype_to_f32(out + d, (const uint8_t *)source + (size_t)d * size, dtype,
                              (size_t)(width - d));
    }
    for (d = width; d < stride; d++)
        out[d] = 0.0f;
}

/* Whether rows can be read in place.  `multiple` must divide their width: pass VL if only whole
 * vectors are read. */
static bool rows_in_place(const hl_rows *rows, int64_t width, int64_t multiple)
{
    return rows->dtype == HL_DTYPE_F32 && rows->row_stride == width && width % multiple == 0;
}

/* Returns n rows starting at `row`, as (n, *stride): in place if possible, otherwise converted into
 * `scratch` (n, padded(width)). */
static const float *load_rows(int64_t *stride, float *scratch, const hl_rows *rows, int64_t batch,
                              int64_t head, int64_t row, int64_t n, int64_t width, int64_t multiple)
{
    if (rows_in_place(rows, width, multiple)) {
        *stride = width;
        return (const float *)hl_rows_at(rows, batch, head, row);
    }
    *stride = padded(width);
    for (int64_t i = 0; i < n; i++)
        load_row(scratch + i * *stride, *stride, hl_rows_at(rows, batch, head, row + i),
                 rows->dtype, width);
    return scratch;
}

static void store_row(const hl_rows *rows, int64_t batch, int64_t head, int64_t row,
                      const float *values, int64_t width)
{
    void     *target = hl_rows_at(rows, batch, head, row);
    uint16_t *half   = (uint16_t *)target;
    int64_t   whole  = width / VL * VL;
    int64_t   d      = 0;

    if (rows->dtype == HL_DTYPE_F32) {
        memcpy(target, values, (size_t)width * sizeof *values);
        return;
    }
    if (rows->dtype == HL_DTYPE_BF16)
        for (; d < whole; d += VL)
            vf_store_bf16(half + d, vf_load(values + d));
    else if (rows->dtype == HL_DTYPE_F16)
        for (; d < whole; d += VL)
            vf_store_f16(half + d, vf_load(values + d));
    size_t size = hl_dtype_bits(rows->dtype) / 8;
    (void)hl_dtype_from_f32((uint8_t *)target + (size_t)d * size, rows->dtype, values + d,
                            (size_t)(width - d));
}

/* Writes LANES rows as the columns of out (width, LANES), times `factor`.  rows (LANES,
 * padded(width)) are floats. */
static void transpose_rows(float *out, const float *rows, int64_t width, float factor)
{
    int64_t stride = padded(width);

    for (int lane = 0; lane < LANES; lane += VL) {
        for (int64_t d = 0; d < width; d += VL) {
            vf block[VL];
            for (int i = 0; i < VL; i++)
                block[i] = vf_load(rows + (lane + i) * stride + d) * vf_set(factor);
            vf_transpose(block);
            for (int i = 0; i < VL && d + i < width; i++)
                vf_store(out + (d + i) * LANES + lane, block[i]);
        }
    }
}

/* ------------------------------------------------------------ rows of a KV head */

/* All rows that read one KV head of one sequence. */
typedef struct kv_head {
    const hl_attention *problem;
    int64_t             batch;
    int64_t             head;  /* the index of the KV head */
    int64_t             group; /* number of query heads that share it */
} kv_head;

/* The KV head number `index` among those of all sequences. */
static inline kv_head kv_head_at(const hl_attention *p, int64_t index)
{
    return (kv_head){ p, index / p->n_kv_heads, index % p->n_kv_heads, p->n_heads / p->n_kv_heads };
}

static inline int64_t kv_head_rows(const kv_head *h)
{
    return h->group * h->problem->n_queries;
}

/* The index of a row in arrays (n_batch, n_heads, n_queries), where a KV head is contiguous. */
static inline int64_t row_index(const kv_head *h, int64_t row)
{
    const hl_attention *p = h->problem;

    return (h->batch * p->n_heads + h->head * h->group) * p->n_queries + row;
}

static void panel_set_lane(panel *w, int lane, int64_t head, int64_t query, int64_t position,
                           hl_visible_keys keys)
{
    w->head[lane]     = (int32_t)head;
    w->query[lane]    = (int32_t)query;
    w->position[lane] = (int32_t)position;
    w->begin[lane]    = (int32_t)keys.begin;
    w->end[lane]      = (int32_t)keys.end;
    w->kept[lane]     = (int32_t)keys.kept;
    w->some_kept      = keys.kept > w->some_kept ? keys.kept : w->some_kept;
    if (lane == 0) {
        w->some = w->all = (hl_key_range){ keys.begin, keys.end };
        w->near          = (hl_key_range){ position - 1, position + 1 };
    }
    w->near.begin = position - 1 < w->near.begin ? position - 1 : w->near.begin;
    w->near.end   = position + 1 > w->near.end ? position + 1 : w->near.end;
    if (keys.begin < keys.end) {
        /* A blind lane does not widen the range of `some`, but it empties `all`. */
        bool none     = w->some.begin == w->some.end;
        w->some.begin = none || keys.begin < w->some.begin ? keys.begin : w->some.begin;
        w->some.end   = none || keys.end > w->some.end ? keys.end : w->some.end;
    }
    w->all.begin = keys.begin > w->all.begin ? keys.begin : w->all.begin;
    w->all.end   = keys.end < w->all.end ? keys.end : w->all.end;
}

/* Opens a panel of the n_left rows of a KV head from `row` on, LANES at the most.  Lanes beyond the
 * last row repeat it and are never reported. */
static void panel_open_rows(panel *w, const kv_head *h, int64_t row, int64_t n_left)
{
    const hl_attention *p      = h->problem;
    hl_reach            reach  = hl_attention_reach(p);
    int64_t             n_keys = hl_attention_key_length(p, h->batch);
    int64_t             start  = hl_attention_query_start(p, h->batch);
    int64_t             head   = h->head * h->group + row / p->n_queries;
    int64_t             query  = row % p->n_queries;

    panel_reset(w);
    w->row       = row;
    w->n_rows    = n_left < LANES ? (int)n_left : LANES;
    w->n_vectors = (w->n_rows + VL - 1) / VL;
    for (int lane = 0; lane < LANES; lane++) {
        panel_set_lane(w, lane, head, query, start + query,
                       hl_visible_join(hl_reach_keys(&reach, n_keys, start + query)));
        if (lane + 1 >= w->n_rows)
            continue;
        query++;
        if (query == p->n_queries) {
            query = 0;
            head++;
        }
    }
}

static void panel_open(panel *w, const kv_head *h, int64_t row)
{
    panel_open_rows(w, h, row, kv_head_rows(h) - row);
}

/* The keys that some panel of a block sees; if there are none, begin is INT64_MAX. */
static hl_visible_keys panels_keys(const panel *panels, int64_t n_panels)
{
    hl_visible_keys keys = { 0, INT64_MAX, 0 };

    for (int64_t i = 0; i < n_panels; i++) {
        const panel *w = &panels[i];
        if (w->some.begin == w->some.end)
            continue;
        keys.kept  = w->some_kept > keys.kept ? w->some_kept : keys.kept;
        keys.begin = w->some.begin < keys.begin ? w->some.begin : keys.begin;
        keys.end   = w->some.end > keys.end ? w->some.end : keys.end;
    }
    return keys;
}

/* Whether a head has so few rows that vectors run along each row and not across rows.  When one
 * token is decoded, most lanes would otherwise be idle. */
static inline bool kv_head_is_narrow(const kv_head *h)
{
    return kv_head_rows(h) <= VL / 2;
}

/* The factor of the queries before the product with the keys. */
static float query_factor(const hl_attention *p)
{
    if (p->softcap != 0.0)
        return (float)(p->scale / p->softcap);
    return (float)(p->scale * 1.44269504088896340736);
}

/* Loads the panel's rows of q or of a gradient, as floats (LANES, padded width). */
static void panel_load_rows(float *out, const panel *w, const kv_head *h, const hl_rows *rows,
                            int64_t width)
{
    int64_t stride = padded(width);

    for (int lane = 0; lane < LANES; lane++)
        load_row(out + lane * stride, stride,
                 hl_rows_at(rows, h->batch, w->head[lane], w->query[lane]), rows->dtype, width);
}

/* ------------------------------------------------------- after the product */

static void panel_cap(float *s, int64_t n, const hl_attention *p)
{
    vf cap = vf_set((float)(p->softcap * 1.44269504088896340736));

    for (int64_t i = 0; i < n * LANES; i += VL)
        vf_store(s + i, vf_tanh(vf_load(s + i)) * cap);
}

static void panel_add_alibi(float *s, const panel *w, const kv_head *h, int64_t key, int64_t n)
{
    float slopes[LANES];

    for (int lane = 0; lane < LANES; lane++)
        slopes[lane] = h->problem->alibi_slopes[w->head[lane]] * LOG2E;
    for (int j = 0; j < w->n_vectors; j++) {
        vf slope    = vf_load(slopes + j * VL);
        vi position = vi_load(w->position + j * VL);
        for (int64_t i = 0; i < n; i++) {
            float *at       = s + i * LANES + j * VL;
            vf     distance = __builtin_convertvector(vi_set((int32_t)(key + i)) - position, vf);
            vf_store(at, vf_fma(slope, distance, vf_load(at)));
        }
    }
}

static void panel_add_bias(float *s, const panel *w, const kv_head *h, int64_t key, int64_t n)
{
    const hl_attention *p = h->problem;

    for (int lane = 0; lane < LANES; lane++) {
        const float *bias = p->key_bias + w->head[lane] * p->n_keys + key;
        for (int64_t i = 0; i < n; i++)
            s[i * LANES + lane] += bias[i] * LOG2E;
    }
}

static void panel_add_row_bias(float *s, const panel *w, const kv_head *h, int64_t key, int64_t n)
{
    const hl_attention *p = h->problem;

    for (int lane = 0; lane < LANES; lane++) {
        int64_t      last = w->row + (lane < w->n_rows ? lane : w->n_rows - 1);
        int64_t      row  = h->batch * p->n_queries + last % p->n_queries;
        const float *bias = p->row_bias + row * p->n_keys + key;

        for (int64_t i = 0; i < n; i++)
            s[i * LANES + lane] += bias[i] * LOG2E;
    }
}

/* Applies what follows the soft-cap: biases, then the mask. */
static void panel_bias_and_mask(float *s, const panel *w, const kv_head *h, int64_t key, int64_t n)
{
    if (h->problem->alibi_slopes != NULL)
        panel_add_alibi(s, w, h, key, n);
    if (h->problem->key_bias != NULL)
        panel_add_bias(s, w, h, key, n);
    if (h->problem->row_bias != NULL)
        panel_add_row_bias(s, w, h, key, n);
    if (key < w->all.begin || key + n > w->all.end)
        panel_mask(w, s, key, n);
}

/* s (n, LANES) = k (n, k_stride) q (d_head, LANES): raw products. */
static void panel_products(float *s, const panel *w, const float *q, const float *k,
                           int64_t k_stride, int64_t n, int64_t width)
{
    matrix_product product = {
        .c        = s,
        .c_stride = LANES,
        .a        = k,
        .a_stride = k_stride,
        .b        = q,
        .b_stride = LANES,
        .k        = width,
    };
    multiply(&product, n, w->n_vectors * VL);
}

/* out[i * LANES] = k_i . q for VL keys (or n, if fewer).  Vectors run along each key; the sums are
 * then transposed, so that adding them up gives VL results. */
HL_INLINE void dot_keys(float *out, const float *q, const float *k, int64_t k_stride, int64_t n,
                        int64_t width)
{
    vf    sums[VL] = { { 0 } };
    float total[VL];

    for (int64_t d = 0; d < width; d += VL) {
        vf values = vf_load(q + d);
        for (int i = 0; i < VL; i++)
            sums[i] = vf_fma(vf_load(k + (i < n ? i : 0) * k_stride + d), values, sums[i]);
    }
    vf_transpose(sums);
    for (int i = 1; i < VL; i++)
        sums[0] += sums[i];
    vf_store(total, sums[0]);
    for (int64_t i = 0; i < n && i < VL; i++)
        out[i * LANES] = total[i];
}

/* The products of panel_products for a narrow head: q is (n_rows, padded width). */
static void narrow_products(float *s, const panel *w, const float *q, const float *k,
                            int64_t k_stride, int64_t n, int64_t width)
{
    int64_t stride = padded(width);

    memset(s, 0, (size_t)(n * LANES) * sizeof *s); /* idle lanes stay 0 */
    for (int64_t i = 0; i < n; i += VL) {
        for (int lane = 0; lane < w->n_rows; lane++) {
            if (n - i >= VL) /* two calls, so that the common case contains no test */
                dot_keys(s + i * LANES + lane, q + lane * stride, k + i * k_stride, k_stride, VL,
                         stride);
            else
                dot_keys(s + i * LANES + lane, q + lane * stride, k + i * k_stride, k_stride, n - i,
                         stride);
        }
    }
}

/* The finished scores of the panel against keys [key, key + n). */
static void panel_scores(float *s, const panel *w, const kv_head *h, const float *q, const float *k,
                         int64_t k_stride, int64_t key, int64_t n)
{
    if (kv_head_is_narrow(h))
        narrow_products(s, w, q, k, k_stride, n, h->problem->d_head);
    else
        panel_products(s, w, q, k, k_stride, n, h->problem->d_head);
    if (h->problem->softcap != 0.0)
        panel_cap(s, n, h->problem);
    panel_bias_and_mask(s, w, h, key, n);
}

#endif
