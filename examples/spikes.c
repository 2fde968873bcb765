/* spikes.c - reads a trace: the origin of each token, and where attention was suddenly diffuse.
 *
 *     spikes TRACE
 *
 * Prints one token per line: its kind, and the head with the lowest entropy in the row that
 * predicted it; for new tokens also their probability and the spike score of that row.  steer.c and
 * `headlight generate --trace` write traces. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <headlight.h>

/* Reads a row in the form of hl_spikes, (n_layers, n_heads), and finds the head with the lowest
 * entropy. */
static hl_head read_row(float *row, const hl_trace *trace, int64_t token)
{
    int64_t n_heads = hl_trace_n_heads(trace);
    hl_head least   = { 0, 0 };

    for (int64_t layer = 0; layer < hl_trace_n_layers(trace); layer++)
        for (int64_t head = 0; head < n_heads; head++) {
            float *value = &row[layer * n_heads + head];
            *value       = (float)hl_trace_row(trace, token, layer, head, HL_TRACE_NORMALIZED);
            if (*value < row[least.layer * n_heads + least.head])
                least = (hl_head){ layer, head };
        }
    return least;
}

/* Rows of given tokens are learned.  A row with a spike is undone, so that it does not change what
 * counts as usual. */
static double score_row(hl_spikes *spikes, const float *row, hl_token_kind kind)
{
    if (kind != HL_KIND_GENERATED) {
        hl_spikes_learn(spikes, row);
        return NAN;
    }
    double score = hl_spikes_score(spikes, row);
    if (score > HL_SPIKE_THRESHOLD)
        hl_spikes_rewind(spikes, 1);
    return score;
}

static hl_status show(const hl_trace *trace, hl_spikes *spikes, float *row, double *entropy,
                      double *change)
{
    hl_locking locking = { .first = -1 };
    int64_t    n_new   = 0;

    for (int64_t token = 0; token < hl_trace_n_tokens(trace); token++) {
        hl_traced_token about = hl_trace_describe(trace, token);
        hl_head         head  = read_row(row, trace, token);
        double          score = score_row(spikes, row, about.kind);

        printf("%-9s  L%lldH%lld", hl_token_kind_name(about.kind), (long long)head.layer,
               (long long)head.head);
        if (about.kind == HL_KIND_GENERATED)
            printf("  %5.1f%%  %5.2f%s", 100.0 * exp(hl_trace_token(trace, token).logprob), score,
                   score > HL_SPIKE_THRESHOLD ? "  spike" : "");
        printf("\n");
        if (about.kind != HL_KIND_GENERATED)
            continue;
        entropy[n_new]  = hl_trace_mean(trace, token, HL_TRACE_NORMALIZED);
        change[n_new++] = hl_trace_mean(trace, token, HL_TRACE_CHANGE);
    }
    hl_status status = hl_find_locking(&locking, entropy, change, n_new, NULL);
    if (status == HL_OK && locking.locked)
        printf("attention stopped moving at token %lld of the new ones\n",
               (long long)locking.first);
    return status;
}

int main(int argc, char **argv)
{
    hl_trace  *trace  = NULL;
    hl_spikes *spikes = NULL;

    if (argc != 2) {
        fprintf(stderr, "usage: spikes TRACE\n");
        return 2;
    }
    hl_status status = hl_trace_load(&trace, argv[1]);
    if (status == HL_OK) {
        int64_t n_cells = hl_trace_n_layers(trace) * hl_trace_n_heads(trace);
        size_t  n       = (size_t)hl_trace_n_tokens(trace) + 1;
        float  *row     = malloc((size_t)n_cells * sizeof *row);
        double *numbers = malloc(2 * n * sizeof *numbers);
        status          = row != NULL && numbers != NULL ? HL_OK : HL_NO_MEMORY;
        if (status == HL_OK)
            status = hl_spikes_new(&spikes, n_cells, 1);
        if (status == HL_OK)
            status = show(trace, spikes, row, numbers, numbers + n);
        free(row);
        free(numbers);
    }
    if (status != HL_OK)
        fprintf(stderr, "%s\n", hl_error_message());
    hl_spikes_free(spikes);
    hl_trace_free(trace);
    return status == HL_OK ? 0 : 3;
}
