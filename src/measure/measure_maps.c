/* measure_maps.c - a profile of attention that another program computed.
 *
 * Without a model there are only rows: their statistics and sampled complete rows are counted,
 * while outputs of heads, block influence, loss and probes are not measured.  All positions have
 * one token type. Each sequence goes through alone, so that its sampled rows depend on its own
 * content only. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/maps.h"
#include "measure/measure.h"

enum { SAMPLED_ROWS = 16 /* number of complete rows per sequence */ };

typedef struct map_measuring {
    hl_maps        *maps;
    hl_profile     *profile;
    hl_profile_mask mask;
    uint64_t        seed;
    int32_t         n_threads;
    int64_t         context; /* number of positions: queries, and keys before them */
    int64_t         start;   /* position of the first query */
    uint8_t        *types;   /* (context) all 0 */
} map_measuring;

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    map_measuring *m = context;

    return hl_profile_layer(m->profile, rows, &m->mask);
}

static hl_status measure_sequence(map_measuring *m, int64_t sequence)
{
    uint64_t         hash    = hl_maps_hash_of(m->maps, sequence);
    int64_t          length  = m->start + hl_maps_length(m->maps, sequence);
    int64_t          nothing = 0;
    hl_profile_batch batch   = { .n_batch   = 1,
                                 .lengths   = &length,
                                 .first_row = &m->start,
                                 .hashes    = &hash,
                                 .types     = m->types,
                                 .context   = m->context,
                                 .documents = &sequence,
                                 .starts    = &nothing,
                                 .n_threads = m->n_threads };
    int64_t          n_rows  = length - m->start;
    int64_t          positions[SAMPLED_ROWS];
    hl_tap           tap = { .context             = m,
                             .layer               = watch_layer,
                             .wants               = HL_WANT_PATTERN,
                             .pattern_positions   = positions,
                             .n_pattern_positions = n_rows < SAMPLED_ROWS ? n_rows : SAMPLED_ROWS };

    if (n_rows == 0)
        return HL_OK; /* the whole sequence is padding */
    hl_measure_draw(positions, tap.n_pattern_positions, m->start, length,
                    hl_hash_pair(m->seed, hash));
    HL_NEED(hl_profile_begin(m->profile, &batch));
    HL_NEED(hl_maps_feed(m->maps, sequence, 1, &tap));
    return hl_profile_end(m->profile);
}

/* ------------------------------------------------------------------------- set-up */

static hl_status make_profile(map_measuring *m)
{
    static const char *const types[] = { "prompt" };
    const hl_maps_info      *info    = hl_maps_get_info(m->maps);
    int64_t                  heads[HL_PROFILE_MAX_LAYERS];

    if (info->n_layers > HL_PROFILE_MAX_LAYERS)
        return hl_fail(HL_LIMIT, "%lld layers, at most %d", (long long)info->n_layers,
                       HL_PROFILE_MAX_LAYERS);
    for (int64_t layer = 0; layer < info->n_layers; layer++)
        heads[layer] = hl_maps_heads_of(m->maps, layer);
    hl_profile_shape shape = { info->n_layers, heads, m->context, 1, types };
    HL_NEED(hl_profile_new(&m->profile, &shape));
    HL_NEED(hl_profile_set(m->profile, "model", "none"));
    HL_NEED(hl_profile_set(m->profile, "family", "maps"));
    HL_NEED(hl_profile_set(m->profile, "version", hl_version()));
    HL_NEED(hl_profile_set(m->profile, "mask", info->is_causal ? "causal" : "full"));
    HL_NEED(hl_profile_set_int(m->profile, "context", m->context));
    HL_NEED(hl_profile_set_int(m->profile, "seed", (int64_t)m->seed));
    return hl_profile_set_int(m->profile, "samples", SAMPLED_ROWS);
}

static hl_status set_up(map_measuring *m, const char *path, const hl_maps_options *options)
{
    HL_NEED(hl_maps_open(&m->maps, path, options));
    const hl_maps_info *info = hl_maps_get_info(m->maps);
    if (info->n_queries > info->n_keys)
        return hl_fail(HL_UNSUPPORTED, "%s: %lld queries of %lld keys, wanted no more than keys",
                       path, (long long)info->n_queries, (long long)info->n_keys);
    m->mask.is_causal = info->is_causal;
    m->context        = info->n_keys;
    m->start          = info->n_keys - info->n_queries;
    HL_NEED(HL_ALLOC_ZEROED(&m->types, (size_t)m->context));
    return make_profile(m);
}

hl_status hl_measure_maps(hl_profile **out, const char *path, const hl_maps_options *options)
{
    hl_status     status = HL_OK;
    map_measuring m      = { 0 };

    *out = NULL;
    if (options != NULL) {
        m.seed      = options->seed;
        m.n_threads = options->n_threads;
    }
    HL_TRY(set_up(&m, path, options));
    for (int64_t i = 0; i < hl_maps_get_info(m.maps)->n_batch; i++)
        HL_TRY(measure_sequence(&m, i));
    *out      = m.profile;
    m.profile = NULL;

done:
    hl_profile_free(m.profile);
    hl_maps_close(m.maps);
    hl_free(m.types);
    return status;
}
