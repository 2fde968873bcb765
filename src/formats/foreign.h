/* foreign.h - weight formats that headlight cannot read: names them and says how to convert. */
#ifndef HL_FORMATS_FOREIGN_H
#define HL_FORMATS_FOREIGN_H

#include "headlight/base.h"

/* HL_UNSUPPORTED with a message if the file has a known format that headlight cannot read.
 * HL_OK means only that the format was not recognized as one of those. */
hl_status hl_foreign_check_file(const char *path, const uint8_t *bytes, size_t n_bytes);

/* Reads folder/config.json, if it exists, and refuses a quantization_config that
 * headlight cannot read. */
hl_status hl_foreign_check_folder(const char *folder);

/* Fails with the reason why a folder without safetensors has no readable weights; never HL_OK. */
hl_status hl_foreign_explain_folder(const char *folder);

/* Fails for a path that does not exist: the message says what was expected, and where the Hugging
 * Face cache has a model of that name.  Never HL_OK. */
hl_status hl_foreign_explain_missing(const char *path);

#endif
