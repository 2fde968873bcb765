/* fuzz_sweep_state.c - arbitrary bytes as the state of an interrupted sweep.
 *
 * They are refused with a message, or they are lists of numbers, which can be saved and loaded
 * again. */
#include "formats/safetensors.h"
#include "fuzz_file.h"
#include "prune/sweep_state.h"

/* Checks the lists with another reader of the file. */
static void look_up(const hl_sweep_state *state, const char *path)
{
    hl_safetensors *file = NULL;

    PROMISE(hl_safetensors_open(&file, path) == HL_OK);
    for (size_t i = 0; i < hl_safetensors_count(file); i++) {
        const hl_tensor *tensor = hl_safetensors_at(file, i);
        const double    *kept   = hl_sweep_state_get(state, tensor->name, tensor->shape[0]);
        PROMISE(kept != NULL);
        PROMISE(tensor->n_bytes == 0 || memcmp(kept, tensor->data, tensor->n_bytes) == 0);
        PROMISE(hl_sweep_state_get(state, tensor->name, tensor->shape[0] + 1) == NULL);
    }
    hl_safetensors_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char     *path  = fuzz_file("sweep.state", bytes, n_bytes);
    hl_sweep_state *state = NULL;

    PROMISE(hl_sweep_state_new(&state, path, "key") == HL_OK);
    if (hl_sweep_state_load(state) != HL_OK) {
        PROMISE(hl_error_message()[0] != '\0');
    } else {
        look_up(state, path);
        PROMISE(hl_sweep_state_put(state, "one more", (const double[]){ 0.5 }, 1) == HL_OK);
        PROMISE(hl_sweep_state_put(state, "one more", (const double[]){ 1.5 }, 1) == HL_OK);
        PROMISE(hl_sweep_state_save(state) == HL_OK);
        look_up(state, path);
    }
    hl_sweep_state_free(state);
    return 0;
}
