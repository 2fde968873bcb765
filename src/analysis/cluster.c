/* cluster.c - who belongs to whom: Ward's groups, how much they mean, and pairs of least cost. */
#include "analysis/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

/* share of the points that one trial of stability keeps */
#define TRIAL_SHARE 0.8

void hl_distances(float *out, const double *points, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        out[i * n + i] = 0.0f;
        for (int64_t j = 0; j < i; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < d; k++) {
                double difference = points[i * d + k] - points[j * d + k];
                sum += difference * difference;
            }
            out[i * n + j] = out[j * n + i] = (float)sqrt(sum);
        }
    }
}

/* --------------------------------------------------------------------- Ward */

/* Ward's method by chains of nearest neighbors.
 *
 * Walk from a group to its nearest neighbor, from that to its nearest, and so on: the
 * distances fall, so the walk ends at two groups that are each other's nearest.  These
 * may be joined at once, whatever happens elsewhere (joining never brings a third
 * group nearer), and the rest of the walk stays valid.  All joins take O(n^2).  The
 * squared distance from k to the union of i and j follows from the old ones (Lance and
 * Williams):
 *
 *     ((n_i + n_k) d_ik + (n_j + n_k) d_jk - n_k d_ij) / (n_i + n_j + n_k)  */

typedef struct ward {
    float   *squared; /* (n, n) squared distances between groups; one point of a group stands for it
                       * */
    int64_t *sizes;   /* (n) number of points; 0 if the group has joined another */
    int64_t *chain;   /* (n + 1) groups, each the nearest of the one before */
    int64_t  n;
} ward;

/* Returns the nearest other group. At equal distances it is `previous`, so that the chain ends. */
static int64_t nearest_group(const ward *w, int64_t group, int64_t previous)
{
    const float *row     = w->squared + group * w->n;
    int64_t      nearest = previous;

    for (int64_t other = 0; other < w->n; other++) {
        if (other == group || w->sizes[other] == 0)
            continue;
        if (nearest < 0 || row[other] < row[nearest])
            nearest = other;
    }
    return nearest;
}

/* Group b becomes part of group a. */
static void join(ward *w, int64_t a, int64_t b)
{
    float *row_a = w->squared + a * w->n;
    float *row_b = w->squared + b * w->n;
    double n_a   = (double)w->sizes[a];
    double n_b   = (double)w->sizes[b];
    double d_ab  = row_a[b];

    for (int64_t k = 0; k < w->n; k++) {
        double n_k = (double)w->sizes[k];
        if (k == a || k == b || w->sizes[k] == 0)
            continue;
        double joined =
            ((n_a + n_k) * row_a[k] + (n_b + n_k) * row_b[k] - n_k * d_ab) / (n_a + n_b + n_k);
        row_a[k] = w->squared[k * w->n + a] = (float)joined;
    }
    w->sizes[a] += w->sizes[b];
    w->sizes[b] = 0;
}

static void join_all(hl_merge *out, ward *w)
{
    int64_t length = 0; /* number of groups in the chain */
    int64_t first  = 0; /* groups before this one have joined others; a chain may begin with any
                         * group */

    for (int64_t n_done = 0; n_done < w->n - 1;) {
        while (w->sizes[first] == 0)
            first++;
        if (length == 0)
            w->chain[length++] = first;
        int64_t last     = w->chain[length - 1];
        int64_t previous = length > 1 ? w->chain[length - 2] : -1;
        int64_t next     = nearest_group(w, last, previous);
        if (next != previous) {
            w->chain[length++] = next;
            continue;
        }
        int64_t a     = last < previous ? last : previous;
        int64_t b     = last < previous ? previous : last;
        out[n_done++] = (hl_merge){ (int32_t)a, (int32_t)b, sqrtf(w->squared[a * w->n + b]) };
        join(w, a, b);
        length -= 2;
    }
}

static int compare_merges(const void *left, const void *right)
{
    const hl_merge *x = left;
    const hl_merge *y = right;

    if (x->height != y->height)
        return x->height < y->height ? -1 : 1;
    return x->b != y->b ? (x->b < y->b ? -1 : 1) : 0; /* each b is joined once */
}

hl_status hl_ward(hl_merge *out, const float *distances, int64_t n)
{
    HL_FREED float   *squared = NULL;
    HL_FREED int64_t *places  = NULL; /* (2 n + 1) sizes, then the chain */

    HL_NEED(HL_ALLOC(&squared, (size_t)n * (size_t)n));
    HL_NEED(HL_ALLOC(&places, 2 * (size_t)n + 1));
    ward w = { .squared = squared, .sizes = places, .chain = places + n, .n = n };
    for (int64_t i = 0; i < n * n; i++)
        w.squared[i] = distances[i] * distances[i];
    for (int64_t i = 0; i < n; i++)
        w.sizes[i] = 1;
    join_all(out, &w);
    if (n > 1)
        qsort(out, (size_t)(n - 1), sizeof *out, compare_merges);
    return HL_OK;
}

/* Returns the point that stands for the group that i belongs to so far. */
static int32_t root_of(int32_t *parents, int32_t i)
{
    while (parents[i] != i) {
        parents[i] = parents[parents[i]];
        i          = parents[i];
    }
    return i;
}

hl_status hl_cut(int32_t *labels, const hl_merge *merges, int64_t n, int64_t n_groups)
{
    HL_FREED int32_t *parents = NULL;
    int32_t           n_named = 0;

    HL_NEED(HL_ALLOC(&parents, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        parents[i] = (int32_t)i;
    for (int64_t i = 0; i < n - n_groups; i++) {
        int32_t a              = root_of(parents, merges[i].a);
        int32_t b              = root_of(parents, merges[i].b);
        parents[a > b ? a : b] = a > b ? b : a;
    }
    /* A group's root is its first point, so the root has a label before the others need it. */
    for (int64_t i = 0; i < n; i++) {
        int32_t root = root_of(parents, (int32_t)i);
        labels[i]    = root == i ? n_named++ : labels[root];
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ judging */

/* Returns the silhouette of one point. `sums` has room for n_groups values. */
static double width_of(const float *row, const int32_t *labels, const int64_t *sizes, double *sums,
                       int64_t point, int64_t n, int64_t n_groups)
{
    int32_t own  = labels[point];
    double  next = INFINITY;

    if (sizes[own] == 1)
        return 0.0;
    memset(sums, 0, sizeof *sums * (size_t)n_groups);
    for (int64_t j = 0; j < n; j++)
        sums[labels[j]] += row[j];
    for (int64_t group = 0; group < n_groups; group++) {
        if (group != own)
            next = fmin(next, sums[group] / (double)sizes[group]);
    }
    double inside = sums[own] / (double)(sizes[own] - 1); /* a point is not its own neighbor */
    double larger = fmax(inside, next);
    return larger > 0.0 ? (next - inside) / larger : 0.0;
}

hl_status hl_silhouette(double *out, const float *distances, const int32_t *labels, int64_t n,
                        int64_t n_groups)
{
    HL_FREED int64_t *sizes = NULL;
    HL_FREED double  *sums  = NULL;
    double            total = 0.0;

    *out = NAN;
    if (n_groups < 2)
        return HL_OK;
    HL_NEED(HL_ALLOC_ZEROED(&sizes, (size_t)n_groups));
    HL_NEED(HL_ALLOC(&sums, (size_t)n_groups));
    for (int64_t i = 0; i < n; i++)
        sizes[labels[i]]++;
    for (int64_t i = 0; i < n; i++)
        total += width_of(distances + i * n, labels, sizes, sums, i, n, n_groups);
    *out = total / (double)n;
    return HL_OK;
}

static double pairs_of(double count)
{
    return 0.5 * count * (count - 1.0);
}

static int32_t count_labels(const int32_t *labels, int64_t n)
{
    int32_t largest = -1;

    for (int64_t i = 0; i < n; i++)
        largest = labels[i] > largest ? labels[i] : largest;
    return largest + 1;
}

hl_status hl_adjusted_rand(double *out, const int32_t *a, const int32_t *b, int64_t n)
{
    int32_t          n_a   = count_labels(a, n);
    int32_t          n_b   = count_labels(b, n);
    HL_FREED double *both  = NULL; /* (n_a, n_b), then the sums of its rows and of its columns */
    double           joint = 0.0, in_a = 0.0, in_b = 0.0;

    *out = NAN;
    HL_NEED(HL_ALLOC_ZEROED(&both, (size_t)n_a * (size_t)n_b + (size_t)n_a + (size_t)n_b));
    double *sums_a = both + (int64_t)n_a * n_b;
    double *sums_b = sums_a + n_a;
    for (int64_t i = 0; i < n; i++) {
        both[(int64_t)a[i] * n_b + b[i]] += 1.0;
        sums_a[a[i]] += 1.0;
        sums_b[b[i]] += 1.0;
    }
    for (int64_t i = 0; i < (int64_t)n_a * n_b; i++)
        joint += pairs_of(both[i]);
    for (int32_t i = 0; i < n_a; i++)
        in_a += pairs_of(sums_a[i]);
    for (int32_t i = 0; i < n_b; i++)
        in_b += pairs_of(sums_b[i]);
    double chance = n > 1 ? in_a * in_b / pairs_of((double)n) : 0.0;
    double most   = 0.5 * (in_a + in_b);
    /* If both divisions are trivial in the same way, they agree. */
    *out = most > chance ? (joint - chance) / (most - chance) : 1.0;
    return HL_OK;
}

/* ---------------------------------------------------------------- stability */

hl_status hl_cluster_stability(hl_stability *out, const float *distances, const int32_t *labels,
                               int64_t n, int64_t n_groups, int64_t n_trials, uint64_t seed)
{
    hl_random          random = { seed };
    int64_t            n_kept = (int64_t)(TRIAL_SHARE * (double)n);
    HL_FREED int64_t  *order  = NULL; /* (n) shuffled points, of which the first n_kept are kept */
    HL_FREED float    *kept   = NULL; /* (n_kept, n_kept) distances between kept points */
    HL_FREED hl_merge *merges = NULL;
    HL_FREED int32_t  *found  = NULL; /* (2, n_kept) new labels, then the given ones */
    double             sum = 0.0, least = 1.0;

    *out = (hl_stability){ NAN, NAN };
    if (n_kept < n_groups)
        return HL_OK;
    HL_NEED(HL_ALLOC(&order, (size_t)n));
    HL_NEED(HL_ALLOC(&kept, (size_t)n_kept * (size_t)n_kept));
    HL_NEED(HL_ALLOC(&merges, (size_t)n_kept));
    HL_NEED(HL_ALLOC(&found, 2 * (size_t)n_kept));
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t trial = 0; trial < n_trials; trial++) {
        double agreement = NAN;

        for (int64_t i = 0; i < n_kept; i++) {
            int64_t j    = i + hl_random_below(&random, n - i);
            int64_t held = order[i];
            order[i]     = order[j];
            order[j]     = held;
        }
        for (int64_t i = 0; i < n_kept; i++) {
            found[n_kept + i] = labels[order[i]];
            for (int64_t j = 0; j < n_kept; j++)
                kept[i * n_kept + j] = distances[order[i] * n + order[j]];
        }
        HL_NEED(hl_ward(merges, kept, n_kept));
        HL_NEED(hl_cut(found, merges, n_kept, n_groups));
        HL_NEED(hl_adjusted_rand(&agreement, found, found + n_kept, n_kept));
        sum += agreement;
        least = fmin(least, agreement);
    }
    *out = (hl_stability){ sum / (double)n_trials, least };
    return HL_OK;
}

/* -------------------------------------------------------------------- pairs */

/* The Hungarian method with shortest augmenting paths.
 *
 * Rows and columns carry prices such that cost - row_price - column_price is never
 * negative and is 0 for pairs that are matched.  Rows come one at a time.  From a new
 * row the cheapest way over matched pairs to a free column is looked for, as Dijkstra
 * would: `distance` holds the cheapest way found to each column, `from` the column that
 * it comes over.  Then prices move so that the way costs nothing, and the pairs
 * along it change partners. */

typedef struct matching {
    const double *cost;
    int64_t       n_columns;
    double       *row_price;    /* (n_rows) */
    double       *column_price; /* (n_columns) */
    int64_t      *row_of;       /* (n_columns) the row that a column is matched with; -1: free */
    double       *distance;     /* (n_columns) cost of the cheapest path found so far */
    int64_t      *from;         /* (n_columns) the column before it on that path; -1: the path
                                 * starts at the new row */
    bool         *reached;      /* (n_columns) the cheapest path is known */
} matching;

/* Shortens the paths whose last step leaves `row`, which column `via` reached at cost `so_far`. */
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

/* Returns the free column with the cheapest path from the row. */
static int64_t find_free(matching *m, int64_t row)
{
    for (int64_t column = 0; column < m->n_columns; column++) {
        m->distance[column] = INFINITY;
        m->reached[column]  = false;
    }
    relax(m, row, 0.0, -1);
    for (;;) {
        int64_t nearest = -1;

        for (int64_t column = 0; column < m->n_columns; column++) {
            if (!m->reached[column] && (nearest < 0 || m->distance[column] < m->distance[nearest]))
                nearest = column;
        }
        m->reached[nearest] = true;
        if (m->row_of[nearest] < 0)
            return nearest;
        relax(m, m->row_of[nearest], m->distance[nearest], nearest);
    }
}

static void add_row(matching *m, int64_t row)
{
    int64_t end   = find_free(m, row);
    double  total = m->distance[end];

    m->row_price[row] += total;
    for (int64_t column = 0; column < m->n_columns; column++) {
        double spare = total - m->distance[column];

        if (!m->reached[column] || m->row_of[column] < 0)
            continue;
        m->row_price[m->row_of[column]] += spare;
        m->column_price[column] -= spare;
    }
    for (; m->from[end] >= 0; end = m->from[end])
        m->row_of[end] = m->row_of[m->from[end]];
    m->row_of[end] = row;
}

hl_status hl_assign(int64_t *out, const double *cost, int64_t n_rows, int64_t n_columns)
{
    HL_FREED double  *prices  = NULL; /* prices of rows, prices of columns, then distances */
    HL_FREED int64_t *places  = NULL; /* the row of each column, then the column before it on its
                                       * path */
    HL_FREED bool    *reached = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&prices, (size_t)(n_rows + 2 * n_columns)));
    HL_NEED(HL_ALLOC(&places, 2 * (size_t)n_columns));
    HL_NEED(HL_ALLOC(&reached, (size_t)n_columns));
    matching m = { .cost         = cost,
                   .n_columns    = n_columns,
                   .row_price    = prices,
                   .column_price = prices + n_rows,
                   .distance     = prices + n_rows + n_columns,
                   .row_of       = places,
                   .from         = places + n_columns,
                   .reached      = reached };
    for (int64_t column = 0; column < n_columns; column++)
        m.row_of[column] = -1;
    for (int64_t row = 0; row < n_rows; row++)
        add_row(&m, row);
    for (int64_t column = 0; column < n_columns; column++) {
        if (m.row_of[column] >= 0)
            out[m.row_of[column]] = column;
    }
    return HL_OK;
}
