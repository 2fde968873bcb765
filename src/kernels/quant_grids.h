/* quant_grids.h - the codebooks of the IQ block types.
 *
 * An IQ block stores small vectors as numbers of entries in a fixed book.  The
 * books are part of the format.  Each entry is packed into 16 bits here:
 *
 *     iq1_s           8 values of 2 bits: 0 1 2 stand for -1 0 1
 *     iq2_xxs xs s    8 values of 2 bits: 0 1 2 stand for 8 25 43
 *     iq3_xxs         4 values of 3 bits: 0 .. 7 stand for 4 12 20 28 36 44 52 62
 *     iq3_s           4 values of 3 bits: q stands for 2q + 1
 *
 * the first value in the lowest bits.  A vector of 32-bit lanes unpacks an entry
 * with one shift, and a permute of the values it stands for ignores the rest. */
#ifndef HL_KERNELS_QUANT_GRIDS_H
#define HL_KERNELS_QUANT_GRIDS_H

#include <stdint.h>

#ifndef HL_GRID /* a file that includes quant_grids.c may define where the tables lie */
#define HL_GRID const
extern const uint16_t hl_grid_iq1_s[2048];
extern const uint16_t hl_grid_iq2_xxs[256];
extern const uint16_t hl_grid_iq2_xs[512];
extern const uint16_t hl_grid_iq2_s[1024];
extern const uint16_t hl_grid_iq3_xxs[256];
extern const uint16_t hl_grid_iq3_s[512];
#endif

#endif
