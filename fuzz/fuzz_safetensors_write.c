/* fuzz_safetensors_write.c - a safetensors file of arbitrary names and tensors, written and read
 * back.
 *
 * The input chooses the contents: names and metadata of any bytes, also empty or duplicate ones,
 * and tensors of every dtype, also empty ones.  They are refused with a message, or the reader
 * finds the same tensors and values.  The same contents in another order give the same bytes, also
 * if the data are written after the header, one tensor at a time. */
#include "base/dtype.h"
#include "formats/safetensors.h"
#include "fuzz_choices.h"
#include "fuzz_file.h"

enum { MAX_TENSORS = 8, MAX_TEXTS = 4, MAX_BYTES = 1024, NAME_BYTES = 8, MAX_DIMS = 4 };

typedef struct made {
    char      names[MAX_TENSORS][NAME_BYTES];
    hl_tensor tensors[MAX_TENSORS];
    uint8_t   data[MAX_TENSORS][MAX_BYTES];
    char      texts[MAX_TEXTS][2][NAME_BYTES]; /* key and value */
    int       n_tensors, n_texts;
} made;

static made all;

/* ----------------------------------------------------------------------------- making */

static void make_text(char out[NAME_BYTES], choices *from)
{
    int length = (int)choose(from, 0, NAME_BYTES - 1);

    for (int i = 0; i < length; i++)
        out[i] = (char)choose(from, 1, 255);
    out[length] = '\0';
}

/* Makes a small tensor: at most 4 values in each dimension, except for the blocks of a type. */
static void make_tensor(int index, choices *from)
{
    hl_tensor *tensor = &all.tensors[index];

    make_text(all.names[index], from);
    *tensor        = (hl_tensor){ .name = all.names[index], .data = all.data[index] };
    tensor->dtype  = (hl_dtype)choose(from, 0, HL_DTYPE_COUNT - 1);
    tensor->n_dims = (int)choose(from, 0, MAX_DIMS);
    for (int i = 0; i < tensor->n_dims; i++)
        tensor->shape[i] = choose(from, 0, 3);
    if (hl_tensor_bytes(&tensor->n_bytes, tensor) != HL_OK || tensor->n_bytes > MAX_BYTES)
        tensor->n_bytes = 1; /* a size that is wrong for most shapes */
    for (size_t i = 0; i < tensor->n_bytes; i++)
        all.data[index][i] = (uint8_t)(int)(choose_noise(from) * 127.0f);
}

/* Writes the header and reserves room for the data, then writes the data. */
static hl_status write_in_pieces(hl_safetensors_writer *writer, const char *path)
{
    hl_writer *file   = NULL;
    hl_status  status = hl_safetensors_begin(&file, writer, path);

    if (status != HL_OK)
        return status;
    for (int i = 0; i < all.n_tensors; i++)
        hl_writer_write_at(file, hl_safetensors_offset(writer, all.names[i]), all.tensors[i].data,
                           all.tensors[i].n_bytes);
    return hl_writer_finish(file);
}

static hl_status write_all(const char *path, bool backwards)
{
    hl_safetensors_writer *writer = NULL;

    PROMISE(hl_safetensors_writer_new(&writer) == HL_OK);
    for (int i = 0; i < all.n_texts; i++)
        hl_safetensors_add_metadata(writer, all.texts[i][0], all.texts[i][1]);
    for (int i = 0; i < all.n_tensors; i++)
        hl_safetensors_add(writer, &all.tensors[backwards ? all.n_tensors - 1 - i : i]);
    hl_status status =
        backwards ? write_in_pieces(writer, path) : hl_safetensors_write(writer, path);
    hl_safetensors_writer_free(writer);
    return status;
}

/* ---------------------------------------------------------------------------- reading */

static void check_tensor(const hl_tensor *seen, const hl_tensor *wanted)
{
    PROMISE(seen != NULL && seen->dtype == wanted->dtype && seen->n_dims == wanted->n_dims);
    PROMISE(memcmp(seen->shape, wanted->shape, (size_t)seen->n_dims * sizeof *seen->shape) == 0);
    PROMISE(seen->n_bytes == wanted->n_bytes);
    PROMISE(memcmp(seen->data, wanted->data, seen->n_bytes) == 0);
}

static void check_file(const char *path)
{
    hl_safetensors *file = NULL;

    PROMISE(hl_safetensors_open(&file, path) == HL_OK);
    PROMISE(hl_safetensors_count(file) == (size_t)all.n_tensors);
    for (int i = 0; i < all.n_tensors; i++)
        check_tensor(hl_safetensors_find(file, all.names[i]), &all.tensors[i]);
    for (int i = 0; i < all.n_texts; i++) {
        const char *value = hl_safetensors_metadata(file, all.texts[i][0]);
        PROMISE(value != NULL && strcmp(value, all.texts[i][1]) == 0);
    }
    hl_safetensors_close(file);
}

static void check_same(const char *left, const char *right)
{
    static char a[1 << 17], b[1 << 17];
    FILE       *files[2] = { fopen(left, "rb"), fopen(right, "rb") };

    PROMISE(files[0] != NULL && files[1] != NULL);
    size_t n_bytes = fread(a, 1, sizeof a, files[0]);
    PROMISE(n_bytes < sizeof a && fread(b, 1, sizeof b, files[1]) == n_bytes);
    PROMISE(memcmp(a, b, n_bytes) == 0);
    fclose(files[0]);
    fclose(files[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    choices from = { bytes, n_bytes, 1 };
    char    path[FUZZ_PATH_BYTES], twin[FUZZ_PATH_BYTES];

    choose_seed(&from);
    snprintf(path, sizeof path, "%s/made.safetensors", fuzz_folder());
    snprintf(twin, sizeof twin, "%s/twin.safetensors", fuzz_folder());
    all.n_texts   = (int)choose(&from, 0, MAX_TEXTS);
    all.n_tensors = (int)choose(&from, 0, MAX_TENSORS);
    for (int i = 0; i < all.n_texts; i++) {
        make_text(all.texts[i][0], &from);
        make_text(all.texts[i][1], &from);
    }
    for (int i = 0; i < all.n_tensors; i++)
        make_tensor(i, &from);
    if (write_all(path, false) == HL_OK) {
        check_file(path);
        PROMISE(write_all(twin, true) == HL_OK);
        check_same(path, twin);
    } else {
        PROMISE(hl_error_message()[0] != '\0');
    }
    return 0;
}
