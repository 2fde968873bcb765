/* 3_mma.cu - products by the tensor cores (mma.sync), tiles loaded and waited for. */
#include "mma_step.cuh"

template <int D> static void launch(const ladder_problem &p)
{
    headlight::launch_mma<D, false>(p);
}

void run_3(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
