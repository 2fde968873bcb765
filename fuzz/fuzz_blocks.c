/* fuzz_blocks.c - any bytes at all, as a file of quantized blocks for `headlight verify`.
 *
 * They are refused with a message, or every back end reads the blocks, and an error that is
 * found is not below 0.  What was read is written. */
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
