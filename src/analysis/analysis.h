/* analysis.h - the tables by name; each is a function from a profile to a table.
 *
 * How to ask for one is in headlight.h (hl_analyse); analysis.c has the list. */
#ifndef HL_ANALYSIS_ANALYSIS_H
#define HL_ANALYSIS_ANALYSIS_H

#include "headlight.h"
#include "stats/profile.h"

typedef hl_status (*hl_analysis)(hl_sheet **out, const hl_profile *profile,
                                 const hl_analysis_options *options);

/* analysis_heads.c */
hl_status hl_analyse_heads(hl_sheet **out, const hl_profile *profile,
                           const hl_analysis_options *options);
hl_status hl_analyse_extremes(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options);
hl_status hl_analyse_similarity(hl_sheet **out, const hl_profile *profile,
                                const hl_analysis_options *options);
hl_status hl_analyse_patterns(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options);
/* analysis_layers.c */
hl_status hl_analyse_layers(hl_sheet **out, const hl_profile *profile,
                            const hl_analysis_options *options);
hl_status hl_analyse_shape(hl_sheet **out, const hl_profile *profile,
                           const hl_analysis_options *options);
hl_status hl_analyse_variance(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options);
/* analysis_text.c */
hl_status hl_analyse_positions(hl_sheet **out, const hl_profile *profile,
                               const hl_analysis_options *options);
hl_status hl_analyse_positions_by_head(hl_sheet **out, const hl_profile *profile,
                                       const hl_analysis_options *options);
hl_status hl_analyse_token_types(hl_sheet **out, const hl_profile *profile,
                                 const hl_analysis_options *options);
hl_status hl_analyse_token_types_by_head(hl_sheet **out, const hl_profile *profile,
                                         const hl_analysis_options *options);
hl_status hl_analyse_lookback(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options);
/* analysis_kinds.c */
hl_status hl_analyse_head_types(hl_sheet **out, const hl_profile *profile,
                                const hl_analysis_options *options);
hl_status hl_analyse_clusters(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options);

/* What every table says at its end: what it was measured on. */
void hl_analysis_facts(hl_sheet *table, const hl_profile *profile);

#endif
