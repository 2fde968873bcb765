/* 5_wgmma.cu - copies by the tensor copy engine, products by a warp group (wgmma): one
 * producer, one group of 64 rows, one thing after the other. */
#include "hopper_step.cuh"

namespace headlight
{

template <typename S> struct lone_consumer : hopper_consumer<S> {
    __device__ void run_tile(const problem &p, const hopper_tile &tile, uint32_t q_parity)
    {
        auto &shared = this->shared;

        this->reset();
        ptx::barrier_wait(&shared.q_full, q_parity);
        for (int block = tile.n_blocks - 1; block >= 0; block--) {
            float      scores[S::KEYS / 2], rescale[2];
            block_view view[2];
            int        stage = stage_of(this->n_blocks);

            ptx::barrier_wait(&shared.k_full[stage], parity_of(this->n_blocks));
            this->issue_scores(scores, stage);
            ptx::wgmma_wait<0>();
            ptx::settle(scores);
            this->release(&shared.k_empty[stage]);
            this->look(view, p, tile, block);
            this->template weigh<HIDES_END>(rescale, scores, view);
            this->rescale_out(rescale);
            this->round_weights(scores);
            this->last_step();
        }
        this->release(&shared.q_empty);
    }
};

} // namespace headlight

template <int D> static void launch(const ladder_problem &p)
{
    using S = headlight::hopper_shape<__nv_bfloat16, D, 128, 1, headlight::HOPPER_ENTROPIES>;
    headlight::launch_step<S>(headlight::hopper_step<S, headlight::lone_consumer<S>>, p);
}

void run_5(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
