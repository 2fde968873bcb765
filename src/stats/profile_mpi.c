/* profile_mpi.c - adds up the profiles of many ranks with an operator of MPI.
 *
 * A profile's tables are one block of bytes (profile_tables.h), and adding two blocks is
 * associative and commutative, as MPI_Reduce requires.  MPI passes blocks in memory that may not be
 * aligned for 128-bit numbers, so the operator first copies them into two profiles.
 *
 * MPI is started only if a launcher indicates that there are several ranks: a program run by itself
 * does not need it. */
#include "stats/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "headlight/measure.h"
#include "stats/profile_tables.h"

/* Returns true if mpirun or srun has set its environment variables. */
static bool is_launched(void)
{
    static const char *const signs[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", NULL };

    for (int i = 0; signs[i] != NULL; i++) {
        if (getenv(signs[i]) != NULL)
            return true;
    }
    return false;
}

#ifdef HL_HAVE_MPI

#include <mpi.h>

/* Global, since MPI passes no context to an operator. */
static hl_profile *scratch[2];

/* ------------------------------------------------------------------- start, end */

hl_status hl_ranks_start(int32_t *rank, int32_t *n_ranks)
{
    int provided = 0;
    int flag     = 0;

    *rank    = 0;
    *n_ranks = 1;
    MPI_Initialized(&flag);
    if (!flag && !is_launched())
        return HL_OK;
    if (!flag && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return hl_fail(HL_UNSUPPORTED, "MPI does not start");
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, n_ranks);
    return HL_OK;
}

static bool is_running(void)
{
    int started = 0;
    int ended   = 0;

    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    return started && !ended;
}

void hl_ranks_finish(void)
{
    if (is_running())
        MPI_Finalize();
}

/* --------------------------------------------------------------------- agreeing */

hl_status hl_ranks_agree(hl_status own)
{
    int rank   = 0;
    int worst  = 0;
    int failed = -1;

    if (!is_running())
        return own;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    failed = own != HL_OK ? rank : -1;
    MPI_Allreduce(&failed, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (own != HL_OK || worst < 0)
        return own;
    return hl_fail(HL_CANCELLED, "rank %d failed; the part of this rank is saved", worst);
}

/* Checks that all ranks measured in the same way: nodes may have different files of the same
 * name. */
static hl_status agree_on_settings(const hl_profile *profile)
{
    uint64_t own = 1469598103934665603U; /* FNV-1a */
    uint64_t least, most;

    for (size_t i = 0; i < profile->n_settings; i++) {
        for (const char *c = profile->settings[i].value; *c != '\0'; c++)
            own = (own ^ (uint8_t)*c) * 1099511628211U;
        own = (own ^ 0xff) * 1099511628211U;
    }
    own ^= profile->n_block_bytes;
    MPI_Allreduce(&own, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&own, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (least != most)
        return hl_fail(HL_BAD_INPUT, "the ranks do not have the same model, text or options");
    return HL_OK;
}

/* --------------------------------------------------------------------- reducing */

/* Adds inout[i] += in[i] for `*count` blocks; the type is that of a block. */
static void add_blocks(void *in, void *inout, int *count, MPI_Datatype *type)
{
    size_t n_bytes = scratch[0]->n_block_bytes;

    (void)type;
    for (int i = 0; i < *count; i++) {
        char *from = (char *)in + (size_t)i * n_bytes;
        char *to   = (char *)inout + (size_t)i * n_bytes;

        memcpy(scratch[0]->block, from, n_bytes);
        memcpy(scratch[1]->block, to, n_bytes);
        hl_profile_add_tables(scratch[1], scratch[0]);
        memcpy(to, scratch[1]->block, n_bytes);
    }
}

static hl_status new_scratch(const hl_profile *profile)
{
    hl_profile_shape shape = { .n_layers   = profile->n_layers,
                               .heads      = profile->heads,
                               .n_types    = profile->n_types,
                               .type_names = (const char *const *)profile->type_names };

    for (int i = 0; i < 2; i++) {
        HL_NEED(hl_profile_new_shape(&scratch[i], &shape, profile->n_buckets, profile->n_kept));
        HL_NEED(hl_profile_allocate(scratch[i]));
    }
    return HL_OK;
}

/* The size of a block is counted in cache lines, so that it fits into an int. */
static void reduce_block(hl_profile *profile)
{
    int          rank = 0;
    MPI_Datatype line, block;
    MPI_Op       add;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_contiguous(64, MPI_BYTE, &line);
    MPI_Type_contiguous((int)(profile->n_block_bytes / 64), line, &block);
    MPI_Type_commit(&block);
    MPI_Op_create(add_blocks, 1, &add);
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : profile->block, rank == 0 ? profile->block : NULL, 1,
               block, add, 0, MPI_COMM_WORLD);
    MPI_Op_free(&add);
    MPI_Type_free(&block);
    MPI_Type_free(&line);
}

hl_status hl_ranks_reduce(hl_profile *profile, hl_status own)
{
    hl_status status = hl_ranks_agree(own);

    if (status != HL_OK || !is_running())
        return status;
    HL_TRY(agree_on_settings(profile));
    HL_TRY(hl_ranks_agree(new_scratch(profile)));
    reduce_block(profile);

done:
    for (int i = 0; i < 2; i++) {
        hl_profile_free(scratch[i]);
        scratch[i] = NULL;
    }
    return status;
}

#else

hl_status hl_ranks_start(int32_t *rank, int32_t *n_ranks)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");

    *rank    = 0;
    *n_ranks = 1;
    if (is_launched() && (size == NULL || strcmp(size, "1") != 0))
        return hl_fail(HL_UNSUPPORTED,
                       "several MPI ranks, but this build has no MPI; build with make MPI=1");
    return HL_OK;
}

hl_status hl_ranks_agree(hl_status own)
{
    return own;
}

hl_status hl_ranks_reduce(hl_profile *profile, hl_status own)
{
    (void)profile;
    return own;
}

void hl_ranks_finish(void)
{
}

#endif
