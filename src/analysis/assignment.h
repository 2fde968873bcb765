/* assignment.h - who belongs to whom: the pairing with the least total cost. */
#ifndef HL_ANALYSIS_ASSIGNMENT_H
#define HL_ANALYSIS_ASSIGNMENT_H

#include "headlight.h"

/* Every row gets a column of its own so that the sum of the costs is least; there are at least as
 * many columns as rows, and the costs are finite.  O(n_rows^2 n_columns).
 *   out   (n_rows) columns
 *   cost  (n_rows, n_columns) */
hl_status hl_assign(int64_t *out, const double *cost, int64_t n_rows, int64_t n_columns);

#endif
