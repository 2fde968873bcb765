/* fuzz_labels.c - any bytes at all, as labels for a trace.
 *
 * They are accepted or refused with a message.  What is accepted are ranges. */
#include "analysis/labels.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_labels *labels = NULL;

    if (hl_labels_parse(&labels, (const char *)bytes, n_bytes, "fuzz") != HL_OK)
        return refused(labels);
    for (int64_t i = 0; i < hl_labels_count(labels); i++) {
        const hl_label *label = &labels->items[i];
        PROMISE(label->line > 0 && label->first >= 0 && label->first < label->end);
    }
    hl_labels_free(labels);
    return 0;
}
