/* 8_alone.cu - the library's kernel: a warp decides for itself whether its weights will do
 * (forward_hopper.cuh, weigh_about), and asks for the next keys and values before it rounds. */
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

void run_8(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}

void run_8_without(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch_without);
}
