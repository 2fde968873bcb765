/* head_kinds.h - what heads do, as far as their numbers tell: by rule and by likeness. */
#ifndef HL_ANALYSIS_HEAD_KINDS_H
#define HL_ANALYSIS_HEAD_KINDS_H

#include "analysis/cluster.h"
#include "base/memory.h"
#include "headlight/analysis.h"
#include "stats/profile.h"

/* ------------------------------------------------------------------ by rule */

/* The rules are tried in this order; the first that holds names the head.  What a head
 * does for some rows comes before where it rests in the others, so that an induction
 * head that parks on the first token is still one. */
typedef enum hl_head_kind {
    HL_HEAD_INDUCTION = 0, /* after a repeat, the token behind the first time */
    HL_HEAD_PREVIOUS,      /* positional: the token before */
    HL_HEAD_SELF,          /* positional: the token itself */
    HL_HEAD_SINK,          /* rests on the first token */
    HL_HEAD_LOCAL,         /* the last few tokens */
    HL_HEAD_SPECIALIST,    /* few keys, neither near nor first: content decides */
    HL_HEAD_GLOBAL,        /* all keys almost alike */
    HL_HEAD_MIXED,         /* no rule holds */
    HL_HEAD_UNKNOWN,       /* no row was counted */
    HL_N_HEAD_KINDS
} hl_head_kind;

typedef struct hl_head_type {
    hl_head_kind kind;
    double       value;     /* what the rule compared; NaN of MIXED and UNKNOWN */
    double       threshold; /* with what */
    const char  *rule;      /* in words; a literal */
    bool
        is_uncertain; /* other sampled rows could have given another type: of a rule that was tried,
                        * the threshold lies within the number's 95% confidence interval */
} hl_head_type;

hl_head_type hl_head_type_of(const hl_profile *profile, int64_t layer, int64_t head);
const char  *hl_head_kind_name(hl_head_kind kind);
/* What the kind's rule compares, in words; a literal. */
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
    int64_t      n_heads;                  /* that were counted */
    int64_t     *places;                   /* (n_heads) in the grid */
    int32_t     *labels;                   /* (n_heads) */
    int64_t      n_clusters;               /* 1: too few heads, or all alike */
    int64_t      medoids[HL_MAX_CLUSTERS]; /* the place of the head nearest to all of its cluster */
    double       silhouette;               /* NaN of one cluster */
    hl_stability stability;
    int64_t      n_features; /* that differ between heads */
} hl_head_clusters;

hl_status hl_head_clusters_new(hl_head_clusters **out, const hl_profile *profile, uint64_t seed);
void      hl_head_clusters_free(hl_head_clusters *clusters);
HL_CLOSES(hl_head_clusters_free, hl_head_clusters)

#endif
