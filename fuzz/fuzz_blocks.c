/* fuzz_blocks.c - arbitrary bytes as a file of quantized blocks for `headlight verify`.
 *
 * They are refused with a message, or every back end reads the blocks and reports errors that are
 * not negative.  The values that were read can be written. */
#include "fuzz_file.h"
#include "measure/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char              written[FUZZ_PATH_BYTES];
    hl_verify_options options = { .write_path = written };
    hl_verify_report *report  = NULL;
    const char       *path    = fuzz_file("blocks.safetensors", bytes, n_bytes);

    snprintf(written, sizeof written, "%s/values.safetensors", fuzz_folder());
    if (hl_verify_blocks(&report, path, &options) != HL_OK)
        return refused(report);
    for (size_t i = 0; i < report->n_entries; i++)
        PROMISE(!(report->entries[i].error < 0.0));
    hl_verify_report_free(report);
    return 0;
}
