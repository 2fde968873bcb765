/* team.h - threads for work that is over in microseconds.
 *
 *     hl_team_open(&team, n_threads);
 *     hl_team_run(team, n_shares, multiply_share, &task);
 *     hl_team_close(team);
 *
 * Decoding a token is some sixty products, each shared out: what a parallel region of
 * OpenMP costs shows, and more so on a busy machine, where it waits for every
 * thread to have come and gone.  Here shares are taken one by one by whoever is
 * there.  A member that comes late finds nothing left and nobody waits for it;
 * on a machine with one free core the caller does all by itself. */
#ifndef HL_BASE_TEAM_H
#define HL_BASE_TEAM_H

#include "headlight.h"

typedef struct hl_team hl_team;

/* `member` counts from 0, the caller, to n_threads - 1. */
typedef void (*hl_team_work)(void *context, int64_t share, int member);

#define HL_TEAM_SHARES (1 << 20) /* at most in a run */

/* The caller and n_threads - 1 others, or as many as the system grants. */
hl_status hl_team_open(hl_team **out, int n_threads);
void      hl_team_close(hl_team *team);

/* work(context, i, member) for every i < n_shares; back when all are done.  Not from two
 * threads at once, and not from within `work`. */
void hl_team_run(hl_team *team, int64_t n_shares, hl_team_work work, void *context);

#endif
