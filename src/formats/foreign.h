/* foreign.h - weights that are not read here: what they are, and how to convert them. */
#ifndef HL_FORMATS_FOREIGN_H
#define HL_FORMATS_FOREIGN_H

#include "headlight/base.h"

/* HL_UNSUPPORTED with a message if the file is of a kind that is known and not read;
 * else HL_OK, which says nothing about what it is. */
hl_status hl_foreign_check_file(const char *path, const uint8_t *bytes, size_t n_bytes);

/* Reads folder/config.json, if it is there, and refuses a quantization_config of a
 * kind that we do not read. */
hl_status hl_foreign_check_folder(const char *folder);

/* Why a folder without safetensors holds no weights for us; never HL_OK. */
hl_status hl_foreign_explain_folder(const char *folder);

/* Says of a path that leads nowhere what was expected, and where the Hugging Face cache has a model of
 * that name; never HL_OK. */
hl_status hl_foreign_explain_missing(const char *path);

#endif
