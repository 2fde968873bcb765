/* 8_alone.cu - a warp decides for itself whether its weights will do (forward_hopper.cuh,
 * weigh_about), and asks for the next keys and values before it rounds. */
#include "hopper_step.cuh"

namespace headlight
{

template <typename S> struct alone_consumer : hopper_consumer<S> {
    __device__ void run_tile(const problem &p, const hopper_tile &tile, uint32_t q_parity)
    {
        int above = (tile.first_row + this->group * 64 + 1) / S::KEYS;
        int block = tile.n_blocks - 2;

        this->reset();
        ptx::barrier_wait(&this->shared.q_full, q_parity);
        this->template first_step<HIDES_END>(p, tile);
        for (; block >= above; block--)
            this->template step<HIDES_END>(p, tile, block);
        for (; block >= 0; block--)
            this->template step<HIDES_NOTHING>(p, tile, block);
        this->release(&this->shared.q_empty);
        this->last_step();
    }
};

} // namespace headlight

template <int D> static void launch(const ladder_problem &p)
{
    using S = headlight::hopper_shape<__nv_bfloat16, D, D == 64 ? 96 : 128, D == 64 ? 3 : 2,
                                      headlight::HOPPER_ENTROPIES>;
    headlight::launch_step<S>(headlight::hopper_step<S, headlight::alone_consumer<S>>, p);
}

void run_8(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
