/* fuzz_gates.c - arbitrary bytes as files of gates and as a list of heads.
 *
 * They are refused with a message, or every gate is from 0 to 1 and every head of the list is one
 * of the model's. */
#include "fuzz_file.h"

static void read_gates(const hl_model *model, const char *path)
{
    hl_gates *gates = NULL;

    if (hl_gates_load(&gates, model, path) != HL_OK) {
        refused(gates);
        return;
    }
    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++)
        PROMISE(gates->values[i] >= 0.0f && gates->values[i] <= 1.0f);
    hl_gates_free(gates);
}

/* A list that was read and written is the same when it is read again. */
static void read_list(const hl_model *model, const char *text)
{
    const hl_model_info *info  = hl_model_get_info(model);
    hl_head_list        *list  = NULL;
    hl_head_list        *again = NULL;
    hl_gates            *gates = NULL;
    char                *names = NULL;

    if (hl_head_list_parse(&list, model, text) != HL_OK) {
        refused(list);
        return;
    }
    for (int64_t i = 0; i < list->n_heads; i++)
        PROMISE(list->heads[i].layer < info->n_layers && list->heads[i].head < info->n_heads);
    PROMISE(hl_gates_new(&gates, model) == HL_OK);
    hl_gates_set(gates, list, 0.0f);
    PROMISE((hl_gates_n_changed(gates) > 0) == (list->n_heads > 0));
    PROMISE(hl_head_list_text(&names, list) == HL_OK);
    PROMISE(hl_head_list_parse(&again, model, names) == HL_OK);
    PROMISE(again->n_heads == list->n_heads);
    hl_free(names);
    hl_gates_free(gates);
    hl_head_list_free(list);
    hl_head_list_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static hl_model *model; /* opened once */
    char            *text = malloc(n_bytes + 1);

    PROMISE(text != NULL);
    if (model == NULL)
        PROMISE(hl_model_open(&model, "tests/data/families/llama3") == HL_OK);
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    read_gates(model, fuzz_file("gates.json", bytes, n_bytes));
    read_gates(model, fuzz_file("gates.safetensors", bytes, n_bytes));
    read_list(model, text);
    free(text);
    return 0;
}
