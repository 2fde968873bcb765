/* 7_lazy.cu - no maximum where none is needed, and the sums of the statistics in step with the
 * exponentials.  The group votes on each block, and goes back to its scores together. */
#include "hopper_step.cuh"

namespace headlight
{

/* A barrier by its number: have all n_threads said yes? */
__device__ __forceinline__ bool named_all(int id, int n_threads, bool yes)
{
    uint32_t all;
    asm volatile("{\n"
                 ".reg .pred mine, ours;\n"
                 "setp.ne.u32 mine, %3, 0;\n"
                 "bar.red.and.pred ours, %1, %2, mine;\n"
                 "selp.u32 %0, 1, 0, ours;\n"
                 "}\n"
                 : "=r"(all)
                 : "r"(id), "r"(n_threads), "r"(static_cast<uint32_t>(yes))
                 : "memory");
    return all != 0;
}

template <typename S> struct lazy_consumer : hopper_consumer<S> {
    using hopper_consumer<S>::shared, hopper_consumer<S>::n_blocks;

    /* Weights and sums; false, and the sums as they were, when any row of the group grew. */
    __device__ __forceinline__ bool weigh_together(float (&scores)[S::KEYS / 2])
    {
        typename hopper_consumer<S>::sums block;

        bool fits = this->weigh_block(block, scores);
        if (!named_all(1 + this->group, 128, fits))
            return false;
        this->rows.add(block);
        return true;
    }

    __device__ __forceinline__ void lazy_step()
    {
        float      scores[S::KEYS / 2], rescale[2];
        block_view view[2] = {};
        int        stage   = stage_of(n_blocks + 1);

        ptx::barrier_wait(&shared.k_full[stage], parity_of(n_blocks + 1));
        this->issue_scores(scores, stage);
        ptx::barrier_wait(&shared.v_full[stage_of(n_blocks)], parity_of(n_blocks));
        this->issue_out(stage_of(n_blocks));
        ptx::wgmma_wait<1>();
        ptx::settle(scores);
        if (weigh_together(scores)) {
            this->release(&shared.k_empty[stage]);
            ptx::wgmma_wait<0>();
            ptx::settle(this->out);
        } else {
            ptx::wgmma_wait<0>();
            ptx::settle(this->out);
            this->issue_scores(scores, stage);
            ptx::wgmma_wait<0>();
            ptx::settle(scores);
            this->template weigh<HIDES_NOTHING>(rescale, scores, view);
            this->release(&shared.k_empty[stage]);
            this->rescale_out(rescale);
        }
        this->release(&shared.v_empty[stage_of(n_blocks)]);
        n_blocks++;
        this->round_weights(scores);
    }

    __device__ void run_tile(const problem &p, const hopper_tile &tile, uint32_t q_parity)
    {
        int above = (tile.first_row + this->group * 64 + 1) / S::KEYS;
        int block = tile.n_blocks - 2;

        this->reset();
        ptx::barrier_wait(&shared.q_full, q_parity);
        this->template first_step<HIDES_END>(p, tile);
        for (; block >= above; block--)
            this->template step<HIDES_END>(p, tile, block);
        for (; block >= 0; block--)
            lazy_step();
        this->release(&shared.q_empty);
        this->last_step();
    }
};

} // namespace headlight

template <int D> static void launch(const ladder_problem &p)
{
    using S = headlight::hopper_shape<__nv_bfloat16, D, D == 64 ? 96 : 128, D == 64 ? 3 : 2,
                                      headlight::HOPPER_ENTROPIES>;
    headlight::launch_step<S>(headlight::hopper_step<S, headlight::lazy_consumer<S>>, p);
}

void run_7(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
