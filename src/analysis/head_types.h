/* head_types.h - what a head does, as far as its numbers tell, and which rule said so.
 *
 * The rules are tried in this order; the first that holds names the head.  What a head
 * does for some rows comes before where it rests in the others, so that an induction
 * head that parks on the first token is still one. */
#ifndef HL_ANALYSIS_HEAD_TYPES_H
#define HL_ANALYSIS_HEAD_TYPES_H

#include "headlight.h"
#include "stats/profile.h"

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
} hl_head_type;

hl_head_type hl_head_type_of(const hl_profile *profile, int64_t layer, int64_t head);
const char  *hl_head_kind_name(hl_head_kind kind);
/* What the kind's rule compares, in words; a literal. */
const char *hl_head_kind_rule(hl_head_kind kind);

#endif
