/* definitions.c - what every number means, a few lines each; doc/metrics.md says it at length.
 *
 * `headlight help metrics` prints them, reports open them at a "?".  Names are those of the columns
 * that tables, CSV and JSON have, keys those of a report's data (doc/report.md). */
#include "headlight/analysis.h"

#define HEADING(title)                                                                             \
    {                                                                                              \
        title, NULL, NULL, NULL, NULL                                                              \
    }
#define SAYS(name, text)                                                                           \
    {                                                                                              \
        name, text, NULL, NULL, NULL                                                               \
    } /* not in reports */

static const hl_definition definitions[] = {
    HEADING("ONE ROW of attention: a token, and how it divides 1 among the n keys it sees"),
    { "entropy",
      "H = - sum p ln p, in nats: 0 all on one key, ln n spread evenly; e^H is the number of keys "
      "that the row really uses",
      "entropy", "Shannon entropy", "nats" },
    { "normalized", "H / ln n, from 0 to 1; only rows that see at least 16 keys", "normalized",
      "Normalized entropy", "of ln n" },
    { "entropy_nosink", "H of the keys other than the first, divided anew so that they sum to 1",
      "entropy_nosink", "Entropy without the sink", "nats" },
    { "renyi2", "H2 = - ln sum p^2, nats; never above H, and less moved by many small p", "renyi2",
      "Rényi-2 entropy", "nats" },
    { "varentropy", "variance of - ln p under p, nats^2; 0 if all keys used are used alike",
      "varentropy", "Varentropy", "nats²" },
    { "peak", "the largest p", "peak", "Peak", "probability" },
    { "self", "p of the token itself", "self", "Self", "probability" },
    { "previous", "p of the token before it", "previous", "Previous token", "probability" },
    { "first", "p of the first key, where many heads rest (the sink)", "first",
      "First token (sink)", "probability" },

    HEADING("ONE HEAD, over all rows of a text"),
    SAYS("entropy", "mean of H over all rows, the first ones too; grows with the context, which is "
                    "why every table states it (an even head of 1024 rows has 5.94)"),
    SAYS("normalized", "mean of the normalized entropy; compares heads of different contexts"),
    { "_low, _high", "95% interval: whole sequences drawn anew, 1000 times", "interval", "Interval",
      "" },
    SAYS("median", "of H / ln n over rows that see two keys or more; median_nosink without key 0"),
    SAYS("peak_p95", "one row in twenty has a larger peak"),
    { "output_norm", "norm of what the head adds to the stream, over its layer's mean",
      "output_norm", "Output norm", "of the layer's mean" },
    { "broken", "rows with NaN, infinity, or H over ln n + 0.001; in no other number", "broken",
      "Broken rows", "rows" },

    HEADING("LAYERS"),
    SAYS("entropy, normalized", "means over a layer's heads"),
    { "variance",
      "of the heads' entropies in a layer; normalized_deviation: the same as a standard deviation "
      "in "
      "normalized entropy",
      "variance", "Variance in a layer", "nats²" },
    SAYS("range, depth", "highest minus lowest layer; where the lowest is, 0 first to 1 last"),
    { "curvature", "c of a + b x + c x^2 fitted over depth x from 0 to 1; positive: a valley",
      "curvature", "Curvature", "nats" },
    SAYS("spearman", "rank correlation of the layers' means with their depth"),
    SAYS("shape",
         "flat, falls, rises, U-shape, inverted U-shape or uneven, by the means of the first, "
         "middle and last third of the layers (first_third ...): a difference counts from "
         "0.03 (nats: 0.1) and two standard errors on"),
    SAYS("later_specialized", "are later layers more focused? later_change: last third - first "
                              "third; later_errors: the same in standard errors"),
    SAYS("flat", "the range is under 0.03, of nats under 0.1"),
    { "block_influence",
      "1 - cos between what enters and what leaves the block, mean over sampled rows; of the last "
      "block only with --nll",
      "influence", "Block influence", "1 - cos" },

    HEADING("PATTERNS, over sampled rows; with and without key 0"),
    SAYS("self, lift", "p of the token itself; how many times more than 1/n that is"),
    { "band", "share on the token itself and the four before it", "band", "Band", "probability" },
    SAYS("sink", "p of the first key, from the second row on"),
    SAYS("self_top", "share of rows in which the token itself gets the most"),
    { "content", "what band and sink leave, not below 0", "content", "Content", "probability" },
    SAYS("edges", "share of visible pairs with p over 0.001"),
    { "k90", "share of keys that it takes to hold 90% of the row", "k90", "Keys for 90%", "of n" },
    SAYS("support2", "e^H2 / n"),
    { "induction",
      "on random tokens said twice: p of the token behind the first time; duplicate: of the first "
      "time itself; probe_previous: of the token before",
      "induction", "Induction score", "probability" },
    { "similarity", "of two heads: 1 - mean total variation (half the sum of differences) of rows",
      "similarity", "Similarity", "1 - total variation" },
    { "cka", "of two heads: how alike their outputs are, up to rotation and scale (linear)", "cka",
      "CKA", "" },

    HEADING("HEAD TYPES, the first rule that holds"),
    SAYS("induction", "induction at least 0.4"),
    SAYS("previous, self", "that mean at least 0.4"),
    SAYS("sink", "first at least 0.3"),
    SAYS("local", "band without key 0 at least 0.5"),
    SAYS("specialist", "content without key 0 at least 0.5 and median_nosink under 0.5"),
    SAYS("global", "normalized at least 0.7"),
    SAYS("mixed", "none of these; unknown: no row was counted"),

    HEADING("ONE PROMPT, and what is seen while a text is generated"),
    { "vocabulary",
      "of what the model expects next, nats: 0 one token is certain, ln of the vocabulary if any "
      "may follow; not that of attention",
      "vocab_entropy", "Vocabulary entropy", "nats" },
    { "varentropy", "variance of - ln p under it, nats^2", "varentropy", "Vocabulary varentropy",
      "nats²" },
    { "logprob",
      "ln p of the token that was drawn, by the model as it is: before temperature and filters",
      "logprob", "Log-probability", "nats" },
    { "spike",
      "how many of its usual deviations attention is more diffuse than this text is used to; a "
      "score over 3 is a spike",
      "spike", "Spike score", "σ" },
    { "lens",
      "the vocabulary entropy as if the model ended after a layer: its stream through final norm "
      "and output head",
      "lens", "Logit lens", "nats" },

    HEADING("CLUSTERS of heads that behave alike (Ward's method)"),
    SAYS("silhouette", "how much nearer heads are to their own group than to the next, -1 to 1"),
    SAYS("stability",
         "agreement with groups found without a fifth of the heads, 20 times: adjusted "
         "Rand index, 1 the same, 0 as by chance"),

    HEADING("COMPARING"),
    { "low, high, p", "of the difference B - A: sequences drawn in pairs where both have them",
      "difference", "Difference B - A", "" },
    { "q", "the smallest false discovery rate (Benjamini-Hochberg) that includes the head", "q",
      "False discovery rate", "" },
    { "variation",
      "total variation between the two histograms of H / ln n; divergence: Jensen-Shannon, nats",
      "variation", "Total variation", "" },
    SAYS("distance", "of two heads' profiles, 0 to 1; matching makes its sum least in each layer"),
    SAYS("top_10", "share of A's most focused tenth that is in B's"),
};

const hl_definition *hl_definition_at(size_t index)
{
    return index < sizeof definitions / sizeof *definitions ? &definitions[index] : NULL;
}
