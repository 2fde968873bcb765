/* maps_row.c - from a row of probabilities or scores to its statistics.
 *
 * A probability p is a score of log p.  The sums of row_state.h are taken in two passes,
 * the maximum first: the row is all there.  As everywhere, the keys other than key 0 have a
 * state of their own, to which key 0 comes last. */
#include "measure/maps_row.h"

static double score_of(const hl_map_row *row, int64_t key)
{
    double value = row->values[key];

    return row->scores ? value : log(value); /* log 0 = -inf: as good as hidden */
}

/* The state of keys [begin, end); *argmax is the first of the largest, -1 if none. */
static hl_row_state sum_keys(int64_t *argmax, const hl_map_row *row, int64_t begin, int64_t end)
{
    hl_row_state state = hl_row_state_empty();

    *argmax = -1;
    for (int64_t key = begin; key < end; key++) {
        if (isnan(row->values[key])) {
            *argmax = -1;
            return (hl_row_state){ NAN, NAN, NAN, NAN, NAN };
        }
        if (*argmax < 0 || row->values[key] > row->values[*argmax])
            *argmax = key;
    }
    if (*argmax < 0 || score_of(row, *argmax) == -INFINITY) {
        *argmax = -1;
        return state;
    }
    state.max = score_of(row, *argmax);
    for (int64_t key = begin; key < end; key++) {
        double x = score_of(row, key) - state.max;
        double e = row->scores ? exp(x) : row->values[key] / row->values[*argmax];
        if (e == 0.0)
            continue; /* hidden, or nearly so: 0 * -inf is NaN */
        state.sum += e;
        state.dot += e * x;
        state.collision += e * e;
        state.spread += e * x * x;
    }
    return state;
}

static double probability_at(const hl_map_row *row, int64_t key)
{
    return key >= 0 && key < row->n_keys ? row->values[key] : 0.0;
}

/* Turns the row into probabilities that sum to 1. */
static void normalise(hl_map_row *row, double lse)
{
    double scale = exp(-lse); /* +inf for a row that sees nothing */

    for (int64_t key = 0; key < row->n_keys; key++) {
        if (lse == -INFINITY)
            row->values[key] = 0.0;
        else
            row->values[key] = row->scores ? exp(row->values[key] - lse) : scale * row->values[key];
    }
}

/* Probabilities are the scores of a row whose lse is 0, once divided by their sum. */
static double reported_lse(const hl_map_row *row, double lse)
{
    return row->scores || isnan(lse) || lse == -INFINITY ? lse : 0.0;
}

hl_map_row_result hl_map_row_measure(hl_map_row *row)
{
    int64_t      first = -1, other = -1;
    int64_t      n_first = row->n_keys > 0 ? 1 : 0;
    hl_row_state sink    = sum_keys(&first, row, 0, n_first);
    hl_row_state rest    = sum_keys(&other, row, n_first, row->n_keys);
    hl_row_state all     = hl_row_state_merge(rest, sink);
    double       lse     = hl_row_state_lse(all);
    int64_t      argmax  = other;

    if (first >= 0 && (other < 0 || row->values[0] >= row->values[other]))
        argmax = first;
    if (isnan(lse))
        argmax = -1;
    normalise(row, lse);
    return (hl_map_row_result){
        .lse            = reported_lse(row, lse),
        .entropy        = hl_row_state_entropy(all),
        .renyi2         = hl_row_state_renyi2(all),
        .varentropy     = hl_row_state_varentropy(all),
        .entropy_nosink = hl_row_state_entropy(rest),
        .peak           = argmax >= 0 ? row->values[argmax] : all.sum,
        .diagonal       = probability_at(row, row->position),
        .previous       = probability_at(row, row->position - 1),
        .first          = probability_at(row, 0),
        .argmax         = argmax,
    };
}
