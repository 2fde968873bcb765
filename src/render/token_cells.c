/* token_cells.c - binning a token map. */
#include "render/token_cells.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

static int64_t last_of(const hl_token_cells *cells, int64_t cell)
{
    int64_t end = cells->begin + (cell + 1) * cells->bin;

    return end < cells->end ? end : cells->end;
}

int64_t hl_token_cells_token(const hl_token_cells *cells, int64_t cell)
{
    return cells->begin + cell * cells->bin;
}

double hl_token_cells_place(const hl_token_cells *cells, double token)
{
    return (token - (double)cells->begin) / (double)(cells->n * cells->bin);
}

bool hl_token_cells_has(const hl_token_cells *cells, int64_t row, int64_t column)
{
    return !cells->view->is_causal || column <= row;
}

double hl_token_cells_at(const hl_token_cells *cells, int64_t row, int64_t column)
{
    return cells->values[row * cells->n + column];
}

/* The mass that one token puts on the keys of a cell. */
static double mass_of(const float *row, int64_t begin, int64_t end)
{
    double sum = 0.0;

    for (int64_t key = begin; key < end; key++)
        sum += (double)row[key];
    return sum;
}

static void fill_row(hl_token_cells *cells, const hl_token_map *map, int64_t row)
{
    int64_t first = hl_token_cells_token(cells, row), end = last_of(cells, row);
    double  share = 1.0 / (double)(end - first);
    double *out   = cells->values + row * cells->n;

    for (int64_t token = first; token < end; token++) {
        const float *attention = map->attention + token * cells->view->n_tokens;
        cells->entropy[row] += share * (double)map->entropy[token];
        for (int64_t column = 0; column < cells->n; column++)
            out[column] += share * mass_of(attention, hl_token_cells_token(cells, column),
                                           last_of(cells, column));
    }
}

hl_status hl_token_cells_new(hl_token_cells *out, const hl_token_view *view,
                             const hl_token_map *map, int64_t begin, int64_t end, int64_t most)
{
    hl_status status = HL_OK;
    int64_t   bin    = (end - begin + most - 1) / most;

    *out = (hl_token_cells){
        .view = view, .begin = begin, .end = end, .bin = bin, .n = (end - begin + bin - 1) / bin
    };
    HL_TRY(HL_ALLOC_ZEROED(&out->values, (size_t)(out->n * out->n)));
    HL_TRY(HL_ALLOC_ZEROED(&out->entropy, (size_t)out->n));
    for (int64_t row = 0; row < out->n; row++)
        fill_row(out, map, row);

done:
    if (status != HL_OK)
        hl_token_cells_free(out);
    return status;
}

void hl_token_cells_free(hl_token_cells *cells)
{
    hl_free(cells->values);
    hl_free(cells->entropy);
    *cells = (hl_token_cells){ 0 };
}

double hl_attention_share(hl_attention_scale scale, double value)
{
    return scale == HL_ATTENTION_LINEAR ? value : sqrt(fmax(value, 0.0));
}

double hl_token_view_top(const hl_token_view *view)
{
    double top = NAN;

    for (int64_t map = 0; map < view->n_maps; map++) {
        for (int64_t i = 0; i < view->n_tokens; i++)
            top = fmax(top, (double)view->maps[map].entropy[i]); /* passes NaN over */
    }
    return top;
}
