/* 6_groups.cu - two groups (three at d = 64), and the scores of the next block beside
 * O += P V of this one: products of one group run while another is in its softmax.
 * Maxima are looked for in every block. */
#include "hopper_step.cuh"

namespace headlight
{

template <typename S> struct exact_consumer : hopper_consumer<S> {
    __device__ void run_tile(const problem &p, const hopper_tile &tile, uint32_t q_parity)
    {
        this->reset();
        ptx::barrier_wait(&this->shared.q_full, q_parity);
        this->template first_step<HIDES_END>(p, tile);
        for (int block = tile.n_blocks - 2; block >= 0; block--)
            this->template step<HIDES_END>(p, tile, block);
        this->release(&this->shared.q_empty);
        this->last_step();
    }
};

} // namespace headlight

template <int D> static void launch(const ladder_problem &p)
{
    using S = headlight::hopper_shape<__nv_bfloat16, D, 128, D == 64 ? 3 : 2,
                                      headlight::HOPPER_ENTROPIES>;
    headlight::launch_step<S>(headlight::hopper_step<S, headlight::exact_consumer<S>>, p);
}

void run_6(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
