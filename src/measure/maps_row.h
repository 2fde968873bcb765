/* maps_row.h - the statistics of one row of attention that is there in full. */
#ifndef HL_MEASURE_MAPS_ROW_H
#define HL_MEASURE_MAPS_ROW_H

#include "headlight.h"
#include "kernels/row_state.h"

/* A row: what a position gives to each key. */
typedef struct hl_map_row {
    double *values;   /* (n_keys) probabilities, or scores with -inf for hidden keys */
    int64_t n_keys;   /* real ones */
    int64_t position; /* of the row itself */
    bool    scores;
} hl_map_row;

typedef struct hl_map_row_result {
    double  lse;
    double  entropy;
    double  renyi2;
    double  varentropy;
    double  entropy_nosink;
    double  peak;
    double  diagonal;
    double  previous;
    double  first;
    int64_t argmax;
} hl_map_row_result;

/* Metrics as for any row (row_state.h), and the row itself as probabilities that sum to 1,
 * in place. */
hl_map_row_result hl_map_row_measure(hl_map_row *row);

#endif
