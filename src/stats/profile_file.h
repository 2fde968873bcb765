/* profile_file.h - names that the writer and the reader of profiles share. */
#ifndef HL_STATS_PROFILE_FILE_H
#define HL_STATS_PROFILE_FILE_H

/* The metadata's "format"; another number when programs of before can no longer read files.
 * The first one had no curves by position of kept sequences, and is read. */
#define HL_PROFILE_FORMAT       "headlight profile 2"
#define HL_PROFILE_FIRST_FORMAT "headlight profile 1"
/* Means of the quantities, (L, H, Q) F64: for other programs, made anew when written. */
#define HL_PROFILE_MEAN "mean"
/* Of work that is not done: where to go on. */
#define HL_PROFILE_STATE "state"

#endif
