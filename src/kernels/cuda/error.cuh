/* error.cuh - statuses with a message, inside the CUDA library. */
#ifndef HL_CUDA_ERROR_CUH
#define HL_CUDA_ERROR_CUH

#include <cuda_runtime.h>

#include "headlight/base.h"

namespace headlight
{

/* Remembers the message for this thread. */
__attribute__((format(printf, 2, 3))) hl_status fail(hl_status status, const char *format, ...);

/* HL_OK for cudaSuccess, otherwise a failure with a message that names `what`. */
hl_status check(cudaError_t error, const char *what);

} // namespace headlight

#define HL_CUDA_TRY(call)                                                                          \
    do {                                                                                           \
        hl_status hl_status_ = (call);                                                             \
        if (hl_status_ != HL_OK)                                                                   \
            return hl_status_;                                                                     \
    } while (0)

#endif
