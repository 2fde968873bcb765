#include "kernels/pattern_sums.h"

#include <math.h>
#include <string.h>

enum { SORTED = 16 };

/* ----------------------------------------------------------------- k90 of a row */

static void swap(float *a, float *b)
{
    float kept = *a;
    *a         = *b;
    *b         = kept;
}

static void sort_falling(float *values, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        for (int64_t j = i; j > 0 && values[j] > values[j - 1]; j--)
            swap(&values[j], &values[j - 1]);
    }
}

/* Counts how many of the largest values add up to `wanted`; reorders them.  It works like
 * quickselect: only one of the two halves is processed further. */
static int64_t largest_for(float *values, int64_t n, double wanted)
{
    int64_t first = 0;
    int64_t last  = n;

    while (last - first > SORTED) {
        float   pivot = values[first + (last - first) / 2];
        int64_t above = first; /* values before this index are larger than the pivot */
        int64_t below = last;  /* values from this index on are smaller */
        double  sum   = 0.0;

        for (int64_t i = first; i < below;) {
            if (values[i] > pivot) {
                sum += (double)values[i];
                swap(&values[above++], &values[i++]);
            } else if (values[i] < pivot) {
                swap(&values[--below], &values[i]);
            } else {
                i++;
            }
        }
        if (sum >= wanted) {
            last = above;
            continue;
        }
        wanted -= sum + (double)(below - above) * (double)pivot;
        if (wanted <= 0.0) /* the sum is reached within the values equal to the pivot */
            return below - (int64_t)floor(-wanted / (double)pivot);
        first = below;
    }
    sort_falling(values + first, last - first);
    while (first < last && wanted > 0.0)
        wanted -= (double)values[first++];
    return first;
}

/* Values of a row grouped by size.  The bits of a float from 0 to 1 rise with its value; the size
 * is its exponent and the two highest bits of the fraction. */
enum { N_SIZES = 512, SIZE_SHIFT = 21 };

typedef struct size_table {
    int32_t count[N_SIZES];
    double  sum[N_SIZES];
} size_table;

static uint32_t size_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits >>= SIZE_SHIFT;
    return bits < N_SIZES ? bits : N_SIZES - 1;
}

static void add_size(size_table *table, float value)
{
    uint32_t size = size_of(value);

    table->count[size]++;
    table->sum[size] += (double)value;
}

/* Counts how many of the largest values add up to `wanted`.  The table gives the size at which the
 * sum is reached; only values of that size are looked at again. */
static int64_t largest_of_sizes(const size_table *table, const float *values, int64_t n,
                                double wanted, float *scratch)
{
    int64_t  n_larger = 0;
    int64_t  n_equal  = 0;
    uint32_t size     = N_SIZES - 1;

    for (; size > 0 && table->sum[size] < wanted; size--) {
        wanted -= table->sum[size];
        n_larger += table->count[size];
    }
    for (int64_t i = 0; i < n; i++) {
        scratch[n_equal] = values[i];
        n_equal += size_of(values[i]) == size;
    }
    return n_larger + largest_for(scratch, n_equal, wanted);
}

/* ------------------------------------------------------------------ sums of a row */

/* The sums are in double: without key 0, a row may have almost no mass. */
static void add_up(hl_pattern_sums *out, const float *p, int64_t n)
{
    double sums[2][4] = { { 0 } };

    for (int64_t i = 0; i < n / 4 * 4; i += 4) {
        for (int j = 0; j < 4; j++) {
            double value = (double)p[i + j];
            sums[0][j] += value;
            sums[1][j] += value * value;
        }
    }
    for (int64_t i = n / 4 * 4; i < n; i++) {
        sums[0][0] += (double)p[i];
        sums[1][0] += (double)p[i] * (double)p[i];
    }
    out->total   = (sums[0][0] + sums[0][1]) + (sums[0][2] + sums[0][3]);
    out->squares = (sums[1][0] + sums[1][1]) + (sums[1][2] + sums[1][3]);
}

/* Finds the largest value in eight parts, so that they vectorize, then its first index. */
static int64_t find_top(const float *p, int64_t begin, int64_t end)
{
    enum { PARTS = 8 };
    float   most[PARTS] = { 0 };
    int64_t key         = begin;
    int64_t top         = begin;

    for (; key + PARTS <= end; key += PARTS) {
        for (int part = 0; part < PARTS; part++)
            most[part] = p[key + part] > most[part] ? p[key + part] : most[part];
    }
    for (; key < end; key++)
        most[0] = fmaxf(most[0], p[key]);
    for (int part = 1; part < PARTS; part++)
        most[0] = fmaxf(most[0], most[part]);
    while (top < end - 1 && p[top] != most[0])
        top++;
    return top;
}

static int32_t count_edges(const float *p, int64_t begin, int64_t end, double scale)
{
    float   edge    = (float)(HL_EDGE / scale);
    int32_t n_edges = 0;

    for (int64_t key = begin; key < end; key++)
        n_edges += p[key] > edge;
    return n_edges;
}

static void look_near(hl_pattern_sums *out, const float *p, const hl_pattern_place *place)
{
    for (int i = 0; i <= 2 * HL_BAND; i++) {
        int64_t key     = place->position - HL_BAND + i;
        out->near_by[i] = hl_visible_has(place->keys, key) ? p[key] : 0.0f;
    }
}

/* Counts that need the total first, without key 0 and then with it. */
static void count_keys(hl_pattern_sums *out, const float *p, const hl_pattern_place *place,
                       float *scratch)
{
    int64_t    first = hl_visible_from(place->keys, 0);
    int64_t    begin = first == 0 ? 1 : first;
    int64_t    end   = place->keys.end;
    double     total = out->total;
    size_table sizes;

    memset(&sizes, 0, sizeof sizes);
    for (int64_t key = begin; key < end; key++)
        add_size(&sizes, p[key]);
    out->n_edges[1] = count_edges(p, begin, end, 1.0 / total);
    out->k90[1] =
        (int32_t)largest_of_sizes(&sizes, p + begin, end - begin, HL_KEPT_SHARE * total, scratch);
    if (first == 0) {
        add_size(&sizes, p[0]);
        total += (double)p[0];
    }
    out->n_edges[0] = count_edges(p, first, end, 1.0);
    out->k90[0] =
        (int32_t)largest_of_sizes(&sizes, p + first, end - first, HL_KEPT_SHARE * total, scratch);
}

void hl_pattern_sum(hl_pattern_sums *out, const float *p, const hl_pattern_place *place,
                    float *scratch)
{
    int64_t first = hl_visible_from(place->keys, 0);
    int64_t begin = first == 0 ? 1 : first;
    int64_t end   = place->keys.end;

    *out = (hl_pattern_sums){ .first = first == 0 ? p[0] : 0.0f };
    add_up(out, p + begin, end - begin); /* hidden keys between them have weight 0 */
    if (!isfinite(out->total + (double)out->first))
        return;
    out->top  = (int32_t)find_top(p, begin, end);
    out->peak = p[out->top];
    look_near(out, p, place);
    count_keys(out, p, place, scratch);
}
