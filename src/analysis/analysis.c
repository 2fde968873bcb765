/* analysis.c - the tables by name. */
#include "analysis/analysis.h"

#include <string.h>

#include "analysis/sheet.h"
#include "base/status.h"

static const struct {
    const char *name;
    const char *summary;
    hl_analysis run;
} analyses[] = {
    { "heads", "every head: entropies with intervals, peak, self, previous, first",
      hl_analyse_heads },
    { "layers", "every layer: mean entropies with intervals, block influence", hl_analyse_layers },
    { "shape", "the layer profile's range, minimum, curvature, trend; is it flat?",
      hl_analyse_shape },
    { "variance", "how much the heads of a layer differ", hl_analyse_variance },
    { "extremes", "the most and the least focused heads", hl_analyse_extremes },
    { "similarity", "pairs of heads whose rows are nearly the same", hl_analyse_similarity },
    { "patterns", "diagonal, band, sink and sparsity of every head", hl_analyse_patterns },
    { "positions", "entropy by position in the sequence", hl_analyse_positions },
    { "positions-by-head", "the same for every head", hl_analyse_positions_by_head },
    { "token-types", "entropy by type of token", hl_analyse_token_types },
    { "token-types-by-head", "the same for every head", hl_analyse_token_types_by_head },
    { "lookback", "how much attention each type of token gives to each", hl_analyse_lookback },
    { "head-types", "what each head does, and the rule that said so", hl_analyse_head_types },
    { "clusters", "heads that behave alike, and how stable that is", hl_analyse_clusters },
};

enum { N_ANALYSES = sizeof analyses / sizeof *analyses };

const char *hl_analysis_name(size_t index)
{
    return index < N_ANALYSES ? analyses[index].name : NULL;
}

const char *hl_analysis_summary(size_t index)
{
    return index < N_ANALYSES ? analyses[index].summary : NULL;
}

hl_status hl_analyse(hl_sheet **out, const hl_profile *profile, const char *name,
                     const hl_analysis_options *options)
{
    const hl_analysis_options defaults = { 0 };

    *out = NULL;
    for (size_t i = 0; i < N_ANALYSES; i++) {
        if (strcmp(name, analyses[i].name) == 0)
            return analyses[i].run(out, profile, options != NULL ? options : &defaults);
    }
    return hl_fail(HL_BAD_ARGUMENT, "no table is called '%s'", name);
}

void hl_analysis_facts(hl_sheet *table, const hl_profile *profile)
{
    const char *context = hl_profile_setting(profile, "context");

    if (context != NULL)
        hl_sheet_fact_text(table, "context", "%s", context);
    hl_sheet_fact_real(table, "sequences", (double)hl_profile_all_sequences(profile));
    hl_sheet_fact_real(table, "tokens", (double)hl_profile_n_tokens(profile));
}
