/* maps.c - reads attention maps from a file, checks them and returns their rows.
 *
 * All rows are checked when the file is opened, and measured when they are requested, in double
 * precision. */
#include "measure/maps.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/attention.h"
#include "kernels/row_state.h"

#define SUM_TOLERANCE 1e-3
#define LOWEST_SCORE  (-1e9)
#define LOWEST_F16    (-65504.0)

struct hl_maps {
    hl_maps_layout  layout;
    hl_maps_options options;
    hl_maps_info    info;
    char           *path;
    int             n_threads;
    double         *scratch; /* (n_threads, n_keys) */
    /* Output buffers, which grow with the requests. */
    int64_t  n_room; /* number of sequences that the buffers can hold */
    int64_t *start;
    float   *statistics; /* (HL_ROW_STATISTICS, n, n_heads, n_queries) */
    int64_t *argmax;     /* (n, n_heads, n_queries) */
    float   *pattern;    /* (n, n_heads, n_patterns, n_keys) */
    size_t   pattern_count;
    int64_t *pattern_rows;
    size_t   pattern_rows_count;
};

/* ------------------------------------------------------------- reading a row */

/* A row: the attention of one position to each key. */
typedef struct map_row {
    double *values;   /* (n_keys) probabilities, or scores with -inf for hidden keys */
    int64_t n_keys;   /* number of keys that are not padding */
    int64_t position; /* position of the row */
    bool    scores;
} map_row;

static int64_t start_of(const hl_maps_layout *layout)
{
    return layout->n_keys > layout->n_queries ? layout->n_keys - layout->n_queries : 0;
}

/* Returns the number of keys of a sequence that are not padding. */
static int64_t real_keys(const hl_maps_layout *layout, int64_t sequence)
{
    int64_t n_padding = layout->n_queries - layout->lengths[sequence];
    return layout->n_keys - n_padding;
}

static void hide_scores(double *values, int64_t n_keys, hl_dtype dtype)
{
    double lowest = dtype == HL_DTYPE_F16 ? LOWEST_F16 : LOWEST_SCORE;

    for (int64_t key = 0; key < n_keys; key++) {
        if (values[key] <= lowest)
            values[key] = -INFINITY;
    }
}

/* Reads a row as doubles; all types that maps can have are convertible. */
static map_row read_row(double *values, const hl_maps *maps, int64_t layer, int64_t sequence,
                        int64_t head, int64_t query)
{
    const hl_maps_layout *layout = &maps->layout;
    hl_dtype              dtype  = layout->layers[layer].dtype;
    map_row               row    = { .values   = values,
                                     .n_keys   = real_keys(layout, sequence),
                                     .position = start_of(layout) + query,
                                     .scores   = maps->options.scores };

    (void)hl_dtype_to_f64(values, hl_maps_layout_row(layout, layer, sequence, head, query), dtype,
                          (size_t)row.n_keys);
    if (row.scores)
        hide_scores(values, row.n_keys, dtype);
    return row;
}

/* ----------------------------------------------------------- measuring a row */

/* A probability p counts as a score of log p.  The complete row is known, so the sums of
 * row_state.h are taken in two passes, the maximum first.  As everywhere, the keys other than the
 * first have their own state, which the first key joins last. */

typedef struct row_result {
    double  lse;
    double  entropy;
    double  renyi2;
    double  varentropy;
    double  entropy_nosink;
    double  peak;
    double  self;
    double  previous;
    double  first;
    int64_t argmax;
} row_result;

static double score_of(const map_row *row, int64_t key)
{
    double value = row->values[key];

    return row->scores ? value : log(value); /* log 0 = -inf, which hides the key */
}

/* Sums up keys [begin, end); *argmax is the first of the largest, -1 if there is none. */
static hl_row_state sum_keys(int64_t *argmax, const map_row *row, int64_t begin, int64_t end)
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
            continue; /* skips hidden keys, since 0 * -inf is NaN */
        state.sum += e;
        state.dot += e * x;
        state.collision += e * e;
        state.spread += e * x * x;
    }
    return state;
}

static double probability_at(const map_row *row, int64_t key)
{
    return key >= 0 && key < row->n_keys ? row->values[key] : 0.0;
}

/* Turns the row into probabilities that sum to 1. */
static void normalize(map_row *row, double lse)
{
    double scale = exp(-lse); /* +inf for a row that sees no key */

    for (int64_t key = 0; key < row->n_keys; key++) {
        if (lse == -INFINITY)
            row->values[key] = 0.0;
        else
            row->values[key] = row->scores ? exp(row->values[key] - lse) : scale * row->values[key];
    }
}

/* Returns the lse to report: 0 for probabilities, which have been divided by their sum. */
static double reported_lse(const map_row *row, double lse)
{
    return row->scores || isnan(lse) || lse == -INFINITY ? lse : 0.0;
}

/* Computes the metrics as for any row (row_state.h), and turns the row itself into
 * probabilities. */
static row_result measure_row(map_row *row)
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
    normalize(row, lse);
    return (row_result){
        .lse            = reported_lse(row, lse),
        .entropy        = hl_row_state_entropy(all),
        .renyi2         = hl_row_state_renyi2(all),
        .varentropy     = hl_row_state_varentropy(all),
        .entropy_nosink = hl_row_state_entropy(rest),
        .peak           = argmax >= 0 ? row->values[argmax] : all.sum,
        .self           = probability_at(row, row->position),
        .previous       = probability_at(row, row->position - 1),
        .first          = probability_at(row, 0),
        .argmax         = argmax,
    };
}

/* --------------------------------------------------------------------- checking */

typedef enum row_problem {
    ROW_FINE = 0,
    ROW_NEGATIVE,
    ROW_SUM,
} row_problem;

/* Returns what is wrong with a row of probabilities; *seen is the number that shows it. */
static row_problem check_row(double *seen, const map_row *row)
{
    double sum = 0.0;

    for (int64_t key = 0; key < row->n_keys; key++) {
        *seen = row->values[key];
        if (*seen < 0.0)
            return ROW_NEGATIVE;
        sum += *seen;
    }
    *seen = sum;
    if (isnan(sum) || sum == 0.0 || fabs(sum - 1.0) <= SUM_TOLERANCE)
        return ROW_FINE;
    return ROW_SUM;
}

static bool looks_ahead(const map_row *row)
{
    double hidden = row->scores ? -INFINITY : 0.0;

    for (int64_t key = row->position + 1; key < row->n_keys; key++) {
        if (!(row->values[key] == hidden))
            return true;
    }
    return false;
}

typedef struct row_place {
    int64_t layer;
    int64_t sequence;
    int64_t head;
    int64_t query;
} row_place;

/* Returns the place with number `index` among the heads of all sequences of a layer. */
static row_place place_of(const hl_maps *maps, int64_t layer, int64_t index)
{
    int64_t n_heads = maps->layout.layers[layer].n_heads;
    return (row_place){ layer, index / n_heads, index % n_heads, 0 };
}

/* Checks the rows of one head: whether any sees later keys, and the first invalid one. */
static row_problem check_head(bool *ahead, double *seen, row_place *place, const hl_maps *maps,
                              double *scratch)
{
    int64_t n_rows = maps->layout.lengths[place->sequence];

    for (place->query = 0; place->query < n_rows; place->query++) {
        map_row row =
            read_row(scratch, maps, place->layer, place->sequence, place->head, place->query);
        *ahead              = *ahead || looks_ahead(&row);
        row_problem problem = row.scores ? ROW_FINE : check_row(seen, &row);
        if (problem != ROW_FINE)
            return problem;
    }
    return ROW_FINE;
}

static hl_status complain(const hl_maps *maps, const row_place *place, row_problem problem,
                          double seen)
{
    const char *what   = problem == ROW_NEGATIVE ? "has an entry of" : "sums to";
    const char *wanted = problem == ROW_NEGATIVE ? "none below 0" : "1 within 0.001";

    return hl_fail(HL_BAD_INPUT,
                   "%s: layer %lld, sequence %lld, head %lld, row %lld %s %g, wanted %s (are these "
                   "scores?)",
                   maps->path, (long long)place->layer, (long long)place->sequence,
                   (long long)place->head, (long long)place->query, what, seen, wanted);
}

/* The argument of the threads that check the maps of a layer. */
typedef struct check_job {
    const hl_maps   *maps;
    int64_t          layer;
    _Atomic(int64_t) n_good; /* number of maps before the first invalid one found so far */
    _Atomic(bool)    ahead;
} check_job;

static void check_some(void *context, int64_t first, int64_t end, int member)
{
    check_job     *job  = context;
    const hl_maps *maps = job->maps;
    bool           any  = false;

    for (int64_t i = first; i < end; i++) {
        double    ignored = 0.0;
        row_place place   = place_of(maps, job->layer, i);
        double   *scratch = maps->scratch + member * maps->layout.n_keys;
        int64_t   n_good  = atomic_load(&job->n_good);

        if (check_head(&any, &ignored, &place, maps, scratch) == ROW_FINE)
            continue;
        while (i < n_good && !atomic_compare_exchange_weak(&job->n_good, &n_good, i))
            ;
    }
    if (any)
        atomic_store(&job->ahead, true);
}

/* Checks all rows of a layer.  The error names the first invalid head, in any order of threads. */
static hl_status check_layer(bool *ahead, const hl_maps *maps, int64_t layer)
{
    int64_t     n_maps  = maps->layout.n_batch * maps->layout.layers[layer].n_heads;
    check_job   job     = { maps, layer, n_maps, false };
    bool        any     = false;
    row_problem problem = ROW_FINE;
    double      seen    = 0.0;

    hl_parallel(maps->n_threads, n_maps, 1, check_some, &job);
    *ahead = *ahead || atomic_load(&job.ahead);
    if (atomic_load(&job.n_good) == n_maps)
        return HL_OK;
    row_place place = place_of(maps, layer, atomic_load(&job.n_good));
    problem         = check_head(&any, &seen, &place, maps, maps->scratch);
    return complain(maps, &place, problem, seen);
}

static hl_status decide_mask(hl_maps *maps, bool ahead)
{
    bool square = maps->layout.n_queries <= maps->layout.n_keys;

    maps->info.is_causal = !ahead && square && maps->options.mask != HL_MAPS_MASK_FULL;
    if (maps->options.mask == HL_MAPS_MASK_CAUSAL && !maps->info.is_causal)
        return hl_fail(HL_BAD_INPUT,
                       "%s: not causal: a row attends to a key after its position; use --mask full",
                       maps->path);
    return HL_OK;
}

/* Hashes the bytes of one sequence in every layer, including padding. */
uint64_t hl_maps_hash_of(const hl_maps *maps, int64_t sequence)
{
    const hl_maps_layout *layout = &maps->layout;
    hl_hasher             hasher;

    hl_hash_start(&hasher, maps->options.scores);
    hl_hash_add_u64(&hasher, (uint64_t)layout->lengths[sequence]);
    for (int64_t i = 0; i < layout->n_layers; i++) {
        const hl_maps_layer *layer  = &layout->layers[i];
        size_t               n_rows = (size_t)(layer->n_heads * layout->n_queries);
        hl_hash_add_u64(&hasher, (uint64_t)layer->n_heads);
        hl_hash_add_u64(&hasher, (uint64_t)layer->dtype);
        hl_hash_add(&hasher, hl_maps_layout_row(layout, i, sequence, 0, 0),
                    n_rows * (size_t)layout->n_keys * (hl_dtype_bits(layer->dtype) / 8));
    }
    return hl_hash_end(&hasher);
}

/* Returns the sum of the hashes of the sequences, as for a corpus. */
static uint64_t hash_maps(const hl_maps *maps)
{
    uint64_t hash = 0;

    for (int64_t i = 0; i < maps->layout.n_batch; i++)
        hash += hl_maps_hash_of(maps, i);
    return hash;
}

/* ---------------------------------------------------------------------- opening */

static hl_status set_up(hl_maps *maps, const char *path, const hl_maps_options *options)
{
    bool ahead = false;

    maps->options   = options != NULL ? *options : (hl_maps_options){ 0 };
    maps->n_threads = hl_threads(maps->options.n_threads);
    HL_NEED(hl_strdup(&maps->path, path));
    HL_NEED(hl_maps_layout_open(&maps->layout, path, maps->options.scores));
    HL_NEED(HL_ALLOC(&maps->scratch, (size_t)maps->n_threads * (size_t)maps->layout.n_keys));
    for (int64_t i = 0; i < maps->layout.n_layers; i++)
        HL_NEED(check_layer(&ahead, maps, i));
    maps->info = (hl_maps_info){ .n_layers  = maps->layout.n_layers,
                                 .n_batch   = maps->layout.n_batch,
                                 .n_heads   = maps->layout.n_heads,
                                 .n_queries = maps->layout.n_queries,
                                 .n_keys    = maps->layout.n_keys,
                                 .hash      = hash_maps(maps) };
    return decide_mask(maps, ahead);
}

hl_status hl_maps_open(hl_maps **out, const char *path, const hl_maps_options *options)
{
    HL_CLOSED(hl_maps_close) hl_maps *maps = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&maps, 1));
    HL_NEED(set_up(maps, path, options));
    *out = hl_taken(&maps);
    return HL_OK;
}

void hl_maps_close(hl_maps *maps)
{
    if (maps == NULL)
        return;
    hl_maps_layout_close(&maps->layout);
    hl_free(maps->path);
    hl_free(maps->scratch);
    hl_free(maps->start);
    hl_free(maps->statistics);
    hl_free(maps->argmax);
    hl_free(maps->pattern);
    hl_free(maps->pattern_rows);
    hl_free(maps);
}

const hl_maps_info *hl_maps_get_info(const hl_maps *maps)
{
    return &maps->info;
}

int64_t hl_maps_heads_of(const hl_maps *maps, int64_t layer)
{
    return maps->layout.layers[layer].n_heads;
}

int64_t hl_maps_length(const hl_maps *maps, int64_t sequence)
{
    return maps->layout.lengths[sequence];
}

/* ------------------------------------------------------------------- handing out */

/* Makes room for n sequences; old contents are lost. */
static hl_status make_room(hl_maps *maps, int64_t n)
{
    size_t n_rows = (size_t)(n * maps->info.n_heads * maps->info.n_queries);

    if (n <= maps->n_room)
        return HL_OK;
    hl_free(maps->start);
    hl_free(maps->statistics);
    hl_free(maps->argmax);
    maps->start      = NULL;
    maps->statistics = NULL;
    maps->argmax     = NULL;
    maps->n_room     = 0;
    HL_NEED(HL_ALLOC(&maps->start, (size_t)n));
    HL_NEED(HL_ALLOC(&maps->statistics, HL_ROW_STATISTICS * n_rows));
    HL_NEED(HL_ALLOC(&maps->argmax, n_rows));
    for (int64_t i = 0; i < n; i++)
        maps->start[i] = start_of(&maps->layout);
    maps->n_room = n;
    return HL_OK;
}

/* Chooses the rows that a tap wants as patterns. */
static hl_status choose_patterns(int64_t *n_patterns, hl_maps *maps, int64_t n, const hl_tap *tap)
{
    int64_t start  = start_of(&maps->layout);
    bool    wanted = (tap->wants & HL_WANT_PATTERN) != 0;
    size_t  n_rows = wanted ? (size_t)tap->n_pattern_positions : 0;
    size_t  count  = n_rows * (size_t)(n * maps->info.n_heads * maps->info.n_keys);

    *n_patterns = 0;
    if (wanted) {
        HL_NEED(HL_GROW(&maps->pattern_rows, &maps->pattern_rows_count, 0, n_rows));
        HL_NEED(HL_GROW(&maps->pattern, &maps->pattern_count, 0, count));
    }
    for (size_t i = 0; i < n_rows; i++) {
        int64_t row = tap->pattern_positions[i] - start;
        if (row >= 0 && row < maps->info.n_queries)
            maps->pattern_rows[(*n_patterns)++] = row;
    }
    return HL_OK;
}

/* Returns where the statistics of a layer are stored. */
static hl_attention_result layout_result(const hl_maps *maps, int64_t n_rows)
{
    hl_attention_result result = hl_attention_result_in(maps->statistics, n_rows);

    result.argmax = maps->argmax;
    return result;
}

static void put_row(hl_attention_result *out, int64_t at, const row_result *row)
{
    out->lse[at]            = (float)row->lse;
    out->entropy[at]        = (float)row->entropy;
    out->renyi2[at]         = (float)row->renyi2;
    out->varentropy[at]     = (float)row->varentropy;
    out->entropy_nosink[at] = (float)row->entropy_nosink;
    out->peak[at]           = (float)row->peak;
    out->self[at]           = (float)row->self;
    out->previous[at]       = (float)row->previous;
    out->first[at]          = (float)row->first;
    out->argmax[at]         = row->argmax;
    out->max_logit[at]      = NAN; /* probabilities do not tell it */
}

/* Copies a row up to its padding. */
static void put_pattern(float *out, const map_row *row, int64_t n_keys)
{
    for (int64_t key = 0; key < n_keys; key++)
        out[key] = key < row->n_keys ? (float)row->values[key] : 0.0f;
}

/* Measures all rows of one head of one sequence. */
static void measure_head(hl_attention_result *result, const hl_maps *maps, row_place place,
                         int64_t index, int64_t n_patterns, double *scratch)
{
    int64_t n_queries = maps->info.n_queries;
    int64_t n_keys    = maps->info.n_keys;
    int64_t pattern   = 0; /* index of the next wanted row; they are in increasing order */

    for (place.query = 0; place.query < n_queries; place.query++) {
        map_row    row   = { .values = scratch };
        row_result found = { 0 };
        if (place.query < maps->layout.lengths[place.sequence]) {
            row   = read_row(scratch, maps, place.layer, place.sequence, place.head, place.query);
            found = measure_row(&row);
        }
        put_row(result, index * n_queries + place.query, &found);
        if (pattern < n_patterns && maps->pattern_rows[pattern] == place.query) {
            put_pattern(maps->pattern + (index * n_patterns + pattern) * n_keys, &row, n_keys);
            pattern++;
        }
    }
}

/* The argument of the threads that measure maps. */
typedef struct map_job {
    hl_maps             *maps;
    hl_attention_result *result;
    int64_t              layer;
    int64_t              sequence; /* sequence of the first map */
    int64_t              n_patterns;
} map_job;

static void measure_some(void *context, int64_t first, int64_t end, int member)
{
    const map_job *job = context;

    for (int64_t i = first; i < end; i++) {
        row_place place = place_of(job->maps, job->layer, i);
        place.sequence += job->sequence;
        measure_head(job->result, job->maps, place, i, job->n_patterns,
                     job->maps->scratch + member * job->maps->info.n_keys);
    }
}

static hl_status feed_layer(hl_maps *maps, int64_t layer, int64_t first, int64_t n,
                            int64_t n_patterns, const hl_tap *tap)
{
    int64_t             n_heads = maps->layout.layers[layer].n_heads;
    hl_attention_result result  = layout_result(maps, n * n_heads * maps->info.n_queries);

    hl_parallel(maps->n_threads, n * n_heads, 1, measure_some,
                &(map_job){ maps, &result, layer, first, n_patterns });
    hl_layer_rows rows = { .layer      = layer,
                           .n_batch    = n,
                           .n_rows     = maps->info.n_queries,
                           .n_heads    = n_heads,
                           .n_kv_heads = n_heads,
                           .start      = maps->start,
                           .lengths    = maps->layout.lengths + first,
                           .rows       = &result };
    if ((tap->wants & HL_WANT_PATTERN) != 0) {
        rows.pattern      = maps->pattern;
        rows.pattern_rows = maps->pattern_rows;
        rows.n_patterns   = n_patterns;
        rows.n_keys       = maps->info.n_keys;
    }
    return tap->layer(tap->context, &rows);
}

hl_status hl_maps_feed(hl_maps *maps, int64_t first, int64_t n, const hl_tap *tap)
{
    int64_t n_patterns = 0;

    if (first < 0 || n < 1 || first > maps->info.n_batch - n)
        return hl_fail(HL_BAD_ARGUMENT, "maps: sequences %lld to %lld of %lld", (long long)first,
                       (long long)(first + n - 1), (long long)maps->info.n_batch);
    if (tap == NULL || tap->layer == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "maps: the tap has no function for layers");
    HL_NEED(make_room(maps, n));
    HL_NEED(choose_patterns(&n_patterns, maps, n, tap));
    for (int64_t layer = 0; layer < maps->info.n_layers; layer++)
        HL_NEED(feed_layer(maps, layer, first, n, n_patterns, tap));
    return HL_OK;
}
