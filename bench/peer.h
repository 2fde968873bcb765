/* peer.h - another program that does the same work, timed round by round.
 *
 * A peer is a child process that is kept alive, so that its runs can be
 * interleaved with ours.  It talks in lines: first "ready NAME" or "no REASON",
 * then for each "time S" the seconds that one run took, or "no REASON". */
#ifndef HL_BENCH_PEER_H
#define HL_BENCH_PEER_H

#include <stdint.h>

#include "headlight.h"

typedef struct hl_peer hl_peer;

/* Starts /usr/bin/python3 (or $HEADLIGHT_PYTHON) on a script of bench/peers. */
hl_status hl_peer_open(hl_peer **out, const char *script, int n_threads);
void      hl_peer_close(hl_peer *peer);

/* What it calls itself, "PyTorch 1.13"; borrowed. */
const char *hl_peer_name(const hl_peer *peer);

/* One run at this length; the child's own measure of it. */
hl_status hl_peer_time(double *seconds, hl_peer *peer, int64_t n_keys);

#endif
