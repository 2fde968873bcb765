/* verify_support.h - golden attention cases with one change.
 *
 * The tests of verify need files with one error: a copy of a valid case with a tensor left out or
 * replaced, or with other options. */
#ifndef HL_TESTS_VERIFY_SUPPORT_H
#define HL_TESTS_VERIFY_SUPPORT_H

#include "support.h"

#include "formats/safetensors.h"
#include "headlight.h"
#include "measure/verify.h"

#define CASES "tests/data/attention/"

/* A change; all zero copies the file. */
typedef struct case_edit {
    const char      *drop;    /* leave this tensor out */
    const hl_tensor *replace; /* replaces the tensor of this name, or is added */
    const char      *options; /* replaces the metadata "case"; "" leaves it out */
} case_edit;

/* A folder for the files of one test program, made before its tests and removed after them. */
static const char *scratch_folder;

static inline int make_scratch(void **state)
{
    (void)state;
    scratch_folder = new_folder();
    return 0;
}

static inline int remove_scratch(void **state)
{
    (void)state;
    remove_folder(scratch_folder);
    return 0;
}

static inline const char *scratch(const char *name)
{
    static char paths[2][256];
    static int  next;
    char       *path = paths[next++ % 2];

    snprintf(path, sizeof paths[0], "%s/%s.safetensors", scratch_folder, name);
    return path;
}

/* Writes an edited copy of a case and returns its path (scratch "case"). */
static inline const char *edited_case(const char *source, const case_edit *edit)
{
    hl_safetensors        *file    = NULL;
    hl_safetensors_writer *writer  = NULL;
    const char            *options = NULL;
    bool                   placed  = edit->replace == NULL;

    assert_ok(hl_safetensors_open(&file, source));
    assert_ok(hl_safetensors_writer_new(&writer));
    options = edit->options != NULL ? edit->options : hl_safetensors_metadata(file, "case");
    if (options[0] != '\0')
        hl_safetensors_add_metadata(writer, "case", options);
    for (size_t i = 0; i < hl_safetensors_count(file); i++) {
        const hl_tensor *tensor = hl_safetensors_at(file, i);

        if (edit->drop != NULL && strcmp(tensor->name, edit->drop) == 0)
            continue;
        if (edit->replace != NULL && strcmp(tensor->name, edit->replace->name) == 0) {
            tensor = edit->replace;
            placed = true;
        }
        hl_safetensors_add(writer, tensor);
    }
    if (!placed)
        hl_safetensors_add(writer, edit->replace);
    assert_ok(hl_safetensors_write(writer, scratch("case")));
    hl_safetensors_writer_free(writer);
    hl_safetensors_close(file);
    return scratch("case");
}

/* Writes a case with only these tensors. */
static inline const char *new_case(const char *options, const hl_tensor *tensors, size_t n_tensors)
{
    hl_safetensors_writer *writer = NULL;

    assert_ok(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "case", options);
    for (size_t i = 0; i < n_tensors; i++)
        hl_safetensors_add(writer, &tensors[i]);
    assert_ok(hl_safetensors_write(writer, scratch("case")));
    hl_safetensors_writer_free(writer);
    return scratch("case");
}

#endif
