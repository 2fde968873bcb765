/* 7_lazy.cu - the library's kernel: no maximum where none is needed, and the sums of the
 * statistics in step with the exponentials (forward_hopper.cuh, weigh_about). */
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

void run_7(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}

void run_7_without(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch_without);
}
