/* fuzz_labels.c - arbitrary bytes as labels for a trace.
 *
 * They are accepted or refused with a message, from memory and from a file.  Accepted labels are
 * valid ranges. */
#include "analysis/labels.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_labels *labels = NULL;
    hl_labels *loaded = NULL;
    hl_status  status = hl_labels_load(&loaded, fuzz_file("labels", bytes, n_bytes));

    PROMISE(status == hl_labels_parse(&labels, (const char *)bytes, n_bytes, "fuzz"));
    if (status != HL_OK)
        return refused(labels);
    for (int64_t i = 0; i < labels->count; i++) {
        const hl_label *label = &labels->items[i];
        PROMISE(label->line > 0 && label->first >= 0 && label->first < label->end);
    }
    PROMISE(loaded->count == labels->count);
    hl_labels_free(loaded);
    hl_labels_free(labels);
    return 0;
}
