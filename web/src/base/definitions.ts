/* definitions.ts - what "?" opens: the report's own words, or these where it has none. */
import type { Definition } from "../data/format";

const BUILT_IN: Record<string, Definition> = {
    H: {
        name: "Entropy",
        unit: "nats or bits",
        text: "How a token divides its attention: 0 all on one key, ln n evenly over n keys. Mean over all rows; it grows with the context. The row of a token is the one in which it is the query: where it looks.",
    },
    Hhat: {
        name: "Normalized entropy",
        text: "H / ln n, from 0 (one key) to 1 (evenly over all). Mean over rows that see at least 16 keys, so that contexts of different length compare.",
    },
    H_nosink: {
        name: "Entropy without the sink",
        unit: "nats or bits",
        text: "Entropy over the keys other than the first, divided anew so that they sum to 1. Many heads park attention on the first key.",
    },
    Hhat_nosink: {
        name: "Normalized entropy without the sink",
        text: "The same over ln of the number of keys other than the first.",
    },
    H2: {
        name: "Rényi-2 entropy",
        unit: "nats or bits",
        text: "−ln Σ p². Never above H, and less moved by many small probabilities.",
    },
    V: {
        name: "Varentropy",
        unit: "nats² or bits²",
        text: "Variance of −ln p under p: 0 where all keys that are used are used alike.",
    },
    peak: { name: "Peak", text: "The largest probability of a row; mean over rows." },
    self: { name: "Self", text: "Probability of the token itself; mean over rows." },
    previous: { name: "Previous token", text: "Probability of the token before; mean over rows." },
    first: {
        name: "First token (sink)",
        text: "Probability of the first key, where many heads rest; mean over rows.",
    },
    output_norm: {
        name: "Output norm",
        text: "Norm of what the head adds to the residual stream, over the mean of its layer. A head far below 1 writes almost nothing.",
    },
    support: { name: "Effective keys", text: "e^H: the number of keys that a row really uses." },
    type: {
        name: "Head type",
        text: "What a head does, by the first rule that holds: induction, previous, self, sink, local, specialist, global; else mixed.",
    },
    histogram: {
        name: "Histogram",
        text: "How often rows of this head have which normalized entropy: 64 bins from 0 (one key) to 1 (evenly).",
    },
    positions: {
        name: "By position",
        text: "Mean entropy of rows by where they stand in their sequence; buckets are powers of two.",
    },
    pattern: {
        name: "Pattern",
        text: "Attention of every token (down) on every token (across); each row relative to its largest probability.",
    },
    twins: {
        name: "Nearest heads",
        text: "Heads whose rows are most alike: 1 − mean total variation over sampled rows. 1 is the same attention.",
    },
    layers: {
        name: "Layer profile",
        text: "Mean over the heads of each layer, with its 95% interval by bootstrap over sequences; dots are heads.",
    },
    lens: {
        name: "Lens",
        unit: "nats",
        text: "Final norm and unembedding applied to the residual stream after each layer: the most likely next token, and the entropy over the vocabulary. This is not entropy of attention.",
    },
    vocab_entropy: {
        name: "Vocabulary entropy",
        unit: "nats",
        text: "Entropy of the distribution that the token was drawn from: the prediction made in the row before it.",
    },
    logprob: {
        name: "Log-probability",
        unit: "nats",
        text: "Natural logarithm of the probability of the token, as predicted in the row before it.",
    },
    spike: {
        name: "Spike score",
        text: "Robust z-score of attention entropy against this text's own rows, a trimmed mean over heads. Above the threshold attention is suddenly diffuse. It stands with the token whose row it is; the token after it was chosen from that row.",
    },
    diagnosis: {
        name: "Diagnosis",
        text: "A rule with the smallest effect that matters, from the literature or a heuristic, and the heads that show it. An alarm is something to act on; an observation describes what most models have. A check is found, not found, or not run where the profile lacks what it needs.",
    },
    similarity: { name: "Similarity", text: "1 − mean total variation between rows of two heads." },
    influence: { name: "Block influence", text: "1 − cos between what enters and what leaves the block." },
};

export const definitionOf = (given: Record<string, Definition>, term: string): Definition | undefined =>
    given[term] ?? BUILT_IN[term];
