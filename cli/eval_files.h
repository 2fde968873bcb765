/* eval_files.h - how large the files are that hold a model's weights. */
#ifndef HL_CLI_EVAL_FILES_H
#define HL_CLI_EVAL_FILES_H

#include <stddef.h>

/* Bytes of a file, or of a folder's model*.safetensors; 0: none was found. */
size_t hl_eval_file_bytes(const char *path);

#endif
