/* printable.h - text that somebody else wrote, made fit to be shown (hl_printable, headlight.h).
 *
 * Names of tensors, metadata, tokens and file names come from files that anybody may have made.
 * A terminal obeys some of their characters: it moves its cursor, changes its title, or shows a line
 * in another order than it is stored.  Whatever the library or the program shows of them, error
 * messages, tables, log lines and texts, goes through hl_printable first. */
#ifndef HL_BASE_PRINTABLE_H
#define HL_BASE_PRINTABLE_H

#include "headlight.h"

/* Would a terminal obey this character instead of showing it?  C0, DEL and C1 controls, and the
 * controls of bidirectional text.  Line ends and tabs are among them. */
bool hl_character_is_control(uint32_t c);

/* As above, and characters that show nothing at all: soft hyphens, spaces of no width, marks of byte
 * order and line separators.  Joiners (U+200C, U+200D) are not: emoji and several scripts need them. */
bool hl_character_is_unseen(uint32_t c);

#endif
