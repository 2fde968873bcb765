/* fuzz_labels.c - any bytes at all, as labels for a trace.
 *
 * They are accepted or refused with a message.  What is accepted are ranges. */
#include <stdint.h>
#include <stdlib.h>

#include "analysis/labels.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_labels *labels = NULL;

    if (hl_labels_parse(&labels, (const char *)bytes, n_bytes, "fuzz") != HL_OK) {
        PROMISE(labels == NULL && hl_error_message()[0] != '\0');
        return 0;
    }
    for (int64_t i = 0; i < hl_labels_count(labels); i++) {
        const hl_label *label = &labels->items[i];
        PROMISE(label->line > 0 && label->first >= 0 && label->first < label->end);
    }
    hl_labels_free(labels);
    return 0;
}
