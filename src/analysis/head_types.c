/* head_types.c - rules in the order in which they are tried. */
#include "analysis/head_types.h"

#include <math.h>

static double mean_of(const hl_profile *profile, int64_t layer, int64_t head, hl_quantity quantity)
{
    return hl_profile_moments(profile, layer, head, quantity).mean;
}

static double induction(const hl_profile *profile, int64_t layer, int64_t head)
{
    return hl_profile_probe(profile, layer, head, HL_PROBE_INDUCTION);
}

static double previous(const hl_profile *profile, int64_t layer, int64_t head)
{
    return mean_of(profile, layer, head, HL_Q_PREVIOUS);
}

static double self(const hl_profile *profile, int64_t layer, int64_t head)
{
    return mean_of(profile, layer, head, HL_Q_SELF);
}

static double first(const hl_profile *profile, int64_t layer, int64_t head)
{
    return mean_of(profile, layer, head, HL_Q_FIRST);
}

static double band(const hl_profile *profile, int64_t layer, int64_t head)
{
    return hl_profile_pattern(profile, layer, head, HL_PM_BAND, true).mean;
}

/* The share of attention that neither nearness nor the first key explains; 0 for a head that
 * spreads it over many keys. */
static double focused_content(const hl_profile *profile, int64_t layer, int64_t head)
{
    double median = hl_profile_quantile(profile, layer, head, HL_HIST_NOSINK, 0.5);

    if (!(median < 0.5))
        return 0.0;
    return hl_profile_pattern(profile, layer, head, HL_PM_CONTENT, true).mean;
}

static double fair(const hl_profile *profile, int64_t layer, int64_t head)
{
    return mean_of(profile, layer, head, HL_Q_FAIR);
}

static const struct rule {
    hl_head_kind kind;
    double (*value)(const hl_profile *profile, int64_t layer, int64_t head);
    double      threshold; /* the value is at least this */
    const char *text;
} rules[] = {
    { HL_HEAD_INDUCTION, induction, 0.4, "induction score on a repeated random sequence" },
    { HL_HEAD_PREVIOUS, previous, 0.4, "mean attention to the token before" },
    { HL_HEAD_SELF, self, 0.4, "mean attention to the token itself" },
    { HL_HEAD_SINK, first, 0.3, "mean attention to the first token" },
    { HL_HEAD_LOCAL, band, 0.5, "mass on the last five keys, key 0 aside" },
    { HL_HEAD_SPECIALIST, focused_content, 0.5, "content mass of a sharp head (median under 0.5)" },
    { HL_HEAD_GLOBAL, fair, 0.7, "fair entropy" },
};

hl_head_type hl_head_type_of(const hl_profile *profile, int64_t layer, int64_t head)
{
    if (hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count == 0)
        return (hl_head_type){ HL_HEAD_UNKNOWN, NAN, NAN, hl_head_kind_rule(HL_HEAD_UNKNOWN) };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        double value = rules[i].value(profile, layer, head);

        if (value >= rules[i].threshold) /* not where it is NaN: not measured */
            return (hl_head_type){ rules[i].kind, value, rules[i].threshold, rules[i].text };
    }
    return (hl_head_type){ HL_HEAD_MIXED, NAN, NAN, hl_head_kind_rule(HL_HEAD_MIXED) };
}

const char *hl_head_kind_rule(hl_head_kind kind)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].kind == kind)
            return rules[i].text;
    }
    return kind == HL_HEAD_MIXED ? "no rule holds" : "no row was counted";
}

const char *hl_head_kind_name(hl_head_kind kind)
{
    static const char *const names[HL_N_HEAD_KINDS] = {
        "induction",  "previous", "self",  "sink",    "local",
        "specialist", "global",   "mixed", "unknown",
    };

    return names[kind];
}
