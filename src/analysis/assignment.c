/* assignment.c - the Hungarian method with shortest augmenting paths.
 *
 * Rows and columns carry prices such that cost - row_price - column_price is never
 * negative and is 0 for pairs that are matched.  Rows come one at a time.  From a new
 * row the cheapest way over matched pairs to a free column is looked for, as Dijkstra
 * would: `distance` holds the cheapest way found to each column, `from` the column that
 * it comes over.  Then prices move so that the way costs nothing, and the pairs
 * along it change partners. */
#include "analysis/assignment.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct matching {
    const double *cost;
    int64_t       n_rows;
    int64_t       n_columns;
    double       *row_price;    /* (n_rows) */
    double       *column_price; /* (n_columns) */
    int64_t      *row_of;       /* (n_columns) -1: free */
    double       *distance;     /* (n_columns) */
    int64_t      *from;         /* (n_columns) -1: from the new row itself */
    bool         *reached;      /* (n_columns) */
} matching;

/* Ways that end with a step out of `row`, at cost `so_far`, over column `via`. */
static void relax(matching *m, int64_t row, double so_far, int64_t via)
{
    for (int64_t column = 0; column < m->n_columns; column++) {
        double step =
            m->cost[row * m->n_columns + column] - m->row_price[row] - m->column_price[column];

        if (!m->reached[column] && so_far + step < m->distance[column]) {
            m->distance[column] = so_far + step;
            m->from[column]     = via;
        }
    }
}

static int64_t nearest_column(const matching *m)
{
    int64_t nearest = -1;

    for (int64_t column = 0; column < m->n_columns; column++) {
        if (!m->reached[column] && (nearest < 0 || m->distance[column] < m->distance[nearest]))
            nearest = column;
    }
    return nearest;
}

/* The free column that is cheapest to reach from the row. */
static int64_t find_free(matching *m, int64_t row)
{
    for (int64_t column = 0; column < m->n_columns; column++) {
        m->distance[column] = INFINITY;
        m->reached[column]  = false;
    }
    relax(m, row, 0.0, -1);
    for (;;) {
        int64_t column     = nearest_column(m);
        m->reached[column] = true;
        if (m->row_of[column] < 0)
            return column;
        relax(m, m->row_of[column], m->distance[column], column);
    }
}

static void move_prices(matching *m, int64_t row, double total)
{
    m->row_price[row] += total;
    for (int64_t column = 0; column < m->n_columns; column++) {
        double spare = total - m->distance[column];

        if (!m->reached[column] || m->row_of[column] < 0)
            continue;
        m->row_price[m->row_of[column]] += spare;
        m->column_price[column] -= spare;
    }
}

static void add_row(matching *m, int64_t row)
{
    int64_t column = find_free(m, row);

    move_prices(m, row, m->distance[column]);
    while (m->from[column] >= 0) {
        m->row_of[column] = m->row_of[m->from[column]];
        column            = m->from[column];
    }
    m->row_of[column] = row;
}

hl_status hl_assign(int64_t *out, const double *cost, int64_t n_rows, int64_t n_columns)
{
    hl_status status = HL_OK;
    matching  m      = { .cost = cost, .n_rows = n_rows, .n_columns = n_columns };

    HL_TRY(HL_ALLOC_ZEROED(&m.row_price, (size_t)n_rows));
    HL_TRY(HL_ALLOC_ZEROED(&m.column_price, (size_t)n_columns));
    HL_TRY(HL_ALLOC(&m.row_of, (size_t)n_columns));
    HL_TRY(HL_ALLOC(&m.distance, (size_t)n_columns));
    HL_TRY(HL_ALLOC(&m.from, (size_t)n_columns));
    HL_TRY(HL_ALLOC(&m.reached, (size_t)n_columns));
    for (int64_t column = 0; column < n_columns; column++)
        m.row_of[column] = -1;
    for (int64_t row = 0; row < n_rows; row++)
        add_row(&m, row);
    for (int64_t column = 0; column < n_columns; column++) {
        if (m.row_of[column] >= 0)
            out[m.row_of[column]] = column;
    }

done:
    hl_free(m.row_price);
    hl_free(m.column_price);
    hl_free(m.row_of);
    hl_free(m.distance);
    hl_free(m.from);
    hl_free(m.reached);
    return status;
}
