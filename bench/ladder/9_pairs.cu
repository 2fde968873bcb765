/* 9_pairs.cu - the library's kernel: blocks in pairs (forward_hopper.cuh, step_to), so that all
 * addresses of the two buffers of keys and values are constants. */
#include "hopper_step.cuh"

template <int D> static void launch(const ladder_problem &p)
{
    using S = headlight::hopper_shape<__nv_bfloat16, D, D == 64 ? 96 : 128, D == 64 ? 3 : 2,
                                      headlight::HOPPER_ENTROPIES>;
    headlight::launch_step<S>(headlight::forward_hopper<S>, p);
}

template <int D> static void launch_without(const ladder_problem &p)
{
    using S =
        headlight::hopper_shape<__nv_bfloat16, D, 128, D == 64 ? 3 : 2, headlight::HOPPER_NOTHING>;
    headlight::launch_step<S>(headlight::forward_hopper<S>, p);
}

void run_9(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}

void run_9_without(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch_without);
}
