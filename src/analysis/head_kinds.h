/* head_kinds.h - what heads do, judged by their numbers: types by rule, clusters by similarity. */
#ifndef HL_ANALYSIS_HEAD_KINDS_H
#define HL_ANALYSIS_HEAD_KINDS_H

#include "analysis/cluster.h"
#include "base/memory.h"
#include "headlight/analysis.h"
#include "stats/profile.h"

/* ------------------------------------------------------------------ by rule */

/* The rules are tried in this order; the first that holds gives the type. Rules about what a
 * head does in some rows precede those about where it rests in the others, so an induction head
 * that otherwise looks at the first token has the type induction. */
typedef enum hl_head_kind {
    HL_HEAD_INDUCTION = 0, /* after a repeated token, looks at what followed it the first time */
    HL_HEAD_PREVIOUS,      /* looks at the previous token */
    HL_HEAD_SELF,          /* looks at the token itself */
    HL_HEAD_SINK,          /* looks at the first token */
    HL_HEAD_LOCAL,         /* looks at the last few tokens */
    HL_HEAD_SPECIALIST,    /* looks at few keys, neither near nor first, chosen by content */
    HL_HEAD_GLOBAL,        /* looks at all keys almost evenly */
    HL_HEAD_MIXED,         /* no rule holds */
    HL_HEAD_UNKNOWN,       /* no row was counted */
    HL_N_HEAD_KINDS
} hl_head_kind;

typedef struct hl_head_type {
    hl_head_kind kind;
    double       value;     /* the number that the rule compares; NaN for MIXED and UNKNOWN */
    double       threshold; /* the limit that it is compared with */
    const char  *rule;      /* the rule in words; a literal */
    bool
        is_uncertain; /* Could other sampled rows give another type? True if the threshold of a rule
                       * that was tried is within the number's 95% confidence interval. */
} hl_head_type;

hl_head_type hl_head_type_of(const hl_profile *profile, int64_t layer, int64_t head);
const char  *hl_head_kind_name(hl_head_kind kind);
/* Returns what the rule of this type compares, in words; a literal. */
const char *hl_head_kind_rule(hl_head_kind kind);

/* -------------------------------------------------------------- by likeness */

/* Heads that behave alike, whatever layer they are in.
 *
 * A head is a point: its entropy by position (as a share of the largest there), its normalized
 * entropy and lookback by token type, and its pattern metrics with and without the
 * first key: all from 0 to 1, the three groups with equal weight however many numbers they
 * have.  Ward's method divides the points; the number of groups is the one with the widest
 * silhouette.  How much of that would survive if a fifth of the heads were not there is stated
 * beside it. */
enum { HL_MAX_CLUSTERS = 8, HL_MAX_CLUSTERED = 16384 };

typedef struct hl_head_clusters {
    int64_t      n_heads;                  /* number of heads with rows */
    int64_t     *places;                   /* (n_heads) places in the grid */
    int32_t     *labels;                   /* (n_heads) cluster of each head */
    int64_t      n_clusters;               /* 1 if there are too few heads, or all are alike */
    int64_t      medoids[HL_MAX_CLUSTERS]; /* place of the head with the smallest mean distance to
                                            * its cluster */
    double       silhouette;               /* NaN for one cluster */
    hl_stability stability;
    int64_t      n_features; /* number of features in which heads differ */
} hl_head_clusters;

hl_status hl_head_clusters_new(hl_head_clusters **out, const hl_profile *profile, uint64_t seed);
void      hl_head_clusters_free(hl_head_clusters *clusters);
HL_CLOSES(hl_head_clusters_free, hl_head_clusters)

#endif
