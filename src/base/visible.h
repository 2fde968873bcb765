/* visible.h - the keys that a row of attention sees.
 *
 * A row has a position among n_keys keys.  It sees window_left keys before its own and
 * window_right after it (causal: 0), and the first window_sink keys wherever the window is:
 *
 *     key <= position + right,   and   key >= position - left or key < sink
 *
 * With blocks, a row sees its own block of window_block = window_left + 1 positions instead of the
 * keys up to window_left before its own:
 *
 *     key >= position - position % window_block
 *
 * This is the only definition: scalar, vector and CUDA kernels, profiles and traces all use it.
 * Code that works on a tile of rows takes the begin of its first row and the end of its last. */
#ifndef HL_BASE_VISIBLE_H
#define HL_BASE_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

/* The host counts keys in 64 bits and stores a window in hl_reach.  A GPU counts in 32 bits and
 * accepts any struct with the same members. */
#ifdef __CUDACC__
#define HL_ANY_REACH template <typename hl_reach, typename hl_key_index>
#define HL_KEYS      hl_keys<hl_key_index>
#define HL_MIN       min
#define HL_MAX       max
#define HL_ANY_KEY   template <typename hl_key_index>
#else
#define HL_ANY_KEY
#define HL_ANY_REACH
#define HL_KEYS      hl_keys
#define HL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HL_MAX(a, b) ((a) > (b) ? (a) : (b))
typedef int64_t hl_key_index;

typedef struct hl_reach {
    hl_key_index window_left;
    hl_key_index window_right;
    hl_key_index window_sink;
    hl_key_index window_block; /* 0: the window moves with the row */
} hl_reach;
#endif

/* The visible keys: [begin, end) and [0, kept). */
HL_ANY_KEY
struct hl_keys {
    hl_key_index kept;
    hl_key_index begin;
    hl_key_index end;
};

/* The reach of a window that hides nothing on that side; positions are far smaller. */
#define HL_REACH_ALL ((int64_t)1 << 50)

/* The end of the keys that a row sees; below 1 where it sees none. */
HL_ANY_REACH
HL_HOST_DEVICE hl_key_index hl_reach_end(const hl_reach *reach, hl_key_index n_keys,
                                         hl_key_index position)
{
    return HL_MIN(n_keys, position + reach->window_right + 1);
}

/* The first key of the row's window. */
HL_ANY_REACH
HL_HOST_DEVICE hl_key_index hl_reach_begin(const hl_reach *reach, hl_key_index position)
{
    hl_key_index left = reach->window_left;

    if (reach->window_block > 0)
        left = position % reach->window_block;
    return HL_MAX(0, position - left);
}

/* The number of always-visible first keys that are before `end`. */
HL_ANY_REACH
HL_HOST_DEVICE hl_key_index hl_reach_kept(const hl_reach *reach, hl_key_index end)
{
    return HL_MAX(HL_MIN(reach->window_sink, end), 0);
}

/* All keys that the row at a position sees. */
HL_ANY_REACH
HL_HOST_DEVICE struct HL_KEYS hl_reach_keys(const hl_reach *reach, hl_key_index n_keys,
                                            hl_key_index position)
{
    hl_key_index   end   = hl_reach_end(reach, n_keys, position);
    hl_key_index   begin = hl_reach_begin(reach, position);
    hl_key_index   kept  = hl_reach_kept(reach, end);
    struct HL_KEYS keys  = { kept, begin, HL_MAX(end, 0) };
    struct HL_KEYS first = { 0, 0, kept };

    if (keys.begin >= keys.end) /* the window has moved past the last key */
        return first;
    return keys;
}

/* True if the key is visible.  A macro, because a function would cost a branch on a GPU. */
#define HL_KEYS_HAVE(keys, key)                                                                    \
    ((key) >= 0 && (key) < (keys).end && ((key) >= (keys).begin || (key) < (keys).kept))

#ifdef __CUDACC__
typedef hl_keys<int64_t> hl_visible_keys;
#else
typedef struct hl_keys hl_visible_keys;
#endif

/* -------------------------------------------------------------- for the host
 * hl_visible_join makes one interval of the two if they touch, so that kept < begin or kept = 0. */

static inline hl_visible_keys hl_visible_join(hl_visible_keys keys)
{
    if (keys.begin <= keys.kept)
        keys.begin = keys.kept = 0;
    return keys;
}

static inline bool hl_visible_has(hl_visible_keys keys, int64_t key)
{
    return HL_KEYS_HAVE(keys, key);
}

/* The first visible key at or after `key`; `end` or larger when there is none. */
static inline int64_t hl_visible_from(hl_visible_keys keys, int64_t key)
{
    return key < keys.kept || key >= keys.begin ? key : keys.begin;
}

static inline int64_t hl_visible_count(hl_visible_keys keys)
{
    return keys.end - keys.begin + keys.kept;
}

#endif
