/* fuzz_gates.c - any bytes at all, as gates and as a list of heads.
 *
 * They are refused with a message, or every gate is from 0 to 1 and every head of the list is
 * one of the model's. */
#include <string.h>

#include "fuzz.h"

static void read_gates(const hl_model *model, const char *text, size_t n_bytes)
{
    hl_gates *gates = NULL;

    if (hl_gates_parse(&gates, model, text, n_bytes, "fuzz") != HL_OK) {
        refused(gates);
        return;
    }
    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++)
        PROMISE(gates->values[i] >= 0.0f && gates->values[i] <= 1.0f);
    hl_gates_free(gates);
}

/* What is read once and written is the same when it is read again. */
static void read_list(const hl_model *model, const char *text)
{
    const hl_model_info *info  = hl_model_get_info(model);
    hl_head_list        *list  = NULL;
    hl_head_list        *again = NULL;
    char                *names = NULL;

    if (hl_head_list_parse(&list, model, text) != HL_OK) {
        refused(list);
        return;
    }
    for (int64_t i = 0; i < list->n_heads; i++)
        PROMISE(list->heads[i].layer < info->n_layers && list->heads[i].head < info->n_heads);
    PROMISE(hl_head_list_text(&names, list) == HL_OK);
    PROMISE(hl_head_list_parse(&again, model, names) == HL_OK);
    PROMISE(again->n_heads == list->n_heads);
    hl_free(names);
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
    read_gates(model, text, n_bytes);
    read_list(model, text);
    free(text);
    return 0;
}
