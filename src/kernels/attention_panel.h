/* attention_panel.h - LANES attention rows at once, one row per vector lane.
 *
 * A panel is LANES query rows that read the same KV head.  Its scores against
 * a tile of keys are kept transposed, (key, lane): the product K Q' needs no
 * packing of K, maxima and sums run down the lanes without a single horizontal
 * step, and the weights are already where the product P' V wants them.
 *
 * Per lane the panel keeps the five sums of row_state.h, in float and in units of ln 2 (scores are
 * multiplied by log2(e) on the way in), and what a few statistics need in addition.  Each tile is
 * summed on its own and then merged, so rounding grows with the number of tiles, not of keys.
 *
 * Which keys a lane sees is one interval, or two: a window and the first few
 * keys.  A hidden score is -inf; its weight comes out as exactly 0 (simd_math.h), so a lane's
 * result does not depend on the lanes beside it. */
#ifndef HL_KERNELS_ATTENTION_PANEL_H
#define HL_KERNELS_ATTENTION_PANEL_H

#include <float.h>
#include <math.h>

#include "kernels/attention.h"
#include "kernels/simd_math.h"

/* Which sums are kept.  Callers pass constants, so that sums nobody wants cost nothing. */
enum { TRACK_SUM, TRACK_SHANNON, TRACK_ALL };

typedef struct panel {
    /* The five sums, over the keys absorbed so far. */
    _Alignas(64) float max[LANES];
    float sum[LANES];
    float dot[LANES];
    float collision[LANES];
    float spread[LANES];

    float   carry[LANES];                 /* factor that the last tile applied to older weights */
    float   added[LANES];                 /* sum of the last tile's weights */
    float   mass[HL_MAX_SEGMENTS][LANES]; /* sums of weights, by segment              */
    float   nosink[LANES];                /* entropy before key 0 was absorbed, nats  */
    float   self[LANES];                  /* scores, -inf until the key has been seen */
    float   previous[LANES];
    float   first[LANES];
    int32_t argmax[LANES];

    int32_t      head[LANES]; /* the query head of each lane */
    int32_t      query[LANES];
    int32_t      begin[LANES]; /* the first visible key of each lane */
    int32_t      end[LANES];
    int32_t      kept[LANES]; /* number of first keys that are visible before begin */
    int32_t      position[LANES];
    hl_key_range some;      /* keys that some lane sees, without the kept first keys */
    int64_t      some_kept; /* the largest `kept` of all lanes */
    hl_key_range all;       /* keys that every lane sees */
    hl_key_range near;      /* keys that are some lane's own position or the one before */
    int64_t      row;       /* the first lane's row      */
    int          n_rows;
    int          n_vectors; /* vectors of lanes in use; the others are not touched */
} panel;

static void panel_reset(panel *w)
{
    memset(w, 0, sizeof *w);
    for (int lane = 0; lane < LANES; lane++) {
        w->max[lane]      = -INFINITY;
        w->self[lane]     = -INFINITY;
        w->previous[lane] = -INFINITY;
        w->first[lane]    = -INFINITY;
        w->argmax[lane]   = -1;
    }
}

/* -------------------------------------------------------- before the softmax */

/* The part of a tile that some lane sees, as one interval.  A lane's sums must not depend on the
 * gaps of its neighbors, so gaps within a tile are left to the mask. */
static inline hl_key_range panel_part(const panel *w, hl_key_range tile)
{
    int64_t begin = w->some.begin > tile.begin ? w->some.begin : tile.begin;
    int64_t end   = w->some.end < tile.end ? w->some.end : tile.end;

    if (tile.begin < w->some_kept) {
        int64_t kept = w->some_kept < tile.end ? w->some_kept : tile.end;
        end          = begin < end && end > kept ? end : kept;
        begin        = tile.begin;
    }
    return begin < end ? (hl_key_range){ begin, end } : (hl_key_range){ tile.begin, tile.begin };
}

/* `kept` is a compile-time constant, so that rows without kept first keys do not pay for them. */
HL_INLINE void hide_keys(const panel *w, float *s, int64_t key, int64_t n, bool kept)
{
    for (int j = 0; j < w->n_vectors; j++) {
        vi begin = vi_load(w->begin + j * VL);
        vi end   = vi_load(w->end + j * VL);
        for (int64_t i = 0; i < n; i++) {
            vi here   = vi_set((int32_t)(key + i));
            vi hidden = (here < begin) | (here >= end);
            if (kept)
                hidden &= here >= vi_load(w->kept + j * VL);
            vf score = vf_load(s + i * LANES + j * VL);
            vf_store(s + i * LANES + j * VL, vf_select(hidden, vf_set(-INFINITY), score));
        }
    }
}

/* Hides from each lane the keys that it does not see.  s (n, LANES) starts at `key`. */
static void panel_mask(const panel *w, float *s, int64_t key, int64_t n)
{
    if (key < w->some_kept)
        hide_keys(w, s, key, n, true);
    else
        hide_keys(w, s, key, n, false);
}

/* Stores the scores of each lane's own and previous position. */
static void panel_note_neighbors(panel *w, const float *s, int64_t key, int64_t n)
{
    if (key >= w->near.end || key + n <= w->near.begin)
        return;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t own = (uint64_t)(w->position[lane] - key); /* huge if it lies before the tile */
        if (own < (uint64_t)n)
            w->self[lane] = s[own * LANES + (uint64_t)lane];
        if (own - 1 < (uint64_t)n)
            w->previous[lane] = s[(own - 1) * LANES + (uint64_t)lane];
    }
}

/* ------------------------------------------------------------------ softmax */

/* The largest scores of one tile in one vector of lanes, and their keys.  The loop compares groups
 * of four keys.  At the end three values of the best group tell which of its keys it was: s0, the
 * larger of s0 and s1, and s2. */
enum { GROUP = 4 };

typedef struct tile_best {
    vf score;
    vi group; /* the first key of the group, relative to the tile */
    vf s0;
    vf s01;
    vf s2;
} tile_best;

/* `where` is a compile-time constant; if it is false only the score is found. */
HL_INLINE tile_best tile_max(const float *s, int64_t n, bool where)
{
    tile_best best = { .score = vf_set(-INFINITY), .s0 = vf_set(-INFINITY) };
    int64_t   i    = 0;

    for (; i + GROUP <= n; i += GROUP) {
        vf s0      = vf_load(s + i * LANES);
        vf s01     = vf_max(s0, vf_load(s + (i + 1) * LANES));
        vf s2      = vf_load(s + (i + 2) * LANES);
        vf largest = vf_max(vf_max(s01, s2), vf_load(s + (i + 3) * LANES));
        if (where) {
            vm larger  = vm_greater(largest, best.score);
            best.group = vi_pick_number(larger, (int32_t)i, best.group);
            best.s0    = vf_pick(larger, s0, best.s0);
            best.s01   = vf_pick(larger, s01, best.s01);
            best.s2    = vf_pick(larger, s2, best.s2);
        }
        best.score = vf_max(best.score, largest);
    }
    for (; i < n; i++) {
        vf score = vf_load(s + i * LANES);
        if (where) {
            vm larger  = vm_greater(score, best.score);
            best.group = vi_pick_number(larger, (int32_t)i, best.group);
            best.s0    = vf_pick(larger, score, best.s0);
        }
        best.score = vf_max(best.score, score);
    }
    return best;
}

/* The key of each lane's largest score; the lowest among equal scores. */
HL_INLINE vi tile_argmax(const tile_best *best, int64_t key)
{
    vi at = vi_pick(vm_greater(best->score, best->s2), vi_set(3), vi_set(2));

    at = vi_pick(vm_greater(best->score, best->s01), at, vi_set(1));
    at = vi_pick(vm_greater(best->score, best->s0), at, vi_set(0));
    return at + best->group + vi_set((int32_t)key);
}

/* The sums of one tile in one vector of lanes. */
typedef struct tile_sums {
    vf sum;
    vf dot;
    vf collision;
    vf spread;
} tile_sums;

/* Replaces scores by weights exp2(s - max) and adds them up. */
HL_INLINE tile_sums tile_weights(float *s, int64_t n, vf max, int track)
{
    tile_sums t = { { 0 }, { 0 }, { 0 }, { 0 } };

    for (int64_t i = 0; i < n; i++) {
        /* Clamped: a score of -inf would make 0 * -inf, which is NaN, although its weight is 0. */
        vf x = vf_max(vf_set(EXP2_FLOOR), vf_load(s + i * LANES) - max);
        vf p = vf_exp2_clamped(x);
        vf_store(s + i * LANES, p);
        t.sum += p;
        if (track >= TRACK_SHANNON) {
            vf px = p * x;
            t.dot += px;
            if (track >= TRACK_ALL) {
                t.collision = vf_fma(p, p, t.collision);
                t.spread    = vf_fma(px, x, t.spread);
            }
        }
    }
    return t;
}

/* The rule of row_state.h: moves the old sums to the new maximum and adds the tile's. */
HL_INLINE vf panel_merge_tile(panel *w, int j, vf old_max, vf new_max, tile_sums t, int track)
{
    /* A lane that has seen no key has max = -inf: its carry is 0. */
    vf shift = vf_max(vf_set(EXP2_FLOOR), old_max - new_max);
    vf carry = vf_exp2_clamped(shift);
    vf sum   = vf_load(w->sum + j * VL);
    vf dot   = vf_load(w->dot + j * VL);

    vf_store(w->sum + j * VL, vf_fma(carry, sum, t.sum));
    if (track >= TRACK_SHANNON)
        vf_store(w->dot + j * VL, vf_fma(carry, vf_fma(shift, sum, dot), t.dot));
    if (track >= TRACK_ALL) {
        vf collision = vf_load(w->collision + j * VL);
        vf spread    = vf_load(w->spread + j * VL);
        vf moved     = vf_fma(shift, vf_fma(shift, sum, dot + dot), spread);
        vf_store(w->collision + j * VL, vf_fma(carry * carry, collision, t.collision));
        vf_store(w->spread + j * VL, vf_fma(carry, moved, t.spread));
    }
    vf_store(w->carry + j * VL, carry);
    vf_store(w->added + j * VL, t.sum);
    return carry;
}

/* Absorbs the keys [key, key + n) and replaces their scores in s (n, LANES) by weights.  Key 0
 * comes last, alone, and wins ties as the lowest key. */
HL_INLINE void panel_absorb(panel *w, float *s, int64_t key, int64_t n, int track)
{
    for (int j = 0; j < w->n_vectors; j++) {
        float    *column  = s + j * VL;
        vf        old_max = vf_load(w->max + j * VL);
        tile_best best    = tile_max(column, n, track >= TRACK_ALL);
        vf        max     = vf_max(best.score, old_max);

        if (track >= TRACK_ALL) {
            int32_t *argmax = w->argmax + j * VL;
            vi       moved  = best.score > old_max;
            if (key == 0)
                moved = (best.score >= old_max) & (best.score > vf_set(-INFINITY));
            vi_store(argmax, vi_select(moved, tile_argmax(&best, key), vi_load(argmax)));
        }
        vf_store(w->max + j * VL, max);
        /* Before the first key, -inf - -inf would be NaN; any finite base avoids that. */
        vf        base = vf_max(vf_set(-FLT_MAX), max);
        tile_sums t    = tile_weights(column, n, base, track);
        panel_merge_tile(w, j, old_max, base, t, track);
    }
}

static void panel_absorb_sum(panel *w, float *s, int64_t key, int64_t n)
{
    panel_absorb(w, s, key, n, TRACK_SUM);
}

static void panel_absorb_shannon(panel *w, float *s, int64_t key, int64_t n)
{
    panel_absorb(w, s, key, n, TRACK_SHANNON);
}

static void panel_absorb_all(panel *w, float *s, int64_t key, int64_t n)
{
    panel_absorb(w, s, key, n, TRACK_ALL);
}

/* Counts how many of n bytes, from the first on, equal the first.  It compares eight at a time. */
static int64_t run_length(const uint8_t *bytes, int64_t n)
{
    uint64_t same = bytes[0] * UINT64_C(0x0101010101010101);
    uint64_t word = same;
    int64_t  i    = 0;

    for (; i + 8 <= n; i += 8) {
        memcpy(&word, bytes + i, sizeof word);
        if (word != same) /* little-endian, as all supported vector machines are */
            return i + __builtin_ctzll(word ^ same) / 8;
    }
    while (i < n && bytes[i] == bytes[0])
        i++;
    return i;
}

/* The sum of n rows of weights (n, LANES), as independent partial sums, so that an addition need
 * not wait for the one before. */
HL_INLINE vf run_sum(const float *weights, int64_t n)
{
    enum { PARTS = 4 };
    vf      parts[PARTS] = { { 0 } };
    int64_t i            = 0;

    for (; i + PARTS <= n; i += PARTS) {
        for (int part = 0; part < PARTS; part++)
            parts[part] += vf_load(weights + (i + part) * LANES);
    }
    for (; i < n; i++)
        parts[0] += vf_load(weights + i * LANES);
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/* Adds weights (n, LANES) of the tile just absorbed to the masses of their keys' segments.
 * Segments come in runs; a tile of a single segment has a known sum. */
static void panel_add_segments(panel *w, const float *weights, const uint8_t *segments, int64_t n,
                               int64_t n_segments)
{
    int64_t length = run_length(segments, n);
    bool    is_one = length == n;

    for (int j = 0; j < w->n_vectors; j++) {
        vf carry = vf_load(w->carry + j * VL);
        for (int64_t g = 0; g < n_segments; g++) {
            float *mass = w->mass[g] + j * VL;
            vf_store(mass, vf_load(mass) * carry);
        }
    }
    for (int64_t i = 0; i < n;) {
        for (int j = 0; j < w->n_vectors; j++) {
            float *mass = w->mass[segments[i]] + j * VL;
            vf     sum =
                is_one ? vf_load(w->added + j * VL) : run_sum(weights + i * LANES + j * VL, length);
            vf_store(mass, vf_load(mass) + sum);
        }
        i += length;
        length = i < n ? run_length(segments + i, n - i) : 0;
    }
}

/* ------------------------------------------------------------------- merging */

/* Merges two panels of the same rows over disjoint keys into `into`; from's keys are the higher
 * ones.  The caller then multiplies the output of `from` by from's carry. */
static void panel_merge(panel *into, panel *from, int64_t n_segments)
{
    for (int j = 0; j < into->n_vectors; j++) {
        vf a   = vf_load(into->max + j * VL);
        vf b   = vf_load(from->max + j * VL);
        vf max = vf_max(vf_set(-FLT_MAX), vf_max(a, b));
        vi won = b > a;

        /* Move `from` to the common maximum, then add it as if it were a tile. */
        panel_merge_tile(from, j, b, max, (tile_sums){ { 0 }, { 0 }, { 0 }, { 0 } }, TRACK_ALL);
        tile_sums t = {
            vf_load(from->sum + j * VL),
            vf_load(from->dot + j * VL),
            vf_load(from->collision + j * VL),
            vf_load(from->spread + j * VL),
        };
        vf carry = panel_merge_tile(into, j, a, max, t, TRACK_ALL);
        for (int64_t g = 0; g < n_segments; g++) {
            float *mass  = into->mass[g] + j * VL;
            vf     added = vf_load(from->mass[g] + j * VL) * vf_load(from->carry + j * VL);
            vf_store(mass, vf_fma(carry, vf_load(mass), added));
        }
        vf_store(into->max + j * VL, vf_max(a, b));
        vi argmax = vi_select(won, vi_load(from->argmax + j * VL), vi_load(into->argmax + j * VL));
        vi_store(into->argmax + j * VL, argmax);
    }
    for (int lane = 0; lane < LANES; lane++) {
        into->self[lane]     = fmaxf(into->self[lane], from->self[lane]);
        into->previous[lane] = fmaxf(into->previous[lane], from->previous[lane]);
    }
}

/* ----------------------------------------------------------------- finishing */

/* Shannon entropy in nats of the keys absorbed so far; 0 if there are none. */
HL_INLINE vf lanes_entropy(vf sum, vf dot)
{
    vi seen = ~(sum == vf_set(0.0f)); /* also true for NaN, which must not be hidden */
    vf safe = vf_select(seen, sum, vf_set(1.0f));
    /* Both terms are >= 0; rounding must not make their sum negative. */
    vf bits = vf_max(vf_set(0.0f), vf_log2(safe) - dot / safe);
    return vf_select(seen, bits * vf_set(LN2), vf_set(0.0f));
}

static void panel_note_nosink(panel *w)
{
    for (int j = 0; j < w->n_vectors; j++)
        vf_store(w->nosink + j * VL,
                 lanes_entropy(vf_load(w->sum + j * VL), vf_load(w->dot + j * VL)));
}

/* Everything that a row reports, by lane.  If some_nan is set, lanes whose lse is NaN have no other
 * valid value: the caller uses hl_attention_row_not_finite for those rows. */
typedef struct panel_result {
    _Alignas(64) float factor[LANES]; /* turns weighted sums into the output */
#define ARRAY(name) float name[LANES];
    HL_EACH_ROW_STATISTIC(ARRAY)
#undef ARRAY
    bool some_nan;
} panel_result;

/* Merges a learned sink: one more outcome, without a key or a value. */
HL_INLINE void lanes_add_sink(panel *w, int j, vf sink)
{
    vf old_max = vf_load(w->max + j * VL);
    vf max     = vf_max(sink, old_max);
    vf x       = vf_max(vf_set(EXP2_FLOOR), sink - max);
    vf one     = vf_exp2_clamped(x);

    tile_sums t = { one, one * x, one * one, one * x * x };
    panel_merge_tile(w, j, old_max, max, t, TRACK_ALL);
    vf_store(w->max + j * VL, max);
}

/* exp2(score - max) * scale, where scale is 1 / sum; 0 for a score of -inf. */
HL_INLINE vf lanes_probability(const float *score, vf max, vf scale)
{
    return vf_exp2(vf_load(score) - max) * scale;
}

/* sinks (LANES) are in units of ln 2, or NULL. */
static void panel_finish(panel_result *r, panel *w, const float *sinks)
{
    vi nan = { 0 };

    for (int j = 0; j < w->n_vectors; j++) {
        vf key_max = vf_load(w->max + j * VL);
        vf key_sum = vf_load(w->sum + j * VL);
        /* Test the sum, not the maximum: maxima drop NaN, so a lane of NaN scores may have a
         * maximum of -inf, but its sum is NaN. */
        vi seen = ~(key_sum == vf_set(0.0f));
        vf zero = vf_set(0.0f);

        if (sinks != NULL)
            lanes_add_sink(w, j, vf_load(sinks + j * VL));
        vf max   = vf_select(seen, vf_load(w->max + j * VL), zero);
        vf sum   = vf_select(seen, vf_load(w->sum + j * VL), vf_set(1.0f));
        vf dot   = vf_select(seen, vf_load(w->dot + j * VL), zero);
        vf u     = vf_select(seen, vf_load(w->collision + j * VL), vf_set(1.0f));
        vf mean  = dot / sum;
        vf scale = vf_set(1.0f) / sum;
        vf log_l = vf_log2(sum);
        vi bad   = sum != sum; /* vf_log2 would turn NaN into a number */
        log_l    = vf_select(bad, sum, log_l);
        nan |= bad;
        /* The largest probability of a key; also the factor of the sums, whose base is key_max. */
        vf peak = vf_select(seen, vf_exp2(key_max - max) * scale, zero);
        vf var  = vf_max(zero, vf_load(w->spread + j * VL) / sum - mean * mean);
        vf h2   = vf_max(zero, log_l + log_l - vf_log2(vf_max(vf_set(FLT_MIN), u)));

        vf_store(r->factor + j * VL, peak);
        vf_store(r->peak + j * VL, peak);
        vf_store(r->max_logit + j * VL, vf_select(seen, key_max * vf_set(LN2), vf_set(-INFINITY)));
        vf_store(r->lse + j * VL, vf_select(seen, (max + log_l) * vf_set(LN2), vf_set(-INFINITY)));
        vf_store(r->entropy + j * VL, vf_select(seen, lanes_entropy(sum, dot), zero));
        vf_store(r->renyi2 + j * VL, vf_select(seen, h2 * vf_set(LN2), zero));
        vf_store(r->varentropy + j * VL, vf_select(seen, var * vf_set(LN2 * LN2), zero));
        scale = vf_select(seen, scale, zero);
        vf_store(r->self + j * VL, lanes_probability(w->self + j * VL, max, scale));
        vf_store(r->previous + j * VL, lanes_probability(w->previous + j * VL, max, scale));
        vf_store(r->first + j * VL, lanes_probability(w->first + j * VL, max, scale));
    }
    memcpy(r->entropy_nosink, w->nosink, sizeof w->nosink);
    r->some_nan = vi_any(nan);
}

#endif
