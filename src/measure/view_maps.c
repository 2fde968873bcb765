/* view_maps.c - the attention of many heads on a prompt, with one byte per pair of tokens.
 *
 * view.c runs the model.  A head's row is converted to bytes as soon as it is reported.  The mean
 * over heads needs all layers: for one piece of positions, its sums are held as floats, and are
 * converted when the last layer has been added. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "measure/view.h"

#define MOST_CELLS 1500000

enum { NO_MAP = -1 };

/* Rows that see fewer keys put much on one of them whatever the head does. */
enum { LEAST_KEYS = 8 };

/* The state while maps are made. */
typedef struct mapping {
    const hl_model *model;
    hl_prompt_maps *maps;
    int64_t        *place;     /* (n_layers, n_heads) index of a head's map; NO_MAP */
    bool           *wanted;    /* (n_layers, n_heads) heads whose rows are requested */
    int64_t         n_members; /* number of heads of the model */
    bool            has_mean;
    int64_t         at_once;
    int64_t         first; /* first position of this piece */
    float          *sums;  /* (at_once, n_tokens) sums over heads; NULL: no mean */
} mapping;

/* -------------------------------------------------------------------------- one row */

/* Returns the number of cells of a row. */
static int64_t row_length(const hl_prompt_maps *maps, int64_t position)
{
    return maps->is_causal ? position + 1 : maps->n_tokens;
}

static uint8_t *row_cells(const hl_prompt_maps *maps, int64_t map, int64_t position)
{
    int64_t before = maps->is_causal ? position * (position + 1) / 2 : position * maps->n_tokens;

    return maps->cells + map * maps->n_cells + before;
}

/* Converts probabilities, up to a factor `scale`, to bytes. */
static void keep_row(const hl_prompt_maps *maps, int64_t map, int64_t position, const float *row,
                     float scale)
{
    int64_t  n_keys = row_length(maps, position);
    uint8_t *cells  = row_cells(maps, map, position);
    float    peak   = 0.0f;

    for (int64_t key = 0; key < n_keys; key++)
        peak = row[key] > peak ? row[key] : peak;
    for (int64_t key = 0; key < n_keys; key++) {
        /* False for NaN: a broken head has an empty map. */
        bool some  = row[key] > 0.0f && isfinite(peak);
        cells[key] = some ? (uint8_t)lrintf(255.0f * (row[key] / peak)) : 0;
    }
    maps->peaks[map * maps->n_tokens + position] = scale * peak;
}

/* ----------------------------------------------------------------------- active rows */

static bool same_pair(const hl_prompt_maps *maps, const hl_active_row *a, const hl_active_row *b)
{
    return a->row >= 0 && maps->tokens[a->row].id == maps->tokens[b->row].id &&
           maps->tokens[a->key].id == maps->tokens[b->key].id;
}

/* Adds a row to the list of a head if it is clearer than one there, or than that of the same pair of
 * ids.  Of equal rows the first stays. */
static void keep_active(const hl_prompt_maps *maps, hl_active_row list[HL_ACTIVE_ROWS],
                        hl_active_row row)
{
    int last = HL_ACTIVE_ROWS - 1; /* the place that becomes free */

    for (int i = 0; i < HL_ACTIVE_ROWS; i++) {
        if (same_pair(maps, &list[i], &row))
            last = i;
    }
    if (list[last].row >= 0 && !(row.attention > list[last].attention))
        return;
    for (; last > 0 && (list[last - 1].row < 0 || row.attention > list[last - 1].attention); last--)
        list[last] = list[last - 1];
    list[last] = row;
}

static void find_active(const hl_prompt_maps *maps, int64_t head, int64_t position,
                        const float *row)
{
    int64_t       n_keys = row_length(maps, position);
    hl_active_row found  = { position, -1, 0.0f };

    if (n_keys < LEAST_KEYS)
        return;
    for (int64_t key = 1; key < n_keys; key++) {
        if (row[key] > found.attention)
            found = (hl_active_row){ position, key, row[key] };
    }
    if (found.key >= 0)
        keep_active(maps, maps->active + head * HL_ACTIVE_ROWS, found);
}

/* ------------------------------------------------------------------------- watching */

static void keep_entropies(const mapping *m, const hl_layer_rows *rows, int64_t head)
{
    const float *entropy = rows->rows->entropy + head * rows->n_rows;
    int64_t      at      = rows->layer * m->maps->n_heads + head;

    memcpy(m->maps->entropy + at * m->maps->n_tokens + rows->start[0], entropy,
           (size_t)rows->lengths[0] * sizeof *entropy);
}

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    const mapping *m        = context;
    int64_t        n_tokens = m->maps->n_tokens;

    for (int64_t head = 0; head < rows->n_heads; head++) {
        int64_t map = m->place[rows->layer * m->maps->n_heads + head];

        keep_entropies(m, rows, head);
        for (int64_t i = 0; i < rows->n_patterns; i++) {
            int64_t      position = rows->start[0] + rows->pattern_rows[i];
            const float *row      = rows->pattern + (head * rows->n_patterns + i) * rows->n_keys;

            if (map != NO_MAP)
                keep_row(m->maps, map, position, row, 1.0f);
            if (m->wanted[rows->layer * m->maps->n_heads + head])
                find_active(m->maps, rows->layer * m->maps->n_heads + head, position, row);
            for (int64_t key = 0; m->has_mean && key < row_length(m->maps, position); key++)
                m->sums[(position - m->first) * n_tokens + key] += row[key];
        }
    }
    return HL_OK;
}

/* Called when all layers have been added to the sums of a piece. */
static hl_status end_piece(void *context, int64_t first, int64_t n)
{
    mapping *m        = context;
    size_t   n_tokens = (size_t)m->maps->n_tokens;

    for (int64_t i = 0; m->has_mean && i < n; i++)
        keep_row(m->maps, 0, first + i, m->sums + (size_t)i * n_tokens, 1.0f / (float)m->n_members);
    if (m->has_mean)
        memset(m->sums, 0, (size_t)m->at_once * n_tokens * sizeof *m->sums);
    m->first = first + n;
    return HL_OK;
}

/* ------------------------------------------------------------------------- choosing */

static hl_status count_members(mapping *m)
{
    for (int64_t layer = 0; layer < m->maps->n_layers; layer++) {
        hl_layer_info about = { 0 };

        HL_NEED(hl_model_get_layer(&about, m->model, layer));
        m->n_members += about.n_heads;
    }
    return HL_OK;
}

/* Chooses a map for a head, or for all heads of a layer; heads that have one keep it. */
static hl_status choose(mapping *m, hl_head choice)
{
    int64_t   n_heads = 0;
    hl_status status  = hl_view_check_head(&n_heads, m->model, choice);

    for (int64_t head = 0; head < n_heads && status == HL_OK; head++) {
        int64_t at = choice.layer * m->maps->n_heads + head;

        if ((choice.head != -1 && choice.head != head) || m->place[at] != NO_MAP)
            continue;
        m->place[at]                      = m->maps->n_maps;
        m->maps->heads[m->maps->n_maps++] = (hl_head){ choice.layer, head };
    }
    return status;
}

static hl_status choose_all(mapping *m)
{
    hl_status status = HL_OK;

    for (int64_t layer = 0; layer < m->maps->n_layers && status == HL_OK; layer++) {
        hl_layer_info about = { 0 };

        status = hl_model_get_layer(&about, m->model, layer);
        if (status == HL_OK && about.n_heads > 0)
            status = choose(m, (hl_head){ layer, -1 });
    }
    return status;
}

/* Named heads must exist, even if all heads are shown anyway. */
static hl_status choose_heads(mapping *m, const hl_prompt_maps_options *options)
{
    hl_prompt_maps *maps = m->maps;
    int64_t         most = options->most_cells > 0 && options->most_cells < INT64_MAX
                               ? (int64_t)options->most_cells
                               : MOST_CELLS;

    HL_NEED(count_members(m));
    HL_NEED(HL_ALLOC(&maps->heads, (size_t)m->n_members + 1));
    /* n_cells is 2^26 at most, and so is the number of layers times heads. */
    bool all_fit = (m->n_members + 1) * maps->n_cells <= most;
    m->has_mean  = all_fit || maps->n_cells <= most || options->n_heads == 0;
    if (m->has_mean)
        maps->heads[maps->n_maps++] = (hl_head){ -1, -1 };
    for (int64_t i = 0; i < options->n_heads; i++)
        HL_NEED(choose(m, options->heads[i]));
    if (all_fit)
        HL_NEED(choose_all(m));
    return HL_OK;
}

/* ------------------------------------------------------------------- open and close */

static hl_status describe(mapping *m, const hl_prompt *prompt)
{
    const hl_model_info *info = hl_model_get_info(m->model);
    hl_prompt_maps      *maps = m->maps;
    int64_t              n    = prompt->n_tokens;
    size_t               grid = (size_t)(info->n_layers * info->n_heads);

    snprintf(maps->family, sizeof maps->family, "%s", info->family);
    maps->n_layers  = info->n_layers;
    maps->n_heads   = info->n_heads;
    maps->is_causal = !info->is_encoder;
    maps->n_tokens  = n;
    maps->n_cells   = maps->is_causal ? n * (n + 1) / 2 : n * n;
    HL_NEED(hl_view_tokens_new(&maps->tokens, prompt));
    HL_NEED(hl_alloc((void **)&maps->entropy, grid, (size_t)n * sizeof *maps->entropy));
    for (size_t i = 0; i < grid * (size_t)n; i++)
        maps->entropy[i] = NAN;
    HL_NEED(HL_ALLOC(&m->place, grid));
    for (size_t i = 0; i < grid; i++)
        m->place[i] = NO_MAP;
    return HL_OK;
}

static hl_status allocate(mapping *m)
{
    hl_prompt_maps *maps = m->maps;
    size_t          grid = (size_t)(maps->n_layers * maps->n_heads);

    HL_NEED(hl_alloc_zeroed((void **)&maps->cells, (size_t)maps->n_maps, (size_t)maps->n_cells));
    HL_NEED(HL_ALLOC_ZEROED(&maps->peaks, (size_t)(maps->n_maps * maps->n_tokens)));
    HL_NEED(HL_ALLOC(&maps->active, grid * HL_ACTIVE_ROWS));
    for (size_t i = 0; i < grid * HL_ACTIVE_ROWS; i++)
        maps->active[i] = (hl_active_row){ -1, -1, 0.0f };
    HL_NEED(HL_ALLOC(&m->wanted, grid));
    for (size_t i = 0; i < grid; i++)
        m->wanted[i] = m->has_mean || m->place[i] != NO_MAP;
    if (m->has_mean)
        HL_NEED(HL_ALLOC_ZEROED(&m->sums, (size_t)(m->at_once * maps->n_tokens)));
    return HL_OK;
}

hl_status hl_prompt_maps_in_pieces(hl_prompt_maps **out, const hl_model *model,
                                   const hl_prompt *prompt, const hl_prompt_maps_options *options,
                                   int64_t at_once)
{
    static const hl_prompt_maps_options none   = { 0 };
    hl_status                           status = HL_OK;
    mapping                             m      = { .model = model };

    *out    = NULL;
    options = options != NULL ? options : &none;
    HL_TRY(hl_view_check_prompt(prompt));
    HL_TRY(HL_ALLOC_ZEROED(&m.maps, 1));
    HL_TRY(describe(&m, prompt));
    HL_TRY(choose_heads(&m, options));
    m.at_once = at_once > 0 ? at_once : hl_view_at_once(model, prompt->n_tokens);
    HL_TRY(allocate(&m));
    HL_TRY(hl_view_run(model, prompt,
                       &(hl_view_rows){ .context    = &m,
                                        .layer      = watch_layer,
                                        .piece      = end_piece,
                                        .heads      = m.wanted,
                                        .at_once    = m.at_once,
                                        .beyond_ctx = options->beyond_ctx,
                                        .n_threads  = options->n_threads }));
    *out   = m.maps;
    m.maps = NULL;

done:
    hl_prompt_maps_free(m.maps);
    hl_free(m.place);
    hl_free(m.wanted);
    hl_free(m.sums);
    return status;
}

hl_status hl_prompt_maps_new(hl_prompt_maps **out, const hl_model *model, const hl_prompt *prompt,
                             const hl_prompt_maps_options *options)
{
    return hl_prompt_maps_in_pieces(out, model, prompt, options, 0);
}

void hl_prompt_maps_free(hl_prompt_maps *maps)
{
    if (maps == NULL)
        return;
    hl_view_tokens_free(maps->tokens, maps->n_tokens);
    hl_free(maps->entropy);
    hl_free(maps->heads);
    hl_free(maps->cells);
    hl_free(maps->peaks);
    hl_free(maps->active);
    hl_free(maps);
}
