/* report_tables.c - the outputs of compare --json and sweep --json, as a report's data.
 *
 * The content of such a file is copied but not trusted: it must be an object with "tables", each
 * with rows that are objects, and the heads that these name must exist. */
#include <stdio.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/file.h"
#include "base/status.h"
#include "render/report_parts.h"

/* With more heads than this, a table with one row per head and two dozen numbers is left out: the
 * numbers are differences of the profiles' own. */
enum { MOST_DIFFERENCES = 512 };

/* ------------------------------------------------------------------------- checking */

/* Checks that the layer and the head that a row names exist. */
static hl_status check_row(const json_t *row, const hl_profile *profile, const char *where)
{
    int64_t layer = 0, head = 0;

    if (json_is_integer(json_object_get(row, "layer")))
        HL_NEED(hl_json_get_int(&layer, row, "layer", where));
    if (json_is_integer(json_object_get(row, "head")))
        HL_NEED(hl_json_get_int(&head, row, "head", where));
    if (profile != NULL && (layer < 0 || layer >= hl_profile_n_layers(profile) || head < 0 ||
                            head >= hl_profile_n_heads(profile)))
        return hl_fail(
            HL_BAD_INPUT,
            "%s: L%lldH%lld does not exist: the profile has %lld layers of up to %lld heads", where,
            (long long)layer, (long long)head, (long long)hl_profile_n_layers(profile),
            (long long)hl_profile_n_heads(profile));
    return HL_OK;
}

static hl_status check_table(const json_t *table, const char *name, const hl_profile *profile,
                             const char *path)
{
    const json_t *rows = json_object_get(table, "rows");
    char          where[512];

    if (!json_is_array(rows))
        return hl_fail(HL_BAD_INPUT, "%s: tables.%s has no list of rows", path, name);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        snprintf(where, sizeof where, "%.400s: tables.%.40s.rows[%zu]", path, name, i);
        if (!json_is_object(row))
            return hl_fail(HL_BAD_INPUT, "%s is %s, wanted an object", where, hl_json_kind(row));
        HL_NEED(check_row(row, profile, where));
    }
    return HL_OK;
}

/* Checks the tables, of which `wanted` is required. */
static hl_status check_tables(json_t *root, const char *wanted, const hl_profile *profile,
                              const char *path, const char *command)
{
    json_t     *tables = json_object_get(root, "tables");
    const char *name   = NULL;
    json_t     *table  = NULL;

    if (!json_is_object(tables) || json_object_get(tables, wanted) == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: has no tables.%s: not what 'headlight %s --json' prints",
                       path, wanted, command);
    json_object_foreach(tables, name, table)
        HL_NEED(check_table(table, name, profile, path));
    return HL_OK;
}

/* ------------------------------------------------------------------------- reading */

static hl_status read_tables(json_t **out, const char *path, const char *wanted,
                             const hl_profile *profile, const char *command)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };
    HL_CLOSED(json_decref) json_t   *root = NULL;

    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_json_parse(&root, (const char *)file.bytes, file.n_bytes, path));
    HL_NEED(check_tables(root, wanted, profile, path, command));
    *out = hl_taken(&root);
    return HL_OK;
}

static const hl_profile *first_profile(const hl_report *report)
{
    return report->n_profiles > 0 ? report->profiles[0].profile : NULL;
}

json_t *hl_report_sweep_json(hl_report_out *out, const hl_report *report)
{
    json_t *root = NULL;

    hl_report_check(
        out, read_tables(&root, report->sweep_path, "points", first_profile(report), "sweep"));
    return root;
}

/* Compares the first two profiles, with the output of `headlight compare --json`. */
static hl_status compare(json_t **out, const hl_report *report)
{
    static const char *const long_tables[] = { "differences", "pairs" };

    const hl_report_profile                     *a     = &report->profiles[0];
    const hl_report_profile                     *b     = &report->profiles[1];
    hl_analysis_options                          how   = { .seed = report->seed };
    HL_FREED char                               *text  = NULL;
    HL_CLOSED(hl_comparison_free) hl_comparison *found = NULL;

    HL_NEED(hl_compare(&found, a->profile, b->profile, &how));
    HL_NEED(hl_comparison_render(&text, found, a->name, b->name));
    HL_NEED(hl_json_parse(out, text, strlen(text), "comparison"));
    if (found->n_heads > MOST_DIFFERENCES)
        for (size_t i = 0; i < sizeof long_tables / sizeof *long_tables; i++)
            json_object_del(json_object_get(*out, "tables"), long_tables[i]);
    return HL_OK;
}

/* Adds the file's "a" and "b", or the names of the profiles. */
static void put_names(json_t **root, const hl_report *report)
{
    json_t *names = json_array();

    for (int i = 0; i < 2; i++) {
        const json_t *side = json_object_get(*root, i == 0 ? "a" : "b");

        hl_json_add(&names,
                    report->n_profiles == 2
                        ? hl_report_text(report->profiles[i].name)
                        : hl_report_text(json_is_string(side) ? json_string_value(side) : ""));
    }
    hl_json_put(root, "names", names);
}

json_t *hl_report_compare_json(hl_report_out *out, const hl_report *report)
{
    json_t *root = NULL;

    if (hl_report_check(out, report->compare_path != NULL
                                 ? read_tables(&root, report->compare_path, "heads",
                                               first_profile(report), "compare")
                                 : compare(&root, report)))
        put_names(&root, report);
    return root;
}
