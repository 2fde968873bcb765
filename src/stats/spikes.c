/* spikes.c - finds rows whose attention is suddenly more diffuse than before; headlight/trace.h has
 * the definition.
 *
 * The state is a center and a spread for every value, and for the mean over values.  The spread is
 * tracked as the mean distance from the center, which is sigma * sqrt(2 / pi) for a normal
 * distribution.  A ring of earlier states allows scores to be undone. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/trace.h"

#define SIGMA_OF_MAD  1.4826
#define SIGMA_OF_MEAN 1.2533141373155003 /* sqrt(pi / 2) */
#define LEAST_SIGMA   0.01
#define CLIP          3.0
#define STEP          (1.0 / 64.0)
#define TRIMMED       0.1
#define MAX_BACK      4096

typedef struct measure {
    double center;
    double sigma;
} measure;

struct hl_spikes {
    int64_t  n_values;
    int64_t  n_back;
    bool     is_settled;
    int64_t  n_learned;
    float   *learned; /* (HL_SPIKE_MAX_ROWS, n_values) a ring of learned rows */
    measure *state;   /* (n_values + 1) states of the values, then of the mean */
    measure *saved;   /* (n_back, n_values + 1) a ring of the states before each score */
    int64_t  n_saved; /* number of states in the ring */
    int64_t  next;    /* place of the next state in the ring */
    double  *z;       /* (n_values) z of the current row; NaN for missing heads */
    double  *work;    /* (n_values, at least HL_SPIKE_MAX_ROWS) */
};

HL_CLOSES(hl_spikes_free, hl_spikes)

hl_status hl_spikes_new(hl_spikes **out, int64_t n_values, int64_t n_back)
{
    HL_CLOSED(hl_spikes_free) hl_spikes *spikes = NULL;

    *out = NULL;
    if (n_values < 1 || n_back < 0 || n_back > MAX_BACK)
        return hl_fail(HL_BAD_ARGUMENT,
                       "spikes: %lld values and %lld steps back, wanted 1 or more "
                       "and 0 to %d",
                       (long long)n_values, (long long)n_back, MAX_BACK);
    size_t n = (size_t)n_values;
    HL_NEED(HL_ALLOC_ZEROED(&spikes, 1));
    spikes->n_values = n_values;
    spikes->n_back   = n_back;
    HL_NEED(hl_alloc((void **)&spikes->learned, HL_SPIKE_MAX_ROWS, n * sizeof(float)));
    HL_NEED(HL_ALLOC(&spikes->state, n + 1));
    HL_NEED(hl_alloc((void **)&spikes->saved, (size_t)n_back, (n + 1) * sizeof *spikes->saved));
    HL_NEED(HL_ALLOC(&spikes->z, n));
    HL_NEED(HL_ALLOC(&spikes->work, n > HL_SPIKE_MAX_ROWS ? n : HL_SPIKE_MAX_ROWS));
    *out = hl_taken(&spikes);
    return HL_OK;
}

void hl_spikes_free(hl_spikes *spikes)
{
    if (spikes == NULL)
        return;
    hl_free(spikes->learned);
    hl_free(spikes->state);
    hl_free(spikes->saved);
    hl_free(spikes->z);
    hl_free(spikes->work);
    hl_free(spikes);
}

/* ------------------------------------------------------------------- learning */

void hl_spikes_learn(hl_spikes *spikes, const float *row)
{
    int64_t at = spikes->n_learned++ % HL_SPIKE_MAX_ROWS;

    memcpy(spikes->learned + at * spikes->n_values, row, (size_t)spikes->n_values * sizeof *row);
}

/* Moves the values of [low, high) that are below the pivot (with or_equal, not above it) to the
 * front; returns where they end.  It has no branch on a value, since half of them would be
 * mispredicted. */
static inline int64_t gather(double *values, int64_t low, int64_t high, double pivot, bool or_equal)
{
    int64_t end = low;

    for (int64_t i = low; i < high; i++) {
        double value = values[i];
        values[i]    = values[end];
        values[end]  = value;
        end += or_equal ? value <= pivot : value < pivot;
    }
    return end;
}

/* Puts the value of rank n into its place, with smaller or equal values before it; returns it.
 * Works like quicksort, but continues with only one of the two parts. */
static double select_rank(double *values, int64_t count, int64_t n)
{
    int64_t low = 0, high = count;

    for (;;) {
        double  pivot = values[low + (high - low) / 2];
        int64_t end   = gather(values, low, high, pivot, false);

        if (n < end)
            high = end;
        else if (end > low)
            low = end;
        else /* the pivot is the smallest value: those equal to it are in place */
            low = gather(values, low, high, pivot, true);
        if (n < low)
            return pivot;
    }
}

static double largest(const double *values, int64_t count)
{
    double most = values[0];

    for (int64_t i = 1; i < count; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

/* Returns the median; reorders the values. */
static double median(double *values, int64_t count)
{
    double upper = select_rank(values, count, count / 2);

    return count % 2 == 0 ? 0.5 * (largest(values, count / 2) + upper) : upper;
}

/* Returns median and spread of values without NaN; reorders the values. */
static measure measure_values(double *values, int64_t count)
{
    measure out = { NAN, NAN };

    if (count == 0)
        return out;
    out.center = median(values, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = fabs(values[i] - out.center);
    out.sigma = fmax(SIGMA_OF_MAD * median(values, count), LEAST_SIGMA);
    return out;
}

static measure measure_learned(const hl_spikes *spikes, int64_t n_rows, int64_t value)
{
    int64_t count = 0;

    for (int64_t row = 0; row < n_rows; row++) {
        double x = (double)spikes->learned[row * spikes->n_values + value];
        if (!isnan(x))
            spikes->work[count++] = x;
    }
    return measure_values(spikes->work, count);
}

/* Returns the mean without the lowest and the highest tenth, rounded down. */
static double trimmed_mean(double *values, int64_t count)
{
    int64_t cut = (int64_t)(TRIMMED * (double)count);
    double  sum = 0.0;

    if (count == 0)
        return NAN;
    (void)select_rank(values, count, cut);
    (void)select_rank(values + cut, count - cut, count - 2 * cut - 1);
    for (int64_t i = cut; i < count - cut; i++)
        sum += values[i];
    return sum / (double)(count - 2 * cut);
}

/* Computes the z of a row; returns their trimmed mean. */
static double find_z(hl_spikes *spikes, const float *row)
{
    double        *z     = spikes->z;
    const measure *state = spikes->state;
    int64_t        count = 0;

    for (int64_t value = 0; value < spikes->n_values; value++)
        z[value] = ((double)row[value] - state[value].center) / state[value].sigma;
    for (int64_t value = 0; value < spikes->n_values; value++) {
        if (!isnan(z[value]))
            spikes->work[count++] = z[value];
    }
    return trimmed_mean(spikes->work, count);
}

static void settle(hl_spikes *spikes)
{
    int64_t n_rows = spikes->n_learned < HL_SPIKE_MAX_ROWS ? spikes->n_learned : HL_SPIKE_MAX_ROWS;
    int64_t count  = 0;
    double  means[HL_SPIKE_MAX_ROWS];

    for (int64_t value = 0; value < spikes->n_values; value++)
        spikes->state[value] = measure_learned(spikes, n_rows, value);
    for (int64_t row = 0; row < n_rows; row++) {
        double mean = find_z(spikes, spikes->learned + row * spikes->n_values);
        if (!isnan(mean))
            means[count++] = mean;
    }
    spikes->state[spikes->n_values] = measure_values(means, count);
    spikes->is_settled              = true;
}

/* -------------------------------------------------------------------- scoring */

static void save(hl_spikes *spikes)
{
    if (spikes->n_back == 0)
        return;
    memcpy(spikes->saved + spikes->next * (spikes->n_values + 1), spikes->state,
           ((size_t)spikes->n_values + 1) * sizeof *spikes->state);
    spikes->next    = (spikes->next + 1) % spikes->n_back;
    spikes->n_saved = spikes->n_saved < spikes->n_back ? spikes->n_saved + 1 : spikes->n_back;
}

void hl_spikes_rewind(hl_spikes *spikes, int64_t count)
{
    count = count < spikes->n_saved ? count : spikes->n_saved;
    if (count < 1)
        return;
    spikes->next = (spikes->next + spikes->n_back - count) % spikes->n_back;
    spikes->n_saved -= count;
    memcpy(spikes->state, spikes->saved + spikes->next * (spikes->n_values + 1),
           ((size_t)spikes->n_values + 1) * sizeof *spikes->state);
}

/* Returns the state after a value with this z, which is not NaN. */
static measure follow(measure before, double z)
{
    double  near  = before.center + before.sigma * (z < -CLIP ? -CLIP : z > CLIP ? CLIP : z);
    double  away  = SIGMA_OF_MEAN * fabs(near - before.center);
    measure after = { before.center + STEP * (near - before.center),
                      before.sigma + STEP * (away - before.sigma) };

    after.sigma = after.sigma > LEAST_SIGMA ? after.sigma : LEAST_SIGMA;
    return after;
}

double hl_spikes_score(hl_spikes *spikes, const float *row)
{
    measure *of_mean = &spikes->state[spikes->n_values];

    if (!spikes->is_settled && spikes->n_learned < HL_SPIKE_MIN_ROWS) {
        hl_spikes_learn(spikes, row);
        return NAN;
    }
    if (!spikes->is_settled)
        settle(spikes);
    save(spikes);
    double score = (find_z(spikes, row) - of_mean->center) / of_mean->sigma;
    for (int64_t value = 0; value < spikes->n_values; value++) {
        if (!isnan(spikes->z[value]))
            spikes->state[value] = follow(spikes->state[value], spikes->z[value]);
    }
    if (!isnan(score))
        *of_mean = follow(*of_mean, score);
    return score;
}
