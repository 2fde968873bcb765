/* series_parts.h - the inside of hl_series: points, and the settings that all of them share. */
#ifndef HL_ANALYSIS_SERIES_PARTS_H
#define HL_ANALYSIS_SERIES_PARTS_H

#include "headlight/series.h"

/* Settings of profiles that describe how they were measured, except the model's weights. */
enum { HL_SERIES_N_SETTINGS = 13 };
extern const char *const hl_series_settings[HL_SERIES_N_SETTINGS];
/* Number of checks in the first version of the file; its lines lack the later ones. */
enum { HL_N_FIRST_DIAGNOSES = 8 };

struct hl_series {
    int64_t          n_layers; /* 0 before the first point is added */
    int64_t          n_heads;
    uint64_t         text;
    char            *settings[HL_SERIES_N_SETTINGS]; /* NULL if the profiles do not have the setting
                                                      * */
    hl_series_point *points;                         /* (n_points) */
    int64_t          n_points;
    size_t           capacity;
};

/* Parses from memory what hl_series_load reads; `where` names the file in messages. */
hl_status hl_series_parse(hl_series **out, const char *text, size_t n_bytes, const char *where);
/* Releases what the point owns, not the point itself. */
void hl_series_point_release(hl_series_point *point);
/* Appends a point and takes over what it owns; on failure, the point keeps it. A point of the
 * same name is replaced. */
hl_status hl_series_put(hl_series *series, hl_series_point *point);

#endif
