/* series_parts.h - the inside of hl_series: points, and what must be the same for all of them. */
#ifndef HL_ANALYSIS_SERIES_PARTS_H
#define HL_ANALYSIS_SERIES_PARTS_H

#include "headlight/series.h"

/* What a profile says of how it was measured, but for the model's weights. */
enum { HL_SERIES_N_SETTINGS = 13 };
extern const char *const hl_series_settings[HL_SERIES_N_SETTINGS];
/* Number of checks in the first version of the file; its lines lack the later ones. */
enum { HL_N_FIRST_DIAGNOSES = 8 };

struct hl_series {
    int64_t          n_layers; /* 0: nothing was added yet */
    int64_t          n_heads;
    uint64_t         text;
    char            *settings[HL_SERIES_N_SETTINGS]; /* NULL: profiles do not say */
    hl_series_point *points;                         /* (n_points) */
    int64_t          n_points;
    size_t           capacity;
};

/* What hl_series_load reads, from memory; `where` names it in messages. */
hl_status hl_series_parse(hl_series **out, const char *text, size_t n_bytes, const char *where);
/* Releases what the point holds, not the point. */
void hl_series_point_release(hl_series_point *point);
/* Puts a point behind the others and takes what it holds over; where this fails, the point keeps it.
 * One that has its name goes. */
hl_status hl_series_put(hl_series *series, hl_series_point *point);

#endif
