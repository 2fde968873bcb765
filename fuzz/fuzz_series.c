/* fuzz_series.c - arbitrary bytes as a series.
 *
 * They are accepted or refused with a message.  An accepted series answers every query, and has as
 * many points after it has been written and read again. */
#include "analysis/series_parts.h"
#include "fuzz_file.h"

static void write_and_read(const hl_series *series)
{
    char       path[FUZZ_PATH_BYTES];
    hl_series *again = NULL;

    snprintf(path, sizeof path, "%s/again.series", fuzz_folder());
    PROMISE(hl_series_write(series, path) == HL_OK);
    PROMISE(hl_series_load(&again, path) == HL_OK);
    PROMISE(hl_series_n_points(again) == hl_series_n_points(series));
    hl_series_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_series *series = NULL;

    if (hl_series_parse(&series, (const char *)bytes, n_bytes, "fuzz") != HL_OK)
        return refused(series);
    PROMISE(hl_series_n_layers(series) > 0 && hl_series_n_heads(series) > 0);
    for (int64_t i = 0; i < hl_series_n_points(series); i++) {
        const hl_series_point *point = hl_series_at(series, i);
        char                  *line  = NULL;

        PROMISE(point->step >= 0 && hl_series_find(series, point->name) == point);
        PROMISE(hl_series_render(&line, series, i) == HL_OK && line[0] == '{');
        hl_free(line);
    }
    if (hl_series_n_points(series) > 0)
        write_and_read(series);
    hl_series_free(series);
    return 0;
}
