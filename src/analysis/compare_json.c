/* compare_json.c - a comparison as JSON: what `headlight compare --json` prints and reports hold. */
#include <stdlib.h>
#include <string.h>

#include "analysis/compare.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

static hl_status add_table(json_t *tables, const hl_sheet *table, const char *name)
{
    hl_status status = HL_OK;
    char     *text   = NULL;
    json_t   *value  = NULL;

    if (table == NULL)
        return HL_OK;
    HL_TRY(hl_sheet_render(&text, table, HL_SHEET_JSON));
    HL_TRY(hl_json_parse(&value, text, strlen(text), name));
    if (json_object_set_new(tables, name, value) != 0)
        status = hl_fail(HL_NO_MEMORY, "out of memory for the table '%s'", name);

done:
    hl_free(text);
    return status;
}

hl_status hl_comparison_render(char **out, const hl_comparison *comparison, const char *name_a,
                               const char *name_b)
{
    hl_status status = HL_OK;
    json_t   *root   = NULL;
    json_t   *tables = json_object();

    *out = NULL;
    for (size_t i = 0; hl_comparison_table_name(i) != NULL; i++) {
        const char *name = hl_comparison_table_name(i);
        HL_TRY(add_table(tables, hl_comparison_table(comparison, name), name));
    }
    /* Names are paths: any bytes. */
    root = json_pack(
        "{s:o, s:o, s:s, s:b, s:I, s:I, s:I, s:O}", "a", hl_json_text(name_a, strlen(name_a)), "b",
        hl_json_text(name_b, strlen(name_b)), "kind", hl_comparison_kind_name(comparison->kind),
        "same_model", comparison->same_model, "shared_sequences", (json_int_t)comparison->n_shared,
        "heads", (json_int_t)comparison->n_heads, "significant",
        (json_int_t)comparison->n_significant, "tables", tables);
    *out = hl_json_dump(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (*out == NULL)
        status = hl_fail(HL_NO_MEMORY, "out of memory for the comparison");

done:
    json_decref(root);
    json_decref(tables);
    return status;
}
