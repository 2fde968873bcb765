/* tensor_map.cuh - descriptions of rows for Hopper's tensor copy engine. */
#ifndef HL_CUDA_TENSOR_MAP_CUH
#define HL_CUDA_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/error.cuh"
#include "kernels/cuda/problem.cuh"

namespace headlight
{

/* Finds the driver's function without linking it. */
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder()
{
    static decltype(&cuTensorMapEncodeTiled) found = [] {
        void                           *address = nullptr;
        cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000,
                                             cudaEnableDefault, &result) != cudaSuccess ||
            result != cudaDriverEntryPointSuccess)
            address = nullptr;
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(address);
    }();
    return found;
}

/* Whether the rows can be described: all are aligned to 16 bytes and all strides are positive. */
inline bool tensor_map_takes(const hl_rows &rows)
{
    return on_16_bytes(rows) && rows.row_stride > 0 && rows.head_stride > 0 &&
           rows.batch_stride > 0;
}

/* bf16 or fp16 in boxes of n_box_rows rows by 64 columns, swizzled; elements outside read as 0 and
 * are not written. */
inline hl_status tensor_map_make(CUtensorMap *map, const hl_rows &rows, int n_batch, int n_heads,
                                 int n_rows, int width, int n_box_rows)
{
    cuuint64_t sizes[]   = { (cuuint64_t)width, (cuuint64_t)n_rows, (cuuint64_t)n_heads,
                             (cuuint64_t)n_batch };
    cuuint64_t strides[] = { (cuuint64_t)rows.row_stride * 2, (cuuint64_t)rows.head_stride * 2,
                             (cuuint64_t)rows.batch_stride * 2 };
    cuuint32_t box[]     = { 64, (cuuint32_t)n_box_rows, 1, 1 };
    cuuint32_t steps[]   = { 1, 1, 1, 1 };

    if (tensor_map_encoder() == nullptr)
        return fail(HL_NOT_FOUND, "the driver has no cuTensorMapEncodeTiled; wanted CUDA 12");
    CUresult result =
        tensor_map_encoder()(map,
                             rows.dtype == HL_DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                        : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                             4, rows.data, sizes, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return fail(HL_INTERNAL, "a tensor map was refused by the driver (error %d)", (int)result);
    return HL_OK;
}

} // namespace headlight

#endif
