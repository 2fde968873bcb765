/* row_state.cuh - kernels/row_state.h on the device, and the merged state of a warp's lanes. */
#ifndef HL_CUDA_ROW_STATE_CUH
#define HL_CUDA_ROW_STATE_CUH

#include "kernels/row_state.h"

namespace headlight
{

struct row_state : hl_row_state {
    __device__ row_state rescaled(double new_max) const
    {
        return { hl_row_state_rescale(*this, new_max) };
    }
    __device__ row_state merged(const row_state &other) const
    {
        return { hl_row_state_merge(*this, other) };
    }
    __device__ row_state pushed(double score) const
    {
        return { hl_row_state_push(*this, score) };
    }

    /* The merged state of all lanes of a warp, in every lane. */
    __device__ row_state across_warp() const
    {
        row_state all = *this;

        for (int step = 1; step < 32; step *= 2) {
            row_state other;
            other.max       = __shfl_xor_sync(~0u, all.max, step);
            other.sum       = __shfl_xor_sync(~0u, all.sum, step);
            other.dot       = __shfl_xor_sync(~0u, all.dot, step);
            other.collision = __shfl_xor_sync(~0u, all.collision, step);
            other.spread    = __shfl_xor_sync(~0u, all.spread, step);
            all             = all.merged(other);
        }
        return all;
    }

    __device__ bool blind() const
    {
        return sum == 0.0;
    }
    __device__ double lse() const
    {
        return hl_row_state_lse(*this);
    }
    __device__ double entropy() const
    {
        return hl_row_state_entropy(*this);
    }
    __device__ double renyi2() const
    {
        return hl_row_state_renyi2(*this);
    }
    __device__ double varentropy() const
    {
        return hl_row_state_varentropy(*this);
    }
};

} // namespace headlight

#endif
