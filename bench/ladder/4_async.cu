/* 4_async.cu - the same with copies that do not wait (cp.async). */
#include "mma_step.cuh"

template <int D> static void launch(const ladder_problem &p)
{
    headlight::launch_mma<D, true>(p);
}

void run_4(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
