/* definitions.c - the definition of every number, in one table.
 *
 * `headlight help metrics` prints it, doc/metrics.md has it between two marks (tools/metrics_page),
 * captions of figures quote it, and the page shows it at each "?": reports and /v1/headlight/model
 * carry the entries that have a key. */
#include "headlight/analysis.h"

#define HEADING(title)                                                                             \
    {                                                                                              \
        title, NULL, NULL, NULL, NULL                                                              \
    }
/* A column that the page does not show. */
#define COLUMN(name, text)                                                                         \
    {                                                                                              \
        name, text, NULL, NULL, NULL                                                               \
    }

static const hl_definition definitions[] = {
    HEADING("ONE ROW: a token (the query) divides probability 1 among the n keys that it sees"),
    { "entropy",
      "H = −Σ p ln p, in nats: 0 if all attention is on one key, ln n if it is spread evenly. e^H "
      "is the effective number of keys",
      "entropy", "Entropy", "nats or bits" },
    { "normalized",
      "Ĥ = H / ln n, from 0 (all on one key) to 1 (uniform). Only rows with at least 16 keys count",
      "normalized", "Normalized entropy", "" },
    { "entropy_nosink",
      "H without the first token: the other probabilities are rescaled to sum to 1",
      "entropy_nosink", "Entropy without the first token", "nats or bits" },
    { "normalized_nosink", "H without the first token, divided by ln(n − 1)", "normalized_nosink",
      "Normalized entropy without the first token", "" },
    { "renyi2", "H₂ = −ln Σ p². Never above H; many small probabilities hardly change it", "renyi2",
      "Rényi-2 entropy", "nats or bits" },
    { "varentropy", "variance of −ln p under p: 0 if all keys in use have the same probability",
      "varentropy", "Varentropy", "nats² or bits²" },
    { "peak", "the largest probability", "peak", "Peak", "" },
    { "self", "probability of the token itself", "self", "Self", "" },
    { "previous", "probability of the token before", "previous", "Previous token", "" },
    { "first", "probability of the first token (sink mass)", "first", "First token (sink)", "" },
    HEADING("ONE HEAD: means over all rows of a text"),
    COLUMN("entropy", "mean of H over all rows, short ones too. It grows with the context, so "
                      "every table states the context (a uniform head has 5.94 at 1024 tokens)"),
    COLUMN("normalized", "mean of Ĥ; compares contexts of different lengths"),
    { "*_low, *_high", "95% confidence interval over documents or windows, by Student's t",
      "interval", "95% confidence interval", "" },
    COLUMN("median", "median of H / ln n over rows with at least two keys; median_nosink: without "
                     "the first token"),
    COLUMN("peak_p95", "95% of the rows have a smaller peak"),
    { "output_norm",
      "output norm relative to the layer's mean: norm of what the head adds to the residual "
      "stream, over sampled rows. Far below 1, the head writes almost nothing",
      "output_norm", "Output norm", "of the layer's mean" },
    { "broken",
      "number of rows with NaN, infinity, or H above ln n + 0.001; excluded from all other numbers",
      "broken", "Broken rows", "rows" },
    { "effective keys", "e^H: the number of keys that a row really uses", "support",
      "Effective keys", "keys" },
    { "histogram", "how many rows have which Ĥ: 64 bins from 0 (all on one key) to 1 (uniform)",
      "histogram", "Histogram of rows", "" },
    HEADING("LAYERS AND POSITIONS"),
    { "layers",
      "mean over the heads of each layer, with a 95% confidence interval; each dot is a head",
      "layers", "Layer profile", "" },
    { "positions", "mean entropy of rows by position in the window; ranges of positions double",
      "positions", "Entropy by position", "nats or bits" },
    { "variance",
      "variance of the mean entropies of a layer's heads; normalized_deviation: standard deviation "
      "of their Ĥ",
      "variance", "Variance in a layer", "nats²" },
    COLUMN("range, depth", "highest layer mean minus the lowest; where the lowest is, from 0 "
                           "(first layer) to 1 (last)"),
    { "curvature",
      "c of a + b x + c x², fitted to layer means over depth x; positive: lowest in the middle",
      "curvature", "Curvature", "nats" },
    COLUMN("spearman", "rank correlation of layer means with depth"),
    COLUMN("shape",
           "flat, falls, rises, U-shape, inverted U-shape or uneven, by the means of the first, "
           "middle and last third of the layers (first_third ...): a difference counts from "
           "0.03 (nats: 0.1) and two standard errors on"),
    COLUMN("later_specialized", "are later layers more focused? later_change: last third - first "
                                "third; later_errors: the same in standard errors"),
    COLUMN("flat", "the range is under 0.03, of nats under 0.1"),
    { "block_influence",
      "1 − cos between the residual stream before and after the block, mean over sampled rows. Of "
      "the last block only with --nll",
      "block_influence", "Block influence", "1 − cos" },
    HEADING("PATTERNS: means over sampled rows, with and without the first token"),
    COLUMN("self, lift", "probability of the token itself; that probability times n (1 is chance)"),
    { "band", "share on the token itself and the four before it", "band", "Band (last 5 tokens)",
      "" },
    COLUMN("sink", "probability of the first token, from the second row on"),
    COLUMN("self_top", "share of rows in which the token itself has the largest probability"),
    { "content", "share that neither band nor sink explains, at least 0", "content", "Content",
      "" },
    COLUMN("edges", "share of visible pairs with a probability over 0.001"),
    { "k90", "smallest share of keys that hold 90% of the row", "k90", "Keys for 90%", "of n" },
    COLUMN("support2", "e^H₂ / n"),
    { "induction",
      "on a repeated random sequence: probability of the token that followed the same token the "
      "first time",
      "induction", "Induction score", "" },
    { "duplicate",
      "on that sequence: probability of the same token the first time; probe_previous: of the "
      "token before",
      "duplicate", "Duplicate score", "" },
    { "similarity",
      "of two heads: 1 − mean total variation between their rows; 1 is the same attention",
      "similarity", "Similarity", "1 − total variation" },
    { "twins",
      "heads of the same layer whose rows are most similar: 1 − mean total variation over sampled "
      "rows",
      "twins", "Most similar heads", "1 − total variation" },
    { "active",
      "the rows of a text in which a head puts most on one token beside the first; each is of "
      "another pair of words, and sees 8 tokens or more",
      "active", "Most active", "" },
    { "cka", "of two heads: linear CKA of their outputs, which ignores rotation and scale", "cka",
      "CKA", "" },
    HEADING("HEAD TYPES: the first rule that holds"),
    { "type",
      "what a head does, by the first rule that holds: induction, previous, self, sink, local, "
      "specialist, global; else mixed",
      "type", "Head type", "" },
    COLUMN("induction", "induction at least 0.4"),
    COLUMN("previous, self", "that mean at least 0.4"),
    COLUMN("sink", "first at least 0.3"),
    COLUMN("local", "band without the first token at least 0.5"),
    COLUMN("specialist",
           "content without the first token at least 0.5, and median_nosink under 0.5"),
    COLUMN("global", "normalized at least 0.7"),
    COLUMN("mixed", "none of these; unknown: no row was counted"),
    HEADING("DIAGNOSES"),
    { "check",
      "a rule with the smallest effect that matters; the ideas come from papers, the thresholds "
      "are "
      "headlight's. Alarms are to act on; observations describe what most models have. A check "
      "ends as found, not found, or not run (the profile lacks what the rule needs)",
      "diagnosis", "Diagnosis", "" },
    HEADING("ONE PROMPT AND GENERATED TEXT"),
    { "pattern", "attention of each token (row) to each token it sees (column); color ∝ √attention",
      "pattern", "Attention map", "" },
    { "vocab_entropy",
      "entropy of the distribution that the token was drawn from, over the vocabulary: 0 if one "
      "token is certain. Not an entropy of attention",
      "vocab_entropy", "Vocabulary entropy", "nats" },
    { "vocab_varentropy", "variance of −ln p under that distribution", "vocab_varentropy",
      "Vocabulary varentropy", "nats²" },
    { "logprob",
      "ln p of the token, from the model's own distribution: before temperature and filters",
      "logprob", "Log-probability", "nats" },
    { "spike",
      "how much more spread out attention is than usual in this text, in standard deviations; a "
      "spike is a score above 3",
      "spike", "Spike score", "σ" },
    { "lens",
      "final norm and output head applied to the residual stream after each layer. "
      "Shows the most likely next token and the entropy over the vocabulary, not of attention",
      "lens", "Logit lens", "nats" },
    HEADING("CLUSTERS of heads that behave alike (Ward's method)"),
    COLUMN("silhouette",
           "how much nearer heads are to their own group than to the next, from −1 to 1"),
    COLUMN("stability", "agreement with the groups that form when a fifth of the heads is left "
                        "out, over 20 draws: adjusted Rand index, 1 is the same, 0 is chance"),
    HEADING("COMPARING A and B"),
    { "low, high, p",
      "95% confidence interval and p-value of B − A: Student's t, in pairs of sequences if both "
      "have "
      "the same",
      "difference", "Difference B − A", "" },
    { "q", "smallest false discovery rate (Benjamini-Hochberg) at which the head is significant",
      "q", "False discovery rate", "" },
    { "variation",
      "total variation between the two distributions; divergence: Jensen-Shannon divergence, nats",
      "variation", "Total variation", "" },
    COLUMN("distance",
           "of two heads' profiles, from 0 to 1; matching minimizes its sum in each layer"),
    COLUMN("top_10", "share of A's most focused tenth that is also in B's"),
};

const hl_definition *hl_definition_at(size_t index)
{
    return index < sizeof definitions / sizeof *definitions ? &definitions[index] : NULL;
}
