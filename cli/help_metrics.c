/* help_metrics.c - what every number means, a few lines each; doc/metrics.md says it at length.
 *
 * Names are those of the columns that tables, CSV and JSON have. */
#include "help_metrics.h"

#include <stdio.h>

#include "wrap.h"

enum { NAME_WIDTH = 17 };

/* One without a text is a heading. */
static const struct {
    const char *name;
    const char *text;
} lines[] = {
    { "ONE ROW of attention: a token, and how it divides 1 among the n keys it sees", NULL },
    { "entropy", "H = - sum p ln p, in nats: 0 all on one key, ln n spread evenly; e^H is the "
                 "number of keys that the row really uses" },
    { "fair", "H / ln n, from 0 to 1; only rows that see at least 16 keys" },
    { "nosink", "H of the keys other than the first, divided anew so that they sum to 1" },
    { "renyi2", "H2 = - ln sum p^2, nats; never above H, and less moved by many small p" },
    { "varentropy", "variance of - ln p under p, nats^2; 0 if all keys used are used alike" },
    { "peak", "the largest p" },
    { "self, previous", "p of the token itself, and of the one before it" },
    { "first", "p of the first key, where many heads rest (the sink)" },

    { "ONE HEAD, over all rows of a text", NULL },
    { "entropy", "mean of H over all rows, the first ones too; grows with the context, which is "
                 "why every table states it (an even head of 1024 rows has 5.94)" },
    { "fair", "mean of the fair entropy; compares heads of different contexts" },
    { "_low, _high", "95% interval: whole sequences drawn anew, 1000 times" },
    { "median", "of H / ln n over rows that see two keys or more; nosink_median without key 0" },
    { "peak_p95", "one row in twenty has a larger peak" },
    { "output_norm", "norm of what the head adds to the stream, over its layer's mean" },
    { "broken", "rows with NaN, infinity, or H over ln n + 0.001; in no other number" },

    { "LAYERS", NULL },
    { "entropy, fair", "means over a layer's heads" },
    { "variance", "of the heads' entropies in a layer; fair_deviation: the same as a standard "
                  "deviation in fair entropy" },
    { "range, depth", "highest minus lowest layer; where the lowest is, 0 first to 1 last" },
    { "curvature", "c of a + b x + c x^2 fitted over depth x from 0 to 1; positive: a valley" },
    { "spearman", "rank correlation of the layers' means with their depth" },
    { "flat", "the range is under two standard errors of a layer's mean" },
    { "block_influence", "1 - cos between what enters and what leaves the block, mean over "
                         "sampled rows; of the last block only with --nll" },

    { "PATTERNS, over sampled rows; with and without key 0", NULL },
    { "diagonal, lift", "p of the token itself; how many times more than 1/n that is" },
    { "band", "share on the token itself and the four before it" },
    { "sink", "p of the first key, from the second row on" },
    { "diagonal_top", "share of rows in which the token itself gets the most" },
    { "content", "what band and sink leave, not below 0" },
    { "edges", "share of visible pairs with p over 0.001" },
    { "k90", "share of keys that it takes to hold 90% of the row" },
    { "support2", "e^H2 / n" },
    { "induction", "on random tokens said twice: p of the token behind the first time; duplicate: "
                   "of the first time itself; probe_previous: of the token before" },
    { "similarity",
      "of two heads: 1 - mean total variation (half the sum of differences) of rows" },
    { "cka", "of two heads: how alike their outputs are, up to rotation and scale (linear)" },

    { "HEAD TYPES, the first rule that holds", NULL },
    { "induction", "induction at least 0.4" },
    { "previous, self", "that mean at least 0.4" },
    { "sink", "first at least 0.3" },
    { "local", "band without key 0 at least 0.5" },
    { "specialist", "content without key 0 at least 0.5 and nosink_median under 0.5" },
    { "global", "fair at least 0.7" },
    { "mixed", "none of these; unknown: no row was counted" },

    { "CLUSTERS of heads that behave alike (Ward's method)", NULL },
    { "silhouette", "how much nearer heads are to their own group than to the next, -1 to 1" },
    { "stability", "agreement with groups found without a fifth of the heads, 20 times: adjusted "
                   "Rand index, 1 the same, 0 as by chance" },

    { "COMPARING", NULL },
    { "low, high, p", "of the difference B - A: sequences drawn in pairs where both have them" },
    { "q", "the smallest false discovery rate (Benjamini-Hochberg) that includes the head" },
    { "variation",
      "total variation between the two histograms of H / ln n; divergence: Jensen-Shannon, nats" },
    { "distance", "of two heads' profiles, 0 to 1; matching makes its sum least in each layer" },
    { "top_10", "share of A's most focused tenth that is in B's" },
};

static void print_line(const char *name, const char *text)
{
    printf("  %-*s", NAME_WIDTH, name);
    hl_print_wrapped(text, 2 + NAME_WIDTH);
}

void hl_help_metrics(void)
{
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (lines[i].text == NULL)
            printf("%s%s\n", i > 0 ? "\n" : "", lines[i].name);
        else
            print_line(lines[i].name, lines[i].text);
    }
}
