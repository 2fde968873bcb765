/* entities.h - names and numbers in a text, by how words begin. */
#ifndef HL_MEASURE_ENTITIES_H
#define HL_MEASURE_ENTITIES_H

#include "headlight.h"

/* Does text[begin, end) begin a word, after spaces and opening marks, that starts with a
 * capital letter or has a digit in it (as far as it goes)?  text[0, begin) is what stands
 * before.  Any bytes will do; what is not UTF-8 is no letter. */
bool hl_begins_entity(const char *text, size_t begin, size_t end);

#endif
