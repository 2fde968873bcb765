/* fuzz_tables.c - arbitrary bytes as the output of `sweep --json` and `compare --json`, for a
 * report.
 *
 * They are refused with a message, or the result is an object with tables. */
#include "fuzz_file.h"
#include "render/report_parts.h"

static void read_one(json_t *(*read)(hl_report_out *, const hl_report *), const hl_report *report)
{
    hl_report_out out    = { 0 };
    json_t       *tables = read(&out, report);

    PROMISE((tables != NULL) == (out.status == HL_OK));
    PROMISE(tables != NULL ? json_is_object(json_object_get(tables, "tables"))
                           : hl_error_message()[0] != '\0');
    json_decref(tables);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static hl_profile *profile; /* read once */
    const char        *path = fuzz_file("tables.json", bytes, n_bytes);

    bool is_first = profile == NULL;
    if (is_first)
        PROMISE(hl_profile_load(&profile, "fuzz/corpus/profile/one") == HL_OK);
    const hl_report_profile pair[]  = { { "one", profile }, { "another", profile } };
    hl_report               without = { .sweep_path = path, .compare_path = path };
    hl_report               with    = { .sweep_path = path, .profiles = pair, .n_profiles = 2 };
    read_one(hl_report_sweep_json, &without);
    read_one(hl_report_sweep_json, &with);
    read_one(hl_report_compare_json, &without);
    if (is_first) /* this part is slow and does not depend on the input */
        read_one(hl_report_compare_json, &with);
    return 0;
}
