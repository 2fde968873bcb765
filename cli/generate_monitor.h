/* generate_monitor.h - a text as it comes, for somebody who watches: colored by entropy,
 * spikes underlined, and beside every line what the layers did.
 *
 *     The old man looked out at the sea, and said     ▃▅▆▆▅▇▇▆
 *     that he had not been there since the war        ▃▅▅▆▅▇▆▆
 *
 * A line's bar has a block a layer (or a group of layers): the mean normalized entropy over
 * the line's tokens, which is drawn anew with each of them.  Lines are broken here, so that
 * the bar has its place; where the terminal is too narrow there is none. */
#ifndef HL_CLI_GENERATE_MONITOR_H
#define HL_CLI_GENERATE_MONITOR_H

#include <stdint.h>

#include "headlight.h"
#include "screen.h"

enum { HL_MONITOR_BARS = 32 };

/* What is shown of a token beside its text. */
typedef struct hl_monitor_token {
    size_t n_bytes;                 /* of its text, which may come later */
    double entropy;                 /* mean of attention, nats; NaN: not known */
    bool   is_spike;                /* ... */
    bool   is_entity;               /* and names something */
    bool   is_given;                /* not the model's: shown dim */
    float  layers[HL_MONITOR_BARS]; /* (n_bars) normalized entropy */
} hl_monitor_token;

typedef struct hl_monitor {
    FILE             *stream;
    hl_depth          depth;
    bool              plain;  /* no escapes at all: a terminal that cannot */
    int               width;  /* columns of text */
    int               n_bars; /* 0: none */
    int               column; /* where the text is, from 0 */
    double            low;    /* entropies of the first color and */
    double            high;   /* ... the last */
    double            sums[HL_MONITOR_BARS];
    int64_t           n_line;  /* tokens of this line, and */
    int64_t           n_drawn; /* those that its bar shows */
    hl_monitor_token *queue;   /* whose text is still to come, the first first */
    size_t            n_queue;
    size_t            capacity;
} hl_monitor;

/* How many bars so many layers get. */
int hl_monitor_n_bars(int64_t n_layers);
/* columns: of the terminal. */
void hl_monitor_start(hl_monitor *monitor, FILE *stream, hl_depth depth, int columns,
                      int64_t n_layers);
/* Colors from an entropy that the text is likely to stay near: that of the prompt's rows. */
void hl_monitor_scale(hl_monitor *monitor, const hl_trace *trace);
/* What is to be shown of a token of a trace. */
hl_monitor_token hl_monitor_look(const hl_monitor *monitor, const hl_trace *trace, int64_t token,
                                 double threshold);
/* A token whose text will come; false when memory is out. */
bool hl_monitor_expect(hl_monitor *monitor, const hl_monitor_token *token);
/* Text of the tokens expected, in their order; at once.  Control characters are spelled out. */
void hl_monitor_show(hl_monitor *monitor, const char *text, size_t n_bytes);
/* The last line ends, and one follows that explains the others. */
void hl_monitor_finish(hl_monitor *monitor, double threshold, int64_t n_spikes, int64_t n_entities);
void hl_monitor_free(hl_monitor *monitor);

#endif
