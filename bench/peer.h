/* peer.h - another program that does the same work, timed round by round.
 *
 * A peer is a child process that keeps running, so that its runs can be interleaved with
 * headlight's.  It writes lines: first "ready NAME" or "no REASON".  It answers each "time S" with
 * the seconds of one run or "no REASON", and other commands likewise. */
#ifndef HL_BENCH_PEER_H
#define HL_BENCH_PEER_H

#include <stdint.h>

#include "headlight.h"

typedef struct hl_peer hl_peer;

/* Starts a script of bench/peers with the number of threads and, if not NULL, one more argument, in
 * $HEADLIGHT_PYTHON, else build/venv/bin/python3, else /usr/bin/python3. */
hl_status hl_peer_open(hl_peer **out, const char *script, int n_threads, const char *argument);
void      hl_peer_close(hl_peer *peer);

/* The peer's name, such as "PyTorch 1.13"; borrowed. */
const char *hl_peer_name(const hl_peer *peer);

/* Makes one run at this length; the peer measures its time. */
hl_status hl_peer_time(double *seconds, hl_peer *peer, int64_t n_keys);
/* The same with a word of the script's own in place of "time". */
hl_status hl_peer_time_of(double *seconds, hl_peer *peer, const char *word, int64_t n_keys);
/* Sends any other line, which must be answered with "ok". */
hl_status hl_peer_tell(hl_peer *peer, const char *line);

#endif
